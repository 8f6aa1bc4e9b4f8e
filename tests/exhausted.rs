//! A machine that is out of something: descriptors, threads, address space, room on a disk. Under every policy a loader
//! gives the right bytes or one error, and never puts a good sample in quarantine.
//!
//! A binary of its own, because limits are those of the whole process. Its tests take turns.

mod common;

use common::check::drain;
use common::content::write_file;
use common::sandbox::without_threads;
use common::{skip, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::{EngineChoice, IoChoice, OnError};
use uringload::dataset::{self, Dataset, Options};
use uringload::{Builder, Error, ErrorKind, Loader};

const FILES: u64 = 300;
const BOUND: Duration = Duration::from_secs(120);
const POLICIES: [OnError; 4] = [OnError::Raise, OnError::Warn, OnError::Skip, OnError::Replace];
const WAYS: [(EngineChoice, IoChoice); 4] = [
    (EngineChoice::Auto, IoChoice::Auto),
    (EngineChoice::Uring, IoChoice::Direct),
    (EngineChoice::Threads, IoChoice::Direct),
    (EngineChoice::Threads, IoChoice::Buffered),
];

static TURN: Mutex<()> = Mutex::new(());

/// A folder of more files than an engine keeps open, and one of fewer.
fn folder(files: u64) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    fs::create_dir(root.path().join("data")).expect("a folder");
    for number in 0..files {
        write_file(&root.path().join(format!("data/f{number:03}")), 4_000 + number).expect("a file");
    }
    let options = Options::new().format("folder");
    let dataset = dataset::open(&[root.path().join("data")], &options).expect("a folder");
    (root, dataset)
}

fn builder(dataset: &Arc<dyn Dataset>, (engine, io): (EngineChoice, IoChoice), on_error: OnError) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(8).shuffle(true).engine(engine).io(io);
    builder.on_error(on_error).outage_timeout(Duration::from_secs(2))
}

/// What came of a loader: all samples, or one error.
#[derive(Debug, PartialEq)]
enum Came {
    All,
    Error(ErrorKind),
}

/// Reads all, and fails on anything but the right bytes or one error, and on a good sample in quarantine.
fn came(dataset: &Arc<dyn Dataset>, built: Result<Loader, Error>, list: &Path) -> Came {
    let (ids, errors) = match built {
        Ok(mut loader) => drain(&**dataset, &mut loader),
        Err(error) => (Vec::new(), vec![error]),
    };
    assert_eq!(fs::read(list).unwrap_or_default(), b"", "good samples are in quarantine: {errors:?}");
    match &errors[..] {
        [] => {
            assert_eq!(ids.len() as u64, dataset.len(), "samples are lost without an error");
            Came::All
        }
        [error] => {
            assert!(error.remedy().is_some() || error.cause().is_some(), "{error}");
            Came::Error(error.kind())
        }
        more => panic!("one error is enough: {more:?}"),
    }
}

/// Opens files until only `left` descriptors are left, and gives them back when dropped.
struct Crowd(Vec<File>, Rlimit);

impl Crowd {
    fn new(left: usize) -> Crowd {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(1024), maximum: before.maximum }).expect("a lower limit");
        let mut files = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        files.truncate(files.len() - left);
        Crowd(files, before)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.clear();
        let _ = setrlimit(Resource::Nofile, Rlimit { current: self.1.current, maximum: self.1.maximum });
    }
}

fn one_at_a_time(work: impl FnOnce() + Send + 'static) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    within(BOUND, work);
}

/// 19 of 1 024 descriptors are left when the loader is made: every sample comes all the same.
#[test]
fn few_descriptors_cost_no_sample() {
    one_at_a_time(|| {
        for (files, way) in [FILES, 100].into_iter().flat_map(|files| WAYS.map(|way| (files, way))) {
            for on_error in POLICIES {
                let (root, dataset) = folder(files);
                let list = root.path().join("bad.jsonl");
                let builder = builder(&dataset, way, on_error).quarantine(&list);
                let crowd = Crowd::new(19);
                let built = builder.build();
                if built.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
                    drop(crowd);
                    skip(format!("{way:?} is not to be had"));
                    break;
                }
                assert_eq!(came(&dataset, built, &list), Came::All, "{way:?} {on_error:?}");
                drop(crowd);
            }
        }
    });
}

/// The last descriptors go while a loader runs: it waits for some, and ends with one error if none come.
#[test]
fn no_descriptor_at_all_is_waited_out_or_one_error() {
    one_at_a_time(|| {
        for (way, on_error) in WAYS.into_iter().zip(POLICIES) {
            for comes_back in [true, false] {
                let (root, dataset) = folder(FILES);
                let list = root.path().join("bad.jsonl");
                let builder = builder(&dataset, way, on_error).quarantine(&list).memory_limit(256 << 10);
                let Ok(loader) = builder.build() else {
                    skip(format!("{way:?} is not to be had"));
                    break;
                };
                let mut crowd = Some(Crowd::new(0));
                let relief = crowd.take_if(|_| comes_back).map(|crowd| {
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(800));
                        drop(crowd);
                    })
                });
                let came = came(&dataset, Ok(loader), &list);
                drop(crowd);
                // A ring's files take no descriptors, so nothing is amiss there.
                assert!(came == Came::All || !comes_back, "{way:?} {on_error:?}: {came:?}");
                assert_eq!(fs::read(&list).expect("a list"), b"", "good samples are in quarantine");
                if let Some(relief) = relief {
                    relief.join().expect("no panic");
                }
            }
        }
    });
}

/// Where no thread can be started a loader cannot be: one error, at once.
#[test]
fn no_thread_is_one_error() {
    one_at_a_time(|| {
        let (root, dataset) = folder(20);
        let list = root.path().join("bad.jsonl");
        for way in WAYS {
            for on_error in POLICIES {
                let builder = builder(&dataset, way, on_error).quarantine(&list);
                let came = without_threads(|| came(&dataset, builder.build(), &list));
                assert_eq!(came, Came::Error(ErrorKind::Io), "{way:?} {on_error:?}");
            }
        }
    });
}

/// Too little address space for the pool: one error that says so, when the loader is built.
#[test]
fn too_little_address_space_is_one_error() {
    one_at_a_time(|| {
        let (root, dataset) = folder(20);
        let list = root.path().join("bad.jsonl");
        let before = getrlimit(Resource::As);
        let status = fs::read_to_string("/proc/self/statm").expect("statm");
        let pages: u64 = status.split(' ').next().and_then(|pages| pages.parse().ok()).expect("pages");
        for on_error in POLICIES {
            let builder = builder(&dataset, WAYS[3], on_error).quarantine(&list).memory_limit(4 << 30);
            // Room for stacks and the heap, not for the pool.
            let current = Some(pages * 4096 + (1 << 30));
            setrlimit(Resource::As, Rlimit { current, maximum: before.maximum }).expect("a lower limit");
            let came = came(&dataset, builder.build(), &list);
            setrlimit(Resource::As, Rlimit { current: before.current, maximum: before.maximum }).expect("as before");
            assert_eq!(came, Came::Error(ErrorKind::MemoryLimit), "{on_error:?}");
        }
    });
}
