//! A running loader, as Python sees it. Python decides where epochs begin and end, and passes their settings.

use crate::batch::{self, Failed, Listed, Meta, Ownership, Taken};
use crate::clock::Clock;
use crate::dataset::{Dataset, place};
use crate::errors::{raised, refused};
use crate::numbers::Numbers;
use crate::options::Options;
use crate::order;
use crate::outside::outside;
use crate::said::{self, Said};
use crate::stats;
use crate::tensor::stream_of;
use crate::wait;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use uringload::config::Route;
use uringload::dataset::{self, DType, SampleId};
use uringload::device::PinnedMemory;
use uringload::inspect::{Errands, Strided};
use uringload::sampler::Cursor;
use uringload::stats::{Distribution, Remedy, Stats};
use uringload::transform::Chain;
use uringload::{Builder, DeviceLoader};
use uringload::{Error, ErrorKind, State};

/// The column of keys, if requested; a dataset with a column of that name is then refused.
const KEY: &str = "key";

/// A verdict: the bottleneck, its share, its meaning, the gain without it, what to try (with the gain and the rate of
/// each), and what could not be read.
type Judged = (&'static str, f64, String, Option<f64>, Vec<(String, Option<f64>, Option<f64>)>, Vec<&'static str>);

/// How long an outage lasts before it is logged.
const OUTAGE_TOLD: Duration = Duration::from_secs(5);

/// Batches of a dataset from a position on.
///
/// The mutex is held only to check the queue, never while waiting, and no holder releases the interpreter lock. So
/// threads that share a loader cannot block each other.
#[pyclass(frozen)]
pub(crate) struct Loader {
    inner: Mutex<Option<Inner>>,
    stats: Arc<Stats>,
    dataset: Arc<dyn dataset::Dataset>,
    /// Readable when a batch may be ready; created at the first wait.
    ready: OnceLock<OwnedFd>,
    /// Readable when another thread ends the wait; created when it is first needed.
    nudged: OnceLock<OwnedFd>,
    /// The length at which an outage is logged next.
    tell_from: Mutex<Duration>,
    /// When the route is looked at for new steps down.
    said: Said,
    /// Columns that do not become tensors.
    listed: Vec<(String, Listed)>,
    ownership: Ownership,
    memory_limit: u64,
    /// The memory of batches, if pinning was requested and succeeded.
    pinned: Option<PinnedMemory>,
    /// The work that the thread that takes the batches does itself, if no other thread does. Locked without the
    /// interpreter lock.
    errands: Mutex<Option<Errands>>,
    /// Whether there are some.
    computes: bool,
    /// Whether a checkpoint was made, and so the files have been checked.
    has_looked: AtomicBool,
}

/// The library's loader, by what it returns.
enum Inner {
    Host(uringload::Loader),
    Device(DeviceLoader),
}

/// Runs the same code on either kind.
macro_rules! with {
    ($inner:expr, $loader:ident => $what:expr) => {
        match $inner {
            Inner::Host($loader) => $what,
            Inner::Device($loader) => $what,
        }
    };
}

impl Inner {
    /// With `ahead`, the user does not wait for it yet.
    fn try_next(&mut self, ahead: bool) -> Result<Option<Taken>, Error> {
        Ok(match self {
            Inner::Host(loader) if ahead => loader.take_ahead()?.map(Taken::Host),
            Inner::Host(loader) => loader.try_next()?.map(Taken::Host),
            Inner::Device(loader) if ahead => loader.take_ahead()?.map(Taken::Device),
            Inner::Device(loader) => loader.try_next()?.map(Taken::Device),
        })
    }

    fn is_empty(&self) -> bool {
        with!(self, loader => loader.is_empty())
    }

    fn ready_fd(&self) -> Result<std::os::fd::BorrowedFd<'_>, Error> {
        with!(self, loader => loader.ready_fd())
    }

    fn state(&self) -> State {
        with!(self, loader => loader.state())
    }

    fn route(&self) -> Route {
        with!(self, loader => loader.route())
    }
}

