//! What the threads did over time: their clocks, read between batches. Clocks only grow, so an interval has all of what
//! happened in it, however few of its moments were looked at.

use serde::Serialize;
use std::time::Duration;
use uringload::stats::Stats;
use uringload::stats::{Doing, Role};

/// Intervals at most: then every two become one.
const INTERVALS: usize = 96;

/// The shortest interval.
const PERIOD: Duration = Duration::from_millis(10);

type Spent = [Duration; Doing::ALL.len()];

/// The clocks at a moment, by role, and the number of threads of each.
type Moment = Vec<(Role, usize, Spent)>;

/// The clocks over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Since the engine was open.
    moments: Vec<(Duration, Moment)>,
    period: Duration,
    next: Duration,
}

impl Timeline {
    /// Begins with what was spent before the engine was open.
    pub fn begin(stats: &Stats) -> Timeline {
        Timeline { moments: vec![(Duration::ZERO, moment(stats))], period: PERIOD, next: PERIOD }
    }

    /// A batch came at `now`, since the engine was open.
    pub fn batch(&mut self, now: Duration, stats: &Stats) {
        if now >= self.next {
            self.look(now, || moment(stats));
        }
    }

    fn look(&mut self, now: Duration, clocks: impl FnOnce() -> Moment) {
        if self.moments.len() > INTERVALS {
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.period *= 2;
        }
        self.moments.push((now, clocks()));
        self.next = now + self.period;
    }

    /// The last batch came at `now`.
    pub fn end(&mut self, now: Duration, stats: &Stats) {
        if self.moments.last().is_some_and(|(last, _)| *last < now) {
            self.look(now, || moment(stats));
        }
    }

    /// For reports.
    pub fn report(&self) -> TimelineReport {
        let until_s = self.moments.iter().skip(1).map(|(at, _)| at.as_secs_f64()).collect();
        let last = self.moments.last().map_or(&[][..], |(_, moment)| moment.as_slice());
        let lanes = last.iter().map(|&(role, threads, _)| self.lane(role, threads)).collect();
        TimelineReport { until_s, lanes }
    }

    fn lane(&self, role: Role, threads: usize) -> Lane {
        let of = |moment: &Moment| moment.iter().find(|one| one.0 == role).map_or(Spent::default(), |one| one.2);
        let intervals: Vec<[f64; Doing::ALL.len()]> = self
            .moments
            .windows(2)
            .map(|pair| {
                let (before, after) = (of(&pair[0].1), of(&pair[1].1));
                let spent: Vec<f64> = after
                    .iter()
                    .zip(before)
                    .map(|(after, before)| after.saturating_sub(before).as_secs_f64())
                    .collect();
                let total: f64 = spent.iter().sum::<f64>().max(1e-12);
                std::array::from_fn(|doing| (spent[doing] / total * 1e3).round() / 1e3)
            })
            .collect();
        let shares = Doing::ALL
            .into_iter()
            .filter(|&doing| intervals.iter().any(|shares| shares[doing as usize] > 0.0))
            .map(|doing| {
                let of_doing: Vec<f64> = intervals.iter().map(|shares| shares[doing as usize]).collect();
                (doing.name().replace(' ', "_"), of_doing.into())
            })
            .collect();
        Lane { role: role.to_string(), threads, shares }
    }
}

fn moment(stats: &Stats) -> Moment {
    let threads = stats.threads();
    let of_role = |role: Role| {
        let mut all = (role, 0, Spent::default());
        for (_, spent) in threads.iter().filter(|(of, _)| *of == role) {
            all.1 += 1;
            all.2.iter_mut().zip(spent).for_each(|(sum, spent)| *sum += *spent);
        }
        (all.1 > 0).then_some(all)
    };
    Role::ALL.into_iter().filter_map(of_role).collect()
}

/// For the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineReport {
    until_s: Vec<f64>,
    lanes: Vec<Lane>,
}

#[derive(Clone, Debug, Serialize)]
struct Lane {
    role: String,
    threads: usize,
    shares: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_few_intervals_that_lack_nothing() {
        let mut timeline = Timeline { moments: vec![(Duration::ZERO, Vec::new())], period: PERIOD, next: PERIOD };
        let clocks = |tick: u32| {
            let mut spent = Spent::default();
            // Reads in one half, then waits.
            spent[Doing::Read as usize] = PERIOD * tick.min(5000);
            spent[Doing::WaitInput as usize] = PERIOD * tick.saturating_sub(5000);
            vec![(Role::Io, 2, spent)]
        };
        for tick in 1..=10_000 {
            let now = PERIOD * tick;
            if now >= timeline.next {
                timeline.look(now, || clocks(tick));
            }
        }
        let told = serde_json::to_value(timeline.report()).unwrap();
        let until = told["until_s"].as_array().unwrap();
        assert!((INTERVALS / 2 - 1..=INTERVALS + 1).contains(&until.len()), "{}", until.len());
        let (lane, length) = (&told["lanes"][0], until.len());
        assert_eq!((&lane["role"], &lane["threads"]), (&"io".into(), &2.into()));
        let of = |name: &str| -> Vec<f64> {
            lane["shares"][name].as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).collect()
        };
        let (read, wait) = (of("read"), of("wait_for_input"));
        assert!(read.len() == length && wait.len() == length);
        assert_eq!((read[0], wait[0], read[length - 1], wait[length - 1]), (1.0, 0.0, 0.0, 1.0));
        assert!(read.iter().zip(&wait).all(|(read, wait)| (read + wait - 1.0).abs() < 0.01));
    }
}
