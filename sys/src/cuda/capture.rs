//! Captures of streams (CUDA graphs), which may be under way in any thread while we call the driver.
//!
//! A capture forbids calls that it cannot see. In the mode that PyTorch uses (`global`) it forbids them to every thread
//! of the process, and such a call not only fails, it ends the capture with an error. Our calls never belong in another
//! library's graph, so we make them in the mode `relaxed`, in which a capture elsewhere forbids nothing.

use super::table::{Handle, Table};
use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// What a thread of our own has made current for longer than one call; see [`Context::adopt`](super::Context::adopt).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Adopted {
    pub(super) context: Handle,
    /// Address of one of the driver's functions, since each library has handles of its own.
    pub(super) driver: usize,
}

thread_local! {
    pub(super) static ADOPTED: Cell<Option<Adopted>> = const { Cell::new(None) };
}

/// No capture in another stream forbids this thread a call while this lives.
pub(super) struct Relaxed<'a> {
    table: &'a Table,
    /// The thread's mode before, unless it was left as it is.
    before: Option<c_int>,
    /// Must be dropped on the thread that made it.
    _thread: PhantomData<*mut ()>,
}

impl Table {
    /// Makes this thread's calls independent of captures, until the guard is dropped. A driver without such modes knows
    /// no captures of that kind either.
    pub(super) fn relax(&self) -> Relaxed<'_> {
        let is_relaxed = ADOPTED.get().is_some_and(|adopted| adopted.driver == self.identity());
        let before = if is_relaxed { None } else { self.exchange(RELAXED) };
        Relaxed { table: self, before, _thread: PhantomData }
    }

    /// Sets this thread's mode, and returns the one before.
    fn exchange(&self, mut mode: c_int) -> Option<c_int> {
        let exchange = self.cuThreadExchangeStreamCaptureMode?;
        // SAFETY: the pointer is to an int that lives until the call returns, and which has the number of a mode.
        (unsafe { exchange(&raw mut mode) } == 0).then_some(mode)
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            self.table.exchange(before);
        }
    }
}
