//! HDF5: files that h5py wrote (tests/data/make_hdf5.py), value for value; unreadable datasets, by name; files that
//! are broken anywhere.

mod generated;
mod hostile;
mod people;
mod refused;

use crate::common::direct;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, Options, Shape, UnitId};
use uringload::{Error, ErrorKind};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hdf5").join(name)
}

fn open<P: AsRef<Path>>(path: P, datasets: &[&str]) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[path], &Options::new().format("hdf5").set("tensors", datasets))
}

/// How each column is stored, in words.
fn words(dataset: &dyn Dataset) -> Vec<String> {
    dataset.index().encodings.iter().map(|encoding| encoding.words.clone()).collect()
}

/// The elements from number `first` on as the script writes them.
fn elements(dtype: DType, first: u64, count: u64) -> Vec<u8> {
    (first..first + count).flat_map(|number| element(dtype, number % 251)).collect()
}

/// A whole number up to 250 as an element.
fn element(dtype: DType, number: u64) -> Vec<u8> {
    match dtype {
        DType::F16 => half(number).to_le_bytes().to_vec(),
        DType::F32 => (number as f32).to_le_bytes().to_vec(),
        DType::F64 => (number as f64).to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(number.is_multiple_of(2))],
        _ => number.to_le_bytes()[..dtype.size() as usize].to_vec(),
    }
}

/// Numbers below 2048 are exact in half precision.
fn half(number: u64) -> u16 {
    let number = number as u16;
    match number.checked_ilog2() {
        None => 0,
        Some(exponent) => (exponent as u16 + 15) << 10 | (number << (10 - exponent)) & 0x3ff,
    }
}

/// Reads all rows of all columns of a single file and holds them against what the script wrote.
fn assert_elements(dataset: &dyn Dataset, what: &str) {
    for id in 0..dataset.len() {
        let row = direct::sample(dataset, id).unwrap_or_else(|error| panic!("{what}: {error}"));
        for field in &dataset.schema().fields {
            let Shape::Fixed(shape) = &field.shape else { panic!("{what}: {field:?}") };
            let count = shape.iter().product();
            let expected = elements(field.dtype, id * count, count);
            assert!(row[&field.name] == expected, "{what}: row {id} of {field:?}: {:?}", row[&field.name]);
        }
    }
}

#[test]
fn every_type_and_nothing_of_other_lengths() {
    for form in ["earliest", "latest"] {
        let dataset = open(data(&format!("types-{form}.h5")), &[]).unwrap();
        let fields: Vec<_> = dataset.schema().fields.iter().map(|field| (&field.name[..], field.dtype)).collect();
        let expected = [
            ("numbers/arrays", DType::F32),
            ("numbers/bool", DType::Bool),
            ("numbers/enum", DType::U8),
            ("numbers/f2", DType::F16),
            ("numbers/f4", DType::F32),
            ("numbers/f8", DType::F64),
            ("numbers/i1", DType::I8),
            ("numbers/i2", DType::I16),
            ("numbers/i4", DType::I32),
            ("numbers/i8", DType::I64),
            ("numbers/u1", DType::U8),
            ("numbers/u2", DType::U16),
            ("numbers/u4", DType::U32),
            ("numbers/u8", DType::U64),
        ];
        assert_eq!(fields, expected, "{form}");
        let shape = |number: usize| dataset.schema().fields[number].shape.clone();
        assert_eq!((shape(0), shape(2)), (Shape::Fixed(vec![2, 3]), Shape::Fixed(vec![])));
        assert_eq!((dataset.len(), dataset.shards()), (5, &[5][..]));
        assert_elements(&*dataset, form);
        let [skipped] = &dataset.index().left_out[..] else { panic!("{:?}", dataset.index().left_out) };
        assert_eq!((skipped.count, skipped.first.ends_with("other/names")), (2, true), "{skipped:?}");
        assert!(dataset.units().is_none() && dataset.index().plain_field.is_none());
    }
    let one = open(data("types-latest.h5"), &["/numbers/f4"]).unwrap();
    assert_eq!((one.index().plain_field, one.largest(2), one.bytes()), (Some(0), 24, 60));
}

