//! Tiny samples: stored side by side, in at most 1.3 times their bytes, and read back as they were.

use super::{class_folder, folder_at, options, pack};
use crate::common::content::write_file;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::config::{Collate, Part};
use uringload::dataset::{self, Dataset, Options};
use uringload::pack::{PackLayout, PackOptions};
use uringload::{ErrorKind, Loader};

/// A folder of `count` files of 20 to 219 bytes in three classes.
pub(super) fn tiny(count: u64) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for class in 0..3 {
        fs::create_dir(root.path().join(format!("c{class}"))).unwrap();
    }
    for number in 0..count {
        write_file(&root.path().join(format!("c{}/{number:05}.txt", number % 3)), 100 + number % 120).unwrap();
    }
    root
}

fn mds(folder: &Path) -> Arc<dyn Dataset> {
    // By its own: what pack wrote shows what it is.
    let dataset = dataset::open(&[folder], &Options::new()).unwrap();
    assert_eq!(dataset.format(), "mds");
    dataset
}

/// Each row as bytes of these columns, in order.
fn rows(dataset: &Arc<dyn Dataset>, columns: &[&str]) -> Vec<Vec<Vec<u8>>> {
    let mut rows = Vec::new();
    for batch in Loader::builder(Arc::clone(dataset)).collate(Collate::Views).build().unwrap() {
        let batch = batch.unwrap();
        assert!(batch.failed.is_empty());
        for row in 0..batch.ids.len() {
            let bytes = |column: &&str| batch.column(column).unwrap().bytes_of(row).unwrap().to_vec();
            rows.push(columns.iter().map(bytes).collect());
        }
    }
    rows
}

