//! Sizes of samples, and the total size of the largest ones.

use super::sample::{SampleId, Span};
use std::iter::repeat_n;

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

/// Sums the largest of many sizes. Takes memory for some more than are wanted, or for as many as there are.
pub(crate) struct Largest {
    count: usize,
    /// The largest, and others that came since the last of them were left out.
    kept: Vec<u64>,
    /// None that is left out was larger.
    least: u64,
}

/// Sizes that come before the largest are sorted out, at least.
const KEPT_LEAST: usize = 1024;

impl Largest {
    /// For the `count` largest.
    pub(crate) fn new(count: u64) -> Largest {
        Largest { count: usize::try_from(count).unwrap_or(usize::MAX), kept: Vec::new(), least: 0 }
    }

    /// Adds a size `times` times.
    pub(crate) fn add(&mut self, size: u64, times: u64) {
        if size <= self.least {
            return;
        }
        let times = usize::try_from(times).map_or(self.count, |times| times.min(self.count));
        self.kept.extend(repeat_n(size, times));
        if self.kept.len() >= self.count.saturating_add((self.count / 2).max(KEPT_LEAST)) {
            self.sort_out();
        }
    }

    fn sort_out(&mut self) {
        if self.count > 0 && self.kept.len() > self.count {
            self.kept.select_nth_unstable_by(self.count - 1, |one, other| other.cmp(one));
            self.kept.truncate(self.count);
            self.least = self.kept[self.count - 1];
        }
    }

    pub(crate) fn sum(mut self) -> u64 {
        self.sort_out();
        sum(self.kept.into_iter())
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

    #[test]
    fn the_largest_in_any_order() {
        let drawn: Vec<u64> = (0..20_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).collect();
        let mut ascending = drawn.clone();
        ascending.sort_unstable();
        for count in [0, 1, 64, 1023, 1024, 1025, 5000, 19_999, 20_000, 30_000, u64::MAX] {
            let wanted: u64 = ascending.iter().rev().take(usize::try_from(count).unwrap_or(usize::MAX)).sum();
            for sizes in [&drawn, &ascending, &ascending.iter().rev().copied().collect()] {
                assert_eq!(sum_of_largest(sizes.iter().copied(), count), wanted, "{count}");
            }
        }
    }
}
