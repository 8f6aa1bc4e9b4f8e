//! Parquet and Arrow IPC: files of the reference writers, what is read of them, and everything that can be wrong.

mod arrow;
mod panics;
mod parquet;

use crate::common::content::put;
use crate::common::direct::{Row, decoded, sample, samples};
use crate::formats::memory::{Limit, most_held};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::dataset::{DType, Dataset, Options, Shape, Span, UnitId};
use uringload::{Error, ErrorKind};

/// A file that `tests/data/make_columnar.py` wrote.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/columnar").join(name)
}

/// These columns and no others.
fn of(columns: &[&str]) -> Options {
    Options::new().set("columns", columns)
}

/// The rows that `rows.json` has for a format.
fn expected(format: &str) -> Vec<Row> {
    let text = std::fs::read(data("rows.json")).expect("the rows");
    let all: BTreeMap<String, BTreeMap<String, Vec<String>>> = serde_json::from_slice(&text).expect("JSON");
    let columns = &all[format];
    let rows = columns.values().next().expect("a column").len();
    (0..rows).map(|row| columns.iter().map(|(name, values)| (name.clone(), bytes_of(&values[row]))).collect()).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// All rows of a dataset that has no bad one.
fn rows(dataset: &dyn Dataset) -> Vec<Row> {
    samples(dataset).into_iter().map(|row| row.expect("a row")).collect()
}

/// The type and shape of a column.
fn typed(dataset: &dyn Dataset, name: &str) -> (DType, Shape) {
    let field = dataset.schema().fields.iter().find(|field| field.name == name).expect("a column");
    (field.dtype, field.shape.clone())
}

/// The names of the columns, in order.
fn names(dataset: &dyn Dataset) -> Vec<&str> {
    dataset.schema().fields.iter().map(|field| field.name.as_str()).collect()
}

/// The dataset has these rows, and all their columns.
fn assert_rows(dataset: &dyn Dataset, expected: &[Row], what: &str) {
    assert_columns(dataset, expected, what);
    for row in rows(dataset) {
        assert!(row.keys().eq(expected[0].keys()), "{what}: {:?}", row.keys());
    }
}

/// The dataset has as many rows as these, and the same values in each column of its own.
fn assert_columns(dataset: &dyn Dataset, expected: &[Row], what: &str) {
    let rows = rows(dataset);
    assert_eq!(rows.len(), expected.len(), "{what}");
    for (number, (row, expected)) in rows.iter().zip(expected).enumerate() {
        assert!(!row.is_empty(), "{what}: no column");
        // One by one, so that a message shows one value.
        for (name, value) in row {
            assert_eq!(value, &expected[name], "{what}: {name} of row {number}");
        }
    }
}

/// A way to open a file by its name, with this column.
type OpenColumn<'a> = &'a dyn Fn(&str, &str) -> Result<Arc<dyn Dataset>, Error>;

/// The dataset of nested columns has the text that Python's `json` writes for each row, and errors where it has none.
fn assert_nested(open: OpenColumn<'_>, name: &str) {
    let text = std::fs::read(data("nested.json")).expect("the rows");
    let expected: BTreeMap<String, Vec<Option<String>>> = serde_json::from_slice(&text).expect("JSON");
    for (column, expected) in &expected {
        let refused = open(name, column).expect("a dataset");
        let is_text = refused.index().encodings[0].role == uringload::dataset::Role::Text;
        assert!(is_text, "{name}: {column} is text");
        let words = &refused.index().encodings[0].words;
        assert!(words.starts_with("JSON of "), "{words}");
        for (number, expected) in expected.iter().enumerate() {
            let row = sample(&*refused, number as u64).map(|row| String::from_utf8(row[column].clone()).expect("text"));
            match expected {
                Some(expected) => {
                    assert_eq!(row.as_ref().expect("a row"), expected, "{name}: {column} of row {number}")
                }
                None => assert!(row.expect_err("a null").to_string().contains("is null in row"), "{name}: {column}"),
            }
        }
    }
    let empty = |options: Options| uringload::dataset::open(&[data(name)], &options.set("nulls", "empty"));
    let words = empty(of(&["words"])).expect("a dataset");
    assert_eq!(texts(&*words, "words"), ["[\"a\",\"\"]", "[]", "", "[\"\\\\\",null,\"ß\"]"]);
    // All columns at once, and those of a struct: its list is one.
    let nested = empty(Options::new()).expect("a dataset");
    assert_eq!(nested.schema().fields.len(), 10);
    assert_eq!(sample(&*nested, 0).expect("a row")["info.tags"], b"[\"a\"]");
    assert!(left_out(&*nested).is_empty());
}

/// What a dataset has left out: what, and the ends of the first paths.
fn left_out(dataset: &dyn Dataset) -> Vec<(&'static str, u64, String)> {
    let told = |path: &Path| path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("<");
    dataset.index().left_out.iter().map(|skipped| (skipped.what, skipped.count, told(&skipped.first))).collect()
}

/// Files whose columns come in another order are one dataset; one more column is told, and one fewer is an error.
fn assert_order(extension: &str) {
    let options = || Options::new().format(extension);
    let both = uringload::dataset::open(&[data(&format!("order-{extension}"))], &options()).expect("a dataset");
    assert_eq!(names(&*both), ["id", "text", "list"]);
    assert_eq!(texts(&*both, "text"), ["a", "b", "c"]);
    let rows = rows(&*both);
    assert_eq!(rows[2]["id"], 3_i64.to_le_bytes());
    assert_eq!(rows[2]["list"], [2_i64.to_le_bytes(), 3_i64.to_le_bytes()].concat());
    let other = ("columns that the first file does not have", 1, format!("more<b.{extension}"));
    assert_eq!(left_out(&*both), [other]);
    // What was asked for by name is there, in the requested order; the others were not requested.
    let wanted = options().set("columns", ["list", "text"]);
    let paths = [data(&format!("order-{extension}")), data(&format!("fewer.{extension}"))];
    let wanted = uringload::dataset::open(&paths, &wanted).expect("a dataset");
    assert_eq!((texts(&*wanted, "text").concat(), left_out(&*wanted).len()), ("abcd".to_owned(), 0));
    let error = uringload::dataset::open(&paths, &options()).unwrap_err();
    assert_eq!(error.path(), Some(&*data(&format!("fewer.{extension}"))), "{error}");
    assert!(error.to_string().contains("the file has no column \"id\", which the first file has"), "{error}");
    let error = uringload::dataset::open(&paths, &options().set("columns", ["id"])).unwrap_err();
    assert_eq!(error.path(), Some(&*data(&format!("fewer.{extension}"))), "{error}");
    assert!(error.to_string().contains("the file has no column \"id\""), "{error}");
}

/// Decoding each unit takes no more memory than the dataset says, beside what is stored and what it decodes to.
fn assert_scratch(dataset: &dyn Dataset, name: &str) -> u64 {
    /// Lists of buffers, readers and the like, and the state of a decompressor, in bytes.
    const SMALL: u64 = 192 << 10;
    let units = dataset.units().expect("units");
    let scratch = units.largest_scratch();
    let _limit = Limit::new(64 << 20);
    for unit in 0..units.count() {
        let pieces = stored(dataset, unit).into_iter().map(|span| {
            let bytes = std::fs::read(dataset.files().path(span.file)).expect("the file");
            bytes::Bytes::from(bytes[span.offset as usize..][..span.len as usize].to_vec())
        });
        let pieces: Vec<bytes::Bytes> = pieces.collect();
        let mut out = vec![0; units.decoded_bytes(UnitId(unit)) as usize];
        let (decoded, held) = most_held(|| units.decode(UnitId(unit), &pieces, &mut out));
        decoded.expect("a unit");
        assert!(held as u64 <= scratch + SMALL, "{name}: {held} bytes, and {scratch} were told");
    }
    scratch
}

/// What is read of a unit.
fn stored(dataset: &dyn Dataset, unit: u32) -> Vec<Span> {
    let mut spans = Vec::new();
    dataset.units().expect("units").stored(UnitId(unit), &mut spans);
    spans
}

/// Text of a column, in order.
fn texts(dataset: &dyn Dataset, column: &str) -> Vec<String> {
    rows(dataset).into_iter().map(|row| String::from_utf8(row[column].clone()).expect("text")).collect()
}

/// How much is tried: in the quick suite every eleventh, in the slow one all.
#[derive(Clone, Copy, Debug)]
enum Every {
    All = 1,
    Eleventh = 11,
}

/// A way to open a file as a dataset.
type Open<'a> = &'a dyn Fn(&Path) -> Result<Arc<dyn Dataset>, Error>;

/// Every truncation of `Every::All`, and many changes of a file: an error, or values; never a panic, and no memory that
/// a header merely claims.
fn survives(bytes: &[u8], extension: &str, open: Open<'_>, every: Every) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("a.{extension}"));
    panics::assert_none();
    assert!(is_whole(bytes, &path, open));
    for len in (0..bytes.len()).step_by(every as usize) {
        assert!(!is_whole(&bytes[..len], &path, open), "cut to {len} bytes, it is whole");
    }
    changes_are_survived(bytes, extension, open, every);
}

/// Whether a file has nothing but rows. Nothing may panic, even where that is caught.
fn is_whole(bytes: &[u8], path: &Path, open: Open<'_>) -> bool {
    let is_whole = has_only_rows(bytes, path, open);
    panics::assert_none();
    is_whole
}

fn has_only_rows(bytes: &[u8], path: &Path, open: Open<'_>) -> bool {
    /// Of a unit that is decoded: above it, the memory limit of a loader ends it.
    const DECODED_MAX: u64 = 64 << 20;
    put(path, bytes).expect("a file");
    let Ok(dataset) = open(path) else { return false };
    let units = dataset.units().expect("units");
    if units.largest_decoded().max(units.largest_scratch()) > DECODED_MAX {
        return false;
    }
    let _limit = Limit::new(DECODED_MAX as usize);
    // Each sample decodes its unit anew: all units once, and some samples.
    let mut is_whole = (0..units.count()).all(|unit| decoded(&*dataset, units, UnitId(unit)).is_ok());
    let step = usize::try_from(dataset.len() / 8 + 1).expect("a count");
    for id in (0..dataset.len()).step_by(step) {
        is_whole &= sample(&*dataset, id).is_ok();
    }
    is_whole
}

/// Many changes of a file.
fn changes_are_survived(bytes: &[u8], extension: &str, open: Open<'_>, every: Every) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("a.{extension}"));
    panics::assert_none();
    let seed = 0x5eed_u64;
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for turn in 0..CHANGES / every as usize {
        let mut changed = bytes.to_vec();
        for _ in 0..=random(3) {
            let at = random(changed.len());
            changed[at] = match random(4) {
                0 => 0xff,
                1 => 0,
                2 => changed[at].wrapping_add(1),
                _ => random(256) as u8,
            };
        }
        // A panic would end the test, after this.
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| is_whole(&changed, &path, open)));
        assert!(told.is_ok(), "seed {seed:#x}, turn {turn}");
    }
}

