//! Constructed situations: the verdict names the part that limits, and where it can be shown steadily, the remedy is
//! applied and brings what was predicted: the median of several measurements.
//!
//! All of them measure time, so they run in the slow suite, on a machine that does nothing else. What is said of times
//! that are made up is tested with the verdict itself. A binary of its own, because CPU time is that of the whole
//! process. Its tests take turns. Where other programs take the machine, the verdict rightly says "processors"; then
//! the situation is measured again.

mod common;

mod situations {
    mod confined;
}

use common::child;
use common::content::write_file;
use common::faulty::{Fault, Faulty, Spec};
use common::frames::Frames;
use common::sandbox::without_io_uring;
use common::{skip, within};
use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::Config;
use uringload::config::{Cache, IoChoice, Shuffle};
use uringload::dataset::{self, DType, Dataset, Options, View};
use uringload::inspect::raw::{self, RawRate};
use uringload::pack::PackOptions;
use uringload::sampler::for_dataset;
use uringload::stats::{Bottleneck, Evidence, Remedy, Snapshot, Trial, Tried, Verdict};
use uringload::transform::{Input, MapOutput};
use uringload::{Builder, Loader};
use uringload_sys::system::thread_cpu_time;

const BOUND: Duration = Duration::from_secs(120);
const KIB: u64 = 1024;
/// A situation that a busy machine spoils is measured so often.
const TRIES: usize = 6;
/// A gain is the median of so many.
const MEASURED: usize = 5;
/// How far a gain may be from its prediction: on a machine of one's own, and where others take the processors.
const WITHIN: f64 = 0.15;
const WITHIN_IF_BUSY: f64 = 0.4;

