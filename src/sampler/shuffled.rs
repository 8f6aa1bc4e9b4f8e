//! Shuffles all samples, anew in every epoch, as a function of seed and epoch.

use super::feistel::{Keys, Network, SeedKey};
use super::{Cursor, KnownOrder, OrderId, Sampler};
use crate::dataset::SampleId;

/// Version of the permutation: see [`OrderId`]. It must go up when the order changes for any length, seed and epoch.
const VERSION: u64 = 1;

/// All samples in an order that looks random, another one in each epoch.
///
/// It is a function of length, seed and epoch alone: no list of indices is kept, every position costs the same, and the
/// order is the same on every machine and in every version of this library. It is good for training but not secret:
/// anyone who sees some of it may be able to compute the rest.
#[derive(Clone, Copy, Debug)]
pub struct Shuffled {
    network: Network,
    seed: SeedKey,
    /// As the caller gave it.
    given_seed: u64,
}

impl Shuffled {
    /// For `len` samples.
    pub fn new(len: u64, seed: u64) -> Shuffled {
        Shuffled { network: Network::new(len), seed: SeedKey::new(seed), given_seed: seed }
    }

    /// The order of one epoch, with its keys derived: for loops over many positions.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        EpochOrder { network: self.network, keys: self.network.keys(self.seed, epoch) }
    }
}

impl Sampler for Shuffled {
    fn len(&self) -> u64 {
        self.network.len()
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(self.network.permute_in(self.seed, cursor.epoch, cursor.position))
    }

    fn id(&self) -> OrderId {
        OrderId(KnownOrder::Shuffled { seed: self.given_seed, version: VERSION })
    }
}

/// The order of one epoch of [`Shuffled`]. Takes a few hundred bytes whatever the length.
#[derive(Clone, Copy, Debug)]
pub struct EpochOrder {
    network: Network,
    keys: Keys,
}

impl EpochOrder {
    /// The sample at `position`, which is below the length.
    #[inline]
    pub fn at(&self, position: u64) -> SampleId {
        SampleId(self.network.permute(self.keys.as_slice(), position))
    }

