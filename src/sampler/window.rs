//! Shuffles within windows of neighbouring samples: randomness that stays close on the disk.

use super::feistel::{Network, SeedKey, below};
use super::{Cursor, KnownOrder, OrderId, Sampler};
use crate::dataset::SampleId;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;

/// Version of the permutation: see [`OrderId`]. It must go up when the order changes for any length, window, seed and
/// epoch.
const VERSION: u64 = 1;

/// The dataset in its order, cut into windows of neighbouring samples, and each window permuted by itself.
///
/// # What is random
/// The cuts are random in each epoch: the first window has a random length below `window`, all others except the last
/// have `window` samples. A sample comes less than `window` positions from its place in the dataset. Two samples at a
/// distance `d < window` are in one window, and so in random order, in all but `d / window` of the epochs; two at a
/// distance of `window` or more never change their order. A window as long as the dataset, or longer, is the whole
/// dataset in every epoch: then any sample may come anywhere.
///
/// Samples that are stored sorted, by class for example, stay so except within the window: that needs a full shuffle,
/// or one of shards.
///
/// # What it costs
/// No memory. Every position costs the same, and the order is a function of length, window, seed and epoch, the same on
/// every machine and in every version of this library.
#[derive(Clone, Copy, Debug)]
pub struct Windowed {
    len: u64,
    window: u64,
    seed: SeedKey,
    /// As the caller gave it.
    given_seed: u64,
}

impl Windowed {
    /// For `len` samples, in windows of `window`.
    ///
    /// # Errors
    /// `InvalidArgument` for windows without samples.
    pub fn new(len: u64, window: u64, seed: u64) -> Result<Windowed> {
        if window == 0 {
            let error = Error::new(ErrorKind::InvalidArgument, "a window has no samples");
            return Err(error.with_remedy("give the number of neighbouring samples to shuffle, some thousands"));
        }
        Ok(Windowed { len, window, seed: SeedKey::of_kind(seed, b"windowed"), given_seed: seed })
    }

    #[inline]
    fn window(&self, cursor: Cursor) -> Window {
        let mut stream = self.seed.stream(cursor.epoch);
        let keys = SeedKey::from_random(stream.next_u64());
        // The length of the first window, 0 if the cuts are at the multiples of `window`.
        let first = if self.window < self.len { below(self.window, stream.next_u64()) } else { 0 };
        let Some(behind) = cursor.position.checked_sub(first) else {
            return Window { keys, number: 0, start: 0, len: first };
        };
        let number = behind / self.window;
        // Not after the position.
        let start = first + number * self.window;
        Window { keys, number: number + 1, start, len: self.window.min(self.len - start) }
    }
}

/// The window of a position.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Of all windows of the epoch.
    keys: SeedKey,
    /// Number among them.
    number: u64,
    /// First sample.
    start: u64,
    len: u64,
}

impl Sampler for Windowed {
    fn len(&self) -> u64 {
        self.len
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        let Window { keys, number, start, len } = self.window(cursor);
        SampleId(start + Network::new(len).permute_in(keys, number, cursor.position - start))
    }

    fn id(&self) -> OrderId {
        OrderId(KnownOrder::Windows { samples: self.window, seed: self.given_seed, version: VERSION })
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{CELLS, DEVIATIONS_MAX, cell, deviation, deviation_from};
    use super::*;

    /// Nothing is lost or doubled, and nothing leaves its window.
    #[test]
    fn every_epoch_is_a_bijection_within_windows() {
        let lens = (1..=70).chain([127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 4999]);
        for len in lens {
            for window in [1, 2, 3, 7, 64, 128, 129, 500, len - 1, len, len + 1, u64::MAX] {
                let Ok(order) = Windowed::new(len, window, len ^ window) else { continue };
                let epoch = len % 5;
                let mut seen = vec![false; len as usize];
                for position in 0..len {
                    let cursor = Cursor::new(epoch, position);
                    let id = order.at(cursor).0;
                    let place = order.window(cursor);
                    assert!(place.len <= window && (place.start..place.start + place.len).contains(&position));
                    assert!((place.start..place.start + place.len).contains(&id), "{id} of {len} in {place:?}");
                    assert!(id.abs_diff(position) < window, "{id} at {position} of {len} in windows of {window}");
                    assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} twice in {len} by {window}");
                }
            }
        }
    }

