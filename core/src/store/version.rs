//! Which content of an object is meant.

use std::fmt;
use std::num::NonZeroU64;

/// Which content of an object is meant, in 64 bits: what it is known by in 2, a hash of that in 62. With 10^9 objects
/// that changed, one change in 4.6 * 10^9 is missed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(NonZeroU64);

/// What a version is known by, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// By its generation, which GCS counts.
    Generation = 1,
    /// By its strong ETag.
    Etag = 2,
    /// By the second it was written in and its size: two writes in one second look the same.
    Modified = 3,
}

impl Version {
    /// What is known so, with this hash of what it is; the lowest 62 bits of that count.
    pub fn new(known: Known, hash: u64) -> Version {
        Version(NonZeroU64::new((known as u64) << 62 | hash & u64::MAX >> 2).unwrap_or(NonZeroU64::MAX))
    }

    /// For storing it: never 0.
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// What [`to_bits`](Version::to_bits) gave; nothing for what it never gives, such as 0.
    pub fn from_bits(bits: u64) -> Option<Version> {
        NonZeroU64::new(bits).filter(|bits| bits.get() >> 62 != 0).map(Version)
    }

    /// What it is known by.
    pub fn known_by(self) -> Known {
        match self.0.get() >> 62 {
            1 => Known::Generation,
            2 => Known::Etag,
            _ => Known::Modified,
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:016x})", self.known_by(), self.to_bits() & (u64::MAX >> 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back() {
        for known in [Known::Generation, Known::Etag, Known::Modified] {
            for hash in [0, 1, 77, u64::MAX >> 2, u64::MAX] {
                let version = Version::new(known, hash);
                assert_eq!(version.known_by(), known);
                assert_eq!(Version::from_bits(version.to_bits()), Some(version));
                assert!(version == Version::new(known, hash ^ 1 << 63), "the highest bits do not count");
            }
        }
        assert_eq!([0, 1, u64::MAX >> 2].map(Version::from_bits), [None; 3]);
    }
}
