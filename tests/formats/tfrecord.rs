//! TFRecord files: golden vectors, files of TensorFlow's own writer, and everything that can be wrong with them.

mod examples;
mod hostile;
mod loader;
pub mod writer;

use super::memory::assert_small;
use crate::common::content;
use crate::common::direct::{Row, assert_error, folder, key, samples};
use std::fs;
use std::path::{Path, PathBuf};
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, Encoding, Options, SampleId, Shape};
use uringload::{Error, ErrorKind};
use writer::{file, frame};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tfrecord").join(name)
}

/// What the files of TensorFlow's writer hold, by the script that had it write them.
fn expected(name: &str) -> Vec<serde_json::Value> {
    let all: serde_json::Value = serde_json::from_slice(&fs::read(data("expected.json")).unwrap()).unwrap();
    all[name].as_array().unwrap().clone()
}

/// Bytes from hex, in which blanks stand for nothing.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The columns of an expected record.
fn row_of(expected: &serde_json::Value) -> Row {
    let columns = expected.as_object().unwrap().iter();
    columns.map(|(name, value)| (name.clone(), hex(value.as_str().unwrap()))).collect()
}

/// Not truncated first: ext4 writes such a file to the disk at once, and these tests write thousands of times.
fn put(path: &Path, bytes: &[u8]) {
    content::put(path, bytes).unwrap();
}

/// Without sidecars, so that each look is a new one.
fn quiet() -> Options {
    Options::new().format("tfrecord").sidecars(false).threads(2)
}

fn bytes() -> Options {
    quiet().set("whole_records", true)
}

/// The payloads of records that are taken as they are.
fn payloads(dataset: &dyn Dataset) -> Vec<Result<Vec<u8>, Error>> {
    samples(dataset).into_iter().map(|row| Ok(row?.remove("record").unwrap())).collect()
}

/// What TensorFlow's writer makes of "hello" and of nothing.
#[test]
fn golden_vectors() {
    let hello = hex("0500000000000000 eab2043e 68656c6c6f bb1f1c19");
    let empty = hex("0000000000000000 29039807 d8ea82a2");
    assert_eq!((frame(b"hello"), frame(b"")), (hello.clone(), empty.clone()));
    let folder = folder(&[("a.tfrecord", &[&hello[..], &empty, &hello].concat()), ("b.json", b"{}")]);
    let dataset = dataset::open(&[folder.path()], &bytes()).unwrap();
    let records: Vec<Vec<u8>> = payloads(&*dataset).into_iter().map(Result::unwrap).collect();
    assert_eq!(records, [&b"hello"[..], b"", b"hello"]);
    assert_eq!((dataset.bytes(), dataset.shards(), dataset.format()), (10, &[3][..], "tfrecord"));
    assert_eq!((dataset.largest(1), dataset.largest(2), dataset.largest(9)), (9, 18, 22));
    assert_eq!(key(&*dataset, 1), "a.tfrecord#1");
    assert_eq!((dataset.length(SampleId(0), 0), dataset.length(SampleId(1), 0)), (Some(5), Some(0)));
    assert_eq!(
        dataset.index().left_out.iter().map(|skipped| skipped.what).collect::<Vec<_>>(),
        ["files that are no shards"]
    );
    // Without checksums a record is nothing but its span, of which a part can be read.
    let unchecked = dataset::open(&[folder.path()], &bytes().set("verify_crc", false)).unwrap();
    assert_eq!((dataset.index().plain_field, unchecked.index().plain_field), (None, Some(0)));
    assert_eq!((unchecked.fingerprint(), unchecked.largest(9)), (dataset.fingerprint(), 10));
}

