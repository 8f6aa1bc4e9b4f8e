//! Finds the bytes of an array that a part of it needs.

use super::View;
use std::ops::Range;

/// Minimum number of bytes to read: shorter values count as columns of small values, such as labels.
const LEAST: u64 = 64;

impl View {
    /// From the first needed byte to the last, of an array of `whole` bytes whose elements have `size`. `None` if no
    /// byte is needed.
    pub(super) fn range(&self, size: u64, whole: u64) -> Option<Range<u64>> {
        let Range { start, end } = self.run(size, 0)?;
        if end - start >= LEAST {
            return Some(start..end);
        }
        // A multiple of the size of every type.
        let start = start.min(whole.saturating_sub(LEAST));
        Some(start..end.max((start + LEAST).min(whole)))
    }

    /// The needed bytes in ranges, ascending, with gaps of at least `least` bytes.
    pub(super) fn parts(&self, (size, whole): (u64, u64), least: u64) -> Vec<Range<u64>> {
        let Some(range) = self.range(size, whole) else { return Vec::new() };
        // The rows of these first axes are read one by one. The later an axis, the smaller the gaps between its rows.
        let mut axes = 0;
        while let Some((row, &rows)) = self.run(size, axes + 1).zip(self.shape.get(axes)) {
            let between = self.stride(size, axes).saturating_sub(row.end - row.start);
            if rows > 1 && between < least {
                break;
            }
            axes += 1;
        }
        let (Some(row), count) = (self.run(size, axes), self.shape[..axes].iter().product::<u64>()) else {
            return Vec::new();
        };
        if count <= 1 || range.end - range.start <= LEAST {
            return vec![range];
        }
        let of_row = |number: u64| {
            let mut left = number;
            let ahead = (0..axes).rev().map(|axis| {
                let at = left % self.shape[axis];
                left /= self.shape[axis];
                (self.start[axis] + at) * self.stride(size, axis)
            });
            let ahead: u64 = ahead.sum();
            row.start + ahead..row.end + ahead
        };
        (0..count).map(of_row).collect()
    }

    /// The needed bytes from the first to the last of one row of the axes before `axis`, as if that were the first row.
    /// `None` after the last axis, and if nothing is needed.
    fn run(&self, size: u64, axis: usize) -> Option<Range<u64>> {
        let axes = axis..self.shape.len();
        if axis > self.shape.len() || self.shape.contains(&0) {
            return None;
        }
        let start: u64 = axes.clone().map(|axis| self.start[axis] * self.stride(size, axis)).sum();
        let more: u64 = axes.map(|axis| (self.shape[axis] - 1) * self.stride(size, axis)).sum();
        Some(start..start + more + size)
    }

    /// Bytes from one row of an axis to the next. Cannot overflow, because the array's bytes do not.
    fn stride(&self, size: u64, axis: usize) -> u64 {
        self.source[axis + 1..].iter().product::<u64>() * size
    }
}
