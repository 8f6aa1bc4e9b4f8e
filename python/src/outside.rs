//! Work without the interpreter's lock, and how threads that do it stay away from an interpreter that ends.
//! Before Python 3.14, `pthread_exit` unwinds a daemon thread that asks for the lock after the interpreter has begun to
//! end. Its frames here are Rust's, which must not be unwound so: if the unwinder that this module was linked with is
//! not the C library's, the process dies of SIGSEGV.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Set once, when the interpreter begins to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads between releasing the lock and having it again.
static OUTSIDE: AtomicU32 = AtomicU32::new(0);
/// Of these, the threads that wait for the end of the process.
static PARKED: AtomicU32 = AtomicU32::new(0);
/// The process whose threads are counted: a forked child has its parent's counts, and none of its threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Longest wait for threads that are outside. Loaders are closed by then, so only a device that no longer answers can
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

/// A thread that is outside. Dropped when it has the lock again, also after a panic of its work.
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

/// Counts threads of this process from now on. Called when the module is imported, and in each forked child.
#[pyfunction]
pub fn begun() {
    OUTSIDE.store(0, SeqCst);
    PARKED.store(0, SeqCst);
    PROCESS.store(std::process::id(), SeqCst);
}

/// Called as the interpreter ends, after all loaders are closed: waits until every thread that is outside has come back
/// or has parked. None asks for the lock afterwards.
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
