//! States in files: whole or not at all.

use super::{FOLDER, unsummed};
use std::fs;
use std::os::unix::fs::symlink;
use uringload::{ErrorKind, State};

#[test]
fn a_file_has_the_old_state_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let mut state = State::from_json(FOLDER).unwrap();
    state.write(&path).unwrap();
    assert_eq!(unsummed(fs::read_to_string(&path).unwrap().trim_end()) + "\n", FOLDER);
    // What another process writes under the first name that is tried is in no one's way.
    let held = folder.path().join(format!(".state.json.{}-0.part", std::process::id()));
    let writing = uringload_sys::file::create_temporary(&held).unwrap();
    // What a process that was killed has left goes; what only looks like it stays.
    for name in [".state.json.1-0.part", ".state.json.1-7.part", ".other.json.1-0.part", ".state.json.x.part"] {
        fs::write(folder.path().join(name), "half a st").unwrap();
    }
    state.cursor.position = 65;
    state.delivered.as_mut().unwrap().digest.delivered.samples = 65;
    state.write(&path).unwrap();
    assert_eq!(State::read(&path).unwrap(), state);
    assert!(held.exists(), "it is being written");
    // Closing it is not enough: a child that another test is just starting shares the lock.
    rustix::fs::flock(&writing, rustix::fs::FlockOperation::Unlock).unwrap();
    state.write(&path).unwrap();
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".other.json.1-0.part", ".state.json.x.part", "state.json"], "left behind");
}

#[test]
fn what_cannot_be_written_says_so_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::from_json(FOLDER).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    for (path, kind) in [
        (folder.path().join("missing/state.json"), ErrorKind::NotFound),
        (folder.path().join("folder"), ErrorKind::WrongFileType),
        ("/dev/null".into(), ErrorKind::WrongFileType),
        ("/".into(), ErrorKind::WrongFileType),
        (folder.path().join("x".repeat(255)), ErrorKind::Io),
    ] {
        let error = state.write(&path).unwrap_err();
        assert_eq!((error.kind(), error.path()), (kind, Some(path.as_path())), "{error}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "left behind");
}

#[test]
fn what_cannot_be_read_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("half"), &FOLDER[..200]).unwrap();
    fs::write(at("bytes"), b"{\"version\": \xff}").unwrap();
    fs::File::create(at("large")).unwrap().set_len(1 << 40).unwrap();
    symlink(at("half"), at("link")).unwrap();
    for (name, kind, told) in [
        ("half", ErrorKind::Corrupt, "cut off"),
        ("link", ErrorKind::Corrupt, "cut off"),
        ("bytes", ErrorKind::Corrupt, ":12: the state is not text"),
        ("large", ErrorKind::Corrupt, "1048576"),
        ("missing", ErrorKind::NotFound, "cannot read the state"),
    ] {
        let error = State::read(at(name)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (kind, Some(at(name).as_path())), "{error}");
        assert!(error.to_string().contains(told), "{told:?} is not in {error}");
    }
}

/// A FIFO without a writer blocks no reader.
#[test]
fn a_fifo_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let read = crate::common::within(std::time::Duration::from_secs(10), move || State::read(path));
    assert_eq!(read.unwrap_err().kind(), ErrorKind::WrongFileType);
}
