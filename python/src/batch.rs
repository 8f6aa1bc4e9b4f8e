//! A batch on its way to Python: columns become tensors or lists, and what other batches could have is copied.

use crate::errors;
use crate::tensor::{Tensor, aligned};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use uringload::batch::{Batch, Column, Data, Packed};
use uringload::dataset::DType;
use uringload::device::{DeviceBatch, DeviceColumn, DeviceForm, PinnedMemory};
use uringload_sys::cuda::StreamRef;

/// What becomes of the values of a column that is one slice a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A tensor each.
    Tensors,
    /// `str` each.
    Text,
    /// `bytes` each.
    Binary,
}

/// All of a batch but its columns.
#[pyclass(frozen)]
pub(crate) struct Meta {
    ids: Vec<u64>,
    padding: Option<Vec<bool>>,
    failed: Vec<uringload::batch::FailedSample>,
    /// Epoch of the batch.
    #[pyo3(get)]
    epoch: u64,
    /// Samples of the epoch, over all ranks, that come before it.
    #[pyo3(get)]
    position: u64,
    /// Whether the epoch has no batch behind it.
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

    /// Which samples only fill the batch up; None where none does.
    #[getter]
    fn padding(&self) -> Option<Vec<bool>> {
        self.padding.clone()
    }

    /// Number of samples.
    fn __len__(&self) -> usize {
        self.ids.len()
    }

    /// Samples that could not be had: number, position, exception, number of the one in its place.
    #[getter]
    fn failed(&self, py: Python<'_>) -> Vec<(u64, u64, Py<PyAny>, Option<u64>)> {
        let failed = self.failed.iter().map(|failed| {
            let exception = errors::raised(py, &failed.error).into_value(py).into_any();
            (failed.id.0, failed.position, exception, failed.replaced_by.map(|id| id.0))
        });
        failed.collect()
    }
}

/// What a loader hands out.
pub(crate) enum Taken {
    Host(Batch),
    /// With its columns on a GPU, or made as if there were one.
    Device(DeviceBatch),
}

/// The columns as tuples of name, form and payload, and the rest. `listed` has the columns that are no tensors; the
/// memory of those that are is `kept` for a stream, where it is pinned.
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

/// Has the memory of values go home only when all is done that was put into `stream` by the drop of the last of them:
/// torch queues a copy out of pinned memory (`to(device, non_blocking=True)`) and goes on.
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

/// Whose memory the values of a dataset's batches are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership {
    /// Whether samples are cut from units, which the loader keeps for later batches.
    pub(crate) has_units: bool,
    /// Whether single slices are of the memory that their batch was read into, or heap memory of their own, and may be
    /// lent as they are.
    pub(crate) owns_views: bool,
}

/// Which values of a batch must be copied, in the order of the columns and of the samples in them.
///
/// # What is not copied is the batch's alone
/// - Values that the library lays end to end (dense, ragged, padded, packed) lie in a block that this very batch was
///   read into, in one that it was gathered into, on a heap allocation of their own, or in a unit. A block was leased
///   to this batch, and the reactor looks at it again when its last lease was dropped. Where there are units, nothing
///   but a value whose `Bytes` is the only one of its memory is taken as it is.
/// - Single slices may be anything that a parser gave; `owns_views` tells for which formats they are slices of what the
///   batch has read, or heap memory of their own.
///
/// What remains are two values of one batch that overlap (a sample that comes twice, windows of tokens): they are found
/// here by address.
struct Shared(std::vec::IntoIter<bool>);

impl Shared {
    fn find<'a>(columns: impl Iterator<Item = (&'a Column, Listed)>, ownership: Ownership) -> Shared {
        // Address, length, and whether it is shared for another reason than its place.
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

    /// The next value, as memory that is its holder's alone.
    fn alone(&mut self, bytes: Bytes) -> Bytes {
        // There is an answer for each value that was asked about; without one, a copy is right.
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

/// As `column_of`, of a column that was made for a device. What only says where values lie is on the host.
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

/// Lengths or offsets, which are below the length of a batch.
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

/// As text; bytes that are not UTF-8 become lone surrogates, as in names of files.
fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => {
            let decoded = PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape"))?;
            Ok(decoded.cast_into()?)
        }
    }
}
