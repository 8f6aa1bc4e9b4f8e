//! A running loader, as Python has it. Where epochs begin and end, and what they are told, is Python's part.

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
use uringload::config::Route;
use uringload::dataset::DType;
use uringload::device::PinnedMemory;
use uringload::internal::Strided;
use uringload::sampler::Cursor;
use uringload::stats::Stats;
use uringload::{Builder, DeviceLoader};
use uringload::{Error, State};

/// The column of keys, where they are asked for; a dataset that has one of this name is refused then.
const KEY: &str = "key";

/// Batches of a dataset from a place on.
///
/// The lock is held for a look at the queue and never while waiting, and nobody lets go of the interpreter's lock while
/// holding it: so threads that share a loader cannot hold each other up.
#[pyclass(frozen)]
pub(crate) struct Loader {
    inner: Mutex<Option<Inner>>,
    stats: Arc<Stats>,
    /// Readable when a batch may be ready; made when somebody waits for the first time.
    ready: OnceLock<OwnedFd>,
    /// Columns that are no tensors.
    listed: Vec<(String, Listed)>,
    ownership: Ownership,
    memory_limit: u64,
    /// The memory of batches, where it was to be pinned and is.
    pinned: Option<PinnedMemory>,
}

/// The library's loader, by what it hands out.
enum Inner {
    Host(uringload::Loader),
    Device(DeviceLoader),
}

/// The same for both.
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
    /// A loader from `start` (epoch, position) or from a state on, for `epochs` epochs (None: for ever), in the order
    /// of the options or in that of `order`: the samples of one epoch and its identity. `text` and `binary` name
    /// columns whose values are to be `str` or `bytes`.
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
        // torch queues a copy out of pinned memory and goes on (`to(device, non_blocking=True)`), and nobody tells the
        // owner of the memory when it is done: so tensors that stay on the host do not lie in it.
        let is_pinned = inner.route().devices.iter().any(|device| device.pinned);
        let ownership = Ownership { owns_views: ownership.owns_views && !is_pinned, ..ownership };
        let (stats, memory_limit) = with!(&inner, loader => (loader.stats(), loader.memory_limit()));
        let pinned = with!(&inner, loader => loader.pinned().cloned());
        let ready = OnceLock::new();
        Ok(Loader { inner: Mutex::new(Some(inner)), stats, ready, listed, ownership, memory_limit, pinned })
    }

    /// The next batch: its columns and the rest. None at the end, and when the loader was closed. Waits without the
    /// interpreter's lock, and looks at signals meanwhile. Where memory is pinned, it goes home when the batch
    /// was dropped and all is done that was in `stream` by then; streams are numbered as for `Tensor.__dlpack__`.
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

    /// The next batch if it is ready, else None.
    #[pyo3(signature = (stream=None))]
    fn try_next<'py>(&self, py: Python<'py>, stream: Option<i64>) -> PyResult<Option<(Bound<'py, PyList>, Meta)>> {
        match self.look(py)? {
            Some(Some(batch)) => self.hand_out(py, batch, stream).map(Some),
            Some(None) | None => Ok(None),
        }
    }

    /// The checkpoint behind the last batch that was handed out, as JSON; None when the loader was closed.
    fn state(&self) -> Option<String> {
        self.lock().as_ref().map(|inner| inner.state().to_json())
    }

    /// What it measures of itself.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::dictionary(py, &self.stats.snapshot())
    }

    /// What limits, how clearly (0 to 1), and one thing to try.
    fn verdict(&self) -> (String, f64, String) {
        let verdict = self.stats.snapshot().verdict(None);
        (verdict.bottleneck.to_string(), verdict.share, verdict.advice)
    }

    /// How the bytes are read just now; None when the loader was closed.
    fn route<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let route = self.lock().as_ref().map(Inner::route);
        route.map(|route| stats::route(py, &route)).transpose()
    }

    /// Bytes of memory for samples at most.
    #[getter]
    fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// Ends the reads in flight. Batches that were handed out stay.
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

    /// `None`: nothing is ready. `Some(None)`: nothing will come.
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

    /// Waits for one slice of time at most.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        if self.ready.get().is_none() {
            let made = match self.lock().as_ref() {
                None => return Ok(()),
                Some(loader) => loader.ready_fd().map(|fd| fd.try_clone_to_owned()),
            };
            // Another thread may have been first, with a copy of the same descriptor.
            let _ = self.ready.set(made.map_err(|error| raised(py, &error))??);
        }
        match self.ready.get() {
            Some(fd) => wait::until_readable(py, fd.as_fd()),
            None => Ok(()),
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let Some(inner) = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // Ending reads may take a moment, in which other threads of Python go on. Where there is no interpreter any
        // more, there is nobody to hold up.
        let mut inner = Some(inner);
        let _ = Python::try_attach(|py| py.detach(|| drop(inner.take())));
        drop(inner);
    }
}

/// On devices where that was asked for, and where columns are to be transformed as they are there.
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

/// How many batches each rank gets of an epoch of `samples` (None: of the dataset's); None where that is only known at
/// the end.
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

/// What becomes of the values of columns that are to be no tensors where they are slices; keys are text.
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

/// Numbers of samples that are there.
fn check(ids: Vec<u64>, samples: u64) -> Result<Vec<u64>, Error> {
    match ids.iter().find(|&&id| id >= samples) {
        None => Ok(ids),
        Some(id) => {
            let what = format!("the order names sample {id}, and the dataset has {samples}");
            Err(crate::errors::invalid(what, "count samples from 0"))
        }
    }
}
