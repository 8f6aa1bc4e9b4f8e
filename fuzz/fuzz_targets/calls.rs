//! Any calls of the C interface in any order, on handles that live: each is a status, nothing hangs, and what was given
//! away is dropped. `capi/tests/orders.rs` draws the same worlds from seeds.
#![no_main]

#[path = "../../capi/tests/calls/mod.rs"]
mod calls;

use libfuzzer_sys::fuzz_target;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Contexts of callbacks that all inputs so far gave away.
static GIVEN: AtomicUsize = AtomicUsize::new(0);
/// A thread that ends holds a context a little longer than the call that let go of it.
const BOUND: Duration = Duration::from_secs(60);

fuzz_target!(|data: &[u8]| {
    let folder = uringload_fuzz::files(&[("numbers", &[7; 800])]);
    let path = CString::new(folder.join("numbers").as_os_str().as_bytes()).expect("a path");
    let calls::Sums { good, errors, given } = calls::world(&mut calls::Random::of(data), &path);
    let (all, start) = (GIVEN.fetch_add(given, Ordering::SeqCst) + given, Instant::now());
    while calls::DROPPED.load(Ordering::SeqCst) < all && start.elapsed() < BOUND {
        std::thread::yield_now();
    }
    assert_eq!(
        calls::DROPPED.load(Ordering::SeqCst),
        all,
        "each context is dropped once: {good} good, {errors} failed"
    );
});
