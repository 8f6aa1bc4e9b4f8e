//! The C interface of uringload. Its documentation is `include/uringload.h`, which declares every function here.
//!
//! Rules for all functions:
//!
//! - A handle is a pointer to a `Box` that a function of this crate made. Freeing takes it back. A null pointer is
//!   refused with a status, and freeing null does nothing. Using a freed handle is undefined behaviour, as with
//!   `free(3)`.
//! - No panic crosses the interface: `call` catches it, and it becomes an error of kind `Internal`.
//! - Structs from the caller begin with their size, so that a program compiled against an older header gets exactly its
//!   fields.
//! - Numbers of columns and samples are checked.

// These are C names.
#![allow(non_camel_case_types)]

// In layer order: a module uses only modules above it (a test enforces it).
mod error;
mod choice;
mod options;
mod dataset;
mod source;
mod seen;
mod arrow;
mod batch;
mod loader;
mod reader;

pub use arrow::{ArrowArray, ArrowDeviceArray, ArrowSchema};
pub use batch::*;
pub use choice::ul_dataset;
pub use dataset::*;
pub use error::*;
pub use loader::*;
pub use reader::*;
pub use source::*;

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use uringload::{Error, ErrorKind, Result};

/// Version of the ABI: a program and a library with the same number fit together.
pub const UL_ABI: u32 = 1;

/// Done.
pub const UL_OK: i32 = 0;
/// Failed; the error has the reason.
pub const UL_ERROR: i32 = 1;
/// Nothing came in time.
pub const UL_TIMEOUT: i32 = 2;
/// Nothing is left.
pub const UL_END: i32 = 3;

/// The version of the library, as text. `abi`, if it is not null, gets [`UL_ABI`].
///
/// # Safety
/// `abi` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_version(abi: *mut u32) -> *const c_char {
    if !abi.is_null() {
        // SAFETY: not null, and the caller promises that it can be written to.
        unsafe { abi.write(UL_ABI) };
    }
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Runs the work of a function: its status, or `UL_ERROR` with the error in `*error`. A panic is an error.
///
/// # Safety
/// `error` is null or can be written to.
pub(crate) unsafe fn call(error: *mut *mut ul_error, work: impl FnOnce() -> Result<i32>) -> i32 {
    // Unwind safe: a panic leaves behind a handle whose parts are each complete, because the library's own threads do
    // the work; its locks are used even if poisoned.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Err(Error::new(ErrorKind::Internal, format!("panicked: {text}"))
            .with_remedy("this is a bug of uringload: please report it"))
    });
    let status = *done.as_ref().unwrap_or(&UL_ERROR);
    if !error.is_null() {
        let told = done.err().map_or(std::ptr::null_mut(), |error| Box::into_raw(Box::new(ul_error::new(&error))));
        // SAFETY: not null, and the caller promises that it can be written to.
        unsafe { error.write(told) };
    }
    status
}

/// The error for an invalid argument.
pub(crate) fn invalid(what: impl Into<String>, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what.into()).with_remedy(remedy)
}

/// What a pointer points to, or an error that names it.
///
/// # Safety
/// `pointer` is null, or points to a living `T` that no code changes while the result is in use.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: by the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(format!("{name} is null"), "give a handle or an address"))
}

/// Writes a result to `out`.
///
/// # Safety
/// `out` is null or can be written to.
pub(crate) unsafe fn give<T>(out: *mut T, value: T, name: &str) -> Result<()> {
    if out.is_null() {
        return Err(invalid(format!("{name} is null"), "give the address of a variable for the result"));
    }
    // SAFETY: not null, and the caller promises that it can be written to.
    unsafe { out.write(value) };
    Ok(())
}

/// Fills a struct that begins with its size: as many bytes as the caller's header knows.
///
/// # Safety
/// `out` is null, or its first field is the number of bytes from `out` on that can be written to. `T` is `repr(C)`,
/// begins with a `usize`, and has no padding before its end.
pub(crate) unsafe fn fill<T>(out: *mut T, value: T, name: &str) -> Result<()> {
    // SAFETY: by the caller's promise there is a size where it is not null.
    let size = unsafe { given(out.cast_const().cast::<usize>(), name) }?;
    if *size < size_of::<usize>() {
        let what = format!("{name}.size is {size}");
        return Err(invalid(what, "set it to sizeof of the struct before the call"));
    }
    let (known, head) = ((*size).min(size_of::<T>()), size_of::<usize>());
    let from = (&raw const value).cast::<u8>().wrapping_add(head);
    let to = out.cast::<u8>().wrapping_add(head);
    // SAFETY: `value` has `size_of::<T>()` bytes and `out` has `*size`, of which no more than both are copied; they do
    // not overlap, because `value` is this function's own. The size itself stays as it is.
    unsafe { std::ptr::copy_nonoverlapping(from, to, known - head) };
    Ok(())
}

/// Reads a struct that begins with its size: as many bytes as the caller's header knows, `least` or more. The rest is
/// zeros.
///
/// # Safety
/// `from` is null, or its first field is the number of bytes from `from` on that can be read. `T` is `repr(C)`, begins
/// with a `usize`, and all zeros are a value of it.
pub(crate) unsafe fn read<T>(from: *const T, least: usize, name: &str) -> Result<T> {
    // SAFETY: by the caller's promise there is a size where it is not null.
    let size = *unsafe { given(from.cast::<usize>(), name) }?;
    if size < least {
        return Err(invalid(format!("{name}.size is {size}"), "set it to sizeof of the struct before the call"));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `from` has `size` bytes, by the caller's promise, and `value` has `size_of::<T>()`, of which no more than
    // both are copied; they do not overlap, because `value` is this function's own.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), size.min(size_of::<T>())) };
    // SAFETY: each field is zeros or what the caller has put there, and so a value, by the caller's promise.
    Ok(unsafe { value.assume_init() })
}

/// A text of the caller's; `None` where it is null.
///
/// # Safety
/// `text` is null, or ends with a zero byte and stays as it is while the result is in use.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(text) };
    let utf8 = text.to_str().map_err(|error| invalid(format!("{name} is not UTF-8: {error}"), "give UTF-8"))?;
    Ok(Some(utf8))
}

/// `count` elements of the caller's.
///
/// # Safety
/// `first` is null, or points to `count` elements that stay as they are while the result is in use.
pub(crate) unsafe fn all<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(invalid(format!("{name} is null, and there should be {count}"), "give an array or a count of 0"));
    }
    // SAFETY: not null, and the caller promises that there are `count`.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Refuses a handle of the parent process after a fork.
pub(crate) fn here(process: u32, what: &str) -> Result<()> {
    if process == std::process::id() {
        return Ok(());
    }
    let told = format!("{what} of process {process} was used in a child that was forked from it");
    Err(invalid(told, "make one in the child"))
}

/// A text that ends with a zero byte. A zero byte within it would end it early, so it becomes a blank.
pub(crate) fn owned(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }).collect();
    CString::new(bytes).unwrap_or_default()
}
