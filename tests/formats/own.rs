//! People's own data: an index of their own, columns in memory, a table of labels, files paired by stem.

use super::same::{SAMPLES, every, payload};
use crate::common::content::put;
use crate::common::direct::key;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::batch::{Batch, Data};
use uringload::config::Collate;
use uringload::dataset::{
    self, DType, Dataset, KnownColumn, Labels, Options, Ranges, SampleId, Unlabelled, Value, WithColumns,
};
use uringload::inspect::Samples;
use uringload::{ErrorKind, Loader, Reader, ReaderOptions};

pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        put(&path, content.as_bytes()).expect("a file");
    }
    folder
}

/// All samples, in order, in one batch.
fn all(dataset: &Arc<dyn Dataset>) -> Batch {
    let builder =
        Loader::builder(Arc::clone(dataset)).batch_size(dataset.len()).collate_column("label", Collate::Dense);
    let has_label = dataset.schema().fields.iter().any(|field| field.name == "label");
    let builder = if has_label { builder } else { Loader::builder(Arc::clone(dataset)).batch_size(dataset.len()) };
    builder.build().expect("a loader").next().expect("a batch").expect("no error")
}

fn texts(batch: &Batch, column: &str) -> Vec<String> {
    let column = batch.column(column).expect("the column");
    (0..batch.len()).map(|at| String::from_utf8(column.bytes_of(at).expect("bytes").to_vec()).expect("text")).collect()
}

