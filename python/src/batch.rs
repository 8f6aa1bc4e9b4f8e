//! Hands a batch to Python: columns become tensors or lists, and memory that other batches could share is copied.

use crate::errors;
use crate::tensor::{Tensor, aligned};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use uringload::batch::{Batch, Column, Data, FailedSample, Packed};
use uringload::dataset::DType;
use uringload::device::{DeviceBatch, DeviceColumn, DeviceForm, PinnedMemory};
use uringload::sampler::Cursor;
use uringload::sys::StreamRef;

/// The form of values in a column with one slice per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A tensor for each value.
    Tensors,
    /// A `str` for each value.
    Text,
    /// A `bytes` for each value.
    Binary,
}

/// A batch without its columns.
#[pyclass(frozen)]
pub(crate) struct Meta {
    ids: Vec<u64>,
    padding: Option<Vec<bool>>,
    failed: Vec<FailedSample>,
    /// The position of the batch in the order.
    pub(crate) cursor: Cursor,
    /// Epoch of the batch.
    #[pyo3(get)]
    epoch: u64,
    /// Samples of the epoch, over all ranks, before this batch.
    #[pyo3(get)]
    position: u64,
    /// Whether this is the last batch of its epoch.
    #[pyo3(get)]
    is_last: bool,
}

#[pymethods]
impl Meta {
    /// Numbers of the samples in the dataset.
    #[getter]
    fn ids(&self) -> Vec<u64> {
        self.ids.clone()
    }

    /// Which samples only fill up the batch; None if there are none.
    #[getter]
    fn padding(&self) -> Option<Vec<bool>> {
        self.padding.clone()
    }

    /// Number of samples.
    fn __len__(&self) -> usize {
        self.ids.len()
    }

    /// Samples that could not be read: number, position, exception, number of the replacement.
    #[getter]
    fn failed(&self, py: Python<'_>) -> Vec<Failed> {
        self.failed.iter().map(|failed| failed_sample(py, failed)).collect()
    }
}

/// A sample that failed: number, position, exception, number of the replacement.
pub(crate) type Failed = (u64, u64, Py<PyAny>, Option<u64>);

pub(crate) fn failed_sample(py: Python<'_>, failed: &FailedSample) -> Failed {
    let exception = errors::raised(py, &failed.error).into_value(py).into_any();
    (failed.id.0, failed.position, exception, failed.replaced_by.map(|id| id.0))
}

/// What a loader returns.
pub(crate) enum Taken {
    Host(Batch),
    /// With its columns on a GPU, or built as for one.
    Device(DeviceBatch),
}

/// Returns the columns as tuples of name, form and payload, and the rest of the batch. `listed` names the columns that
/// do not become tensors. If memory is pinned, that of tensors is `kept` for a stream.
pub(crate) fn into_python<'py>(
    py: Python<'py>,
    taken: Taken,
    listed: &[(String, Listed)],
    ownership: Ownership,
    kept: Option<(&PinnedMemory, StreamRef)>,
) -> PyResult<(Bound<'py, PyList>, Meta)> {
    let (made, batch) = match taken {
        Taken::Host(batch) => (Vec::new(), batch),
        Taken::Device(DeviceBatch { host, columns, .. }) => (columns, host),
    };
    let Batch { cursor, next, ids, padding, mut columns, failed, .. } = batch;
    let meta = Meta {
        ids: ids.into_iter().map(|id| id.0).collect(),
        padding,
        failed,
        cursor,
        epoch: cursor.epoch,
        position: cursor.position,
        is_last: next.epoch != cursor.epoch,
    };
    let kind = |column: &Column| {
        let found = listed.iter().find(|(name, _)| *name == column.name);
        found.map_or(Listed::Tensors, |(_, listed)| *listed)
    };
    let mut shared = Shared::find(columns.iter().map(|column| (column, kind(column))), ownership);
    if let Some((memory, stream)) = kept {
        keep(memory, stream, &mut columns).map_err(|error| errors::raised(py, &error))?;
    }
    let list = PyList::empty(py);
    let samples = meta.ids.len();
    for column in made {
        list.append(device_column_of(py, column)?)?;
    }
    for column in columns {
        let kind = kind(&column);
        list.append(column_of(py, column, kind, samples, &mut shared)?)?;
    }
    Ok((list, meta))
}

