//! Datasets that the reference writers wrote (tests/data/make_shards.py): every value, through every way to read.

use super::*;
use std::path::PathBuf;
use uringload::dataset::{LitData, LitDataOptions, Mds, MdsOptions};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// What the script says that the samples are.
fn expected(name: &str) -> Vec<Row> {
    let text = fs::read_to_string(data(name).join("expected.json")).expect("the script wrote it");
    let rows: Vec<std::collections::BTreeMap<String, String>> = serde_json::from_str(&text).expect("rows of hex");
    rows.into_iter().map(|row| row.into_iter().map(|(name, value)| (name, hex(&value))).collect()).collect()
}

#[test]
fn mds_of_merged_folders() {
    let rows = expected("mds");
    let mds = Mds::open(&[data("mds")], &MdsOptions::default()).unwrap();
    assert_eq!(mds.encodings().len(), mds.schema().fields.len());
    assert!(mds.files().len() > 3 && mds.shards().len() == mds.files().len(), "several shards in two folders");
    assert_eq!(key(&mds, 9).split_once('#').unwrap().0, "1/shard.00000.mds");
    assert_eq!(samples(&mds).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
    loads(&(Arc::new(mds) as Arc<dyn Dataset>), &rows);
    let parts = Mds::open(&[data("mds/0"), data("mds/1")], &MdsOptions::default()).unwrap();
    assert_eq!(samples(&parts).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
}

#[test]
fn litdata_of_trees() {
    let rows = expected("litdata");
    let lit = LitData::open(&[data("litdata")], &LitDataOptions::default()).unwrap();
    assert_eq!((lit.encodings().len(), lit.shards()), (lit.schema().fields.len(), &[4, 8, 9][..]));
    loads(&(Arc::new(lit) as Arc<dyn Dataset>), &rows);
}

#[test]
fn litdata_of_tokens() {
    let documents = expected("litdata-tokens");
    let lit = LitData::open(&[data("litdata-tokens")], &LitDataOptions::default()).unwrap();
    loads(&(Arc::new(lit) as Arc<dyn Dataset>), &documents);
    let options = LitDataOptions { block_size: Some(16), ..LitDataOptions::default() };
    let blocks = LitData::open(&[data("litdata-tokens")], &options).unwrap();
    // As TokensLoader cuts: the tokens of a chunk are one row, of which the rest is left out.
    let mut rows = Vec::new();
    for chunk in [&documents[..5], &documents[5..7], &documents[7..]] {
        let tokens: Vec<u8> = chunk.iter().flat_map(|document| document["tokens"].iter().copied()).collect();
        rows.extend(tokens.chunks_exact(64).map(|block| row(&[("tokens", block)])));
    }
    loads(&(Arc::new(blocks) as Arc<dyn Dataset>), &rows);
}