fn numbers(batch: &Batch, column: &str) -> Vec<i64> {
    match &batch.column(column).expect("the column").data {
        Data::I64(numbers) => numbers.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_index_of_ones_own() {
    let folder = folder(&[("a.blob", "catdogs"), ("deep/b.blob", "bird")]);
    let files = [folder.path().join("a.blob"), folder.path().join("deep/b.blob")];
    let ranges = Ranges::new(&files, vec![0, 1, 0, 0], vec![3, 0, 0, 7], vec![4, 4, 3, 0]).expect("in the files");
    assert_eq!((ranges.len(), ranges.bytes(), key(&ranges, 0)), (4, 11, "a.blob@3+4".into()));
    assert_eq!(key(&ranges, 1), "deep/b.blob");
    let boxes: Vec<u8> = (0..8_u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    let columns = vec![
        KnownColumn::of_numbers("label", vec![7, -8, 9, 10]),
        KnownColumn::of_texts("caption", ["dogs", "ein Vogel", "", "nothing"]),
        KnownColumn::of_bytes("box", DType::F32, vec![2], boxes.into()).expect("eight numbers"),
    ];
    let dataset: Arc<dyn Dataset> = Arc::new(WithColumns::new(Arc::new(ranges), columns).expect("columns"));
    let batch = all(&dataset);
    assert_eq!(texts(&batch, "data"), ["dogs", "bird", "cat", ""]);
    assert_eq!(texts(&batch, "caption"), ["dogs", "ein Vogel", "", "nothing"]);
    assert_eq!(numbers(&batch, "label"), [7, -8, 9, 10]);
    let second = batch.column("box").and_then(|column| column.bytes_of(1)).expect("a box");
    assert_eq!(second[..], [2_f32.to_le_bytes(), 3_f32.to_le_bytes()].concat());
    assert_eq!(dataset.length(SampleId(1), 2), Some(9));
    // Every form of collation, and an order that goes back and forth.
    for collate in [Collate::Ragged, Collate::Padded(Default::default())] {
        let loader =
            Loader::builder(Arc::clone(&dataset)).batch_size(3).collate(collate).shuffle(true).seed(3).epochs(1);
        let mut seen = BTreeMap::new();
        for batch in loader.build().expect("a loader") {
            let batch = batch.expect("no error");
            seen.extend(numbers(&batch, "label").into_iter().zip(texts(&batch, "caption")));
        }
        let want = [(7, "dogs"), (-8, "ein Vogel"), (9, ""), (10, "nothing")].map(|(n, text)| (n, text.to_owned()));
        assert_eq!(seen, BTreeMap::from(want));
    }
}

#[test]
fn an_index_that_points_outside_its_file() {
    let folder = folder(&[("a.blob", "catdogs"), ("b.blob", "bird!")]);
    let files = [folder.path().join("a.blob"), folder.path().join("b.blob")];
    for (offset, length, end) in [(2, 4, "6"), (6, 0, "6"), (u64::MAX, 1, "2^64 or more")] {
        let error = Ranges::new(&files, vec![0, 1], vec![0, offset], vec![7, length]).unwrap_err();
        assert_eq!(
            (error.kind(), error.path(), error.offset()),
            (ErrorKind::Truncated, Some(&*files[1]), Some(offset))
        );
        assert!(error.what().contains(&format!("sample 1 ends at byte {end} of a file of 5 bytes")), "{error}");
        assert!(error.remedy().is_some());
    }
    let kind = |which: Vec<u32>, offsets, lengths| Ranges::new(&files, which, offsets, lengths).unwrap_err().kind();
    assert_eq!(kind(vec![2], vec![0], vec![1]), ErrorKind::InvalidArgument);
    assert_eq!(kind(vec![0, 1], vec![0], vec![1, 1]), ErrorKind::InvalidArgument);
    assert_eq!(kind(vec![], vec![], vec![]), ErrorKind::Empty);
    assert_eq!(Ranges::whole(&[folder.path()]).unwrap_err().kind(), ErrorKind::WrongFileType);
    assert_eq!(Ranges::whole(&[folder.path().join("no")]).unwrap_err().kind(), ErrorKind::NotFound);
    let error = Ranges::whole(&files).and_then(|ranges| ranges.with_dtype(DType::I16)).unwrap_err();
    assert!(error.what().contains("sample 0 has 7 bytes") && error.path() == Some(&*files[0]), "{error}");
}

#[test]
fn columns_that_do_not_fit() {
    let folder = folder(&[("1", "a"), ("2", "b")]);
    let open = || dataset::open(&[folder.path()], &Options::new().format("folder")).expect("two files");
    let error = WithColumns::new(open(), vec![KnownColumn::of_numbers("label", vec![1])]).unwrap_err();
    assert!(error.what().contains("\"label\" has 1 values, and the dataset has 2 samples"), "{error}");
    let error = WithColumns::new(open(), vec![KnownColumn::of_numbers("data", vec![1, 2])]).unwrap_err();
    assert!(error.what().contains("a column \"data\" already"), "{error}");
    let error = KnownColumn::of_bytes("box", DType::F32, vec![2], vec![0; 12].into()).unwrap_err();
    assert!(error.what().contains("12 bytes, no whole number of f32 of shape [2]"), "{error}");
    let error = KnownColumn::of_classes("label", vec![0, 2], vec!["a".into(), "b".into()]).unwrap_err();
    assert!(error.what().contains("sample 1 has label 2, and there are 2 classes"), "{error}");
    let with = |numbers| WithColumns::new(open(), vec![KnownColumn::of_numbers("n", numbers)]).unwrap().fingerprint();
    assert_ne!(with(vec![1, 2]), with(vec![2, 1]), "values decide what a dataset is");
}

const PHOTOS: [(&str, &str); 3] = [("x/1.jpg", "one"), ("x/2.jpg", "two"), ("y/3.jpg", "three")];

fn labelled(root: &Path, table: &Path, unlabelled: &str) -> uringload::Result<Arc<dyn Dataset>> {
    dataset::open(&[root], &Options::new().set("label_file", table).set("unlabelled", unlabelled))
}

#[test]
fn labels_from_a_table() {
    for (name, table, labels, classes) in [
        ("train.csv", "file,label\nx/1.jpg,cat\ny/3.jpg,ant\nx/2.jpg,cat\n", [1, 1, 0], &["ant", "cat"][..]),
        ("train.csv", "3.jpg,0\r\n\"1.jpg\", 12\r\n2.jpg,-1", [12, -1, 0], &[]),
        ("train.tsv", "\u{feff}id\tclass\n1\t5\n2\t6\n3\t7\n", [5, 6, 7], &[]),
    ] {
        let folder = folder(&PHOTOS);
        let path = folder.path().join(name);
        put(&path, table.as_bytes()).expect("a table");
        let dataset = labelled(folder.path(), &path, "error").expect("labels");
        let batch = all(&dataset);
        assert_eq!(
            (numbers(&batch, "label"), texts(&batch, "data")[2].as_str()),
            (labels.to_vec(), "three"),
            "{table}"
        );
        assert_eq!(dataset.index().classes, classes, "{table}");
        let class = classes.get(labels[0] as usize).map(|class| (labels[0], (*class).as_ref()));
        assert_eq!(dataset.label(SampleId(0)), class);
    }
    let folder = folder(&PHOTOS);
    let path = folder.path().join("scores.csv");
    put(&path, b"1.jpg,0.5\n2.jpg,1\n3.jpg,-2e3\n").expect("a table");
    let dataset = labelled(folder.path(), &path, "error").expect("labels");
    assert_eq!(dataset.schema().fields[1].dtype, DType::F64);
    assert_eq!(all(&dataset).column("label").unwrap().bytes_of(2).unwrap()[..], (-2e3_f64).to_le_bytes());
}

/// A label that is missing made classes of the numbers beside it, in the order of their bytes.
#[test]
fn a_label_that_is_missing_is_no_class() {
    let folder = folder(&PHOTOS);
    let path = folder.path().join("train.csv");
    for missing in ["", " ", "nan", "NaN", "-NaN", "NA", "n/a", "#N/A", "<NA>", "null", "None", "1.#QNAN"] {
        for (others, dtype) in [(["10", "2"], DType::I64), (["1.5", "2"], DType::F64)] {
            let table = format!("file,label\n1.jpg,{}\n2.jpg,{missing}\n3.jpg,{}\n", others[0], others[1]);
            put(&path, table.as_bytes()).expect("a table");
            let error = labelled(folder.path(), &path, "error").unwrap_err();
            let row = format!("row 3 says {missing:?} of \"2.jpg\"");
            assert!(error.what().contains("1 samples have no label (\"x/2.jpg\")"), "{error}");
            assert!(error.what().contains(&row), "{error}");
            let dataset = labelled(folder.path(), &path, "skip").expect("two samples");
            assert_eq!((dataset.len(), dataset.schema().fields[1].dtype), (2, dtype), "{missing}");
            assert!(dataset.index().classes.is_empty(), "{missing}");
        }
    }
    put(&path, b"1.jpg,nan\n2.jpg,+nan\n3.jpg,NaN\n").expect("a table");
    assert_eq!(labelled(folder.path(), &path, "skip").unwrap_err().kind(), ErrorKind::Empty);
    // Words may be anything but nothing.
    put(&path, b"1.jpg,none\n2.jpg,cat\n3.jpg,NA\n").expect("a table");
    assert_eq!(labelled(folder.path(), &path, "error").expect("classes").index().classes, ["NA", "cat", "none"]);
    put(&path, b"1.jpg,none\n2.jpg,\n3.jpg,NA\n").expect("a table");
    assert!(labelled(folder.path(), &path, "error").unwrap_err().what().contains("row 2 says \"\""));
    put(&path, b"1.jpg,1\n2.jpg,9223372036854775808\n3.jpg,3\n").expect("a table");
    let error = labelled(folder.path(), &path, "error").unwrap_err();
    assert!(error.what().contains("9223372036854775808 does not fit 64 bits"), "{error}");
}

#[test]
fn labels_that_miss_files_or_have_too_many() {
    let folder = folder(&PHOTOS);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let path = elsewhere.path().join("train.csv");
    put(&path, b"file,label\n2.jpg,1\n7.jpg,2\n8.jpg,2\n9.jpg,2\n10.jpg,2\n").expect("a table");
    let error = labelled(folder.path(), &path, "error").unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*path)));
    assert_eq!(
        error.what(),
        "2 samples have no label (\"x/1.jpg\", \"y/3.jpg\"), and 4 labels have no sample (\"7.jpg\", \"8.jpg\", \
         \"9.jpg\", ...)"
    );
    let dataset = labelled(folder.path(), &path, "skip").expect("one sample");
    assert_eq!((dataset.len(), key(&*dataset, 0).as_str()), (1, "x/2.jpg"));
    let left_out = &dataset.index().left_out;
    let told: Vec<(&str, u64)> = left_out.iter().map(|it| (it.what, it.count)).collect();
    assert_eq!(told, [("samples without a label", 2), ("labels without a sample", 4)]);
    assert_eq!(left_out[0].first, folder.path().join("x/1.jpg"));
    for (table, kind, words) in [
        ("5.jpg,1\n", ErrorKind::Empty, "3 samples have no label"),
        ("", ErrorKind::Empty, "no row"),
        ("1.jpg,1\n2.jpg,1,9\n", ErrorKind::Corrupt, "has 3 fields"),
        ("1.jpg,1\n2.jpg\n", ErrorKind::Corrupt, "has 1 fields"),
        ("1.jpg,1\n1.jpg,2\n", ErrorKind::InvalidArgument, "\"1.jpg\" has two labels"),
    ] {
        put(&path, table.as_bytes()).expect("a table");
        let error = labelled(folder.path(), &path, "skip").unwrap_err();
        assert!(error.kind() == kind && error.what().contains(words), "{table:?}: {error}");
        assert_eq!(error.path(), Some(&*path));
    }
    let twice = self::folder(&[("x/1.jpg", "one"), ("y/1.jpg", "two")]);
    put(&path, b"1.jpg,1\n").expect("a table");
    let error = labelled(twice.path(), &path, "skip").unwrap_err();
    assert!(error.what().contains("fits two samples: \"x/1.jpg\" and \"y/1.jpg\""), "{error}");
    let error = dataset::open(&[folder.path()], &Options::new().set("unlabelled", "skip")).unwrap_err();
    assert!(error.what().contains("unlabelled is of no use without label_file"), "{error}");
}

