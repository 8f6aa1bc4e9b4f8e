//! A file that cuFile knows.

use super::Driver;
use super::abi::{Descriptor, DescriptorHandle, HANDLE_IS_FD, Handle};
use super::error::CufileError;
use rustix::fs::OFlags;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// A registered file. It owns its descriptor: cuFile knows the file by that number, so until the file is deregistered,
/// the descriptor must not be closed and its number must not go to another file.
pub struct FileHandle {
    raw: Handle,
    /// Closed after `drop` has deregistered it.
    file: OwnedFd,
    driver: Arc<Driver>,
}

// SAFETY: `raw` is a name that only cuFile looks into, and any thread may call cuFile. The functions that take it
// either borrow the handle or are `drop`.
unsafe impl Send for FileHandle {}
// SAFETY: as for Send; several threads may call `cuFileRead` on one handle at once.
unsafe impl Sync for FileHandle {}

impl FileHandle {
    pub(super) fn new(driver: Arc<Driver>, file: OwnedFd) -> Result<FileHandle, CufileError> {
        // cuFile would accept it, and then read through the page cache and copy.
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|_| CufileError::INVALID_VALUE)?;
        if !flags.contains(OFlags::DIRECT) {
            return Err(CufileError::DIO_NOT_SET);
        }
        let mut raw: Handle = ptr::null_mut();
        // Initialises all eight bytes of the union before four of them are set.
        let mut handle = DescriptorHandle { pointer: ptr::null_mut() };
        handle.fd = file.as_raw_fd();
        let mut descriptor = Descriptor { kind: HANDLE_IS_FD, handle, operations: ptr::null() };
        // SAFETY: the type matches the header. Both addresses are of locals with the header's layout, which the
        // function uses only during the call. The descriptor is open and stays so until `drop` has deregistered it.
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
        // SAFETY: `new` registered `raw`, and it is deregistered only here. No read of it is in progress, because a
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