#[test]
fn every_layout_and_filter() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("layouts-{form}.h5"));
        let all = open(&file, &[]).unwrap();
        assert_eq!((all.len(), all.schema().fields.len()), (11, 14));
        assert_elements(&*all, form);
        // As the tallest chunks have them.
        assert_eq!(all.shards(), [4, 8, 11]);
        let encodings: Vec<_> = all.schema().fields.iter().map(|field| &field.name[..]).zip(words(&*all)).collect();
        let expected = [
            ("all", "chunks of [4, 3, 4], shuffle, gzip, fletcher32"),
            ("bzip2", "chunks of [4, 6, 4], bz2"),
            ("checked", "chunks of [4, 6, 4], fletcher32"),
            ("checked_first", "chunks of [4, 6, 4], fletcher32, shuffle, gzip"),
            ("chunked", "chunks of [4, 6, 4]"),
            ("contiguous", "contiguous"),
            ("gzip", "chunks of [4, 6, 4], shuffle, gzip"),
            ("gzip_split", "chunks of [3, 4, 3], shuffle, gzip"),
            ("labels", "contiguous"),
            ("lz4", "chunks of [4, 6, 4], lz4"),
            ("lzf", "chunks of [4, 6, 4], lzf"),
            ("split", "chunks of [4, 4, 3]"),
            ("wide", "chunks of [4, 8, 4]"),
            ("zstd", "chunks of [4, 6, 4], zstd"),
        ];
        assert_eq!(encodings, expected.map(|(name, encoding)| (name, encoding.to_owned())), "{form}");
        for (name, _) in expected {
            let one = open(&file, &[name]).unwrap();
            assert_elements(&*one, name);
            let is_direct = matches!(name, "chunked" | "contiguous" | "labels" | "wide");
            assert_eq!((one.units().is_none(), one.index().plain_field.is_some()), (is_direct, is_direct), "{name}");
        }
    }
}

#[test]
fn units_are_the_rows_of_chunks() {
    let dataset = open(data("layouts-latest.h5"), &["labels", "gzip_split", "gzip"]).unwrap();
    let units = dataset.units().unwrap();
    // Bands of 3 rows and of 4.
    assert_eq!((units.count(), units.largest_decoded()), (4 + 3, 4 * 96));
    let mut of = Vec::new();
    units.of(uringload::dataset::SampleId(8), &mut of);
    assert_eq!(of, [UnitId(2), UnitId(4 + 2)]);
    assert_eq!((0..7).map(|unit| units.decoded_bytes(UnitId(unit))).sum::<u64>(), 2 * 11 * 96);
    let stored = |unit| {
        let mut spans = Vec::new();
        units.stored(UnitId(unit), &mut spans);
        spans.len()
    };
    assert_eq!((stored(0), stored(3), stored(6)), (4, 4, 1));
    assert!((0..7).all(|unit| direct::decoded(&*dataset, units, UnitId(unit)).is_ok()));
    // What is cut from units is no span.
    assert_eq!(dataset.largest(1), 8);
}

#[test]
fn every_index_of_chunks() {
    for (form, indices) in [("earliest", 11), ("latest", 11), ("newest", 11)] {
        let dataset = open(data(&format!("indices-{form}.h5")), &[]).unwrap();
        assert_eq!((dataset.len(), dataset.schema().fields.len()), (40, indices), "{form}");
        assert_elements(&*dataset, form);
    }
}

#[test]
fn indices_of_several_levels() {
    let file = data("many-latest.h5");
    let dataset = open(&file, &["fixed", "extensible", "tree"]).unwrap();
    assert_eq!(dataset.len(), 3000);
    assert_elements(&*dataset, "many");
    for (name, written) in [("sparse", &[(2000, 9)][..]), ("grown", &[(1500, 8), (159_999, 9)])] {
        let dataset = open(&file, &[name]).unwrap();
        for id in (0..dataset.len()).step_by(77).chain(written.iter().map(|(id, _)| *id)) {
            let value = written.iter().find(|(at, _)| *at == id).map_or(7, |(_, value)| *value);
            assert_eq!(direct::sample(&*dataset, id).unwrap()[name], [value], "row {id} of {name}");
        }
    }
}

#[test]
fn chunks_that_were_never_written_are_filled() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("filled-{form}.h5"));
        let dataset = open(&file, &[]).unwrap();
        assert_eq!(dataset.schema().fields.len(), 3, "{form}");
        for (id, row) in direct::samples(&*dataset).into_iter().map(Result::unwrap).enumerate() {
            let mut partly = [-5_i16; 4];
            partly[1] = if id == 4 { 77 } else { -5 };
            assert_eq!(row["partly"], partly.map(i16::to_le_bytes).concat(), "{form}, row {id}");
            assert_eq!(row["nothing"], [0; 16], "{form}, row {id}");
            assert_eq!(row["shrunk"], elements(DType::I16, id as u64 * 4, 4), "{form}, row {id}");
        }
    }
}

#[test]
fn edges_that_went_through_no_filter() {
    let dataset = open(data("plain_edges-latest.h5"), &[]).unwrap();
    assert_eq!(words(&*dataset), ["chunks of [4, 3], gzip"]);
    assert_elements(&*dataset, "edges");
}

