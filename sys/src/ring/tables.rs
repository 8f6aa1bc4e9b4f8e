//! What the ring knows about its two tables in the kernel: files and buffers.

use super::{Completion, Operation, PIECE_BYTES_MAX, PIECES_MAX};
use crate::arena::{Arena, Part};
use std::ops::Range;

/// A slot of the file table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    open: bool,
    opening: bool,
    reads: u32,
}

impl Slot {
    /// Whether it holds a file whose open has succeeded and was reported.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether anything in flight uses it.
    pub(super) fn is_busy(&self) -> bool {
        self.opening || self.reads > 0
    }

    pub(super) fn start_open(&mut self) {
        self.opening = true;
        self.open = false;
    }

    pub(super) fn start_read(&mut self) {
        self.reads += 1;
    }

    pub(super) fn finish(&mut self, completion: &Completion) {
        match completion.kind {
            Operation::Open => {
                self.opening = false;
                self.open = completion.result.is_ok();
            }
            Operation::Read => self.reads -= 1,
            // By path: it has no slot.
            Operation::Stat => {}
        }
    }
}

/// The registered buffers: adjacent ranges of one arena, in ascending order, or its pages in the order of their
/// numbers.
#[derive(Default)]
pub(super) struct Buffers {
    /// Keeps the memory mapped for as long as it is registered.
    pub(super) arena: Option<Arena>,
    start: usize,
    /// Where each one ends. It starts where the one before it ends.
    ends: Vec<usize>,
    /// The place of each page in the arena when it was registered, for an arena of pages. The kernel goes on using that
    /// address for it, wherever it is carried.
    homes: Vec<usize>,
}

impl Buffers {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.ends.len() + self.homes.len()
    }

    /// Whether the kernel accepts `range` as the next buffer, and it keeps the order.
    pub(super) fn may_add(&self, arena: &Arena, range: &Range<usize>) -> bool {
        let is_next = match arena.page_bytes() {
            Some(page) => {
                range.start.is_multiple_of(page)
                    && range.end == range.start + page
                    && arena.page_at(range.start).is_some_and(|number| number as usize == self.homes.len())
            }
            None => self.ends.last().is_none_or(|&end| end == range.start),
        };
        is_next
            && self.arena.as_ref().is_none_or(|known| known.is_same(arena))
            && range.start < range.end
            && range.end <= arena.len()
            && range.end - range.start <= PIECE_BYTES_MAX
            && self.count() < PIECES_MAX
    }

    pub(super) fn add(&mut self, range: Range<usize>) {
        if self.arena.as_ref().is_some_and(|arena| arena.page_bytes().is_some()) {
            self.homes.push(range.start);
            return;
        }
        if self.ends.is_empty() {
            self.start = range.start;
        }
        self.ends.push(range.end);
    }

    /// The buffer that holds the whole part, if there is one, and the address by which the kernel knows the part there.
    pub(super) fn place_of(&self, part: &Part) -> Option<(u16, *mut u8)> {
        let arena = self.arena.as_ref()?;
        if part.is_empty() || part.offset() < self.start || !part.is_of(arena) {
            return None;
        }
        if let Some(page) = arena.page_bytes() {
            // The page cannot be carried elsewhere while the part is in flight: that takes the whole page's part.
            let number = arena.page_at(part.offset())?;
            let home = *self.homes.get(number as usize)?;
            let within = part.offset() % page;
            let index = u16::try_from(number).ok().filter(|_| within + part.len() <= page)?;
            return Some((index, arena.base().wrapping_add(home + within)));
        }
        let index = self.ends.partition_point(|&end| end <= part.offset());
        let end = *self.ends.get(index)?;
        if part.end() <= end { Some((u16::try_from(index).ok()?, part.as_ptr())) } else { None }
    }
}
