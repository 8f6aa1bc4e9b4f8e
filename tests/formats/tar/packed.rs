//! Compressed archives: the samples of plain ones, from units; and all that can be wrong with them.

use super::index::with_sidecars;
use super::{Contents, contents, folder, key, left_out, one, quiet, sample};
use crate::common::archive::{Archive, octal};
use crate::common::content::{content, put, write_file};
use crate::common::direct::report;
use crate::common::{direct, skip};
use crate::formats::memory::assert_small;
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Dataset, FileId, IndexProgress, Options, SampleId, Span, UnitId};
use uringload::{Error, ErrorKind};

pub const ZSTD: &str = "zstd";
/// The ways, with the name that an archive has.
const WAYS: [(&str, &str); 3] = [("gzip", "a.tar.gz"), (ZSTD, "a.tar.zst"), ("bzip2", "a.tar.bz2")];

/// With the checksum that each way has.
pub fn pack(compression: &str, bytes: &[u8]) -> Vec<u8> {
    match compression {
        "gzip" => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            writer.write_all(bytes).and_then(|()| writer.finish()).unwrap()
        }
        "bzip2" => {
            let mut writer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            writer.write_all(bytes).and_then(|()| writer.finish()).unwrap()
        }
        _ => {
            let mut writer = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
            writer.include_checksum(true).unwrap();
            writer.write_all(bytes).and_then(|()| writer.finish()).unwrap()
        }
    }
}

/// Samples `from..from + count` with an image and a label each.
fn archive(from: u64, count: u64) -> Archive {
    let add = |archive: Archive, number: u64| {
        let image = content(number, 0, (number * 7919 % 9000) as usize);
        archive.file(&format!("s/{number}.jpg"), &image).file(&format!("s/{number}.cls"), b"7")
    };
    (from..from + count).fold(Archive::new(), add).end()
}

fn open(folder: &Path) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[folder], &quiet())
}

fn plain(archive: &Archive) -> Contents {
    contents(&*open(folder(&[("a.tar", &archive.0)]).path()).unwrap())
}

#[test]
fn compressed_archives_have_the_samples_of_plain_ones() {
    let archive = archive(0, 12);
    let wanted = plain(&archive);
    let (first, second) = archive.0.split_at(20_001);
    for (way, name) in WAYS {
        let parts = [pack(way, first), pack(way, second)].concat();
        // A name says nothing, and adjacent streams are one.
        for (name, packed) in [(name, pack(way, &archive.0)), (name, parts), ("a.tar", pack(way, &archive.0))] {
            let folder = folder(&[(name, &packed)]);
            let scanned = dataset::open(&[folder.path()], &with_sidecars()).unwrap();
            assert_eq!((report(&*scanned).scanned, report(&*scanned).bytes_read), (1, packed.len() as u64), "{name}");
            let current = dataset::open(&[folder.path()], &with_sidecars()).unwrap();
            assert_eq!((report(&*current).current, report(&*current).bytes_read), (1, 0), "{name}");
            for tar in [&scanned, &current] {
                assert_eq!(contents(&**tar), wanted, "{name}");
                assert_eq!((tar.fingerprint(), tar.shards()), (scanned.fingerprint(), &[12][..]));
                assert_eq!((tar.largest(30), tar.index().plain_field), (0, None), "no span of a sample is read");
                let units = tar.units().expect("compressed archives are units");
                assert_eq!((units.count(), units.decoded_bytes(UnitId(0))), (1, archive.0.len() as u64));
                assert_eq!(
                    (units.largest_decoded(), units.largest_stored()),
                    (archive.0.len() as u64, packed.len() as u64)
                );
                let mut stored = Vec::new();
                units.stored(UnitId(0), &mut stored);
                let file = FileId(tar.shards().partition_point(|&end| end == 0) as u32);
                assert_eq!(stored, [Span { file, offset: 0, len: packed.len() as u64 }]);
                assert!(direct::decoded(&**tar, units, UnitId(0)).unwrap() == archive.0);
            }
        }
    }
}

