//! Memory with a type and a shape, as Python sees it. NumPy and torch make their own arrays from it, without a copy.

use crate::dlpack;
use crate::errors::raised;
use crate::outside::outside;
use bytes::Bytes;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyTuple};
use std::ffi::c_void;
use std::ptr;
use uringload::dataset::DType;
use uringload::device::DeviceColumn;
use uringload::sys::StreamRef;
use uringload::sys::dlpack::Memory;

/// A tensor on the host or on a GPU: contiguous, row-major, and writable, because its memory has no other user.
///
/// It supports DLPack (`numpy.from_dlpack`, `torch.from_dlpack`, `jax.dlpack.from_dlpack`) and, on the host, NumPy's
/// array interface (`numpy.asarray`). Everything made from it keeps the memory alive.
///
/// # Why it may be written to
/// `bytes` shares its memory with no one that reads or writes it through Rust: `batch::Shared` has copied everything
/// that other columns, batches or the dataset could share. The only other holders left are clones of the same block,
/// which other tensors of the batch keep for other ranges of it; dropping a block does not look at its bytes. This
/// module reads them only in `tobytes`, with the interpreter lock held, as any consumer may.
///
/// Python writes through an address, in C. No Rust reference to the bytes is alive then, because `Bytes` keeps a
/// pointer and makes a reference only while it is looked at. The memory itself can be written to: it is a mapping that
/// the kernel has read into, by the same address, or a heap allocation, and never a constant of the program (values in
/// one are not in a batch's blocks, so they are gathered, and formats that have such values are not among those of
/// `OWN_VIEWS`). A GPU's memory is not Rust's.
#[pyclass(frozen)]
pub(crate) struct Tensor {
    place: Elements,
    dtype: DType,
    shape: Vec<u64>,
}

/// The memory of the elements.
enum Elements {
    Host(Bytes),
    /// On a GPU, which may still be computing them.
    Device(DeviceColumn),
}

impl Tensor {
    /// A tensor over `bytes`, which has no other holder. They are copied if they do not start at a multiple of the
    /// element size.
    pub(crate) fn new(bytes: Bytes, dtype: DType, shape: Vec<u64>) -> Tensor {
        let size = dtype.size() as usize;
        debug_assert_eq!(shape.iter().product::<u64>() as usize * size, bytes.len());
        let bytes = if bytes.as_ptr().addr().is_multiple_of(size) { bytes } else { aligned(&bytes) };
        Tensor { place: Elements::Host(bytes), dtype, shape }
    }

    /// The values of a column, on the host or on a GPU, without another holder.
    pub(crate) fn of_column(column: DeviceColumn) -> Tensor {
        let (dtype, shape) = (column.dtype, column.shape());
        match column.memory.as_host() {
            Some(bytes) => Tensor::new(bytes.clone(), dtype, shape),
            None => Tensor { place: Elements::Device(column), dtype, shape },
        }
    }

    /// One dimension of 64-bit integers.
    pub(crate) fn of_i64(numbers: &[i64]) -> Tensor {
        let words: Vec<u64> = numbers.iter().map(|number| number.cast_unsigned()).collect();
        let len = words.len() * size_of::<u64>();
        Tensor::new(owned(words, len), DType::I64, vec![numbers.len() as u64])
    }

    /// A 64-bit integer, without a dimension.
    pub(crate) fn scalar(number: i64) -> Tensor {
        Tensor { shape: Vec::new(), ..Tensor::of_i64(&[number]) }
    }

    /// 32-bit integers of this shape.
    pub(crate) fn of_i32(numbers: &[i32], shape: Vec<u64>) -> Tensor {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        Tensor::new(aligned(&bytes), DType::I32, shape)
    }

    pub(crate) fn device(&self) -> (i32, i32) {
        match &self.place {
            Elements::Host(_) => dlpack::CPU,
            // There are only a handful of devices.
            Elements::Device(column) => (Memory::CUDA, column.memory.device().unwrap_or(0) as i32),
        }
    }

    /// The elements, copied to the host if they are elsewhere.
    fn to_host(&self, py: Python<'_>) -> PyResult<Bytes> {
        match &self.place {
            Elements::Host(bytes) => Ok(bytes.clone()),
            Elements::Device(column) => outside(py, || column.memory.to_host()).map_err(|error| raised(py, &error)),
        }
    }

    /// The memory where it is, as a `DLManagedTensorVersioned` that the caller owns; on a GPU, `stream` waits for it.
    pub(crate) fn lent(&self, py: Python<'_>, stream: Option<i64>) -> PyResult<*mut c_void> {
        dlpack::raw(self.lend(py, stream, self.device(), None)?, self.dtype, &self.shape)
    }

    /// The memory for a consumer on the device `wanted`.
    fn lend(&self, py: Python<'_>, stream: Option<i64>, wanted: (i32, i32), copy: Option<bool>) -> PyResult<Memory> {
        let own = self.device();
        if wanted != own && (wanted != dlpack::CPU || copy == Some(false)) {
            let (kind, number) = wanted;
            let text = format!("the tensor is on device {own:?} of DLPack, and cannot be lent on {kind}, {number}");
            return Err(PyBufferError::new_err(text));
        }
        match &self.place {
            Elements::Device(column) if wanted == own => {
                if copy == Some(true) {
                    return Err(PyBufferError::new_err("no copy is made on a GPU: take the tensor, and copy that"));
                }
                column.lend(stream_of(stream)?.map(Into::into)).map_err(|error| raised(py, &error))
            }
            Elements::Device(_) => Ok(copied(&self.to_host(py)?)),
            // Host memory needs no wait.
            Elements::Host(bytes) if copy == Some(true) => Ok(copied(bytes)),
            // SAFETY: "Why it may be written to" at `Tensor` is the proof. Rust reads the bytes only in `tobytes` and
            // in `copied` above, with the interpreter lock held.
            Elements::Host(bytes) => Ok(unsafe { Memory::host_mut(bytes.clone()) }),
        }
    }
}