/// Every file of TensorFlow's writer is read as what was written, and our own writer makes the same bytes.
#[test]
fn files_of_tensorflow() {
    let columns = |dataset: &dyn Dataset| -> Vec<(String, DType)> {
        dataset.schema().fields.iter().map(|field| (field.name.clone(), field.dtype)).collect()
    };
    let all = [("examples", "train.tfrecord-00000-of-00002"), ("examples", "train.tfrecord-00001-of-00002")];
    let rows: Vec<Row> =
        all.iter().flat_map(|(folder, name)| expected(&format!("{folder}/{name}"))).map(|row| row_of(&row)).collect();
    let kinds = [
        ("box", DType::F32),
        ("ids", DType::I64),
        ("image", DType::U8),
        ("label", DType::I64),
        ("scores", DType::F32),
        ("text/ü", DType::U8),
    ];
    for (place, shards) in [("examples", 2), ("gzip", 1), ("zlib", 1)] {
        let dataset = dataset::open(&[data(place)], &quiet()).unwrap();
        let read: Vec<Row> = samples(&*dataset).into_iter().map(Result::unwrap).collect();
        assert_eq!((dataset.len(), read), (11, rows.clone()), "{place}");
        assert_eq!(columns(&*dataset), kinds.map(|(name, dtype)| (name.to_owned(), dtype)), "{place}");
        assert!(dataset.schema().fields.iter().all(|field| field.shape == Shape::Ragged));
        assert_eq!(dataset.shards().len(), shards);
        assert_eq!(dataset.units().map_or(0, |units| units.count()), u32::from(shards == 1), "{place}");
        assert!(dataset.bytes() > 3000 && dataset.largest(100) <= dataset.bytes() + 44, "{place}");
        assert_eq!(dataset.index().encodings[..3], ["float_list", "int64_list", "bytes_list"].map(Encoding::raw));
    }
    let raw: Vec<Vec<u8>> = expected("bytes/raw.tfrecord").iter().map(|hex_| hex(hex_.as_str().unwrap())).collect();
    assert_eq!(file(&raw), fs::read(data("bytes/raw.tfrecord")).unwrap(), "our writer is TensorFlow's");
    let written: Vec<Vec<u8>> = rows[..6].iter().map(writer::example).collect();
    assert_eq!(file(&written), fs::read(data("examples/train.tfrecord-00000-of-00002")).unwrap());
    let dataset = dataset::open(&[data("bytes")], &quiet()).unwrap();
    assert_eq!(payloads(&*dataset).into_iter().map(Result::unwrap).collect::<Vec<_>>(), raw);
    let error = dataset::open(&[data("sequence")], &quiet());
    assert_error(error, ErrorKind::Unavailable, &["SequenceExample", "steps.tfrecord", "as bytes"]);
    assert_eq!(dataset::open(&[data("sequence")], &bytes()).unwrap().len(), 1);
}

#[test]
fn folders_show_what_they_are() {
    let is_made_of = |files: &[(&str, &[u8])]| {
        let folder = folder(files);
        detect(&[folder.path()], &Options::new()).is_ok_and(|format| format.name == "tfrecord")
    };
    let one = file(&[b"one"]);
    assert!(is_made_of(&[("train-00000-of-00002", &one), ("train-00001-of-00002", b"")]));
    assert!(is_made_of(&[
        ("a.tfrecord", b""),
        ("b.tfrecord", &one),
        ("b.tfrecord.idx", b""),
        ("features.json", b"{}")
    ]));
    assert!(is_made_of(&[("a.tfrecord.gz", &writer::gzip(&one))]));
    assert!(is_made_of(&[("a.tfrecord", &writer::zlib(&one))]));
    assert!(!is_made_of(&[("a.tfrecord", &writer::gzip(b"something else than records"))]));
    assert!(!is_made_of(&[("a.tfrecord", b"something else than records")]));
    assert!(!is_made_of(&[("a.tfrecord", &one), ("b.jpg", b"")]));
    assert!(!is_made_of(&[("a.bin", &one)]));
    // Named by itself, a file is one whatever its name.
    let folder = folder(&[("a.bin", &one)]);
    assert_error(dataset::open(&[folder.path()], &quiet()), ErrorKind::Empty, &["no file has a name"]);
    assert_eq!(dataset::open(&[folder.path().join("a.bin")], &quiet()).unwrap().len(), 1);
}
