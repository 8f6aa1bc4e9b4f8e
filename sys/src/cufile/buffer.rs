//! Memory that cuFile may write to.

use super::Driver;
use super::error::CufileError;
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A range of a device's memory, which lives as long as the value.
///
/// # Safety
/// `address` and `len` always return the same range. From the first call until the value is dropped the range is
/// allocated, wherever the value is moved and on whatever thread it is dropped. No Rust reference points to its bytes
/// while the value lives: to Rust, a device may write to them at any time.
pub unsafe trait DeviceRange: Send + Sync + 'static {
    /// Device address of the first byte.
    fn address(&self) -> u64;
    /// Length in bytes.
    fn len(&self) -> u64;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: a span never changes, and holds a handle on its allocation until it is dropped. Its bytes are a device's, to
// which no Rust reference can point. If the device is reset, its memory is gone, and cuFile, which asks the driver,
// fails.
unsafe impl DeviceRange for crate::cuda::Span {
    fn address(&self) -> u64 {
        crate::cuda::Span::address(self)
    }

    fn len(&self) -> u64 {
        crate::cuda::Span::len(self) as u64
    }
}

/// Registered memory. It owns the memory, because freeing it while it is registered can lock up nvidia-fs for good.
pub struct RegisteredBuffer<R: DeviceRange> {
    range: ManuallyDrop<R>,
    driver: Arc<Driver>,
}

impl<R: DeviceRange> RegisteredBuffer<R> {
    pub(super) fn new(driver: Arc<Driver>, range: R) -> Result<RegisteredBuffer<R>, (CufileError, R)> {
        let (Ok(len), false) = (usize::try_from(range.len()), range.is_empty()) else {
            return Err((CufileError::INVALID_VALUE, range));
        };
        let base = range.address() as *const c_void;
        // SAFETY: the type matches the header. The range is allocated and stays so until `drop` has deregistered it,
        // because this value owns it from here on.
        let status = unsafe { (driver.table.buf_register)(base, len, 0) };
        driver.standard_input.restore();
        match CufileError::check(status) {
            Ok(()) => Ok(RegisteredBuffer { range: ManuallyDrop::new(range), driver }),
            Err(error) => Err((error, range)),
        }
    }

    /// The memory.
    pub fn range(&self) -> &R {
        &self.range
    }

    /// Device address of the first byte.
    pub fn address(&self) -> u64 {
        self.range.address()
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.range.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }
}

impl<R: DeviceRange> Drop for RegisteredBuffer<R> {
    fn drop(&mut self) {
        let base = self.range.address() as *const c_void;
        // SAFETY: `new` registered the range, and it is deregistered only here. No read into it is in progress, because
        // a read borrows the buffer.
        let status = unsafe { (self.driver.table.buf_deregister)(base) };
        self.driver.standard_input.restore();
        // Memory that cannot be deregistered is never freed: leaking it prevents cuFile from writing to memory that
        // others use.
        if CufileError::check(status).is_ok() {
            // SAFETY: it is dropped only here, and `self` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.range) };
        }
    }
}

impl<R: DeviceRange> fmt::Debug for RegisteredBuffer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegisteredBuffer({:#x}, {} bytes)", self.address(), self.len())
    }
}