#[test]
fn plain_and_compressed_archives_side_by_side() {
    let archives: Vec<Archive> = (0..5).map(|shard| archive(shard * 10, 10)).collect();
    let empty = Archive::new().file("no-sample", b"").end();
    let files = [
        ("0.tar", archives[0].0.clone()),
        ("1.tar.gz", pack("gzip", &archives[1].0)),
        ("2.tgz", pack("gzip", &archives[2].0)),
        // Without a sample it is no unit.
        ("3.tar.zst", pack(ZSTD, &empty.0)),
        ("4.TAR.ZST", pack(ZSTD, &archives[3].0)),
        ("5.tar", archives[4].0.clone()),
    ];
    let folder = folder(&files.each_ref().map(|(name, bytes)| (*name, &bytes[..])));
    assert_eq!(detect(&[folder.path()], &Options::new()).unwrap().name, "tar");
    let tar = open(folder.path()).unwrap();
    assert_eq!(contents(&*tar), archives.iter().flat_map(plain).collect::<Contents>());
    assert_eq!(tar.shards(), [10, 20, 30, 30, 40, 50]);
    let units = tar.units().unwrap();
    assert_eq!(units.count(), 3);
    let mut of = Vec::new();
    (0..50).for_each(|id| units.of(SampleId(id), &mut of));
    let wanted: Vec<UnitId> = [0, 1, 2].into_iter().flat_map(|unit| [UnitId(unit); 10]).collect();
    assert_eq!(of, wanted, "a unit for each sample of a compressed archive, in order");
    // The bound is that of the samples that are read by their spans.
    let plain = open(super::folder(&[("0.tar", &archives[0].0), ("5.tar", &archives[4].0)]).path()).unwrap();
    for count in [1, 5, 50] {
        assert_eq!(tar.largest(count), plain.largest(count), "{count}");
    }
    let one_field = quiet().set("fields", ["jpg"]);
    assert_eq!(dataset::open(&[folder.path()], &one_field).unwrap().index().plain_field, None);
    let jpg = dataset::open(&[folder.path()], &one_field).unwrap();
    for id in 0..50 {
        assert_eq!(sample(&*jpg, id).unwrap()["jpg"], sample(&*tar, id).unwrap()["jpg"], "{id}");
    }
}

/// What a name of a member looks like is not what an archive is.
#[test]
fn a_plain_archive_that_begins_like_a_compressed_one() {
    for name in ["BZh9.jpg", "\x1f\u{8b}.jpg"] {
        let archive = Archive::new().member(&name.chars().map(|c| c as u8).collect::<Vec<u8>>(), b'0', b"1").end();
        for shard in ["a.tar", "a.tar.gz"] {
            let folder = folder(&[(shard, &archive.0)]);
            for _ in 0..2 {
                let tar = dataset::open(&[folder.path()], &with_sidecars()).unwrap();
                assert!(tar.units().is_none() && tar.len() == 1 && report(&*tar).refused.is_empty(), "{name} {shard}");
            }
        }
    }
}

fn small() -> Archive {
    Archive::new().file("a.jpg", b"one").file("a.cls", b"1").file("b.jpg", &[5; 700]).file("b.cls", b"2").end()
}

/// The samples of an archive that was cut cannot be read, and those of others can.
#[test]
fn a_cut_at_every_byte() {
    let good = archive(0, 3);
    let wanted = plain(&good);
    for (way, name) in WAYS {
        let packed = pack(way, &small().0);
        let place = folder(&[("0.tar", &good.0), (name, b"")]);
        for len in 0..packed.len() {
            put(&place.path().join(name), &packed[..len]).unwrap();
            let error = open(place.path()).expect_err("a cut archive");
            assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{name} {len}: {error}");
            assert!(error.path().is_some_and(|file| file.ends_with(name)) && error.offset().is_some(), "{error}");
            let keep = dataset::open(&[place.path()], &quiet().set("keep_damaged", true)).unwrap();
            assert_eq!(contents(&*keep), wanted, "{name} {len}");
            assert_eq!(keep.index().damage[0].to_string(), error.to_string());
        }
    }
}

/// Samples before damage that the archive had before it was compressed can be read.
#[test]
fn damage_within_a_sound_stream() {
    let whole = small();
    let packed = pack(ZSTD, &whole.0[..2600]);
    let folder = folder(&[("a.tar.zst", &packed)]);
    let error = open(folder.path()).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(2048)), "{error}");
    assert!(
        error.to_string().contains("b.jpg") && error.remedy().is_some_and(|remedy| remedy.contains("decoded bytes")),
        "{error}"
    );
    let keep = with_sidecars().set("keep_damaged", true);
    let tar = dataset::open(&[folder.path()], &keep).unwrap();
    assert_eq!(contents(&*tar), [one("a", &[("jpg", "one"), ("cls", "1")])]);
    assert_eq!(tar.units().unwrap().decoded_bytes(UnitId(0)), 2600);
    assert!(!folder.path().join("a.tar.zst.uidx").exists(), "no index of a damaged shard is kept");
    // Compressed twice, and not at all in a way that is known.
    for bytes in [pack(ZSTD, &pack("gzip", &archive(0, 9).0)), b"\xfd7zXZ\0 and so on".repeat(100)] {
        fs::write(folder.path().join("a.tar.zst"), bytes).unwrap();
        let error = open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("z -d") || remedy.contains("zip -d")), "{error}");
    }
}

