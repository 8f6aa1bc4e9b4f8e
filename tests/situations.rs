//! Constructed situations: the verdict names the part that limits, and where it can be shown steadily, the remedy is
//! applied and brings what was predicted.
//!
//! A binary of its own, because CPU time is that of the whole process. Its tests take turns. Where other programs take
//! the machine, the verdict rightly says "processors"; then the situation is measured again.

mod common;

use common::child::{self, Group};
use common::content::write_file;
use common::faulty::{Fault, Faulty, Spec};
use common::frames::Frames;
use common::sandbox::without_io_uring;
use common::{skip, within};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::{EngineChoice, IoChoice, Shuffle};
use uringload::dataset::{self, Dataset, Options, View};
use uringload::stats::{Bottleneck, Evidence, Snapshot, Trial, Tried, Verdict};
use uringload::{Builder, Loader};

const BOUND: Duration = Duration::from_secs(120);
const KIB: u64 = 1024;
/// A situation that a busy machine spoils is measured so often.
const TRIES: usize = 4;
/// How far a gain may be from its prediction.
const WITHIN: f64 = 0.15;

static TURN: Mutex<()> = Mutex::new(());

/// Runs a situation when no other runs.
fn alone(work: impl FnOnce() + Send + 'static) {
    within(BOUND, move || {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Reads until the verdict is the expected one, for a few times.
fn find(expected: Bottleneck, mut measure: impl FnMut() -> Snapshot) -> (Snapshot, Verdict) {
    let mut said = String::new();
    for _ in 0..TRIES {
        let snapshot = measure();
        let verdict = snapshot.verdict(None);
        if verdict.bottleneck == expected {
            assert!(verdict.gain.is_some_and(|gain| gain >= 1.0), "{verdict:?}");
            return (snapshot, verdict);
        }
        said += &format!("\n{verdict}");
    }
    panic!("not {expected}:{said}");
}

/// Applies a remedy, and compares what it brings with what was predicted.
fn brings(before: &Snapshot, verdict: &Verdict, remedy: &str, mut after: impl FnMut(u64) -> Snapshot) {
    let found = verdict.remedies.iter().find(|one| one.what.starts_with(remedy));
    let found = found.unwrap_or_else(|| panic!("no {remedy} in {verdict:?}"));
    let predicted = found.gain.expect("a prediction");
    let number = found.what.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let gain = after(number).samples_per_second() / before.samples_per_second();
        seen.push(gain);
        if (gain / predicted - 1.0).abs() <= WITHIN {
            return;
        }
    }
    panic!("{} should bring {predicted:.2}x and brought {seen:.2?}x", found.what);
}

#[test]
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
fn a_trainer_that_waits_for_much_of_its_time_is_not_to_blame() {
    alone(|| {
        let Some(disk) = disk(160, 64 * KIB, Fault::Slow(Duration::from_millis(10))) else { return };
        let dataset = files(disk.path());
        // A batch takes 20 ms to read and 12 ms to use.
        let with = |depth: usize| read(loader(&dataset).queue_depth(depth), Duration::from_millis(12));
        let (before, verdict) = find(Bottleneck::Latency, || with(2));
        brings(&before, &verdict, "queue_depth", |depth| with(depth as usize));
        let (_, fast) = find(Bottleneck::Trainer, || with(64));
        assert!(fast.gain.expect("a gain") > 1.5, "without the step it could give more: {fast:?}");
    });
}

#[test]
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
fn memory_for_too_few_reads() {
    alone(|| {
        let Some(disk) = disk(256, 256 * KIB, Fault::Slow(Duration::from_millis(20))) else { return };
        let dataset = files(disk.path());
        let with = |kib: u64| {
            let builder = loader(&dataset).batch_size(1).queue_depth(16).memory_limit(kib * KIB);
            read(builder, Duration::ZERO)
        };
        let (before, verdict) = find(Bottleneck::Memory, || with(1024));
        assert!(verdict.remedies[0].what.contains("memory_limit"), "{verdict:?}");
        let gain = with(64 * 1024).samples_per_second() / before.samples_per_second();
        assert!(gain > 1.5, "more memory brings more: {gain}");
    });
}

#[test]
fn few_operations_a_second() {
    alone(|| {
        let Some(disk) = disk(1, 2048 * KIB, Fault::Turns(Duration::from_millis(2))) else { return };
        let dataset = open(disk.path(), Options::new().format("records").set("record_bytes", 4096_u64));
        let with = |shuffle| read(loader(&dataset).batch_size(64).shuffle(shuffle), Duration::ZERO);
        let (before, verdict) = find(Bottleneck::Operations, || with(Shuffle::Full));
        assert!(verdict.remedies[0].what.contains("windows or shards"), "{verdict:?}");
        let gain = with(Shuffle::Window(256)).samples_per_second() / before.samples_per_second();
        assert!(gain > 3.0, "neighbours in one read bring more: {gain}");
    });
}

#[test]
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
        let verdict = snapshot.verdict_with(&Evidence { raw: Some(rate), trials: trials.into() });
        assert!(verdict.remedies[0].what.starts_with("faster"), "{verdict:?}");
    });
}

