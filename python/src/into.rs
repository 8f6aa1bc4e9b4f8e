//! Ranges of files into the memory of Python's objects.

use crate::errors::raised;
use crate::outside::outside;
use crate::reader::Options;
use crate::said;
use crate::wait::SLICE;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use uringload::config::Fallback;
use uringload::inspect::read_into_unless;
use uringload::{Error, ErrorKind, FileRange, ReaderOptions, Result};

/// A range's file and offset, and the address and length of its memory.
type Place = (PathBuf, u64, usize, usize);

/// Reads ranges of files into memory. Handles signals meanwhile: one that raises ends the read.
///
/// Each address must be that of as many writable bytes as its length says, which stay in place until this returns and
/// which no other range shares: `_into.py`, the only caller, ensures it.
#[pyfunction]
pub fn read_into(py: Python<'_>, ranges: Vec<Place>, options: Options) -> PyResult<()> {
    let Options(options) = options;
    let stop = AtomicBool::new(false);
    let read = std::thread::scope(|scope| {
        let (done, made) = mpsc::channel();
        let (ranges, stop, made) = (&ranges, &stop, Mutex::new(made));
        let thread = std::thread::Builder::new().name("uringload-into".into());
        thread.spawn_scoped(scope, move || {
            // The waiting caller is still there: this ends before its scope does.
            let _ = done.send(read(ranges, &options, stop));
        })?;
        let receive = || made.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SLICE);
        let mut signal = None;
        loop {
            match outside(py, receive) {
                Ok(_) if signal.is_some() => return Err(signal.unwrap_or_else(|| raised(py, &panicked()))),
                Ok(read) => return Ok(read),
                Err(RecvTimeoutError::Disconnected) => return Ok(Err(panicked())),
                Err(RecvTimeoutError::Timeout) if signal.is_none() => {
                    // It keeps its memory until it has ended, which takes no longer than the reads in flight.
                    signal = py.check_signals().err();
                    stop.store(signal.is_some(), Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    });
    said::steps(py, &read?.map_err(|error| raised(py, &error))?)
}

fn read(ranges: &[Place], options: &ReaderOptions, stop: &AtomicBool) -> Result<Vec<Fallback>> {
    read_into_unless(ranges.iter().map(range).collect(), options, stop)
}

fn range((path, offset, address, len): &Place) -> FileRange<'_> {
    let memory: &mut [u8] = if *len == 0 {
        &mut []
    } else {
        let start = std::ptr::with_exposed_provenance_mut(*address);
        // SAFETY: `_into.py` took the address and the length from an object that says that its memory is writable and
        // contiguous. It holds that object, or its buffer, until `read_into` returns, which waits for this thread. It
        // refuses ranges that share a byte, so no other slice of this call has these bytes. What other threads of
        // Python do with them meanwhile is up to the user, as with `readinto` of any file. Every pattern of bits is a
        // `u8`, and memory from elsewhere counts as initialized.
        unsafe { std::slice::from_raw_parts_mut(start, *len) }
    };
    FileRange { path, offset: *offset, memory }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "reading panicked").with_remedy("please report it: this is a bug")
}
