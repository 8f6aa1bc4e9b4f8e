//! MDS: golden vectors, and what is wrong with an index or a shard.

use super::*;
use crate::formats::memory::Limit;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use uringload::config::OnError;
use uringload::dataset::{self, DType, Dataset, Options, Shape};

/// The shard of the format's description: columns a `ndarray:uint8:2`, x `int`, y `str`; written by MDSWriter.
pub fn golden() -> Vec<u8> {
    let mut config =
        br#"{"column_encodings": ["ndarray:uint8:2", "int", "str"], "column_names": ["a", "x", "y"]"#.to_vec();
    config.extend_from_slice(br#", "column_sizes": [2, 8, null], "compression": null"#);
    config.extend_from_slice(br#", "format": "mds", "hashes": [], "size_limit": null, "version": 2}"#);
    let mut shard = hex("02000000 dc000000 ec000000 fd000000");
    shard.extend_from_slice(&config);
    assert_eq!(shard.len(), 220, "the configuration ends where the first offset points to");
    shard.extend(hex("02000000 0708 0100000000000000 6869"));
    shard.extend(hex("03000000 090a ffffffffffffffff c3a921"));
    shard
}

pub fn golden_rows() -> [Row; 2] {
    [
        row(&[("a", b"\x07\x08"), ("x", &1_i64.to_le_bytes()), ("y", b"hi")]),
        row(&[("a", b"\x09\x0a"), ("x", &(-1_i64).to_le_bytes()), ("y", "é!".as_bytes())]),
    ]
}

/// The entry of a shard in an index.
pub fn entry(name: &str, columns: &[(&str, &str, Option<u64>)], bytes: usize, samples: u64) -> Json {
    json!({
        "column_names": columns.iter().map(|column| column.0).collect::<Vec<_>>(),
        "column_encodings": columns.iter().map(|column| column.1).collect::<Vec<_>>(),
        "column_sizes": columns.iter().map(|column| column.2).collect::<Vec<_>>(),
        "compression": null, "format": "mds", "hashes": [], "size_limit": 67_108_864, "version": 2,
        "raw_data": { "basename": name, "bytes": bytes, "hashes": {} }, "zip_data": null, "samples": samples,
    })
}

pub const GOLDEN: [(&str, &str, Option<u64>); 3] =
    [("a", "ndarray:uint8:2", Some(2)), ("x", "int", Some(8)), ("y", "str", None)];

pub fn index(shards: &[Json]) -> Vec<u8> {
    json!({ "version": 2, "shards": shards }).to_string().into_bytes()
}

/// A shard of these samples, without a configuration.
fn shard(samples: &[&[u8]]) -> Vec<u8> {
    let mut end = 4 + 4 * (samples.len() as u32 + 1);
    let mut shard = (samples.len() as u32).to_le_bytes().to_vec();
    shard.extend(end.to_le_bytes());
    for sample in samples {
        end += sample.len() as u32;
        shard.extend(end.to_le_bytes());
    }
    samples.iter().for_each(|sample| shard.extend_from_slice(sample));
    shard
}

/// A dataset of one shard with one column.
fn one(encoding: &str, size: Option<u64>, samples: &[&[u8]]) -> TempDir {
    let shard = shard(samples);
    let entry = entry("s.mds", &[("v", encoding, size)], shard.len(), samples.len() as u64);
    folder(&[("index.json", &index(&[entry])), ("s.mds", &shard)])
}

pub fn open(root: impl AsRef<Path>) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[root], &Options::new().format("mds").timeout(crate::formats::memory::ON_THIS_THREAD))
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

#[test]
fn golden_shard() {
    let shard = golden();
    assert_eq!(shard.len(), 253);
    let index = index(&[entry("shard.00000.mds", &GOLDEN, shard.len(), 2)]);
    let root = folder(&[("index.json", &index), ("shard.00000.mds", &shard)]);
    let mds = open(root.path()).unwrap();
    assert_eq!((mds.len(), mds.bytes(), mds.largest(1), mds.shards()), (2, 33, 17, &[2][..]));
    let shapes: Vec<_> = mds.schema().fields.iter().map(|field| (field.dtype, field.shape.clone())).collect();
    let fixed = |dims: &[u64]| Shape::Fixed(dims.to_vec());
    assert_eq!(shapes, [(DType::U8, fixed(&[2])), (DType::I64, fixed(&[])), (DType::U8, Shape::Ragged)]);
    assert_eq!(samples(&*mds).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), golden_rows());
    assert_eq!(
        (key(&*mds, 1), mds.length(SampleId(1), 2), mds.index().plain_field),
        ("shard.00000.mds#1".into(), Some(3), None)
    );
    assert_eq!(open(root.path().join("index.json")).unwrap().fingerprint(), mds.fingerprint());
    // From an implementation in another language: a checkpoint stays valid in every later version.
    assert_eq!(mds.fingerprint(), 0xe2c9_3087_e471_0cd7);
    assert!(shows(root.path(), "mds") && shows(root.path().join("*.json"), "mds"));
    assert!(!shows(root.path().join("nothing-*"), "mds") && open(root.path().join("shard.00000.mds")).is_err());
    loads(&mds, &golden_rows());
}

