//! The bytes of a segment that say what it holds: a header in its first page, and a record for each entry, the first at
//! the file's end and each next one before it.
//!
//! ```text
//! | header | entry | entry | entry | ...  room  ... | record | record | record |
//! 0        4096                                                             size
//! ```
//!
//! All numbers are little endian. Behind the last record there are always 64 bytes of zeros, which end the log.

use super::{Key, PAGE_BYTES};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: u64 = 64;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 28;

/// The first bytes of a segment.
const HEADER_MAGIC: [u8; 16] = *b"uringload-seg-1\n";

/// Stands in each record.
const RECORD_MAGIC: u32 = 0x3167_6573;

/// What the log says of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: Key,
    /// The first page of the entry.
    pub(super) page: u32,
    pub(super) bytes: u32,
    /// CRC-32C of the entry.
    pub(super) crc: u32,
    /// A hash of the boot in which it was written; 0: not known.
    pub(super) boot: u64,
    /// When it was written: milliseconds since 1970.
    pub(super) written: u64,
}

/// What 64 bytes of a log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Zeros: the log ends.
    Empty,
    /// No record that was written.
    Wrong,
    Entry(Record),
}

impl Record {
    /// Pages that an entry of `bytes` bytes takes.
    pub(super) fn pages_of(bytes: u64) -> u64 {
        bytes.div_ceil(PAGE_BYTES)
    }

    /// The first page behind the entry.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.page) + Record::pages_of(self.bytes.into())
    }

    pub(super) fn encode(&self) -> [u8; RECORD_BYTES as usize] {
        let mut bytes = [0; RECORD_BYTES as usize];
        let longs = [self.key.root, self.key.name, self.key.stamp];
        for (into, long) in bytes[..24].chunks_exact_mut(8).zip(longs) {
            into.copy_from_slice(&long.to_le_bytes());
        }
        let words = [self.key.piece, self.bytes, self.page, self.crc];
        for (into, word) in bytes[24..40].chunks_exact_mut(4).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..48].copy_from_slice(&self.boot.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.written.to_le_bytes());
        bytes[56..60].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

impl Slot {
    /// Of 64 bytes of the log of a segment of `size` bytes. An entry is within the segment, behind its header.
    pub(super) fn of(bytes: &[u8], size: u64) -> Slot {
        let Some(bytes) = bytes.first_chunk::<{ RECORD_BYTES as usize }>() else { return Slot::Wrong };
        if *bytes == [0; RECORD_BYTES as usize] {
            return Slot::Empty;
        }
        let record = Record {
            key: Key { root: long(bytes, 0), name: long(bytes, 8), stamp: long(bytes, 16), piece: word(bytes, 24) },
            bytes: word(bytes, 28),
            page: word(bytes, 32),
            crc: word(bytes, 36),
            boot: long(bytes, 40),
            written: long(bytes, 48),
        };
        let is_whole = word(bytes, 56) == RECORD_MAGIC && word(bytes, 60) == crc32c::crc32c(&bytes[..60]);
        let is_inside = record.page > 0 && record.end() * PAGE_BYTES + RECORD_BYTES <= size;
        if is_whole && is_inside { Slot::Entry(record) } else { Slot::Wrong }
    }
}

/// The header of a segment of `size` bytes.
pub(super) fn header(size: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..16].copy_from_slice(&HEADER_MAGIC);
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..24]);
    bytes[24..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The number in the four bytes at `at`.
fn word(bytes: &[u8; RECORD_BYTES as usize], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The number in the eight bytes at `at`.
fn long(bytes: &[u8; RECORD_BYTES as usize], at: usize) -> u64 {
    u64::from(word(bytes, at + 4)) << 32 | u64::from(word(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_or_is_wrong() {
        let key = Key { root: 1, name: u64::MAX, stamp: 3 << 40, piece: 4 };
        let record = Record { key, page: 5, bytes: 4097, crc: 7, boot: 8 << 33, written: 9 };
        let (bytes, size) = (record.encode(), 8 * PAGE_BYTES);
        assert_eq!((Slot::of(&bytes, size), record.end()), (Slot::Entry(record), 7));
        assert_eq!(Slot::of(&bytes, 7 * PAGE_BYTES), Slot::Wrong, "the entry would reach into the log");
        assert_eq!(Slot::of(&[0; 64], size), Slot::Empty);
        assert_eq!(Slot::of(&Record { page: 0, ..record }.encode(), size), Slot::Wrong, "the page of the header");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Slot::of(&flipped, size), Slot::Wrong, "bit {bit}");
        }
        for len in 1..bytes.len() {
            let mut torn = bytes;
            torn[len..].fill(0);
            assert_eq!(Slot::of(&torn, size), Slot::Wrong, "{len} bytes");
        }
    }
}