#[test]
fn labels_of_any_dataset() {
    let folder = folder(&[("all.txt", "a\nb\n")]);
    let text = dataset::open(&[folder.path().join("all.txt")], &Options::new().format("text")).expect("lines");
    let labels = Labels::new([("all.txt#1", "2"), ("all.txt#0", "1")]).expect("labels");
    let labelled = labels.onto(text, Unlabelled::Error).expect("two lines");
    assert_eq!(numbers(&all(&labelled), "label"), [1, 2]);
}

fn paired(by: &str) -> Options {
    Options::new().set("pairs", by)
}

#[test]
fn files_of_one_stem() {
    let pair = [
        ("b/2.jpg", "photo 2"),
        ("b/2.json", "{}"),
        ("1.seg.png", "mask 1"),
        ("1.jpg", "photo 1"),
        ("1.json", "[]"),
        ("b/2.seg.png", ""),
    ];
    let folder = folder(&pair);
    let dataset = dataset::open(&[folder.path()], &paired("extension")).expect("pairs");
    let names: Vec<&str> = dataset.schema().fields.iter().map(|field| &*field.name).collect();
    assert_eq!((names, key(&*dataset, 1).as_str()), (vec!["jpg", "json", "seg.png"], "b/2"));
    let batch = all(&dataset);
    assert_eq!(texts(&batch, "jpg"), ["photo 1", "photo 2"]);
    assert_eq!(texts(&batch, "json"), ["[]", "{}"]);
    assert_eq!(texts(&batch, "seg.png"), ["mask 1", ""]);
    let some = paired("extension").set("fields", ["json", "jpg"]);
    let batch = all(&dataset::open(&[folder.path()], &some).expect("two fields"));
    assert_eq!((batch.columns.len(), texts(&batch, "json")), (2, vec!["[]".to_owned(), "{}".to_owned()]));
    // Without the option, the same files are what they were.
    assert!(dataset::open(&[folder.path()], &Options::new().format("folder")).expect("files").len() == 6);
}

