//! Sidecars return what was put in, and nothing else whatever happens to their bytes.

use super::layout::PADDING_BYTES;
use super::shard::Own;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

fn shard(size: u64) -> Shard {
    Shard {
        format: "tar",
        name: b"a.tar".to_vec(),
        size,
        modified: (1_700_000_000, 5),
        own: Own::default(),
        seen: 1_800_000_000,
    }
}

/// Key and members of each sample.
type Samples = Vec<(Vec<u8>, Vec<Member>)>;

/// The image of these samples, with columns "c0", "c1" and so on.
fn image(samples: &Samples, unit: u32, shard: &Shard) -> Vec<u8> {
    let mut builder = Builder::new(unit);
    for column in 0..4 {
        assert_eq!(builder.column(&format!("c{column}")), Some(column));
    }
    for (key, members) in samples {
        builder.push(key, &mut members.clone());
    }
    builder.left_out(9, 3, b"x/y");
    builder.finish(shard, Proof::default())
}

fn read(sidecar: &Sidecar) -> Samples {
    let sample = |index| {
        let (mut key, mut members) = (b"before".to_vec(), Vec::new());
        assert!(sidecar.key(index, &mut key));
        assert!(sidecar.sample(index, |column, offset, len| {
            members.push(Member { column: column as u16, offset, len });
        }));
        (key.split_off(6), members)
    };
    (0..sidecar.len()).map(sample).collect()
}

const SIZE: u64 = 1 << 40;

/// Samples in any order, with members in any place.
fn samples(unit: u64) -> impl Strategy<Value = Samples> {
    let place = (0..SIZE / unit - (1 << 32) / unit, prop_oneof![Just(0_u64), 0..300_u64, 0..(1_u64 << 32)]);
    let member =
        move |column: u16| place.clone().prop_map(move |(block, len)| Member { column, offset: block * unit, len });
    let members = (0..4_u16).map(|column| proptest::option::of(member(column))).collect::<Vec<_>>();
    let members = members.prop_map(|members| members.into_iter().flatten().collect::<Vec<_>>());
    vec(("[a-c/]{0,6}".prop_map(String::into_bytes), members), 0..50)
}

proptest! {
    #[test]
    fn what_was_put_in_comes_back((unit, samples) in prop_oneof![
        samples(1).prop_map(|samples| (1, samples)),
        samples(512).prop_map(|samples| (512, samples)),
    ]) {
        let image = image(&samples, unit, &shard(SIZE));
        let sidecar = Sidecar::from_image(image, &shard(SIZE)).unwrap();
        prop_assert_eq!(read(&sidecar), samples.clone());
        prop_assert_eq!(sidecar.left_out(), [(9, 3, b"x/y".to_vec())]);
        for (index, column) in sidecar.columns().iter().enumerate() {
            let mut lens: Vec<u64> = samples.iter().flat_map(|(_, members)| members)
                .filter(|member| usize::from(member.column) == index).map(|member| member.len).collect();
            lens.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(column.missing, (samples.len() - lens.len()) as u64);
            prop_assert_eq!(column.bytes, lens.iter().sum::<u64>());
            let steps: Vec<u64> = lens.iter().enumerate().filter(|(rank, _)| (rank + 1).is_power_of_two())
                .map(|(_, &len)| len).collect();
            prop_assert_eq!(&column.steps, &steps);
        }
    }

    /// Any change is found if the checksums are left alone.
    #[test]
    fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let mut image = image(&some(), 512, &shard(SIZE));
        let at = at.index(image.len());
        // Nothing is written or read between header and body.
        let header = u32::from_le_bytes(image[12..16].try_into().unwrap()) as usize;
        prop_assume!(!(header..4096).contains(&at));
        image[at] ^= flip;
        prop_assert!(Sidecar::from_image(image, &shard(SIZE)).is_err());
    }

    /// If the checksums are made to match, nothing points outside the shard, panics, or allocates too much.
    #[test]
    fn a_forged_index_leads_nowhere(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        seed in vec(any::<u8>(), 0..300),
        replace in any::<bool>(),
    ) {
        let mut image = image(&some(), 512, &shard(SIZE));
        for (at, byte) in changes {
            let at = at.index(image.len() - 16) + 16;
            image[at] = byte;
        }
        if replace {
            image[4096..][..seed.len()].copy_from_slice(&seed);
        }
        reseal(&mut image);
        if let Ok(sidecar) = Sidecar::from_image(image, &shard(SIZE)) {
            for index in 0..sidecar.len().min(200) {
                sidecar.sample(index, |_, offset, len| assert!(offset + len <= SIZE));
                let mut key = Vec::new();
                sidecar.key(index, &mut key);
                assert!(key.len() <= 2 * KEY_BYTES_MAX);
            }
        }
    }
}

