//! What is tried runs by turns with what was given, so that neither drift nor another program decides between them.

use super::climb::Shown;
use super::knobs::Chosen;
use super::trial::{Bed, Seen};
use std::cell::RefCell;
use uringload::Result;
use uringload::config::Config;

/// More pairs than this take too long.
const PAIRS_MOST: usize = 9;

/// Fewer show nothing: by chance alone all of five have the same sign once in 16 times.
pub const PAIRS_LEAST: usize = 6;

/// After so many pairs, what is no faster in the middle is given up.
const PAIRS_HOPELESS: usize = 3;

/// A gain that is less is not worth a setting.
const WORTH: f64 = 1.05;

/// Where two runs of the same settings differ by more than this share, no gain of a usual size can be seen.
const BUSY: f64 = 0.15;

/// A gain has this much chance of being none, at most.
const CHANCE: f64 = 0.05;

/// Runs of what was given, and of others between them.
pub struct Turns<'a> {
    bed: &'a Bed<'a>,
    start: &'a Config,
    /// Samples a second of the start, in the order of its runs.
    rates: RefCell<Vec<f64>>,
}

impl<'a> Turns<'a> {
    /// Of a start.
    pub fn new(bed: &'a Bed<'a>, start: &'a Config) -> Turns<'a> {
        Turns { bed, start, rates: RefCell::default() }
    }

    /// A run of the start, without what the first one of all pays once. `None`: there was no time for it.
    ///
    /// # Errors
    /// As [`Bed::run`].
    pub fn begin(&self) -> Result<Option<f64>> {
        let seen = self.bed.run(self.start)?;
        self.rates.borrow_mut().extend(seen.iter().map(|seen| seen.rate));
        Ok(seen.map(|seen| seen.rate))
    }

    /// What was seen between two runs of the start: its gain over their mean. `None`: there was no time for both.
    ///
    /// # Errors
    /// As [`Bed::run`].
    pub fn between(&self, run: impl FnOnce() -> Result<Option<Seen>>) -> Result<Option<(Seen, f64)>> {
        let Some(before) = self.rates.borrow().last().copied() else { return Ok(None) };
        let Some(seen) = run()? else { return Ok(None) };
        let Some(after) = self.begin()? else { return Ok(None) };
        let gain = seen.rate / (before * after).sqrt().max(1e-9);
        Ok(Some((seen, gain)))
    }

    /// By what share two runs of the start differ, one after the other: the median.
    pub fn spread(&self) -> Option<f64> {
        spread(&self.rates.borrow())
    }

    /// For the search.
    pub fn shown(&self, seen: &Seen, gain: f64, chosen: Chosen) -> Shown {
        Shown { rate: seen.rate, gain, spread: self.spread().unwrap_or(0.0), chosen }
    }
}

/// What pairs of runs say about the second of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is faster, by more than chance and by enough.
    Faster,
    /// It is not faster by enough.
    NoFaster,
    /// The pairs differ by too much.
    Unclear,
    /// There were too few pairs.
    Short,
}

impl Judgement {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Judgement::Faster => "faster",
            Judgement::NoFaster => "no faster",
            Judgement::Unclear => "unclear",
            Judgement::Short => "too few pairs",
        }
    }

    /// Of the gains of pairs, on a machine where two runs of the same settings differ by this share.
    pub fn of(gains: &[f64], spread: f64) -> Judgement {
        if gains.len() >= PAIRS_HOPELESS && median(gains).is_some_and(|median| median <= 1.0) {
            return if spread > BUSY { Judgement::Unclear } else { Judgement::NoFaster };
        }
        let Some([low, _]) = interval(gains) else { return Judgement::Short };
        let is_worth = median(gains).is_some_and(|median| median >= WORTH);
        match (is_worth, low > 1.0) {
            (true, true) => Judgement::Faster,
            (true, false) => Judgement::Unclear,
            (false, _) if spread > BUSY => Judgement::Unclear,
            (false, _) => Judgement::NoFaster,
        }
    }

    /// Where the search found nothing faster among the others that it tried, so that there are no pairs.
    pub fn of_none(tried: usize, spread: Option<f64>) -> Judgement {
        match spread.filter(|_| tried > 0) {
            None => Judgement::Short,
            Some(spread) if spread > BUSY => Judgement::Unclear,
            Some(_) => Judgement::NoFaster,
        }
    }
}

/// Runs both by turns, now the one and now the other first, until `is_enough` of the gains. Returns the rates.
///
/// # Errors
/// As of the runs.
pub fn pairs(
    bed: &Bed<'_>,
    mut first: impl FnMut() -> Result<Option<Seen>>,
    mut second: impl FnMut() -> Result<Option<Seen>>,
    is_enough: impl Fn(&[f64]) -> bool,
) -> Result<Vec<[f64; 2]>> {
    let mut rates: Vec<[f64; 2]> = Vec::new();
    while rates.len() < PAIRS_MOST && bed.has_time(2) && !is_enough(&gains(&rates)) {
        let pair = if rates.len().is_multiple_of(2) {
            let one = first()?;
            one.zip(second()?)
        } else {
            let other = second()?;
            first()?.zip(other)
        };
        let Some((one, other)) = pair else { break };
        rates.push([one.rate, other.rate]);
    }
    Ok(rates)
}

