//! Proving a pack by the indexes of its shards, whatever was done to them.

use super::dense::tiny;
use super::{class_folder, folder_at, options, pack};
use crate::common::content::write_file;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use uringload::config::OnError;
use uringload::pack::{Keys, Pack, PackLayout, PackOptions};
use uringload::{Error, ErrorKind, Loader};

fn one_each() -> PackOptions {
    options().shard_samples(1)
}

fn planned(source: &Path, to: &Path, options: PackOptions) -> Pack {
    Loader::builder(folder_at(source)).pack(to, options).unwrap()
}

fn refused(pack: &Pack, kind: ErrorKind, words: &str) {
    let error: Error = pack.finish().unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words) && error.remedy().is_some(), "{words:?} is not in {error}");
}

#[test]
fn what_all_jobs_have_written_is_proved() {
    let (photos, notes) = (class_folder(), tiny(200));
    for layout in [PackLayout::Tar, PackLayout::Mds] {
        for keys in [Keys::Source, Keys::Numbers] {
            for samples in [1, 3, 1000] {
                let source = if layout == PackLayout::Mds { notes.path() } else { photos.path() };
                let to = tempfile::tempdir().unwrap();
                let options = options().layout(layout).keys(keys).shard_samples(samples);
                let parts =
                    ["0/2", "1/2"].map(|part| planned(source, to.path(), options.clone().part(part.parse().unwrap())));
                let whole = planned(source, to.path(), options);
                refused(&whole, ErrorKind::NotFound, "no pack has written to the folder");
                refused(&parts[0], ErrorKind::InvalidArgument, "part 0/2 alone");
                parts[1].run(&|_| ControlFlow::Continue(())).unwrap();
                let missing = whole.shards().len().div_ceil(2);
                refused(
                    &whole,
                    ErrorKind::NotFound,
                    &format!("{missing} of {} shards are missing: numbers 0", whole.shards().len()),
                );
                let writing = parts[0].run(&|_| {
                    refused(&whole, ErrorKind::InvalidArgument, "another pack is writing");
                    ControlFlow::Continue(())
                });
                writing.unwrap();
                // What a job that was killed has left.
                let left = to.path().join(".shard-000000.tar.tmp");
                fs::write(&left, "half").unwrap();
                let report = whole.finish().unwrap();
                assert_eq!((report.samples, report.lacking), (whole.samples(), 0));
                assert_eq!(report.shards, whole.shards().len() as u64);
                assert!(!left.exists());
            }
        }
    }
}

/// A shard in the place of another, twice, cut off, of other bytes, and one too many.
#[test]
fn what_was_done_to_shards_is_found() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    pack(folder_at(source.path()), to.path(), one_each()).unwrap();
    let whole = planned(source.path(), to.path(), one_each());
    let shard = |number| whole.path(number);
    let index = |number| whole.path(number).with_extension("tar.uidx");
    let kept = fs::read(shard(2)).unwrap();
    let put_back = || {
        fs::write(shard(2), &kept).unwrap();
        let _ = fs::remove_file(index(2));
        assert_eq!(whole.finish().unwrap().lacking, 0);
    };
    for other in [0, 1, 3, 7] {
        fs::copy(shard(other), shard(2)).unwrap();
        fs::remove_file(index(2)).unwrap();
        refused(&whole, ErrorKind::Corrupt, "is not planned there");
        put_back();
    }
    fs::write(shard(2), &kept[..kept.len() / 2]).unwrap();
    assert!([ErrorKind::Truncated, ErrorKind::Corrupt].contains(&whole.finish().unwrap_err().kind()));
    put_back();
    // The same key with another value: a source that was packed elsewhere.
    let changed = class_folder();
    write_file(&changed.path().join("cat/3.seg.png"), 4000).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    pack(folder_at(changed.path()), elsewhere.path(), one_each()).unwrap();
    fs::copy(elsewhere.path().join("shard-000002.tar"), shard(2)).unwrap();
    fs::remove_file(index(2)).unwrap();
    refused(&whole, ErrorKind::Corrupt, "bytes, and 409");
    put_back();
    for name in ["shard-000008.tar", "other.tar", "shard-2.tar"] {
        fs::copy(shard(2), to.path().join(name)).unwrap();
        refused(&whole, ErrorKind::InvalidArgument, "a reader would take this");
        fs::remove_file(to.path().join(name)).unwrap();
    }
    put_back();
    fs::remove_file(shard(5)).unwrap();
    fs::remove_file(shard(7)).unwrap();
    refused(&whole, ErrorKind::NotFound, "2 of 8 shards are missing: numbers 5, 7");
    let other = planned(source.path(), to.path(), one_each().keys(Keys::Numbers));
    refused(&other, ErrorKind::InvalidArgument, "other settings: keys");
}

/// Samples that could not be read when their shard was written.
#[test]
fn what_was_left_out_is_said_or_accepted() {
    for (layout, samples) in [(PackLayout::Tar, 1), (PackLayout::Tar, 5), (PackLayout::Mds, 1), (PackLayout::Mds, 7)] {
        let (source, to) = (tiny(20), tempfile::tempdir().unwrap());
        let dataset = folder_at(source.path());
        // Two are shorter than when they were indexed.
        for name in ["c0/00003.txt", "c2/00005.txt"] {
            fs::write(source.path().join(name), "cut").unwrap();
        }
        let plan = |on_error| {
            let options = options().layout(layout).shard_samples(samples);
            Loader::builder(dataset.clone()).on_error(on_error).pack(to.path(), options).unwrap()
        };
        let skipping = plan(OnError::Skip);
        let report = skipping.run(&|_| ControlFlow::Continue(())).unwrap();
        assert_eq!((report.samples, report.failed), (18, 2));
        let report = skipping.finish().unwrap();
        assert_eq!((report.samples, report.lacking), (18, 2), "{layout:?} {samples}");
        refused(&plan(OnError::Raise), ErrorKind::NotFound, "2 samples of the source are in no shard");
    }
}