/// The fate of an index whose shard is another, or is compressed otherwise.
#[test]
fn an_index_that_is_not_the_shards_is_rebuilt() {
    let (archive, samples) = (archive(0, 4), plain(&archive(0, 4)));
    let place = folder(&[]);
    let (path, index) = (place.path().join("a.tar.gz"), place.path().join("a.tar.gz.uidx"));
    let put = |bytes: &[u8], modified: SystemTime| {
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    };
    let look = |what: &str, rebuilt: u64| {
        let tar = dataset::open(&[place.path()], &with_sidecars()).unwrap();
        assert_eq!((report(&*tar).scanned, contents(&*tar)), (rebuilt, samples.clone()), "{what}");
        assert_eq!(report(&*tar).refused.len() as u64, rebuilt, "{what}");
        if let Some((file, reason)) = report(&*tar).refused.first() {
            assert!(file == &index && !reason.is_empty(), "{what}");
        }
    };
    let time = SystemTime::now() - std::time::Duration::from_secs(1000);
    let gzip = pack("gzip", &archive.0);
    put(&gzip, time);
    assert_eq!(report(&*dataset::open(&[place.path()], &with_sidecars()).unwrap()).scanned, 1);
    look("its own", 0);
    let whole = fs::read(&index).unwrap();
    for len in [0, 1, 100, 4096, whole.len() - 1] {
        fs::write(&index, &whole[..len]).unwrap();
        look(&format!("torn at {len}"), 1);
    }
    let header = u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
    for at in [0, 8, 40, header - 13, header - 5, 4097, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&index, &bytes).unwrap();
        look(&format!("byte {at}"), 1);
    }
    // The same archive of the same size and time, compressed otherwise; a frame that is passed over fills it up.
    let zstd = pack(ZSTD, &archive.0);
    let padding = gzip.len().checked_sub(zstd.len() + 8).expect("zstd makes it smaller");
    let frame = [&b"\x50\x2a\x4d\x18"[..], &(padding as u32).to_le_bytes(), &vec![0; padding], &zstd].concat();
    put(&frame, time);
    look("of another way", 1);
    look("of this way", 0);
    // And not compressed at all, with an index that says so, and one that does not.
    put(&archive.0, time);
    look("plain", 1);
    look("plain, by its own index", 0);
    let mut padded = frame.clone();
    let more = archive.0.len() - frame.len();
    padded.splice(..0, [&b"\x5f\x2a\x4d\x18"[..], &(more as u32 - 8).to_le_bytes(), &vec![0; more - 8]].concat());
    put(&padded, time);
    look("compressed, by the index of a plain one", 1);
}

/// A shard that changes behind its index: an error of the unit, or the same bytes.
#[test]
fn a_unit_is_what_the_index_says() {
    let archive = archive(0, 4);
    for (way, name) in WAYS {
        let folder = folder(&[(name, &pack(way, &archive.0))]);
        let tar = open(folder.path()).unwrap();
        let units = tar.units().unwrap();
        let others = [&archive.0[..archive.0.len() - 512], &[&archive.0[..], &[0; 512]].concat()];
        for other in others.map(|other| pack(way, other)) {
            let mut out = vec![0; archive.0.len()];
            let error = units.decode(UnitId(0), &[other.into()], &mut out).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.path().is_some_and(|file| file.ends_with(name)) && error.offset() == Some(0), "{error}");
        }
        let error = units.decode(UnitId(0), &[], &mut []).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// With checksums in every way a changed archive is the same, or an error, for the index and for the unit.
    #[test]
    fn a_changed_archive_is_the_same_or_an_error(
        which in 0..WAYS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (way, name) = WAYS[which];
        let whole = pack(way, &small().0);
        let mut changed = whole.clone();
        for (at, byte) in changes {
            changed[at.index(whole.len())] = byte;
        }
        let folder = folder(&[(name, &changed)]);
        match open(folder.path()) {
            Ok(tar) => prop_assert_eq!(contents(&*tar), plain(&small())),
            Err(error) => {
                prop_assert!(error.path().is_some() && error.offset().is_some(), "{}", error);
            }
        }
        fs::write(folder.path().join(name), &whole).unwrap();
        let tar = open(folder.path()).unwrap();
        let units = tar.units().unwrap();
        let mut out = vec![0xa5; units.decoded_bytes(UnitId(0)) as usize];
        match units.decode(UnitId(0), &[changed.into()], &mut out) {
            Ok(len) => prop_assert!(out[..len] == small().0),
            Err(error) => prop_assert!(error.path().is_some(), "{}", error),
        }
    }
}

