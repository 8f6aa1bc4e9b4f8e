//! Latencies in log-linear buckets that one thread counts and any thread reads.
//!
//! The `hdrhistogram` crate is the usual choice, but its lock-free form gathers counts through a recorder that the
//! writer must meet. Here a reader must be able to look at any time without the reactor's help. Sixteen buckets of
//! atomics an octave do that in a page of code.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets an octave is cut into, as a power of two. The middle of a bucket is within 1/32 (3.1 %) of all it counts.
const STEPS_LOG2: u32 = 4;
const STEPS: usize = 1 << STEPS_LOG2;
/// The longest time with a bucket of its own: 2^36 ns, 69 s. Longer ones count as this long.
const LONGEST_LOG2: u32 = 36;
const BUCKETS: usize = STEPS * (LONGEST_LOG2 - STEPS_LOG2 + 1) as usize;

/// Counts of times. 4 KiB.
pub struct Histogram {
    counts: Box<[AtomicU64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([const { AtomicU64::new(0) }; BUCKETS]) }
    }
}

impl Histogram {
    /// Counts one time: some 5 ns, no lock. Any number of threads may.
    pub fn record(&self, time: Duration) {
        self.record_several(time, 1);
    }

    /// Counts a time `count` times.
    pub fn record_several(&self, time: Duration, count: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)].fetch_add(count, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Distribution {
        if self.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0) {
            return Distribution::default();
        }
        Distribution { counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect() }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// A distribution of times.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    counts: Vec<u64>,
}

impl Distribution {
    /// The number of times counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The percentile, within 3.1 %: `percent` of all times are at most this long. `None` if no time was counted.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((percent / 100.0 * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut passed = 0;
        let found = self.counts.iter().position(|&in_bucket| {
            passed += in_bucket;
            passed >= rank
        });
        found.map(|index| Duration::from_nanos(middle(index)))
    }

    /// How many times were at most this long, within 3.1 % of it.
    pub fn within(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.counts.iter().enumerate().filter(|&(index, _)| middle(index) <= limit).map(|(_, &count)| count).sum()
    }

    /// The mean, within 3.1 %; `None` if no time was counted.
    pub fn mean(&self) -> Option<Duration> {
        let sum: f64 = self.counts.iter().enumerate().map(|(index, &count)| middle(index) as f64 * count as f64).sum();
        let count = self.count();
        (count > 0).then(|| Duration::from_nanos((sum / count as f64) as u64))
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Distribution) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Distribution) -> Distribution {
        let mut counts = self.counts.clone();
        for (count, before) in counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        Distribution { counts }
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| self.percentile(percent).unwrap_or_default());
        write!(f, "{} times, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}", self.count())
    }
}

/// Times below 16 ns have a bucket each; from there on the leading bit names the octave and the next four the step.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.min((1 << LONGEST_LOG2) - 1);
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let octave = nanos.ilog2() - STEPS_LOG2;
    let step = (nanos >> octave) as usize - STEPS;
    STEPS * (octave as usize + 1) + step
}

fn middle(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let octave = bucket / STEPS - 1;
    let low = ((bucket % STEPS + STEPS) as u64) << octave;
    low + (1 << octave) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_within_four_percent_of_all_it_counts() {
        for exponent in 0..(10 * LONGEST_LOG2) {
            let nanos = 2f64.powf(f64::from(exponent) / 10.0) as u64;
            let told = middle(bucket(nanos));
            assert!(told.abs_diff(nanos) as f64 <= 0.032 * nanos as f64, "{nanos} ns told as {told} ns");
        }
    }

    #[test]
    fn buckets_follow_each_other() {
        let mut last = 0;
        for nanos in 0..100_000 {
            let now = bucket(nanos);
            assert!(now == last || now == last + 1, "{nanos}");
            last = now;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_a_known_distribution() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().percentile(50.0), None);
        assert_eq!(histogram.snapshot().mean(), None);
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        let seen = histogram.snapshot();
        for (percent, micros) in [(0.0, 1.0), (50.0, 500.0), (99.0, 990.0), (99.9, 999.0), (100.0, 1000.0)] {
            let told = seen.percentile(percent).unwrap().as_nanos() as f64 / 1000.0;
            assert!((told - micros).abs() <= 0.04 * micros, "p{percent}: {told} µs");
        }
        for micros in [10, 500, 990] {
            assert!(seen.within(Duration::from_micros(micros)).abs_diff(micros) as f64 <= 0.04 * micros as f64);
        }
        assert_eq!((seen.within(Duration::ZERO), seen.within(Duration::MAX)), (0, 1000));
        let mean = seen.mean().unwrap().as_nanos() as f64 / 1000.0;
        assert!((mean - 500.5).abs() < 0.04 * 500.5, "{mean}");
    }

    #[test]
    fn difference_counts_only_what_came_since() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_secs(1));
        let earlier = histogram.snapshot();
        histogram.record(Duration::from_micros(10));
        let since = histogram.snapshot().since(&earlier);
        assert_eq!(since.count(), 1);
        assert!(since.percentile(100.0).unwrap() < Duration::from_micros(11));
    }
}
