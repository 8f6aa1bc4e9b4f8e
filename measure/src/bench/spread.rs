//! How far rounds lie apart, and which of them are outliers.

use super::Round;

/// The rates of all rounds, in samples per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; `None` of one round.
    pub deviation: Option<f64>,
    /// The least and the greatest.
    pub ends: [f64; 2],
    /// Rounds, from 0, that lie far from all others.
    pub outliers: Vec<usize>,
}

/// From so many rounds on, one can lie far from the others.
const ROUNDS: usize = 4;

/// A round this many deviations from the median, as the median of all deviations tells them, is an outlier (the
/// modified Z-score of Iglewicz and Hoaglin).
const FAR: f64 = 3.5;

/// Makes the median of absolute deviations the deviation of a normal distribution.
const NORMAL: f64 = 0.6745;

/// Deviations below this share of the median are noise of the clock: they make no outlier.
const NOISE: f64 = 0.01;

impl Spread {
    /// Of the rounds of a bench.
    pub fn of(rounds: &[Round]) -> Spread {
        Spread::of_rates(&rounds.iter().map(|round| round.measured.samples_per_second()).collect::<Vec<_>>())
    }

    fn of_rates(rates: &[f64]) -> Spread {
        let count = rates.len().max(1) as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        let ends = [rates.iter().copied().fold(f64::INFINITY, f64::min), rates.iter().copied().fold(0.0, f64::max)];
        let middle = median(rates.to_vec());
        let usual = median(rates.iter().map(|rate| (rate - middle).abs()).collect()).max(NOISE * middle * NORMAL);
        let is_far = |rate: f64| NORMAL * (rate - middle).abs() > FAR * usual;
        let outliers = rates.iter().enumerate().filter(|(_, rate)| rates.len() >= ROUNDS && is_far(**rate));
        Spread {
            mean,
            deviation: (rates.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            ends,
            outliers: outliers.map(|(round, _)| round).collect(),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_far_from_the_others_is_told() {
        let spread = Spread::of_rates(&[100.0, 101.0, 99.0, 60.0, 100.5]);
        assert_eq!((spread.outliers, spread.ends), (vec![3], [60.0, 101.0]));
        let steady = Spread::of_rates(&[100.0, 101.0, 99.0, 98.0, 102.0]);
        assert!(steady.outliers.is_empty() && (steady.mean - 100.0).abs() < 1e-9);
        assert!((steady.deviation.unwrap() - 2.5_f64.sqrt()).abs() < 1e-9);
        assert_eq!(Spread::of_rates(&[5.0]).deviation, None);
        assert!(Spread::of_rates(&[100.0, 100.0, 100.0, 100.1]).outliers.is_empty(), "noise");
        assert_eq!(Spread::of_rates(&[]).mean, 0.0);
    }
}
