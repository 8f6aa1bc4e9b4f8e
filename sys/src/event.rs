//! An eventfd: a counter that a poll loop can wait for.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A descriptor that is readable from [`signal`](EventFd::signal) until [`drain`](EventFd::drain); see `eventfd(2)`.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Creates one: not readable, non-blocking, closed on exec.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the system has no descriptor left.
    pub fn new() -> io::Result<EventFd> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventFd { fd })
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // `EAGAIN` means that the counter is at its maximum, so it is readable already. Nothing else can fail on a
        // descriptor that this type owns.
        while rustix::io::write(&self.fd, &1u64.to_ne_bytes()) == Err(rustix::io::Errno::INTR) {}
    }

    /// Makes it not readable.
    pub fn drain(&self) {
        // `EAGAIN` means that it was not readable.
        let mut count = [0u8; 8];
        while rustix::io::read(&self.fd, &mut count) == Err(rustix::io::Errno::INTR) {}
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits up to `wait` until `fd` is readable, and returns whether it is; see `poll(2)`.
///
/// # Errors
/// What `ppoll(2)` reports; `EINTR` if a signal came first.
pub fn wait_readable(fd: impl AsFd, wait: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    // A wait too long for a timespec outlasts any machine: the longest one replaces it.
    let wait = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    Ok(poll(&mut fds, Some(&wait))? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(event: &EventFd) -> bool {
        wait_readable(event, Duration::ZERO).unwrap()
    }

    #[test]
    fn readable_from_signal_until_drain() {
        let event = EventFd::new().unwrap();
        assert!(!readable(&event));
        event.drain();
        event.signal();
        event.signal();
        assert!(readable(&event) && readable(&event), "level-triggered");
        event.drain();
        assert!(!readable(&event), "one drain takes all signals");
    }
}