#[pymethods]
impl Loader {
    /// Creates a loader that starts at `start` (epoch, position) or at a state, for `epochs` epochs (None: for ever).
    /// The order is that of the options or `order`: the samples of one epoch, and the order's identity. `text` and
    /// `binary` name columns whose values become `str` or `bytes`.
    #[new]
    #[pyo3(signature = (
        dataset, options, *, start=(0, 0), resume=None, epochs=None, order=None, text=vec![], binary=vec![]
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        options: Options,
        start: (u64, u64),
        resume: Option<String>,
        epochs: Option<u64>,
        order: Option<(Numbers<'_>, order::Identity)>,
        text: Vec<String>,
        binary: Vec<String>,
    ) -> PyResult<Loader> {
        let (ownership, opened) = (dataset.ownership, dataset);
        let dataset = Arc::clone(&opened.dataset);
        let listed = listed(py, &*dataset, &text, &binary)?;
        let order = order.map(|(ids, identity)| (Vec::from(ids), identity));
        let read = Arc::clone(&dataset);
        let views: Vec<String> = listed.iter().map(|(name, _)| name.clone()).collect();
        let build = move || -> Result<Inner, Error> {
            let config = options.config(&*dataset, &views)?;
            let sampler = match order {
                Some((ids, identity)) => Arc::new(order::Listed::new(check(ids, dataset.len())?, identity)),
                None => opened.order(&config)?,
            };
            let builder = uringload::Loader::builder(Arc::clone(&dataset)).config(config);
            let builder = match epochs {
                Some(epochs) => builder.more_epochs(epochs),
                None => builder.epochs(None),
            };
            let mut builder = builder.sampler(sampler);
            builder = builder.start(Cursor::new(start.0, start.1));
            if let Some(text) = resume {
                builder = builder.resume(&State::from_json(&text)?);
            }
            build_for(builder, &options)
        };
        let mut inner = outside(py, build).map_err(|error| raised(py, &error))?;
        said::steps(py, &inner.route().fallbacks)?;
        // torch queues a copy out of pinned memory and continues (`to(device, non_blocking=True)`), and does not tell
        // the memory's owner when the copy is done. So tensors that stay on the host must not be in pinned memory.
        let is_pinned = inner.route().devices.iter().any(|device| device.pinned);
        // Memory that is kept for later epochs does not belong to a batch alone either.
        let is_kept = with!(&inner, loader => loader.keeps_stretches());
        let ownership = Ownership { owns_views: ownership.owns_views && !is_pinned && !is_kept, ..ownership };
        let (stats, memory_limit) = with!(&inner, loader => (loader.stats(), loader.memory_limit()));
        let pinned = with!(&inner, loader => loader.pinned().cloned());
        let errands = with!(&mut inner, loader => loader.take_errands());
        let (computes, errands) = (errands.is_some(), Mutex::new(errands));
        let (ready, nudged, tell_from) = (OnceLock::new(), OnceLock::new(), Mutex::new(OUTAGE_TOLD));
        let (inner, dataset) = (Mutex::new(Some(inner)), read);
        Ok(Loader {
            inner,
            stats,
            dataset,
            ready,
            nudged,
            tell_from,
            said: Said::new(),
            listed,
            ownership,
            memory_limit,
            pinned,
            errands,
            computes,
            has_looked: AtomicBool::new(false),
        })
    }

