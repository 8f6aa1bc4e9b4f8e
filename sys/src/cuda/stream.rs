//! Streams: queues of work on a device, our own and those that the users of loaded data own.

use super::context::Context;
use super::error::{CAPTURE_IMPLICIT, CudaError, NOT_READY, check};
use super::event::Event;
use super::table::Handle;
use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::sync::Arc;

/// `CU_STREAM_NON_BLOCKING`: it and the legacy default stream do not wait for each other.
const NON_BLOCKING: c_uint = 1;

/// A queue of our own work, which waits only for what it is told to wait for.
pub struct Stream {
    context: Context,
    raw: Handle,
}

// SAFETY: a stream is a handle that any thread may pass to the driver, which is thread-safe. It is destroyed once.
unsafe impl Send for Stream {}
// SAFETY: as for Send.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of the device's highest priority, so that copies do not queue behind a trainer's kernels.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn new(context: &Context) -> Result<Stream, CudaError> {
        Stream::with_priority(context, |_, greatest| greatest)
    }

    /// A stream of the device's lowest priority, such as a trainer's.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn for_compute(context: &Context) -> Result<Stream, CudaError> {
        Stream::with_priority(context, |least, _| least)
    }

    fn with_priority(context: &Context, choose: fn(c_int, c_int) -> c_int) -> Result<Stream, CudaError> {
        let _current = context.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are to ints that live until the call returns, and the context is current.
        let asked = unsafe { (context.table().cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        check("cuCtxGetStreamPriorityRange", asked)?;
        let (mut raw, priority) = (std::ptr::null_mut(), choose(least, greatest));
        // SAFETY: the pointer is to a handle that lives until the call returns, and the context is current.
        let made = unsafe { (context.table().cuStreamCreateWithPriority)(&raw mut raw, NON_BLOCKING, priority) };
        check("cuStreamCreateWithPriority", made)?;
        context.streams().push(Own(raw));
        Ok(Stream { context: context.clone(), raw })
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whether all work in it is done.
    ///
    /// # Errors
    /// Those of the work; whatever the driver reports.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        let _relaxed = self.context.table().relax();
        // SAFETY: the stream lives until `self` is dropped.
        match unsafe { (self.context.table().cuStreamQuery)(self.raw) } {
            NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Waits on the host for all work in it. The thread sleeps. `cuStreamSynchronize` would spin, unless the context
    /// was made to block; but the context is also the trainer's, and not ours to change.
    ///
    /// # Errors
    /// Those of the work; whatever the driver reports.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let done = Event::awaited(&self.context)?;
        done.record(self)?;
        done.wait()
    }

    /// Makes work put into it from now on wait for `event`, on the device.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.check_driver(event.context(), "cuStreamWaitEvent")?;
        event.hold(self.raw)
    }

    /// A reference to the stream, which the caller keeps alive. An `Arc` of the stream needs no such promise: a
    /// [`SharedStream`] keeps the stream alive by itself.
    ///
    /// # Safety
    /// As for [`StreamRef::from_raw`]: the stream outlives the result, its copies, and whatever they are given to.
    pub unsafe fn stream_ref(&self) -> StreamRef {
        StreamRef { raw: self.raw }
    }

    pub(crate) fn raw(&self) -> Handle {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (own, current) = (StreamRef { raw: self.raw }, self.context.enter());
        // No code could wait for the work of a stream that is gone, as `settle` has to.
        if current.is_ok() && own.is_capturing(&self.context) == Ok(false) && self.is_idle() == Ok(false) {
            let _ = self.synchronize();
        }
        self.context.streams().retain(|own| own.0 != self.raw);
        if current.is_ok() {
            // SAFETY: `with_priority` made it, and it is destroyed once.
            let _ = unsafe { (self.context.table().cuStreamDestroy_v2)(self.raw) };
        }
    }
}

/// Waits on the host for all work in the streams that were made in this context: only they take any of ours. One that
/// is being captured is a consumer's, whose work a batch waits for by itself.
///
/// # Errors
/// Those of the work; whatever the driver reports.
pub(super) fn settle(context: &Context) -> Result<(), CudaError> {
    let mut ends = Vec::new();
    {
        // No stream is destroyed while this is held.
        let streams = context.streams();
        for &Own(raw) in streams.iter() {
            let end = Event::awaited(context)?;
            if SharedStream::from(StreamRef { raw }).record_outside(&end, context)? {
                ends.push(end);
            }
        }
    }
    ends.iter().try_for_each(Event::wait)
}

/// A stream that a context remembers for as long as it lives.
pub(super) struct Own(Handle);

// SAFETY: a handle, which any thread may pass to the driver.
unsafe impl Send for Own {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.raw)
    }
}

