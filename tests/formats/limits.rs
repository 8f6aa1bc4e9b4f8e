//! Every format in a process that runs out of something: under every policy it gives the right bytes or one error, and
//! a good sample is never listed as bad. The process is a child in a control group (root only, `skipped:` otherwise).

use super::same::{Made, SAMPLES, every, payload, payload_of, writers};
use crate::common::archive::Archive;
use crate::common::child::{self, Group};
use crate::common::{skip, within};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{EngineChoice, OnError, Shuffle};
use uringload::dataset::{self, Dataset, Options};
use uringload::{Builder, Error, ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(1200);
const POLICIES: [OnError; 4] = [OnError::Raise, OnError::Warn, OnError::Skip, OnError::Replace];
const ENGINES: [EngineChoice; 3] = [EngineChoice::Auto, EngineChoice::Uring, EngineChoice::Threads];
const MIB: u64 = 1 << 20;

/// What a loader may take where memory is short, and all of its process beside what it had before.
const MEMORY_LIMIT: u64 = 16 * MIB;
const GROUP_BYTES: u64 = 64 * MIB;

/// Reads all; `check` takes each batch. Returns how many samples came, or the one error.
fn read(builder: Builder, list: &Path, told: &str, mut check: impl FnMut(&Batch)) -> Result<u64, Error> {
    let (mut came, mut errors) = (0, Vec::new());
    match builder.quarantine(list).outage_timeout(Duration::from_millis(300)).memory_limit(MEMORY_LIMIT).build() {
        Err(error) => errors.push(error),
        Ok(loader) => {
            for item in loader {
                match item {
                    Ok(batch) => {
                        check(&batch);
                        came += batch.ids.len() as u64;
                        errors.extend(batch.failed.into_iter().map(|failed| failed.error));
                    }
                    Err(error) => errors.push(error),
                }
            }
        }
    }
    assert_eq!(fs::read(list).unwrap_or_default(), b"", "{told}: good samples are in quarantine: {errors:?}");
    match errors.pop() {
        None => Ok(came),
        Some(error) => {
            assert!(errors.is_empty(), "{told}: one error is enough: {error}, {errors:?}");
            assert!(error.remedy().is_some() || error.cause().is_some(), "{told}: {error}");
            Err(error)
        }
    }
}

fn builder(dataset: &Arc<dyn Dataset>, policy: OnError, engine: EngineChoice) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(7).shuffle(Shuffle::Auto).num_threads(2);
    builder.on_error(policy).engine(engine)
}

/// All formats under each policy; how many loaders gave all, and the error of each of the others.
fn matrix(made: &[Made], list: &Path) -> (u64, Vec<Error>) {
    let (mut all, mut errors) = (0, Vec::new());
    for (turn, (name, dataset, column)) in made.iter().enumerate() {
        for (number, policy) in POLICIES.into_iter().enumerate() {
            if policy == OnError::Replace && dataset.units().is_some() {
                continue;
            }
            let engine = ENGINES[(turn + number) % ENGINES.len()];
            let told = format!("{name}, {policy:?}, {engine:?}");
            let came = read(builder(dataset, policy, engine), list, &told, |batch| {
                let index = batch.columns.iter().position(|found| found.name == *column).unwrap_or(0);
                for (row, id) in batch.ids.iter().enumerate() {
                    let bytes = batch.columns[index].bytes_of(row).expect("bytes");
                    assert!(payload_of(&bytes) == payload(id.0), "{told}: sample {} has other bytes", id.0);
                }
            });
            match came {
                Ok(came) => {
                    assert_eq!(came, SAMPLES, "{told}: samples are lost without an error");
                    all += 1;
                }
                Err(error) => errors.push(error),
            }
        }
    }
    (all, errors)
}

/// Sixty megabytes of samples in formats that are read as spans, as units and through a scan.
struct Large(TempDir);

const LARGE: u64 = 300;
const LARGE_BYTES: usize = 200_000;

fn large(number: u64) -> Vec<u8> {
    (0..LARGE_BYTES as u64).map(|at| b'a' + ((at * 7 + at / 1000 + number * 31) % 26) as u8).collect()
}

