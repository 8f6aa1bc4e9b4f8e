//! `verify`: good data of every format has nothing to be found, and of bad data everything is.

use super::common::archive::Archive;
use super::*;
use serde_json::{Value, json as object};
use sha2::{Digest, Sha256};
use std::fs::File;

/// A folder with copies of test data.
fn copied(names: &[&str]) -> tempfile::TempDir {
    let to = folder(&[]);
    for name in names {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name);
        write(&to.path().join(from.file_name().unwrap()), &fs::read(&from).unwrap());
    }
    to
}

/// Changes a file in place.
fn change(path: &Path, with: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    with(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// The report on a dataset, with this exit code.
fn verified(arguments: &str, folder: &Path, code: i32) -> Value {
    json(&expect(&mut uringload(&format!("verify --json {arguments} {}", folder.display())), code).0)
}

/// File name, kind, byte and samples of each finding; all have something to say.
fn findings(told: &Value) -> Vec<(String, String, Option<u64>, Option<u64>)> {
    let finding = |finding: &Value| {
        let file = Path::new(finding["file"].as_str().expect("every finding names its file"));
        assert!(finding["what"].as_str().is_some_and(|what| !what.is_empty()), "{finding}");
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (name, finding["kind"].as_str().unwrap().into(), finding["offset"].as_u64(), finding["samples"].as_u64())
    };
    told["findings"].as_array().unwrap().iter().map(finding).collect()
}

fn found(name: &str, kind: &str, at: Option<u64>, samples: Option<u64>) -> (String, String, Option<u64>, Option<u64>) {
    (name.into(), kind.into(), at, samples)
}

/// Three samples of two fields, in an archive with its end.
fn archive(name: &str) -> Vec<u8> {
    let mut archive = Archive::new();
    for number in 0..3 {
        archive = archive.file(&format!("{name}{number}.jpg"), &content(name, 3000));
        archive = archive.file(&format!("{name}{number}.cls"), b"7");
    }
    archive.end().0
}

/// Three records with their checksums.
fn tfrecord() -> Vec<u8> {
    let sum = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let record = |content: &[u8]| {
        let len = (content.len() as u64).to_le_bytes();
        [&len[..], &sum(&len), content, &sum(content)].concat()
    };
    [&b"first"[..], b"second", b"third"].iter().flat_map(|content| record(content)).collect()
}

const PAGE: usize = 2 << 20;

/// A .beton of two samples of bytes.
fn beton() -> Vec<u8> {
    let mut file = [&2_u16.to_le_bytes()[..], &1_u16.to_le_bytes(), &(PAGE as u32).to_le_bytes()].concat();
    file.extend(2_u64.to_le_bytes());
    file.extend((2 * PAGE as u64).to_le_bytes());
    file.resize(24 + 1041, 0);
    file[24..26].copy_from_slice(b"\x03b");
    let places = [(PAGE as u64, 5_u64), (PAGE as u64 + 5, 7)];
    places.iter().for_each(|(at, len)| file.extend([at.to_le_bytes(), len.to_le_bytes()].concat()));
    file.resize(2 * PAGE, 0);
    for (sample, (at, len)) in places.iter().enumerate() {
        file.extend([sample as u64, *at, *len].iter().flat_map(|number| number.to_le_bytes()));
    }
    file
}

/// An MDS dataset of shards with a column of bytes; `hashes` says what the index lists of each.
fn mds(shards: &[(&str, &[&[u8]])], hashes: impl Fn(&[u8]) -> Value) -> tempfile::TempDir {
    let root = folder(&[]);
    let mut entries = Vec::new();
    for (name, samples) in shards {
        let mut end = 4 + 4 * (samples.len() as u32 + 1);
        let mut shard = (samples.len() as u32).to_le_bytes().to_vec();
        shard.extend(end.to_le_bytes());
        for sample in *samples {
            end += 4 + sample.len() as u32;
            shard.extend(end.to_le_bytes());
        }
        samples.iter().for_each(|sample| shard.extend([&(sample.len() as u32).to_le_bytes(), *sample].concat()));
        write(&root.path().join(name), &shard);
        entries.push(object!({
            "column_names": ["v"], "column_encodings": ["bytes"], "column_sizes": [null], "compression": null,
            "format": "mds", "hashes": [], "size_limit": null, "version": 2, "zip_data": null,
            "raw_data": { "basename": name, "bytes": shard.len(), "hashes": hashes(&shard) }, "samples": samples.len(),
        }));
    }
    write(&root.path().join("index.json"), object!({ "version": 2, "shards": entries }).to_string().as_bytes());
    root
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn good_data_of_every_format_has_nothing_to_be_found() {
    let tar = folder(&[]);
    write(&tar.path().join("a.tar"), &archive("a"));
    write(&tar.path().join("b.tar"), &archive("b"));
    let ffcv = folder(&[]);
    write(&ffcv.path().join("a.beton"), &beton());
    let (files, _) = files(5);
    let records = folder(&[]);
    write(&records.path().join("a.tfrecord"), &tfrecord());
    let lines = folder(&[]);
    write(&lines.path().join("a.jsonl"), b"{\"x\": 1}\n{\"x\": 2}\n");
    let sound = |shard: &[u8]| object!({ "sha256": sha256(shard) });
    let mds = mds(&[("a.mds", &[b"one", b"two"]), ("b.mds", &[b"three"])], sound);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let at = |name: &str| data.join(name);
    for (format, arguments, path, samples, checks) in [
        ("tar", "", tar.path().into(), 6, 0),
        ("beton", "", ffcv.path().into(), 2, 0),
        ("folder", "", files.path().into(), 5, 0),
        ("jsonl", "", lines.path().into(), 2, 0),
        ("tfrecord", "", records.path().into(), 3, 0),
        ("records", "--record-bytes 1", files.path().into(), 65, 0),
        ("mds", "", mds.path().into(), 3, 2),
        ("mds", "--verify-hashes", mds.path().into(), 3, 2),
        ("mds", "", at("mds"), 10, 4),
        ("litdata", "", at("litdata"), 9, 0),
        ("litdata", "--block-size 16", at("litdata-tokens"), 8, 0),
        ("npy", "", at("arrays/golden.npy"), 1, 0),
        ("npz", "", at("arrays/stored.npz"), 1, 2),
        ("npz", "--rows", at("arrays/stored.npz"), 6, 2),
        ("safetensors", "", at("arrays/tensors.safetensors"), 1, 0),
        ("array_record", "", at("array_record/zstd.array_record"), 11, 0),
        ("jsonl", "", at("lines/ascii.jsonl.gz"), 4, 0),
        ("tokens", "--window-tokens 4", at("arrays/megatron_u2.idx"), 7, 0),
    ] {
        let told = verified(arguments, &path, 0);
        assert_eq!(told["format"], format, "{path:?} {arguments}");
        assert_eq!((&told["findings"], &told["complete"]), (&object!([]), &true.into()), "{told}");
        assert_eq!(told["not_checked"], object!([]), "{told}");
        assert!(told["checks"] == checks && told["samples_lost"] == 0, "{told}");
        assert!(format == "litdata" || told["samples"] == samples, "{told}");
    }
    assert!(!tar.path().join("a.tar.uidx").exists(), "nothing is written");
    let (out, _) = expect(&mut uringload(&format!("verify {}", mds.path().display())), 0);
    assert!(out.starts_with("mds: 2 files, 3 good samples of 11 B, 2 checks of files; 0 findings in "), "{out}");
}

#[test]
fn every_bad_shard_and_hash_of_mds_is_told() {
    let names = ["good.mds", "hash.mds", "short.mds", "gone.mds", "odd.mds", "value.mds"];
    let samples: [&[u8]; 3] = [b"0123456789", b"x", b"yz"];
    let shards: Vec<(&str, &[&[u8]])> = names.iter().map(|name| (*name, &samples[..])).collect();
    let root = mds(&shards, |shard| object!({ "sha256": sha256(shard), "whirlpool": "00" }));
    let at = |name: &str| root.path().join(name);
    // The last byte of a value, which nothing but the hash knows.
    change(&at("hash.mds"), |bytes| *bytes.last_mut().unwrap() ^= 1);
    change(&at("short.mds"), |bytes| bytes.truncate(30));
    fs::remove_file(at("gone.mds")).unwrap();
    change(&at("odd.mds"), |bytes| bytes[0] = 9);
    // The length of the second value, which is after the table and the first one.
    change(&at("value.mds"), |bytes| bytes[20 + 14] = 77);
    let told = verified("", root.path(), 1);
    let mut all = findings(&told);
    all.sort();
    assert_eq!(
        all,
        [
            found("gone.mds", "NotFound", None, None),
            found("hash.mds", "Corrupt", Some(0), None),
            found("odd.mds", "Corrupt", Some(0), None),
            found("short.mds", "Truncated", Some(30), None),
            found("value.mds", "Corrupt", Some(0), None),
            found("value.mds", "Corrupt", Some(38), Some(1)),
        ],
        "{told:#}"
    );
    assert_eq!((&told["samples"], &told["samples_lost"], &told["checks"]), (&8.into(), &10.into(), &3.into()));
    assert_eq!(
        (&told["not_checked"][0]["algorithm"], &told["not_checked"][0]["count"]),
        (&"whirlpool".into(), &3.into())
    );
    let (out, _) = expect(&mut uringload(&format!("verify {}", root.path().display())), 1);
    let mut lines = out.lines().skip_while(|line| !line.contains("value.mds:38: "));
    assert_eq!(lines.nth(1), Some("  note: sample 16 (\"value.mds#1\")"), "{out}");
    assert!(
        out.contains("/gone.mds: ") && out.contains("\n  help: restore the shard, or make the index again\n"),
        "{out}"
    );
    assert!(out.contains("3 not checked (whirlpool); 6 findings"), "{out}");
    let told = verified("--max-findings 2", root.path(), 1);
    assert!(findings(&told).len() == 2 && told["complete"] == false, "{told}");
}

#[test]
fn every_bad_chunk_of_litdata_is_told() {
    let names = ["index.json", "chunk-0-0.bin", "chunk-0-1.bin", "chunk-0-2.bin"].map(|name| format!("litdata/{name}"));
    let root = copied(&names.each_ref().map(String::as_str));
    change(&root.path().join("chunk-0-0.bin"), |bytes| bytes.truncate(bytes.len() - 1));
    fs::remove_file(root.path().join("chunk-0-2.bin")).unwrap();
    let told = verified("", root.path(), 1);
    let short = fs::metadata(root.path().join("chunk-0-0.bin")).unwrap().len();
    let bad = [found("chunk-0-0.bin", "Truncated", Some(short), None), found("chunk-0-2.bin", "NotFound", None, None)];
    assert_eq!(
        (findings(&told), &told["samples"], &told["samples_lost"]),
        (bad.into(), &4.into(), &5.into()),
        "{told:#}"
    );
}

#[test]
fn archives_are_looked_through_whatever_their_indexes_say() {
    let root = folder(&[]);
    let at = |name: &str| root.path().join(name);
    ["good", "head", "short", "ends", "stale", "swapped"].iter().for_each(|name| {
        write(&at(&format!("{name}.tar")), &archive(name));
    });
    expect(&mut uringload(&format!("index {}", root.path().display())), 0);
    assert!(verified("", root.path(), 0)["samples"] == 18);
    // The header of the second member: 512 bytes of header, 3072 of content before it.
    change(&at("head.tar"), |bytes| bytes[3584] ^= 1);
    change(&at("short.tar"), |bytes| bytes.truncate(4700));
    change(&at("ends.tar"), |bytes| bytes.truncate(bytes.len() - 1024));
    change(&at("stale.tar"), |bytes| bytes.extend([0; 512]));
    // Another archive of the same size and time: nothing but a look at it tells.
    let time = fs::metadata(at("swapped.tar")).unwrap().modified().unwrap();
    write(&at("swapped.tar"), &archive("swopped"));
    File::options().write(true).open(at("swapped.tar")).unwrap().set_modified(time).unwrap();
    let told = verified("", root.path(), 1);
    let mut all = findings(&told);
    all.sort();
    assert_eq!(
        all,
        [
            found("ends.tar", "Truncated", Some(13_824), None),
            found("ends.tar.uidx", "Corrupt", None, None),
            found("head.tar", "Corrupt", Some(3584), None),
            found("short.tar", "Truncated", Some(4608), None),
            found("stale.tar.uidx", "Corrupt", None, None),
            found("swapped.tar.uidx", "Corrupt", None, None),
        ],
        "{told:#}"
    );
    assert!(told["samples"].as_u64().unwrap() >= 12, "good archives beside bad ones are read: {told:#}");
    let doubled = Archive::new().file("a.jpg", b"1").file("a.jpg", b"2").end().0;
    let root = folder(&[]);
    write(&root.path().join("a.tar"), &doubled);
    write(&root.path().join("b.tar"), &doubled[..600]);
    let told = verified("", root.path(), 1);
    assert_eq!(
        findings(&told),
        [found("a.tar", "Corrupt", Some(1024), None), found("b.tar", "Truncated", Some(0), None)]
    );
    assert!(told["findings"][0]["what"].as_str().unwrap().contains("comes twice"), "{told:#}");
}

#[test]
fn members_of_npz_have_check_sums() {
    let root = copied(&["arrays/stored.npz"]);
    let bytes = fs::read(root.path().join("stored.npz")).unwrap();
    let bad: Vec<usize> =
        (0..2).map(|n| bytes.windows(6).enumerate().filter(|(_, at)| at == b"\x93NUMPY").nth(n).unwrap().0).collect();
    write(&root.path().join("bad.npz"), &bytes);
    // The last byte of a header is a newline, and values follow it.
    change(&root.path().join("bad.npz"), |bytes| bad.iter().for_each(|at| bytes[at + 128] ^= 4));
    let told = verified("", root.path(), 1);
    let wrong = bad.iter().map(|&at| found("bad.npz", "Corrupt", Some(at as u64), None)).collect::<Vec<_>>();
    assert_eq!((findings(&told), &told["checks"], &told["samples"]), (wrong, &4.into(), &2.into()), "{told:#}");
    assert!(told["findings"][0]["what"].as_str().unwrap().contains("crc32 of the member \"x.npy\""), "{told:#}");
}

#[test]
fn files_that_cannot_be_opened_do_not_hide_others() {
    let root = copied(&["arrays/golden.npy", "arrays/plain_i4.npy"]);
    let npy = fs::read(root.path().join("golden.npy")).unwrap();
    fs::remove_file(root.path().join("plain_i4.npy")).unwrap();
    write(&root.path().join("b.npy"), &npy[..npy.len() - 1]);
    write(&root.path().join("c.npy"), b"nothing of the sort");
    write(&root.path().join("notes.txt"), b"no array");
    let told = verified("--format npy", root.path(), 1);
    let names: Vec<String> = findings(&told).into_iter().map(|finding| finding.0).collect();
    assert_eq!(
        (names, &told["samples"], &told["complete"]),
        (vec!["b.npy".into(), "c.npy".into()], &1.into(), &true.into())
    );
    let root = folder(&[]);
    let whole = beton();
    write(&root.path().join("a.beton"), &whole);
    write(&root.path().join("b.beton"), &whole[..whole.len() - 1]);
    write(&root.path().join("c.beton"), &whole);
    change(&root.path().join("c.beton"), |bytes| bytes[1065] ^= 1);
    let told = verified("", root.path(), 1);
    let bad = [
        found("b.beton", "Truncated", Some(whole.len() as u64 - 1), None),
        found("c.beton", "Corrupt", Some(1065), None),
    ];
    assert_eq!((findings(&told), &told["samples"]), (bad.into(), &2.into()), "{told:#}");
    let root = copied(&["arrays/tensors.safetensors"]);
    let whole = fs::read(root.path().join("tensors.safetensors")).unwrap();
    for name in ["a", "b"] {
        write(&root.path().join(format!("{name}.safetensors")), &whole[..whole.len() - 1]);
    }
    let told = verified("", root.path(), 1);
    assert_eq!((findings(&told).len(), &told["samples"]), (2, &1.into()), "{told:#}");
}

#[test]
fn what_cannot_be_opened_at_all_is_told_and_is_not_usage() {
    let root = mds(&[("gone.mds", &[b"one"])], |_| object!({}));
    fs::remove_file(root.path().join("gone.mds")).unwrap();
    let told = verified("", root.path(), 1);
    assert_eq!((&told["samples"], findings(&told).len()), (&0.into(), 1), "{told:#}");
    let told = verified("", &root.path().join("nowhere"), 1);
    assert_eq!((&told["format"], &told["complete"]), (&Value::Null, &false.into()));
    assert_eq!(findings(&told)[0].1, "NotFound");
    for wrong in ["--verify-hashes --format folder", "--max-findings 0", "--format records", "--engine none"] {
        expect(&mut uringload(&format!("verify {wrong} {}", root.path().display())), 2);
    }
    expect(&mut uringload("verify"), 2);
    let (help, _) = expect(&mut uringload("verify --help"), 0);
    for field in ["samples_lost", "not_checked", "findings", "complete", "check_bytes", "left_out", "offset", "remedy"]
    {
        assert!(help.contains(field), "{field}: {help}");
    }
}

#[test]
fn an_interrupted_verify_says_how_far_it_came() {
    let root = folder(&[]);
    // Billions of samples, none of which takes room on the disk.
    File::create(root.path().join("records")).unwrap().set_len(1 << 32).unwrap();
    let arguments = format!("verify --record-bytes 1 {}", root.path().display());
    // It has looked at some of it at once, unless the machine is busy.
    let delays = (0..8).map(|double| std::time::Duration::from_millis(200) * (1 << double));
    let outs = delays.map(|delay| {
        let child = uringload(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !catches_interrupts(child.id()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}{}", stdout(&output), stderr(&output));
        stdout(&output)
    });
    let out = { outs }.find(|out| !out.is_empty()).expect("it has begun");
    assert!(out.starts_with("records: 1 files, ") && out.contains("; it was not looked at to the end"), "{out}");
}

/// Whether a process has its own way to end when it is interrupted.
fn catches_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 << (libc::SIGINT - 1) != 0))
}

#[test]
fn every_bad_record_of_tfrecord_is_told() {
    let root = folder(&[]);
    let at = |name: &str| root.path().join(name);
    for name in ["bad", "cut", "good"] {
        write(&at(&format!("{name}.tfrecord")), &tfrecord());
    }
    // Each record has 12 bytes in front of its content and 4 after it.
    change(&at("bad.tfrecord"), |bytes| [12, 33].iter().for_each(|&at| bytes[at] ^= 1));
    change(&at("cut.tfrecord"), |bytes| bytes.truncate(60));
    let told = verified("", root.path(), 1);
    let mut all: Vec<_> = findings(&told).into_iter().map(|(name, kind, ..)| (name, kind)).collect();
    all.sort();
    let found = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    let bad = found("bad.tfrecord", "Corrupt");
    assert_eq!(all, [bad.clone(), bad, found("cut.tfrecord", "Truncated")], "{told:#}");
    assert_eq!((&told["samples"], &told["samples_lost"]), (&6.into(), &2.into()), "{told:#}");
    assert!(!at("good.tfrecord.uidx").exists(), "nothing is written");
}
