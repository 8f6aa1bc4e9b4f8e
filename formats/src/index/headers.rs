//! Reads what an index needs from the files themselves: headers, directories and tables, never samples.

use crate::dataset::{FileId, FileTable, Stamp};
use crate::index::opened::{Content, Reader, opened};
use crate::parallel::try_in_parallel;
use crate::place::Place;
use crate::watched::asking;
use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// Bytes per read when passing over a range: enough for the throughput of a disk with several threads.
const PIECE_BYTES: u64 = 1 << 20;
/// Number of first bytes that identify a file's format.
const HEAD_BYTES: u64 = 9;

/// An open file that is read in parts.
#[derive(Debug)]
pub(crate) struct Source {
    content: Content,
    place: Place,
    size: u64,
}

impl Source {
    /// Opens a file of a dataset, which must be the one that was found.
    pub(crate) fn open(files: &FileTable, file: FileId) -> Result<Source> {
        let source = Source { size: files.size(file), ..Source::to_scan(files, file)? };
        source.advise_random();
        Ok(source)
    }

    /// As `open`, for one that is read from its beginning to its end.
    pub(super) fn to_scan(files: &FileTable, file: FileId) -> Result<Source> {
        let place = files.at(file);
        let content = opened(&place, "cannot open")?;
        match content.version() {
            None => files.is_still(file, content.identity(), || content.inodes_vary())?,
            Some(version) => files.is_object(file, version, content.size())?,
        }
        Ok(Source { size: content.size(), content, place })
    }

    /// Only headers are looked at.
    pub(super) fn advise_random(&self) {
        // Without read-ahead: looking at a header must not pull the rest of a file into the page cache, because cached
        // data is not read from the disk. A file system that ignores the advice reads ahead, which is harmless.
        self.content.advise_random();
    }

    /// What the file is known by.
    pub(crate) fn stamp(&self) -> Stamp {
        self.content.stamp()
    }

    /// For who goes from one end to the other.
    pub(crate) fn into_reader(self) -> Reader {
        Reader::new(self.content, self.place)
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Fills `into` with the bytes at `offset`. `what` names them in errors ("the header").
    pub(crate) fn read(&self, offset: u64, into: &mut [u8], what: &str) -> Result<()> {
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.size) {
            return Err(self.truncated(what));
        }
        let _asking = asking(self.path());
        self.content.read_exact_at(into, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.truncated(what),
            _ => Error::io(format!("cannot read {what}"), error).with_path(&self.place).with_offset(offset),
        })
    }

    /// Reads up to `into.len()` bytes at `offset`; fewer at the end of the file.
    pub(super) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let _asking = asking(self.path());
        self.content.read_at(into, offset)
    }

    /// Reads `len` bytes at `offset`. Allocates no memory for bytes that the file does not have.
    pub(crate) fn bytes(&self, offset: u64, len: usize, what: &str) -> Result<Vec<u8>> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.size) {
            return Err(self.truncated(what));
        }
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Fills `into` with a few bytes at `offset` and leaves the page cache as it was: who only looks at a file must not
    /// change how it is read later.
    pub(crate) fn glance(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let len = into.len() as u64;
        let was_cached = self.content.is_cached(offset, len);
        self.read(offset, into, "what was to be looked at")?;
        if !was_cached {
            self.content.forget(offset, len);
        }
        Ok(())
    }

    /// Calls `each` with the bytes of a range, piece by piece, until it returns false. Returns whether it never did.
    /// Leaves the page cache as it was, if the kernel reports its state and takes advice.
    pub(crate) fn pass(&self, range: Range<u64>, what: &str, mut each: impl FnMut(&[u8]) -> bool) -> Result<bool> {
        let (start, len) = (range.start, range.end.saturating_sub(range.start));
        if range.end > self.size {
            return Err(self.truncated(what));
        }
        let was_cached = self.content.is_cached(start, len);
        self.content.advise_sequential();
        // Fits: at most one piece.
        let mut piece = vec![0; PIECE_BYTES.min(len) as usize];
        let mut at = start;
        while at < range.end {
            let part = &mut piece[..PIECE_BYTES.min(range.end - at) as usize];
            self.read(at, part, what)?;
            if !was_cached {
                self.content.forget(at, part.len() as u64);
            }
            if !each(part) {
                return Ok(false);
            }
            at += part.len() as u64;
        }
        Ok(true)
    }

    /// The error for a file that ends within `what`.
    pub(crate) fn truncated(&self, what: &str) -> Error {
        Error::new(ErrorKind::Truncated, format!("the file ends within {what}"))
            .with_path(&self.place)
            .with_offset(self.size)
            .with_remedy("fetch or write the file again")
    }

    /// The error for content at `offset` that breaks the format.
    pub(crate) fn corrupt(&self, offset: u64, what: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Corrupt, what).with_path(&self.place).with_offset(offset)
    }

    /// The error for content that is sound but not supported.
    pub(crate) fn unavailable(&self, offset: u64, what: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Unavailable, what).with_path(&self.place).with_offset(offset)
    }
}

/// Adds to `what` that its offset counts decoded bytes, not those of the file.
pub(crate) fn decoded(what: impl std::fmt::Display) -> Cow<'static, str> {
    format!("{what} (the offset counts decoded bytes)").into()
}

impl Place {
    /// Opens the file that is there.
    ///
    /// # Errors
    /// `WrongFileType` for anything but a regular file; what the system says.
    pub(crate) fn open(&self) -> Result<Source> {
        let content = opened(self, "cannot open")?;
        let source = Source { size: content.size(), content, place: self.clone() };
        source.advise_random();
        Ok(source)
    }

    /// Opens the file that is there, to read it from its beginning.
    ///
    /// # Errors
    /// As for `open`.
    pub(crate) fn reader(&self) -> Result<Reader> {
        Ok(Reader::new(opened(self, "cannot open")?, self.clone()))
    }
}

/// The first bytes of a file, at most [`HEAD_BYTES`]; none if it cannot be read.
pub(crate) fn head(place: &Place) -> Vec<u8> {
    let mut head = Vec::new();
    if let Ok(reader) = place.reader() {
        // Bytes read before an error still count: the opening of the file gets the error.
        let _ = reader.take(HEAD_BYTES).read_to_end(&mut head);
    }
    head
}

/// Applies `work` to a range of files, with this many threads. Results are in file order.
///
/// # Errors
/// That of the first file, by number, for which `work` fails.
pub(crate) fn map_files<T: Send>(
    files: Range<u32>,
    threads: usize,
    work: impl Fn(FileId) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    try_in_parallel(&files.map(FileId).collect::<Vec<_>>(), threads, |&file| work(file))
}

/// The 2 bytes at `at`, little endian. `at + 2` is within `bytes`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The 4 bytes at `at`, little endian. `at + 4` is within `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// The 8 bytes at `at`, little endian. `at + 8` is within `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian() {
        let bytes = [9, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!((u16_at(&bytes, 1), u32_at(&bytes, 1)), (0x0201, 0x0403_0201));
        assert_eq!(u64_at(&bytes, 1), 0x0807_0605_0403_0201);
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [fifo, folder.path().to_path_buf()] {
            assert_eq!(Place::new(path).open().unwrap_err().kind(), ErrorKind::WrongFileType);
        }
    }
}
