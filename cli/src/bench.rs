//! `uringload bench`: reads a dataset as a training run would, and reports the speed and what limits it.

mod accelerator;
mod ceilings;
mod compare;
mod device;
mod found;
mod gpus;
mod html;
pub mod machine;
pub mod measure;
mod progress;
mod report;
mod series;
mod spread;
mod step;
mod table;
mod timeline;
mod trainer;
mod watch;
pub mod yardstick;

use crate::Done;
use crate::arguments::{Bench, EngineName, Way, config};
use crate::cold;
use crate::data::{Data, Made};
use crate::failure::{Exit, Failure};
use crate::interrupt::{Interrupt, eprintln_quietly};
use crate::output;
use crate::ranks::Ranks;
use compare::Compared;
use measure::{End, Measured, Run};
pub use progress::Progress;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uringload::config::Config;
use uringload::config::{Route, Shuffle};
use uringload::inspect::raw;
use uringload::inspect::raw::bus::BusRates;
use uringload::stats::{Evidence, Trial, Tried};
use uringload::{Error, ErrorKind, State};
use uringload_sys::file::replace;

pub use gpus::Gpus;
pub use report::RouteReport;
use yardstick::Yardstick;

/// Longest raw read: long enough to be steady, short compared with the rest of the wait.
const RAW_LIMIT: Duration = Duration::from_secs(3);

/// Longest trial of another way to read.
const TRIAL_LIMIT: Duration = Duration::from_secs(1);

/// So many times the loader's reads in flight are tried, and so many at least and at most.
const DEEPER: usize = 4;
const DEEP: usize = 64;
const DEEPEST: usize = 1024;

/// Memory that a trial may take for its reads, beyond the least depth.
const TRIAL_BYTES: usize = 128 << 20;

/// How long a generated dataset is read, unless told otherwise.
const MADE_DURATION: Duration = Duration::from_secs(3);

