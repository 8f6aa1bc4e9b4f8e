//! Loaders: batches one after the other, with a position to resume from.

use crate::seen::Whole;
use crate::{
    UL_END, UL_OK, UL_TIMEOUT, call, give, given, here, invalid, options, owned, text, ul_batch, ul_dataset, ul_error,
};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uringload::{CancelHandle, Delivered, DeviceLoader, Loader, Result, State};

/// A loader. One thread at a time asks it for batches; any thread may cancel it.
pub struct ul_loader {
    inner: Mutex<Inner>,
    /// The last texts returned by [`UL_STATE`] and [`UL_REPORT`].
    told: Mutex<[CString; 2]>,
    cancel: CancelHandle,
    process: u32,
}

/// The library's loader, by what it delivers.
enum Inner {
    Host(Loader),
    Device(DeviceLoader),
}

/// Runs the same code on either kind.
macro_rules! with {
    ($inner:expr, $loader:ident => $what:expr) => {
        match $inner {
            Inner::Host($loader) => $what,
            Inner::Device($loader) => $what,
        }
    };
}

impl Inner {
    fn next(&mut self, timeout_ms: i64) -> Result<Option<Whole>> {
        Ok(match self {
            Inner::Host(loader) => next(loader, timeout_ms)?.map(Whole::Host),
            Inner::Device(loader) => next(loader, timeout_ms)?.map(Whole::Device),
        })
    }
}

/// A batch if one comes in time; without a time limit, if one is left.
fn next<T: Delivered>(loader: &mut Loader<T>, timeout_ms: i64) -> Result<Option<T>> {
    match u64::try_from(timeout_ms) {
        Ok(0) => loader.try_next(),
        Ok(wait) => loader.next_timeout(Duration::from_millis(wait)),
        Err(_) => loader.next().transpose(),
    }
}

impl ul_loader {
    /// The loader, for one thread at a time.
    ///
    /// # Errors
    /// In a forked child, where a thread that does not exist may hold the lock forever.
    fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        here(self.process, "a loader")?;
        Ok(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
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
        let dataset = unsafe { given(dataset, "dataset") }?;
        // SAFETY: by the caller's promise.
        let options = options::loader(dataset, unsafe { text(options, "options") }?)?;
        // SAFETY: by the caller's promise.
        let state = unsafe { text(state, "state") }?;
        let mut builder = options.builder;
        if let Some(state) = state {
            builder = builder.resume(&State::from_json(state)?);
        }
        if out.is_null() {
            return Err(invalid("out is null", "give the address of a variable for the loader"));
        }
        let inner = if options.devices.is_empty() {
            Inner::Host(builder.build()?)
        } else {
            Inner::Device(builder.devices(options.devices).build()?)
        };
        let cancel = with!(&inner, loader => loader.cancel_handle())?;
        let made = ul_loader { inner: Mutex::new(inner), told: Mutex::default(), cancel, process: std::process::id() };
        let made = Box::new(made);
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
        let mut inner = loader.lock()?;
        let Some(batch) = inner.next(timeout_ms)? else {
            let is_empty = with!(&*inner, loader => loader.is_empty());
            let is_over = is_empty || timeout_ms < 0 || loader.cancel.is_cancelled();
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
        let inner = loader.lock()?;
        let fd = with!(&*inner, loader => loader.ready_fd())?.as_raw_fd();
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
    if let Ok(loader) = unsafe { given(loader, "loader") }
        && here(loader.process, "a loader").is_ok()
    {
        loader.cancel.cancel();
    }
}

/// The position after the last batch, as JSON for `ul_loader_new`.
pub const UL_STATE: i32 = 0;
/// What limits the loader, what it measured and how it reads, as lines for people.
pub const UL_REPORT: i32 = 1;

/// Returns a text about a loader. It stays valid until the same text is requested again or the loader is freed.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_tell(
    loader: *const ul_loader,
    what: i32,
    out: *mut *const c_char,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let loader = unsafe { given(loader, "loader") }?;
        if out.is_null() {
            return Err(invalid("out is null", "give the address of a variable for the text"));
        }
        let inner = loader.lock()?;
        let (at, text) = match what {
            UL_STATE => (0, with!(&*inner, loader => loader.state()).to_json()),
            UL_REPORT => (1, with!(&*inner, loader => loader.report()).to_string()),
            _ => return Err(invalid(format!("the number {what} names no text"), "UL_STATE or UL_REPORT")),
        };
        let mut told = loader.told.lock().unwrap_or_else(PoisonError::into_inner);
        told[at] = owned(&text);
        // SAFETY: by the caller's promise; it is not null.
        unsafe { give(out, told[at].as_ptr(), "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Frees a loader, and ends it if it is running. Batches stay valid. In a forked child it does nothing.
///
/// # Safety
/// `loader` is null, or a living loader that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_loader_free(loader: *mut ul_loader) {
    // SAFETY: by the caller's promise.
    let is_ours = unsafe { given(loader, "loader") }.is_ok_and(|loader| here(loader.process, "a loader").is_ok());
    // A thread that does not exist in the child may have been changing it.
    if is_ours {
        // SAFETY: `ul_loader_new` made it, and it is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(loader) });
    }
}
