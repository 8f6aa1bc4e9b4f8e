//! Decides which stretches of files are read whole and kept, so that samples are copied from memory instead of being
//! read one by one. Like the cache of units, it is arithmetic: which stretch is in memory is a function of the order
//! and the room, not of the timing of reads.

use super::Joined;
use crate::dataset::{Dataset, FileId, FileTable, Span};
use std::collections::VecDeque;
use std::ops::Range;

/// Shortest grid. A read of this length costs a disk little more than one of a page, and a batch whose samples lie in
/// as many stretches still arrives soon.
const SHORTEST: u64 = 256 << 10;

/// Longest grid, unless the dataset has more stretches than can be numbered.
const LONGEST: u64 = 4 << 20;

/// Samples of mean length in a stretch, so that few of them lie in two.
const SAMPLES: u64 = 16;

/// Stretches that a grid may have: each takes a few bytes of memory here and in the reactor.
const COUNT_MAX: u64 = 1 << 22;

/// Longest span of a small column, such as a label. Copying it costs less than sharing it.
pub const SMALL_SPAN_BYTES: u64 = 16;

/// How the files of a dataset are cut into stretches: at the multiples of one length, and at the ends of files.
#[derive(Clone, Debug)]
pub struct Grid {
    /// A power of two.
    bytes: u64,
    /// The first stretch of each file, and their number.
    firsts: Vec<u32>,
}

/// One stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its number in the grid.
    pub number: u32,
    /// Its location.
    pub span: Span,
}

impl Grid {
    /// A grid for samples of `mean_bytes`. `None` if there are too many files.
    pub fn new(files: &FileTable, mean_bytes: u64) -> Option<Grid> {
        let bytes = mean_bytes.saturating_mul(SAMPLES).min(LONGEST).next_power_of_two().clamp(SHORTEST, LONGEST);
        Grid::of_at_least(files, bytes)
    }

    /// A grid whose stretches have `bytes` bytes, a power of two, or more if there would be too many. `None` if there
    /// are too many files.
    pub fn of_at_least(files: &FileTable, bytes: u64) -> Option<Grid> {
        let few = (files.total_bytes() / COUNT_MAX).checked_next_power_of_two()?;
        Grid::of_bytes(files, bytes.max(few))
    }

    /// A grid whose stretches have `bytes` bytes, a power of two. `None` if there are too many.
    pub fn of_bytes(files: &FileTable, bytes: u64) -> Option<Grid> {
        let mut firsts = Vec::with_capacity(files.len() + 1);
        let mut next: u64 = 0;
        for &size in files.sizes() {
            firsts.push(next as u32);
            next = next.saturating_add(size.div_ceil(bytes));
            if next > 2 * COUNT_MAX {
                return None;
            }
        }
        firsts.push(next as u32);
        Some(Grid { bytes, firsts })
    }

    /// Number of stretches.
    pub fn len(&self) -> usize {
        self.firsts.last().map_or(0, |&end| end as usize)
    }

    /// Bytes of a stretch that does not end with its file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The stretches of a span, and the start of the span in the first one. Empty if the span is empty, or leads
    /// outside its file.
    pub fn of(&self, span: &Span) -> (Range<u32>, u64) {
        let file = span.file.0 as usize;
        let (first, end) = (self.firsts[file], self.firsts[file + 1]);
        let shift = self.bytes.trailing_zeros();
        let last = u64::from(first) + (span.offset.saturating_add(span.len).saturating_sub(1) >> shift);
        if span.len == 0 || last >= u64::from(end) {
            return (0..0, 0);
        }
        (first + (span.offset >> shift) as u32..last as u32 + 1, span.offset & (self.bytes - 1))
    }

    /// Stretch `number`, of a dataset with these files.
    pub fn stretch(&self, number: u32, files: &FileTable) -> Stretch {
        let file = FileId(self.firsts.partition_point(|&first| first <= number) as u32 - 1);
        let offset = u64::from(number - self.firsts[file.0 as usize]) * self.bytes;
        let len = self.bytes.min(files.size(file) - offset);
        Stretch { number, span: Span { file, offset, len } }
    }

    /// The stretches of a file.
    pub fn of_file(&self, file: FileId) -> Range<u32> {
        self.firsts[file.0 as usize]..self.firsts[file.0 as usize + 1]
    }

    /// The share of the stretches that fits into `room`, chosen by a hash of their number, and its bytes. The choice is
    /// the same whenever a dataset is opened, on every rank, and wherever the order resumes.
    pub fn share_that_fits(&self, files: &FileTable, room: u64) -> (Share, u64) {
        self.share_of(files.sizes().iter().map(|&size| (size, true)), 1, room)
    }

