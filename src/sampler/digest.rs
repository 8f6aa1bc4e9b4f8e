//! A sum over what was delivered, which proves that nothing was lost or duplicated.

use super::{Cursor, Sampler};
use crate::dataset::SampleId;
use std::ops::{AddAssign, Range, Sub};

/// Which samples came at which positions of one epoch: their number, and the sum modulo 2^64 of a hash of each.
///
/// Digests add up: those of batches to that of a rank, and those of all ranks to that of the epoch. A digest reveals a
/// lost, duplicated or misplaced sample (two different sets agree by chance once in 2^64). It does not protect against
/// an attacker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Digest {
    /// Number of samples; each piece of a cut sample counts.
    pub samples: u64,
    /// Sum of the hashes.
    pub sum: u64,
}

impl Digest {
    /// Adds the sample at a position: `start` is 0, or the element at which this piece of it begins.
    #[inline]
    #[doc(hidden)]
    pub fn add(&mut self, position: u64, id: SampleId, start: u64) {
        self.samples += 1;
        self.sum = self.sum.wrapping_add(hash(hash(hash(position) ^ id.0) ^ start));
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Digest) {
        self.samples = self.samples.wrapping_add(other.samples);
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl Sub for Digest {
    type Output = Digest;

    fn sub(self, other: Digest) -> Digest {
        Digest { samples: self.samples.wrapping_sub(other.samples), sum: self.sum.wrapping_sub(other.sum) }
    }
}

/// What one rank received of one epoch, from a position on.
///
/// The digests of all ranks with the same `since` add up: `delivered` and `lost` of all of them together equal
/// [`epoch_digest`] of the positions from `since` up to where the ranks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpochDigest {
    /// The epoch.
    pub epoch: u64,
    /// The position in the epoch, over all ranks, from which samples count.
    pub since: u64,
    /// Samples that the consumer received, without padding.
    pub delivered: Digest,
    /// Samples that could not be read: those that were left out, and those of batches that an error replaced.
    pub lost: Digest,
}

impl EpochDigest {
    /// An empty digest, from `cursor` on.
    #[doc(hidden)]
    pub fn new(cursor: Cursor) -> EpochDigest {
        EpochDigest { epoch: cursor.epoch, since: cursor.position, ..EpochDigest::default() }
    }

    /// Delivered and lost samples together.
    pub fn passed(&self) -> Digest {
        let mut passed = self.delivered;
        passed += self.lost;
        passed
    }
}

/// The digest of the samples at `positions` of an epoch: what the digests of all ranks must add up to. Takes some tens
/// of nanoseconds per position.
pub fn epoch_digest(sampler: &dyn Sampler, epoch: u64, positions: Range<u64>) -> Digest {
    let mut digest = Digest::default();
    for position in positions {
        digest.add(position, sampler.at(Cursor::new(epoch, position)), 0);
    }
    digest
}

/// The finaliser of SplitMix64 over the next state: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators" (OOPSLA 2014).
#[inline]
pub(crate) fn hash(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[(u64, u64)]) -> Digest {
        let mut digest = Digest::default();
        samples.iter().for_each(|&(position, id)| digest.add(position, SampleId(id), 0));
        digest
    }

    #[test]
    fn adds_up_in_any_order_and_tells_what_is_wrong() {
        let whole = of(&[(0, 5), (1, 3), (2, 9)]);
        let mut parts = of(&[(2, 9)]);
        parts += of(&[(1, 3), (0, 5)]);
        assert_eq!(whole, parts);
        assert_eq!(whole - of(&[(1, 3)]), of(&[(0, 5), (2, 9)]));
        for wrong in [&[(0, 5), (1, 3), (1, 3)], &[(0, 3), (1, 5), (2, 9)], &[(0, 5), (1, 3), (2, 8)]] {
            assert_ne!(of(wrong), whole, "{wrong:?}");
        }
    }

    #[test]
    fn an_epoch_is_the_sum_of_its_parts() {
        let order = crate::sampler::Shuffled::new(1000, 3);
        let mut parts = epoch_digest(&order, 2, 0..17);
        parts += epoch_digest(&order, 2, 17..1000);
        assert_eq!(parts, epoch_digest(&order, 2, 0..1000));
        assert_eq!(parts.samples, 1000);
        assert_ne!(parts.sum, epoch_digest(&order, 3, 0..1000).sum, "each epoch has a digest of its own");
    }

    /// States that were saved with it must stay valid: changing the hash means a new version of states.
    #[test]
    fn is_what_it_always_was() {
        assert_eq!(of(&[(0, 0)]).sum, hash(hash(hash(0))));
        assert_eq!(hash(0), 0xe220_a839_7b1d_cdaf, "SplitMix64's first output for seed 0");
    }
}
