//! Situations of a whole process, which a child of its own is: caps of a control group, a quota, neighbours on its
//! processor, and what a container hides.

use crate::common::child::{self, Group};
use crate::common::content::write_file;
use crate::common::skip;
use crate::{KIB, TRIES, WITHIN, alone, brings, files, find, find_with, loader, long_reads, median, open};
use crate::{read_behind, tell};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::{Cache, EngineChoice, IoChoice, Shuffle};
use uringload::dataset::{Dataset, Options};
use uringload::stats::{Bottleneck, Evidence, Snapshot};

/// The test that children run.
const CHILD: &str = "situations::confined::a_process_of_its_own";

/// Reads under a limit of the group that the process enters.
fn under_blkio(file: &str, limit: u64, task: &str) {
    let group = child::disk_of(&std::env::temp_dir())
        .and_then(|disk| Group::new("blkio", &[(file, format!("{disk} {limit}"))]));
    match group {
        Ok(group) => drop(child::run(CHILD, &format!("{task} {}", group.path().display()))),
        Err(why) => skip(why),
    }
}

#[test]
#[ignore = "slow: measures time"]
fn a_cap_on_bytes_is_bandwidth() {
    alone(|| under_blkio("blkio.throttle.read_bps_device", 30_000_000, "bytes"));
}

#[test]
#[ignore = "slow: measures time"]
fn a_cap_on_reads_is_operations() {
    alone(|| under_blkio("blkio.throttle.read_iops_device", 300, "reads"));
}

/// The child of the tests above, within its group.
fn capped(task: &str) {
    let root = TempDir::new().expect("a folder");
    if task == "bytes" {
        for number in 0..24_u64 {
            write_file(&root.path().join(format!("{number:02}")), 1024 * KIB).expect("a file");
        }
    } else {
        write_file(&root.path().join("all.bin"), 2048 * KIB).expect("a file");
    }
    for file in fs::read_dir(root.path()).expect("files") {
        fs::File::open(file.expect("a file").path()).and_then(|file| file.sync_all()).expect("written");
    }
    if task == "bytes" {
        // A batch takes 70 ms to read and 15 ms to use.
        let dataset = files(root.path());
        let with = |cache| {
            let builder = loader(&dataset).io(IoChoice::Direct).batch_size(2).epochs(2).cache(cache);
            read_behind(12, builder, Duration::from_millis(15))
        };
        let (before, verdict) = find(Bottleneck::Bandwidth, || with(Cache::Off));
        assert!(verdict.advice.contains("blkio.throttle.read_bps_device"), "{verdict}");
        return brings(&before, &verdict, "cache = memory", |_| with(Cache::Memory));
    }
    // A batch takes 213 ms to read and 25 ms to use.
    let dataset = open(root.path(), Options::new().format("records").set("record_bytes", 4096_u64));
    let with = |shuffle| {
        let builder = loader(&dataset).io(IoChoice::Direct).coalesce_gap(0).batch_size(64).epochs(2).shuffle(shuffle);
        read_behind(4, builder, Duration::from_millis(25))
    };
    let evidence = Evidence { trials: vec![long_reads(&dataset)], ..Evidence::default() };
    let (before, verdict) = find_with(Bottleneck::Operations, &evidence, || with(Shuffle::Full));
    assert!(verdict.advice.contains("blkio.throttle.read_iops_device"), "{verdict}");
    brings(&before, &verdict, "read in an order", |_| with(Shuffle::Window(256)));
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

/// Reads for this long, with a step after each batch.
fn read_for(dataset: &Arc<dyn Dataset>, time: Duration, step: Duration) -> Snapshot {
    let builder = loader(dataset).io(IoChoice::Buffered).engine(EngineChoice::Auto).epochs(None);
    let mut loader = builder.build().expect("a loader");
    let (stats, begun) = (loader.stats(), Instant::now());
    let mut before = None;
    for batch in loader.by_ref() {
        drop(batch.expect("a batch"));
        std::thread::sleep(step);
        if begun.elapsed() >= time / 4 {
            // What begins is no steady state.
            before.get_or_insert_with(|| stats.snapshot());
        }
        if begun.elapsed() >= time {
            break;
        }
    }
    stats.snapshot().since(&before.unwrap_or_default())
}

#[test]
#[ignore = "slow: measures time"]
fn files_in_memory_cost_processors_and_nothing_else() {
    alone(|| {
        let (_root, dataset) = small_files();
        let verdict = read_for(&dataset, Duration::from_millis(500), Duration::ZERO).verdict(None);
        // The loader's own, unless other programs take them.
        let is_expected = matches!(verdict.bottleneck, Bottleneck::Loader | Bottleneck::Processors);
        assert!(is_expected && !verdict.remedies.is_empty(), "{verdict:?}");
    });
}

/// What a child says of itself: the verdict, its gain, and samples a second.
fn said(out: &str) -> (f64, f64) {
    let value = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {out}"))
    };
    (value("gain "), value("rate "))
}