/// Samples that fill more than one piece.
fn some() -> Samples {
    let member = |number: u64, column, len| Member { column, offset: number * 2048 + 512 * u64::from(column), len };
    (0..1000)
        .map(|number| (format!("{number:08}").into_bytes(), vec![member(number, 0, number), member(number, 1, 1)]))
        .collect()
}

/// Makes all checksums match the bytes, where the header still says where they are.
fn reseal(image: &mut [u8]) {
    let header = u32::from_le_bytes(image[12..16].try_into().unwrap()) as usize;
    let checks_at = u64::from_le_bytes(image[80..88].try_into().unwrap()) as usize;
    if header < 100 || header > image.len() || checks_at > image.len() || checks_at < 4096 {
        return;
    }
    let checks: Vec<u8> =
        image[4096..checks_at].chunks(4096).flat_map(|piece| crc32c::crc32c(piece).to_le_bytes()).collect();
    if checks_at + checks.len() > image.len() {
        return;
    }
    image[checks_at..][..checks.len()].copy_from_slice(&checks);
    let check = crc32c::crc32c(&checks).to_le_bytes();
    image[88..92].copy_from_slice(&check);
    let check = crc32c::crc32c(&image[..header - 4]).to_le_bytes();
    image[header - 4..header].copy_from_slice(&check);
}

/// A sidecar that is left on disk.
fn on_disk(image: &[u8], shard: &Shard) -> Result<Sidecar, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar.uidx");
    std::fs::write(&path, image).unwrap();
    let sidecar = Sidecar::open(&Place::new(&path), (shard, &file_of(b"")), &Memory::new(0))?;
    assert!(sidecar.is_on_disk());
    Ok(sidecar)
}

#[test]
fn a_torn_one_is_refused_at_every_length() {
    let image = image(&some(), 512, &shard(SIZE));
    for len in (0..image.len()).filter(|len| len % 61 == 0 || *len < 600 || *len > image.len() - 100) {
        assert!(Sidecar::from_image(image[..len].to_vec(), &shard(SIZE)).is_err(), "{len}");
        if len > 0 {
            assert!(on_disk(&image[..len], &shard(SIZE)).is_err(), "{len}");
        }
    }
    let longer = [&image[..], &[0]].concat();
    assert!(Sidecar::from_image(longer, &shard(SIZE)).unwrap_err().contains("torn"));
}

