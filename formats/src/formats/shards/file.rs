//! The source of a shard's header, which is a file or its decoded content, and the table of offsets in it.

use crate::dataset::Stamp;
use crate::index::headers::{Source, decoded};
use crate::index::opened::Reader;
use crate::place::Place;
use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, Read};
use std::path::PathBuf;
use uringload_core::{Error, ErrorKind, Result};

/// A shard that is read in parts.
pub(crate) struct OpenFile<'a> {
    content: Content<'a>,
    pub(crate) path: PathBuf,
    /// Bytes of the file, or of its decoded content.
    pub(crate) size: u64,
}

enum Content<'a> {
    File(Source),
    /// All bytes of the file, or of its decoded content.
    Bytes {
        bytes: &'a [u8],
        decoded: bool,
    },
    /// The decoded content as it streams in: only useful for its beginning, read in ascending order.
    Stream(RefCell<Stream<'a>>),
}

struct Stream<'a> {
    reader: Box<dyn Read + 'a>,
    /// Bytes read so far.
    at: u64,
}

impl OpenFile<'static> {
    /// Opens a regular file.
    pub(crate) fn open(place: &Place) -> Result<OpenFile<'static>> {
        let source = place.open().map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.with_remedy("restore the shard, or make the index again"),
            _ => error,
        })?;
        Ok(OpenFile { size: source.size(), path: place.path().to_path_buf(), content: Content::File(source) })
    }
}

