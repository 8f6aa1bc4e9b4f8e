//! Tracks which bytes of a device's memory are free. Numbers only; the memory itself is elsewhere.

use std::ops::Range;

/// Alignment of ranges: what `cuMemAlloc` guarantees, and enough for any vector instruction.
pub(crate) const RANGE_ALIGNMENT: usize = 256;

/// Free ranges by address. No two ranges within a slot are adjacent. First fit, as in the pool: a consumer that keeps
/// up is served from the same bytes again and again.
///
/// No range crosses a slot boundary. So each holder spoils at most one slot, and whatever fits into a slot is available
/// as long as there are fewer holders than slots.
#[derive(Debug)]
pub(crate) struct Ranges {
    free: Vec<Range<usize>>,
    free_bytes: usize,
    slot: usize,
}

impl Ranges {
    /// Starts with `len` free bytes, rounded down to whole units, split into slots of `slot` bytes and a remainder.
    /// `slot` must be a multiple of the unit.
    pub(crate) fn new(len: usize, slot: usize) -> Ranges {
        debug_assert!(slot > 0 && slot.is_multiple_of(RANGE_ALIGNMENT));
        let len = len / RANGE_ALIGNMENT * RANGE_ALIGNMENT;
        let slots = (0..len).step_by(slot).map(|start| start..(start + slot).min(len));
        Ranges { free: slots.collect(), free_bytes: len, slot }
    }

    /// Number of free bytes.
    pub(crate) fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Takes at least `bytes`, or returns `None` if no free range is long enough.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let bytes = bytes.checked_next_multiple_of(RANGE_ALIGNMENT)?;
        if bytes == 0 {
            return Some(0..0);
        }
        let index = self.free.iter().position(|range| range.len() >= bytes)?;
        let range = &mut self.free[index];
        let taken = range.start..range.start + bytes;
        range.start = taken.end;
        if range.start == range.end {
            self.free.remove(index);
        }
        self.free_bytes -= bytes;
        Some(taken)
    }

    /// Gives back a range, or a part of one that begins and ends at whole units.
    pub(crate) fn give(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        debug_assert!(range.start.is_multiple_of(RANGE_ALIGNMENT) && range.end.is_multiple_of(RANGE_ALIGNMENT));
        self.free_bytes += range.len();
        let index = self.free.partition_point(|free| free.start < range.start);
        self.free.insert(index, range);
        if self.joins(index) {
            self.free[index].end = self.free.remove(index + 1).end;
        }
        if index > 0 && self.joins(index - 1) {
            self.free[index - 1].end = self.free.remove(index).end;
        }
    }

    /// Whether a free range and the next one must be joined.
    fn joins(&self, index: usize) -> bool {
        let end = self.free[index].end;
        self.free.get(index + 1).is_some_and(|next| next.start == end) && !end.is_multiple_of(self.slot)
    }

    /// Shortens a taken range to `bytes` and frees the rest.
    pub(crate) fn shorten(&mut self, range: &mut Range<usize>, bytes: usize) {
        let end = (range.start + bytes.next_multiple_of(RANGE_ALIGNMENT)).min(range.end);
        self.give(end..range.end);
        range.end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_joins() {
        let mut ranges = Ranges::new(10 * RANGE_ALIGNMENT + 7, 16 * RANGE_ALIGNMENT);
        assert_eq!(ranges.free_bytes(), 10 * RANGE_ALIGNMENT);
        let taken: Vec<_> = (0..5).map(|_| ranges.take(300).unwrap()).collect();
        assert!(ranges.take(1).is_none() && ranges.free_bytes() == 0);
        for index in [3, 0, 4, 1, 2] {
            ranges.give(taken[index].clone());
        }
        assert_eq!((ranges.free.len(), ranges.free[0].clone()), (1, 0..10 * RANGE_ALIGNMENT));
    }

    #[test]
    fn what_is_shortened_is_free_behind() {
        let mut ranges = Ranges::new(8 * RANGE_ALIGNMENT, 8 * RANGE_ALIGNMENT);
        let mut range = ranges.take(6 * RANGE_ALIGNMENT).unwrap();
        ranges.shorten(&mut range, RANGE_ALIGNMENT + 1);
        assert_eq!((range.clone(), ranges.free_bytes()), (0..2 * RANGE_ALIGNMENT, 6 * RANGE_ALIGNMENT));
        assert_eq!(ranges.take(6 * RANGE_ALIGNMENT), Some(2 * RANGE_ALIGNMENT..8 * RANGE_ALIGNMENT));
        ranges.shorten(&mut range, 0);
        assert_eq!((range.is_empty(), ranges.take(0)), (true, Some(0..0)));
    }

    #[test]
    fn a_holder_spoils_one_slot_at_most() {
        let slot = 4 * RANGE_ALIGNMENT;
        let mut ranges = Ranges::new(3 * slot, slot);
        assert!(ranges.take(slot + 1).is_none());
        // The first two share a slot; the third does not fit there.
        let held: Vec<_> = [2, 1, 3].map(|units| ranges.take(units * RANGE_ALIGNMENT).unwrap()).into();
        assert_eq!(held[2].start, slot);
        let third = ranges.take(slot).unwrap();
        assert_eq!(third, 2 * slot..3 * slot);
        held.into_iter().chain([third]).for_each(|range| ranges.give(range));
        assert_eq!(ranges.free, [0..slot, slot..2 * slot, 2 * slot..3 * slot]);
    }
}
