//! Loaders: batches one after the other, with a place to resume from.

use crate::{
    UL_END, UL_OK, UL_TIMEOUT, call, give, give_text, given, invalid, options, text, ul_batch, ul_dataset, ul_error,
};
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uringload::{CancelHandle, Loader, State};

/// A loader. One thread at a time asks it for batches; any thread may cancel it.
pub struct ul_loader {
    inner: Mutex<Loader>,
    cancel: CancelHandle,
}

impl ul_loader {
    fn lock(&self) -> MutexGuard<'_, Loader> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a loader.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_new(
    dataset: *const ul_dataset,
    options: *const c_char,
    state: *const c_char,
    out: *mut *mut ul_loader,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let dataset = &unsafe { given(dataset, "dataset") }?.0;
        // SAFETY: by the caller's promise.
        let options = unsafe { text(options, "options") }?;
        // SAFETY: by the caller's promise.
        let state = unsafe { text(state, "state") }?;
        let builder = options::loader(Loader::builder(Arc::clone(dataset)), options, dataset.schema())?;
        let mut builder = options::ranks(builder, options)?;
        if let Some(state) = state {
            builder = builder.resume(&State::from_json(state)?);
        }
        if out.is_null() {
            return Err(invalid("out is null", "give the address of a variable for the loader"));
        }
        let loader = builder.build()?;
        let cancel = loader.cancel_handle()?;
        let made = Box::new(ul_loader { inner: Mutex::new(loader), cancel });
        // SAFETY: by the caller's promise; it is not null.
        unsafe { give(out, Box::into_raw(made), "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// The next batch.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_next(
    loader: *const ul_loader,
    timeout_ms: i64,
    out: *mut *mut ul_batch,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let loader = unsafe { given(loader, "loader") }?;
        // SAFETY: by the caller's promise.
        unsafe { give(out, std::ptr::null_mut(), "out") }?;
        let mut inner = loader.lock();
        let batch = match u64::try_from(timeout_ms) {
            Ok(0) => inner.try_next()?,
            Ok(wait) => inner.next_timeout(Duration::from_millis(wait))?,
            Err(_) => inner.next().transpose()?,
        };
        let Some(batch) = batch else {
            let is_over = inner.is_empty() || timeout_ms < 0 || loader.cancel.is_cancelled();
            return Ok(if is_over { UL_END } else { UL_TIMEOUT });
        };
        // SAFETY: by the caller's promise; it was written to above.
        unsafe { give(out, Box::into_raw(Box::new(ul_batch::new(batch))), "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// A descriptor to poll, which the loader keeps.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_ready_fd(
    loader: *const ul_loader,
    out: *mut c_int,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let loader = unsafe { given(loader, "loader") }?;
        let fd = loader.lock().ready_fd()?.as_raw_fd();
        // SAFETY: by the caller's promise.
        unsafe { give(out, fd, "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Ends a loader, from any thread.
///
/// # Safety
/// `loader` is null or a living loader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_cancel(loader: *const ul_loader) {
    // SAFETY: by the caller's promise.
    if let Ok(loader) = unsafe { given(loader, "loader") } {
        loader.cancel.cancel();
    }
}

/// The place behind the last batch, as JSON for `ul_loader_new`.
pub const UL_STATE: i32 = 0;
/// What limits the loader, what it measured and how it reads, as lines for people.
pub const UL_REPORT: i32 = 1;

/// Tells something of a loader, as a text that the caller frees.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_tell(
    loader: *const ul_loader,
    what: i32,
    out: *mut *mut c_char,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let loader = unsafe { given(loader, "loader") }?;
        if out.is_null() {
            return Err(invalid("out is null", "give the address of a variable for the text"));
        }
        let told = match what {
            UL_STATE => loader.lock().state().to_json(),
            UL_REPORT => loader.lock().report().to_string(),
            _ => return Err(invalid(format!("nothing is told under the number {what}"), "UL_STATE or UL_REPORT")),
        };
        // SAFETY: by the caller's promise; it is not null.
        unsafe { give(out, give_text(&told), "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Frees a loader, and ends it if it was not over. Batches stay.
///
/// # Safety
/// `loader` is null, or a living loader that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_free(loader: *mut ul_loader) {
    if !loader.is_null() {
        // SAFETY: `ul_loader_new` made it, and it is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(loader) });
    }
}
