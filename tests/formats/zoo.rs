//! A hundred layouts of data as people have them, with the files beside it: what each is opened as, how many samples it
//! has and how many files are left out; or why it is not opened without more options.

mod layouts;

use super::shards::write_beton;
use super::zip::archive;
use crate::common::archive::Archive;
use crate::common::bucket::Bucket;
use crate::common::content::put;
use layouts::LAYOUTS;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Dataset, Options, SampleId};

/// Name, files, what is asked, and what is expected.
///
/// In a file's name `#` stands for three files; `@mds:PLACE` and `@litdata:PLACE` for a whole dataset. What is asked:
/// options as `name=value`, and `at=PATTERN` for paths in the folder, joined by blanks. Expected: format, samples,
/// files left out; or behind a `?`, words of the error.
type Layout = (&'static str, &'static str, &'static str, &'static str);

/// The files that one word of a layout stands for.
fn files(word: &str) -> Vec<String> {
    if !word.contains('#') {
        return vec![word.to_owned()];
    }
    (0..3).map(|number| word.replace('#', &number.to_string())).collect()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// What files have in them whose names end so: a file of the tests' data.
const COPIES: &[(&[&str], &str)] = &[
    (&[".parquet", ".parq", ".pq"], "same/same.parquet"),
    (&[".arrow", ".feather"], "same/same.arrow"),
    (&[".npy"], "arrays/plain_f4.npy"),
    (&[".npz"], "arrays/stored.npz"),
    (&[".safetensors"], "arrays/tensors.safetensors"),
    (&[".h5", ".hdf5"], "hdf5/small-latest.h5"),
    (&[".tfrecord", "-of-00003", "-of-00001"], "tfrecord/examples/train.tfrecord-00000-of-00002"),
];

/// What files have in them whose names end so.
const TEXTS: &[(&str, &[u8])] = &[
    (".jsonl", b"{\"text\":\"a\"}\n{\"text\":\"b\"}\n"),
    (".csv", b"id,text\n1,a\n2,b\n"),
    (".tsv", b"id\ttext\n1\ta\n2\tb\n"),
    ("idx3-ubyte", &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 7, 7, 7, 7, 7, 7, 7, 7]),
    ("idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 2, 4, 5]),
    (".mat", b"MATLAB 5.0 MAT-file, Platform: GLNXA64"),
    (".pkl", b"\x80\x04\x95\x00"),
    ("rows-0.json", b"{\"a\":1}\n{\"a\":2}\n"),
    ("alpaca.json", b"\n [ {\"a\": 1},\n{\"a\": 2}]"),
    ("objects.json", b"[{\"a\": 1}]"),
    ("numbers.json", b"[1, 2]"),
    (".json", b"{}"),
];

/// What a file of this name has in it.
fn content(name: &str, all: &[String]) -> Vec<u8> {
    let copy = |from: &str| fs::read(data(from)).expect("test data");
    let is_one = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let base = name.rsplit('/').next().expect("a name");
    if name.ends_with(".tar") {
        let archive = Archive::new().file("a.jpg", b"picture").file("a.cls", b"1");
        return archive.file("b.jpg", b"another").file("b.cls", b"2").end().0;
    }
    if name.ends_with(".zip") {
        return archive(&[("cat/1.jpg", b"x", false), ("dog/1.jpg", b"y", true)]);
    }
    if let Some((stem, half @ ("bin" | "idx"))) = name.rsplit_once('.')
        && ["bin", "idx"].iter().all(|half| all.contains(&format!("{stem}.{half}")))
    {
        return copy(&format!("arrays/megatron_u2.{half}"));
    }
    if let Some((_, from)) = COPIES.iter().find(|(endings, _)| is_one(endings)) {
        return copy(from);
    }
    if base.starts_with("data_batch_") && !base.contains('.') {
        return b"\x80\x02}q\x01".to_vec();
    }
    TEXTS.iter().find(|(ending, _)| name.ends_with(ending)).map_or_else(|| vec![b'x'; 24], |(_, text)| text.to_vec())
}

fn write(layout: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let all: Vec<String> = layout.split_whitespace().flat_map(files).collect();
    for name in &all {
        if let Some((what, place)) = name.strip_prefix('@').and_then(|name| name.split_once(':')) {
            let from = data(if what == "mds" { "mds/0" } else { what });
            let to = root.path().join(place);
            fs::create_dir_all(&to).expect("a folder");
            for entry in from.read_dir().expect("test data").map(|entry| entry.expect("an entry").path()) {
                let name = entry.file_name().expect("a file");
                if entry.is_file() && name != "expected.json" {
                    fs::copy(&entry, to.join(name)).expect("a copy");
                }
            }
            continue;
        }
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        if name.ends_with(".beton") {
            write_beton(&path);
        } else {
            put(&path, &content(name, &all)).expect("a file");
        }
    }
    root
}

/// What opening says: "tar 6 left 1", or the error.
fn opened(root: &Path, asked: &str, options: Options) -> (String, Option<Arc<dyn Dataset>>) {
    let (mut options, mut paths) = (options.sidecars(false), Vec::new());
    for (name, value) in asked.split_whitespace().map(|word| word.split_once('=').expect("name=value")) {
        match name {
            "at" => paths.push(root.join(value)),
            "format" => options = options.format(value),
            _ => options = options.set(name, value),
        }
    }
    if paths.is_empty() {
        paths.push(root.to_path_buf());
    }
    match dataset::open(&paths, &options) {
        Err(error) => {
            if error.kind() == ErrorKind::InvalidArgument && !asked.contains("window_tokens") {
                assert!(error.remedy().is_some_and(|remedy| !remedy.is_empty()), "no remedy: {error}");
            }
            (format!("? {error}"), None)
        }
        Ok(opened) => {
            let detected = detect(&paths, &options).expect("what was opened shows what it is");
            assert_eq!(detected.name, opened.format());
            let left: u64 = opened.index().left_out.iter().map(|left| left.count).sum();
            let left = if left > 0 { format!(" left {left}") } else { String::new() };
            (format!("{} {}{left}", opened.format(), opened.len()), Some(opened))
        }
    }
}

#[test]
fn a_hundred_layouts_are_what_they_are() {
    assert!(LAYOUTS.len() >= 100, "{}", LAYOUTS.len());
    let mut wrong = Vec::new();
    for (name, layout, asked, expected) in LAYOUTS {
        let root = write(layout);
        let (found, _) = opened(root.path(), asked, Options::new());
        let fits = match expected.strip_prefix("? ") {
            Some(words) => found.starts_with('?') && words.split("; ").all(|word| found.contains(word)),
            None => found == *expected,
        };
        if !fits {
            wrong.push(format!(
                "{name} [{asked}]: expected {expected:?}, found {:?}",
                found.replace(&*root.path().to_string_lossy(), "ROOT")
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), LAYOUTS.len(), wrong.join("\n"));
}

/// The same layouts as objects of a store: the same formats, samples and errors.
#[test]
fn layouts_are_the_same_in_a_store() {
    let mut wrong = Vec::new();
    for (name, layout, asked, _) in LAYOUTS {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("data");
        fs::rename(write(layout).keep(), &root).expect("a folder");
        let (near, of_files) = opened(&root, asked, Options::new());
        let options = Options::new().store("s3://bucket/", Bucket::of(folder.path()));
        let (found, of_objects) = opened(Path::new("s3://bucket/data"), asked, options);
        let (near, found) = (near.replace(&*root.to_string_lossy(), "ROOT"), found.replace("s3://bucket/data", "ROOT"));
        if let Some((one, other)) = of_files.zip(of_objects) {
            assert_eq!(one.fingerprint(), other.fingerprint(), "{name}");
            assert_eq!(one.schema(), other.schema(), "{name}");
            let key = |dataset: &Arc<dyn Dataset>, id| {
                let mut key = Vec::new();
                dataset.key(SampleId(id), &mut key);
                key
            };
            (0..one.len()).for_each(|id| assert_eq!(key(&one, id), key(&other, id), "{name}"));
        }
        if found != near {
            wrong.push(format!("{name} [{asked}]:\n  {near:?}\n  {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), LAYOUTS.len(), wrong.join("\n"));
}

/// Many objects that are named take a listing of each of their folders, and not of what lies beside these.
#[test]
fn named_objects_are_asked_for_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = |of: &str, count: usize| (0..count).map(|number| format!("{of}/{number:03}.dat")).collect::<Vec<_>>();
    for name in [names("a", 20), names("b", 20), names("c", 300)].concat() {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        put(&path, b"a sample").expect("a file");
    }
    let (bucket, named) = (Bucket::of(folder.path()), [names("a", 20), names("b", 20)].concat());
    let options = Options::new().format("folder").store("s3://bucket/", bucket.clone());
    let urls: Vec<String> = named.iter().map(|name| format!("s3://bucket/{name}")).collect();
    assert_eq!(dataset::open(&urls, &options).expect("objects").len(), 40);
    let pages = bucket.lists.load(std::sync::atomic::Ordering::Relaxed);
    assert!(pages <= 10, "{pages} pages, of 7 objects each");
}
