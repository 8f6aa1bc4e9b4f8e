//! An open dataset, as Python sees it.

use crate::batch::Ownership;
use crate::errors::{raised, refused};
use crate::formats;
use crate::numbers::Numbers;
use crate::outside::outside;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::Arc;
use uringload::config::Config;
use uringload::dataset::{self, Concat, Role, SampleId, Shape, View};
use uringload::sampler::{Mixed, Sampler, Stopping, for_dataset};
use uringload::{Error, quarantine};

/// Name, type, shape, encoding and role of a column.
type Described = (String, &'static str, Option<Vec<u64>>, Option<String>, Option<String>);

/// The index of a dataset: its samples and their places. Any number of loaders can share it.
#[pyclass(frozen)]
pub(crate) struct Dataset {
    pub(crate) dataset: Arc<dyn dataset::Dataset>,
    mixture: Option<Mixture>,
    /// Who owns the memory of the values in a batch.
    pub(crate) ownership: Ownership,
}

/// Datasets that are interleaved by weight.
#[derive(Clone)]
struct Mixture {
    concat: Arc<Concat>,
    weights: Vec<f64>,
    stopping: Stopping,
}

#[pymethods]
impl Dataset {
    /// Opens paths; `options` holds the format and its options, by name.
    #[staticmethod]
    fn open(py: Python<'_>, paths: Vec<PathBuf>, options: &Bound<'_, PyDict>) -> PyResult<Dataset> {
        Ok(Dataset::of(formats::open(py, paths, options)?, None))
    }

    /// Mixes several datasets by weight, until `stopping`.
    #[staticmethod]
    fn mix(py: Python<'_>, parts: Vec<PyRef<'_, Dataset>>, weights: Vec<f64>, stopping: String) -> PyResult<Dataset> {
        let datasets = parts.iter().map(|part| Arc::clone(&part.dataset)).collect();
        let made = || -> Result<Mixture, Error> {
            let (concat, stopping) = (Arc::new(Concat::new(datasets)?), stopping.parse()?);
            let mixture = Mixture { concat, weights, stopping };
            // Refuses here what cannot be mixed, instead of when it is read.
            mixture.order(&Config::default())?;
            Ok(mixture)
        };
        let mixture = outside(py, made).map_err(|error| raised(py, &error))?;
        Ok(Dataset::of(Arc::clone(&mixture.concat) as Arc<dyn dataset::Dataset>, Some(mixture)))
    }

    /// The samples without those in the lists: files written by a quarantine, or numbers, one a line.
    fn without(&self, py: Python<'_>, lists: Vec<PathBuf>) -> PyResult<Dataset> {
        let read = || View::without(Arc::clone(&self.dataset), quarantine::read_all(&lists, &*self.dataset)?);
        let subset = outside(py, read).map_err(|error| raised(py, &error))?;
        Ok(Dataset::of(Arc::new(subset), None))
    }

    /// The samples in the lists, in ascending order.
    fn only(&self, py: Python<'_>, lists: Vec<PathBuf>) -> PyResult<Dataset> {
        let read = || View::of(Arc::clone(&self.dataset), quarantine::read_all(&lists, &*self.dataset)?);
        let subset = outside(py, read).map_err(|error| raised(py, &error))?;
        Ok(Dataset::of(Arc::new(subset), None))
    }

    /// The samples with these numbers, in this order.
    fn subset(&self, py: Python<'_>, ids: Numbers<'_>) -> PyResult<Dataset> {
        let ids = Vec::from(ids);
        let subset = outside(py, || View::of(Arc::clone(&self.dataset), ids));
        Ok(Dataset::of(Arc::new(subset.map_err(|error| raised(py, &error))?), None))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.dataset.len()).unwrap_or(usize::MAX)
    }

    /// Short name of the format.
    #[getter]
    fn format(&self) -> &'static str {
        self.dataset.format()
    }

    /// Number of files.
    #[getter]
    fn files(&self) -> usize {
        self.dataset.files().len()
    }

    /// Bytes of all samples, by the index.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.dataset.bytes()
    }

    /// Identifies everything that the order and content of samples depend on, as 16 digits.
    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> String {
        format!("{:016x}", outside(py, || self.dataset.fingerprint()))
    }

    /// Name, type, shape (None: ragged) and storage of each column. Storage is described in words, and as a role:
    /// "raw", "text" or the name of the encoding.
    #[getter]
    fn columns(&self) -> Vec<Described> {
        let index = self.dataset.index();
        let column = |(number, field): (usize, &dataset::Field)| {
            let shape = match &field.shape {
                Shape::Fixed(shape) => Some(shape.clone()),
                Shape::Ragged => None,
            };
            let encoding = index.encodings.get(number);
            let role = encoding.map(|encoding| match &encoding.role {
                Role::Text => "text".to_owned(),
                Role::Encoded(name) => name.clone(),
                _ => "raw".to_owned(),
            });
            (field.name.clone(), field.dtype.name(), shape, encoding.map(|encoding| encoding.words.clone()), role)
        };
        index.schema.fields.iter().enumerate().map(column).collect()
    }

    /// Names of the classes, if folders define labels.
    #[getter]
    fn classes(&self) -> Vec<std::ffi::OsString> {
        self.dataset.index().classes.clone()
    }

    /// What was left out: why, how often, and one of the files.
    #[getter]
    fn skipped(&self) -> Vec<(&'static str, u64, PathBuf)> {
        let left_out = self.dataset.index().left_out.iter();
        left_out.map(|it| (it.what, it.count, it.first.clone())).collect()
    }

    /// How the result of opening the files deviates from the request.
    #[getter]
    fn remarks(&self) -> Vec<String> {
        let index = self.dataset.index();
        let damage = index.damage.iter().map(|error| format!("left out from there on: {error}"));
        index.fallbacks.iter().map(ToString::to_string).chain(damage).collect()
    }

    /// How many files have changed since they were indexed, and why the first one counts. None: all are unchanged.
    fn changed(&self, py: Python<'_>) -> PyResult<Option<(u64, String)>> {
        let dataset = Arc::clone(&self.dataset);
        let found = crate::wait::for_work(py, move || dataset.files().changed())?;
        Ok(found.map(|(files, error)| (files, error.headline().to_string())))
    }

    /// The place of a sample: the file of its first part and the offset there. None: it has no bytes.
    fn place(&self, py: Python<'_>, index: u64) -> PyResult<Option<(PathBuf, u64)>> {
        self.check(py, index)?;
        Ok(place(&*self.dataset, SampleId(index)))
    }

    /// A human-readable name of a sample, as bytes.
    fn key<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.check(py, index)?;
        let mut key = Vec::new();
        self.dataset.key(SampleId(index), &mut key);
        Ok(PyBytes::new(py, &key))
    }
}

