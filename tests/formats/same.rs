//! The same samples in every format, by every engine: the same bytes, each once, in the order that is asked for.

pub(super) mod writers;

use crate::common::archive::Archive;
use crate::common::check::ways_to;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use uringload::Loader;
use uringload::config::Shuffle;
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::pack::PackOptions;

pub(super) const SAMPLES: u64 = 60;
const BYTES: usize = 96;

/// Text without anything that a format of text would write otherwise; as in tests/data/make_same.py.
pub(super) fn payload(number: u64) -> Vec<u8> {
    let digit = |at: u64| b"0123456789abcdef"[((number * 31 + at * 7 + number * at) % 16) as usize];
    (0..BYTES as u64).map(digit).collect()
}

fn payloads() -> Vec<Vec<u8>> {
    (0..SAMPLES).map(payload).collect()
}

/// A format by name, its dataset, and the column that has the payload.
pub(super) type Made = (&'static str, Arc<dyn Dataset>, &'static str);

fn put(path: PathBuf, bytes: &[u8]) -> PathBuf {
    fs::write(&path, bytes).expect("a file");
    path
}

/// A file that another program wrote, copied.
fn data(root: &TempDir, name: &str) -> PathBuf {
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/same").join(name)).expect("a file");
    put(root.path().join(name), &bytes)
}

/// Samples as files, records and archives.
fn files(root: &TempDir) -> Vec<Made> {
    let all = payloads();
    let folder = root.path().join("folder");
    fs::create_dir(&folder).expect("a folder");
    let (mut archive, mut sparse) = (Archive::new(), Archive::new());
    for (number, payload) in all.iter().enumerate() {
        put(folder.join(format!("{number:03}.bin")), payload);
        archive = archive.file(&format!("{number:03}.x"), payload);
        // In two parts, without a hole between them.
        let parts = format!("2\n0\n{}\n40\n{}\n", 40, payload.len() - 40);
        let stored = [parts.as_bytes(), &vec![0; 512 - parts.len()], payload].concat();
        let (number, size) = (format!("{number:03}.x"), payload.len().to_string());
        let records = [("major", "1"), ("minor", "0"), ("name", &*number), ("realsize", &*size)];
        let records = records.map(|(key, value)| (format!("GNU.sparse.{key}"), value));
        sparse = sparse.pax(b'x', &records.each_ref().map(|(key, value)| (&**key, *value)));
        sparse = sparse.file("./GNUSparseFile.1/x", &stored);
    }
    let archive = archive.end().0;
    let folder: Arc<dyn Dataset> = dataset::open(&[folder], &Options::new().format("folder")).expect("the folder");
    let packed = root.path().join("packed");
    let pack = PackOptions::default().shard_samples(17);
    let pack = Loader::builder(Arc::clone(&folder)).pack(&packed, pack).expect("a plan");
    pack.run(&|_| ControlFlow::Continue(())).expect("archives");
    let records = put(root.path().join("records.bin"), &all.concat());
    let record_options = Options::new().format("records").set("record_bytes", BYTES as u64);
    let tar = |path: &Path| dataset::open(&[path], &Options::new().format("tar")).expect("archives");
    let plain = put(root.path().join("plain.tar"), &archive);
    let zipped = put(root.path().join("zipped.tar.zst"), &zstd::encode_all(&archive[..], 1).expect("a frame"));
    vec![
        ("folder", folder, "data"),
        ("records", dataset::open(&[records], &record_options).expect("records"), "data"),
        ("tar", tar(&plain), "x"),
        ("tar.zst", tar(&zipped), "x"),
        ("packed tar", tar(&packed), "bin"),
        ("tar, sparse members", tar(&put(root.path().join("sparse.tar"), &sparse.end().0)), "x"),
    ]
}

