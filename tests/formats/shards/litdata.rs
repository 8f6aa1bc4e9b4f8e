//! LitData: golden vectors, and what is wrong with an index or a chunk.

use super::*;
use crate::formats::memory::Limit;
use serde_json::{Value as Json, json};
use uringload::dataset::{self, DType, Dataset, Options, Shape};

/// The chunk of the format's description: two items of `int` and `str`, written by litdata.
pub fn golden() -> Vec<u8> {
    hex("02000000 10000000 22000000 35000000
         08000000 02000000 0100000000000000 6869
         08000000 03000000 0200000000000000 796f21")
}

pub fn golden_rows() -> [Row; 2] {
    [row(&[("0", &1_i64.to_le_bytes()), ("1", b"hi")]), row(&[("0", &2_i64.to_le_bytes()), ("1", b"yo!")])]
}

/// The error of a chunk whose rows are not Arrow, with Arrow built in or not.
pub const BROKEN_ROWS: ErrorKind = if cfg!(feature = "parquet") { ErrorKind::Corrupt } else { ErrorKind::Unavailable };

/// The tree of a tuple of leaves.
fn tuple(leaves: usize) -> String {
    let leaf = json!({ "type": null, "context": null, "children_spec": [] });
    json!([1, { "type": "builtins.tuple", "context": "null", "children_spec": vec![leaf; leaves] }]).to_string()
}

pub fn index(chunks: &[(&str, usize, u64, Option<u64>)], leaves: &[&str]) -> Json {
    let chunk = |(name, bytes, items, dim): &(&str, usize, u64, Option<u64>)| {
        let mut chunk = json!({ "filename": name, "chunk_bytes": bytes, "chunk_size": items });
        chunk["dim"] = json!(dim);
        chunk
    };
    let config = json!({
        "compression": null, "compression_level": null, "chunk_size": null, "chunk_bytes": 67_108_864,
        "data_format": leaves, "data_spec": tuple(leaves.len()), "encryption": null, "item_loader": "PyTreeLoader",
    });
    json!({ "chunks": chunks.iter().map(chunk).collect::<Vec<_>>(), "config": config, "updated_at": "0" })
}

/// A chunk of these items.
fn chunk(items: &[Vec<u8>]) -> Vec<u8> {
    let mut end = 4 + 4 * (items.len() as u32 + 1);
    let mut chunk = [(items.len() as u32).to_le_bytes(), end.to_le_bytes()].concat();
    for item in items {
        end += item.len() as u32;
        chunk.extend(end.to_le_bytes());
    }
    items.iter().for_each(|item| chunk.extend_from_slice(item));
    chunk
}

/// An item of these leaves.
fn item(leaves: &[&[u8]]) -> Vec<u8> {
    let mut item: Vec<u8> = leaves.iter().flat_map(|leaf| (leaf.len() as u32).to_le_bytes()).collect();
    leaves.iter().for_each(|leaf| item.extend_from_slice(leaf));
    item
}

fn dataset(leaves: &[&str], items: &[Vec<u8>]) -> TempDir {
    let chunk = chunk(items);
    let index = index(&[("c.bin", chunk.len(), items.len() as u64, None)], leaves);
    folder(&[("index.json", index.to_string().as_bytes()), ("c.bin", &chunk)])
}

pub fn open(root: impl AsRef<Path>) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[root], &Options::new().format("litdata").timeout(crate::formats::memory::ON_THIS_THREAD))
}

fn blocks(root: &Path, block_size: u64) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[root], &Options::new().format("litdata").set("block_size", block_size))
}

#[test]
fn golden_chunk() {
    let index = index(&[("chunk-0-0.bin", 53, 2, None)], &["int", "str"]).to_string();
    let root = folder(&[("index.json", index.as_bytes()), ("chunk-0-0.bin", &golden())]);
    let lit = open(root.path()).unwrap();
    assert_eq!((lit.len(), lit.bytes(), lit.largest(1), lit.shards()), (2, 37, 19, &[2][..]));
    assert_eq!(samples(&*lit).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), golden_rows());
    assert_eq!(
        (key(&*lit, 1), lit.length(SampleId(1), 1), lit.index().plain_field),
        ("chunk-0-0.bin#1".into(), Some(3), None)
    );
    // From an implementation in another language: a checkpoint stays valid in every later version.
    assert_eq!(lit.fingerprint(), 0xcafe_63ad_300d_6953);
    assert!(shows(root.path(), "litdata"));
    loads(&lit, &golden_rows());
}

