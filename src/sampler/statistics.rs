//! Statistics for the tests of random orders.

/// Chi-squared of counts that should be equal, in standard deviations from what chance gives.
pub(super) fn deviation(counts: &[u32], freedom: f64) -> f64 {
    let expected = counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len() as f64;
    deviation_from(counts, &vec![expected; counts.len()], freedom)
}

/// Chi-squared of counts that should be as `expected`, in standard deviations from what chance gives.
pub(super) fn deviation_from(counts: &[u32], expected: &[f64], freedom: f64) -> f64 {
    let square = |(&count, expected): (&u32, &f64)| (f64::from(count) - expected).powi(2) / expected;
    let chi: f64 = counts.iter().zip(expected).map(square).sum();
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// The seeds are fixed, so the tests give the same numbers in each run; a good order stays far below.
pub(super) const DEVIATIONS_MAX: f64 = 6.0;

/// Cells of a square into which pairs of samples fall.
pub(super) const CELLS: u64 = 16;

/// The cell of a pair of numbers below `len`.
pub(super) fn cell(a: u64, b: u64, len: u64) -> usize {
    (a * CELLS / len * CELLS + b * CELLS / len) as usize
}
