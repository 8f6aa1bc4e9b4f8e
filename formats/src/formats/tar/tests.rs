//! Headers of arbitrary bytes, and how little of an archive is read to index it.

use super::header::{Block, Header, Pax};
use super::packed::Stream;
use super::scan::{Entry, Sink, scan};
use super::*;
use crate::compression::Compression;
use crate::dataset::SkipReason;
use crate::index::window::{Source, Sparse};
use proptest::collection::vec;
use proptest::prelude::*;

/// What a scan reported.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    entries: Vec<(Vec<u8>, u64, u64)>,
    skipped: Vec<SkipReason>,
}

impl Sink for Seen {
    fn entry(&mut self, entry: Entry<'_>) -> Result<(), String> {
        self.entries.push((entry.name.to_vec(), entry.offset, entry.len));
        Ok(())
    }

    fn cut(&mut self, _name: &[u8]) {}

    fn skip(&mut self, reason: SkipReason, _name: &[u8]) {
        self.skipped.push(reason);
    }

    fn end(&mut self) {}

    fn passed(&mut self, _offset: u64) {}
}

/// A header of a regular member, with its checksum.
fn header(name: &str, size: u64) -> Block {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[156] = b'0';
    block[257..263].copy_from_slice(b"ustar\0");
    seal(&mut block);
    block
}

fn seal(block: &mut Block) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// An archive of members of these sizes, with made-up payloads.
fn made_up(sizes: impl Iterator<Item = u64>) -> Sparse {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for (number, size) in sizes.enumerate() {
        pieces.push((at, header(&format!("{:06}.{}", number / 2, ["cls", "jpg"][number % 2]), size).to_vec()));
        at += 512 + size.next_multiple_of(512);
    }
    pieces.push((at, vec![0; 1024]));
    Sparse { pieces, size: at + 1024 }
}

/// 200 MB of images with labels: only the pages with headers are read.
#[test]
fn only_headers_are_read_between_large_members() {
    let mut archive = made_up((0..3600).map(|number| if number % 2 == 0 { 1 } else { 110_000 + number * 7 }));
    assert!(archive.size > 200_000_000);
    let mut seen = Seen::default();
    let bytes_read = scan(&mut archive, &mut seen).unwrap();
    assert_eq!(seen.entries.len(), 3600);
    println!("{bytes_read} of {} bytes read, {:.2} %", archive.size, 100.0 * bytes_read as f64 / archive.size as f64);
    assert!(bytes_read * 20 < archive.size, "{bytes_read} of {}: more than 5 %", archive.size);
}

/// Between small members everything is read, once and in large pieces.
#[test]
fn everything_is_read_once_between_small_members() {
    let mut archive = made_up((0..4000).map(|number| 3000 + number));
    let mut seen = Seen::default();
    let bytes_read = scan(&mut archive, &mut seen).unwrap();
    assert_eq!(seen.entries.len(), 4000);
    assert!(bytes_read <= archive.size + archive.size / 50, "{bytes_read} of {}", archive.size);
}

/// The members of a truncated archive are the first ones of the whole, and the error says where the file ends.
#[test]
fn a_cut_at_every_byte() {
    let mut whole = Vec::new();
    let extended = |kind: u8, content: &[u8]| {
        let mut block = header("extended", content.len() as u64);
        block[156] = kind;
        seal(&mut block);
        let mut bytes = [&block[..], content].concat();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    for (number, len) in [10, 1, 0, 600].into_iter().enumerate() {
        whole.extend(extended(b'L', b"a/long.name\0"));
        whole.extend(extended(b'x', b"11 atime=1\n"));
        whole.extend(header(&format!("{number}.jpg"), len));
        whole.extend(vec![b'5'; len.next_multiple_of(512) as usize]);
    }
    whole.extend([0; 1024]);
    let scan = |mut bytes: &[u8]| {
        let mut seen = Seen::default();
        let result = scan(&mut bytes, &mut seen);
        (result.err(), seen)
    };
    let all = scan(&whole).1.entries;
    assert_eq!(all.len(), 4);
    for len in 0..whole.len() {
        let (error, seen) = scan(&whole[..len]);
        assert!(all.starts_with(&seen.entries), "{len}");
        match error {
            Some(error) => {
                assert_eq!(error.kind(), ErrorKind::Truncated, "{len}: {error}");
                assert!(error.offset().is_some_and(|offset| offset <= len as u64), "{len}: {error}");
            }
            None if len > whole.len() - 512 => assert_eq!(seen.skipped, [SkipReason::MissingEnd], "{len}"),
            None => assert_eq!((len % 512, &seen.skipped[..]), (0, &[SkipReason::MissingEnd][..]), "{len}"),
        }
    }
}

/// Huge sizes, up to 2^60 bytes, and sizes that overflow when added to an offset.
#[test]
fn hostile_sizes_ask_for_nothing() {
    for size in [(1_u64 << 33) - 1, (1 << 33) - 513] {
        let block = header("a.jpg", size);
        let error = scan(&mut &block[..], &mut Seen::default()).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(0)), "{size}: {error}");
    }
    for high in [0x80_u8, 0xbf, 0xff, 0x90] {
        for low in [0_u8, 0x10, 0xff] {
            let mut block = header("a.jpg", 0);
            block[124..136].fill(low);
            block[124] = high;
            seal(&mut block);
            for kind in *b"0LKxgXS1D" {
                block[156] = kind;
                seal(&mut block);
                let result = scan(&mut &block[..], &mut Seen::default());
                let nothing = (high == 0x80 && low == 0) || kind == b'1';
                assert!(result.is_err() || nothing, "{high:x} {low:x} {}", kind as char);
            }
        }
    }
}

