//! Calls in any order: a status each time, an error that says something, nothing lost and no hang.

mod calls;

use calls::{DROPPED, Random, world};
use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The slow suite runs thousands (`URINGLOAD_SEEDS`): each takes some 40 ms.
const SEEDS: u64 = 300;

#[test]
fn calls_in_any_order_end_with_a_status() {
    let seeds = std::env::var("URINGLOAD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let root = TempDir::new().expect("a folder");
    let path = root.path().join("numbers");
    std::fs::write(&path, vec![7; 800]).expect("a file");
    let path = CString::new(path.to_str().expect("UTF-8")).expect("text");
    let (mut good, mut errors, mut given) = (0, 0, 0);
    for seed in 0..seeds {
        let sums = world(&mut Random::seeded(seed), &path);
        (good, errors, given) = (good + sums.good, errors + sums.errors, given + sums.given);
    }
    assert!(good > seeds && errors > seeds, "{good} calls were good and {errors} failed");
    // The last thread of a loader may still be ending.
    let start = Instant::now();
    while DROPPED.load(Ordering::SeqCst) < given && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(DROPPED.load(Ordering::SeqCst), given, "each context is dropped once");
}
