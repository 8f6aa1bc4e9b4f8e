//! `uringload tune`: finds how to read a dataset fastest on this machine, by measuring.

mod climb;
mod knobs;
mod others;
mod probe;
mod told;
mod trial;

use crate::Done;
use crate::arguments::{EngineName, Tune, config};
use crate::bench::measure::Run;
use crate::bench::yardstick::{Shape, Yardstick};
use crate::cold;
use crate::data::Data;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output;
use crate::ranks::Ranks;
use climb::{Climb, Reading, Tried};
use knobs::{Chosen, Knob};
use others::Other;
use probe::Point;
use std::cell::RefCell;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;
use trial::{Bed, Seen};
use uringload::config::Config;
use uringload::config::{IoChoice, Profile};
use uringload::stats::{Bottleneck, Verdict};
use uringload::{Error, ErrorKind};
use uringload_sys::file::replace;
use uringload_sys::{cgroup, system};

/// Trials that are left for what comes after the search: the pairs, other orders, a packed sample. What is too late for
/// the last of these is left out.
const AFTERWARDS: u32 = 12;

/// A raw read that gives less than the loader, beyond the noise of a good machine, was disturbed and shows nothing.
const SHARE_MOST: f64 = 1.05;

/// What is found is measured so often beside what was given, by turns.
const PAIRS: usize = 3;

/// The page cache is tried where no more files have to be evicted from it again.
const EVICTED: usize = 20_000;

/// Everything that was found.
struct Outcome<'a> {
    bed: &'a Bed<'a>,
    /// The first trial, as the arguments say.
    now: Seen,
    given: Config,
    verdict: Verdict,
    /// A raw read in its best shape.
    yardstick: Yardstick,
    points: Vec<Point>,
    tried: Vec<Tried>,
    best: Config,
    /// Samples a second of what was given and of the best, by turns.
    pairs: Vec<[f64; 2]>,
    others: Vec<Other>,
    is_interrupted: bool,
    begun: Instant,
}

/// Measures, prints, and writes the profile.
pub fn run(options: &Tune) -> Done {
    let begun = Instant::now();
    let interrupt = Interrupt::install();
    if options.means.engine == EngineName::Sim {
        let error = Error::new(ErrorKind::InvalidArgument, "there is nothing to tune about a simulated disk");
        return Err(error.with_remedy("leave out --engine").into());
    }
    let data = Data::of(&options.source)?;
    let ranks = Ranks::of(&options.source.order)?;
    let given = ranks.apply(config(&options.source.order, &options.means, &options.rows, &options.source.failing));
    let bed = Bed::new(options, &data, &interrupt, begun);
    let Some(now) = bed.run(&given)? else {
        if interrupt.is_set() {
            return Ok(Exit::Interrupted);
        }
        let error = Error::new(ErrorKind::Timeout, "no batch came in the time that there was to measure");
        return Err(error.with_remedy("give a longer --limit, or a smaller --batch-size").into());
    };
    if now.route.direct_io {
        bed.read_past_the_cache();
    }
    let outcome = search(&bed, given, now, begun)?;
    let profile = Profile::of(&outcome.best);
    let report = told::report(&outcome, &profile);
    if options.json {
        output::print(&format!("{report:#}\n"))?;
    } else {
        output::print_table(&told::table(&outcome, &report), told::NAMES)?;
    }
    if outcome.is_interrupted {
        return Ok(Exit::Interrupted);
    }
    if options.out != Path::new("-") {
        let text = told::profile(&outcome, &profile);
        replace(&options.out, |file| file.write_all(text.as_bytes())).map_err(|source| {
            let error = Error::io("cannot write the profile", source).with_path(&options.out);
            Failure::Loader(error.with_remedy("name another file with --out, or write none with --out -"))
        })?;
    }
    Ok(Exit::Done)
}

