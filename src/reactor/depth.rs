//! How many reads are in flight: as many as the device needs to be busy, and no more than its queue takes without
//! making the submitting thread sleep.
//!
//! Beyond the depth that keeps a device busy more reads only wait longer, in the device instead of here, where the oldest
//! batch could still go first. So the depth grows by steps while reads come back fast, and shrinks when they come
//! back slowly (additive increase, multiplicative decrease, as TCP's congestion window in RFC 5681).

use std::time::Duration;

/// Depth to begin with: what saturates every NVMe and virtio disk that was measured at 128 KiB.
const START: usize = 64;

/// Depth is not lowered below this: a disk array needs some reads on each member.
const LEAST: usize = 8;

/// Reads that take longer than this on average are queueing.
const SLOW: Duration = Duration::from_millis(60);

/// Reads that take less than this on average leave room for more of them.
const FAST: Duration = Duration::from_millis(1);

/// The controller.
#[derive(Debug)]
pub(super) struct Depth {
    now: usize,
    bound: usize,
    fixed: bool,
    /// Reads and their summed latency since the last look, in microseconds.
    reads: usize,
    latency_us: u64,
    /// Whether the depth, and not the work at hand, was what limited the reads in flight.
    limiting: bool,
}

impl Depth {
    /// Within `bound`; `fixed`: always at it.
    pub(super) fn new(bound: usize, fixed: bool) -> Depth {
        let bound = bound.max(1);
        let now = if fixed { bound } else { START.min(bound) };
        Depth { now, bound, fixed, reads: 0, latency_us: 0, limiting: false }
    }

    /// Reads that may be in flight now.
    pub(super) fn now(&self) -> usize {
        self.now
    }

    /// Tells that reads were issued, and whether they filled the depth.
    pub(super) fn started(&mut self, in_flight: usize, filled: bool) {
        self.limiting |= filled && in_flight >= self.now;
    }

    /// Tells how long one read took.
    pub(super) fn done(&mut self, latency: Duration) {
        if self.fixed {
            return;
        }
        self.reads += 1;
        self.latency_us += latency.as_micros() as u64;
        // Two rounds of the queue, so that what is looked at was issued at the present depth.
        if self.reads >= 2 * self.now {
            let mean = Duration::from_micros(self.latency_us / self.reads as u64);
            if mean > SLOW {
                self.now = (self.now * 3 / 4).max(LEAST.min(self.bound));
            } else if mean < FAST && self.limiting {
                self.now = (self.now + 8).min(self.bound);
            }
            self.reads = 0;
            self.latency_us = 0;
            self.limiting = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(depth: &mut Depth, latency: Duration, reads: usize) {
        for _ in 0..reads {
            depth.started(depth.now(), true);
            depth.done(latency);
        }
    }

    #[test]
    fn follows_latency_within_its_bounds() {
        let mut depth = Depth::new(100, false);
        assert_eq!(depth.now(), START);
        run(&mut depth, Duration::from_micros(100), 5_000);
        assert_eq!(depth.now(), 100);
        run(&mut depth, Duration::from_millis(20), 5_000);
        assert_eq!(depth.now(), 100, "neither fast nor slow");
        run(&mut depth, Duration::from_millis(500), 5_000);
        assert_eq!(depth.now(), LEAST);
    }

    #[test]
    fn stays_where_the_user_put_it() {
        let mut depth = Depth::new(5, true);
        run(&mut depth, Duration::from_secs(1), 100);
        assert_eq!(depth.now(), 5);
        assert_eq!(Depth::new(0, false).now(), 1);
    }

    #[test]
    fn does_not_grow_where_the_work_is_what_limits() {
        let mut depth = Depth::new(200, false);
        for _ in 0..5_000 {
            depth.started(1, false);
            depth.done(Duration::from_micros(50));
        }
        assert_eq!(depth.now(), START);
    }
}
