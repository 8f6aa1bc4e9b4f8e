//! Worlds in which reads take time.

use super::seeds::with_seed;
use super::{Duration, Faults, SEEDS, Seen, World};
use crate::engine::sim::service::{Limits, NONE};

/// A deadline that every tenth read or so misses by a little.
const TIMEOUT: Duration = Duration::from_millis(50);
const LATENCY: Duration = Duration::from_millis(40);

/// Files are bad in many places, permanently.
const BAD: Faults = Faults {
    short: 0,
    momentary: 0,
    device: 90,
    lasting: 160,
    delay: 0,
    shrunk: 0,
    stuck: 0,
    deaf: 0,
    reorder: false,
    throttled: 0,
    outage: None,
};

/// Smaller worlds may be bad everywhere, which is an outage.
const BYTES_LEAST: u64 = 200_000;

impl World {
    /// How the disk serves reads, if that takes time.
    pub(super) fn service(&self) -> Option<Limits> {
        let is_plain = self.faults == Faults { reorder: self.faults.reorder, ..Faults::default() };
        if is_plain && self.rules.timeout.is_none() {
            return Some(Limits { latency: Duration::from_micros(150), jitter: 50, ..NONE });
        }
        let is_slow = self.faults == BAD && self.rules.timeout == Some(TIMEOUT);
        is_slow.then_some(Limits { latency: LATENCY, jitter: 35, ..NONE })
    }
}

/// A probe may come back after its deadline, too; its bytes belong to no read.
#[test]
fn late_reads_elsewhere_are_not_taken_for_what_they_stand_for() {
    let mut seen = Seen::default();
    let mut run = |seed| {
        let mut world = World::new(seed);
        if world.dataset.bytes() < BYTES_LEAST {
            return;
        }
        world.faults = BAD;
        world.rules.timeout = Some(TIMEOUT);
        world.run(&mut seen);
    };
    (0..SEEDS / 5).for_each(|seed| with_seed(seed, || run(seed)));
    assert!(seen.timeouts > 100, "{seen:?}");
}
