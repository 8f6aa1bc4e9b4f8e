//! Measures the cost of packing and how full it makes rows: a million sequences of log-normal lengths into rows of
//! 2048, window by window. `cargo bench --bench pack`.
//!
//! Each time is the best of several runs: the one that other processes disturbed least. The program prints a hash of
//! all rows, so that the work cannot be optimized away and a change of the rows shows.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use uringload::config::Batching;
use uringload::config::{Buckets, PackMethod, Packing, Shuffle};
use uringload::config::{Config, WINDOW_SAMPLES};
use uringload::dataset::{self, Dataset, FileTable, Options};
use uringload::inspect::{Bucketer, Packer, Rows, Shuffled};
use uringload::sampler::{Cursor, Order, Selection};

const RUNS: usize = 7;
const SEQUENCES: usize = 1_000_000;
const SEQ_LEN: u64 = 2048;
/// Standard deviation of the logarithm of a length.
const SIGMA: f64 = 1.0;
const METHODS: [PackMethod; 3] = [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat];

fn main() {
    for median in [300.0, 450.0, 600.0] {
        let lengths = lengths(median);
        for window in [1024, WINDOW_SAMPLES, 65_536, SEQUENCES as u64] {
            for method in METHODS {
                pack(&lengths, median, method, window);
            }
        }
        bucket(&lengths, median);
    }
    let files = folder(&lengths(450.0));
    for method in METHODS {
        let packing = Packing::new(SEQ_LEN).method(method);
        walk(&files, &format!("{method:?}"), Batching::Packed(packing));
    }
    walk(&files, "Buckets", Batching::Buckets(buckets()));
}

/// Log-normal lengths of at least 1, without an upper bound; the same in every run.
fn lengths(median: f64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut uniform = move || ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    // The Box-Muller transform.
    let mut normal = move || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    (0..SEQUENCES).map(|_| (median * (SIGMA * normal()).exp()).ceil() as u64).collect()
}

fn packing(method: PackMethod) -> Packing {
    Packing::new(SEQ_LEN).method(method)
}

fn buckets() -> Buckets {
    let boundaries = vec![128, 256, 512, 1024, 2048];
    Buckets::new(boundaries, vec![256, 128, 64, 32, 16, 4])
}

fn pack(lengths: &[u64], median: f64, method: PackMethod, window: u64) {
    let mut packer = Packer::new(&packing(method)).expect("a row length");
    let mut rows = Rows::default();
    let elements: u64 = lengths.iter().sum();
    let (mut best, mut count, mut hash) = (f64::MAX, 0, 0);
    for _ in 0..RUNS {
        let start = Instant::now();
        (count, hash) = (0, 0);
        for window in black_box(lengths).chunks(window as usize) {
            packer.pack(window, None, &mut rows);
            count += rows.len() as u64;
            hash = add(hash, &rows);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / lengths.len() as f64);
    }
    let full = 100.0 * elements as f64 / (count * SEQ_LEN) as f64;
    let method = format!("{method:?}");
    println!("median {median}, windows of {window:>7}  {method:<10} {full:>6.2} % full  {best:>6.1} ns  {hash:016x}");
}

fn bucket(lengths: &[u64], median: f64) {
    let mut bucketer = Bucketer::new(&buckets()).expect("buckets");
    let mut rows = Rows::default();
    let (mut best, mut hash) = (f64::MAX, 0);
    for _ in 0..RUNS {
        let start = Instant::now();
        hash = 0;
        for window in black_box(lengths).chunks(WINDOW_SAMPLES as usize) {
            bucketer.bucket(window, None, &mut rows);
            hash = add(hash, &rows);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / lengths.len() as f64);
    }
    println!("median {median}, windows of {WINDOW_SAMPLES:>7}  Buckets                    {best:>6.1} ns  {hash:016x}");
}

fn add(hash: u64, rows: &Rows) -> u64 {
    let last = rows.row(rows.len() - 1)[0];
    hash.wrapping_mul(31).wrapping_add(u64::from(last.index) + last.piece.len + rows.len() as u64)
}

/// One file per sequence, so that lengths lie in memory as in a real index.
fn folder(lengths: &[u64]) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root("/data");
    for (number, &length) in lengths.iter().enumerate() {
        files.push(format!("{number:07}").as_bytes(), length).expect("room");
    }
    dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap()
}

/// Measures the whole way from the cursor to the pieces of a batch: over an epoch, and for the first batch after a
/// cursor in the middle of a window.
fn walk(dataset: &Arc<dyn Dataset>, what: &str, batching: Batching) {
    let config = Config { batching, shuffle: Shuffle::Full, seed: 42, batch_size: 8, ..Config::default() };
    let sampler = Arc::new(Shuffled::new(dataset.len(), config.seed));
    let from = |start| {
        let config = Config { start, ..config.clone() };
        Order::new(&config, Arc::clone(dataset), sampler.clone()).expect("an order").walk()
    };
    let mut batch = Selection::default();
    let (mut all, mut resumed) = (f64::MAX, f64::MAX);
    for run in 0..RUNS as u64 {
        let mut walk = from(Cursor::default());
        let start = Instant::now();
        while walk.next(&mut batch) {}
        all = all.min(start.elapsed().as_nanos() as f64 / dataset.len() as f64);
        let cursor = Cursor { epoch: 0, position: (run * 17 + 3) * WINDOW_SAMPLES, rows: 100 };
        let start = Instant::now();
        assert!(from(cursor).next(&mut batch));
        resumed = resumed.min(start.elapsed().as_nanos() as f64 / 1e3);
    }
    println!("{what:<10} {all:>6.1} ns a sample from cursor to batch; {resumed:>6.1} us to go on within a window");
}
