//! Measures how long reads took, by length: 4 KiB and 8 MiB are not one distribution.

use super::histogram::{Distribution, Histogram};
use std::time::Duration;

/// Longest read of each class except the last, in bytes. Seven classes of 4 KiB of counts each.
const UP_TO: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const CLASSES: usize = UP_TO.len() + 1;

/// A histogram for each class of lengths.
#[derive(Debug, Default)]
pub(crate) struct ReadLatencies {
    classes: [Histogram; CLASSES],
}

impl ReadLatencies {
    /// Counts `reads` reads of `bytes` each that took the same time: some 6 ns, no lock.
    pub(crate) fn record(&self, bytes: u64, time: Duration, reads: u64) {
        self.classes[class(bytes)].record_several(time, reads);
    }

    /// All reads together, and those of each class that has any.
    pub(super) fn snapshot(&self) -> (Distribution, Vec<ReadsOfSize>) {
        let of = |(index, class): (usize, &Histogram)| ReadsOfSize {
            up_to_bytes: UP_TO.get(index).copied(),
            latency: class.snapshot(),
        };
        let classes: Vec<ReadsOfSize> = self.classes.iter().enumerate().map(of).collect();
        let mut all = Distribution::default();
        classes.iter().for_each(|class| all.add(&class.latency));
        (all, classes.into_iter().filter(|class| class.latency.count() > 0).collect())
    }
}

fn class(bytes: u64) -> usize {
    UP_TO.partition_point(|&up_to| up_to < bytes)
}

/// How long the reads of one class of lengths took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadsOfSize {
    /// The longest read of the class, in bytes; `None` for the last class, which has no bound.
    pub up_to_bytes: Option<u64>,
    /// How long they took.
    pub latency: Distribution,
}

/// What was counted since `earlier`.
pub(super) fn since(now: &[ReadsOfSize], earlier: &[ReadsOfSize]) -> Vec<ReadsOfSize> {
    let of = |class: &ReadsOfSize| {
        let before = earlier.iter().find(|before| before.up_to_bytes == class.up_to_bytes);
        let latency = before.map_or_else(|| class.latency.clone(), |before| class.latency.since(&before.latency));
        ReadsOfSize { latency, ..*class }
    };
    now.iter().map(of).filter(|class| class.latency.count() > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_by_their_length_and_together() {
        let latencies = ReadLatencies::default();
        assert_eq!(latencies.snapshot(), (Distribution::default(), Vec::new()));
        latencies.record(1, Duration::from_micros(10), 3);
        latencies.record(4096, Duration::from_micros(10), 1);
        let (_, early) = latencies.snapshot();
        latencies.record(4097, Duration::from_millis(1), 1);
        latencies.record(4096, Duration::from_micros(20), 2);
        latencies.record(u64::MAX, Duration::from_secs(1), 1);
        let (all, classes) = latencies.snapshot();
        let of = |classes: &[ReadsOfSize]| -> Vec<(Option<u64>, u64)> {
            classes.iter().map(|class| (class.up_to_bytes, class.latency.count())).collect()
        };
        assert_eq!(of(&classes), [(Some(4096), 6), (Some(16384), 1), (None, 1)]);
        assert_eq!(all.count(), 8);
        assert!(all.percentile(50.0).unwrap() < Duration::from_micros(21));
        assert!(all.percentile(100.0).unwrap() > Duration::from_millis(900));
        assert_eq!(of(&since(&classes, &early)), [(Some(4096), 2), (Some(16384), 1), (None, 1)]);
    }
}
