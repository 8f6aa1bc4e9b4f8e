//! A dataset, opened, as Python has it.

use crate::batch::Ownership;
use crate::errors::{raised, refused};
use crate::formats::{Opened, Wishes};
use crate::wait;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;
use uringload::Error;
use uringload::config::Config;
use uringload::dataset::{self, Concat, SampleId, Shape, Subset};
use uringload::sampler::{Mixed, Sampler, Stopping, for_dataset};

/// Name, type, shape and encoding of a column.
type Described = (String, &'static str, Option<Vec<u64>>, Option<String>);

/// The index of a dataset: which samples there are and where they lie. It can be shared by any number of loaders.
#[pyclass(frozen)]
pub(crate) struct Dataset {
    pub(crate) dataset: Arc<dyn dataset::Dataset>,
    encodings: Vec<String>,
    classes: Vec<std::ffi::OsString>,
    skipped: Vec<(String, u64, PathBuf)>,
    remarks: Vec<String>,
    mixture: Option<Mixture>,
    /// Whose memory the values of a batch are.
    pub(crate) ownership: Ownership,
}

/// Datasets that come in turn, by weight.
struct Mixture {
    concat: Arc<Concat>,
    weights: Vec<f64>,
    stopping: Stopping,
}

/// Formats whose ragged values are slices of what their batch read, or heap memory of their own, and nothing else.
/// Those of lines and TFRecord may lie in chunks that samples of several batches share, and so may, for all that is
/// known here, those of a mixture.
const OWN_VIEWS: [&str; 11] =
    ["folder", "records", "tar", "mds", "litdata", "beton", "npy", "npz", "safetensors", "hdf5", "tokens"];

#[pymethods]
impl Dataset {
    /// Opens paths: `wishes` has every key of `uringload.dataset`'s arguments.
    #[staticmethod]
    fn open(py: Python<'_>, paths: Vec<PathBuf>, wishes: Wishes) -> PyResult<Dataset> {
        let opened = wait::for_work(py, move || wishes.open(&paths))?;
        let Opened { dataset, encodings, skipped, remarks, classes } = opened.map_err(|error| raised(py, &error))?;
        let owns_views = OWN_VIEWS.contains(&dataset.format());
        let ownership = Ownership { has_units: dataset.units().is_some(), owns_views };
        let skipped = skipped.iter().map(|it| (it.reason.describe().to_owned(), it.count, it.first.clone())).collect();
        Ok(Dataset { dataset, encodings, classes, skipped, remarks, mixture: None, ownership })
    }

    /// Several datasets, by weight, until `stopping`.
    #[staticmethod]
    fn mix(py: Python<'_>, parts: Vec<PyRef<'_, Dataset>>, weights: Vec<f64>, stopping: String) -> PyResult<Dataset> {
        let datasets = parts.iter().map(|part| Arc::clone(&part.dataset)).collect();
        let made = || -> Result<Mixture, Error> {
            let (concat, stopping) = (Arc::new(Concat::new(datasets)?), stopping.parse()?);
            let mixture = Mixture { concat, weights, stopping };
            // What cannot be mixed is refused here, and not where it is read.
            mixture.order(&Config::default())?;
            Ok(mixture)
        };
        let mixture = py.detach(made).map_err(|error| raised(py, &error))?;
        let dataset = Arc::clone(&mixture.concat) as Arc<dyn dataset::Dataset>;
        let owns_views = parts.iter().all(|part| part.ownership.owns_views);
        let ownership = Ownership { has_units: dataset.units().is_some(), owns_views };
        let same = |all: &dyn Fn(&Dataset) -> bool| parts.iter().all(|part| all(part));
        // What all say of a column is true of it.
        let first = parts.first().map_or(&[][..], |first| &first.encodings);
        let encodings = if same(&|part| part.encodings == first) { first.to_vec() } else { Vec::new() };
        let skipped = parts.iter().flat_map(|part| part.skipped.clone()).collect();
        let (classes, remarks) = (Vec::new(), Vec::new());
        Ok(Dataset { dataset, encodings, classes, skipped, remarks, mixture: Some(mixture), ownership })
    }

    /// The samples that are left without those of lists: files that a quarantine made, or numbers, one a line.
    fn without(&self, py: Python<'_>, lists: Vec<PathBuf>) -> PyResult<Dataset> {
        let read = || Subset::without(Arc::clone(&self.dataset), self.read(&lists)?);
        let subset = py.detach(read).map_err(|error| raised(py, &error))?;
        Ok(self.viewed(Arc::new(subset)))
    }

    /// The samples of lists, in ascending order.
    fn only(&self, py: Python<'_>, lists: Vec<PathBuf>) -> PyResult<Dataset> {
        let read = || Subset::of(Arc::clone(&self.dataset), self.read(&lists)?);
        let subset = py.detach(read).map_err(|error| raised(py, &error))?;
        Ok(self.viewed(Arc::new(subset)))
    }

    /// The samples of these numbers, in this order.
    fn subset(&self, py: Python<'_>, ids: Vec<u64>) -> PyResult<Dataset> {
        let subset = py.detach(|| Subset::of(Arc::clone(&self.dataset), ids));
        Ok(self.viewed(Arc::new(subset.map_err(|error| raised(py, &error))?)))
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

    /// Bytes of all samples, as far as the index tells.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.dataset.bytes()
    }

    /// What the order and the content of samples hang on, as 16 digits.
    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> String {
        format!("{:016x}", py.detach(|| self.dataset.fingerprint()))
    }

    /// Name, type, shape (None: ragged) and encoding of each column.
    #[getter]
    fn columns(&self) -> Vec<Described> {
        let fields = &self.dataset.schema().fields;
        let has_encodings = self.encodings.len() == fields.len();
        let encoding = |index: usize| has_encodings.then(|| self.encodings[index].clone());
        let column = |(index, field): (usize, &dataset::Field)| {
            let shape = match &field.shape {
                Shape::Fixed(shape) => Some(shape.clone()),
                Shape::Ragged => None,
            };
            (field.name.clone(), field.dtype.name(), shape, encoding(index))
        };
        fields.iter().enumerate().map(column).collect()
    }

    /// Names of the classes, where folders make labels.
    #[getter]
    fn classes(&self) -> Vec<std::ffi::OsString> {
        self.classes.clone()
    }

    /// What was left out: why, how often, and a file that it happened to.
    #[getter]
    fn skipped(&self) -> Vec<(String, u64, PathBuf)> {
        self.skipped.clone()
    }

    /// What went otherwise than wished when the files were opened.
    #[getter]
    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    /// What names a sample to a person, as bytes.
    fn key<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyBytes>> {
        if index >= self.dataset.len() {
            let what = format!("there is no sample {index} among {}", self.dataset.len());
            return Err(refused(py, what, "count from 0"));
        }
        let mut key = Vec::new();
        self.dataset.key(SampleId(index), &mut key);
        Ok(PyBytes::new(py, &key))
    }
}

impl Mixture {
    fn order(&self, config: &Config) -> Result<Mixed, Error> {
        Mixed::of(&self.concat, config.shuffle, &self.weights, self.stopping, config.seed)
    }
}

impl Dataset {
    /// The order that is asked for.
    pub(crate) fn order(&self, config: &Config) -> Result<Arc<dyn Sampler>, Error> {
        match &self.mixture {
            Some(mixture) => Ok(Arc::new(mixture.order(config)?)),
            None => for_dataset(&*self.dataset, config.shuffle, config.seed),
        }
    }

    /// The samples that lists name, ascending, each once.
    fn read(&self, lists: &[PathBuf]) -> Result<Vec<u64>, Error> {
        let mut ids = Vec::new();
        for list in lists {
            ids.extend(uringload::quarantine::read(list, &*self.dataset)?.into_iter().map(|id| id.0));
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn viewed(&self, dataset: Arc<dyn dataset::Dataset>) -> Dataset {
        Dataset {
            dataset,
            encodings: self.encodings.clone(),
            classes: self.classes.clone(),
            skipped: self.skipped.clone(),
            remarks: Vec::new(),
            mixture: None,
            ownership: self.ownership,
        }
    }
}
