//! Measures who holds the loader's memory, some hundred times a second.

use super::counters::Gauge;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds between two measurements.
const PERIOD: u64 = 10_000_000;

/// A holder of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Holder {
    /// Batches that are being read, decoded and assembled.
    Reading,
    /// Batches that are ready, on their way to a device, or held by the consumer.
    Batches,
    /// Decoded units that samples are cut from.
    Units,
    /// Stretches of files that are kept.
    Kept,
    /// No holder: it was taken from the system and waits for reuse.
    Nobody,
}

impl Holder {
    /// All, in the order of `as usize`.
    pub const ALL: [Holder; 5] = [Holder::Reading, Holder::Batches, Holder::Units, Holder::Kept, Holder::Nobody];

    /// What it is, for people and reports.
    pub fn name(self) -> &'static str {
        match self {
            Holder::Reading => "reading",
            Holder::Batches => "batches",
            Holder::Units => "units",
            Holder::Kept => "kept stretches",
            Holder::Nobody => "free",
        }
    }
}

/// Memory of one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The holder.
    pub holder: Holder,
    /// Bytes, when it was measured last.
    pub bytes: u64,
    /// Bytes, the mean over time since the loader was built.
    pub mean_bytes: u64,
    /// Most bytes measured.
    pub most_bytes: u64,
}

/// The gauges. One thread writes them.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    gauges: [Gauge; Holder::ALL.len()],
    /// When the next measurement is due, in nanoseconds.
    next: AtomicU64,
}

impl Holders {
    /// Whether a measurement is due. Costs one load.
    pub(super) fn is_due(&self, now: u64) -> bool {
        now >= self.next.load(Ordering::Relaxed)
    }

    /// Records what each holder has from `now` on, in bytes, in the order of [`Holder::ALL`].
    pub(super) fn set(&self, bytes: [u64; Holder::ALL.len()], now: u64) {
        self.next.store(now + PERIOD, Ordering::Relaxed);
        // In KiB, so that the sums over time do not overflow soon.
        self.gauges.iter().zip(bytes).for_each(|(gauge, bytes)| gauge.set(bytes.div_ceil(1024), now));
    }

    /// The holders that held something.
    pub(super) fn all(&self, now: u64) -> Vec<Held> {
        let of = |(holder, gauge): (Holder, &Gauge)| Held {
            holder,
            bytes: gauge.value() * 1024,
            mean_bytes: (u128::from(gauge.area_at(now)) * 1024 / u128::from(now.max(1))) as u64,
            most_bytes: gauge.max() * 1024,
        };
        Holder::ALL.into_iter().zip(&self.gauges).map(of).filter(|held| held.most_bytes > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_held_is_a_mean_over_time_and_a_most() {
        for (index, holder) in Holder::ALL.into_iter().enumerate() {
            assert_eq!(holder as usize, index);
        }
        let holders = Holders::default();
        assert!(holders.is_due(0) && holders.all(5).is_empty());
        holders.set([4096, 1 << 20, 0, 0, 2048], 0);
        assert!(!holders.is_due(PERIOD - 1) && holders.is_due(PERIOD));
        holders.set([8192, 0, 0, 0, 2048], PERIOD);
        let held = |holder, bytes, mean_bytes, most_bytes| Held { holder, bytes, mean_bytes, most_bytes };
        let expected = [
            held(Holder::Reading, 8192, 6144, 8192),
            held(Holder::Batches, 0, 1 << 19, 1 << 20),
            held(Holder::Nobody, 2048, 2048, 2048),
        ];
        assert_eq!(holders.all(2 * PERIOD), expected);
    }
}