fn search<'a>(bed: &'a Bed<'a>, given: Config, now: Seen, begun: Instant) -> Result<Outcome<'a>, Failure> {
    let mut outcome = Outcome {
        bed,
        verdict: now.snapshot.verdict(None),
        now,
        best: given.clone(),
        given,
        yardstick: Yardstick::default(),
        points: Vec::new(),
        tried: Vec::new(),
        pairs: Vec::new(),
        others: Vec::new(),
        is_interrupted: false,
        begun,
    };
    if outcome.verdict.bottleneck != Bottleneck::Trainer {
        outcome.look(bed)?;
        outcome.climb(bed);
        outcome.confirm(bed)?;
        outcome.beside(bed);
    }
    outcome.is_interrupted = bed.interrupt.is_set();
    Ok(outcome)
}

impl Outcome<'_> {
    /// The device by itself, and a raw read of the same samples.
    fn look(&mut self, bed: &Bed<'_>) -> Result<(), Failure> {
        let time = (bed.slice / 4).max(std::time::Duration::from_millis(30));
        let io = if self.now.route.direct_io { IoChoice::Direct } else { self.given.io };
        let config = Config { io, ..self.given.clone() };
        self.points = probe::probe(bed, &config, time);
        let sampler = bed.data.sampler(&self.given, &bed.options.source.chosen)?;
        let run = Run::of(&bed.data.dataset, self.given.clone(), &bed.options.images, sampler);
        // A raw read that fails shows nothing: the loader's own trials tell what is wrong.
        let _ = self.yardstick.take(&run, bed.slice, bed.interrupt, || {
            if bed.options.cold { cold::evict(&*bed.data.dataset, bed.interrupt) } else { Ok(()) }
        });
        let evidence = self.yardstick.evidence(self.raw(), Vec::new());
        self.verdict = self.now.snapshot.verdict_with(&evidence);
        Ok(())
    }

    /// A raw read of the same samples, in bytes a second, where it says something.
    fn raw(&self) -> Option<f64> {
        let got = self.now.snapshot.stored_bytes_per_second();
        self.yardstick.trusted().filter(|raw| got <= raw * SHARE_MOST)
    }

    fn climb(&mut self, bed: &Bed<'_>) {
        let seen = RefCell::new(vec![(self.given.clone(), self.now.clone())]);
        let is_direct = self.now.route.direct_io;
        let mut measure = |config: &Config| {
            if !bed.has_time(AFTERWARDS) {
                return Reading::Over;
            }
            // The cache is tried empty, as the first pass over it would find it, and is left empty.
            let fills = config.io == IoChoice::Buffered && is_direct;
            if fills && bed.data.dataset.files().len() > EVICTED {
                return Reading::Refused("there are too many files to empty the page cache of them".to_owned());
            }
            if fills && let Err(error) = cold::evict(&*bed.data.dataset, bed.interrupt) {
                return Reading::Refused(error.headline().to_string());
            }
            let result = bed.run(config);
            if fills {
                let _ = cold::evict(&*bed.data.dataset, bed.interrupt);
            }
            match result {
                Ok(Some(one)) => {
                    let rate = one.rate;
                    seen.borrow_mut().push((config.clone(), one));
                    Reading::Rate(rate)
                }
                Ok(None) => Reading::Over,
                Err(Failure::Loader(error)) => Reading::Refused(error.headline().to_string()),
                Err(Failure::Output(error)) => Reading::Refused(error.to_string()),
            }
        };
        let mut climb = Climb::new(&self.given, self.now.rate, &mut measure);
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
    fn confirm(&mut self, bed: &Bed<'_>) -> Result<(), Failure> {
        if self.best == self.given {
            return Ok(());
        }
        for _ in 0..PAIRS {
            if !bed.has_time(4) {
                break;
            }
            let (given, best) = (bed.run(&self.given)?, bed.run(&self.best)?);
            self.pairs.extend(given.zip(best).map(|(given, best)| [given.rate, best.rate]));
        }
        Ok(())
    }

    /// Samples a second of what was given and of the best: medians of the pairs, else of the search.
    fn rates(&self) -> [f64; 2] {
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