#[test]
fn folders_of_one_stem() {
    let pair = [("images/a/1.jpg", "i1"), ("images/2.jpg", "i2"), ("masks/a/1.png", "m1"), ("masks/2.png", "m2")];
    let folder = folder(&pair);
    let dataset = dataset::open(&[folder.path()], &paired("folder")).expect("pairs");
    assert_eq!((dataset.len(), key(&*dataset, 1).as_str()), (2, "a/1"));
    let batch = all(&dataset);
    assert_eq!(
        (texts(&batch, "images"), texts(&batch, "masks")),
        (vec!["i2".into(), "i1".into()], vec!["m2".into(), "m1".into()])
    );
    assert_eq!(dataset.index().encodings[1].words, "png");
    // A plain class folder is not taken for pairs.
    let plain = dataset::open(&[folder.path()], &Options::new()).expect("classes");
    assert_eq!((plain.len(), plain.index().classes.len()), (4, 2));
    let labelled = put(&folder.path().join("labels.csv"), b"2,5\na/1,6\n").map(|()| folder.path().join("labels.csv"));
    let options = paired("folder").set("label_file", labelled.expect("a table"));
    let batch = all(&dataset::open(&[folder.path()], &options).expect("labels beside pairs"));
    assert_eq!((numbers(&batch, "label"), texts(&batch, "masks").len()), (vec![5, 6], 2));
}

