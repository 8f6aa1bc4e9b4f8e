//! Queues of work on a device: one's own, and those of whoever uses what was loaded.

use super::context::Context;
use super::error::{CudaError, NOT_READY, check};
use super::event::Event;
use super::table::Handle;
use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::sync::Arc;

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the legacy default stream, nor that for it.
const NON_BLOCKING: c_uint = 1;

/// A queue of work of one's own, which waits for nothing that is not asked for.
pub struct Stream {
    context: Context,
    raw: Handle,
}

// SAFETY: a stream is a handle that any thread may pass to the driver, which is thread-safe; it is destroyed once.
unsafe impl Send for Stream {}
// SAFETY: as for Send.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of the device, of its highest priority: copies must not wait behind a trainer's kernels.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context) -> Result<Stream, CudaError> {
        Stream::with_priority(context, |_, greatest| greatest)
    }

    /// A stream of the device, of its lowest priority, as a trainer's is.
    ///
    /// # Errors
    /// What the driver says.
    pub fn for_compute(context: &Context) -> Result<Stream, CudaError> {
        Stream::with_priority(context, |least, _| least)
    }

    fn with_priority(context: &Context, choose: fn(c_int, c_int) -> c_int) -> Result<Stream, CudaError> {
        let _current = context.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are to ints that live until the call returns; the context is current.
        let asked = unsafe { (context.table().cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        check("cuCtxGetStreamPriorityRange", asked)?;
        let (mut raw, priority) = (std::ptr::null_mut(), choose(least, greatest));
        // SAFETY: the pointer is to a handle that lives until the call returns; the context is current.
        let made = unsafe { (context.table().cuStreamCreateWithPriority)(&raw mut raw, NON_BLOCKING, priority) };
        check("cuStreamCreateWithPriority", made)?;
        Ok(Stream { context: context.clone(), raw })
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whether all work in it is done.
    ///
    /// # Errors
    /// That of the work; what the driver says.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        // SAFETY: the stream lives until `self` is dropped.
        match unsafe { (self.context.table().cuStreamQuery)(self.raw) } {
            NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Waits on the host for all work in it.
    ///
    /// # Errors
    /// That of the work; what the driver says.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: as above.
        check("cuStreamSynchronize", unsafe { (self.context.table().cuStreamSynchronize)(self.raw) })
    }

    /// What is put into it from now on waits for `event`, on the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        event.hold(self.raw)
    }

    /// Itself, as what a caller's stream is: only for as long as it lives.
    ///
    /// # Safety
    /// The stream outlives the result and everything that was told of it.
    pub unsafe fn as_ref(&self) -> StreamRef {
        StreamRef { raw: self.raw }
    }

    pub(super) fn raw(&self) -> Handle {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: made by `new` and destroyed once. Work that is in it goes on.
        let _ = unsafe { (self.context.table().cuStreamDestroy_v2)(self.raw) };
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.raw)
    }
}

/// A stream that belongs to somebody else: a trainer's (`CUstream`, which is `cudaStream_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRef {
    raw: Handle,
}

// SAFETY: as for `Stream`; whoever made it has promised that the stream outlives it.
unsafe impl Send for StreamRef {}
// SAFETY: as for Send.
unsafe impl Sync for StreamRef {}

impl StreamRef {
    /// The legacy default stream (`CU_STREAM_LEGACY`): what PyTorch computes on until told otherwise.
    pub const LEGACY: StreamRef = StreamRef { raw: std::ptr::without_provenance_mut(1) };

    /// The calling thread's default stream (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: StreamRef = StreamRef { raw: std::ptr::without_provenance_mut(2) };

    /// A trainer's stream: `cudarc`'s `CudaStream::cu_stream()`, PyTorch's `torch.cuda.Stream.cuda_stream`. Null is the
    /// legacy default stream.
    ///
    /// # Safety
    /// `raw` is a stream, and is not destroyed while a batch lives that was told to be used on it, or memory that was
    /// to be kept for it.
    pub unsafe fn from_raw(raw: *mut c_void) -> StreamRef {
        if raw.is_null() { StreamRef::LEGACY } else { StreamRef { raw } }
    }

    /// The handle.
    pub fn as_raw(self) -> *mut c_void {
        self.raw
    }

    /// Whether the stream is one of `context`, on whose device alone it can wait for what happens there.
    ///
    /// # Errors
    /// What the driver says, such as of a handle that is none.
    pub fn is_of(self, context: &Context) -> Result<bool, CudaError> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream lives, as whoever made `self` has promised; the pointer is to a handle that lives until
        // the call returns. For a default stream it is the current context.
        let asked = unsafe { (context.table().cuStreamGetCtx)(self.raw, &raw mut raw) };
        check("cuStreamGetCtx", asked)?;
        Ok(raw == context.raw())
    }

    /// What is put into it from now on waits for `event`, on the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(self, event: &Event) -> Result<(), CudaError> {
        event.hold(self.raw)
    }
}

/// A stream that is told of something which outlives the telling: one's own, which is kept for as long, or somebody
/// else's, who has promised to keep it.
#[derive(Clone, Debug)]
pub struct SharedStream {
    /// Never handed out: it must not outlive `_own`.
    stream: StreamRef,
    _own: Option<Arc<Stream>>,
}

impl SharedStream {
    /// As [`StreamRef::is_of`].
    ///
    /// # Errors
    /// What the driver says.
    pub fn is_of(&self, context: &Context) -> Result<bool, CudaError> {
        self.stream.is_of(context)
    }

    /// As [`Stream::wait`].
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.stream.wait(event)
    }

    /// As [`Event::record`].
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        event.record_in(self.stream)
    }
}

impl PartialEq for SharedStream {
    fn eq(&self, other: &SharedStream) -> bool {
        self.stream == other.stream
    }
}

impl From<StreamRef> for SharedStream {
    fn from(stream: StreamRef) -> SharedStream {
        SharedStream { stream, _own: None }
    }
}

impl From<&Arc<Stream>> for SharedStream {
    fn from(own: &Arc<Stream>) -> SharedStream {
        SharedStream { stream: StreamRef { raw: own.raw }, _own: Some(Arc::clone(own)) }
    }
}
