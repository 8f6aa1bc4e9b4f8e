//! Datasets that the reference writers wrote (tests/data/make_shards.py): every value, through every way to read.

use super::*;
use std::path::PathBuf;
use uringload::dataset::{self, Dataset, Options, UnitId, Units};

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// What the script says that the samples are.
pub fn expected(name: &str) -> Vec<Row> {
    let text = fs::read_to_string(data(name).join("expected.json")).expect("the script wrote it");
    let rows: Vec<std::collections::BTreeMap<String, String>> = serde_json::from_str(&text).expect("rows of hex");
    rows.into_iter().map(|row| row.into_iter().map(|(name, value)| (name, hex(&value))).collect()).collect()
}

#[test]
fn mds_of_merged_folders() {
    let rows = expected("mds");
    let mds = dataset::open(&[data("mds")], &Options::new().format("mds")).unwrap();
    assert_eq!(mds.index().encodings.len(), mds.schema().fields.len());
    assert!(mds.files().len() > 3 && mds.shards().len() == mds.files().len(), "several shards in two folders");
    assert_eq!(key(&*mds, 9).split_once('#').unwrap().0, "1/shard.00000.mds");
    assert_eq!(samples(&*mds).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
    loads(&mds, &rows);
    let parts = dataset::open(&[data("mds/0"), data("mds/1")], &Options::new().format("mds")).unwrap();
    assert_eq!(samples(&*parts).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
}

#[test]
fn litdata_of_trees() {
    let rows = expected("litdata");
    let lit = dataset::open(&[data("litdata")], &Options::new().format("litdata")).unwrap();
    assert_eq!((lit.index().encodings.len(), lit.shards()), (lit.schema().fields.len(), &[4, 8, 9][..]));
    loads(&lit, &rows);
}

#[test]
fn litdata_of_tokens() {
    let documents = expected("litdata-tokens");
    let lit = dataset::open(&[data("litdata-tokens")], &Options::new().format("litdata")).unwrap();
    loads(&lit, &documents);
    let options = Options::new().format("litdata").set("block_size", 16_u64);
    let blocks = dataset::open(&[data("litdata-tokens")], &options).unwrap();
    // As TokensLoader cuts: the tokens of a chunk are one row, of which the rest is left out.
    let mut rows = Vec::new();
    for chunk in [&documents[..5], &documents[5..7], &documents[7..]] {
        let tokens: Vec<u8> = chunk.iter().flat_map(|document| document["tokens"].iter().copied()).collect();
        rows.extend(tokens.chunks_exact(64).map(|block| row(&[("tokens", block)])));
    }
    loads(&blocks, &rows);
}

pub const COMPRESSIONS: [&str; 5] = ["zstd", "gz", "br", "bz2", "snappy"];

/// Copies the files of a dataset that the script wrote. Chunks whose compression has a level get the names that LitData
/// gives them: not all systems have a ":" in names, so they are stored with a "-".
pub fn copy(name: &str) -> TempDir {
    let root = folder(&[]);
    for entry in fs::read_dir(data(name)).expect("the script wrote it") {
        let path = entry.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        fs::copy(&path, root.path().join(name.replace(".zstd-", ".zstd:"))).expect("a copy");
    }
    root
}

/// Nothing is read by spans, and every unit is what it is said to be.
fn check_units(dataset: &dyn Dataset, shards: u64) {
    let units = dataset.units().expect("it has units");
    assert!(u64::from(units.count()) >= shards && dataset.largest(dataset.len()) == 0);
    let (mut spans, mut of) = (Vec::new(), Vec::new());
    for id in 0..dataset.len() {
        dataset.spans(SampleId(id), &mut spans);
        units.of(SampleId(id), &mut of);
        assert!(spans.is_empty() && of.len() == id as usize + 1 && of.is_sorted(), "sample {id}");
    }
    of.dedup();
    assert_eq!(of, (0..units.count()).map(UnitId).collect::<Vec<_>>(), "every unit is of use");
    let all: u64 = of.iter().map(|&unit| units.decoded_bytes(unit)).sum();
    assert!(dataset.bytes() > 0 && dataset.bytes() <= all);
    assert_eq!(dataset.index().plain_field, None, "no sample is read by spans");
}

#[test]
fn mds_by_every_compression() {
    let rows = expected("mds-zip");
    let raw = dataset::open(&[data("mds-zip/raw")], &Options::new().format("mds")).unwrap();
    assert_eq!(
        (samples(&*raw).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), raw.units().is_none()),
        (rows.clone(), true)
    );
    for compression in COMPRESSIONS {
        let mds = dataset::open(&[data("mds-zip").join(compression)], &Options::new().format("mds")).unwrap();
        check_units(&*mds, 2);
        assert_eq!(samples(&*mds).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows, "{compression}");
        assert_eq!(mds.shards(), raw.shards());
        assert_eq!((key(&*mds, 5), mds.schema()), (key(&*raw, 5), raw.schema()));
        let ragged = |field| mds.length(SampleId(0), field);
        assert_eq!((ragged(0), ragged(2)), (None, Some(1)), "the index tells no length but fixed ones");
        assert_eq!(words(&*mds, 2), format!("int; {compression} shards, decoded as a whole"));
    }
}

#[test]
fn raw_mds_shards_beside_compressed_ones() {
    let rows = expected("mds-zip");
    for compression in COMPRESSIONS {
        let root = copy(&format!("mds-zip/{compression}"));
        let open = || dataset::open(&[root.path()], &Options::new().format("mds")).unwrap();
        let before = open().fingerprint();
        let units = |mds: &dyn Dataset| mds.units().map_or(0, Units::count);
        for (shard, left) in [("shard.00001.mds", 1), ("shard.00000.mds", 0)] {
            let zipped = open();
            put(root.path(), shard, &decoded(&*zipped, zipped.units().unwrap(), UnitId(left)).unwrap());
            // Whether the compressed file is kept or not, the raw one is read.
            if left == 0 {
                fs::remove_file(root.path().join(format!("{shard}.{compression}"))).unwrap();
            }
            let mds = open();
            assert_eq!((units(&*mds), mds.fingerprint()), (left, before), "{compression}");
            assert_eq!(samples(&*mds).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows, "{compression}");
            assert!(mds.largest(1) > 0, "raw samples are read by spans");
            let packing = format!("{compression} shards, decoded as a whole, beside raw shards");
            assert_eq!(words(&*mds, 2).contains(&packing), left > 0, "{}", words(&*mds, 2));
        }
    }
    let paths = ["zstd", "raw", "br"].map(|name| data("mds-zip").join(name));
    let row = dataset::open(&paths, &Options::new().format("mds")).unwrap();
    assert_eq!(row.units().map(Units::count), Some(4));
    let three = [&rows[..], &rows, &rows].concat();
    assert_eq!(samples(&*row).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), three);
}