/// Changed files that are tried of each file.
const CHANGES: usize = 1000;

/// Nulls of a file whose second row has none of its numbers and a null in its list, as errors and as empty values.
fn assert_nulls_stand(open: impl Fn(&Options) -> Result<Arc<dyn Dataset>, Error>, block: &str) {
    let errors = |options: &Options| -> Vec<Option<String>> {
        let dataset = open(options).expect("a dataset");
        (0..4).map(|id| sample(&*dataset, id).err().map(|error| error.to_string())).collect()
    };
    let number = errors(&of(&["number"]));
    let told = number[1].as_ref().expect("an error");
    assert!(told.contains(&format!("column \"number\" is null in row 1 of {block} 0\n")), "{told}");
    assert!(told.contains("help: leave the column out, or skip such samples"), "{told}");
    assert_eq!(number.iter().flatten().count(), 1);
    let lists = errors(&of(&["list"]));
    assert!(lists[1].as_ref().expect("an error").contains("is a list with a null in it"), "{lists:?}");
    assert!(lists[2].as_ref().expect("an error").contains("is null in row 2"), "{lists:?}");
    assert!(lists[0].is_none() && lists[3].is_none());
    let empty = |columns: &[&str]| of(columns).set("nulls", "empty");
    let lists = errors(&empty(&["list"]));
    assert!(lists[1].as_ref().expect("an error").contains("is a list with a null in it"), "{lists:?}");
    assert_eq!(lists.iter().flatten().count(), 1);
    assert_eq!(errors(&empty(&["number"])), number);
    let dataset = open(&empty(&["text", "image.bytes", "label"])).expect("a dataset");
    assert_eq!(texts(&*dataset, "text"), ["a", "b", "", ""]);
    assert_eq!(texts(&*dataset, "image.bytes"), ["x", "", "", "yz"]);
    assert_eq!(texts(&*dataset, "label"), ["a", "", "b", "a"]);
    let text = errors(&of(&["text"]));
    assert!(text[2].as_ref().expect("an error").contains("nulls=empty (--nulls empty)"), "{text:?}");
}

