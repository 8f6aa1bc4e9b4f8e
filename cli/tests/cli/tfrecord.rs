//! TFRecord files on the command line: detected, indexed, inspected, listed.

use super::{expect, folder, json, uringload, write};
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tfrecord").join(name)
}

/// A copy of files that TensorFlow's writer wrote, beside which indexes may be put.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = folder(&[]);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(data(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    // An index after its file: one that is older is not believed.
    paths.sort();
    for path in paths {
        write(&folder.path().join(path.file_name().unwrap()), &std::fs::read(&path).unwrap());
    }
    folder
}

fn run(arguments: &str, folder: &Path, code: i32) -> (String, String) {
    expect(&mut uringload(&format!("{arguments} {}", folder.display())), code)
}

#[test]
fn index_builds_once_and_says_what_it_did() {
    for (name, files) in [("examples", 2), ("gzip", 1), ("zlib", 1)] {
        let folder = copy(name);
        let (out, err) = run("index", folder.path(), 0);
        assert!(out.contains(&format!("11 in {files} files")), "{out}");
        assert!(out.contains(&format!("{files} looked through")) && err.is_empty(), "{out}{err}");
        let (out, _) = run("index", folder.path(), 0);
        assert!(out.contains(&format!("0 looked through, {files} had their index")), "{out}");
        let (out, _) = run("index --rebuild", folder.path(), 0);
        assert!(out.contains(&format!("{files} indexes")), "{out}");
    }
    let folder = copy("examples");
    write(&folder.path().join("x.tfrecord-00000-of-00001"), b"no records");
    let (_, err) = run("index", folder.path(), 1);
    assert!(err.contains("no index") && err.contains("x.tfrecord-00000-of-00001"), "{err}");
}

#[test]
fn inspect_tells_what_records_hold() {
    let folder = copy("examples");
    let told = json(&run("inspect --json", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"], &told["shards"]), (&"tfrecord".into(), &11.into(), &2.into()));
    assert_eq!((&told["columns"][1]["name"], &told["columns"][1]["dtype"]), (&"ids".into(), &"i64".into()));
    assert_eq!(told["columns"][1]["encoding"], "int64_list");
    let whole = json(&run("inspect --json --whole-records", folder.path(), 0).0);
    assert_eq!((&whole["columns"][0]["name"], whole["columns"].as_array().unwrap().len()), (&"record".into(), 1));
    assert_eq!(json(&run("inspect --json", copy("gzip").path(), 0).0)["format"], "tfrecord");
    let (_, err) = run("inspect", copy("sequence").path(), 1);
    assert!(err.contains("SequenceExample"), "{err}");
    write(&folder.path().join("readme.md"), b"beside records");
    for other in ["--format tar", "--format folder"] {
        let (_, err) = run(&format!("inspect {other} --no-verify-crc"), folder.path(), 2);
        assert!(err.contains("only for tfrecord"), "{err}");
    }
    let (_, err) = run("inspect --no-verify-crc", super::folder(&[("a", 10)]).path(), 2);
    assert!(err.contains("only for tfrecord"), "{err}");
}

#[test]
fn list_has_keys_and_the_features_that_are_wanted() {
    let folder = copy("examples");
    let (out, _) = run("list --digest sha256 --fields label,image", folder.path(), 0);
    let lines: Vec<_> = out.lines().map(json).collect();
    assert_eq!((lines.len(), &lines[6]["key"]), (11, &"train.tfrecord-00001-of-00002#0".into()));
    let (out, _) = run("list --format tfrecord --whole-records --no-verify-crc", folder.path(), 0);
    assert_eq!(out.lines().count(), 11);
    let (_, err) = run("list --fields none", folder.path(), 2);
    assert!(err.contains("choose from the features box, ids"), "{err}");
    // The last record of the second file is cut.
    let path = folder.path().join("train.tfrecord-00001-of-00002");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let (_, err) = run("list", folder.path(), 1);
    assert!(err.contains("record 4 claims") && err.contains("00001-of-00002"), "{err}");
    let (out, err) = run("list --on-error skip", folder.path(), 0);
    assert!(out.lines().count() == 10 && err.contains("left out from there on"), "{out}{err}");
}
