//! Measures the raw rate of the storage: reads a dataset with the engine, the order and the depth that a loader would
//! use, and discards the bytes. A loader on this machine is compared with this.

pub mod bus;

use crate::config::{Batching, Config, Cursor, Route};
use crate::dataset::Dataset;
use crate::engine::{self, Opened, Read};
use crate::patience::Patience;
use crate::plan::{BatchPlan, Layout, PlannedRead, Planner, UnitLimits};
use crate::pool::{BLOCK_ALIGNMENT, Pool};
use crate::queue::Bell;
use crate::sampler::{Order, Sampler};
use crate::stats::Stats;
use crate::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_sys::{Part, cgroup};

/// Reads in flight if the user sets no depth: a loader's start value.
const DEPTH: usize = 64;

/// The longest wait for a read before the time is checked.
const WAIT: Duration = Duration::from_millis(100);

/// How much was read, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawRate {
    /// Bytes that were read, alignment included.
    pub bytes: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// How long the fastest read took, without a queue before it.
    pub fastest: Option<Duration>,
    /// Reads that ended.
    pub reads: u64,
    /// Whether they went past the page cache.
    pub direct_io: bool,
}

impl RawRate {
    /// Bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.bytes as f64 / seconds } else { 0.0 }
    }
}

/// Reads the samples of one epoch (that of `config.start`, in the order of `sampler`) for at most `limit`. A unit that
/// samples are cut from is read once, at its first sample. Once `is_over`, this returns at once, and leaves the reads
/// in flight with their memory until the process ends.
///
/// # Errors
/// As building a loader; and the first read that fails.
pub fn measure(
    dataset: &Arc<dyn Dataset>,
    config: &Config,
    sampler: &Arc<dyn Sampler>,
    limit: Duration,
    is_over: impl Fn() -> bool,
) -> Result<RawRate> {
    let stats = Arc::new(Stats::new());
    let Opened { mut engine, route, width } = engine::open(config, dataset, &stats, &Patience::of(config))?;
    let mut reads = Reads::new(dataset, config, sampler, &route)?;
    // Includes reads that wait in the engine for their turn.
    let depth = engine.widen(width.most.min(config.queue_depth.unwrap_or(DEPTH))).min(affordable(route.read_bytes));
    let mut pool = Pool::new(depth * route.read_bytes.next_multiple_of(BLOCK_ALIGNMENT), 0, Arc::new(Bell::new()))?;
    let mut free: Vec<Part> = (0..depth).filter_map(|_| pool.take(route.read_bytes)).collect();
    pool.back(&(0..pool.arena().len()))?;
    // If registration is refused, the loader also reads unregistered.
    let _ = engine.register(pool.arena(), 0..pool.backed_bytes());
    let mut done = Vec::new();
    let mut rests: Vec<Option<Part>> = (0..depth).map(|_| None).collect();
    let mut tags: Vec<u64> = (0..depth as u64).collect();
    let mut started = vec![Instant::now(); depth];
    let (mut bytes, mut ended, mut fastest) = (0, 0, None);
    let start = Instant::now();
    loop {
        while engine.room() > 0 && !free.is_empty() && start.elapsed() < limit {
            let Some(read) = reads.next() else { break };
            let (Some(mut part), Some(tag)) = (free.pop(), tags.pop()) else { break };
            rests[tag as usize] = Some(part.split_off(read.len as usize));
            started[tag as usize] = Instant::now();
            engine.start(Read { tag, file: read.file, offset: read.offset, part, pieces: Vec::new() });
        }
        let is_left = is_over();
        if engine.in_flight() == 0 || is_left {
            if is_left {
                std::mem::forget((engine, pool));
            }
            let (elapsed, direct_io) = (start.elapsed(), route.direct_io);
            return Ok(RawRate { bytes, elapsed, fastest, reads: ended, direct_io });
        }
        engine.turn(Some(WAIT), &mut done).map_err(|source| Error::io("a raw read failed", source))?;
        for done in done.drain(..) {
            match done.result {
                Ok(read) => bytes += read as u64,
                // It is part of what a server gives, and the loader reads it again.
                Err(error) if engine::put_off(&error).is_some() => {}
                Err(source) => return Err(Error::io("a raw read failed", source)),
            }
            ended += 1;
            let took = started[done.tag as usize].elapsed();
            fastest = Some(fastest.map_or(took, |least| took.min(least)));
            let mut part = done.part;
            if let Some(rest) = rests[done.tag as usize].take() {
                // Cut from this very part when the read was started.
                let _ = part.unsplit(rest);
            }
            free.push(part);
            tags.push(done.tag);
        }
    }
}

/// Number of reads in flight that fit in the container's memory.
fn affordable(read_bytes: usize) -> usize {
    let room = cgroup::memory().map_or(u64::MAX, |group| group.room() / 4);
    usize::try_from(room / read_bytes.max(1) as u64).unwrap_or(usize::MAX).max(1)
}

/// The reads of one epoch, one after the other.
struct Reads {
    planner: Planner,
    plan: BatchPlan,
    next: usize,
}

impl Reads {
    fn new(dataset: &Arc<dyn Dataset>, config: &Config, sampler: &Arc<dyn Sampler>, route: &Route) -> Result<Reads> {
        let whole = Config {
            batching: Batching::Samples,
            drop_last: false,
            start: Cursor::new(config.start.epoch, 0),
            epochs: Some(1),
            ..config.clone()
        };
        let order = Order::new(&whole, Arc::clone(dataset), Arc::clone(sampler))?;
        let once = dataset.units().map(|_| UnitLimits { kept: usize::MAX, most: usize::MAX });
        let planner = order.planner(Layout::new(route, config)).with_units(once);
        Ok(Reads { planner, plan: BatchPlan::default(), next: 0 })
    }

    fn next(&mut self) -> Option<PlannedRead> {
        while self.next >= self.plan.issue_order.len() {
            if !self.planner.next(&mut self.plan) {
                return None;
            }
            self.next = 0;
        }
        self.next += 1;
        let index = self.plan.issue_order[self.next - 1];
        Some(self.plan.reads[index as usize])
    }
}