#[test]
fn golden_arrays() {
    for (encoding, bytes) in [("ndarray", "11 08 01 03 0100 0200 2c01"), ("ndarray:int16", "08 01 03 0100 0200 2c01")] {
        let root = one(encoding, None, &[&sized(&hex(bytes))]);
        let mds = open(root.path()).unwrap();
        assert_eq!((mds.schema().fields[0].dtype, &*mds.schema().fields[1].name), (DType::I16, "v.shape"));
        let values = sample(&*mds, 0).unwrap();
        assert_eq!((&values["v"], &values["v.shape"]), (&hex("0100 0200 2c01"), &hex("08 01 03")), "{encoding}");
        assert_eq!(dataset::inspect::array_shape(&values["v.shape"]), Some(vec![1, 3]));
    }
    assert_eq!(dataset::inspect::array_shape(&hex("0a 0001 0002 00")), None);
    assert_eq!(dataset::inspect::array_shape(&hex("0b 0000000000000001 0200000000000000")), Some(vec![1 << 56, 2]));
    assert_eq!(dataset::inspect::array_shape(&[]), None);
}

#[test]
fn one_column_of_one_size_is_plain() {
    let root = one("ndarray:int32:2", Some(8), &[&[1; 8], &[2; 8], &[3; 8]]);
    let mds = open(root.path()).unwrap();
    assert_eq!((mds.index().plain_field, mds.largest(2), mds.length(SampleId(0), 0)), (Some(0), 16, Some(2)));
    let part = bytes_of(&*mds, &[9; 4]);
    assert_eq!(part, [9; 4], "a part of the value is the value");
    let root = one("ndarray:int32:2", Some(8), &[&[1; 8], &[2; 7]]);
    assert_error(open(root.path()), ErrorKind::Corrupt, &["sample 1 has 7 bytes", "s.mds"]);
}

fn bytes_of(dataset: &dyn Dataset, raw: &[u8]) -> Vec<u8> {
    let mut sample = Sample::default();
    dataset.parse(SampleId(0), &[raw.to_vec().into()], &mut sample).unwrap();
    match &sample.values[0] {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::I64(_) => panic!("bytes are bytes"),
    }
}

#[test]
fn samples_that_break_the_format_are_their_own_error() {
    let good = sized(&hex("11 04 02 0100 0200"));
    for (bad, what) in [
        ("10 04 02 0100 0200", "of u16"),
        ("11 08 01 02 0100 0200", "2 dimensions"),
        ("11 04 03 0100 0200", "3 elements of i16 in 4 bytes"),
        ("11 07 ffffffffffffffff 0100", "elements of i16 in 2 bytes"),
        ("0c 04 02 0100", "12 is no type"),
        ("11", "too few"),
        ("", "too few"),
        ("11 fc", "too few"),
    ] {
        let root = one("ndarray", None, &[&good, &sized(&hex(bad)), &good]);
        let mds = open(root.path()).unwrap();
        let error = assert_error(sample(&*mds, 1), ErrorKind::Corrupt, &[what, "s.mds"]);
        assert!(error.offset().is_some(), "{error}");
        assert!(sample(&*mds, 0).is_ok() && sample(&*mds, 2).is_ok());
    }
    for (bad, what) in [("05000000 0102", "past its sample"), ("01000000 0102", "1 bytes"), ("ffffffff 01", "past")] {
        let root = one("bytes", None, &[&sized(b"good"), &hex(bad)]);
        let mds = open(root.path()).unwrap();
        assert_eq!(sample(&*mds, 0).unwrap()["v"], b"good");
        let error = sample_without_length(&*mds, 1).unwrap_err();
        assert!(error.to_string().contains(if what == "1 bytes" { "5 bytes of the 6" } else { what }), "{error}");
    }
    // The first sample is the one that types are learned from.
    let root = one("ndarray", None, &[&sized(&hex("0c 04 02 0100"))]);
    assert_error(open(root.path()), ErrorKind::Corrupt, &["column \"v\"", "12 is no type", "s.mds"]);
}