static TURN: Mutex<()> = Mutex::new(());
thread_local! {
    /// The name of the situation, for the table.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a situation when no other runs.
fn alone(work: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    within(BOUND, move || {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        NAME.set(name);
        work();
    });
}

/// A mounted disk with `count` files, or `None` where this machine cannot mount it.
fn disk(count: u64, bytes: u64, fault: Fault) -> Option<Faulty> {
    let spec = |number| Spec { name: format!("{number:04}"), size: bytes, fault };
    Faulty::mount((0..count).map(spec).collect()).map_err(skip).ok()
}

fn open(path: &Path, options: Options) -> Arc<dyn Dataset> {
    dataset::open(&[path], &options).expect("a dataset")
}

fn files(path: &Path) -> Arc<dyn Dataset> {
    open(path, Options::new().format("folder"))
}

fn loader(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(4).epochs(1).num_threads(1)
}

/// Reads all, with a step after each batch.
fn read(builder: Builder, step: Duration) -> Snapshot {
    let mut loader = builder.build().expect("a loader");
    for batch in loader.by_ref() {
        drop(batch.expect("a batch"));
        std::thread::sleep(step);
    }
    loader.stats().snapshot()
}

/// Reads all behind the first batches, with a step after each: the steady state, without memory that is taken once and
/// files that are read once.
fn read_behind(batches: usize, builder: Builder, step: Duration) -> Snapshot {
    let mut loader = builder.build().expect("a loader");
    let stats = loader.stats();
    let mut before = None;
    for (number, batch) in loader.by_ref().enumerate() {
        drop(batch.expect("a batch"));
        std::thread::sleep(step);
        if number + 1 == batches {
            before = Some(stats.snapshot());
        }
    }
    stats.snapshot().since(&before.expect("more batches"))
}

/// Reads until the verdict is the expected one, for a few times.
fn find(expected: Bottleneck, measure: impl FnMut() -> Snapshot) -> (Snapshot, Verdict) {
    find_with(expected, &Evidence::default(), measure)
}

/// The same, where more is known than the loader measures.
fn find_with(expected: Bottleneck, evidence: &Evidence, mut measure: impl FnMut() -> Snapshot) -> (Snapshot, Verdict) {
    let mut said = String::new();
    for _ in 0..TRIES {
        let snapshot = measure();
        let verdict = snapshot.verdict_with(evidence);
        if verdict.bottleneck == expected {
            assert!(verdict.gain.is_some_and(|gain| gain >= 1.0), "{verdict:?}");
            return (snapshot, verdict);
        }
        said += &format!("\n{verdict}");
    }
    panic!("not {expected}:{said}");
}

/// Whether others have a good part of the processors now.
fn is_busy() -> bool {
    const TIME: Duration = Duration::from_millis(50);
    let spin = || {
        let (begun, used) = (Instant::now(), thread_cpu_time());
        while begun.elapsed() < TIME {
            std::hint::spin_loop();
        }
        (thread_cpu_time() - used).as_secs_f64() / begun.elapsed().as_secs_f64()
    };
    let got = std::thread::scope(|scope| {
        let other = scope.spawn(spin);
        spin().min(other.join().expect("no panic"))
    });
    got < 0.8
}

/// The median of a few measurements, and all of them.
fn median(measure: impl FnMut() -> f64) -> (f64, Vec<f64>) {
    let mut seen: Vec<f64> = std::iter::repeat_with(measure).take(MEASURED).collect();
    seen.sort_by(f64::total_cmp);
    (seen[MEASURED / 2], seen)
}

/// Leaves a row of the table that `benches/situations.py` makes of three runs: what was predicted, and what came.
fn tell(what: &str, remedy: &str, predicted: f64, gain: f64) {
    let Some(path) = std::env::var_os("URINGLOAD_SITUATIONS") else { return };
    let mut file = fs::File::options().append(true).create(true).open(path).expect("a table");
    writeln!(file, "{what}\t{remedy}\t{predicted:.3}\t{gain:.3}").expect("a row");
}

/// What a verdict predicts of a remedy whose words contain these.
fn predicted(verdict: &Verdict, words: &str) -> Remedy {
    let found = verdict.remedies.iter().find(|one| one.what.contains(words));
    found.unwrap_or_else(|| panic!("no {words} in {verdict:?}")).clone()
}

/// A remedy that brings at least so much. How near that is to the prediction goes to the table alone: what it depends
/// on (this machine's memory, its page cache, other programs) is no part of the situation.
fn helps(what: &str, verdict: &Verdict, words: &str, least: f64, gain: impl FnMut() -> f64) {
    let remedy = predicted(verdict, words);
    let (gain, seen) = median(gain);
    if let Some(predicted) = remedy.gain {
        tell(what, &remedy.what, predicted, gain);
    }
    assert!(gain > least, "{what}: {} should bring {least}x and brought {seen:.2?}x", remedy.what);
}

/// Applies a remedy, and compares what it brings with what was predicted.
fn brings(before: &Snapshot, verdict: &Verdict, remedy: &str, after: impl FnMut(u64) -> Snapshot) {
    brings_within(WITHIN, before, verdict, (remedy, after));
}

/// The same, where the prediction is known to be farther off.
fn brings_within(
    within: f64,
    before: &Snapshot,
    verdict: &Verdict,
    (remedy, mut after): (&str, impl FnMut(u64) -> Snapshot),
) {
    let found = verdict.remedies.iter().find(|one| one.what.starts_with(remedy));
    let found = found.unwrap_or_else(|| panic!("no {remedy} in {verdict:?}"));
    let predicted = found.gain.expect("a prediction");
    let number = found.what.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let (gain, seen) = median(|| after(number).samples_per_second() / before.samples_per_second());
    let test = NAME.with_borrow(Clone::clone);
    let test = child::task().map_or(test, |task| format!("a cap on {}", task.split(' ').next().unwrap_or("")));
    tell(&test, &found.what, predicted, gain);
    let within = if is_busy() { WITHIN_IF_BUSY } else { within };
    let is_near = (gain / predicted - 1.0).abs() <= within;
    assert!(is_near, "{} should bring {predicted:.2}x +- {within} and brought {seen:.2?}x", found.what);
}

#[test]
#[ignore = "slow: measures time"]
fn storage_that_answers_late_wants_more_reads() {
    alone(|| {
        let Some(disk) = disk(192, 64 * KIB, Fault::Slow(Duration::from_millis(20))) else { return };
        let dataset = files(disk.path());
        let with = |depth: usize| read(loader(&dataset).queue_depth(depth), Duration::ZERO);
        let (before, verdict) = find(Bottleneck::Latency, || with(2));
        brings(&before, &verdict, "queue_depth", |depth| with(depth as usize));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn a_trainer_that_waits_for_much_of_its_time_is_not_to_blame() {
    alone(|| {
        let Some(disk) = disk(160, 64 * KIB, Fault::Slow(Duration::from_millis(10))) else { return };
        let dataset = files(disk.path());
        // A batch takes 20 ms to read and 12 ms to use.
        let with = |depth: usize| read(loader(&dataset).queue_depth(depth), Duration::from_millis(12));
        let (before, verdict) = find(Bottleneck::Latency, || with(2));
        brings(&before, &verdict, "queue_depth", |depth| with(depth as usize));
        // Without the step it could give more.
        let (gain, gains) = median(|| find(Bottleneck::Trainer, || with(64)).1.gain.expect("a gain"));
        assert!(gain > 1.5, "{gains:.2?}");
    });
}

#[test]
#[ignore = "slow: measures time"]
fn threads_that_read_are_too_few() {
    alone(|| {
        let Some(disk) = disk(128, 64 * KIB, Fault::Slow(Duration::from_millis(20))) else { return };
        let dataset = files(disk.path());
        let with = |threads: usize| {
            // As in a container that allows no ring.
            without_io_uring(libc::EPERM, || read(loader(&dataset).io_threads(threads), Duration::ZERO))
        };
        let (before, verdict) = find(Bottleneck::Latency, || with(2));
        brings(&before, &verdict, "io_threads", |threads| with(threads as usize));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn memory_for_too_few_reads() {
    alone(|| {
        // Short enough that it is the delay which counts, and not making up their bytes.
        let Some(disk) = disk(384, 64 * KIB, Fault::Slow(Duration::from_millis(20))) else { return };
        let dataset = files(disk.path());
        let with = |kib: u64| {
            let builder = loader(&dataset).batch_size(1).queue_depth(16).memory_limit(kib * KIB);
            read(builder, Duration::ZERO)
        };
        let (before, verdict) = find(Bottleneck::Memory, || with(320));
        assert!(verdict.remedies[0].what.contains("memory_limit"), "{verdict:?}");
        helps("memory for too few reads", &verdict, "memory_limit", 1.5, || {
            with(16 * 1024).samples_per_second() / before.samples_per_second()
        });
    });
}

#[test]
#[ignore = "slow: measures time"]
fn few_operations_a_second() {
    alone(|| {
        let Some(disk) = disk(1, 2048 * KIB, Fault::Turns(Duration::from_millis(2))) else { return };
        let dataset = open(disk.path(), Options::new().format("records").set("record_bytes", 4096_u64));
        // As `bench` does it: a trial tells how much.
        let evidence = Evidence { trials: vec![long_reads(&dataset)], ..Evidence::default() };
        // A batch takes 128 ms to read and 12 ms to use, which bounds what there is to gain.
        let step = Duration::from_millis(12);
        let with = |shuffle| read_behind(1, loader(&dataset).batch_size(64).epochs(2).shuffle(shuffle), step);
        let (before, verdict) = find_with(Bottleneck::Operations, &evidence, || with(Shuffle::Full));
        assert!(verdict.remedies[0].what.contains("windows, shards or pieces"), "{verdict:?}");
        brings(&before, &verdict, "read in an order", |_| with(Shuffle::Window(256)));
    });
}

/// Reads that are long already, where an operation costs more than their bytes: a trial tells, and it is not said that
/// the disk gives all it has.
#[test]
#[ignore = "slow: measures time"]
fn few_operations_a_second_although_reads_are_long() {
    alone(|| {
        let Some(disk) = disk(1, 16 * 1024 * KIB, Fault::Turns(Duration::from_millis(8))) else { return };
        let dataset = open(disk.path(), Options::new().format("records").set("record_bytes", 64 * KIB));
        let evidence = Evidence { trials: vec![long_reads(&dataset)], ..Evidence::default() };
        let with = |shuffle| {
            // 64 batches of 32 ms, and steps of 10.
            read_behind(2, loader(&dataset).coalesce_gap(0).shuffle(shuffle), Duration::from_millis(10))
        };
        let (before, verdict) = find_with(Bottleneck::Operations, &evidence, || with(Shuffle::Full));
        assert!(verdict.remedies[0].what.contains("windows, shards or pieces"), "{verdict:?}");
        brings(&before, &verdict, "read in an order", |_| with(Shuffle::Off));
    });
}

/// A raw read in the order of the files.
fn long_reads(dataset: &Arc<dyn Dataset>) -> Trial {
    let sampler = for_dataset(&**dataset, Shuffle::Off, 0).expect("an order");
    let raw =
        raw::measure(dataset, &Config::default(), &sampler, Duration::from_millis(400), || false).expect("a raw read");
    Trial { tried: Tried::LongReads, bytes_per_second: raw.bytes_per_second() }
}

#[test]
#[ignore = "slow: measures time"]
fn a_disk_that_gives_all_its_bytes() {
    alone(|| {
        let Some(disk) = disk(24, 1024 * KIB, Fault::Rate(40_000_000)) else { return };
        let dataset = files(disk.path());
        let (snapshot, verdict) = find(Bottleneck::Bandwidth, || read(loader(&dataset), Duration::ZERO));
        assert!(!verdict.remedies.iter().any(|one| one.what.starts_with("faster")), "not tried: {verdict:?}");
        assert!(verdict.remedies.iter().any(|one| one.gain.is_none()), "{verdict:?}");
        // Depth and size are tried, and bring nothing.
        let rate = snapshot.stored_bytes_per_second();
        let trials = [Tried::Depth(256), Tried::LongReads].map(|tried| Trial { tried, bytes_per_second: rate });
        let verdict =
            snapshot.verdict_with(&Evidence { raw: Some(rate), trials: trials.into(), ..Evidence::default() });
        // What costs nothing comes first.
        let named = |remedy: usize| verdict.remedies.get(remedy).map_or("", |one| &one.what);
        assert!(named(0).starts_with("cache = memory") && named(1).starts_with("faster"), "{verdict:?}");
    });
}

#[test]
#[ignore = "slow: measures time"]
fn a_faster_disk_where_depth_and_length_were_tried() {
    alone(|| {
        let (slow, fast) = (Fault::Rate(40_000_000), Fault::Rate(2_000_000_000));
        let (Some(slow), Some(fast)) = (disk(48, 512 * KIB, slow), disk(48, 512 * KIB, fast)) else { return };
        // A batch takes 26 ms to read and 10 ms to use.
        let with = |disk: &Faulty| {
            read_behind(4, loader(&files(disk.path())).batch_size(2).epochs(2), Duration::from_millis(10))
        };
        let (before, _) = find(Bottleneck::Bandwidth, || with(&slow));
        let rate = before.stored_bytes_per_second();
        let trials = [Tried::Depth(256), Tried::LongReads].map(|tried| Trial { tried, bytes_per_second: rate });
        let verdict = before.verdict_with(&Evidence { raw: Some(rate), trials: trials.into(), ..Evidence::default() });
        brings(&before, &verdict, "faster", |_| with(&fast));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn bytes_that_nobody_needs() {
    alone(|| {
        let Some(disk) = disk(1, 30 * 1024 * KIB, Fault::Rate(40_000_000)) else { return };
        let all = open(disk.path(), Options::new().format("records").set("record_bytes", 64 * KIB));
        let third = View::of(Arc::clone(&all), (0..all.len()).step_by(3).collect()).expect("a view");
        let dataset: Arc<dyn Dataset> = Arc::new(third);
        let with = |gap: u64| read(loader(&dataset).batch_size(16).coalesce_gap(gap), Duration::ZERO);
        let (before, verdict) = find(Bottleneck::Amplification, || with(256 * KIB));
        brings(&before, &verdict, "coalesce_gap", |_| with(0));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn decoding_with_too_few_threads() {
    alone(|| {
        let folder = TempDir::new().expect("a folder");
        let mut frames = Frames::write(&folder, 60);
        frames.slow = Duration::from_millis(10);
        let dataset: Arc<dyn Dataset> = Arc::new(frames);
        let with = |threads: usize| read(loader(&dataset).batch_size(25).num_threads(threads), Duration::ZERO);
        let (before, verdict) = find(Bottleneck::Decode, || with(1));
        if before.processors.available < 2 {
            return skip("one processor: no more threads to try");
        }
        brings(&before, &verdict, "num_threads", |threads| with(threads as usize));
        let (_, verdict) = find(Bottleneck::Decode, || with(0));
        assert!(verdict.advice.contains("num_threads"), "{verdict}");
    });
}

/// Frames of zstd that take longer to decode than to read, on the one thread there is: plain shards are not decoded.
#[test]
#[ignore = "slow: measures time"]
fn compressed_units_and_shards_that_are_plain() {
    alone(|| {
        let folder = TempDir::new().expect("a folder");
        let mut frames = Frames::write(&folder, 40);
        frames.slow = Duration::from_millis(30);
        let dataset: Arc<dyn Dataset> = Arc::new(frames);
        // A batch is a unit, and takes 5 ms to use.
        let with = |dataset: &Arc<dyn Dataset>| {
            let builder = loader(dataset).batch_size(25).epochs(2).num_threads(1);
            read_behind(10, builder, Duration::from_millis(5))
        };
        let (before, verdict) = find(Bottleneck::Decode, || with(&dataset));
        let pack = Loader::builder(Arc::clone(&dataset)).pack(folder.path().join("shards"), PackOptions::default());
        pack.and_then(|pack| pack.run(&|_| ControlFlow::Continue(()))).expect("shards");
        let shards = open(&folder.path().join("shards"), Options::new());
        brings(&before, &verdict, "pack into plain shards", |_| with(&shards));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn a_depth_that_was_tried_brings_what_the_trial_showed() {
    alone(|| {
        let Some(disk) = disk(192, 64 * KIB, Fault::Slow(Duration::from_millis(20))) else { return };
        let dataset = files(disk.path());
        let with = |depth: usize| read(loader(&dataset).queue_depth(depth), Duration::ZERO);
        let (before, _) = find(Bottleneck::Latency, || with(3));
        let config = Config { queue_depth: Some(12), ..Config::default() };
        let sampler = for_dataset(&*dataset, Shuffle::Off, 0).expect("an order");
        let raw = raw::measure(&dataset, &config, &sampler, Duration::from_millis(400), || false).expect("a raw read");
        let trial = Trial { tried: Tried::Depth(12), bytes_per_second: raw.bytes_per_second() };
        let verdict = before.verdict_with(&Evidence { trials: vec![trial], ..Evidence::default() });
        assert!(verdict.advice.contains("less than with 12"), "{verdict}");
        brings(&before, &verdict, "queue_depth = 12", |depth| with(depth as usize));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn a_slow_step_is_to_blame_and_a_faster_one_brings_what_the_loader_has() {
    alone(|| {
        let Some(disk) = disk(160, 64 * KIB, Fault::Slow(Duration::from_millis(10))) else { return };
        let dataset = files(disk.path());
        // A batch takes 10 ms to read, with 4 reads in flight, and 30 ms to use.
        let with = |step: u64| read(loader(&dataset).queue_depth(4), Duration::from_millis(step));
        let (before, verdict) = find(Bottleneck::Trainer, || with(30));
        assert!(verdict.remedies[0].what.starts_with("a faster step"), "{verdict:?}");
        assert!(verdict.gain.is_some_and(|gain| gain > 1.5), "{verdict:?}");
        brings(&before, &verdict, "a faster step", |_| with(0));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn one_slow_disk_and_what_memory_keeps_of_it() {
    alone(|| {
        let Some(disk) = disk(12, 1024 * KIB, Fault::Rate(40_000_000)) else { return };
        let dataset = files(disk.path());
        // A batch takes 26 ms to read and 8 ms to use; the first epoch fills the memory.
        let with = |cache, limit| {
            let builder = loader(&dataset).batch_size(1).epochs(3).cache(cache).memory_limit(limit);
            read_behind(12, builder, Duration::from_millis(8))
        };
        let (before, verdict) = find(Bottleneck::Bandwidth, || with(Cache::Off, 8 << 20));
        let remedy = predicted(&verdict, "cache = memory");
        assert!(remedy.what.contains("all 12.6 MB fit"), "{verdict:?}");
        let (_, limit) = remedy.what.split_once("memory_limit = ").expect("the limit is too low for it");
        let limit = limit.split(':').next().and_then(|limit| limit.parse().ok()).expect("a limit");
        // The prediction keeps the work of making batches, part of which goes with the reads.
        brings_within(0.25, &before, &verdict, ("cache = memory", |_: u64| with(Cache::Memory, limit)));
        let (_, kept) = find(Bottleneck::Trainer, || with(Cache::Memory, limit));
        assert!(!kept.remedies.iter().any(|one| one.what.contains("cache")), "{kept:?}");
    });
}

#[test]
#[ignore = "slow: measures time"]
fn huge_files_fill_the_disk_and_others_read_from_it_too() {
    alone(|| {
        let Some(disk) = disk(2, 16 * 1024 * KIB, Fault::Rate(60_000_000)) else { return };
        let dataset = files(disk.path());
        let sampler = for_dataset(&*dataset, Shuffle::Off, 0).expect("an order");
        // The best of a few: a busy machine makes each less, and none more.
        let measure = || raw::measure(&dataset, &Config::default(), &sampler, Duration::from_millis(500), || false);
        let raw: Vec<_> = (0..3).map(|_| measure().expect("a raw read")).collect();
        let evidence = Evidence {
            raw: raw.iter().map(RawRate::bytes_per_second).max_by(f64::total_cmp),
            fastest_read: raw.iter().filter_map(|raw| raw.fastest).min(),
            trials: Vec::new(),
        };
        let alone = || read(loader(&dataset).batch_size(1).epochs(2), Duration::ZERO);
        let (_, verdict) = find_with(Bottleneck::Bandwidth, &evidence, alone);
        assert!(verdict.advice.contains("MB/s") && verdict.share > 0.8, "{verdict}");
        let shared = || {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (reads, is_read) = std::sync::mpsc::channel();
                scope.spawn(|| {
                    let (mut other, reads) =
                        (loader(&dataset).batch_size(1).epochs(None).build().expect("a loader"), reads);
                    while !is_over.load(Ordering::Relaxed) {
                        drop(other.next().expect("no end").expect("a batch"));
                        let _ = reads.send(());
                    }
                });
                is_read.recv().expect("the other one's first batch");
                let snapshot = alone();
                is_over.store(true, Ordering::Relaxed);
                snapshot
            })
        };
        let (before, verdict) = find_with(Bottleneck::Bandwidth, &evidence, shared);
        assert!(verdict.remedies[0].what.contains("other load"), "{verdict:?}");
        brings(&before, &verdict, "read as a raw read does", |_| alone());
    });
}

#[test]
#[ignore = "slow: measures time"]
fn batches_that_are_kept_leave_no_room_to_read() {
    alone(|| {
        let Some(disk) = disk(192, 64 * KIB, Fault::Slow(Duration::from_millis(20))) else { return };
        let dataset = files(disk.path());
        let with = |kept: usize| {
            let builder = loader(&dataset).batch_size(1).queue_depth(12).memory_limit(1024 * KIB);
            let mut loader = builder.build().expect("a loader");
            let mut held = std::collections::VecDeque::new();
            for batch in loader.by_ref() {
                held.push_back(batch.expect("a batch"));
                held.drain(..held.len().saturating_sub(kept));
            }
            loader.stats().snapshot()
        };
        let (before, verdict) = find(Bottleneck::Memory, || with(11));
        helps("batches that are kept", &verdict, "memory_limit", 1.5, || {
            with(0).samples_per_second() / before.samples_per_second()
        });
    });
}

#[test]
#[ignore = "slow: measures time"]
fn a_closure_of_the_user_with_too_few_threads() {
    alone(|| {
        let root = TempDir::new().expect("a folder");
        for number in 0..160_u64 {
            write_file(&root.path().join(format!("{number:03}")), 500).expect("a file");
        }
        let dataset = files(root.path());
        let with = |threads: usize| {
            let slow = |_: &Input<'_>, out: &mut [u8]| {
                std::thread::sleep(Duration::from_millis(5));
                out.fill(0);
                Ok(out.len())
            };
            let builder = loader(&dataset).num_threads(threads);
            read(builder.map("data", MapOutput::fixed(DType::F32, []), slow), Duration::ZERO)
        };
        let (before, verdict) = find(Bottleneck::Decode, || with(1));
        if before.processors.available < 2 {
            return skip("one processor: no more threads to try");
        }
        brings(&before, &verdict, "num_threads", |threads| with(threads as usize));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn tiny_files_cost_the_loader_and_shards_cost_less() {
    alone(|| {
        let root = TempDir::new().expect("a folder");
        fs::create_dir(root.path().join("data")).expect("a folder");
        for number in 0..3000_u64 {
            write_file(&root.path().join(format!("data/{number:04}")), 300).expect("a file");
        }
        let dataset = files(&root.path().join("data"));
        let with = |dataset: &Arc<dyn Dataset>| {
            let builder = Loader::builder(Arc::clone(dataset)).batch_size(64).epochs(60).io(IoChoice::Buffered);
            read(builder, Duration::ZERO)
        };
        let before = with(&dataset);
        let verdict = before.verdict(None);
        // Its own work, unless other programs take the processors.
        let is_expected = matches!(verdict.bottleneck, Bottleneck::Loader | Bottleneck::Processors);
        assert!(is_expected && !verdict.remedies.is_empty(), "{verdict:?}");
        let pack = Loader::builder(Arc::clone(&dataset)).pack(root.path().join("shards"), PackOptions::default());
        pack.and_then(|pack| pack.run(&|_| ControlFlow::Continue(()))).expect("shards");
        let shards = open(&root.path().join("shards"), Options::new());
        let gain = || with(&shards).samples_per_second() / with(&dataset).samples_per_second();
        if verdict.bottleneck == Bottleneck::Loader {
            return helps("tiny files", &verdict, "pack", 1.2, gain);
        }
        let (gain, gains) = median(gain);
        assert!(gain > 1.2, "{gains:?}");
    });
}

#[test]
#[ignore = "slow: measures time"]
fn two_threads_of_the_user_that_wait_for_each_other() {
    alone(|| {
        let root = TempDir::new().expect("a folder");
        for number in 0..96_u64 {
            write_file(&root.path().join(format!("{number:03}")), 500).expect("a file");
        }
        let dataset = files(root.path());
        // A lock that every closure takes for all of its work: more threads would not help, and none is proposed that
        // the machine does not have.
        let lock = Arc::new(Mutex::new(()));
        let with = |threads: usize| {
            let lock = Arc::clone(&lock);
            let slow = move |_: &Input<'_>, out: &mut [u8]| {
                let _turn = lock.lock().unwrap_or_else(PoisonError::into_inner);
                std::thread::sleep(Duration::from_millis(4));
                out.fill(0);
                Ok(out.len())
            };
            let builder = loader(&dataset).num_threads(threads);
            read(builder.map("data", MapOutput::fixed(DType::F32, []), slow), Duration::ZERO)
        };
        let processors = with(2).processors.available;
        let (before, verdict) = find(Bottleneck::Decode, || with(processors.max(2)));
        assert!(!verdict.remedies.iter().any(|one| one.what.starts_with("num_threads")), "{verdict:?}");
        let (gain, gains) = median(|| with(4 * processors).samples_per_second() / before.samples_per_second());
        assert!(gain < 1.5, "they take turns: {gains:.2?}");
    });
}
