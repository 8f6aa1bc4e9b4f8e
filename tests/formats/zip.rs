//! Zip archives of files: stored and deflated members, classes, what is refused, and archives that are broken anywhere.

use super::memory::ON_THIS_THREAD;
use crate::common::content::put;
use crate::common::direct::{self, folder, key, left_out};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::{Error, ErrorKind};

/// A zip archive of members by name, content, and whether they are deflated, by hand from APPNOTE.TXT.
pub fn archive(members: &[(&str, &[u8], bool)]) -> Vec<u8> {
    let number = |number: usize| (number as u32).to_le_bytes();
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for &(name, bytes, is_deflated) in members {
        let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        let packed = writer.write_all(bytes).and_then(|()| writer.finish()).unwrap();
        let stored = if is_deflated { &packed } else { bytes };
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let common = [
            &[20, 0, 0, 0, if is_deflated { 8 } else { 0 }, 0, 0, 0, 0x21, 0][..],
            &crc.sum().to_le_bytes(),
            &number(stored.len()),
            &number(bytes.len()),
            &[name.len() as u8, 0, 0, 0],
        ]
        .concat();
        let place = number(out.len());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 10], &place, name.as_bytes()].concat());
        out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), stored].concat());
    }
    let (start, count) = (number(out.len()), (members.len() as u16).to_le_bytes());
    out.extend(&directory);
    out.extend([&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &number(directory.len()), &start, &[0; 2]].concat());
    out
}

fn open(path: &Path, labels: Option<bool>) -> Result<Arc<dyn Dataset>, Error> {
    let options = Options::new().timeout(ON_THIS_THREAD);
    dataset::open(&[path], &labels.map_or(options.clone(), |labels| options.set("labels", labels)))
}

/// Key, class and bytes of every sample.
fn told(zip: &dyn Dataset) -> Vec<(String, Option<String>, Vec<u8>)> {
    let one = |id| {
        let class = zip.label(SampleId(id)).map(|(_, class)| class.to_string_lossy().into_owned());
        (key(zip, id), class, direct::sample(zip, id).unwrap()["data"].clone())
    };
    (0..zip.len()).map(one).collect()
}

#[test]
fn members_are_the_files_of_a_folder() {
    let long = b"abc".repeat(100);
    let members: [(&str, &[u8], bool); 7] = [
        ("set/dog/2.jpg", &long, true),
        ("set/dog/1.jpg", b"one", false),
        ("set/cat/9.jpg", b"", true),
        ("set/cat/", b"", false),
        ("__MACOSX/set/cat/._9.jpg", b"x", false),
        ("set/README.md", b"read me", false),
        ("set/more.csv", b"a,b", false),
    ];
    let place = folder(&[("a.zip", &archive(&members)), ("b.zip", &archive(&[("set/dog/0.jpg", b"b", false)]))]);
    let zip = open(place.path(), None).unwrap();
    assert_eq!((zip.format(), zip.shards(), zip.index().classes.len()), ("zip", &[3, 4][..], 2));
    let sample = |key: &str, class: &str, bytes: &[u8]| (key.to_owned(), Some(class.to_owned()), bytes.to_vec());
    let wanted = [
        sample("set/cat/9.jpg", "cat", b""),
        sample("set/dog/1.jpg", "dog", b"one"),
        sample("set/dog/2.jpg", "dog", &long),
        sample("set/dog/0.jpg", "dog", b"b"),
    ];
    assert_eq!(told(&*zip), wanted);
    assert_eq!((zip.bytes(), zip.length(SampleId(2), 0), zip.units().unwrap().count()), (304, Some(300), 2));
    assert_eq!(left_out(&*zip), [("hidden names", 1), ("files of other formats", 1), ("companions of the data", 1)]);
    let unlabelled = open(place.path(), Some(false)).unwrap();
    assert!(told(&*unlabelled).iter().all(|(_, class, _)| class.is_none()) && unlabelled.schema().fields.len() == 1);
    let flat = folder(&[("a.zip", &archive(&[("x/1.jpg", b"1", false), ("x/2.jpg", b"2", false)]))]);
    assert!(open(flat.path(), None).unwrap().index().classes.is_empty(), "one folder of all is no class");
    let error = open(flat.path(), Some(true)).unwrap_err();
    assert!(error.what().contains("\"x/1.jpg\" is in no class folder") && error.remedy().is_some(), "{error}");
}

#[test]
fn archives_that_are_refused() {
    let tables = archive(&[("a.parquet", b"PAR1", false), ("b.parquet", b"PAR1", false), ("c.jpg", b"", false)]);
    let mut encrypted = archive(&[("a.jpg", b"abc", false)]);
    let (local, entry) = (6, encrypted.windows(4).position(|four| four == b"PK\x01\x02").unwrap() + 8);
    encrypted[local] |= 1;
    encrypted[entry] |= 1;
    let mut packed = archive(&[("a.jpg", b"abc", true)]);
    packed[8] = 93;
    packed[entry + 2 + 1] = 0;
    let at = packed.windows(4).position(|four| four == b"PK\x01\x02").unwrap() + 10;
    packed[at] = 93;
    for (bytes, words) in [
        (tables, "2 members of the archive are of the format parquet"),
        (encrypted, "packed by encryption"),
        (packed, "packed by zstd"),
        (archive(&[("README.md", b"x", false)]), "no archive has a file"),
        (archive(&[]), "no archive has a file"),
    ] {
        let place = folder(&[("a.zip", &bytes)]);
        let error = open(place.path(), None).expect_err(words);
        assert!(error.what().contains(words) && error.path().is_some() && error.remedy().is_some(), "{words}: {error}");
    }
}

/// Cut at every byte, and changed at every byte: what opens and is read is what was written, or an error says where.
#[test]
fn archives_that_are_broken_anywhere() {
    let long = b"abcdefgh".repeat(9);
    let good = archive(&[("a/1.jpg", &long, true), ("b/2.jpg", b"two", false)]);
    let place = folder(&[("a.zip", &good)]);
    let path = place.path().join("a.zip");
    let wanted = told(&*open(&path, None).unwrap());
    let check = |bytes: &[u8], what: &str, is_stored: bool| {
        put(&path, bytes).unwrap();
        let Ok(zip) = dataset::open(&[&path], &Options::new().format("zip").timeout(ON_THIS_THREAD)) else { return };
        for id in 0..zip.len() {
            let Ok(sample) = direct::sample(&*zip, id) else { continue };
            let found = wanted.iter().any(|(_, _, bytes)| *bytes == sample["data"]);
            assert!(found || is_stored, "{what}: {:?}", sample["data"]);
        }
    };
    (0..good.len()).for_each(|len| check(&good[..len], "cut", false));
    // A change within stored bytes shows by their checksum alone, which verify compares.
    let stored = good.windows(3).position(|three| three == b"two").unwrap();
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            check(&bytes, &format!("changed at {at}"), (stored..stored + 3).contains(&at) || at >= stored);
        }
    }
    put(&path, &good).unwrap();
    let (zip, mut checks) = (open(&path, None).unwrap(), Vec::new());
    zip.checks(dataset::FileId(0), &mut checks).unwrap();
    assert_eq!((checks.len(), checks[0].span.offset, &*checks[0].algorithm), (1, stored as u64, "crc32"));
    let mut bytes = good;
    bytes[30 + 7 + 4] ^= 1;
    put(&path, &bytes).unwrap();
    let error = direct::sample(&*open(&path, None).unwrap(), 0).unwrap_err();
    assert_eq!((error.kind(), error.path(), error.offset()), (ErrorKind::Corrupt, Some(&*path), Some(0)), "{error}");
}
