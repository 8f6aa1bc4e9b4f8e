//! The life of indexes: written, used, rebuilt, taken over.

use super::{Contents, contents, folder, left_out, quiet};
use crate::common::archive::Archive;
use crate::common::direct::report;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use uringload::ErrorKind;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, IndexProgress, Options};

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

/// Scanned or current, and the samples.
fn start(folder: &Path) -> (u64, u64, Contents, Vec<(&'static str, u64)>) {
    let tar = dataset::open(&[folder], &with_sidecars()).unwrap();
    assert!(tar.index().fallbacks.is_empty(), "{:?}", tar.index().fallbacks);
    (report(&*tar).scanned, report(&*tar).current, contents(&*tar), left_out(&*tar))
}

#[test]
fn a_second_start_looks_through_nothing() {
    let folder = folder(&[("a.tar", &two_samples()), ("b.tar", &two_samples())]);
    let (scanned, current, samples, skipped) = start(folder.path());
    assert_eq!((scanned, current, samples.len()), (2, 0, 4));
    assert_eq!(skipped, [("members without a field in their name", 2)]);
    let first = dataset::open(&[folder.path()], &with_sidecars()).unwrap();
    assert_eq!((report(&*first).scanned, report(&*first).current, report(&*first).bytes_read), (0, 2, 0));
    assert_eq!((contents(&*first), left_out(&*first)), (samples.clone(), skipped));
    let rebuilt = dataset::open(&[folder.path()], &with_sidecars().rebuild(true)).unwrap();
    assert_eq!((report(&*rebuilt).scanned, report(&*rebuilt).written), (2, 2));
    let without = dataset::open(&[folder.path()], &quiet()).unwrap();
    for other in [&rebuilt, &without] {
        assert_eq!((other.fingerprint(), contents(&**other)), (first.fingerprint(), samples.clone()));
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "no temporary file is left: {names:?}");
    // Nor do the indexes make samples of the folder, or another format of it.
    let format = || detect(&[folder.path()], &Options::new()).unwrap().name;
    assert_eq!(format(), "tar");
    assert_eq!(detect(&[folder.path()], &Options::new().set("dtype", "u16")).unwrap().name, "folder");
    // Nor does a stray file.
    fs::write(folder.path().join("c.jpg"), b"").unwrap();
    assert_eq!(format(), "tar");
}

/// Whoever only looks at a folder leaves it as it was. What is there already is used.
#[test]
fn an_index_is_not_written_where_nobody_wants_it() {
    let place = folder(&[("a.tar", &two_samples())]);
    let index = place.path().join("a.tar.uidx");
    let open = |write: bool| dataset::open(&[place.path()], &with_sidecars().set("write_index", write)).unwrap();
    let without = open(false);
    assert_eq!((report(&*without).scanned, report(&*without).written, index.exists()), (1, 0, false));
    assert!(without.index().fallbacks.is_empty(), "{:?}", without.index().fallbacks);
    let with = open(true);
    assert_eq!((report(&*with).scanned, report(&*with).written, index.exists()), (1, 1, true));
    let again = open(false);
    assert_eq!((report(&*again).scanned, report(&*again).current), (0, 1));
    assert_eq!(contents(&*again), contents(&*without));
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

/// A FIFO in the place of an index is passed over at once, and the index that is made takes its place.
#[test]
fn a_fifo_is_no_index() {
    let place = folder(&[("a.tar", &two_samples())]);
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    let index = place.path().join("a.tar.uidx");
    rustix::fs::mknodat(rustix::fs::CWD, &index, kind, mode, 0).unwrap();
    let path = place.path().to_path_buf();
    let opened = crate::common::within(Duration::from_secs(20), move || dataset::open(&[path], &with_sidecars()));
    assert_eq!((opened.unwrap().len(), index.is_file()), (2, true));
}

#[test]
fn a_sidecar_that_is_not_the_shards_is_rebuilt() {
    let place = folder(&[("a.tar", &two_samples())]);
    let (path, index) = (place.path().join("a.tar"), place.path().join("a.tar.uidx"));
    let (_, _, samples, _) = start(place.path());
    let whole = fs::read(&index).unwrap();
    let rebuilt = |what: &str| {
        let tar = dataset::open(&[place.path()], &with_sidecars()).unwrap();
        assert_eq!((report(&*tar).scanned, contents(&*tar)), (1, samples.clone()), "{what}");
        assert_eq!(report(&*tar).refused.len(), 1, "{what}");
        let (file, reason) = &report(&*tar).refused[0];
        assert!(file == &index && !reason.is_empty(), "{what}");
        assert_eq!(start(place.path()).1, 1, "{what}: the new one is used");
    };
    for at in [0, 8, 40, whole.len() / 2, 4097, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        if (200..4096).contains(&at) {
            continue;
        }
        fs::write(&index, &bytes).unwrap();
        rebuilt(&format!("byte {at}"));
    }
    for len in [0, 1, 100, 4096, whole.len() - 1] {
        fs::write(&index, &whole[..len]).unwrap();
        rebuilt(&format!("torn at {len}"));
    }
    // Touched without a change of size.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
    rebuilt("another time");
    // The sidecar of another shard of the same size and time.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let other = Archive::new()
        .file("x.jpg", b"one")
        .file("x.cls", b"1")
        .file("y.jpg", b"two")
        .file("y.cls", b"2")
        .file("nodot", b"")
        .end()
        .0;
    let elsewhere = folder(&[("b.tar", &other)]);
    fs::File::options().write(true).open(elsewhere.path().join("b.tar")).unwrap().set_modified(modified).unwrap();
    start(elsewhere.path());
    fs::copy(elsewhere.path().join("b.tar.uidx"), &index).unwrap();
    rebuilt("another shard");
    // And the shard itself, grown.
    fs::write(&path, [two_samples(), Archive::new().file("c.jpg", b"3").file("c.cls", b"3").end().0].concat()).unwrap();
    assert_eq!(start(place.path()).0, 1);
    assert_eq!(start(place.path()).2.len(), 3);
}

#[test]
fn where_a_folder_takes_no_index() {
    let place = folder(&[("a.tar", &two_samples())]);
    // A folder in the place of the sidecar: no user, root included, can put a file there.
    fs::create_dir(place.path().join("a.tar.uidx")).unwrap();
    let tar = dataset::open(&[place.path()], &with_sidecars()).unwrap();
    let [fallback] = &*tar.index().fallbacks else { panic!("{:?}", tar.index().fallbacks) };
    let line = fallback.to_string();
    assert!(line.contains("indexes in memory") && line.contains("--index-cache") && fallback.errno.is_some(), "{line}");
    assert_eq!(tar.len(), 2);
    let cache = tempfile::tempdir().unwrap();
    let options = with_sidecars().set("index_cache", cache.path().join("sub"));
    let tar = dataset::open(&[place.path()], &options).unwrap();
    assert!(tar.index().fallbacks[0].to_string().contains("indexes in \""), "{}", tar.index().fallbacks[0]);
    assert_eq!((report(&*tar).scanned, report(&*tar).written), (1, 1));
    let again = dataset::open(&[place.path()], &options).unwrap();
    assert_eq!((report(&*again).scanned, report(&*again).current, again.len()), (0, 1, 2));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
}

#[test]
fn progress_comes_to_its_end() {
    let archives: Vec<(String, Vec<u8>)> = (0..9).map(|number| (format!("{number}.tar"), two_samples())).collect();
    let archives: Vec<(&str, &[u8])> = archives.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let folder = folder(&archives);
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let (calls, most) = &*seen;
    let told = Arc::clone(&seen);
    let progress = move |progress: IndexProgress| {
        told.0.fetch_add(1, Ordering::Relaxed);
        told.1.fetch_max(progress.bytes, Ordering::Relaxed);
        assert!(progress.shards <= progress.shards_total && progress.shards_total == 9);
        assert!(progress.bytes <= progress.bytes_total);
    };
    let tar = dataset::open(&[folder.path()], &quiet().progress(progress));
    let size = two_samples().len() as u64;
    assert_eq!((calls.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (9, 9 * size));
    assert_eq!(tar.unwrap().shards(), [2, 4, 6, 8, 10, 12, 14, 16, 18]);
}
