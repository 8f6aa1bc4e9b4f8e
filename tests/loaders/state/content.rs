//! States recognize the files that they were saved with by their content: others of the same names, sizes and times are
//! refused, and copies are not.

use crate::common::archive::Archive;
use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::{HANG, skip, within};
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, Options};
use uringload::{Builder, Error, ErrorKind, Loader, State};

const FILES: u64 = 100;
const RECORD_BYTES: usize = 512;
/// The time that every file has.
const TIME: Duration = Duration::from_secs(1_700_000_000);

/// A format and its option, and what a file of it holds by version; all versions have one length.
type Kind = (&'static str, &'static str, fn(u64, u8) -> Vec<u8>);

fn noise(number: u64, version: u8, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at * 31 + at / 251 + number * 7) as u8 ^ version).collect()
}

fn archive(number: u64, version: u8) -> Vec<u8> {
    let add = |archive: Archive, member: u64| {
        archive.file(&format!("{number}-{member}.x"), &noise(member, version, 3000 + 100 * member as usize))
    };
    (0..5).fold(Archive::new(), add).end().0
}

const KINDS: [Kind; 3] = [
    ("folder", "", |number, version| noise(number, version, 20_000 + number as usize)),
    ("records", "record_bytes", |number, version| noise(number, version, 100 * RECORD_BYTES)),
    ("tar", "", archive),
];

fn put(folder: &Path, kind: Kind, number: u64, version: u8) {
    let path = folder.join(format!("{number:03}.{}", if kind.0 == "tar" { "tar" } else { "dat" }));
    fs::write(&path, kind.2(number, version)).expect("a file");
    let file = File::options().write(true).open(path).expect("the file");
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + TIME)).expect("its time");
}

fn made(kind: Kind, files: u64) -> TempDir {
    let root = TempDir::new().expect("a folder");
    (0..files).for_each(|number| put(root.path(), kind, number, 0));
    root
}

fn builder((format, option, _): Kind, root: &Path) -> Builder {
    let options = Options::new().format(format);
    let options = if option.is_empty() { options } else { options.set(option, RECORD_BYTES as u64) };
    let dataset: Arc<dyn Dataset> = dataset::open(&[root], &options).expect("a dataset");
    Loader::builder(dataset).batch_size(8).shuffle(true).seed(3)
}

fn saved(kind: Kind, root: &Path) -> State {
    let mut loader = builder(kind, root).build().expect("a loader");
    loader.next().expect("a batch").expect("no error");
    State::from_json(&loader.state().to_json()).expect("a state")
}

fn refused(kind: Kind, root: &Path, state: &State) -> Error {
    match builder(kind, root).resume(state).build() {
        Ok(_) => panic!("{} resumes over other bytes", kind.0),
        Err(error) => error,
    }
}

#[test]
fn other_files_of_the_same_sizes_and_times_are_refused() {
    for kind in KINDS {
        let root = made(kind, FILES);
        let state = saved(kind, root.path());
        builder(kind, root.path()).resume(&state).build().expect("nothing has changed");
        (0..FILES).for_each(|number| put(root.path(), kind, number, 1));
        let error = refused(kind, root.path(), &state);
        assert_eq!(error.kind(), ErrorKind::StateMismatch, "{}: {error}", kind.0);
        assert!(error.path().is_some_and(|path| path.starts_with(root.path())), "{}: {error}", kind.0);
        assert!(error.what().contains("64 of the 64 files that were compared"), "{}: {error}", kind.0);
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("bring back")), "{}: {error}", kind.0);
    }
}

/// One file of a few is always looked at, and is named.
#[test]
fn the_file_that_holds_something_else_is_named() {
    for kind in KINDS {
        let root = made(kind, 10);
        let state = saved(kind, root.path());
        put(root.path(), kind, 7, 1);
        let error = refused(kind, root.path(), &state);
        assert!(error.path().is_some_and(|path| path.to_string_lossy().contains("007.")), "{}: {error}", kind.0);
        assert!(error.what().contains("1 of the 10 files"), "{}: {error}", kind.0);
        // Without its content the state is as one of an earlier version, which knows names and sizes.
        let mut json: serde_json::Value = serde_json::from_str(&state.to_json()).expect("JSON");
        assert!(json["dataset"].as_object_mut().expect("an object").remove("content").is_some());
        json.as_object_mut().expect("an object").remove("checksum");
        let old = State::from_json(&json.to_string()).expect("a state");
        builder(kind, root.path()).resume(&old).build().expect("it loads as before");
    }
}

