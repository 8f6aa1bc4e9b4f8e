//! Files that are looked through: the piece of one that is in memory while its headers are looked at, short where
//! payloads are worth passing over and long where they are not.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use uringload_core::{Error, Result};

/// Something with bytes at offsets, which is looked at from front to back.
pub(super) trait Source {
    /// Reads up to `into.len()` bytes at `offset`; none where nothing lies there any more.
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize>;

    /// Reads from `offset` on until there are `least` bytes or nothing comes any more; returns how many there are.
    fn read_at_least(&mut self, into: &mut [u8], offset: u64, least: usize) -> Result<usize> {
        let mut have = 0;
        while have < least.min(into.len()) {
            match self.read_at(&mut into[have..], offset + have as u64)? {
                0 => break,
                bytes => have += bytes,
            }
        }
        Ok(have)
    }

    /// `offset`, or how many bytes there are where they are fewer. What lies in front of it may not be read afterwards.
    fn reach(&mut self, offset: u64) -> Result<u64>;

    /// Bytes that there are at most.
    fn size_max(&self) -> u64;
}

/// A file whose bytes are taken as they are.
pub(super) struct Plain<'a> {
    pub(super) file: &'a OwnedFd,
    pub(super) size: u64,
}

impl Source for Plain<'_> {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match uringload_sys::file::read_at(self.file.as_fd(), into, offset) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read", error).with_offset(offset)),
            }
        }
    }

    fn reach(&mut self, offset: u64) -> Result<u64> {
        Ok(offset.min(self.size))
    }

    fn size_max(&self) -> u64 {
        self.size
    }
}

/// The bytes of a file from the first to the last; tells how far it has come.
pub(super) struct Stored<'a, F> {
    pub(super) file: &'a OwnedFd,
    pub(super) at: u64,
    pub(super) passed: F,
}

impl<F: FnMut(u64)> Read for Stored<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = uringload_sys::file::read_at(self.file.as_fd(), into, self.at)?;
        self.at += bytes as u64;
        (self.passed)(self.at);
        Ok(bytes)
    }
}

/// What a short read ends at: the page of the header, which the kernel reads in any case.
const PAGE_BYTES: u64 = 4096;
/// A long read: enough for the rate of a disk with some threads at once.
const LONG_BYTES: u64 = 512 << 10;
/// A payload from this length on is worth a read of its own behind it: a device that reads 2.5 GB/s passes over as much
/// in the time that a read costs it.
const WORTH_BYTES: u64 = 32 << 10;

/// See the module.
pub(super) struct Window<'a, S> {
    source: &'a mut S,
    start: u64,
    bytes: Vec<u8>,
    bytes_read: u64,
    /// Bytes of payloads so far that were worth passing over.
    worth: u64,
}

impl<'a, S: Source> Window<'a, S> {
    pub(super) fn new(source: &'a mut S) -> Window<'a, S> {
        Window { source, start: 0, bytes: Vec::new(), bytes_read: 0, worth: 0 }
    }

    /// The `len` bytes at `offset`, which are few; fewer where the file ends within them, none where it ends before.
    pub(super) fn bytes(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        if offset < self.start || offset + len > self.end() {
            self.fill(offset, len)?;
        }
        // Fits: the window holds it, or begins there.
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..self.bytes.len().min(at + len as usize)])
    }

    /// `offset`, or how many bytes the file has where they are fewer. Nothing in front of it may be asked for then.
    pub(super) fn reach(&mut self, offset: u64) -> Result<u64> {
        if offset <= self.end() { Ok(offset) } else { self.source.reach(offset) }
    }

    /// A payload of `len` bytes comes next that nobody wants to see.
    pub(super) fn passed_over(&mut self, len: u64) {
        if len >= WORTH_BYTES {
            self.worth += len;
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        // Reading everything is faster unless most of it is payload that is worth passing over.
        let is_short = self.worth >= offset / 2;
        let page_end = (offset + len).next_multiple_of(PAGE_BYTES);
        let end = if is_short { page_end } else { page_end.max(offset + LONG_BYTES) }.min(self.source.size_max());
        // What of the old bytes is still wanted cannot be read again from every source.
        let kept = offset.checked_sub(self.start).filter(|&kept| kept <= self.bytes.len() as u64);
        // Fits: within the window.
        self.bytes.drain(..kept.map_or(self.bytes.len(), |kept| kept as usize));
        self.start = offset;
        let have = self.bytes.len();
        // Bounded: by the constants above, and what the caller has bounded.
        self.bytes.resize(usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).max(have), 0);
        let least = (len as usize).saturating_sub(have);
        let read = self.source.read_at_least(&mut self.bytes[have..], offset + have as u64, least)?;
        self.bytes_read += read as u64;
        self.bytes.truncate(have + read);
        Ok(())
    }
}

#[cfg(test)]
impl Source for &[u8] {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        let rest = &self[(offset as usize).min(self.len())..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn reach(&mut self, offset: u64) -> Result<u64> {
        Ok(offset.min(self.len() as u64))
    }

    fn size_max(&self) -> u64 {
        self.len() as u64
    }
}
