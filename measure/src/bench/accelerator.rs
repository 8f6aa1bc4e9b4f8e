//! An emulated accelerator: for which share of the time it would have been busy.
//!
//! AU as defined by MLPerf Storage (DLIO's `statscounter.py`): time in steps over elapsed time, both without the first
//! step of each epoch; computed per epoch, then averaged. Only full batches count as steps.

use std::time::{Duration, Instant};

/// Counts steps. The caller passes the time, so that a test needs no sleep.
#[derive(Clone, Debug)]
pub struct Accelerator {
    step: Duration,
    epoch: u64,
    /// When the first step of the epoch ended, and the number of steps since.
    start: Option<Instant>,
    steps: u32,
    last: Option<Instant>,
    /// Utilization of each epoch with more than one step.
    epochs: Vec<f64>,
}

impl Accelerator {
    /// An accelerator whose steps take `step`.
    pub fn new(step: Duration) -> Accelerator {
        Accelerator { step, epoch: 0, start: None, steps: 0, last: None, epochs: Vec::new() }
    }

    /// Length of a step.
    pub fn step(&self) -> Duration {
        self.step
    }

    /// Records that a step of `epoch` on a full batch ended at `now`.
    pub fn stepped(&mut self, epoch: u64, now: Instant) {
        if self.start.is_none() || epoch != self.epoch {
            self.close();
            self.epoch = epoch;
            self.start = Some(now);
            return;
        }
        self.steps += 1;
        self.last = Some(now);
    }

    /// Utilization in percent; `None` before the second step.
    pub fn percent(mut self) -> Option<f64> {
        self.close();
        let count = self.epochs.len() as f64;
        (count > 0.0).then(|| self.epochs.iter().sum::<f64>() / count)
    }

    fn close(&mut self) {
        if let (Some(start), Some(last)) = (self.start, self.last)
            && self.steps > 0
        {
            let running = last - start;
            self.epochs.push(100.0 * (self.step * self.steps).as_secs_f64() / running.as_secs_f64());
        }
        self.start = None;
        self.steps = 0;
        self.last = None;
    }
}

/// Accelerators that take batches in turn from one loader: each computes by itself, and the next batch is asked for
/// when the one whose turn it is has nothing to do.
#[derive(Debug)]
pub struct Accelerators {
    all: Vec<Accelerator>,
    /// When each ends its step.
    free: Vec<Instant>,
    next: usize,
}

impl Accelerators {
    /// `count` of them, at least one, whose steps take `step`.
    pub fn new(count: usize, step: Duration) -> Accelerators {
        let count = count.max(1);
        Accelerators { all: vec![Accelerator::new(step); count], free: vec![Instant::now(); count], next: 0 }
    }

    /// Begins the step of the one whose turn it is at `now`. Returns when the one after it is free. A step that is not
    /// on a full batch, of which `epoch` says nothing, does not count.
    pub fn begin(&mut self, epoch: Option<u64>, now: Instant) -> Instant {
        let turn = self.next;
        self.next = (turn + 1) % self.all.len();
        let one = &mut self.all[turn];
        self.free[turn] = now.max(self.free[turn]) + one.step();
        if let Some(epoch) = epoch {
            one.stepped(epoch, self.free[turn]);
        }
        self.free[self.next]
    }

    /// When all are free.
    pub fn end(&self) -> Option<Instant> {
        self.free.iter().copied().max()
    }

    /// Mean utilization in percent; `None` before the second step of any.
    pub fn percent(self) -> Option<f64> {
        let each: Vec<f64> = self.all.into_iter().filter_map(Accelerator::percent).collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    fn run(ends: &[(u64, u64)]) -> Option<f64> {
        let zero = Instant::now();
        let mut accelerator = Accelerator::new(STEP);
        for &(epoch, millis) in ends {
            accelerator.stepped(epoch, zero + Duration::from_millis(millis));
        }
        accelerator.percent()
    }

    #[test]
    fn the_first_step_of_an_epoch_is_out_of_both() {
        assert_eq!(run(&[]), None);
        assert_eq!(run(&[(0, 500)]), None);
        assert_eq!(run(&[(0, 500), (0, 510), (0, 520)]), Some(100.0));
        assert_eq!(run(&[(0, 500), (0, 520), (0, 540)]), Some(50.0));
    }

    #[test]
    fn several_take_turns_and_compute_at_once() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let mut three = Accelerators::new(3, STEP);
        three.free = vec![zero; 3];
        // As fast as they come: the fourth batch waits until the first accelerator is free.
        let free: Vec<Instant> = (0..3).map(|_| three.begin(Some(0), zero)).collect();
        assert_eq!(free, [zero, zero, at(10)]);
        for turn in 0..6 {
            three.begin(Some(0), at(10 + turn / 3 * 10));
        }
        assert_eq!((three.end(), three.percent()), (Some(at(30)), Some(100.0)));
        // A loader that gives one batch every 10 ms keeps each of two busy for half of the time.
        let mut two = Accelerators::new(2, STEP);
        two.free = vec![zero; 2];
        for batch in 0..10 {
            two.begin(Some(0), at(batch * 10));
        }
        assert_eq!(two.percent(), Some(50.0));
        assert_eq!(Accelerators::new(0, STEP).percent(), None);
    }

    #[test]
    fn epochs_count_alike() {
        let ends = [(0, 10), (0, 20), (0, 30), (1, 1000), (1, 1020), (2, 5000)];
        assert_eq!(run(&ends), Some(75.0));
    }
}
