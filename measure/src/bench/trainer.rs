//! A trainer on a GPU: takes batches like a training loop, into a stream of its own, and measures what each gap between
//! two steps waited for.
//!
//! Three events per step show this. *Asked* is recorded when the host has the batch, *begin* after the wait for the
//! batch, *end* after the step. From the end of the previous step to *asked*, the host had no batch; from there to
//! *begin*, the batch was not on the GPU.

use super::step::{Step, failed};
use crate::Caller;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::Result;
use uringload::device::DeviceBatch;
use uringload_sys::cuda::{Context, CudaError, Event, Stream, Timing};

/// Steps in the stream while the host gets the next batch: one that runs and one queued after it.
const STEPS_AHEAD: usize = 2;

/// A shorter gap is the normal one between any two kernels.
const NOTICED: Duration = Duration::from_micros(20);

/// How long to sleep while waiting for a step: a fraction of the step, within these bounds.
const LOOKS_A_STEP: u32 = 16;
const LOOK_MIN: Duration = Duration::from_micros(10);
const LOOK_MAX: Duration = Duration::from_millis(10);

/// The work on one GPU.
pub struct Trainer {
    context: Context,
    stream: Arc<Stream>,
    step: Option<Step>,
    queued: VecDeque<Queued>,
    last: Option<Event>,
    spare: Vec<Event>,
    seen: Steps,
}

/// A step in the stream.
struct Queued {
    asked: Event,
    begin: Event,
    end: Event,
    /// How long the host waited for its batch.
    waited: Duration,
    /// The epoch, if the batch is a full one.
    full: Option<u64>,
}

/// The steps and the gaps between them, by the GPU's clock.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Steps completed.
    pub count: u64,
    /// Time spent in steps.
    pub busy: Duration,
    /// Time from the beginning of the first step to the end of the last.
    pub elapsed: Duration,
    /// Gap time in which the host waited for a batch.
    pub for_loader: Duration,
    /// Gap time in which the stream waited for a batch that the host already had: copies and columns in progress.
    pub for_copy: Duration,
    /// Gap time that waited for nothing: launches, and the host busy with other things.
    pub for_nothing: Duration,
    /// The longest gap.
    pub longest: Duration,
    /// For each step on a full batch: its epoch, its length, and when it ended.
    full: Vec<(u64, Duration, Duration)>,
}

impl Trainer {
    /// A trainer that has done nothing yet.
    pub fn new(context: &Context, step: Option<Step>) -> Result<Trainer> {
        Ok(Trainer {
            context: context.clone(),
            stream: Arc::new(Stream::for_compute(context).map_err(failed)?),
            step,
            queued: VecDeque::new(),
            last: None,
            spare: Vec::new(),
            seen: Steps::default(),
        })
    }

    /// Whether it works on this GPU.
    pub fn is_on(&self, index: u32) -> bool {
        self.context.info().index == index
    }

    /// Queues a step on the batch in the stream and drops the batch, whose memory is returned after the step.
    pub fn use_batch(
        &mut self,
        batch: DeviceBatch,
        waited: Duration,
        full: Option<u64>,
        caller: &Caller,
    ) -> Result<()> {
        if self.step.is_none() {
            return batch.wait_on(&self.stream);
        }
        self.settle(STEPS_AHEAD - 1, caller)?;
        let (asked, begin, end) = (self.event()?, self.event()?, self.event()?);
        asked.record(&self.stream).map_err(failed)?;
        batch.wait_on(&self.stream)?;
        begin.record(&self.stream).map_err(failed)?;
        if let Some(step) = &self.step {
            step.run(&self.stream).map_err(failed)?;
        }
        end.record(&self.stream).map_err(failed)?;
        self.queued.push_back(Queued { asked, begin, end, waited, full });
        Ok(())
    }

    /// Waits for everything in the stream.
    pub fn finish(&mut self, caller: &Caller) -> Result<()> {
        self.settle(0, caller)?;
        if caller.is_set() { Ok(()) } else { self.stream.synchronize().map_err(failed) }
    }

    /// The result; `None` without a step.
    pub fn steps(self) -> Option<Steps> {
        self.step.is_some().then_some(self.seen)
    }

    fn event(&mut self) -> Result<Event> {
        self.spare.pop().map_or_else(|| Event::new(&self.context, Timing::On).map_err(failed), Ok)
    }

