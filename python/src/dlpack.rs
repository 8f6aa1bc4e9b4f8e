//! DLPack: how a tensor's memory is lent to NumPy, torch and others without a copy, and given back exactly once.
//!
//! The structs are those of `dlpack.h`, version 1.0, and of the versions before it, which older consumers take.

use bytes::Bytes;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use uringload::dataset::DType;

/// `kDLCPU`.
pub(crate) const CPU: (i32, i32) = (1, 0);

const LEGACY_NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Legacy {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a capsule points to, and behind it what that borrows. `repr(C)`, so that a pointer to the whole is a pointer to
/// its first field.
#[repr(C)]
struct Lent<Managed> {
    managed: Managed,
    bytes: Bytes,
    /// Shape, and behind it the strides.
    dimensions: Box<[i64]>,
}

/// Element type of a tensor: code and bits.
fn data_type(dtype: DType) -> DataType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
        DType::F8E4M3 => 10,
        DType::F8E5M2 => 12,
        // Unsigned integers.
        _ => 1,
    };
    // At most 8 bytes.
    DataType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

/// Row-major strides, in elements.
fn strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for index in (1..shape.len()).rev() {
        strides[index - 1] = strides[index] * shape[index].max(1);
    }
    strides
}

/// A tensor over `bytes`, whose pointers stay right as long as `bytes` and `dimensions` are kept.
fn tensor(bytes: &Bytes, dtype: DType, dimensions: &mut [i64]) -> Tensor {
    let count = dimensions.len() / 2;
    let (shape, strides) = dimensions.split_at_mut(count);
    let data = if bytes.is_empty() { ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast() };
    Tensor {
        data,
        device: Device { kind: CPU.0, number: CPU.1 },
        // A shape has a handful of dimensions.
        dimensions: count as i32,
        dtype: data_type(dtype),
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    }
}

fn dimensions(shape: &[i64]) -> Box<[i64]> {
    [shape, &strides(shape)].concat().into()
}

/// A capsule as consumers before DLPack 1.0 take it.
pub(crate) fn legacy<'py>(
    py: Python<'py>,
    bytes: Bytes,
    dtype: DType,
    shape: &[i64],
) -> PyResult<Bound<'py, PyCapsule>> {
    let mut dimensions = dimensions(shape);
    let tensor = tensor(&bytes, dtype, &mut dimensions);
    let managed = Legacy { tensor, context: ptr::null_mut(), deleter: Some(delete::<Legacy>) };
    let lent = Box::into_raw(Box::new(Lent { managed, bytes, dimensions }));
    capsule(py, lent, LEGACY_NAME, destroy_legacy)
}

/// A capsule of DLPack 1.0. `is_copied`: nobody else has the memory, not even the tensor that it comes from.
pub(crate) fn versioned<'py>(
    py: Python<'py>,
    bytes: Bytes,
    dtype: DType,
    shape: &[i64],
    is_copied: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let mut dimensions = dimensions(shape);
    let tensor = tensor(&bytes, dtype, &mut dimensions);
    let managed = Versioned {
        major: 1,
        minor: 0,
        context: ptr::null_mut(),
        deleter: Some(delete::<Versioned>),
        // DLPACK_FLAG_BITMASK_IS_COPIED; without the flag READ_ONLY, it may be written to.
        flags: u64::from(is_copied) << 1,
        tensor,
    };
    let lent = Box::into_raw(Box::new(Lent { managed, bytes, dimensions }));
    capsule(py, lent, VERSIONED_NAME, destroy_versioned)
}

/// Puts what is lent into a capsule, which frees it unless a consumer has taken it.
fn capsule<'py, Managed>(
    py: Python<'py>,
    lent: *mut Lent<Managed>,
    name: &'static CStr,
    destroy: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    let pointer = NonNull::new(lent.cast::<c_void>()).ok_or_else(|| PyRuntimeError::new_err("a box is never null"))?;
    // SAFETY: the pointer is that of a box that was just let go of and has no other owner, so it stays valid until
    // `destroy` or the consumer frees it, of which exactly one does: a consumer renames the capsule, and `destroy`
    // leaves a renamed one alone. `destroy` frees a box of bytes and numbers, which any thread may do.
    let made = unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destroy)) };
    if made.is_err() {
        // SAFETY: no capsule was made, so the box is still ours alone.
        drop(unsafe { Box::from_raw(lent) });
    }
    made
}

/// The deleter that a consumer calls, once, when it is done.
///
/// # Safety
/// `managed` is what a capsule of this module held, and was not given to this function before.
unsafe extern "C" fn delete<Managed>(managed: *mut Managed) {
    if !managed.is_null() {
        // SAFETY: every `Managed` of this module is the first field of a `repr(C)` struct `Lent` in a box of its own,
        // made by `legacy` or `versioned`; DLPack has its consumer call the deleter once. Dropping bytes and numbers
        // needs neither the interpreter nor a certain thread.
        drop(unsafe { Box::from_raw(managed.cast::<Lent<Managed>>()) });
    }
}

unsafe extern "C" fn destroy_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `legacy` made.
    unsafe { destroy::<Legacy>(capsule, LEGACY_NAME) }
}

unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `versioned` made.
    unsafe { destroy::<Versioned>(capsule, VERSIONED_NAME) }
}

/// Frees what a capsule holds that nobody took: one that was taken has another name.
///
/// # Safety
/// `capsule` was made by this module with a pointer to `Managed` under `name`, and the interpreter's lock is held.
unsafe fn destroy<Managed>(capsule: *mut ffi::PyObject, name: &CStr) {
    // SAFETY: it is a capsule that is still alive while its destructor runs.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: it is valid under this name, as was just seen, so this cannot fail.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    // SAFETY: the name shows that no consumer has taken it, so that nobody else will delete it.
    unsafe { delete(managed.cast::<Managed>()) };
}
