//! Files that change behind a dataset's back: every change is told, by every format and every engine, and no byte of
//! another file is ever taken for a sample.

use super::same::{Made, SAMPLES, every, payload};
use crate::common::check::ways_to;
use crate::common::within;
use std::fs::{self, File, FileTimes};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{EngineChoice, IoChoice, OnError};
use uringload::dataset::{self, Dataset, FileId, Options, SampleId, Span};
use uringload::{ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(120);

/// How a file becomes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// `rsync -t`, or a new image of the data set: a file of the same name, size and time takes its place.
    Replaced,
    /// `touch -r`: written in place, and its time put back.
    Rewritten,
    /// Written in place within the same tick of a clock that counts seconds.
    SameSecond,
    /// The same bytes, and some more.
    Longer,
    Shorter,
}

const CHANGES: [Change; 5] = [Change::Replaced, Change::Rewritten, Change::SameSecond, Change::Longer, Change::Shorter];

impl Change {
    /// Applies it to the file at `path`, of which it makes `other`.
    fn apply(self, path: &Path, other: &[u8]) {
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).expect("its time");
        let set_time = |file: &File| file.set_times(FileTimes::new().set_modified(modified)).expect("its time");
        let in_place = || File::options().write(true).open(path).expect("the file");
        match self {
            Change::Replaced => {
                let new = path.with_extension("new");
                let mut file = File::create(&new).expect("a file");
                file.write_all(other).expect("bytes");
                set_time(&file);
                fs::rename(new, path).expect("rename");
            }
            Change::Rewritten | Change::SameSecond => {
                let mut file = in_place();
                file.write_all(other).expect("bytes");
                set_time(&file);
            }
            Change::Longer => {
                let mut file = in_place();
                file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(b"more\n")).expect("bytes");
                set_time(&file);
            }
            Change::Shorter => {
                let file = in_place();
                file.set_len(other.len() as u64 - 1).expect("shorter");
                set_time(&file);
            }
        }
    }

    fn kind(self) -> ErrorKind {
        if self == Change::Shorter { ErrorKind::Truncated } else { ErrorKind::Changed }
    }
}

/// Other bytes of the same length, which no format takes for the same samples.
fn other(path: &Path) -> Vec<u8> {
    fs::read(path).expect("the file").iter().map(|byte| byte ^ 1).collect()
}

/// Sets the file's time to a whole second.
fn round_time(path: &Path) {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).expect("its time");
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
    let file = File::options().write(true).open(path).expect("the file");
    file.set_times(FileTimes::new().set_modified(whole)).expect("its time");
}

/// The file of the dataset that is changed: one with samples.
fn victim(dataset: &dyn Dataset) -> FileId {
    FileId(dataset.files().len() as u32 / 2)
}

/// Reads all of it; returns how many samples of the victim failed.
fn read((name, dataset, column): &Made, victim: FileId, change: Change, way: (EngineChoice, IoChoice)) -> u64 {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(7).seed(3).on_error(OnError::Skip);
    let loader = builder.engine(way.0).io(way.1).build().expect("a loader");
    let (mut came, mut failed) = (0, 0);
    for batch in loader {
        let batch = batch.expect("a batch");
        let index = batch.columns.iter().position(|found| found.name == *column).unwrap_or(0);
        for (row, id) in batch.ids.iter().enumerate() {
            let bytes = batch.columns[index].bytes_of(row).expect("bytes");
            assert!(*bytes == payload(id.0), "{name}, {change:?}, {way:?}: sample {} has other bytes", id.0);
            came += 1;
        }
        for sample in &batch.failed {
            assert_eq!(sample.error.kind(), change.kind(), "{name}, {change:?}, {way:?}: {}", sample.error);
            assert_eq!(sample.error.path(), Some(&*dataset.files().path(victim)), "{name}: {}", sample.error);
            assert!(sample.error.remedy().is_some(), "{name}: {}", sample.error);
            failed += 1;
        }
    }
    assert_eq!(came + failed, SAMPLES, "{name}, {change:?}, {way:?}: every sample once, or its error");
    failed
}

#[test]
fn a_file_that_changed_after_the_dataset_was_opened_is_an_error_of_its_samples() {
    within(BOUND, || {
        for change in CHANGES {
            let root = TempDir::new().expect("a folder");
            for made in every(&root) {
                let (name, dataset, _) = &made;
                let victim = victim(&**dataset);
                let path = dataset.files().path(victim);
                let ways = ways_to(dataset);
                change.apply(&path, &other(&path));
                for way in ways {
                    assert!(read(&made, victim, change, way) > 0, "{name}, {change:?}, {way:?}: it is told");
                }
            }
        }
    });
}
