//! Metadata of a file, read block by block: numbers of the file's own widths, checksums, and a bound on the total.

use crate::index::headers::Source;
use std::cell::Cell;
use uringload_core::{Error, Result};

/// Bytes of metadata that may be read for each byte of the file. This stops structures that point in circles, or many
/// times at the same place. Sound files are read about once.
const READS_PER_BYTE: u64 = 8;
/// Allowance on top of that, for small files.
const READS_MORE: u64 = 1 << 20;
/// What a read counts as at least.
const READ_BYTES_MIN: u64 = 64;

/// A file and the widths of its numbers.
pub(super) struct Meta<'a> {
    pub(super) source: &'a Source,
    /// The place of address 0 in the file.
    pub(super) base: u64,
    /// Bytes of an address, 2 to 8.
    pub(super) address_bytes: usize,
    /// Bytes of a length, 2 to 8.
    pub(super) length_bytes: usize,
    left: Cell<u64>,
}

impl<'a> Meta<'a> {
    pub(super) fn new(source: &'a Source, base: u64, address_bytes: usize, length_bytes: usize) -> Meta<'a> {
        let left = source.size().saturating_mul(READS_PER_BYTE).saturating_add(READS_MORE);
        Meta { source, base, address_bytes, length_bytes, left: Cell::new(left) }
    }

    /// Reads the `len` bytes at an address. `what` names them in errors ("a node of a B-tree").
    pub(super) fn read(&self, address: u64, len: u64, what: &'static str) -> Result<Block<'a>> {
        let Some(start) = self.base.checked_add(address).filter(|&start| start <= self.source.size()) else {
            let what = format!("{what} is at address {address}, past the end of the file");
            return Err(self.source.corrupt(self.source.size(), what));
        };
        let Some(left) = self.left.get().checked_sub(len.max(READ_BYTES_MIN)) else {
            return Err(self.source.corrupt(start, "the structures of the file form a loop"));
        };
        self.left.set(left);
        let len = usize::try_from(len).map_err(|_| self.source.truncated(what))?;
        Ok(Block { source: self.source, bytes: self.source.bytes(start, len, what)?, start, at: 0, what })
    }

    /// The same for a structure that begins with a four-letter signature and a version, both of which are checked.
    pub(super) fn signed(
        &self,
        address: u64,
        len: u64,
        sign: &[u8; 4],
        version: u8,
        what: &'static str,
    ) -> Result<Block<'a>> {
        let mut block = self.read(address, len, what)?;
        block.sign(sign)?;
        match block.u8()? {
            found if found == version => Ok(block),
            found => Err(block.unavailable(format!("{what} has the unknown version {found}"))),
        }
    }

    /// The next address of a block; `None` where it is undefined.
    pub(super) fn address(&self, block: &mut Block<'a>) -> Result<Option<u64>> {
        let address = block.number(self.address_bytes)?;
        Ok((address != u64::MAX >> (64 - 8 * self.address_bytes)).then_some(address))
    }

    /// The next length of a block.
    pub(super) fn length(&self, block: &mut Block<'a>) -> Result<u64> {
        block.number(self.length_bytes)
    }
}

/// Bytes of a file, read from front to back.
pub(super) struct Block<'a> {
    source: &'a Source,
    bytes: Vec<u8>,
    /// Where it begins in the file.
    start: u64,
    at: usize,
    what: &'static str,
}

