//! Errors as objects: they belong to a call rather than a thread, so that threads do not read each other's.

use crate::{UL_ERROR, UL_OK, fill, given, owned};
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use uringload::Error;

/// Why a call failed.
pub struct ul_error {
    message: CString,
    kind: CString,
    what: CString,
    path: Option<CString>,
    offset: Option<u64>,
    remedy: Option<CString>,
}

impl ul_error {
    pub(crate) fn new(error: &Error) -> ul_error {
        let path = |path: &std::path::Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        ul_error {
            message: owned(&error.to_string()),
            kind: owned(&format!("{:?}", error.kind())),
            what: owned(error.what()),
            path: error.path().map(path),
            offset: error.offset(),
            remedy: error.remedy().map(owned),
        }
    }
}

/// The parts of an error. Texts live as long as the error.
#[repr(C)]
pub struct ul_error_info {
    /// Bytes of this struct, set by the caller.
    pub size: usize,
    /// All of it, for people.
    pub message: *const c_char,
    /// For programs: "NotFound", "Timeout", ...
    pub kind: *const c_char,
    /// What happened, in a sentence.
    pub what: *const c_char,
    /// The file, or null.
    pub path: *const c_char,
    /// What to do about it, or null.
    pub remedy: *const c_char,
    /// The offset in the file, if `has_offset` is not 0.
    pub offset: u64,
    /// Whether there is an offset.
    pub has_offset: u64,
}

impl ul_error_info {
    /// An empty struct with its size, for [`ul_error_get`] to fill.
    pub const fn empty() -> ul_error_info {
        let (size, none) = (size_of::<ul_error_info>(), ptr::null());
        ul_error_info {
            size,
            message: none,
            kind: none,
            what: none,
            path: none,
            remedy: none,
            offset: 0,
            has_offset: 0,
        }
    }
}

/// Fills in the parts of an error.
///
/// # Safety
/// `error` is null or a living error; `out` is null or a struct with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_error_get(error: *const ul_error, out: *mut ul_error_info) -> i32 {
    // SAFETY: by the caller's promise.
    let Ok(error) = (unsafe { given(error, "error") }) else { return UL_ERROR };
    let or_null = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let info = ul_error_info {
        size: 0,
        message: error.message.as_ptr(),
        kind: error.kind.as_ptr(),
        what: error.what.as_ptr(),
        path: or_null(&error.path),
        remedy: or_null(&error.remedy),
        offset: error.offset.unwrap_or(0),
        has_offset: error.offset.is_some().into(),
    };
    // SAFETY: by the caller's promise; the struct has pointers and 64-bit numbers only, so no padding.
    if unsafe { fill(out, info, "out") }.is_ok() { UL_OK } else { UL_ERROR }
}

/// Frees an error.
///
/// # Safety
/// `error` is null, or a living error that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_error_free(error: *mut ul_error) {
    if !error.is_null() {
        // SAFETY: `call` made it by `Box::into_raw`, and it is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(error) });
    }
}
