//! Sparse members: the files that they were, in each of GNU tar's four formats; and maps that are wrong.

use super::packed::{ZSTD, pack};
use super::{contents, folder, quiet};
use crate::common::archive::{Archive, base_256, octal};
use crate::common::content::content;
use crate::common::direct::report;
use crate::common::skip;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use uringload::dataset;
use uringload::{Error, ErrorKind};

/// Where the data of a file lies in it: offsets and lengths.
type Map = Vec<(u64, u64)>;

/// A file of 10,000 bytes with data at 1000, 4096 and its end, and what is stored of it.
fn file() -> (Vec<u8>, Map, Vec<u8>) {
    let map = vec![(1000, 700), (4096, 3), (9000, 1000)];
    let (mut bytes, mut stored) = (vec![0; 10_000], Vec::new());
    for (number, &(at, len)) in map.iter().enumerate() {
        let data = content(number as u64, 7, len as usize);
        bytes[at as usize..][..len as usize].copy_from_slice(&data);
        stored.extend(data);
    }
    (bytes, map, stored)
}

/// A member in the old format; the map goes on in blocks behind the header where it has more than four entries.
fn old(archive: Archive, map: &[(u64, u64)], size: u64, stored: &[u8]) -> Archive {
    let entries = |block: &mut [u8], map: &[(u64, u64)]| {
        for (at, &(offset, len)) in map.iter().enumerate() {
            block[24 * at..][..12].copy_from_slice(&octal(offset));
            block[24 * at + 12..][..12].copy_from_slice(&octal(len));
        }
    };
    let (first, more) = map.split_at(map.len().min(4));
    let mut archive = archive.header(b"a.jpg", b'S', &octal(stored.len() as u64), |block| {
        entries(&mut block[386..], first);
        block[482] = u8::from(!more.is_empty());
        block[483..495].copy_from_slice(&if size < 1 << 33 { octal(size) } else { base_256(size) });
    });
    let blocks: Vec<&[(u64, u64)]> = more.chunks(21).collect();
    for (number, part) in blocks.iter().enumerate() {
        let mut block = [0; 512];
        entries(&mut block, part);
        block[504] = u8::from(number + 1 < blocks.len());
        archive.0.extend(block);
    }
    archive.content(stored)
}

/// A member in a format of PAX records: 0, 1 or 10.
fn pax(archive: Archive, version: u32, map: &[(u64, u64)], size: u64, stored: &[u8]) -> Archive {
    let numbers: Vec<String> = map.iter().flat_map(|(at, len)| [at.to_string(), len.to_string()]).collect();
    let mut records = vec![("GNU.sparse.numblocks", map.len().to_string())];
    let mut body = stored.to_vec();
    match version {
        0 => {
            records.push(("GNU.sparse.size", size.to_string()));
            let keys = ["GNU.sparse.offset", "GNU.sparse.numbytes"];
            records.extend(numbers.into_iter().enumerate().map(|(at, number)| (keys[at % 2], number)));
            records.push(("path", "a.jpg".into()));
        }
        1 => {
            records.push(("GNU.sparse.size", size.to_string()));
            records.extend([("GNU.sparse.name", "a.jpg".into()), ("GNU.sparse.map", numbers.join(","))]);
        }
        _ => {
            records = vec![("GNU.sparse.major", "1".into()), ("GNU.sparse.minor", "0".into())];
            records.extend([("GNU.sparse.name", "a.jpg".into()), ("GNU.sparse.realsize", size.to_string())]);
            let mut head = format!("{}\n{}\n", map.len(), numbers.join("\n")).into_bytes();
            head.resize(head.len().next_multiple_of(512), 0);
            body = [head, body].concat();
        }
    }
    let records: Vec<(&str, &str)> = records.iter().map(|(key, value)| (*key, &**value)).collect();
    archive.pax(b'x', &records).file("./GNUSparseFile.7/a.jpg", &body)
}

/// Each format by its name, as a member between two others.
fn formats(map: &[(u64, u64)], size: u64, stored: &[u8]) -> Vec<(&'static str, Archive)> {
    let around = |member: &dyn Fn(Archive) -> Archive| {
        member(Archive::new().file("0.jpg", b"before")).file("a.cls", b"7").file("b.jpg", b"after").end()
    };
    vec![
        ("gnu", around(&|archive| old(archive, map, size, stored))),
        ("pax 0.0", around(&|archive| pax(archive, 0, map, size, stored))),
        ("pax 0.1", around(&|archive| pax(archive, 1, map, size, stored))),
        ("pax 1.0", around(&|archive| pax(archive, 10, map, size, stored))),
    ]
}

