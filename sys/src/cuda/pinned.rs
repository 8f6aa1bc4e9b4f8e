//! Host memory that the copy engine reaches: an arena registered with the driver.

use super::context::Context;
use super::error::{CudaError, check};
use crate::arena::Arena;
use std::ffi::c_uint;
use std::fmt;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context, so that one arena feeds several devices.
const PORTABLE: c_uint = 1;

/// An arena whose pages are locked and known to the driver, until this is dropped.
///
/// `cuMemHostRegister` and not `cuMemHostAlloc`: the ring wants one anonymous mapping. Never write-combined: the
/// processor reads it, to parse samples.
pub struct Pinned {
    context: Context,
    /// Keeps the memory mapped for as long as the driver knows it.
    arena: Arena,
}

impl Pinned {
    /// Registers the whole of `arena`, all of whose pages get memory by it.
    ///
    /// # Errors
    /// Where the system refuses to lock so much, and what else the driver says.
    pub fn new(context: &Context, arena: &Arena) -> Result<Pinned, CudaError> {
        let _current = context.enter()?;
        let arena = arena.handle();
        // SAFETY: the range is the arena's mapping, which `arena` keeps mapped until it was unregistered. The driver
        // pins pages and writes none of them.
        let registered = unsafe { (context.table().cuMemHostRegister_v2)(arena.base().cast(), arena.len(), PORTABLE) };
        check("cuMemHostRegister", registered)?;
        Ok(Pinned { context: context.clone(), arena })
    }

    /// The arena.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The address at which the device sees the arena's first byte.
    pub(super) fn device_address(&self) -> Result<u64, CudaError> {
        let _current = self.context.enter()?;
        let mut address = 0;
        let base = self.arena.base().cast();
        // SAFETY: the range is registered; the pointer is to a word that lives until the call returns; flags are 0.
        let asked = unsafe { (self.context.table().cuMemHostGetDevicePointer_v2)(&raw mut address, base, 0) };
        check("cuMemHostGetDevicePointer", asked)?;
        Ok(address)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: registered by `new` and unregistered once; the mapping is still there. A driver that refuses is
        // shutting down and has let go of everything.
        let _ = unsafe { (self.context.table().cuMemHostUnregister)(self.arena.base().cast()) };
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("arena", &self.arena).finish()
    }
}