fn bytes_in(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn tiny_files_take_little_more_than_their_bytes() {
    let (source, to) = (tiny(4000), tempfile::tempdir().unwrap());
    let folder = folder_at(source.path());
    let report = pack(Arc::clone(&folder), to.path(), options()).unwrap();
    assert_eq!((report.samples, report.lacking, report.shards), (4000, 0, 1));
    let (packed, plain) = (bytes_in(to.path()), folder.bytes());
    assert!(packed as f64 <= 1.3 * plain as f64, "{packed} bytes for {plain}");
    let dataset = mds(to.path());
    let (got, wanted) = (rows(&dataset, &["data", "__key__"]), rows(&folder, &["data"]));
    assert_eq!(got.len(), 4000);
    for (id, (got, wanted)) in (0..).zip(got.iter().zip(&wanted)) {
        let mut key = Vec::new();
        folder.key(dataset::SampleId(id), &mut key);
        assert_eq!((&got[0], &got[1]), (&wanted[0], &key), "sample {id}");
    }
    // Archives of the same, by name, are mostly headers.
    let tar = tempfile::tempdir().unwrap();
    pack(folder, tar.path(), options().layout(PackLayout::Tar)).unwrap();
    assert!(bytes_in(tar.path()) > 4 * plain);
}

#[test]
fn labels_stay_numbers() {
    let (source, to) = (tiny(3000), tempfile::tempdir().unwrap());
    let folder = dataset::open(&[source.path()], &Options::new().format("folder").set("labels", true)).unwrap();
    pack(folder, to.path(), options()).unwrap();
    let dataset = mds(to.path());
    let batch = Loader::builder(dataset).batch_size(3000).build().unwrap().next().unwrap().unwrap();
    let labels = batch.column("label").unwrap();
    // Classes come one after the other, as in the folder.
    let labels: Vec<u8> = (0..3000).map(|row| labels.bytes_of(row).unwrap()[0]).collect();
    assert!(labels.is_sorted() && (labels[0], labels[2999]) == (0, 2), "{:?}", &labels[..10]);
}

/// A batch in the order of the shards is a read or two, for all its samples and columns.
#[test]
fn a_batch_is_one_read() {
    let (source, to) = (tiny(4000), tempfile::tempdir().unwrap());
    pack(folder_at(source.path()), to.path(), options()).unwrap();
    let mut loader = Loader::builder(mds(to.path())).batch_size(1000).epochs(1).build().unwrap();
    let batches = loader.by_ref().map(Result::unwrap).count();
    let count = loader.stats().snapshot().count;
    assert_eq!(batches, 4);
    assert!(count.reads <= 8, "{} reads for 4 batches", count.reads);
}

/// Numbers of every kind that the format has, of one shape, of many lengths, and none.
#[test]
fn numbers_keep_their_type_and_shape() {
    let source = tempfile::tempdir().unwrap();
    let header = |dtype: &str, shape: &str| {
        let text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
        let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
        let mut head = b"\x93NUMPY\x01\x00".to_vec();
        head.extend((padded as u16).to_le_bytes());
        head.extend(format!("{text:<width$}\n", width = padded - 1).bytes());
        head
    };
    let mut matrix = header("<f4", "(5000, 2, 3)");
    matrix.extend((0..30_000_u32).flat_map(|number| (number as f32).to_le_bytes()));
    fs::write(source.path().join("x.npy"), matrix).unwrap();
    let npy = dataset::open(&[source.path()], &Options::new().format("npy")).unwrap();
    let to = tempfile::tempdir().unwrap();
    let name = npy.schema().fields[0].name.clone();
    pack(Arc::clone(&npy), to.path(), options().layout(PackLayout::Mds)).unwrap();
    let dataset = mds(to.path());
    assert_eq!(dataset.schema(), npy.schema());
    assert_eq!(rows(&dataset, &[&name]), rows(&npy, &[&name]));
    assert!(bytes_in(to.path()) as f64 <= 1.3 * npy.bytes() as f64);
}

/// Lists of numbers, as JSON lines have them: a length stands before each.
#[test]
fn lists_of_numbers_keep_their_lengths() {
    let source = tempfile::tempdir().unwrap();
    let line = |number: usize| {
        let values: Vec<String> = (0..number % 300).map(|value| (value * number).to_string()).collect();
        format!("{{\"tokens\": [{}]}}\n", values.join(", "))
    };
    fs::write(source.path().join("a.jsonl"), (1..2000).map(line).collect::<String>()).unwrap();
    let lines = dataset::open(&[source.path()], &Options::new().set("columns", ["tokens"])).unwrap();
    let to = tempfile::tempdir().unwrap();
    let asked = options().layout(PackLayout::Mds);
    match pack(Arc::clone(&lines), to.path(), asked) {
        Ok(report) => assert_eq!(report.samples, 1999),
        Err(error) => panic!("{error}"),
    }
    let (dataset, columns) = (mds(to.path()), ["tokens"]);
    let fields = |dataset: &Arc<dyn Dataset>| dataset.schema().fields.clone();
    assert_eq!(fields(&dataset), fields(&lines));
    assert_eq!(rows(&dataset, &columns), rows(&lines, &columns));
}

#[test]
fn parts_and_later_runs_make_the_same_files() {
    let (source, whole) = (tiny(3000), tempfile::tempdir().unwrap());
    let change = |options: PackOptions| options.shard_samples(700);
    pack(folder_at(source.path()), whole.path(), change(options())).unwrap();
    let to = tempfile::tempdir().unwrap();
    for part in ["1/2", "0/2"] {
        assert!(!to.path().join("index.json").exists(), "not before all shards are there");
        let part: Part = part.parse().unwrap();
        pack(folder_at(source.path()), to.path(), change(options()).part(part)).unwrap();
    }
    for entry in fs::read_dir(whole.path()).unwrap() {
        let name = entry.unwrap().file_name();
        let [a, b] = [whole.path(), to.path()].map(|folder| fs::read(folder.join(&name)).unwrap());
        assert!(a == b, "{name:?}");
    }
    let again = pack(folder_at(source.path()), to.path(), change(options())).unwrap();
    assert_eq!((again.samples, again.bytes_written), (3000, 0));
    // Another layout is another pack, and replaces this one only when asked to.
    let tar = options().layout(PackLayout::Tar).shard_samples(700);
    let error = pack(folder_at(source.path()), to.path(), tar.clone()).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("layout"), "{error}");
    pack(folder_at(source.path()), to.path(), tar.overwrite(true)).unwrap();
    assert_eq!(dataset::open(&[to.path()], &Options::new()).unwrap().format(), "tar");
    assert!(!to.path().join("index.json").exists());
}

/// Few samples, long ones, and those that only archives can hold.
#[test]
fn archives_stay_where_they_are_as_good() {
    let few = class_folder();
    let to = tempfile::tempdir().unwrap();
    let plan = |source: &Path, options| Loader::builder(folder_at(source)).pack(to.path(), options);
    assert_eq!(plan(few.path(), options()).unwrap().layout(), PackLayout::Tar);
    assert_eq!(plan(tiny(3000).path(), options()).unwrap().layout(), PackLayout::Mds);
    let pairs = tempfile::tempdir().unwrap();
    for number in 0..2000 {
        for ending in ["txt", "cls"] {
            fs::write(pairs.path().join(format!("{number:04}.{ending}")), b"a few bytes").unwrap();
        }
    }
    assert_eq!(plan(pairs.path(), options()).unwrap().layout(), PackLayout::Tar, "two files are one sample");
    let error = plan(pairs.path(), options().layout(PackLayout::Mds)).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.remedy().is_some(), "{error}");
}
