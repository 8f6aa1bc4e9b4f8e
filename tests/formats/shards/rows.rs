//! Rows of plain values in LitData's chunks, as Arrow after items that are empty: what the reference writer wrote
//! (tests/data/make_shards.py), and everything that can be wrong with it.

use super::*;
use crate::formats::memory::Limit;
use crate::formats::shards::written::{data, expected};
use serde_json::Value as Json;
use uringload::dataset;

fn open(root: impl AsRef<Path>, options: Options) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[root], &options.timeout(crate::formats::memory::ON_THIS_THREAD))
}

/// What a null is becomes a zero, as in the script's `expected.json`.
fn zeroed() -> Options {
    Options::new().set("nulls", "zero")
}

/// The files of a dataset, to be changed.
fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(data("litdata-rows").join(name)).expect("the script wrote it");
    let read = |entry: fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
    };
    entries.map(|entry| read(entry.expect("a file"))).collect()
}

fn with(name: &str, change: impl FnOnce(&mut Vec<(String, Vec<u8>)>)) -> TempDir {
    let mut files = files(name);
    change(&mut files);
    folder(&files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect::<Vec<_>>())
}

fn file<'a>(files: &'a mut [(String, Vec<u8>)], name: &str) -> &'a mut Vec<u8> {
    &mut files.iter_mut().find(|(known, _)| known == name).expect("the script wrote it").1
}

fn index(files: &mut [(String, Vec<u8>)], change: impl FnOnce(&mut Json)) {
    let index = file(files, "index.json");
    let mut json = serde_json::from_slice(index).expect("JSON");
    change(&mut json);
    *index = json.to_string().into_bytes();
}

#[test]
fn rows_are_what_was_written() {
    let rows = expected("litdata-rows");
    for name in ["plain", "zstd"] {
        let lit = open(data("litdata-rows").join(name), zeroed()).unwrap();
        assert_eq!((lit.format(), lit.len(), lit.shards()), ("litdata", 9, &[4, 8, 9][..]), "{name}");
        assert_eq!(samples(&*lit).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows, "{name}");
        assert_eq!(key(&*lit, 5), "chunk-0-1.bin#1");
        // A column that is null in every row has no type.
        assert_eq!(lit.index().left_out.len(), 1, "{:?}", lit.index().left_out);
        assert!(lit.index().left_out[0].first.to_string_lossy().ends_with("note"), "{:?}", lit.index().left_out);
        loads(&lit, &rows);
    }
    assert!(shows(data("litdata-rows/plain"), "litdata"));
}

#[test]
fn columns_are_chosen_by_their_path() {
    let rows = expected("litdata-rows");
    let lit = open(data("litdata-rows/plain"), zeroed().set("columns", ["meta", "tags"])).unwrap();
    let names: Vec<_> = lit.schema().fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["meta.source", "meta.rank", "tags"]);
    let wanted: Vec<Row> =
        rows.iter().map(|row| names.iter().map(|&name| (name.into(), row[name].clone())).collect()).collect();
    loads(&lit, &wanted);
    // In the first chunk nothing is stored of it.
    let late = open(data("litdata-rows/plain"), zeroed().set("columns", ["late"])).unwrap();
    loads(&late, &rows.iter().map(|row| Row::from([("late".into(), row["late"].clone())])).collect::<Vec<_>>());
    let error = assert_error(
        open(data("litdata-rows/plain"), zeroed().set("columns", ["turns.role"])),
        ErrorKind::InvalidArgument,
        &["no column \"turns.role\"", "choose from the columns", "turns"],
    );
    assert!(error.remedy().is_some());
}

