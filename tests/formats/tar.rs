//! Tar archives on real files: what is a sample, what bad input gets, the life of indexes.

mod classes;
mod index;
mod loader;
pub mod packed;
mod sparse;

use crate::common::archive::{Archive, base_256, octal, record};
use crate::common::direct::{folder, key, left_out};
use crate::common::{content, direct, skip};
use packed::{ZSTD, pack};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use uringload::dataset::{self, Dataset, Options, SampleId, Span, UnitId};
use uringload::{Error, ErrorKind};

/// Without sidecars, so that each look is a new one.
fn quiet() -> Options {
    Options::new().format("tar").set("missing", "empty").sidecars(false).threads(2)
}

/// What is in an archive; the same is in it when it is compressed, or wrong with it at the same place.
fn open(archive: &Archive) -> Result<Contents, Error> {
    let open = |name: &str, bytes: &[u8]| {
        let folder = folder(&[(name, bytes)]);
        dataset::open(&[folder.path()], &quiet()).map(|tar| contents(&*tar))
    };
    let (plain, packed) = (open("a.tar", &archive.0), open("a.tar.zst", &pack(ZSTD, &archive.0)));
    match (&plain, &packed) {
        (Err(plain), Err(packed)) => {
            assert_eq!((plain.kind(), plain.offset()), (packed.kind(), packed.offset()), "{plain}; {packed}");
        }
        _ => assert_eq!(plain.as_ref().ok(), packed.as_ref().ok()),
    }
    plain
}

fn error(archive: &Archive) -> Error {
    let error = open(archive).unwrap_err();
    assert!(error.path().is_some_and(|file| file.ends_with("a.tar")), "{error}");
    assert!(error.offset().is_some(), "{error}");
    error
}

/// Key and fields of a sample.
type Contents = Vec<(String, BTreeMap<String, Vec<u8>>)>;

/// All samples, read by themselves: spans are looked up, and what lies there is parsed.
fn contents(tar: &dyn Dataset) -> Contents {
    (0..tar.len()).map(|id| (key(tar, id), sample(tar, id).unwrap())).collect()
}

fn sample(tar: &dyn Dataset, id: u64) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let (mut spans, mut units): (Vec<Span>, Vec<UnitId>) = (Vec::new(), Vec::new());
    tar.spans(SampleId(id), &mut spans);
    if let Some(known) = tar.units() {
        known.of(SampleId(id), &mut units);
    }
    assert!(units.len() + spans.len().min(1) == 1 && spans.len() <= tar.schema().fields.len(), "{spans:?} {units:?}");
    direct::sample(tar, id)
}

