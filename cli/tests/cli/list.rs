//! `list`: what is delivered is what lies in the files, byte for byte.

use super::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Runs `list` and returns its lines.
fn lines(arguments: &str) -> Vec<serde_json::Value> {
    expect(&mut uringload(arguments), 0).0.lines().map(json).collect()
}

const FILES: [(&str, usize); 7] = [
    ("cat/empty", 0),
    ("cat/one", 1),
    ("cat/sector", 512),
    ("dog/page", 4096),
    ("dog/page and one", 4097),
    ("dog/some", 100_000),
    ("zebra/large", 3_000_001),
];

#[test]
fn digests_are_those_of_the_files_by_every_engine() {
    let folder = folder(&FILES);
    for engine in ["--engine auto", "--engine threads", "--io buffered", "--shuffle --seed 5 --batch-size 2"] {
        let lines = lines(&format!("list {} --digest sha256 {engine}", folder.path().display()));
        let told: BTreeMap<&str, &serde_json::Value> =
            lines.iter().map(|line| (line["key"].as_str().unwrap(), line)).collect();
        assert_eq!(told.len(), FILES.len(), "{engine}");
        for (index, (name, len)) in FILES.iter().enumerate() {
            let line = told[name];
            assert_eq!(line["columns"]["data"]["bytes"], *len, "{engine} {name}");
            assert_eq!(line["columns"]["data"]["sha256"], sha256(&content(name, *len)), "{engine} {name}");
            let class = name.split('/').next().unwrap();
            let label = ["cat", "dog", "zebra"].iter().position(|&known| known == class).unwrap();
            assert_eq!((&line["label"], &line["class"]), (&label.into(), &class.into()));
            assert_eq!(line["index"], index);
        }
    }
}

