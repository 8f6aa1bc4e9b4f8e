//! Joins nearby spans if an operation of the storage costs more than the bytes between them.

use super::{BLOCK_BYTES, BatchPlan, Extent, KEPT, Planner};
use crate::config::{Cause, Route};

/// Longest gap to read along. Longer ones rarely pay, and take memory.
pub const GAP_MAX: u64 = 64 << 10;

/// The same in an object of a store.
pub const FAR_GAP_MAX: u64 = 1 << 20;

/// Maximum length of a joined read, as a multiple of the pages that its spans are in.
const AMPLIFICATION_MAX: u64 = 8;

/// One extent in this many must be near another for gaps to be worth a trial.
const NEAR_SHARE: usize = 8;

/// A span is read in whole pages, however short it is.
const PAGE_BYTES: u64 = 4096;

/// How nearby spans are joined. The default joins only adjacent ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// Longest gap to read along.
    pub gap: u64,
    /// Most bytes of gaps in a batch.
    pub room: u64,
    /// Minimum length to cut reads to, because an operation costs as much as this many bytes.
    pub read_bytes: u64,
    /// Longest gap that may be tried while reading, if the price of an operation is unknown; otherwise 0.
    pub most: u64,
    /// Whether to try reading whole windows or shards.
    pub may_read_whole: bool,
}

/// How the spans of a batch were joined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joined {
    /// Longest gap that could be read along; `None` if no other gap is tried.
    pub gap: Option<u64>,
    /// Whether stretches were read whole for this plan; `None` if that is not tried.
    pub whole: Option<bool>,
    /// Whether a longer gap would join many spans.
    pub could_join: bool,
    /// Bytes that are read, and how many of them samples wanted; 0 if not measured.
    reading: (u64, u64),
}

impl Joined {
    /// For a read by itself, in which `reading.1` of `reading.0` bytes are samples.
    pub(super) fn whole(whole: Option<bool>, reading: (u64, u64)) -> Joined {
        Joined { whole, reading, ..Joined::default() }
    }

    /// The bytes of samples among `bytes` that were read.
    pub fn useful(&self, bytes: u64) -> u64 {
        match self.reading {
            (read, wanted) if read > 0 => (bytes as f64 * wanted as f64 / read as f64) as u64,
            _ => bytes,
        }
    }
}

/// Longest read, whatever the price of an operation.
const READ_BYTES_MAX: u64 = 4 << 20;
const FAR_READ_BYTES_MAX: u64 = 8 << 20;

impl Joining {
    /// For storage where an operation costs as much as reading `operation_bytes`, with `room` bytes for gaps. If that
    /// is not enough for one gap, spans are not joined.
    pub fn new(operation_bytes: u64, room: u64) -> Joining {
        Joining::within(operation_bytes, room, (GAP_MAX, READ_BYTES_MAX))
    }

    /// The same for stores of objects, where bytes cost little and requests much.
    pub fn far(operation_bytes: u64, room: u64) -> Joining {
        Joining::within(operation_bytes, room, (FAR_GAP_MAX, FAR_READ_BYTES_MAX))
    }

    fn within(operation_bytes: u64, room: u64, (gap_max, read_bytes_max): (u64, u64)) -> Joining {
        let gap = operation_bytes.min(gap_max);
        let read_bytes = operation_bytes.min(read_bytes_max).next_power_of_two();
        let read_bytes = if operation_bytes == 0 { 0 } else { read_bytes };
        if gap == 0 || room < gap {
            Joining { read_bytes, ..Joining::default() }
        } else {
            Joining { gap, room, read_bytes, ..Joining::default() }
        }
    }

    /// For storage where the price of an operation is unknown, with `room` bytes for gaps: no gaps at first, and a
    /// trial of them.
    pub fn unknown(room: u64) -> Joining {
        if room < GAP_MAX { Joining::default() } else { Joining { room, most: GAP_MAX, ..Joining::default() } }
    }

    /// The same without trials of gaps, because there is no memory for more than what is wanted.
    #[must_use]
    pub fn settled(self) -> Joining {
        Joining { most: 0, ..self }
    }

    /// The same for this route: no gaps in the page cache, where a read costs no more than the copy of a gap, and no
    /// reads longer than the route's.
    #[must_use]
    pub fn for_route(self, route: &Route) -> Joining {
        let read_bytes = self.read_bytes.min(route.read_bytes as u64);
        if copies(route) { Joining::default() } else { Joining { read_bytes, ..self } }
    }

    /// Whether to read a gap to join `next` to `last`, which is before it. Deducts its bytes from the room.
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
    /// Extends the extent over another one after it.
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
    /// Joins nearby spans, with the bytes between them.
    #[must_use]
    pub fn with_joining(self, joining: Joining) -> Planner {
        Planner { joining, ..self }
    }

    /// How nearby spans are joined.
    pub fn joining(&self) -> Joining {
        self.joining
    }

    /// If gaps may be tried, records which one the batch was joined over, whether a longer one would join many extents,
    /// and how much of the reading is wanted.
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

    /// Changes how spans of future batches are joined.
    pub fn set_joining(&mut self, joining: Joining) {
        self.joining = joining;
    }
}

/// Whether files are in the page cache, so that reading is copying, even of a gap.
pub(super) fn copies(route: &Route) -> bool {
    !route.direct_io && route.fallbacks.iter().any(|step| step.cause == Cause::PageCache)
}
