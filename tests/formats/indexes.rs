//! The indexes beside files that are scanned, of every format that has them: written, used, rebuilt, left out.

use super::tar::packed::{ZSTD, pack};
use super::tfrecord::writer;
use crate::common::archive::Archive;
use crate::common::bucket::Bucket;
use crate::common::direct::{Row, report, samples};
use crate::common::within;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, IndexProgress, Options, SampleId};

/// A file of a format.
struct Case {
    format: &'static str,
    /// Its name, without the stem.
    ending: &'static str,
    bytes: Vec<u8>,
    samples: u64,
    /// Its bytes when a sample more is in it.
    longer: Vec<u8>,
    /// Another file, of the same size where it is not compressed.
    other: Vec<u8>,
    /// What it decodes to, if it is compressed.
    decoded: Option<u64>,
}

impl Case {
    fn of(format: &'static str, ending: &'static str, samples: u64, [bytes, longer, other]: [Vec<u8>; 3]) -> Case {
        Case { format, ending, bytes, samples, longer, other, decoded: None }
    }

    /// The same, compressed.
    fn packed(self, ending: &'static str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Case {
        let [bytes, longer, other] = [&self.bytes, &self.longer, &self.other].map(|bytes| pack(bytes));
        Case { ending, bytes, longer, other, decoded: Some(self.bytes.len() as u64), ..self }
    }

    /// Named by its format, which writes indexes or not.
    fn options(&self, sidecars: bool) -> Options {
        let options = Options::new().format(self.format).sidecars(sidecars).threads(2);
        if self.format == "tfrecord" { options.set("whole_records", true) } else { options }
    }

    fn name(&self) -> String {
        format!("a{}", self.ending)
    }

    /// A folder in which it lies alone.
    fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(self.name()), &self.bytes).unwrap();
        folder
    }

    fn open(&self, path: &Path) -> Arc<dyn Dataset> {
        dataset::open(&[path], &self.options(true)).unwrap()
    }
}

fn archive(names: [&str; 2]) -> Archive {
    let [first, second] = names;
    let of = |stem: &str, field: &str| format!("{stem}.{field}");
    Archive::new()
        .file(&of(first, "jpg"), b"one")
        .file(&of(first, "cls"), b"1")
        .file(&of(second, "jpg"), b"two")
        .file(&of(second, "cls"), b"2")
        .file("noext", b"")
}

fn cases() -> Vec<Case> {
    let tar = || {
        let longer = archive(["a", "b"]).file("c.jpg", b"3").file("c.cls", b"3").end().0;
        Case::of("tar", ".tar", 2, [archive(["a", "b"]).end().0, longer, archive(["x", "y"]).end().0])
    };
    let records = || {
        let of = |first: &[u8], fill: u8, last: &[u8]| {
            writer::file(&[first.to_vec(), vec![], vec![fill; 70_000], last.to_vec()])
        };
        let (bytes, more) = (of(b"one", 3, b"four"), writer::file(&[b"five".to_vec()]));
        Case::of("tfrecord", ".tfrecord", 4, [bytes.clone(), [bytes, more].concat(), of(b"ONE", 4, b"FOUR")])
    };
    let lines = |format, ending, samples, bytes: &[u8], more: &[u8]| {
        let other = bytes.iter().map(|&byte| if byte == b'1' || byte == b'o' { b'7' } else { byte }).collect();
        Case::of(format, ending, samples, [bytes.to_vec(), [bytes, more].concat(), other])
    };
    vec![
        tar(),
        tar().packed(".tar.zst", |bytes| pack(ZSTD, bytes)),
        records(),
        records().packed(".tfrecord.gz", writer::gzip),
        lines("text", ".txt", 4, b"one\n\nthree\nfour", b"\n5\n"),
        lines("jsonl", ".jsonl", 3, b"{\"a\": 1}\n\n{\"a\": 2}\n3", b"\n{\"a\": 4}\n"),
        lines("csv", ".csv", 2, b"a,b\n1,\"2\n3\"\n\n4,5\n", b"7,8\n"),
    ]
}

/// The key of each sample, and its values.
fn rows(dataset: &dyn Dataset) -> Vec<(Vec<u8>, Row)> {
    let key = |id| {
        let mut key = Vec::new();
        dataset.key(SampleId(id), &mut key);
        key
    };
    samples(dataset).into_iter().zip(0..).map(|(row, id)| (key(id), row.unwrap())).collect()
}