/// Runs the rounds, then prints the results.
pub fn run(options: &Bench) -> Done {
    let interrupt = Interrupt::install();
    // Kept until the end: dropping it deletes the files.
    let made = if options.paths.is_empty() {
        match Made::new(&interrupt)? {
            Some(made) => Some(made),
            None => return Ok(Exit::Interrupted),
        }
    } else {
        None
    };
    let paths = made.as_ref().map_or_else(|| options.paths.clone(), |made| vec![made.path().to_path_buf()]);
    let data = Data::choose(&paths, &options.format.under(&options.failing), &options.chosen)?;
    let (ranks, state) = (Ranks::of(&options.order)?, options.checkpoint.load()?);
    let bench = Runner { options, data: &data, interrupt: &interrupt, yardstick: Yardstick::default() };
    let result = bench.rounds(ranks, state)?;
    let report = report::Report::of(&result);
    let saved = result.rounds.last().map_or(Ok(()), |last| options.checkpoint.save(&last.measured.state));
    print(options, &result, &report)?;
    saved?;
    match result.error() {
        Some(error) => Err(Failure::Loader(error.clone())),
        None if interrupt.is_set() => Ok(Exit::Interrupted),
        None => Ok(Exit::Done),
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
    /// The command's options.
    pub options: &'a Bench,
    /// The configuration of the loader.
    pub config: Config,
    /// The rank, and where it was taken from.
    pub ranks: Ranks,
    /// The state from which each round resumed.
    pub state: Option<State>,
    /// The time limit of each run.
    pub duration: Option<Duration>,
    /// The dataset.
    pub data: &'a Data,
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
        is_cold(self.options)
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
        self.options.compare.iter().filter_map(median).collect()
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
    options: &'a Bench,
    data: &'a Data,
    interrupt: &'a Interrupt,
    yardstick: Yardstick,
}

impl<'a> Runner<'a> {
    fn rounds(mut self, ranks: Ranks, state: Option<State>) -> Result<Outcome<'a>, Failure> {
        let options = self.options;
        let asked = options.epochs.or(options.more_epochs);
        // A generated dataset is read in no time, so it is read over and over.
        let duration = options.duration.or((options.paths.is_empty() && asked.is_none()).then_some(MADE_DURATION));
        let epochs = asked.or(if duration.is_some() { None } else { Some(1) });
        if let (Some(epochs), Some(state)) = (options.epochs, &state)
            && state.cursor().epoch >= epochs
        {
            let what =
                format!("the state stands in epoch {}, and --epochs {epochs} ends before it", state.cursor().epoch);
            let error = Error::new(ErrorKind::InvalidArgument, what);
            return Err(error
                .with_remedy("epochs count from 0: give more, or --more-epochs N to read N from here")
                .into());
        }
        let more_epochs = options.epochs.is_none();
        let trace = options.trace.clone();
        let config = Config {
            epochs,
            more_epochs,
            trace,
            ..ranks.apply(config(&options.order, &options.means, &options.rows, &options.failing))
        };
        let simulated = options.means.engine == EngineName::Sim;
        if simulated && !options.compare.is_empty() {
            let error = Error::new(ErrorKind::InvalidArgument, "a simulated disk cannot be compared");
            return Err(error.with_remedy("leave out --compare").into());
        }
        let dataset = &self.data.dataset;
        let sampler = self.data.sampler(&config, &options.chosen)?;
        let devices = options.devices.list();
        let gpus = Gpus::open(&devices);
        let (images, step, accelerators) = (&options.images, options.emulate_step, options.accelerators);
        let run = Run { dataset, config, images, sampler, state, step, accelerators, duration, devices, gpus };
        let mut rounds: Vec<Round> = Vec::new();
        for number in 0..options.rounds {
            let name = if options.rounds > 1 { format!("round {}", number + 1) } else { "reading".to_owned() };
            let round = self.round(&run, &name, number % 2 == 1, simulated, rounds.first())?;
            let is_cut_short = self.interrupt.is_set();
            let is_failed = matches!(round.measured.end, End::Failed(_));
            // An interrupted round says less than complete ones, if there are any.
            if !is_cut_short || rounds.is_empty() {
                rounds.push(round);
            }
            if is_cut_short || is_failed {
                break;
            }
        }
        let trials = if simulated { Vec::new() } else { self.trials(&run, &rounds)? };
        let mut outcome = Outcome {
            options,
            config: run.config.clone(),
            ranks,
            state: run.state.clone(),
            duration,
            data: self.data,
            rounds,
            trials,
            yardstick: Yardstick::default(),
        };
        let mut yardstick = std::mem::take(&mut self.yardstick);
        if !self.interrupt.is_set() {
            let limit = raw_limit(&run);
            let checked = yardstick.check(
                |raw| outcome.median().measured.share_of_raw(raw),
                |anew| anew.take(&run, limit, self.interrupt, || self.empty_cache()).map(drop),
            );
            checked.or_else(|error| untold(error).map(drop))?;
        }
        outcome.yardstick = yardstick;
        Ok(outcome)
    }

    /// Every second round runs in reverse order, so that a device that gets slower or faster does not favour whoever is
    /// first.
    fn round(
        &mut self,
        run: &Run<'_>,
        name: &str,
        backwards: bool,
        simulated: bool,
        first: Option<&Round>,
    ) -> Result<Round, Failure> {
        let mut compared = Vec::new();
        if backwards {
            compared = self.compare(run, first)?;
        }
        // Before and after the loader: storage that gets slower or faster meanwhile shows in the spread.
        let mut raw = if simulated { None } else { self.raw(run)? };
        self.empty_cache()?;
        let measured = measure::measure(run, name, self.interrupt)?;
        if matches!(measured.end, End::Complete | End::OutOfTime) && !simulated {
            let after = self.raw(run)?;
            raw = raw.zip(after).map_or(raw, |(before, after)| Some(f64::midpoint(before, after)));
            if !backwards {
                compared = self.compare(run, first)?;
            }
        }
        let ended_well = matches!(measured.end, End::Complete | End::OutOfTime);
        let bus = if ended_well { run.gpus.bus(run.duration, self.interrupt) } else { None };
        Ok(Round { measured, raw, bus, compared })
    }

    fn empty_cache(&mut self) -> uringload::Result<()> {
        if is_cold(self.options) { cold::evict(&*self.data.dataset, self.interrupt) } else { Ok(()) }
    }

    fn raw(&mut self, run: &Run<'_>) -> Result<Option<f64>, Failure> {
        if self.options.no_raw || self.interrupt.is_set() {
            return Ok(None);
        }
        let mut yardstick = std::mem::take(&mut self.yardstick);
        let rate = yardstick.take(run, raw_limit(run), self.interrupt, || self.empty_cache());
        self.yardstick = yardstick;
        rate.or_else(untold)
    }

    /// Where the storage is the limit: whether more reads in flight, or longer ones, would bring more. Through the page
    /// cache what was just read would answer instead of the storage, so nothing is tried.
    fn trials(&mut self, run: &Run<'_>, rounds: &[Round]) -> Result<Vec<Trial>, Failure> {
        let Some(last) = rounds.last().filter(|last| last.raw.is_some()) else { return Ok(Vec::new()) };
        let verdict = last.measured.verdict(&self.yardstick.evidence(last.raw, Vec::new()));
        let Route { direct_io, queue_depth, read_bytes, .. } = last.measured.route;
        if !verdict.bottleneck.is_storage() || !direct_io || self.interrupt.is_set() {
            return Ok(Vec::new());
        }
        let deeper = (queue_depth * DEEPER).clamp(DEEP, DEEPEST).min((TRIAL_BYTES / read_bytes.max(1)).max(DEEP));
        let deep = Config { queue_depth: Some(deeper), ..run.config.clone() };
        let straight = Config { shuffle: Shuffle::Off, ..run.config.clone() };
        let sampler = self.data.sampler(&straight, &self.options.chosen)?;
        let limit = run.duration.map_or(TRIAL_LIMIT, |duration| duration.min(TRIAL_LIMIT));
        let ways = [(Tried::Depth(deeper), deep, Arc::clone(&run.sampler)), (Tried::LongReads, straight, sampler)];
        let mut trials = Vec::new();
        for (tried, config, sampler) in ways {
            if self.interrupt.is_set() {
                break;
            }
            self.empty_cache()?;
            // A trial that fails shows nothing; the run itself has told what is wrong.
            if let Ok(raw) = raw::measure(run.dataset, &config, &sampler, limit, || self.interrupt.is_set()) {
                trials.push(Trial { tried, bytes_per_second: raw.bytes_per_second() });
            }
        }
        Ok(trials)
    }

    /// The first round searches for the best number of threads; the others keep it.
    fn compare(&mut self, run: &Run<'_>, first: Option<&Round>) -> Result<Vec<Compared>, Failure> {
        let mut all = Vec::new();
        for &way in &self.options.compare {
            let known = first.and_then(|round| round.compared.iter().find(|one| one.way == way));
            let interrupt = self.interrupt;
            match compare::best(run, way, known.map(|one| one.threads), interrupt, || self.empty_cache())? {
                Some(compared) => all.push(compared),
                None => break,
            }
        }
        Ok(all)
    }
}

