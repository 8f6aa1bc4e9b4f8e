//! Finds how to read a dataset fastest on this machine, by measuring.

mod climb;
mod knobs;
mod others;
mod probe;
mod report;
mod trial;
mod turns;

use crate::Caller;
use crate::bench::run::Run;
use crate::bench::yardstick::{Cache, Shape, Yardstick};
use crate::cold;
use crate::subject::Subject;
use climb::{Climb, Reading, Shown};
use knobs::{Chosen, Knob, automatic};
use std::cell::RefCell;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial::Bed;
use turns::{PAIRS_LEAST, Turns, gains};
use uringload::config::{Config, EngineKind, IoChoice, Profile};
use uringload::stats::{Bottleneck, Role, Verdict};
use uringload::{Error, ErrorKind, Result};
use uringload_sys::{cgroup, file, system};

pub use climb::Tried;
pub use knobs::words;
pub use others::Other;
pub use probe::Point;
pub use trial::Seen;
pub use turns::{Judgement, interval, median};

/// Trials that are left for what comes after the search: the pairs, other orders, a packed sample. What is too late for
/// the last of these is left out.
const AFTERWARDS: u32 = 30;

/// Trials that a judgement needs, and a pair more, as its trials may take longer than others: no search is worth more.
const JUDGED: u32 = 2 * (PAIRS_LEAST as u32 + 1);

/// Trials that are left for telling what was found from what the loader chooses.
const SIMPLEST: u32 = 20;

/// A raw read that gives less than the loader, beyond the noise of a good machine, was disturbed and shows nothing.
const SHARE_MOST: f64 = 1.05;

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
    /// The file for the profile, if there is to be one.
    pub out: Option<PathBuf>,
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
    /// What was given, or what is faster than that by more than chance.
    pub best: Config,
    /// The best of the search, if it is another.
    pub found: Option<Config>,
    /// Samples a second of what was given and of what was found, by turns.
    pub pairs: Vec<[f64; 2]>,
    /// Whether what was found is faster; `None` if nothing was searched.
    pub judgement: Option<Judgement>,
    /// By what share two runs of what was given differ, one after the other.
    pub spread: Option<f64>,
    /// Other orders and layouts, measured beside.
    pub others: Vec<Other>,
    /// Whether the caller stopped it.
    pub is_interrupted: bool,
    begun: Instant,
}

impl<'a> Tune<'a> {
    /// The longest time to measure for, unless told otherwise.
    pub const LIMIT: Duration = Duration::from_secs(28);

    /// A dataset and how it is read now.
    pub fn new(subject: Subject<'a>, config: Config, paths: Vec<PathBuf>) -> Tune<'a> {
        let (emulate_step, cold, limit, out, scratch) = (None, false, Tune::LIMIT, None, None);
        Tune { subject, config, paths, emulate_step, cold, limit, out, scratch }
    }

    /// Measures. `None` if the caller stopped it before the first figure.
    ///
    /// # Errors
    /// A profile that could not be written, before anything is measured; those of building a loader and of samples, and
    /// `Timeout` if no batch came.
    pub fn run(&'a self, caller: &'a Caller) -> Result<Option<Outcome<'a>>> {
        let begun = Instant::now();
        self.out.as_ref().map_or(Ok(()), |out| file::may_replace(out).map_err(|why| unwritable(out, why)))?;
        let bed = Bed::new(self, caller, begun);
        let doing = |what| caller.doing(what, Some(bed.deadline));
        let measuring = doing("measuring what was given");
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
            found: None,
            yardstick: Yardstick::default(),
            points: Vec::new(),
            tried: Vec::new(),
            pairs: Vec::new(),
            judgement: None,
            spread: None,
            others: Vec::new(),
            is_interrupted: false,
            begun,
        };
        drop(measuring);
        if outcome.verdict.bottleneck != Bottleneck::Trainer {
            let looking = doing("measuring the device and a raw read");
            outcome.look(&bed)?;
            drop(looking);
            outcome.search(&bed)?;
            let _doing = doing("measuring other orders and a packed sample");
            outcome.others = others::beside(&bed, &outcome.best, &outcome.now, outcome.verdict.bottleneck);
        }
        outcome.is_interrupted = caller.is_set();
        Ok(Some(outcome))
    }
}

fn unwritable(out: &Path, why: io::Error) -> Error {
    Error::io("cannot write the profile", why)
        .with_path(out)
        .with_remedy("name another file (--out, out=), or write none")
}