    /// The next batch: its columns and the rest. None at the end, and if the loader was closed. Waits without the
    /// interpreter lock, and handles signals meanwhile. Pinned memory is returned once the batch is dropped and
    /// everything is done that was queued on `stream` by then; streams are numbered as for `Tensor.__dlpack__`. With
    /// `ahead`, the caller does more to the batch before the user gets it, and reports the user's wait by `asked` and
    /// `got`.
    #[pyo3(signature = (stream=None, ahead=false))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        ahead: bool,
    ) -> PyResult<Option<(Bound<'py, PyList>, Meta)>> {
        self.say_steps(py)?;
        loop {
            match self.look(py, ahead)? {
                Some(Some(batch)) => return self.hand_out(py, batch, stream).map(Some),
                Some(None) => return Ok(None),
                None if self.compute(py) => py.check_signals()?,
                None => self.wait(py)?,
            }
        }
    }

    /// The next batch if it is ready, otherwise None.
    #[pyo3(signature = (stream=None, ahead=false))]
    fn try_next<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        ahead: bool,
    ) -> PyResult<Option<(Bound<'py, PyList>, Meta)>> {
        self.say_steps(py)?;
        loop {
            match self.look(py, ahead)? {
                Some(Some(batch)) => return self.hand_out(py, batch, stream).map(Some),
                None if self.compute(py) => py.check_signals()?,
                Some(None) | None => return Ok(None),
            }
        }
    }

    /// The user asks for a batch. From now on it waits, for the batch or for Python's lock. False if it did already.
    fn asked(&self) -> bool {
        self.lock().as_mut().is_some_and(|inner| with!(inner, loader => loader.begin_wait()))
    }

    /// The user got a batch, or an error in its place, and whether it was ready when it was asked for.
    fn got(&self, is_batch: bool, is_ready: bool) {
        if let Some(inner) = self.lock().as_mut() {
            with!(inner, loader => loader.end_wait_for(is_batch, is_ready));
        }
    }

    /// A clock for a thread that runs the user's own code on batches.
    fn clock(&self) -> Clock {
        Clock::new(&self.stats)
    }

    /// A sample of a batch that was handed out cannot be used: its number, why in one line, and the number of the
    /// sample in its place. `is_raised` is whether the user gets the error. Returns the entry for `failed`, and an
    /// exception that is reported in addition to the batches. Raises `TooManyFailuresError`, after which no batch
    /// comes.
    fn fail(
        &self,
        py: Python<'_>,
        batch: &Meta,
        failed: (u64, String),
        replaced_by: Option<u64>,
        is_raised: bool,
    ) -> PyResult<(Failed, Option<Py<PyAny>>)> {
        let (id, why) = failed;
        let mut error = Error::new(ErrorKind::Transform, format!("the transform failed: {why}"));
        if let Some((path, offset)) = place(&*self.dataset, SampleId(id)) {
            error = error.with_path(path).with_offset(offset);
        }
        let replaced_by = replaced_by.map(SampleId);
        let booked = match self.lock().as_mut() {
            None => return Err(refused(py, "the loader was closed".into(), "close it afterwards")),
            Some(inner) => {
                with!(inner, loader => loader.fail(batch.cursor, (SampleId(id), error), replaced_by, is_raised))
            }
        };
        let (failed, beside) = booked.map_err(|error| raised(py, &error))?;
        let beside = beside.map(|error| raised(py, &error).into_value(py).into_any());
        Ok((batch::failed_sample(py, &failed), beside))
    }

    /// Whether no batch will come any more; false if that shows only when the next batch is asked for.
    fn is_over(&self) -> bool {
        self.lock().as_ref().is_none_or(Inner::is_empty)
    }

    /// Waits for at most one time slice until a batch may be ready, or until `nudge` was called since the last wait.
    fn wait_or_nudge(&self, py: Python<'_>) -> PyResult<()> {
        let nudged = self.nudged()?;
        let ready = self.ready(py)?;
        let both: Vec<_> = ready.into_iter().chain([nudged]).map(AsFd::as_fd).collect();
        wait::until_one_readable(py, &both, wait::SLICE)?;
        // Where nothing was written there is nothing to read.
        let _ = rustix::io::read(nudged, &mut [0; 8]);
        self.say_outage(py)
    }

    /// Ends the wait of another thread in `wait_or_nudge`, or its next.
    fn nudge(&self) -> PyResult<()> {
        // If the counter is full, the wait ends anyway.
        let _ = rustix::io::write(self.nudged()?, &1_u64.to_ne_bytes());
        Ok(())
    }

    /// Logs the outages that the loader waits for, on behalf of callers that wait themselves.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        self.say_outage(py)
    }

    /// A descriptor that is readable when a batch may be ready; the caller closes it.
    fn ready_fd(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let made = match self.lock().as_ref() {
            None => return Ok(None),
            Some(inner) => inner.ready_fd().map(|fd| fd.try_clone_to_owned()),
        };
        Ok(Some(made.map_err(|error| raised(py, &error))??.into_raw_fd()))
    }

    /// The checkpoint after the last batch that was returned, as JSON; None if the loader was closed. The first one
    /// waits for a check of the files, without Python's lock. Later ones keep the lock: to get it back from threads
    /// that compute in Python takes milliseconds, and the work on each batch needs a checkpoint.
    fn state(&self, py: Python<'_>) -> Option<String> {
        let state = || self.lock().as_ref().map(|inner| inner.state().to_json());
        if self.has_looked.load(Ordering::Relaxed) {
            return state();
        }
        let state = outside(py, state);
        self.has_looked.store(true, Ordering::Relaxed);
        state
    }

    /// The loader's measurements of itself.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::dictionary(py, &self.stats.snapshot(), &self.stats.decisions())
    }

    /// How many waits and how many reads took at most each of these times (in seconds) and in all, and how many bytes
    /// each holder of memory has.
    fn measured(&self, bounds: Vec<f64>) -> (Vec<u64>, Vec<u64>, Vec<(&'static str, u64)>) {
        let snapshot = self.stats.snapshot();
        let counts = |times: &Distribution| {
            let within = bounds.iter().map(|&bound| times.within(Duration::from_secs_f64(bound)));
            within.chain([times.count()]).collect()
        };
        let held = self.stats.memory().into_iter().map(|held| (held.holder.name(), held.bytes)).collect();
        (counts(&snapshot.batch_wait), counts(&snapshot.read_latency), held)
    }

    /// The bottleneck, how clear it is (0 to 1), its meaning, the gain if that part took no time, what to try with the
    /// gain of each, and what could not be read.
    fn verdict(&self) -> Judged {
        let verdict = self.stats.snapshot().verdict(None);
        let remedy = |remedy: &Remedy| (remedy.what.clone(), remedy.gain, remedy.samples_per_second);
        let remedies = verdict.remedies.iter().map(remedy).collect();
        (verdict.bottleneck.name(), verdict.share, verdict.advice, verdict.gain, remedies, verdict.without)
    }

    /// How the bytes are read at the moment; None if the loader was closed.
    fn route<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let route = self.lock().as_ref().map(Inner::route);
        route.map(|route| stats::route(py, &route)).transpose()
    }

    /// Most bytes of memory for samples.
    #[getter]
    fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// Ends the reads in flight, and the trace: missing parts are logged. Batches that were returned stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.lock().take();
        let steps = inner.as_ref().map(|inner| inner.route().fallbacks).unwrap_or_default();
        let untraced = outside(py, || {
            drop(inner);
            *self.errands.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.stats.end_trace().err()
        });
        if let Some(error) = untraced {
            py.import("uringload._log")?.call_method1("warning", ("%s", error.to_string()))?;
        }
        said::steps(py, &steps)
    }
}

