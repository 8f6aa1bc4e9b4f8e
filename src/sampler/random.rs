//! Randomness that depends on a sample, not on a thread.

use super::feistel::SeedKey;
use crate::dataset::SampleId;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// The generator for one sample in one epoch, for random crops and the like: the same on every thread, rank and
/// machine, before and after a resume. Within an epoch no two samples share one.
pub fn sample_rng(seed: u64, epoch: u64, id: SampleId) -> Xoshiro256PlusPlus {
    let mut stream = SeedKey::new(seed).stream(epoch);
    // The first numbers of the stream are the keys of the shuffle; another mixing separates these from them.
    let epoch_key = SplitMix64::seed_from_u64(!stream.next_u64()).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(epoch_key.wrapping_add(id.0))
}

/// The generator for the order of rows of the window at `position`. The same on every rank.
pub(super) fn window_rng(seed: u64, epoch: u64, position: u64) -> Xoshiro256PlusPlus {
    let mut stream = SeedKey::new(seed).stream(epoch);
    // As above, from another number of the stream, so that no window shares the numbers of a sample.
    stream.next_u64();
    let epoch_key = SplitMix64::seed_from_u64(!stream.next_u64()).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(epoch_key.wrapping_add(position))
}
