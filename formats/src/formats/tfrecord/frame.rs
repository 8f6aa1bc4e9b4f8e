//! The framing of records, and one pass over them: skips the payloads of a plain file, and reads all of a compressed
//! one.
//!
//! Source: tensorflow `core/lib/io/record_writer.h` and `core/lib/hash/crc32c.h`.

use crate::compression::Compression;
use crate::index::headers::{decoded, u32_at, u64_at};
use crate::index::window::{Source, Window};
use crate::place::Place;
use std::io::{self, BufRead, BufReader, Read};
use uringload_core::{Error, ErrorKind, Result};

/// Bytes before a record: its length, and the checksum of the length.
pub(super) const HEADER_BYTES: u64 = 12;
/// Bytes after a record: its checksum.
pub(super) const FOOTER_BYTES: u64 = 4;
/// Both.
pub(super) const FRAME_BYTES: u64 = HEADER_BYTES + FOOTER_BYTES;

/// The header of a record.
pub(super) type Header = [u8; HEADER_BYTES as usize];

/// The format's checksum: CRC-32C, rotated and offset, so that records that contain records do not confuse it.
pub(super) fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The length in a header; or, if they differ, the stored and the computed checksum.
pub(super) fn length(header: &Header) -> Result<u64, (u32, u32)> {
    let (stored, computed) = (u32_at(header, 8), masked(&header[..8]));
    if stored == computed { Ok(u64_at(header, 0)) } else { Err((stored, computed)) }
}

/// How a file is compressed, by its first bytes; `None` if it holds plain records.
///
/// A file of records begins with a length and its checksum, which nothing else does except by accident.
///
/// # Errors
/// What is wrong with the header of the first record, if it is invalid and the file is not compressed either.
pub(super) fn compression(head: &[u8]) -> Result<Option<Compression>> {
    let told = head.first_chunk().map(length);
    match (told, head) {
        (Some(Ok(_)), _) | (_, []) => Ok(None),
        (_, [0x1f, 0x8b, ..]) => Ok(Some(Compression::Gzip)),
        // RFC 1950: deflate with a window of up to 32 KiB, no dictionary, and both bytes a multiple of 31.
        (_, &[method, flags, ..])
            if method & 0x8f == 8 && flags & 0x20 == 0 && u16::from_be_bytes([method, flags]).is_multiple_of(31) =>
        {
            Ok(Some(Compression::Zlib))
        }
        (Some(Err(checks)), _) => {
            let Damage { what, .. } = Damage::length(0, checks);
            let error = Error::new(ErrorKind::Corrupt, format!("this is no TFRecord file: {what}")).with_offset(0);
            Err(error.with_remedy("check the file; TensorFlow's are compressed as GZIP or ZLIB, or not at all"))
        }
        (None, _) => Err(Damage::header(0, head.len() as u64).at(0)),
    }
}

/// Calls `each` with the offset and length of every record's payload in a file. Returns the number of bytes read.
///
/// # Errors
/// `Corrupt` and `Truncated` with the offset of the record, but without the file; `Io`.
pub(super) fn scan(file: &mut impl Source, mut each: impl FnMut(u64, u64)) -> Result<u64> {
    let size = file.size_max();
    let mut window = Window::new(file);
    let (mut offset, mut number) = (0, 0_u64);
    while offset < size {
        let left = size - offset;
        if left < HEADER_BYTES {
            return Err(Damage::header(number, left).at(offset));
        }
        let header = window.bytes(offset, HEADER_BYTES)?.first_chunk().ok_or_else(|| {
            Error::new(ErrorKind::Truncated, "the file became shorter while it was indexed").with_offset(offset)
        })?;
        let len = length(header).map_err(|checks| Damage::length(number, checks).at(offset))?;
        if left.checked_sub(FRAME_BYTES).is_none_or(|most| len > most) {
            return Err(Damage::record(number, len, left - HEADER_BYTES).at(offset));
        }
        each(offset + HEADER_BYTES, len);
        window.passed_over(len);
        offset += FRAME_BYTES + len;
        number += 1;
    }
    Ok(window.bytes_read())
}

