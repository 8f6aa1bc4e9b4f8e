//! Waits for the file system of the folder for a while only, where it asks a server: that may never answer.
//!
//! [`Patience`](crate::patience::Patience) asks few questions, and no more once eight are open. Here dozens of reads
//! are open at a time, and only one that takes too long ends the asking.

use super::Segments;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use uringload_sys::file;

/// How long to wait for an answer: for ever, where there is no patience.
#[derive(Debug, Default)]
pub(super) struct Answers {
    patience: Option<Duration>,
    /// One did not come: none is waited for again.
    is_silent: AtomicBool,
}

impl Segments {
    /// Has [`ask`](Segments::ask) wait for `patience` at most, if the file system asks a server.
    pub(crate) fn asked_within(mut self, patience: Duration) -> Segments {
        self.answers.patience = (!file::is_local(self.held.as_fd())).then_some(patience);
        self
    }

    /// Whether an answer may never come, so that what is read goes through a thread and a buffer.
    pub(crate) fn may_hang(&self) -> bool {
        self.answers.patience.is_some()
    }

    /// Whether an answer did not come.
    pub(crate) fn is_silent(&self) -> bool {
        self.answers.is_silent.load(Ordering::Relaxed)
    }

    /// The answer of `work`, which uses the folder. Where it [may hang](Segments::may_hang), a thread does the work,
    /// and is left alone if it takes too long.
    ///
    /// # Errors
    /// `TimedOut` if the answer does not come, or an earlier one did not; the system's error if it starts no thread.
    pub(crate) fn ask<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let Some(patience) = self.answers.patience else { return Ok(work()) };
        let over = || io::Error::new(ErrorKind::TimedOut, format!("it did not answer within {patience:?}"));
        if self.is_silent() {
            return Err(over());
        }
        let (tell, told) = sync_channel(1);
        std::thread::Builder::new().name("uringload-ask".into()).spawn(move || _ = tell.send(work()))?;
        told.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.answers.is_silent.store(true, Ordering::Relaxed);
                over()
            }
            RecvTimeoutError::Disconnected => io::Error::other("its thread has panicked"),
        })
    }
}