#[test]
fn order_is_that_of_the_loader() {
    let folder = folder(&FILES);
    let order = |arguments: &str| -> Vec<u64> {
        let lines = lines(&format!("list {} {arguments}", folder.path().display()));
        lines.iter().map(|line| line["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(order(""), [0, 1, 2, 3, 4, 5, 6]);
    let shuffled = order("--shuffle --seed 1");
    assert_ne!(shuffled, order("--shuffle --seed 2"));
    assert_eq!(shuffled, order("--shuffle --seed 1 --batch-size 3"));
    let ranks: Vec<u64> = [0, 1].iter().flat_map(|rank| order(&format!("--rank {rank} --world-size 2"))).collect();
    let mut distinct = ranks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((ranks.len(), distinct.len()), (8, 7), "one sample is repeated as padding");
}

#[test]
fn padding_is_marked() {
    let folder = folder(&FILES);
    let lines = lines(&format!("list {} --rank 1 --world-size 2 --batch-size 4", folder.path().display()));
    let marked: Vec<bool> = lines.iter().map(|line| line["padding"] == true).collect();
    assert_eq!(marked, [false, false, false, true]);
}

#[test]
fn records_are_slices_of_their_file() {
    const HEADER: usize = 16;
    const RECORD: usize = 1000;
    let folder = folder(&[("r", HEADER + 50 * RECORD + 7)]);
    let bytes = content("r", HEADER + 50 * RECORD + 7);
    let arguments = format!(
        "list {} --record-bytes {RECORD} --header-bytes {HEADER} --drop-tail --digest sha256",
        folder.path().display()
    );
    let lines = lines(&arguments);
    assert_eq!(lines.len(), 50);
    for (line, record) in lines.iter().zip(bytes[HEADER..].chunks(RECORD)) {
        assert_eq!(line["columns"]["data"]["sha256"], sha256(record));
        assert!(line["label"].is_null());
    }
}

#[test]
fn names_of_any_bytes_are_lines_of_json() {
    let folder = folder(&[]);
    let longest = [b'n'; 255];
    let names: [&[u8]; 5] = [b"new\nline", b"\xff\xfe not utf-8", b"quote\" and \\", "日本".as_bytes(), &longest];
    for name in names {
        write(&folder.path().join(OsStr::from_bytes(name)), name);
    }
    let lines = lines(&format!("list {} --digest sha256", folder.path().display()));
    assert_eq!(lines.len(), names.len());
    for name in names {
        let is_it = |line: &&serde_json::Value| match std::str::from_utf8(name) {
            Ok(text) => line["key"] == text && line["key_hex"].is_null(),
            Err(_) => line["key_hex"] == hex(name),
        };
        let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("{name:?} is not among {lines:?}"));
        assert_eq!(line["columns"]["data"]["sha256"], sha256(name));
    }
}

#[test]
fn a_sample_that_cannot_be_read_gets_a_line_too() {
    let folder = folder(&[("a", 10), ("b", 10), ("c", 10)]);
    fs::set_permissions(folder.path().join("b"), fs::Permissions::from_mode(0o000)).unwrap();
    let dir = folder.path().display();
    let Some(mut command) = as_nobody(&format!("list {dir} --digest sha256"), "list without permission") else {
        return;
    };
    let (out, _) = expect(&mut command, 1);
    let lines: Vec<serde_json::Value> = out.lines().map(json).collect();
    let bad = lines.iter().find(|line| line["key"] == "b").expect("the bad sample is listed");
    assert!(bad["error"]["cause"].as_str().is_some_and(|cause| cause.contains("Permission denied")), "{bad}");
    assert!(bad["columns"].is_null());
    let good: Vec<_> = lines.iter().filter(|line| line["columns"]["data"]["bytes"] == 10).collect();
    assert_eq!((lines.len(), good.len()), (3, 2));

    let Some(mut raise) = as_nobody(&format!("bench {dir}"), "bench without permission") else { return };
    let (_, err) = expect(&mut raise, 1);
    assert!(err.contains("/b:0: ") && err.contains("Permission denied"), "{err}");
    let Some(mut skip) = as_nobody(&format!("bench {dir} --on-error skip --json -"), "bench") else { return };
    let result = json(&expect(&mut skip, 0).0);
    assert_eq!((&result["samples"], &result["samples_skipped"]), (&2.into(), &1.into()));
}

/// Labels from a table and files of one stem, by the options that the format declares.
#[test]
fn labels_and_pairs_are_options() {
    let folder = folder(&[("images/1.jpg", 10), ("images/2.jpg", 20), ("masks/1.png", 3), ("masks/2.png", 4)]);
    let dir = folder.path().display();
    write(&folder.path().join("train.csv"), b"file,label\n1,ant\n2,bee\n");
    let table = format!("--label-file {dir}/train.csv");
    let pairs = lines(&format!("list {dir} --pairs folder {table}"));
    assert_eq!(pairs.len(), 2);
    assert_eq!((&pairs[1]["key"], &pairs[1]["class"]), (&"2".into(), &"bee".into()), "{pairs:?}");
    assert_eq!(
        (&pairs[1]["columns"]["images"]["bytes"], &pairs[1]["columns"]["masks"]["bytes"]),
        (&20.into(), &4.into())
    );
    let (_, told) = expect(&mut uringload(&format!("list {dir} {table}")), 2);
    assert!(told.contains("fits two samples: \"images/1.jpg\" and \"masks/1.png\""), "{told}");
    let (_, told) = expect(&mut uringload(&format!("list {dir}/images {table}")), 0);
    assert!(!told.contains("label"), "{told}");
    write(&folder.path().join("train.csv"), b"file,label\n1,ant\n");
    let (_, told) = expect(&mut uringload(&format!("list {dir}/images {table}")), 2);
    assert!(told.contains("1 samples have no label (\"2.jpg\"), and 0 labels have no sample"), "{told}");
    let skipped = lines(&format!("list {dir}/images {table} --unlabelled skip"));
    assert_eq!(skipped.len(), 1);
}
