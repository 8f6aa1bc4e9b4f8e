//! Tar archives on real files: what is a sample, what bad input gets, what becomes of indexes.

mod common;

use common::archive::{Archive, base_256, octal, record};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use uringload::batch::Data;
use uringload::config::{EngineChoice, IoChoice, OnError};
use uringload::dataset::{
    Damaged, Dataset, FileId, Folder, Missing, Sample, SampleId, SkipReason, Span, Tar, TarOptions, Value,
};
use uringload::loader::Loader;
use uringload::{Error, ErrorKind};

fn folder(archives: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in archives {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// Without sidecars, so that each look is a new one.
fn quiet() -> TarOptions {
    TarOptions { no_sidecars: true, threads: 2, missing: Missing::Empty, ..TarOptions::default() }
}

fn open(archive: &Archive) -> Result<Contents, Error> {
    let folder = folder(&[("a.tar", &archive.0)]);
    Tar::open(&[folder.path()], &quiet()).map(|tar| contents(&tar))
}

fn error(archive: &Archive) -> Error {
    let error = open(archive).unwrap_err();
    assert!(error.file().is_some_and(|file| file.ends_with("a.tar")), "{error}");
    assert!(error.offset().is_some(), "{error}");
    error
}

/// Key and fields of a sample.
type Contents = Vec<(String, BTreeMap<String, Vec<u8>>)>;

/// All samples, read by themselves: spans are looked up, and what lies there is parsed.
fn contents(tar: &Tar) -> Contents {
    (0..tar.len()).map(|id| (key(tar, id), sample(tar, id).unwrap())).collect()
}

fn sample(tar: &Tar, id: u64) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut spans: Vec<Span> = Vec::new();
    tar.spans(SampleId(id), &mut spans);
    assert_eq!(spans.len(), tar.schema().fields.len());
    let file = fs::read(tar.files().path(spans[0].file)).unwrap();
    let raw: Vec<_> =
        spans.iter().map(|span| file[span.offset as usize..][..span.len as usize].to_vec().into()).collect();
    let mut sample = Sample::default();
    tar.parse(SampleId(id), &raw, &mut sample)?;
    let fields = tar.schema().fields.iter().zip(sample.values).enumerate();
    Ok(fields
        .map(|(number, (field, value))| {
            let Value::Bytes(bytes) = value else { panic!("{} is bytes", field.name) };
            assert_eq!(tar.length(SampleId(id), number), Some(bytes.len() as u64));
            (field.name.clone(), bytes.to_vec())
        })
        .collect())
}

fn key(tar: &Tar, id: u64) -> String {
    let mut key = Vec::new();
    tar.key(SampleId(id), &mut key);
    String::from_utf8(key).unwrap()
}

fn one(key: &str, fields: &[(&str, &str)]) -> (String, BTreeMap<String, Vec<u8>>) {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
    (key.to_owned(), fields.collect())
}

fn left_out(tar: &Tar) -> Vec<(SkipReason, u64)> {
    tar.skipped().iter().map(|skipped| (skipped.reason, skipped.count)).collect()
}

#[test]
fn neighbours_of_one_key_are_a_sample() {
    let archive = Archive::new()
        .file("x/0.jpg", b"one")
        .file("x/0.CLS", b"1")
        .member(b"x/", b'5', b"")
        .file("x/1.cls", b"2")
        .file("__meta__", b"ignored")
        .file("x/1.jpg", b"two")
        .file("noext", b"ignored")
        .file("x/.hidden.jpg", b"ignored")
        .member(b"x/2.jpg", b'2', b"")
        .file("x/0.jpg", b"again")
        .file("x.y/0.jpg", b"")
        .end();
    let folder = folder(&[("a.tar", &archive.0), ("b.txt", b"no shard")]);
    let tar = Tar::open(&[folder.path()], &quiet()).unwrap();
    let wanted = [
        one("x/0", &[("jpg", "one"), ("cls", "1")]),
        one("x/1", &[("jpg", "two"), ("cls", "2")]),
        one("x/0", &[("jpg", "again"), ("cls", "")]),
        one("x.y/0", &[("jpg", ""), ("cls", "")]),
    ];
    assert_eq!(contents(&tar), wanted);
    let fields: Vec<&str> = tar.schema().fields.iter().map(|field| &*field.name).collect();
    assert_eq!(fields, ["jpg", "cls"], "in the order in which they first come");
    assert_eq!((tar.lacking(0), tar.lacking(1), tar.shards()), (0, 2, &[4][..]));
    assert_eq!(tar.bytes(), 13);
    let reasons = [
        (SkipReason::NoShard, 1),
        (SkipReason::NoRegularMember, 2),
        (SkipReason::NoField, 2),
        (SkipReason::Metadata, 1),
    ];
    assert_eq!(left_out(&tar), reasons);
    assert!(tar.skipped().iter().any(|skipped| skipped.first.ends_with("a.tar/__meta__")));
}

#[test]
fn every_dialect_of_names_and_sizes() {
    let long = format!("{}/{}.jpg", "d".repeat(120), "n".repeat(200));
    let key = long.trim_end_matches(".jpg");
    let prefix = |block: &mut [u8; 512]| block[345..350].copy_from_slice(b"upper");
    let gnu = |block: &mut [u8; 512]| {
        // GNU's own format keeps times where POSIX has the beginning of the name.
        block[257..265].copy_from_slice(b"ustar  \0");
        block[345..350].copy_from_slice(b"12345");
    };
    let old = |block: &mut [u8; 512]| block[257..265].fill(0);
    let archive = Archive::new()
        .header(b"p.jpg", b'0', &octal(3), prefix)
        .content(b"ust")
        .header(b"g.jpg", b'0', &octal(3), gnu)
        .content(b"gnu")
        .header(b"v7.jpg", 0, &octal(2), old)
        .content(b"v7")
        .header(b"v7.d/", 0, &octal(0), old)
        .header(b"b.jpg", b'0', &base_256(4), |_| {})
        .content(b"b256")
        .header(b"s.jpg", b'0', b"   5 \0\0\0\0\0\0\0", |_| {})
        .content(b"blank")
        .header(b"c.jpg", b'7', &octal(1), |_| {})
        .content(b"c")
        .long(b'L', long.as_bytes())
        .file("cut.jpg", b"long")
        .long(b'K', b"target")
        .member(b"link.jpg", b'2', b"")
        .pax(b'x', &[("path", "pax.jpg"), ("size", "3"), ("mtime", "1.5")])
        .header(b"other.jpg", b'0', &octal(0), |_| {})
        .content(b"pax")
        .pax(b'g', &[("path", "global.jpg")])
        .file("a.jpg", b"1")
        .pax(b'x', &[("path", "local.jpg")])
        .file("a.jpg", b"2")
        .pax(b'x', &[("path", "")])
        .file("own.jpg", b"3")
        .pax(b'g', &[("path", ""), ("comment", "x")])
        .file("own2.jpg", b"4")
        // Of two that name the next member the first wins, as with Python's tarfile.
        .pax(b'x', &[("path", "first.jpg")])
        .long(b'L', b"second.jpg")
        .file("third.jpg", b"5")
        .end();
    let wanted = [
        ("upper/p", "ust"),
        ("g", "gnu"),
        ("v7", "v7"),
        ("b", "b256"),
        ("s", "blank"),
        ("c", "c"),
        (key, "long"),
        ("pax", "pax"),
        ("global", "1"),
        ("local", "2"),
        ("own", "3"),
        ("own2", "4"),
        ("first", "5"),
    ];
    assert_eq!(open(&archive).unwrap(), wanted.map(|(key, value)| one(key, &[("jpg", value)])));
    // A header that ends in a record of exactly its own length: the digits count themselves.
    assert_eq!((record("a", "b"), record("path", "12345678901").len()), ("6 a=b\n".into(), 20));
}

#[test]
fn archives_behind_archives_and_without_an_end() {
    let part = |key: &str| Archive::new().file(&format!("{key}.jpg"), key.as_bytes());
    let [a, b] = ["a", "b"].map(|key| one(key, &[("jpg", key)]));
    let skipped = |bytes: Vec<u8>| {
        let folder = folder(&[("a.tar", &bytes)]);
        let tar = Tar::open(&[folder.path()], &quiet()).unwrap();
        (contents(&tar), left_out(&tar))
    };
    let both = vec![a.clone(), b];
    assert_eq!(skipped([part("a").end().0, part("b").end().0].concat()), (both.clone(), vec![]));
    assert_eq!(skipped([part("a").end().0, vec![0; 9216], part("b").end().0].concat()), (both.clone(), vec![]));
    // `tar -A`: without an end between them.
    assert_eq!(skipped([part("a").0, part("b").end().0].concat()), (both, vec![]));
    let missing = vec![(SkipReason::MissingEnd, 1)];
    assert_eq!(skipped(part("a").0), (vec![a.clone()], missing.clone()));
    assert_eq!(skipped([part("a").0, vec![0; 512]].concat()), (vec![a.clone()], missing));
    let trailing = vec![(SkipReason::TrailingBytes, 1)];
    assert_eq!(skipped([part("a").end().0, vec![7; 512]].concat()), (vec![a.clone()], trailing.clone()));
    assert_eq!(skipped([part("a").end().0, vec![7; 5]].concat()), (vec![a.clone()], trailing));
    // One key in two archives is two samples.
    let twice = [Archive::new().file("a.jpg", b"a").end().0, Archive::new().file("a.cls", b"a").end().0].concat();
    assert_eq!(skipped(twice).0, [one("a", &[("jpg", "a"), ("cls", "")]), one("a", &[("jpg", ""), ("cls", "a")])]);
}

#[test]
fn bad_archives_get_an_error_with_file_and_offset() {
    let good = || Archive::new().file("a.jpg", b"12345");
    let sparse = |block: &mut [u8; 512]| block[482] = 0;
    for (archive, kind, offset, words) in [
        (good().file("a.JPG", b"6"), ErrorKind::Corrupt, 1024, "\"jpg\" comes twice"),
        (good().header(b"b.jpg", b'S', &octal(0), sparse), ErrorKind::Unavailable, 1024, "holes"),
        (good().pax(b'x', &[("GNU.sparse.major", "1")]).file("b.jpg", b""), ErrorKind::Unavailable, 2048, "holes"),
        (good().header(b"b.jpg", b'0', &octal(600), |_| {}).content(b"x"), ErrorKind::Truncated, 1024, "claims 600"),
        (good().header(b"b.jpg", b'0', &base_256(1 << 60), |_| {}), ErrorKind::Truncated, 1024, "1152921504606846976"),
        (good().pax(b'x', &[("size", "1152921504606846976")]).file("b.jpg", b""), ErrorKind::Truncated, 2048, "b.jpg"),
        (good().header(b"b.jpg", b'0', &[0xff; 12], |_| {}), ErrorKind::Corrupt, 1024, "negative"),
        (good().header(b"b.jpg", b'0', b"00000000008\0", |_| {}), ErrorKind::Corrupt, 1024, "no number"),
        (good().header(b"", b'L', &octal(1 << 30), |_| {}), ErrorKind::Corrupt, 1024, "claims 1073741824"),
        (good().header(b"", b'x', &octal(1 << 30), |_| {}), ErrorKind::Corrupt, 1024, "claims 1073741824"),
        (good().member(b"", b'x', b"99 path=a\n"), ErrorKind::Corrupt, 1024, "longer than its header"),
        (good().long(b'L', b"b.jpg"), ErrorKind::Truncated, 2048, "before its member"),
        (good().long(b'L', b"b.jpg").end(), ErrorKind::Corrupt, 2048, "before the end"),
        (Archive(vec![7; 512]), ErrorKind::Corrupt, 0, "no tar archive"),
        (Archive(vec![7; 100]), ErrorKind::Truncated, 0, "within a header"),
        (Archive(vec![]), ErrorKind::Truncated, 0, "no byte"),
        (good().content(&[7; 512]), ErrorKind::Corrupt, 1024, "damaged"),
    ] {
        let error = error(&archive);
        assert_eq!((error.kind(), error.offset()), (kind, Some(offset)), "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    for (magic, tool) in [(&b"\x1f\x8b\x08"[..], "gzip -d"), (b"\x28\xb5\x2f\xfd", "zstd -d"), (b"BZh9", "bzip2 -d")] {
        let folder = folder(&[("a.tar.gz", &[magic, &[0; 600]].concat())]);
        let error = Tar::open(&[folder.path()], &quiet()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.remedy().unwrap().contains(tool), "{error}");
    }
    let many = (0..1100).fold(Archive::new(), |archive, number| archive.file(&format!("img.{number}.jpg"), b""));
    assert!(error(&many).to_string().contains("more than 1024 different fields"));
    let none = open(&Archive::new().file("noext", b"").end()).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Empty);
    assert!(none.to_string().contains("without a field"), "{none}");
}

/// What is whole in front of a cut is there, and the error says where it is. (Cuts at every byte are tried where
/// archives need not be written to a disk, beside the scan.)
#[test]
fn a_cut_archive() {
    let whole = Archive::new()
        .file("a.jpg", b"0123456789")
        .file("a.cls", b"1")
        .long(b'L', &[&b"d".repeat(100)[..], b".jpg"].concat())
        .file("ddd", b"2")
        .pax(b'x', &[("path", "b.jpg")])
        .file("b", &[3; 600])
        .end();
    let samples = open(&whole).unwrap();
    assert_eq!(samples.len(), 3);
    let folder = folder(&[("a.tar", b"")]);
    let path = folder.path().join("a.tar");
    let keep = TarOptions { damaged: Damaged::Keep, ..quiet() };
    for len in (0..whole.0.len()).filter(|len| len % 61 == 0 || len % 512 < 2) {
        fs::write(&path, &whole.0[..len]).unwrap();
        let strict = Tar::open(&[&path], &quiet()).err();
        assert!(strict.is_some() || len % 512 == 0 || len > whole.0.len() - 512, "{len}");
        if let Some(error) = &strict {
            assert_eq!((error.kind(), error.file()), (ErrorKind::Truncated, Some(&*path)), "{len}: {error}");
            assert!(error.offset().is_some_and(|offset| offset <= len as u64), "{len}: {error}");
        }
        match Tar::open(&[&path], &keep) {
            Ok(tar) => {
                // Between two members nobody can tell a cut: the sample in front of it then lacks a field.
                assert!(samples.starts_with(&contents(&tar)) || len == 1024, "{len}");
                let damaged: Vec<String> = tar.damaged().iter().map(ToString::to_string).collect();
                assert_eq!(damaged, strict.iter().map(ToString::to_string).collect::<Vec<_>>(), "{len}");
            }
            Err(error) => assert_eq!(Some(error.to_string()), strict.map(|error| error.to_string()), "{len}"),
        }
    }
}

#[test]
fn a_good_shard_beside_a_bad_one_is_read() {
    let good = Archive::new().file("a.jpg", b"good").end();
    let bad = Archive::new().file("b.jpg", b"whole").file("c.jpg", b"lost").file("c.cls", &[1; 2000]);
    let folder = folder(&[("0.tar", &good.0), ("1.tar", &bad.0[..bad.0.len() - 512]), ("2.tar", &good.0)]);
    let error = Tar::open(&[folder.path()], &TarOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(2048)), "{error}");
    assert!(error.to_string().contains("c.cls") && error.file().unwrap().ends_with("1.tar"), "{error}");
    let keep = TarOptions { damaged: Damaged::Keep, ..TarOptions::default() };
    for _ in 0..2 {
        let tar = Tar::open(&[folder.path()], &keep).unwrap();
        // Of the sample that is cut, what is whole is left out as well.
        let keys: Vec<String> = (0..tar.len()).map(|id| key(&tar, id)).collect();
        assert_eq!(keys, ["a", "b", "a"]);
        assert_eq!(tar.damaged()[0].to_string(), error.to_string());
        assert!(left_out(&tar).contains(&(SkipReason::DamagedShard, 1)));
        assert!(!folder.path().join("1.tar.uidx").exists(), "no index of a damaged shard is kept");
    }
}

