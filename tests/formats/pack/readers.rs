//! What others make of the shards: GNU tar, Python's tarfile, webdataset.

use super::{Samples, class_folder, folder_at, options, pack, samples};
use crate::common::skip;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn packed() -> (TempDir, Samples) {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    pack(folder_at(source.path()), to.path(), options()).unwrap();
    let samples = samples(to.path());
    (to, samples)
}

fn shard(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("shard-000000.tar")
}

#[test]
fn gnu_tar_lists_and_extracts() {
    let (to, samples) = packed();
    let into = tempfile::tempdir().unwrap();
    let run = |what: &str| {
        let output = Command::new("tar").arg(what).arg(shard(&to)).arg("-C").arg(into.path()).output();
        match output {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() && said.is_empty(), "tar {what}: {said}");
                Some(String::from_utf8(output.stdout).unwrap())
            }
            Err(error) => {
                skip(format!("GNU tar: {error}"));
                None
            }
        }
    };
    let Some(listed) = run("-tf") else { return };
    let members: usize = samples.values().map(|fields| fields.len()).sum();
    assert_eq!(listed.lines().count(), members);
    assert!(listed.contains("cat/2.JPG\n"), "names keep their case: {listed}");
    assert!(run("-tvf").unwrap().lines().all(|line| line.starts_with("-r--r--r-- bigdata/bigdata ")));
    run("-xf");
    for (key, fields) in samples {
        for (field, bytes) in fields {
            let name = if key == "cat/2" && field == "jpg" { "cat/2.JPG".into() } else { format!("{key}.{field}") };
            assert!(fs::read(into.path().join(&name)).unwrap() == bytes, "{name}");
        }
    }
}

/// Runs a program of Python that prints "KEY FIELD HEX" lines of a shard; `None`, said aloud, where it cannot.
fn python(program: &str, shard: &Path, what: &str) -> Option<Samples> {
    let interpreter = std::env::var_os("PYTHON").unwrap_or("python3".into());
    let output = match Command::new(&interpreter).arg("-c").arg(program).arg(shard).output() {
        Ok(output) => output,
        Err(error) => {
            skip(format!("{what}: {error}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("ModuleNotFoundError") {
        skip(format!("{what}: {interpreter:?} has no such module (set PYTHON)"));
        return None;
    }
    assert!(output.status.success(), "{what}: {said}");
    let mut samples = Samples::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut parts = line.split(' ');
        let [key, field, hex] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let bytes =
            hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        let before = samples.entry(key.into()).or_default().insert(field.into(), bytes.collect());
        assert!(before.is_none(), "{key}.{field} comes twice");
    }
    Some(samples)
}

#[test]
fn pythons_tarfile_reads_the_same() {
    let (to, samples) = packed();
    let program = "
import re, sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    for member in archive:
        assert (member.mtime, member.mode, member.uid, member.uname) == (0, 0o444, 0, 'bigdata'), member
        key, field = re.match(r'^((?:.*/|)[^.]+)[.]([^/]*)$', member.name).groups()
        print(key, field.lower(), archive.extractfile(member).read().hex())
";
    let Some(found) = python(program, &shard(&to), "tarfile") else { return };
    assert!(found == samples);
}

#[test]
fn webdataset_reads_the_same() {
    let (to, samples) = packed();
    let program = "
import sys, webdataset
for sample in webdataset.WebDataset(sys.argv[1], shardshuffle=False):
    for field, value in sample.items():
        if not field.startswith('__'):
            print(sample['__key__'], field, value.hex())
";
    let Some(found) = python(program, &shard(&to), "webdataset") else { return };
    assert!(found == samples);
}
