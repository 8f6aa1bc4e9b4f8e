//! Tar archives on the command line: detected, indexed, inspected, listed.

use super::common::archive::Archive;
use super::{content, expect, folder, json, uringload, write};
use std::path::Path;

/// Two archives of three samples each; the second lacks a label.
fn archives() -> tempfile::TempDir {
    let folder = folder(&[]);
    for shard in 0..2 {
        let mut archive = Archive::new();
        for number in 0..3 {
            let name = format!("{shard}{number}");
            archive = archive.file(&format!("{name}.jpg"), &content(&name, 20_000));
            if (shard, number) != (1, 2) {
                archive = archive.file(&format!("{name}.cls"), b"7");
            }
        }
        write(&folder.path().join(format!("{shard}.tar")), &archive.end().0);
    }
    folder
}

fn run(arguments: &str, folder: &Path, code: i32) -> (String, String) {
    expect(&mut uringload(&format!("{arguments} {}", folder.display())), code)
}

#[test]
fn index_builds_once_and_says_what_it_did() {
    let folder = archives();
    let (out, err) = run("index", folder.path(), 0);
    assert!(out.contains("6 in 2 files") && out.contains("2 looked through") && out.contains("2 indexes"), "{out}");
    assert!(out.contains("cls, lacking in 1 samples") && err.is_empty(), "{out}{err}");
    assert!(folder.path().join("0.tar.uidx").exists());
    let (out, _) = run("index", folder.path(), 0);
    assert!(out.contains("0 looked through, 2 had their index"), "{out}");
    let (out, _) = run("index --rebuild --threads 1", folder.path(), 0);
    assert!(out.contains("2 looked through") && out.contains("2 indexes"), "{out}");
    write(&folder.path().join("0.tar.uidx"), b"UIDX");
    let (out, _) = run("index", folder.path(), 0);
    assert!(out.contains("1 looked through") && out.contains("replaced") && out.contains("0.tar.uidx"), "{out}");
}

#[test]
fn index_is_built_by_parts() {
    let (folder, whole) = (archives(), archives());
    run("index", whole.path(), 0);
    for (part, said) in [("1/3", "3 in 1 files"), ("0/3", "3 in 1 files")] {
        let (out, err) = run(&format!("index --part {part}"), folder.path(), 0);
        assert!(out.contains(said) && out.contains("1 looked through") && err.is_empty(), "{out}{err}");
    }
    // More jobs than files: one has nothing to do.
    let mut last = uringload(&format!("index --part auto {}", folder.path().display()));
    let (out, err) = expect(last.env("PMI_RANK", "2").env("PMI_SIZE", "3"), 0);
    assert!(err.contains("part 2/3 (from PMI_RANK)"), "{err}");
    assert!(out.is_empty() && err.contains("part 2/3 has none of the 2 files"), "{out}{err}");
    let (out, _) = run("index", folder.path(), 0);
    assert!(out.contains("0 looked through, 2 had their index"), "{out}");
    let (_, err) = run("index --part 3/3", folder.path(), 2);
    assert!(err.contains("is no part") && err.contains("0/8"), "{err}");
}

#[test]
fn index_names_what_is_broken_and_does_the_rest() {
    let folder = archives();
    let whole = std::fs::read(folder.path().join("0.tar")).unwrap();
    write(&folder.path().join("2.tar"), &whole[..30_000]);
    let (out, err) = run("index", folder.path(), 1);
    assert!(out.contains("2 indexes") && out.contains("1 rests of damaged shards"), "{out}");
    let offset = err.split_once("2.tar:").and_then(|(_, rest)| rest.split_once(": ")?.0.parse::<u64>().ok());
    assert!(offset.is_some() && err.contains(" claims 20000 bytes"), "{err}");
    assert!(folder.path().join("1.tar.uidx").exists() && !folder.path().join("2.tar.uidx").exists());
    let (_, err) = run("list --missing empty", folder.path(), 1);
    assert!(err.contains("2.tar"), "{err}");
    let (out, err) = run("list --missing empty --on-error skip", folder.path(), 0);
    // The sample in front of the one that is cut.
    assert_eq!(out.lines().count(), 7, "{out}");
    assert!(err.contains("left out from there on"), "{err}");
    run("index", Path::new("/nonexistent"), 1);
}