/// As `sample`, of a sample whose bytes belie its length.
fn sample_without_length(dataset: &dyn Dataset, id: u64) -> Result<(), Error> {
    let mut spans = Vec::new();
    dataset.spans(SampleId(id), &mut spans);
    let mut raw = vec![0; spans[0].len as usize];
    File::open(dataset.files().path(spans[0].file)).unwrap().read_exact_at(&mut raw, spans[0].offset).unwrap();
    dataset.parse(SampleId(id), &[raw.into()], &mut Sample::default())
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    for (encoding, what) in [
        ("pkl", "runs a program"),
        ("tiff", "\"tiff\""),
        ("ndarray:complex64", "complex64"),
        ("ndarray:int8:0", "ndarray:int8:0"),
        ("ndarray:int8:1152921504606846976,1152921504606846976", "1152921504606846976"),
        ("ndarray_", "ndarray_"),
    ] {
        let root = one(encoding, None, &[b"\0\0\0\0"]);
        assert_error(
            open(root.path()),
            ErrorKind::Unavailable,
            &["column \"v\"", what, "s.mds", "write the dataset again"],
        );
    }
    let root = one("int", None, &[&[0; 8]]);
    assert_error(open(root.path()), ErrorKind::Corrupt, &["Some(8)", "None"]);
    for (key, value, what) in [
        ("format", json!("json"), "\"json\""),
        ("version", json!(1), "version 1"),
        ("zip_data", json!({ "basename": "s.mds.zstd", "bytes": 1, "hashes": {} }), "s.mds.zstd"),
    ] {
        let mut entry = entry("s.mds", &GOLDEN, 253, 2);
        entry[key] = value;
        let root = folder(&[("index.json", &index(&[entry]))]);
        assert_error(open(root.path()), ErrorKind::Unavailable, &[what]);
        if key == "zip_data" {
            put(root.path(), "s.mds", &golden());
            assert_eq!(open(root.path()).unwrap().len(), 2, "decompressed beside the compressed one");
        }
    }
}

