//! Memory with a type and a shape, as Python has it: what NumPy and torch make their own arrays of, without a copy.

use crate::dlpack;
use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyTuple};
use uringload::dataset::DType;

/// A tensor on the host: contiguous, row-major, and writable, because nobody but its holder has its memory.
///
/// It speaks DLPack (`numpy.from_dlpack`, `torch.from_dlpack`, `jax.dlpack.from_dlpack`) and NumPy's array interface
/// (`numpy.asarray`). Whatever is made of it keeps the memory alive.
///
/// # Why it may be written to
/// `bytes` shares its memory with no one that reads or writes it through Rust: `batch::Shared` has copied what other
/// columns, batches or the dataset could have. What is left of other holders are clones of the same block that other
/// tensors of the batch keep for other ranges of it; a block's drop does not look at its bytes. This module reads them
/// only in `tobytes`, with the interpreter's lock, as any consumer may.
///
/// Python writes through an address, in C: no reference of Rust to the bytes is alive then, for `Bytes` keeps a pointer
/// and makes a reference only while it is looked at. The memory itself can be written to: it is a mapping that the
/// kernel has read into, by the same address, or a heap allocation, and never a constant of the program (values that
/// lie in one are not in a batch's blocks, so that they are gathered, and formats that have such are not among those
/// of `OWN_VIEWS`).
#[pyclass(frozen)]
pub(crate) struct Tensor {
    bytes: Bytes,
    dtype: DType,
    shape: Vec<i64>,
}

impl Tensor {
    /// Over `bytes`, of which nobody else has any. They are copied where they do not start at a multiple of the
    /// element's size.
    pub(crate) fn new(bytes: Bytes, dtype: DType, shape: Vec<i64>) -> Tensor {
        let size = dtype.size() as usize;
        debug_assert_eq!(shape.iter().product::<i64>() as usize * size, bytes.len());
        let bytes = if bytes.as_ptr().addr().is_multiple_of(size) { bytes } else { aligned(&bytes) };
        Tensor { bytes, dtype, shape }
    }

    /// One dimension of 64-bit integers.
    pub(crate) fn of_i64(numbers: &[i64]) -> Tensor {
        let words: Vec<u64> = numbers.iter().map(|number| number.cast_unsigned()).collect();
        let len = words.len() * size_of::<u64>();
        Tensor::new(owned(words, len), DType::I64, vec![numbers.len() as i64])
    }

    /// 32-bit integers of this shape.
    pub(crate) fn of_i32(numbers: &[i32], shape: Vec<i64>) -> Tensor {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        Tensor::new(aligned(&bytes), DType::I32, shape)
    }
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
        // SAFETY: the words are initialised memory of at least `len` bytes, as both that make one (`aligned` and
        // `of_i64`) see to; a byte has no alignment and any value is one; the borrow is that of `self`.
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

    /// Name of the element's type: "u8" to "i64", "f16" to "f64", "bf16", "f8e4m3", "f8e5m2", "bool".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len()
    }

    /// Address of the first element.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.bytes.as_ptr().addr()
    }

    /// A copy of the elements as bytes.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// A tensor of the same memory whose elements are called unsigned integers of the same size, for those who do not
    /// know the type.
    fn as_unsigned(&self) -> Tensor {
        let dtype = match self.dtype.size() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        Tensor { bytes: self.bytes.clone(), dtype, shape: self.shape.clone() }
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().ok_or_else(|| PyTypeError::new_err("a tensor of no dimension has no len()"))?;
        Ok(usize::try_from(*first).unwrap_or(0))
    }

    /// DLPack: the memory in a capsule; one of version 1 where `max_version` takes it.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Of memory of the host there is nothing to wait for.
        let _ = stream;
        if dl_device.is_some_and(|device| device != dlpack::CPU) {
            return Err(PyBufferError::new_err("the tensor is in the memory of the host, and is lent there alone"));
        }
        let is_copied = copy == Some(true);
        let bytes = if is_copied { aligned(&self.bytes) } else { self.bytes.clone() };
        if max_version.is_some_and(|(major, _)| major >= 1) {
            return dlpack::versioned(py, bytes, self.dtype, &self.shape, is_copied);
        }
        dlpack::legacy(py, bytes, self.dtype, &self.shape)
    }

    /// DLPack: the memory of the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    /// What `numpy.asarray` makes an array of: it is writable, and keeps the tensor. Types that NumPy lacks are
    /// unsigned integers of the same size.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr(self.dtype))?;
        interface.set_item("data", (self.data_ptr(), false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __repr__(&self) -> String {
        format!("<uringload tensor {} {:?}>", self.dtype, self.shape)
    }
}

/// NumPy's name of a type.
fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 => "|i1",
        DType::U16 | DType::BF16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::Bool => "|b1",
        // U8, and floats of one byte.
        _ => "|u1",
    }
}
