//! Copies to the device. Each owns the bytes that it reads until it is done.

use super::context::Context;
use super::error::{CudaError, check};
use super::event::{Event, Timing};
use super::pinned::Pinned;
use super::span::Span;
use super::stream::Stream;
use super::table::CopyAttributes;
use crate::arena::{Arena, Part};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How the host learns that a copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The device writes the copy's number to pinned memory (`cuStreamWriteValue32`). Checking it calls no driver
    /// function.
    Flag,
    /// The driver is queried for an event.
    Events,
}

/// Copies in one stream, in the order in which they were started.
pub struct Copies {
    stream: Stream,
    notifier: Notifier,
    started: u32,
    under_way: VecDeque<UnderWay>,
    /// Whether the driver has not refused to copy several pieces by one call yet.
    takes_lists: bool,
    spare: Vec<Event>,
}

enum Notifier {
    Flag { word: Part, address: u64, _pinned: Pinned },
    Events,
}

struct UnderWay {
    number: u32,
    bytes: Vec<Bytes>,
    /// Recorded after the copy; `None` if that failed.
    event: Option<Arc<Event>>,
}

/// Bytes on their way to a place on the device.
///
/// Only [`Copies::start`] makes one, so its bytes are those that are copied to its place. A kernel's launch takes one
/// as its table, checks the bytes, and has its stream wait for the copy: no other code has to.
///
/// ```
/// use uringload_sys::cuda::{CudaError, Kernels, Span, Stream, Uploaded};
///
/// fn launch(kernels: &Kernels, stream: &Stream, table: &Uploaded, from: &Span, to: &Span) -> Result<(), CudaError> {
///     kernels.gather(stream, (table, 0..table.bytes().len()), from, to)
/// }
/// ```
///
/// Safe code cannot pair bytes with a place that holds something else:
///
/// ```compile_fail,E0451
/// use uringload_sys::cuda::{Span, Uploaded};
///
/// fn forge(bytes: bytes::Bytes, to: Span) -> Uploaded {
///     Uploaded { bytes, to, copied: None }
/// }
/// ```
///
/// ```compile_fail,E0616
/// use uringload_sys::cuda::{Span, Uploaded};
///
/// fn redirect(mut table: Uploaded, to: Span) -> Uploaded {
///     table.to = to;
///     table
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Uploaded {
    bytes: Bytes,
    to: Span,
    /// Recorded after the copy; `None` if there was nothing to copy.
    copied: Option<Arc<Event>>,
}

impl Uploaded {
    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The place they are copied to, which may be longer.
    pub fn span(&self) -> &Span {
        &self.to
    }

    /// Makes work put into `stream` from now on wait for the copy.
    pub(super) fn hold(&self, stream: &Stream) -> Result<(), CudaError> {
        self.copied.as_ref().map_or(Ok(()), |copied| stream.wait(copied))
    }
}

