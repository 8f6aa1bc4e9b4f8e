//! Cuts spans and extents to the wanted reads, and orders these.

use super::{Extent, PlannedRead};
use crate::dataset::Span;
use std::ops::Range;

/// Narrows the adjacent spans of a value to the `len` bytes that begin at byte `start`. Spans that are not needed stay,
/// empty: the dataset's parser relies on their number.
pub(super) fn narrow(spans: &mut [Span], start: u64, len: u64) {
    let (mut skip, mut left) = (start, len);
    for span in spans {
        let skipped = skip.min(span.len);
        skip -= skipped;
        span.offset += skipped;
        span.len = left.min(span.len - skipped);
        left -= span.len;
    }
}

/// Distance between consecutively issued reads of an extent.
const LANES: u32 = 4;

/// Size of the groups of reads that are interleaved.
pub(super) const INTERLEAVED: u32 = 16;

/// Issue order of the reads of one extent: 0, 4, 8, 12, 1, 5, ... If neighbours were submitted one after another, the
/// block layer would merge them into requests of up to `max_sectors_kb` (4 MiB). A device handles these one at a time,
/// whereas it would have handled the single reads concurrently.
pub(super) fn interleave(reads: Range<u32>, out: &mut Vec<u32>) {
    for group in reads.clone().step_by(INTERLEAVED as usize) {
        let end = reads.end.min(group + INTERLEAVED);
        for lane in group..end.min(group + LANES) {
            out.extend((lane..end).step_by(LANES as usize));
        }
    }
}

/// Cuts an extent into reads of at most `read_bytes`. None crosses a multiple of `border`, unless that is 0.
pub(super) fn cut(extent: &Extent, (read_bytes, border): (u64, u64), out: &mut Vec<PlannedRead>) {
    let mut offset = extent.start;
    while offset < extent.end {
        let to_border = offset.checked_rem(border).map_or(u64::MAX, |past| border - past);
        let len = read_bytes.min(to_border).min(extent.end - offset);
        let need = extent.need_end.saturating_sub(offset).min(len);
        let at = extent.at + (offset - extent.start);
        out.push(PlannedRead { file: extent.file, offset, len, need, block: extent.block, at });
        offset += len;
    }
}
