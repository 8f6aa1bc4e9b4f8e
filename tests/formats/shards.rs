//! Formats of shards with an index: MDS, LitData, beton. Golden vectors, files of the reference writers, and everything
//! that can be wrong with them.

mod beton;
mod hostile;
mod litdata;
mod mds;
#[cfg(feature = "parquet")]
mod rows;
mod written;
mod zipped;

use super::memory::assert_small;
use crate::common::check::{WAYS, ways_to};
use crate::common::direct::{Row, decoded, folder, key, sample, samples};
use crate::common::{content, direct};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::Loader;
use uringload::batch::Data;
use uringload::dataset::inspect::detect;
use uringload::dataset::{Dataset, Options, Sample, SampleId, Value};
use uringload::{Error, ErrorKind};

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
    content::put(&path, bytes).expect("a file");
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

/// Whether a path shows that it is of this format.
fn shows(path: impl AsRef<Path>, format: &str) -> bool {
    detect(&[path], &Options::new()).is_ok_and(|shown| shown.name == format)
}

/// How a column is stored, in words.
fn words(dataset: &dyn Dataset, column: usize) -> &str {
    &dataset.index().encodings[column].words
}

/// An error that says where, and what to do about it where that is known.
fn assert_error<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, parts: &[&str]) -> Error {
    let error = direct::assert_error(result, kind, parts);
    assert!(error.path().is_some(), "{error}");
    error
}

/// A beton of five samples.
pub fn write_beton(path: &Path) {
    beton::all_fields().0.write(path);
}
