//! Reads samples in part: if a column becomes a part of its arrays (a crop of volumes), only the rows that the part
//! needs are read. The part depends only on the seed, the epoch and the sample, so it is known before anything is read.

use super::{BatchPlan, Extent, Planner};
use crate::Result;
use crate::dataset::{Dataset, SampleId, Span};
use crate::guard;
use crate::transform::Arrays;
use std::ops::Range;
use std::sync::Arc;

/// Minimum number of bytes to skip in one place: reading fewer bytes along costs no more than a separate read, in the
/// page cache and on a disk.
const LEFT_OUT_MIN: u64 = 64 << 10;

/// The columns that are read in part.
#[derive(Clone, Debug)]
pub struct Rows {
    /// By field of the schema.
    columns: Vec<(usize, Arc<Arrays>)>,
    /// The seed of random numbers.
    seed: u64,
    /// Minimum number of bytes to skip in one place.
    least: u64,
}

/// A range to read of a span that is read in part.
#[derive(Clone, Debug)]
pub(super) struct Needed {
    /// Index of the span.
    pub(super) span: u32,
    /// The range in the file.
    range: Range<u64>,
}

/// A range to read of an extent that is read in part.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) extent: u32,
    /// Aligned range in the file.
    start: u64,
    end: u64,
    /// End of the last wanted byte.
    need_end: u64,
}

impl Rows {
    /// For these columns, with random numbers of `seed`. An operation of the storage costs as much as reading
    /// `operation_bytes`.
    pub(crate) fn new(mut columns: Vec<(usize, Arc<Arrays>)>, seed: u64, operation_bytes: u64) -> Rows {
        columns.sort_unstable_by_key(|(field, _)| *field);
        Rows { columns, seed, least: operation_bytes.max(LEFT_OUT_MIN) }
    }

    /// The same with another minimum to skip, for small arrays.
    #[cfg(test)]
    pub(crate) fn leaving_out(self, least: u64) -> Rows {
        Rows { least, ..self }
    }

    /// Bytes of a sample's values in the columns, and how many of them are read in `epoch`.
    ///
    /// # Errors
    /// `Internal` for a dataset that panics.
    pub fn share(&self, dataset: &dyn Dataset, epoch: u64, id: SampleId) -> Result<(u64, u64)> {
        let (mut spans, mut needed, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        guard::spans(dataset, id, u64::MAX, &mut spans)?;
        let sum = |spans: &[Span]| spans.iter().fold(0, |sum: u64, span| sum.saturating_add(span.len));
        let whole = sum(&spans);
        self.narrow(dataset, (epoch, id), (&mut spans[..], 0), (&mut needed, &mut fields))?;
        Ok((whole, sum(&spans) - left_out(&spans, &needed)))
    }

    /// Narrows the spans of a sample, from `first` on, to what `epoch` needs, and sets `fields` to those that are read
    /// in part. If bytes within a span are skipped, its ranges join `needed`.
    ///
    /// # Errors
    /// `Internal` for a dataset that panics.
    pub(super) fn narrow(
        &self,
        dataset: &dyn Dataset,
        (epoch, id): (u64, SampleId),
        (spans, first): (&mut [Span], usize),
        (needed, fields): (&mut Vec<Needed>, &mut Vec<usize>),
    ) -> Result<()> {
        fields.clear();
        for (field, arrays) in &self.columns {
            let Some((span, shape)) = guard::array_of(dataset, id, *field)? else { continue };
            let Some(whole) = spans[first..].get(span).copied() else { continue };
            let span = first + span;
            let parts = arrays.needed((whole.len, &shape), (self.seed, epoch, id), self.least);
            let (Some(head), Some(tail)) = (parts.first(), parts.last()) else { continue };
            (spans[span].offset, spans[span].len) = (whole.offset + head.start, tail.end - head.start);
            fields.push(*field);
            if parts.len() > 1 {
                let of_file = |part: &Range<u64>| whole.offset + part.start..whole.offset + part.end;
                // Fits: as for the ends of slices.
                needed.extend(parts.iter().map(|part| Needed { span: span as u32, range: of_file(part) }));
            }
        }
        Ok(())
    }
}

/// Bytes of spans that are not read.
fn left_out(spans: &[Span], needed: &[Needed]) -> u64 {
    let of_span = |needed: &[Needed]| {
        let read: u64 = needed.iter().map(|needed| needed.range.end - needed.range.start).sum();
        spans[needed[0].span as usize].len - read
    };
    needed.chunk_by(|one, next| one.span == next.span).map(of_span).sum()
}

impl Wanted {
    /// Whether both belong to one extent.
    pub(super) fn is_beside(&self, other: &Wanted) -> bool {
        self.extent == other.extent
    }

    /// This part of its extent, as an extent that is read as a whole.
    pub(super) fn of(&self, extent: &Extent) -> Extent {
        let at = extent.at + (self.start - extent.start);
        Extent { start: self.start, end: self.end, need_end: self.need_end, at, ..*extent }
    }
}

impl Planner {
    /// Reads some columns in part.
    #[must_use]
    pub fn with_rows(self, rows: Option<Arc<Rows>>) -> Planner {
        Planner { rows, ..self }
    }

    /// Finds the ranges to read of extents that are read in part. Merges ranges with less between them than is worth
    /// skipping.
    pub(super) fn find_wanted(&mut self, plan: &mut BatchPlan) {
        self.wanted.clear();
        let Some(rows) = self.rows.as_ref().filter(|_| !self.needed.is_empty()) else { return };
        plan.left_out = left_out(&self.spans, &self.needed);
        // Columns may have another order than their spans.
        self.needed.sort_by_key(|needed| needed.span);
        let mut parts: Vec<u32> = self.needed.iter().map(|needed| self.extent_of[needed.span as usize]).collect();
        parts.sort_unstable();
        parts.dedup();
        let mask = self.layout.alignment - 1;
        let wanted = |extent: u32, Range { start, end }: Range<u64>| Wanted {
            extent,
            start: start & !mask,
            end: (end + mask) & !mask,
            need_end: end,
        };
        let mut needed = self.needed.chunk_by(|one, next| one.span == next.span).peekable();
        for (index, (span, &extent)) in self.spans.iter().zip(&self.extent_of).enumerate() {
            let own = needed.next_if(|needed| needed[0].span as usize == index);
            if parts.binary_search(&extent).is_err() || span.len == 0 {
                continue;
            }
            match own {
                Some(own) => self.wanted.extend(own.iter().map(|needed| wanted(extent, needed.range.clone()))),
                None => self.wanted.push(wanted(extent, span.offset..span.offset + span.len)),
            }
        }
        self.wanted.sort_unstable_by_key(|wanted| (wanted.extent, wanted.start));
        self.wanted.dedup_by(|next, last| {
            let is_near = next.is_beside(last) && next.start < last.end.saturating_add(rows.least);
            if is_near {
                last.end = last.end.max(next.end);
                last.need_end = last.need_end.max(next.need_end);
            }
            is_near
        });
    }
}
