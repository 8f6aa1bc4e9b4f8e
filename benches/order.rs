//! Measures the cost of a place in the order: nanoseconds for one `at()` through `&dyn Sampler`, for one in an
//! `EpochOrder`, and for one position of a planned batch. `cargo bench --bench order`.
//!
//! Each number is the best of several runs: the one that other processes disturbed least. The program prints a hash of
//! all results, so that the work cannot be optimized away and a change of the order shows.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use uringload::inspect::{Sequential, Sharded, Shuffled, Strided, Windowed};
use uringload::sampler::{Cursor, Mixed, Sampler, Stopping};

const RUNS: usize = 7;
const POSITIONS: u64 = 1_000_000;
/// Positions per batch, and ranks, for the planned batches.
const BATCH: u64 = 256;
const WORLD: u64 = 8;

fn main() {
    // A small folder; ImageNet; a power of two and what follows it, the worst case of a shuffle on whole bits.
    for len in [20_000, 1_281_167, 1 << 20, (1 << 20) + 1, 10_000_000_019] {
        let shuffled = Shuffled::new(len, 42);
        let sampler: &dyn Sampler = black_box(&shuffled);
        report(len, "at, dyn", || run(|position| sampler.at(Cursor::new(black_box(3), position % len)).0));
        report(len, "at, dyn, each waits for the last", || {
            let mut hash = 0;
            for position in 0..POSITIONS {
                hash = sampler.at(Cursor::new(black_box(3), (position + (hash & 1)) % len)).0;
            }
            hash
        });
        let order = shuffled.epoch(black_box(3));
        report(len, "at, epoch", || run(|position| order.at(position % len).0));
        report(len, "planned position", || {
            let strided = Strided::new(3, WORLD, BATCH, false).expect("a rank below its world size");
            let mut positions = Vec::with_capacity(BATCH as usize);
            let (mut hash, mut count, mut batch) = (0_u64, 0, 0);
            while count < POSITIONS {
                positions.clear();
                strided.batch(Cursor::default(), len, batch, &mut positions);
                batch = if positions.is_empty() { 0 } else { batch + 1 };
                count += positions.len() as u64;
                for place in &positions {
                    hash = hash.wrapping_mul(31).wrapping_add(order.at(place.position).0);
                }
            }
            hash
        });
    }
    let sequential = Sequential::new(1 << 20);
    let sequential: &dyn Sampler = black_box(&sequential);
    report(1 << 20, "sequential, dyn", || run(|position| sequential.at(Cursor::new(0, position)).0));
    others();
}

/// The orders made of shuffled pieces, over the samples of ImageNet.
fn others() {
    const LEN: u64 = 1_281_167;
    for window in [64, 8192, 100_000] {
        let windowed = Windowed::new(LEN, window, 42).expect("windows");
        report_order(&format!("windows of {window}"), &windowed);
    }
    for (shards, mixed) in [(40, 8), (1000, 8), (1000, 128)] {
        let ends: Vec<u64> = (1..=shards).map(|shard| LEN * shard / shards).collect();
        let sharded = Sharded::new(&ends, mixed, 42).expect("shards");
        report_order(&format!("{shards} shards, {mixed} mixed"), &sharded);
    }
    report_order("pieces, 16 mixed", &Sharded::pieces(LEN, 16, 42).expect("pieces"));
    let parts = |len: u64| (0..8).map(move |seed| Arc::new(Shuffled::new(len, seed)) as Arc<dyn Sampler>).collect();
    let weights = [0.3, 0.05, 0.2, 0.01, 0.11, 0.13, 0.15, 0.05];
    for (what, len, stopping) in [
        ("mixture of 8", LEN, Stopping::FirstExhausted),
        ("mixture of 8 that start over", LEN / 80, Stopping::After(LEN)),
        ("mixture of 8, without replacement", LEN / 8, Stopping::AllExhaustedWithoutReplacement),
    ] {
        let ends: Vec<u64> = (1..=8).map(|part| part * len).collect();
        let start = Instant::now();
        let mixed = Mixed::new(parts(len), &ends, &weights, stopping, 42).expect("a mixture");
        let built = start.elapsed().as_secs_f64() * 1e3;
        report_order(&format!("{what} ({built:.1} ms)"), &mixed);
    }
}

fn report_order(what: &str, sampler: &dyn Sampler) {
    let (sampler, len) = (black_box(sampler), sampler.len());
    report(len, what, || run(|position| sampler.at(Cursor::new(black_box(3), position % len)).0));
}

fn run(at: impl Fn(u64) -> u64) -> u64 {
    (0..POSITIONS).fold(0_u64, |hash, position| hash.wrapping_mul(31).wrapping_add(at(position)))
}

fn report(len: u64, what: &str, work: impl Fn() -> u64) {
    let mut best = f64::MAX;
    let mut hash = 0;
    for _ in 0..RUNS {
        let start = Instant::now();
        hash = black_box(work());
        best = best.min(start.elapsed().as_nanos() as f64 / POSITIONS as f64);
    }
    println!("{len:>12} samples  {what:<44} {best:>6.1} ns  {hash:016x}");
}
