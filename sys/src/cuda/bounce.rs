//! Pinned memory through which one thread copies to a device and back, again and again.

use super::context::Context;
use super::error::{CudaError, check};
use super::pinned::Pinned;
use super::span::Span;
use super::stream::Stream;
use crate::arena::{Arena, Part};
use std::fmt;
use std::io;

/// Host memory, and the stream that copies it.
pub struct Bounce {
    stream: Stream,
    /// `None` once a copy has failed: the device may still be reading it, so it is never used again.
    memory: Option<Part>,
    /// Keeps the memory mapped by itself, for as long as the driver knows it.
    pinned: Option<Pinned>,
}

impl Bounce {
    /// Takes at least `len` bytes. If they cannot be pinned, the driver first copies them to memory of its own.
    ///
    /// # Errors
    /// `OutOfMemory`; whatever the driver reports.
    pub fn new(context: &Context, len: usize) -> io::Result<Bounce> {
        let (arena, memory) = Arena::reserve(len)?;
        arena.populate(0..arena.len())?;
        let stream = Stream::new(context).map_err(io::Error::other)?;
        Ok(Bounce { stream, memory: Some(memory), pinned: Pinned::new(context, &arena).ok() })
    }

    /// The memory, which starts at a multiple of 2 MiB; empty once a copy has failed.
    pub fn memory(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| memory.as_mut())
    }

    /// Copies the first bytes of the memory to `to`, as many as it has, and waits until they are there.
    ///
    /// # Errors
    /// Invalid value if `to` is longer or a copy has failed before; whatever the driver reports.
    pub fn copy(&mut self, to: &Span) -> Result<(), CudaError> {
        let Some(memory) = self.memory.as_ref().filter(|memory| to.len() <= memory.len()) else {
            return Err(CudaError::invalid("cuMemcpyHtoDAsync"));
        };
        if to.is_empty() {
            return Ok(());
        }
        let context = self.stream.context().clone();
        let _current = context.enter()?;
        let source = memory.as_ptr().cast_const().cast();
        // SAFETY: the target is inside device memory, which is what a `Span` is. The source is as many bytes of
        // `memory`, as checked above. Only `&mut self` gives `memory` out, so no other code has it before `settle` has
        // shown that the copy is done, or has given the memory up.
        let copied =
            unsafe { (context.table().cuMemcpyHtoDAsync_v2)(to.address(), source, to.len(), self.stream.raw()) };
        check("cuMemcpyHtoDAsync", copied)?;
        self.settle()
    }

    /// Copies `from` to the memory, to as many bytes from `at` on, and waits until they are there. It is not ordered
    /// after any stream: first wait for whatever writes `from`.
    ///
    /// # Errors
    /// Invalid value if they are not inside the memory or a copy has failed before; whatever the driver reports.
    pub fn fetch(&mut self, from: &Span, at: usize) -> Result<(), CudaError> {
        let place = at..at.saturating_add(from.len());
        let Some(target) = self.memory.as_mut().and_then(|memory| memory.as_mut().get_mut(place)) else {
            return Err(CudaError::invalid("cuMemcpyDtoHAsync"));
        };
        if target.is_empty() {
            return Ok(());
        }
        let (target, context) = (target.as_mut_ptr().cast(), self.stream.context().clone());
        let _current = context.enter()?;
        // SAFETY: as in `copy`, the other way: the source is inside device memory, and the target is as many bytes of
        // `memory`.
        let copied =
            unsafe { (context.table().cuMemcpyDtoHAsync_v2)(target, from.address(), from.len(), self.stream.raw()) };
        check("cuMemcpyDtoHAsync", copied)?;
        self.settle()
    }

    /// Waits until the stream is done. If that fails, the device may still be at the memory: it is never freed.
    fn settle(&mut self) -> Result<(), CudaError> {
        self.stream.synchronize().inspect_err(|_| {
            std::mem::forget(self.memory.take());
            std::mem::forget(self.pinned.take());
        })
    }
}

impl fmt::Debug for Bounce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounce").field("memory", &self.memory).finish_non_exhaustive()
    }
}
