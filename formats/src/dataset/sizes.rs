//! Sizes of samples, and the total size of the largest ones.

use super::sample::{SampleId, Span};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bytes of each of these samples.
pub(crate) fn bytes_of(
    spans_of: impl Fn(SampleId, &mut Vec<Span>),
    ids: impl Iterator<Item = u64>,
) -> impl Iterator<Item = u64> {
    let mut spans = Vec::new();
    ids.map(move |id| {
        spans.clear();
        spans_of(SampleId(id), &mut spans);
        sum(spans.iter().map(|span| span.len))
    })
}

/// Saturates: sparse files may have any size, so the sum may overflow.
pub(crate) fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The sum of the `count` largest sizes: what [`Dataset::largest`](crate::Dataset::largest) wants to know, of datasets
/// that know the bytes of each sample. It takes memory for `count` numbers.
///
/// ```
/// assert_eq!(uringload_formats::largest_of([5, 900, 70, 900].into_iter(), 2), 1800);
/// ```
pub fn sum_of_largest(sizes: impl Iterator<Item = u64>, count: u64) -> u64 {
    let mut largest = Largest::new(count);
    sizes.for_each(|size| largest.add(size, 1));
    largest.sum()
}

/// The sum of the `count` largest sizes, given as runs: a size, and how often it occurs.
pub(crate) fn sum_of_runs(mut runs: Vec<(u64, u64)>, count: u64) -> u64 {
    runs.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = count;
    runs.into_iter().fold(0, |sum, (size, run)| {
        let taken = run.min(left);
        left -= taken;
        u64::saturating_add(sum, size.saturating_mul(taken))
    })
}

/// Sums the largest of many sizes. Takes memory for as many as are wanted, or as there are.
pub(crate) struct Largest {
    count: u64,
    kept: BinaryHeap<Reverse<u64>>,
}

impl Largest {
    /// For the `count` largest.
    pub(crate) fn new(count: u64) -> Largest {
        Largest { count, kept: BinaryHeap::new() }
    }

    /// Adds a size `times` times.
    pub(crate) fn add(&mut self, size: u64, times: u64) {
        for _ in 0..times.min(self.count) {
            if (self.kept.len() as u64) < self.count {
                self.kept.push(Reverse(size));
            } else if self.kept.peek().is_some_and(|least| least.0 < size) {
                self.kept.pop();
                self.kept.push(Reverse(size));
            } else {
                return;
            }
        }
    }

    pub(crate) fn sum(self) -> u64 {
        sum(self.kept.into_iter().map(|Reverse(size)| size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_many() {
        let sizes = [3_u64, 9, 1, 9, 4, 7];
        for count in 0..8 {
            let mut largest = Largest::new(count);
            sizes.iter().for_each(|&size| largest.add(size, 1));
            largest.add(5, u64::MAX);
            let mut all: Vec<u64> = sizes.iter().copied().chain(std::iter::repeat_n(5, 8)).collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(largest.sum(), all.iter().take(count as usize).sum::<u64>(), "{count}");
        }
    }
}
