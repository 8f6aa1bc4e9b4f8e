//! Reads a dataset as a training run would, and finds how fast that is and what limits it.

mod accelerator;
mod ceilings;
pub mod compare;
pub mod device;
mod found;
mod gpus;
pub mod machine;
pub mod report;
pub mod run;
mod series;
pub mod spread;
mod step;
mod timeline;
mod trainer;
mod watch;
pub mod workload;
pub mod yardstick;

use crate::Caller;
use crate::cold;
use crate::subject::Subject;
use crate::text;
use compare::Compared;
use run::{End, Measured, Run};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::{Config, Device, EngineChoice, Route, Shuffle};
use uringload::inspect::raw;
use uringload::inspect::raw::bus::BusRates;
use uringload::stats::{Evidence, Trial, Tried};
use uringload::{Error, ErrorKind, Result, State};

pub use gpus::Gpus;
pub use report::{Report, RouteReport};
pub use workload::Workload;
use yardstick::{Cache, Yardstick};

/// Longest raw read: long enough to be steady, short compared with the rest of the wait.
const RAW_LIMIT: Duration = Duration::from_secs(3);

/// All of a bench takes this many times its duration at most, for each round and each way of reading.
const TIMES: u32 = 2;

/// Shares of the duration: the raw reads before the loader and after it, with their search, and each of them.
const BEFORE: f64 = 0.45;
const AFTER: f64 = 0.33;
const RAW_SHARE: f64 = 0.3;

/// This share of the time is left for reads in flight to end, and for what prints.
const ENDING: f64 = 0.25;

/// A run that is shorter than this share of its duration is no measurement.
const LEAST: f64 = 0.25;

/// Longest trial of another way to read, and its share of the duration.
const TRIAL_LIMIT: Duration = Duration::from_secs(1);
const TRIAL_SHARE: f64 = 0.1;

/// A trial has this many times the loader's reads in flight, within these bounds.
const DEEPER: usize = 4;
const DEEP: usize = 64;
const DEEPEST: usize = 1024;

/// Memory that a trial may take for its reads, beyond the least depth.
const TRIAL_BYTES: usize = 128 << 20;

/// Other ways to read the same samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Threads that call pread past the page cache, at their best count.
    Threads,
    /// Threads that call pread through the page cache, at their best count.
    Buffered,
    /// Threads that map files and touch every page, at their best count.
    Mmap,
}

impl Way {
    /// For the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Way::Threads => "threads",
            Way::Buffered => "buffered",
            Way::Mmap => "mmap",
        }
    }
}

/// What to measure, and how.
pub struct Bench<'a> {
    /// The dataset, its order, and what happens to its samples.
    pub subject: Subject<'a>,
    /// How it is read, and for how many epochs.
    pub config: Config,
    /// The variables that rank and world size were taken from, if any.
    pub ranks_from: Option<String>,
    /// The state from which each round resumes.
    pub state: Option<State>,
    /// The time limit of each run. All that a bench does since it has `begun` takes twice as long at most, for each
    /// round and each way of reading.
    pub duration: Option<Duration>,
    /// When it began: opening the dataset counts.
    pub begun: Instant,
    /// How often to measure.
    pub rounds: u32,
    /// Whether to empty the page cache before each measurement.
    pub cold: bool,
    /// Whether to compare with a raw read of the same files.
    pub raw: bool,
    /// Other ways of reading to compare with.
    pub compare: Vec<Way>,
    /// Length of an emulated training step.
    pub emulate_step: Option<Duration>,
    /// Emulated accelerators, which take batches in turn.
    pub accelerators: usize,
    /// The workload that this emulates.
    pub mlperf: Option<Workload>,
    /// Where batches end up; if empty, where they were read to.
    pub devices: Vec<Device>,
}

