//! Chooses how many reads are in flight, how long they are and which gaps they span, by measuring the rate.
//!
//! A device has a knee: below it, more reads in flight raise the rate; above it, they only wait longer, and they wait
//! in the device instead of here, where the oldest batch could still go first. The knee differs by a factor of a
//! hundred between disks, network file systems and quotas, so the controller searches for it, as BBR searches for the
//! bandwidth of a path: measure, change one knob, measure again, and keep the change only if it is worth it. More reads
//! must raise the rate by more than it swings anyway. Fewer reads are tried only where reads queue, and must give about
//! the same rate. Where samples are close together, it tries reads that span the gaps. Only bytes of samples count, so
//! such reads win only if an operation costs more than the bytes of a gap, for whatever reason (a quota, a head, a
//! server's round trip). In the same way it tries whole windows and shards, where an order mixes samples within them
//! and single reads are slow. A failed trial doubles the time to the next one, so a loader that has found its knee
//! hardly moves. A change of the rate (a quota, a neighbour) ends that rest. A server that refuses requests is no
//! device with a knee: `throttle` says what it grants.

mod throttle;

#[cfg(test)]
mod tests;

use self::throttle::Throttle;
use crate::engine::Width;
use crate::plan::{Joined, Joining};
use crate::stats::{Decision, Knob};
use std::time::{Duration, Instant};

/// Minimum depth that is tried: a disk array needs some reads on each member.
const LEAST: usize = 8;

/// Bytes in flight at first, where reads are long because an operation costs much. The system takes longer to provide
/// this memory than a copy into it takes.
const IN_FLIGHT_BYTES: u64 = 32 << 20;

/// Minimum read length. Below it, the request costs the device more than its bytes.
const LEAST_READ_BYTES: u64 = 64 << 10;

/// Reads whose mean latency is above this may be queueing.
const SLOW: Duration = Duration::from_millis(60);

/// More of a knob must raise the rate by this factor; less of it may lower the rate by this factor. A step down and the
/// step up that undoes it cannot both pass, so the depth does not swing.
const GAIN: f64 = 1.03;
const LOSS: f64 = 0.995;

/// A gain of more reads that is less than this may be noise. It must be beyond the noise that was seen, which is less
/// in the mean of several windows: of up to this many. That fewer reads lose nothing is shown by two.
const CLEAR: f64 = 1.25;
const WINDOWS_MAX: u32 = 4;
const WINDOWS_OF_FEWER: u32 = 2;

/// If the latency grew by this factor with the depth, reads queue.
const QUEUEING: f64 = 1.5;

/// A measurement takes at least two rounds of the queue, this long, and this many reads. With fewer, the rate is mostly
/// noise.
const WINDOW: Duration = Duration::from_millis(50);
const WINDOW_READS: usize = 192;

/// A measurement also ends after this long if it has this many reads, so that a device of one read a second is
/// measured.
const LONG_WINDOW: Duration = Duration::from_secs(2);
const LONG_WINDOW_READS: usize = 8;

/// A device that returned nothing for this long, and for four times as long as a read takes, stood still. Such a time
/// does not count toward its rate.
const STALL: Duration = Duration::from_secs(1);

/// Windows from a failed trial to the next one, at most.
const REST: u32 = 256;

/// Rest after a failed trial of a gap, in multiples of the trial's duration, and how often that doubles.
const GAP_REST: u32 = 32;
const GAP_REST_DOUBLINGS: u32 = 5;

/// Reads that a trial of a gap measures, unless the depth is greater: they are long.
const GAP_READS: usize = 64;

/// From this rate on, in bytes a second, single reads are not compared with whole windows: operations cost little
/// there, while kept windows cost memory and a copy.
const WHOLE_RATE: f64 = 400e6;

/// Whole windows must raise the rate by this factor; single reads may lower it by this factor.
const WHOLE_GAIN: f64 = 1.25;
const WHOLE_LOSS: f64 = 0.9;

/// If the rate changed by this factor, the device counts as another one.
const SHIFT: f64 = 1.4;

/// Upper bound for the price of an operation, in bytes.
const PRICE_MAX: f64 = (1_u64 << 30) as f64;

/// A trial is called off after this many windows in which work, not the depth, limited the reads.
const IDLE_WINDOWS: u32 = 4;

