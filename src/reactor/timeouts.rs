//! Handles reads that take too long: they are cancelled, get a short grace period, and are then given up. A read that
//! was given up keeps its memory until it ends, and the batch goes on without it. If its samples would be listed as
//! bad, it first gets its time once more, or is read again.

use super::pending::Pending;
use super::{REPAIRS, Reactor};
use crate::engine::{Engine, Read};
use crate::{Error, ErrorKind};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Grace period for a cancelled read. After it, the batch goes on without the read's memory.
const GRACE: Duration = Duration::from_millis(100);

/// How often a read that only waits behind others gets a new deadline, so that it does not fail because of them. Once
/// the others are given up, a thread is free for it.
const WAITS_MAX: u32 = 3;

/// Number of deadlines kept before those of completed reads are pruned.
const DEADLINES_KEPT: usize = 1024;

/// Tracks reads that have a deadline, and those that missed it.
#[derive(Default)]
pub(super) struct Timeouts {
    /// How long a read may take. `None` means no limit.
    after: Option<Duration>,
    /// One for each started read, in order. Some of these reads have ended already.
    deadlines: VecDeque<Deadline>,
    /// Cancelled reads that have not come back, ordered by when they are given up.
    cancelled: VecDeque<Cancelled>,
    /// Reads that may still come back but belong to no batch any more.
    abandoned: Vec<Abandoned>,
}

#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    tag: u64,
}

struct Cancelled {
    /// When to give it up.
    until: Instant,
    tag: u64,
    /// Whether it has already been given its time again.
    is_second: bool,
    error: Error,
}

struct Abandoned {
    tag: u64,
    bytes: u64,
}

impl Timeouts {
    pub(super) fn new(after: Option<Duration>) -> Timeouts {
        Timeouts { after, ..Timeouts::default() }
    }

    /// The next time at which a read must be cancelled or given up, if no read ends before then.
    pub(super) fn next(&self) -> Option<Instant> {
        let deadline = self.deadlines.front().map(|deadline| deadline.at);
        let grace = self.cancelled.front().map(|cancelled| cancelled.until);
        deadline.into_iter().chain(grace).min()
    }

    /// Takes the error of a read that came back, if it was cancelled.
    pub(super) fn take_cancelled(&mut self, tag: u64) -> Option<Error> {
        let index = self.cancelled.iter().position(|cancelled| cancelled.tag == tag)?;
        self.cancelled.remove(index).map(|cancelled| cancelled.error)
    }

    fn keep(&mut self, cancelled: Cancelled) {
        let place = self.cancelled.partition_point(|other| other.until <= cancelled.until);
        self.cancelled.insert(place, cancelled);
    }

    /// Whether a read that came back had been given up, so that no batch waits for it.
    ///
    /// Batch tags repeat after 2^31 batches. If a read stays away that long and its tag comes up again, the two may be
    /// confused: the memory of both is safe, and the later batch misses its own deadline.
    pub(super) fn take_abandoned(&mut self, tag: u64) -> bool {
        let index = self.abandoned.iter().position(|abandoned| abandoned.tag == tag);
        index.map(|index| self.abandoned.swap_remove(index)).is_some()
    }

    /// Whether a read that was given up and has not come back belongs to that slot, the upper half of its tag.
    pub(super) fn has_abandoned_of(&self, slot: u32) -> bool {
        self.abandoned.iter().any(|abandoned| (abandoned.tag >> 32) as u32 == slot)
    }

    /// Number of reads that were given up and have not come back, and the bytes of memory they hold.
    pub(super) fn abandoned(&self) -> (usize, u64) {
        (self.abandoned.len(), self.abandoned.iter().map(|abandoned| abandoned.bytes).sum())
    }
}

impl Reactor {
    /// The current time, if deadlines are in use.
    pub(super) fn deadline_clock(&self, engine: &dyn Engine) -> Option<Instant> {
        self.timeouts.after.map(|_| engine.now())
    }

