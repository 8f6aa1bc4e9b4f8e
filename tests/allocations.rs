//! In steady state a loader allocates by the batch and never by the read or the sample: four times the reads, the same
//! number of allocations.
//!
//! A binary of its own, because its allocator counts what the whole process allocates.

mod common;

use common::allocator::Watched;
use common::check::WAYS;
use common::content::write_file;
use common::{skip, within};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io};
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::Loader;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{Buckets, Collate, EngineChoice, IoChoice, PackMethod, Packing, Padding, Shuffle};
use uringload::dataset::{self, Dataset, FileTable, Options};
use uringload::inspect::Sequential;
use uringload::sampler::{Order, Selection};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(true) };
}

#[global_allocator]
static COUNTING: Watched = Watched(
    |_| {
        ALLOCATIONS.fetch_add(u64::from(COUNTED.get()), Ordering::Relaxed);
    },
    |_| {},
);

const BOUND: Duration = Duration::from_secs(120);

/// What a batch may allocate: its lists (samples, values, columns and their names, lengths), one handle for each of its
/// blocks, and the node in which the blocks go home.
const PER_BATCH_MAX: f64 = 12.0;

/// Batches until every list has its length: the queue, all plans in reserve and every block were used by then.
const WARM_UP: u64 = 300;
/// Then so many are measured, so many times, and the least counts: a list that grows late, and what comes with time, as
/// a thread does where a disk is slow, is no part of it.
const BATCHES: u64 = 50;
const TIMES: usize = 3;

