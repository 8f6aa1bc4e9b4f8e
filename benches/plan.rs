//! Measures the cost of planning: nanoseconds per sample, from the cursor to the reads. `cargo bench --bench plan`.
//!
//! Each number is the best of several runs: the one that other processes disturbed least. The program prints a hash of
//! all plans, so that the work cannot be optimized away and a change of a plan shows.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use uringload::config::Config;
use uringload::config::{Collate, Padding};
use uringload::dataset::{self, Dataset, FileTable, Options};
use uringload::inspect::{Sequential, Shuffled};
use uringload::sampler::{Order, Sampler};

const RUNS: usize = 7;
const BATCH: u64 = 256;
/// Alignment of offsets; then the largest read.
const ALIGNMENT: u64 = 512;
const READ_BYTES: u64 = 512 << 10;
/// Samples planned per run.
const SAMPLES: u64 = 500_000;
/// The most that planning one sample may cost (or one read, where a sample takes many), in nanoseconds.
const LIMIT_NANOS: f64 = 150.0;

fn main() {
    let (apart, near) = (0, 64 << 10);
    let mut slowest = 0_f64;
    let mut run = |what: &str, dataset: &Arc<dyn Dataset>, shuffle, coalesce_gap, collate| {
        slowest = slowest.max(report(what, dataset, shuffle, coalesce_gap, collate));
    };
    let padded = Collate::Padded(Padding::default().multiple_of(8));
    let files = folder(20_000, 110_000);
    run("20 000 files of 110 kB", &files, true, apart, Collate::Views);
    run("20 000 files of 110 kB, in order", &files, false, apart, Collate::Views);
    run("1 000 000 files of 110 kB", &folder(1_000_000, 110_000), true, apart, Collate::Views);
    run("40 files of 140 MB", &folder(40, 140_000_000), true, apart, Collate::Views);
    run("20 000 files of 110 kB, padded", &files, true, apart, padded);
    let one = records(1, 40_000, 150_528);
    run("6 GB of 150 528-byte records", &one, true, apart, Collate::Views);
    run("6 GB of 150 528-byte records, dense", &one, true, apart, Collate::Dense);
    run("6 GB of 150 528-byte records, in order", &one, false, apart, Collate::Dense);
    let many = records(1000, 10_000, 1000);
    run("1000 files of 1000-byte records", &many, true, apart, Collate::Views);
    run("1000 files of 1000-byte records, in order", &many, false, apart, Collate::Dense);
    run("1000 files of 1000-byte records, coalesced", &many, true, near, Collate::Views);
    println!("slowest: {slowest:.1} ns a sample (or read, where there are more), {LIMIT_NANOS} are allowed");
}

fn folder(count: u64, mean_bytes: u64) -> Arc<dyn Dataset> {
    let files = table(count, |number| mean_bytes / 2 + number * 7919 % mean_bytes);
    dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap()
}

fn records(files: u64, records: u64, record_bytes: u64) -> Arc<dyn Dataset> {
    let files = table(files, |_| records * record_bytes);
    let options = Options::new().format("records").set("record_bytes", record_bytes);
    dataset::inspect::of_files(files, &options).expect("whole records")
}

fn table(count: u64, size: impl Fn(u64) -> u64) -> FileTable {
    let mut files = FileTable::new();
    files.push_root("/data");
    for number in 0..count {
        files.push(format!("class_{:03}/{number:07}.jpg", number % 1000).as_bytes(), size(number)).expect("room");
    }
    files
}

fn report(what: &str, dataset: &Arc<dyn Dataset>, shuffle: bool, coalesce_gap: u64, collate: Collate) -> f64 {
    let len = dataset.len();
    // No user asks for a batch that holds most of a small dataset.
    let batch_size = BATCH.min(len / 10);
    let config = Config { batch_size, epochs: None, collate, coalesce_gap: Some(coalesce_gap), ..Config::default() };
    let sampler: Arc<dyn Sampler> =
        if shuffle { Arc::new(Shuffled::new(len, 42)) } else { Arc::new(Sequential::new(len)) };
    let order = Order::new(&config, Arc::clone(dataset), sampler).expect("one rank");
    let (mut best, mut reads_each, mut hash) = (f64::MAX, 0.0, 0);
    for _ in 0..RUNS {
        let start = Instant::now();
        let planned = order.plan_ahead(black_box(&config), ALIGNMENT, READ_BYTES, SAMPLES).expect("forms that fit");
        assert!(planned.samples >= SAMPLES, "endless");
        best = best.min(start.elapsed().as_nanos() as f64 / planned.samples as f64);
        (reads_each, hash) = (planned.reads as f64 / SAMPLES as f64, planned.hash);
    }
    println!("{what:<44} {best:>7.1} ns a sample  {reads_each:>6.2} reads each  {hash:016x}");
    best / reads_each.max(1.0)
}
