//! A file mapped for reading, for comparison with a ring.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A read-only, shared mapping of a file's first bytes.
///
/// Bytes are only ever copied out. If a file is truncated while it is mapped, touching a page past its new end kills
/// the process with SIGBUS. So this is for measurements.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of the file.
    ///
    /// # Errors
    /// What `mmap(2)` reports: `EINVAL` for `len` 0, `ENODEV` if the file system cannot map files.
    pub fn new(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: an empty mapping is an error.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies the bytes at `offset` into `into`, and returns how many there were.
    pub fn copy(&self, offset: usize, into: &mut [u8]) -> usize {
        let len = into.len().min(self.len.saturating_sub(offset));
        let from = self.base.as_ptr().wrapping_add(offset.min(self.len));
        // SAFETY: `from..from + len` is inside the mapping, which lives as long as `self`, and `into` has at least
        // `len` bytes. They cannot overlap, because no reference to mapped bytes is ever given out. Another process may
        // change the bytes meanwhile; any value is a valid `u8`, and only the copy is ever looked at.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), len) };
        len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it with this length, and only `copy`, which borrows `self`, looks at its bytes.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping belongs to the process and not to a thread, and this is its only owner.
unsafe impl Send for Mapping {}
// SAFETY: through `&Mapping` bytes are only read.
unsafe impl Sync for Mapping {}
