//! How many bytes samples have, as their spans tell: for datasets that are made of others.

use super::{Dataset, SampleId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bytes of each of these samples.
pub(super) fn bytes_of(dataset: &dyn Dataset, ids: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut spans = Vec::new();
    ids.map(move |id| {
        spans.clear();
        dataset.spans(SampleId(id), &mut spans);
        sum(spans.iter().map(|span| span.len))
    })
}

/// Sparse files may be of any size, so that a sum of sizes may not fit.
pub(super) fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The sum of the `count` largest. Memory for `count` numbers, or for as many as there are.
pub(super) fn sum_of_largest(sizes: impl Iterator<Item = u64>, count: u64) -> u64 {
    let mut largest = BinaryHeap::new();
    for size in sizes {
        if (largest.len() as u64) < count {
            largest.push(Reverse(size));
        } else if let Some(mut least) = largest.peek_mut()
            && least.0 < size
        {
            *least = Reverse(size);
        }
    }
    sum(largest.into_iter().map(|Reverse(size)| size))
}

/// The bytes that each sample has, if all have as many.
pub(super) fn bytes_of_each(dataset: &dyn Dataset) -> Option<u64> {
    let longest = dataset.largest(1);
    (longest.checked_mul(dataset.len()) == Some(dataset.bytes())).then_some(longest)
}