    /// The same, of the files that may be kept, where each stretch takes multiples of `unit` bytes. `sizes`: the bytes
    /// of each file, and whether it may be.
    pub fn share_of(&self, sizes: impl Iterator<Item = (u64, bool)>, unit: u64, room: u64) -> (Share, u64) {
        let mut bytes_by_hash = vec![0_u64; Share::ALL as usize];
        let mut number = 0;
        for (size, may_be) in sizes {
            let mut left = size;
            while left > 0 {
                let bytes = left.min(self.bytes);
                let taken = if may_be { bytes.next_multiple_of(unit) } else { 0 };
                bytes_by_hash[Share::hash(number) as usize] += taken;
                left -= bytes;
                number += 1;
            }
        }
        let (mut below, mut taken) = (0, 0);
        for bytes in bytes_by_hash {
            if taken + bytes > room {
                break;
            }
            taken += bytes;
            below += 1;
        }
        (Share { below }, taken)
    }
}

/// A share of all stretches, in 65536ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    below: u32,
}

impl Share {
    /// No stretch.
    pub const NONE: Share = Share { below: 0 };
    const ALL: u32 = 1 << 16;

    /// Whether a stretch belongs to it.
    pub fn has(self, number: u32) -> bool {
        self.below == Share::ALL || Share::hash(number) < self.below
    }

    /// The upper bits of a product with an odd constant (the golden ratio's), twice, so that neighbours part.
    fn hash(number: u32) -> u32 {
        let mixed = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 48) as u32
    }
}

/// What to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// These stretches, for as long as the loader lives.
    Share(Share),
    /// At most this many bytes of the stretches used last.
    Latest(u64),
    /// The same, but only while [`Planner::set_whole`](super::Planner::set_whole) says so: it is unknown whether it
    /// gains.
    Tried(u64),
    /// While the loader lives, the first this many bytes of stretches with spans of at most [`SMALL_SPAN_BYTES`].
    Small(u64),
}

impl Keep {
    /// Maximum number of bytes to keep.
    pub fn room(self) -> u64 {
        match self {
            Keep::Share(_) => u64::MAX,
            Keep::Latest(most) | Keep::Tried(most) | Keep::Small(most) => most,
        }
    }

    /// Whether values may be slices of kept stretches, from the first batch on. Those of small columns are copied.
    pub fn lends(self) -> bool {
        self.may_lend() && !matches!(self, Keep::Tried(_))
    }

    /// Whether values may ever be slices of kept stretches.
    pub fn may_lend(self) -> bool {
        !matches!(self, Keep::Small(_))
    }
}

/// Which stretches are in memory when a batch is planned, assuming that all earlier work is done.
pub(super) struct Stretches {
    pub(super) grid: Grid,
    keep: Keep,
    /// The batch that last used each stretch, from 1; 0: it is not in memory.
    used: Vec<u32>,
    /// With `Latest` and `Tried`: the stretches in memory by last use, with batches since which they may have been used
    /// again.
    by_use: VecDeque<(u32, u32)>,
    bytes: u64,
    /// Number of the batch being planned.
    clock: u32,
    /// Whether the current plan reads whole stretches.
    is_whole: bool,
    /// Bytes of all files, summed once because there may be many, and of all samples.
    reading: (u64, u64),
    /// Stretches to load before the batch that is held back.
    pub(super) queue: VecDeque<u32>,
    /// Stretches to drop.
    pub(super) evicted: Vec<u32>,
    /// The batch that follows those loads.
    pub(super) held: Option<super::BatchPlan>,
}

impl super::Planner {
    /// Reads whole stretches or single samples for batches planned from now on, if that may be tried. Stretches in
    /// memory are used in either case, until a batch needs none of them.
    pub fn set_whole(&mut self, is_whole: bool) {
        if let Some(stretches) = &mut self.stretches
            && stretches.tried().is_some()
        {
            stretches.is_whole = is_whole;
        }
    }

    /// Whether whole stretches are read, if that may be tried.
    pub fn is_whole(&self) -> Option<bool> {
        self.stretches.as_ref()?.tried()
    }

    /// The share of samples in a stretch, to compare the two ways.
    pub(super) fn joined_in_stretch(&self) -> Joined {
        let reading = self.stretches.as_ref().map_or((0, 0), |stretches| stretches.reading);
        Joined::whole(self.is_whole().map(|_| true), reading)
    }