/// The result of a pass over a compressed file.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Decoded bytes up to the end of the last complete record.
    pub(super) bytes: u64,
    /// Why the file does not end there.
    pub(super) damage: Option<Error>,
}

/// Calls `each` with the offset and length of every record's payload in what `stored` decodes to.
///
/// # Errors
/// What the decoder reports about its memory, and I/O errors after the end of the stream.
pub(super) fn scan_decoded(
    stored: impl Read,
    compression: Compression,
    mut each: impl FnMut(u64, u64),
) -> io::Result<Decoded> {
    let mut stored = BufReader::with_capacity(PIECE_BYTES, stored);
    let mut stream = Stream::new(&mut stored, Some(compression))?;
    let mut scratch = vec![0; PIECE_BYTES];
    let damage = loop {
        let start = stream.offset;
        match stream.skip(&mut scratch) {
            Ok(Some(len)) => each(start + HEADER_BYTES, len),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let bytes = stream.offset;
    drop(stream);
    // A decoder stops at the end of its stream, whatever follows.
    let damage = match damage {
        None if !stored.fill_buf()?.is_empty() => {
            Some(Error::new(ErrorKind::Corrupt, format!("bytes follow the end of the {} stream", compression.name())))
        }
        damage => damage,
    };
    Ok(Decoded { bytes, damage })
}

/// Bytes to read, and to decode, at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The records of a file one after another, decoded if necessary.
pub(super) struct Stream<'a> {
    reader: Box<dyn Read + 'a>,
    compression: Option<Compression>,
    /// Where the next record begins, in the file or in its decoded content.
    offset: u64,
    number: u64,
}

impl<'a> Stream<'a> {
    /// Starts at the beginning of a file.
    ///
    /// # Errors
    /// What the decoder reports about its memory.
    pub(super) fn new(stored: impl BufRead + 'a, compression: Option<Compression>) -> io::Result<Stream<'a>> {
        let reader = match compression {
            None => Box::new(stored),
            Some(compression) => compression.reader(stored)?,
        };
        Ok(Stream { reader, compression, offset: 0, number: 0 })
    }

    /// Starts at the beginning of the file at a place.
    ///
    /// # Errors
    /// What the system reports when opening it, and what the decoder does about its memory.
    pub(super) fn open(place: &Place, compression: Option<Compression>) -> Result<Stream<'static>> {
        let stored = BufReader::with_capacity(PIECE_BYTES, place.reader()?);
        Stream::new(stored, compression).map_err(|error| Error::io("cannot open", error))
    }

    /// Where the next record begins, in the file or in its decoded content.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Skips the next record and its checksum. Returns its length, or `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` and `Truncated` with the place of the record, but without the file; `Io`.
    fn skip(&mut self, scratch: &mut [u8]) -> Result<Option<u64>> {
        let Some(len) = self.header()? else { return Ok(None) };
        let all = self.all(len)?;
        let mut left = all;
        while left > 0 {
            // Fits: at most the length of the scratch buffer.
            let most = left.min(scratch.len() as u64) as usize;
            match self.reader.read(&mut scratch[..most]) {
                Ok(0) => return Err(self.placed(Damage::record(self.number, len, all - left))),
                Ok(bytes) => left -= bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.undecoded(error)),
            }
        }
        self.advance(len);
        Ok(Some(len))
    }

    /// The next record with its checksum; `None` at the end. A header's claim alone allocates no memory. A record of
    /// more than `most` bytes is not read, and nothing after it can be.
    ///
    /// # Errors
    /// Those of [`Stream::skip`].
    pub(super) fn record(&mut self, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(len) = self.header()? else { return Ok(None) };
        if len > most {
            return Ok(Some(Vec::new()));
        }
        let all = self.all(len)?;
        let mut record = Vec::new();
        match (&mut self.reader).take(all).read_to_end(&mut record) {
            Ok(bytes) if bytes as u64 == all => {}
            Ok(bytes) => return Err(self.placed(Damage::record(self.number, len, bytes as u64))),
            Err(error) => return Err(self.undecoded(error)),
        }
        self.advance(len);
        Ok(Some(record))
    }

    /// The length of the next record; its payload follows. `None` at the end.
    fn header(&mut self) -> Result<Option<u64>> {
        let mut header: Header = [0; HEADER_BYTES as usize];
        let mut have = 0;
        while have < header.len() {
            match self.reader.read(&mut header[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.placed(Damage::header(self.number, have as u64))),
                Ok(bytes) => have += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.undecoded(error)),
            }
        }
        length(&header).map(Some).map_err(|checks| self.placed(Damage::length(self.number, checks)))
    }

    /// Bytes of a record and its checksum. No file holds a record whose end overflows.
    fn all(&self, len: u64) -> Result<u64> {
        let end = self.offset.checked_add(FRAME_BYTES).and_then(|end| end.checked_add(len));
        end.map(|_| len + FOOTER_BYTES).ok_or_else(|| self.placed(Damage::record(self.number, len, 0)))
    }

    fn advance(&mut self, len: u64) {
        // Fits: `all` has computed the same sum.
        self.offset += FRAME_BYTES + len;
        self.number += 1;
    }

    fn placed(&self, damage: Damage) -> Error {
        match self.compression {
            None => damage.at(self.offset),
            Some(_) => damage.decoded(self.offset),
        }
    }

    /// The error if the stored bytes cannot be read or decoded.
    fn undecoded(&self, error: io::Error) -> Error {
        let name = self.compression.map_or("", Compression::name);
        let kind = match error.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Truncated,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => ErrorKind::Corrupt,
            _ => return Error::io("cannot read", error),
        };
        let what = decoded(format_args!("the {name} stream breaks off"));
        let broken = Error::new(kind, what).with_offset(self.offset).with_source(error);
        if kind == ErrorKind::Truncated { broken.with_remedy(COPY_AGAIN) } else { broken }
    }
}

