//! Descriptor 0, which cuFile may close. A library that stores 0 where it means "no descriptor" closes standard input,
//! and code that reads standard input then reads the next file that is opened.

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

/// A second descriptor for standard input, to restore it from.
pub(super) struct StandardInput {
    saved: OwnedFd,
    /// Whether it was closed before, so that `/dev/null` was opened in its place.
    pub(super) was_closed: bool,
}

impl StandardInput {
    /// Ensures that descriptor 0 is open, and keeps a second descriptor for it.
    ///
    /// # Errors
    /// If no descriptor is left, or there is no `/dev/null`.
    pub(super) fn protect() -> io::Result<StandardInput> {
        let was_closed = match save() {
            Ok(saved) => return Ok(StandardInput { saved, was_closed: false }),
            Err(rustix::io::Errno::BADF) => {
                let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
                keep_if_standard_input(null)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(StandardInput { saved: save()?, was_closed })
    }

    /// Restores it if it has been closed since, and returns whether it did.
    pub(super) fn restore(&self) -> bool {
        if rustix::io::fcntl_getfd(io::stdin().as_fd()).is_ok() {
            return false;
        }
        // The system hands out the lowest free number: 0, unless another thread has opened a file there by now. That
        // file must stay open.
        match rustix::io::dup(&self.saved) {
            Ok(fd) => keep_if_standard_input(fd),
            Err(_) => false,
        }
    }
}

fn save() -> rustix::io::Result<OwnedFd> {
    // Above the three descriptors that programs expect.
    rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)
}

/// If its number is 0, keeps the descriptor open for good, also across exec; otherwise closes it.
fn keep_if_standard_input(fd: OwnedFd) -> bool {
    if fd.as_raw_fd() != 0 {
        return false;
    }
    // This cannot fail on an open descriptor, and would only mean that a child has no standard input.
    let _ = rustix::io::fcntl_setfd(&fd, FdFlags::empty());
    let _ = fd.into_raw_fd();
    true
}
