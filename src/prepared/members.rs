//! Chooses the samples to keep: those whose keyed hash is below the share that fits, starting with those that cost most
//! for each byte that they take.

use crate::dataset::SampleId;
use crate::sampler::hash;

/// Separates these hashes from those of other choices.
const KEY: u64 = 0x7072_6570_6172_6564;

/// Classes of lengths: four for each power of two.
const CLASSES: usize = 4 * 64;

/// The samples that are kept: not a list, but a function of a sample. The same in every process and after a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// The class that is kept in part: all classes above are kept, none below.
    class: usize,
    /// The share of that class, in 2^64ths; `u64::MAX`: all of it.
    below: u64,
    /// Whether samples have classes.
    by_length: bool,
}

impl Members {
    /// Whether a sample that is read as `stored` bytes is a member.
    pub(crate) fn has(&self, id: SampleId, stored: u64) -> bool {
        let class = if self.by_length { class(stored) } else { 0 };
        class > self.class || (class == self.class && (self.below == u64::MAX || hash(id.0 ^ KEY) < self.below))
    }
}

/// Statistics of a dataset's samples, by class, before members are chosen.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    by_length: bool,
    samples: Vec<u64>,
    /// For examined samples: their number, and the bytes that they would take.
    seen: Vec<(u64, u64)>,
}

impl Tally {
    /// `by_length`: the size of a kept sample does not depend on the bytes read for it, and samples with more bytes
    /// cost more.
    pub(crate) fn new(by_length: bool) -> Tally {
        Tally { by_length, samples: vec![0; CLASSES], seen: vec![(0, 0); CLASSES] }
    }

    /// Whether samples have classes.
    pub(crate) fn is_by_length(&self) -> bool {
        self.by_length
    }

    /// Counts `samples` samples that are read as `stored` bytes each.
    pub(crate) fn count(&mut self, stored: u64, samples: u64) {
        let class = self.class(stored);
        self.samples[class] += samples;
    }

    /// Notes that a sample which is read as `stored` bytes takes `bytes` when it is kept.
    pub(crate) fn see(&mut self, stored: u64, bytes: u64) {
        let class = self.class(stored);
        self.seen[class].0 += 1;
        self.seen[class].1 += bytes;
    }

    /// The members that fit into `room`, their share of the samples, and the bytes that all samples would take. `None`
    /// if no sample was examined.
    pub(crate) fn members(&self, room: u64) -> Option<(Members, f64, u64)> {
        let (seen, bytes) = self.seen.iter().fold((0, 0), |sum, class| (sum.0 + class.0, sum.1 + class.1));
        let mean = bytes as f64 / if seen > 0 { seen as f64 } else { return None };
        // A class with few examined samples gets the mean of all classes.
        let of_class = |class: usize| match self.seen[class] {
            (count, bytes) if count >= SEEN_ENOUGH => bytes as f64 / count as f64,
            _ => mean,
        };
        let bytes_in = |class: usize| of_class(class) * self.samples[class] as f64;
        let all: f64 = (0..CLASSES).map(bytes_in).sum();
        let samples: u64 = self.samples.iter().sum();
        let (mut left, mut kept) = (room as f64, 0.0);
        let mut members = Members { class: CLASSES, below: 0, by_length: self.by_length };
        for class in (0..CLASSES).rev().filter(|&class| self.samples[class] > 0) {
            let share = (left / bytes_in(class)).min(1.0);
            left -= share * bytes_in(class);
            kept += share * self.samples[class] as f64;
            let below = if share >= 1.0 { u64::MAX } else { (share * 2_f64.powi(64)) as u64 };
            members = Members { class, below, by_length: self.by_length };
            if share < 1.0 {
                break;
            }
        }
        Some((members, kept / (samples.max(1) as f64), all as u64))
    }

    fn class(&self, stored: u64) -> usize {
        if self.by_length { class(stored) } else { 0 }
    }
}

/// Number of examined samples from which the mean of a class is used.
const SEEN_ENOUGH: u64 = 16;

/// The class of a length: its power of two, and the next two bits.
fn class(stored: u64) -> usize {
    let stored = stored.max(4);
    let power = stored.ilog2();
    (4 * power as usize) | ((stored >> (power - 2)) & 3) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend() {
        let lengths = [0, 4, 5, 6, 7, 8, 10, 12, 14, 16, 1000, 1100, 1300, u64::MAX];
        assert!(lengths.windows(2).all(|pair| class(pair[0]) <= class(pair[1])), "{lengths:?}");
        assert!(class(u64::MAX) < CLASSES);
        assert!(class(1000) < class(1100) && class(1100) < class(1300));
    }

    #[test]
    fn the_share_that_fits_is_kept() {
        let mut tally = Tally::new(false);
        tally.count(0, 100_000);
        (0..256).for_each(|id| tally.see(0, 900 + id));
        for (room, wanted) in [(0, 0.0), (25_687_500, 0.25), (102_750_000 / 2, 0.5), (200_000_000, 1.0)] {
            let (members, share, all) = tally.members(room).unwrap();
            assert!((share - wanted).abs() < 1e-6 && all == 102_750_000, "{room}: {share} of {all}");
            let kept = (0..100_000).filter(|&id| members.has(SampleId(id), 77)).count();
            assert!((kept as f64 / 1e5 - wanted).abs() < 0.005, "{room}: {kept}");
        }
        assert!(Tally::new(false).members(1).is_none());
    }

    #[test]
    fn the_dearest_come_first() {
        let mut tally = Tally::new(true);
        let stored = |id: u64| 1000 << (id % 4);
        (0..10_000).for_each(|id| tally.count(stored(id), 1));
        (0..256).for_each(|id| tally.see(stored(id), 500));
        // Room for 3 of 8: all of the longest, and half of those before them.
        let (members, share, _) = tally.members(10_000 * 500 * 3 / 8).unwrap();
        assert!((share - 0.375).abs() < 1e-6);
        let kept =
            |class: u64| (0..10_000).filter(move |id| id % 4 == class && members.has(SampleId(*id), stored(*id)));
        assert_eq!((kept(3).count(), kept(1).count(), kept(0).count()), (2500, 0, 0));
        assert!((1150..1350).contains(&kept(2).count()), "{}", kept(2).count());
    }
}