/// The stream that a consumer names, as defined by the array API for CUDA; `None`: nothing has to wait.
pub(crate) fn stream_of(stream: Option<i64>) -> PyResult<Option<StreamRef>> {
    match stream {
        None | Some(1) => Ok(Some(StreamRef::LEGACY)),
        Some(2) => Ok(Some(StreamRef::PER_THREAD)),
        Some(-1) => Ok(None),
        Some(stream @ 3..) => {
            let raw = ptr::without_provenance_mut(usize::try_from(stream)?);
            // SAFETY: by the contract of `__dlpack__`, which is also that of `Loader.next`, the consumer passes a
            // `cudaStream_t` of its own, on which it uses the tensor, so the stream lives at least as long.
            Ok(Some(unsafe { StreamRef::from_raw(raw) }))
        }
        // 0 means different default streams to different consumers, and the array API forbids it.
        Some(other) => {
            let text = format!("stream cannot be {other}: 1 is the default stream, 2 that of the thread, -1 none");
            Err(PyValueError::new_err(text))
        }
    }
}

/// A copy of the bytes for one consumer alone.
fn copied(bytes: &[u8]) -> Memory {
    // SAFETY: the copy is a new heap allocation, or empty, and no other handle to it exists.
    unsafe { Memory::host_mut(aligned(bytes)) }.copied()
}

/// A copy that starts at a multiple of 8.
pub(crate) fn aligned(bytes: &[u8]) -> Bytes {
    let mut words = Vec::with_capacity(bytes.len().div_ceil(size_of::<u64>()));
    let mut chunks = bytes.chunks_exact(size_of::<u64>());
    let word = |chunk: &[u8]| {
        let mut word = [0; size_of::<u64>()];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    words.extend(chunks.by_ref().map(word));
    if !chunks.remainder().is_empty() {
        words.push(word(chunks.remainder()));
    }
    owned(words, bytes.len())
}

fn owned(words: Vec<u64>, len: usize) -> Bytes {
    if len == 0 { Bytes::new() } else { Bytes::from_owner(Words { words, len }) }
}

/// Aligned memory of `len` bytes.
struct Words {
    words: Vec<u64>,
    len: usize,
}

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        debug_assert!(self.len <= self.words.len() * size_of::<u64>());
        // SAFETY: the words are initialised memory of at least `len` bytes, as both constructors (`aligned` and
        // `of_i64`) ensure; a byte has no alignment and any value is one; the borrow is that of `self`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.len) }
    }
}

#[pymethods]
impl Tensor {
    /// The shape.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Name of the element type: "u8" to "i64", "f16" to "f64", "bf16", "f8e4m3", "f8e5m2", "bool".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        match &self.place {
            Elements::Host(bytes) => bytes.len(),
            Elements::Device(column) => column.memory.len(),
        }
    }

    /// Address of the first element, on the host or on the GPU.
    #[getter]
    fn data_ptr(&self) -> u64 {
        match &self.place {
            Elements::Host(bytes) => bytes.as_ptr().addr() as u64,
            Elements::Device(column) => column.memory.address(),
        }
    }

    /// Where it is: "cpu" or "cuda:0".
    #[getter]
    fn device_name(&self) -> String {
        match self.device() {
            dlpack::CPU => "cpu".into(),
            (_, number) => format!("cuda:{number}"),
        }
    }

    /// A copy of the elements as bytes; from a GPU, once they are there.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.to_host(py)?))
    }

    /// A tensor over the same memory with unsigned integers of the same size as elements, for consumers that do not
    /// know the type.
    fn as_unsigned(&self) -> Tensor {
        let dtype = match self.dtype.size() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        let place = match &self.place {
            Elements::Host(bytes) => Elements::Host(bytes.clone()),
            Elements::Device(column) => {
                let mut column = column.clone();
                column.dtype = dtype;
                Elements::Device(column)
            }
        };
        Tensor { place, dtype, shape: self.shape.clone() }
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().ok_or_else(|| PyTypeError::new_err("a tensor of no dimension has no len()"))?;
        Ok(usize::try_from(*first).unwrap_or(usize::MAX))
    }

    /// DLPack: the memory in a capsule; of version 1 if `max_version` allows it. On a GPU, whatever is queued on
    /// `stream` from here on waits for the values: None and 1 are the default stream, 2 that of the thread, -1 none,
    /// and anything else is a `cudaStream_t`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let memory = self.lend(py, stream, dl_device.unwrap_or(self.device()), copy)?;
        if max_version.is_some_and(|(major, _)| major >= 1) {
            return dlpack::versioned(py, memory, self.dtype, &self.shape);
        }
        dlpack::legacy(py, memory, self.dtype, &self.shape)
    }

    /// DLPack: the memory's device: (1, 0) is the host, (2, N) is GPU N.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.device()
    }

    /// What `numpy.asarray` makes an array from: it is writable, and keeps the tensor alive. Types that NumPy lacks
    /// become unsigned integers of the same size.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.device() != dlpack::CPU {
            return Err(PyAttributeError::new_err("a tensor on a GPU has no array interface: take it by DLPack"));
        }
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", self.dtype.numpy())?;
        interface.set_item("data", (self.data_ptr(), false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __repr__(&self) -> String {
        let device = self.device_name();
        format!("<uringload tensor {} {:?} on {device}>", self.dtype, self.shape)
    }
}
