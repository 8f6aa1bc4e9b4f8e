//! Work without the interpreter's lock, and how threads that are at it when the interpreter ends stay out of its way.
//!
//! Before Python 3.14, a daemon thread that asks for the lock after the interpreter has begun to end is unwound by
//! `pthread_exit`. Its frames here are Rust's, which must not be unwound so: where the unwinder that this module was
//! linked with is not the C library's, the process dies of SIGSEGV.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Set once, when the interpreter begins to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads between giving the lock up and having it again.
static OUTSIDE: AtomicU32 = AtomicU32::new(0);
/// Of these, the threads that wait for the end of the process.
static PARKED: AtomicU32 = AtomicU32::new(0);
/// The process whose threads are counted: one forked off has its parent's counts, and none of its threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Longest wait for threads that are outside. Loaders are closed by then, so only a device that answers no more can
/// keep a thread longer.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);

thread_local! {
    /// Whether this thread ends the interpreter.
    static ENDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs `work` without the interpreter's lock. If the interpreter begins to end meanwhile, this thread never returns.
pub(crate) fn outside<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _counted = Counted::new();
    py.detach(|| {
        let made = work();
        if ENDING.load(SeqCst) && !ENDS.get() {
            PARKED.fetch_add(1, SeqCst);
            loop {
                thread::park();
            }
        }
        made
    })
}

/// A thread that is outside. Dropped when it has the lock again, also behind a panic of its work.
struct Counted;

impl Counted {
    fn new() -> Counted {
        OUTSIDE.fetch_add(1, SeqCst);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OUTSIDE.fetch_sub(1, SeqCst);
    }
}

/// Counts threads of this process from now on. Called when the module is imported, and in each process forked off.
#[pyfunction]
pub fn begun() {
    OUTSIDE.store(0, SeqCst);
    PARKED.store(0, SeqCst);
    PROCESS.store(std::process::id(), SeqCst);
}

/// Called as the interpreter ends, behind the closing of all loaders: waits until every thread that is outside has come
/// back or has parked. None asks for the lock afterwards.
#[pyfunction]
pub fn ending(py: Python<'_>) {
    ENDS.set(true);
    ENDING.store(true, SeqCst);
    if PROCESS.load(SeqCst) != std::process::id() {
        return;
    }
    let until = Instant::now() + PATIENCE;
    py.detach(|| {
        while OUTSIDE.load(SeqCst) > PARKED.load(SeqCst) && Instant::now() < until {
            thread::sleep(LOOK);
        }
    });
}