impl<'a> Bench<'a> {
    /// One round of a dataset, without anything else.
    pub fn new(subject: Subject<'a>, config: Config) -> Bench<'a> {
        Bench {
            subject,
            config,
            ranks_from: None,
            state: None,
            duration: None,
            begun: Instant::now(),
            rounds: 1,
            cold: false,
            raw: true,
            compare: Vec::new(),
            emulate_step: None,
            accelerators: 1,
            mlperf: None,
            devices: Vec::new(),
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// Those of building a loader and of emptying the page cache; `Timeout` if what comes before the first run takes
    /// all of the time. An error in the place of a batch ends the bench: see [`Outcome::error`].
    pub fn run(&'a self, caller: &'a Caller) -> Result<Outcome<'a>> {
        Runner { bench: self, caller, yardstick: Yardstick::default(), is_empty: false }.rounds()
    }

    /// Whether the page cache is emptied before each measurement. A simulated disk and a store
    /// are behind none.
    pub fn is_cold(&self) -> bool {
        self.cold && !self.is_simulated() && !self.subject.dataset.files().has_objects()
    }

    fn is_simulated(&self) -> bool {
        self.config.engine == EngineChoice::Sim
    }
}

/// One round: every way of reading once, under the same conditions.
pub struct Round {
    /// The loader's result.
    pub measured: Measured,
    /// A raw read of the same files, in bytes per second.
    pub raw: Option<f64>,
    /// The rate of copies to the GPUs without anything in the way, if there are any.
    pub bus: Option<BusRates>,
    /// The other ways of reading that were requested.
    pub compared: Vec<Compared>,
}

/// All results of a bench.
pub struct Outcome<'a> {
    /// What was asked for.
    pub bench: &'a Bench<'a>,
    /// At least one.
    pub rounds: Vec<Round>,
    /// What else was tried on the storage, if it is the limit.
    pub trials: Vec<Trial>,
    /// The raw reads of all rounds.
    pub yardstick: Yardstick,
}

impl Outcome<'_> {
    /// Whether the page cache was emptied before each measurement.
    pub fn is_cold(&self) -> bool {
        self.bench.is_cold()
    }

    /// The round whose rate is the median (the lower one of two), with all its figures.
    pub fn median(&self) -> &Round {
        let mut order: Vec<&Round> = self.rounds.iter().collect();
        order.sort_by(|a, b| a.measured.bytes_per_second().total_cmp(&b.measured.bytes_per_second()));
        order[(order.len() - 1) / 2]
    }

    /// The median of the raw reads, if the loader may be compared with it.
    pub fn raw(&self) -> Option<f64> {
        self.yardstick.trusted()
    }

    /// Whether the time was over before a raw read that was wanted.
    pub fn lacks_raw_read(&self) -> bool {
        let is_wanted = self.bench.raw && !self.bench.is_simulated() && self.bench.duration.is_some();
        is_wanted && self.yardstick.rate().is_none()
    }

    /// What is known besides the loader's own measurements.
    pub fn evidence(&self) -> Evidence {
        self.yardstick.evidence(self.raw(), self.trials.clone())
    }

    /// The round with the median rate, for each other way of reading.
    pub fn compared(&self) -> Vec<&Compared> {
        let median = |way: &Way| {
            let mut all: Vec<&Compared> =
                self.rounds.iter().flat_map(|round| round.compared.iter().filter(|one| one.way == *way)).collect();
            all.sort_by(|a, b| a.bytes_per_second().total_cmp(&b.bytes_per_second()));
            all.get(all.len().saturating_sub(1) / 2).copied()
        };
        self.bench.compare.iter().filter_map(median).collect()
    }

    /// The error that ended the bench.
    pub fn error(&self) -> Option<&Error> {
        self.rounds.iter().find_map(|round| match &round.measured.end {
            End::Failed(error) => Some(error),
            _ => None,
        })
    }
}

struct Runner<'a> {
    bench: &'a Bench<'a>,
    caller: &'a Caller,
    yardstick: Yardstick,
    /// Whether the page cache was emptied, and not filled since.
    is_empty: bool,
}

