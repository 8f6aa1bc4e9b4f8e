//! How fast a loader would be, and how it would be faster. The functions that Python's users call are in
//! `lib/uringload/_measure.py`.

use crate::dataset::Dataset;
use crate::errors::invalid;
use crate::loader::{chained, listed};
use crate::options::Options;
use crate::wait;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use uringload::Result;
use uringload::config::{Config, Device};
use uringload_measure::bench::Way;
use uringload_measure::{Bench, Caller, Report, Subject, Tune};

/// A loader's dataset and options, and the columns whose values do not become tensors.
struct Loaded {
    dataset: Dataset,
    options: Options,
    views: Vec<String>,
}

impl Loaded {
    fn new(py: Python<'_>, dataset: &Dataset, options: Options, text: &[String]) -> PyResult<Loaded> {
        let views = listed(py, &*dataset.dataset, text, &[])?.into_iter().map(|(name, _)| name).collect();
        Ok(Loaded { dataset: dataset.again(), options, views })
    }

    /// The configuration, for so many epochs.
    fn config(&self, epochs: Option<u64>) -> Result<Config> {
        Ok(Config { epochs, ..self.options.config(&*self.dataset.dataset, &self.views)? })
    }

    fn devices(&self) -> Result<Vec<Device>> {
        self.options.devices()
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            dataset: Arc::clone(&self.dataset.dataset),
            order: Box::new(|config| self.dataset.order(config)),
            prepare: Box::new(|builder, _| chained(builder, &self.options)),
            is_prepared: !self.options.chains().is_empty(),
            is_weighted: self.dataset.is_mixture(),
        }
    }
}

/// Reads a dataset as a loader would, and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (dataset, options, say, *, text, epochs, duration, rounds, cold, raw, compare, emulate_step))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn bench(
    py: Python<'_>,
    dataset: &Dataset,
    options: Options,
    say: &Bound<'_, PyAny>,
    text: Vec<String>,
    epochs: Option<u64>,
    duration: Option<f64>,
    rounds: u32,
    cold: bool,
    raw: bool,
    compare: Vec<String>,
    emulate_step: Option<f64>,
) -> PyResult<String> {
    let loaded = Loaded::new(py, dataset, options, &text)?;
    let work = move |caller: &Caller| -> Result<String> {
        let bench = Bench {
            duration: duration.map(Duration::from_secs_f64),
            rounds,
            cold,
            raw,
            compare: compare.iter().map(|name| way(name)).collect::<Result<_>>()?,
            emulate_step: emulate_step.map(Duration::from_secs_f64),
            devices: loaded.devices()?,
            ..Bench::new(loaded.subject(), loaded.config(epochs)?)
        };
        let outcome = bench.run(caller)?;
        outcome.error().map_or(Ok(()), |error| Err(error.clone()))?;
        Ok(serde_json::to_string(&Report::of(&outcome)).unwrap_or_default())
    };
    measured(py, say, work)
}

/// Finds a faster way to read, writes it as a profile, and returns what was found as JSON.
#[pyfunction]
#[pyo3(signature = (dataset, options, say, *, text, paths, out, limit, cold, emulate_step, scratch))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn tune(
    py: Python<'_>,
    dataset: &Dataset,
    options: Options,
    say: &Bound<'_, PyAny>,
    text: Vec<String>,
    paths: Vec<PathBuf>,
    out: Option<PathBuf>,
    limit: Option<f64>,
    cold: bool,
    emulate_step: Option<f64>,
    scratch: Option<PathBuf>,
) -> PyResult<String> {
    let loaded = Loaded::new(py, dataset, options, &text)?;
    let work = move |caller: &Caller| -> Result<String> {
        let tune = Tune {
            limit: limit.map_or(Tune::LIMIT, Duration::from_secs_f64),
            out,
            cold,
            emulate_step: emulate_step.map(Duration::from_secs_f64),
            scratch,
            ..Tune::new(loaded.subject(), loaded.config(Some(1))?, paths)
        };
        // Whoever stopped it raises an error.
        let Some(outcome) = tune.run(caller)? else { return Ok(String::new()) };
        outcome.save()?;
        Ok(outcome.report().to_string())
    };
    measured(py, say, work)
}

fn way(name: &str) -> Result<Way> {
    let known = [Way::Threads, Way::Buffered, Way::Mmap];
    known.into_iter().find(|way| way.name() == name).ok_or_else(|| {
        invalid(format!("compare: there is no way to read called {name:?}"), "threads, buffered or mmap")
    })
}

/// Measures on a thread of its own, and hands what it says to `say`. If that or a signal handler raises meanwhile, the
/// measurement is stopped first.
fn measured(
    py: Python<'_>,
    say: &Bound<'_, PyAny>,
    work: impl FnOnce(&Caller) -> Result<String> + Send + 'static,
) -> PyResult<String> {
    let (lines, said) = mpsc::channel::<String>();
    let (begin, begun) = mpsc::channel();
    let work = move || {
        let caller = Caller::hearing(move |line| drop(lines.send(line.to_owned())));
        // Whoever waits keeps the other end until the work is done.
        let _ = begin.send(caller.clone());
        work(&caller)
    };
    let tell = || said.try_iter().try_for_each(|line| say.call1((line,)).map(drop));
    let stop = || {
        if let Ok(caller) = begun.recv() {
            caller.stop();
        }
    };
    wait::to_the_end(py, ("uringload-measure", "measuring a dataset"), work, tell, stop)
}
