//! A machine that is out of something: descriptors, threads, address space, room on a disk. Under every policy a loader
//! gives the right bytes or one error, and never puts a good sample in quarantine.
//!
//! A binary of its own, because limits are those of the whole process. Its tests take turns.

mod common;

use common::archive::Archive;
use common::check::drain;
use common::content::write_file;
use common::mounts::Mounted;
use common::sandbox::{without, without_threads};
use common::{HANG, skip, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::{Cause, EngineChoice, IoChoice, OnError};
use uringload::dataset::{self, Dataset, Options};
use uringload::pack::PackOptions;
use uringload::{Builder, Error, ErrorKind, Loader, State};

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

/// The result of a loader: all samples, or one error.
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
                let builder = builder(&dataset, way, on_error).quarantine(&list).outage_timeout(HANG);
                let crowd = Crowd::new(19);
                let built = builder.build();
                if built.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
                    drop(crowd);
                    skip(format!("{way:?} is not available"));
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
                let timeout = if comes_back { HANG } else { Duration::from_millis(500) };
                let builder = builder(&dataset, way, on_error).quarantine(&list).memory_limit(256 << 10);
                let builder = builder.outage_timeout(timeout);
                let Ok(loader) = builder.build() else {
                    skip(format!("{way:?} is not available"));
                    break;
                };
                let mut crowd = Some(Crowd::new(0));
                let relief = crowd.take_if(|_| comes_back).map(|crowd| {
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(300));
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

/// Folders are listed by however many threads there are; that there are fewer than were asked for is told.
#[test]
fn fewer_threads_than_wanted_list_a_folder_and_are_told() {
    one_at_a_time(|| {
        let (root, dataset) = folder(20);
        let open = || {
            let options = Options::new().format("folder").threads(4);
            dataset::open(&[root.path().join("data")], &options).expect("a folder")
        };
        assert!(open().index().fallbacks.is_empty());
        let alone = without_threads(open);
        assert_eq!(alone.fingerprint(), dataset.fingerprint(), "the same files");
        let [step] = &alone.index().fallbacks[..] else { panic!("{:?}", alone.index().fallbacks) };
        assert_eq!(step.cause, Cause::Threads);
        assert!(step.to_string().contains("1 of 4 threads to list folders with"), "{step}");
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

/// System calls that a loader makes, by number. The kernel may have no room for any of them.
const CALLS: [(&str, i64); 9] = [
    ("pread64", libc::SYS_pread64),
    ("preadv", libc::SYS_preadv),
    ("preadv2", libc::SYS_preadv2),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("statx", libc::SYS_statx),
    ("madvise", libc::SYS_madvise),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
];

/// Denies a call for good: everything comes by another way, or one error says so.
fn denied((name, call): (&str, i64), errno: i32, way: (EngineChoice, IoChoice), on_error: OnError) {
    let (root, dataset) = folder(60);
    let list = root.path().join("bad.jsonl");
    let builder = builder(&dataset, way, on_error).quarantine(&list).outage_timeout(Duration::from_millis(300));
    let told = format!("{name} fails with {errno}, {way:?}, {on_error:?}");
    let what = without(&[call], errno, || match builder.build() {
        Ok(mut loader) => drain(&*dataset, &mut loader),
        Err(error) => (Vec::new(), vec![error]),
    });
    // Outside, where files can be opened.
    assert_eq!(fs::read(&list).unwrap_or_default(), b"", "{told}: good samples are in quarantine: {:?}", what.1);
    match (what.0.len(), &what.1[..]) {
        (60, []) => {}
        (came, [error]) if came < 60 => {
            assert!(error.remedy().is_some() || error.cause().is_some(), "{told}: {error}");
        }
        (came, errors) => panic!("{told}: {came} samples and {errors:?}"),
    }
}

/// Each call once, by the way and under the policy whose turn it is.
#[test]
fn a_call_without_room_is_waited_out_or_one_error() {
    one_at_a_time(|| {
        for (turn, call) in CALLS.into_iter().enumerate() {
            denied(call, [libc::ENOMEM, libc::EAGAIN][turn % 2], WAYS[turn % 4], POLICIES[turn % 4]);
        }
    });
}

#[test]
#[ignore = "slow: every call, errno, way and policy"]
fn every_call_without_room_is_waited_out_or_one_error() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    within(20 * BOUND, || {
        for call in CALLS {
            for errno in [libc::ENOMEM, libc::EAGAIN, libc::ENFILE, libc::ENOBUFS] {
                for way in WAYS {
                    POLICIES.into_iter().for_each(|on_error| denied(call, errno, way, on_error));
                }
            }
        }
    });
}

/// Files in a folder but the one that fills the disk.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".filler");
    names.sort_unstable();
    names
}

/// A disk without room: what was there stays, nothing half is left, and what can be read is.
#[test]
fn a_full_disk_spoils_nothing_that_is_there() {
    one_at_a_time(|| {
        let disk = match Mounted::small(1 << 20) {
            Ok(disk) => disk,
            Err(reason) => return skip(reason),
        };
        let (_root, dataset) = folder(100);
        a_state_on_a_full_disk(&disk, &dataset);
        an_index_on_a_full_disk(&disk);
        a_quarantine_on_a_full_disk(&disk);
        a_pack_on_a_full_disk(&disk, &dataset);
    });
}

fn a_state_on_a_full_disk(disk: &Mounted, dataset: &Arc<dyn Dataset>) {
    let at = disk.path().join("state");
    fs::create_dir(&at).expect("a folder");
    let mut loader = builder(dataset, WAYS[0], OnError::Raise).build().expect("a loader");
    let first = loader.state();
    first.write(at.join("state.json")).expect("room");
    loader.next().expect("a batch").expect("no error");
    let filler = disk.fill();
    let error = loader.state().write(at.join("state.json")).expect_err("there is no room");
    assert!(error.path().is_some() && error.to_string().contains("No space left"), "{error}");
    assert_eq!(State::read(at.join("state.json")).expect("a state"), first, "the old one stays");
    assert_eq!(names(&at), ["state.json"]);
    fs::remove_file(filler).expect("remove");
    loader.state().write(at.join("state.json")).expect("room");
    assert_eq!(State::read(at.join("state.json")).expect("a state"), loader.state());
}

fn an_index_on_a_full_disk(disk: &Mounted) {
    let at = disk.path().join("tar");
    fs::create_dir(&at).expect("a folder");
    let add = |archive: Archive, number| archive.file(&format!("{number:03}.x"), format!("value {number}").as_bytes());
    let archive = (0..100).fold(Archive::new(), add).end().0;
    fs::write(at.join("a.tar"), archive).expect("room");
    for is_full in [true, false] {
        let filler = is_full.then(|| disk.fill());
        let dataset = dataset::open(&[&at], &Options::new().format("tar")).expect("an archive");
        let fallbacks = &dataset.index().fallbacks;
        assert_eq!(fallbacks.iter().any(|step| step.cause == Cause::IndexPlace), is_full, "{fallbacks:?}");
        let loader = Loader::builder(dataset).batch_size(7).build().expect("a loader");
        for batch in loader {
            let batch = batch.expect("a batch");
            for (row, id) in batch.ids.iter().enumerate() {
                let bytes = batch.columns[0].bytes_of(row).expect("bytes");
                assert_eq!(&bytes[..], format!("value {}", id.0).as_bytes());
            }
        }
        let wanted: &[&str] = if is_full { &["a.tar"] } else { &["a.tar", "a.tar.uidx"] };
        assert_eq!(names(&at), wanted);
        if let Some(filler) = filler {
            fs::remove_file(filler).expect("remove");
        }
    }
}

/// Samples that are bad in earnest, and no room to list them: said once, beside the batches.
fn a_quarantine_on_a_full_disk(disk: &Mounted) {
    let (root, dataset) = folder(100);
    for number in 0..3 {
        let path = root.path().join(format!("data/f{number:03}"));
        File::options().write(true).open(path).and_then(|file| file.set_len(10)).expect("shorter");
    }
    let list = disk.path().join("bad.jsonl");
    fs::write(&list, []).expect("a list");
    let filler = disk.fill();
    let loader = builder(&dataset, WAYS[0], OnError::Skip).quarantine(&list).build();
    let (ids, errors) = drain(&*dataset, &mut loader.expect("a loader"));
    assert_eq!((ids.len(), errors.len()), (97, 4), "{errors:?}");
    let told: Vec<&Error> = errors.iter().filter(|error| error.path() == Some(&list)).collect();
    assert!(told.len() == 1 && told[0].remedy().is_some(), "{errors:?}");
    assert_eq!(fs::read(&list).expect("a list"), b"", "no half line");
    fs::remove_file(filler).expect("remove");
}

fn a_pack_on_a_full_disk(disk: &Mounted, dataset: &Arc<dyn Dataset>) {
    let to = disk.path().join("packed");
    let pack = || {
        let options = PackOptions::default().shard_samples(40).threads(1);
        let builder = Loader::builder(Arc::clone(dataset)).pack(&to, options).expect("a plan");
        builder.run(&|_| ControlFlow::Continue(()))
    };
    // Room for one shard of three, which has some 330 kB.
    let filler = disk.fill();
    File::options().write(true).open(&filler).and_then(|file| file.set_len(600 << 10)).expect("some room");
    let error = pack().expect_err("there is no room for all");
    assert!(error.path().is_some() && error.to_string().contains("No space left"), "{error}");
    let whole = |name: &String| {
        let archive = dataset::open(&[to.join(name)], &Options::new().format("tar")).expect("a whole shard");
        archive.len() == 40 || archive.len() == 20
    };
    let shards: Vec<String> = names(&to).into_iter().filter(|name| name.ends_with(".tar")).collect();
    assert!(shards.len() < 3 && shards.iter().all(whole), "{shards:?}");
    fs::remove_file(filler).expect("remove");
    assert_eq!(pack().expect("room").shards, 3);
    let left: Vec<String> = names(&to).into_iter().filter(|name| !name.ends_with(".uidx")).collect();
    assert_eq!(left.len(), 4, "three shards and their list: {left:?}");
}