/// Samples in the shards of other loaders.
fn shards(root: &TempDir) -> Vec<Made> {
    let all = payloads();
    let mds = |zipped| {
        let folder = writers::mds(&all, zipped, &root.path().join(format!("mds{}", u8::from(zipped))));
        dataset::open(&[folder], &Options::new().format("mds")).expect("MDS")
    };
    let litdata = |zipped| {
        let folder = writers::litdata(&all, zipped, &root.path().join(format!("lit{}", u8::from(zipped))));
        dataset::open(&[folder], &Options::new().format("litdata")).expect("LitData")
    };
    let records = |name: &str, bytes: &[u8]| {
        let path = put(root.path().join(name), bytes);
        dataset::open(&[path], &Options::new().format("tfrecord")).expect("TFRecord")
    };
    let array_record = |name| dataset::open(&[data(root, name)], &Options::new()).expect("ArrayRecord");
    let examples = writers::tfrecord(&all);
    let beton = put(root.path().join("a.beton"), &writers::beton(&all));
    vec![
        ("mds", mds(false), "x"),
        ("mds, zstd", mds(true), "x"),
        ("litdata", litdata(false), "0"),
        ("litdata, zstd", litdata(true), "0"),
        ("tfrecord", records("a.tfrecord", &examples), "x"),
        ("tfrecord, gzip", records("b.tfrecord.gz", &writers::gzip(&examples)), "x"),
        ("array_record", array_record("one.array_record"), "record"),
        ("array_record, groups", array_record("groups.array_record"), "record"),
        ("beton", dataset::open(&[beton], &Options::new().format("beton")).expect("beton"), "x"),
    ]
}

/// Samples as rows of arrays, and as lines.
fn rows(root: &TempDir) -> Vec<Made> {
    let all = payloads();
    let npy = writers::npy(&all);
    let arrays = |format, path: PathBuf| {
        dataset::open(&[path], &Options::new().format(format).set("rows", true)).expect("arrays")
    };
    let tensors = writers::safetensors(&all);
    let packed = |format, name: &str, bytes: Vec<u8>, columns: &[&str]| {
        let options = Options::new().format(format);
        let options = if columns.is_empty() { options } else { options.set("columns", columns) };
        dataset::open(&[put(root.path().join(name), &bytes)], &options).expect("lines")
    };
    let lines = |format, name, text: &String, columns| packed(format, name, text.clone().into_bytes(), columns);
    let text = |payload: &Vec<u8>| String::from_utf8(payload.clone()).expect("text");
    let each = |line: &dyn Fn(String) -> String| all.iter().map(|payload| line(text(payload))).collect::<String>();
    let hdf5 = |name| dataset::open(&[data(root, name)], &Options::new().format("hdf5")).expect("HDF5");
    let jsonl = each(&|payload| format!("{{\"x\": \"{payload}\", \"n\": 1}}\n"));
    let csv = "n,x\n".to_owned() + &each(&|payload| format!("1,\"{payload}\"\r\n"));
    let npz = |name, deflated| arrays("npz", put(root.path().join(name), &writers::npz(&npy, deflated)));
    vec![
        ("npy", arrays("npy", put(root.path().join("a.npy"), &npy)), ""),
        ("npy, Fortran order", arrays("npy", put(root.path().join("f.npy"), &writers::npy_fortran(&all))), ""),
        ("npy, big endian", arrays("npy", put(root.path().join("b.npy"), &writers::npy_big_endian(&all))), ""),
        ("npz", npz("a.npz", false), ""),
        ("npz, deflated", npz("b.npz", true), ""),
        ("safetensors", arrays("safetensors", put(root.path().join("a.safetensors"), &tensors)), ""),
        ("hdf5", hdf5("plain.h5"), "x"),
        ("hdf5, chunks of parts of rows behind filters", hdf5("chunked.h5"), "x"),
        ("hdf5, text of variable length", hdf5("text.h5"), "x"),
        ("hdf5, text of fixed length", hdf5("fixed.h5"), "x"),
        ("jsonl", lines("jsonl", "a.jsonl", &jsonl, &["x"]), "x"),
        ("csv", lines("csv", "a.csv", &csv, &[]), "x"),
        ("text", lines("text", "a.txt", &each(&|payload| payload + "\n"), &[]), "text"),
        ("jsonl, gzip", packed("jsonl", "b.jsonl.gz", writers::gzip(jsonl.as_bytes()), &["x"]), "x"),
        ("csv, zstd", packed("csv", "b.csv.zst", zstd::encode_all(csv.as_bytes(), 1).expect("a frame"), &[]), "x"),
    ]
}