/// What a window measured.
#[derive(Clone, Copy, Debug)]
struct Rate {
    reads: f64,
    bytes: f64,
    /// Bytes of samples a second, out of `bytes`.
    useful: f64,
    latency: Duration,
}

impl Rate {
    /// How many times the rate of `other` this is. Both counts measure the same, but their noise differs: one depends
    /// on the lengths of reads, the other on the requests that they are split into.
    fn over(self, other: Rate) -> f64 {
        (self.reads / other.reads * (self.bytes / other.bytes)).sqrt()
    }

    fn mixed(self, newer: Rate) -> Rate {
        self.mean_with(newer, 1)
    }

    /// The mean of this, which is one of `windows` windows, and another.
    fn mean_with(self, newer: Rate, windows: u32) -> Rate {
        let mean = |mean: f64, newer: f64| mean + (newer - mean) / f64::from(windows + 1);
        Rate {
            reads: mean(self.reads, newer.reads),
            bytes: mean(self.bytes, newer.bytes),
            useful: mean(self.useful, newer.useful),
            latency: (self.latency * windows + newer.latency) / (windows + 1),
        }
    }
}

/// The running measurement.
#[derive(Debug, Default)]
struct Window {
    /// When it began; `None` while older reads are still in flight.
    since: Option<Instant>,
    /// Older reads that have not ended yet.
    skip: usize,
    reads: usize,
    bytes: u64,
    useful: u64,
    latency: Duration,
    /// How often reads were issued, and how often that filled the depth.
    issued: usize,
    filled: usize,
    /// When the last read ended, and the longest time without one.
    last: Option<Instant>,
    gap: Duration,
    /// Whether reads ended since the last look.
    is_fresh: bool,
    /// Reads that a server refused, beside those that ended.
    refused: usize,
}

/// A change of one knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    Fewer,
    Longer,
    Shorter,
    Joined,
    Apart,
    Whole,
    Single,
}

/// The knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    depth: usize,
    read_bytes: u64,
    gap: u64,
    whole: bool,
}

/// A read that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) bytes: u64,
    /// Bytes of samples among these.
    pub(super) useful: u64,
    /// Longest gap over which its batch was joined, if others are tried.
    pub(super) gap: Option<u64>,
    /// Whether whole windows were read for it, if that is tried.
    pub(super) whole: Option<bool>,
    pub(super) latency: Duration,
}

impl Ended {
    /// A read of a batch that was joined this way.
    pub(super) fn new(bytes: u64, joined: Joined, latency: Duration) -> Ended {
        Ended { bytes, useful: joined.useful(bytes), gap: joined.gap, whole: joined.whole, latency }
    }
}

impl Step {
    fn is_of_gaps(self) -> bool {
        matches!(self, Step::Joined | Step::Apart | Step::Whole | Step::Single)
    }

    /// Whether the step makes reads longer, with more samples in each.
    fn joins(self) -> bool {
        matches!(self, Step::Joined | Step::Whole)
    }
}

/// In the order in which they are tried.
const STEPS: [Step; 8] =
    [Step::More, Step::Whole, Step::Joined, Step::Fewer, Step::Longer, Step::Shorter, Step::Apart, Step::Single];

/// When another gap may be tried. The reads in flight at the end of a trial are wasted, which takes seconds where
/// bandwidth is scarce. So the duration of the trial sets the rest after it.
#[derive(Debug, Default)]
struct Gaps {
    /// When the current trial began.
    began: Option<Instant>,
    not_before: Option<Instant>,
    /// Trials that failed in a row.
    failed: u32,
}

impl Gaps {
    fn may_try(&self, now: Option<Instant>) -> bool {
        self.not_before.is_none_or(|before| now.is_some_and(|now| now >= before))
    }

    fn fail(&mut self, now: Option<Instant>) {
        let took =
            self.began.take().zip(now).map_or(Duration::ZERO, |(began, now)| now.saturating_duration_since(began));
        let rest = took.saturating_mul(GAP_REST << self.failed.min(GAP_REST_DOUBLINGS));
        self.not_before = now.and_then(|now| now.checked_add(rest));
        self.failed = self.failed.saturating_add(1);
    }
}