impl<'a> Runner<'a> {
    fn rounds(mut self) -> Result<Outcome<'a>> {
        let bench = self.bench;
        let subject = &bench.subject;
        let mut run = Run {
            dataset: &subject.dataset,
            config: bench.config.clone(),
            prepare: &*subject.prepare,
            sampler: (subject.order)(&bench.config)?,
            state: bench.state.clone(),
            step: bench.emulate_step,
            accelerators: bench.accelerators,
            duration: bench.duration,
            devices: bench.devices.clone(),
            gpus: Gpus::open(&bench.devices),
        };
        let simulated = bench.is_simulated();
        let mut rounds: Vec<Round> = Vec::new();
        for number in 0..bench.rounds {
            let name = if bench.rounds > 1 { format!("round {}", number + 1) } else { "reading".to_owned() };
            let round = self.round(&mut run, &name, number, rounds.first())?;
            let is_cut_short = self.caller.is_set();
            let is_failed = matches!(round.measured.end, End::Failed(_));
            // An interrupted round says less than complete ones, if there are any.
            if !is_cut_short || rounds.is_empty() {
                rounds.push(round);
            }
            if is_cut_short || is_failed {
                break;
            }
        }
        let end = self.end(bench.rounds.saturating_sub(1));
        let trials = if simulated { Vec::new() } else { self.trials(&run, &rounds, end)? };
        let mut outcome = Outcome { bench, rounds, trials, yardstick: Yardstick::default() };
        let mut yardstick = std::mem::take(&mut self.yardstick);
        if !self.caller.is_set() {
            let limit = (self.raw_limit(), end);
            let checked = yardstick.check(
                |raw| outcome.median().measured.share_of_raw(raw),
                |anew| anew.take(&run, limit, self.caller, |cache| self.cache(cache, end)).map(drop),
            );
            checked.or_else(|error| self.untold(error).map(drop))?;
        }
        outcome.yardstick = yardstick;
        Ok(outcome)
    }

    /// Every second round runs in reverse order, so that a device that gets slower or faster does not favour whoever is
    /// first.
    fn round(&mut self, run: &mut Run<'a>, name: &str, number: u32, first: Option<&Round>) -> Result<Round> {
        let (backwards, simulated) = (number % 2 == 1, self.bench.is_simulated());
        let mut compared = Vec::new();
        if backwards {
            compared = self.compare(run, first)?;
        }
        // What is compared afterwards takes its time, too.
        let comparing = if backwards { 0 } else { TIMES * self.bench.compare.len() as u32 };
        let end = self.end(number).map(|end| end - run.duration.unwrap_or_default() * comparing);
        let latest = end.map(|end| end - run.duration.unwrap_or_default());
        // Before and after the loader: storage that gets slower or faster meanwhile shows in the spread.
        let mut raw = if simulated { None } else { self.raw(run, latest.min(self.share(BEFORE)))? };
        self.cache(Cache::Empty, end)?;
        let measured = self.measure(run, name, end)?;
        if matches!(measured.end, End::Complete | End::OutOfTime) && !simulated {
            let after = self.raw(run, end.min(self.share(AFTER)))?;
            raw = raw.zip(after).map_or(raw, |(before, after)| Some(f64::midpoint(before, after)));
            if !backwards {
                compared = self.compare(run, first)?;
            }
        }
        let ended_well = matches!(measured.end, End::Complete | End::OutOfTime);
        let bus = if ended_well { run.gpus.bus(run.duration, self.caller) } else { None };
        Ok(Round { measured, raw, bus, compared })
    }

    /// When a round has to be over.
    fn end(&self, number: u32) -> Option<Instant> {
        let ways = u32::try_from(self.bench.compare.len()).unwrap_or(u32::MAX).saturating_add(1);
        let times = number.saturating_add(1).saturating_mul(ways).saturating_mul(TIMES);
        let duration = self.bench.duration?;
        self.bench.begun.checked_add(duration.checked_mul(times)?.checked_sub(duration.mul_f64(ENDING))?)
    }

    /// When this share of the duration from now on is over.
    fn share(&self, share: f64) -> Option<Instant> {
        self.bench.duration.map(|duration| Instant::now() + duration.mul_f64(share))
    }

    fn raw_limit(&self) -> Duration {
        self.bench.duration.map_or(RAW_LIMIT, |duration| duration.mul_f64(RAW_SHARE).min(RAW_LIMIT))
    }

    /// The loader's run, which is shorter where what came before took its time.
    fn measure(&mut self, run: &mut Run<'a>, name: &str, end: Option<Instant>) -> Result<Measured> {
        if let Some((duration, end)) = self.bench.duration.zip(end) {
            let left = end.saturating_duration_since(Instant::now()).min(duration);
            if left < duration.mul_f64(LEAST) {
                let took = text::time(self.bench.begun.elapsed());
                let what = format!("opening the dataset and what else comes before the first batch took {took}");
                let error = Error::new(ErrorKind::Timeout, what);
                let remedy = "give a longer duration (--duration): all of it takes twice as long at most";
                return Err(error.with_remedy(remedy));
            }
            run.duration = Some(left);
        }
        let measured = run::measure(run, name, self.caller);
        run.duration = self.bench.duration;
        let measured = measured?;
        self.is_empty &= measured.route.direct_io;
        Ok(measured)
    }

    /// Empties the page cache where a cold start is measured, unless it is empty.
    fn cache(&mut self, cache: Cache, until: Option<Instant>) -> Result<()> {
        if cache == Cache::Empty && self.bench.is_cold() && !self.is_empty {
            cold::evict(&*self.bench.subject.dataset, self.caller, until)?;
        }
        self.is_empty = cache == Cache::Empty;
        Ok(())
    }

    fn raw(&mut self, run: &Run<'_>, until: Option<Instant>) -> Result<Option<f64>> {
        if !self.bench.raw || self.caller.is_set() {
            return Ok(None);
        }
        let mut yardstick = std::mem::take(&mut self.yardstick);
        let limit = (self.raw_limit(), until);
        let rate = yardstick.take(run, limit, self.caller, |cache| self.cache(cache, until));
        self.yardstick = yardstick;
        rate.or_else(|error| self.untold(error))
    }

    /// Where the storage is the limit: whether more reads in flight, or longer ones, would bring more. Through the page
    /// cache what was just read would answer instead of the storage, so nothing is tried.
    fn trials(&mut self, run: &Run<'_>, rounds: &[Round], end: Option<Instant>) -> Result<Vec<Trial>> {
        let Some(last) = rounds.last().filter(|last| last.raw.is_some()) else { return Ok(Vec::new()) };
        let verdict = last.measured.verdict(&self.yardstick.evidence(last.raw, Vec::new()));
        let Route { direct_io, queue_depth, read_bytes, .. } = last.measured.route;
        if !verdict.bottleneck.is_storage() || !direct_io || self.caller.is_set() {
            return Ok(Vec::new());
        }
        let deeper = (queue_depth * DEEPER).clamp(DEEP, DEEPEST).min((TRIAL_BYTES / read_bytes.max(1)).max(DEEP));
        let deep = Config { queue_depth: Some(deeper), ..run.config.clone() };
        let straight = Config { shuffle: Shuffle::Off, ..run.config.clone() };
        let sampler = (self.bench.subject.order)(&straight)?;
        let reads_per_s = run::rate(last.measured.snapshot.count.reads, last.measured.wall);
        let limit = run.duration.map_or(TRIAL_LIMIT, |duration| duration.mul_f64(TRIAL_SHARE).min(TRIAL_LIMIT));
        let _doing = self.caller.doing("trying more reads in flight, and longer ones", end);
        let ways = [(Tried::Depth(deeper), deep, Arc::clone(&run.sampler)), (Tried::LongReads, straight, sampler)];
        let mut trials = Vec::new();
        for (tried, config, sampler) in ways {
            // The reads that are in flight at its end must end, too.
            let in_flight = if let Tried::Depth(depth) = tried { depth } else { queue_depth };
            let drain = Duration::from_secs_f64(in_flight as f64 / reads_per_s.max(1.0));
            if self.caller.is_set() || end.is_some_and(|end| Instant::now() + limit + drain > end) {
                break;
            }
            self.cache(Cache::Empty, end)?;
            // A trial that fails shows nothing; the run itself has told what is wrong.
            if let Ok(raw) = raw::measure(run.dataset, &config, &sampler, limit, || self.caller.is_set()) {
                trials.push(Trial { tried, bytes_per_second: raw.bytes_per_second() });
            }
        }
        Ok(trials)
    }

    /// Goes on without a raw read if a sample is to blame: the loader will hit the same one, and knows how to handle
    /// it.
    fn untold(&self, error: Error) -> Result<Option<f64>> {
        if !is_of_a_sample(error.kind()) {
            return Err(error);
        }
        self.caller.say(&format!("no raw read to compare with: {}", error.headline()));
        Ok(None)
    }

    /// The first round searches for the best number of threads; the others keep it.
    fn compare(&mut self, run: &Run<'_>, first: Option<&Round>) -> Result<Vec<Compared>> {
        let mut all = Vec::new();
        for &way in &self.bench.compare {
            let known = first.and_then(|round| round.compared.iter().find(|one| one.way == way));
            let caller = self.caller;
            let _doing = caller.doing(&format!("comparing with {}", way.name()), None);
            // What is known to fill the page cache is read after that was emptied.
            let prepare = || self.cache(Cache::Empty, None).and_then(|()| self.cache(Cache::Filled, None));
            match compare::best(run, way, known.map(|one| one.threads), caller, prepare)? {
                Some(compared) => all.push(compared),
                None => break,
            }
        }
        Ok(all)
    }
}

/// Whether the problem is the data being read, not the way of reading.
fn is_of_a_sample(kind: ErrorKind) -> bool {
    use ErrorKind::{Changed, Corrupt, Io, NotFound, PermissionDenied, Timeout, Truncated, WrongFileType};
    matches!(kind, Changed | Corrupt | Io | NotFound | PermissionDenied | Timeout | Truncated | WrongFileType)
}