impl Large {
    fn new() -> Large {
        let root = TempDir::new().expect("a folder");
        let all: Vec<Vec<u8>> = (0..LARGE).map(large).collect();
        let put = |name: &str, bytes: &[u8]| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        };
        for (number, sample) in all.iter().enumerate() {
            put(&format!("folder/{number:03}"), sample);
        }
        for (part, some) in all.chunks(10).enumerate() {
            let add = |archive: Archive, (number, sample): (usize, &Vec<u8>)| {
                archive.file(&format!("{part:02}{number}.x"), sample)
            };
            let archive = some.iter().enumerate().fold(Archive::new(), add).end().0;
            put(&format!("tar/{part:02}.tar"), &archive);
            put(&format!("zipped/{part:02}.tar.zst"), &zstd::encode_all(&archive[..], 1).expect("a frame"));
            let lines: Vec<u8> = some.iter().flat_map(|sample| [&sample[..], b"\n"].concat()).collect();
            put(&format!("text/{part:02}.txt.gz"), &writers::gzip(&lines));
            put(&format!("tfrecord/{part:02}.tfrecord"), &writers::tfrecord(some));
            put(&format!("tfrecord_gz/{part:02}.tfrecord.gz"), &writers::gzip(&writers::tfrecord(some)));
        }
        put("records/a.dat", &all.concat());
        let large = Large(root);
        large.evict(large.0.path());
        large
    }

    /// So that whoever reads next pays for the pages.
    fn evict(&self, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                self.evict(&path);
            } else {
                let file = File::open(path).expect("the file");
                file.sync_all().expect("it is written");
                uringload_sys::file::evict(file.as_fd()).expect("pages can be given back");
            }
        }
    }

    fn datasets(&self) -> Vec<(&'static str, PathBuf, Options)> {
        let of =
            |format: &'static str, folder: &str| (format, self.0.path().join(folder), Options::new().format(format));
        let (name, path, options) = of("records", "records");
        vec![
            (name, path, options.set("record_bytes", LARGE_BYTES as u64)),
            of("folder", "folder"),
            of("tar", "tar"),
            of("tar", "zipped"),
            of("text", "text"),
            of("tfrecord", "tfrecord"),
            of("tfrecord", "tfrecord_gz"),
        ]
    }

    /// Opens and reads each format under each policy: everything must come.
    fn read(&self, list: &Path) {
        for (turn, (format, path, options)) in self.datasets().into_iter().enumerate() {
            let dataset: Arc<dyn Dataset> = dataset::open(&[&path], &options).expect("a dataset");
            let policy = POLICIES[turn % 3];
            for engine in ENGINES {
                let told = format!("{format} of {path:?}, {policy:?}, {engine:?}");
                let came = read(builder(&dataset, policy, engine), list, &told, |batch| {
                    for (row, id) in batch.ids.iter().enumerate() {
                        let bytes = batch.columns[0].bytes_of(row).expect("bytes");
                        assert!(*bytes == large(id.0), "{told}: sample {} has other bytes", id.0);
                    }
                });
                assert_eq!(came.expect("no error"), LARGE, "{told}");
            }
        }
    }
}

/// Whether a thread could not be started: by the loader, or by the system for a read of its ring, which then ends with
/// `ECANCELED`.
fn is_want_of_threads(error: &Error) -> bool {
    let Some(cause) = error.cause() else { return false };
    let code = cause.downcast_ref().and_then(std::io::Error::raw_os_error).map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::AGAIN | Errno::CANCELED)) || cause.downcast_ref().is_some_and(is_want_of_threads)
}

/// The child of the tests below. It makes its files first and enters the group then.
#[test]
#[ignore = "slow: a child of other tests, which does nothing without a task"]
fn child_within_limits() {
    let Some(task) = child::task() else { return };
    let (task, group) = task.split_once(' ').expect("a task and a group");
    let group = Path::new(group);
    let root = TempDir::new().expect("a folder");
    let list = root.path().join("bad.jsonl");
    match task {
        "all" | "any" => {
            let made = every(&root);
            child::enter(group);
            let (all, errors) = matrix(&made, &list);
            assert!(errors.iter().all(|error| task == "any" && is_want_of_threads(error)), "{errors:?}");
            println!("came {all}, errors {}", errors.len());
        }
        "large" => {
            let large = Large::new();
            child::enter(group);
            large.read(&list);
        }
        other => panic!("no task {other}"),
    }
}

const CHILD: &str = "formats::limits::child_within_limits";