/// Returns the memory of values only when everything is done that was queued on `stream` by the time the last of them
/// was dropped: torch queues a copy out of pinned memory (`to(device, non_blocking=True)`) and does not wait for it.
fn keep(memory: &PinnedMemory, stream: StreamRef, columns: &mut [Column]) -> Result<(), uringload::Error> {
    let mut blocks = Vec::new();
    for column in columns {
        match &mut column.data {
            Data::Dense { bytes, .. } => blocks.push(bytes),
            Data::Ragged { values: bytes, .. } | Data::Padded { values: bytes, .. } => blocks.push(bytes),
            Data::Packed(packed) => blocks.push(&mut packed.values),
            Data::Views(views) => blocks.extend(views),
            _ => {}
        }
    }
    let kept = memory.keep(blocks.iter().map(|bytes| (**bytes).clone()).collect(), stream)?;
    blocks.into_iter().zip(kept).for_each(|(bytes, kept)| *bytes = kept);
    Ok(())
}

/// Who owns the memory of the values in a dataset's batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership {
    /// Whether samples are cut from units, which the loader keeps for later batches.
    pub(crate) has_units: bool,
    /// Whether single slices are in the memory that their batch was read into, or in heap memory of their own, so that
    /// they can be lent as they are.
    pub(crate) owns_views: bool,
}

/// Which values of a batch must be copied, in the order of the columns and of the samples in them.
///
/// # Values that are not copied belong to the batch alone
/// - Values that the library lays end to end (dense, ragged, padded, packed) are in a block that this very batch was
///   read into, in one that it was gathered into, in a heap allocation of their own, or in a unit. A block is leased to
///   this batch, and the reactor does not look at it again until its last lease is dropped. If there are units, a value
///   is only taken as it is if its `Bytes` is the only handle to its memory.
/// - Single slices may be anything that a parser returned; `owns_views` says for which formats they are slices of what
///   the batch has read, or heap memory of their own.
///
/// The remaining case is two values of one batch that overlap (a sample that occurs twice, windows of tokens): these
/// are found here by address.
struct Shared(std::vec::IntoIter<bool>);

impl Shared {
    fn find<'a>(columns: impl Iterator<Item = (&'a Column, Listed)>, ownership: Ownership) -> Shared {
        // Address, length, and whether it is shared for a reason other than its place.
        let mut values: Vec<(usize, usize, bool)> = Vec::new();
        for (column, listed) in columns {
            let Ownership { has_units, owns_views } = ownership;
            let one = |bytes: &Bytes| (bytes.as_ptr().addr(), bytes.len(), has_units && !bytes.is_unique());
            match &column.data {
                Data::Dense { bytes, .. } => values.push(one(bytes)),
                Data::Ragged { values: bytes, .. } | Data::Padded { values: bytes, .. } => values.push(one(bytes)),
                Data::Packed(packed) => values.push(one(&packed.values)),
                Data::Views(views) if listed == Listed::Tensors => {
                    values
                        .extend(views.iter().map(|view| (view.as_ptr().addr(), view.len(), has_units || !owns_views)));
                }
                _ => {}
            }
        }
        let mut order: Vec<usize> = (0..values.len()).filter(|&index| values[index].1 > 0).collect();
        order.sort_unstable_by_key(|&index| values[index].0);
        let mut free = 0;
        for index in order {
            let (start, len, is_shared) = &mut values[index];
            *is_shared |= *start < free;
            free = free.max(*start + *len);
        }
        Shared(values.into_iter().map(|(_, _, is_shared)| is_shared).collect::<Vec<_>>().into_iter())
    }

    /// The next value, in memory without other holders.
    fn alone(&mut self, bytes: Bytes) -> Bytes {
        // There is an answer for each value that was asked about; if one were missing, a copy is always safe.
        if self.0.next().unwrap_or(true) { aligned(&bytes) } else { bytes }
    }
}