/// A gigabyte in some kilobytes (of zstd; of gzip, which is slow in tests, a quarter of one) is looked through, and
/// nothing of it is held.
#[test]
fn what_decodes_to_much_is_indexed_in_little_memory() {
    const ZEROS: usize = 4 << 20;
    for (way, name, times) in [("gzip", "a.tar.gz", 64), (ZSTD, "a.tar.zst", 256)] {
        let zeros = pack(way, &[0; ZEROS]);
        let size = (ZEROS * times) as u64;
        let head = Archive::new().file("a.jpg", b"one").header(b"b.jpg", b'0', &octal(size), |_| {});
        let bomb = [pack(way, &head.0), zeros.repeat(times), pack(way, &[0; 1024])].concat();
        assert!(bomb.len() as u64 * 500 < size, "{name}: {} bytes", bomb.len());
        let place = folder(&[(name, &bomb)]);
        let tar = open(place.path()).unwrap();
        let lengths: Vec<_> = (0..2).map(|id| tar.length(SampleId(id), 0)).collect();
        assert_eq!((lengths, tar.len()), (vec![Some(3), Some(size)], 2), "{name}");
        assert_eq!(tar.units().unwrap().largest_decoded(), head.0.len() as u64 + size + 1024, "{name}");
        // Nothing but the end of an archive: no sample, and no unit that would take memory.
        let good = archive(0, 1);
        let place = folder(&[(name, &zeros.repeat(5)), ("b.tar.gz", &pack("gzip", &good.0))]);
        let tar = open(place.path()).unwrap();
        assert_eq!((tar.len(), tar.units().unwrap().largest_decoded()), (1, good.0.len() as u64), "{name}");
    }
    assert_small();
}

/// Progress counts what is stored, whatever it decodes to.
#[test]
fn progress_is_of_what_is_stored() {
    let packed = pack("gzip", &archive(0, 20).0);
    let folder = folder(&[("a.tar.gz", &packed), ("b.tar", &archive(0, 2).0)]);
    let most = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&most);
    let progress = move |progress: IndexProgress| {
        assert!(progress.bytes <= progress.bytes_total);
        told.fetch_max(progress.bytes, Ordering::Relaxed);
    };
    let tar = dataset::open(&[folder.path()], &quiet().progress(progress));
    assert_eq!(tar.unwrap().len(), 22);
    assert_eq!(most.load(Ordering::Relaxed), packed.len() as u64 + archive(0, 2).0.len() as u64);
}

/// tests/data/make_tars.py tells what is in them.
#[test]
fn archives_that_python_wrote() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tar");
    let all: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(all.len(), 4, "{all:?}");
    for path in all {
        let tar = dataset::open(&[&path], &quiet()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((tar.len(), tar.units().unwrap().count()), (6, 1), "{path:?}");
        for id in 0..6_u8 {
            let long = if id == 5 { "d".repeat(150) + "/" } else { String::new() };
            assert_eq!(key(&*tar, id.into()), format!("{long}{id:04}"), "{path:?}");
            let image: Vec<u8> = (0..300 * u32::from(id)).map(|at| (at * (u32::from(id) + 3) % 251) as u8).collect();
            let row = sample(&*tar, id.into()).unwrap();
            assert!(row["jpg"] == image && row["cls"] == [b'0' + id], "{path:?} {id}");
        }
        assert!(left_out(&*tar).is_empty(), "{path:?}");
    }
}

#[test]
fn archives_that_the_tools_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("{number}.jpg")).collect();
    for (name, size) in names.iter().zip([0_u64, 1, 511, 512, 513, 4000, 30_000, 100_000]) {
        write_file(&folder.path().join(name), size).unwrap();
    }
    for (program, name) in [("gzip", "t.tar.gz"), ("gzip", "t.tgz"), ("zstd", "t.tar.zst"), ("bzip2", "t.tar.bz2")] {
        let path = folder.path().join(name);
        let mut command = Command::new("tar");
        command.arg(format!("--use-compress-program={program}")).arg("-C").arg(folder.path());
        match command.arg("-cf").arg(&path).args(&names).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                skip(format!("tar by {program}: {}", String::from_utf8_lossy(&output.stderr)));
                continue;
            }
            Err(error) => {
                skip(format!("GNU tar: {error}"));
                continue;
            }
        }
        let tar = dataset::open(&[&path], &quiet()).unwrap();
        assert_eq!(tar.len(), 8, "{name}");
        for (id, file) in (0..).zip(&names) {
            assert!(sample(&*tar, id).unwrap()["jpg"] == fs::read(folder.path().join(file)).unwrap(), "{name}: {file}");
        }
    }
}