fn one(key: &str, fields: &[(&str, &str)]) -> (String, BTreeMap<String, Vec<u8>>) {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
    (key.to_owned(), fields.collect())
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
    let tar = dataset::open(&[folder.path()], &quiet()).unwrap();
    let wanted = [
        one("x/0", &[("jpg", "one"), ("cls", "1")]),
        one("x/1", &[("jpg", "two"), ("cls", "2")]),
        one("x/0", &[("jpg", "again"), ("cls", "")]),
        one("x.y/0", &[("jpg", ""), ("cls", "")]),
    ];
    assert_eq!(contents(&*tar), wanted);
    let fields: Vec<&str> = tar.schema().fields.iter().map(|field| &*field.name).collect();
    assert_eq!(fields, ["jpg", "cls"], "in the order in which they first come");
    assert_eq!((&*tar.index().lacking, tar.shards()), (&[0, 2][..], &[4][..]));
    assert_eq!(tar.bytes(), 13);
    let reasons = [
        ("files that are no shards", 1),
        ("members that are no regular files", 2),
        ("members without a field in their name", 2),
        ("members of metadata", 1),
    ];
    assert_eq!(left_out(&*tar), reasons);
    assert!(tar.index().left_out.iter().any(|skipped| skipped.first.ends_with("a.tar/__meta__")));
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
        let tar = dataset::open(&[folder.path()], &quiet()).unwrap();
        (contents(&*tar), left_out(&*tar))
    };
    let both = vec![a.clone(), b];
    assert_eq!(skipped([part("a").end().0, part("b").end().0].concat()), (both.clone(), vec![]));
    assert_eq!(skipped([part("a").end().0, vec![0; 9216], part("b").end().0].concat()), (both.clone(), vec![]));
    // `tar -A`: without an end between them.
    assert_eq!(skipped([part("a").0, part("b").end().0].concat()), (both, vec![]));
    let missing = vec![("ends of archives that are not there (cut short?)", 1)];
    assert_eq!(skipped(part("a").0), (vec![a.clone()], missing.clone()));
    assert_eq!(skipped([part("a").0, vec![0; 512]].concat()), (vec![a.clone()], missing));
    let trailing = vec![("bytes after the end of an archive", 1)];
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
        (
            good().header(b"b.jpg", b'S', &octal(1), sparse),
            ErrorKind::Corrupt,
            1024,
            "0 bytes of data, and 1 are stored",
        ),
        (
            good().pax(b'x', &[("GNU.sparse.major", "1")]).file("b.jpg", b""),
            ErrorKind::Corrupt,
            1024,
            "the size of its",
        ),
        (good().pax(b'x', &[("GNU.sparse.major", "2")]).file("b.jpg", b""), ErrorKind::Unavailable, 2048, "holes"),
        (good().header(b"b.jpg", b'0', &octal(600), |_| {}).content(b"x"), ErrorKind::Truncated, 1024, "claims 600"),
        (good().header(b"b.jpg", b'0', &base_256(1 << 60), |_| {}), ErrorKind::Truncated, 1024, "1152921504606846976"),
        (good().pax(b'x', &[("size", "1152921504606846976")]).file("b.jpg", b""), ErrorKind::Truncated, 2048, "b.jpg"),
        (good().header(b"b.jpg", b'0', &[0xff; 12], |_| {}), ErrorKind::Corrupt, 1024, "negative"),
        (good().header(b"b.jpg", b'0', b"00000000008\0", |_| {}), ErrorKind::Corrupt, 1024, "no number"),
        (good().header(b"", b'L', &octal(1 << 30), |_| {}), ErrorKind::Corrupt, 1024, "claims 1073741824"),
        (good().header(b"", b'x', &octal(1 << 30), |_| {}), ErrorKind::Corrupt, 1024, "claims 1073741824"),
        (good().member(b"", b'x', b"99 path=a\n"), ErrorKind::Corrupt, 1024, "longer than its header"),
        (good().long(b'L', b"b.jpg"), ErrorKind::Truncated, 2048, "before its member"),
        (good().long(b'L', b"b.jpg").end(), ErrorKind::Corrupt, 2048, "no member follows"),
        (Archive(vec![7; 512]), ErrorKind::Corrupt, 0, "no tar archive"),
        (Archive(vec![7; 100]), ErrorKind::Truncated, 0, "within a header"),
        (Archive(vec![]), ErrorKind::Truncated, 0, "has no bytes"),
        (good().content(&[7; 512]), ErrorKind::Corrupt, 1024, "damaged"),
    ] {
        let error = error(&archive);
        assert_eq!((error.kind(), error.offset()), (kind, Some(offset)), "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    for (magic, tool) in [(&b"\xfd7zXZ\0"[..], "xz -d"), (b"\x04\x22\x4d\x18", "lz4 -d")] {
        let folder = folder(&[("a.tar.xz", &[magic, &[0; 600]].concat())]);
        let error = dataset::open(&[folder.path()], &quiet()).unwrap_err();
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
    let keep = quiet().set("keep_damaged", true);
    for len in (0..whole.0.len()).filter(|len| len % 61 == 0 || len % 512 < 2) {
        content::put(&path, &whole.0[..len]).unwrap();
        let strict = dataset::open(&[&path], &quiet()).err();
        assert!(strict.is_some() || len % 512 == 0 || len > whole.0.len() - 512, "{len}");
        if let Some(error) = &strict {
            assert_eq!((error.kind(), error.path()), (ErrorKind::Truncated, Some(&*path)), "{len}: {error}");
            assert!(error.offset().is_some_and(|offset| offset <= len as u64), "{len}: {error}");
        }
        match dataset::open(&[&path], &keep) {
            Ok(tar) => {
                // Between two members a cut is invisible: the sample in front of it then lacks a field.
                assert!(samples.starts_with(&contents(&*tar)) || len == 1024, "{len}");
                let damaged: Vec<String> = tar.index().damage.iter().map(ToString::to_string).collect();
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
    let error = dataset::open(&[folder.path()], &Options::new().format("tar")).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(2048)), "{error}");
    assert!(error.to_string().contains("c.cls") && error.path().unwrap().ends_with("1.tar"), "{error}");
    let keep = Options::new().format("tar").set("keep_damaged", true);
    for _ in 0..2 {
        let tar = dataset::open(&[folder.path()], &keep).unwrap();
        // Of the sample that is cut, what is whole is left out as well.
        let keys: Vec<String> = (0..tar.len()).map(|id| key(&*tar, id)).collect();
        assert_eq!(keys, ["a", "b", "a"]);
        assert_eq!(tar.index().damage[0].to_string(), error.to_string());
        assert!(left_out(&*tar).contains(&("rests of damaged shards", 1)));
        assert!(!folder.path().join("1.tar.uidx").exists(), "no index of a damaged shard is kept");
    }
}

#[test]
fn fields_are_chosen_and_those_that_lack_are_errors() {
    let archive = Archive::new().file("a.jpg", b"1").file("a.cls", b"2").file("b.jpg", b"3").file("c.txt", b"4").end();
    let folder = folder(&[("a.tar", &archive.0)]);
    let open = |fields: &[&str], missing| {
        dataset::open(&[folder.path()], &quiet().set("fields", fields).set("missing", missing))
    };
    let tar = open(&["CLS", "jpg"], "error").unwrap();
    assert_eq!(tar.schema().fields.iter().map(|field| &*field.name).collect::<Vec<_>>(), ["cls", "jpg"]);
    assert_eq!(sample(&*tar, 0).unwrap(), one("", &[("cls", "2"), ("jpg", "1")]).1);
    let error = sample(&*tar, 1).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(2560)), "{error}");
    assert!(error.to_string().contains("\"b\" has no field \"cls\"") && error.remedy().is_some(), "{error}");
    assert_eq!(sample(&*open(&["jpg"], "empty").unwrap(), 2).unwrap(), one("", &[("jpg", "")]).1);
    assert_eq!(open(&["jpg"], "empty").unwrap().index().plain_field, Some(0));
    assert_eq!(tar.index().plain_field, None);
    assert_ne!(tar.fingerprint(), open(&["jpg", "cls"], "error").unwrap().fingerprint());
    for (fields, words) in [(&["png"][..], "choose from the fields jpg, cls, txt"), (&["jpg", "JPG"], "twice")] {
        let error = open(fields, "error").unwrap_err();
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
    let tar = dataset::open(&[folder.path()], &quiet()).unwrap();
    let mut spans = Vec::new();
    let mut sizes: Vec<u64> = (0..tar.len())
        .map(|id| {
            spans.clear();
            tar.spans(SampleId(id), &mut spans);
            spans.iter().map(|span| span.len).sum()
        })
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    assert!(tar.bytes() <= sizes.iter().sum::<u64>());
    for count in 0..=100 {
        let true_most: u64 = sizes.iter().take(count).sum();
        let bound = tar.largest(count as u64);
        assert!(bound >= true_most, "{count}: {bound} for {true_most}");
        let between = 8192 * count.min(80) as u64;
        assert!(bound <= 2 * true_most + between && bound <= tar.bytes() + between, "{count}: {bound} for {true_most}");
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
            skip(format!("GNU tar --format={format}: {}", String::from_utf8_lossy(&output.stderr)));
            None
        }
        Err(error) => {
            skip(format!("GNU tar: {error}"));
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
            content::write_file(&path, size).unwrap();
        }
    }
    for format in ["v7", "ustar", "gnu", "pax"] {
        let mut names = vec!["0.cls.txt", "0.jpg", "1.cls.txt", "1.jpg", "sub"];
        let long_path = folder.path().join("in").join(format!("{long}.jpg"));
        if format == "gnu" || format == "pax" {
            fs::create_dir_all(long_path.parent().unwrap()).unwrap();
            content::write_file(&long_path, 99).unwrap();
            names.push(&long[..90]);
        }
        let Some(path) = tar_with(folder.path(), format, &names) else { continue };
        let tar = dataset::open(&[&path], &quiet()).unwrap();
        let got = contents(&*tar);
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
}

/// Values that lie close together are one read, others are not, and empty ones are none.
#[test]
fn neighbouring_values_are_read_as_one() {
    let archive = Archive::new()
        .file("a.jpg", &[1; 700])
        .pax(b'x', &[("mtime", "1.5")])
        .file("a.cls", b"2")
        .file("a.txt", b"")
        .file("b.jpg", &[3; 100])
        .file("no-sample", &[0; 9000])
        .file("b.cls", b"4")
        .file("c.jpg", b"")
        .file("c.cls", b"")
        // The other way round than the first.
        .file("d.cls", b"5")
        .file("d.jpg", b"6")
        .end();
    let folder = folder(&[("a.tar", &archive.0)]);
    let tar = dataset::open(&[folder.path()], &quiet()).unwrap();
    let spans = |id| {
        let mut spans = Vec::new();
        tar.spans(SampleId(id), &mut spans);
        spans.iter().map(|span| (span.offset, span.len)).collect::<Vec<_>>()
    };
    // Padding of 324 bytes, a PAX header with its block, a header.
    assert_eq!(spans(0), [(512, 700 + 324 + 1536 + 1)]);
    assert_eq!(spans(1).len(), 2);
    assert_eq!(spans(2), [(0, 0)]);
    assert_eq!(spans(3).len(), 2, "a field that lies in front of its predecessor is read by itself");
    let jpg: Vec<Vec<u8>> = (0..4).map(|id| sample(&*tar, id).unwrap().remove("jpg").unwrap()).collect();
    assert_eq!(jpg, [vec![1; 700], vec![3; 100], vec![], vec![b'6']]);
    let cls: Vec<Vec<u8>> = (0..4).map(|id| sample(&*tar, id).unwrap().remove("cls").unwrap()).collect();
    assert_eq!(cls, [&b"2"[..], b"4", b"", b"5"]);
}
