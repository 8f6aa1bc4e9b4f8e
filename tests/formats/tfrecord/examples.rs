//! Examples: which columns there are, and how records differ from the first ones.

use super::writer::{self, features, field, file, floats, frame, integers, strings, varint};
use super::{assert_error, folder, payloads, quiet};
use crate::common::direct::{Row, sample, samples};
use std::sync::Arc;
use uringload::dataset::{self, DType, Dataset, Options, Sample, SampleId, Shape};
use uringload::{Error, ErrorKind};

fn open(records: &[Vec<u8>], options: &Options) -> Result<Arc<dyn Dataset>, Error> {
    let folder = folder(&[("a.tfrecord", &file(records))]);
    dataset::open(&[folder.path()], options)
}

/// The samples of records; errors as text.
fn rows(records: &[Vec<u8>], options: &Options) -> Vec<Result<Row, String>> {
    let folder = folder(&[("a.tfrecord", &file(records))]);
    let dataset = dataset::open(&[folder.path()], options).unwrap();
    let row = |row: Result<Row, Error>| {
        row.map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.path().is_some() && error.offset().is_some() && error.remedy().is_some(), "{error}");
            error.to_string()
        })
    };
    samples(&*dataset).into_iter().map(row).collect()
}

fn row(values: &[(&str, &[u8])]) -> Row {
    values.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

fn numbers(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn reals(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn asked(fields: &[&str]) -> Options {
    quiet().set("fields", fields)
}

fn label(value: i64) -> Vec<u8> {
    features(&[("label", integers(&[value]))])
}

/// Every way in which protobuf lets the same features be written.
#[test]
fn every_encoding_of_the_same_features() {
    let wanted = row(&[("i", &numbers(&[1, -1, i64::MIN])), ("f", &reals(&[0.5, -2.0])), ("s", b"text")]);
    let plain = features(&[
        ("i", integers(&[1, -1, i64::MIN])),
        ("f", floats(&reals(&[0.5, -2.0]))),
        ("s", strings(&[b"text"])),
    ]);
    let unpacked_i: Vec<u8> =
        [1, -1, i64::MIN].iter().flat_map(|&n: &i64| [vec![0x08], varint(n as u64)].concat()).collect();
    let unpacked_f: Vec<u8> = [0.5_f32, -2.0].iter().flat_map(|n| [&[0x0d][..], &n.to_le_bytes()].concat()).collect();
    let entry = |name: &[u8], feature: &[u8]| field(1, &[field(1, name), field(2, feature)].concat());
    let unpacked = field(
        1,
        &[entry(b"s", &strings(&[b"text"])), entry(b"i", &field(3, &unpacked_i)), entry(b"f", &field(2, &unpacked_f))]
            .concat(),
    );
    // Lists in pieces, packed and not; a value in front of its name; features in two messages; unknown fields.
    let pieces_i =
        [field(3, &field(1, &[1])), field(3, &[&[0x08][..], &varint(u64::MAX), &field(1, &varint(1 << 63))].concat())];
    let pieces_f = field(2, &[field(1, &reals(&[0.5])), vec![], field(1, &reals(&[-2.0]))].concat());
    let unknown =
        [&field(15, b"?")[..], &[14 << 3, 5], &[13 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8], &[12 << 3 | 5, 1, 2, 3, 4]]
            .concat();
    let swapped = field(1, &[field(2, &strings(&[b"text"])), unknown.clone(), field(1, b"s")].concat());
    let odd = [
        unknown.clone(),
        field(
            1,
            &[swapped, unknown.clone(), entry(b"i", &[&pieces_i[0][..], &unknown, &pieces_i[1]].concat())].concat(),
        ),
        field(1, &entry(b"f", &[pieces_f, unknown.clone()].concat())),
    ]
    .concat();
    // Of two features of one name, and of two lists of one feature, the last counts.
    let twice = features(&[
        ("i", strings(&[b"no number"])),
        ("f", integers(&[3])),
        ("s", strings(&[b"a", b"b"])),
        ("f", [integers(&[3]), floats(&reals(&[9.0])), integers(&[4]), floats(&reals(&[0.5, -2.0]))].concat()),
        ("s", [strings(&[b"gone"]), integers(&[1]), strings(&[b"text"])].concat()),
        ("i", integers(&[1, -1, i64::MIN])),
    ]);
    for (number, found) in rows(&[plain, unpacked, odd, twice], &quiet()).into_iter().enumerate() {
        assert_eq!(found.as_ref(), Ok(&wanted), "record {number}");
    }
}

/// A later record of another kind is an error of that sample, and names the feature.
#[test]
fn records_that_are_not_like_the_first() {
    let mut records = vec![label(7); 16];
    let odd = [
        (features(&[("label", strings(&[b"7"]))]), "\"label\" is a bytes_list, not a int64_list"),
        (features(&[("other", integers(&[7]))]), "no feature \"label\""),
        (features(&[("label", vec![])]), "no feature \"label\""),
        (vec![], "no feature \"label\""),
        (vec![0x0a], "ends within a number"),
        (vec![0x0a, 5, 0], "claims 5 bytes, and the message has 1"),
        (features(&[("label", field(3, &field(1, &[0xff; 9])))]), "ends within a number"),
        (features(&[("label", field(3, &field(1, &[0xff; 10])))]), "more than 64 bits"),
        (features(&[("label", field(3, &[&[0x08][..], &[0x80; 11]].concat()))]), "more than 64 bits"),
        (features(&[("label", field(3, &[0x08, 0x80]))]), "ends within a number"),
        ([label(7), field(2, b"")].concat(), "SequenceExample"),
        ([label(7), vec![0x0b]].concat(), "wire type 3"),
    ];
    records.extend(odd.iter().map(|(record, _)| record.clone()));
    records.push(label(-1));
    let rows = rows(&records, &quiet());
    assert!(rows[..16].iter().all(|found| found.as_ref() == Ok(&row(&[("label", &numbers(&[7]))]))));
    for ((_, words), found) in odd.iter().zip(&rows[16..]) {
        let error = found.as_ref().unwrap_err();
        assert!(error.contains(words) && error.contains("record "), "{words}: {error}");
    }
    assert_eq!(rows[28], Ok(row(&[("label", &numbers(&[-1]))])));
    let bad_float = features(&[("x", field(2, &field(1, &[0; 7])))]);
    let mut floats_ = vec![features(&[("x", floats(&[0; 4]))]); 16];
    floats_.push(bad_float);
    let error = self::rows(&floats_, &quiet()).pop().unwrap().unwrap_err();
    assert!(error.contains("not a multiple of the 4 bytes of a float"), "{error}");
}

#[test]
fn features_that_some_records_lack() {
    let records =
        [features(&[("a", strings(&[b"x"])), ("n", integers(&[1]))]), features(&[("a", strings(&[]))]), label(1)];
    let empty = asked(&["n", "a"]).set("missing", "empty");
    let found = rows(&records, &empty);
    assert_eq!(found[0], Ok(row(&[("a", b"x"), ("n", &numbers(&[1]))])));
    assert_eq!(found[1..], [Ok(row(&[("a", b""), ("n", b"")])), Ok(row(&[("a", b""), ("n", b"")]))]);
    let strict = rows(&records, &asked(&["a"]));
    assert!(strict[0].is_ok() && strict[1].as_ref().is_err_and(|error| error.contains("no feature \"a\"")));
    // An empty list of numbers is a value.
    let lists = [features(&[("n", integers(&[])), ("f", floats(&[]))])];
    assert_eq!(rows(&lists, &quiet()), [Ok(row(&[("n", b""), ("f", b"")]))]);
    let fixed = empty.set("fixed", ["n:"]);
    assert!(rows(&records, &fixed)[1].as_ref().is_err_and(|error| error.contains("no feature \"n\"")));
}

#[test]
fn values_of_one_shape() {
    let box_ = |count: usize| features(&[("box", floats(&[1; 4].repeat(count))), ("n", integers(&vec![5; count - 3]))]);
    let fixed = |n: &str| quiet().set("fixed", ["box:2x2", n]);
    let folder = folder(&[("a.tfrecord", &file(&[box_(4), box_(5)]))]);
    let dataset = dataset::open(&[folder.path()], &fixed("n:")).unwrap();
    let shapes: Vec<_> = dataset.schema().fields.iter().map(|field| (field.dtype, field.shape.clone())).collect();
    assert_eq!(shapes, [(DType::F32, Shape::Fixed(vec![2, 2])), (DType::I64, Shape::Fixed(vec![]))]);
    assert_eq!((dataset.length(SampleId(0), 0), dataset.length(SampleId(0), 1)), (Some(4), Some(1)));
    assert_eq!(sample(&*dataset, 0).unwrap(), row(&[("box", &[1; 16]), ("n", &numbers(&[5]))]));
    assert_error(
        sample(&*dataset, 1),
        ErrorKind::Corrupt,
        &["\"box\" has 5 values, which do not make the shape [2, 2]"],
    );
    assert_ne!(dataset.fingerprint(), dataset::open(&[folder.path()], &quiet()).unwrap().fingerprint());
    let vector = dataset::open(&[folder.path()], &fixed("n:1")).unwrap();
    assert_eq!(sample(&*vector, 0).unwrap()["n"], numbers(&[5]));
    let refused = |fixed: &str| {
        let record = features(&[("box", floats(&[])), ("s", strings(&[b""]))]);
        open(&[record], &quiet().set("fixed", fixed))
    };
    assert_error(
        refused("none:"),
        ErrorKind::InvalidArgument,
        &["\"none\", which is no column", "choose from the features box, s"],
    );
    assert_error(refused("s:"), ErrorKind::InvalidArgument, &["\"s\", which is bytes"]);
    assert_error(refused("box:4294967296x4294967296"), ErrorKind::InvalidArgument, &["2^61"]);
}

#[test]
fn which_records_are_examples() {
    let examples = quiet().set("examples", true);
    let names = |records: &[Vec<u8>]| -> Vec<String> {
        let dataset = open(records, &quiet()).unwrap();
        dataset.schema().fields.iter().map(|field| field.name.clone()).collect()
    };
    assert_eq!(names(&[label(1), features(&[("b", strings(&[b"x"]))])]), ["b", "label"], "of all first records");
    for other in [
        vec![b"plain text".to_vec()],
        vec![vec![]],
        vec![field(1, b"")],
        vec![features(&[("label", vec![])])],
        vec![label(1), b"text".to_vec()],
        vec![label(1), features(&[("label", strings(&[b"x"]))])],
        vec![features(&[("x", field(3, &field(1, &[0xff; 10])))])],
        vec![field(1, &field(1, &[field(1, b"\xff"), field(2, &integers(&[1]))].concat()))],
    ] {
        assert_eq!(names(&other), ["record"], "{other:?}");
        assert_error(open(&other, &examples), ErrorKind::Corrupt, &["tf.train.Example", "as bytes"]);
    }
    let several = features(&[("boxes", strings(&[b"a", b"b", b"c"])), ("label", integers(&[1]))]);
    let error = open(std::slice::from_ref(&several), &quiet());
    assert_error(error, ErrorKind::Unavailable, &["\"boxes\" is a list of 3 byte strings", "a.tfrecord"]);
    assert_eq!(rows(std::slice::from_ref(&several), &asked(&["label"])), [Ok(row(&[("label", &numbers(&[1]))]))]);
    let first = features(&[("boxes", strings(&[b"a"]))]);
    let many = [vec![first; 16], vec![several]].concat();
    assert!(rows(&many, &quiet())[16].as_ref().is_err_and(|error| error.contains("list of 3 byte strings")));
    for (fields, words) in [(&["none"][..], "no feature \"none\""), (&["label", "label"], "twice")] {
        assert_error(open(&[label(1)], &asked(fields)), ErrorKind::InvalidArgument, &[words]);
    }
    let bytes = asked(&["label"]).set("whole_records", true);
    assert_error(open(&[label(1)], &bytes), ErrorKind::InvalidArgument, &["features are named"]);
    let torn = features(&[("a\n\x1bb", integers(&[1]))]);
    assert_error(open(&[torn], &asked(&["c"])), ErrorKind::InvalidArgument, &["choose from the features a\\n\\u{1b}b"]);
}

/// A first record that is damaged does not decide, and neither does it keep the others from being read.
#[test]
fn a_damaged_first_record_tells_nothing() {
    let mut bytes = [frame(&label(1)), frame(&label(2))].concat();
    bytes[14] ^= 1;
    let folder = folder(&[("a.tfrecord", &bytes)]);
    let dataset = dataset::open(&[folder.path()], &quiet()).unwrap();
    assert_eq!(dataset.schema().fields[0].name, "label");
    assert_error(sample(&*dataset, 0), ErrorKind::Corrupt, &["record 0: its checksum is"]);
    assert_eq!(sample(&*dataset, 1).unwrap(), row(&[("label", &numbers(&[2]))]));
    let unchecked = quiet().set("verify_crc", false).set("whole_records", true);
    let unchecked = dataset::open(&[folder.path()], &unchecked).unwrap();
    assert_eq!(payloads(&*unchecked)[0].as_ref().unwrap().len(), label(1).len());
}

/// Strings and floats are slices of what was read, wherever they lie.
#[test]
fn only_integers_are_copied() {
    let record = features(&[("f", floats(&[1; 400])), ("s", strings(&[&[2; 300]]))]);
    let folder = folder(&[("a.tfrecord", &file(&[&record]))]);
    let dataset = dataset::open(&[folder.path()], &quiet()).unwrap();
    let raw = bytes::Bytes::from([&record[..], &writer::frame(&record)[12 + record.len()..]].concat());
    let mut sample = Sample::default();
    dataset.parse(SampleId(0), std::slice::from_ref(&raw), &mut sample).unwrap();
    let within = raw.as_ptr_range();
    for value in sample.values {
        let uringload::dataset::Value::Bytes(bytes) = value else { panic!("bytes") };
        assert!(bytes.len() >= 300 && within.contains(&bytes.as_ptr()), "a slice");
    }
}
