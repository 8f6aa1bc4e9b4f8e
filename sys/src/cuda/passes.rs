//! The arguments of the resampling kernel: the weights of an axis, and rows that name them.

use super::rows::{Encoded, encode, word};
use std::ops::Range;

/// Bytes of a pixel: red, green and blue.
pub(crate) const PIXEL_BYTES: u64 = 3;

/// Bytes of what each pixel has before the weights.
const TAP_BYTES: usize = 8;

/// Bytes of a weight.
const WEIGHT_BYTES: usize = 4;

/// Which pixels of an axis make each pixel of the output, and with what weights; 2^22 is all of a pixel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// The first pixel of the source, for each that comes out.
    pub first: Vec<u32>,
    /// Where its weights end. They start where those before end, and those of the first pixel at 0.
    pub end: Vec<u32>,
    /// Of pixels of the source that follow each other.
    pub weights: Vec<i32>,
}

impl Taps {
    /// Pixels that come out.
    pub fn pixels(&self) -> u32 {
        u32::try_from(self.first.len()).unwrap_or(u32::MAX)
    }

    /// The pixels of the source that are used at all.
    pub fn used(&self) -> Range<u32> {
        let starts = [0].into_iter().chain(self.end.iter().copied());
        let ends = self.first.iter().zip(self.end.iter().zip(starts));
        let ends = ends.map(|(&first, (&end, start))| first.saturating_add(end.saturating_sub(start)));
        let end = ends.max().unwrap_or(0);
        self.first.iter().copied().min().unwrap_or(0).min(end)..end
    }

    /// Bytes of them in a table.
    pub(crate) fn encoded_bytes(&self) -> usize {
        (self.first.len() * TAP_BYTES + self.weights.len() * WEIGHT_BYTES).next_multiple_of(8)
    }

    /// Appends them as the kernel reads them: the first pixel, counted from `from`, and the end of the weights of each
    /// pixel; then all weights.
    pub(crate) fn encode(&self, from: u32, to: &mut Vec<u8>) {
        let pairs = self.first.iter().zip(&self.end);
        to.extend(pairs.flat_map(|(first, &end)| pair(first.wrapping_sub(from), end).to_le_bytes()));
        to.extend(self.weights.iter().flat_map(|weight| weight.to_le_bytes()));
        to.resize(to.len().next_multiple_of(8), 0);
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// One pass over an image of RGB pixels: along its rows, which makes other columns, or along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Device address of the source's first byte.
    pub source: u64,
    /// Offset of what comes out in the target.
    pub target: u64,
    /// Device address of the weights, which are in the same upload as this row.
    pub taps: u64,
    /// Rows that come out.
    pub height: u32,
    /// Columns that come out.
    pub width: u32,
    /// Bytes from row to row of the source. Of what comes out, rows follow each other.
    pub row_bytes: u32,
    /// Whether it makes rows of several rows, and not columns of several columns.
    pub is_vertical: bool,
}

impl Pass {
    /// Bytes of a row.
    pub const BYTES: usize = 40;

    /// The row as stored in a table.
    pub fn encode(&self) -> [u8; Pass::BYTES] {
        let (size, rest) = (pair(self.height, self.width), pair(self.row_bytes, self.is_vertical.into()));
        encode([self.source, self.target, self.taps, size, rest])
    }

    /// Pixels that come out.
    pub(super) fn pixels(&self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }

    /// Where what comes out ends in the target.
    pub(super) fn end(&self) -> Option<u64> {
        self.pixels().checked_mul(PIXEL_BYTES)?.checked_add(self.target)
    }

    /// How many bytes of the source it reads, if all of its weights are within `table`, which is at `address`.
    pub(super) fn source_bytes(&self, table: &[u8], address: u64) -> Option<u64> {
        let count = if self.is_vertical { self.height } else { self.width } as usize;
        let start = usize::try_from(self.taps.checked_sub(address)?).ok().filter(|_| self.taps.is_multiple_of(8))?;
        let weights = start.checked_add(count.checked_mul(TAP_BYTES)?)?;
        let taps = table.get(start..weights)?;
        let (mut before, mut reach) = (0, 0);
        for tap in taps.chunks_exact(TAP_BYTES).map(|tap| word(tap, 0)) {
            let (first, end) = (tap & 0xffff_ffff, tap >> 32);
            reach = reach.max(first + end.checked_sub(before)?);
            before = end;
        }
        let weight_bytes = usize::try_from(before).ok()?.checked_mul(WEIGHT_BYTES)?;
        table.get(weights..weights.checked_add(weight_bytes)?)?;
        let (rows, last) =
            if self.is_vertical { (reach, u64::from(self.width)) } else { (u64::from(self.height), reach) };
        let last = last * PIXEL_BYTES;
        Some(rows.checked_sub(1).map_or(0, |before| before * u64::from(self.row_bytes) + last))
    }
}

impl Encoded for Pass {
    const BYTES: usize = Pass::BYTES;

    fn decode(bytes: &[u8]) -> Pass {
        let pair = |at: usize| (word(bytes, at) as u32, (word(bytes, at) >> 32) as u32);
        let ((height, width), (row_bytes, is_vertical)) = (pair(24), pair(32));
        let (source, target, taps) = (word(bytes, 0), word(bytes, 8), word(bytes, 16));
        Pass { source, target, taps, height, width, row_bytes, is_vertical: is_vertical != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Pass =
        Pass { source: 1 << 50, target: 7, taps: 1016, height: 5, width: 2, row_bytes: 100, is_vertical: false };

    #[test]
    fn passes_decode_to_what_was_encoded() {
        for is_vertical in [false, true] {
            let pass = Pass { is_vertical, width: u32::MAX, ..PASS };
            assert_eq!(Pass::decode(&pass.encode()), pass);
        }
        assert_eq!(PASS.end(), Some(7 + 5 * 2 * 3));
        assert_eq!(Pass { height: u32::MAX, width: u32::MAX, ..PASS }.end(), None);
    }

    #[test]
    fn weights_are_looked_at_before_they_are_used() {
        let taps = Taps { first: vec![4, 6], end: vec![3, 5], weights: vec![1, 2, 3, 4, 5] };
        assert_eq!((taps.used(), taps.pixels(), Taps::default().used()), (4..8, 2, 0..0));
        let mut table = vec![0; 16];
        taps.encode(4, &mut table);
        assert_eq!(table.len(), 16 + taps.encoded_bytes());
        // After 4 pixels of the last of 5 rows; or 2 pixels of the last of 4 rows.
        assert_eq!(PASS.source_bytes(&table, 1000), Some(4 * 100 + 4 * 3));
        let vertical = Pass { is_vertical: true, height: 2, ..PASS };
        assert_eq!(vertical.source_bytes(&table, 1000), Some(3 * 100 + 2 * 3));
        let nothing = Pass { width: 0, height: 0, ..PASS };
        assert_eq!(nothing.source_bytes(&table, 1000), Some(0));
        // Not in the table, not at a multiple of 8, more pixels than it has, and weights that end before they start.
        for wrong in [Pass { taps: 992, ..PASS }, Pass { taps: 1020, ..PASS }, Pass { width: 100, ..PASS }] {
            assert_eq!(wrong.source_bytes(&table, 1000), None, "{wrong:?}");
        }
        assert_eq!(PASS.source_bytes(&table[..50], 1000), None);
        table[28..32].copy_from_slice(&2_u32.to_le_bytes());
        assert_eq!(PASS.source_bytes(&table, 1000), None);
    }
}
