//! DLPack's capsules: what NumPy, torch and others take a tensor out of, under its name, once.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use uringload::dataset::DType;
use uringload::internal::element_type;
use uringload_sys::dlpack::{Memory, Tensor, free_legacy_raw, into_legacy_raw};

/// Device of the host's memory.
pub(crate) const CPU: (i32, i32) = (Memory::HOST, 0);

const LEGACY_NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

/// A capsule as consumers before DLPack 1.0 take it.
pub(crate) fn legacy<'py>(
    py: Python<'py>,
    memory: Memory,
    dtype: DType,
    shape: &[u64],
) -> PyResult<Bound<'py, PyCapsule>> {
    let raw = into_legacy_raw(memory, element_type(dtype), shape).and_then(NonNull::new).ok_or_else(misshapen)?;
    // SAFETY: the tensor was made by the line above, is nobody else's, and `destroy_legacy` frees such a one.
    let made = unsafe { capsule(py, raw, LEGACY_NAME, destroy_legacy) };
    if made.is_err() {
        // SAFETY: no capsule was made, so the tensor is still ours alone.
        unsafe { free_legacy_raw(raw.as_ptr()) };
    }
    made
}

/// A capsule of DLPack 1.0.
pub(crate) fn versioned<'py>(
    py: Python<'py>,
    memory: Memory,
    dtype: DType,
    shape: &[u64],
) -> PyResult<Bound<'py, PyCapsule>> {
    let tensor = Tensor::new(memory, element_type(dtype), shape).ok_or_else(misshapen)?;
    let raw = NonNull::new(tensor.into_raw()).ok_or_else(misshapen)?;
    // SAFETY: the tensor was handed over by the line above, is nobody else's, and `destroy_versioned` frees such a one.
    let made = unsafe { capsule(py, raw, VERSIONED_NAME, destroy_versioned) };
    if made.is_err() {
        // SAFETY: no capsule was made, so the tensor is still ours alone.
        drop(unsafe { Tensor::from_raw(raw.as_ptr()) });
    }
    made
}

/// Puts a tensor into a capsule, which frees it unless a consumer has taken it.
///
/// # Safety
/// The tensor belongs to the caller, and `destroy` frees one of its kind if the capsule has the name `name`.
unsafe fn capsule<'py>(
    py: Python<'py>,
    raw: NonNull<c_void>,
    name: &'static CStr,
    destroy: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    // SAFETY: the tensor stays valid until `destroy` or the consumer frees it, of which exactly one does: a consumer
    // renames the capsule, and `destroy` leaves a renamed one alone. A tensor may be freed by any thread.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, raw, name, Some(destroy)) }
}

unsafe extern "C" fn destroy_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `legacy` made, which is still alive.
    if let Some(raw) = unsafe { untaken(capsule, LEGACY_NAME) } {
        // SAFETY: `legacy` made it, and nobody has taken it, so that nobody else will free it.
        unsafe { free_legacy_raw(raw) };
    }
}

unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `versioned` made, which is still alive.
    if let Some(raw) = unsafe { untaken(capsule, VERSIONED_NAME) } {
        // SAFETY: `versioned` made it, and nobody has taken it, so that nobody else will free it.
        drop(unsafe { Tensor::from_raw(raw) });
    }
}

/// What a capsule holds that nobody took: one that was taken has another name.
///
/// # Safety
/// `capsule` is a living capsule, and the interpreter's lock is held.
unsafe fn untaken(capsule: *mut ffi::PyObject, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: as the caller promises.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: it is valid under this name, as was just seen, so this cannot fail.
    Some(unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) })
}

fn misshapen() -> PyErr {
    PyRuntimeError::new_err("a tensor is not as long as its shape says: this is a bug of uringload")
}
