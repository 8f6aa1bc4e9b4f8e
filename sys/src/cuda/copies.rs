//! Copies to the device that are under way. Each owns the bytes that it reads until it is done.

use super::context::Context;
use super::error::{CudaError, check};
use super::event::{Event, Timing};
use super::kernels::Span;
use super::pinned::Pinned;
use super::stream::Stream;
use crate::arena::{Arena, Part};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// How the host learns that a copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The device writes the copy's number to pinned memory (`cuStreamWriteValue32`): no call of the driver.
    Flag,
    /// An event is asked for.
    Events,
}

/// Copies in one stream, in the order in which they were started.
pub struct Copies {
    stream: Stream,
    told: Told,
    started: u32,
    under_way: VecDeque<UnderWay>,
    spare: Vec<Event>,
}

enum Told {
    Flag { word: Part, address: u64, _pinned: Pinned },
    Events,
}

struct UnderWay {
    number: u32,
    bytes: Bytes,
    event: Option<Event>,
}

/// Bytes that were put on their way to a place of the device: they are there for whatever is behind them in the
/// stream.
#[derive(Clone, Debug)]
pub struct Uploaded {
    /// The bytes.
    pub bytes: Bytes,
    /// Where they come to lie.
    pub to: Span,
}

impl Copies {
    /// A stream of the device with nothing in it. Where the driver cannot write to host memory in a stream, events
    /// serve.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context) -> Result<Copies, CudaError> {
        Copies::told_by(context, flag(context).unwrap_or(Told::Events))
    }

    /// As `new`, and events serve even where the driver can write to host memory: to compare the two.
    ///
    /// # Errors
    /// What the driver says.
    pub fn with_events(context: &Context) -> Result<Copies, CudaError> {
        Copies::told_by(context, Told::Events)
    }

    fn told_by(context: &Context, told: Told) -> Result<Copies, CudaError> {
        let stream = Stream::new(context)?;
        Ok(Copies { stream, told, started: 0, under_way: VecDeque::new(), spare: Vec::new() })
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// How the host learns that a copy is done.
    pub fn notice(&self) -> Notice {
        match self.told {
            Told::Flag { .. } => Notice::Flag,
            Told::Events => Notice::Events,
        }
    }

    /// Copies that are not known to be done.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Starts to copy `bytes` to the first bytes of `to`, behind all that was started before.
    ///
    /// # Errors
    /// Invalid value where `to` is shorter; what the driver says.
    pub fn start(&mut self, bytes: Bytes, to: &Span) -> Result<Uploaded, CudaError> {
        if bytes.len() > to.len() {
            return Err(CudaError::invalid("cuMemcpyHtoDAsync"));
        }
        let uploaded = Uploaded { bytes: bytes.clone(), to: to.clone() };
        if bytes.is_empty() {
            return Ok(uploaded);
        }
        let context = self.stream.context().clone();
        let _current = context.enter()?;
        let source = bytes.as_ptr().cast();
        // Held before it is read: whatever fails below, the bytes outlive the copy.
        let number = self.started.wrapping_add(1);
        let len = bytes.len();
        self.under_way.push_back(UnderWay { number, bytes, event: None });
        // SAFETY: the target lies inside memory of the device (`Span` sees to it, and the length was compared above).
        // The source is `len` bytes that nobody writes while a `Bytes` of them is held, and `under_way` holds one until
        // the copy is known to be done; `drop` waits for it, or leaks it.
        let copied = unsafe { (context.table().cuMemcpyHtoDAsync_v2)(to.address(), source, len, self.stream.raw()) };
        if let Err(error) = check("cuMemcpyHtoDAsync", copied) {
            // Not started: the driver took nothing.
            self.under_way.pop_back();
            return Err(error);
        }
        self.started = number;
        self.mark(number, &context)?;
        Ok(uploaded)
    }

    /// Copies a span of the device's memory to another as long, behind all that was started before.
    ///
    /// # Errors
    /// Invalid value where their lengths differ; what the driver says.
    pub fn within(&mut self, from: &Span, to: &Span) -> Result<(), CudaError> {
        if from.len() != to.len() {
            return Err(CudaError::invalid("cuMemcpyDtoDAsync"));
        }
        let context = self.stream.context();
        let _current = context.enter()?;
        // SAFETY: both lie inside memory of the device (`Span` sees to it) and are of one length.
        let copied = unsafe {
            (context.table().cuMemcpyDtoDAsync_v2)(to.address(), from.address(), to.len(), self.stream.raw())
        };
        check("cuMemcpyDtoDAsync", copied)
    }

    /// Sees to it that the host learns of the copy that was started last.
    fn mark(&mut self, number: u32, context: &Context) -> Result<(), CudaError> {
        if let (Told::Flag { address, .. }, Some(write)) = (&self.told, context.table().cuStreamWriteValue32_v2) {
            // SAFETY: the address is that of a word of pinned memory, which `self.told` keeps until the stream is
            // drained; only this stream writes it, and the host reads it as an atomic.
            return check("cuStreamWriteValue32", unsafe { write(self.stream.raw(), *address, number, 0) });
        }
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(context, Timing::Off)?,
        };
        event.record(&self.stream)?;
        if let Some(last) = self.under_way.back_mut() {
            last.event = Some(event);
        }
        Ok(())
    }

    /// Lets go of the bytes of copies that are done; returns how many bytes were copied by them. Never waits.
    ///
    /// # Errors
    /// That of a copy; what the driver says.
    pub fn finished(&mut self) -> Result<u64, CudaError> {
        let mut bytes = 0;
        while let Some(first) = self.under_way.front() {
            let done = match (&self.told, &first.event) {
                (_, Some(event)) => event.is_done()?,
                (Told::Flag { word, .. }, None) => reached(word, first.number),
                // It was started, and marking it failed: only a drained stream tells that it is done.
                (Told::Events, None) => self.stream.is_idle()?,
            };
            if !done {
                break;
            }
            if let Some(UnderWay { bytes: copied, event, .. }) = self.under_way.pop_front() {
                bytes += copied.len() as u64;
                self.spare.extend(event);
            }
        }
        Ok(bytes)
    }
}

/// Whether the device has written `number`, or one behind it, to the word. Numbers wrap, and no 2^31 are under way.
fn reached(word: &Part, number: u32) -> bool {
    let address = word.as_ptr().cast::<u32>();
    // SAFETY: the word is 4 bytes of pinned memory at a multiple of 2 MiB, which `word` owns and keeps mapped; all who
    // access it, this and the device, do so as a whole word.
    let value = unsafe { AtomicU32::from_ptr(address) }.load(Ordering::Acquire);
    value.wrapping_sub(number) < 1 << 31
}

/// A word of pinned memory that the device can write to in a stream; `None` where it cannot.
fn flag(context: &Context) -> Option<Told> {
    context.table().cuStreamWriteValue32_v2?;
    let (arena, word) = Arena::reserve(4).ok()?;
    let pinned = Pinned::new(context, &arena).ok()?;
    let address = pinned.device_address().ok()?;
    Some(Told::Flag { word, address, _pinned: pinned })
}

impl Drop for Copies {
    fn drop(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        // Where somebody destroyed the context, the driver has ended all work in it.
        if self.stream.synchronize().is_err_and(|error| !error.is_destroyed_context()) {
            // Whether the device is still at work is not known: what it may read or write is never given back.
            self.under_way.drain(..).for_each(|copy| std::mem::forget(copy.bytes));
            std::mem::forget(std::mem::replace(&mut self.told, Told::Events));
        }
    }
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("under_way", &self.under_way.len()).field("notice", &self.notice()).finish()
    }
}