#[test]
#[ignore = "slow: measures time"]
fn a_quota_is_told_and_a_greater_one_helps() {
    alone(|| {
        let under = |micros: u64| {
            let limits = [("cpu.cfs_quota_us", micros), ("cpu.cfs_period_us", 100_000)];
            Group::new("cpu", &limits).map(|group| child::run(CHILD, &group.path().to_string_lossy()))
        };
        let is_told = |said: &String| said.contains("processors") && said.contains("control group");
        let mut tries = (0..TRIES).map(|_| under(10_000));
        let before = match tries
            .find(|before| before.as_ref().is_ok_and(is_told) || before.is_err())
            .expect("the quota is told")
        {
            Ok(before) => before,
            Err(why) => return skip(why),
        };
        assert!(before.contains("cpu.max"), "a remedy: {before}");
        let (predicted, rate) = said(&before);
        let needed =
            before.lines().find_map(|line| line.split_once("(cpu.max) to ")?.1.split(' ').next()?.parse().ok());
        let needed: f64 = needed.unwrap_or_else(|| panic!("no number of processors in {before}"));
        // Told with one digit, and what it needs is not spread evenly over its periods.
        let micros = ((needed.max(0.1) + 0.1) * 200_000.0) as u64;
        comes_near("a quota", "raise the group's CPU quota", predicted, || {
            said(&under(micros).expect("a group, as before")).1 / rate
        });
    });
}

/// A gain of at least half of what was predicted; how near it comes goes to the table.
fn comes_near(what: &str, remedy: &str, predicted: f64, gain: impl FnMut() -> f64) {
    let (gain, seen) = median(gain);
    tell(what, remedy, predicted, gain);
    let is_near = (gain / predicted - 1.0).abs() <= WITHIN || gain >= (predicted / 2.0).max(1.3);
    assert!(is_near, "{what}: {remedy} should bring {predicted:.2}x and brought {seen:.2?}x");
}

#[test]
#[ignore = "slow: measures time"]
fn neighbours_are_told_and_without_them_it_is_faster() {
    alone(|| {
        for _ in 0..TRIES {
            let crowded = child::run(CHILD, "crowded");
            if !crowded.contains("processors") || !crowded.contains("had no processor") {
                eprintln!("{crowded}");
                continue;
            }
            let (predicted, rate) = said(&crowded);
            return comes_near("neighbours", "stop what else runs on these processors", predicted, || {
                said(&child::run(CHILD, "one processor")).1 / rate
            });
        }
        panic!("other programs were not seen");
    });
}

/// A container that hides control groups, pressure and the scheduler's counts: a verdict all the same, and what it does
/// without is said.
#[test]
#[ignore = "slow: measures time"]
fn what_a_container_hides_is_said() {
    alone(|| match child::run_blind(CHILD, "blind") {
        Ok(said) => {
            for hidden in ["/proc/self/task/*/schedstat", "cpu.stat", "/proc/pressure"] {
                assert!(said.contains(hidden), "{hidden}: {said}");
            }
            assert_eq!(said.lines().filter(|line| line.starts_with("without ")).count(), 3, "{said}");
            assert!(said.contains("\nbottleneck ") && !said.contains("\nbottleneck unknown"), "{said}");
        }
        Err(why) => skip(why),
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
    if let Some((kind @ ("bytes" | "reads"), group)) = task.split_once(' ') {
        child::enter(Path::new(group));
        capped(kind);
        return fs::write("/sys/fs/cgroup/blkio/cgroup.procs", "0").expect("the root takes this process");
    }
    let (_root, dataset) = small_files();
    let mut hogs = Hogs(Vec::new());
    let is_in_a_group = task.starts_with('/');
    if is_in_a_group {
        child::enter(Path::new(&task));
    } else if task != "blind" {
        // All on one processor, this process with them.
        let mut one = rustix::thread::CpuSet::new();
        let mine = rustix::thread::sched_getaffinity(None).expect("an affinity");
        one.set((0..1024).find(|&number| mine.is_set(number)).expect("a processor"));
        rustix::thread::sched_setaffinity(None, &one).expect("an affinity");
        let others = if task == "crowded" { 3 } else { 0 };
        for _ in 0..others {
            let hog = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
            hogs.0.push(hog.expect("a program"));
        }
    }
    // A step bounds what there is to gain.
    let step = if task == "blind" { Duration::ZERO } else { Duration::from_micros(500) };
    let snapshot = read_for(&dataset, Duration::from_millis(2000), step);
    let verdict = snapshot.verdict(None);
    drop(hogs);
    println!("\nbottleneck {}\n{verdict}", verdict.bottleneck);
    verdict.remedies.iter().for_each(|remedy| println!("{remedy}"));
    verdict.without.iter().for_each(|hidden| println!("without {hidden}"));
    let remedy = verdict.remedies.first().and_then(|one| one.gain).or(verdict.gain).unwrap_or(1.0);
    println!("gain {remedy:.4}\nrate {:.2}", snapshot.samples_per_second());
    if is_in_a_group {
        // Else the group cannot be removed.
        fs::write("/sys/fs/cgroup/cpu/cgroup.procs", "0").expect("the root takes this process");
    }
}
