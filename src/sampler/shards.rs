//! Shuffles shards, and mixes the samples of neighbouring shards in that order: randomness that reads few files at a
//! time.

use super::feistel::{Keys, Network, SeedKey};
use super::id::digest_of;
use super::{Cursor, KnownOrder, OrderId, Sampler};
use crate::dataset::SHARD_SAMPLES;
use crate::dataset::SampleId;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Version of the permutation: see [`OrderId`]. It must go up when the order changes for any shards, `mixed`, seed and
/// epoch.
const VERSION: u64 = 1;

/// The shards of a dataset in random order, in groups of `mixed` consecutive ones, with the samples of each group
/// permuted as one.
///
/// # What is random
/// A sample may come at any position of an epoch. It comes among the samples of its group: `mixed` shards that are
/// drawn anew in each epoch, so any two samples may be in one group. Within a group every order is equally likely.
/// Shards may have any number of samples, even none.
///
/// # What it costs
/// 8 bytes a shard for their lengths, and 8 bytes a shard for each of two epochs: where each shard begins in the order
/// of the epoch, computed at the first use of the epoch. None of that for shards of one length ([`Sharded::pieces`]).
/// Up to 64 KiB more for the order of few shards. A position costs a binary search over the shards of its group; if the
/// previous position was in another group, one over all shards comes first.
///
/// The order is a function of the shards, `mixed`, seed and epoch, the same on every machine and in every version of
/// this library.
#[derive(Debug)]
pub struct Sharded {
    lengths: Lengths,
    /// Over the shards.
    network: Network,
    mixed: u64,
    seed: SeedKey,
    /// As the caller gave it.
    given_seed: u64,
    /// The last two epochs used, latest first: at the border of two epochs both are.
    epochs: Mutex<[Option<EpochShards>; 2]>,
}

/// Up to this many shards, the order is kept as a list, of 32 KiB at most: the network would take a third of the time
/// of a position, and nearly all of it for fewer than 128 shards.
const LISTED_MAX: u64 = 4096;

/// How many samples each shard has.
#[derive(Clone, Debug)]
enum Lengths {
    /// Where each ends in the dataset.
    Ends(Vec<u64>),
    /// `each` samples, except for the last piece of a dataset of `len`.
    Pieces { len: u64, each: u64 },
}

impl Sharded {
    /// For shards that end at `ends`, in samples (as returned by [`Dataset::shards`](crate::dataset::Dataset::shards)),
    /// `mixed` of which are permuted as one.
    ///
    /// # Errors
    /// `InvalidArgument` if `mixed` is 0, and if the ends do not ascend.
    pub fn new(ends: &[u64], mixed: u64, seed: u64) -> Result<Sharded> {
        if let Some(number) = (1..ends.len()).find(|&number| ends[number] < ends[number - 1]) {
            let (end, before) = (ends[number], ends[number - 1]);
            let what = format!("shard {number} ends at sample {end}, before its predecessor, which ends at {before}");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("give the ends of shards in order"));
        }
        Sharded::of(Lengths::Ends(ends.to_vec()), ends.len() as u64, mixed, seed)
    }

    /// For `len` samples that are not in shards: pieces of [`SHARD_SAMPLES`] neighbours take their place.
    ///
    /// # Errors
    /// `InvalidArgument` if `mixed` is 0.
    pub fn pieces(len: u64, mixed: u64, seed: u64) -> Result<Sharded> {
        Sharded::pieces_of(len, SHARD_SAMPLES, mixed, seed)
    }

    /// For `len` samples in pieces of `each` neighbours, wherever shards end.
    ///
    /// # Errors
    /// `InvalidArgument` if `each` or `mixed` is 0.
    pub fn pieces_of(len: u64, each: u64, mixed: u64, seed: u64) -> Result<Sharded> {
        if each == 0 {
            let error = Error::new(ErrorKind::InvalidArgument, "the number of samples in a piece is 0");
            return Err(error.with_remedy("give at least 1"));
        }
        Sharded::of(Lengths::Pieces { len, each }, len.div_ceil(each), mixed, seed)
    }

    fn of(lengths: Lengths, shards: u64, mixed: u64, seed: u64) -> Result<Sharded> {
        if mixed == 0 {
            let error = Error::new(ErrorKind::InvalidArgument, "the number of shards to mix is 0");
            return Err(error.with_remedy("give at least 1"));
        }
        Ok(Sharded {
            lengths,
            network: Network::new(shards),
            mixed,
            seed: SeedKey::of_kind(seed, b"sharded\0"),
            given_seed: seed,
            epochs: Mutex::new([None, None]),
        })
    }

    /// Moves `epoch` to the front of the two, computing it if necessary.
    fn turn_to(&self, epochs: &mut [Option<EpochShards>; 2], epoch: u64) {
        let is_of = |shards: &Option<EpochShards>| shards.as_ref().is_some_and(|shards| shards.epoch == epoch);
        if is_of(&epochs[0]) {
            return;
        }
        epochs.swap(0, 1);
        if !is_of(&epochs[0]) {
            epochs[0] = Some(EpochShards::new(&self.lengths, self.network, self.seed, epoch));
        }
    }
}

