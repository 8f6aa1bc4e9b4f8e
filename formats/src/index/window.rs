//! Scanning files: keeps a piece of a file in memory while its headers are looked at. Reads are short where payloads
//! are worth skipping, and long where they are not.

use crate::index::headers;
use std::io::{self, Read};
use uringload_core::{Error, Result};

/// Something with bytes at offsets, read from front to back.
pub(crate) trait Source {
    /// Reads up to `into.len()` bytes at `offset`; returns 0 past the end.
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize>;

    /// Reads from `offset` until there are at least `least` bytes or no more follow. Returns how many were read.
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

    /// Advances to `offset`. Returns `offset`, or the total length if that is less. Bytes before it cannot be read
    /// afterwards.
    fn reach(&mut self, offset: u64) -> Result<u64>;

    /// Upper bound of the length.
    fn size_max(&self) -> u64;
}

/// A file that is read as is.
pub(crate) struct Plain<'a>(pub(crate) &'a headers::Source);

impl Source for Plain<'_> {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match self.0.read_at(into, offset) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read", error).with_offset(offset)),
            }
        }
    }

    fn reach(&mut self, offset: u64) -> Result<u64> {
        Ok(offset.min(self.0.size()))
    }

    fn size_max(&self) -> u64 {
        self.0.size()
    }
}

/// Reads the bytes of a file from first to last, and reports its progress.
pub(crate) struct Stored<'a, F> {
    pub(crate) source: &'a headers::Source,
    pub(crate) at: u64,
    pub(crate) passed: F,
}

impl<F: FnMut(u64)> Read for Stored<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read_at(into, self.at)?;
        self.at += bytes as u64;
        (self.passed)(self.at);
        Ok(bytes)
    }
}

/// Where a short read ends: at the end of the header's page, which the kernel reads anyway.
const PAGE_BYTES: u64 = 4096;
/// A long read: enough for the throughput of a disk with several threads.
const LONG_BYTES: u64 = 512 << 10;
/// From this length on, skipping a payload is worth a separate read after it: a device that reads 2.5 GB/s transfers as
/// much in the time that a read costs it.
const WORTH_BYTES: u64 = 32 << 10;

/// See the module documentation.
pub(crate) struct Window<'a, S> {
    source: &'a mut S,
    start: u64,
    bytes: Vec<u8>,
    bytes_read: u64,
    /// Total bytes of payloads so far that were worth skipping.
    worth: u64,
}

impl<'a, S: Source> Window<'a, S> {
    pub(crate) fn new(source: &'a mut S) -> Window<'a, S> {
        Window { source, start: 0, bytes: Vec::new(), bytes_read: 0, worth: 0 }
    }

    /// The `len` bytes at `offset`; `len` is small. Fewer if the file ends within them, none if it ends before.
    pub(crate) fn bytes(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        if offset < self.start || offset + len > self.end() {
            self.fill(offset, len)?;
        }
        // Fits: the window holds it, or begins there.
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..self.bytes.len().min(at + len as usize)])
    }

    /// Advances to `offset`. Returns `offset`, or the file's length if that is less. Earlier bytes may not be requested
    /// then.
    pub(crate) fn reach(&mut self, offset: u64) -> Result<u64> {
        if offset <= self.end() { Ok(offset) } else { self.source.reach(offset) }
    }

    /// Reports that a payload of `len` bytes follows and is skipped.
    pub(crate) fn passed_over(&mut self, len: u64) {
        if len >= WORTH_BYTES {
            self.worth += len;
        }
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        // Reading everything is faster unless most of it is payload that is worth skipping.
        let is_short = self.worth >= offset / 2;
        let page_end = (offset + len).next_multiple_of(PAGE_BYTES);
        let end = if is_short { page_end } else { page_end.max(offset + LONG_BYTES) }.min(self.source.size_max());
        // Old bytes that are still needed: not every source can read them again.
        let kept = offset.checked_sub(self.start).filter(|&kept| kept <= self.bytes.len() as u64);
        // Fits: it is within the window.
        self.bytes.drain(..kept.map_or(self.bytes.len(), |kept| kept as usize));
        self.start = offset;
        let have = self.bytes.len();
        // Bounded by the constants above, and by the caller's `len`.
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

/// A file that has some pieces, in the order of their offsets, and makes up the bytes between them on the fly. These
/// are not zeros, so none is mistaken for the end of an archive.
#[cfg(test)]
pub(crate) struct Sparse {
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
    pub(crate) size: u64,
}

#[cfg(test)]
impl Source for Sparse {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        let end = (offset + into.len() as u64).min(self.size);
        into.fill(0xaa);
        let first = self.pieces.partition_point(|(at, piece)| at + piece.len() as u64 <= offset);
        for (at, piece) in self.pieces[first..].iter().take_while(|(at, _)| *at < end) {
            let part = (*at).max(offset)..(at + piece.len() as u64).min(end);
            into[(part.start - offset) as usize..(part.end - offset) as usize]
                .copy_from_slice(&piece[(part.start - at) as usize..(part.end - at) as usize]);
        }
        Ok((end - offset) as usize)
    }

    fn reach(&mut self, offset: u64) -> Result<u64> {
        Ok(offset.min(self.size))
    }

    fn size_max(&self) -> u64 {
        self.size
    }
}
