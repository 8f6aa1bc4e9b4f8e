//! Sequences packed into rows, and what a model needs to tell them apart.

use bytes::Bytes;

/// Pieces of samples, end to end in rows of one length: a tensor of shape `[rows, seq_len]`.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Number of rows. A row whose samples all failed is still there, but empty.
    pub rows: u64,
    /// Elements per row.
    pub seq_len: u64,
    /// The elements, `rows * seq_len * size(dtype)` bytes. Each row has its pieces, then padding.
    pub values: Bytes,
    /// Location of each sample's piece, in batch order, one per sample. Rows ascend.
    pub segments: Vec<Segment>,
}

/// One piece of a sample in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The piece of its row that each element belongs to, from 1; 0 is padding. `rows * seq_len` numbers, row-major.
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

    /// The position of each element in its piece, from 0; padding has 0. `rows * seq_len` numbers, row-major.
    ///
    /// A piece is what is in the row: if a sequence was split, its second piece begins at 0 again.
    pub fn positions(&self) -> Vec<i32> {
        let mut positions = vec![0; self.elements()];
        for segment in &self.segments {
            self.of(&mut positions, segment).iter_mut().zip(0..).for_each(|(position, place)| *position = place);
        }
        positions
    }

    /// Start of each piece when all rows are taken as one, followed by `rows * seq_len`. This is the `cu_seqlens` of
    /// FlashAttention's variable-length functions, with `values` as a tensor of `[rows * seq_len]`.
    ///
    /// The padding at the end of a row counts as a piece of its own, so that every element is in exactly one piece and
    /// none attends to padding from another.
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