/// A stream that another library owns, such as a trainer (`CUstream`, which is the same as `cudaStream_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRef {
    raw: Handle,
}

// SAFETY: as for `Stream`; its maker has promised that the stream outlives it.
unsafe impl Send for StreamRef {}
// SAFETY: as for Send.
unsafe impl Sync for StreamRef {}

impl StreamRef {
    /// The legacy default stream (`CU_STREAM_LEGACY`), which PyTorch computes on unless told otherwise.
    pub const LEGACY: StreamRef = StreamRef { raw: std::ptr::without_provenance_mut(1) };

    /// The calling thread's default stream (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: StreamRef = StreamRef { raw: std::ptr::without_provenance_mut(2) };

    /// A trainer's stream: `CudaStream::cu_stream()` in `cudarc`, `torch.cuda.Stream.cuda_stream` in PyTorch. Null is
    /// the legacy default stream.
    ///
    /// # Safety
    /// `raw` is a stream of the CUDA driver that it is used with. It outlives the result, its copies, and whatever they
    /// are given to, such as a batch that waits on the stream or memory that is kept for it. If one of these is dropped
    /// while the stream is being captured, then it outlives the loader too.
    pub unsafe fn from_raw(raw: *mut c_void) -> StreamRef {
        if raw.is_null() { StreamRef::LEGACY } else { StreamRef { raw } }
    }

    /// The handle.
    pub fn as_raw(self) -> *mut c_void {
        self.raw
    }

    /// Whether the stream belongs to `context`: an event of one device can be recorded on its streams only.
    ///
    /// # Errors
    /// Whatever the driver reports, for example about a handle that is not a stream.
    pub fn is_of(self, context: &Context) -> Result<bool, CudaError> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream lives, as the maker of `self` has promised, and the pointer is to a handle that lives
        // until the call returns. For a default stream the driver answers with the current context.
        let asked = unsafe { (context.table().cuStreamGetCtx)(self.raw, &raw mut raw) };
        check("cuStreamGetCtx", asked)?;
        Ok(raw == context.raw())
    }

    /// Whether work put into it now would become part of a graph instead of running, or, for the legacy default stream,
    /// would depend on such work. Always false with a driver that does not know.
    ///
    /// # Errors
    /// Whatever the driver reports, for example about a handle that is not a stream.
    pub fn is_capturing(self, context: &Context) -> Result<bool, CudaError> {
        let Some(ask) = context.table().cuStreamIsCapturing else { return Ok(false) };
        let _current = context.enter()?;
        let mut status = 0;
        // SAFETY: the stream lives, as the maker of `self` has promised, and the pointer is to an int that lives until
        // the call returns.
        match unsafe { ask(self.raw, &raw mut status) } {
            CAPTURE_IMPLICIT => Ok(true),
            // A capture that has failed lasts until its owner ends it.
            code => check("cuStreamIsCapturing", code).map(|()| status != 0),
        }
    }

    /// Makes work put into it from now on wait for `event`, on the device.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn wait(self, event: &Event) -> Result<(), CudaError> {
        event.hold(self.raw)
    }
}

