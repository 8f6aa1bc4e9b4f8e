//! The samples that took longest to read and to decode: a short list, with a bar that all others are below.

use crate::dataset::SampleId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Samples that are kept.
const KEPT: usize = 16;

/// A sample that took long. Both times are wall-clock times: waiting behind other reads in the device's queue, or for a
/// processor, counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DearSample {
    /// Its number.
    pub id: SampleId,
    /// The epoch in which it took that long.
    pub epoch: u64,
    /// The longest of the reads that brought it, including repeated ones. Samples that share one read all have its
    /// time. Zero if nothing was read for it alone: it was in memory or in a unit.
    pub read: Duration,
    /// How long its values took to decode and transform, on the loader's threads.
    pub made: Duration,
}

impl DearSample {
    pub(crate) fn new(id: SampleId, epoch: u64, read: Duration, made: Duration) -> DearSample {
        DearSample { id, epoch, read, made }
    }

    /// Both times together.
    pub fn total(&self) -> Duration {
        self.read + self.made
    }
}

/// The list. One thread offers samples; any thread may read it.
#[derive(Debug, Default)]
pub(crate) struct Dearest {
    /// Microseconds that a sample must exceed to be kept.
    bar: AtomicU64,
    kept: Mutex<Vec<DearSample>>,
}

impl Dearest {
    /// Samples that took no longer than this many microseconds need not be offered. Costs one load.
    pub(crate) fn bar(&self) -> u64 {
        self.bar.load(Ordering::Relaxed)
    }

    /// Keeps a sample if it is one of the slowest. For a sample that comes more than once, the longest time counts.
    pub(crate) fn offer(&self, sample: DearSample) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let same = kept.iter().position(|one| one.id == sample.id);
        let place = same.or_else(|| {
            let cheapest = (0..kept.len()).min_by_key(|&index| kept[index].total());
            cheapest.filter(|_| kept.len() >= KEPT)
        });
        match place {
            None => kept.push(sample),
            Some(place) if kept[place].total() < sample.total() => kept[place] = sample,
            Some(_) => {}
        }
        if kept.len() >= KEPT {
            let cheapest = kept.iter().map(DearSample::total).min().unwrap_or_default();
            self.bar.store(u64::try_from(cheapest.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// The slowest first.
    pub(super) fn all(&self) -> Vec<DearSample> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by_key(|sample| (std::cmp::Reverse(sample.total()), sample.id.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dearest_are_kept_once_each_and_the_bar_rises() {
        let dearest = Dearest::default();
        // 7 and 1000 have no common factor: every number once, in no order.
        for step in 0..1000_u64 {
            let micros = step * 7 % 1000;
            if micros > dearest.bar() || step < KEPT as u64 {
                let time = Duration::from_micros(micros);
                dearest.offer(DearSample::new(SampleId(micros), 0, time / 2, time / 2));
            }
        }
        let ids = |all: &[DearSample]| all.iter().map(|one| one.id.0).collect::<Vec<_>>();
        assert_eq!(ids(&dearest.all()), (1000 - KEPT as u64..1000).rev().collect::<Vec<_>>());
        // Half a microsecond is lost by halving an odd one.
        assert!((983..=984).contains(&dearest.bar()), "{}", dearest.bar());
        // The same sample in another epoch: faster, and then slower.
        let again = |epoch, millis| {
            dearest.offer(DearSample::new(SampleId(990), epoch, Duration::from_millis(millis), Duration::ZERO));
        };
        again(1, 0);
        again(2, 5);
        again(3, 4);
        let all = dearest.all();
        assert_eq!((all.len(), all[0].id, all[0].epoch), (KEPT, SampleId(990), 2));
        assert_eq!(all[0].total(), Duration::from_millis(5));
    }
}