impl Sampler for Sharded {
    fn len(&self) -> u64 {
        match &self.lengths {
            Lengths::Ends(ends) => ends.last().copied().unwrap_or(0),
            Lengths::Pieces { len, .. } => *len,
        }
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        // A panic leaves valid state behind: an epoch is stored only when it is complete.
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        self.turn_to(&mut epochs, cursor.epoch);
        let epoch = epochs[0].as_mut().expect("just put there");
        if !epoch.group.positions.contains(&cursor.position) {
            epoch.group = epoch.group_at(cursor.position, self.network.len(), self.mixed);
        }
        let Group { places, positions, network, keys } = &epoch.group;
        let position = positions.start + network.permute(keys.as_slice(), cursor.position - positions.start);
        let place = epoch.place_at(position, places);
        let shard = epoch.shard(self.network, place);
        SampleId(self.lengths.start(shard) + (position - epoch.start(place)))
    }

    /// Takes some nanoseconds a shard.
    fn id(&self) -> OrderId {
        let (mixed, seed, version) = (self.mixed, self.given_seed, VERSION);
        match &self.lengths {
            &Lengths::Pieces { each: samples, .. } => OrderId(KnownOrder::Pieces { samples, mixed, seed, version }),
            Lengths::Ends(ends) => {
                let digest = digest_of(ends.iter().copied());
                OrderId(KnownOrder::Shards { shards: ends.len() as u64, ends: digest, mixed, seed, version })
            }
        }
    }
}

impl Lengths {
    /// The first sample of a shard.
    fn start(&self, shard: u64) -> u64 {
        match self {
            Lengths::Ends(ends) => start_of(ends, shard),
            Lengths::Pieces { each, .. } => shard * each,
        }
    }
}

fn start_of(ends: &[u64], number: u64) -> u64 {
    if number == 0 { 0 } else { ends[number as usize - 1] }
}

/// The order of the shards in one epoch. A *place* is the number of a shard in that order.
#[derive(Debug)]
struct EpochShards {
    epoch: u64,
    /// The keys of the order of shards.
    order: Keys,
    /// The order itself, if there are at most [`LISTED_MAX`] shards; otherwise empty.
    listed: Vec<u64>,
    /// The seed of the orders within groups.
    groups: SeedKey,
    starts: Starts,
    /// The group used last: loaders go from one position to the next.
    group: Group,
}

/// Shards whose samples are permuted as one.
#[derive(Debug)]
struct Group {
    places: Range<u64>,
    positions: Range<u64>,
    /// Over the positions.
    network: Network,
    keys: Keys,
}

/// Where the shards begin in an epoch.
#[derive(Debug)]
enum Starts {
    /// At the ends of their predecessors.
    Ends(Vec<u64>),
    /// At multiples of `each`, those after the place `short` by `missing` samples less.
    Pieces { each: u64, short: u64, missing: u64 },
}

