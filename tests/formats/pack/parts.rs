//! Packing by several jobs: the same bytes and one manifest, whatever their number and order.

use super::{class_folder, folder_at, options, samples};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use uringload::config::Part;
use uringload::pack::{Pack, PackOptions, PackReport};
use uringload::{Error, ErrorKind, Loader};

fn part_of(
    source: &Path,
    to: &Path,
    part: &str,
    change: impl FnOnce(PackOptions) -> PackOptions,
) -> Result<Pack, Error> {
    let part: Part = part.parse().unwrap();
    let options = options().shard_samples(1).part(part);
    Loader::builder(folder_at(source)).pack(to, change(options))
}

fn run(pack: &Pack) -> Result<PackReport, Error> {
    pack.run(&|_| ControlFlow::Continue(()))
}

/// What is in a folder; indexes tell the time of their shard.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| !name.ends_with(".uidx")).collect()
}

/// Both folders have the same files.
fn same(a: &Path, b: &Path) {
    let (a, b) = (files(a), files(b));
    assert!(a.keys().eq(b.keys()), "{:?} {:?}", a.keys(), b.keys());
    a.iter().for_each(|(name, bytes)| assert!(b[name] == *bytes, "{name}"));
}

#[test]
fn parts_in_any_order_are_the_whole() {
    let (source, whole) = (class_folder(), tempfile::tempdir().unwrap());
    run(&part_of(source.path(), whole.path(), "0/1", |options| options).unwrap()).unwrap();
    for parts in [["0/3", "1/3", "2/3"], ["2/3", "0/3", "1/3"], ["1/3", "2/3", "0/3"]] {
        let to = tempfile::tempdir().unwrap();
        let mut shards = 0;
        for part in parts {
            let pack = part_of(source.path(), to.path(), part, |options| options).unwrap();
            let report = run(&pack).unwrap();
            assert_eq!((report.shards, report.shards_kept), (pack.own_shards().count() as u64, 0), "{part}");
            assert_eq!((report.samples, report.lacking), (report.shards, 0), "{part}");
            shards += report.shards;
        }
        assert_eq!(shards, 8);
        same(to.path(), whole.path());
        // Whoever packs all of it finds all of it there.
        let report = run(&part_of(source.path(), to.path(), "0/1", |options| options).unwrap()).unwrap();
        assert_eq!((report.shards_kept, report.bytes_written, report.samples), (8, 0, 8));
        assert_eq!(samples(to.path()), samples(whole.path()));
    }
}

#[test]
fn a_part_that_was_ended_is_gone_on_with() {
    let (source, to, whole) = (class_folder(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&part_of(source.path(), whole.path(), "0/1", |options| options).unwrap()).unwrap();
    let first = part_of(source.path(), to.path(), "1/3", |options| options.threads(1)).unwrap();
    let ended = first.run(&|done| {
        assert_eq!((done.shards_total, done.samples_total), (3, 3));
        if done.shards >= 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(ended.unwrap().is_interrupted);
    // What kills leave behind, of this part and of another one, which may be at work.
    for name in [".shard-000004.tar.tmp", ".shard-000005.tar.tmp", ".pack.json.0-of-3.tmp"] {
        fs::write(to.path().join(name), b"half").unwrap();
    }
    let report = run(&first).unwrap();
    assert_eq!((report.shards, report.shards_kept), (3, 1));
    assert!(!to.path().join(".shard-000004.tar.tmp").exists() && to.path().join(".shard-000005.tar.tmp").exists());
    for part in ["2/3", "0/3"] {
        run(&part_of(source.path(), to.path(), part, |options| options).unwrap()).unwrap();
    }
    same(to.path(), whole.path());
}

#[test]
fn parts_are_written_at_once() {
    let (source, to, whole) = (class_folder(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&part_of(source.path(), whole.path(), "0/1", |options| options).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for part in ["0/4", "1/4", "2/4", "3/4"] {
            let (source, to) = (source.path(), to.path());
            scope.spawn(move || run(&part_of(source, to, part, |options| options).unwrap()).unwrap());
        }
    });
    same(to.path(), whole.path());
    // More jobs than shards: the last have nothing to do.
    let report = run(&part_of(source.path(), to.path(), "11/12", |options| options).unwrap()).unwrap();
    assert_eq!((report.shards, report.samples, report.lacking), (0, 0, 0));
}

#[test]
fn what_parts_may_not_do_is_refused() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    let refused = |error: Error, words: &str| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    };
    refused(part_of(source.path(), to.path(), "0/2", |options| options.overwrite(true)).unwrap_err(), "part 0/2");
    let first = part_of(source.path(), to.path(), "0/2", |options| options).unwrap();
    let report = first.run(&|_| {
        let all = part_of(source.path(), to.path(), "0/1", |options| options).unwrap();
        refused(run(&all).unwrap_err(), "another pack is writing");
        let twice = part_of(source.path(), to.path(), "0/2", |options| options).unwrap();
        refused(run(&twice).unwrap_err(), "another pack is writing");
        ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().shards, 4);
    let other = part_of(source.path(), to.path(), "1/2", |options| options.shard_samples(Some(2))).unwrap();
    refused(run(&other).unwrap_err(), "other settings: shard samples, number of shards\n");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("thesis.tex"), b"").unwrap();
    refused(
        run(&part_of(source.path(), elsewhere.path(), "0/2", |options| options).unwrap()).unwrap_err(),
        "no pack has made",
    );
}