    /// Notes that these stretches are no longer in memory for batches planned from now on.
    pub fn forget(&mut self, stretches: impl Iterator<Item = u32>) {
        if let Some(known) = &mut self.stretches {
            known.forget(stretches, self.order.dataset().files());
        }
    }
}

impl Stretches {
    pub(super) fn new(grid: Grid, keep: Keep, dataset: &dyn Dataset) -> Stretches {
        let used = vec![0; grid.len()];
        let (by_use, queue, is_whole) = (VecDeque::new(), VecDeque::new(), !matches!(keep, Keep::Tried(_)));
        let (evicted, reading) = (Vec::new(), (dataset.files().total_bytes(), dataset.bytes()));
        Stretches { grid, keep, used, by_use, bytes: 0, clock: 0, is_whole, reading, queue, evicted, held: None }
    }

    /// Whether they are read now, if that may change.
    fn tried(&self) -> Option<bool> {
        matches!(self.keep, Keep::Tried(_)).then_some(self.is_whole)
    }

    /// Whether any may be in memory.
    pub(super) fn may_have(&self) -> bool {
        self.is_whole || self.bytes > 0
    }

    /// Drops all of them if they are no longer read, and the current batch needed none.
    pub(super) fn leave(&mut self, kept: u64) {
        if self.is_whole || kept > 0 || self.bytes == 0 {
            return;
        }
        self.bytes = 0;
        for (number, used) in self.by_use.drain(..) {
            // A later entry means that the stretch was used again.
            if self.used[number as usize] == used {
                self.used[number as usize] = 0;
                self.evicted.push(number);
            }
        }
    }

    /// Begins a batch with these spans: queues the stretches that it needs and that are not in memory, and chooses
    /// which to drop for them.
    pub(super) fn begin(&mut self, spans: &[Span], files: &FileTable) {
        if !self.is_whole {
            return;
        }
        // Wraps after 2^32 batches; then all stretches look used, and the oldest are still given up first.
        self.clock = self.clock.wrapping_add(1).max(1);
        let longest = if let Keep::Small(_) = self.keep { SMALL_SPAN_BYTES } else { u64::MAX };
        for span in spans.iter().filter(|span| span.len <= longest) {
            for number in self.grid.of(span).0 {
                self.touch(number, files);
            }
        }
    }

    fn touch(&mut self, number: u32, files: &FileTable) {
        let used = &mut self.used[number as usize];
        match self.keep {
            Keep::Share(share) => {
                if *used == 0 && share.has(number) {
                    *used = 1;
                    self.queue.push_back(number);
                }
            }
            Keep::Small(most) => {
                let bytes = if *used == 0 { self.grid.stretch(number, files).span.len } else { return };
                if self.bytes.saturating_add(bytes) <= most {
                    *used = 1;
                    self.bytes += bytes;
                    self.queue.push_back(number);
                }
            }
            Keep::Latest(_) | Keep::Tried(_) if *used == self.clock => {}
            Keep::Latest(most) | Keep::Tried(most) => {
                if *used == 0 {
                    let bytes = self.grid.stretch(number, files).span.len;
                    if bytes > most || !self.make_room(most - bytes, files) {
                        return;
                    }
                    self.bytes += bytes;
                    self.queue.push_back(number);
                }
                self.used[number as usize] = self.clock;
                self.by_use.push_back((number, self.clock));
            }
        }
    }

    /// Drops the stretches used longest ago until at most `most` bytes are left. Returns false if the current batch
    /// needs more.
    fn make_room(&mut self, most: u64, files: &FileTable) -> bool {
        while self.bytes > most {
            match self.by_use.front() {
                Some(&(_, used)) if used == self.clock => return false,
                Some(&(number, used)) => {
                    self.by_use.pop_front();
                    // A later entry means that the stretch was used again.
                    if self.used[number as usize] == used {
                        self.used[number as usize] = 0;
                        self.bytes -= self.grid.stretch(number, files).span.len;
                        self.evicted.push(number);
                    }
                }
                None => return false,
            }
        }
        true
    }

    /// Whether all bytes of a span are in memory.
    pub(super) fn has(&self, span: &Span) -> bool {
        let mut numbers = self.grid.of(span).0;
        !numbers.is_empty() && numbers.all(|number| self.used[number as usize] != 0)
    }

    /// Notes that stretches are no longer in memory, so that they are read again.
    pub(super) fn forget(&mut self, numbers: impl Iterator<Item = u32>, files: &FileTable) {
        for number in numbers {
            if std::mem::take(&mut self.used[number as usize]) != 0 {
                self.bytes = self.bytes.saturating_sub(self.grid.stretch(number, files).span.len);
            }
        }
    }
}