    /// Starts a read. `now` comes from `deadline_clock`.
    pub(super) fn start(&mut self, read: Read, now: Option<Instant>, engine: &mut dyn Engine) {
        if let (Some(now), Some(after)) = (now, self.timeouts.after) {
            let deadline = Deadline { at: now + after, tag: read.tag };
            if let Some((pending, index)) = self.find(read.tag) {
                pending.set_deadline(index, deadline.at);
            }
            self.timeouts.deadlines.push_back(deadline);
            // Room for as many again as are in flight, so that each deadline is examined a bounded number of times.
            if self.timeouts.deadlines.len() > DEADLINES_KEPT.max(2 * engine.in_flight()) {
                let mut deadlines = std::mem::take(&mut self.timeouts.deadlines);
                deadlines.retain(|deadline| self.is_running(*deadline));
                self.timeouts.deadlines = deadlines;
            }
        }
        engine.start(read);
    }

    /// Cancels reads whose time is up, and gives up those that do not come back.
    pub(super) fn expire(&mut self, engine: &mut dyn Engine) {
        let (Some(now), Some(after)) = (self.deadline_clock(engine), self.timeouts.after) else { return };
        while let Some(&deadline) = self.timeouts.deadlines.front() {
            let is_running = self.is_running(deadline);
            if is_running && deadline.at > now {
                break;
            }
            self.timeouts.deadlines.pop_front();
            if is_running {
                let age = now.saturating_duration_since(deadline.at) + after;
                self.cancel(deadline.tag, age, now, engine);
            }
        }
        while self.timeouts.cancelled.front().is_some_and(|cancelled| cancelled.until <= now) {
            let Some(cancelled) = self.timeouts.cancelled.pop_front() else { return };
            // A read that would be listed as bad gets half of its time once more, so that its error comes before twice
            // the timeout is over. It cannot be read again, because it has its memory.
            if self.failures.lists() && !cancelled.is_second {
                self.timeouts.keep(Cancelled { until: now + after / 2, is_second: true, ..cancelled });
                continue;
            }
            engine.abandon(cancelled.tag);
            self.outages.forget(cancelled.tag);
            if let Some((pending, index)) = self.find(cancelled.tag) {
                let bytes = pending.abandon(index, cancelled.error);
                self.timeouts.abandoned.push(Abandoned { tag: cancelled.tag, bytes });
            }
        }
    }

    fn cancel(&mut self, tag: u64, age: Duration, now: Instant, engine: &mut dyn Engine) {
        let stage = engine.stage(tag);
        let Some((pending, index)) = self.find(tag) else { return };
        let planned = pending.clear_deadline(index);
        let waits = pending.waits(index);
        if engine.cancel(tag) && waits < WAITS_MAX {
            pending.wait_again(index);
            return;
        }
        let age = age + self.timeouts.after.unwrap_or_default() * waits;
        let (seconds, bytes) = (age.as_secs_f64(), planned.len);
        let late = || {
            let what = format!("a read of {bytes} bytes was given up after {seconds:.3} s: it was {stage}");
            Error::new(ErrorKind::Timeout, what)
                .with_path(self.planner.dataset().files().path(planned.file))
                .with_offset(planned.offset)
                .with_remedy("see the kernel's log for the disk, or the server behind the mount; or raise the timeout")
        };
        // If a probe is what takes too long, this read failed for its own reason.
        let error = self.outages.why_elsewhere(tag).cloned().unwrap_or_else(late);
        self.stats.count.timeouts.add(1);
        self.timeouts.keep(Cancelled { until: now + GRACE, tag, is_second: false, error });
    }

    /// Whether this deadline's read is still in flight, and was not restarted since.
    fn is_running(&mut self, deadline: Deadline) -> bool {
        let found = self.find(deadline.tag);
        found.is_some_and(|(pending, index)| pending.deadline(index) == Some(deadline.at))
    }

    /// Finds the batch that a read belongs to, and the read's index in it.
    pub(super) fn find(&mut self, tag: u64) -> Option<(&mut Pending, usize)> {
        let (number, index) = ((tag >> 32) as u32, tag as u32 as usize);
        let pending = match self.repair.owns(number) {
            Some(one) => one,
            None if number & REPAIRS != 0 => return None,
            None => self.pending.get_mut((number.wrapping_sub(self.reads.first) & !REPAIRS) as usize)?,
        };
        Some((pending, index))
    }
}
