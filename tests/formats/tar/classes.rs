//! Archives of archives, and archives that are classes: ImageNet as it is fetched.

use super::packed::{ZSTD, pack};
use super::{error, folder, quiet};
use crate::common::archive::Archive;
use crate::common::direct::key;
use std::path::Path;
use std::sync::Arc;
use uringload::ErrorKind;
use uringload::dataset::{self, Dataset, SampleId, Value};
use uringload::inspect::Samples;

/// An archive of a class, with its images.
fn class(images: &[&str]) -> Vec<u8> {
    images.iter().fold(Archive::new(), |archive, name| archive.file(name, name.as_bytes())).end().0
}

fn open(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &quiet()).expect("archives")
}

/// Key, class and bytes of every sample.
fn told(tar: &Arc<dyn Dataset>) -> Vec<(String, String, String)> {
    let samples = Samples::new(Arc::clone(tar)).expect("a reader");
    let one = |id| {
        let label = tar.label(SampleId(id)).expect("a class");
        assert_eq!(tar.index().classes[usize::try_from(label.0).expect("a position")], label.1);
        let sample = samples.read(SampleId(id)).expect("a sample");
        let Value::Bytes(bytes) = &sample.values[0] else { panic!("{sample:?}") };
        assert_eq!(sample.values[1], Value::I64(label.0));
        (key(&**tar, id), label.1.to_string_lossy().into_owned(), String::from_utf8_lossy(bytes).into_owned())
    };
    (0..tar.len()).map(one).collect()
}

fn wanted(keys: [&str; 3]) -> Vec<(String, String, String)> {
    let (classes, names) = (["n01440764", "n01440764", "n01443537"], ["a_1.JPEG", "a_2.JPEG", "b_1.JPEG"]);
    (0..3).map(|at| (keys[at].into(), classes[at].into(), names[at].into())).collect()
}

#[test]
fn an_archive_for_each_class() {
    let (fish, shark) = (class(&["a_1.JPEG", "a_2.JPEG"]), class(&["b_1.JPEG"]));
    let extracted = folder(&[("n01443537.tar", &shark), ("n01440764.tar", &fish)]);
    assert_eq!(told(&open(extracted.path())), wanted(["a_1", "a_2", "b_1"]));

    let all = Archive::new().file("n01440764.tar", &fish).file("n01443537.tar", &shark).end();
    let keys = ["n01440764.tar/a_1", "n01440764.tar/a_2", "n01443537.tar/b_1"];
    for (name, bytes) in [("ILSVRC2012_img_train.tar", all.0.clone()), ("a.tar.zst", pack(ZSTD, &all.0))] {
        let whole = folder(&[(name, &bytes)]);
        assert_eq!(told(&open(whole.path())), wanted(keys), "{name}");
    }
    // A shard that is called otherwise, and a field that is an archive, are what they were.
    let shards = folder(&[("n0144076.tar", &fish)]);
    assert!(open(shards.path()).label(SampleId(0)).is_none());
    let field = Archive::new().file("1.json", b"{}").file("1.tar", &fish).end();
    let fields = folder(&[("a.tar", &field.0)]);
    assert_eq!(open(fields.path()).schema().fields.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["json", "tar"]);
}

#[test]
fn archives_in_archives_that_are_broken() {
    let fish = class(&["a_1.JPEG"]);
    let other = error(&Archive::new().file("a.tar", &fish).file("b.jpg", b"x").end());
    assert!(other.kind() == ErrorKind::Corrupt && other.what().contains("\"b.jpg\" is no archive"), "{other}");
    let cut = error(&Archive::new().file("a.tar", &fish[..512]).file("b.tar", &fish).end());
    assert!(cut.kind() == ErrorKind::Truncated && cut.what().contains("archive around it ends at 1024"), "{cut}");
    let all = Archive::new().file("a.tar", &fish).file("b.tar", &fish).end();
    let short = error(&Archive(all.0[..all.0.len() - 1024 - 512].to_vec()));
    assert!(short.kind() == ErrorKind::Truncated && short.what().contains("within the archive \"b.tar/\""), "{short}");
    // What follows the end of an inner archive is left out, and the next one is read.
    let trailing = [&fish[..], &[7; 512]].concat();
    let all = Archive::new().file("a.tar", &trailing).file("b.tar", &fish).end();
    let whole = folder(&[("all.tar", &all.0)]);
    let tar = open(whole.path());
    let left_out: Vec<(&str, u64)> = tar.index().left_out.iter().map(|it| (it.what, it.count)).collect();
    assert_eq!((tar.len(), left_out), (2, vec![("bytes after the end of an archive", 1)]));
    let damaged = dataset::open(&[whole.path()], &quiet().set("keep_damaged", true)).expect("both");
    assert_eq!(damaged.len(), 2);
}
