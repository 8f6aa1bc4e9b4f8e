//! DLPack's C exchange API (DLPack 1.3): functions on a library's tensor type, by which others make its tensors without
//! a capsule and a call of Python for each.

use crate::tensor::Tensor;
use pyo3::exceptions::{PyBufferError, PySystemError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySequence};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use uringload::sys::dlpack::Memory;

/// The attribute in which a library's tensor type has its table, in a capsule.
const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";
const NAME: &CStr = c"dlpack_exchange_api";

/// Major version of the table below, and of the tensors that are handed over.
const MAJOR: u32 = 1;

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
struct Header {
    major: u32,
    minor: u32,
    previous: *const Header,
}

/// `DLPackExchangeAPI` of version 1. Functions that we do not call are plain addresses.
#[repr(C)]
pub(crate) struct Table {
    header: Header,
    pub(crate) allocator: Option<uringload::sys::dlpack::Allocate>,
    from_object: *const c_void,
    to_object: Option<unsafe extern "C" fn(tensor: *mut c_void, object: *mut *mut ffi::PyObject) -> c_int>,
    borrow_object: *const c_void,
    pub(crate) current_stream: Option<uringload::sys::dlpack::CurrentStream>,
}

/// Makes tensors of another library by its C exchange API.
#[pyclass(frozen)]
pub(crate) struct Exchange {
    table: NonNull<Table>,
    to_object: unsafe extern "C" fn(*mut c_void, *mut *mut ffi::PyObject) -> c_int,
    current_stream: uringload::sys::dlpack::CurrentStream,
    /// Where the table came from.
    _capsule: Py<PyAny>,
}

// SAFETY: the table is constant and lives as long as the process, as DLPack requires of its provider ("must stay alive
// throughout the lifetime of the process"). Its functions are called with the interpreter's lock held, by `tensor`
// below, which has the token for it.
unsafe impl Send for Exchange {}

// SAFETY: as above; nothing here changes.
unsafe impl Sync for Exchange {}

#[pymethods]
impl Exchange {
    /// The exchange API of a type of tensors, such as `torch.Tensor`. Raises `AttributeError` if it has none, and
    /// `BufferError` if it has one of another version.
    #[new]
    fn new(kind: &Bound<'_, PyAny>) -> PyResult<Exchange> {
        let (table, capsule) = table(kind)?;
        // SAFETY: the table is one of version 1, which has these members; it is constant.
        let functions = unsafe { table.as_ref() };
        let (Some(to_object), Some(current_stream)) = (functions.to_object, functions.current_stream) else {
            return Err(PyBufferError::new_err("the C exchange API of DLPack lacks a function"));
        };
        Ok(Exchange { table, to_object, current_stream, _capsule: capsule.unbind() })
    }

    /// The tensor of the other library over the memory of ours, without a copy. On a GPU, whatever is queued on the
    /// other library's current stream from here on waits for the values.
    fn tensor<'py>(&self, py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
        let stream = match tensor.device() {
            (Memory::CUDA, device) => Some(self.stream(py, device)?),
            _ => None,
        };
        let raw = tensor.lent(py, stream)?;
        let mut object = ptr::null_mut();
        // SAFETY: `to_object` is a function of a table that lives as long as the process, of the type that version 1
        // gives it, and the lock is held (`py`). `raw` is a `DLManagedTensorVersioned` of that major version without
        // another owner; the call takes it over, whether it succeeds or not. `object` is a place for one address.
        let code = unsafe { (self.to_object)(raw, &raw mut object) };
        made(py, code, object)
    }

    /// A list of such tensors, for several of ours.
    fn tensors<'py>(&self, py: Python<'py>, tensors: &Bound<'py, PySequence>) -> PyResult<Bound<'py, PyList>> {
        let list = tensors.to_list()?;
        let made = PyList::empty(py);
        for tensor in list.iter() {
            made.append(self.tensor(py, tensor.cast::<Tensor>()?.get())?)?;
        }
        Ok(made)
    }

    fn __repr__(&self) -> String {
        // SAFETY: as in `new`: the table is constant and lives as long as the process.
        let header = unsafe { &self.table.as_ref().header };
        format!("<uringload exchange by DLPack {}.{}>", header.major, header.minor)
    }
}

/// The table of a type of tensors, which lives as long as the process, and the capsule that names it. Raises as
/// `Exchange` does.
pub(crate) fn table<'py>(kind: &Bound<'py, PyAny>) -> PyResult<(NonNull<Table>, Bound<'py, PyAny>)> {
    let capsule = kind.getattr(ATTRIBUTE)?;
    // SAFETY: the interpreter's lock is held and `capsule` is a living object; one that is not a capsule of this name
    // gives null and sets an exception.
    let raw = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
    let Some(mut header) = NonNull::new(raw.cast::<Header>()) else { return Err(PyErr::fetch(capsule.py())) };
    // SAFETY: a capsule of this name holds the address of a table, which begins with this header in every version
    // and lives as long as the process. Older versions follow each other in a list that ends with null.
    while unsafe { header.as_ref() }.major > MAJOR {
        // SAFETY: as above.
        let previous = unsafe { header.as_ref() }.previous;
        header = NonNull::new(previous.cast_mut()).ok_or_else(|| PyBufferError::new_err(OTHER_VERSION))?;
    }
    // SAFETY: as above.
    if unsafe { header.as_ref() }.major != MAJOR {
        return Err(PyBufferError::new_err(OTHER_VERSION));
    }
    Ok((header.cast(), capsule))
}

const OTHER_VERSION: &str = "the C exchange API of DLPack is not of version 1";

impl Exchange {
    /// The other library's current stream on a GPU, as `Tensor.__dlpack__` takes it.
    fn stream(&self, py: Python<'_>, device: i32) -> PyResult<i64> {
        let mut stream = ptr::null_mut();
        // SAFETY: `current_stream` is a function of a table that lives as long as the process, of the type that version
        // 1 gives it, and the lock is held (`py`). `stream` is a place for one address.
        let code = unsafe { (self.current_stream)(Memory::CUDA, device, &raw mut stream) };
        if code != 0 {
            return Err(PyErr::take(py).unwrap_or_else(silent));
        }
        // CUDA's default stream is null, which is 1 for DLPack.
        Ok((stream.expose_provenance() as i64).max(1))
    }
}

/// The object that a function of the table made.
fn made(py: Python<'_>, code: c_int, object: *mut ffi::PyObject) -> PyResult<Bound<'_, PyAny>> {
    if code != 0 || object.is_null() {
        return Err(PyErr::take(py).unwrap_or_else(silent));
    }
    // SAFETY: the function succeeded, so `object` is a new reference, which is ours, and the lock is held.
    Ok(unsafe { Bound::from_owned_ptr(py, object) })
}

fn silent() -> PyErr {
    PySystemError::new_err("a function of DLPack's C exchange API failed and does not say why")
}