#[test]
fn groups_and_links() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("groups-{form}.h5"));
        let all = open(&file, &[]).unwrap();
        let name = |number: usize| format!("dense/a dataset of number {number:03}");
        let names: Vec<_> = all.schema().fields.iter().map(|field| field.name.clone()).collect();
        assert_eq!(names, (0..150).map(name).collect::<Vec<_>>(), "{form}");
        assert_elements(&*all, form);
        for path in ["soft", "dense/up", "itself/itself/dense/up", "/dense//a dataset of number 149/"] {
            let one = open(&file, &[path]).unwrap_or_else(|error| panic!("{form}: {path}: {error}"));
            assert_elements(&*one, path);
        }
        let refused = [
            ("circle", ErrorKind::Corrupt, "form a loop"),
            ("outside", ErrorKind::Unavailable, "other.h5"),
            ("dense/absent", ErrorKind::InvalidArgument, "the file has no dataset \"dense/absent\""),
            ("dense", ErrorKind::Unavailable, "not a dataset"),
        ];
        for (path, kind, word) in refused {
            let error = open(&file, &[path]).unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(word), "{form}: {path}: {error:?}");
        }
    }
}

#[test]
fn types_by_name_compact_datasets_and_user_blocks() {
    for form in ["earliest", "latest"] {
        for (name, encodings) in [
            ("named_type", &["contiguous"][..]),
            ("compact", &["contiguous"]),
            ("user_block", &["chunks of [2, 3], gzip, fletcher32", "contiguous"]),
        ] {
            let dataset = open(data(&format!("{name}-{form}.h5")), &[]).unwrap();
            assert_eq!(words(&*dataset), encodings, "{name}");
            assert_elements(&*dataset, name);
        }
    }
}

#[test]
fn several_files_are_one_behind_the_other() {
    let files = ["layouts-earliest.h5", "layouts-latest.h5"].map(data);
    let options = Options::new().format("hdf5").set("tensors", ["gzip", "labels"]).threads(2);
    let dataset = dataset::open(&files, &options).unwrap();
    assert_eq!((dataset.len(), dataset.shards()), (22, &[4, 8, 11, 15, 19, 22][..]));
    for (id, row) in direct::samples(&*dataset).into_iter().map(Result::unwrap).enumerate() {
        assert_eq!(row["labels"], elements(DType::I64, id as u64 % 11, 1), "row {id}");
        assert_eq!(row["gzip"], elements(DType::I32, id as u64 % 11 * 24, 24), "row {id}");
    }
    let mut key = Vec::new();
    dataset.key(uringload::dataset::SampleId(12), &mut key);
    assert_eq!(String::from_utf8(key).unwrap(), "layouts-latest.h5#1");
    let files = ["compact-latest.h5", "named_type-latest.h5"].map(data);
    let error = dataset::open(&files, &Options::new().format("hdf5")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("named_type-latest.h5") && error.to_string().contains("f64"), "{error}");
}

#[test]
fn files_are_found_by_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, from: &str| {
        let to = folder.path().join(name);
        fs::copy(data(from), &to).unwrap();
        to
    };
    let shows = |path: PathBuf| detect(&[path], &Options::new()).is_ok_and(|format| format.name == "hdf5");
    assert!(shows(put("x", "small-latest.h5")) && shows(put("x.h5", "user_block-latest.h5")));
    // With another name, what stands in front might be an archive that the file is the first member of.
    assert!(!shows(put("x.tar", "user_block-latest.h5")) && !shows(folder.path().into()));
    assert!(!shows(folder.path().join("absent.h5")));
    fs::remove_file(folder.path().join("x")).unwrap();
    fs::remove_file(folder.path().join("x.tar")).unwrap();
    assert!(shows(folder.path().into()));
    put("y.hdf5", "small-earliest.h5");
    put("readme.txt", "small-earliest.h5");
    let dataset = open(folder.path(), &[]).unwrap();
    assert_eq!((dataset.len(), dataset.index().left_out[0].count), (10, 1));
}

#[test]
fn a_fingerprint_tells_columns_and_files_apart() {
    let of = |name: &str, datasets: &[&str]| open(data(name), datasets).unwrap().fingerprint();
    let first = of("small-latest.h5", &[]);
    assert_eq!(first, of("small-latest.h5", &["x", "y"]));
    let others = [of("small-latest.h5", &["y", "x"]), of("small-latest.h5", &["x"]), of("small-earliest.h5", &[])];
    assert!(others.iter().all(|other| *other != first));
}