/// Allocations and reads for each batch of a loader in steady state. `None` if this way is not available here.
fn measure(dataset: &Arc<dyn Dataset>, config: Config) -> Option<(f64, f64)> {
    let (engine, io) = (config.engine, config.io);
    let mut loader = match Loader::builder(Arc::clone(dataset)).config(config).build() {
        Ok(loader) => loader,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip(format!("{engine:?} {io:?}: {error}"));
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let stats = loader.stats();
    for _ in 0..WARM_UP {
        drop(loader.next().expect("endless").expect("no error"));
    }
    let counts = || settled(|| [ALLOCATIONS.load(Ordering::Relaxed), stats.count.reads.get()]);
    let mut before = counts();
    let times: Vec<[u64; 2]> = (0..TIMES)
        .map(|_| {
            for _ in 0..BATCHES {
                drop(loader.next().expect("endless").expect("no error"));
            }
            let after = counts();
            let since = [after[0] - before[0], after[1] - before[1]];
            before = after;
            since
        })
        .collect();
    let least = |what: usize| times.iter().map(|counts| counts[what]).min().unwrap_or(0) as f64 / BATCHES as f64;
    Some((least(0), least(1)))
}

/// The counts once they do not change any more: the loader has read as far ahead as its memory reaches, so that as many
/// batches were made between two such moments as were taken. A thread that waits for a processor is not done.
fn settled(counts: impl Fn() -> [u64; 2]) -> [u64; 2] {
    let mut last = counts();
    let mut unchanged = 0;
    while unchanged < 20 {
        std::thread::sleep(Duration::from_millis(1));
        let idle = others_sleep();
        let now = counts();
        unchanged = if idle && now == last { unchanged + 1 } else { 0 };
        last = now;
    }
    last
}

/// Whether all other threads of the process sleep: the state in their `/proc/self/task/*/stat` is S (proc(5)). What it
/// allocates is not counted.
fn others_sleep() -> bool {
    COUNTED.set(false);
    let sleeps = |task: io::Result<fs::DirEntry>| {
        let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
        // A thread that ended since it was listed is not there. The name, in parentheses, may have any characters.
        stat.map_or(true, |stat| stat[stat.rfind(')').expect("a name")..].starts_with(") S"))
    };
    let running = fs::read_dir("/proc/self/task").expect("threads").map(sleeps).filter(|sleeps| !sleeps);
    // This one runs.
    let alone = running.count() == 1;
    COUNTED.set(true);
    alone
}

/// How the two loaders that are compared differ: the second has four times the reads in a batch.
#[derive(Clone, Copy, Debug)]
enum More {
    /// By samples.
    BatchSize,
    /// By shorter reads of as many samples.
    ShorterReads,
}

/// Few reads and many reads a batch, over these ways to read.
fn allocates_by_batch(ways: &[(EngineChoice, IoChoice)], dataset: &Arc<dyn Dataset>, more: More, collate: Collate) {
    for &(engine, io) in ways {
        let few = Config {
            batch_size: 8,
            engine,
            io,
            epochs: None,
            shuffle: Shuffle::Full,
            queue_depth: Some(16),
            read_size: Some(16 << 10),
            // Few batches, so that the warm-up goes through all of them many times.
            memory_limit: Some(1 << 20),
            collate,
            index: collate != Collate::Auto,
            ..Config::default()
        };
        let many = match more {
            More::BatchSize => Config { batch_size: 32, ..few.clone() },
            More::ShorterReads => Config { read_size: Some(4 << 10), ..few.clone() },
        };
        let (Some((few, few_reads)), Some((many, many_reads))) = (measure(dataset, few), measure(dataset, many)) else {
            continue;
        };
        println!(
            "{engine:?} {io:?}, {more:?}, {collate:?}: {few:.2} allocations for {few_reads:.0} reads, {many:.2} for \
             {many_reads:.0}"
        );
        assert!(many_reads > 3.5 * few_reads, "{many_reads} and {few_reads}");
        assert!(few.max(many) <= PER_BATCH_MAX, "{engine:?} {io:?}: {few}, {many}");
        assert!(many - few < 1.0, "{engine:?} {io:?}: {few} allocations a batch, {many} with four times the reads");
    }
}

/// Batches, and the windows that rows are made of, are made in the memory of those before them.
fn walks_allocate_nothing() {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    (0..5000).for_each(|number| assert!(files.push(b"x", number * number % 3001).is_some()));
    let dataset: Arc<dyn Dataset> = dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap();
    let sampler = Arc::new(Sequential::new(dataset.len()));
    let packed = |method| {
        let packing = Packing::new(2048).method(method).window(1000);
        Batching::Packed(packing)
    };
    let buckets = Buckets::new(vec![500, 1000], vec![8, 4, 2]).window(1000);
    let methods = [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat].map(packed);
    for batching in methods.into_iter().chain([Batching::Buckets(buckets), Batching::Samples]) {
        for drop_last in [false, true] {
            let config = Config {
                batching: batching.clone(),
                batch_size: 5,
                epochs: None,
                shuffle: Shuffle::Full,
                drop_last,
                rank: 1,
                world_size: 3,
                ..Config::default()
            };
            let order = Order::new(&config, Arc::clone(&dataset), sampler.clone()).expect("an order");
            let (mut walk, mut batch) = (order.walk(), Selection::default());
            // The windows of all epochs are of the same samples; their rows and batches differ.
            let mut epoch = |number| {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                while walk.epoch() == Some(number) {
                    walk.next(&mut batch);
                }
                ALLOCATIONS.load(Ordering::Relaxed) - before
            };
            let counts: Vec<u64> = (0..20).map(&mut epoch).collect();
            assert_eq!(counts[10..].iter().min(), Some(&0), "{batching:?}: {counts:?}");
        }
    }
}

/// One test, for what runs beside it would be counted too.
#[test]
fn allocations_are_by_batch_and_not_by_read() {
    within(BOUND, || {
        walks_allocate_nothing();
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        write_file(&root.path().join("records"), 3000 * 4096).expect("a file");
        let records = |record_bytes| -> Arc<dyn Dataset> {
            let options = Options::new().format("records").set("record_bytes", record_bytes);
            dataset::open(&[root.path()], &options).expect("records")
        };
        allocates_by_batch(&WAYS, &records(4096), More::BatchSize, Collate::Auto);
        allocates_by_batch(&WAYS, &records(48 << 10), More::ShorterReads, Collate::Auto);

        // More files than the ring's table and the threads keep open, so that each read opens its file.
        let (_root, folder) = common::fixture::files((0..1500).map(|number| (format!("{number:04}"), 1000 + number)));
        allocates_by_batch(&WAYS, &folder, More::BatchSize, Collate::Auto);
        // What is collated does not know how it was read.
        for collate in [Collate::Ragged, Collate::Padded(Padding::default())] {
            allocates_by_batch(&WAYS[..1], &folder, More::BatchSize, collate);
        }
    });
}