/// Of many files each is looked at, in one block, up to 4096 of them; the group of the one that is another is named.
#[test]
fn one_file_of_hundreds_that_holds_something_else_is_found() {
    const MANY: u64 = 400;
    for kind in KINDS {
        let root = made(kind, MANY);
        let state = saved(kind, root.path());
        assert!(state.to_json().len() < 1200, "{}", state.to_json());
        for number in [0, 77, 123, 200, 399] {
            put(root.path(), kind, number, 1);
            let error = refused(kind, root.path(), &state);
            assert_eq!(error.kind(), ErrorKind::StateMismatch, "{} {number}: {error}", kind.0);
            let (first, last) = (number / 25 * 25, number / 25 * 25 + 24);
            let named = error.path().expect("a file").to_string_lossy().into_owned();
            let is_group = named.contains(&format!("{first:03}.")) && error.what().contains(&format!("{last:03}."));
            assert!(is_group || named.contains(&format!("{number:03}.")), "{} {number}: {error}", kind.0);
            put(root.path(), kind, number, 0);
        }
        builder(kind, root.path()).resume(&state).build().expect("all is as it was");
        // Of an earlier version, which knows no groups.
        let mut json: serde_json::Value = serde_json::from_str(&state.to_json()).expect("JSON");
        assert!(json["dataset"].as_object_mut().expect("an object").remove("content_groups").is_some());
        json.as_object_mut().expect("an object").remove("checksum");
        let old = State::from_json(&json.to_string()).expect("a state");
        builder(kind, root.path()).resume(&old).build().expect("it loads as before");
    }
}

/// Another rank has its copy elsewhere, with other times, and a state of each is the same.
#[test]
fn a_copy_is_the_same_dataset() {
    for kind in KINDS {
        let (root, copy) = (made(kind, FILES), TempDir::new().expect("a folder"));
        for entry in fs::read_dir(root.path()).expect("a folder") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a copy");
        }
        let state = saved(kind, root.path());
        builder(kind, copy.path()).resume(&state).build().expect("a copy");
        assert_eq!(saved(kind, copy.path()), state, "{}", kind.0);
    }
}

/// Files that cannot be read are no reason to refuse a state, and none to have no state.
#[test]
fn a_state_is_had_while_files_do_not_answer() {
    had_while_files_do_not_answer(HANG, HANG);
}

#[test]
#[ignore = "slow: measures time"]
fn a_state_is_had_soon_while_files_do_not_answer() {
    had_while_files_do_not_answer(Duration::from_secs(5), Duration::from_millis(500));
}

/// The first state within a bound, and another one within a second.
fn had_while_files_do_not_answer(bound: Duration, again: Duration) {
    within(Duration::from_secs(60), move || {
        let spec = |number| Spec { name: format!("f{number:03}"), size: 20_000, fault: Fault::Stuck };
        let faulty = match Faulty::mount((0..20).map(spec).collect()) {
            Ok(faulty) => faulty,
            Err(reason) => return skip(reason),
        };
        let dataset = dataset::open(&[faulty.path()], &Options::new().format("folder")).expect("a folder");
        let loader = Loader::builder(dataset).batch_size(4).build().expect("a loader");
        let start = Instant::now();
        let state = loader.state();
        assert!(start.elapsed() < bound, "{:?}", start.elapsed());
        assert!(!state.to_json().contains("\"content\""));
        // Once of a few times is enough: the machine may be busy.
        let is_quick = || {
            let start = Instant::now();
            assert_eq!(loader.state(), state);
            start.elapsed() < again
        };
        assert!((0..5).any(|_| is_quick()), "the look goes on, and is not waited for again");
        faulty.release();
        while !loader.state().to_json().contains("\"content\"") {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}