/// Only what begins with a letter is an extension: time stamps and numbers have dots of their own.
#[test]
fn stems_with_dots() {
    let open = |files: &[(&str, &str)], options: Options| {
        let folder = folder(files);
        dataset::open(&[folder.path()], &options).map(|dataset| {
            let names: Vec<String> = dataset.schema().fields.iter().map(|field| field.name.clone()).collect();
            let keys: Vec<String> = (0..dataset.len()).map(|id| key(&*dataset, id)).collect();
            (names, keys)
        })
    };
    let told = |names: &[&str], keys: &[&str]| {
        (names.iter().map(ToString::to_string).collect(), keys.iter().map(ToString::to_string).collect())
    };
    let stamps = [("1403.763.png", ""), ("1403.763.json", ""), ("1403.764.png", ""), ("1403.764.json", "")];
    assert_eq!(open(&stamps, paired("extension")).unwrap(), told(&["json", "png"], &["1403.763", "1403.764"]));
    let frames = [("images/f.1.png", ""), ("images/f.2.png", ""), ("masks/f.1.png", ""), ("masks/f.2.npy.gz", "")];
    assert_eq!(open(&frames, paired("folder")).unwrap(), told(&["images", "masks"], &["f.1", "f.2"]));
    let scans = [("images/scan.001.png", ""), ("masks/scan.002.png", "")];
    assert!(open(&scans, paired("folder")).unwrap_err().what().contains("no two files have one stem"));
    let mixed = [("f.01.seg.png", ""), ("f.01.JPG", ""), ("v1.5_a.jpg", ""), ("v1.5_a.seg.png", "")];
    assert_eq!(open(&mixed, paired("extension")).unwrap(), told(&["jpg", "seg.png"], &["f.01", "v1.5_a"]));
    // Words behind dots are extensions unless it is said where stems end.
    let people = [("a.roe.jpg", ""), ("a.roe.json", ""), ("a.doe.jpg", ""), ("a.doe.json", "")];
    let error = open(&people, paired("extension")).unwrap_err();
    assert!(error.what().contains("would be called \"doe.jpg\""), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("jpg, json")), "{error}");
    let said = paired("extension").set("fields", ["jpg", "json"]);
    assert_eq!(open(&people, said.clone()).unwrap(), told(&["jpg", "json"], &["a.doe", "a.roe"]));
    let lacking = [("m.a.jpg", ""), ("m.a.json", ""), ("m.b.jpg", ""), ("m.b.json", ""), ("m.c.jpg", "")];
    assert!(open(&lacking, paired("extension")).unwrap_err().what().contains("several dots"));
    let mixed = [("a.jpg", ""), ("a.json", ""), ("m.roe.jpg", ""), ("m.roe.json", "")];
    let error = open(&mixed, said.clone()).unwrap_err();
    assert!(error.what().contains("a file of no sample") && error.path().is_some(), "{error}");
    let masks = [("images/a.jpg", ""), ("images/b.jpg", ""), ("masks/a.mask.png", ""), ("masks/b.mask.png", "")];
    assert_eq!(open(&masks, paired("folder")).unwrap(), told(&["images", "masks"], &["a", "b"]));
    let other = [("a.jpg", ""), ("a.json", ""), ("a.seg.json", "")];
    assert_eq!(open(&other, said).unwrap(), told(&["jpg", "json"], &["a"]));
}

