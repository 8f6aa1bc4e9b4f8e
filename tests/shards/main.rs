//! Formats of shards with an index: MDS, LitData, beton. Golden vectors, files of the reference writers, and everything
//! that can be wrong with them.

mod beton;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod litdata;
mod mds;
mod written;
mod zipped;

use common::allocator::Watched;
use common::check::{WAYS, ways_to};
use common::direct::{Row, decoded, sample, samples};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use uringload::batch::Data;
use uringload::dataset::{Dataset, Sample, SampleId, Value};
use uringload::loader::Loader;
use uringload::{Error, ErrorKind};

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    files.iter().for_each(|(name, bytes)| put(folder.path(), name, bytes));
    folder
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
    // Not truncated first: ext4 writes such a file to the disk at once, and these tests write thousands of times.
    let file = File::options().create(true).write(true).truncate(false).open(path).expect("a file");
    file.write_all_at(bytes, 0).and_then(|()| file.set_len(bytes.len() as u64)).expect("a file");
}

/// Bytes from hex, in which blanks stand for nothing.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// Checks that every way to read through a loader gives `rows`, in a shuffled order too.
fn loads(dataset: &Arc<dyn Dataset>, rows: &[Row]) {
    assert_eq!(dataset.len(), rows.len() as u64);
    assert!(WAYS.len() >= 4);
    for (engine, io) in ways_to(dataset) {
        for shuffle in [false, true] {
            let builder = Loader::builder(Arc::clone(dataset)).batch_size(3).epochs(1).shuffle(shuffle);
            let loader = builder.engine(engine).io(io).build().expect("a loader");
            let mut seen = 0;
            for batch in loader {
                let batch = batch.expect("a batch");
                for (index, id) in batch.ids.iter().enumerate() {
                    let value = |column: &uringload::batch::Column| match &column.data {
                        Data::I64(numbers) => numbers[index].to_le_bytes().to_vec(),
                        _ => column.bytes_of(index).expect("bytes").to_vec(),
                    };
                    let row: Row = batch.columns.iter().map(|column| (column.name.clone(), value(column))).collect();
                    assert_eq!(row, rows[id.0 as usize], "{engine:?} {io:?}: sample {}", id.0);
                    seen += 1;
                }
            }
            assert_eq!(seen, rows.len(), "{engine:?} {io:?}: every sample once");
        }
    }
}

/// A row from names and values.
fn row(values: &[(&str, &[u8])]) -> Row {
    values.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

fn key(dataset: &dyn Dataset, id: u64) -> String {
    let mut key = Vec::new();
    dataset.key(SampleId(id), &mut key);
    String::from_utf8(key).expect("names of tests are UTF-8")
}

/// An error that says where, what to do about it where that is known, and on one line.
fn assert_error<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, parts: &[&str]) {
    let error = result.expect_err("it is refused");
    let line = error.to_string();
    assert_eq!(error.kind(), kind, "{line}");
    assert!(error.file().is_some() && !line.contains('\n') && !line.contains("  "), "{line}");
    parts.iter().for_each(|part| assert!(line.contains(part), "{part:?} in {line}"));
}

/// More than any file of these tests has, in bytes.
const ALLOCATION_MAX: usize = 32 << 20;

/// Allocations that were larger.
static TOO_LARGE: AtomicU64 = AtomicU64::new(0);

fn watch(bytes: usize) {
    if bytes > ALLOCATION_MAX {
        TOO_LARGE.fetch_add(1, Ordering::Relaxed);
    }
}

#[global_allocator]
static WATCHED: Watched = Watched(watch);

/// No header made the library ask for much memory so far.
fn assert_small() {
    assert_eq!(TOO_LARGE.load(Ordering::Relaxed), 0, "an allocation of more than {ALLOCATION_MAX} bytes");
}
