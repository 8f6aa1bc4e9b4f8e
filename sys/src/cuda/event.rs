//! Events: positions in a stream that others can wait for.

use super::context::Context;
use super::error::{CudaError, NOT_READY, check};
use super::stream::{Stream, StreamRef};
use super::table::Handle;
use std::ffi::c_uint;
use std::fmt;
use std::time::Duration;

/// Whether an event records the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timing {
    /// It does not, which costs less.
    Off,
    /// It does, to about half a microsecond.
    On,
}

/// `CU_EVENT_BLOCKING_SYNC`: a thread that waits for it sleeps.
const BLOCKING_SYNC: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

/// A position in a stream. It counts as done until it is first recorded.
pub struct Event {
    context: Context,
    raw: Handle,
    /// Whether the device signals the processor when it is done, so that a thread can sleep until then. That costs an
    /// interrupt each time.
    is_awaited: bool,
}

// SAFETY: an event is a handle that any thread may pass to the driver, which is thread-safe. It is destroyed once.
unsafe impl Send for Event {}
// SAFETY: as for Send.
unsafe impl Sync for Event {}

impl Event {
    /// An event that is not recorded anywhere, for streams to wait for and for threads to look at.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn new(context: &Context, timing: Timing) -> Result<Event, CudaError> {
        Event::with_flags(context, if timing == Timing::Off { DISABLE_TIMING } else { 0 })
    }

    /// One that a thread is about to wait for.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn awaited(context: &Context) -> Result<Event, CudaError> {
        Event::with_flags(context, BLOCKING_SYNC | DISABLE_TIMING)
    }

    fn with_flags(context: &Context, flags: c_uint) -> Result<Event, CudaError> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a handle that lives until the call returns, and the context is current.
        let made = unsafe { (context.table().cuEventCreate)(&raw mut raw, flags) };
        check("cuEventCreate", made)?;
        Ok(Event { context: context.clone(), raw, is_awaited: flags & BLOCKING_SYNC != 0 })
    }

    /// Records it in `stream`: it is done when everything in the stream up to now is done.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.check_driver(stream.context(), "cuEventRecord")?;
        self.record_raw(stream.raw())
    }

    /// Like `record`, but in a stream that the caller owns.
    ///
    /// # Errors
    /// Whatever the driver reports, for example about a stream of another device.
    pub fn record_in(&self, stream: StreamRef) -> Result<(), CudaError> {
        self.record_raw(stream.as_raw())
    }

    fn record_raw(&self, stream: Handle) -> Result<(), CudaError> {
        let _current = self.context.enter()?;
        // SAFETY: both handles live: the event as `self`, the stream as its owner has promised or as the `&Stream` of
        // `record`.
        check("cuEventRecord", unsafe { (self.context.table().cuEventRecord)(self.raw, stream) })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Makes work put into `stream` from now on wait for it.
    pub(super) fn hold(&self, stream: Handle) -> Result<(), CudaError> {
        let _current = self.context.enter()?;
        // SAFETY: as in `record_raw`; the flags are 0.
        check("cuStreamWaitEvent", unsafe { (self.context.table().cuStreamWaitEvent)(stream, self.raw, 0) })
    }

    /// Whether it is done.
    ///
    /// # Errors
    /// Those of the work before it; whatever the driver reports.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        let _relaxed = self.context.table().relax();
        // SAFETY: the event lives until `self` is dropped.
        match unsafe { (self.context.table().cuEventQuery)(self.raw) } {
            NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits on the host until it is done. The thread sleeps: for an event that is not [`awaited`](Event::awaited) by
    /// one that is, in a stream that is made for it.
    ///
    /// # Errors
    /// Those of the work before it; whatever the driver reports.
    pub fn wait(&self) -> Result<(), CudaError> {
        if !self.is_awaited {
            if self.is_done()? {
                return Ok(());
            }
            let stream = Stream::new(&self.context)?;
            stream.wait(self)?;
            return stream.synchronize();
        }
        let _relaxed = self.context.table().relax();
        // SAFETY: as above.
        check("cuEventSynchronize", unsafe { (self.context.table().cuEventSynchronize)(self.raw) })
    }

    /// Time from `earlier` to this event. Both must record the time and be done.
    ///
    /// # Errors
    /// If they do not or are not.
    pub fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        self.context.check_driver(&earlier.context, "cuEventElapsedTime")?;
        let _relaxed = self.context.table().relax();
        let mut millis = 0f32;
        // SAFETY: both events live, and the pointer is to a float that lives until the call returns.
        let asked = unsafe { (self.context.table().cuEventElapsedTime)(&raw mut millis, earlier.raw, self.raw) };
        check("cuEventElapsedTime", asked)?;
        Ok(Duration::try_from_secs_f64(f64::from(millis) / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: `new` made it, and it is destroyed once. What waits for it still does.
        let _ = unsafe { (self.context.table().cuEventDestroy_v2)(self.raw) };
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.raw)
    }
}