const COPY_AGAIN: &str = "the file was cut short: copy it again";

/// What is wrong with a file, at a record.
struct Damage {
    kind: ErrorKind,
    what: String,
    remedy: Option<&'static str>,
}

impl Damage {
    /// The file ends within a header, after `have` of its bytes.
    fn header(number: u64, have: u64) -> Damage {
        let what = format!("the file ends within the header of record {number}, after {have} of {HEADER_BYTES} bytes");
        Damage { kind: ErrorKind::Truncated, what, remedy: Some(COPY_AGAIN) }
    }

    /// The file ends within a record or its checksum, after `have` of their bytes.
    fn record(number: u64, len: u64, have: u64) -> Damage {
        let what = format!(
            "record {number} claims {len} bytes and a checksum of {FOOTER_BYTES}, and the file has {have} more"
        );
        Damage { kind: ErrorKind::Truncated, what, remedy: Some(COPY_AGAIN) }
    }

    /// The checksum of a record's length is wrong.
    fn length(number: u64, (stored, computed): (u32, u32)) -> Damage {
        let what =
            format!("the length of record {number} has the checksum {computed:08x}, and should have {stored:08x}");
        Damage { kind: ErrorKind::Corrupt, what, remedy: None }
    }

    /// At an offset of the file.
    fn at(self, offset: u64) -> Error {
        let error = Error::new(self.kind, self.what).with_offset(offset);
        self.remedy.into_iter().fold(error, Error::with_remedy)
    }

    /// At an offset of the decoded content.
    fn decoded(self, offset: u64) -> Error {
        let error = Error::new(self.kind, decoded(self.what)).with_offset(offset);
        self.remedy.into_iter().fold(error, Error::with_remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors: what TensorFlow's writer makes of "hello" and of nothing.
    #[test]
    fn checksums_are_tensorflows() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        for (len, check_of_len, data, check) in
            [(5_u64, 0x3e04_b2ea_u32, &b"hello"[..], 0x191c_1fbb_u32), (0, 0x0798_0329, b"", 0xa282_ead8)]
        {
            let mut header: Header = [0; 12];
            header[..8].copy_from_slice(&len.to_le_bytes());
            header[8..].copy_from_slice(&check_of_len.to_le_bytes());
            assert_eq!((length(&header), masked(data)), (Ok(len), check));
            header[3] ^= 1;
            assert!(length(&header).is_err());
        }
    }
}
