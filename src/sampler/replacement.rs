//! Chooses the sample that replaces an unreadable one.

use super::sample_rng;
use crate::dataset::SampleId;
use rand_xoshiro::rand_core::Rng;

/// Sets the draws apart from all others that derive from the seed: "replaced" in ASCII.
const DOMAIN: u64 = u64::from_be_bytes(*b"replaced");

/// The sample that replaces `id`, in a dataset of `len` samples: a function of its arguments, so that every rank, epoch
/// and resumed run uses the same one. Never `id` itself. `attempt` counts from 0, and goes up if the previous sample is
/// unreadable too (two attempts may give the same sample). `None` if there is no other sample.
pub fn replacement(seed: u64, id: SampleId, attempt: u64, len: u64) -> Option<SampleId> {
    let others = len.checked_sub(1).filter(|&others| others > 0)?;
    let draw = sample_rng(seed ^ DOMAIN, attempt, id).next_u64();
    // The upper half of the product is uniform over the others, except for 1 in 2^64 / len: Lemire, "Fast Random
    // Integer Generation in an Interval" (2019).
    let other = ((u128::from(draw) * u128::from(others)) >> 64) as u64;
    Some(SampleId(if other < id.0 { other } else { other + 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_another_sample_of_the_dataset_and_any() {
        for len in 2..40 {
            for id in (0..len).map(SampleId) {
                let drawn: Vec<SampleId> = (0..2000).filter_map(|n| replacement(n, id, n % 16, len)).collect();
                assert_eq!(drawn.len(), 2000);
                assert!(drawn.iter().all(|other| *other != id && other.0 < len));
                let seen: std::collections::HashSet<SampleId> = drawn.into_iter().collect();
                assert_eq!(seen.len() as u64, len - 1, "every other sample comes up in 2000 draws");
            }
        }
        assert_eq!(replacement(1, SampleId(0), 0, 1), None);
    }

    /// Runs that are resumed with a later version must replace the same way.
    #[test]
    fn is_what_it_always_was() {
        let of = |seed, id, attempt| replacement(seed, SampleId(id), attempt, 1_000_000_007).unwrap().0;
        assert_eq!([of(0, 0, 0), of(0, 0, 1), of(0, 1, 0), of(1, 0, 0)], [216351166, 532149368, 639232732, 597591920]);
    }
}