/// The layout of YOLO: a split lies below the folders that are columns, and a description beside them.
#[test]
fn splits_below_columns() {
    let files = [
        ("images/train/0.jpg", "i0"),
        ("images/train/1.jpg", "i1"),
        ("images/val/2.jpg", "i2"),
        ("labels/train/0.txt", "l0"),
        ("labels/train/1.txt", "l1"),
        ("labels/val/2.txt", "l2"),
        ("data.yaml", "train: images/train"),
    ];
    let folder = folder(&files);
    let whole = dataset::open(&[folder.path()], &paired("folder")).expect("pairs");
    let left_out: Vec<(&str, u64)> = whole.index().left_out.iter().map(|it| (it.what, it.count)).collect();
    assert_eq!((whole.len(), left_out), (3, vec![("companions of the data", 1)]));
    for (split, images, labels) in [("train", vec!["i0", "i1"], vec!["l0", "l1"]), ("val", vec!["i2"], vec!["l2"])] {
        let some = dataset::open(&[folder.path()], &paired("folder").set("split", split)).expect("pairs");
        let batch = all(&some);
        assert_eq!((texts(&batch, "images"), texts(&batch, "labels")), (strings(&images), strings(&labels)), "{split}");
    }
    // Above the columns, a split is a folder as any other.
    let folder =
        self::folder(&[("train/x/0.jpg", "i"), ("train/y/0.txt", "l"), ("val/x/1.jpg", ""), ("val/y/1.txt", "")]);
    let some = dataset::open(&[folder.path()], &paired("folder").set("split", "train")).expect("pairs");
    assert_eq!((texts(&all(&some), "x"), texts(&all(&some), "y")), (strings(&["i"]), strings(&["l"])));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn pairs_that_are_none() {
    for (files, by, words) in [
        (&[("a/1.jpg", ""), ("a/2.jpg", "")][..], "folder", ""),
        (&[("a/1.jpg", ""), ("b/2.jpg", "")], "folder", "no two files have one stem"),
        (&[("a/1.jpg", ""), ("a/1.png", ""), ("b/1.png", "")], "folder", "two files are \"a\" of the sample \"1\""),
        (&[("1.jpg", ""), ("b/1.png", "")], "folder", "is in no folder"),
        (&[("1.jpg", ""), ("1", "")], "extension", "has no extension"),
    ] {
        let folder = folder(files);
        let opened = dataset::open(&[folder.path()], &paired(by));
        match opened {
            Ok(dataset) => assert!(words.is_empty() && dataset.schema().fields.len() == 1, "{files:?}"),
            Err(error) => {
                assert!(!words.is_empty() && error.what().contains(words) && error.path().is_some(), "{error}")
            }
        }
    }
    let folder = folder(&[("1.jpg", "i"), ("1.json", "{}"), ("2.jpg", "j")]);
    let open = |options: Options| dataset::open(&[folder.path()], &options.set("pairs", "extension"));
    let dataset = open(Options::new()).expect("pairs");
    assert_eq!(dataset.index().lacking, [0, 1]);
    let mut loader = Loader::builder(dataset).batch_size(2).build().expect("a loader");
    let error = loader.next().expect("a batch").unwrap_err();
    assert!(error.what().contains("sample \"2\" has no file for \"json\"") && error.path().is_some(), "{error}");
    assert_eq!(texts(&all(&open(Options::new().set("missing", "empty")).expect("pairs")), "json"), ["{}", ""]);
    let error = open(Options::new().set("fields", ["jpg", "txt"])).unwrap_err();
    assert!(error.what().contains("no sample has a file for \"txt\""), "{error}");
    let error = dataset::open(&[folder.path()], &Options::new().format("folder").set("fields", ["jpg"])).unwrap_err();
    assert!(error.what().contains("fields is of no use without pairs"), "{error}");
}

#[test]
fn numbers_have_no_bytes() {
    let dataset: Arc<dyn Dataset> = dataset::inspect::Numbers::new(10, "made up").expect("ten");
    let loader = Loader::builder(Arc::clone(&dataset)).batch_size(4).shuffle(true).epochs(1).build().expect("a loader");
    let mut ids: Vec<u64> = loader.flat_map(|batch| batch.expect("no error").ids).map(|id| id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    assert_eq!(dataset::inspect::Numbers::new(0, "none").unwrap_err().kind(), ErrorKind::Empty);
}

/// A reader of single samples gives what a loader gives, in every format; threads share it; a file that was cut is
/// told.
#[test]
fn single_samples_of_every_format() {
    let root = tempfile::tempdir().expect("a folder");
    for (name, dataset, column) in every(&root) {
        let fields = &dataset.schema().fields;
        let field = fields.iter().position(|field| field.name == column || column.is_empty()).expect("the column");
        let reader = Samples::new(Arc::clone(&dataset)).expect("a reader");
        let check = |id: u64| {
            let sample = reader.read(SampleId(id)).expect("a sample");
            assert_eq!(sample.values.len(), fields.len(), "{name}");
            // A nested column has the payload as the only text of a list.
            let around: [&[u8]; 2] = if name.ends_with("nested") { [b"[\"", b"\"]"] } else { [b"", b""] };
            let wanted = [around[0], &payload(id), around[1]].concat();
            assert_eq!(sample.values[field], Value::Bytes(wanted.into()), "{name}, sample {id}");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..SAMPLES).for_each(check));
            scope.spawn(|| (0..SAMPLES).rev().for_each(check));
        });
    }
    let folder = folder(&[("all.blob", "catdogs")]);
    let path = folder.path().join("all.blob");
    let words: Arc<dyn Dataset> = Arc::new(Ranges::new(&[&path], vec![0, 0], vec![0, 3], vec![3, 4]).expect("words"));
    let reader = Samples::new(Arc::clone(&words)).expect("a reader");
    assert_eq!(reader.read(SampleId(1)).expect("dogs").values, [Value::Bytes("dogs".into())]);
    put(&path, b"catd").expect("a shorter file");
    for reader in [reader, Samples::new(words).expect("a reader")] {
        let error = reader.read(SampleId(1)).expect_err("a file that was cut");
        assert!(error.kind() == ErrorKind::Truncated && error.path() == Some(&*path), "{error}");
    }
}