fn files_in(folder: &TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn a_second_start_looks_through_nothing() {
    for case in cases() {
        let (place, name) = (case.folder(), case.name());
        let first = case.open(place.path());
        let told = report(&*first);
        assert_eq!((told.scanned, told.written, told.current, first.len()), (1, 1, 0, case.samples), "{name}");
        let is_read_whole = !["tar", "tfrecord"].contains(&case.format) || case.decoded.is_some();
        assert!(told.bytes_read == case.bytes.len() as u64 || !is_read_whole, "{name}");
        let second = case.open(place.path());
        let told = report(&*second);
        assert_eq!((told.scanned, told.written, told.current, told.bytes_read), (0, 0, 1, 0), "{name}");
        let units = second.units().filter(|units| units.count() > 0);
        let units = units.map(|units| (units.count(), units.largest_decoded()));
        assert_eq!(units, case.decoded.map(|bytes| (1, bytes)), "{name}: an index tells what a file decodes to");
        let rebuilt = dataset::open(&[place.path()], &case.options(true).rebuild(true)).unwrap();
        assert_eq!((report(&*rebuilt).scanned, report(&*rebuilt).written), (1, 1), "{name}");
        let without = dataset::open(&[place.path()], &case.options(false).rebuild(true)).unwrap();
        assert_eq!((report(&*without).scanned, report(&*without).written), (1, 0), "{name}");
        for other in [second, rebuilt, without] {
            assert!(other.index().fallbacks.is_empty(), "{:?}", other.index().fallbacks);
            assert_eq!((other.fingerprint(), other.bytes()), (first.fingerprint(), first.bytes()), "{name}");
            assert_eq!(other.index().left_out, first.index().left_out, "{name}");
            assert_eq!((other.shards(), rows(&*other)), (first.shards(), rows(&*first)), "{name}");
        }
        assert_eq!(files_in(&place), 2, "{name}: no temporary file is left");
    }
}

/// Whoever only looks at a folder leaves it as it was. What is there already is used.
#[test]
fn an_index_is_not_written_where_nobody_wants_it() {
    for case in cases() {
        let (place, name) = (case.folder(), case.name());
        let index = place.path().join(format!("{name}.uidx"));
        let open = |write: bool| {
            let dataset = dataset::open(&[place.path()], &case.options(true).set("write_index", write)).unwrap();
            assert!(dataset.index().fallbacks.is_empty(), "{:?}", dataset.index().fallbacks);
            (report(&*dataset).scanned, report(&*dataset).written, index.exists(), rows(&*dataset))
        };
        let without = open(false);
        assert_eq!((without.0, without.1, without.2), (1, 0, false), "{name}");
        assert_eq!(open(true), (1, 1, true, without.3.clone()), "{name}");
        assert_eq!(open(false), (0, 0, true, without.3), "{name}");
    }
}

/// A FIFO in the place of an index is passed over at once, and the index that is made takes its place.
#[test]
fn a_fifo_is_no_index() {
    for case in cases() {
        let (place, samples) = (case.folder(), case.samples);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        let index = place.path().join(format!("{}.uidx", case.name()));
        rustix::fs::mknodat(rustix::fs::CWD, &index, kind, mode, 0).unwrap();
        let path = place.path().to_path_buf();
        let opened = within(Duration::from_secs(20), move || case.open(&path));
        assert_eq!((opened.len(), index.is_file()), (samples, true), "{}", index.display());
    }
}

#[test]
fn a_sidecar_that_is_not_the_files_is_rebuilt() {
    for case in cases() {
        let (place, name) = (case.folder(), case.name());
        let (path, index) = (place.path().join(&name), place.path().join(format!("{name}.uidx")));
        let wanted = rows(&*case.open(place.path()));
        let whole = fs::read(&index).unwrap();
        let rebuilt = |what: &str| {
            let dataset = case.open(place.path());
            assert_eq!((report(&*dataset).scanned, rows(&*dataset)), (1, wanted.clone()), "{name}: {what}");
            let [(file, reason)] = &*report(&*dataset).refused else { panic!("{:?}", report(&*dataset).refused) };
            assert!(file == &index && !reason.is_empty(), "{name}: {what}");
            assert_eq!(report(&*case.open(place.path())).current, 1, "{name}: {what}: the new one is used");
        };
        for at in [0, 8, 12, 24, 40, 60, 100, 4096, 4097, 4100, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&index, &bytes).unwrap();
            rebuilt(&format!("byte {at}"));
        }
        for len in [0, 1, 100, 4096, whole.len() - 1] {
            fs::write(&index, &whole[..len]).unwrap();
            rebuilt(&format!("torn at {len}"));
        }
        let touch = |path: &Path, time| fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        touch(&path, SystemTime::now() - Duration::from_secs(100));
        rebuilt("another time");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = elsewhere.path().join(format!("b{}", case.ending));
        fs::write(&other, &case.other).unwrap();
        touch(&other, modified);
        case.open(elsewhere.path());
        fs::copy(elsewhere.path().join(format!("b{}.uidx", case.ending)), &index).unwrap();
        rebuilt("the index of another file of the same size and time");
        fs::write(&path, &case.longer).unwrap();
        let grown = case.open(place.path());
        assert_eq!((report(&*grown).scanned, grown.len()), (1, case.samples + 1), "{name}");
    }
}

