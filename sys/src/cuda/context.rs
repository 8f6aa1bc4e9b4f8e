//! A device and its primary context.

use super::capture::{ADOPTED, Adopted, Relaxed};
use super::error::{CudaError, check};
use super::probe::{DeviceInfo, Driver, ProbeError};
use super::stream::Own;
use super::table::{Handle, RawDevice, Table};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The primary context of a device: the one that PyTorch and the runtime API use too, so addresses and streams are
/// shared with them.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    device: RawDevice,
    raw: Handle,
    info: DeviceInfo,
    /// The streams that were made in it and live.
    streams: Mutex<Vec<Own>>,
}

// SAFETY: a context is a handle that any thread of the process may make current or pass on: the driver API is
// thread-safe (CUDA C++ Programming Guide, "Context"). Nothing here changes after construction but what is under the
// lock.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl Context {
    /// Retains the primary context of device `index`.
    ///
    /// # Errors
    /// `NoSuchDevice`; `Init` if the driver refuses, for example because it has no memory for a context.
    pub fn new(driver: &Driver, index: u32) -> Result<Context, ProbeError> {
        let info = driver.info(index)?;
        let device = driver.device(index)?;
        let _relaxed = driver.table.relax();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a handle that lives until the call returns, and `device` came from `cuDeviceGet`.
        let retained = unsafe { (driver.table.cuDevicePrimaryCtxRetain)(&raw mut raw, device) };
        check("cuDevicePrimaryCtxRetain", retained).map_err(ProbeError::Init)?;
        Ok(Context { inner: Arc::new(Inner { driver: driver.clone(), device, raw, info, streams: Mutex::default() }) })
    }

    /// What the driver reports about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// Whether both belong to the same device.
    pub fn is_same(&self, other: &Context) -> bool {
        self.inner.raw == other.inner.raw
    }

    /// The device's free memory and its total memory, in bytes.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both pointers are to words that live until the call returns, and the context is current.
        let asked = unsafe { (self.table().cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        check("cuMemGetInfo", asked)?;
        Ok((free as u64, total as u64))
    }

    /// Makes the context current on this thread until the guard is dropped, which restores what was current before.
    /// Meanwhile no capture of a stream (a CUDA graph) forbids this thread a call, or fails because of one.
    ///
    /// # Errors
    /// If the context was destroyed.
    pub fn enter(&self) -> Result<Current<'_>, CudaError> {
        self.make_current(false)
    }

    /// Like [`enter`](Context::enter), for a thread that runs no code of others until the guard is dropped: what it
    /// calls in between finds the context current and makes no calls for that.
    ///
    /// # Errors
    /// If the context was destroyed.
    pub fn adopt(&self) -> Result<Current<'_>, CudaError> {
        self.make_current(true)
    }

    fn make_current(&self, adopts: bool) -> Result<Current<'_>, CudaError> {
        let (own, before) = (Adopted { context: self.inner.raw, driver: self.table().identity() }, ADOPTED.get());
        if before == Some(own) {
            return Ok(Current { context: self, is_pushed: false, restores: None, _relaxed: None });
        }
        let relaxed = self.table().relax();
        // SAFETY: the handle belongs to a context that `self` retains.
        let pushed = unsafe { (self.table().cuCtxPushCurrent_v2)(self.inner.raw) };
        check("cuCtxPushCurrent", pushed)?;
        // In a thread of ours, what is noted is always what is current.
        let restores = (adopts || before.is_some()).then_some(before);
        if restores.is_some() {
            ADOPTED.set(Some(own));
        }
        Ok(Current { context: self, is_pushed: true, restores, _relaxed: Some(relaxed) })
    }

    /// Refuses the handles of another driver library, for which they would be wild pointers. A process can load several
    /// libraries, because [`Driver::open`] takes a path.
    pub(super) fn check_driver(&self, other: &Context, call: &'static str) -> Result<(), CudaError> {
        if self.table().is_same(other.table()) { Ok(()) } else { Err(CudaError::foreign_handle(call)) }
    }

    pub(super) fn table(&self) -> &Table {
        &self.inner.driver.table
    }

    pub(super) fn streams(&self) -> MutexGuard<'_, Vec<Own>> {
        self.inner.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raw(&self) -> Handle {
        self.inner.raw
    }
}

/// A context is current on its thread while this lives.
pub struct Current<'a> {
    context: &'a Context,
    is_pushed: bool,
    /// What this thread had adopted before, if that changed.
    restores: Option<Option<Adopted>>,
    /// Goes last. Must be dropped on the thread that made it.
    _relaxed: Option<Relaxed<'a>>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.restores {
            ADOPTED.set(before);
        }
        if !self.is_pushed {
            return;
        }
        let mut popped = std::ptr::null_mut();
        // SAFETY: this thread pushed the context, and the pointer is to a handle that lives until the call returns. On
        // an error the driver is shutting down, and nothing is left to do.
        let _ = unsafe { (self.context.table().cuCtxPopCurrent_v2)(&raw mut popped) };
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _relaxed = self.driver.table.relax();
        // SAFETY: `new` retained it once. A driver that is shutting down refuses, which does no harm.
        let _ = unsafe { (self.driver.table.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("info", &self.inner.info).finish()
    }
}
