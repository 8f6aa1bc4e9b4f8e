//! Arrays in files of NumPy's and safetensors' formats: what the reference writers wrote comes out byte for byte, by
//! every engine, and what cannot be delivered is refused with its place and a remedy.

use super::zip::archive;
use crate::common::check::{WAYS, conforms, ways_to};
use crate::common::content::{content, write_file};
use crate::common::direct::{Row, decoded, place, sample, samples};
use crate::common::within;
use crate::formats::memory::Limit;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::Loader;
use uringload::batch::Data;
use uringload::config::{Collate, EngineChoice, IoChoice};
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, FileId, Options, SampleId, Shape, UnitId};
use uringload::inspect::{Sequential, Shuffled};

const BOUND: Duration = Duration::from_secs(120);

/// A file by a reference writer, see tests/data/make_arrays.py.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrays").join(name)
}

fn options(samples: &str, names: &[&str]) -> Options {
    Options::new().set("samples", samples).set("tensors", names).threads(2)
}

fn files() -> Options {
    Options::new().set("samples", "files")
}

fn rows() -> Options {
    options("rows", &[])
}

fn open(format: &str, name: &str, options: &Options) -> Arc<dyn Dataset> {
    dataset::open(&[data(name)], &options.clone().format(format)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The elements from, from + 1, ... as bytes of a type.
fn elements(dtype: DType, from: u64, count: u64) -> Vec<u8> {
    let element = |number: u64| match dtype {
        DType::Bool => vec![u8::from(number != 0)],
        DType::F16 => {
            // Whole numbers below 2048 are exact: the mantissa's bits after the first.
            let bits = if number == 0 { 0 } else { (number.ilog2() + 15) << 10 | half_mantissa(number) };
            (bits as u16).to_le_bytes().to_vec()
        }
        DType::F32 => (number as f32).to_le_bytes().to_vec(),
        DType::F64 => (number as f64).to_le_bytes().to_vec(),
        _ => number.to_le_bytes()[..dtype.size() as usize].to_vec(),
    };
    (from..from + count).flat_map(element).collect()
}

fn half_mantissa(number: u64) -> u32 {
    ((number << 10 >> number.ilog2()) & 0x3ff) as u32
}

/// Every value of every sample, by number, as the loader delivers them.
fn read(dataset: &Arc<dyn Dataset>, (engine, io): (EngineChoice, IoChoice)) -> Vec<Vec<Vec<u8>>> {
    let mut samples = vec![Vec::new(); dataset.len() as usize];
    let loader = Loader::builder(Arc::clone(dataset)).batch_size(4).shuffle(true).engine(engine).io(io).epochs(1);
    for batch in loader.build().unwrap_or_else(|error| panic!("{engine:?} {io:?}: {error}")) {
        let batch = batch.unwrap_or_else(|error| panic!("{engine:?} {io:?}: {error}"));
        for (index, id) in batch.ids.iter().enumerate() {
            let values = batch.columns.iter().map(|column| match &column.data {
                Data::Views(views) => views[index].to_vec(),
                _ => column.bytes_of(index).expect("a value").to_vec(),
            });
            samples[id.0 as usize] = values.collect();
        }
    }
    samples
}

/// Reads a dataset by every way and compares with what is wanted.
fn delivers(dataset: Arc<dyn Dataset>, wanted: &[Vec<Vec<u8>>]) {
    for way in ways_to(&dataset) {
        assert_eq!(read(&dataset, way), wanted, "{way:?}");
    }
}

fn fixed(dataset: &dyn Dataset) -> Vec<(String, DType, Option<Vec<u64>>)> {
    let shape = |shape: &Shape| match shape {
        Shape::Fixed(shape) => Some(shape.clone()),
        Shape::Ragged => None,
    };
    dataset.schema().fields.iter().map(|field| (field.name.clone(), field.dtype, shape(&field.shape))).collect()
}

fn keys(dataset: &dyn Dataset) -> Vec<String> {
    let key = |id| {
        let mut key = Vec::new();
        dataset.key(SampleId(id), &mut key);
        String::from_utf8(key).unwrap()
    };
    (0..dataset.len()).map(key).collect()
}

const PLAIN: [(&str, DType); 12] = [
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

#[test]
fn every_plain_type_of_numpy_comes_out_whole_and_by_rows() {
    within(BOUND, || {
        for (name, dtype) in PLAIN {
            let file = format!("plain_{name}.npy");
            let whole = open("npy", &file, &files());
            assert_eq!(fixed(&*whole), [("data".to_owned(), dtype, Some(vec![3, 4]))], "{name}");
            assert_eq!((whole.len(), whole.bytes(), whole.index().plain_field), (1, 12 * dtype.size(), Some(0)));
            assert!(whole.shards().is_empty());
            delivers(whole, &[vec![elements(dtype, 0, 12)]]);
            let by_rows = open("npy", &file, &rows());
            assert_eq!(fixed(&*by_rows), [("data".to_owned(), dtype, Some(vec![4]))], "{name}");
            assert_eq!((by_rows.shards(), by_rows.length(SampleId(2), 0)), (&[3][..], Some(4)));
            delivers(by_rows, &[0, 4, 8].map(|from| vec![elements(dtype, from, 4)]));
        }
    });
}

#[test]
fn versions_scalars_and_both_orders_at_once() {
    let golden = open("npy", "golden.npy", &files());
    let mut spans = Vec::new();
    golden.spans(SampleId(0), &mut spans);
    assert_eq!((spans[0].offset, spans[0].len, golden.files().size(FileId(0))), (128, 12, 140));
    assert_eq!(&fs::read(data("golden.npy")).unwrap()[..10], b"\x93NUMPY\x01\0\x76\0");
    delivers(golden, &[vec![elements(DType::I32, 0, 3)]]);
    for version in 1..=3 {
        delivers(open("npy", &format!("version_{version}.npy"), &files()), &[vec![elements(DType::U16, 0, 6)]]);
    }
    let scalar = open("npy", "scalar.npy", &files());
    assert_eq!(fixed(&*scalar), [("data".to_owned(), DType::F64, Some(vec![]))]);
    delivers(scalar, &[vec![elements(DType::F64, 7, 1)]]);
    let empty = open("npy", "empty.npy", &files());
    assert_eq!((empty.len(), empty.bytes(), empty.shape(SampleId(0), 0)), (1, 0, Some(&[0, 5][..])));
    delivers(empty, &[vec![vec![]]]);
    delivers(open("npy", "fortran_column.npy", &files()), &[vec![elements(DType::I32, 0, 5)]]);
    let no_rows = dataset::open(&[data("empty.npy")], &rows().format("npy")).unwrap_err();
    assert_eq!(no_rows.kind(), ErrorKind::Empty, "{no_rows}");
    let scalar_rows = dataset::open(&[data("scalar.npy")], &rows().format("npy")).unwrap_err();
    assert_eq!(scalar_rows.kind(), ErrorKind::InvalidArgument, "{scalar_rows}");
    assert_eq!(scalar_rows.path(), Some(&*data("scalar.npy")));
}

#[test]
fn what_cannot_be_delivered_is_refused_with_file_place_and_remedy() {
    let refused = [
        ("npy", "bad_object.npy", "pickle"),
        ("npy", "bad_structured.npy", "structures"),
        ("npy", "bad_complex.npy", "<c8"),
        ("npy", "bad_text.npy", "<U2"),
        ("npy", "bad_time.npy", "<M8[D]"),
        ("npz", "bad_bzip2.npz", "\"x.npy\" is compressed with bzip2"),
        ("npz", "bad_lzma.npz", "\"x.npy\" is compressed with lzma"),
        ("npz", "bad_object_beside.npz", "pickle"),
        ("npz", "other.npz", "readme.txt"),
    ];
    for (format, name, word) in refused {
        let error = dataset::open(&[data(name)], &files().format(format)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(word), "{word} in {error}");
        assert!(error.path() == Some(&*data(name)) && error.offset().is_some() && error.remedy().is_some(), "{error}");
    }
    // What is not wanted is not in the way.
    let one = open("npz", "bad_object_beside.npz", &options("files", &["x"]));
    delivers(one, &[vec![elements(DType::F32, 0, 18)]]);
}

/// In Fortran order an array is a unit, which is put in order as a whole; big endian numbers alone are turned one by
/// one.
#[test]
fn other_orders_arrive_as_everybody_expects() {
    within(BOUND, || {
        for (name, dtype, shape, units) in [
            ("fortran.npy", DType::I32, &[3, 4][..], true),
            ("fortran_deep.npy", DType::I16, &[3, 4, 2, 5], true),
            ("big_endian.npy", DType::F32, &[3, 4], false),
        ] {
            let whole = open("npy", name, &files());
            let count: u64 = shape.iter().product();
            assert_eq!(fixed(&*whole), [("data".to_owned(), dtype, Some(shape.to_vec()))], "{name}");
            assert_eq!((whole.units().is_some(), whole.index().plain_field), (units, None), "{name}");
            assert_eq!(direct(&*whole), [vec![elements(dtype, 0, count)]], "{name}");
            let by_rows = open("npy", name, &rows());
            let row = count / 3;
            assert_eq!(direct(&*by_rows), [0, 1, 2].map(|at| vec![elements(dtype, at * row, row)]), "{name}");
            assert!(by_rows.index().parse_reads_bytes);
            delivers(whole, &[vec![elements(dtype, 0, count)]]);
            delivers(by_rows, &[0, 1, 2].map(|at| vec![elements(dtype, at * row, row)]));
        }
        for name in ["orders.npz", "orders_deflated.npz"] {
            let of = |row, rows| {
                vec![
                    elements(DType::F32, row * 3, rows * 3),
                    elements(DType::I64, row, rows),
                    elements(DType::U16, row * 6, rows * 6),
                ]
            };
            let whole = open("npz", name, &options("files", &["f", "b", "fb"]));
            assert_eq!(direct(&*whole), [of(0, 6)], "{name}");
            let by_rows = open("npz", name, &options("rows", &["f", "b", "fb"]));
            assert_eq!(direct(&*by_rows), [0, 1, 2, 3, 4, 5].map(|row| of(row, 1)), "{name}");
            delivers(by_rows, &[0, 1, 2, 3, 4, 5].map(|row| of(row, 1)));
        }
    });
}

/// Bytes before an archive are not counted by its offsets.
#[test]
fn an_archive_behind_something_else() {
    for name in ["before.npz", "wide_before.npz"] {
        assert_eq!(&fs::read(data(name)).unwrap()[..4], b"#!/b", "{name}");
        let whole = open("npz", name, &options("files", &["x", "y"]));
        assert_eq!(direct(&*whole), [vec![elements(DType::F32, 0, 18), elements(DType::I64, 0, 6)]], "{name}");
        let mut checks = Vec::new();
        whole.checks(FileId(0), &mut checks).unwrap();
        assert_eq!(checks.len(), 2);
    }
}

/// By default, a file of tensors of several types is one, with a column for each.
#[test]
fn tensors_of_several_types_are_columns() {
    let whole = dataset::open(&[data("tensors.safetensors")], &Options::new()).unwrap();
    let wanted = [
        ("a".to_owned(), DType::F32, Some(vec![2, 3])),
        ("b".to_owned(), DType::F32, Some(vec![4])),
        ("c".to_owned(), DType::I64, Some(vec![2, 5])),
    ];
    let mut found = fixed(&*whole);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!((whole.len(), found), (1, wanted.to_vec()));
    // Whoever says so gets the tensors, or the reason why not.
    let options = Options::new().format("safetensors").set("samples", "arrays");
    let error = dataset::open(&[data("tensors.safetensors")], &options).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("one type"), "{error}");
}

#[test]
fn archives_have_a_column_for_each_array() {
    within(BOUND, || {
        for name in ["stored.npz", "wide.npz"] {
            let whole = open("npz", name, &files());
            assert_eq!(
                fixed(&*whole),
                [("x".to_owned(), DType::F32, Some(vec![6, 3])), ("y".to_owned(), DType::I64, Some(vec![6]))]
            );
            assert_eq!((keys(&*whole), whole.index().plain_field), (vec![name.to_owned()], None));
            delivers(whole, &[vec![elements(DType::F32, 0, 18), elements(DType::I64, 0, 6)]]);
            let by_rows = open("npz", name, &options("rows", &["y", "x"]));
            assert_eq!(keys(&*by_rows)[5], format!("{name}#5"));
            let row = |row| vec![elements(DType::I64, row, 1), elements(DType::F32, row * 3, 3)];
            delivers(by_rows, &[0, 1, 2, 3, 4, 5].map(row));
        }
        delivers(
            open("npz", "other.npz", &options("rows", &["x"])),
            &[0, 1, 2, 3, 4, 5].map(|row| vec![elements(DType::F32, row * 3, 3)]),
        );
        let error = dataset::open(&[data("stored.npz")], &options("files", &["z"]).format("npz"));
        let error = error.unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("choose one of x, y"),
            "{error}"
        );
        let twice = dataset::open(&[data("stored.npz")], &options("files", &["x", "x"]).format("npz"));
        assert_eq!(twice.unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}

/// The values of every sample, each read and decoded by itself.
fn direct(dataset: &dyn Dataset) -> Vec<Vec<Vec<u8>>> {
    let values = |mut row: Row| dataset.schema().fields.iter().map(|field| row.remove(&field.name).unwrap()).collect();
    samples(dataset).into_iter().map(|row| values(row.unwrap_or_else(|error| panic!("{error}")))).collect()
}

/// The units of a sample, and number and bytes of its spans.
fn read_by(dataset: &dyn Dataset, id: u64) -> (Vec<UnitId>, usize, u64) {
    let (mut units, mut spans) = (Vec::new(), Vec::new());
    dataset.units().expect("deflated arrays are units").of(SampleId(id), &mut units);
    dataset.spans(SampleId(id), &mut spans);
    (units, spans.len(), spans.iter().map(|span| span.len).sum())
}

#[test]
fn deflated_arrays_are_units() {
    let (x, y) = (elements(DType::F32, 0, 18), elements(DType::I64, 0, 6));
    let row = |row| vec![elements(DType::F32, row * 3, 3), elements(DType::I64, row, 1)];
    let by_rows: Vec<_> = (0..6).map(row).collect();
    let whole = open("npz", "deflated.npz", &files());
    assert_eq!(fixed(&*whole), fixed(&*open("npz", "stored.npz", &files())));
    assert_eq!(direct(&*whole), [vec![x.clone(), y.clone()]]);
    assert_eq!((whole.bytes(), whole.largest(1), whole.index().plain_field), (120, 0, None));
    let units = whole.units().unwrap();
    // A header of 128 bytes before each array.
    assert_eq!((units.count(), units.decoded_bytes(UnitId(0)), units.decoded_bytes(UnitId(1))), (2, 200, 176));
    assert_eq!(
        (units.largest_decoded(), decoded(&*whole, units, UnitId(1)).unwrap().slice(128..)),
        (200, y.clone().into())
    );
    let rows_of = open("npz", "deflated.npz", &rows());
    assert_eq!((rows_of.shards(), direct(&*rows_of)), (&[6][..], by_rows.clone()));
    assert_eq!(read_by(&*rows_of, 4), (vec![UnitId(0), UnitId(1)], 0, 0));
    let arrays = open("npz", "deflated.npz", &options("arrays", &["y"]));
    assert_eq!((direct(&*arrays), keys(&*arrays)), (vec![vec![y.clone()]], vec!["deflated.npz#y".to_owned()]));
    assert_eq!(open("npz", "stored.npz", &files()).units().map(|units| units.count()), None);

    // One deflated and one stored in an archive, in either order.
    let mixed = open("npz", "mixed.npz", &options("files", &["y", "x"]));
    assert_eq!(direct(&*mixed), [vec![y.clone(), x.clone()]]);
    assert_eq!((read_by(&*mixed, 0), mixed.largest(1), mixed.largest(9)), ((vec![UnitId(0)], 1, 48), 48, 48));
    let mixed = open("npz", "mixed.npz", &rows());
    assert_eq!((direct(&*mixed), read_by(&*mixed, 5)), (by_rows.clone(), (vec![UnitId(0)], 1, 8)));
    assert_eq!((mixed.largest(1), mixed.largest(4), mixed.largest(6)), (8, 32, 48));
    let stored = open("npz", "mixed.npz", &options("files", &["y"]));
    assert!(stored.units().is_none() && stored.index().plain_field == Some(0), "what is not wanted is no unit");

    // Archives of both kinds in a dataset.
    let names = ["deflated.npz", "mixed.npz", "stored.npz"];
    let all = dataset::open(&names.map(data), &rows().format("npz")).unwrap();
    assert_eq!(direct(&*all), [&by_rows[..]; 3].concat());
    assert_eq!((all.units().unwrap().count(), all.bytes()), (3, 360));
    assert_eq!([0, 6, 12].map(|id| read_by(&*all, id).1), [0, 1, 2]);
    assert_eq!((all.largest(1), all.largest(7), all.largest(18)), (20, 6 * 20 + 8, 6 * 28));
    let first = dataset::open(&names.map(data), &files().format("npz")).unwrap();
    assert_eq!(direct(&*first), vec![vec![x, y]; 3]);
    assert_eq!((first.largest(1), first.largest(2), first.largest(3)), (120, 168, 168));
}

/// A large array, of which opening inflates no more than the beginning.
#[test]
fn the_header_of_a_deflated_array_is_all_that_opening_looks_at() {
    let _limit = Limit::new(16 << 20);
    let root = TempDir::new().unwrap();
    let array = [npy_header("|u1", "(1000, 5000)"), content(1, 0, 5_000_000)].concat();
    let (path, mut archive) = (root.path().join("a.npz"), archive(&[("data.npy", &array, true)]));
    // A byte in the middle of what is deflated: nothing that opening sees.
    let middle = archive.len() / 2;
    archive[middle] ^= 0x10;
    fs::write(&path, &archive).unwrap();
    let dataset =
        dataset::open(&[&path], &rows().format("npz").timeout(crate::formats::memory::ON_THIS_THREAD)).unwrap();
    assert_eq!((dataset.len(), dataset.units().unwrap().largest_decoded()), (1000, 5_000_128));
    let error = decoded(&*dataset, dataset.units().unwrap(), UnitId(0)).unwrap_err();
    assert_eq!((error.kind(), error.path(), error.offset()), (ErrorKind::Corrupt, Some(&*path), Some(38)), "{error}");
    assert!(error.to_string().contains("\"data.npy\""), "{error}");
    archive[middle] ^= 0x10;
    fs::write(&path, &archive).unwrap();
    let unit = decoded(&*dataset, dataset.units().unwrap(), UnitId(0)).unwrap();
    assert!(unit == array);
    assert!(sample(&*dataset, 777).unwrap()["data"] == array[128 + 777 * 5000..][..5000]);
}

#[test]
fn tensors_are_samples_or_columns_or_rows() {
    within(BOUND, || {
        let open = |options: &Options| open("safetensors", "tensors.safetensors", options);
        let tensors = open(&options("arrays", &["a", "b"]));
        assert_eq!(fixed(&*tensors), [("data".to_owned(), DType::F32, None)]);
        let mut told = keys(&*tensors);
        told.sort();
        assert_eq!(told, ["tensors.safetensors#a", "tensors.safetensors#b"]);
        assert_eq!((tensors.shards(), tensors.bytes(), tensors.largest(1)), (&[2][..], 40, 24));
        let shapes: Vec<&[u64]> = keys(&*tensors)
            .iter()
            .zip(0..)
            .map(|(key, id)| {
                let shape = tensors.shape(SampleId(id), 0).unwrap();
                assert_eq!(shape, if key.ends_with('a') { &[2, 3][..] } else { &[4] }, "{key}");
                shape
            })
            .collect();
        assert_eq!(shapes.len(), 2);
        let wanted: Vec<_> = shapes.iter().map(|shape| vec![elements(DType::F32, 0, shape.iter().product())]).collect();
        delivers(tensors, &wanted);

        let whole = open(&options("files", &["c", "b", "a"]));
        let columns = vec![elements(DType::I64, 0, 10), elements(DType::F32, 0, 4), elements(DType::F32, 0, 6)];
        delivers(whole, &[columns]);
        delivers(
            open(&options("rows", &["a", "c"])),
            &[0, 1].map(|row| vec![elements(DType::F32, row * 3, 3), elements(DType::I64, row * 5, 5)]),
        );
        let mixed = dataset::open(&[data("tensors.safetensors")], &options("arrays", &[]).format("safetensors"));
        assert!(mixed.unwrap_err().to_string().contains("a column has one type"));
        let unequal = dataset::open(&[data("tensors.safetensors")], &rows().format("safetensors")).unwrap_err();
        assert!(unequal.to_string().contains("rows"), "{unequal}");
    });
}

/// A `.npy` header as NumPy writes it, of 128 bytes.
fn npy_header(descr: &str, shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut header = b"\x93NUMPY\x01\0\x76\0".to_vec();
    header.extend_from_slice(format!("{text:<117}\n").as_bytes());
    assert_eq!(header.len(), 128);
    header
}

/// A `.npy` file whose elements have the content that `content` gives for their place in the file.
fn write_npy(path: &Path, descr: &str, shape: &str, bytes: u64) {
    write_file(path, 128 + bytes).unwrap();
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&npy_header(descr, shape), 0).unwrap();
}

#[test]
fn rows_of_many_files_by_every_engine() {
    within(BOUND, || {
        let root = TempDir::new().unwrap();
        for (name, rows) in [("a.npy", 700_u64), ("b.npy", 0), ("c.npy", 1), ("d.npy", 1500)] {
            write_npy(&root.path().join(name), "|u1", &format!("({rows}, 7, 131)"), rows * 917);
        }
        fs::write(root.path().join("readme.md"), "no array").unwrap();
        let dataset = dataset::open(&[root.path()], &rows().format("npy")).unwrap();
        assert_eq!((dataset.len(), dataset.shards()), (2201, &[700, 700, 701, 2201][..]));
        assert_eq!((dataset.largest(3), dataset.bytes()), (3 * 917, 2201 * 917));
        assert_eq!(place(&*dataset, 701).0, 3);
        assert_eq!(
            (dataset.index().left_out[0].what, dataset.index().left_out[0].count),
            ("files of other formats", 1)
        );
        assert_eq!(fixed(&*dataset), [("data".to_owned(), DType::U8, Some(vec![7, 131]))]);
        for way in WAYS {
            for collate in [Collate::Dense, Collate::Views] {
                let shuffled = Arc::new(Shuffled::new(dataset.len(), 2));
                conforms(Arc::clone(&dataset), shuffled, way, |builder| builder.batch_size(64).collate(collate));
            }
        }
    });
}

#[test]
fn whole_arrays_of_different_shapes_are_ragged() {
    within(BOUND, || {
        let root = TempDir::new().unwrap();
        for (number, rows) in [3_u64, 4096, 0, 250].into_iter().enumerate() {
            let path = root.path().join(format!("{number}.npy"));
            write_npy(&path, "<f4", &format!("({rows}, 3)"), rows * 12);
        }
        let dataset = dataset::open(&[root.path()], &files().format("npy")).unwrap();
        assert_eq!(fixed(&*dataset), [("data".to_owned(), DType::F32, None)]);
        assert_eq!(
            (dataset.shape(SampleId(1), 0), dataset.length(SampleId(1), 0)),
            (Some(&[4096, 3][..]), Some(12_288))
        );
        assert_eq!((dataset.largest(1), dataset.largest(2), dataset.largest(9)), (49_152, 52_152, 52_188));
        for way in WAYS {
            conforms(Arc::clone(&dataset), Arc::new(Sequential::new(4)), way, |builder| builder.batch_size(3));
        }
        // Rows of different lengths: those of the shape that most files have are not the largest.
        write_npy(&root.path().join("wide.npy"), "<f4", "(2, 100)", 800);
        let by_rows = dataset::open(&[root.path()], &rows().format("npy")).unwrap();
        assert_eq!((by_rows.len(), by_rows.largest(1), by_rows.largest(4)), (4351, 400, 824));
        assert_eq!(fixed(&*by_rows)[0].2, None);
    });
}

#[test]
fn files_that_do_not_fit_together_are_named() {
    let root = TempDir::new().unwrap();
    write_npy(&root.path().join("a.npy"), "<f4", "(2,)", 8);
    write_npy(&root.path().join("b.npy"), "<i4", "(2,)", 8);
    let error = dataset::open(&[root.path()], &files().format("npy")).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*root.path().join("b.npy"))));
    let none = dataset::open(&[root.path()], &files().format("safetensors")).unwrap_err();
    assert!(none.kind() == ErrorKind::Empty && none.to_string().contains("2 files of other formats"), "{none}");
    let empty_rows = root.path().join("c.npy");
    write_npy(&empty_rows, "<i4", "(1152921504606846976, 0)", 0);
    let error = dataset::open(&[empty_rows], &rows().format("npy")).unwrap_err();
    assert!(error.to_string().contains("no elements"), "{error}");
}

