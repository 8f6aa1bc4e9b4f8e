//! Ends a wait from another thread: an eventfd on which the ring keeps a poll armed.

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Any thread rings it, and the ring's thread hears it.
pub(super) struct Bell {
    event: OwnedFd,
    /// Whether it was rung since it was last silenced, so that many rings between two turns cost one system call.
    rung: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { event, rung: AtomicBool::new(false) })
    }

    /// Completes when the bell has been rung. It is a poll and not a read, so that no memory is in flight and a bell
    /// that was rung before it was armed counts too.
    pub(super) fn entry(&self) -> Entry {
        opcode::PollAdd::new(types::Fd(self.event.as_raw_fd()), libc::POLLIN as u32).build()
    }

    /// Waits up to `wait` until it is rung, where the ring cannot; then it is silent.
    pub(super) fn listen(&self, wait: Duration) {
        let mut fds = [PollFd::new(&self.event, PollFlags::IN)];
        let time = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        // Whatever the outcome, the caller looks for what other threads left.
        if poll(&mut fds, Some(&time)).is_ok_and(|rung| rung > 0) {
            self.silence();
        }
    }

    /// For the ring's thread, before it checks what other threads left for it.
    pub(super) fn silence(&self) {
        // `EAGAIN` means that there was nothing to read: the poll was cancelled.
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        // The order matters. If the flag were cleared first, another thread could set it and write before the read
        // below, which would swallow that write; the flag would stay set, and no later ring would write again. In this
        // order a thread that finds the flag set is heard by the caller, because the swap makes everything before that
        // ring visible to it.
        self.rung.swap(false, Ordering::AcqRel);
    }
}

impl std::task::Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Cannot fail: one write between two silences does not fill the counter.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}
