//! The piece of an archive that is in memory while its headers are looked at: short where payloads are worth passing
//! over, long where they are not.

use super::header::{BLOCK_BYTES, Block};
use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Something with bytes at offsets.
pub(super) trait Source {
    /// Reads up to `into.len()` bytes at `offset`; fewer at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for OwnedFd {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        uringload_sys::file::read_at(self.as_fd(), into, offset)
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
    source: &'a S,
    /// Bytes of the archive.
    size: u64,
    start: u64,
    bytes: Vec<u8>,
    bytes_read: u64,
    /// Bytes of payloads so far that were worth passing over.
    worth: u64,
}

impl<'a, S: Source> Window<'a, S> {
    pub(super) fn new(source: &'a S, size: u64) -> Window<'a, S> {
        Window { source, size, start: 0, bytes: Vec::new(), bytes_read: 0, worth: 0 }
    }

    /// The block at `offset`, which lies in the archive.
    pub(super) fn block(&mut self, offset: u64) -> Result<Block> {
        let mut block = [0; BLOCK_BYTES as usize];
        block.copy_from_slice(self.slice(offset, BLOCK_BYTES)?);
        Ok(block)
    }

    /// The `len` bytes at `offset`, which lie in the archive and are few.
    pub(super) fn bytes(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        Ok(self.slice(offset, len)?.to_vec())
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

    fn slice(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + len > end {
            self.fill(offset, len)?;
        }
        // Fits: the window holds it.
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..at + len as usize])
    }

    fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        // Reading everything is faster unless most of it is payload that is worth passing over.
        let is_short = self.worth >= offset / 2;
        let page_end = (offset + len).next_multiple_of(PAGE_BYTES);
        let end = if is_short { page_end } else { page_end.max(offset + LONG_BYTES) }.min(self.size);
        self.start = offset;
        // Bounded: by the constants above, and what the caller has bounded.
        self.bytes.resize((end - offset) as usize, 0);
        let mut have = 0;
        while have < len as usize {
            match self.source.read_at(&mut self.bytes[have..], offset + have as u64) {
                Ok(0) => {
                    return Err(Error::new(
                        ErrorKind::Truncated,
                        "the archive became shorter while it was looked through:",
                    )
                    .with_offset(offset + have as u64));
                }
                Ok(bytes) => have += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read the headers of", error).with_offset(offset)),
            }
        }
        self.bytes.truncate(have);
        self.bytes_read += have as u64;
        Ok(())
    }
}