/// Name, form and payload of one column.
fn column_of<'py>(
    py: Python<'py>,
    column: Column,
    listed: Listed,
    samples: usize,
    shared: &mut Shared,
) -> PyResult<Bound<'py, PyTuple>> {
    let Column { name, dtype, data, .. } = column;
    match data {
        Data::Dense { shape, bytes } => {
            let shape = std::iter::once(samples as u64).chain(shape).collect();
            let tensor = Tensor::new(shared.alone(bytes), dtype, shape);
            (name, "dense", tensor).into_pyobject(py)
        }
        Data::I64(numbers) => (name, "dense", Tensor::of_i64(&numbers)).into_pyobject(py),
        Data::Ragged { values, offsets } => {
            let values = flat(shared.alone(values), dtype);
            (name, "ragged", (values, counts(&offsets))).into_pyobject(py)
        }
        Data::Padded { length, values, lengths } => {
            let values = Tensor::new(shared.alone(values), dtype, vec![samples as u64, length]);
            (name, "padded", (values, counts(&lengths))).into_pyobject(py)
        }
        Data::Packed(packed) => {
            let values = shared.alone(packed.values.clone());
            let values = Tensor::new(values, dtype, vec![packed.rows, packed.seq_len]);
            (name, "packed", packed_of(&packed, values)).into_pyobject(py)
        }
        Data::Views(views) => {
            let list = match listed {
                Listed::Tensors => {
                    let tensors = views.into_iter().map(|view| Py::new(py, flat(shared.alone(view), dtype)));
                    PyList::new(py, tensors.collect::<PyResult<Vec<_>>>()?)?
                }
                Listed::Text => {
                    let texts = views.iter().map(|view| text(py, view)).collect::<PyResult<Vec<_>>>()?;
                    PyList::new(py, texts)?
                }
                Listed::Binary => PyList::new(py, views.iter().map(|view| PyBytes::new(py, view)))?,
            };
            (name, "list", list).into_pyobject(py)
        }
        // A form that this version does not know.
        _ => Err(unknown_form(py, &name)),
    }
}

/// Like `column_of`, for a column created for a device. Parts that only hold the places of values are on the host.
fn device_column_of(py: Python<'_>, mut column: DeviceColumn) -> PyResult<Bound<'_, PyTuple>> {
    let name = std::mem::take(&mut column.name);
    let form = column.form.clone();
    let values = Tensor::of_column(column);
    match form {
        DeviceForm::Dense { .. } => (name, "dense", values).into_pyobject(py),
        DeviceForm::Ragged { offsets } => (name, "ragged", (values, counts(&offsets))).into_pyobject(py),
        DeviceForm::Padded { lengths, .. } => (name, "padded", (values, counts(&lengths))).into_pyobject(py),
        DeviceForm::Packed(packed) => (name, "packed", packed_of(&packed, values)).into_pyobject(py),
        _ => Err(unknown_form(py, &name)),
    }
}

fn unknown_form(py: Python<'_>, name: &str) -> PyErr {
    errors::refused(py, format!("column {name:?} has a form that Python does not know"), "ask for another collate")
}

/// Lengths or offsets; all are below the length of a batch.
fn counts(counts: &[u64]) -> Tensor {
    Tensor::of_i64(&counts.iter().map(|&count| count.cast_signed()).collect::<Vec<_>>())
}

/// Values, segment ids, positions, and the ends of pieces.
fn packed_of(packed: &Packed, values: Tensor) -> (Tensor, Tensor, Tensor, Tensor) {
    let shape = vec![packed.rows, packed.seq_len];
    let ends = packed.cu_seqlens();
    let count = ends.len() as u64;
    let segments = Tensor::of_i32(&packed.segment_ids(), shape.clone());
    (values, segments, Tensor::of_i32(&packed.positions(), shape), Tensor::of_i32(&ends, vec![count]))
}

/// One dimension.
fn flat(bytes: Bytes, dtype: DType) -> Tensor {
    let elements = bytes.len() as u64 / dtype.size();
    Tensor::new(bytes, dtype, vec![elements])
}

/// Decodes text; bytes that are not UTF-8 become lone surrogates, as in file names.
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => {
            let decoded = PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape"))?;
            Ok(decoded.cast_into()?)
        }
    }
}