#[test]
fn fields_are_chosen_and_those_that_lack_are_errors() {
    let archive = Archive::new().file("a.jpg", b"1").file("a.cls", b"2").file("b.jpg", b"3").file("c.txt", b"4").end();
    let folder = folder(&[("a.tar", &archive.0)]);
    let open = |fields: &[&str], missing| {
        let fields = Some(fields.iter().map(|field| (*field).to_owned()).collect());
        Tar::open(&[folder.path()], &TarOptions { fields, missing, ..quiet() })
    };
    let tar = open(&["CLS", "jpg"], Missing::Error).unwrap();
    assert_eq!(tar.schema().fields.iter().map(|field| &*field.name).collect::<Vec<_>>(), ["cls", "jpg"]);
    assert_eq!(sample(&tar, 0).unwrap(), one("", &[("cls", "2"), ("jpg", "1")]).1);
    let error = sample(&tar, 1).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(2560)), "{error}");
    assert!(error.to_string().contains("\"b\" has no field \"cls\"") && error.remedy().is_some(), "{error}");
    assert_eq!(sample(&open(&["jpg"], Missing::Empty).unwrap(), 2).unwrap(), one("", &[("jpg", "")]).1);
    assert_eq!(open(&["jpg"], Missing::Empty).unwrap().plain_field(), Some(0));
    assert_eq!(tar.plain_field(), None);
    assert_ne!(tar.fingerprint(), open(&["jpg", "cls"], Missing::Error).unwrap().fingerprint());
    for (fields, words) in
        [(&["png"][..], "there are: jpg, cls, txt"), (&["jpg", "JPG"], "twice"), (&[], "without a field")]
    {
        let error = open(fields, Missing::Error).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_memory_bound_holds_for_any_samples() {
    let archive = |from: u64| {
        (from..from + 40).fold(Archive::new(), |archive, number| {
            archive
                .file(&format!("{number}.jpg"), &vec![1; (number * 7919 % 5000) as usize])
                .file(&format!("{number}.cls"), b"1")
        })
    };
    let folder = folder(&[("a.tar", &archive(0).0), ("b.tar", &archive(40).0)]);
    let tar = Tar::open(&[folder.path()], &quiet()).unwrap();
    let mut spans = Vec::new();
    let mut sizes: Vec<u64> = (0..tar.len())
        .map(|id| {
            spans.clear();
            tar.spans(SampleId(id), &mut spans);
            spans.iter().map(|span| span.len).sum()
        })
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(tar.bytes(), sizes.iter().sum::<u64>());
    for count in 0..=100 {
        let true_most: u64 = sizes.iter().take(count).sum();
        let bound = tar.largest(count as u64);
        assert!(bound >= true_most && bound <= tar.bytes(), "{count}: {bound} for {true_most}");
        assert!(bound <= 2 * true_most, "{count}: {bound} for {true_most}");
    }
}

fn tar_with(folder: &Path, format: &str, names: &[&str]) -> Option<PathBuf> {
    let path = folder.join(format!("{format}.tar"));
    let output = Command::new("tar")
        .arg(format!("--format={format}"))
        .args(["--sort=name", "-C"])
        .arg(folder.join("in"))
        .arg("-cf")
        .arg(&path)
        .args(names)
        .output();
    match output {
        Ok(output) if output.status.success() => Some(path),
        Ok(output) => {
            common::skip(format!("GNU tar --format={format}: {}", String::from_utf8_lossy(&output.stderr)));
            None
        }
        Err(error) => {
            common::skip(format!("GNU tar: {error}"));
            None
        }
    }
}

#[test]
fn archives_that_gnu_tar_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{}/{}", "f".repeat(90), "g".repeat(140));
    for (name, size) in [("0", 0_u64), ("1", 1), ("sub/2", 511), ("sub/3", 512), ("sub/d.x/4", 513), ("sub/5", 70_000)]
    {
        for ending in ["jpg", "cls.txt"] {
            let path = folder.path().join("in").join(format!("{name}.{ending}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            common::content::write_file(&path, size).unwrap();
        }
    }
    for format in ["v7", "ustar", "gnu", "pax"] {
        let mut names = vec!["0.cls.txt", "0.jpg", "1.cls.txt", "1.jpg", "sub"];
        let long_path = folder.path().join("in").join(format!("{long}.jpg"));
        if format == "gnu" || format == "pax" {
            fs::create_dir_all(long_path.parent().unwrap()).unwrap();
            common::content::write_file(&long_path, 99).unwrap();
            names.push(&long[..90]);
        }
        let Some(path) = tar_with(folder.path(), format, &names) else { continue };
        let tar = Tar::open(&[&path], &quiet()).unwrap();
        let got = contents(&tar);
        let wanted = 6 + u64::from(names.len() > 5);
        assert_eq!(tar.len(), wanted, "{format}");
        for (key, fields) in got {
            for (field, bytes) in fields {
                let source = folder.path().join("in").join(format!("{key}.{field}"));
                match fs::read(&source) {
                    Ok(content) => assert!(content == bytes, "{format}: {key}.{field}"),
                    Err(_) => assert!(key == long && field != "jpg" && bytes.is_empty(), "{format}: {key}.{field}"),
                }
            }
        }
    }
    // Holes, as GNU tar's three ways to store them.
    let holes = folder.path().join("in/h.jpg");
    fs::File::create(&holes).unwrap().set_len(1 << 20).unwrap();
    for format in ["gnu", "pax"] {
        let path = folder.path().join(format!("holes-{format}.tar"));
        let status = Command::new("tar")
            .args([&format!("--format={format}"), "--sparse", "-C"])
            .arg(folder.path().join("in"))
            .arg("-cf")
            .arg(&path)
            .arg("h.jpg")
            .status();
        if !status.is_ok_and(|status| status.success()) {
            common::skip("GNU tar --sparse");
            continue;
        }
        let error = Tar::open(&[&path], &quiet()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{format}: {error}");
    }
}

fn two_samples() -> Vec<u8> {
    Archive::new()
        .file("a.jpg", b"one")
        .file("a.cls", b"1")
        .file("b.jpg", b"two")
        .file("b.cls", b"2")
        .file("noext", b"")
        .end()
        .0
}

fn with_sidecars() -> TarOptions {
    TarOptions { threads: 2, ..TarOptions::default() }
}

/// Scanned or current, and the samples.
fn start(folder: &Path) -> (u64, u64, Contents, Vec<(SkipReason, u64)>) {
    let tar = Tar::open(&[folder], &with_sidecars()).unwrap();
    assert!(tar.fallbacks().is_empty(), "{:?}", tar.fallbacks());
    (tar.report().scanned, tar.report().current, contents(&tar), left_out(&tar))
}

#[test]
fn a_second_start_looks_through_nothing() {
    let folder = folder(&[("a.tar", &two_samples()), ("b.tar", &two_samples())]);
    let (scanned, current, samples, skipped) = start(folder.path());
    assert_eq!((scanned, current, samples.len()), (2, 0, 4));
    assert_eq!(skipped, [(SkipReason::NoField, 2)]);
    let first = Tar::open(&[folder.path()], &with_sidecars()).unwrap();
    assert_eq!((first.report().scanned, first.report().current, first.report().bytes_read), (0, 2, 0));
    assert_eq!((contents(&first), left_out(&first)), (samples.clone(), skipped));
    let rebuilt = Tar::open(&[folder.path()], &TarOptions { rebuild: true, ..with_sidecars() }).unwrap();
    assert_eq!((rebuilt.report().scanned, rebuilt.report().written), (2, 2));
    let without = Tar::open(&[folder.path()], &quiet()).unwrap();
    for other in [&rebuilt, &without] {
        assert_eq!((other.fingerprint(), contents(other)), (first.fingerprint(), samples.clone()));
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "no temporary file is left: {names:?}");
    // Nor do the indexes make samples of the folder, or another format of it.
    assert!(Tar::is_made_of(Folder::open(&[folder.path()]).unwrap().files()));
    fs::write(folder.path().join("c.jpg"), b"").unwrap();
    assert!(!Tar::is_made_of(Folder::open(&[folder.path()]).unwrap().files()));
}

#[test]
fn a_sidecar_that_is_not_the_shards_is_rebuilt() {
    let place = folder(&[("a.tar", &two_samples())]);
    let (path, index) = (place.path().join("a.tar"), place.path().join("a.tar.uidx"));
    let (_, _, samples, _) = start(place.path());
    let whole = fs::read(&index).unwrap();
    let rebuilt = |what: &str| {
        let tar = Tar::open(&[place.path()], &with_sidecars()).unwrap();
        assert_eq!((tar.report().scanned, contents(&tar)), (1, samples.clone()), "{what}");
        assert_eq!(tar.report().refused.len(), 1, "{what}");
        let (file, reason) = &tar.report().refused[0];
        assert!(file == &index && !reason.is_empty(), "{what}");
        assert_eq!(start(place.path()).1, 1, "{what}: the new one is used");
    };
    for at in [0, 8, 40, whole.len() / 2, 4097, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        if (200..4096).contains(&at) {
            continue;
        }
        fs::write(&index, &bytes).unwrap();
        rebuilt(&format!("byte {at}"));
    }
    for len in [0, 1, 100, 4096, whole.len() - 1] {
        fs::write(&index, &whole[..len]).unwrap();
        rebuilt(&format!("torn at {len}"));
    }
    // Touched without a change of size.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
    rebuilt("another time");
    // The sidecar of another shard of the same size and time.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let other = Archive::new()
        .file("x.jpg", b"one")
        .file("x.cls", b"1")
        .file("y.jpg", b"two")
        .file("y.cls", b"2")
        .file("nodot", b"")
        .end()
        .0;
    let elsewhere = folder(&[("b.tar", &other)]);
    fs::File::options().write(true).open(elsewhere.path().join("b.tar")).unwrap().set_modified(modified).unwrap();
    start(elsewhere.path());
    fs::copy(elsewhere.path().join("b.tar.uidx"), &index).unwrap();
    rebuilt("another shard");
    // And the shard itself, grown.
    fs::write(&path, [two_samples(), Archive::new().file("c.jpg", b"3").file("c.cls", b"3").end().0].concat()).unwrap();
    assert_eq!(start(place.path()).0, 1);
    assert_eq!(start(place.path()).2.len(), 3);
}

#[test]
fn where_a_folder_takes_no_index() {
    let place = folder(&[("a.tar", &two_samples())]);
    // A folder in the place of the sidecar: nobody, root included, can put a file there.
    fs::create_dir(place.path().join("a.tar.uidx")).unwrap();
    let tar = Tar::open(&[place.path()], &with_sidecars()).unwrap();
    let [fallback] = tar.fallbacks() else { panic!("{:?}", tar.fallbacks()) };
    let line = fallback.to_string();
    assert!(line.contains("indexes in memory") && line.contains("--index-cache") && fallback.errno.is_some(), "{line}");
    assert_eq!(tar.len(), 2);
    let cache = tempfile::tempdir().unwrap();
    let options = TarOptions { cache: Some(cache.path().join("sub")), ..with_sidecars() };
    let tar = Tar::open(&[place.path()], &options).unwrap();
    assert!(tar.fallbacks()[0].to_string().contains("indexes in \""), "{}", tar.fallbacks()[0]);
    assert_eq!((tar.report().scanned, tar.report().written), (1, 1));
    let again = Tar::open(&[place.path()], &options).unwrap();
    assert_eq!((again.report().scanned, again.report().current, again.len()), (0, 1, 2));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn dalis_index_is_taken_over_where_it_fits() {
    let bytes = two_samples();
    let good = "v1.2 2\njpg 512 3 a.jpg cls 1536 1 a.cls\njpg 2560 3 b.jpg cls 3584 1 b.cls\n";
    let open = |index: &str, bytes: &[u8]| {
        let folder = folder(&[("a.tar", bytes), ("a.idx", index.as_bytes())]);
        let tar = Tar::open(&[folder.path()], &quiet()).unwrap();
        let reason = tar.fallbacks().first().map(ToString::to_string);
        (tar.report().imported, contents(&tar), reason)
    };
    // What `wds2idx` would leave out is behind the last sample here: without it the index fits.
    let mut exact = bytes.clone();
    exact.truncate(4096);
    exact.extend([0; 1024]);
    let samples = open("", &exact).1;
    assert_eq!(samples.len(), 2);
    assert_eq!(open(good, &exact), (1, samples.clone(), None));
    for (index, words) in [
        (good.to_owned(), "behind the last one"),
        (good.replace("v1.2 2", "v1.2 3"), "counts 3"),
        (good.replace("v1.2", "v1.1"), "v1.1"),
        (good.replace("2560", "2561"), "does not lie in the archive"),
        (good.replace("2560", "1536"), "does not lie in the archive"),
        (good.replace("3584 1 ", "3584 2 "), "does not lie where it says"),
        (good.replace("b.cls", "b.c s"), "quadruples"),
        (good.replace("3584", "999999999999999999"), "does not lie in the archive"),
        (good.replace("3584", "18446744073709551104"), "does not lie in the archive"),
        (good.replace("b.cls", "a.txt"), "counts 2"),
        (good.replace("b.cls", "b.jpg"), "comes twice"),
        (good.replace("b.cls", "bcls"), "no member of a sample"),
        (good.replace(" b.cls", " b.txt"), "does not lie where it says"),
        (String::new(), "first line"),
        ("v1.2 0\n".into(), "behind the last one"),
    ] {
        let bytes = if words == "behind the last one" && index == good { &bytes } else { &exact };
        let (imported, found, reason) = open(&index, bytes);
        assert_eq!((imported, found), (0, samples.clone()), "{words}");
        assert!(reason.as_ref().is_some_and(|reason| reason.contains(words)), "{words}: {reason:?}");
    }
    // Written before the archive was.
    let folder = folder(&[("a.tar", &exact), ("a.idx", good.as_bytes())]);
    let file = fs::File::options().write(true).open(folder.path().join("a.idx")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
    let tar = Tar::open(&[folder.path()], &quiet()).unwrap();
    assert!(tar.report().imported == 0 && tar.fallbacks()[0].to_string().contains("changed since"));
}

#[test]
fn progress_comes_to_its_end() {
    let archives: Vec<(String, Vec<u8>)> = (0..9).map(|number| (format!("{number}.tar"), two_samples())).collect();
    let archives: Vec<(&str, &[u8])> = archives.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let folder = folder(&archives);
    let (calls, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let tar = Tar::open_with_progress(&[folder.path()], &quiet(), &|progress| {
        calls.fetch_add(1, Ordering::Relaxed);
        most.fetch_max(progress.bytes, Ordering::Relaxed);
        assert!(progress.shards <= progress.shards_total && progress.shards_total == 9);
        assert!(progress.bytes <= progress.bytes_total);
    });
    let size = two_samples().len() as u64;
    assert_eq!((calls.into_inner(), most.into_inner()), (9, 9 * size));
    assert_eq!(tar.unwrap().shards(), [2, 4, 6, 8, 10, 12, 14, 16, 18]);
}

/// Every byte of every field through the loader, on each engine, in order and shuffled.
#[test]
fn every_byte_through_the_loader() {
    let mut wanted = BTreeMap::new();
    let mut archives = Vec::new();
    for shard in 0..3_u64 {
        let mut archive = Archive::new();
        for number in 0..40_u64 {
            let id = shard * 40 + number;
            let mut fields = vec![("cls", 1 + id % 3), ("jpg", id * id * 7 % 60_000), ("json", id % 2 * 300)];
            if number % 7 == 3 {
                fields.remove(2);
            }
            for (field, len) in fields {
                let bytes = common::content::content(id * 8 + field.len() as u64, 0, len as usize);
                archive = archive.file(&format!("s{id}.{field}"), &bytes);
                wanted.insert((format!("s{id}"), field), bytes);
            }
        }
        archives.push((format!("{shard}.tar"), archive.end().0));
    }
    let archives: Vec<(&str, &[u8])> = archives.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let folder = folder(&archives);
    let tar =
        Arc::new(Tar::open(&[folder.path()], &TarOptions { missing: Missing::Empty, ..with_sidecars() }).unwrap());
    let dataset = Arc::clone(&tar) as Arc<dyn Dataset>;
    let ways = common::check::ways_to(&dataset);
    for (engine, io) in ways.into_iter().chain([(EngineChoice::Auto, IoChoice::Auto)]) {
        for (shuffle, gap) in [(false, 0), (true, 0), (true, 8192)] {
            let config = uringload::config::Config {
                batch_size: 7,
                epochs: Some(1),
                shuffle: shuffle.into(),
                engine,
                io,
                coalesce_gap: gap,
                ..Default::default()
            };
            let loader = Loader::builder(Arc::clone(&dataset)).config(config).build().unwrap();
            let mut seen = 0;
            for batch in loader {
                let batch = batch.unwrap();
                for (index, id) in batch.ids.iter().enumerate() {
                    for column in &batch.columns {
                        let Data::Views(views) = &column.data else { panic!("views") };
                        let found = wanted.get(&(key(&tar, id.0), &*column.name)).map_or(&[][..], |bytes| &bytes[..]);
                        assert!(views[index] == found, "{engine:?} {io:?}: {} of {}", column.name, key(&tar, id.0));
                    }
                    seen += 1;
                }
            }
            assert_eq!(seen, 120, "{engine:?} {io:?}");
        }
    }
}

/// A sample that lacks a field fails by itself; `on_error` decides about it as about any other.
#[test]
fn a_lacking_field_is_the_error_of_its_sample() {
    let archive = Archive::new()
        .file("a.jpg", b"1")
        .file("a.cls", b"2")
        .file("b.jpg", b"3")
        .file("c.jpg", b"1")
        .file("c.cls", b"2")
        .end();
    let folder = folder(&[("a.tar", &archive.0)]);
    let tar = Arc::new(Tar::open(&[folder.path()], &with_sidecars()).unwrap());
    let loader = Loader::builder(tar.clone()).batch_size(8).epochs(1).on_error(OnError::Skip).build().unwrap();
    let batches: Vec<_> = loader.map(Result::unwrap).collect();
    assert_eq!(batches[0].ids, [SampleId(0), SampleId(2)]);
    assert!(batches[0].failed[0].error.to_string().contains("has no field \"cls\""));
    assert_eq!(tar.locate(SampleId(2)), (FileId(0), 2));
}
