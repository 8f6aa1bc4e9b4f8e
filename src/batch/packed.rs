//! Sequences packed into rows, and what a model needs to keep them apart.

use bytes::Bytes;

/// Pieces of samples, end to end in rows of one length: a tensor of shape `[rows, seq_len]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Packed {
    /// Number of rows. A row whose samples could not be read is present, and empty.
    pub rows: u64,
    /// Elements per row.
    pub seq_len: u64,
    /// The elements, `rows * seq_len * size(dtype)` bytes: in each row its pieces, then padding.
    pub values: Bytes,
    /// Where the piece of each sample lies, in the order of the batch; rows ascend.
    pub segments: Vec<Segment>,
}

/// One piece of a sample in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// The row.
    pub row: u64,
    /// First element in the row.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
    /// The sample's index in the batch.
    pub sample: usize,
}

impl Packed {
    /// Which piece of its row each element belongs to, from 1; 0 for padding. `rows * seq_len` numbers, row-major.
    pub fn segment_ids(&self) -> Vec<i32> {
        let mut ids = vec![0; self.elements()];
        let (mut row, mut id) = (0, 0);
        for segment in &self.segments {
            id = if segment.row == row { id + 1 } else { 1 };
            row = segment.row;
            self.of(&mut ids, segment).fill(id);
        }
        ids
    }

    /// The position of each element in its piece, from 0; 0 for padding. `rows * seq_len` numbers, row-major.
    ///
    /// Where a sequence was cut, its second piece begins at 0 again.
    pub fn positions(&self) -> Vec<i32> {
        let mut positions = vec![0; self.elements()];
        for segment in &self.segments {
            self.of(&mut positions, segment).iter_mut().zip(0..).for_each(|(position, place)| *position = place);
        }
        positions
    }

    /// Where each piece begins if all rows are laid end to end, followed by `rows * seq_len`: the `cu_seqlens` that
    /// FlashAttention's variable-length functions take, for `values` as a tensor of `[rows * seq_len]`.
    ///
    /// The padding at the end of a row counts as a piece of its own, so that every element is in exactly one piece and
    /// no sequence attends to padding.
    pub fn cu_seqlens(&self) -> Vec<i32> {
        let mut ends = Vec::with_capacity(self.segments.len() + self.rows as usize + 1);
        ends.push(0);
        let mut segments = self.segments.iter().peekable();
        for row in 0..self.rows {
            let mut filled = 0;
            while let Some(segment) = segments.next_if(|segment| segment.row == row) {
                filled = segment.start + segment.len;
                ends.push(narrow(row * self.seq_len + filled));
            }
            if filled < self.seq_len {
                ends.push(narrow((row + 1) * self.seq_len));
            }
        }
        ends
    }

    fn elements(&self) -> usize {
        (self.rows * self.seq_len) as usize
    }

    fn of<'a>(&self, numbers: &'a mut [i32], segment: &Segment) -> &'a mut [i32] {
        &mut numbers[super::range(segment.row * self.seq_len + segment.start, segment.len)]
    }
}

/// `build` refuses batches of more elements than an `i32` can count.
fn narrow(elements: u64) -> i32 {
    i32::try_from(elements).unwrap_or(i32::MAX)
}