#[test]
fn inspect_tells_how_archives_lie() {
    let folder = archives();
    let told = json(&run("inspect --json", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"], &told["shards"]), (&"tar".into(), &6.into(), &2.into()));
    assert_eq!(told["columns"][0]["name"], "jpg");
    assert_eq!(told["payload_alignment"], 512);
    // Two values a sample, 1024 bytes apart: what is rounded out to units of 4096 bytes at most.
    let amplification = told["read_amplification"].as_f64().unwrap();
    assert!(amplification > 1.02 && amplification < 1.6, "{amplification}");
    let (text, _) = run("inspect", folder.path(), 0);
    for part in
        ["cls: u8 of any length (cls), lacking in 1 samples", "2 of 3 to 3 samples", "multiples of 512", "for each"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The files themselves, where that is what is wanted, without their indexes.
    let told = json(&run("inspect --json --format folder", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"]), (&"folder".into(), &2.into()));
}

/// Compressed as well: units, with what reading them costs in which order.
#[test]
fn compressed_archives_are_indexed_and_described() {
    let folder = archives();
    let plain = std::fs::read(folder.path().join("1.tar")).unwrap();
    let packed = zstd::stream::encode_all(&plain[..], 1).unwrap();
    std::fs::remove_file(folder.path().join("1.tar")).unwrap();
    write(&folder.path().join("1.tar.zst"), &packed);
    let (out, err) = run("index", folder.path(), 0);
    assert!(out.contains("6 in 2 files") && out.contains("2 indexes") && err.is_empty(), "{out}{err}");
    let told = json(&run("inspect --json", folder.path(), 0).0);
    assert_eq!(
        (&told["format"], &told["samples"], &told["sample_bytes"]["most"]),
        (&"tar".into(), &6.into(), &20_001.into())
    );
    let units = &told["units"];
    assert_eq!((&units["count"], &units["stored_bytes"]), (&1.into(), &packed.len().into()));
    assert_eq!((&units["decoded_bytes"], &units["largest_decoded_bytes"]), (&plain.len().into(), &plain.len().into()));
    // Each of three samples reads all of the shard, or all three once.
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (random, blocks) = (number(&told["read_amplification"]), number(&units["read_amplification"]));
    let (wanted, reads) = (number(&told["bytes"]), packed.len() as f64);
    assert_eq!(wanted, 6.0 * 20_000.0 + 5.0);
    let spared = (random - blocks) * wanted;
    // A read of the plain shard has a header in it, and is aligned at both ends, on tmpfs to pages.
    let most = 60_000.0 + 3.0 * (2.0 * number(&told["read_alignment"]) + 1536.0) + reads;
    assert!(blocks > (60_000.0 + reads) / wanted && blocks < most / wanted, "{blocks}");
    assert!(spared > 2.0 * reads && spared < 2.0 * reads + 3.0 * 4096.0, "{random} {blocks}");
    let (text, _) = run("inspect", folder.path(), 0);
    for part in ["1, each decoded as a whole", "largest unit", "where each unit is decoded once", "multiples of 512"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    std::fs::remove_file(folder.path().join("0.tar")).unwrap();
    let told = json(&run("inspect --json", folder.path(), 0).0);
    assert_eq!((&told["payload_alignment"], &told["samples"]), (&serde_json::Value::Null, &3.into()));
    assert_eq!(json(&run("inspect --json --format folder", folder.path(), 0).0)["units"], serde_json::Value::Null);
}

#[test]
fn list_has_keys_and_the_fields_that_are_wanted() {
    let folder = archives();
    let (out, _) = run("list --digest sha256 --fields cls --on-error skip", folder.path(), 1);
    let lines: Vec<_> = out.lines().map(json).collect();
    let keys: Vec<&str> = lines.iter().filter_map(|line| line["key"].as_str()).collect();
    assert_eq!(keys, ["00", "01", "02", "10", "11", "12"]);
    let failed = lines.iter().find(|line| line["key"] == "12").unwrap();
    assert!(failed["error"]["what"].as_str().is_some_and(|what| what.contains("has no field \"cls\"")), "{failed}");
    let (out, _) = run("list --fields cls --missing empty", folder.path(), 0);
    assert_eq!(out.lines().count(), 6);
    let (_, err) = run("list --fields png", folder.path(), 2);
    assert!(err.contains("choose from the fields jpg, cls"), "{err}");
    let (_, err) = run("list --format tar --record-bytes 5", folder.path(), 2);
    assert!(err.contains("only for records"), "{err}");
}