#[test]
fn nulls_are_what_the_user_says() {
    let lit = open(data("litdata-rows/plain"), Options::new()).unwrap();
    let column = |name: &str| lit.schema().fields.iter().position(|field| field.name == name).unwrap();
    assert_error(sample(&*lit, 0), ErrorKind::Unavailable, &["is null in row 0 of record batch 0", "chunk-0-0.bin"]);
    assert!(sample(&*lit, 6).is_ok());
    let masked = open(data("litdata-rows/plain"), Options::new().set("nulls", "mask")).unwrap();
    assert_eq!(masked.schema().fields[column("late") * 2 + 1].name, "late.valid");
    for (id, valid) in [(0, [0, 0, 1]), (5, [1, 1, 0]), (8, [1, 1, 1])] {
        let row = sample(&*masked, id).unwrap();
        let told = ["late.valid", "meta.rank.valid", "text.valid"].map(|name| row[name][0]);
        assert_eq!(told, valid, "sample {id}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let plain = || data("litdata-rows/plain");
    for (name, value) in [("block_size", "4"), ("allow_bad_shards", "true")] {
        let error = open(plain(), Options::new().set(name, value));
        assert_error(error, ErrorKind::InvalidArgument, &[name, "rows as Arrow"]);
    }
    let error = open(data("litdata"), Options::new().set("columns", ["label"]));
    assert_error(error, ErrorKind::InvalidArgument, &["columns is for rows as Arrow"]);
    let root = with("plain", |files| index(files, |json| json["chunks"][1]["chunk_size"] = 5.into()));
    assert_error(open(root.path(), zeroed()), ErrorKind::Corrupt, &["4 samples", "chunk-0-1.bin"]);
    let root = with("plain", |files| index(files, |json| json["chunks"][1]["chunk_bytes"] = 5.into()));
    assert_error(open(root.path(), zeroed()), ErrorKind::Corrupt, &["the index says 5", "chunk-0-1.bin"]);
    let root = with("plain", |files| index(files, |json| json["chunks"][0]["filename"] = "../x".into()));
    assert_error(open(root.path(), zeroed()), ErrorKind::Corrupt, &["not below the folder"]);
    let root = with("plain", |files| files.retain(|(name, _)| name != "chunk-0-2.bin"));
    assert_error(open(root.path(), zeroed()), ErrorKind::NotFound, &["chunk-0-2.bin", "restore the shard"]);
    // Items, where the first chunk has rows.
    let root = with("plain", |files| {
        let items = b"\x01\0\0\0\x0c\0\0\0\x0d\0\0\0x";
        *file(files, "chunk-0-2.bin") = items.to_vec();
        index(files, |json| json["chunks"][2]["chunk_bytes"] = items.len().into());
    });
    assert_error(open(root.path(), zeroed()), ErrorKind::Unavailable, &["no rows as Arrow", "chunk-0-2.bin"]);
    // Rows, where the first chunk has items.
    let root = with("plain", |files| {
        let item = b"\x01\0\0\0\x0c\0\0\0\x0d\0\0\0x";
        *file(files, "chunk-0-0.bin") = item.to_vec();
        index(files, |json| {
            (json["chunks"][0]["chunk_bytes"], json["chunks"][0]["chunk_size"]) = (item.len().into(), 1.into());
            (json["config"]["data_format"], json["config"]["data_spec"]) = (serde_json::json!(["str"]), Json::Null);
        });
    });
    assert_error(open(root.path(), Options::new()), ErrorKind::Unavailable, &["no rows as Arrow", "chunk-0-0.bin"]);
}

#[test]
fn types_that_differ_are_refused() {
    // A chunk of its own schema: the bytes of another dataset of one column, which is text here.
    let (plain, other) = (data("litdata-rows/plain"), data("litdata-rows/other"));
    let root = folder(&[]);
    let mut chunks: Vec<Json> = Vec::new();
    for (from, name) in [(&plain, "chunk-0-0.bin"), (&other, "chunk-0-0.bin")] {
        let bytes = fs::read(from.join(name)).expect("the script wrote it");
        let named = format!("{}.bin", chunks.len());
        put(root.path(), &named, &bytes);
        let items = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        chunks.push(serde_json::json!({ "filename": named, "chunk_bytes": bytes.len(), "chunk_size": items }));
    }
    let index = serde_json::json!({ "chunks": chunks, "config": {} });
    put(root.path(), "index.json", index.to_string().as_bytes());
    let told = ["column \"id\" is utf8, and int64 in a file before it", "1.bin"];
    assert_error(open(root.path(), zeroed()), ErrorKind::Corrupt, &told);
}

#[test]
fn bytes_that_are_changed_are_survived() {
    changes_are_survived(13);
}

#[test]
#[ignore = "slow: changes every byte"]
fn every_byte_that_is_changed_is_survived() {
    changes_are_survived(1);
}

/// Some bytes of a chunk that are changed, and every place where it is cut: an error that names the file, or
/// rows; never a panic, and no memory that a head merely claims.
fn changes_are_survived(every: usize) {
    for name in ["plain", "zstd"] {
        let (root, whole) =
            (with(name, |_| {}), fs::read(data("litdata-rows").join(name).join("chunk-0-0.bin")).unwrap());
        let (path, next) = (root.path().join("chunk-0-0.bin"), root.path().join("chunk-0-1.bin"));
        let read = |bytes: &[u8], what: &dyn Fn() -> String| {
            put(root.path(), "chunk-0-0.bin", bytes);
            let _limit = Limit::new(64 << 20);
            match open(root.path(), zeroed().threads(1)) {
                Ok(lit) if lit.units().is_none_or(|units| units.largest_decoded() > 64 << 20) => {}
                Ok(lit) => samples(&*lit).into_iter().filter_map(Result::err).for_each(|error| {
                    assert!(error.to_string().contains("chunk-0-0.bin"), "{}: {error}", what());
                }),
                // The next chunk is the one that differs, if what is changed is a type.
                Err(error) => {
                    let at = error.path();
                    let named = at == Some(&path) || at == Some(&next) && error.kind() == ErrorKind::Corrupt;
                    assert!(named, "{}: {error}", what());
                }
            }
        };
        for at in (0..whole.len()).step_by(every) {
            for bits in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= bits;
                read(&bytes, &|| format!("{name}: byte {at} with {bits:#x}"));
            }
        }
        for len in (0..whole.len()).step_by(7) {
            put(root.path(), "chunk-0-0.bin", &whole[..len]);
            assert_error(open(root.path(), zeroed()), ErrorKind::Truncated, &["chunk-0-0.bin"]);
        }
    }
}