impl Copies {
    /// Opens an empty stream on the device. If the driver cannot write to host memory from a stream, events show which
    /// copies are done.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn new(context: &Context) -> Result<Copies, CudaError> {
        Copies::with_notifier(context, flag(context).unwrap_or(Notifier::Events))
    }

    /// Like `new`, but always with events, so that the two can be compared.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn with_events(context: &Context) -> Result<Copies, CudaError> {
        Copies::with_notifier(context, Notifier::Events)
    }

    fn with_notifier(context: &Context, notifier: Notifier) -> Result<Copies, CudaError> {
        let stream = Stream::new(context)?;
        let notifier = tried(notifier, &stream)?;
        Ok(Copies { stream, notifier, started: 0, under_way: VecDeque::new(), takes_lists: true, spare: Vec::new() })
    }

    /// The stream that the copies are in.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// How the host learns that a copy is done.
    pub fn notice(&self) -> Notice {
        match self.notifier {
            Notifier::Flag { .. } => Notice::Flag,
            Notifier::Events => Notice::Events,
        }
    }

    /// Whether one call copies several pieces; true until the driver refuses.
    pub fn takes_lists(&self) -> bool {
        let table = self.stream.context().table();
        self.takes_lists && (table.cuMemcpyBatchAsync_v2.is_some() || table.cuMemcpyBatchAsync.is_some())
    }

    /// Number of copies not known to be done.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Starts to copy `bytes` to the first bytes of `to`, after everything started before.
    ///
    /// # Errors
    /// Invalid value if `to` is shorter; whatever the driver reports.
    pub fn start(&mut self, bytes: Bytes, to: &Span) -> Result<Uploaded, CudaError> {
        if bytes.len() > to.len() {
            return Err(CudaError::invalid("cuMemcpyHtoDAsync"));
        }
        if bytes.is_empty() {
            return Ok(Uploaded { bytes, to: to.clone(), copied: None });
        }
        let context = self.stream.context().clone();
        let _current = context.enter()?;
        let source = bytes.as_ptr().cast();
        // Kept before the device reads it: whatever fails below, the bytes outlive the copy.
        let number = self.started.wrapping_add(1);
        let len = bytes.len();
        self.under_way.push_back(UnderWay { number, bytes: vec![bytes.clone()], event: None });
        // SAFETY: the target is inside device memory: `Span` guarantees that, and the length was compared above. The
        // source is `len` bytes that nothing writes while a `Bytes` of them exists. `under_way` keeps one until the
        // copy is known to be done, and `drop` waits for that or leaks it.
        let copied = unsafe { (context.table().cuMemcpyHtoDAsync_v2)(to.address(), source, len, self.stream.raw()) };
        if let Err(error) = check("cuMemcpyHtoDAsync", copied) {
            // It was not started: the driver took nothing.
            self.under_way.pop_back();
            return Err(error);
        }
        self.started = number;
        let copied = self.mark(number, &context, true)?;
        Ok(Uploaded { bytes, to: to.clone(), copied })
    }

    /// Starts to copy each of the pieces to its place in `to`, an offset, after everything started before. That is one
    /// call where the driver has one for it (CUDA 12.8), and one call for each piece elsewhere. Places do not overlap.
    ///
    /// # Errors
    /// Invalid value if a piece is not inside `to`; whatever the driver reports.
    pub fn scatter(&mut self, to: &Span, pieces: Vec<(Bytes, usize)>) -> Result<(), CudaError> {
        let place = |(bytes, at): (Bytes, usize)| {
            let end = at.checked_add(bytes.len())?;
            to.slice(at..end).map(|span| (bytes, span))
        };
        let placed: Option<Vec<(Bytes, Span)>> = pieces.into_iter().map(place).collect();
        let Some(mut pieces) = placed else { return Err(CudaError::invalid("cuMemcpyBatchAsync")) };
        pieces.retain(|(bytes, _)| !bytes.is_empty());
        if pieces.is_empty() {
            return Ok(());
        }
        let context = self.stream.context().clone();
        let _current = context.enter()?;
        // Kept before the device reads it. Some pieces may be on their way when another one is refused: they are kept
        // until a later copy, or the end of the stream, shows that they have arrived.
        self.started = self.started.wrapping_add(1);
        let bytes = pieces.iter().map(|(bytes, _)| bytes.clone()).collect();
        self.under_way.push_back(UnderWay { number: self.started, bytes, event: None });
        if !(self.takes_lists() && pieces.len() > 1 && self.copy_list(&context, &pieces)) {
            for (bytes, to) in &pieces {
                let source = bytes.as_ptr().cast();
                // SAFETY: as in `start`.
                let copied = unsafe {
                    (context.table().cuMemcpyHtoDAsync_v2)(to.address(), source, bytes.len(), self.stream.raw())
                };
                check("cuMemcpyHtoDAsync", copied)?;
            }
        }
        self.mark(self.started, &context, matches!(self.notifier, Notifier::Events)).map(drop)
    }

    /// Copies pieces by one call, if the driver has it and takes them. If it takes only some of them, they may be
    /// copied again: to the same places.
    fn copy_list(&mut self, context: &Context, pieces: &[(Bytes, Span)]) -> bool {
        // `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`: sources are read when the stream comes to them.
        const STREAM_ORDER: std::ffi::c_int = 1;
        // `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`: by the copy engines, and not by the trainer's multiprocessors.
        const OVERLAP: std::ffi::c_uint = 1;
        let mut targets: Vec<u64> = pieces.iter().map(|(_, to)| to.address()).collect();
        let mut sources: Vec<u64> = pieces.iter().map(|(bytes, _)| bytes.as_ptr().addr() as u64).collect();
        let mut lengths: Vec<usize> = pieces.iter().map(|(bytes, _)| bytes.len()).collect();
        let mut attributes = CopyAttributes { order: STREAM_ORDER, flags: OVERLAP, ..CopyAttributes::default() };
        // The attributes are those of the copies from number 0 on.
        let (mut first, mut failed, count, stream) = (0, 0, pieces.len(), self.stream.raw());
        let (targets, sources, lengths) = (targets.as_mut_ptr(), sources.as_mut_ptr(), lengths.as_mut_ptr());
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        let table = context.table();
        let code = match (table.cuMemcpyBatchAsync_v2, table.cuMemcpyBatchAsync) {
            // SAFETY: the three lists have `count` entries, and they, the attributes and their number live until the
            // call returns. Each source and target is as in `start`: the source is host memory at an address that is
            // the same for the driver (unified addressing, which every 64-bit Linux has), and `under_way` keeps it
            // until the copies are done.
            (Some(copy), _) => unsafe { copy(targets, sources, lengths, count, attributes, first, 1, stream) },
            // SAFETY: as above, and the place for the number of a failed copy lives until the call returns.
            (None, Some(copy)) => unsafe {
                copy(targets, sources, lengths, count, attributes, first, 1, &raw mut failed, stream)
            },
            (None, None) => return false,
        };
        // Refused as a kind of call, for example for memory that could not be pinned. Whatever else is wrong, the
        // single copies will say.
        self.takes_lists = code == 0;
        code == 0
    }

    /// Copies one span of device memory to another of the same length, after everything started before.
    ///
    /// # Errors
    /// Invalid value if the lengths differ; whatever the driver reports.
    pub fn within(&mut self, from: &Span, to: &Span) -> Result<(), CudaError> {
        if from.len() != to.len() {
            return Err(CudaError::invalid("cuMemcpyDtoDAsync"));
        }
        let context = self.stream.context();
        let _current = context.enter()?;
        // SAFETY: both are inside device memory, which is what a `Span` is, and have the same length.
        let copied = unsafe {
            (context.table().cuMemcpyDtoDAsync_v2)(to.address(), from.address(), to.len(), self.stream.raw())
        };
        check("cuMemcpyDtoDAsync", copied)
    }

    /// Marks the last started copy, for the host and, with an event, for streams that wait for it.
    fn mark(&mut self, number: u32, context: &Context, with_event: bool) -> Result<Option<Arc<Event>>, CudaError> {
        if let (Notifier::Flag { address, .. }, Some(write)) = (&self.notifier, context.table().cuStreamWriteValue32_v2)
        {
            // SAFETY: the address points to a word in pinned memory, which `self.notifier` keeps until the stream is
            // drained. Only this stream writes it, and the host reads it as an atomic.
            check("cuStreamWriteValue32", unsafe { write(self.stream.raw(), *address, number, 0) })?;
        }
        if !with_event {
            return Ok(None);
        }
        let event = self.spare.pop().map_or_else(|| Event::new(context, Timing::Off), Ok)?;
        event.record(&self.stream)?;
        let event = Arc::new(event);
        if let Some(last) = self.under_way.back_mut() {
            last.event = Some(Arc::clone(&event));
        }
        Ok(Some(event))
    }

    /// Releases the bytes of finished copies, and returns how many bytes they copied. Never waits.
    ///
    /// # Errors
    /// Those of a copy; whatever the driver reports.
    pub fn finished(&mut self) -> Result<u64, CudaError> {
        let mut bytes = 0;
        while let Some(first) = self.under_way.front() {
            let done = match (&self.notifier, &first.event) {
                (Notifier::Flag { word, .. }, _) => reached(word, first.number),
                (Notifier::Events, Some(event)) => event.is_done()?,
                // Started, but marking it failed: only an idle stream shows that it is done.
                (Notifier::Events, None) => self.stream.is_idle()?,
            };
            if !done {
                break;
            }
            if let Some(UnderWay { bytes: copied, event, .. }) = self.under_way.pop_front() {
                bytes += copied.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
                // An event that an `Uploaded` may still wait for is not reused.
                self.spare.extend(event.and_then(Arc::into_inner));
            }
        }
        Ok(bytes)
    }
}

