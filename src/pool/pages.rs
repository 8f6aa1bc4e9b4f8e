//! Tracks the memory of a pool of pages: which slots of its address space are in use, and which pages are idle.

use super::ahead::Ahead;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use uringload_sys::Arena;

/// Address space for each byte of memory, so that long leases do not split it up.
pub(super) const SPACE: usize = 4;

/// The slots of an arena of pages.
#[derive(Debug)]
pub(super) struct Pages {
    /// Length of a page, and of a slot.
    pub(super) bytes: usize,
    /// Maximum number of pages.
    most: usize,
    /// Bytes lent out in each slot, with one more where a page must stay.
    lent: Vec<u32>,
    /// Slots with anything lent.
    used: usize,
    /// Number of pages.
    pub(super) backed: usize,
    /// Pages in slots with nothing lent, longest idle first, each with the time at which it became idle.
    idle: VecDeque<(u64, u32)>,
    /// When each slot last became idle: entries of other times are void.
    since: Vec<u64>,
    now: u64,
    /// Why a page could not be carried.
    pub(super) refused: Option<io::Error>,
    /// Takes pages before they are needed.
    pub(super) ahead: Ahead,
}

impl Pages {
    /// For `slots` slots and `most` pages of `bytes`.
    pub(super) fn new(slots: usize, most: usize, bytes: usize) -> Pages {
        Pages {
            bytes,
            most,
            lent: vec![0; slots],
            used: 0,
            backed: 0,
            idle: VecDeque::new(),
            since: vec![0; slots],
            now: 0,
            refused: None,
            ahead: Ahead::default(),
        }
    }

    /// The slots that a range touches.
    pub(super) fn slots(&self, range: &Range<usize>) -> Range<usize> {
        range.start / self.bytes..range.end.div_ceil(self.bytes)
    }

    /// The range of a slot.
    pub(super) fn range(&self, slot: usize) -> Range<usize> {
        slot * self.bytes..(slot + 1) * self.bytes
    }

    /// Whether nothing of a slot is lent.
    pub(super) fn is_idle(&self, slot: usize) -> bool {
        self.lent[slot] == 0
    }

    /// Keeps the slots below `end` where they are: they always count as used.
    pub(super) fn pin(&mut self, end: usize) {
        for slot in self.slots(&(0..end)) {
            self.used += usize::from(self.lent[slot] == 0);
            self.lent[slot] += 1;
        }
    }

    /// Whether there can be pages for all slots of a range in addition to those in use.
    pub(super) fn may_lend(&self, range: &Range<usize>) -> bool {
        self.used_with(range) <= self.most
    }

    /// Pages in use once a range is lent too.
    pub(super) fn used_with(&self, range: &Range<usize>) -> usize {
        self.used + self.slots(range).filter(|&slot| self.lent[slot] == 0).count()
    }

    /// Counts a range as lent.
    pub(super) fn lend(&mut self, range: &Range<usize>) {
        for slot in self.slots(range) {
            self.used += usize::from(self.lent[slot] == 0);
            self.lent[slot] += self.overlap(slot, range);
        }
    }

    /// Counts a range as returned.
    pub(super) fn give(&mut self, range: &Range<usize>, arena: &Arena) {
        for slot in self.slots(range) {
            self.lent[slot] -= self.overlap(slot, range);
            if self.lent[slot] == 0 {
                self.used -= 1;
                if arena.page_at(slot * self.bytes).is_some() {
                    self.rest(slot);
                }
            }
        }
    }

    fn overlap(&self, slot: usize, range: &Range<usize>) -> u32 {
        let of = self.range(slot);
        (of.end.min(range.end) - of.start.max(range.start)) as u32
    }

    /// Counts the page in a slot as idle from now on.
    pub(super) fn rest(&mut self, slot: usize) {
        self.now += 1;
        self.since[slot] = self.now;
        self.idle.push_back((self.now, slot as u32));
        if self.idle.len() > 2 * self.lent.len() {
            let (since, lent) = (&self.since, &self.lent);
            self.idle.retain(|&(at, slot)| since[slot as usize] == at && lent[slot as usize] == 0);
        }
    }

    /// The slot whose page has been idle for longest and is not in `slots`, which are about to be used.
    pub(super) fn oldest(&mut self, slots: &Range<usize>) -> Option<usize> {
        while let Some((at, slot)) = self.idle.pop_front() {
            let slot = slot as usize;
            if self.since[slot] == at && self.lent[slot] == 0 && !slots.contains(&slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Whether one more page is allowed.
    pub(super) fn may_grow(&self) -> bool {
        self.backed < self.most
    }
}