impl Loader {
    fn lock(&self) -> MutexGuard<'_, Option<Inner>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_out<'py>(
        &self,
        py: Python<'py>,
        batch: Taken,
        stream: Option<i64>,
    ) -> PyResult<(Bound<'py, PyList>, Meta)> {
        let stream = stream_of(stream)?;
        let kept = self.pinned.as_ref().zip(stream);
        // Stretches that are read whole on trial, and lent to several batches, begin at some batch.
        let owns_views = self.ownership.owns_views && !self.stats.reads_whole();
        batch::into_python(py, batch, &self.listed, Ownership { owns_views, ..self.ownership }, kept)
    }

    /// `None`: nothing is ready. `Some(None)`: nothing more will come.
    fn look(&self, py: Python<'_>, ahead: bool) -> PyResult<Option<Option<Taken>>> {
        let mut inner = self.lock();
        let Some(loader) = inner.as_mut() else { return Ok(Some(None)) };
        match loader.try_next(ahead) {
            Ok(Some(batch)) => Ok(Some(Some(batch))),
            Ok(None) if loader.is_empty() => Ok(Some(None)),
            Ok(None) => Ok(None),
            Err(error) => {
                drop(inner);
                Err(raised(py, &error))
            }
        }
    }

    /// Computes a part of the next batch, if there is any to compute here, without the interpreter lock.
    fn compute(&self, py: Python<'_>) -> bool {
        self.computes
            && outside(py, || {
                let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(errands) = errands.as_mut().filter(|errands| errands.is_waiting()) else { return false };
                self.charge(true);
                let ran = errands.run();
                self.charge(false);
                ran
            })
    }

    fn charge(&self, begins: bool) {
        if let Some(inner) = self.lock().as_mut() {
            with!(inner, loader => loader.charge_errand(begins));
        }
    }