/// A stream to remember: one of ours or one with its owner, which this keeps alive, or one whose owner has promised to.
#[derive(Clone, Debug)]
pub struct SharedStream(Shared);

#[derive(Clone, Debug)]
enum Shared {
    Own(Arc<Stream>),
    Foreign(StreamRef),
    Kept { stream: StreamRef, _owner: Arc<dyn Any + Send + Sync> },
}

impl SharedStream {
    /// Another library's stream, together with its owner there, such as `cudarc`'s `CudaStream`: code that remembers
    /// the stream keeps the owner, so the caller promises nothing about how long it lives. Null is the legacy default
    /// stream.
    ///
    /// # Safety
    /// `raw` is a stream of the CUDA driver that it is used with, for as long as `owner` lives.
    pub unsafe fn kept(raw: *mut c_void, owner: Arc<dyn Any + Send + Sync>) -> SharedStream {
        // SAFETY: the stream lives as long as the owner, as the caller promises, and the owner is kept beside every
        // copy of the reference, which is never handed out.
        let stream = unsafe { StreamRef::from_raw(raw) };
        SharedStream(Shared::Kept { stream, _owner: owner })
    }

    /// Whether the stream belongs to `context`; see [`StreamRef::is_of`].
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn is_of(&self, context: &Context) -> Result<bool, CudaError> {
        match &self.0 {
            Shared::Own(stream) if context.check_driver(stream.context(), "cuStreamGetCtx").is_err() => Ok(false),
            _ => self.reference().is_of(context),
        }
    }

    /// Whether work put into it now would become part of a graph; see [`StreamRef::is_capturing`].
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn is_capturing(&self, context: &Context) -> Result<bool, CudaError> {
        self.reference().is_capturing(context)
    }

    /// Whether it is another stream for each thread that names it.
    pub fn is_per_thread(&self) -> bool {
        self.reference() == StreamRef::PER_THREAD
    }

    /// Makes work put into it from now on wait for `event`, on the device.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        match &self.0 {
            Shared::Own(stream) => stream.wait(event),
            Shared::Foreign(stream) | Shared::Kept { stream, .. } => stream.wait(event),
        }
    }

    /// Records `event` after the work in the stream; see [`Event::record`].
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        match &self.0 {
            Shared::Own(stream) => event.record(stream),
            Shared::Foreign(stream) | Shared::Kept { stream, .. } => event.record_in(*stream),
        }
    }

    /// Records `event` after the work in the stream, unless the stream is being captured. Returns whether it is
    /// recorded: not if a capture has begun meanwhile, even one that has ended again, since the event may have become a
    /// part of it. Once it is recorded, the stream is not needed any more.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record_outside(&self, event: &Event, context: &Context) -> Result<bool, CudaError> {
        if self.is_capturing(context)? {
            return Ok(false);
        }
        self.record(event)?;
        // Errors of the work are for the code that waits for it.
        let is_taken = || event.is_done().is_err_and(|error| error.is_captured_event());
        Ok(!self.is_capturing(context)? && !is_taken())
    }

    /// Never handed out: it must not outlive the stream that `self` keeps.
    fn reference(&self) -> StreamRef {
        match &self.0 {
            Shared::Own(stream) => StreamRef { raw: stream.raw },
            Shared::Foreign(stream) | Shared::Kept { stream, .. } => *stream,
        }
    }
}

/// Whether both name the same stream.
impl PartialEq for SharedStream {
    fn eq(&self, other: &SharedStream) -> bool {
        self.reference() == other.reference()
    }
}

impl From<StreamRef> for SharedStream {
    fn from(stream: StreamRef) -> SharedStream {
        SharedStream(Shared::Foreign(stream))
    }
}

impl From<&Arc<Stream>> for SharedStream {
    fn from(own: &Arc<Stream>) -> SharedStream {
        SharedStream(Shared::Own(Arc::clone(own)))
    }
}