#[test]
fn sparse_members_are_the_files_that_they_were() {
    let (bytes, map, stored) = file();
    // As many parts as need two more blocks.
    let many: Map = (0..30).map(|part| (part * 100, 10)).collect();
    let mut all = vec![0; 3000];
    (0..30).for_each(|part| all[part * 100..][..10].fill(part as u8 + 1));
    let parts: Vec<u8> = (0..300_u32).map(|at| (at / 10) as u8 + 1).collect();
    // A file that ends with a hole, and one that is nothing else.
    let hole = [&bytes[..], &[0; 5000]].concat();
    let whole = [map.clone(), vec![(15_000, 0)]].concat();
    for (bytes, map, stored) in [
        (&bytes, &map, &stored),
        (&all, &many, &parts),
        (&hole, &whole, &stored),
        (&vec![0; 70_000], &vec![(70_000, 0)], &Vec::new()),
    ] {
        for (format, archive) in formats(map, bytes.len() as u64, stored) {
            for (name, archive) in [("a.tar", archive.0.clone()), ("a.tar.zst", pack(ZSTD, &archive.0))] {
                let folder = folder(&[(name, &archive)]);
                let scanned = dataset::open(&[folder.path()], &quiet().sidecars(true)).unwrap();
                let known = dataset::open(&[folder.path()], &quiet().sidecars(true)).unwrap();
                assert_eq!((report(&*scanned).scanned, report(&*known).current), (1, 1), "{format} {name}");
                for tar in [scanned, known] {
                    let found = contents(&*tar);
                    let keys: Vec<&str> = found.iter().map(|(key, _)| &**key).collect();
                    assert_eq!(keys, ["0", "a", "b"], "{format} {name}");
                    let [before, a, after] = [0, 1, 2].map(|sample| &found[sample].1);
                    assert_eq!((&before["jpg"][..], &after["jpg"][..]), (&b"before"[..], &b"after"[..]), "{format}");
                    assert_eq!(a["cls"], b"7", "{format} {name}");
                    assert!(a["jpg"] == *bytes, "{format} {name}");
                    assert!(tar.faults().is_empty(), "{format} {name}: {:?}", tar.faults());
                }
            }
        }
    }
}

#[test]
fn wrong_maps_are_errors() {
    let (_, map, stored) = file();
    let changed = |change: &dyn Fn(&mut Map)| {
        let mut map = map.clone();
        change(&mut map);
        map
    };
    for (map, size, what) in [
        (changed(&|map| map[1].0 = 500), 10_000, "goes back, or has parts that overlap"),
        (changed(&|map| map[2].1 = 1001), 10_000, "leads out of its file"),
        (changed(&|map| map[2] = (8_000_000_000, 1000)), 10_000, "leads out of its file"),
        (changed(&|map| map[0].1 = 699), 10_000, "has 1702 bytes of data, and 1703 are stored"),
        (map.clone(), 17 << 30, "bytes of holes; an archive may have"),
    ] {
        for (format, archive) in formats(&map, size, &stored) {
            for (name, archive) in [("a.tar", archive.0.clone()), ("a.tar.zst", pack(ZSTD, &archive.0))] {
                let folder = folder(&[(name, &archive)]);
                let error: Error = dataset::open(&[folder.path()], &quiet()).unwrap_err();
                // What names the member has been passed on.
                let at = if format == "gnu" { 1024 } else { 2048 };
                assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(at)), "{format} {name}: {error}");
                assert!(error.to_string().contains(what), "{format} {name}: {error}");
                assert!(error.remedy().is_some_and(|remedy| remedy.contains("without --sparse")), "{error}");
            }
        }
    }
}

/// Every archive that is cut short is an error, or has what lies before the cut; none panics or hangs.
#[test]
fn cut_archives_are_errors() {
    let (bytes, map, stored) = file();
    for (format, archive) in formats(&map, bytes.len() as u64, &stored) {
        for len in (0..archive.0.len() - 1024).step_by(97) {
            let folder = folder(&[("a.tar", &archive.0[..len])]);
            if let Ok(tar) = dataset::open(&[folder.path()], &quiet()) {
                let whole = contents(&*tar).into_iter().find(|(key, _)| key == "a");
                assert!(whole.is_none_or(|(_, fields)| fields["jpg"] == bytes), "{format} cut to {len}");
            }
        }
    }
}

#[test]
fn what_gnu_tar_writes() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("h.jpg");
    let file = fs::File::create(&source).unwrap();
    for part in 0..40_u64 {
        file.write_all_at(&content(part, 3, 300), part * 70_000 + 5).unwrap();
    }
    file.set_len(4 << 20).unwrap();
    let wanted = fs::read(&source).unwrap();
    for format in ["--format=gnu", "--sparse-version=0.0", "--sparse-version=0.1", "--sparse-version=1.0"] {
        let path = folder.path().join("h.tar");
        let way = if format.starts_with("--format") { format } else { "--format=pax" };
        let mut command = Command::new("tar");
        command.args([way, format, "--sparse", "-C"]).arg(folder.path()).arg("-cf").arg(&path).arg("h.jpg");
        if !command.status().is_ok_and(|status| status.success()) || fs::metadata(&path).unwrap().len() > 2 << 20 {
            skip("GNU tar --sparse on a file system with holes");
            continue;
        }
        let tar = dataset::open(&[&path], &quiet()).unwrap();
        let found = contents(&*tar);
        assert!(found.len() == 1 && found[0].0 == "h" && found[0].1["jpg"] == wanted, "{format}");
    }
}
