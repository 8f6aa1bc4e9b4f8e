//! Archives that are compressed as a whole: detects them and reads their content from front to back.

use super::header::{BLOCK_BYTES, Block, Header};
use crate::compression::{Compression, read_full};
use crate::packed;
use crate::window::{Plain, Source};
use std::io::{self, BufReader, Read};
use uringload_core::{Error, Result};

/// Bytes of a file per read.
const READ_BYTES: usize = 256 << 10;
/// Bytes of payload to decode at a time when skipping it.
const PASSED_BYTES: usize = 64 << 10;

/// How an archive is compressed, by its first bytes. Names are not reliable.
pub(super) fn detect(mut file: Plain<'_>) -> Result<Option<Compression>> {
    let mut head: Block = [0; BLOCK_BYTES as usize];
    let have = file.read_at_least(&mut head, 0, BLOCK_BYTES as usize)?;
    // The first member's name may look like anything, such as BZh9.jpg; a valid checksum is unambiguous.
    if matches!(Header::parse(&head), Ok(Some(_))) {
        return Ok(None);
    }
    Ok(Compression::of_head(&head[..have]))
}

/// The error for an archive that cannot be decoded.
pub(super) fn undecodable(compression: Compression, error: io::Error) -> Error {
    packed::undecodable("archive", compression, error)
}

/// The decoded content of a compressed archive. Offsets refer to decoded bytes.
pub(super) struct Stream<'a> {
    reader: Box<dyn Read + 'a>,
    compression: Compression,
    /// Bytes decoded so far.
    at: u64,
    passed: Vec<u8>,
    /// Whether decoding has already failed.
    is_broken: bool,
}

impl<'a> Stream<'a> {
    /// Decodes an archive that `stored` yields from the first byte to the last.
    pub(super) fn new(compression: Compression, stored: impl Read + 'a) -> Result<Stream<'a>> {
        let reader = compression.reader(BufReader::with_capacity(READ_BYTES, stored));
        let reader = reader.map_err(|error| undecodable(compression, error))?;
        Ok(Stream { reader, compression, at: 0, passed: vec![0; PASSED_BYTES], is_broken: false })
    }

    fn decode(&mut self, into: &mut [u8]) -> Result<usize> {
        let (have, error) = read_full(&mut *self.reader, into);
        if let Some(error) = error {
            self.is_broken = true;
            return Err(undecodable(self.compression, error).with_offset(self.at));
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