/// The file of the first part of a sample, and the offset there.
pub(crate) fn place(dataset: &dyn dataset::Dataset, id: SampleId) -> Option<(PathBuf, u64)> {
    let mut spans = Vec::new();
    dataset.spans(id, &mut spans);
    spans.first().map(|span| (dataset.files().path(span.file), span.offset))
}

impl Mixture {
    fn order(&self, config: &Config) -> Result<Mixed, Error> {
        Mixed::of(&self.concat, config.shuffle, &self.weights, self.stopping, config.seed)
    }
}

impl Dataset {
    /// A dataset that is not a mixture.
    pub(crate) fn plain(dataset: Arc<dyn dataset::Dataset>) -> Dataset {
        Dataset::of(dataset, None)
    }

    fn of(dataset: Arc<dyn dataset::Dataset>, mixture: Option<Mixture>) -> Dataset {
        let ownership = Ownership { has_units: dataset.units().is_some(), owns_views: dataset.index().owns_values };
        Dataset { dataset, mixture, ownership }
    }

    fn check(&self, py: Python<'_>, index: u64) -> PyResult<()> {
        if index < self.dataset.len() {
            return Ok(());
        }
        let what = format!("there is no sample {index}; the dataset has {}", self.dataset.len());
        Err(refused(py, what, "count from 0"))
    }

    /// The same once more.
    pub(crate) fn again(&self) -> Dataset {
        Dataset { dataset: Arc::clone(&self.dataset), mixture: self.mixture.clone(), ownership: self.ownership }
    }

    /// Whether datasets are drawn by weight.
    pub(crate) fn is_mixture(&self) -> bool {
        self.mixture.is_some()
    }

    /// The requested order.
    pub(crate) fn order(&self, config: &Config) -> Result<Arc<dyn Sampler>, Error> {
        match &self.mixture {
            Some(mixture) => Ok(Arc::new(mixture.order(config)?)),
            None => for_dataset(&*self.dataset, config.shuffle, config.seed),
        }
    }
}
