//! Datasets: opened by their format, or made of callbacks (`source`).

use crate::choice::ul_dataset;
use crate::{UL_OK, all, call, fill, give, given, invalid, options, text, ul_error};
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The description of a dataset.
#[repr(C)]
pub struct ul_dataset_info {
    /// Bytes of this struct, set by the caller.
    pub size: usize,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of all samples, as known from the index.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
    /// Number of columns.
    pub columns: u64,
    /// Identifies everything that order and content depend on.
    pub fingerprint: u64,
}

/// Opens files and folders.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_dataset_open(
    paths: *const *const c_char,
    path_count: usize,
    options: *const c_char,
    out: *mut *mut ul_dataset,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise, here and for each path.
        let paths = unsafe { all(paths, path_count, "paths") }?;
        let path = |&path: &*const c_char| {
            // SAFETY: null or a text, by the caller's promise.
            let text = unsafe { given(path, "a path") }.map(|_| unsafe { CStr::from_ptr(path) })?;
            Ok(PathBuf::from(OsStr::from_bytes(text.to_bytes())))
        };
        let paths = paths.iter().map(path).collect::<uringload::Result<Vec<PathBuf>>>()?;
        if paths.is_empty() {
            return Err(invalid("there are no paths", "give files or folders"));
        }
        // SAFETY: by the caller's promise.
        let (options, choice) = options::dataset(unsafe { text(options, "options") }?)?;
        let opened = choice.open(&paths, &options)?;
        // SAFETY: by the caller's promise.
        unsafe { give_dataset(opened, out) }
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// # Safety
/// `out` is null or can be written to.
pub(crate) unsafe fn give_dataset(dataset: ul_dataset, out: *mut *mut ul_dataset) -> uringload::Result<i32> {
    let made = Box::into_raw(Box::new(dataset));
    // SAFETY: by the caller's promise.
    unsafe { give(out, made, "out") }.inspect_err(|_| {
        // SAFETY: made above, and not passed on.
        drop(unsafe { Box::from_raw(made) });
    })?;
    Ok(UL_OK)
}

/// Describes a dataset.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_dataset_get(
    dataset: *const ul_dataset,
    out: *mut ul_dataset_info,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let dataset = &unsafe { given(dataset, "dataset") }?.dataset;
        let info = ul_dataset_info {
            size: 0,
            samples: dataset.len(),
            bytes: dataset.bytes(),
            files: dataset.files().len() as u64,
            columns: dataset.schema().fields.len() as u64,
            fingerprint: dataset.fingerprint(),
        };
        // SAFETY: by the caller's promise; the struct has 64-bit numbers only, so no padding.
        unsafe { fill(out, info, "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Frees a dataset. Its loaders and batches stay valid.
///
/// # Safety
/// `dataset` is null, or a living dataset that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_dataset_free(dataset: *mut ul_dataset) {
    if !dataset.is_null() {
        // SAFETY: `give_dataset` made it, and it is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(dataset) });
    }
}