impl<'a> OpenFile<'a> {
    /// A file whose bytes were read.
    pub(super) fn stored(path: PathBuf, bytes: &'a [u8]) -> OpenFile<'a> {
        OpenFile { content: Content::Bytes { bytes, decoded: false }, size: bytes.len() as u64, path }
    }

    /// The complete decoded content of a file.
    pub(super) fn decoded(path: PathBuf, bytes: &'a [u8]) -> OpenFile<'a> {
        OpenFile { content: Content::Bytes { bytes, decoded: true }, size: bytes.len() as u64, path }
    }

    /// The decoded content of a file, at most `size` bytes; only its beginning can be read, in ascending order.
    pub(super) fn stream(path: PathBuf, size: u64, reader: Box<dyn Read + 'a>) -> OpenFile<'a> {
        OpenFile { content: Content::Stream(RefCell::new(Stream { reader, at: 0 })), size, path }
    }

    /// What the file is known by; nothing if this is not the file itself.
    pub(crate) fn stamp(&self) -> Stamp {
        match &self.content {
            Content::File(source) => source.stamp(),
            Content::Bytes { .. } | Content::Stream(_) => Stamp::default(),
        }
    }

    /// The bytes of the file itself, from `offset` on.
    pub(super) fn into_reader(self, offset: u64) -> Option<Reader> {
        match self.content {
            Content::File(source) => Some(source.into_reader().from(offset)),
            Content::Bytes { .. } | Content::Stream(_) => None,
        }
    }

    /// The file itself, if parts are read directly from it.
    pub(crate) fn source(&self) -> Option<&Source> {
        match &self.content {
            Content::File(source) => Some(source),
            Content::Bytes { .. } | Content::Stream(_) => None,
        }
    }

    /// Checks that it has the length that an index lists.
    pub(crate) fn check_size(&self, listed: u64) -> Result<()> {
        if self.size == listed {
            return Ok(());
        }
        let kind = if self.size < listed { ErrorKind::Truncated } else { ErrorKind::Corrupt };
        let what = format!("the file has {} bytes, and the index says {listed}", self.size);
        let remedy = "copy the shard again, or make the index again";
        Err(Error::new(kind, what).with_path(&self.path).with_offset(self.size.min(listed)).with_remedy(remedy))
    }

    /// Fills `into` with the bytes at `offset`.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            let what = format!("the file ends before {} bytes that it should have", into.len());
            return Err(Error::new(ErrorKind::Truncated, what).with_path(&self.path).with_offset(offset));
        }
        match &self.content {
            Content::File(source) => source.read(offset, into, "the shard"),
            // Fits: the end is not past that of the slice.
            Content::Bytes { bytes, .. } => {
                into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
                Ok(())
            }
            Content::Stream(stream) => {
                let read = stream.borrow_mut().read(into, offset);
                read.map_err(|source| match source.raw_os_error() {
                    Some(_) => self.unread(source, offset),
                    None => self.corrupt("the stream cannot be decoded", offset).with_source(source),
                })
            }
        }
    }

    fn unread(&self, source: io::Error, offset: u64) -> Error {
        Error::io("cannot read", source).with_path(&self.path).with_offset(offset)
    }

    /// The error for an offset, which may refer to decoded bytes.
    pub(crate) fn corrupt(&self, what: impl Into<Cow<'static, str>>, offset: u64) -> Error {
        let what = what.into();
        let what = match self.content {
            Content::File(_) | Content::Bytes { decoded: false, .. } => what,
            Content::Bytes { decoded: true, .. } | Content::Stream(_) => decoded(what),
        };
        Error::new(ErrorKind::Corrupt, what).with_path(&self.path).with_offset(offset)
    }

    /// A number of 32 bits, little endian.
    pub(crate) fn number(&self, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.read(&mut bytes, offset)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Checks that the number of samples stored at `offset` is the one in the index.
    pub(crate) fn check_count(&self, samples: u64, offset: u64) -> Result<()> {
        match u64::from(self.number(offset)?) {
            count if count == samples => Ok(()),
            count => {
                let what = format!("the head says {count} samples, and the index {samples}");
                Err(self.corrupt(what, offset))
            }
        }
    }

    /// Reads `u32 N; u32 offsets[N + 1]`, little endian, from the beginning of the file. Checks that the offsets
    /// ascend, begin after the table and end inside the file, and that N is `samples`.
    pub(crate) fn read_offsets(&self, samples: u64) -> Result<Box<[u32]>> {
        self.check_count(samples, 0)?;
        self.read_ascending(OFFSETS_AT, samples, OFFSETS_AT + 4 * (samples + 1), self.size)
    }

    /// Reads `u32 offsets[count + 1]`, little endian, starting at `start`: ascending, none below `least`, none above
    /// `most`.
    pub(crate) fn read_ascending(&self, start: u64, count: u64, least: u64, most: u64) -> Result<Box<[u32]>> {
        let table_end = start + 4 * (count + 1);
        if table_end > self.size {
            let what = format!("a table of {count} samples does not fit into the {} bytes of the file", self.size);
            return Err(Error::new(ErrorKind::Truncated, what).with_path(&self.path).with_offset(self.size));
        }
        // Bounded by the length of the file, which contains the table.
        let mut offsets = Vec::with_capacity((count + 1) as usize);
        let mut piece = vec![0; PIECE_BYTES.min((table_end - start) as usize)];
        let mut at = start;
        let mut least = least;
        while at < table_end {
            let len = piece.len().min((table_end - at) as usize);
            self.read(&mut piece[..len], at)?;
            for bytes in piece[..len].chunks_exact(4) {
                let offset = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let place = start + 4 * offsets.len() as u64;
                if u64::from(offset) < least {
                    let what = format!("sample {} begins at {offset}, before {least}", offsets.len());
                    return Err(self.corrupt(what, place));
                }
                if u64::from(offset) > most {
                    let what = format!("the offset {offset} is past the end at {most}");
                    return Err(self.corrupt(what, place));
                }
                least = offset.into();
                offsets.push(offset);
            }
            at += len as u64;
        }
        Ok(offsets.into_boxed_slice())
    }
}

impl Stream<'_> {
    fn read(&mut self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(before) = offset.checked_sub(self.at) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let skipped = io::copy(&mut self.reader.by_ref().take(before), &mut io::sink())?;
        self.at += skipped;
        if skipped < before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.reader.read_exact(into)?;
        self.at += into.len() as u64;
        Ok(())
    }
}

/// Where the table of offsets begins.
pub(crate) const OFFSETS_AT: u64 = 4;

/// Bytes of a table per read: a multiple of 4.
const PIECE_BYTES: usize = 256 << 10;
