//! Simulates how a device serves reads: its curve of throughput over depth.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::time::{Duration, Instant};

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes a second; 0: no limit.
    pub bytes_per_second: u64,
    /// Reads a second, one after the other as a head or a quota serves them; 0: no limit.
    pub reads_per_second: u64,
    /// Reads that may go at once before that limit applies: the bucket of tokens that cloud disks save up.
    pub burst: u64,
    /// Time that each read takes by itself.
    pub latency: Duration,
    /// How much the latency varies in either direction, in percent.
    pub jitter: u8,
    /// Channels that serve one read at a time, chosen at random, like the dies of a flash disk; 0: no limit.
    pub channels: usize,
    /// When the device stands still, and for how long.
    pub stall: Option<(Duration, Duration)>,
}

/// A device without limits.
pub const NONE: Limits = Limits {
    bytes_per_second: 0,
    reads_per_second: 0,
    burst: 0,
    latency: Duration::ZERO,
    jitter: 0,
    channels: 0,
    stall: None,
};

/// A device with these limits.
pub struct Service {
    limits: Limits,
    random: Xoshiro256PlusPlus,
    start: Instant,
    /// When the next token is due, when earlier bytes are done, and when each channel is free.
    tokens: Instant,
    bytes: Instant,
    channels: Vec<Instant>,
}

impl Service {
    /// A device that is idle at `now`, with a full bucket.
    pub fn new(limits: Limits, seed: u64, now: Instant) -> Service {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Service { limits, random, start: now, tokens: now, bytes: now, channels: vec![now; limits.channels] }
    }

    /// When a read of `bytes` that begins `now` ends.
    pub fn end(&mut self, bytes: u64, now: Instant) -> Instant {
        let Limits { bytes_per_second, reads_per_second, burst, latency, jitter, .. } = self.limits;
        let mut begin = self.after_stall(now);
        if let Some(nanos) = 1_000_000_000_u64.checked_div(reads_per_second) {
            // A virtual clock of the bucket: a token is due once in `each`, and those of the last `burst` may be late.
            let each = Duration::from_nanos(nanos);
            let saved = each.saturating_mul(u32::try_from(burst).unwrap_or(u32::MAX));
            self.tokens = self.tokens.max(begin.checked_sub(saved).unwrap_or(begin)) + each;
            begin = begin.max(self.tokens);
        }
        if let Some(nanos) = bytes.saturating_mul(1_000_000_000).checked_div(bytes_per_second) {
            let takes = Duration::from_nanos(nanos);
            self.bytes = self.bytes.max(begin) + takes;
            begin = self.bytes;
        }
        let part: f64 = 1.0 + (self.random.next_u32() as f64 / u32::MAX as f64 * 2.0 - 1.0) * f64::from(jitter) / 100.0;
        let takes = latency.mul_f64(part.max(0.0));
        if self.channels.is_empty() {
            return begin + takes;
        }
        let channel = self.random.next_u64() as usize % self.channels.len();
        let end = self.channels[channel].max(begin) + takes;
        self.channels[channel] = end;
        end
    }

    fn after_stall(&self, now: Instant) -> Instant {
        match self.limits.stall {
            Some((after, lasting)) if now >= self.start + after => now.max(self.start + after + lasting),
            _ => now,
        }
    }
}