/// Opens with one of the ways to stand for nulls.
type OpenNulls<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn Dataset>, Error>;

/// What stands for nulls in columns of numbers, by each of the options.
fn assert_nulls(open: OpenNulls<'_>) {
    let told = |nulls: &str, row: u64| -> Result<Row, String> {
        let dataset = open(nulls).expect("a dataset");
        sample(&*dataset, row).map_err(|error| error.to_string())
    };
    let f32s = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let f64s = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    for nulls in ["zero", "mask"] {
        let row = told(nulls, 1).expect("a row");
        assert_eq!((&row["i32"], &row["bool"], &row["f16"]), (&vec![0; 4], &vec![0], &vec![0; 2]), "{nulls}");
        assert_eq!((&row["f32"], &row["f64"], &row["decimal"]), (&vec![0; 4], &vec![0; 8], &vec![0; 16]), "{nulls}");
        assert_eq!((&row["floats"], &row["pair"]), (&Vec::new(), &f64s(&[0.0, 0.0])), "{nulls}");
        let first = told(nulls, 0).expect("a row");
        assert_eq!((&first["floats"], &first["pair"]), (&f32s(&[1.5, 0.0, 0.0]), &f64s(&[1.5, 0.0])), "{nulls}");
        assert_eq!((&first["i32"], &first["shorts"]), (&vec![7, 0, 0, 0], &vec![0, 0, 2, 0]), "{nulls}");
    }
    let masks = |row: u64| {
        let row = told("mask", row).expect("a row");
        let of = |name: &&str| row[&format!("{name}.valid")] == [1];
        ["i32", "f64", "decimal", "floats", "shorts", "pair"].iter().map(of).collect::<Vec<bool>>()
    };
    assert_eq!(masks(0), [true, true, true, false, false, false]);
    assert_eq!(masks(1), [false, false, false, false, true, false]);
    assert_eq!(masks(2), [true, true, true, true, false, true]);
    // A column that never has nulls has no mask, and the others have it after them.
    let masked = open("mask").expect("a dataset");
    let names = names(&*masked);
    assert_eq!((&names[..3], names.last()), (&["i32", "i32.valid", "bool"][..], Some(&"none")));
    assert_eq!(masked.index().encodings.len(), names.len());
    assert_ne!(masked.fingerprint(), open("zero").expect("a dataset").fingerprint());
    // Floats have NaN; nothing is made up for integers.
    let told = told("nan", 1).expect_err("an integer");
    assert!(told.contains("column \"i32\" is null in row 1") && told.contains("--nulls zero"), "{told}");
}