impl EpochShards {
    fn new(lengths: &Lengths, network: Network, seed: SeedKey, epoch: u64) -> EpochShards {
        let mut stream = seed.stream(epoch);
        let order = network.keys(SeedKey::from_random(stream.next_u64()), 0);
        let groups = SeedKey::from_random(stream.next_u64());
        let shards = network.len();
        let in_order = (0..shards).map(|place| network.permute(order.as_slice(), place));
        let starts = match lengths {
            Lengths::Ends(ends) => {
                let mut end = 0;
                let ends = in_order.clone().map(|shard| {
                    end += start_of(ends, shard + 1) - start_of(ends, shard);
                    end
                });
                Starts::Ends(ends.collect())
            }
            &Lengths::Pieces { len: 0, each } => Starts::Pieces { each, short: 0, missing: 0 },
            &Lengths::Pieces { len, each } => Starts::Pieces {
                each,
                short: network.invert(order.as_slice(), shards - 1),
                missing: (each - len % each) % each,
            },
        };
        let listed = if shards <= LISTED_MAX { in_order.collect() } else { Vec::new() };
        let none = Network::new(0);
        let group = Group { places: 0..0, positions: 0..0, network: none, keys: none.keys(groups, 0) };
        EpochShards { epoch, order, listed, groups, starts, group }
    }

    /// The group with a position, of `mixed` of the `shards`.
    fn group_at(&self, position: u64, shards: u64, mixed: u64) -> Group {
        let number = self.place_at(position, &(0..shards)) / mixed;
        let first = number * mixed;
        let places = first..first.saturating_add(mixed).min(shards);
        let positions = self.start(places.start)..self.start(places.end);
        let network = Network::new(positions.end - positions.start);
        Group { places, positions, network, keys: network.keys(self.groups, number) }
    }

    /// The shard at a place.
    fn shard(&self, network: Network, place: u64) -> u64 {
        match self.listed.get(place as usize) {
            Some(&shard) => shard,
            None => network.permute(self.order.as_slice(), place),
        }
    }

    /// The position at which the shard at `place` begins; after the last place, the length of the epoch.
    fn start(&self, place: u64) -> u64 {
        match &self.starts {
            Starts::Ends(ends) => start_of(ends, place),
            // The subtraction comes last and wraps back: all shards together may have almost 2^64 samples.
            Starts::Pieces { each, short, missing } => {
                place.wrapping_mul(*each).wrapping_sub(if place > *short { *missing } else { 0 })
            }
        }
    }

