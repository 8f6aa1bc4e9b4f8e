//! Device memory.

use super::context::Context;
use super::error::{CudaError, check};
use super::event::Event;
use super::stream::{self, SharedStream, StreamRef};
use super::table::Address;
use std::fmt;
use std::sync::Arc;

/// Where device memory comes from instead of `cuMemAlloc`, such as a trainer's caching allocator, so that both share
/// one pool.
///
/// # Safety
/// `allocate` returns the address of as many bytes of the device's memory as it was asked for. Until they are given to
/// `free`, no other code reads or writes them, except work that is in the returned stream by then. The stream lives
/// until the caller's thread calls the allocator again, or returns.
pub unsafe trait DeviceAllocator: fmt::Debug + Send + Sync {
    /// `len` bytes on device `index`, at a multiple of 256, and the stream that their last user may still work in: a
    /// caching allocator hands out memory in the order of a stream. The device's context is current.
    ///
    /// # Errors
    /// Why there are none, in the allocator's own words.
    fn allocate(&self, index: u32, len: usize) -> Result<(u64, StreamRef), String>;

    /// Takes them back. All work of this crate's streams and kernels on them is done. Any thread may call it.
    fn free(&self, index: u32, address: u64);
}

/// Why there is no device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The driver says so.
    Driver(CudaError),
    /// The allocator says so, in these words.
    Allocator(String),
    /// The allocator's memory is at this address, which is no multiple of 256.
    Unaligned(u64),
}

impl MemoryError {
    /// Whether the device is out of memory. Of an allocator, that is taken for the reason, whatever it says.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            MemoryError::Driver(error) => error.is_out_of_memory(),
            MemoryError::Allocator(_) => true,
            MemoryError::Unaligned(_) => false,
        }
    }
}

impl From<CudaError> for MemoryError {
    fn from(error: CudaError) -> MemoryError {
        MemoryError::Driver(error)
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Driver(error) => error.fmt(f),
            MemoryError::Allocator(told) => write!(f, "the DeviceAllocator has no memory: {told}"),
            MemoryError::Unaligned(address) => {
                write!(f, "the DeviceAllocator gave memory at {address:#x}, which is no multiple of 256")
            }
        }
    }
}

impl std::error::Error for MemoryError {}

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

    /// Takes `len` bytes from `allocator`, and waits for the work that may still use them.
    ///
    /// # Errors
    /// `Allocator` if it has none, `Unaligned` if what it has is not at a multiple of 256; `Driver` for whatever the
    /// driver reports, for example because the allocator's stream is being captured.
    pub fn of(
        context: &Context,
        len: usize,
        allocator: &Arc<dyn DeviceAllocator>,
    ) -> Result<DeviceMemory, MemoryError> {
        let _current = context.enter()?;
        let taken = allocator.allocate(context.info().index, len.max(1)).map_err(MemoryError::Allocator)?;
        let (address, stream) = taken;
        // From now on it is given back whatever happens.
        let (context, allocator) = (context.clone(), Some(Arc::clone(allocator)));
        let memory = DeviceMemory { inner: Arc::new(Inner { context, address, len, allocator }) };
        if address == 0 || !address.is_multiple_of(256) {
            return Err(MemoryError::Unaligned(address));
        }
        let done = Event::awaited(memory.context())?;
        if !SharedStream::from(stream).record_outside(&done, memory.context())? {
            return Err(CudaError::captured("cuEventRecord").into());
        }
        done.wait()?;
        Ok(memory)
    }

    /// Whether it is an allocator's, which gives it to others as soon as it is freed.
    pub fn is_lent(&self) -> bool {
        self.inner.allocator.is_some()
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
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        if let Some(allocator) = &self.allocator {
            // Memory that may still be in use is never given back. `cuCtxSynchronize` would wait for the trainer too,
            // and end the captures of all streams.
            if stream::settle(&self.context).is_ok() {
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