    /// Waits until at most `left` steps are in the stream, and records those that are done.
    fn settle(&mut self, left: usize, caller: &Caller) -> Result<()> {
        let step = self.seen.busy.checked_div(self.seen.count as u32).unwrap_or_default();
        let look = (step / LOOKS_A_STEP).clamp(LOOK_MIN, LOOK_MAX);
        while self.queued.len() > left {
            let Some(first) = self.queued.front() else { break };
            while !first.end.is_done().map_err(failed)? {
                if caller.is_set() {
                    return Ok(());
                }
                caller.sleep_until(Instant::now() + look);
            }
            if let Some(first) = self.queued.pop_front() {
                self.book(first).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn book(&mut self, done: Queued) -> std::result::Result<(), CudaError> {
        let Queued { asked, begin, end, waited, full } = done;
        if let Some(last) = self.last.take() {
            self.seen.gap(asked.since(&last)?, begin.since(&asked)?, waited);
            self.spare.push(last);
        }
        self.seen.step(end.since(&begin)?, full);
        self.spare.extend([asked, begin]);
        self.last = Some(end);
        Ok(())
    }
}

impl Steps {
    fn step(&mut self, took: Duration, full: Option<u64>) {
        self.count += 1;
        self.busy += took;
        self.elapsed += took;
        self.full.extend(full.map(|epoch| (epoch, took, self.elapsed)));
    }

    /// Records a gap. For `empty`, the stream had nothing to wait for; for `held`, it waited for its batch. The host
    /// waited for the batch for `waited`, much of which may lie before the gap, while the previous step ran.
    fn gap(&mut self, empty: Duration, held: Duration, waited: Duration) {
        let noticed = |time: Duration| if time < NOTICED { Duration::ZERO } else { time };
        let (for_loader, for_copy) = (noticed(empty.min(waited)), noticed(held));
        self.for_loader += for_loader;
        self.for_copy += for_copy;
        self.for_nothing += empty + held - for_loader - for_copy;
        self.longest = self.longest.max(empty + held);
        self.elapsed += empty + held;
    }

    /// The sum over several GPUs.
    pub fn all(each: Vec<Steps>) -> Option<Steps> {
        each.into_iter().reduce(|sum, one| Steps {
            count: sum.count + one.count,
            busy: sum.busy + one.busy,
            elapsed: sum.elapsed + one.elapsed,
            for_loader: sum.for_loader + one.for_loader,
            for_copy: sum.for_copy + one.for_copy,
            for_nothing: sum.for_nothing + one.for_nothing,
            longest: sum.longest.max(one.longest),
            full: Vec::new(),
        })
    }

    /// Mean length of a step; `None` before the first.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.busy.div_f64(self.count as f64))
    }

    /// Fraction (0 to 1) of the time after the first batch in which the GPU was in a step; `None` before that batch.
    pub fn busy_share(&self) -> Option<f64> {
        (!self.elapsed.is_zero()).then(|| self.busy.as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// Utilization in percent as defined by MLPerf Storage, for one GPU; see [`super::accelerator`].
    pub fn au_percent(&self) -> Option<f64> {
        let of_epoch = |steps: &[(u64, Duration, Duration)]| {
            let (&(_, _, first), &(_, _, last)) = (steps.first()?, steps.last()?);
            let busy: Duration = steps[1..].iter().map(|(_, took, _)| took).sum();
            (last > first).then(|| 100.0 * busy.as_secs_f64() / (last - first).as_secs_f64())
        };
        let epochs: Vec<f64> = self.full.chunk_by(|a, b| a.0 == b.0).filter_map(of_epoch).collect();
        (!epochs.is_empty()).then(|| epochs.iter().sum::<f64>() / epochs.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_gap_is_told_by_what_it_waited_for() {
        let mut steps = Steps::default();
        steps.step(millis(10), Some(0));
        // The host got the batch late, and had asked for it long before the step ended.
        steps.gap(millis(4), Duration::ZERO, millis(9));
        steps.step(millis(10), Some(0));
        // The host had it in time, and its copy was in progress.
        steps.gap(Duration::from_micros(2), millis(5), millis(0));
        steps.step(millis(10), Some(0));
        // The batch was not even requested.
        steps.gap(millis(1), Duration::ZERO, Duration::ZERO);
        steps.step(millis(10), None);
        assert_eq!((steps.for_loader, steps.for_copy), (millis(4), millis(5)));
        assert_eq!(steps.for_nothing, Duration::from_micros(1002));
        assert_eq!((steps.count, steps.longest, steps.mean()), (4, Duration::from_micros(5002), Some(millis(10))));
        let elapsed = 50.002 / 1e3;
        assert_eq!(steps.elapsed, Duration::from_secs_f64(elapsed));
        assert!((steps.busy_share().unwrap() - 0.04 / elapsed).abs() < 1e-9);
        // The first step of the epoch counts in neither: two steps of 10 in 14 + 15.002.
        assert!((steps.au_percent().unwrap() - 100.0 * 20.0 / 29.002).abs() < 1e-6);
        let both = Steps::all(vec![steps.clone(), steps]).unwrap();
        assert_eq!((both.count, both.busy, both.for_copy), (8, millis(80), millis(10)));
        assert_eq!(Steps::all(Vec::new()).map(|steps| steps.count), None);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        let steps = Steps::default();
        assert_eq!((steps.mean(), steps.busy_share(), steps.au_percent()), (None, None, None));
    }
}
