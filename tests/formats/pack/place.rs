//! The folder that shards go to: what it may have in it, going on, and a disk that is full.

use super::{class_folder, folder_at, options, pack, packed, samples};
use crate::common::mounts::{Kind, Mounted};
use crate::common::skip;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use uringload::pack::PackOptions;
use uringload::{Error, ErrorKind, Loader};

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

fn one_each() -> PackOptions {
    options().shard_samples(1)
}

fn refused(error: Error, words: &str, remedy: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(words) && error.remedy().unwrap().contains(remedy), "{error}");
}

#[test]
fn a_pack_that_was_ended_is_gone_on_with() {
    let (source, to, whole) = (class_folder(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pack(folder_at(source.path()), whole.path(), one_each()).unwrap();
    let part = Loader::builder(folder_at(source.path())).pack(to.path(), one_each().threads(1)).unwrap();
    let stop_behind = |shards| {
        let told = part.run(&|done| {
            if done.shards >= shards { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        told.unwrap()
    };
    let report = stop_behind(3);
    assert!(report.is_interrupted);
    assert_eq!((report.shards, report.shards_kept), (3, 0));
    assert_eq!(names(to.path()).len(), 7, "three shards, their indexes and the manifest: {:?}", names(to.path()));
    let kept = fs::metadata(part.path(1)).unwrap().modified().unwrap();
    // What a kill leaves behind; and an index that was not written.
    for name in [".shard-000005.tar.tmp", ".shard-000001.tar.uidx.123.456", ".pack.json.tmp"] {
        fs::write(to.path().join(name), b"half").unwrap();
    }
    fs::remove_file(to.path().join("shard-000002.tar.uidx")).unwrap();
    fs::write(to.path().join(".shard-note"), b"a user's").unwrap();
    let report = stop_behind(u64::MAX);
    assert_eq!((report.shards, report.shards_kept, report.samples, report.samples_written), (8, 3, 8, 5));
    assert_eq!(fs::metadata(part.path(1)).unwrap().modified().unwrap(), kept, "what is whole is not written again");
    fs::remove_file(to.path().join(".shard-note")).unwrap();
    assert_eq!(names(to.path()), names(whole.path()));
    for name in names(whole.path()).iter().filter(|name| !name.ends_with(".uidx")) {
        assert!(fs::read(whole.path().join(name)).unwrap() == fs::read(to.path().join(name)).unwrap(), "{name}");
    }
    let report = stop_behind(u64::MAX);
    assert_eq!((report.shards_kept, report.bytes_written, report.samples), (8, 0, 8));
}

#[test]
fn shards_of_another_plan_stay_unless_they_are_to_be_replaced() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    pack(folder_at(source.path()), to.path(), one_each()).unwrap();
    fs::write(to.path().join("shard-000099.tar"), b"not of the manifest").unwrap();
    let before = samples_of(to.path());
    let others = [
        ("align", one_each().align(512)),
        ("prefix", one_each().prefix("other")),
        ("shard samples, number of shards", one_each().shard_samples(2)),
        ("shard size", one_each().shard_bytes(5_000_000)),
    ];
    for (what, options) in others {
        let error = pack(folder_at(source.path()), to.path(), options).unwrap_err();
        refused(error, &format!("other settings: {what}\n"), "overwrite");
    }
    // Files of the same names and sizes, that hold something else, or were written to.
    let file = source.path().join("cat/1.jpg");
    let (bytes, modified) = (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().modified().unwrap());
    let write = |bytes: &[u8], time| {
        fs::write(&file, bytes).unwrap();
        fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        packed(folder_at(source.path()), to.path(), one_each())
    };
    let others: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    refused(write(&others, modified).unwrap_err(), "other settings: bytes of the source\n", "overwrite");
    let later = modified + std::time::Duration::from_secs(9);
    refused(write(&bytes, later).unwrap_err(), "other settings: times of the source\n", "overwrite");
    write(&bytes, modified).expect("the source is as it was");
    fs::write(source.path().join("cat/9.jpg"), b"another source").unwrap();
    let error = pack(folder_at(source.path()), to.path(), one_each()).unwrap_err();
    refused(error, "other settings: source, number of samples, number of shards\n", "overwrite");
    assert_eq!(samples_of(to.path()), before);
    let replace = options().overwrite(true).prefix("other");
    let report = packed(folder_at(source.path()), to.path(), replace).unwrap();
    assert_eq!((report.shards, report.shards_kept), (1, 0));
    let left = ["other-000000.tar", "other-000000.tar.uidx", "pack.json", "shard-000099.tar"];
    assert_eq!(names(to.path()), left, "what no manifest lists stays");
}

fn samples_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    names(folder).into_iter().map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}

#[test]
fn folders_with_something_else_in_them_are_refused() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    fs::write(to.path().join("thesis.tex"), b"").unwrap();
    for overwrite in [false, true] {
        let error = pack(folder_at(source.path()), to.path(), options().overwrite(overwrite)).unwrap_err();
        refused(error, "files that no pack has made", "empty or new");
    }
    assert_eq!(names(to.path()), ["thesis.tex"]);
    fs::write(to.path().join("pack.json"), b"{\"version\": 99}").unwrap();
    let error = pack(folder_at(source.path()), to.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    // The source itself, and the folder that it lies in.
    let around = source.path().parent().unwrap();
    for folder in [source.path(), around] {
        let error = Loader::builder(folder_at(source.path())).pack(folder, options()).unwrap_err();
        refused(error, "the source has a file in the folder", "apart");
    }
    for (wrong, words) in [
        (options().align(1024), "aligned to 1024"),
        (options().prefix("a/b"), "a/b"),
        (options().shard_samples(0), "at least"),
    ] {
        let error = Loader::builder(folder_at(source.path())).pack("/nowhere", wrong).unwrap_err();
        refused(error, words, "");
    }
}

#[test]
fn two_packs_do_not_write_to_one_folder() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    let first = Loader::builder(folder_at(source.path())).pack(to.path(), one_each()).unwrap();
    let report = first.run(&|_| {
        let error = pack(folder_at(source.path()), to.path(), one_each()).unwrap_err();
        refused(error, "another pack is writing", "wait");
        ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().shards, 8);
    assert_eq!(samples(to.path()).len(), 8);
}

#[test]
fn a_full_disk_leaves_no_half_shard() {
    let mounted = match Mounted::new(Kind::Tmpfs) {
        Ok(mounted) => mounted,
        Err(reason) => return skip(format!("a full disk: {reason}")),
    };
    let resize = |size: &str| {
        let options = format!("remount,size={size}");
        std::process::Command::new("mount").args(["-o", &options]).arg(mounted.path()).status().unwrap();
    };
    resize("256k");
    let source = tempfile::tempdir().unwrap();
    for number in 0..10 {
        super::write_file(&source.path().join(format!("{number}.bin")), 50_000).unwrap();
    }
    let to = mounted.path().join("shards");
    let options = options().shard_samples(2).threads(1);
    let dataset = folder_at(source.path());
    let error = pack(Arc::clone(&dataset), &to, options.clone()).unwrap_err();
    assert!(error.to_string().contains("No space left") && error.remedy().unwrap().contains("make room"), "{error}");
    let names = names(&to);
    assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    assert!(
        names.iter().any(|name| name.ends_with(".tar")) && !names.contains(&"shard-000004.tar".into()),
        "{names:?}"
    );
    resize("4m");
    let report = pack(dataset, &to, options).unwrap();
    assert!(report.shards_kept > 0 && report.shards == 5);
    assert_eq!(samples(&to).len(), 10);
}
