//! Folders with indexes, and of archives without a sample. `indexes` has what all formats share.

use super::{contents, folder, left_out};
use crate::common::archive::Archive;
use crate::common::direct::report;
use std::fs;
use uringload::ErrorKind;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Options};

fn two_samples() -> Vec<u8> {
    Archive::new()
        .file("a.jpg", b"one")
        .file("a.cls", b"1")
        .file("b.jpg", b"two")
        .file("b.cls", b"2")
        .file("noext", b"")
        .end()
        .0
}

pub fn with_sidecars() -> Options {
    Options::new().format("tar").threads(2)
}

/// Indexes leave a folder what it was.
#[test]
fn indexes_make_no_other_format_of_a_folder() {
    let folder = folder(&[("a.tar", &two_samples()), ("b.tar", &two_samples())]);
    for current in [0, 2] {
        let tar = dataset::open(&[folder.path()], &with_sidecars()).unwrap();
        assert_eq!((report(&*tar).current, contents(&*tar).len()), (current, 4));
        assert_eq!(left_out(&*tar), [("members without a field in their name", 2)]);
    }
    let format = || detect(&[folder.path()], &Options::new()).unwrap().name;
    assert_eq!(format(), "tar");
    assert_eq!(detect(&[folder.path()], &Options::new().set("dtype", "u16")).unwrap().name, "folder");
    // Nor does a stray file.
    fs::write(folder.path().join("c.jpg"), b"").unwrap();
    assert_eq!(format(), "tar");
}

/// The index of a file is no sample of its folder, unless it is asked for by its name. Another file of such a name is.
#[test]
fn an_index_is_no_sample_of_its_folder() {
    let place = folder(&[("a.tar", &two_samples()), ("b.jpg.uidx", b"something else")]);
    dataset::open(&[place.path().join("a.tar")], &with_sidecars()).unwrap();
    let index = place.path().join("a.tar.uidx");
    let whole = dataset::open(&[place.path()], &Options::new().format("folder")).unwrap();
    assert_eq!((whole.len(), left_out(&*whole)), (2, vec![("companions of the data", 1)]));
    let named = dataset::open(&[index], &Options::new().format("folder")).unwrap();
    assert_eq!((named.len(), left_out(&*named)), (1, vec![]));
}

#[test]
fn an_archive_without_a_sample_is_named() {
    let empty = Archive::new().end().0;
    let place = folder(&[("a.tar", &empty), ("b.tar", &empty)]);
    let error = dataset::open(&[place.path().join("b.tar")], &with_sidecars()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Empty, Some(&*place.path().join("b.tar"))), "{error}");
    let error = dataset::open(&[place.path()], &with_sidecars()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Empty, Some(place.path())), "{error}");
}