/// In a compressed shard, values are in the decoded bytes, which may be more than the shard has.
#[test]
fn how_a_shard_is_compressed_is_told() {
    let image = |decoded: Option<(Compression, u64)>, shard: &Shard| {
        let mut builder = Builder::new(512);
        builder.column("c0");
        builder.push(b"a", &mut [Member { column: 0, offset: 1024, len: 3000 }]);
        if let Some((compression, bytes)) = decoded {
            builder.decoded(compression, bytes);
        }
        builder.finish(shard, Proof::default())
    };
    let small = shard(100);
    let found = |image: Vec<u8>| {
        let sidecar = Sidecar::from_image(image, &small).unwrap();
        (sidecar.packed(), sidecar.sample(0, |_, offset, len| assert_eq!((offset, len), (1024, 3000))))
    };
    let (gzip, zstd, bzip2) = (Compression::Gzip, Compression::Zstd, Compression::Bzip2);
    for (decoded, fits) in
        [(None, false), (Some((gzip, 4024)), true), (Some((zstd, 4024)), true), (Some((bzip2, 4023)), false)]
    {
        assert_eq!(found(image(decoded, &small)), (decoded, fits), "{decoded:?}");
    }
    // Without compression a header ends where it did before compressed shards existed; with it, nine bytes later.
    let [plain, packed] = [None, Some((zstd, 4024))].map(|decoded| image(decoded, &small));
    let header = |image: &[u8]| u32::from_le_bytes(image[12..16].try_into().unwrap()) as usize;
    assert_eq!(header(&packed), header(&plain) + 9);
    assert_eq!(packed[header(&packed) - 13..header(&packed) - 4], [2, 0xb8, 0x0f, 0, 0, 0, 0, 0, 0]);
    // A compression that is not known, and one that cannot be written.
    for code in [0, 5, 255] {
        let mut other = packed.clone();
        other[header(&packed) - 13] = code;
        reseal(&mut other);
        assert!(Sidecar::from_image(other, &small).unwrap_err().contains("contradicts itself"), "{code}");
    }
    assert!(Sidecar::from_image(image(Some((Compression::Brotli, 5000)), &small), &small).is_err());
    // Holes that are put back, of a shard that is compressed or not.
    for (code, coding) in [(0x40, Coding::Expanded(None)), (0x42, Coding::Expanded(Some(zstd)))] {
        let mut other = packed.clone();
        other[header(&packed) - 13] = code;
        reseal(&mut other);
        let sidecar = Sidecar::from_image(other, &small).unwrap();
        assert_eq!((sidecar.decoded(), sidecar.packed()), (Some((coding, 4024)), None));
    }
}

#[test]
fn that_of_another_shard_is_refused() {
    let bytes = image(&some(), 512, &shard(SIZE));
    let refused = |other: Shard| Sidecar::from_image(bytes.clone(), &other).unwrap_err();
    assert!(refused(Shard { format: "mds", ..shard(SIZE) }).contains("another format"));
    assert!(refused(Shard { name: b"b.tar".to_vec(), ..shard(SIZE) }).contains("another name"));
    assert!(refused(shard(SIZE + 1)).contains("changed"));
    assert!(refused(Shard { modified: (1_700_000_000, 6), ..shard(SIZE) }).contains("changed"));
    assert!(refused(Shard { modified: (1_700_000_001, 5), ..shard(SIZE) }).contains("changed"));
    let mut other = bytes.clone();
    other[8] = 1;
    assert!(Sidecar::from_image(other, &shard(SIZE)).unwrap_err().contains("version 1"));
    let mut other = bytes.clone();
    other[0] = b'X';
    assert!(Sidecar::from_image(other, &shard(SIZE)).unwrap_err().contains("does not begin"));
    assert_eq!(read(&Sidecar::from_image(bytes, &shard(SIZE)).unwrap()), some());
}

/// Damage in a sidecar that is left on disk is found on access, and no sooner.
#[test]
fn one_on_disk_is_verified_where_it_is_looked_at() {
    let mut image = image(&some(), 512, &shard(SIZE));
    assert_eq!(read(&on_disk(&image, &shard(SIZE)).unwrap()), some());
    let head = Sidecar::from_image(image.clone(), &shard(SIZE)).unwrap().head;
    assert!(head.checks_at - 20 >= 4096 + 4096, "the last key lies in another piece than the first record");
    image[head.checks_at as usize - 20] ^= 1;
    assert!(Sidecar::from_image(image.clone(), &shard(SIZE)).is_err());
    let sidecar = on_disk(&image, &shard(SIZE)).unwrap();
    let mut key = b"before".to_vec();
    let last = sidecar.len() - 1;
    assert!(sidecar.sample(0, |_, _, _| {}), "the first record lies in another piece");
    assert!(!sidecar.key(last, &mut key) && key == b"before", "its key lies in the damaged piece");
    image[head.checks_at as usize - 20] ^= 1;
    image[4096] ^= 1;
    let sidecar = on_disk(&image, &shard(SIZE)).unwrap();
    assert!(!sidecar.sample(0, |_, _, _| {}), "the record is damaged");
    assert!(sidecar.key(last, &mut key));
}

