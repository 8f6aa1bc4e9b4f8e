//! Waits that a signal can end: in slices, without the interpreter lock.

use crate::outside::outside;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Longest time between checks for signals. A signal that reaches another thread does not end this thread's wait, so
/// this is how long Ctrl-C takes at most.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Waits for at most one slice until `fd` is readable, and raises what a signal handler raised.
pub(crate) fn until_readable(py: Python<'_>, fd: BorrowedFd<'_>) -> PyResult<()> {
    until_one_readable(py, &[fd], SLICE)
}

/// As [`until_readable`], for one of several, and for at most `wait`.
pub(crate) fn until_one_readable(py: Python<'_>, fds: &[BorrowedFd<'_>], wait: Duration) -> PyResult<()> {
    outside(py, || {
        let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let slice = Timespec { tv_sec: 0, tv_nsec: i64::from(SLICE.min(wait).subsec_nanos()) };
        // Whatever the outcome (a signal, an error of the descriptor), the caller checks for itself.
        let _ = poll(&mut fds, Some(&slice));
    });
    py.check_signals()
}

/// Runs `work` on a thread of its own and waits for it. If a signal handler raises meanwhile, the thread is abandoned
/// and its result dropped.
pub(crate) fn for_work<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (done, made) = mpsc::channel();
    let thread = std::thread::Builder::new().name("uringload-open".into());
    let thread = thread.spawn(move || {
        // After a signal, the caller no longer waits for it.
        let _ = done.send(work());
    })?;
    let mut made = Some(made);
    loop {
        let waited = outside(py, || {
            let receiver = made.take()?;
            let received = receiver.recv_timeout(SLICE);
            made = Some(receiver);
            Some(received)
        });
        match waited {
            Some(Ok(result)) => return Ok(result),
            Some(Err(RecvTimeoutError::Timeout)) => py.check_signals()?,
            // The work panicked; its message is on stderr.
            Some(Err(RecvTimeoutError::Disconnected)) | None => {
                let _ = thread.join();
                let error = uringload::Error::new(uringload::ErrorKind::Internal, "opening a dataset panicked");
                return Err(crate::errors::raised(py, &error.with_remedy("please report it: this is a bug")));
            }
        }
    }
}

/// Runs `work` on a thread of its own and waits for it to the end. Between slices it calls `look`; if that or a signal
/// handler raises, it calls `stop` once, which should end the work soon, and then raises that. `what` names the work
/// in the error of a panic.
pub(crate) fn to_the_end<T: Send + 'static>(
    py: Python<'_>,
    (name, what): (&str, &str),
    work: impl FnOnce() -> uringload::Result<T> + Send + 'static,
    mut look: impl FnMut() -> PyResult<()>,
    stop: impl Fn(),
) -> PyResult<T> {
    let (done, mut made) = mpsc::channel();
    // The loop below waits for the result.
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || drop(done.send(work())))?;
    let mut failed: Option<PyErr> = None;
    let result = loop {
        let (waited, receiver) = outside(py, move || (made.recv_timeout(SLICE), made));
        made = receiver;
        if failed.is_none() {
            failed = py.check_signals().and_then(|()| look()).err();
            if failed.is_some() {
                stop();
            }
        }
        match waited {
            Ok(result) => break result,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let _ = thread.join();
                let error = uringload::Error::new(uringload::ErrorKind::Internal, format!("{what} panicked"));
                break Err(error.with_remedy("please report it: this is a bug"));
            }
        }
    };
    match failed {
        Some(error) => Err(error),
        None => result.map_err(|error| crate::errors::raised(py, &error)),
    }
}