impl Outcome<'_> {
    /// The profile of the fastest way.
    pub fn profile(&self) -> Profile {
        Profile::of(&self.best)
    }

    /// Writes the profile where it was asked for, unless the caller stopped the search.
    ///
    /// # Errors
    /// Those of writing.
    pub fn save(&self) -> Result<()> {
        let Some(out) = self.tune.out.as_ref().filter(|_| !self.is_interrupted) else { return Ok(()) };
        file::replace(out, |file| file.write_all(self.profile_text().as_bytes())).map_err(|why| unwritable(out, why))
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
        let _ = self.yardstick.take(&run, (bed.slice, Some(bed.deadline)), bed.caller, |cache| {
            if cache == Cache::Filled || !bed.tune.cold {
                return Ok(());
            }
            cold::evict(&*bed.subject().dataset, bed.caller, Some(bed.deadline))
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

    /// Searches, and measures what was found by turns with what was given.
    fn search(&mut self, bed: &Bed<'_>) -> Result<()> {
        let start = &self.tune.config;
        let turns = Turns::new(bed, start);
        // Twice, so that noise is known before the first comparison.
        let begun = (turns.begin()?, turns.begin()?);
        if begun.0.is_some() {
            let _doing = bed.caller.doing("searching, each by turns with what was given", Some(bed.deadline));
            self.climb(bed, &turns);
        }
        self.spread = turns.spread();
        let Some(found) = self.found.take() else {
            // The first of all is what was given.
            self.judgement = Some(Judgement::of_none(self.tried.len().saturating_sub(1), self.spread));
            return Ok(());
        };
        let _doing = bed.caller.doing("measuring what was found by turns with what was given", Some(bed.deadline));
        let spread = self.spread.unwrap_or(0.0);
        let is_enough = |gains: &[f64]| turns::is_settled(gains, spread);
        let found = self.found.insert(self.simplest(bed, found, spread)?).clone();
        self.pairs = turns::pairs(bed, || bed.run(start), || self.trial(bed, &found), is_enough)?;
        let judgement = Judgement::of(&gains(&self.pairs), spread);
        if judgement == Judgement::Faster {
            self.best = found;
        }
        self.judgement = Some(judgement);
        Ok(())
    }

    /// What was found, or everything left to the loader unless the first is faster by turns. The search sees each of
    /// many once, so that the luckiest of equals wins, and that is another one in each search.
    fn simplest(&self, bed: &Bed<'_>, found: Config, spread: f64) -> Result<Config> {
        let plain = automatic(&found);
        let was_seen = self.tried.iter().any(|tried| tried.config == plain && tried.rate.is_some());
        if found == plain || plain == self.tune.config || !was_seen {
            return Ok(found);
        }
        let is_over = |gains: &[f64]| gains.len() >= PAIRS_LEAST || !bed.has_time_as_seen(JUDGED);
        let is_enough = |gains: &[f64]| is_over(gains) || turns::is_settled(gains, spread);
        let pairs = turns::pairs(bed, || self.trial(bed, &plain), || self.trial(bed, &found), is_enough)?;
        Ok(if Judgement::of(&gains(&pairs), spread) == Judgement::Faster { found } else { plain })
    }

    fn climb(&mut self, bed: &Bed<'_>, turns: &Turns<'_>) {
        let seen = RefCell::new(vec![(self.tune.config.clone(), self.now.clone())]);
        let is_automatic = automatic(&self.tune.config) == self.tune.config;
        let afterwards = if is_automatic { AFTERWARDS } else { AFTERWARDS + SIMPLEST };
        let mut measure = |config: &Config| {
            if !bed.has_time(afterwards) || !bed.has_time_as_seen(JUDGED) {
                return Reading::Over;
            }
            if self.fills(config) && bed.subject().dataset.files().len() > EVICTED {
                return Reading::Refused("there are too many files to empty the page cache of them".to_owned());
            }
            let result = turns.between(|| self.trial(bed, config));
            match result {
                Ok(Some((one, gain))) => {
                    let shown = turns.shown(&one, gain, chosen(&one));
                    seen.borrow_mut().push((config.clone(), one));
                    Reading::Seen(shown)
                }
                Ok(None) => Reading::Over,
                Err(error) => Reading::Refused(error.headline().to_string()),
            }
        };
        let first = Shown { rate: self.now.rate, ..turns.shown(&self.now, 1.0, chosen(&self.now)) };
        let mut climb = Climb::new(&self.tune.config, first, &mut measure);
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
        let (best, tried) = (climb.best.clone(), std::mem::take(&mut climb.tried));
        (self.found, self.tried) = (Some(best).filter(|found| *found != self.tune.config), tried);
    }

    /// Whether a configuration fills a page cache that the loader reads past.
    fn fills(&self, config: &Config) -> bool {
        config.io == IoChoice::Buffered && self.now.route.direct_io
    }

    /// A trial. The page cache is tried empty, as the first pass over it would find it, and is left empty.
    fn trial(&self, bed: &Bed<'_>, config: &Config) -> Result<Option<Seen>> {
        if !self.fills(config) {
            return bed.run(config);
        }
        cold::evict(&*bed.subject().dataset, bed.caller, Some(bed.deadline))?;
        let result = bed.run(config);
        let _ = cold::evict(&*bed.subject().dataset, bed.caller, None);
        result
    }

    /// The gains of all pairs.
    pub fn gains(&self) -> Vec<f64> {
        gains(&self.pairs)
    }

    /// How many times as fast as what was given the profile is: the median of the pairs.
    pub fn gain(&self) -> f64 {
        let is_faster = self.judgement == Some(Judgement::Faster);
        median(&self.gains()).filter(|_| is_faster).unwrap_or(1.0)
    }

    /// Samples a second of what was given and of the best.
    pub fn rates(&self) -> [f64; 2] {
        let given: Vec<f64> = self.pairs.iter().map(|pair| pair[0]).collect();
        let now = median(&given).unwrap_or(self.now.rate);
        [now, now * self.gain()]
    }
}

/// What the loader chose, and what there is room for.
fn chosen(seen: &Seen) -> Chosen {
    let count = &seen.snapshot.count;
    let group = cgroup::memory().map_or(u64::MAX, |group| group.room());
    let processors = cgroup::processors();
    let threads = seen.snapshot.threads.iter().filter(|thread| thread.role == Role::Stage).count();
    Chosen {
        depth: usize::try_from(seen.snapshot.depth).ok().filter(|depth| *depth > 0).unwrap_or(seen.route.queue_depth),
        read_bytes: seen.route.read_bytes,
        memory_limit: seen.memory_limit,
        memory_most: system::memory_available().unwrap_or(u64::MAX).min(group) / 2,
        processors,
        threads: if threads > 0 { threads } else { processors },
        reads_by_threads: matches!(seen.route.engine, EngineKind::Threads | EngineKind::Remote),
        is_direct: seen.route.direct_io,
        // What lies together is read together by the loader's own choice.
        joins: !seen.route.locality.is_empty(),
        decodes: count.units_decoded + count.samples_decoded > 0,
    }
}
