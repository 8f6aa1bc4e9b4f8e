//! Joins spans that are near each other where an operation of the storage costs more than the bytes between them.

use super::{BLOCK_BYTES, BatchPlan, Extent, KEPT, Planner};
use crate::config::{Cause, Route};

/// Longest gap to read along. Beyond it, what lies between is rarely near in any useful sense, and takes memory.
pub const GAP_MAX: u64 = 64 << 10;

/// How many times the pages that its spans lie in a joined read may be long.
const AMPLIFICATION_MAX: u64 = 8;

/// One extent in so many must be near another for gaps to be worth a trial.
const NEAR_SHARE: usize = 8;

/// A span is read in whole pages, however short it is.
const PAGE_BYTES: u64 = 4096;

/// How spans near each other are joined. The default joins none that do not touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// Longest gap to read along.
    pub gap: u64,
    /// Most bytes of gaps in a batch.
    pub room: u64,
    /// Length that reads are not cut below, because an operation costs as much as so many bytes.
    pub read_bytes: u64,
    /// Longest gap that may be tried while reading, where nobody knows what an operation costs; else 0.
    pub most: u64,
    /// Whether it may be tried to read whole windows or shards.
    pub may_read_whole: bool,
}

/// How the spans of a batch were joined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joined {
    /// Longest gap that might be read along; `None` where no other one is tried.
    pub gap: Option<u64>,
    /// Whether stretches were read whole for what was planned; `None` where that is not tried.
    pub whole: Option<bool>,
    /// Whether a longer gap would join much.
    pub could_join: bool,
    /// Bytes that are read, and how many of them samples wanted; 0 where nobody asks.
    reading: (u64, u64),
}

impl Joined {
    /// Of something that is read by itself, of which `reading.1` in `reading.0` bytes are samples.
    pub(super) fn whole(whole: Option<bool>, reading: (u64, u64)) -> Joined {
        Joined { whole, reading, ..Joined::default() }
    }

    /// Of so many bytes that were read, those of samples.
    pub fn useful(&self, bytes: u64) -> u64 {
        match self.reading {
            (read, wanted) if read > 0 => (bytes as f64 * wanted as f64 / read as f64) as u64,
            _ => bytes,
        }
    }
}

/// Longest read that the price of an operation asks for.
const READ_BYTES_MAX: u64 = 4 << 20;

impl Joining {
    /// What suits storage where an operation costs as much as reading `operation_bytes`, with so many bytes of `room`
    /// for gaps. If that is not enough for one gap, spans are not joined.
    pub fn new(operation_bytes: u64, room: u64) -> Joining {
        let gap = operation_bytes.min(GAP_MAX);
        let read_bytes = operation_bytes.min(READ_BYTES_MAX).next_power_of_two();
        let read_bytes = if operation_bytes == 0 { 0 } else { read_bytes };
        if gap == 0 || room < gap {
            Joining { read_bytes, ..Joining::default() }
        } else {
            Joining { gap, room, read_bytes, ..Joining::default() }
        }
    }

    /// What suits storage of which nobody knows what an operation costs, with so many bytes of `room`: no gaps at
    /// first, and a trial of them.
    pub fn unknown(room: u64) -> Joining {
        if room < GAP_MAX { Joining::default() } else { Joining { room, most: GAP_MAX, ..Joining::default() } }
    }

    /// The same without trials.
    #[must_use]
    pub fn settled(self) -> Joining {
        Joining { most: 0, may_read_whole: false, ..self }
    }

    /// The same for this route: none in the page cache, where a read costs no more than the copy of a gap, and no reads
    /// longer than the route's.
    #[must_use]
    pub fn for_route(self, route: &Route) -> Joining {
        let read_bytes = self.read_bytes.min(route.read_bytes as u64);
        if copies(route) { Joining::default() } else { Joining { read_bytes, ..self } }
    }

    /// Whether a gap is read along to join `next` to `last`, which lies before it. Takes its bytes off the room.
    pub(super) fn takes(&mut self, last: &Extent, next: &Extent) -> bool {
        let gap = next.start.saturating_sub(last.end);
        let most = AMPLIFICATION_MAX.saturating_mul(last.pages.saturating_add(next.pages));
        let most = most.min(BLOCK_BYTES);
        let takes = gap <= self.gap && gap <= self.room && next.end.max(last.end) - last.start <= most;
        if takes {
            self.room -= gap;
        }
        takes
    }
}

impl Extent {
    /// Makes the extent reach over another one behind it.
    pub(super) fn add(&mut self, next: &Extent) {
        self.end = self.end.max(next.end);
        self.need_end = self.need_end.max(next.need_end);
        self.pages = self.pages.saturating_add(next.pages);
    }
}

/// Bytes of the pages from `start` to `end`.
pub(super) fn pages(start: u64, end: u64) -> u64 {
    end.next_multiple_of(PAGE_BYTES) - start / PAGE_BYTES * PAGE_BYTES
}

impl Planner {
    /// Reads along what lies between spans that are near each other.
    #[must_use]
    pub fn with_joining(self, joining: Joining) -> Planner {
        Planner { joining, ..self }
    }

    /// How spans near each other are joined.
    pub fn joining(&self) -> Joining {
        self.joining
    }

    /// Tells, where gaps may be tried, over which one the batch was joined, whether many extents lie so near the one
    /// before that a longer one would join them, and how much of what is read is wanted.
    pub(super) fn tell_joining(&self, plan: &mut BatchPlan) {
        plan.joined.whole = self.is_whole();
        if self.joining.most == 0 && plan.joined.whole.is_none() {
            return;
        }
        plan.joined.gap = (self.joining.most > 0).then_some(self.joining.gap);
        let is_near = |pair: &[Extent]| {
            let (last, next) = (&pair[0], &pair[1]);
            let gap = next.start.saturating_sub(last.end);
            last.file == next.file && next.start >= last.end && gap <= self.joining.most
        };
        let near = self.extents.windows(2).filter(|pair| is_near(pair)).count();
        plan.joined.could_join = near * NEAR_SHARE >= self.extents.len().max(1);
        let slices = plan.slices.iter().filter(|slice| slice.block & KEPT == 0);
        let wanted = slices.map(|slice| slice.span.len).sum::<u64>().saturating_sub(plan.left_out);
        plan.joined.reading = (plan.reads.iter().map(|read| read.len).sum(), wanted);
    }

    /// Joins spans of future batches otherwise.
    pub fn set_joining(&mut self, joining: Joining) {
        self.joining = joining;
    }
}

/// Whether files are in the page cache: a read is a copy then, of the gap as well.
pub(super) fn copies(route: &Route) -> bool {
    !route.direct_io && route.fallbacks.iter().any(|step| step.cause == Cause::PageCache)
}
