//! A range of a device's memory.

use super::error::CudaError;
use super::memory::DeviceMemory;
use std::fmt;
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

    /// Copies its bytes to the host and waits for that; see [`DeviceMemory::read`].
    ///
    /// # Errors
    /// Invalid value if `to` has another length; whatever the driver reports.
    pub fn read(&self, to: &mut [u8]) -> Result<(), CudaError> {
        self.memory.read(self.start..self.start + self.len, to)
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
