//! A running loader, as Python sees it. Python decides where epochs begin and end, and passes their settings.

use crate::batch::{self, Listed, Meta, Ownership, Taken};
use crate::dataset::Dataset;
use crate::errors::{raised, refused};
use crate::options::Options;
use crate::order;
use crate::stats;
use crate::tensor::stream_of;
use crate::wait;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use uringload::config::Route;
use uringload::dataset::DType;
use uringload::device::PinnedMemory;
use uringload::internal::Strided;
use uringload::sampler::Cursor;
use uringload::stats::Stats;
use uringload::{Builder, DeviceLoader};
use uringload::{Error, State};

/// The column of keys, if requested; a dataset that has a column of this name is then refused.
const KEY: &str = "key";

/// How long an outage lasts before it is logged.
const OUTAGE_TOLD: Duration = Duration::from_secs(5);

/// Batches of a dataset from a position on.
///
/// The mutex is held only to check the queue, never while waiting, and nobody releases the interpreter lock while
/// holding it. So threads that share a loader cannot block each other.
#[pyclass(frozen)]
pub(crate) struct Loader {
    inner: Mutex<Option<Inner>>,
    stats: Arc<Stats>,
    /// Readable when a batch may be ready; created when somebody waits for the first time.
    ready: OnceLock<OwnedFd>,
    /// From which length on an outage is logged next.
    tell_from: Mutex<Duration>,
    /// Columns that do not become tensors.
    listed: Vec<(String, Listed)>,
    ownership: Ownership,
    memory_limit: u64,
    /// The memory of batches, if pinning was requested and succeeded.
    pinned: Option<PinnedMemory>,
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
    fn try_next(&mut self) -> Result<Option<Taken>, Error> {
        Ok(match self {
            Inner::Host(loader) => loader.try_next()?.map(Taken::Host),
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
        order: Option<(Vec<u64>, order::Identity)>,
        text: Vec<String>,
        binary: Vec<String>,
    ) -> PyResult<Loader> {
        let (ownership, opened) = (dataset.ownership, dataset);
        let dataset = Arc::clone(&opened.dataset);
        let listed = listed(py, &*dataset, &text, &binary)?;
        let views: Vec<String> = listed.iter().map(|(name, _)| name.clone()).collect();
        let build = move || -> Result<Inner, Error> {
            let config = options.config(&*dataset, &views)?;
            let sampler = match order {
                Some((ids, identity)) => Arc::new(order::Listed::new(check(ids, dataset.len())?, identity)),
                None => opened.order(&config)?,
            };
            let builder = uringload::Loader::builder(Arc::clone(&dataset)).config(config).epochs(epochs);
            let mut builder = builder.sampler(sampler);
            builder = builder.start(Cursor::new(start.0, start.1));
            if let Some(text) = resume {
                builder = builder.resume(&State::from_json(&text)?);
            }
            build_for(builder, &options)
        };
        let inner = py.detach(build).map_err(|error| raised(py, &error))?;
        // torch queues a copy out of pinned memory and continues (`to(device, non_blocking=True)`), and nobody tells
        // the owner of the memory when the copy is done. So tensors that stay on the host must not lie in pinned
        // memory.
        let is_pinned = inner.route().devices.iter().any(|device| device.pinned);
        // What is kept for later epochs is not a batch's own either.
        let is_kept = with!(&inner, loader => loader.keeps_stretches());
        let ownership = Ownership { owns_views: ownership.owns_views && !is_pinned && !is_kept, ..ownership };
        let (stats, memory_limit) = with!(&inner, loader => (loader.stats(), loader.memory_limit()));
        let pinned = with!(&inner, loader => loader.pinned().cloned());
        let (ready, tell_from) = (OnceLock::new(), Mutex::new(OUTAGE_TOLD));
        Ok(Loader { inner: Mutex::new(Some(inner)), stats, ready, tell_from, listed, ownership, memory_limit, pinned })
    }

    /// The next batch: its columns and the rest. None at the end, and if the loader was closed. Waits without the
    /// interpreter lock, and handles signals meanwhile. Pinned memory is returned once the batch is dropped and
    /// everything is done that was queued on `stream` by then; streams are numbered as for `Tensor.__dlpack__`.
    #[pyo3(signature = (stream=None))]
    fn next<'py>(&self, py: Python<'py>, stream: Option<i64>) -> PyResult<Option<(Bound<'py, PyList>, Meta)>> {
        loop {
            match self.look(py)? {
                Some(Some(batch)) => return self.hand_out(py, batch, stream).map(Some),
                Some(None) => return Ok(None),
                None => self.wait(py)?,
            }
        }
    }

    /// The next batch if it is ready, otherwise None.
    #[pyo3(signature = (stream=None))]
    fn try_next<'py>(&self, py: Python<'py>, stream: Option<i64>) -> PyResult<Option<(Bound<'py, PyList>, Meta)>> {
        match self.look(py)? {
            Some(Some(batch)) => self.hand_out(py, batch, stream).map(Some),
            Some(None) | None => Ok(None),
        }
    }

