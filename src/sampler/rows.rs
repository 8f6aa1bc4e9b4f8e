//! Makes rows from the samples of a window: sequences packed together, or samples of similar length.
//!
//! Lengths are in the index, so which samples share a row is a pure function of the order and the lengths. Every rank
//! computes the same rows, before anything is read, and takes its share.

mod bucket;
mod id;
mod pack;
mod recipe;
#[cfg(test)]
mod tests;

use rand_xoshiro::rand_core::Rng;

pub(crate) use id::{METHODS, method_name};

pub use bucket::Bucketer;
pub use id::BatchingId;
pub use pack::{Packer, SEQ_LEN_MAX};
pub(crate) use recipe::{Recipe, Window, row_field};

/// A part of a sample's value, in elements of the field that rows are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
}

/// A piece of a sample of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPiece {
    /// Place of the sample in its window, from 0.
    pub index: u32,
    /// The part of it.
    pub piece: Piece,
}

/// The rows of one window. Reused from window to window.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pieces: Vec<RowPiece>,
    /// Where each row's pieces end.
    ends: Vec<u32>,
    /// Position of each row, by the number that it was made under.
    places: Vec<u32>,
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The pieces of row `row`, in the order of their samples in the window; at least one.
    ///
    /// # Panics
    /// If there are not that many rows.
    pub fn row(&self, row: usize) -> &[RowPiece] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.pieces[start as usize..self.ends[row] as usize]
    }

    /// The rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[RowPiece]> {
        (0..self.len()).map(|row| self.row(row))
    }

    /// Drops the last row.
    pub(in crate::sampler) fn pop(&mut self) {
        self.ends.pop();
        self.pieces.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    /// Groups `pieces` by row: `row_of` has for each piece, in the order of the window, the number of its row, below
    /// `count`; each row has a piece. Rows come in the order of their first pieces or, with `random`, in a random one,
    /// but row `last`, if any, comes last.
    fn arrange(
        &mut self,
        pieces: &[RowPiece],
        row_of: &[u32],
        count: usize,
        last: Option<u32>,
        random: Option<&mut dyn Rng>,
    ) {
        const NONE: u32 = u32::MAX;
        self.places.clear();
        self.places.resize(count, NONE);
        let mut placed = 0;
        for &row in row_of {
            let place = &mut self.places[row as usize];
            if *place == NONE && Some(row) != last {
                *place = placed;
                placed += 1;
            }
        }
        if let Some(random) = random {
            // `ends` is made below; until then it holds the random order.
            self.ends.clear();
            self.ends.extend(0..placed);
            shuffle(&mut self.ends, random);
            for place in self.places.iter_mut().filter(|place| **place != NONE) {
                *place = self.ends[*place as usize];
            }
        }
        if let Some(last) = last {
            self.places[last as usize] = placed;
        }
        self.ends.clear();
        self.ends.resize(count, 0);
        for &row in row_of {
            self.ends[self.places[row as usize] as usize] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        let nothing = RowPiece { index: 0, piece: Piece { start: 0, len: 0 } };
        self.pieces.resize(pieces.len(), nothing);
        // Each row's place in `ends` runs from its start to its end.
        for (piece, &row) in pieces.iter().zip(row_of) {
            let at = &mut self.ends[self.places[row as usize] as usize];
            self.pieces[*at as usize] = *piece;
            *at += 1;
        }
    }
}

/// Fisher and Yates's shuffle. A product maps 32 random bits to each range: for some thousand items that favours none
/// by more than a millionth.
fn shuffle(items: &mut [u32], random: &mut dyn Rng) {
    for last in (1..items.len()).rev() {
        let other = ((random.next_u64() >> 32) * (last as u64 + 1)) >> 32;
        items.swap(last, other as usize);
    }
}
