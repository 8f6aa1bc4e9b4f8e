//! Pinned memory: an arena registered with the driver, so that the copy engine can reach it.

use super::context::Context;
use super::error::{CudaError, check};
use crate::arena::Arena;
use std::ffi::c_uint;
use std::fmt;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context, so that one arena feeds several devices.
const PORTABLE: c_uint = 1;

/// An arena whose pages are locked and known to the driver until this is dropped.
///
/// It is made with `cuMemHostRegister` rather than `cuMemHostAlloc`, because the ring needs one anonymous mapping. It
/// is never write-combined, because the processor reads it to parse samples.
pub struct Pinned {
    context: Context,
    /// Keeps the memory mapped for as long as the driver knows it.
    arena: Arena,
}

impl Pinned {
    /// Registers all of `arena`, which backs each of its pages with memory.
    ///
    /// # Errors
    /// If the system refuses to lock that much; whatever else the driver reports. `CUDA_ERROR_INVALID_VALUE` for an
    /// arena whose pages may be carried elsewhere, because the driver knows memory by its address.
    pub fn new(context: &Context, arena: &Arena) -> Result<Pinned, CudaError> {
        if arena.page_bytes().is_some() {
            return Err(CudaError::invalid("cuMemHostRegister"));
        }
        let _current = context.enter()?;
        let arena = arena.handle();
        // SAFETY: the range is the arena's mapping, and `arena` keeps it mapped until it is unregistered. The driver
        // pins its pages and writes to none of them.
        let registered = unsafe { (context.table().cuMemHostRegister_v2)(arena.base().cast(), arena.len(), PORTABLE) };
        check("cuMemHostRegister", registered)?;
        Ok(Pinned { context: context.clone(), arena })
    }

    /// The arena.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The device's address of the arena's first byte.
    pub(super) fn device_address(&self) -> Result<u64, CudaError> {
        let _current = self.context.enter()?;
        let mut address = 0;
        let base = self.arena.base().cast();
        // SAFETY: the range is registered, the pointer is to a word that lives until the call returns, and the flags
        // are 0.
        let asked = unsafe { (self.context.table().cuMemHostGetDevicePointer_v2)(&raw mut address, base, 0) };
        check("cuMemHostGetDevicePointer", asked)?;
        Ok(address)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: `new` registered it, it is unregistered once, and the mapping still exists. A driver that refuses is
        // shutting down and has released everything.
        let _ = unsafe { (self.context.table().cuMemHostUnregister)(self.arena.base().cast()) };
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("arena", &self.arena).finish()
    }
}
