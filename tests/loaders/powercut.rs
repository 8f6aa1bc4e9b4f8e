//! Power that fails while states, packs and indexes are written: what has its final name afterwards is whole, no state
//! goes back, and the next run finishes the work. On ext4, by its shutdown ioctl. Root only, `skipped:` otherwise.

use crate::common::archive::Archive;
use crate::common::content::write_file;
use crate::common::mounts::{Disk, Kind, Mounted};
use crate::common::random::Random;
use crate::common::{skip, within};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, Options, SampleId, Span};
use uringload::pack::PackOptions;
use uringload::sampler::Cursor;
use uringload::{Error, Loader, State};

/// Files that are packed.
const FILES: u64 = 120;
/// Archives that are indexed.
const ARCHIVES: u64 = 12;

/// What is read, on a disk that keeps its power.
struct Sources {
    folder: TempDir,
    /// Archives beside which no index can be written.
    read_only: Mounted,
    /// What `pack` writes undisturbed.
    packed: BTreeMap<PathBuf, Vec<u8>>,
}

impl Sources {
    fn new() -> Result<Sources, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        fs::create_dir(folder.path().join("files")).map_err(|error| error.to_string())?;
        for number in 0..FILES {
            write_file(&folder.path().join(format!("files/{number:03}")), number * 997 % 90_001).expect("a file");
        }
        write_file(&folder.path().join("records"), 64 * 1000).expect("a file");
        let read_only = Mounted::new(Kind::Tmpfs)?;
        write_archives(read_only.path());
        let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(read_only.path()).status();
        if !remounted.is_ok_and(|status| status.success()) {
            return Err("tmpfs is not to be mounted read-only".into());
        }
        let mut sources = Sources { folder, read_only, packed: BTreeMap::new() };
        let to = sources.folder.path().join("packed");
        sources.pack(&to).expect("a pack");
        sources.packed = contents(&to);
        Ok(sources)
    }

    fn pack(&self, to: &Path) -> Result<(), Error> {
        let files = dataset::open(&[self.folder.path().join("files")], &Options::new().format("folder"))?;
        let options = PackOptions::default().shard_samples(10).threads(2);
        let report = Loader::builder(files).pack(to, options)?.run(&|_| ControlFlow::Continue(()))?;
        assert_eq!((report.failed, report.lacking), (0, 0));
        Ok(())
    }

    /// Writes a state behind each batch until that fails. Returns where the last one stood that was written.
    fn write_states(&self, path: &Path) -> Option<Cursor> {
        let options = Options::new().format("records").set("record_bytes", 64);
        let records = dataset::open(&[self.folder.path().join("records")], &options).expect("records");
        let mut loader = Loader::builder(records).batch_size(10).epochs(1000).build().expect("a loader");
        let mut last = None;
        while let Some(batch) = loader.next() {
            batch.expect("a batch");
            let state = loader.state();
            if state.write(path).is_err() {
                break;
            }
            last = Some(state.cursor());
        }
        last
    }

    fn open_cached(&self, cache: &Path) -> Result<Arc<dyn Dataset>, Error> {
        let options = Options::new().format("tar").set("index_cache", cache);
        dataset::open(&[self.read_only.path()], &options)
    }
}

fn write_archives(folder: &Path) {
    for number in 0..ARCHIVES {
        let mut archive = Archive::new();
        for member in 0..50 {
            archive = archive.file(&format!("{number}-{member:02}.bin"), &vec![member as u8; 100 + member * 7]);
        }
        fs::write(folder.join(format!("{number:02}.tar")), archive.end().0).expect("an archive");
    }
}

/// Files of a folder with their content, without indexes, which hold the time at which their archive was written.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let kept = files.filter(|path| path.extension().is_none_or(|extension| extension != "uidx"));
    kept.map(|path| (path.file_name().expect("a name").into(), fs::read(path).expect("a file"))).collect()
}

fn spans(dataset: &dyn Dataset) -> Vec<Span> {
    let mut spans = Vec::new();
    (0..dataset.len()).for_each(|id| dataset.spans(SampleId(id), &mut spans));
    spans
}

/// Writes everything at once in a folder of its own, until the power fails.
fn lose_power_once(disk: &Disk, sources: &Sources, random: &mut Random, run: u64) {
    let folder = disk.path().join(format!("run-{run}"));
    let (archives, packed) = (folder.join("archives"), folder.join("packed"));
    let (state, cache) = (folder.join("state.json"), folder.join("cache"));
    for new in [&folder, &archives, &cache] {
        fs::create_dir(new).expect("a folder");
    }
    write_archives(&archives);
    rustix::fs::syncfs(File::open(&folder).expect("a folder")).expect("what was there before is on disk");

    let delay = Duration::from_micros(random.below(60_000));
    let last = std::thread::scope(|scope| {
        let states = scope.spawn(|| sources.write_states(&state));
        // Each may be done before the power fails, or fail with it.
        scope.spawn(|| sources.pack(&packed).is_ok());
        scope.spawn(|| dataset::open(&[&archives], &Options::new().format("tar")).is_ok());
        scope.spawn(|| sources.open_cached(&cache).is_ok());
        std::thread::sleep(delay);
        disk.cut_power();
        states.join().expect("states are written")
    });
    disk.restart();

    let case = format!("run {run}, power failed after {delay:?}");
    if let Some(last) = last {
        let found = State::read(&state).unwrap_or_else(|error| panic!("{case}: {error}")).cursor();
        assert!((found.epoch, found.position) >= (last.epoch, last.position), "{case}: {found:?} is before {last:?}");
    } else if state.exists() {
        State::read(&state).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    if packed.exists() {
        for (name, content) in contents(&packed) {
            let whole = name.extension().is_none_or(|extension| extension != "tar") || sources.packed[&name] == content;
            assert!(whole, "{case}: {name:?} is torn");
        }
    }
    sources.pack(&packed).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(contents(&packed) == sources.packed, "{case}: {:?}", contents(&packed).keys());
    let reference = spans(&*sources.open_cached(&folder).expect("archives"));
    let beside = dataset::open(&[&archives], &Options::new().format("tar")).expect("archives");
    let cached = sources.open_cached(&cache).expect("archives");
    assert!(spans(&*beside) == reference && spans(&*cached) == reference, "{case}: an index is torn");
    fs::remove_dir_all(&folder).expect("the run is removed");
}

fn lose_power(runs: u64) {
    const BOUND: Duration = Duration::from_secs(3600);
    let (disk, sources) = match (Disk::new(), Sources::new()) {
        (Ok(disk), Ok(sources)) => (disk, sources),
        (Err(reason), _) | (_, Err(reason)) => return skip(reason),
    };
    within(BOUND, move || {
        let mut random = Random::new(23);
        (0..runs).for_each(|run| lose_power_once(&disk, &sources, &mut random, run));
    });
}

#[test]
fn nothing_is_torn_and_no_state_goes_back() {
    lose_power(6);
}

#[test]
#[ignore = "slow: the power fails a thousand times"]
fn nothing_is_torn_in_a_thousand_runs() {
    lose_power(1000);
}