    /// The checkpoint after the last batch that was returned, as JSON; None if the loader was closed.
    fn state(&self) -> Option<String> {
        self.lock().as_ref().map(|inner| inner.state().to_json())
    }

    /// The loader's measurements of itself.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::dictionary(py, &self.stats.snapshot())
    }

    /// The bottleneck, how clear it is (0 to 1), and one thing to try.
    fn verdict(&self) -> (String, f64, String) {
        let verdict = self.stats.snapshot().verdict(None);
        (verdict.bottleneck.to_string(), verdict.share, verdict.advice)
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

    /// Ends the reads in flight. Batches that were returned stay valid.
    fn close(&self, py: Python<'_>) {
        let inner = self.lock().take();
        py.detach(|| drop(inner));
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
        batch::into_python(py, batch, &self.listed, self.ownership, kept)
    }

    /// `None`: nothing is ready. `Some(None)`: nothing more will come.
    fn look(&self, py: Python<'_>) -> PyResult<Option<Option<Taken>>> {
        let mut inner = self.lock();
        let Some(loader) = inner.as_mut() else { return Ok(Some(None)) };
        match loader.try_next() {
            Ok(Some(batch)) => Ok(Some(Some(batch))),
            Ok(None) if loader.is_empty() => Ok(Some(None)),
            Ok(None) => Ok(None),
            Err(error) => {
                drop(inner);
                Err(raised(py, &error))
            }
        }
    }

    /// Waits for at most one time slice.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        if self.ready.get().is_none() {
            let made = match self.lock().as_ref() {
                None => return Ok(()),
                Some(loader) => loader.ready_fd().map(|fd| fd.try_clone_to_owned()),
            };
            // Another thread may have been first, with a copy of the same descriptor.
            let _ = self.ready.set(made.map_err(|error| raised(py, &error))??);
        }
        if let Some(fd) = self.ready.get() {
            wait::until_readable(py, fd.as_fd())?;
        }
        self.tell(py)
    }

    /// Logs what the loader waits out: from 5 seconds on, and again each time it has lasted twice as long.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
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
        // Ending reads may take a moment; other Python threads can run meanwhile. If the interpreter is gone, nobody is
        // held up.
        let mut inner = Some(inner);
        let _ = Python::try_attach(|py| py.detach(|| drop(inner.take())));
        drop(inner);
    }
}

/// Builds a loader for devices if any were requested; only such a loader transforms columns.
fn build_for(mut builder: Builder, options: &Options) -> Result<Inner, Error> {
    if let Some(device) = options.pin()? {
        builder = builder.pin(device);
    }
    let devices = options.devices()?;
    if devices.is_empty() {
        return builder.build().map(Inner::Host);
    }
    let mut builder = builder.devices(devices);
    for (column, transform) in options.transforms()? {
        builder = builder.transform(column, transform);
    }
    builder.build().map(Inner::Device)
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
        if config.batching != uringload::internal::Batching::Samples {
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
fn listed(
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