/// Whether more pairs would say the same.
pub fn is_settled(gains: &[f64], spread: f64) -> bool {
    let is_hopeless = gains.len() >= PAIRS_HOPELESS && median(gains).is_some_and(|median| median <= 1.0);
    is_hopeless || !matches!(Judgement::of(gains, spread), Judgement::Short | Judgement::Unclear)
}

/// The gain of each pair.
pub fn gains(pairs: &[[f64; 2]]) -> Vec<f64> {
    pairs.iter().map(|[first, second]| second / first.max(1e-9)).collect()
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let above = sorted.get(half).copied()?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], above) } else { above })
}

/// Where the median of many more pairs would lie, with 95 % of certainty and whatever the noise is like: the order
/// statistics of the sign test. `None`: there are too few pairs for that.
pub fn interval(gains: &[f64]) -> Option<[f64; 2]> {
    let count = gains.len();
    // Of so many coins fewer than `outside` show heads, in this share of all throws.
    let (mut outside, mut chance, mut ways) = (0, 0.0, 1.0);
    while outside < count / 2 + 1 {
        chance += 2.0 * ways / 2_f64.powi(i32::try_from(count).ok()?);
        if chance > CHANCE {
            break;
        }
        ways *= (count - outside) as f64 / (outside + 1) as f64;
        outside += 1;
    }
    let mut sorted = gains.to_vec();
    sorted.sort_by(f64::total_cmp);
    let least = outside.checked_sub(1)?;
    Some([*sorted.get(least)?, *sorted.get(count - 1 - least)?])
}

fn spread(rates: &[f64]) -> Option<f64> {
    let steps: Vec<f64> = rates.windows(2).map(|two| two[0].max(two[1]) / two[0].min(two[1]).max(1e-9) - 1.0).collect();
    median(&steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    #[test]
    fn a_search_that_tried_nothing_had_too_little_time() {
        assert_eq!(Judgement::of_none(0, Some(0.3)), Judgement::Short, "and the machine may be quiet");
        assert_eq!(Judgement::of_none(1, Some(0.3)), Judgement::Unclear);
        assert_eq!(Judgement::of_none(1, Some(0.01)), Judgement::NoFaster);
        assert_eq!(Judgement::of_none(0, None), Judgement::Short);
    }

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        let to = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&to(5)), None, "1 in 16 is no certainty");
        // As the tables of the sign test have it.
        for (count, ends) in [(6, [1.0, 6.0]), (8, [1.0, 8.0]), (9, [2.0, 8.0]), (12, [3.0, 10.0]), (20, [6.0, 15.0])] {
            assert_eq!(interval(&to(count)), Some(ends), "{count}");
        }
        assert_eq!((interval(&[]), median(&[]), median(&[3.0, 1.0])), (None, None, Some(2.0)));
        assert_eq!((spread(&[2.0]), spread(&[2.0, 3.0, 3.0])), (None, Some(0.25)));
    }

    /// Pairs on a machine on which runs differ by this much, as `tune` takes them; the noise lasts for some runs.
    fn judged(seed: u64, truth: f64, noise: f64) -> Judgement {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut next = || f64::from(random.next_u32()) / f64::from(u32::MAX);
        let mut rate = move || {
            // Mostly a little, and sometimes another program takes half of the machine.
            let busy = if next() < noise { 0.5 } else { 1.0 };
            busy * (1.0 + noise * (next() + next() - 1.0))
        };
        let starts: Vec<f64> = (0..10).map(|_| rate()).collect();
        let spread = spread(&starts).unwrap();
        let mut gains = Vec::new();
        while gains.len() < PAIRS_MOST && (gains.len() < PAIRS_HOPELESS || !is_settled(&gains, spread)) {
            gains.push(truth * rate() / rate());
        }
        Judgement::of(&gains, spread)
    }

    #[test]
    fn what_is_slower_is_never_faster_and_what_is_faster_is_mostly_seen() {
        const RUNS: u64 = 2000;
        let of = |truth: f64, noise: f64| {
            let all = (0..RUNS).map(|seed| judged(seed, truth, noise));
            let all: Vec<Judgement> = all.collect();
            move |judgement| all.iter().filter(|one| **one == judgement).count() as f64 / RUNS as f64
        };
        for noise in [0.02, 0.1, 0.3] {
            assert!(of(0.97, noise)(Judgement::Faster) < 0.015, "a slower one, at {noise}");
            assert!(of(1.0, noise)(Judgement::Faster) < 0.05, "the same, which does no harm, at {noise}");
        }
        assert!(of(1.0, 0.02)(Judgement::NoFaster) > 0.97, "quiet, and the same");
        assert!(of(1.3, 0.02)(Judgement::Faster) > 0.97, "quiet, and faster");
        assert!(of(1.0, 0.3)(Judgement::Unclear) > 0.5, "busy, and the same");
        assert!(of(3.0, 0.1)(Judgement::Faster) > 0.9, "three times as fast is seen on a busy machine");
    }
}
