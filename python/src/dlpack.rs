//! DLPack's capsules, from which NumPy, torch and others take a tensor once; a capsule's name identifies its kind.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use uringload::dataset::DType;
use uringload::inspect::element_type;
use uringload::sys::dlpack::{Memory, Tensor, free_legacy_raw, into_legacy_raw};

/// The device of host memory.
pub(crate) const CPU: (i32, i32) = (Memory::HOST, 0);

const LEGACY_NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

/// A capsule for consumers before DLPack 1.0.
pub(crate) fn legacy<'py>(
    py: Python<'py>,
    memory: Memory,
    dtype: DType,
    shape: &[u64],
) -> PyResult<Bound<'py, PyCapsule>> {
    let raw = into_legacy_raw(memory, element_type(dtype), shape).and_then(NonNull::new).ok_or_else(misshapen)?;
    // SAFETY: the tensor was made by the line above, has no other owner, and `destroy_legacy` frees tensors of this
    // kind.
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
    // SAFETY: the tensor was handed over by the line above, has no other owner, and `destroy_versioned` frees tensors
    // of this kind.
    let made = unsafe { capsule(py, raw, VERSIONED_NAME, destroy_versioned) };
    if made.is_err() {
        // SAFETY: no capsule was made, so the tensor is still ours alone.
        drop(unsafe { Tensor::from_raw(raw.as_ptr()) });
    }
    made
}

/// A tensor of DLPack 1.0 without a capsule. The caller owns it, and the code that receives it frees it.
pub(crate) fn raw(memory: Memory, dtype: DType, shape: &[u64]) -> PyResult<*mut c_void> {
    Ok(Tensor::new(memory, element_type(dtype), shape).ok_or_else(misshapen)?.into_raw())
}

/// Puts a tensor into a capsule, which frees it unless a consumer has taken it.
///
/// # Safety
/// The caller owns the tensor, and `destroy` frees tensors of its kind if the capsule has the name `name`.
unsafe fn capsule<'py>(
    py: Python<'py>,
    raw: NonNull<c_void>,
    name: &'static CStr,
    destroy: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    // SAFETY: the tensor stays valid until it is freed by `destroy` or by the consumer. Exactly one of them does so: a
    // consumer renames the capsule, and `destroy` leaves a renamed one alone. Any thread may free a tensor.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, raw, name, Some(destroy)) }
}

unsafe extern "C" fn destroy_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `legacy` made, which is still alive.
    if let Some(raw) = unsafe { untaken(capsule, LEGACY_NAME) } {
        // SAFETY: `legacy` made it, and no consumer has taken it, so no other code will free it.
        unsafe { free_legacy_raw(raw) };
    }
}

unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `versioned` made, which is still alive.
    if let Some(raw) = unsafe { untaken(capsule, VERSIONED_NAME) } {
        // SAFETY: `versioned` made it, and no consumer has taken it, so no other code will free it.
        drop(unsafe { Tensor::from_raw(raw) });
    }
}

/// The content of a capsule that no consumer took. A capsule that was taken has another name.
///
/// # Safety
/// `capsule` is a living capsule, and the interpreter lock is held.
unsafe fn untaken(capsule: *mut ffi::PyObject, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the caller guarantees it.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the check above showed that it is valid under this name, so this cannot fail.
    Some(unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) })
}

fn misshapen() -> PyErr {
    PyRuntimeError::new_err("a tensor is not as long as its shape says: this is a bug of uringload")
}