    /// A sample is displaced by `d` as often as two random places of one window have this distance: so both the borders
    /// and the orders within are even.
    #[test]
    fn displacements_are_those_of_random_windows() {
        for window in [2_u64, 5, 16, 40, 131] {
            let order = Windowed::new(window * 5, window, window).unwrap();
            let samples = 2000 * window;
            let mut counts = vec![0; 2 * window as usize - 1];
            for epoch in 0..samples {
                let position = window * 2 + window / 3;
                let id = order.at(Cursor::new(epoch, position)).0;
                counts[(id + window - 1 - position) as usize] += 1;
            }
            let pairs = |displaced: u64| window - displaced.abs_diff(window - 1);
            let expected: Vec<f64> = (0..2 * window - 1)
                .map(|displaced| samples as f64 * pairs(displaced) as f64 / window.pow(2) as f64)
                .collect();
            let deviation = deviation_from(&counts, &expected, (counts.len() - 1) as f64);
            assert!(deviation < DEVIATIONS_MAX, "windows of {window}: {deviation}");
        }
    }

    /// The first window ends anywhere, and elsewhere in each epoch.
    #[test]
    fn borders_are_even() {
        let order = Windowed::new(1000, 50, 3).unwrap();
        let mut counts = [0; 50];
        for epoch in 0..50_000 {
            counts[order.window(Cursor::new(epoch, 500)).start as usize % 50] += 1;
        }
        let deviation = deviation(&counts, 49.0);
        assert!(deviation < DEVIATIONS_MAX, "{deviation}");
    }

    /// The next sample, the one at the same place in the next window, and the one at the same place of its window in
    /// the next epoch are unpredictable.
    #[test]
    fn windows_have_no_serial_correlation() {
        for window in [300_u64, 4096, 10_007] {
            let order = Windowed::new(window * 200, window, 9).unwrap();
            let mut counts = [[0; (CELLS * CELLS) as usize]; 3];
            let relative = |epoch, position| {
                let cursor = Cursor::new(epoch, position);
                (order.at(cursor).0 - order.window(cursor).start, order.window(cursor))
            };
            let starts = [0, 1].map(|epoch| order.window(Cursor::new(epoch, window)).start);
            for behind in 0..(window * 190).min(1 << 17) {
                let (place, in_window) = relative(0, starts[0] + behind);
                let pairs = [
                    relative(0, starts[0] + behind + 1).0,
                    relative(0, starts[0] + behind + window).0,
                    relative(1, starts[1] + behind).0,
                ];
                for (number, (counts, other)) in counts.iter_mut().zip(pairs).enumerate() {
                    let is_last = behind % window == window - 1;
                    if !(number == 0 && is_last) {
                        counts[cell(place, other, in_window.len)] += 1;
                    }
                }
            }
            for (what, counts) in ["next", "next window", "next epoch"].iter().zip(&counts) {
                // Cells of neighbours have one pair fewer per window on the diagonal, which is too small to see.
                let deviation = deviation(counts, (CELLS * CELLS - 1) as f64);
                assert!(deviation < DEVIATIONS_MAX, "{what} of {window}: {deviation}");
            }
        }
    }

    #[test]
    fn windows_as_long_as_the_dataset_are_a_full_shuffle() {
        for window in [100, 101, u64::MAX] {
            let order = Windowed::new(100, window, 1).unwrap();
            let firsts: std::collections::BTreeSet<u64> =
                (0..2000).map(|epoch| order.at(Cursor::new(epoch, 0)).0).collect();
            assert_eq!(firsts.len(), 100, "any sample comes first with a window of {window}");
        }
        let order = Windowed::new(u64::MAX, u64::MAX - 1, 1).unwrap();
        assert!(order.at(Cursor::new(0, u64::MAX - 1)).0 < u64::MAX);
    }

    #[test]
    fn the_parameters_are_checked_and_told() {
        let error = Windowed::new(10, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.remedy().is_some());
        assert_eq!(Windowed::new(10, 4, 7).unwrap().describe(), "shuffled in windows of 4, seed 7");
    }
}
