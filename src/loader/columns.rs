//! Finds small columns that are stored apart from the rest of their samples, such as labels beside images. Each value
//! would be a read of its own; all of them together are a few reads, once.

use super::limits::{ALIGNMENT_MAX, Limits};
use crate::dataset::{Dataset, SampleId, Span};
use crate::guard;
use crate::plan::{Grid, Keep, SMALL_SPAN_BYTES};
use std::collections::BTreeMap;

/// Most bytes of files to keep for small columns.
const COLUMNS_MAX: u64 = 64 << 20;

/// Places of the dataset to examine, two neighbours at each.
const PLACES_SEEN: u64 = 256;

/// Places that show whether any sample has a small column.
const PLACES_FIRST: usize = 16;

/// Largest mean distance of two neighbouring values. Beyond it they are not adjacent: they are members of rows or
/// archives, and the bytes between them would be kept as well. In a view, other samples' values are between them.
const STRIDE_MAX: u64 = 256;

/// Longest stretch: a read or two.
const LONGEST: u64 = 1 << 20;

/// Small columns that should be kept: how many bytes their values span, and in how many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    bytes: u64,
    files: u64,
}

/// The values of one small column in one file, for the examined samples.
#[derive(Clone, Copy)]
struct Seen {
    ids: (u64, u64),
    offsets: (u64, u64),
}

impl Columns {
    /// Looks for small columns that are stored apart. `None` if there are none, or if they are too long together.
    pub(super) fn find(dataset: &dyn Dataset) -> Option<Columns> {
        let (places, len) = (PLACES_SEEN.min(dataset.len()), dataset.len());
        let (mut spans, mut seen) = (Vec::new(), BTreeMap::new());
        for place in 0..places {
            // Cannot overflow, whatever length a dataset reports.
            let first = (u128::from(len) * u128::from(place) / u128::from(places)) as u64;
            for id in first..len.min(first + 2) {
                spans.clear();
                // If the dataset reports invalid spans, nothing of the sample is read.
                let _ = guard::spans(dataset, SampleId(id), u64::MAX, &mut spans);
                note(id, &spans, &mut seen);
            }
            if place as usize == PLACES_FIRST && seen.is_empty() {
                return None;
            }
        }
        let files: u64 = dataset.files().len() as u64;
        let columns = seen.keys().map(|&(column, _)| column).max()? + 1;
        let mut bytes: u64 = 0;
        for column in 0..columns {
            let of_column = seen.iter().filter(|((number, _), _)| *number == column).map(|(_, seen)| seen);
            let strides: Vec<u64> = of_column.filter(|seen| seen.ids.1 > seen.ids.0).map(Seen::stride).collect();
            let (sum, count) = (strides.iter().fold(0, |sum: u64, &stride| sum.saturating_add(stride)), strides.len());
            match sum.checked_div(count as u64) {
                Some(stride) if stride > STRIDE_MAX => return None,
                Some(stride) => bytes = bytes.saturating_add(stride.max(1).saturating_mul(len)),
                // It is not a small column, or no two of its values were seen in one file.
                None if !seen.keys().any(|&(number, _)| number == column) => {}
                None => return None,
            }
        }
        (bytes <= COLUMNS_MAX).then_some(Columns { bytes, files })
    }

    /// Length of the stretches to keep: about a file's share, so that a file takes a read or two.
    fn stretch_bytes(self) -> u64 {
        let each = (self.bytes / self.files.max(1)).max(1).next_power_of_two();
        let mut bytes = each.clamp(ALIGNMENT_MAX, LONGEST);
        while bytes > ALIGNMENT_MAX && self.files.saturating_mul(2 * bytes) > COLUMNS_MAX {
            bytes /= 2;
        }
        bytes
    }

    /// Takes the memory for the columns from the pool. Returns what to keep and how many bytes, or how much memory is
    /// missing; nothing if there are too many files.
    pub(super) fn keep(self, dataset: &dyn Dataset, limits: &mut Limits) -> Option<Result<(Grid, Keep, u64), u64>> {
        let grid = Grid::of_at_least(dataset.files(), self.stretch_bytes())?;
        // The columns begin and end within stretches.
        let ends = self.files.saturating_mul(2 * grid.bytes());
        if ends > COLUMNS_MAX && self.files > 1 {
            return None;
        }
        let bytes = self.bytes.saturating_add(ends).min(dataset.files().total_bytes());
        let least = limits.batch.read.saturating_mul(2).max(2 * grid.bytes() + 4 * ALIGNMENT_MAX);
        let needed = least.saturating_add(bytes);
        if needed > limits.pool_bytes as u64 {
            return Some(Err(needed - limits.pool_bytes as u64));
        }
        limits.pool_bytes -= bytes as usize;
        limits.kept_bytes = bytes as usize;
        Some(Ok((grid, Keep::Small(bytes), bytes)))
    }
}

impl Seen {
    /// Mean distance of the values of neighbouring samples, rounded up.
    fn stride(&self) -> u64 {
        (self.offsets.1 - self.offsets.0).div_ceil(self.ids.1 - self.ids.0)
    }
}

/// Notes the locations of the small values of a sample, if it has others too.
fn note(id: u64, spans: &[Span], seen: &mut BTreeMap<(usize, u32), Seen>) {
    if spans.len() < 2 {
        return;
    }
    for (column, span) in spans.iter().enumerate() {
        if span.len == 0 || span.len > SMALL_SPAN_BYTES {
            continue;
        }
        let (ids, offsets) = ((id, id), (span.offset, span.offset));
        let seen = seen.entry((column, span.file.0)).or_insert(Seen { ids, offsets });
        seen.ids = (seen.ids.0.min(id), seen.ids.1.max(id));
        seen.offsets = (seen.offsets.0.min(span.offset), seen.offsets.1.max(span.offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::FileId;

    fn seen(samples: impl Iterator<Item = (u64, Vec<(u64, u64)>)>) -> BTreeMap<(usize, u32), Seen> {
        let mut seen = BTreeMap::new();
        for (id, spans) in samples {
            let spans = spans.into_iter().map(|(offset, len)| Span { file: FileId(0), offset, len });
            note(id, &spans.collect::<Vec<_>>(), &mut seen);
        }
        seen
    }

    #[test]
    fn only_small_values_beside_others_count() {
        assert!(seen((0..9).map(|id| (id, vec![(id * 8, 8)]))).is_empty(), "samples of one value are read as they are");
        assert!(seen((0..9).map(|id| (id, vec![(id * 99, 99), (5000, 0), (id * 17, 17)]))).is_empty());
        let labels = seen((3..9).map(|id| (id, vec![(id * 99, 99), (5000 + id * 8, 8)])));
        assert_eq!(labels.keys().copied().collect::<Vec<_>>(), [(1, 0)]);
        assert_eq!(labels[&(1, 0)].stride(), 8);
    }

    #[test]
    fn stretches_are_about_as_long_as_the_columns_of_a_file() {
        let of = |bytes, files| Columns { bytes, files }.stretch_bytes();
        assert_eq!(of(8 << 20, 1), LONGEST);
        assert_eq!(of(100 << 10, 1), 128 << 10);
        assert_eq!(of(100 << 10, 1000), ALIGNMENT_MAX);
        assert_eq!(of(64 << 20, 1000), 32 << 10, "the bytes at their ends are bounded too");
    }
}