    /// The place, one of `places`, whose shard has the sample at `position`.
    fn place_at(&self, position: u64, places: &Range<u64>) -> u64 {
        match &self.starts {
            Starts::Ends(ends) => {
                let ends = &ends[places.start as usize..places.end as usize];
                // A shard without samples ends where it begins, so the search passes over it.
                places.start + ends.partition_point(|&end| end <= position) as u64
            }
            Starts::Pieces { each, short, .. } if position < self.start(short + 1) => position / each,
            // Not below `missing`, and exact even if the sum does not fit.
            Starts::Pieces { each, missing, .. } => (position - (each - missing)) / each + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{DEVIATIONS_MAX, deviation};
    use super::*;
    use std::collections::BTreeSet;

    fn ends(lens: &[u64]) -> Vec<u64> {
        let sum = |end: &mut u64, len: &u64| {
            *end += len;
            Some(*end)
        };
        lens.iter().scan(0, sum).collect()
    }

    fn ids(order: &Sharded, epoch: u64) -> Vec<u64> {
        (0..order.len()).map(|position| order.at(Cursor::new(epoch, position)).0).collect()
    }

    fn shapes() -> Vec<Vec<u64>> {
        let mut shapes = vec![
            vec![1],
            vec![7],
            vec![0, 5],
            vec![5, 0],
            vec![0, 0, 3, 0, 0],
            vec![1; 20],
            vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 0, 8],
            vec![1000, 1, 0, 200],
            (0..150).map(|shard| shard * shard % 23).collect(),
            // More than the limit for a list.
            (0..LISTED_MAX + 3).map(|shard| shard % 3).collect(),
        ];
        shapes.extend((1..12).map(|shards| vec![10; shards]));
        shapes
    }

    /// Nothing is lost or doubled; the samples of a group are those of `mixed` whole shards, at positions in a row.
    #[test]
    fn every_epoch_is_a_bijection_of_groups_of_shards() {
        for lens in shapes() {
            let ends = ends(&lens);
            for mixed in [1, 2, 3, 5, lens.len() as u64, u64::MAX] {
                let order = Sharded::new(&ends, mixed, 5).unwrap();
                assert_eq!(order.len(), lens.iter().sum::<u64>());
                for epoch in 0..3 {
                    let ids = ids(&order, epoch);
                    let sorted: BTreeSet<u64> = ids.iter().copied().collect();
                    assert!(sorted.iter().copied().eq(0..order.len()), "{lens:?} by {mixed}: {ids:?}");
                    let keys = EpochShards::new(&order.lengths, order.network, order.seed, epoch);
                    let shards: Vec<u64> =
                        (0..lens.len() as u64).map(|place| keys.shard(order.network, place)).collect();
                    let mut position = 0;
                    for group in shards.chunks(usize::try_from(mixed).unwrap_or(usize::MAX)) {
                        let wanted: BTreeSet<u64> = group
                            .iter()
                            .flat_map(|&shard| ends[shard as usize] - lens[shard as usize]..ends[shard as usize])
                            .collect();
                        let got = &ids[position..position + wanted.len()];
                        assert_eq!(got.iter().copied().collect::<BTreeSet<_>>(), wanted, "{lens:?} by {mixed}");
                        position += wanted.len();
                    }
                }
            }
        }
    }

    /// Pieces are shards of one length: a table and arithmetic give the same order.
    #[test]
    fn pieces_are_shards_without_a_table() {
        for len in [1, 5, 4095, 4096, 4097, 3 * 4096, 10 * 4096 + 1, 130 * 4096 - 7, (LISTED_MAX + 9) * 4096 - 7] {
            let pieces: Vec<u64> =
                (1..=u64::div_ceil(len, SHARD_SAMPLES)).map(|n| len.min(n * SHARD_SAMPLES)).collect();
            for mixed in [1, 3, 1000] {
                let (table, arithmetic) =
                    (Sharded::new(&pieces, mixed, 8).unwrap(), Sharded::pieces(len, mixed, 8).unwrap());
                let step = (len as usize / 5000).max(1);
                for position in (0..len).step_by(step).chain([len - 1]) {
                    let cursor = Cursor::new(3, position);
                    assert_eq!(table.at(cursor), arithmetic.at(cursor), "{position} of {len} by {mixed}");
                }
            }
        }
    }

    #[test]
    fn pieces_may_have_any_length() {
        for (len, each) in [(1, 1), (10, 3), (100, 7), (1000, 1), (5000, 128), (4096, 4096), (7, 100)] {
            let ends: Vec<u64> = (1..=u64::div_ceil(len, each)).map(|n| len.min(n * each)).collect();
            for mixed in [1, 3, 16] {
                let (table, pieces) =
                    (Sharded::new(&ends, mixed, 8).unwrap(), Sharded::pieces_of(len, each, mixed, 8).unwrap());
                assert_eq!(ids(&table, 2), ids(&pieces, 2), "{len} in pieces of {each}, {mixed} mixed");
            }
        }
        let ids = [128, 129].map(|each| Sharded::pieces_of(5000, each, 16, 8).unwrap().id());
        assert_ne!(ids[0], ids[1], "the length is a part of the identity");
    }

    #[test]
    fn the_longest_dataset_of_pieces_is_in_range() {
        for len in [u64::MAX, u64::MAX - SHARD_SAMPLES + 1, u64::MAX - SHARD_SAMPLES, (1 << 63) + 1] {
            let order = Sharded::pieces(len, 16, 2).unwrap();
            let mut seen = BTreeSet::new();
            for position in (0..1000).flat_map(|near| [near, len - 1 - near, len / 2 + near]) {
                let id = order.at(Cursor::new(1, position)).0;
                assert!(id < len && seen.insert(id), "{id} at {position} of {len}");
            }
        }
    }

    /// Over many seeds each shard comes equally often at each place and after each other, with few shards and many.
    #[test]
    fn places_and_neighbours_of_shards_are_even() {
        for shards in [6_u64, 40, 140] {
            let size = shards as usize;
            let ends = ends(&vec![1; size]);
            let (mut places, mut neighbours) = (vec![0; size * size], vec![0; size * size]);
            for seed in 0..60_000 / shards {
                let ids = ids(&Sharded::new(&ends, 1, seed).unwrap(), 1);
                for (position, &id) in ids.iter().enumerate() {
                    places[position * size + id as usize] += 1;
                }
                for pair in ids.windows(2) {
                    neighbours[pair[0] as usize * size + pair[1] as usize] += 1;
                }
            }
            let pairs: Vec<u32> =
                (0..size * size).filter(|pair| pair / size != pair % size).map(|pair| neighbours[pair]).collect();
            for (what, counts, freedom) in
                [("places", &places, (shards - 1).pow(2)), ("neighbours", &pairs, shards * (shards - 1) - 1)]
            {
                let deviation = deviation(counts, freedom as f64);
                assert!(deviation < DEVIATIONS_MAX, "{what} of {shards}: {deviation}");
            }
        }
    }

    /// Over many epochs each sample comes equally often at each position, and at each place after another one of its
    /// shard: the samples of a group are really mixed.
    #[test]
    fn samples_are_even_at_each_position() {
        let lens = [10_u64; 5];
        let order = Sharded::new(&ends(&lens), 2, 4).unwrap();
        let mut counts = vec![[0; 50]; 50];
        let mut distances = [0_u32; 19];
        for epoch in 0..20_000 {
            let ids = ids(&order, epoch);
            ids.iter().enumerate().for_each(|(position, &id)| counts[position][id as usize] += 1);
            let place = |wanted| ids.iter().position(|&id| id == wanted).unwrap();
            let (a, b) = (place(23), place(24));
            // Where their shard is left alone at the end, the group is of ten.
            if a < 40 {
                distances[a.abs_diff(b) - 1] += 1;
            }
        }
        for (position, counts) in counts.iter().enumerate() {
            let deviation = deviation(counts, 49.0);
            assert!(deviation < DEVIATIONS_MAX, "position {position}: {deviation}");
        }
        // Pairs of 20 places that lie 1 to 19 apart: 19, 18, ... 1 of 190.
        let all = f64::from(distances.iter().sum::<u32>());
        let expected: Vec<f64> = (1..20).map(|distance| all * f64::from(20 - distance) / 190.0).collect();
        let deviation = super::super::statistics::deviation_from(&distances, &expected, 18.0);
        assert!(deviation < DEVIATIONS_MAX, "{deviation}: {distances:?}");
    }

    /// A dropped table of an epoch is computed again, and is the same then.
    #[test]
    fn epochs_may_be_asked_for_in_any_order() {
        let lens: Vec<u64> = (0..200).map(|shard| shard % 7).collect();
        let order = Sharded::new(&ends(&lens), 3, 1).unwrap();
        let alone: Vec<Vec<u64>> = (0..4).map(|epoch| ids(&Sharded::new(&ends(&lens), 3, 1).unwrap(), epoch)).collect();
        assert_ne!(alone[0], alone[1]);
        for position in 0..order.len() {
            for epoch in [0, 1, 0, 3, 2, 0, 1] {
                assert_eq!(order.at(Cursor::new(epoch, position)).0, alone[epoch as usize][position as usize]);
            }
        }
    }

    #[test]
    fn the_parameters_are_checked_and_told() {
        for (wrong, word) in [
            (Sharded::new(&[1, 2], 0, 1), "shards to mix is 0"),
            (Sharded::pieces(5, 0, 1), "shards to mix is 0"),
            (Sharded::pieces_of(5, 0, 1, 1), "samples in a piece is 0"),
            (Sharded::new(&[4, 9, 8], 1, 1), "shard 2 ends at sample 8"),
        ] {
            let error = wrong.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
        }
        assert!(Sharded::new(&[], 1, 1).unwrap().is_empty() && Sharded::pieces(0, 1, 1).unwrap().is_empty());
        let told = [Sharded::new(&[3], 2, 7).unwrap().describe(), Sharded::pieces(3, 2, 7).unwrap().describe()];
        let tail = "in random order, samples of 2 shuffled as one, seed 7";
        assert_eq!(told, [format!("shards {tail}"), format!("pieces of 4096 {tail}")]);
        assert_ne!(Sharded::new(&[3, 5], 2, 7).unwrap().id(), Sharded::new(&[4, 5], 2, 7).unwrap().id());
    }
}
