//! Archives that are decoded as a whole, because they are compressed or have sparse members: detects the former and
//! reads the content of both from front to back.

use super::header::{BLOCK_BYTES, Block, Header};
use super::holes::{Expanded, is_broken_map};
use crate::compression::{Coding, Compression, fill, read_full};
use crate::index::packed;
use crate::index::window::{Plain, Source};
use std::io::{self, BufReader, Read};
use uringload_core::{Error, ErrorKind, Result};

/// Bytes of a file per read.
const READ_BYTES: usize = 256 << 10;
/// Bytes of payload to decode at a time when skipping it.
const PASSED_BYTES: usize = 64 << 10;

/// How an archive is compressed, by its first bytes. Names are not reliable.
///
/// # Errors
/// `Io`; `Unavailable` for a compression that is not built in.
pub(super) fn detect(mut file: Plain<'_>) -> Result<Option<Compression>> {
    let mut head: Block = [0; BLOCK_BYTES as usize];
    let have = file.read_at_least(&mut head, 0, BLOCK_BYTES as usize)?;
    // The first member's name may look like anything, such as BZh9.jpg; a valid checksum is unambiguous.
    if matches!(Header::parse(&head), Ok(Some(_))) {
        return Ok(None);
    }
    let found = Compression::of_head(&head[..have]);
    found.map_or(Ok(()), Compression::check)?;
    Ok(found)
}

/// The error for an archive that cannot be decoded.
pub(super) fn undecodable(coding: Coding, error: io::Error) -> Error {
    match coding.compression() {
        Some(compression) if !is_broken_map(&error) => packed::undecodable("archive", compression, error),
        _ if error.raw_os_error().is_some() => Error::io("cannot read", error),
        _ => {
            let error =
                Error::new(ErrorKind::Corrupt, "the holes of a sparse member cannot be put back").with_source(error);
            error.with_remedy("write the archive again, without --sparse")
        }
    }
}

/// Decodes all of an archive into `out`; returns its length.
///
/// # Errors
/// Those of [`Compression::decode`], and of maps of sparse members.
pub(super) fn decode(coding: Coding, stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    match coding {
        Coding::Packed(compression) => compression.decode(stored, out),
        Coding::Expanded(None) => fill(&mut Expanded::new(stored), out),
        Coding::Expanded(Some(compression)) => fill(&mut Expanded::new(compression.reader(stored)?), out),
    }
}

/// The decoded content of an archive. Offsets refer to decoded bytes.
pub(super) struct Stream<'a> {
    reader: Box<dyn Read + 'a>,
    coding: Coding,
    /// Bytes decoded so far.
    at: u64,
    passed: Vec<u8>,
    /// Whether decoding has already failed.
    is_broken: bool,
}

impl<'a> Stream<'a> {
    /// Decodes an archive that `stored` yields from the first byte to the last.
    pub(super) fn new(coding: Coding, stored: impl Read + 'a) -> Result<Stream<'a>> {
        let stored = BufReader::with_capacity(READ_BYTES, stored);
        let unpacked =
            |compression: Compression, stored| compression.reader(stored).map_err(|error| undecodable(coding, error));
        let reader: Box<dyn Read + 'a> = match coding {
            Coding::Packed(compression) => unpacked(compression, stored)?,
            Coding::Expanded(None) => Box::new(Expanded::new(stored)),
            Coding::Expanded(Some(compression)) => Box::new(Expanded::new(unpacked(compression, stored)?)),
        };
        Ok(Stream { reader, coding, at: 0, passed: vec![0; PASSED_BYTES], is_broken: false })
    }

    fn decode(&mut self, into: &mut [u8]) -> Result<usize> {
        let (have, error) = read_full(&mut *self.reader, into);
        if let Some(error) = error {
            self.is_broken = true;
            // A map is looked at when all before it has been passed on.
            let at = if is_broken_map(&error) { self.at + have as u64 } else { self.at };
            return Err(undecodable(self.coding, error).with_offset(at));
        }
        self.at += have as u64;
        Ok(have)
    }

    /// Whether it turned out that part of the archive cannot be decoded.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }
}

impl Source for Stream<'_> {
    /// Fills all of `into`, unless the archive ends before.
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        if self.reach(offset)? < offset { Ok(0) } else { self.decode(into) }
    }

    fn reach(&mut self, offset: u64) -> Result<u64> {
        let mut passed = std::mem::take(&mut self.passed);
        let mut reach = || {
            while self.at < offset {
                // Fits: at most the length of the buffer.
                let len = (offset - self.at).min(PASSED_BYTES as u64) as usize;
                if self.decode(&mut passed[..len])? < len {
                    break;
                }
            }
            Ok(self.at.min(offset))
        };
        let reached = reach();
        self.passed = passed;
        reached
    }

    fn size_max(&self) -> u64 {
        u64::MAX
    }
}
