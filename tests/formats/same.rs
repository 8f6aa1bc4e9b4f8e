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
use uringload::dataset::{self, Concat, Dataset, Options, SampleId};
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

/// Where the samples of a format lie below their folder, and how they are read.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) name: &'static str,
    /// A file or a folder.
    pub(super) path: &'static str,
    format: &'static str,
    /// Empty for the row of an array, whatever it is called.
    pub(super) column: &'static str,
}

/// All of them.
pub(super) fn places() -> Vec<Place> {
    let place = |(name, path, format, column)| Place { name, path, format, column };
    let all = [
        ("folder", "folder", "folder", "data"),
        ("records", "records.bin", "records", "data"),
        ("tar", "plain.tar", "tar", "x"),
        ("tar.zst", "zipped.tar.zst", "tar", "x"),
        ("packed tar", "packed", "tar", "bin"),
        ("tar, sparse members", "sparse.tar", "tar", "x"),
        ("mds", "mds0", "mds", "x"),
        ("mds, zstd", "mds1", "mds", "x"),
        ("litdata", "lit0", "litdata", "0"),
        ("litdata, zstd", "lit1", "litdata", "0"),
        ("tfrecord", "a.tfrecord", "tfrecord", "x"),
        ("tfrecord, gzip", "b.tfrecord.gz", "tfrecord", "x"),
        ("array_record", "one.array_record", "array_record", "record"),
        ("array_record, groups", "groups.array_record", "array_record", "record"),
        ("beton", "a.beton", "beton", "x"),
        ("npy", "a.npy", "npy", ""),
        ("npy, Fortran order", "f.npy", "npy", ""),
        ("npy, big endian", "b.npy", "npy", ""),
        ("npz", "a.npz", "npz", ""),
        ("npz, deflated", "b.npz", "npz", ""),
        ("safetensors", "a.safetensors", "safetensors", ""),
        ("hdf5", "plain.h5", "hdf5", "x"),
        ("hdf5, chunks of parts of rows behind filters", "chunked.h5", "hdf5", "x"),
        ("hdf5, text of variable length", "text.h5", "hdf5", "x"),
        ("hdf5, text of fixed length", "fixed.h5", "hdf5", "x"),
        ("jsonl", "a.jsonl", "jsonl", "x"),
        ("csv", "a.csv", "csv", "x"),
        ("text", "a.txt", "text", "text"),
        ("jsonl, gzip", "b.jsonl.gz", "jsonl", "x"),
        ("csv, zstd", "b.csv.zst", "csv", "x"),
        ("parquet", "same.parquet", "parquet", "x"),
        ("arrow", "same.arrow", "arrow", "x"),
        ("parquet, nested", "nested.parquet", "parquet", "x"),
        ("arrow, nested", "nested.arrow", "arrow", "x"),
    ];
    let is_here = |place: &Place| cfg!(feature = "parquet") || !["parquet", "arrow"].contains(&place.format);
    all.map(place).into_iter().filter(is_here).collect()
}

impl Place {
    /// The dataset of the copies below these folders, one after the other.
    pub(super) fn open(&self, folders: &[PathBuf]) -> Arc<dyn Dataset> {
        let options = Options::new().format(self.format);
        let options = match self.format {
            "records" => options.set("record_bytes", BYTES as u64),
            "npy" | "npz" | "safetensors" => options.set("rows", true),
            "jsonl" => options.set("columns", ["x"]),
            _ => options,
        };
        let paths: Vec<PathBuf> = folders.iter().map(|folder| folder.join(self.path)).collect();
        let open = |paths: &[PathBuf]| dataset::open(paths, &options).expect(self.name);
        if paths[0].is_file() || paths.len() == 1 {
            return open(&paths);
        }
        Arc::new(Concat::new(paths.chunks(1).map(open).collect()).expect(self.name))
    }
}

fn put(path: PathBuf, bytes: &[u8]) {
    fs::write(path, bytes).expect("a file");
}

