//! A stable hash of an index: the same on every machine and in every version of this library.

use super::files::FileTable;
use super::index::Index;
use super::sample::FileId;

/// 64-bit FNV-1a over the index, not over the samples. It distinguishes a changed dataset from the one that a
/// checkpoint was made with, but gives no protection against deliberate forgery.
///
/// Numbers are hashed as 8 bytes, little endian; strings with their length first, so that "ab" + "c" and "a" + "bc"
/// differ. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm" (draft-eastlake-fnv).
///
/// A dataset of your own whose options decide what a sample is adds them to the default:
///
/// ```
/// use uringload_formats::{Fingerprint, Index};
///
/// fn fingerprint(index: &Index, crop: u64, language: &str) -> u64 {
///     let mut fingerprint = Fingerprint::of(index);
///     fingerprint.number(crop);
///     fingerprint.bytes(language.as_bytes());
///     fingerprint.finish()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u64);

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// Its powers, from 0 to 8.
const POWERS: [u64; 9] = {
    let (mut powers, mut at) = ([1; 9], 1);
    while at < powers.len() {
        powers[at] = FNV_PRIME.wrapping_mul(powers[at - 1]);
        at += 1;
    }
    powers
};

impl Fingerprint {
    /// What [`Dataset::fingerprint`](crate::Dataset::fingerprint) is by default, to add to: the format's name, the
    /// names and types of the columns, the names and sizes of all files, and the number of samples.
    pub fn of(index: &Index) -> Fingerprint {
        let mut fingerprint = Fingerprint::new(index.format);
        for field in &index.schema.fields {
            fingerprint.bytes(field.name.as_bytes());
            fingerprint.bytes(field.dtype.name().as_bytes());
        }
        fingerprint.files(&index.files);
        fingerprint.number(index.samples);
        fingerprint
    }

    /// Starts with the format's name. Change the name if the order or content of samples changes its meaning.
    pub(crate) fn new(format: &str) -> Fingerprint {
        let mut fingerprint = Fingerprint(FNV_OFFSET_BASIS);
        fingerprint.bytes(format.as_bytes());
        fingerprint
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        let zeros = number.leading_zeros() as usize / 8;
        self.raw(&number.to_le_bytes()[..8 - zeros]);
        // The last bytes, of 0, only multiply: most numbers are small, and each byte waits for the one before.
        self.0 = self.0.wrapping_mul(POWERS[zeros]);
    }

    /// Adds bytes, and how many they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Adds names and sizes of all files, in order, but not the location of the roots: a dataset may move.
    pub(crate) fn files(&mut self, files: &FileTable) {
        self.number(files.len() as u64);
        for (index, &size) in files.sizes().iter().enumerate() {
            self.bytes(files.name(FileId(index as u32)));
            self.number(size);
        }
    }

    /// The hash of everything that was added.
    pub fn finish(self) -> u64 {
        self.0
    }

    fn raw(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of the FNV reference (`fnv_test_str`, FNV-1a 64).
    #[test]
    fn agrees_with_the_reference() {
        for (text, hash) in [("", 0xcbf29ce484222325), ("a", 0xaf63dc4c8601ec8c), ("foobar", 0x85944171f73967e8_u64)] {
            let mut fingerprint = Fingerprint(FNV_OFFSET_BASIS);
            fingerprint.raw(text.as_bytes());
            assert_eq!(fingerprint.finish(), hash, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_their_eight_bytes() {
        for number in (0..64).flat_map(|bits| [0, u64::MAX << bits, u64::MAX >> bits, 1 << bits, 0x0102_0304 << bits]) {
            let (mut short, mut bytes) = (Fingerprint::new("x"), Fingerprint::new("x"));
            short.number(number);
            bytes.raw(&number.to_le_bytes());
            assert_eq!(short.finish(), bytes.finish(), "{number:x}");
        }
    }

    #[test]
    fn borders_between_strings_count() {
        let of = |parts: &[&str]| {
            let mut fingerprint = Fingerprint::new("folder");
            parts.iter().for_each(|part| fingerprint.bytes(part.as_bytes()));
            fingerprint.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    }
}