/// Whether the page cache is emptied before each measurement. A simulated disk is behind none.
fn is_cold(options: &Bench) -> bool {
    options.cold && options.means.engine != EngineName::Sim
}

fn raw_limit(run: &Run<'_>) -> Duration {
    run.duration.map_or(RAW_LIMIT, |duration| duration.min(RAW_LIMIT))
}

/// Goes on without a raw read if a sample is to blame: the loader will hit the same one, and knows how to handle it.
fn untold(error: Error) -> Result<Option<f64>, Failure> {
    if !is_of_a_sample(error.kind()) {
        return Err(error.into());
    }
    eprintln_quietly(&format!("uringload: no raw read to compare with: {}", error.headline()));
    Ok(None)
}

/// Whether the problem is the data being read, not the way of reading.
fn is_of_a_sample(kind: ErrorKind) -> bool {
    use ErrorKind::{Changed, Corrupt, Io, NotFound, PermissionDenied, Timeout, Truncated, WrongFileType};
    matches!(kind, Changed | Corrupt | Io | NotFound | PermissionDenied | Timeout | Truncated | WrongFileType)
}

/// Writes the JSON if requested, and the table unless the JSON replaces it. If one cannot be written, the other still
/// is.
fn print(options: &Bench, outcome: &Outcome<'_>, report: &report::Report) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report).map_err(io::Error::from)? + "\n";
    let mut saved = Ok(());
    if let Some(path) = &options.html {
        let dearest = outcome.median().measured.dearest.iter().map(|sample| sample.id);
        let pictures = html::thumbnails::of(&outcome.data.dataset, dearest);
        // Of the text, so that the report is compiled for one serializer and not for two.
        let page = html::page(&serde_json::from_str(&json).map_err(io::Error::from)?, &pictures);
        saved = replace(path, |file| file.write_all(page.as_bytes()))
            .map_err(|source| Failure::Loader(Error::io("cannot write the page", source).with_path(path)));
    }
    let is_table = options.json.as_deref() != Some(Path::new("-"));
    let text = match &options.json {
        Some(path) if path == Path::new("-") => json,
        Some(path) => {
            saved = saved.and(
                replace(path, |file| file.write_all(json.as_bytes()))
                    .map_err(|source| Failure::Loader(Error::io("cannot write the JSON", source).with_path(path))),
            );
            table::of(outcome)
        }
        None => table::of(outcome),
    };
    if is_table {
        output::print_table(&text, table::NAMES)?
    } else {
        output::print(&text)?
    }
    // Of rounds, the last one's trace is what is there.
    let untraced = outcome.rounds.last().and_then(|round| round.measured.untraced.clone());
    saved = saved.and(untraced.map_or(Ok(()), |error| Err(Failure::Loader(error))));
    if !matches!(outcome.median().measured.end, End::Complete | End::OutOfTime) {
        eprintln_quietly("uringload: the figures are of what was read before the end came early");
    }
    saved
}
