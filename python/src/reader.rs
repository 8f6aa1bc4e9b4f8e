//! Bytes in the user's order, as Python sees them.

use crate::dataset::Dataset;
use crate::errors::raised;
use crate::options::value;
use crate::outside::outside;
use crate::said::{self, Said};
use crate::stats;
use crate::tensor::Tensor;
use crate::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use uringload::ReaderOptions;
use uringload::config::Value;
use uringload::dataset::{DType, FileId, Span};
use uringload::inspect::Here;

/// File, offset and length of each piece.
type Spans = Vec<(u32, u64, u64)>;

/// Reads on request. As with loaders, the mutex is never held while waiting.
#[pyclass(frozen)]
pub(crate) struct Reader {
    inner: Mutex<Option<uringload::Reader>>,
    /// Reads in the thread that asks, without the mutex.
    here: Arc<Here>,
    ready: OnceLock<OwnedFd>,
    said: Said,
}

#[pymethods]
impl Reader {
    /// A reader of a dataset's files, or of these files.
    #[new]
    fn new(py: Python<'_>, source: Source<'_>, options: Options) -> PyResult<Reader> {
        let dataset = match &source {
            Source::Dataset(dataset) => Ok(Arc::clone(&dataset.dataset)),
            Source::Paths(paths) => Err(paths.clone()),
        };
        let make = || match dataset {
            Ok(dataset) => uringload::Reader::of(dataset, &options.0),
            Err(paths) => uringload::Reader::open(&paths, &options.0),
        };
        let inner = outside(py, make).map_err(|error| raised(py, &error))?;
        said::steps(py, &inner.route().fallbacks)?;
        let here = inner.here();
        Ok(Reader { inner: Mutex::new(Some(inner)), here, ready: OnceLock::new(), said: Said::new() })
    }

    /// Asks for bytes. Does nothing once the reader is closed, which Python checks.
    fn submit(&self, py: Python<'_>, id: u64, spans: Spans) -> PyResult<()> {
        self.said.now_and_then(py, || self.lock().as_ref().map(uringload::Reader::route))?;
        let told = self.lock().as_mut().map_or(Ok(()), |reader| reader.submit(id, &of(&spans)));
        told.map_err(|error| raised(py, &error))
    }

    /// Takes a request back.
    fn cancel(&self, id: u64) -> bool {
        self.lock().as_mut().is_some_and(|reader| reader.cancel(id))
    }

    /// The bytes, read in this thread through the page cache.
    fn read(&self, py: Python<'_>, spans: Spans) -> PyResult<Tensor> {
        let spans = of(&spans);
        let read = || self.here.check(&spans).and_then(|()| self.here.read(&spans));
        outside(py, read).map(tensor).map_err(|error| raised(py, &error))
    }

    /// An answer if there is one: a number, and bytes or an exception. None: none is ready.
    fn try_next(&self, py: Python<'_>) -> Option<(u64, Py<PyAny>)> {
        let (id, bytes) = self.lock().as_mut()?.try_next()?;
        let made = match bytes {
            Ok(bytes) => Py::new(py, tensor(bytes)).map(Py::into_any),
            Err(error) => Ok(raised(py, &error).into_value(py).into_any()),
        };
        // If there is no memory for the tensor's object, the answer is that error.
        Some((id, made.unwrap_or_else(|error| error.into_value(py).into_any())))
    }

    /// Waits for the next answer, for at most this many seconds. None: none came, or none will. Handles signals
    /// meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(u64, Py<PyAny>)>> {
        let timeout =
            timeout.map_or(Value::Null, Value::Real).seconds("timeout").map_err(|error| raised(py, &error))?;
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(answer) = self.try_next(py) {
                return Ok(Some(answer));
            }
            if self.in_flight() == 0 || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(None);
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if let Some(fd) = self.ready(py)? {
                wait::until_one_readable(py, &[fd.as_fd()], left)?;
            }
        }
    }

    /// Number of requests that were not answered or taken back.
    #[getter]
    fn in_flight(&self) -> usize {
        self.lock().as_ref().map_or(0, uringload::Reader::in_flight)
    }

    /// A descriptor that is readable when there may be an answer; the caller closes it.
    fn ready_fd(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        self.ready(py)?.map(|fd| Ok(fd.try_clone()?.into_raw_fd())).transpose()
    }

    /// How bytes are read.
    fn route<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let route = self.lock().as_ref().map(uringload::Reader::route);
        route.map(|route| stats::route(py, &route)).transpose()
    }

    /// Size of a file when it was opened. None: there is no such file.
    fn size(&self, file: u32) -> Option<u64> {
        self.lock().as_ref().and_then(|reader| reader.files().sizes().get(file as usize).copied())
    }

    /// Ends what is in flight.
    fn close(&self, py: Python<'_>) {
        let inner = self.lock().take();
        outside(py, || drop(inner));
    }
}

impl Reader {
    fn lock(&self) -> MutexGuard<'_, Option<uringload::Reader>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self, py: Python<'_>) -> PyResult<Option<&OwnedFd>> {
        if self.ready.get().is_none() {
            let made = match self.lock().as_ref() {
                None => return Ok(None),
                Some(reader) => reader.ready_fd().map(|fd| fd.try_clone_to_owned()),
            };
            // Another thread may have been first, with a copy of the same descriptor.
            let _ = self.ready.set(made.map_err(|error| raised(py, &error))??);
        }
        Ok(self.ready.get())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if inner.is_some() {
            // As with loaders: other threads of Python can run while reads end.
            let _ = Python::try_attach(|py| outside(py, || drop(inner.take())));
        }
    }
}

/// What is read.
#[derive(FromPyObject)]
enum Source<'py> {
    #[pyo3(transparent)]
    Dataset(PyRef<'py, Dataset>),
    #[pyo3(transparent)]
    Paths(Vec<PathBuf>),
}

/// Python's options: a dictionary of settings.
pub(crate) struct Options(pub(crate) ReaderOptions);

impl<'py> FromPyObject<'_, 'py> for Options {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Options> {
        let mut options = ReaderOptions::default();
        for (name, given) in given.cast::<PyDict>()?.iter() {
            options = options
                .set(&name.extract::<String>()?, value(given.extract()?))
                .map_err(|error| raised(given.py(), &error))?;
        }
        Ok(Options(options))
    }
}

fn of(spans: &Spans) -> Vec<Span> {
    spans.iter().map(|&(file, offset, len)| Span { file: FileId(file), offset, len }).collect()
}

/// An answer has a block of its own, so its memory belongs to it alone.
fn tensor(bytes: bytes::Bytes) -> Tensor {
    let len = bytes.len() as u64;
    Tensor::new(bytes, DType::U8, vec![len])
}