/// A sample that is cut from a unit has no spans, and is not answered for with no bytes.
#[test]
fn readers_of_bytes_refuse_samples_of_units() {
    let root = tempfile::tempdir().expect("a folder");
    let mut refused = 0;
    for (name, dataset, _) in every(&root) {
        let mut spans = Vec::new();
        dataset.spans(SampleId(0), &mut spans);
        let is_refused = spans.is_empty() && dataset.units().is_some();
        let mut reader = Reader::of(dataset, &ReaderOptions::default()).expect("a reader");
        for asked in [reader.submit(1, &spans), reader.read(&spans).map(drop)] {
            let error = asked.err();
            assert_eq!(error.is_some(), is_refused, "{name}: {error:?}");
            let told = error.iter().all(|error| error.remedy().is_some_and(|remedy| remedy.contains("Samples")));
            assert!(told, "{name}: {error:?}");
        }
        refused += u32::from(is_refused);
    }
    assert!(refused > 3, "{refused} formats");
}

/// Elements without a header of their own: that of another format would be the first of them.
#[test]
fn headers_of_known_formats_are_no_elements() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("train.bin");
    let tokens = || Options::new().set("window_tokens", 8).set("token_dtype", "u16");
    let records = || Options::new().format("records").set("record_bytes", 16);
    for (head, words, remedy) in [
        (&20_240_520_u32.to_le_bytes()[..], "header of llm.c", "header_bytes=1024"),
        (&20_240_801_u32.to_le_bytes(), "header of llm.c", "header_bytes=1024"),
        (b"\x93NUMPY", "header of npy", "open it as that format"),
        (b"PAR1", "header of parquet", "open it as that format"),
        (b"PK\x03\x04", "header of zip", "open it as that format"),
    ] {
        put(&path, &[head, &[7; 2048][head.len()..]].concat()).expect("a file");
        for options in [tokens(), records()] {
            let error = dataset::open(&[&path], &options).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*path)));
            assert!(error.what().contains(words), "{error}");
            assert!(error.remedy().is_some_and(|told| told.contains(remedy)), "{error}");
        }
        let behind = dataset::open(&[&path], &tokens().set("header_bytes", 1024)).expect("tokens");
        assert_eq!(behind.len(), (512 - 8) / 7 + 1);
    }
    // What begins like a pickle, or with any number, may be elements.
    put(&path, &[&[0x80, 2, b'}'][..], &[7; 2045]].concat()).expect("a file");
    assert_eq!(dataset::open(&[&path], &records()).expect("records").len(), 128);
}
