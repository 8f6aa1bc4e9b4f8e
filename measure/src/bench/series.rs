//! What a run delivered over time and in each epoch, at most so many points of it.

use serde::Serialize;
use std::time::Duration;

/// Points that are kept at most: from then on every second one goes, and the next ones come half as often.
const POINTS: usize = 512;

/// Epochs that are kept, the first ones.
const EPOCHS: usize = 4096;

/// How often there is a point at first.
const PERIOD: Duration = Duration::from_millis(50);

/// What was delivered until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the engine was open.
    pub s: f64,
    /// Samples until then.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was delivered in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Epoch {
    /// Its number.
    pub epoch: u64,
    /// Samples of it.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the end of the last batch before it to the end of its own last batch.
    pub wall_s: f64,
    /// From the end of the last batch before it to its own first batch.
    pub first_batch_ms: f64,
}

/// Both.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The points in time.
    pub points: Vec<Point>,
    /// The epochs.
    pub epochs: Vec<Epoch>,
    seen: Point,
    period: Duration,
    next: Duration,
    last: Duration,
}

impl Series {
    /// A batch of an epoch came at `got`, and was used until `done`, both since the engine was open.
    pub fn batch(&mut self, epoch: u64, (samples, bytes): (u64, u64), got: Duration, done: Duration) {
        self.seen.samples += samples;
        self.seen.bytes += bytes;
        self.seen.s = done.as_secs_f64();
        if self.epochs.last().is_none_or(|last| last.epoch != epoch) && self.epochs.len() < EPOCHS {
            let first_batch_ms = got.saturating_sub(self.last).as_secs_f64() * 1e3;
            self.epochs.push(Epoch { epoch, first_batch_ms, ..Epoch::default() });
        }
        if let Some(last) = self.epochs.last_mut().filter(|last| last.epoch == epoch) {
            last.samples += samples;
            last.bytes += bytes;
            last.wall_s += done.saturating_sub(self.last).as_secs_f64();
        }
        self.last = done;
        if done >= self.next {
            self.point();
        }
    }

    fn point(&mut self) {
        if self.points.len() >= POINTS {
            self.points = self.points.iter().skip(1).step_by(2).copied().collect();
            self.period *= 2;
        }
        self.period = self.period.max(PERIOD);
        self.points.push(self.seen);
        self.next = self.last + self.period;
    }

    /// No batch comes any more.
    pub fn end(&mut self) {
        if self.seen.samples > 0 && self.points.last() != Some(&self.seen) {
            self.point();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_epochs_are_bounded_and_add_up() {
        let mut series = Series::default();
        let at = |tick: u64| Duration::from_millis(tick * 20);
        for tick in 1..=100_000_u64 {
            series.batch(tick / 40_000, (4, 400), at(tick) - Duration::from_millis(5), at(tick));
        }
        series.end();
        assert!(series.points.len() <= POINTS && series.points.len() >= POINTS / 2 - 1, "{}", series.points.len());
        assert!(series.points.windows(2).all(|pair| pair[0].s < pair[1].s && pair[0].samples < pair[1].samples));
        let last = series.points.last().unwrap();
        assert_eq!((last.samples, last.bytes, last.s), (400_000, 40_000_000, 2000.0));
        let sum = |of: fn(&Epoch) -> u64| series.epochs.iter().map(of).sum::<u64>();
        assert_eq!((series.epochs.len(), sum(|one| one.samples), sum(|one| one.bytes)), (3, 400_000, 40_000_000));
        assert!((series.epochs.iter().map(|one| one.wall_s).sum::<f64>() - 2000.0).abs() < 1e-6);
        assert!((series.epochs[1].first_batch_ms - 15.0).abs() < 1e-6, "{:?}", series.epochs[1]);
    }
}