#[test]
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

/// Small files in the page cache: the processor is what they cost.
fn small_files() -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    for number in 0..400_u64 {
        write_file(&root.path().join(format!("{number:03}")), 6000).expect("a file");
    }
    let dataset = files(root.path());
    (root, dataset)
}

/// Reads for this long.
fn read_for(dataset: &Arc<dyn Dataset>, time: Duration) -> Snapshot {
    let end = Instant::now() + time;
    let builder = loader(dataset).io(IoChoice::Buffered).engine(EngineChoice::Auto).epochs(None);
    let mut loader = builder.build().expect("a loader");
    for batch in loader.by_ref().take_while(|_| Instant::now() < end) {
        drop(batch.expect("a batch"));
    }
    loader.stats().snapshot()
}

#[test]
fn files_in_memory_cost_processors_and_nothing_else() {
    alone(|| {
        let (_root, dataset) = small_files();
        let verdict = read_for(&dataset, Duration::from_millis(500)).verdict(None);
        // The loader's own, unless other programs take them.
        let is_expected = matches!(verdict.bottleneck, Bottleneck::Loader | Bottleneck::Processors);
        assert!(is_expected && !verdict.remedies.is_empty(), "{verdict:?}");
    });
}

#[test]
fn a_quota_is_told() {
    alone(|| {
        let limits = [("cpu.cfs_quota_us", 10_000), ("cpu.cfs_period_us", 100_000)];
        match Group::new("cpu", &limits) {
            Ok(group) => {
                let task = group.path().to_string_lossy().into_owned();
                let said = child::run("a_process_of_its_own", &task);
                assert!(said.contains("processors") && said.contains("control group"), "{said}");
                assert!(said.contains("cpu.max"), "a remedy: {said}");
            }
            Err(why) => skip(why),
        }
    });
}

#[test]
fn neighbours_are_told() {
    alone(|| {
        for _ in 0..TRIES {
            let said = child::run("a_process_of_its_own", "crowded");
            if said.contains("processors") && said.contains("had no processor") {
                return;
            }
            eprintln!("{said}");
        }
        panic!("other programs were not seen");
    });
}

/// Programs that only take processor time.
struct Hogs(Vec<Child>);

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            hog.kill().and_then(|()| hog.wait()).expect("an end");
        }
    }
}

#[test]
#[ignore = "a child of the tests of processors"]
fn a_process_of_its_own() {
    let Some(task) = child::task() else { return };
    let (_root, dataset) = small_files();
    let mut hogs = Hogs(Vec::new());
    if task == "crowded" {
        // All on one processor, this process with them.
        let mut one = rustix::thread::CpuSet::new();
        let mine = rustix::thread::sched_getaffinity(None).expect("an affinity");
        one.set((0..1024).find(|&number| mine.is_set(number)).expect("a processor"));
        rustix::thread::sched_setaffinity(None, &one).expect("an affinity");
        for _ in 0..3 {
            let hog = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
            hogs.0.push(hog.expect("a program"));
        }
    } else {
        child::enter(Path::new(&task));
    }
    let verdict = read_for(&dataset, Duration::from_millis(1500)).verdict(None);
    drop(hogs);
    println!("{verdict}");
    verdict.remedies.iter().for_each(|remedy| println!("{remedy}"));
    if task != "crowded" {
        // Else the group cannot be removed.
        fs::write("/sys/fs/cgroup/cpu/cgroup.procs", "0").expect("the root takes this process");
    }
}
