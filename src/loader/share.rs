//! Publishes the statistics of a running loader for other programs, some times a second, as a file in memory (tmpfs).
//! `uringload top` shows it.

use crate::config::Route;
use crate::stats::{Snapshot, Stats};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The version of the page.
const VERSION: u32 = 1;

/// How often the page is written: some 0.1 ms of a processor each time.
const PERIOD: Duration = Duration::from_millis(250);

/// A value of "now" is the mean of this many periods.
const RECENT: usize = 4;

/// Prefix of the names of pages.
const PREFIX: &str = "uringload-";

/// A page that is being written. Dropping it removes the page.
#[derive(Debug)]
pub(super) struct Sharing {
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    path: PathBuf,
    /// The process that the writer runs in.
    process: u32,
}

impl Sharing {
    /// Begins to publish in a folder, which should be in memory.
    ///
    /// # Errors
    /// Why the page, or the thread that writes it, cannot be created.
    pub(super) fn begin(folder: &Path, stats: Arc<Stats>, route: Arc<Mutex<Route>>, dataset: Value) -> Result<Sharing> {
        let process = std::process::id();
        // No other loader of this process has this address while this one lives.
        let number = Arc::as_ptr(&stats).addr();
        let path = folder.join(format!("{PREFIX}{process}-{number:x}.json"));
        let failed = |source| {
            let error = Error::io("cannot share the loader's statistics", source).with_path(&path);
            error.with_remedy("name a folder that this user can write to, such as /dev/shm, or share none")
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let mut page = Page { path: path.clone(), stats, route, dataset, recent: VecDeque::new() };
        remove_left(folder);
        page.write().map_err(failed)?;
        let over = Arc::clone(&is_over);
        let write = move || {
            while !over.load(Ordering::Acquire) {
                std::thread::park_timeout(PERIOD);
                // Full memory costs a page but not the training.
                let _ = page.write();
            }
        };
        let writer = std::thread::Builder::new().name("uringload-share".into()).spawn(write).map_err(failed)?;
        Ok(Sharing { is_over, writer: Some(writer), path, process })
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        // A forked child does not have this thread, and the page is its parent's.
        let Some(writer) = self.writer.take().filter(|_| self.process == std::process::id()) else { return };
        self.is_over.store(true, Ordering::Release);
        writer.thread().unpark();
        // The thread catches its own write errors.
        let _ = writer.join();
        let _ = fs::remove_file(&self.path);
    }
}

/// After this long without a write, a page of a process that does not exist was left by a killed one. The process
/// number of another container may not exist here; that process writes its page again.
const LEFT_AFTER: Duration = Duration::from_secs(10);

/// Removes pages that killed processes of this user have left. Pages that cannot be checked or removed stay.
fn remove_left(folder: &Path) {
    let Ok(own) = fs::metadata("/proc/self").map(|process| process.uid()) else { return };
    let is_left = |path: &Path| {
        let process = process_of(path)?;
        let about = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        let is_old = about.modified().ok()?.elapsed().is_ok_and(|age| age > LEFT_AFTER);
        (about.uid() == own && is_old && !Path::new(&format!("/proc/{process}")).exists()).then_some(())
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_left(&entry.path()).is_some() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process of a page that [`Sharing::begin`] names, or of the temporary file that replaces it.
fn process_of(path: &Path) -> Option<u32> {
    let (process, rest) = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    let number = rest.strip_suffix(".json").or_else(|| rest.strip_suffix(".new"))?;
    let is_address = (8..=16).contains(&number.len()) && u64::from_str_radix(number, 16).is_ok();
    process.parse().ok().filter(|_| is_address)
}

struct Page {
    path: PathBuf,
    stats: Arc<Stats>,
    route: Arc<Mutex<Route>>,
    dataset: Value,
    recent: VecDeque<Snapshot>,
}

impl Page {
    /// Writes a temporary file and renames it, so that readers always see a whole page.
    fn write(&mut self) -> std::io::Result<()> {
        let text = self.text().to_string();
        let beside = self.path.with_extension("new");
        // A killed process of the same number may have left it.
        let _ = fs::remove_file(&beside);
        // For this user alone, and never through a link that another user has put there.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, &self.path));
        written.inspect_err(|_| drop(fs::remove_file(&beside)))
    }

    fn text(&mut self) -> Value {
        let now = self.stats.snapshot();
        let before = self.recent.front().cloned().unwrap_or_default();
        let live = now.since(&before);
        let verdict = live.verdict(None);
        let (route, devices) = {
            let route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
            let devices: Vec<String> = route.devices.iter().map(|device| device.name.clone()).collect();
            (route.to_string(), devices)
        };
        let seconds = live.elapsed.as_secs_f64().max(1e-9);
        let per_second = |count: u64| count as f64 / seconds;
        let micros = |percent| live.read_latency.percentile(percent).map(|at| at.as_secs_f64() * 1e6);
        let threads = live.activities().into_iter().map(|(role, doing, time)| {
            let (count, used) = on_processors(&live, role);
            json!({
                "role": role, "doing": doing, "share": time.as_secs_f64() / seconds, "threads": count,
                "processors": used.map(|used| used.as_secs_f64() / seconds),
            })
        });
        let threads: Vec<Value> = threads.collect();
        let page = json!({
            "version": VERSION,
            "pid": std::process::id(),
            "dataset": self.dataset,
            "route": route,
            "elapsed_s": now.elapsed.as_secs_f64(),
            "batches": now.count.batches,
            "samples": now.count.samples,
            "bytes": now.count.bytes_delivered,
            "now": {
                "over_s": seconds,
                "samples_per_s": live.samples_per_second(),
                "bytes_per_s": live.bytes_per_second(),
                "batches_per_s": per_second(live.count.batches),
                "batches_ready": live.count.batches_ready as f64 / live.count.batches.max(1) as f64,
                "read_bytes_per_s": per_second(live.count.bytes_read),
                "reads_per_s": per_second(live.count.reads),
                "read_latency_us": { "p50": micros(50.0), "p99": micros(99.0) },
                "in_flight": live.in_flight_mean(),
                "depth": now.depth,
                "processors": live.processors.used.as_secs_f64() / seconds,
                "processors_available": live.processors.available,
                "bottleneck": verdict.bottleneck.name(),
                "share": verdict.share,
                "advice": verdict.advice,
                "device": device(&live, &devices, seconds),
                "outage": now.outage.as_ref().map(ToString::to_string),
                "threads": threads,
            },
        });
        self.recent.push_back(now);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        page
    }
}

/// Threads of a role, and the processor time that they had, where that is known of all.
fn on_processors(live: &Snapshot, role: &str) -> (usize, Option<Duration>) {
    let threads = || live.threads.iter().filter(|thread| thread.role.name() == role);
    (threads().count(), threads().map(|thread| thread.scheduled.map(|scheduled| scheduled.used)).sum())
}

/// What the devices do for the loader, by their own clocks: the mean over them. Null if batches stay on the host.
fn device(live: &Snapshot, names: &[String], seconds: f64) -> Option<Value> {
    let share = |nanos: u64| nanos as f64 / 1e9 / seconds / names.len() as f64;
    (!names.is_empty()).then(|| {
        json!({
            "copied_bytes_per_s": live.count.bytes_copied as f64 / seconds,
            "copies_per_s": live.count.copies as f64 / seconds,
            "copy_busy": share(live.count.copy_nanos),
            "kernel_busy": share(live.count.kernel_nanos),
            "names": names,
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::dataset::{self, Options};
    use crate::{ErrorKind, Loader};
    use std::fs;
    use std::time::{Duration, Instant};

    #[test]
    fn a_page_is_there_while_the_loader_is() {
        let (data, pages) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(data.path().join("a.bin"), [7; 1000 * 100]).unwrap();
        let options = Options::new().format("records").set("record_bytes", 1000);
        let dataset = dataset::open(&[data.path()], &options).unwrap();
        let builder = Loader::builder(dataset).batch_size(10).epochs(None);
        let mut loader = builder.clone().share_stats(pages.path()).build().unwrap();
        let read = || {
            let pages = fs::read_dir(pages.path()).unwrap().map(|page| page.unwrap().path());
            let page = { pages }.find(|page| page.extension().is_some_and(|end| end == "json")).expect("a page");
            serde_json::from_str::<serde_json::Value>(&fs::read_to_string(page).unwrap()).expect("a whole page")
        };
        let first = read();
        assert_eq!((&first["version"], &first["pid"]), (&1.into(), &std::process::id().into()));
        assert_eq!((&first["dataset"]["samples"], &first["batches"]), (&100.into(), &0.into()));
        let end = Instant::now() + Duration::from_secs(60);
        while read()["batches"].as_u64().unwrap() == 0 {
            drop(loader.next().unwrap().unwrap());
            assert!(Instant::now() < end, "the page stands still");
        }
        assert!(read()["now"]["samples_per_s"].as_f64().unwrap() > 0.0);
        drop(loader);
        assert_eq!(fs::read_dir(pages.path()).unwrap().count(), 0, "it goes with its loader");
        let error = builder.share_stats(pages.path().join("none")).build().err().unwrap();
        assert!(error.kind() == ErrorKind::NotFound && error.remedy().unwrap().contains("/dev/shm"), "{error}");
    }
}
