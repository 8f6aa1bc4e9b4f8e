//! Finds how to read a dataset fastest on this machine, by measuring.

mod climb;
mod knobs;
mod others;
mod probe;
mod report;
mod trial;

use crate::Caller;
use crate::bench::run::Run;
use crate::bench::yardstick::{Shape, Yardstick};
use crate::cold;
use crate::subject::Subject;
use climb::{Climb, Reading};
use knobs::{Chosen, Knob};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trial::Bed;
use uringload::config::{Config, IoChoice, Profile};
use uringload::stats::{Bottleneck, Verdict};
use uringload::{Error, ErrorKind, Result};
use uringload_sys::{cgroup, system};

pub use climb::Tried;
pub use knobs::words;
pub use others::Other;
pub use probe::Point;
pub use trial::Seen;

/// Trials that are left for what comes after the search: the pairs, other orders, a packed sample. What is too late for
/// the last of these is left out.
const AFTERWARDS: u32 = 12;

/// A raw read that gives less than the loader, beyond the noise of a good machine, was disturbed and shows nothing.
const SHARE_MOST: f64 = 1.05;

/// What is found is measured so often beside what was given, by turns.
const PAIRS: usize = 3;

/// The page cache is tried where no more files have to be evicted from it again.
const EVICTED: usize = 20_000;

/// What to tune.
pub struct Tune<'a> {
    /// The dataset, its order, and what happens to its samples.
    pub subject: Subject<'a>,
    /// How it is read now.
    pub config: Config,
    /// Folders, files or patterns of the dataset, as they were given.
    pub paths: Vec<PathBuf>,
    /// Length of an emulated training step: what is faster is not searched for.
    pub emulate_step: Option<Duration>,
    /// Whether to empty the page cache before each measurement.
    pub cold: bool,
    /// The longest time to measure for.
    pub limit: Duration,
    /// Where to pack a sample of the dataset, on its device; `None`: beside it.
    pub scratch: Option<PathBuf>,
}

/// Everything that was found.
pub struct Outcome<'a> {
    /// What was asked for.
    pub tune: &'a Tune<'a>,
    /// The first trial, as the configuration says.
    pub now: Seen,
    /// What limits it.
    pub verdict: Verdict,
    /// A raw read in its best shape.
    yardstick: Yardstick,
    /// The device by itself.
    pub points: Vec<Point>,
    /// What was tried.
    pub tried: Vec<Tried>,
    /// The fastest way to read.
    pub best: Config,
    /// Samples a second of what was given and of the best, by turns.
    pub pairs: Vec<[f64; 2]>,
    /// Other orders and layouts, measured beside.
    pub others: Vec<Other>,
    /// Whether the caller stopped it.
    pub is_interrupted: bool,
    begun: Instant,
}

impl<'a> Tune<'a> {
    /// A dataset and how it is read now; for 28 seconds.
    pub fn new(subject: Subject<'a>, config: Config, paths: Vec<PathBuf>) -> Tune<'a> {
        let limit = Duration::from_secs(28);
        Tune { subject, config, paths, emulate_step: None, cold: false, limit, scratch: None }
    }

    /// Measures. `None` if the caller stopped it before the first figure.
    ///
    /// # Errors
    /// Those of building a loader and of samples, and `Timeout` if no batch came.
    pub fn run(&'a self, caller: &'a Caller) -> Result<Option<Outcome<'a>>> {
        let begun = Instant::now();
        let bed = Bed::new(self, caller, begun);
        let Some(now) = bed.run(&self.config)? else {
            if caller.is_set() {
                return Ok(None);
            }
            let error = Error::new(ErrorKind::Timeout, "no batch came in the time that there was to measure");
            return Err(error.with_remedy("give a longer limit, or smaller batches"));
        };
        if now.route.direct_io {
            bed.read_past_the_cache();
        }
        let mut outcome = Outcome {
            tune: self,
            verdict: now.snapshot.verdict(None),
            now,
            best: self.config.clone(),
            yardstick: Yardstick::default(),
            points: Vec::new(),
            tried: Vec::new(),
            pairs: Vec::new(),
            others: Vec::new(),
            is_interrupted: false,
            begun,
        };
        if outcome.verdict.bottleneck != Bottleneck::Trainer {
            outcome.look(&bed)?;
            outcome.climb(&bed);
            outcome.confirm(&bed)?;
            outcome.beside(&bed);
        }
        outcome.is_interrupted = caller.is_set();
        Ok(Some(outcome))
    }
}

