//! Device memory.

use super::context::Context;
use super::error::{CudaError, check};
use super::table::Address;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// An allocation on a device, freed with its last handle. Its addresses are the ones that kernels and frameworks use.
#[derive(Clone)]
pub struct DeviceMemory {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    address: Address,
    len: usize,
}

impl DeviceMemory {
    /// Allocates `len` bytes with `cuMemAlloc`, at a multiple of 256.
    ///
    /// # Errors
    /// Out of memory; whatever else the driver reports.
    pub fn new(context: &Context, len: usize) -> Result<DeviceMemory, CudaError> {
        let _current = context.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a word that lives until the call returns, and the context is current.
        let taken = unsafe { (context.table().cuMemAlloc_v2)(&raw mut address, len.max(1)) };
        check("cuMemAlloc", taken)?;
        Ok(DeviceMemory { inner: Arc::new(Inner { context: context.clone(), address, len }) })
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.inner.address
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Copies a range to the host and waits for that. It is not ordered after any stream: first wait for whatever
    /// writes the range.
    ///
    /// # Errors
    /// Invalid value for a range outside, or of another length than `to`; whatever the driver reports.
    pub fn read(&self, range: Range<usize>, to: &mut [u8]) -> Result<(), CudaError> {
        if range.start > range.end || range.end > self.inner.len || range.len() != to.len() {
            return Err(CudaError::invalid("cuMemcpyDtoH"));
        }
        if to.is_empty() {
            return Ok(());
        }
        let context = &self.inner.context;
        let _current = context.enter()?;
        let from = self.inner.address + range.start as u64;
        // SAFETY: the source lies inside the allocation, and the target is `to`, of the same length: both were checked
        // above. The call returns when it has copied.
        let copied = unsafe { (context.table().cuMemcpyDtoH_v2)(to.as_mut_ptr().cast(), from, to.len()) };
        check("cuMemcpyDtoH", copied)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: the address came from `cuMemAlloc` and is freed once. `cuMemFree` waits for whatever uses the memory.
        let _ = unsafe { (self.context.table().cuMemFree_v2)(self.address) };
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory({:#x}, {} bytes)", self.inner.address, self.inner.len)
    }
}
