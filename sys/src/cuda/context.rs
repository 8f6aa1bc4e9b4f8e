//! A device and its primary context.

use super::error::{CudaError, check};
use super::probe::{Driver, ProbeError};
use super::table::{Handle, RawDevice, Table};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// What the driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Its compute capability, such as (9, 0).
    pub compute: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Where it is on the PCI bus, as sysfs writes it ("0000:3b:00.0").
    pub pci: String,
}

/// The primary context of a device: the one that PyTorch and the runtime API use, so addresses and streams are shared
/// with them.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    device: RawDevice,
    raw: Handle,
    info: DeviceInfo,
}

// SAFETY: a context is a handle that every thread of the process may make current or pass on (CUDA C++ Programming
// Guide, "Context": the driver API is thread-safe); nothing here is changed after it was made.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl Context {
    /// Retains the primary context of device `index`.
    ///
    /// # Errors
    /// `NoSuchDevice`; `Init` where the driver refuses, such as without memory for a context.
    pub fn new(driver: &Driver, index: u32) -> Result<Context, ProbeError> {
        let info = driver.info(index)?;
        let device = driver.device(index)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a handle that lives until the call returns; `device` came from `cuDeviceGet`.
        let retained = unsafe { (driver.table.cuDevicePrimaryCtxRetain)(&raw mut raw, device) };
        check("cuDevicePrimaryCtxRetain", retained).map_err(ProbeError::Init)?;
        Ok(Context { inner: Arc::new(Inner { driver: driver.clone(), device, raw, info }) })
    }

    /// What the driver says of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// Whether both are of the same device.
    pub fn is_same(&self, other: &Context) -> bool {
        self.inner.raw == other.inner.raw
    }

    /// Bytes of the device's memory that are free, and all of them.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both pointers are to words that live until the call returns; the context is current.
        let asked = unsafe { (self.table().cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        check("cuMemGetInfo", asked)?;
        Ok((free as u64, total as u64))
    }

    /// Makes the context current on this thread until the guard is dropped; what was current is so again then.
    ///
    /// # Errors
    /// Where the context was destroyed.
    pub fn enter(&self) -> Result<Current<'_>, CudaError> {
        // SAFETY: the handle is of a context that `self` retains.
        let pushed = unsafe { (self.table().cuCtxPushCurrent_v2)(self.inner.raw) };
        check("cuCtxPushCurrent", pushed)?;
        Ok(Current { context: self, _thread: PhantomData })
    }

    pub(super) fn table(&self) -> &Table {
        &self.inner.driver.table
    }

    pub(super) fn raw(&self) -> Handle {
        self.inner.raw
    }
}

/// While it lives, a context is current on its thread.
pub struct Current<'a> {
    context: &'a Context,
    /// It must be dropped on the thread that made it.
    _thread: PhantomData<*mut ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: this thread pushed the context; the pointer is to a handle that lives until the call returns. An
        // error (the driver is shutting down) leaves nothing to be done.
        let _ = unsafe { (self.context.table().cuCtxPopCurrent_v2)(&raw mut popped) };
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once by `new`. Where the driver is shutting down it refuses, which harms nobody.
        let _ = unsafe { (self.driver.table.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("info", &self.inner.info).finish()
    }
}
