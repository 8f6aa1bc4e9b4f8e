//! Readers: bytes in the caller's order.

use crate::seen::Whole;
use crate::{
    UL_END, UL_OK, UL_TIMEOUT, all, call, give, given, here, options, text, ul_batch, ul_dataset, ul_error, ul_span,
};
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uringload::batch::{Batch, Column, Data};
use uringload::dataset::{DType, FileId, SampleId, Span};
use uringload::{Reader, Result};

/// A reader. One thread at a time uses it.
pub struct ul_reader {
    inner: Mutex<Reader>,
    process: u32,
}

impl ul_reader {
    /// The reader, for one thread at a time.
    ///
    /// # Errors
    /// In a forked child, where a thread that does not exist may hold the lock forever.
    fn lock(&self) -> Result<MutexGuard<'_, Reader>> {
        here(self.process, "a reader")?;
        Ok(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Starts a reader of a dataset's files.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_reader_new(
    dataset: *const ul_dataset,
    options: *const c_char,
    out: *mut *mut ul_reader,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let dataset = &unsafe { given(dataset, "dataset") }?.dataset;
        // SAFETY: by the caller's promise.
        let options = options::reader(unsafe { text(options, "options") }?)?;
        // SAFETY: by the caller's promise. Before the reader is made, which could not be given away otherwise.
        unsafe { give(out, std::ptr::null_mut(), "out") }?;
        let inner = Mutex::new(Reader::of(Arc::clone(dataset), &options)?);
        let made = Box::new(ul_reader { inner, process: std::process::id() });
        // SAFETY: by the caller's promise.
        unsafe { give(out, Box::into_raw(made), "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Requests bytes.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_reader_submit(
    reader: *const ul_reader,
    id: u64,
    spans: *const ul_span,
    span_count: usize,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let reader = unsafe { given(reader, "reader") }?;
        // SAFETY: by the caller's promise.
        let spans = unsafe { all(spans, span_count, "spans") }?;
        // A number that does not fit belongs to no file, and is refused as such.
        let file = |file: u64| FileId(u32::try_from(file).unwrap_or(u32::MAX));
        let span = |&ul_span { file: at, offset, len }: &ul_span| Span { file: file(at), offset, len };
        reader.lock()?.submit(id, &spans.iter().map(span).collect::<Vec<Span>>())?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Cancels a request. Returns 1 if it was in flight.
///
/// # Safety
/// `reader` is null or a living reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_reader_cancel(reader: *const ul_reader, id: u64) -> c_int {
    // SAFETY: by the caller's promise.
    let reader = unsafe { given(reader, "reader") };
    reader.is_ok_and(|reader| reader.lock().is_ok_and(|mut reader| reader.cancel(id))).into()
}

/// The next answer: a batch of one sample, whose number is the request's and whose column "data" has the bytes.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_reader_next(
    reader: *const ul_reader,
    timeout_ms: i64,
    id: *mut u64,
    out: *mut *mut ul_batch,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let reader = unsafe { given(reader, "reader") }?;
        // SAFETY: by the caller's promise. Before an answer is taken, which would be lost otherwise.
        unsafe { give(out, std::ptr::null_mut(), "out") }?;
        // SAFETY: as above.
        unsafe { give(id, u64::MAX, "id") }?;
        let mut inner = reader.lock()?;
        let answer = match u64::try_from(timeout_ms) {
            Ok(0) => inner.try_next(),
            Ok(wait) => inner.next_timeout(Duration::from_millis(wait)),
            Err(_) => inner.next(),
        };
        let Some((request, bytes)) = answer else {
            return Ok(if inner.in_flight() == 0 { UL_END } else { UL_TIMEOUT });
        };
        // SAFETY: as above.
        unsafe { give(id, request, "id") }?;
        let bytes = bytes?;
        let data = Data::Dense { shape: vec![bytes.len() as u64], bytes };
        let batch = Batch::new(vec![SampleId(request)], vec![Column::new("data", DType::U8, data)]);
        // SAFETY: as above.
        unsafe { give(out, Box::into_raw(Box::new(ul_batch::new(Whole::Host(batch)))), "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// A descriptor to poll, which the reader keeps.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_reader_ready_fd(
    reader: *const ul_reader,
    out: *mut c_int,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let reader = unsafe { given(reader, "reader") }?;
        let fd = reader.lock()?.ready_fd()?.as_raw_fd();
        // SAFETY: by the caller's promise.
        unsafe { give(out, fd, "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// Frees a reader, and ends its requests. Answers stay valid. In a forked child it does nothing.
///
/// # Safety
/// `reader` is null, or a living reader that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_reader_free(reader: *mut ul_reader) {
    // SAFETY: by the caller's promise.
    let is_ours = unsafe { given(reader, "reader") }.is_ok_and(|reader| here(reader.process, "a reader").is_ok());
    // A thread that does not exist in the child may have been changing it.
    if is_ours {
        // SAFETY: `ul_reader_new` made it, and it is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(reader) });
    }
}
