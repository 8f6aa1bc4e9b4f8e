//! A short run of the loader: how many samples a second it gives once it has begun.

use super::Tune;
use crate::Caller;
use crate::cold;
use crate::consume::{Consumer, Next};
use crate::subject::{Prepare, Subject};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::Config;
use uringload::config::{IoChoice, Route};
use uringload::dataset::Dataset;
use uringload::sampler::{Cursor, Sampler};
use uringload::stats::Snapshot;
use uringload::{ErrorKind, Loader, Result};

/// The first part of a run, in which memory is taken and the queue fills, does not count.
const WARM_SHARE: f64 = 0.4;

/// A loader that searches for the depth itself needs this many times as long.
const SEARCH: u32 = 2;

/// A rate needs this many batches; a run with fewer goes on, for `LONGER` times as long at most.
const BATCHES: u32 = 3;
const LONGER: u32 = 4;

/// What is measured, and how much time there is.
pub struct Bed<'a> {
    /// What was asked for.
    pub tune: &'a Tune<'a>,
    /// Who may want no more.
    pub caller: &'a Caller,
    /// When it must end.
    pub deadline: Instant,
    /// Length of a trial.
    pub slice: Duration,
    /// Where the next trial goes on, as a run would: what was just read may be in memory somewhere.
    at: Cell<Cursor>,
    /// Whether the loader reads past the page cache here.
    is_direct: Cell<bool>,
    /// How long the trials took so far, and how many there were.
    took: Cell<(Duration, u32)>,
}

/// What a trial showed.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Samples a second.
    pub rate: f64,
    /// The statistics of the part that counts.
    pub snapshot: Snapshot,
    /// How it was read.
    pub route: Route,
    /// Memory for samples.
    pub memory_limit: u64,
    /// Where it ended.
    pub next: Cursor,
}

impl<'a> Bed<'a> {
    /// For so long from `begun` on.
    pub fn new(tune: &'a Tune<'a>, caller: &'a Caller, begun: Instant) -> Bed<'a> {
        // Some eighty trials.
        let slice = (tune.limit / 80).clamp(Duration::from_millis(60), Duration::from_millis(700));
        let (at, is_direct, took) = (Cell::default(), Cell::default(), Cell::default());
        Bed { tune, caller, deadline: begun + tune.limit, slice, at, is_direct, took }
    }

    /// From now on a choice of `io` that is left to the loader is measured past the page cache: what happens to lie in
    /// it now is no property of the machine.
    pub fn read_past_the_cache(&self) {
        self.is_direct.set(true);
    }

    /// What is measured.
    pub fn subject(&self) -> &'a Subject<'a> {
        &self.tune.subject
    }

    /// Whether there is time for so many trials.
    pub fn has_time(&self, trials: u32) -> bool {
        !self.caller.is_set() && Instant::now() + self.slice * trials < self.deadline
    }

    /// Whether there is time for so many trials that take as long as those so far: slow batches make them longer than a
    /// slice.
    pub fn has_time_as_seen(&self, trials: u32) -> bool {
        let (took, count) = self.took.get();
        Instant::now() + took * trials / count.max(1) < self.deadline
    }

    /// A trial of the dataset.
    ///
    /// # Errors
    /// As building a loader, and those of samples.
    pub fn run(&self, config: &Config) -> Result<Option<Seen>> {
        let sampler = (self.subject().order)(config)?;
        // What weights have drawn is in no cursor.
        let start = if self.subject().is_weighted { Cursor::default() } else { self.at.get() };
        let is_left = config.io == IoChoice::Auto && self.is_direct.get();
        let io = if is_left { IoChoice::Direct } else { config.io };
        let config = Config { start, io, ..config.clone() };
        let begun = Instant::now();
        let seen = self.run_of(&self.subject().dataset, sampler, &config, &*self.subject().prepare)?;
        let (took, count) = self.took.get();
        self.took.set((took + begun.elapsed(), count + 1));
        seen.iter().for_each(|seen| self.at.set(seen.next));
        Ok(seen)
    }

    /// A trial of any dataset.
    ///
    /// # Errors
    /// As building a loader, and those of samples.
    pub fn run_of(
        &self,
        dataset: &Arc<dyn Dataset>,
        sampler: Arc<dyn Sampler>,
        config: &Config,
        prepare: &Prepare<'_>,
    ) -> Result<Option<Seen>> {
        if self.tune.cold {
            match cold::evict(&**dataset, self.caller, Some(self.deadline)) {
                Err(error) if error.kind() == ErrorKind::Timeout => return Ok(None),
                evicted => evicted?,
            }
        }
        let time = if config.queue_depth.is_none() { self.slice * SEARCH } else { self.slice };
        let config = Config { epochs: None, trace: None, quarantine: None, ..config.clone() };
        let builder = Loader::builder(Arc::clone(dataset)).config(config.clone()).sampler(sampler);
        let mut loader = prepare(builder, dataset)?.build()?;
        let (start, stats) = (Instant::now(), loader.stats());
        let consumer = Consumer::new(self.caller, Some((start + time * LONGER).min(self.deadline)));
        let mut warm: Option<(Instant, Snapshot)> = None;
        let mut counted = 0;
        let (mut last, mut next) = (start, config.start);
        while let Next::Batch(batch) = consumer.next(&mut loader) {
            next = (*batch)?.next;
            if let Some(step) = self.tune.emulate_step {
                self.caller.sleep_until(Instant::now() + step);
            }
            last = Instant::now();
            counted += u32::from(warm.is_some());
            if warm.is_none() && (last - start).as_secs_f64() >= time.as_secs_f64() * WARM_SHARE {
                warm = Some((last, stats.snapshot()));
            }
            // Batches may come in bursts, a stretch of a file at a time: the part that counts is as long after a
            // late first one.
            let since = warm.as_ref().map_or(start, |(since, _)| *since);
            if counted >= BATCHES && last - since >= time.mul_f64(1.0 - WARM_SHARE) {
                break;
            }
        }
        let (route, memory_limit) = (loader.route(), loader.memory_limit());
        consumer.leave(loader);
        let snapshot = stats.snapshot();
        if snapshot.count.batches == 0 {
            return Ok(None);
        }
        // A run that is too slow for that is told by all of it.
        let (since, before) = warm.filter(|_| counted > 0).unwrap_or_else(|| (start, Snapshot::default()));
        let snapshot = if counted > 0 { snapshot.since(&before) } else { snapshot };
        let rate = snapshot.count.samples as f64 / (last - since).as_secs_f64().max(1e-9);
        Ok(Some(Seen { rate, snapshot, route, memory_limit, next }))
    }
}
