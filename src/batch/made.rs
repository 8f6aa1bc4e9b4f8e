//! Tracks the results of the loader's threads for a batch's values: their places in the block that the plan reserved,
//! sample by sample, and how they become columns.

use crate::collate::{COLUMN_ALIGNMENT, Collation, Form};
use crate::resident::Resident;
use std::ops::Range;

/// The places of the results for a batch. The columns come first in the block, each with a place for every planned
/// sample. Reused from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Made {
    columns: Vec<MadeColumn>,
    samples: usize,
}

/// One column of them.
#[derive(Debug)]
struct MadeColumn {
    /// Where it begins in the block.
    start: usize,
    /// Bytes of a place.
    value_bytes: usize,
    /// Bytes of each value.
    lengths: Vec<usize>,
    /// The location of each value that is on a GPU instead of at its place; none, or one for each.
    residents: Vec<Option<Resident>>,
}

impl Made {
    /// The places of `samples` samples.
    pub(crate) fn lay_out(&mut self, collation: &Collation, samples: usize) {
        self.samples = samples;
        self.columns.clear();
        let mut end: usize = 0;
        for (field, _) in collation.mapped_fields() {
            let Form::Mapped { value_bytes, .. } = collation.forms()[*field] else { continue };
            // The plan took memory for all of this, so it can be counted.
            let (start, value_bytes) = (end, value_bytes as usize);
            end = (start + samples * value_bytes).next_multiple_of(COLUMN_ALIGNMENT as usize);
            self.columns.push(MadeColumn { start, value_bytes, lengths: vec![0; samples], residents: Vec::new() });
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.columns.clear();
    }

    /// Number of columns.
    pub(crate) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Bytes of a place of a column.
    pub(crate) fn value_bytes(&self, column: usize) -> usize {
        self.columns[column].value_bytes
    }

    /// Where the place of a sample begins in the block.
    pub(crate) fn place(&self, column: usize, sample: usize) -> usize {
        let MadeColumn { start, value_bytes, .. } = self.columns[column];
        start + sample * value_bytes
    }

    /// Where the places of a column end in the block, and the next column begins.
    pub(crate) fn column_end(&self, column: usize) -> usize {
        self.place(column, self.samples).next_multiple_of(COLUMN_ALIGNMENT as usize)
    }

    /// Notes the length of a sample's value, and its location if it is not at its place.
    pub(crate) fn set(&mut self, column: usize, sample: usize, bytes: usize, resident: Option<Resident>) {
        let MadeColumn { lengths, residents, .. } = &mut self.columns[column];
        lengths[sample] = bytes;
        if resident.is_some() {
            residents.resize(lengths.len(), None);
        }
        if let Some(place) = residents.get_mut(sample) {
            *place = resident;
        }
    }

    /// Where the columns end in the block.
    pub(crate) fn end(&self) -> usize {
        let last = self.columns.len().checked_sub(1);
        last.map_or(0, |last| self.column_end(last))
    }

    /// Takes the values of a column that are on a GPU, for good samples, in the order of the batch.
    pub(crate) fn take_residents(&mut self, column: usize, good: &[u32]) -> Vec<(usize, Resident)> {
        let mut residents = std::mem::take(&mut self.columns[column].residents);
        let mut take = |sample: u32| residents.get_mut(sample as usize)?.take();
        good.iter().enumerate().filter_map(|(index, &sample)| Some((index, take(sample)?))).collect()
    }

    /// Moves the values of a column that belong to good samples so that they follow each other, unless they do. Returns
    /// their location, and the end of each of them, in bytes from there. For a value on a GPU, its place is moved.
    pub(crate) fn compact(&self, column: usize, block: &mut [u8], good: &[u32]) -> (Range<usize>, Vec<u64>) {
        let MadeColumn { start, lengths, residents, .. } = &self.columns[column];
        let mut to = *start;
        let mut ends = Vec::with_capacity(good.len());
        for &sample in good {
            let (from, bytes) = (self.place(column, sample as usize), lengths[sample as usize]);
            let is_there = residents.get(sample as usize).is_none_or(Option::is_none);
            if from != to && is_there {
                block.copy_within(from..from + bytes, to);
            }
            to += bytes;
            ends.push((to - start) as u64);
        }
        (*start..to, ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_good_samples_move_together() {
        let column = |start, value_bytes, lengths| MadeColumn { start, value_bytes, lengths, residents: Vec::new() };
        let made = Made { columns: vec![column(0, 2, vec![2; 4]), column(64, 3, vec![3, 1, 0, 2])], samples: 4 };
        assert_eq!((made.place(1, 2), made.end()), (70, 128));
        let mut block = [0; 128];
        block[..8].copy_from_slice(b"aabbccdd");
        block[64..76].copy_from_slice(b"eeef  ...hh.");
        assert_eq!(made.compact(0, &mut block, &[0, 2, 3]), (0..6, vec![2, 4, 6]));
        assert_eq!(&block[..6], b"aaccdd");
        assert_eq!(made.compact(1, &mut block, &[0, 1, 2, 3]), (64..70, vec![3, 4, 4, 6]));
        assert_eq!(&block[64..70], b"eeefhh");
        assert_eq!(made.compact(1, &mut block, &[]), (64..64, vec![]));
    }
}