#[test]
fn a_regular_shard_takes_few_bytes_a_sample() {
    // Images of up to 250 KB and labels of one byte, as ShardWriter writes them.
    let mut builder = Builder::new(512);
    let (image, label) = (builder.column("cls").unwrap(), builder.column("jpg").unwrap());
    let mut offset = 512;
    for number in 0..10_000_u64 {
        let len = 50_000 + number * 20;
        let members = [(image, offset, 1), (label, offset + 1024, len)];
        let mut members = members.map(|(column, offset, len)| Member { column, offset, len });
        builder.push(format!("{number:09}").as_bytes(), &mut members);
        offset += (1024 + len).next_multiple_of(512) + 512;
    }
    let sidecar = Sidecar::from_image(builder.finish(&shard(SIZE), Proof::default()), &shard(SIZE)).unwrap();
    // Three bytes of start and three of length: gaps and label lengths are all equal.
    assert_eq!(sidecar.head.record_bytes, 6);
    assert!(sidecar.store.len() < 16 * 10_000, "{} bytes", sidecar.store.len());
}

/// 10^8 samples: not resident, every sample readable.
#[test]
fn a_hundred_million_samples_take_no_memory() {
    opens_a_hundred_million_samples(Duration::MAX);
}

/// Five times the target, so that a busy machine does not fail the test.
#[test]
#[ignore = "slow: measures time"]
fn a_hundred_million_samples_open_at_once() {
    opens_a_hundred_million_samples(Duration::from_millis(250));
}

fn opens_a_hundred_million_samples(bound: Duration) {
    const SAMPLES: u64 = 100_000_000;
    const STEP: u64 = 10_240;
    let size = SAMPLES * STEP;
    let shard = shard(size);
    // A real header, from three samples that determine the widths; then as many records as requested.
    let member = |number: u64, len| vec![Member { column: 0, offset: number * STEP + 512, len }];
    let few = vec![(Vec::new(), member(0, 0)), (Vec::new(), member(SAMPLES - 1, 9000)), (Vec::new(), member(7, 100))];
    let small = Sidecar::from_image(image(&few, 512, &shard), &shard).unwrap();
    let mut head = small.head.clone();
    head.samples = SAMPLES;
    head.columns.truncate(1);
    head.record_bytes = Head::record_bytes_of(head.start_width, &head.columns);
    head.groups_at = head.records_at + SAMPLES * head.record_bytes;
    head.keys_at = head.groups_at + 8 * SAMPLES.div_ceil(KEYS_PER_GROUP);
    // 16 keys without bytes of their own, 4 bytes each, which all groups share.
    head.checks_at = head.keys_at + 4 * KEYS_PER_GROUP + PADDING_BYTES;
    let len = head.checks_at + 4 * head.pieces();
    assert!(head.record_bytes <= 16 && len <= 16 * SAMPLES, "{} bytes a sample", len as f64 / SAMPLES as f64);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar.uidx");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(len).unwrap();
    // Records are holes, so they repeat the first sample, except in the last piece with records.
    let last = head.groups_at - head.record_bytes;
    let start = (SAMPLES - 1) * STEP / 512 + 1 - head.start_base;
    file.write_all_at(&start.to_le_bytes()[..usize::from(head.start_width)], last).unwrap();
    let zeros = crc32c::crc32c(&[0; 4096]).to_le_bytes();
    let mut checks = zeros.repeat(head.pieces() as usize);
    let mut seal = |piece: u64| {
        let start = head.body_at + 4096 * piece;
        let mut bytes = vec![0; 4096.min(head.checks_at - start) as usize];
        file.read_exact_at(&mut bytes, start).unwrap_or_else(|_| panic!("piece {piece}"));
        let check = crc32c::crc32c(&bytes).to_le_bytes();
        checks[4 * piece as usize..][..4].copy_from_slice(&check);
    };
    seal((last - head.body_at) / 4096);
    seal(head.pieces() - 1);
    head.checks_check = crc32c::crc32c(&checks);
    file.write_all_at(&checks, head.checks_at).unwrap();
    file.write_all_at(&head.write(&shard, len), 0).unwrap();

    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let before = resident();
    let clock = Instant::now();
    let sidecar = Sidecar::open(&Place::new(&path), (&shard, &file_of(b"")), &Memory::new(RESIDENT_BYTES)).unwrap();
    let opening = clock.elapsed();
    let taken = resident().saturating_sub(before);
    println!("{SAMPLES} samples of {} bytes opened in {opening:?}, {taken} bytes resident", len / SAMPLES);
    assert!(sidecar.is_on_disk() && sidecar.len() == SAMPLES);
    assert!(opening < bound, "{opening:?}");
    assert!(taken < 64 << 20, "{taken} bytes");
    let of = |index| {
        let mut found = None;
        assert!(sidecar.sample(index, |_, offset, len| found = Some((offset, len))));
        found.unwrap()
    };
    assert_eq!(of(0).0, 512);
    assert_eq!(of(SAMPLES / 2).0, 512);
    assert_eq!(of(SAMPLES - 1).0, (SAMPLES - 1) * STEP + 512);
}