#[test]
fn shards_that_cannot_be_had_are_named() {
    let entries: Vec<Json> = (0..3).map(|n| entry(&format!("s{n}.mds"), &GOLDEN, 253, 2)).collect();
    let root = folder(&[("index.json", &index(&entries)), ("s0.mds", &golden())]);
    assert_error(open(root.path()), ErrorKind::NotFound, &["s1.mds", "2 of 3 shards"]);
    fs::create_dir(root.path().join("s1.mds")).unwrap();
    assert_error(open(root.path()), ErrorKind::WrongFileType, &["s1.mds"]);
    for (names, what) in [
        (["s0.mds", "s0.mds"], "twice"),
        (["s0.mds", "../s0.mds"], "not below"),
        (["/etc/passwd", "s0.mds"], "not below"),
        (["", "s0.mds"], "not below"),
    ] {
        let index = index(&names.map(|name| entry(name, &GOLDEN, 253, 2)));
        put(root.path(), "index.json", &index);
        assert_error(open(root.path()), ErrorKind::Corrupt, &[what]);
    }
    assert_error(open(root.path().join("nowhere")), ErrorKind::NotFound, &["nowhere"]);
    let parts = folder(&[("train/index.json", b"{}"), ("val/index.json", b"{}")]);
    assert_error(open(parts.path()), ErrorKind::NotFound, &["train, val"]);
    for (index, kind) in
        [("{}", ErrorKind::Corrupt), ("[", ErrorKind::Corrupt), (r#"{"version": 2, "shards": []}"#, ErrorKind::Empty)]
    {
        put(parts.path(), "train/index.json", index.as_bytes());
        assert_error(open(parts.path().join("train")), kind, &["train"]);
    }
}

#[test]
fn heads_that_lie_are_refused() {
    let bytes = golden();
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (shard, what) in [
        (with(0, 3), "the head says 3 samples, and the index 2"),
        (with(0, u32::MAX), "4294967295"),
        (with(4, 15), "begins at 15, before 16"),
        (with(8, 219), "sample 1 begins at 219, before 220"),
        (with(8, 254), "offset 254 is past the end"),
        (with(12, 252), "ends at 252"),
        (with(12, u32::MAX), "4294967295"),
        (with(8, 221), "sample 0 has 1 bytes"),
        (with(8, 253), "sample 1 has 0 bytes"),
    ] {
        let index = index(&[entry("s.mds", &GOLDEN, shard.len(), 2)]);
        let root = folder(&[("index.json", &index), ("s.mds", &shard)]);
        let error = assert_error(open(root.path()), ErrorKind::Corrupt, &[what, "s.mds"]);
        assert!(error.offset().is_some(), "{error}");
    }
    for (bytes, samples) in [(253_u64, 1_u64 << 60), (1 << 60, 2), (252, 2), (253, u32::MAX.into())] {
        let mut entry = entry("s.mds", &GOLDEN, 253, samples);
        entry["raw_data"]["bytes"] = json!(bytes);
        let root = folder(&[("index.json", &index(&[entry])), ("s.mds", &golden())]);
        let kind = if bytes > 253 { ErrorKind::Truncated } else { ErrorKind::Corrupt };
        assert_error(open(root.path()), kind, &["the index", "s.mds"]);
        let options = Options::new().format("mds").set("allow_bad_shards", true);
        let forgiving = dataset::open(&[root.path()], &options);
        assert_eq!(forgiving.is_err(), samples == 1 << 60, "2^60 samples would take too long to fail");
    }
    assert_small();
}

#[test]
fn a_good_shard_beside_bad_ones_is_read() {
    let entries: Vec<Json> = (0..4).map(|n| entry(&format!("s{n}.mds"), &GOLDEN, 253, 2)).collect();
    let mut broken = golden();
    broken[4] = 0;
    let root =
        folder(&[("index.json", &index(&entries)), ("s1.mds", &golden()), ("s2.mds", &broken), ("s3.mds", b"short")]);
    let options = Options::new().format("mds").set("allow_bad_shards", true);
    let mds = dataset::open(&[root.path()], &options).unwrap();
    assert_eq!((mds.len(), mds.shards()), (8, &[2, 4, 6, 8][..]), "numbers stay what they are");
    assert_error(sample(&*mds, 0), ErrorKind::NotFound, &["s0.mds"]);
    assert_error(sample(&*mds, 5), ErrorKind::Corrupt, &["s2.mds"]);
    assert_error(sample(&*mds, 6), ErrorKind::Truncated, &["s3.mds"]);
    let healthy: Vec<(String, Vec<u8>)> = (0..4).map(|n| (format!("s{n}.mds"), golden())).collect();
    let loader = Loader::builder(Arc::clone(&mds)).batch_size(3).epochs(1).on_error(OnError::Skip).build().unwrap();
    let (mut good, mut failed) = (Vec::new(), Vec::new());
    for batch in loader.map(|batch| batch.expect("a batch")) {
        good.extend(batch.ids.iter().map(|id| id.0));
        failed.extend(batch.failed.iter().map(|failed| (failed.id.0, failed.error.kind())));
    }
    assert_eq!(good, [2, 3]);
    let kinds = [ErrorKind::NotFound, ErrorKind::Corrupt, ErrorKind::Truncated];
    let wanted: Vec<_> = [0, 1, 4, 5, 6, 7].into_iter().zip(kinds.iter().flat_map(|&kind| [kind, kind])).collect();
    assert_eq!(failed, wanted);
    healthy.iter().for_each(|(name, bytes)| put(root.path(), name, bytes));
    assert_eq!(open(root.path()).unwrap().fingerprint(), mds.fingerprint(), "a state is good for the restored dataset");
}

#[test]
fn hashes_are_checked_where_that_is_asked_for() {
    let strict = Options::new().format("mds").set("verify_hashes", true);
    let mut entries: Vec<Json> = (0..3).map(|n| entry(&format!("s{n}.mds"), &GOLDEN, 253, 2)).collect();
    // From Python's hashlib.
    let sha1 = "b535664f2b274ec34a1dab1da3dea3d666720409";
    entries[0]["raw_data"]["hashes"] = json!({ "sha1": sha1 });
    entries[1]["raw_data"]["hashes"] = json!({ "sha1": sha1.to_uppercase(), "md5": "0123" });
    let mut other = golden();
    other[252] = b'?';
    let files =
        [("index.json", &index(&entries)[..]), ("s0.mds", &golden()), ("s1.mds", &golden()), ("s2.mds", &other)];
    let root = folder(&files);
    assert_eq!(open(root.path()).unwrap().len(), 6, "they are not checked unasked");
    let found = dataset::open(&[root.path()], &strict);
    assert_error(found, ErrorKind::Corrupt, &["s1.mds:0: ", "md5", "should be \"0123\""]);
    put(root.path(), "s0.mds", &other);
    let forgiving = strict.clone().set("allow_bad_shards", true);
    let mds = dataset::open(&[root.path()], &forgiving).unwrap();
    let failed: Vec<u64> = (0..6).filter(|&id| sample(&*mds, id).is_err()).collect();
    assert_eq!((failed, mds.faults().len()), (vec![0, 1, 2, 3], 2));
    entries[1]["raw_data"]["hashes"] = json!({ "whirlpool": "00" });
    put(root.path(), "s0.mds", &golden());
    put(root.path(), "index.json", &index(&entries));
    assert_error(dataset::open(&[root.path()], &strict), ErrorKind::Unavailable, &["whirlpool", "s1.mds"]);
}

#[test]
fn several_datasets_are_one_row() {
    let shard = golden();
    let index_of = |columns: &[_]| index(&[entry("s.mds", columns, shard.len(), 2)]);
    let root = folder(&[
        ("a/index.json", &index_of(&GOLDEN)),
        ("a/s.mds", &shard),
        ("b/index.json", &index_of(&GOLDEN)),
        ("b/s.mds", &shard),
        ("c/index.json", &index_of(&[("a", "ndarray:int8:2", Some(2)), GOLDEN[1], GOLDEN[2]])),
        ("c/s.mds", &shard),
    ]);
    let paths = |names: &[&str]| names.iter().map(|name| root.path().join(name)).collect::<Vec<PathBuf>>();
    let both = dataset::open(&paths(&["b", "a"]), &Options::new().format("mds")).unwrap();
    assert_eq!((both.len(), both.shards()), (4, &[2, 4][..]));
    assert_eq!(both.files().path(uringload::dataset::FileId(0)), root.path().join("b/s.mds"));
    assert_eq!(dataset::open(&paths(&["{a,b}"]), &Options::new().format("mds")).unwrap().len(), 4);
    let error = dataset::open(&paths(&["a", "c"]), &Options::new().format("mds"));
    assert_error(error, ErrorKind::Corrupt, &["c/s.mds", "columns"]);
}

#[test]
fn a_million_samples_take_four_bytes_each() {
    const SAMPLES: u32 = 1_000_000;
    let _limit = Limit::new(32 << 20);
    let start = 4 + 4 * (SAMPLES + 1);
    let mut shard = SAMPLES.to_le_bytes().to_vec();
    (0..=SAMPLES).for_each(|number| shard.extend((start + 8 * number).to_le_bytes()));
    shard.resize(shard.len() + 8 * SAMPLES as usize, 7);
    let index = index(&[entry("s.mds", &[("x", "int", Some(8))], shard.len(), SAMPLES.into())]);
    let root = folder(&[("index.json", &index), ("s.mds", &shard)]);
    let mds = open(root.path()).unwrap();
    assert_eq!((mds.len(), mds.largest(1000), mds.bytes()), (SAMPLES.into(), 8000, 8 * u64::from(SAMPLES)));
    assert_eq!(sample(&*mds, u64::from(SAMPLES) - 1).unwrap()["x"], [7; 8]);
}
