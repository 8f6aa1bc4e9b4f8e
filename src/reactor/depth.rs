//! Chooses how many reads are in flight and how long they are: enough to keep the device busy, but no more than its
//! queue takes without putting the submitting thread to sleep.
//!
//! Beyond the depth that keeps a device busy, more reads only wait longer, and they wait in the device instead of here,
//! where the oldest batch could still go first. So the depth grows in steps while reads complete fast and shrinks when
//! they complete slowly (additive increase, multiplicative decrease, like TCP's congestion window in RFC 5681). If
//! reads are slow even at the minimum depth, they are too long for the device: they are halved, and doubled again once
//! they are fast.

use std::time::Duration;

/// Initial depth: saturates every NVMe and virtio disk that was measured at 128 KiB.
const START: usize = 64;

/// Minimum depth: a disk array needs some reads on each member.
const LEAST: usize = 8;

/// Minimum read length. Below it, the request costs the device more than its bytes.
const LEAST_READ_BYTES: u64 = 64 << 10;

/// Reads whose mean latency is above this are queueing.
const SLOW: Duration = Duration::from_millis(60);

/// Reads whose mean latency is below this leave room for more of them.
const FAST: Duration = Duration::from_millis(1);

/// The controller.
#[derive(Debug)]
pub(super) struct Depth {
    now: usize,
    bound: usize,
    /// Longest read now, and its upper bound.
    read_bytes: u64,
    read_bytes_bound: u64,
    fixed: bool,
    /// Number of reads and the sum of their latencies since the last adjustment, in microseconds.
    reads: usize,
    latency_us: u64,
    /// Whether the depth, rather than the available work, limited the reads in flight.
    limiting: bool,
}

impl Depth {
    /// Stays within `bound` reads of at most `read_bytes` each. If `fixed`, always stays at the bounds.
    pub(super) fn new(bound: usize, read_bytes: u64, fixed: bool) -> Depth {
        let bound = bound.max(1);
        let now = if fixed { bound } else { START.min(bound) };
        Depth { now, bound, read_bytes, read_bytes_bound: read_bytes, fixed, reads: 0, latency_us: 0, limiting: false }
    }

    /// Number of reads that may be in flight now.
    pub(super) fn now(&self) -> usize {
        self.now
    }

    /// Longest read to plan now, in bytes: the bound divided by a power of two.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Records that reads were issued, and whether they filled the depth.
    pub(super) fn started(&mut self, in_flight: usize, filled: bool) {
        self.limiting |= filled && in_flight >= self.now;
    }

    /// Records the latency of one read.
    pub(super) fn done(&mut self, latency: Duration) {
        if self.fixed {
            return;
        }
        self.reads += 1;
        self.latency_us += latency.as_micros() as u64;
        // Two rounds of the queue, so that the measured reads were issued at the present depth.
        if self.reads >= 2 * self.now {
            let mean = Duration::from_micros(self.latency_us / self.reads as u64);
            let least = LEAST.min(self.bound);
            if mean > SLOW && self.now > least {
                self.now = (self.now * 3 / 4).max(least);
            } else if mean > SLOW && self.read_bytes / 2 >= LEAST_READ_BYTES {
                self.read_bytes /= 2;
            } else if mean < FAST && self.read_bytes < self.read_bytes_bound {
                self.read_bytes *= 2;
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

    const READ_BYTES: u64 = 512 << 10;

    fn run(depth: &mut Depth, latency: Duration, reads: usize) {
        for _ in 0..reads {
            depth.started(depth.now(), true);
            depth.done(latency);
        }
    }

    #[test]
    fn follows_latency_within_its_bounds() {
        let mut depth = Depth::new(100, READ_BYTES, false);
        assert_eq!(depth.now(), START);
        run(&mut depth, Duration::from_micros(100), 5_000);
        assert_eq!(depth.now(), 100);
        run(&mut depth, Duration::from_millis(20), 5_000);
        assert_eq!(depth.now(), 100, "neither fast nor slow");
        run(&mut depth, Duration::from_millis(500), 500);
        assert!(depth.now() < 60 && depth.read_bytes() == READ_BYTES, "fewer before shorter");
        run(&mut depth, Duration::from_millis(500), 5_000);
        assert_eq!((depth.now(), depth.read_bytes()), (LEAST, LEAST_READ_BYTES));
        run(&mut depth, Duration::from_micros(100), 5_000);
        assert_eq!((depth.now(), depth.read_bytes()), (100, READ_BYTES));
    }

    #[test]
    fn stays_where_the_user_put_it() {
        let mut depth = Depth::new(5, READ_BYTES, true);
        run(&mut depth, Duration::from_secs(1), 100);
        assert_eq!(depth.now(), 5);
        assert_eq!(Depth::new(0, READ_BYTES, false).now(), 1);
    }

    #[test]
    fn does_not_grow_where_the_work_is_what_limits() {
        let mut depth = Depth::new(200, READ_BYTES, false);
        for _ in 0..5_000 {
            depth.started(1, false);
            depth.done(Duration::from_micros(50));
        }
        assert_eq!(depth.now(), START);
    }
}