/// Samples as files, records and archives.
fn write_files(root: &Path) {
    let all = payloads();
    let folder = root.join("folder");
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
    let pack = PackOptions::default().shard_samples(17);
    let pack = Loader::builder(folder).pack(root.join("packed"), pack).expect("a plan");
    pack.run(&|_| ControlFlow::Continue(())).expect("archives");
    put(root.join("records.bin"), &all.concat());
    put(root.join("plain.tar"), &archive);
    put(root.join("zipped.tar.zst"), &zstd::encode_all(&archive[..], 1).expect("a frame"));
    put(root.join("sparse.tar"), &sparse.end().0);
}

/// Samples in the shards of other loaders.
fn write_shards(root: &Path) {
    let all = payloads();
    for zipped in [false, true] {
        writers::mds(&all, zipped, &root.join(format!("mds{}", u8::from(zipped))));
        writers::litdata(&all, zipped, &root.join(format!("lit{}", u8::from(zipped))));
    }
    let examples = writers::tfrecord(&all);
    put(root.join("a.tfrecord"), &examples);
    put(root.join("b.tfrecord.gz"), &writers::gzip(&examples));
    put(root.join("a.beton"), &writers::beton(&all));
}

/// Samples as rows of arrays, and as lines.
fn write_rows(root: &Path) {
    let all = payloads();
    let npy = writers::npy(&all);
    let text = |payload: &Vec<u8>| String::from_utf8(payload.clone()).expect("text");
    let each = |line: &dyn Fn(String) -> String| all.iter().map(|payload| line(text(payload))).collect::<String>();
    let jsonl = each(&|payload| format!("{{\"x\": \"{payload}\", \"n\": 1}}\n"));
    let csv = "n,x\n".to_owned() + &each(&|payload| format!("1,\"{payload}\"\r\n"));
    put(root.join("a.npy"), &npy);
    put(root.join("f.npy"), &writers::npy_fortran(&all));
    put(root.join("b.npy"), &writers::npy_big_endian(&all));
    put(root.join("a.npz"), &writers::npz(&npy, false));
    put(root.join("b.npz"), &writers::npz(&npy, true));
    put(root.join("a.safetensors"), &writers::safetensors(&all));
    put(root.join("a.jsonl"), jsonl.as_bytes());
    put(root.join("a.csv"), csv.as_bytes());
    put(root.join("a.txt"), each(&|payload| payload + "\n").as_bytes());
    put(root.join("b.jsonl.gz"), &writers::gzip(jsonl.as_bytes()));
    put(root.join("b.csv.zst"), &zstd::encode_all(csv.as_bytes(), 1).expect("a frame"));
}

/// Files that other programs wrote, copied.
fn write_copies(root: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/same");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        put(root.join(path.file_name().expect("a name")), &fs::read(&path).expect("a file"));
    }
}

/// Writes the same samples in every format below `root`, an empty folder.
pub(super) fn write(root: &Path) {
    write_files(root);
    write_shards(root);
    write_rows(root);
    write_copies(root);
}

/// The same samples in every format, below `root`.
pub(super) fn every(root: &TempDir) -> Vec<Made> {
    write(root.path());
    let made = |place: Place| (place.name, place.open(&[root.path().to_path_buf()]), place.column);
    places().into_iter().map(made).collect()
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
    // Orders take turns.
    are_the_same_bytes(|turn, order| order == turn % 4);
}

#[test]
#[ignore = "slow: every order by every way"]
fn the_same_samples_are_the_same_bytes_in_every_order() {
    are_the_same_bytes(|_, _| true);
}

fn are_the_same_bytes(has_turn: fn(usize, usize) -> bool) {
    let root = tempfile::tempdir().expect("a folder");
    let made = every(&root);
    let wanted: BTreeMap<u64, Vec<u8>> = (0..SAMPLES).map(|number| (number, payload(number))).collect();
    assert!(made.len() >= 32);
    let mut turn = 0;
    for (name, dataset, column) in &made {
        // With four ways, another order by each way of the next format.
        turn += 1;
        assert_eq!(dataset.len(), SAMPLES, "{name}");
        let has_units = dataset.units().is_some();
        for (engine, io) in ways_to(dataset) {
            turn += 1;
            let orders = [Shuffle::Off, Shuffle::Auto, Shuffle::Full, Shuffle::Window(16)].into_iter().enumerate();
            for (_, shuffle) in orders.filter(|(order, _)| has_turn(turn, *order)) {
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
