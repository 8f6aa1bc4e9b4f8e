//! `uringload bench`: reads a dataset as a training run would, and reports the speed and what limits it.

mod html;
mod table;

use crate::Done;
use crate::arguments::{Bench, EngineName, config};
use crate::data::Data;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, eprintln_quietly};
use crate::ranks::Ranks;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};
use uringload::config::Config;
use uringload::inspect::{may_replace, replace};
use uringload::{Error, ErrorKind};
use uringload_measure::bench::Outcome;
use uringload_measure::bench::run::End;
use uringload_measure::{Bench as Measurement, Made, Report};

const PAGE: &str = "cannot write the page";
const JSON: &str = "cannot write the JSON";

/// How long a generated dataset is read, unless told otherwise.
const MADE_DURATION: Duration = Duration::from_secs(3);

/// Runs the rounds, then prints the results.
pub fn run(options: &Bench) -> Done {
    let interrupt = Interrupt::install();
    for (path, what) in outputs(options) {
        may_replace(path).map_err(|why| unwritable(path, what, why))?;
    }
    // Kept until the end: dropping it deletes the files.
    let made = if options.paths.is_empty() {
        match Made::new(&interrupt)? {
            Some(made) => Some(made),
            None => return Ok(Exit::Interrupted),
        }
    } else {
        None
    };
    // A slow disk may take long to write what is read then: that is no part of the bench.
    let begun = Instant::now();
    let paths = made.as_ref().map_or_else(|| options.paths.clone(), |made| vec![made.path().to_path_buf()]);
    let data = Data::choose(&paths, &options.format.under(&options.failing), &options.chosen)?;
    let bench = Measurement { begun, ..measurement(options, &data)? };
    let outcome = bench.run(&interrupt)?;
    if outcome.median().measured.snapshot.count.batches == 0 {
        match outcome.median().measured.end {
            End::Interrupted => {
                eprintln_quietly("uringload: stopped before the first batch came, so there is nothing to tell");
                return Ok(Exit::Interrupted);
            }
            End::OutOfTime => {
                let error = Error::new(ErrorKind::Timeout, "no batch came in the time that there was to measure");
                return Err(error.with_remedy("give a longer --duration, or smaller batches").into());
            }
            End::Complete | End::Failed(_) => {}
        }
    }
    let report = Report::of(&outcome);
    let saved = outcome.rounds.last().map_or(Ok(()), |last| options.checkpoint.save(&last.measured.state));
    print(options, &outcome, &report)?;
    saved?;
    match outcome.error() {
        Some(error) => Err(Failure::Loader(error.clone())),
        None if interrupt.is_set() => Ok(Exit::Interrupted),
        None => Ok(Exit::Done),
    }
}

/// The files to write, tried before anything is measured.
fn outputs(options: &Bench) -> impl Iterator<Item = (&Path, &'static str)> {
    let json = options.json.as_deref().filter(|path| *path != Path::new("-"));
    json.map(|path| (path, JSON)).into_iter().chain(options.html.as_deref().map(|path| (path, PAGE)))
}

fn unwritable(path: &Path, what: &'static str, why: io::Error) -> Failure {
    let error = Error::io(what, why).with_path(path);
    Failure::Loader(error.with_remedy("name a file in a folder that can be written to"))
}

/// What the arguments ask for.
fn measurement<'a>(options: &'a Bench, data: &'a Data) -> Result<Measurement<'a>, Failure> {
    let (ranks, state) = (Ranks::of(&options.order)?, options.checkpoint.load()?);
    let asked = options.epochs.or(options.more_epochs);
    // A generated dataset is read in no time, so it is read over and over.
    let duration = options.duration.or((options.paths.is_empty() && asked.is_none()).then_some(MADE_DURATION));
    let epochs = asked.or(if duration.is_some() { None } else { Some(1) });
    if let (Some(epochs), Some(state)) = (options.epochs, &state)
        && state.cursor().epoch >= epochs
    {
        let what = format!("the state stands in epoch {}, and --epochs {epochs} ends before it", state.cursor().epoch);
        let error = Error::new(ErrorKind::InvalidArgument, what);
        return Err(error.with_remedy("epochs count from 0: give more, or --more-epochs N to read N from here").into());
    }
    if options.means.engine == EngineName::Sim && !options.compare.is_empty() {
        let error = Error::new(ErrorKind::InvalidArgument, "a simulated disk cannot be compared");
        return Err(error.with_remedy("leave out --compare").into());
    }
    let config = Config {
        epochs,
        more_epochs: options.epochs.is_none(),
        trace: options.trace.clone(),
        ..ranks.apply(config(&options.order, &options.means, &options.rows, &options.failing))
    };
    Ok(Measurement {
        ranks_from: ranks.source,
        state,
        duration,
        rounds: options.rounds,
        cold: options.cold,
        raw: !options.no_raw,
        compare: options.compare.iter().map(|way| way.way()).collect(),
        emulate_step: options.emulate_step,
        accelerators: options.accelerators,
        mlperf: options.mlperf,
        devices: options.devices.list(),
        ..Measurement::new(data.subject(&options.chosen, &options.images), config)
    })
}

/// Writes the JSON if requested, and the table unless the JSON replaces it. If one cannot be written, the other still
/// is.
fn print(options: &Bench, outcome: &Outcome<'_>, report: &Report) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report).map_err(io::Error::from)? + "\n";
    let mut saved = Ok(());
    if let Some(path) = &options.html {
        let dearest = outcome.median().measured.dearest.iter().map(|sample| sample.id);
        let pictures = html::thumbnails::of(&outcome.bench.subject.dataset, dearest);
        // Of the text, so that the report is compiled for one serializer and not for two.
        let page = html::page(&serde_json::from_str(&json).map_err(io::Error::from)?, &pictures);
        saved = replace(path, |file| file.write_all(page.as_bytes())).map_err(|why| unwritable(path, PAGE, why));
    }
    let is_table = options.json.as_deref() != Some(Path::new("-"));
    let text = match &options.json {
        Some(path) if path == Path::new("-") => json,
        Some(path) => {
            saved = saved
                .and(replace(path, |file| file.write_all(json.as_bytes())).map_err(|why| unwritable(path, JSON, why)));
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
