//! Single samples by number, as Python sees them.

use crate::batch::text;
use crate::dataset::Dataset;
use crate::errors::{raised, refused};
use crate::outside::outside;
use crate::tensor::{Tensor, aligned};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::Arc;
use uringload::Error;
use uringload::dataset::{self, DType, Role, Sample, SampleId, Shape, Value};
use uringload::inspect;

/// Reads single samples in the calling thread; threads may share it, and a forked child may go on with it.
#[pyclass(frozen)]
pub(crate) struct Samples {
    samples: inspect::Samples,
    dataset: Arc<dyn dataset::Dataset>,
    /// The form of each column's values.
    kinds: Vec<Kind>,
    /// Whether the memory of values may have other holders.
    is_shared: bool,
}

enum Kind {
    Tensor(DType, Option<Vec<u64>>),
    Text,
    Binary,
}

#[pymethods]
impl Samples {
    /// Reads from the dataset. Columns in `text` and `binary` become `str` and `bytes`; `text` None: as declared.
    #[new]
    #[pyo3(signature = (dataset, *, text=None, binary=vec![]))]
    fn new(py: Python<'_>, dataset: &Dataset, text: Option<Vec<String>>, binary: Vec<String>) -> PyResult<Samples> {
        let ownership = dataset.ownership;
        let dataset = Arc::clone(&dataset.dataset);
        let index = dataset.index();
        let kind = |(number, field): (usize, &dataset::Field)| {
            let is_text = match &text {
                Some(text) => text.contains(&field.name),
                None => index.encodings.get(number).is_some_and(|encoding| encoding.role == Role::Text),
            };
            let shape = match &field.shape {
                Shape::Fixed(shape) => Some(shape.clone()),
                Shape::Ragged => None,
            };
            match shape {
                None if binary.contains(&field.name) => Kind::Binary,
                None if is_text && field.dtype == DType::U8 => Kind::Text,
                shape => Kind::Tensor(field.dtype, shape),
            }
        };
        let kinds = index.schema.fields.iter().enumerate().map(kind).collect();
        let samples =
            outside(py, || inspect::Samples::new(Arc::clone(&dataset))).map_err(|error| raised(py, &error))?;
        let is_shared = ownership.has_units || !ownership.owns_views;
        Ok(Samples { samples, dataset, kinds, is_shared })
    }

    /// The columns that have encoded images, by the first samples.
    fn image_columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        outside(py, || self.samples.image_columns()).map_err(|error| raised(py, &error))
    }

    /// The values of each of these samples, in the order of the columns.
    fn read<'py>(&self, py: Python<'py>, ids: Vec<u64>) -> PyResult<Bound<'py, PyList>> {
        if let Some(id) = ids.iter().find(|&&id| id >= self.dataset.len()) {
            return Err(refused(py, format!("there is no sample {id} among {}", self.dataset.len()), "count from 0"));
        }
        let read = || ids.iter().map(|&id| self.samples.read(SampleId(id))).collect::<Result<Vec<Sample>, Error>>();
        let samples = outside(py, read).map_err(|error| raised(py, &error))?;
        let samples = samples.into_iter().map(|sample| self.values(py, sample)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, samples)
    }
}

impl Samples {
    fn values<'py>(&self, py: Python<'py>, sample: Sample) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        // Two columns of one sample may be the same bytes.
        let is_shared = self.is_shared || sample.values.len() > 1;
        for (value, kind) in sample.values.into_iter().zip(&self.kinds) {
            match (value, kind) {
                (Value::I64(number), _) => list.append(Tensor::scalar(number))?,
                (Value::Bytes(bytes), Kind::Text) => list.append(text(py, &bytes)?)?,
                (Value::Bytes(bytes), Kind::Binary) => list.append(PyBytes::new(py, &bytes))?,
                (Value::Bytes(bytes), Kind::Tensor(dtype, shape)) => {
                    let shape = shape.clone().unwrap_or_else(|| vec![bytes.len() as u64 / dtype.size()]);
                    let bytes = if is_shared { aligned(&bytes) } else { bytes };
                    list.append(Tensor::new(bytes, *dtype, shape))?;
                }
            }
        }
        Ok(list)
    }
}
