//! Lends memory of a device in ranges: for a lane's batches, and for pixels that stay on the GPU that decoded them.

mod ranges;

use crate::queue::Bell;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use uringload_sys::cuda::{DeviceMemory, Span};

pub(crate) use ranges::{RANGE_ALIGNMENT, Ranges};

/// Memory for values that stay on a GPU until their batch is assembled there.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    memory: DeviceMemory,
    ranges: Mutex<Ranges>,
    /// Rung when a range is free again.
    bell: OnceLock<Arc<Bell>>,
}

/// A value on a GPU. Its memory is free again when the last clone is dropped. No work may be using it then.
#[derive(Clone, Debug)]
pub(crate) struct Resident(Arc<Held>);

#[derive(Debug)]
struct Held {
    span: Span,
    range: Range<usize>,
    home: Arc<Shared>,
}

impl Room {
    /// Creates it with all of `memory` free.
    pub(crate) fn new(memory: DeviceMemory) -> Room {
        // One slot: all ranges have one size, or a few.
        let slot = memory.len().next_multiple_of(RANGE_ALIGNMENT).max(RANGE_ALIGNMENT);
        let ranges = Mutex::new(Ranges::new(memory.len(), slot));
        Room(Arc::new(Shared { memory, ranges, bell: OnceLock::new() }))
    }

    /// Sets the bell that rings when a range is free again.
    pub(crate) fn tell(&self, bell: &Arc<Bell>) {
        let _ = self.0.bell.set(Arc::clone(bell));
    }

    /// Number of free bytes.
    pub(crate) fn free_bytes(&self) -> usize {
        self.0.lock().free_bytes()
    }

    /// A place for `bytes` bytes, or `None` if there is none now.
    pub(crate) fn take(&self, bytes: usize) -> Option<Resident> {
        let range = self.0.lock().take(bytes)?;
        let span = Span::new(&self.0.memory, range.start..range.start + bytes)?;
        Some(Resident(Arc::new(Held { span, range, home: Arc::clone(&self.0) })))
    }
}

impl Resident {
    /// Its location.
    pub(crate) fn span(&self) -> &Span {
        &self.0.span
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.home.lock().give(self.range.clone());
        self.home.bell.get().into_iter().for_each(|bell| bell.ring());
    }
}