/// An index of a shard of these bytes, as it would be found beside it.
fn indexed(bytes: &[u8], own: Own, seen: i64) -> (Shard, Vec<u8>) {
    let shard = Shard { own, seen, ..shard(bytes.len() as u64) };
    let mut builder = Builder::new(1);
    builder.column("c0");
    for number in 0..100 {
        builder.push(b"key", &mut [Member { column: 0, offset: number * 300, len: 300 }]);
    }
    let file = file_of(bytes);
    let proof = builder.proof(&file).unwrap();
    let image = builder.finish(&shard, proof);
    (shard, image)
}

fn file_of(bytes: &[u8]) -> Content {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.into()
}

/// When size and time of modification say nothing, content decides; and only then is it looked at.
#[test]
fn content_tells_shards_apart() {
    let own = |inode| Own { device: (8, 1), inode, changed: (1_700_000_000, 0) };
    let (old, young) = (1_800_000_000, 1_700_000_001);
    let bytes: Vec<u8> = (0..30_000_u32).map(|number| ((number * number) >> 7) as u8).collect();
    let mut other = bytes.clone();
    other[14_000..].rotate_left(1);
    for (seen, found, same, differs) in [
        (old, own(7), true, true),
        // A copy, or a file that was written to and got its time back.
        (old, own(8), true, false),
        (old, Own { changed: (1_700_000_900, 0), ..own(7) }, true, false),
        // It was written to just before it was indexed, and perhaps just after.
        (young, own(7), true, false),
    ] {
        let (shard, image) = indexed(&bytes, own(7), seen);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.uidx");
        std::fs::write(&path, image).unwrap();
        let found = Shard { own: found, ..shard };
        for (content, fits) in [(&bytes, same), (&other, differs)] {
            let file = file_of(content);
            let opened = Sidecar::open(&Place::new(&path), (&found, &file), &Memory::new(RESIDENT_BYTES));
            assert_eq!(opened.is_ok(), fits, "{found:?}: {opened:?}");
        }
        // The machine that made the index was ahead: by the file system's clock it was just written, too.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(young as u64)).unwrap();
        let opened = Sidecar::open(&Place::new(&path), (&found, &file_of(&other)), &Memory::new(RESIDENT_BYTES));
        assert!(opened.is_err(), "{found:?}");
        file.set_modified(std::time::SystemTime::now()).unwrap();
        // A file that ends before the pieces do is another one, and no error.
        let opened = Sidecar::open(&Place::new(&path), (&found, &file_of(b"")), &Memory::new(RESIDENT_BYTES));
        assert_eq!(opened.is_ok(), differs);
    }
}

/// Truncated while a dataset reads it from disk: an error, where a mapping would kill the process.
#[test]
fn one_that_is_truncated_is_damaged() {
    let image = image(&some(), 512, &shard(SIZE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar.uidx");
    std::fs::write(&path, &image).unwrap();
    let shard = shard(SIZE);
    let sidecar = Sidecar::open(&Place::new(&path), (&shard, &file_of(b"")), &Memory::new(0)).unwrap();
    assert!(sidecar.is_on_disk() && sidecar.sample(0, |_, _, _| {}));
    File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    let last = sidecar.len() - 1;
    assert!(!sidecar.key(last, &mut Vec::new()));
}

/// A FIFO in the place of a sidecar is refused; opening it would wait for a writer.
#[test]
fn a_fifo_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar.uidx");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let opened = Sidecar::open(&Place::new(&path), (&shard(SIZE), &file_of(b"")), &Memory::new(0));
    assert!(opened.unwrap_err().contains("not a regular file"));
}
