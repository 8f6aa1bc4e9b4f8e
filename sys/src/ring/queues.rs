//! An io_uring, kept split into its three parts.
//!
//! `Submitter` remembers the registered ring descriptor, and every `IoUring::submitter()` makes a new one that does
//! not. So the parts of one `split` are kept for the ring's lifetime, which requires a self-reference. It is confined
//! to this file.

use io_uring::{CompletionQueue, EnterFlags, IoUring, SubmissionQueue, Submitter, types};
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// Longer waits end after this, which is far from overflowing the kernel's clock.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

pub(super) struct Queues {
    pub(super) submitter: Submitter<'static>,
    pub(super) sq: SubmissionQueue<'static>,
    pub(super) cq: CompletionQueue<'static>,
    ring_fd: bool,
    min_wait: bool,
    /// The last field, so that it is dropped after the three that borrow from it.
    _ring: Owned,
}

impl Queues {
    pub(super) fn new(ring: IoUring) -> Queues {
        let min_wait = ring.params().is_feature_min_timeout();
        let mut ring = Owned(NonNull::from(Box::leak(Box::new(ring))));
        // SAFETY: the box was leaked one line above, so its content stays where it is until `Owned` is dropped, and
        // this is the only reference ever made to it. `Owned` is dropped after everything that this borrow reaches,
        // because it is the last field of `Queues`, and the other fields are not `Clone` and are never moved out.
        let (submitter, sq, cq) = unsafe { ring.0.as_mut() }.split();
        Queues { submitter, sq, cq, ring_fd: false, min_wait, _ring: ring }
    }

    /// Registers the ring's own descriptor, which saves a lookup in each call.
    pub(super) fn register_ring_fd(&mut self) -> io::Result<()> {
        self.submitter.register_ring_fd()?;
        self.ring_fd = true;
        Ok(())
    }

    /// Submits everything. With `wait`, waits up to that long for `want` completions, and after `batch_wait` settles
    /// for any one.
    pub(super) fn enter(&mut self, wait: Option<Duration>, want: usize, batch_wait: Duration) -> io::Result<()> {
        self.sq.sync();
        let queued = self.sq.len() as u32;
        let entered = match wait {
            Some(wait) if want > 1 && self.min_wait => self.call(queued, want as u32, wait, batch_wait.min(wait)),
            Some(wait) => self.call(queued, 1, wait, Duration::ZERO),
            None => self.call(queued, 0, Duration::ZERO, Duration::ZERO),
        };
        self.sq.sync();
        entered
    }

    /// Waits for one completion without submitting anything.
    pub(super) fn wait(&mut self, wait: Duration) -> io::Result<()> {
        self.call(0, 1, wait, Duration::ZERO)
    }

    fn call(&self, submit: u32, want: u32, wait: Duration, batch_wait: Duration) -> io::Result<()> {
        let time = types::Timespec::from(wait.min(WAIT_MAX));
        let batch_wait = u32::try_from(batch_wait.as_micros()).unwrap_or(u32::MAX);
        let args = types::SubmitArgs::new().timespec(&time).min_wait_usec(batch_wait);
        // Always with GETEVENTS. A DEFER_TASKRUN ring does its deferred work only in such a call, and the `submit` of
        // the io-uring crate omits the flag if it waits for nothing.
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        // SAFETY: with EXT_ARG the argument is an `io_uring_getevents_arg`, to which `SubmitArgs` is transparent. The
        // argument and the time that it points to live until the call returns. `Ring::queue`, which added the entries,
        // proves what they point to.
        unsafe { self.submitter.enter(submit, want, flags, Some(&args)) }.map(drop)
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.ring_fd {
            // The registration belongs to the thread, which has 16 of them, and would keep the ring and its buffers
            // alive.
            let _ = self.submitter.unregister_ring_fd();
        }
    }
}

/// A box that does not claim to be the only pointer to its content.
struct Owned(NonNull<IoUring>);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::leak` in `Queues::new` and is given back only here. Only the fields of
        // `Queues` before this one borrow from it, and they are gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
