//! GPU memory from an allocator that Python names: a tensor library's, or a pair of C functions.

use crate::exchange;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use std::ffi::c_void;
use std::sync::Arc;
use uringload::sys::dlpack;
use uringload::sys::{AllocatorFunctions, DeviceAllocator, StreamRef};

/// Where loaders take a GPU's memory for batches from.
#[pyclass(frozen, from_py_object)]
#[derive(Clone, Debug)]
pub(crate) struct Allocator(Arc<dyn DeviceAllocator>);

/// An allocator, together with objects that must stay as long as its memory is in use, such as a function made by
/// ctypes.
#[derive(Debug)]
struct Owned {
    allocator: Box<dyn DeviceAllocator>,
    _owner: Py<PyAny>,
}

// SAFETY: it is safe because the allocator in it is.
unsafe impl DeviceAllocator for Owned {
    fn allocate(&self, index: u32, len: usize) -> Result<(u64, StreamRef), String> {
        self.allocator.allocate(index, len)
    }

    fn free(&self, index: u32, address: u64) {
        self.allocator.free(index, address);
    }
}

#[pymethods]
impl Allocator {
    /// The allocator of a type of tensors, such as `torch.Tensor`. Raises `AttributeError` if it has no C exchange API,
    /// and
    /// `BufferError` if it has one of another version or without an allocator.
    #[staticmethod]
    fn of_tensors(kind: &Bound<'_, PyAny>) -> PyResult<Allocator> {
        let (table, capsule) = exchange::table(kind)?;
        // SAFETY: the table is one of version 1, which is constant and lives as long as the process.
        let functions = unsafe { table.as_ref() };
        let (Some(allocate), Some(current_stream)) = (functions.allocator, functions.current_stream) else {
            return Err(PyBufferError::new_err("the C exchange API of DLPack has no allocator, or no current stream"));
        };
        // SAFETY: these are its `managed_tensor_allocator` and `current_work_stream`. Their library, which the process
        // does not unload, makes tensors that belong to the caller, in the order of the current stream; it takes no
        // interpreter's lock from the caller. A stream that is current is in use, so it is not ended.
        let allocator = Box::new(unsafe { dlpack::Allocator::new(allocate, current_stream) });
        Ok(Allocator(Arc::new(Owned { allocator, _owner: capsule.unbind() })))
    }

    /// Two C functions, by their addresses. `owner` is kept as long as they may be called.
    #[staticmethod]
    fn of_functions(allocate: usize, free: usize, owner: Py<PyAny>) -> PyResult<Allocator> {
        if allocate == 0 || free == 0 {
            return Err(PyValueError::new_err("a function is at address 0"));
        }
        let [allocate, free] = [allocate, free].map(std::ptr::with_exposed_provenance::<c_void>);
        // SAFETY: who gives the addresses promises that they are those of functions of these types, as docs/python.md
        // says; this cannot be checked. Neither is null.
        let allocate = unsafe { std::mem::transmute::<*const c_void, uringload::sys::Allocate>(allocate) };
        // SAFETY: as above.
        let free = unsafe { std::mem::transmute::<*const c_void, uringload::sys::Free>(free) };
        // SAFETY: as above; `owner` keeps them.
        let allocator = Box::new(unsafe { AllocatorFunctions::new(allocate, free) });
        Ok(Allocator(Arc::new(Owned { allocator, _owner: owner })))
    }
}

impl Allocator {
    /// The allocator for a device of a loader.
    pub(crate) fn shared(&self) -> Arc<dyn DeviceAllocator> {
        Arc::clone(&self.0)
    }
}
