//! Places in a stream that others wait for.

use super::context::Context;
use super::error::{CudaError, NOT_READY, check};
use super::stream::{Stream, StreamRef};
use super::table::Handle;
use std::ffi::c_uint;
use std::fmt;
use std::time::Duration;

/// Whether an event knows when it came to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// It does not, and costs less.
    Off,
    /// It does, to about half a microsecond.
    On,
}

/// `CU_EVENT_BLOCKING_SYNC`: who waits on the host sleeps.
const BLOCKING_SYNC: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

/// A place in a stream. Until it was recorded it has come to pass.
pub struct Event {
    context: Context,
    raw: Handle,
}

// SAFETY: an event is a handle that any thread may pass to the driver, which is thread-safe; it is destroyed once.
unsafe impl Send for Event {}
// SAFETY: as for Send.
unsafe impl Sync for Event {}

impl Event {
    /// An event that was not recorded.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context, timing: Timing) -> Result<Event, CudaError> {
        let _current = context.enter()?;
        let flags = match timing {
            Timing::Off => BLOCKING_SYNC | DISABLE_TIMING,
            Timing::On => BLOCKING_SYNC,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a handle that lives until the call returns; the context is current.
        let made = unsafe { (context.table().cuEventCreate)(&raw mut raw, flags) };
        check("cuEventCreate", made)?;
        Ok(Event { context: context.clone(), raw })
    }

    /// It comes to pass when all that is in `stream` is done.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.record_raw(stream.raw())
    }

    /// As `record`, in a caller's stream.
    ///
    /// # Errors
    /// What the driver says, such as of a stream of another device.
    pub fn record_in(&self, stream: StreamRef) -> Result<(), CudaError> {
        self.record_raw(stream.as_raw())
    }

    fn record_raw(&self, stream: Handle) -> Result<(), CudaError> {
        let _current = self.context.enter()?;
        // SAFETY: both handles live: the event as `self`, the stream as its owner has promised.
        check("cuEventRecord", unsafe { (self.context.table().cuEventRecord)(self.raw, stream) })
    }

    /// Makes what is put into `stream` from now on wait.
    pub(super) fn hold(&self, stream: Handle) -> Result<(), CudaError> {
        let _current = self.context.enter()?;
        // SAFETY: as in `record_raw`; flags are 0.
        check("cuStreamWaitEvent", unsafe { (self.context.table().cuStreamWaitEvent)(stream, self.raw, 0) })
    }

    /// Whether it came to pass.
    ///
    /// # Errors
    /// That of the work before it; what the driver says.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: the event lives until `self` is dropped.
        match unsafe { (self.context.table().cuEventQuery)(self.raw) } {
            NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits on the host until it comes to pass.
    ///
    /// # Errors
    /// That of the work before it; what the driver says.
    pub fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: as above.
        check("cuEventSynchronize", unsafe { (self.context.table().cuEventSynchronize)(self.raw) })
    }

    /// Time from `earlier` to this event. Both have timing and came to pass.
    ///
    /// # Errors
    /// Where they have not.
    pub fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        let mut millis = 0f32;
        // SAFETY: both events live; the pointer is to a float that lives until the call returns.
        let asked = unsafe { (self.context.table().cuEventElapsedTime)(&raw mut millis, earlier.raw, self.raw) };
        check("cuEventElapsedTime", asked)?;
        Ok(Duration::try_from_secs_f64(f64::from(millis) / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: made by `new` and destroyed once; what waits for it goes on to.
        let _ = unsafe { (self.context.table().cuEventDestroy_v2)(self.raw) };
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.raw)
    }
}
