//! The yardstick of a bench: raw reads of the same files, in the depth and the length that suit the storage best,
//! spread over the rounds. A figure that says more than the storage gives is not told.

use super::run::Run;
use crate::Caller;
use std::time::{Duration, Instant};
use uringload::config::Config;
use uringload::inspect::raw;
use uringload::stats::{Evidence, Trial};
use uringload::{Error, Result};

/// Depths and lengths of reads that are tried. The engine takes less where the device does.
const DEPTHS: [usize; 4] = [16, 64, 128, 256];
const READ_BYTES: [usize; 3] = [128 << 10, 256 << 10, 1 << 20];

/// A trial is short: what is chosen is measured again in each round.
const TRIAL: Duration = Duration::from_millis(200);

/// A search takes as long as the raw read after it.
const TRIALS: u32 = 1 + (DEPTHS.len() + READ_BYTES.len()) as u32;

/// In less time than so many trials take nothing is read.
const TRIALS_LEAST: u32 = 2;

/// A loader that is faster than the raw read by more than the noise of a good machine was measured on another disk, so
/// to say.
const SHARE_MOST: f64 = 1.05;

/// How often the yardstick is taken again where that happens.
const REPEATS: usize = 3;

/// What a raw read does to the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// It is to be as a cold start finds it.
    Empty,
    /// What was read lies in it.
    Filled,
}

/// The shape of the reads: what the engine is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Reads in flight; `None`: a default that was not searched.
    pub depth: Option<usize>,
    /// Length of the longest read.
    pub read_bytes: Option<usize>,
}

/// What raw reads gave.
#[derive(Clone, Debug, Default)]
pub struct Yardstick {
    shape: Option<Shape>,
    rates: Vec<f64>,
    /// Seconds for each read, one after the other: the slowest of the search.
    read_s: f64,
    /// How long the fastest of the reads took.
    fastest: Option<Duration>,
    is_disturbed: bool,
}

impl Yardstick {
    /// The shape that gave most.
    pub fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Median rate in bytes per second.
    pub fn rate(&self) -> Option<f64> {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len().saturating_sub(1) / 2).copied()
    }

    /// Number of raw reads.
    pub fn count(&self) -> usize {
        self.rates.len()
    }

    /// How far the rates lie apart, as a share of the median.
    pub fn spread(&self) -> Option<f64> {
        let (least, most) =
            self.rates.iter().fold((f64::MAX, 0.0), |(a, b), &rate| (f64::min(a, rate), f64::max(b, rate)));
        self.rate().filter(|_| self.rates.len() > 1).map(|rate| (most - least) / rate)
    }

    /// Whether the loader was faster even after repeats, so that there is no share to tell.
    pub fn is_disturbed(&self) -> bool {
        self.is_disturbed
    }

    /// What a loader's rate may be compared with.
    pub fn trusted(&self) -> Option<f64> {
        self.rate().filter(|&rate| rate > 0.0 && !self.is_disturbed)
    }

    /// What a verdict goes by: this rate, where a loader may be compared with it, and what else was tried.
    pub fn evidence(&self, raw: Option<f64>, trials: Vec<Trial>) -> Evidence {
        Evidence { raw, fastest_read: raw.and(self.fastest), trials }
    }

    /// A raw read, in the best shape: found at the first one. Returns its rate; `None` if there is no time until then.
    /// `cache` is told what is to happen, or has happened, to the page cache.
    ///
    /// # Errors
    /// As [`raw::measure`], and those of `cache`.
    pub fn take(
        &mut self,
        run: &Run<'_>,
        (limit, until): (Duration, Option<Instant>),
        caller: &Caller,
        mut cache: impl FnMut(Cache) -> Result<()>,
    ) -> Result<Option<f64>> {
        let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        if left() < TRIALS_LEAST * TRIAL {
            return Ok(None);
        }
        let mut rate_of = |shape: Shape, limit| {
            cache(Cache::Empty)?;
            let config = Config { queue_depth: shape.depth, read_size: shape.read_bytes, ..run.config.clone() };
            let raw = raw::measure(run.dataset, &config, &run.sampler, limit, || caller.is_set())?;
            if !raw.direct_io {
                cache(Cache::Filled)?;
            }
            Ok::<_, Error>(raw)
        };
        let shape = match self.shape {
            Some(shape) => shape,
            None => {
                let asked = Shape { depth: run.config.queue_depth, read_bytes: run.config.read_size };
                let _doing = caller.doing("raw read: searching for its best depth and length", until);
                let trial = TRIAL.min(limit / TRIALS);
                let slowest = &mut self.read_s;
                *self.shape.insert(search(
                    asked,
                    || caller.is_set() || left() < limit + trial,
                    |shape| {
                        // More reads than end within a trial can gain nothing, and all of them must end.
                        let drain = shape.depth.unwrap_or(0) as f64 * *slowest;
                        if drain > TRIAL.as_secs_f64() {
                            return Ok(None);
                        }
                        let raw = rate_of(shape, trial)?;
                        *slowest = f64::max(*slowest, raw.elapsed.as_secs_f64() / raw.reads.max(1) as f64);
                        Ok(Some(raw.bytes_per_second()))
                    },
                )?)
            }
        };
        if caller.is_set() {
            return Ok(None);
        }
        let _doing = caller.doing("raw read: measuring it", until);
        // The reads that are in flight at its end must end, too.
        let drain = Duration::from_secs_f64(shape.depth.unwrap_or(DEPTHS[1]) as f64 * self.read_s);
        let Some(time) = left().checked_sub(drain).filter(|time| *time >= TRIAL) else { return Ok(None) };
        let raw = rate_of(shape, limit.min(time))?;
        let rate = Some(raw.bytes_per_second()).filter(|&rate| rate > 0.0);
        self.rates.extend(rate);
        self.fastest = [self.fastest, raw.fastest].into_iter().flatten().min();
        Ok(rate)
    }

    /// Looks whether the loader was faster than the yardstick, and then takes it again, from the start. What is said
    /// then stands for what was said before. `share_of` is the loader's share of a rate.
    ///
    /// # Errors
    /// As [`take`](Yardstick::take).
    pub fn check(
        &mut self,
        share_of: impl Fn(f64) -> f64,
        mut again: impl FnMut(&mut Yardstick) -> Result<()>,
    ) -> Result<()> {
        let is_below =
            |yardstick: &Yardstick| yardstick.rate().is_some_and(|rate| rate > 0.0 && share_of(rate) > SHARE_MOST);
        if !is_below(self) {
            return Ok(());
        }
        let mut anew = Yardstick::default();
        for _ in 0..REPEATS {
            again(&mut anew)?;
        }
        if anew.rate().is_some() {
            *self = anew;
        }
        self.is_disturbed = is_below(self);
        Ok(())
    }
}