#[test]
fn litdata_by_all_that_can_be_compressed_at_a_time() {
    let rows = expected("litdata-zip");
    let open = |name: &str| {
        let root = copy(&format!("litdata-zip/{name}"));
        let lit = dataset::open(&[root.path()], &Options::new().format("litdata")).unwrap();
        (lit, root)
    };
    let (raw, _raw) = open("raw");
    assert_eq!(
        (samples(&*raw).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), raw.units().is_none()),
        (rows.clone(), true)
    );
    for (name, units, packing) in [
        ("chunk", 3, "zstd shards"),
        ("batch", 4, "zstd frames of 3 samples"),
        ("sample", 4, "shards of zstd samples"),
        ("sample-count", 3, "shards of zstd samples"),
    ] {
        let (lit, _root) = open(name);
        check_units(&*lit, lit.shards().len() as u64);
        assert_eq!(
            (lit.units().unwrap().count(), words(&*lit, 0)),
            (units, &*format!("int; {packing}, decoded as a whole"))
        );
        assert_eq!(samples(&*lit).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows, "{name}");
        assert_eq!(lit.schema(), raw.schema());
        assert_eq!(lit.fingerprint() == raw.fingerprint(), name == "chunk", "{name}");
        if name == "batch" {
            assert_eq!(lit.bytes(), raw.bytes(), "the directory tells the length of every item");
        }
    }
    let root = copy("litdata-zip/chunk");
    fs::rename(root.path().join("chunk-0-1.zstd:7.bin"), root.path().join("kept")).unwrap();
    fs::copy(data("litdata-zip/raw/chunk-0-1.bin"), root.path().join("chunk-0-1.bin")).unwrap();
    let lit = dataset::open(&[root.path()], &Options::new().format("litdata")).unwrap();
    assert_eq!(
        (lit.units().unwrap().count(), lit.fingerprint()),
        (2, raw.fingerprint()),
        "litdata puts the raw chunk in the place of the other"
    );
    assert_eq!(samples(&*lit).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
}

#[test]
fn litdata_of_compressed_tokens() {
    for block_size in [None, Some(1), Some(16), Some(30)] {
        let options = Options::new().format("litdata");
        let options = block_size.map_or(options.clone(), |size: u64| options.set("block_size", size));
        let raw = dataset::open(&[data("litdata-tokens")], &options).unwrap();
        let lit = dataset::open(&[data("litdata-zip/tokens")], &options).unwrap();
        check_units(&*lit, 2);
        assert_eq!((lit.fingerprint(), lit.shards()), (raw.fingerprint(), raw.shards()));
        let rows = |lit: &dyn Dataset| samples(lit).into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(rows(&*lit), rows(&*raw), "{block_size:?}");
    }
}
