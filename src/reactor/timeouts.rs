//! Reads that take too long: they are cancelled, get a short grace, and are given up. What is given up keeps its memory
//! until it ends; the batch goes on without.

use super::pending::Pending;
use super::{REPAIRS, Reactor};
use crate::engine::{Engine, Read};
use crate::{Error, ErrorKind};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a read that was cancelled may take to come back before its batch goes on without its memory.
const GRACE: Duration = Duration::from_millis(100);

/// Times that a read which only waits behind others gets its time anew, so that it does not fail for what they do:
/// there is a thread for it once those were given up.
const WAITS_MAX: u32 = 3;

/// Deadlines that are kept before those of reads that were done are looked for.
const DEADLINES_KEPT: usize = 1024;

/// The reads that have a deadline, and those that missed it.
#[derive(Default)]
pub(super) struct Timeouts {
    /// How long a read may take; `None`: as long as it likes.
    after: Option<Duration>,
    /// One for each read that was started, in order; some were done since.
    deadlines: VecDeque<Deadline>,
    /// Reads that were cancelled and are not back, in order.
    cancelled: VecDeque<Cancelled>,
    /// Reads that may still come back, to no batch.
    abandoned: Vec<Abandoned>,
}

#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    tag: u64,
}

struct Cancelled {
    /// When it is given up.
    until: Instant,
    tag: u64,
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

    /// The next moment at which a read is to be given up, if no read ends.
    pub(super) fn next(&self) -> Option<Instant> {
        let deadline = self.deadlines.front().map(|deadline| deadline.at);
        let grace = self.cancelled.front().map(|cancelled| cancelled.until);
        deadline.into_iter().chain(grace).min()
    }

    /// A read came back: the error that it stands for where it was cancelled.
    pub(super) fn take_cancelled(&mut self, tag: u64) -> Option<Error> {
        let index = self.cancelled.iter().position(|cancelled| cancelled.tag == tag)?;
        self.cancelled.remove(index).map(|cancelled| cancelled.error)
    }

    /// A read came back: whether it was given up before, so that nobody waits for it.
    ///
    /// Tags of batches repeat after 2^31 batches. If a read stays away for so long and its tag comes again, the two may
    /// be taken for each other: the memory of both is safe, and the later batch misses its own deadline.
    pub(super) fn take_abandoned(&mut self, tag: u64) -> bool {
        let index = self.abandoned.iter().position(|abandoned| abandoned.tag == tag);
        index.map(|index| self.abandoned.swap_remove(index)).is_some()
    }

    /// Reads that were given up and are not back, and their bytes of memory.
    pub(super) fn abandoned(&self) -> (usize, u64) {
        (self.abandoned.len(), self.abandoned.iter().map(|abandoned| abandoned.bytes).sum())
    }
}

impl Reactor {
    /// The time, where deadlines are kept.
    pub(super) fn deadline_clock(&self, engine: &dyn Engine) -> Option<Instant> {
        self.timeouts.after.map(|_| engine.now())
    }

    /// Starts a read; `now` is what `deadline_clock` says.
    pub(super) fn start(&mut self, read: Read, now: Option<Instant>, engine: &mut dyn Engine) {
        if let (Some(now), Some(after)) = (now, self.timeouts.after) {
            let deadline = Deadline { at: now + after, tag: read.tag };
            if let Some((pending, index)) = self.find(read.tag) {
                pending.set_deadline(index, deadline.at);
            }
            self.timeouts.deadlines.push_back(deadline);
            // As many again as are in flight, so that each is looked at a bounded number of times.
            if self.timeouts.deadlines.len() > DEADLINES_KEPT.max(2 * engine.in_flight()) {
                let mut deadlines = std::mem::take(&mut self.timeouts.deadlines);
                deadlines.retain(|deadline| self.is_running(*deadline));
                self.timeouts.deadlines = deadlines;
            }
        }
        engine.start(read);
    }

    /// Cancels the reads whose time is over, and goes on without those that do not come back.
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
            engine.abandon(cancelled.tag);
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
        let what = format!("a read of {bytes} bytes was given up after {seconds:.3} s: it was {stage}");
        let error = Error::new(ErrorKind::Timeout, what)
            .with_path(self.planner.dataset().files().path(planned.file))
            .with_offset(planned.offset)
            .with_remedy("see the kernel's log for the disk, or the server behind the mount; or raise the timeout");
        self.stats.count.timeouts.add(1);
        self.timeouts.cancelled.push_back(Cancelled { until: now + GRACE, tag, error });
    }

    /// Whether the read of this deadline is still in flight, and not in flight again.
    fn is_running(&mut self, deadline: Deadline) -> bool {
        let found = self.find(deadline.tag);
        found.is_some_and(|(pending, index)| pending.deadline(index) == Some(deadline.at))
    }

    /// The batch that a read belongs to, and the read's index in it.
    pub(super) fn find(&mut self, tag: u64) -> Option<(&mut Pending, usize)> {
        let (number, index) = ((tag >> 32) as u32, tag as u32 as usize);
        let pending = match self.repair.owns(number) {
            Some(one) => one,
            None if number & REPAIRS != 0 => return None,
            None => self.pending.get_mut((number.wrapping_sub(self.first) & !REPAIRS) as usize)?,
        };
        Some((pending, index))
    }
}
