//! Datasets that a program describes itself: its own index, columns in memory, labels by name.

use crate::dataset::Dataset;
use crate::errors::{raised, refused};
use crate::outside::outside;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::path::PathBuf;
use std::sync::Arc;
use uringload::Error;
use uringload::dataset::inspect::Numbers;
use uringload::dataset::{self, Concat, DType, KnownColumn, Labels, Ranges, Unlabelled, WithColumns};

/// The values of a column, as Python gives them.
#[derive(FromPyObject)]
pub(crate) enum Values {
    /// The elements, end to end.
    Elements(PyBackedBytes),
    Texts(Vec<String>),
}

/// A column: its name, its values, and the type and shape of each where they are elements.
type Given = (String, Values, String, Vec<u64>);

/// Samples that are ranges of bytes of files, or whole files where `places` is None: which file, offset, length.
#[pyfunction]
pub(crate) fn ranges(
    py: Python<'_>,
    files: Vec<PathBuf>,
    places: Option<(Vec<u32>, Vec<u64>, Vec<u64>)>,
    dtype: &str,
) -> PyResult<Dataset> {
    let Some(dtype) = DType::named(dtype) else {
        return Err(refused(py, format!("dtype cannot be {dtype:?}"), "give u8, i32, f32 or the like"));
    };
    let open = move || match places {
        Some((which, offsets, lengths)) => Ranges::new(&files, which, offsets, lengths)?.with_dtype(dtype),
        None => Ranges::whole(&files)?.with_dtype(dtype),
    };
    let ranges = outside(py, open).map_err(|error| raised(py, &error))?;
    Ok(Dataset::plain(Arc::new(ranges)))
}

/// Samples without bytes, which Python makes by number.
#[pyfunction]
pub(crate) fn numbers(py: Python<'_>, samples: u64, name: &str) -> PyResult<Dataset> {
    Ok(Dataset::plain(Numbers::new(samples, name).map_err(|error| raised(py, &error))?))
}

/// Datasets end to end.
#[pyfunction]
pub(crate) fn concat(py: Python<'_>, parts: Vec<PyRef<'_, Dataset>>) -> PyResult<Dataset> {
    let parts = parts.iter().map(|part| Arc::clone(&part.dataset)).collect();
    let concat = outside(py, || Concat::new(parts)).map_err(|error| raised(py, &error))?;
    Ok(Dataset::plain(Arc::new(concat)))
}

/// The dataset with more columns.
#[pyfunction]
pub(crate) fn with_columns(py: Python<'_>, dataset: &Dataset, columns: Vec<Given>) -> PyResult<Dataset> {
    let mut known = Vec::with_capacity(columns.len());
    for (name, values, dtype, shape) in columns {
        known.push(match values {
            Values::Texts(texts) => KnownColumn::of_texts(name, texts),
            Values::Elements(elements) => {
                let Some(dtype) = DType::named(&dtype) else {
                    let what = format!("column {name:?} has elements of type {dtype:?}");
                    return Err(refused(py, what, "give integers, floats, booleans or texts"));
                };
                let bytes = elements.to_vec().into();
                KnownColumn::of_bytes(name, dtype, shape, bytes).map_err(|error| raised(py, &error))?
            }
        });
    }
    let made = outside(py, || WithColumns::new(Arc::clone(&dataset.dataset), known));
    Ok(Dataset::plain(Arc::new(made.map_err(|error| raised(py, &error))?)))
}

/// The dataset with a column of labels, each found by the sample's name.
#[pyfunction]
pub(crate) fn labelled(
    py: Python<'_>,
    dataset: &Dataset,
    names: Vec<PathBuf>,
    labels: Vec<String>,
    skip: bool,
) -> PyResult<Dataset> {
    let unlabelled = if skip { Unlabelled::Skip } else { Unlabelled::Error };
    let onto = || -> Result<Arc<dyn dataset::Dataset>, Error> {
        Labels::new(names.into_iter().zip(labels))?.onto(Arc::clone(&dataset.dataset), unlabelled)
    };
    Ok(Dataset::plain(outside(py, onto).map_err(|error| raised(py, &error))?))
}