    /// Waits for at most one time slice.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let Some(ready) = self.ready(py)? else { return Ok(()) };
        wait::until_readable(py, ready.as_fd())?;
        self.say_outage(py)
    }

    /// What is readable when a batch may be ready; `None`: the loader was closed.
    fn ready(&self, py: Python<'_>) -> PyResult<Option<&OwnedFd>> {
        if self.ready.get().is_none() {
            let made = match self.lock().as_ref() {
                None => return Ok(None),
                Some(loader) => loader.ready_fd().map(|fd| fd.try_clone_to_owned()),
            };
            // Another thread may have been first, with a copy of the same descriptor.
            let _ = self.ready.set(made.map_err(|error| raised(py, &error))??);
        }
        Ok(self.ready.get())
    }

    fn nudged(&self) -> PyResult<&OwnedFd> {
        if let Some(made) = self.nudged.get() {
            return Ok(made);
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        // Another thread may have been first.
        Ok(self.nudged.get_or_init(|| made))
    }

    /// Logs what the loader does without since a moment ago.
    fn say_steps(&self, py: Python<'_>) -> PyResult<()> {
        self.said.now_and_then(py, || self.lock().as_ref().map(Inner::route))
    }

    /// Logs outages that the loader waits for: from 5 seconds on, and again each time one has lasted twice as long.
    fn say_outage(&self, py: Python<'_>) -> PyResult<()> {
        let mut tell_from = self.tell_from.lock().unwrap_or_else(PoisonError::into_inner);
        match self.stats.outage() {
            None => *tell_from = OUTAGE_TOLD,
            Some(outage) if outage.lasting >= *tell_from => {
                *tell_from = outage.lasting * 2;
                drop(tell_from);
                let log = py.import("logging")?.call_method1("getLogger", ("uringload",))?;
                log.call_method1("warning", ("%s", outage.to_string()))?;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let Some(inner) = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // Ending reads may take a moment; other Python threads can run meanwhile. If the interpreter is gone, no thread
        // waits for it.
        let mut inner = Some(inner);
        let _ = Python::try_attach(|py| outside(py, || drop(inner.take())));
        drop(inner);
    }
}

/// Builds a loader for devices if any were requested; only such a loader transforms columns of pixels and tokens.
fn build_for(mut builder: Builder, options: &Options) -> Result<Inner, Error> {
    if let Some(device) = options.pin()? {
        builder = builder.pin(device);
    }
    builder = chained(builder, options)?;
    let devices = options.devices()?;
    if devices.is_empty() {
        return builder.build().map(Inner::Host);
    }
    let mut builder = builder.devices(devices);
    for (column, transform) in options.transforms()? {
        builder = builder.on_device(column, transform);
    }
    builder.build().map(Inner::Device)
}

/// Has a builder do what the chains say.
pub(crate) fn chained(mut builder: Builder, options: &Options) -> Result<Builder, Error> {
    for (column, text) in options.chains() {
        builder = builder.transform_by(column, text)?;
    }
    options.check_apart(&builder)?;
    Ok(builder)
}

/// Raises the error of a chain that cannot be.
#[pyfunction]
pub(crate) fn check_chain(py: Python<'_>, text: &str) -> PyResult<()> {
    text.parse::<Chain>().map(drop).map_err(|error| raised(py, &error))
}

/// The replacement for sample `id` of `len` under `on_error="replace"`; None: there is no other.
#[pyfunction]
pub(crate) fn replacement(seed: u64, id: u64, attempt: u64, len: u64) -> Option<u64> {
    uringload::inspect::replacement(seed, SampleId(id), attempt, len).map(|id| id.0)
}

/// Number of batches that each rank gets from an epoch of `samples` (None: of the dataset's); None if that is only
/// known at the end.
#[pyfunction]
#[pyo3(signature = (dataset, options, samples=None))]
pub(crate) fn batches(
    py: Python<'_>,
    dataset: &Dataset,
    options: Options,
    samples: Option<u64>,
) -> PyResult<Option<u64>> {
    let count = || -> Result<Option<u64>, Error> {
        let config = options.config(&*dataset.dataset, &[])?;
        if config.batching != uringload::config::Batching::Samples {
            return Ok(None);
        }
        let strided = Strided::new(config.rank, config.world_size, config.batch_size, config.drop_last)?;
        let samples = match samples {
            Some(samples) => samples,
            None => dataset.order(&config)?.len(),
        };
        Ok(Some(strided.batches(samples)))
    };
    count().map_err(|error| raised(py, &error))
}

/// What the values of columns that do not become tensors become; keys are text.
pub(crate) fn listed(
    py: Python<'_>,
    dataset: &dyn uringload::dataset::Dataset,
    text: &[String],
    binary: &[String],
) -> PyResult<Vec<(String, Listed)>> {
    let fields = &dataset.schema().fields;
    for name in text.iter().chain(binary) {
        if !fields.iter().any(|field| field.name == *name && field.dtype == DType::U8) {
            let bytes = fields.iter().filter(|field| field.dtype == DType::U8).map(|field| field.name.as_str());
            let names: Vec<&str> = bytes.collect();
            let what = format!("there is no column {name:?} of bytes; the columns of bytes are {names:?}");
            return Err(refused(py, what, "name one of these columns in text or binary"));
        }
    }
    let all = |names: &[String], kind| names.iter().map(move |name| (name.clone(), kind)).collect::<Vec<_>>();
    let keys = vec![(KEY.to_owned(), Listed::Text)];
    Ok([all(text, Listed::Text), all(binary, Listed::Binary), keys].concat())
}

/// Checks that all samples exist.
fn check(ids: Vec<u64>, samples: u64) -> Result<Vec<u64>, Error> {
    match ids.iter().find(|&&id| id >= samples) {
        None => Ok(ids),
        Some(id) => {
            let what = format!("the order names sample {id}, and the dataset has {samples}");
            Err(crate::errors::invalid(what, "count samples from 0"))
        }
    }
}