/// Whether the device has written `number` to the word, or a later one. Numbers wrap; there are never 2^31 copies in
/// progress.
fn reached(word: &Part, number: u32) -> bool {
    let address = word.as_ptr().cast::<u32>();
    // SAFETY: the word is 4 bytes of pinned memory at a multiple of 2 MiB, which `word` owns and keeps mapped. Both who
    // access it, this function and the device, access it as a whole word.
    let value = unsafe { AtomicU32::from_ptr(address) }.load(Ordering::Acquire);
    value.wrapping_sub(number) < 1 << 31
}

/// The notifier, if the device can do what it needs; else events. A driver may have `cuStreamWriteValue32` and answer
/// that it is not supported, as under virtualisation.
fn tried(notifier: Notifier, stream: &Stream) -> Result<Notifier, CudaError> {
    let context = stream.context();
    let (Notifier::Flag { address, .. }, Some(write)) = (&notifier, context.table().cuStreamWriteValue32_v2) else {
        return Ok(notifier);
    };
    // Made before anything is in the stream, so that nothing must be kept for the device if it cannot be.
    let done = Event::awaited(context)?;
    let current = context.enter()?;
    // SAFETY: the address points to a word in pinned memory, which `notifier` keeps; the stream is drained below. The
    // value is the one that the word has.
    let written = check("cuStreamWriteValue32", unsafe { write(stream.raw(), *address, 0, 0) });
    drop(current);
    match written {
        Ok(()) => {}
        Err(error) if error.is_unsupported() => return Ok(Notifier::Events),
        Err(error) => return Err(error),
    }
    if let Err(error) = done.record(stream).and_then(|()| done.wait()) {
        // The device may still write it.
        std::mem::forget(notifier);
        return Err(error);
    }
    Ok(notifier)
}

/// A word of pinned memory that the device can write to from a stream; `None` if it cannot.
fn flag(context: &Context) -> Option<Notifier> {
    context.table().cuStreamWriteValue32_v2?;
    let (arena, word) = Arena::reserve(4).ok()?;
    let pinned = Pinned::new(context, &arena).ok()?;
    let address = pinned.device_address().ok()?;
    Some(Notifier::Flag { word, address, _pinned: pinned })
}

impl Drop for Copies {
    fn drop(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        // If the context was destroyed, the driver has ended all work in it.
        if self.stream.synchronize().is_err_and(|error| !error.is_destroyed_context()) {
            // The device may still be working: memory that it may read or write is never given back.
            self.under_way.drain(..).for_each(|copy| std::mem::forget(copy.bytes));
            std::mem::forget(std::mem::replace(&mut self.notifier, Notifier::Events));
        }
    }
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("under_way", &self.under_way.len()).field("notice", &self.notice()).finish()
    }
}