#[test]
fn where_a_folder_takes_no_index() {
    for case in cases() {
        let (place, name) = (case.folder(), case.name());
        // A folder in the place of the sidecar: not even root can put a file there.
        fs::create_dir(place.path().join(format!("{name}.uidx"))).unwrap();
        let path = place.path().join(&name);
        let dataset = case.open(&path);
        let [fallback] = &*dataset.index().fallbacks else { panic!("{:?}", dataset.index().fallbacks) };
        let line = fallback.to_string();
        assert!(line.contains("indexes in memory") && line.contains("--index-cache"), "{line}");
        assert!(fallback.errno.is_some() && dataset.len() == case.samples, "{line}");
        let cache = tempfile::tempdir().unwrap();
        let options = case.options(true).set("index_cache", cache.path().join("sub"));
        let cached = dataset::open(&[&path], &options).unwrap();
        let told = cached.index().fallbacks[0].to_string();
        assert!(told.contains("indexes in \""), "{told}");
        assert_eq!((report(&*cached).scanned, report(&*cached).written), (1, 1), "{name}");
        let again = dataset::open(&[&path], &options).unwrap();
        assert_eq!((report(&*again).scanned, report(&*again).current), (0, 1), "{name}");
        assert_eq!(rows(&*again), rows(&*dataset), "{name}");
        assert_eq!(files_in(&place), 2, "{name}: no temporary file is left");
    }
}

#[test]
fn progress_comes_to_its_end() {
    for case in cases() {
        let (place, seen) = (tempfile::tempdir().unwrap(), Arc::new((AtomicU64::new(0), AtomicU64::new(0))));
        let put = |number| fs::write(place.path().join(format!("{number}{}", case.ending)), &case.bytes).unwrap();
        (0..9).for_each(put);
        let told = Arc::clone(&seen);
        let progress = move |progress: IndexProgress| {
            told.0.fetch_add(1, Ordering::Relaxed);
            told.1.fetch_max(progress.bytes, Ordering::Relaxed);
            assert!(progress.shards <= progress.shards_total && progress.shards_total == 9);
            assert!(progress.bytes <= progress.bytes_total);
        };
        let dataset = dataset::open(&[place.path()], &case.options(false).progress(progress)).unwrap();
        let (calls, most) = (seen.0.load(Ordering::Relaxed), seen.1.load(Ordering::Relaxed));
        assert_eq!((calls, most), (9, 9 * case.bytes.len() as u64), "{}", case.ending);
        let ends: Vec<u64> = (1..=9).map(|file| file * case.samples).collect();
        assert_eq!(dataset.shards(), ends, "{}", case.ending);
    }
}

/// An index that was copied along is used if it is of this content, however new its file is. One that was made of an
/// object is of that version alone.
#[test]
fn an_index_beside_an_object_is_used() {
    for case in cases() {
        let (near, bucket, cache) = (case.folder(), case.folder(), tempfile::tempdir().unwrap());
        let name = case.name();
        case.open(&near.path().join(&name));
        let index = format!("{name}.uidx");
        let object = bucket.path().join(&name);
        let open = |cached: bool| {
            let options = case.options(true).store("s3://bucket/", Bucket::of(bucket.path()));
            let options = if cached { options.set("index_cache", cache.path()) } else { options };
            let opened = dataset::open(&[format!("s3://bucket/{name}")], &options).unwrap();
            let report = report(&*opened);
            (opened.len(), report.scanned, report.written)
        };
        assert_eq!(open(false), (case.samples, 1, 0), "{name}");
        fs::copy(near.path().join(&index), bucket.path().join(&index)).unwrap();
        assert_eq!(open(false), (case.samples, 0, 0), "{name}");
        fs::write(&object, &case.other).unwrap();
        assert_eq!(open(false).1, 1, "{name}: an index of other content");
        fs::remove_file(bucket.path().join(&index)).unwrap();
        assert_eq!(
            [open(true), open(true)].map(|(_, scanned, written)| (scanned, written)),
            [(1, 1), (0, 0)],
            "{name}"
        );
        fs::write(&object, &case.bytes).unwrap();
        assert_eq!(open(true), (case.samples, 1, 1), "{name}: another version");
    }
}