proptest! {
    /// Headers of arbitrary bytes, with and without a valid checksum.
    #[test]
    fn no_header_panics(bytes in vec(any::<u8>(), 512), right in any::<bool>(), kind in any::<u8>()) {
        let mut block: Block = bytes.try_into().unwrap();
        if right {
            block[156] = kind;
            seal(&mut block);
        }
        match Header::parse(&block) {
            Ok(Some(header)) => {
                let mut name = Vec::new();
                header.name(&mut name);
                prop_assert!(name.len() <= 256);
                prop_assert!(header.size().is_err() || header.size().unwrap() < 1 << 63);
                header.kind();
            }
            Ok(None) => prop_assert!(block.iter().all(|&byte| byte == 0)),
            Err(fault) => prop_assert!(!right, "{fault}"),
        }
    }

    /// Size and name read back as written.
    #[test]
    fn headers_come_back(name in "[a-z/.]{1,99}", size in 0..(1_u64 << 33)) {
        let block = header(&name, size);
        let header = Header::parse(&block).unwrap().unwrap();
        let mut found = Vec::new();
        header.name(&mut found);
        prop_assert_eq!(found, name.as_bytes());
        prop_assert_eq!(header.size(), Ok(size));
    }

    /// A single flipped bit is found.
    #[test]
    fn checksums_are_verified(at in 0..512_usize, bit in 0..8_u32) {
        let mut block = header("a.jpg", 5);
        block[at] ^= 1 << bit;
        // The digits of the checksum are followed by a NUL and a blank, which it does not cover.
        prop_assume!(!(148..156).contains(&at));
        prop_assert!(Header::parse(&block).is_err());
    }

    #[test]
    fn no_records_panic(bytes in prop_oneof![
        vec(any::<u8>(), 0..200),
        "([0-9]{1,3} (path|size|GNU.sparse.major)=[a-z0-9]{0,9}\n?){0,4}".prop_map(String::into_bytes),
    ]) {
        let mut pax = Pax::default();
        let _ = pax.read(&bytes);
    }

    /// Archives with some wrong bytes: each reported member is in the file.
    #[test]
    fn no_archive_leads_out_of_its_file(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        sealed in any::<bool>(),
        len in any::<prop::sample::Index>(),
    ) {
        let mut archive = Vec::new();
        for number in 0..6 {
            let mut block = header(&format!("{number}.txt"), 700 * (number & 1));
            for (at, byte) in &changes {
                block[at.index(512)] = *byte;
            }
            if sealed {
                seal(&mut block);
            }
            archive.extend(block);
            archive.resize(archive.len() + [0, 1024][(number & 1) as usize], b'5');
        }
        archive.truncate(len.index(archive.len()) + 1);
        let mut seen = Seen::default();
        let result = scan(&mut &archive[..], &mut seen);
        // The result is the same from a stream, which cannot go back and does not know its length.
        let packed = zstd::stream::encode_all(&archive[..], 1).unwrap();
        let mut streamed = Seen::default();
        let mut stream = Stream::new(Compression::Zstd.into(), &packed[..]).unwrap();
        let same = scan(&mut stream, &mut streamed);
        prop_assert_eq!(&streamed, &seen);
        let place = |result: Result<u64>| result.err().map(|error| error.to_string());
        prop_assert_eq!(place(same), place(result));
        prop_assert!(!stream.is_broken());
        prop_assert_eq!(stream.reach(u64::MAX).unwrap(), archive.len() as u64);
        for (_, offset, len) in seen.entries {
            prop_assert!(offset + len <= archive.len() as u64);
        }
    }

}

#[test]
fn records_are_read_as_posix_has_them() {
    let read = |bytes: &[u8]| {
        let mut pax = Pax::default();
        pax.read(bytes).map(|()| pax)
    };
    let pax = read(b"12 path=a/b\n14 size=12345\n20 atime=1700000000\n").unwrap();
    assert_eq!((pax.path.unwrap(), pax.size), (b"a/b".to_vec(), Some(Some(12345))));
    assert_eq!(read(b"8 size=\n8 path=\n").unwrap().size, Some(None));
    assert!(read(b"22 GNU.sparse.major=1\n").unwrap().is_sparse);
    // A value may contain anything, even a newline.
    assert_eq!(read(b"13 path=a\n=b\n\0\0\0").unwrap().path.unwrap(), b"a\n=b");
    for bad in [
        &b"5"[..],
        b"x path=a\n",
        b"99 path=a\n",
        b"10 path=ab",
        b"3 a",
        b"0 path=a\n",
        b"7 patha\n",
        b"14 size=12x45\n",
        b"-9 path=a\n",
        b"18446744073709551616 path=a\n",
        b"9 path=a\n9 path=",
        b"99999999999999999999999 ",
    ] {
        assert!(read(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
    }
}

#[test]
fn sizes_in_base_256() {
    for size in [0_u64, 1, 255, 256, (1 << 33) + 7, u64::MAX >> 2] {
        let mut block = header("a.jpg", 0);
        block[124..136].fill(0);
        block[128..136].copy_from_slice(&size.to_be_bytes());
        block[124] |= 0x80;
        seal(&mut block);
        let parsed = Header::parse(&block).unwrap().unwrap();
        assert_eq!(parsed.size(), Ok(size));
    }
}