#[test]
fn arrays_have_headers_of_either_order() {
    let tensor = |code: u32, dims: &[u32], values: &[u8]| {
        let head = [&[code, dims.len() as u32], dims].concat();
        [head.iter().flat_map(|number| number.to_be_bytes()).collect(), values.to_vec()].concat()
    };
    let numpy = |code: u32, dims: &[u32], values: &[u8]| {
        let head = [&[code, dims.len() as u32], dims].concat();
        [head.iter().flat_map(|number| number.to_le_bytes()).collect(), values.to_vec()].concat()
    };
    let good = |n: u8| item(&[&tensor(10, &[2, 1], &[n; 4]), &numpy(1, &[3], &[n; 6]), &tensor(19, &[], &[1])]);
    let root = dataset(&["tensor", "numpy", "tensor"], &[good(1), good(2)]);
    let lit = open(root.path()).unwrap();
    let fields: Vec<_> = lit.schema().fields.iter().map(|field| (&*field.name, field.dtype, &field.shape)).collect();
    let shape = Shape::Fixed(vec![2, 4]);
    let wanted = [
        ("0", DType::BF16, &Shape::Ragged),
        ("0.shape", DType::U8, &shape),
        ("1", DType::I16, &Shape::Ragged),
        ("2", DType::Bool, &Shape::Ragged),
    ];
    assert_eq!(fields, wanted);
    assert_eq!(sample(&*lit, 1).unwrap()["0.shape"], hex("00000002 00000001"));
    assert_eq!(sample(&*lit, 1).unwrap()["1"], [2; 6]);
    for (bad, what) in [
        (item(&[&tensor(8, &[2, 1], &[1; 4]), &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "dimensions of f16"),
        (item(&[&tensor(10, &[2], &[1; 4]), &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "1 dimensions"),
        (item(&[&tensor(10, &[2, 2], &[1; 4]), &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "4 bytes of bf16"),
        (item(&[&tensor(10, &[u32::MAX; 2], &[1; 4]), &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "lengths"),
        (item(&[&tensor(4, &[2, 1], &[1; 4]), &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "type 4"),
        (item(&[&[0; 7], &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "too few"),
        (item(&[&hex("0000000a ffffffff"), &numpy(1, &[3], &[1; 6]), &tensor(19, &[], &[1])]), "4294967295 dimensions"),
    ] {
        let root = dataset(&["tensor", "numpy", "tensor"], &[good(1), bad]);
        let lit = open(root.path()).unwrap();
        let error = assert_error(sample(&*lit, 1), ErrorKind::Corrupt, &["leaf \"0\"", what, "c.bin"]);
        assert!(error.offset().is_some(), "{error}");
        assert!(sample(&*lit, 0).is_ok());
    }
    let root = dataset(&["numpy"], &[item(&[&numpy(99, &[1], &[1; 4])])]);
    assert_error(open(root.path()), ErrorKind::Corrupt, &["leaf \"0\"", "type 99", "c.bin"]);
}

#[test]
fn sizes_of_leaves_are_checked() {
    for (bad, what) in [
        ("07000000 01000000 01000000000000 61", "7 bytes of i64"),
        ("08000000 09000000 0100000000000000 61", "past its item"),
        ("08000000 00000000 0100000000000000 61", "16 bytes of the 17"),
        ("08000000 ffffffff 0100000000000000 61", "past its item"),
    ] {
        let root = dataset(&["int", "str"], &[hex(&format!("{bad} 00"))[..hex(bad).len()].to_vec()]);
        let lit = open(root.path());
        let error = match lit {
            Ok(lit) => parse(&*lit).unwrap_err(),
            Err(error) => error,
        };
        let line = error.to_string();
        assert!(line.contains(what) || line.contains("16 bytes, which its leaves cannot have"), "{what} in {line}");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{line}");
    }
    let root = dataset(&["no_header_numpy:9"], &[item(&[&[0; 6]])]);
    assert!(parse(&*open(root.path()).unwrap()).unwrap_err().to_string().contains("6 bytes of f32"));
}

/// Parses the first sample, whose bytes belie its length.
fn parse(dataset: &dyn Dataset) -> Result<(), Error> {
    let mut spans = Vec::new();
    dataset.spans(SampleId(0), &mut spans);
    let mut raw = vec![0; spans[0].len as usize];
    File::open(dataset.files().path(spans[0].file)).unwrap().read_exact_at(&mut raw, spans[0].offset).unwrap();
    dataset.parse(SampleId(0), &[raw.into()], &mut Sample::default())
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    for (leaf, what) in [
        ("pickle", "runs a program"),
        ("graph", "may hold a pickle"),
        ("no_header_tensor:4", "no_header_tensor:4"),
        ("no_header_numpy:x", "no_header_numpy:x"),
        ("secret", "\"secret\""),
    ] {
        let root = dataset(&[leaf], &[item(&[b""])]);
        assert_error(open(root.path()), ErrorKind::Unavailable, &["leaf \"0\"", what, "index.json", "write it"]);
    }
    for (key, value, what) in [
        ("compression", json!("lz4"), "\"lz4\""),
        ("encryption", json!({ "algorithm": "fernet", "level": "chunk" }), "encrypted"),
        ("item_loader", json!("ParquetLoader"), "ParquetLoader"),
        ("item_loader", json!("TemporalArrayLoader"), "TemporalArrayLoader"),
    ] {
        let mut index = index(&[("c.bin", 53, 2, None)], &["int", "str"]);
        index["config"][key] = value;
        let root = folder(&[("index.json", index.to_string().as_bytes()), ("c.bin", &golden())]);
        assert_error(open(root.path()), ErrorKind::Unavailable, &[what, "index.json"]);
    }
    let empty = chunk(&[Vec::new(), Vec::new()]);
    let arrow = [&empty[..], b"ARROW1....", &10_u32.to_le_bytes(), b"LDARW01\0"].concat();
    let behind = [&golden()[..], b"ARROW1....", &10_u32.to_le_bytes(), b"LDARW01\0"].concat();
    for (chunk, kind) in
        [(&arrow, Some(BROKEN_ROWS)), (&behind, None), (&[&golden()[..], b"junk"].concat(), Some(ErrorKind::Corrupt))]
    {
        let index = index(&[("c.bin", chunk.len(), 2, None)], &["int", "str"]).to_string();
        let root = folder(&[("index.json", index.as_bytes()), ("c.bin", chunk)]);
        match kind {
            Some(kind) => drop(assert_error(open(root.path()), kind, &["c.bin"])),
            None => assert_eq!(sample(&*open(root.path()).unwrap(), 0).unwrap(), golden_rows()[0]),
        }
    }
    let root = dataset(&["int", "str"], &[golden()[16..34].to_vec()]);
    assert_error(blocks(root.path(), 4), ErrorKind::InvalidArgument, &["tokens"]);
    let zero = dataset::open(&[root.path()], &Options::new().format("litdata").set("block_size", 0_u64));
    assert_eq!(zero.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn heads_that_lie_are_refused() {
    let with = |at: usize, value: u32| {
        let mut bytes = golden();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (chunk, what) in [
        (with(0, 1), "the head says 1 samples, and the index 2"),
        (with(4, 17), "begins at 17"),
        (with(4, 12), "before 16"),
        (with(8, 54), "past the end"),
        (with(8, 60), "past the end"),
        (with(8, 20), "item 0 has 4 bytes"),
        (with(12, 33), "before 34"),
        (with(12, 52), "items end at 52"),
    ] {
        let index = index(&[("c.bin", 53, 2, None)], &["int", "str"]).to_string();
        let root = folder(&[("index.json", index.as_bytes()), ("c.bin", &chunk)]);
        let error = assert_error(open(root.path()), ErrorKind::Corrupt, &[what, "c.bin"]);
        assert!(error.offset().is_some(), "{error}");
    }
    for (chunks, kind, what) in [
        (&[("c.bin", 53, 2, None), ("d.bin", 53, 2, None)][..], ErrorKind::NotFound, "d.bin"),
        (&[("c.bin", 53, 2, None), ("c.bin", 53, 2, None)], ErrorKind::Corrupt, "twice"),
        (&[("c.bin", 53, 1 << 60, None)], ErrorKind::Corrupt, "1152921504606846976"),
        (&[("c.bin", 1 << 60, 2, None)], ErrorKind::Truncated, "1152921504606846976"),
        (&[("../c.bin", 53, 2, None)], ErrorKind::Corrupt, "not below"),
    ] {
        let index = index(chunks, &["int", "str"]).to_string();
        let root = folder(&[("index.json", index.as_bytes()), ("c.bin", &golden())]);
        assert_error(open(root.path()), kind, &[what]);
    }
    assert_small();
}

#[test]
fn names_are_the_way_to_a_leaf() {
    let _limit = Limit::new(32 << 20);
    let names = |spec: &str, leaves: usize| {
        let mut index = index(&[("c.bin", 0, 1, None)], &vec!["str"; leaves]);
        let chunk = chunk(&[item(&vec![&b"x"[..]; leaves])]);
        index["chunks"][0]["chunk_bytes"] = json!(chunk.len());
        index["config"]["data_spec"] = if spec == "null" { json!(null) } else { json!(spec) };
        let root = folder(&[("index.json", index.to_string().as_bytes()), ("c.bin", &chunk)]);
        open(root.path()).map(|lit| lit.schema().fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>())
    };
    let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
    let dict = format!(
        r#"[1, {{"type": "builtins.dict", "context": "[\"a\", 7]", "children_spec": [{leaf},
            {{"type": "builtins.list", "context": "null", "children_spec": [{leaf}, {leaf}]}}]}}]"#
    );
    assert_eq!(names(&dict, 3).unwrap(), ["a", "7.0", "7.1"]);
    assert_eq!(names(&format!("[1, {leaf}]"), 1).unwrap(), ["data"]);
    assert_eq!(names("null", 2).unwrap(), ["0", "1"]);
    let twice = format!(
        r#"[1, {{"type": "builtins.dict", "context": "[\"a.0\", \"a\"]", "children_spec": [{leaf},
            {{"type": "builtins.list", "context": "null", "children_spec": [{leaf}]}}]}}]"#
    );
    assert_eq!(names(&twice, 2).unwrap(), ["a.0", "a.0#1"]);
    assert_error(names(&dict, 2), ErrorKind::Corrupt, &["2 leaves in data_format and 3 in data_spec"]);
    assert_error(names("[1]", 1), ErrorKind::Corrupt, &["data_spec"]);
    let deep = format!(
        "[1, {}{leaf}{}]",
        r#"{"type": "l", "context": null, "children_spec": ["#.repeat(100_000),
        "]}".repeat(100_000)
    );
    assert_error(names(&deep, 1), ErrorKind::Corrupt, &["data_spec"]);
}

/// Tokens 0, 1, 2, ... as documents of these lengths, in chunks of two.
fn tokens(lengths: &[u16]) -> TempDir {
    let mut next = 0_u16..;
    let documents: Vec<Vec<u8>> =
        lengths.iter().map(|&len| next.by_ref().take(len.into()).flat_map(u16::to_le_bytes).collect()).collect();
    let root = folder(&[]);
    let mut chunks = Vec::new();
    for (number, documents) in documents.chunks(2).enumerate() {
        let name = format!("c{number}.bin");
        let chunk = chunk(documents);
        put(root.path(), &name, &chunk);
        let tokens = documents.iter().map(|document| document.len() as u64 / 2).sum();
        chunks.push((name, chunk.len(), documents.len() as u64, Some(tokens)));
    }
    let chunks: Vec<_> = chunks.iter().map(|(name, bytes, items, dim)| (&**name, *bytes, *items, *dim)).collect();
    let mut index = index(&chunks, &["no_header_numpy:5"]);
    index["config"]["item_loader"] = json!("TokensLoader");
    put(root.path(), "index.json", index.to_string().as_bytes());
    root
}

#[test]
fn tokens_are_documents_or_blocks() {
    let root = tokens(&[5, 6, 0, 9, 4]);
    let row_of =
        |tokens: std::ops::Range<u16>| row(&[("tokens", &tokens.flat_map(u16::to_le_bytes).collect::<Vec<_>>())]);
    let documents = open(root.path()).unwrap();
    let rows = [row_of(0..5), row_of(5..11), row_of(0..0), row_of(11..20), row_of(20..24)];
    assert_eq!((documents.index().plain_field, documents.length(SampleId(3), 0)), (Some(0), Some(9)));
    loads(&documents, &rows);
    let blocks_of_4 = blocks(root.path(), 4).unwrap();
    let rows = [row_of(0..4), row_of(4..8), row_of(11..15), row_of(15..19), row_of(20..24)];
    assert_eq!((blocks_of_4.index().plain_field, blocks_of_4.length(SampleId(0), 0)), (Some(0), Some(4)));
    assert_eq!(
        (blocks_of_4.index().left_out[0].count, key(&*blocks_of_4, 2)),
        (2, "c1.bin#0".into()),
        "3 and 1 tokens are left"
    );
    assert_eq!(blocks_of_4.schema().fields[0].shape, Shape::Fixed(vec![4]));
    assert_ne!(blocks_of_4.fingerprint(), blocks(root.path(), 3).unwrap().fingerprint());
    loads(&blocks_of_4, &rows);
    assert_error(blocks(root.path(), 100), ErrorKind::Empty, &[]);
    assert_error(blocks(root.path(), u64::MAX), ErrorKind::Empty, &[]);
    let text = fs::read_to_string(root.path().join("index.json")).unwrap().replace("\"dim\":11", "\"dim\":1000000000");
    put(root.path(), "index.json", text.as_bytes());
    assert_error(blocks(root.path(), 4), ErrorKind::Corrupt, &["the index says 250000000", "c0.bin"]);
    let options = Options::new().format("litdata").set("block_size", 4_u64).set("allow_bad_shards", true);
    let failing = dataset::open(&[root.path()], &options).unwrap();
    assert_error(sample(&*failing, 0), ErrorKind::Corrupt, &["the index says 250000000"]);
    assert_eq!(sample(&*failing, failing.len() - 1).unwrap(), row_of(20..24));
}
