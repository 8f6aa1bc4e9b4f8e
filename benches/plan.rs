//! What planning costs: nanoseconds for each sample, from the cursor to the reads. `cargo bench --bench plan`.
//!
//! Each number is the best of several runs, which is the one that other processes have disturbed least. A hash of all
//! plans is printed with it, so that the work cannot be optimised away, and a change of a plan shows.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use uringload::collate::Collation;
use uringload::config::{Collate, Config, PadValue, Padding};
use uringload::dataset::{Dataset, FileTable, Folder, RecordOptions, Records};
use uringload::plan::{BatchPlan, Layout, Planner};
use uringload::sampler::{Cursor, Sampler, Sequential, Shuffled, Strided};

const RUNS: usize = 7;
const BATCH: u64 = 256;
/// Samples planned in a run.
const SAMPLES: u64 = 500_000;
/// The plan of one sample (or of one read, where a sample is many) may cost this much at most, in nanoseconds.
const LIMIT_NANOS: f64 = 150.0;

fn main() {
    let layout = Layout { alignment: 512, read_bytes: 512 << 10, coalesce_gap: 0 };
    let near = Layout { coalesce_gap: 64 << 10, ..layout };
    let mut slowest = 0_f64;
    let mut run = |what: &str, dataset: &Arc<dyn Dataset>, shuffle, layout, collate| {
        slowest = slowest.max(report(what, dataset, shuffle, layout, collate));
    };
    let padded = Collate::Padded(Padding { value: PadValue::Int(0), max_length: None, multiple_of: 8 });
    let files = folder(20_000, 110_000);
    run("20 000 files of 110 kB", &files, true, layout, Collate::Views);
    run("20 000 files of 110 kB, in order", &files, false, layout, Collate::Views);
    run("1 000 000 files of 110 kB", &folder(1_000_000, 110_000), true, layout, Collate::Views);
    run("40 files of 140 MB", &folder(40, 140_000_000), true, layout, Collate::Views);
    run("20 000 files of 110 kB, padded", &files, true, layout, padded);
    let one = records(1, 40_000, 150_528);
    run("6 GB of 150 528-byte records", &one, true, layout, Collate::Views);
    run("6 GB of 150 528-byte records, dense", &one, true, layout, Collate::Dense);
    run("6 GB of 150 528-byte records, in order", &one, false, layout, Collate::Dense);
    let many = records(1000, 10_000, 1000);
    run("1000 files of 1000-byte records", &many, true, layout, Collate::Views);
    run("1000 files of 1000-byte records, in order", &many, false, layout, Collate::Dense);
    run("1000 files of 1000-byte records, coalesced", &many, true, near, Collate::Views);
    println!("slowest: {slowest:.1} ns a sample (or read, where there are more), {LIMIT_NANOS} are allowed");
}

fn folder(count: u64, mean_bytes: u64) -> Arc<dyn Dataset> {
    let files = table(count, |number| mean_bytes / 2 + number * 7919 % mean_bytes);
    Arc::new(Folder::from_files(files))
}

fn records(files: u64, records: u64, record_bytes: u64) -> Arc<dyn Dataset> {
    let files = table(files, |_| records * record_bytes);
    let options = RecordOptions { record_bytes, ..RecordOptions::default() };
    Arc::new(Records::from_files(files, &options).expect("whole records"))
}

fn table(count: u64, size: impl Fn(u64) -> u64) -> FileTable {
    let mut files = FileTable::new();
    files.push_root("/data");
    for number in 0..count {
        files.push(format!("class_{:03}/{number:07}.jpg", number % 1000).as_bytes(), size(number)).expect("room");
    }
    files
}

fn report(what: &str, dataset: &Arc<dyn Dataset>, shuffle: bool, layout: Layout, collate: Collate) -> f64 {
    let config = Config { collate, ..Config::default() };
    let collation = Arc::new(Collation::new(&config, &**dataset).expect("forms that fit"));
    let len = dataset.len();
    let sampler: Arc<dyn Sampler> =
        if shuffle { Arc::new(Shuffled::new(len, 42)) } else { Arc::new(Sequential::new(len)) };
    // A batch of most of a small dataset is no batch that anybody asks for.
    let batch = BATCH.min(len / 10);
    let mut best = f64::MAX;
    let (mut hash, mut reads) = (0, 0);
    for _ in 0..RUNS {
        let strided = Strided::new(0, 1, batch, false).expect("one rank");
        let (dataset, sampler) = (Arc::clone(dataset), Arc::clone(&sampler));
        let mut planner = Planner::new(dataset, sampler, strided, Cursor::default(), None, black_box(layout))
            .with_collation(Arc::clone(&collation));
        let mut plan = BatchPlan::default();
        let (mut samples, start) = (0, Instant::now());
        (hash, reads) = (0, 0);
        while samples < SAMPLES {
            assert!(planner.next(&mut plan), "endless");
            samples += plan.ids.len() as u64;
            reads += plan.reads.len() as u64;
            let last = plan.reads.last().map_or(0, |read| read.offset ^ read.need);
            hash = hash * 31 % 1_000_000_007 + plan.block_bytes() % 1_000_000_007 + last;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / samples as f64);
    }
    let reads_each = reads as f64 / SAMPLES as f64;
    println!("{what:<44} {best:>7.1} ns a sample  {reads_each:>6.2} reads each  {hash:016x}");
    best / reads_each.max(1.0)
}
