//! A range of a device's memory.

use super::bounce::Bounce;
use super::memory::DeviceMemory;
use std::fmt;
use std::io;
use std::ops::Range;

/// A range of a device's memory, which it keeps allocated. Ranges may overlap: their users are ordered by streams and
/// events.
#[derive(Clone)]
pub struct Span {
    memory: DeviceMemory,
    start: usize,
    len: usize,
}

impl Span {
    /// The bytes `range` of `memory`, or `None` if they are not inside it.
    pub fn new(memory: &DeviceMemory, range: Range<usize>) -> Option<Span> {
        let is_inside = range.start <= range.end && range.end <= memory.len();
        is_inside.then(|| Span { memory: memory.clone(), start: range.start, len: range.len() })
    }

    /// All of `memory`.
    pub fn all(memory: &DeviceMemory) -> Span {
        Span { memory: memory.clone(), start: 0, len: memory.len() }
    }

    /// The bytes `range` of this span, or `None` if they are not inside it.
    pub fn slice(&self, range: Range<usize>) -> Option<Span> {
        let is_inside = range.start <= range.end && range.end <= self.len;
        is_inside.then(|| Span { memory: self.memory.clone(), start: self.start + range.start, len: range.len() })
    }

    /// The memory that this is a range of.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Its offset in its memory, in bytes.
    pub fn offset(&self) -> usize {
        self.start
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies its bytes to the host, through pinned memory that is made for it, and waits for that. It is not ordered
    /// after any stream: first wait for whatever writes the range.
    ///
    /// # Errors
    /// Invalid input if `to` has another length; that there is no memory; a [`CudaError`](super::CudaError) in whatever
    /// else the driver reports.
    pub fn read(&self, to: &mut [u8]) -> io::Result<()> {
        /// Bytes at a time, of what is read to be looked at.
        const PART_BYTES: usize = 4 << 20;
        if to.len() != self.len {
            let what = "the place has another length than the span";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut bounce = Bounce::new(self.memory.context(), self.len.min(PART_BYTES))?;
        for (index, part) in to.chunks_mut(PART_BYTES).enumerate() {
            let start = index * PART_BYTES;
            let Some(from) = self.slice(start..start + part.len()) else { break };
            bounce.fetch(&from, 0).map_err(io::Error::other)?;
            part.copy_from_slice(&bounce.memory()[..part.len()]);
        }
        Ok(())
    }

    /// Whether `len` bytes at `address` are inside.
    pub(super) fn holds(&self, address: u64, len: u64) -> bool {
        let start = self.address();
        address >= start && address.checked_add(len).is_some_and(|end| end <= start + self.len as u64)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:#x}, {} bytes)", self.address(), self.len)
    }
}