/// A way to open a file with these options.
type OpenWith<'a> = &'a dyn Fn(&Options) -> Result<Arc<dyn Dataset>, Error>;

/// Lists of one length, and such within each other, have a shape; nulls of each level are told.
fn assert_tensors(open: OpenWith<'_>) {
    let tensors = open(&Options::new().set("nulls", "mask")).expect("a dataset");
    assert_eq!(typed(&*tensors, "state"), (DType::F32, Shape::Fixed(vec![3])));
    assert_eq!(typed(&*tensors, "grid"), (DType::I16, Shape::Fixed(vec![2, 3])));
    let rows = rows(&*tensors);
    let states: Vec<f32> = rows
        .iter()
        .flat_map(|row| row["state"].chunks(4))
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(states, [0., 1., 2., 0., 0., 0., 3., 0., 5., 6., 7., 8.]);
    let of = |name: &str| rows.iter().map(|row| row[name][0]).collect::<Vec<u8>>();
    assert_eq!((of("state.valid"), of("grid.valid")), (vec![1, 0, 0, 1], vec![1, 0, 0, 0]));
    let grids: Vec<Vec<i16>> = rows
        .iter()
        .map(|row| row["grid"].chunks(2).map(|bytes| i16::from_le_bytes(bytes.try_into().unwrap())).collect())
        .collect();
    assert_eq!(grids, [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3], [0; 6], [0, 7, 8, 9, 10, 11]]);
    let refused = open(&self::of(&["grid"])).expect("a dataset");
    let told = |row: u64| sample(&*refused, row).expect_err("a null").to_string();
    assert!(told(2).contains("column \"grid\" is null in row 2"), "{}", told(2));
    assert!(told(1).contains("is a list with a null in it in row 1"), "{}", told(1));
    assert_eq!(sample(&*refused, 0).expect("a row")["grid"].len(), 12);
}

/// Floats of [`assert_nulls`]' file as NaN.
fn assert_nan(dataset: &dyn Dataset) {
    let rows = rows(dataset);
    let nan =
        |bytes: &[u8]| bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()).is_nan()).collect();
    assert_eq!(rows[1]["f16"], 0x7e00_u16.to_le_bytes());
    assert_eq!((nan(&rows[0]["f32"]), nan(&rows[1]["f32"])), (vec![false], vec![true]));
    assert!(f64::from_le_bytes(rows[1]["f64"][..].try_into().unwrap()).is_nan());
    assert_eq!(nan(&rows[0]["floats"]), [false, true, true]);
    assert!(rows[1]["floats"].is_empty());
    let pair: Vec<bool> =
        rows[1]["pair"].chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()).is_nan()).collect();
    assert_eq!(pair, [true, true]);
    assert!(f64::from_le_bytes(rows[0]["pair"][8..].try_into().unwrap()).is_nan());
}