impl Outcome<'_> {
    /// The profile of the fastest way.
    pub fn profile(&self) -> Profile {
        Profile::of(&self.best)
    }

    /// The device by itself, and a raw read of the same samples.
    fn look(&mut self, bed: &Bed<'_>) -> Result<()> {
        let time = (bed.slice / 4).max(std::time::Duration::from_millis(30));
        let io = if self.now.route.direct_io { IoChoice::Direct } else { self.tune.config.io };
        let config = Config { io, ..self.tune.config.clone() };
        self.points = probe::probe(bed, &config, time);
        let sampler = (bed.subject().order)(&self.tune.config)?;
        let run = Run::of(bed.subject(), self.tune.config.clone(), sampler);
        // A raw read that fails shows nothing: the loader's own trials tell what is wrong.
        let _ = self.yardstick.take(&run, bed.slice, bed.caller, || {
            if bed.tune.cold { cold::evict(&*bed.subject().dataset, bed.caller) } else { Ok(()) }
        });
        let evidence = self.yardstick.evidence(self.raw(), Vec::new());
        self.verdict = self.now.snapshot.verdict_with(&evidence);
        Ok(())
    }

    /// A raw read of the same samples, in bytes a second, where it says something.
    pub fn raw(&self) -> Option<f64> {
        let got = self.now.snapshot.stored_bytes_per_second();
        self.yardstick.trusted().filter(|raw| got <= raw * SHARE_MOST)
    }

    fn climb(&mut self, bed: &Bed<'_>) {
        let seen = RefCell::new(vec![(self.tune.config.clone(), self.now.clone())]);
        let is_direct = self.now.route.direct_io;
        let mut measure = |config: &Config| {
            if !bed.has_time(AFTERWARDS) {
                return Reading::Over;
            }
            // The cache is tried empty, as the first pass over it would find it, and is left empty.
            let fills = config.io == IoChoice::Buffered && is_direct;
            if fills && bed.subject().dataset.files().len() > EVICTED {
                return Reading::Refused("there are too many files to empty the page cache of them".to_owned());
            }
            if fills && let Err(error) = cold::evict(&*bed.subject().dataset, bed.caller) {
                return Reading::Refused(error.headline().to_string());
            }
            let result = bed.run(config);
            if fills {
                let _ = cold::evict(&*bed.subject().dataset, bed.caller);
            }
            match result {
                Ok(Some(one)) => {
                    let rate = one.rate;
                    seen.borrow_mut().push((config.clone(), one));
                    Reading::Rate(rate)
                }
                Ok(None) => Reading::Over,
                Err(error) => Reading::Refused(error.headline().to_string()),
            }
        };
        let mut climb = Climb::new(&self.tune.config, self.now.rate, &mut measure);
        climb.leave_to_the_loader();
        // What a raw read found out need not be searched again.
        if let Some(Shape { depth, read_bytes }) = self.yardstick.shape().filter(|_| self.raw().is_some()) {
            climb.consider(Config { queue_depth: depth, read_size: read_bytes, ..climb.best.clone() });
        }
        if self.verdict.bottleneck.is_storage() {
            climb.read_long();
        }
        let best = climb.best.clone();
        let now = seen.borrow().iter().find(|(config, _)| *config == best).map(|(_, seen)| seen.clone());
        let now = now.unwrap_or_else(|| self.now.clone());
        climb.turn(&Knob::by(now.snapshot.verdict(None).bottleneck), &chosen(&now));
        climb.prune();
        self.best = climb.best.clone();
        self.tried = std::mem::take(&mut climb.tried);
    }

    /// What was given, and what was found, by turns.
    fn confirm(&mut self, bed: &Bed<'_>) -> Result<()> {
        if self.best == self.tune.config {
            return Ok(());
        }
        for _ in 0..PAIRS {
            if !bed.has_time(4) {
                break;
            }
            let (given, best) = (bed.run(&self.tune.config)?, bed.run(&self.best)?);
            self.pairs.extend(given.zip(best).map(|(given, best)| [given.rate, best.rate]));
        }
        Ok(())
    }

    /// Samples a second of what was given and of the best: medians of the pairs, else of the search.
    pub fn rates(&self) -> [f64; 2] {
        let median = |which: usize| {
            let mut rates: Vec<f64> = self.pairs.iter().map(|pair| pair[which]).collect();
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied()
        };
        let found = self.tried.iter().find(|tried| tried.config == self.best).and_then(|tried| tried.rate);
        let now = median(0).unwrap_or(self.now.rate);
        [now, median(1).or(found).unwrap_or(now)]
    }

    fn beside(&mut self, bed: &Bed<'_>) {
        let [_, best] = self.rates();
        self.others = others::orders(bed, &self.best, best, self.verdict.bottleneck);
        let seen = Seen { rate: best, ..self.now.clone() };
        self.others.extend(others::packed(bed, &self.best, &seen));
    }
}

/// What the loader chose, and what there is room for.
fn chosen(seen: &Seen) -> Chosen {
    let count = &seen.snapshot.count;
    let group = cgroup::memory().map_or(u64::MAX, |group| group.room());
    Chosen {
        depth: usize::try_from(seen.snapshot.depth).ok().filter(|depth| *depth > 0).unwrap_or(seen.route.queue_depth),
        read_bytes: seen.route.read_bytes,
        memory_limit: seen.memory_limit,
        memory_most: system::memory_available().unwrap_or(u64::MAX).min(group) / 2,
        processors: cgroup::processors(),
        reads_by_threads: seen.route.engine == uringload::config::EngineKind::Threads,
        decodes: count.units_decoded + count.samples_decoded > 0,
    }
}
