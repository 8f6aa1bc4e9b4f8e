//! Quotas of the block layer that are imposed, changed and lifted while a loader reads: bounded waits, and no way of
//! reading that is kept for ever.

use crate::common::child::{self, Group};
use crate::common::content::write_file;
use crate::common::{is_root, skip, within};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::Loader;
use uringload::config::Config;
use uringload::config::IoChoice;
use uringload::dataset::{self, Options, View};
use uringload::stats::{Knob, Stats};

const BOUND: Duration = Duration::from_secs(300);
const CHILD: &str = "loaders::quota::child_under_a_quota";

/// Samples of 16 KiB, of which every second one is read.
const RECORD_BYTES: u64 = 16 << 10;
const RECORDS: u64 = 16 << 10;

/// A child in a group without limits, which it changes by itself.
fn run(task: &str) {
    let task = task.to_owned();
    within(BOUND, move || {
        if !is_root() {
            return skip("control groups belong to root");
        }
        let group = match Group::new("blkio", &[("blkio.weight", 0)]) {
            Ok(group) => group,
            // Not every kernel has weights: a group without any limit will do.
            Err(reason) if reason.contains("blkio.weight") => match Group::new("blkio", &[("notify_on_release", 0)]) {
                Ok(group) => group,
                Err(reason) => return skip(reason),
            },
            Err(reason) => return skip(reason),
        };
        child::run(CHILD, &format!("{task} {}", group.path().display()));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn a_quota_that_changes_while_reading_is_followed() {
    run("changes");
}

#[test]
#[ignore = "slow: a minute"]
fn storage_that_stands_still_for_half_a_minute_comes_back() {
    run("stalls");
}

/// The loader, and the limits of its group.
struct Quota<'a> {
    group: &'a Path,
    device: String,
    loader: Loader,
    stats: Arc<Stats>,
    next: u64,
}

impl Quota<'_> {
    /// Limits reads (`read_iops`) or bytes (`read_bps`) a second; 0 lifts the limit.
    fn limit(&self, what: &str, most: u64) {
        let file = self.group.join(format!("blkio.throttle.{what}_device"));
        fs::write(file, format!("{} {most}", self.device)).expect("a limit");
    }

    /// Samples a second, in so long. A wait for a batch may be longer by what the quota needs for it.
    fn rate(&mut self, time: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.next);
        while start.elapsed() < time {
            let Some(batch) = self.loader.next_timeout(time).expect("a batch") else { break };
            for id in &batch.ids {
                assert_eq!(id.0, self.next % (RECORDS / 2), "in order, whatever is joined");
                self.next += 1;
            }
        }
        (self.next - before) as f64 / start.elapsed().as_secs_f64()
    }

    /// The rate of some seconds, measured again a few times if it is less than `wanted`: the machine may be busy.
    fn best(&mut self, wanted: f64) -> f64 {
        (0..4).fold(0.0, |best: f64, _| if best > wanted { best } else { best.max(self.rate(Duration::from_secs(4))) })
    }
}

#[test]
#[ignore = "a child of the tests above"]
fn child_under_a_quota() {
    let Some(task) = child::task() else { return };
    let (task, group) = task.split_once(' ').expect("a task and a group");
    let group = Path::new(group);
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = root.path().join("records.bin");
    write_file(&path, RECORDS * RECORD_BYTES).expect("a file");
    fs::File::open(&path).and_then(|file| file.sync_all()).expect("the disk takes it");
    let device = match child::disk_of(root.path()) {
        Ok(device) => device,
        Err(reason) => return skip(reason),
    };
    // Threads belong to the group of the one that starts them: the loader's, too.
    child::enter(group);
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
    let dataset = dataset::open(&[&path], &options).expect("records");
    let view = Arc::new(View::of(dataset, (0..RECORDS / 2).map(|id| 2 * id).collect()).expect("a view"));
    let config = Config { io: IoChoice::Direct, epochs: None, batch_size: 16, ..Config::default() };
    let loader = match Loader::builder(view).config(config).build() {
        Ok(loader) => loader,
        Err(error) => return skip(error),
    };
    let stats = loader.stats();
    let mut quota = Quota { group, device, loader, stats, next: 0 };
    let free = quota.rate(Duration::from_secs(2));
    match task {
        "changes" => changes(&mut quota, free),
        _ => stalls(&mut quota, free),
    }
}

fn changes(quota: &mut Quota<'_>, free: f64) {
    // One operation a second: what was read ahead runs dry, and then a batch takes as long as its reads do.
    quota.limit("read_iops", 1);
    quota.rate(Duration::from_secs(5));
    quota.limit("read_iops", 200);
    quota.rate(Duration::from_secs(25));
    let scarce = quota.best(600.0);
    let decisions = quota.stats.decisions();
    decisions.iter().for_each(|decision| eprintln!("{decision}"));
    let kept = |knob: &Knob| *knob == Knob::Gap;
    eprintln!("{free:.0} samples/s, {scarce:.0} at 200 operations a second");
    assert!(decisions.iter().any(|decision| kept(&decision.knob) && decision.from == decision.to), "{decisions:#?}");
    // A sample an operation is 200 a second.
    assert!(scarce > 600.0, "{scarce:.0} samples/s\n{decisions:#?}");
    quota.limit("read_iops", 0);
    quota.rate(Duration::from_secs(2));
    let again = quota.best(0.3 * free);
    let depth = quota.stats.snapshot().depth;
    eprintln!("{again:.0} samples/s without a limit, at a depth of {depth}");
    assert!(again > 0.3 * free, "{again:.0} of {free:.0} samples/s\n{:#?}", quota.stats.decisions());
    assert!(depth >= 8, "{depth}");
}

fn stalls(quota: &mut Quota<'_>, free: f64) {
    // A byte a second is nothing at all.
    quota.limit("read_bps", 1);
    let start = Instant::now();
    quota.rate(Duration::from_secs(30));
    quota.limit("read_bps", 0);
    quota.rate(Duration::from_secs(5));
    assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
    let again = quota.best(0.3 * free);
    let snapshot = quota.stats.snapshot();
    eprintln!("{free:.0} samples/s, {again:.0} after the stall, at a depth of {}", snapshot.depth);
    assert!(again > 0.3 * free, "{again:.0} of {free:.0} samples/s\n{:#?}", quota.stats.decisions());
    assert!(snapshot.depth >= 8, "{}", snapshot.depth);
    assert_eq!(snapshot.count.samples_failed, 0, "no sample fails for that");
}
