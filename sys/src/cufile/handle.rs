//! A file that cuFile knows.

use super::Driver;
use super::abi::{Descriptor, DescriptorHandle, HANDLE_IS_FD, Handle};
use super::error::CufileError;
use rustix::fs::OFlags;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// A registered file. Owns its descriptor: cuFile knows a file by that number, so it must not be closed, and the number
/// not be given to another file, before it is deregistered.
pub struct FileHandle {
    raw: Handle,
    /// Closed after `drop` has deregistered it.
    file: OwnedFd,
    driver: Arc<Driver>,
}

// SAFETY: `raw` is a name that only cuFile looks into, and cuFile may be called from any thread. The functions that
// take it either borrow the handle, or are `drop`.
unsafe impl Send for FileHandle {}
// SAFETY: as for Send; `cuFileRead` may be called on one handle by several threads at once.
unsafe impl Sync for FileHandle {}

impl FileHandle {
    pub(super) fn new(driver: Arc<Driver>, file: OwnedFd) -> Result<FileHandle, CufileError> {
        // cuFile would take it, and then read through the page cache and copy.
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|_| CufileError::INVALID_VALUE)?;
        if !flags.contains(OFlags::DIRECT) {
            return Err(CufileError::DIO_NOT_SET);
        }
        let mut raw: Handle = ptr::null_mut();
        // All of the union is given a value before four of its eight bytes are.
        let mut handle = DescriptorHandle { pointer: ptr::null_mut() };
        handle.fd = file.as_raw_fd();
        let mut descriptor = Descriptor { kind: HANDLE_IS_FD, handle, operations: ptr::null() };
        // SAFETY: the function is the header's; both addresses are of locals with the header's layout, which it only
        // uses during the call. The descriptor is open and stays so until `drop` has deregistered it.
        let status = unsafe { (driver.table.handle_register)(&raw mut raw, &raw mut descriptor) };
        driver.standard_input.restore();
        CufileError::check(status)?;
        Ok(FileHandle { raw, file, driver })
    }

    pub(super) fn raw(&self) -> Handle {
        self.raw
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        // SAFETY: `raw` was registered by `new` and is deregistered only here; no read of it is under way, because a
        // read borrows the handle. The descriptor is closed after this.
        unsafe { (self.driver.table.handle_deregister)(self.raw) };
        self.driver.standard_input.restore();
    }
}

impl AsFd for FileHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileHandle").field(&self.file).finish()
    }
}
