//! Host memory that a device's copy engine reads, kept alive for copies that other code has queued.

use super::device_error;
use crate::config::{Cause, Device, DeviceKind, Fallback};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use uringload_sys::cuda::{Context, Event, Pinned, SharedStream};
use uringload_sys::numa::Near;

/// How often to check whether the capture of a stream has ended.
const CAPTURE_WAIT: Duration = Duration::from_millis(1);

/// The pinned memory of a loader whose batches stay on the host. See [`Builder::pin`](crate::loader::Builder::pin).
///
/// A copy that is queued in a stream reads the memory when its turn comes. If the batch was dropped by then, the memory
/// may belong to another batch: [`keep`](PinnedMemory::keep) prevents this.
#[derive(Clone, Debug)]
pub struct PinnedMemory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pinned: Arc<Pinned>,
    context: Context,
    /// To the thread that waits for streams, which ends once all senders are gone.
    settle: mpsc::Sender<Settling>,
    /// Events that the thread has waited for.
    spare: Arc<SegQueue<Event>>,
    /// A forked child has copies of all this but no thread, and CUDA does not work there.
    process: u32,
}

/// Memory to release once its event has completed.
#[derive(Debug)]
struct Settling {
    after: Event,
    /// The stream and its context, if it is being captured: the event is not recorded yet.
    captured: Option<(SharedStream, Context)>,
    _blocks: Vec<Bytes>,
    /// Declared after the blocks: stays registered as long as a copy may read them.
    _pinned: Arc<Pinned>,
}

/// Memory in use on a stream.
#[derive(Debug)]
struct InUse {
    blocks: Vec<Bytes>,
    stream: SharedStream,
    /// Created in advance because a drop must not fail. `None` once it has been sent.
    after: Option<Event>,
    memory: PinnedMemory,
}

/// One of the blocks. Holding it keeps all of them.
struct Block {
    bytes: Bytes,
    _kept: Arc<InUse>,
}

impl PinnedMemory {
    pub(crate) fn new(context: Context, pinned: Arc<Pinned>) -> Result<PinnedMemory> {
        let (settle, settling) = mpsc::channel::<Settling>();
        let spare = Arc::new(SegQueue::new());
        let over = Arc::clone(&spare);
        let wait = move || settle_all(&settling, &over);
        std::thread::Builder::new()
            .name("uringload-pinned".into())
            .spawn(wait)
            .map_err(|source| Error::io("cannot start the thread that waits for copies", source))?;
        let process = std::process::id();
        Ok(PinnedMemory { inner: Arc::new(Inner { pinned, context, settle, spare, process }) })
    }

    /// The same bytes, whose memory is reused only after the work that `stream` has when the last of them, or of their
    /// clones, is dropped. For values of one batch, which return together.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream of another device; `Device` for errors of the driver.
    pub fn keep(&self, blocks: Vec<Bytes>, stream: impl Into<SharedStream>) -> Result<Vec<Bytes>> {
        let failed = |error| device_error("cannot keep memory for a stream", error);
        let (stream, context) = (stream.into(), &self.inner.context);
        if !stream.is_of(context).map_err(failed)? {
            let index = context.info().index;
            let what = format!("memory that is pinned for cuda:{index} cannot be kept for a stream of another device");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("give a stream of that device"));
        }
        let after = self.inner.spare.pop().map_or_else(|| Event::awaited(context), Ok).map_err(failed)?;
        let after = Some(after);
        let kept = Arc::new(InUse { blocks, stream, after, memory: self.clone() });
        let keep = |bytes: &Bytes| {
            let block = Block { bytes: bytes.clone(), _kept: Arc::clone(&kept) };
            // An empty value owns no memory, and its address may be anything.
            if bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(block) }
        };
        Ok(kept.blocks.iter().map(keep).collect())
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        let Some(after) = self.after.take() else { return };
        let Inner { pinned, settle, process, context, .. } = &*self.memory.inner;
        if *process != std::process::id() {
            std::mem::forget((blocks, after, self.memory.clone()));
            return;
        }
        let captured = match self.stream.record_outside(&after, context) {
            Ok(true) => None,
            Ok(false) if self.stream.is_per_thread() => {
                // Only this thread can name the stream once its capture has ended.
                std::mem::forget((blocks, Arc::clone(pinned)));
                return;
            }
            Ok(false) => Some((self.stream.clone(), context.clone())),
            // A destroyed context has no work left that could read the memory.
            Err(_) => return,
        };
        // Fails only if the thread has panicked; the blocks are then dropped here.
        let _ = settle.send(Settling { after, captured, _blocks: blocks, _pinned: Arc::clone(pinned) });
    }
}

/// Releases memory when the streams that use it, and their events, are done, until all senders are gone.
fn settle_all(settling: &mpsc::Receiver<Settling>, spare: &SegQueue<Event>) {
    let mut captured = Vec::new();
    loop {
        let wait = if captured.is_empty() { Duration::MAX } else { CAPTURE_WAIT };
        match settling.recv_timeout(wait) {
            Ok(next) if next.captured.is_some() => captured.push(next),
            // In drop order: an event that completes early in another stream waits for those before it. Any error is an
            // error of the work in the stream, which has ended with it.
            Ok(Settling { after, .. }) => {
                let _ = after.wait();
                spare.push(after);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if captured.is_empty() => return,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(CAPTURE_WAIT),
        }
        captured.retain(|waits: &Settling| {
            let Some((stream, context)) = &waits.captured else { return false };
            match stream.record_outside(&waits.after, context) {
                Ok(true) => {
                    let _ = waits.after.wait();
                    false
                }
                Ok(false) => true,
                Err(_) => false,
            }
        });
    }
}

/// Opens the device whose copy engine must reach the memory. If any device would do and there is none, returns `None`
/// and reports it. Also returns where the memory belongs.
///
/// # Errors
/// `Unavailable` if a device requested by number is not available; `InvalidArgument` for the host.
pub(crate) fn open_to_pin(device: &Device, fallbacks: &mut Vec<Fallback>) -> Result<Option<(Context, Option<Near>)>> {
    if device.kind() == DeviceKind::Host {
        let what = "memory cannot be pinned for the host";
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("name a GPU, or auto"));
    }
    let mut opened = super::open(std::slice::from_ref(device))?;
    let step = |step: Fallback| {
        let unpinned = Fallback::new(Cause::Pinning, "memory that is not pinned", None);
        unpinned.with_reason(step.reason).with_remedy(step.remedy)
    };
    fallbacks.extend(opened.fallbacks.drain(..).map(step));
    let near = opened.near.take();
    Ok(opened.contexts.pop().map(|context| (context, near)))
}
