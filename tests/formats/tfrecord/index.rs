//! The life of indexes: written, used, rebuilt, taken over.

use super::writer::{file, gzip};
use super::{bytes, folder, payloads};
use crate::common::direct::report;
use crate::formats::memory::assert_small;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use uringload::dataset::{self, Dataset, IndexProgress, Options, SampleId};

fn records() -> Vec<Vec<u8>> {
    vec![b"one".to_vec(), vec![], vec![3; 70_000], b"four".to_vec()]
}

fn with_sidecars() -> Options {
    bytes().sidecars(true)
}

fn open(folder: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[folder], &with_sidecars()).unwrap()
}

fn all(dataset: &dyn Dataset) -> Vec<Vec<u8>> {
    payloads(dataset).into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_second_start_looks_through_nothing() {
    let folder = folder(&[("a.tfrecord", &file(&records())), ("b.tfrecord.gz", &gzip(&file(&records())))]);
    let first = open(folder.path());
    assert_eq!((report(&*first).scanned, report(&*first).written, report(&*first).current), (2, 2, 0));
    let wanted = [records(), records()].concat();
    assert_eq!(all(&*first), wanted);
    let second = open(folder.path());
    assert_eq!((report(&*second).scanned, report(&*second).current, report(&*second).bytes_read), (0, 2, 0));
    assert_eq!((all(&*second), second.fingerprint()), (wanted.clone(), first.fingerprint()));
    let without = dataset::open(&[folder.path()], &bytes().rebuild(true)).unwrap();
    assert_eq!((report(&*without).scanned, report(&*without).written), (2, 0));
    assert_eq!((all(&*without), without.fingerprint()), (wanted, first.fingerprint()));
    let (units, of) = (second.units().unwrap(), file(&records()).len() as u64);
    assert_eq!((units.count(), units.largest_decoded()), (1, of), "an index tells what a file decodes to");
}

/// A record as long as memory: its file is indexed in little, and columns are not learned from it.
#[test]
fn a_record_of_any_length_is_indexed_in_little_memory() {
    const PIECE: usize = 4 << 20;
    let len = 80 << 20;
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(&super::writer::header(len)).unwrap();
    (0..len / PIECE as u64).for_each(|_| writer.write_all(&[0; PIECE]).unwrap());
    writer.write_all(&[0; 4]).unwrap();
    let folder = folder(&[("a.tfrecord.gz", &writer.finish().unwrap())]);
    let records = dataset::open(&[folder.path()], &bytes()).unwrap();
    assert_eq!((records.len(), records.length(SampleId(0), 0)), (1, Some(len)));
    let options = Options::new().format("tfrecord").sidecars(false);
    let error = dataset::open(&[folder.path()], &options).unwrap_err();
    assert!(error.to_string().contains("more than 64 MiB") && error.to_string().contains("whole_records"), "{error}");
    assert_small();
}

#[test]
fn a_sidecar_that_is_not_the_files_is_rebuilt() {
    let other = [b"ONE".to_vec(), vec![], vec![4; 70_000], b"FOUR".to_vec()];
    for (name, bytes, other) in [
        ("a.tfrecord", file(&records()), file(&other)),
        ("a.tfrecord.gz", gzip(&file(&records())), gzip(&file(&other))),
    ] {
        let place = folder(&[(name, &bytes)]);
        let (path, index) = (place.path().join(name), place.path().join(format!("{name}.uidx")));
        open(place.path());
        let whole = fs::read(&index).unwrap();
        let rebuilt = |what: &str| {
            let dataset = open(place.path());
            assert_eq!((report(&*dataset).scanned, all(&*dataset)), (1, records()), "{name}: {what}");
            let (file, reason) = &report(&*dataset).refused[0];
            assert!(file == &index && !reason.is_empty(), "{name}: {what}");
            assert_eq!(report(&*open(place.path())).current, 1, "{name}: {what}: the new one is used");
        };
        for at in [0, 8, 12, 24, 40, 60, 4096, 4100, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&index, &bytes).unwrap();
            rebuilt(&format!("byte {at}"));
        }
        for len in [0, 1, 100, 4096, whole.len() - 1] {
            fs::write(&index, &whole[..len]).unwrap();
            rebuilt(&format!("torn at {len}"));
        }
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(SystemTime::now() - Duration::from_secs(9))
            .unwrap();
        rebuilt("another time");
        // That of another file of another name, and that of another format.
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let elsewhere = folder(&[("b.tfrecord", &other)]);
        let file = fs::File::options().write(true).open(elsewhere.path().join("b.tfrecord")).unwrap();
        file.set_modified(modified).unwrap();
        open(elsewhere.path());
        fs::copy(elsewhere.path().join("b.tfrecord.uidx"), &index).unwrap();
        rebuilt("another file");
    }
}

#[test]
fn where_a_folder_takes_no_index() {
    let place = folder(&[("a.tfrecord", &file(&records()))]);
    // A folder in the place of the sidecar: no user, root included, can put a file there.
    fs::create_dir(place.path().join("a.tfrecord.uidx")).unwrap();
    let dataset = open(place.path());
    let line = dataset.index().fallbacks[0].to_string();
    assert!(line.contains("indexes in memory") && line.contains("--index-cache"), "{line}");
    let cache = tempfile::tempdir().unwrap();
    let options = with_sidecars().set("index_cache", cache.path().join("sub"));
    for current in [0, 1] {
        let dataset = dataset::open(&[place.path()], &options).unwrap();
        assert_eq!((report(&*dataset).current, all(&*dataset)), (current, records()));
    }
}

#[test]
fn progress_comes_to_its_end() {
    let folder = folder(&[("a.tfrecord", &file(&records())), ("b.tfrecord", &gzip(&file(&records())))]);
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let (calls, most) = &*seen;
    let told = Arc::clone(&seen);
    let progress = move |progress: IndexProgress| {
        told.0.fetch_add(1, Ordering::Relaxed);
        told.1.fetch_max(progress.bytes, Ordering::Relaxed);
        assert!(progress.bytes <= progress.bytes_total && progress.shards_total == 2);
    };
    let dataset = dataset::open(&[folder.path()], &bytes().progress(progress)).unwrap();
    let all = dataset.files().sizes().iter().sum::<u64>();
    assert_eq!((calls.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (2, all));
}