    /// The position of the sample: the inverse of [`at`](EpochOrder::at).
    pub fn position_of(&self, id: SampleId) -> u64 {
        self.network.invert(self.keys.as_slice(), id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{CELLS, DEVIATIONS_MAX, cell, deviation};
    use super::*;
    use std::ops::RangeInclusive;

    /// Every length up to 2050, and so powers of two with their neighbours, loses no sample and repeats none.
    #[test]
    fn every_short_order_is_a_bijection() {
        are_bijections(1..=2050);
    }

    #[test]
    #[ignore = "slow: every length up to 5000"]
    fn every_longer_order_is_a_bijection() {
        are_bijections(2051..=5000);
    }

    fn are_bijections(lens: RangeInclusive<u64>) {
        let mut seen = Vec::new();
        for len in lens {
            let order = Shuffled::new(len, len * 31).epoch(len % 7);
            seen.clear();
            seen.resize(len as usize, false);
            for position in 0..len {
                let id = order.at(position);
                assert!(!std::mem::replace(&mut seen[id.0 as usize], true), "{id:?} twice in {len}");
                assert_eq!(order.position_of(id), position, "of {len}");
            }
        }
    }

    /// Around powers of two up to the longest possible: in range, and the inverse finds every position and every
    /// sample. A map that goes both ways on a set of this size has neither gap nor repeat.
    #[test]
    fn long_orders_invert() {
        for bits in 13..64_u32 {
            for len in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1] {
                let order = Shuffled::new(len, 42).epoch(u64::from(bits));
                let step = len / 50;
                for probe in (0..=49).map(|n| n * step).chain([1, len / 2, len - 2, len - 1]) {
                    let id = order.at(probe);
                    assert!(id.0 < len, "{id:?} of {len}");
                    assert_eq!(order.position_of(id), probe, "of {len}");
                    assert_eq!(order.at(order.position_of(SampleId(probe))), SampleId(probe), "of {len}");
                }
            }
        }
        let order = Shuffled::new(u64::MAX, 1).epoch(0);
        assert_eq!(order.position_of(order.at(u64::MAX - 1)), u64::MAX - 1);
    }

    #[test]
    fn degenerate_lengths_are_right() {
        assert!(Shuffled::new(0, 7).is_empty());
        assert_eq!(Shuffled::new(1, 7).epoch(3).at(0), SampleId(0));
        let firsts: Vec<u64> = (0..64).map(|epoch| Shuffled::new(2, 7).epoch(epoch).at(0).0).collect();
        assert!(firsts.contains(&0) && firsts.contains(&1), "both orders of two samples come up: {firsts:?}");
    }

    #[test]
    fn the_sampler_and_its_epochs_agree() {
        let shuffled = Shuffled::new(1000, 5);
        let sampler: &dyn Sampler = &shuffled;
        for position in 0..1000 {
            assert_eq!(sampler.at(Cursor::new(9, position)), shuffled.epoch(9).at(position));
        }
    }

    /// Over many seeds, all orders of few samples are about equally frequent.
    #[test]
    fn all_orders_of_few_samples_come_up() {
        for len in 2..=5_u64 {
            let orders: u64 = (1..=len).product();
            let mut counts = vec![0; orders as usize];
            for seed in 0..orders * 300 {
                let order = Shuffled::new(len, seed).epoch(1);
                let ids: Vec<u64> = (0..len).map(|position| order.at(position).0).collect();
                // Lehmer code: the number of the order among all.
                let code = (0..ids.len()).fold(0, |code, index| {
                    let smaller = ids[index + 1..].iter().filter(|&&id| id < ids[index]).count();
                    code * (ids.len() - index) + smaller
                });
                counts[code] += 1;
            }
            let deviation = deviation(&counts, orders as f64 - 1.0);
            assert!(deviation < DEVIATIONS_MAX, "{deviation} for {len} samples: {counts:?}");
        }
    }

    /// Over many seeds, each sample comes equally often at each position, and each after each other.
    #[test]
    fn positions_and_neighbours_are_even() {
        for len in [7_u64, 8, 16, 33, 100, 129, 257] {
            let size = len as usize;
            let (mut places, mut neighbours) = (vec![0; size * size], vec![0; size * size]);
            for seed in 0..200_000 / len {
                let order = Shuffled::new(len, seed).epoch(0);
                let mut previous = None;
                for position in 0..size {
                    let id = order.at(position as u64).0 as usize;
                    places[position * size + id] += 1;
                    if let Some(previous) = previous.replace(id) {
                        neighbours[previous * size + id] += 1;
                    }
                }
            }
            let pairs: Vec<u32> =
                (0..size * size).filter(|pair| pair / size != pair % size).map(|pair| neighbours[pair]).collect();
            for (what, counts, freedom) in
                [("places", &places, (len - 1) * (len - 1)), ("neighbours", &pairs, len * (len - 1) - 1)]
            {
                let deviation = deviation(counts, freedom as f64);
                assert!(deviation < DEVIATIONS_MAX, "{what} of {len}: {deviation}");
            }
        }
    }

    /// In one long order, the next sample, the one 64 later, and the one at the same place in the next epoch are
    /// unpredictable.
    #[test]
    fn long_orders_have_no_serial_correlation() {
        for len in [20_000_u64, 65_537, 1_281_167, 1 << 20, 1 << 40] {
            let shuffled = Shuffled::new(len, 11);
            let (order, other) = (shuffled.epoch(0), shuffled.epoch(1));
            let taken = len.min(1 << 18);
            let mut counts = [[0; (CELLS * CELLS) as usize]; 3];
            for position in 0..taken {
                let id = order.at(position);
                counts[0][cell(id.0, order.at((position + 1) % len).0, len)] += 1;
                counts[1][cell(id.0, order.at((position + 64) % len).0, len)] += 1;
                counts[2][cell(id.0, other.at(position).0, len)] += 1;
            }
            for (what, counts) in ["next", "64 later", "next epoch"].iter().zip(&counts) {
                let deviation = deviation(counts, (CELLS * CELLS - 1) as f64);
                assert!(deviation < DEVIATIONS_MAX, "{what} of {len}: {deviation}");
            }
        }
    }

    /// Differences of samples at a fixed distance repeat as often as by chance: the sharpest of these tests, which
    /// finds networks with too few rounds or too simple a hash.
    #[test]
    fn differences_repeat_by_chance_only() {
        for (len, distance) in [(65_537_u64, 1), (1_000_003, 1), (1_000_003, 256), (1 << 20, 1), (1 << 20, 1024)] {
            let mut excess = 0.0;
            const ORDERS: u32 = 4;
            for seed in 0..ORDERS {
                let order = Shuffled::new(len, seed.into()).epoch(0);
                let difference = |position| (order.at(position + distance).0 + len - order.at(position).0) % len;
                let mut differences: Vec<u64> = (0..60_000).map(difference).collect();
                differences.sort_unstable();
                let equal = |run: &[u64]| run.len() as f64 * (run.len() as f64 - 1.0) / 2.0;
                let repeats: f64 = differences.chunk_by(|a, b| a == b).map(equal).sum();
                let expected = 60_000_f64.powi(2) / 2.0 / len as f64;
                excess += (repeats - expected) / expected.sqrt();
            }
            let deviation = excess / f64::from(ORDERS).sqrt();
            assert!(deviation.abs() < DEVIATIONS_MAX, "{len} at {distance}: {deviation}");
        }
    }
}
