//! Chooses how many reads are in flight and how long they are, by what that gives.
//!
//! A device has a knee: below it more reads in flight give more, above it they only wait longer, and they wait in the
//! device instead of here, where the oldest batch could still go first. Where the knee lies differs by a factor of a
//! hundred between disks, network file systems and quotas, so it is found by trying, as BBR finds the bandwidth of a
//! path: measure, change one knob, measure again, and keep the change only if it is worth it. More reads must give
//! more. Fewer reads are tried only where reads queue, and must give about as much. A trial that fails doubles the time
//! to the next one, so a loader that has found its knee hardly moves; a rate that changes (a quota, a neighbour) ends
//! that rest.

#[cfg(test)]
mod tests;

use crate::engine::Width;
use crate::stats::{Decision, Knob};
use std::time::{Duration, Instant};

/// Minimum depth that is tried: a disk array needs some reads on each member.
const LEAST: usize = 8;

/// Minimum read length. Below it, the request costs the device more than its bytes.
const LEAST_READ_BYTES: u64 = 64 << 10;

/// Reads whose mean latency is above this may be queueing.
const SLOW: Duration = Duration::from_millis(60);

/// More of something must give this much more, and less of it may give this much less. A step down and the step up that
/// undoes it cannot both pass, so the depth does not swing.
const GAIN: f64 = 1.03;
const LOSS: f64 = 0.995;

/// Latency that grew by this much with the depth: reads queue.
const QUEUEING: f64 = 1.5;

/// A measurement has at least two rounds of the queue, lasts so long and has so many reads: of fewer, the rate is
/// mostly noise.
const WINDOW: Duration = Duration::from_millis(50);
const WINDOW_READS: usize = 192;

/// A measurement ends after so long if it has this many reads: a device of one read a second is measured, too.
const LONG_WINDOW: Duration = Duration::from_secs(2);
const LONG_WINDOW_READS: usize = 8;

/// A device that gave nothing for so long, and for four times as long as a read takes, stood still: that says nothing
/// of its rate.
const STALL: Duration = Duration::from_secs(1);

/// Windows from a failed trial to the next one, at most.
const REST: u32 = 256;

/// A rate that changed by this factor is another device's, so to say.
const SHIFT: f64 = 1.4;

/// Windows in which work, not the depth, limited the reads, until a trial is called off.
const IDLE_WINDOWS: u32 = 4;

/// What a window measured.
#[derive(Clone, Copy, Debug)]
struct Rate {
    reads: f64,
    bytes: f64,
    latency: Duration,
}

impl Rate {
    /// How many times as much as `other`. Both counts tell the same, and their noise (of the lengths of reads, of the
    /// requests they are split into) is not the same.
    fn over(self, other: Rate) -> f64 {
        (self.reads / other.reads * (self.bytes / other.bytes)).sqrt()
    }

    fn mixed(self, newer: Rate) -> Rate {
        Rate {
            reads: f64::midpoint(self.reads, newer.reads),
            bytes: f64::midpoint(self.bytes, newer.bytes),
            latency: (self.latency + newer.latency) / 2,
        }
    }
}

/// The running measurement.
#[derive(Debug, Default)]
struct Window {
    /// When it began; `None` while reads of before are still in flight.
    since: Option<Instant>,
    /// Reads of before that are still to come.
    skip: usize,
    reads: usize,
    bytes: u64,
    latency: Duration,
    /// How often reads were issued, and how often that filled the depth.
    issued: usize,
    filled: usize,
    /// When the last read ended, and the longest time without one.
    last: Option<Instant>,
    gap: Duration,
    /// Whether reads ended since the last look.
    is_fresh: bool,
}

/// A change of one knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    Fewer,
    Longer,
    Shorter,
}

/// In the order in which they are tried.
const STEPS: [Step; 4] = [Step::More, Step::Fewer, Step::Longer, Step::Shorter];

/// The controller.
#[derive(Debug)]
pub(super) struct Depth {
    now: usize,
    read_bytes: u64,
    width: Width,
    read_bytes_most: u64,
    window: Window,
    /// The rate with the knobs as they are, or, during a trial, as they were.
    base: Option<Rate>,
    /// The change on trial, and the knobs before it.
    trial: Option<(Step, usize, u64)>,
    /// The rate that a descent began with: each of its steps is held against that, so that small losses do not add up.
    anchor: Option<Rate>,
    /// The step that was tried last.
    last: usize,
    /// Windows since the last trial, and how many there must be.
    rested: u32,
    rest: u32,
    /// The rate when the last trial ended.
    settled: Option<Rate>,
    /// The shortest mean latency lately: what reads take that do not queue.
    floor: Duration,
    idle_windows: u32,
}