/// The shape that gives most: first of the depths, then of the lengths, unless the user has fixed them.
fn search(
    asked: Shape,
    is_over: impl Fn() -> bool,
    mut rate_of: impl FnMut(Shape) -> Result<Option<f64>>,
) -> Result<Shape> {
    let mut best = (asked, rate_of(asked)?.unwrap_or(0.0));
    let mut try_out = |shapes: &mut dyn Iterator<Item = Shape>, best: &mut (Shape, f64)| {
        for shape in shapes.take_while(|_| !is_over()) {
            // One that the machine has no room for is not the best.
            let Ok(Some(rate)) = rate_of(shape) else { continue };
            if rate > best.1 {
                *best = (shape, rate);
            }
        }
    };
    if asked.depth.is_none() {
        try_out(&mut DEPTHS.iter().map(|&depth| Shape { depth: Some(depth), ..asked }), &mut best);
    }
    if asked.read_bytes.is_none() {
        let (chosen, _) = best;
        try_out(&mut READ_BYTES.iter().map(|&bytes| Shape { read_bytes: Some(bytes), ..chosen }), &mut best);
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: &[f64]) -> Yardstick {
        Yardstick { rates: rates.to_vec(), ..Yardstick::default() }
    }

    #[test]
    fn the_median_and_the_spread() {
        assert_eq!((of(&[]).rate(), of(&[]).spread(), of(&[3.0]).spread()), (None, None, None));
        let three = of(&[90.0, 110.0, 100.0]);
        assert_eq!(
            (three.rate(), three.spread(), three.trusted(), three.count()),
            (Some(100.0), Some(0.2), Some(100.0), 3)
        );
        assert_eq!(Yardstick { is_disturbed: true, ..three }.trusted(), None);
        assert_eq!(of(&[0.0]).trusted(), None);
        let fastest = Some(Duration::from_millis(2));
        let read = Yardstick { fastest, ..of(&[100.0]) };
        assert_eq!(read.evidence(read.trusted(), Vec::new()).fastest_read, fastest);
        assert_eq!(read.evidence(None, Vec::new()), Evidence::default(), "of a read that is not trusted");
    }

    #[test]
    fn a_yardstick_below_the_loader_is_taken_again_and_then_not_trusted() {
        // A loader of 104, and what the raw reads give when they are repeated.
        let checked = |first: &[f64], anew: f64| {
            let (mut yardstick, mut repeats) = (of(first), 0);
            let again = |yardstick: &mut Yardstick| {
                repeats += 1;
                yardstick.rates.push(anew);
                Ok(())
            };
            yardstick.check(|rate| 104.0 / rate, again).unwrap();
            (repeats, yardstick.rate(), yardstick.trusted())
        };
        assert_eq!(checked(&[100.0, 120.0], 0.0), (0, Some(100.0), Some(100.0)), "105 % are told");
        assert_eq!(
            checked(&[90.0, 95.0], 110.0),
            (REPEATS, Some(110.0), Some(110.0)),
            "it was disturbed, and is not now"
        );
        assert_eq!(checked(&[50.0], 98.0), (REPEATS, Some(98.0), None), "106 % are not told");
        assert_eq!(checked(&[], 98.0).0, 0, "without a raw read there is nothing to repeat");
    }

    #[test]
    fn the_search_finds_the_best_depth_and_then_the_best_length() {
        let asked = Shape { depth: None, read_bytes: None };
        let mut tried = Vec::new();
        let rate_of = |shape: Shape| {
            tried.push(shape);
            let depth = f64::from(shape.depth.unwrap_or(40) as u32);
            Ok(Some(1000.0 - (depth - 128.0).abs() + if shape.read_bytes == Some(256 << 10) { 5.0 } else { 0.0 }))
        };
        let found = search(asked, || false, rate_of).unwrap();
        assert_eq!(found, Shape { depth: Some(128), read_bytes: Some(256 << 10) });
        assert_eq!(tried.len(), 1 + DEPTHS.len() + READ_BYTES.len());
        // What the user has fixed stays, and is not searched.
        let fixed = Shape { depth: Some(7), read_bytes: Some(4096) };
        let mut count = 0;
        let one = |_| {
            count += 1;
            Ok(Some(1.0))
        };
        assert_eq!((search(fixed, || false, one).unwrap(), count), (fixed, 1));
    }
}