#[cfg(feature = "parquet")]
fn tables(root: &TempDir) -> Vec<Made> {
    let open = |name: &str| dataset::open(&[data(root, name)], &Options::new()).expect("a table");
    vec![
        ("parquet", open("same.parquet"), "x"),
        ("arrow", open("same.arrow"), "x"),
        ("parquet, nested", open("nested.parquet"), "x"),
        ("arrow, nested", open("nested.arrow"), "x"),
    ]
}

#[cfg(not(feature = "parquet"))]
fn tables(_root: &TempDir) -> Vec<Made> {
    Vec::new()
}

/// The same samples in every format, below `root`.
pub(super) fn every(root: &TempDir) -> Vec<Made> {
    [files(root), shards(root), rows(root), tables(root)].concat()
}

/// The payload in a value: a nested column has it as the only text of a list.
pub(super) fn payload_of(value: &[u8]) -> &[u8] {
    let inside = value.strip_prefix(b"[\"").and_then(|bytes| bytes.strip_suffix(b"\"]"));
    inside.unwrap_or(value)
}

/// The payload of each sample by its number, in the order in which they came.
fn read(loader: Loader, column: &str) -> (Vec<u64>, BTreeMap<u64, Vec<u8>>) {
    let (mut order, mut samples) = (Vec::new(), BTreeMap::new());
    for batch in loader {
        let batch = batch.expect("a batch");
        let column = match column {
            // Of a row of one array, whatever it is called.
            "" => &batch.columns[0],
            name => batch.columns.iter().find(|column| column.name == name).expect("the column"),
        };
        for (index, &SampleId(id)) in batch.ids.iter().enumerate() {
            order.push(id);
            let bytes = column.bytes_of(index).expect("bytes");
            assert!(samples.insert(id, payload_of(&bytes).to_vec()).is_none(), "sample {id} came twice");
        }
    }
    (order, samples)
}

#[test]
fn the_same_samples_are_the_same_bytes() {
    let root = tempfile::tempdir().expect("a folder");
    let made = every(&root);
    let wanted: BTreeMap<u64, Vec<u8>> = (0..SAMPLES).map(|number| (number, payload(number))).collect();
    assert!(made.len() >= 32);
    for (name, dataset, column) in &made {
        assert_eq!(dataset.len(), SAMPLES, "{name}");
        let has_units = dataset.units().is_some();
        for (engine, io) in ways_to(dataset) {
            for shuffle in [Shuffle::Off, Shuffle::Auto, Shuffle::Full, Shuffle::Window(16)] {
                for threads in if has_units { [0, 2] } else { [0, 0] } {
                    let builder = Loader::builder(Arc::clone(dataset)).batch_size(7).seed(3).num_threads(threads);
                    let builder = builder.engine(engine).io(io).shuffle(shuffle);
                    let (order, samples) = read(builder.build().expect("a loader"), column);
                    assert!(samples == wanted, "{name} by {engine:?} {io:?}, {shuffle:?}");
                    assert_eq!(order.is_sorted(), shuffle == Shuffle::Off, "{name}, {shuffle:?}");
                }
            }
        }
    }
}

/// Orders are functions of the number of samples: whatever the format, the full shuffle is one.
#[test]
fn a_full_shuffle_is_that_of_every_format() {
    let root = tempfile::tempdir().expect("a folder");
    let made = every(&root);
    let order = |(_, dataset, column): &Made| {
        let builder = Loader::builder(Arc::clone(dataset)).batch_size(16).shuffle(Shuffle::Full).seed(11);
        read(builder.build().expect("a loader"), column).0
    };
    let first = order(&made[0]);
    for made in &made[1..] {
        assert_eq!(order(made), first, "{}", made.0);
    }
}
