//! Device memory.

use super::context::Context;
use super::error::{CudaError, check};
use super::table::Address;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Where device memory comes from instead of `cuMemAlloc`, such as a trainer's caching allocator, so that both share
/// one pool.
///
/// # Safety
/// What `allocate` returns is the address of as many bytes of the device's memory as were asked for, which nobody else
/// reads or writes until they are given to `free`.
pub unsafe trait DeviceAllocator: fmt::Debug + Send + Sync {
    /// `len` bytes on device `index`, at a multiple of 256; `None` if there are none. The device's context is current.
    fn allocate(&self, index: u32, len: usize) -> Option<u64>;

    /// Takes them back. All work in the context is done, whoever began it. Any thread may call it.
    fn free(&self, index: u32, address: u64);
}

/// An allocation on a device, freed with its last handle. Its addresses are the ones that kernels and frameworks use.
#[derive(Clone)]
pub struct DeviceMemory {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    address: Address,
    len: usize,
    /// Where it came from, if not from the driver.
    allocator: Option<Arc<dyn DeviceAllocator>>,
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
        Ok(DeviceMemory { inner: Arc::new(Inner { context: context.clone(), address, len, allocator: None }) })
    }

    /// Takes `len` bytes from `allocator`.
    ///
    /// # Errors
    /// Out of memory if it has none; invalid value if what it has is not at a multiple of 256.
    pub fn of(context: &Context, len: usize, allocator: &Arc<dyn DeviceAllocator>) -> Result<DeviceMemory, CudaError> {
        let _current = context.enter()?;
        let index = context.info().index;
        let address = allocator.allocate(index, len.max(1)).ok_or(CudaError::out_of_memory("DeviceAllocator"))?;
        if address == 0 || !address.is_multiple_of(256) {
            allocator.free(index, address);
            return Err(CudaError::invalid("DeviceAllocator"));
        }
        let (context, allocator) = (context.clone(), Some(Arc::clone(allocator)));
        Ok(DeviceMemory { inner: Arc::new(Inner { context, address, len, allocator }) })
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
        if let Some(allocator) = &self.allocator {
            // As `cuMemFree` does. Memory that may still be in use is never given back.
            // SAFETY: it takes no arguments, and the context is current.
            if unsafe { (self.context.table().cuCtxSynchronize)() } == 0 {
                allocator.free(self.context.info().index, self.address);
            }
            return;
        }
        // SAFETY: the address came from `cuMemAlloc` and is freed once. `cuMemFree` waits for whatever uses the memory.
        let _ = unsafe { (self.context.table().cuMemFree_v2)(self.address) };
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory({:#x}, {} bytes)", self.inner.address, self.inner.len)
    }
}