/// The format that a path shows.
fn shown(path: &Path) -> &'static str {
    detect(&[path], &Options::new()).expect("a format").name
}

#[test]
fn formats_are_told_by_name_and_content() {
    let all = [("golden.npy", "npy"), ("other.npz", "npz")];
    for (name, format) in all.into_iter().chain([("tensors.safetensors", "safetensors")]) {
        assert_eq!(shown(&data(name)), format);
        let root = TempDir::new().unwrap();
        fs::copy(data(name), root.path().join(format!("1.{}", format.to_uppercase()))).unwrap();
        fs::write(root.path().join(".hidden"), "").unwrap();
        assert_eq!(shown(root.path()), format, "a folder of {name}");
        fs::write(root.path().join("label.txt"), "").unwrap();
        assert_eq!(shown(root.path()), format, "not alone");
    }
    let root = TempDir::new().unwrap();
    fs::copy(data("golden.npy"), root.path().join("a.npz")).unwrap();
    for path in [root.path().join("a.npz"), root.path().to_path_buf()] {
        let error = detect(&[&path], &Options::new()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*root.path().join("a.npz"))), "{error}");
        assert!(error.to_string().contains("1 file is called as those of npz"), "{error}");
    }
    let several = detect(&[data("")], &Options::new()).unwrap_err();
    assert!(several.to_string().contains("npy") && several.to_string().contains("npz"), "{several}");
    let absent = detect(&[data("absent.npy")], &Options::new()).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
}

#[test]
fn fingerprints_tell_what_is_read() {
    let of = |name: &str, options: &Options| open("npz", name, options).fingerprint();
    let all = [
        of("stored.npz", &files()),
        of("stored.npz", &rows()),
        of("stored.npz", &options("files", &["x"])),
        of("stored.npz", &options("files", &["y", "x"])),
        of("wide.npz", &files()),
        of("deflated.npz", &files()),
        of("mixed.npz", &files()),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{index}: {all:x?}");
    }
    assert_eq!(all[0], of("stored.npz", &options("files", &["x", "y"])), "the same columns");
    let root = TempDir::new().unwrap();
    fs::copy(data("stored.npz"), root.path().join("stored.npz")).unwrap();
    let moved = dataset::open(&[root.path()], &files().format("npz")).unwrap();
    assert_eq!(moved.fingerprint(), all[0], "a dataset may move");
}