impl Depth {
    /// Stays within this width and reads of at most `read_bytes` each.
    pub(super) fn new(width: Width, read_bytes: u64) -> Depth {
        let width = Width { most: width.most.max(1), ..width };
        let now = if width.fixed { width.most } else { width.start.clamp(1, width.most) };
        Depth {
            now,
            read_bytes,
            width,
            read_bytes_most: read_bytes,
            window: Window::default(),
            base: None,
            trial: None,
            anchor: None,
            last: STEPS.len() - 1,
            rested: 0,
            rest: 1,
            settled: None,
            floor: Duration::MAX,
            idle_windows: 0,
        }
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
    pub(super) fn started(&mut self, filled: bool) {
        self.window.issued += 1;
        self.window.filled += usize::from(filled);
    }

    /// Records a read that ended.
    pub(super) fn done(&mut self, bytes: u64, latency: Duration) {
        let window = &mut self.window;
        window.is_fresh = true;
        if window.skip > 0 {
            window.skip -= 1;
        } else {
            window.reads += 1;
            window.bytes += bytes;
            window.latency += latency;
        }
    }

    /// The machine had no room (descriptors, memory) for a read. Once for all reads of a depth.
    pub(super) fn refused(&mut self) -> Option<Decision> {
        let depth = (self.now / 2).max(LEAST.min(self.width.most));
        if self.width.fixed || depth >= self.now || self.window.since.is_none() {
            return None;
        }
        let rate = self.base;
        self.trial = None;
        self.tire();
        Some(self.change((depth, self.read_bytes), rate, "the machine has no room for more"))
    }

    /// Looks at what was measured. Call it once for all reads that ended together, so that a burst is not cut. Returns
    /// the change that it made, if any.
    pub(super) fn look(&mut self, now: Instant) -> Option<Decision> {
        if self.width.fixed || !std::mem::take(&mut self.window.is_fresh) {
            return None;
        }
        let window = &mut self.window;
        if let Some(last) = window.last.replace(now) {
            window.gap = window.gap.max(now.saturating_duration_since(last));
        }
        let Some(since) = window.since else {
            if window.skip == 0 {
                *window = Window { since: Some(now), last: Some(now), ..Window::default() };
            }
            return None;
        };
        let elapsed = now.saturating_duration_since(since);
        let rounds = window.reads >= (2 * self.now).max(WINDOW_READS) && elapsed >= WINDOW;
        let is_long = window.reads >= LONG_WINDOW_READS && elapsed >= LONG_WINDOW;
        if !(rounds || is_long) {
            return None;
        }
        let latency = window.latency / window.reads as u32;
        let seconds = elapsed.as_secs_f64();
        let rate = Rate { reads: window.reads as f64 / seconds, bytes: window.bytes.max(1) as f64 / seconds, latency };
        let is_telling = 2 * window.filled >= window.issued && window.gap <= STALL.max(4 * latency);
        *window = Window { since: Some(now), last: Some(now), ..Window::default() };
        if is_telling { self.judge(rate) } else { self.idle(rate) }
    }

    /// A window in which the work was the limit, or the device stood still. A trial is called off if there are many.
    fn idle(&mut self, rate: Rate) -> Option<Decision> {
        self.idle_windows += 1;
        if self.idle_windows < IDLE_WINDOWS {
            return None;
        }
        self.idle_windows = 0;
        let (_, depth, read_bytes) = self.trial.take()?;
        self.tire();
        Some(self.change((depth, read_bytes), Some(rate), "not used: there are not so many reads to start"))
    }

    fn judge(&mut self, rate: Rate) -> Option<Decision> {
        self.idle_windows = 0;
        let grown = self.floor.saturating_add(self.floor / 64);
        self.floor = rate.latency.min(grown);
        match (self.trial, self.base) {
            (Some((step, depth, read_bytes)), Some(base)) => {
                self.trial = None;
                self.conclude(step, (depth, read_bytes), rate, base)
            }
            _ => {
                let base = self.base.map_or(rate, |base| base.mixed(rate));
                self.base = Some(base);
                self.rested += 1;
                let has_shifted = |settled: Rate| !(1.0 / SHIFT..SHIFT).contains(&base.over(settled));
                if self.rested >= 2 && self.settled.is_some_and(has_shifted) {
                    (self.rest, self.settled, self.anchor) = (1, Some(base), None);
                }
                if self.rested < self.rest { None } else { self.attempt(base) }
            }
        }
    }

    /// Starts a trial of the next change that may be of use.
    fn attempt(&mut self, base: Rate) -> Option<Decision> {
        let next = (1..=STEPS.len()).map(|after| (self.last + after) % STEPS.len());
        let Some((index, to)) = next.filter_map(|index| Some((index, self.target(STEPS[index], base)?))).next() else {
            self.rested = 0;
            return None;
        };
        self.last = index;
        let step = STEPS[index];
        if step == Step::Fewer && self.anchor.is_none() {
            self.anchor = Some(base);
        }
        self.trial = Some((step, self.now, self.read_bytes));
        Some(self.change(to, Some(base), "a trial"))
    }

    /// What a step leads to; `None` if it is of no use now.
    fn target(&self, step: Step, base: Rate) -> Option<(usize, u64)> {
        let (least, most) = (LEAST.min(self.width.most), self.width.most);
        let queues = self.now > self.width.start && base.latency > self.floor.mul_f64(QUEUEING);
        let (depth, read_bytes) = (self.now, self.read_bytes);
        let to = match step {
            Step::More => ((depth * 2).min(most), read_bytes),
            Step::Fewer if base.latency > SLOW || queues => ((depth * 3 / 4).max(least).min(depth), read_bytes),
            Step::Longer if read_bytes < self.read_bytes_most => (depth, read_bytes * 2),
            Step::Shorter if base.latency > SLOW && depth == least && read_bytes / 2 >= LEAST_READ_BYTES => {
                (depth, read_bytes / 2)
            }
            _ => (depth, read_bytes),
        };
        (to != (depth, read_bytes)).then_some(to)
    }

    /// Keeps or undoes the change on trial.
    fn conclude(&mut self, step: Step, before: (usize, u64), rate: Rate, base: Rate) -> Option<Decision> {
        let kept = match step {
            Step::More => rate.over(base) >= GAIN,
            Step::Fewer => rate.over(self.anchor.unwrap_or(base)) >= LOSS,
            // Shorter reads are more reads, so only bytes count.
            Step::Longer | Step::Shorter => rate.bytes / base.bytes >= LOSS,
        };
        self.settled = Some(if kept { rate } else { base });
        if !kept {
            self.tire();
            let reason = match step {
                Step::More | Step::Longer => "undone: it gained too little",
                Step::Fewer | Step::Shorter => "undone: it lost too much",
            };
            return Some(self.change(before, Some(rate), reason));
        }
        // Go on in this direction at once.
        self.base = Some(rate);
        self.last = (self.last + STEPS.len() - 1) % STEPS.len();
        if step != Step::Fewer {
            self.anchor = None;
        }
        self.rest = 1;
        self.attempt(rate)
    }

    /// A trial failed: the next one comes later.
    fn tire(&mut self) {
        self.anchor = None;
        self.rested = 0;
        self.rest = (self.rest * 2).min(REST);
        self.base = None;
    }

    /// Sets the knobs. Reads that are in flight belong to the old setting.
    fn change(&mut self, (depth, read_bytes): (usize, u64), rate: Option<Rate>, reason: &'static str) -> Decision {
        let (knob, from, to) = if depth == self.now {
            (Knob::ReadBytes, self.read_bytes, read_bytes)
        } else {
            (Knob::Depth, self.now as u64, depth as u64)
        };
        let skip = self.now.max(depth);
        self.now = depth;
        self.read_bytes = read_bytes;
        self.window = Window { skip, ..Window::default() };
        Decision {
            after: Duration::ZERO,
            knob,
            from,
            to,
            reads_per_second: rate.map_or(0, |rate| rate.reads as u64),
            bytes_per_second: rate.map_or(0, |rate| rate.bytes as u64),
            latency: rate.map_or(Duration::ZERO, |rate| rate.latency),
            reason,
        }
    }
}