/// The controller.
#[derive(Debug)]
pub(super) struct Depth {
    now: Setting,
    width: Width,
    read_bytes_most: u64,
    /// Longest gap that may be tried; 0: none.
    gap_most: u64,
    /// Whether the batch planned last has samples near each other.
    could_join: bool,
    /// Whether whole windows may be tried.
    may_read_whole: bool,
    gaps: Gaps,
    throttle: Throttle,
    window: Window,
    /// The rate with the knobs as they are, or, during a trial, as they were.
    base: Option<Rate>,
    /// How far the rates of one setting lie from their mean, as a share of it.
    noise: f64,
    /// The change on trial, and the knobs before it.
    trial: Option<(Step, Setting)>,
    /// The mean of the windows of this trial, and their number.
    tried: Option<(Rate, u32)>,
    /// The rate at which a descent began. Each of its steps is compared with this, so that small losses do not add up.
    anchor: Option<Rate>,
    /// The step that was tried last.
    last: usize,
    /// Windows since the last trial, and the number required before the next one.
    rested: u32,
    rest: u32,
    /// The rate when the last trial ended.
    settled: Option<Rate>,
    /// The shortest mean latency lately: the latency of reads that do not queue.
    floor: Duration,
    idle_windows: u32,
}

impl Depth {
    /// Stays within this width and reads of at most `read_bytes` each.
    pub(super) fn new(width: Width, read_bytes: u64) -> Depth {
        let width = Width { most: width.most.max(1), ..width };
        let depth = if width.fixed { width.most } else { width.start.clamp(1, width.most) };
        Depth {
            now: Setting { depth, read_bytes, gap: 0, whole: false },
            width,
            read_bytes_most: read_bytes,
            gap_most: 0,
            could_join: false,
            may_read_whole: false,
            gaps: Gaps::default(),
            throttle: Throttle::default(),
            window: Window::default(),
            base: None,
            noise: 0.0,
            trial: None,
            tried: None,
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
        self.now.depth
    }

    /// Longest read to plan now, in bytes: the bound divided by a power of two.
    pub(super) fn read_bytes(&self) -> u64 {
        self.now.read_bytes
    }

    /// Longest gap over which to join the reads of a batch planned now; 0 unless a trial of it gained.
    pub(super) fn gap(&self) -> u64 {
        self.now.gap
    }

    /// Whether to read whole windows or shards now.
    pub(super) fn is_whole(&self) -> bool {
        self.now.whole
    }

    /// For tests of the reads: forces whole windows or single samples from now on, whatever their rate.
    #[cfg(test)]
    pub(super) fn turn_whole(&mut self) {
        self.now.whole = !self.now.whole;
    }

    /// Allows the trials that `joining` names.
    #[must_use]
    pub(super) fn with_joining(mut self, joining: Joining) -> Depth {
        if joining.read_bytes > 0 && !self.width.fixed {
            let start = (IN_FLIGHT_BYTES / joining.read_bytes) as usize;
            self.width.start = start.max(LEAST).min(self.now.depth);
            self.now.depth = self.width.start;
        }
        Depth { gap_most: joining.most, may_read_whole: joining.may_read_whole, ..self }
    }

    /// Records whether a gap would have joined many reads of a batch that was planned without one.
    pub(super) fn planned(&mut self, could_join: bool) {
        self.could_join = could_join;
    }

    /// Records that reads were issued, and whether they filled the depth.
    pub(super) fn started(&mut self, filled: bool) {
        self.window.issued += 1;
        self.window.filled += usize::from(filled);
    }

    /// Records a read that ended.
    pub(super) fn done(&mut self, read: Ended) {
        let window = &mut self.window;
        window.is_fresh = true;
        let is_other = read.gap.is_some_and(|gap| gap != self.now.gap);
        if is_other || read.whole.is_some_and(|whole| whole != self.now.whole) {
            // Planned before the change. Reads planned since then are in flight only behind all older reads.
            window.skip = window.skip.max(1);
        } else if window.skip > 0 {
            window.skip -= 1;
        } else {
            window.reads += 1;
            window.bytes += read.bytes;
            window.useful += read.useful;
            window.latency += read.latency;
        }
    }

    /// Reacts to a read that the machine had no room for: leaves this share of the depth. Acts once for all reads of a
    /// depth.
    pub(super) fn refused(&mut self, share: f64, why: &'static str) -> Option<Decision> {
        // More reads on trial are more than one step too many.
        let tried = self.trial.map_or(usize::MAX, |(_, before)| before.depth);
        let depth = ((self.now.depth as f64 * share) as usize).min(tried).max(LEAST.min(self.width.most));
        if self.width.fixed || depth >= self.now.depth || self.window.since.is_none() {
            return None;
        }
        let rate = self.base;
        self.trial = None;
        self.tire();
        Some(self.change(Setting { depth, ..self.now }, rate, why))
    }

    /// Reacts to a read that a server refused because there are too many, and asked to wait for this `pause`. One is no
    /// reason; acts once for a round of the depth.
    pub(super) fn throttled(&mut self, pause: Duration) -> Option<Decision> {
        self.throttle.asked(pause);
        if self.width.fixed || self.window.since.is_none() && self.extra().is_none() {
            return None;
        }
        self.window.refused += 1;
        // The reads that a trial adds are refused at once, while others are answered.
        let is_round = self.window.reads + self.window.refused >= self.now.depth;
        let is_trial_refused = self.extra().is_some_and(|extra| throttle::is_most(self.window.refused, extra));
        if is_round || is_trial_refused { self.yielded() } else { None }
    }

    /// How many reads a trial of more has in flight beside those before.
    fn extra(&self) -> Option<usize> {
        self.trial.and_then(|(_, before)| self.now.depth.checked_sub(before.depth)).filter(|&extra| extra > 0)
    }

    /// Leaves as many reads in flight as the server granted, if it refused too many of this depth.
    fn yielded(&mut self) -> Option<Decision> {
        let answers = (self.window.reads, self.window.refused);
        let granted = self.throttle.granted(self.now.depth, answers, self.extra())?;
        let depth = granted.max(LEAST.min(self.width.most));
        if depth >= self.now.depth {
            return None;
        }
        let rate = self.base;
        self.trial = None;
        self.tire();
        Some(self.change(Setting { depth, ..self.now }, rate, "the server asks for fewer requests"))
    }

    /// Evaluates the measurement. Call it once for all reads that ended together, so that a burst is not split. Returns
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
                let refused = window.refused;
                *window = Window { since: Some(now), last: Some(now), refused, ..Window::default() };
            }
            return None;
        };
        let elapsed = now.saturating_duration_since(since);
        let wanted = match self.trial {
            Some((step, _)) if step.joins() => self.now.depth.max(GAP_READS),
            _ => (2 * self.now.depth).max(WINDOW_READS),
        };
        let rounds = window.reads >= wanted && elapsed >= WINDOW;
        let is_long = window.reads >= LONG_WINDOW_READS && elapsed >= LONG_WINDOW;
        if !(rounds || is_long) {
            return None;
        }
        let latency = window.latency / window.reads as u32;
        let seconds = elapsed.as_secs_f64();
        let a_second = |count: u64| count.max(1) as f64 / seconds;
        let (bytes, useful) = (a_second(window.bytes), a_second(window.useful));
        let rate = Rate { reads: window.reads as f64 / seconds, bytes, useful, latency };
        let is_telling = 2 * window.filled >= window.issued && window.gap <= STALL.max(4 * latency);
        if window.refused > 0
            && let Some(decision) = self.yielded()
        {
            return Some(decision);
        }
        self.throttle.calm();
        let window = &mut self.window;
        *window = Window { since: Some(now), last: Some(now), ..Window::default() };
        if is_telling { self.judge(rate) } else { self.idle(rate) }
    }

    /// Ends a window that work limited, or in which the device stood still. Calls a trial off after many of them.
    fn idle(&mut self, rate: Rate) -> Option<Decision> {
        self.idle_windows += 1;
        if self.idle_windows < IDLE_WINDOWS {
            return None;
        }
        self.idle_windows = 0;
        let (step, before) = self.trial.take()?;
        if step.is_of_gaps() {
            self.gaps.fail(self.window.last);
        }
        self.tire();
        Some(self.change(before, Some(rate), "not used: too few reads are left to start"))
    }

    fn judge(&mut self, rate: Rate) -> Option<Decision> {
        self.idle_windows = 0;
        let grown = self.floor.saturating_add(self.floor / 64);
        self.floor = rate.latency.min(grown);
        match (self.trial, self.base) {
            (Some((step, before)), Some(base)) => {
                let (rate, windows) =
                    self.tried.map_or((rate, 1), |(mean, windows)| (mean.mean_with(rate, windows), windows + 1));
                let Some(kept) = self.is_worth(step, (rate, windows), base) else {
                    self.tried = Some((rate, windows));
                    return None;
                };
                self.trial = None;
                self.conclude((step, kept), before, rate, base)
            }
            _ => {
                if let Some(base) = self.base {
                    self.noise = f64::midpoint(self.noise, (rate.over(base) - 1.0).abs());
                }
                let base = self.base.map_or(rate, |base| base.mixed(rate));
                self.base = Some(base);
                self.rested += 1;
                let has_shifted = |settled: Rate| !(1.0 / SHIFT..SHIFT).contains(&base.over(settled));
                if self.rested >= 2 && self.settled.is_some_and(has_shifted) {
                    (self.rest, self.settled, self.anchor) = (1, Some(base), None);
                    self.gaps = Gaps::default();
                }
                if self.rested < self.rest { None } else { self.attempt(base) }
            }
        }
    }

    /// Starts a trial of the next change that may help.
    fn attempt(&mut self, base: Rate) -> Option<Decision> {
        let next = (1..=STEPS.len()).map(|after| (self.last + after) % STEPS.len());
        let Some((index, to)) = next.filter_map(|index| Some((index, self.target(STEPS[index], base)?))).next() else {
            self.rested = 0;
            return None;
        };
        self.last = index;
        let step = STEPS[index];
        if step == Step::Fewer && self.anchor.is_none() {
            // The mean of all windows with these knobs: one that was slow by chance would allow a loss.
            self.anchor = Some(self.settled.map_or(base, |settled| settled.mixed(base)));
        }
        self.trial = Some((step, self.now));
        self.gaps.began = self.window.last.filter(|_| step.is_of_gaps());
        Some(self.change(to, Some(base), "a trial"))
    }

    /// The setting that a step leads to; `None` if the step cannot help now.
    fn target(&self, step: Step, base: Rate) -> Option<Setting> {
        let (least, most) = (LEAST.min(self.width.most), self.width.most);
        let now @ Setting { depth, read_bytes, gap, whole } = self.now;
        let queues = depth > self.width.start && base.latency > self.floor.mul_f64(QUEUEING);
        let to = match step {
            Step::More => Setting { depth: self.throttle.more(depth).min(most).max(depth), ..now },
            Step::Fewer if base.latency > SLOW || queues => {
                Setting { depth: (depth * 3 / 4).max(least).min(depth), ..now }
            }
            Step::Longer if read_bytes < self.read_bytes_most => Setting { read_bytes: read_bytes * 2, ..now },
            Step::Shorter if base.latency > SLOW && depth == least && read_bytes / 2 >= LEAST_READ_BYTES => {
                Setting { read_bytes: read_bytes / 2, ..now }
            }
            _ if step.is_of_gaps() && !self.gaps.may_try(self.window.last) => now,
            Step::Whole if self.may_read_whole && base.useful < WHOLE_RATE => Setting { gap: 0, whole: true, ..now },
            Step::Single => Setting { whole: false, ..now },
            Step::Joined if gap == 0 && !whole && self.could_join => Setting { gap: self.gap_most, ..now },
            Step::Apart => Setting { gap: 0, ..now },
            _ => now,
        };
        (to != now).then_some(to)
    }

    /// Whether the change on trial is worth to be kept, after so many windows with this mean; `None`: another one is
    /// needed to say.
    fn is_worth(&self, step: Step, (rate, windows): (Rate, u32), base: Rate) -> Option<bool> {
        let gain = rate.over(base);
        match step {
            Step::More if !(GAIN..CLEAR).contains(&gain) => Some(gain >= CLEAR),
            Step::More => {
                let is_shown = windows > 1 && gain >= GAIN + self.noise / f64::from(windows).sqrt();
                (is_shown || windows == WINDOWS_MAX).then_some(is_shown)
            }
            Step::Fewer => {
                let kept = rate.over(self.anchor.unwrap_or(base)) >= LOSS;
                (!kept || windows == WINDOWS_OF_FEWER).then_some(kept)
            }
            // Shorter reads are more reads, so only bytes count.
            Step::Longer | Step::Shorter => Some(rate.bytes / base.bytes >= LOSS),
            Step::Joined => Some(rate.useful / base.useful >= GAIN),
            Step::Apart => Some(rate.useful / base.useful >= LOSS),
            Step::Whole => Some(rate.useful / base.useful >= WHOLE_GAIN),
            Step::Single => Some(rate.useful / base.useful >= WHOLE_LOSS),
        }
    }

    /// Keeps or undoes the change on trial.
    fn conclude(&mut self, (step, kept): (Step, bool), before: Setting, rate: Rate, base: Rate) -> Option<Decision> {
        self.settled = Some(if kept { rate } else { base });
        if !kept {
            if step.is_of_gaps() {
                self.gaps.fail(self.window.last);
            }
            self.tire();
            let reason = match step {
                Step::More | Step::Longer | Step::Joined | Step::Whole => "undone: it gained too little",
                Step::Fewer | Step::Shorter | Step::Apart | Step::Single => "undone: it lost too much",
            };
            let change = self.change(before, Some(rate), reason);
            return Some(Decision { operation_bytes: price(step, rate, base), ..change });
        }
        if step.joins() {
            return Some(self.joined(step, rate, base));
        }
        if step == Step::More {
            self.throttle.kept(self.now.depth);
        }
        // Go on in this direction: at once, unless the gain is little. Then two windows show first how far the rate
        // swings.
        self.base = Some(rate);
        self.last = (self.last + STEPS.len() - 1) % STEPS.len();
        if step != Step::Fewer {
            self.anchor = None;
        }
        (self.rest, self.rested) = (2, 0);
        if step == Step::More && rate.over(base) < CLEAR { None } else { self.attempt(rate) }
    }

    /// Keeps a gain of reads that span gaps. The best depth may differ for them, so it is tried next.
    fn joined(&mut self, step: Step, rate: Rate, base: Rate) -> Decision {
        (self.base, self.anchor, self.rest, self.rested) = (Some(rate), None, 1, 0);
        self.gaps = Gaps::default();
        let Setting { gap, whole, .. } = self.now;
        let (knob, value) = if step == Step::Whole { (Knob::Whole, u64::from(whole)) } else { (Knob::Gap, gap) };
        Decision {
            after: Duration::ZERO,
            knob,
            from: value,
            to: value,
            reads_per_second: rate.reads as u64,
            bytes_per_second: rate.bytes as u64,
            latency: rate.latency,
            operation_bytes: price(step, rate, base),
            reason: "kept: it gained",
        }
    }

    /// Delays the next trial after one failed.
    fn tire(&mut self) {
        self.anchor = None;
        self.rested = 0;
        self.rest = (self.rest * 2).min(REST);
        self.base = None;
    }

    /// Sets the knobs. Reads that are in flight belong to the old setting.
    fn change(&mut self, to: Setting, rate: Option<Rate>, reason: &'static str) -> Decision {
        let before = std::mem::replace(&mut self.now, to);
        self.tried = None;
        // Reads of another gap carry it, so they are told apart.
        let is_known = to.gap != before.gap || to.whole != before.whole;
        let skip = if is_known { 1 } else { before.depth.max(to.depth) };
        let (knob, from, to) = if to.depth != before.depth {
            (Knob::Depth, before.depth as u64, to.depth as u64)
        } else if to.whole != before.whole {
            (Knob::Whole, u64::from(before.whole), u64::from(to.whole))
        } else if to.gap != before.gap {
            (Knob::Gap, before.gap, to.gap)
        } else {
            (Knob::ReadBytes, before.read_bytes, to.read_bytes)
        };
        self.window = Window { skip, ..Window::default() };
        Decision {
            after: Duration::ZERO,
            knob,
            from,
            to,
            reads_per_second: rate.map_or(0, |rate| rate.reads as u64),
            bytes_per_second: rate.map_or(0, |rate| rate.bytes as u64),
            latency: rate.map_or(Duration::ZERO, |rate| rate.latency),
            operation_bytes: 0,
            reason,
        }
    }
}

/// Estimates the price of an operation, in bytes that are read in the same time, from the rates of reads of two
/// lengths: the storage spends the time of one operation on each read, plus the time of its bytes. 0 if the rates do
/// not show it.
fn price(step: Step, rate: Rate, base: Rate) -> u64 {
    if !step.is_of_gaps() {
        return 0;
    }
    let (length, before) = (rate.bytes / rate.reads, base.bytes / base.reads);
    let (takes, took) = (rate.reads.recip(), base.reads.recip());
    let of_byte = ((takes - took) / (length - before)).max(f64::MIN_POSITIVE);
    let of_operation = took - of_byte * before;
    // Where longer reads take no longer, only operations count: the price is at least the bytes of one read.
    let bytes = (of_operation / of_byte).clamp(0.0, PRICE_MAX);
    if bytes.is_finite() && length != before { bytes as u64 } else { 0 }
}