impl<'a> Block<'a> {
    /// The place of the next byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&[u8]> {
        if len > self.left() {
            return Err(self.corrupt(format!("{} ends too early", self.what)));
        }
        self.at += len;
        Ok(&self.bytes[self.at - len..self.at])
    }

    pub(super) fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(|_| ())
    }

    /// Takes the next bytes as a block of their own.
    pub(super) fn part(&mut self, len: usize, what: &'static str) -> Result<Block<'a>> {
        let start = self.offset();
        Ok(Block { source: self.source, bytes: self.take(len)?.to_vec(), start, at: 0, what })
    }

    /// A copy that is read from the start.
    pub(super) fn copy(&self) -> Block<'a> {
        Block { source: self.source, bytes: self.bytes.clone(), start: self.start, at: 0, what: self.what }
    }

    /// A number of up to 8 bytes; all are little endian.
    pub(super) fn number(&mut self, bytes: usize) -> Result<u64> {
        if bytes > 8 {
            return Err(self.corrupt(format!("{} has a number of {bytes} bytes", self.what)));
        }
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(number))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.number(8)
    }

    /// Text of this many bytes, up to its first NUL.
    pub(super) fn text(&mut self, len: usize) -> Result<String> {
        let bytes = self.take(len)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// All bytes, including those already read.
    pub(super) fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads past the signature of a structure, and checks it.
    pub(super) fn sign(&mut self, sign: &[u8; 4]) -> Result<()> {
        let what = self.what;
        match self.take(4)? {
            found if found == sign => Ok(()),
            _ => {
                self.at -= 4;
                Err(self.corrupt(format!("{what} does not begin as one")))
            }
        }
    }

    /// Verifies the checksum at the end of the block, and cuts it off.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(len) = self.bytes.len().checked_sub(4) else {
            return Err(self.corrupt(format!("{} ends too early", self.what)));
        };
        let (content, stored) = self.bytes.split_at(len);
        if ARE_CHECKED && stored != lookup3(content).to_le_bytes() {
            return Err(self.wrong_checksum());
        }
        self.bytes.truncate(len);
        Ok(())
    }

    pub(super) fn wrong_checksum(&self) -> Error {
        let what = format!("the checksum of {} is wrong", self.what);
        self.source.corrupt(self.start, what).with_remedy("fetch or write the file again")
    }

    /// The error for bytes at the current offset that break the format.
    pub(super) fn corrupt(&self, what: impl Into<String>) -> Error {
        self.source.corrupt(self.offset(), what.into())
    }

    /// The error for something at the current offset that seems sound but is not supported.
    pub(super) fn unavailable(&self, what: impl Into<String>) -> Error {
        self.source.unavailable(self.offset(), what.into())
    }

    /// The error of something at the current offset.
    pub(super) fn at_here(&self, error: Error) -> Error {
        error.with_path(self.source.path()).with_offset(self.offset())
    }
}

/// Whether a wrong checksum is an error. Not when fuzzing: a fuzzer would never get past the first one.
pub(super) const ARE_CHECKED: bool = !cfg!(fuzzing);

/// Bob Jenkins' hash `lookup3` with an initial value of 0: the checksum of all metadata that has one.
///
/// Source: Jenkins, "lookup3.c" (2006), `hashlittle`, read byte by byte.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    // Above 4 GiB the hash uses the low 32 bits of the length, as the reference does.
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let word = |chunk: &[u8], at: usize| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24
    };
    let mut chunks = bytes.chunks(12).peekable();
    while let Some(chunk) = chunks.next() {
        a = a.wrapping_add(word(chunk, 0));
        b = b.wrapping_add(word(chunk, 4));
        c = c.wrapping_add(word(chunk, 8));
        if chunks.peek().is_some() {
            mix(&mut a, &mut b, &mut c);
        } else {
            finish(&mut a, &mut b, &mut c);
        }
    }
    c
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    for rotations in [[4, 6, 8], [16, 19, 4]] {
        *a = a.wrapping_sub(*c) ^ c.rotate_left(rotations[0]);
        *c = c.wrapping_add(*b);
        *b = b.wrapping_sub(*a) ^ a.rotate_left(rotations[1]);
        *a = a.wrapping_add(*c);
        *c = c.wrapping_sub(*b) ^ b.rotate_left(rotations[2]);
        *b = b.wrapping_add(*a);
    }
}

fn finish(a: &mut u32, b: &mut u32, c: &mut u32) {
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(14));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(11));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(25));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(16));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(4));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(14));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(24));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of `driver5` in lookup3.c.
    #[test]
    fn the_hash_agrees_with_the_reference() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