/// From not a single thread to as many as a loader wants: some can be started and others not.
#[test]
#[ignore = "slow: every format under every limit of processes"]
fn a_limit_of_processes_costs_no_sample() {
    within(BOUND, || {
        let mut most = (0, 0);
        for processes in [1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 64] {
            let group = match Group::new("pids", &[("pids.max", processes)]) {
                Ok(group) => group,
                Err(reason) => return skip(reason),
            };
            let out = child::run(CHILD, &format!("any {}", group.path().display()));
            let number = |word: &str| -> u64 {
                let rest = out.split_once(word).map(|(_, rest)| rest).expect("a count");
                rest.trim().split([',', '\n']).next().and_then(|text| text.trim().parse().ok()).expect("a number")
            };
            let (all, errors) = (number("came "), number("errors "));
            println!("{processes} processes: {all} loaders gave all, {errors} one error");
            assert!(processes > 1 || all == 0, "a loader needs a thread");
            assert!(all >= most.0, "{processes} processes: {all} after {most:?}");
            most = (all, errors);
        }
        assert_eq!(most.1, 0, "64 are enough");
    });
}

/// Little memory, of which a loader is told its part: nothing is killed, and everything comes.
#[test]
#[ignore = "slow: every format under a limit of memory"]
fn a_limit_of_memory_that_fits_costs_no_sample() {
    within(BOUND, || {
        for task in ["all", "large"] {
            let group = match Group::new("memory", &[("memory.limit_in_bytes", GROUP_BYTES)]) {
                Ok(group) => group,
                Err(reason) => return skip(reason),
            };
            child::run(CHILD, &format!("{task} {}", group.path().display()));
            let most = group.count("memory.max_usage_in_bytes");
            println!("{task}: at most {} MiB of {} MiB", most / MIB, GROUP_BYTES / MIB);
            // Pages of the cache remain charged, and are given back.
            let _ = fs::write(group.path().join("memory.force_empty"), "0");
        }
    });
}

/// Bytes of the one record below, and what a process may grow by while it finds that it does not fit.
const HUGE: u64 = 400 * MIB;
const GROWTH: u64 = 64 * MIB;

/// A gzip stream of parts, each as often as it says.
fn gzip_of(path: &Path, parts: &[(&[u8], u64)]) {
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    for (bytes, times) in parts {
        (0..*times).for_each(|_| gzip.write_all(bytes).expect("room"));
    }
    gzip.finish().and_then(|mut file| file.flush()).expect("room");
}

/// A record of 400 MiB and its sums.
fn huge_record(path: &Path) {
    let zeros = vec![0; MIB as usize];
    let masked = |sum: u32| (sum.rotate_right(15)).wrapping_add(0xa282_ead8).to_le_bytes();
    let length = HUGE.to_le_bytes();
    let sum = (0..HUGE / MIB).fold(0, |sum, _| crc32c::crc32c_append(sum, &zeros));
    let (head, tail) = ([&length[..], &masked(crc32c::crc32c(&length))].concat(), masked(sum));
    gzip_of(path, &[(&head, 1), (&zeros, HUGE / MIB), (&tail, 1)]);
}

fn huge_member(path: &Path) {
    let zeros = vec![0; MIB as usize];
    let mut size = [b'0'; 12];
    write!(&mut size[..11], "{HUGE:011o}").expect("it fits");
    size[11] = 0;
    let head = Archive::new().header(b"a.bin", b'0', &size, |_| {}).0;
    gzip_of(path, &[(&head, 1), (&zeros, HUGE / MIB), (&[0; 1024], 1)]);
}

/// Finds the samples of a compressed file, whose one sample does not fit into the limit: how much memory that takes.
#[test]
#[ignore = "slow: a child of other tests, which does nothing without a task"]
fn child_with_a_huge_sample() {
    let Some(task) = child::task() else { return };
    let (format, path) = task.split_once(' ').expect("a format and a path");
    let before = child::most_resident();
    let options = Options::new().format(format);
    let options = if format == "tfrecord" { options.set("whole_records", true) } else { options };
    let dataset: Arc<dyn Dataset> = dataset::open(&[path], &options).expect("a dataset");
    let built = Loader::builder(Arc::clone(&dataset)).batch_size(1).memory_limit(32 * MIB).build();
    let error = built.expect_err("the sample does not fit");
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    let grown = child::most_resident().saturating_sub(before);
    assert_eq!(dataset.len(), 1);
    println!("{format}: grown by {} MiB", grown / MIB);
    assert!(grown < GROWTH, "{format}: grown by {} MiB", grown / MIB);
}

#[test]
fn one_huge_sample_in_a_compressed_file_takes_little_memory_to_find() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        for (format, name, write) in
            [("tfrecord", "a.tfrecord.gz", huge_record as fn(&Path)), ("tar", "a.tar.gz", huge_member)]
        {
            let path = root.path().join(name);
            write(&path);
            child::run("formats::limits::child_with_a_huge_sample", &format!("{format} {}", path.display()));
        }
    });
}
