//! Open files: what headers, scans and indexes are read from.

use crate::dataset::Stamp;
use crate::find::absent::advised;
use crate::index::object::Object;
use crate::place::Place;
use crate::watched::asking;
use rustix::fs::{Advice, CWD};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use uringload_core::store::Version;
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::file::{Identity, OpenFlags, advise_random, cachestat, inodes_vary};

/// The bytes of an open file, or of an object.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Bytes,
    /// As it was when it was opened.
    identity: Identity,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Object(Object),
}

impl Content {
    /// Opens a file only if it is a regular one: opening a FIFO would wait for a writer.
    ///
    /// # Errors
    /// What the system or the store says; `InvalidInput` for anything else.
    pub(crate) fn open(place: &Place) -> io::Result<Content> {
        let _asking = asking(place.path());
        if let Some(far) = place.as_far() {
            let object = Object::open(far)?;
            return Ok(Content { identity: object.identity(), bytes: Bytes::Object(object) });
        }
        // Reads of a regular file block whatever O_NONBLOCK says.
        let opened = uringload_sys::file::open(CWD, place.bytes(), OpenFlags::default().nonblock(true))?;
        Ok(Content { bytes: Bytes::File(opened.file.into()), identity: opened.identity })
    }

    /// The file that it is. That of an object stands for its version.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it is known by in a table of files.
    pub(crate) fn stamp(&self) -> Stamp {
        match &self.bytes {
            Bytes::File(_) => Stamp::of(&self.identity),
            Bytes::Object(object) => Stamp::of_version(object.version()),
        }
    }

    /// The version of an object, if it has one; `None` for a file.
    pub(super) fn version(&self) -> Option<Option<Version>> {
        match &self.bytes {
            Bytes::File(_) => None,
            Bytes::Object(object) => Some(object.version()),
        }
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.identity.size
    }

    /// Whether its file system gives the same file another inode from time to time.
    pub(crate) fn inodes_vary(&self) -> bool {
        self.file().is_some_and(inodes_vary)
    }

    /// Whether it is what it was when it was opened. Each read of an object asks for its version.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn is_unchanged(&self) -> io::Result<bool> {
        self.file().map_or(Ok(true), |file| Ok(Identity::of(file)? == self.identity))
    }

    /// Reads up to `into.len()` bytes at `offset`; fewer at the end.
    ///
    /// # Errors
    /// What the system or the store says.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.bytes {
            Bytes::File(file) => file.read_at(into, offset),
            Bytes::Object(object) => object.read_at(into, offset),
        }
    }

    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// What the system or the store says; `UnexpectedEof` if it ends before.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.bytes {
            Bytes::File(file) => file.read_exact_at(into, offset),
            Bytes::Object(object) if object.read_at(into, offset)? == into.len() => Ok(()),
            Bytes::Object(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether some of these bytes are in memory. If unknown, yes: pages that others need are worth more than pages
    /// that no one needs.
    pub(super) fn is_cached(&self, offset: u64, len: u64) -> bool {
        self.file().is_none_or(|file| cachestat(file, offset, len).map_or(true, |stat| stat.cached > 0))
    }

    /// Says that no more will be read than what is asked for. What takes no advice reads ahead.
    pub(super) fn advise_random(&self) {
        self.file().map(advise_random);
    }

    /// Says that it will be read from one end to the other. What takes no advice does without.
    pub(super) fn advise_sequential(&self) {
        self.advise(0, 0, Advice::Sequential);
    }

    /// Says that these bytes need not stay in memory.
    pub(super) fn forget(&self, offset: u64, len: u64) {
        self.advise(offset, len, Advice::DontNeed);
    }

    fn advise(&self, offset: u64, len: u64, advice: Advice) {
        self.file().map(|file| rustix::fs::fadvise(file, offset, NonZeroU64::new(len), advice));
    }

    /// The file itself, for who asks about its rights; none of an object.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.bytes {
            Bytes::File(file) => Some(file.as_fd()),
            Bytes::Object(_) => None,
        }
    }
}

/// Reads a file from its beginning to its end.
pub(crate) struct Reader {
    content: Content,
    place: Place,
    at: u64,
}

impl Reader {
    pub(super) fn new(content: Content, place: Place) -> Reader {
        Reader { content, place, at: 0 }
    }

    /// From `offset` on.
    pub(crate) fn from(self, offset: u64) -> Reader {
        Reader { at: offset, ..self }
    }
}

impl io::Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _asking = asking(self.place.path());
        let bytes = self.content.read_at(into, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

/// Opens a file that is a regular one. A FIFO would wait for a writer, and a device has no end. `failed` says what
/// cannot be done if this cannot.
///
/// # Errors
/// `WrongFileType` for anything else; the system's error.
pub fn open_regular(path: &Path, failed: &'static str) -> Result<File> {
    match opened(&Place::new(path), failed).map_err(advised)?.bytes {
        Bytes::File(file) => Ok(file),
        Bytes::Object(_) => unreachable!("a path is no object"),
    }
}

pub(super) fn opened(place: &Place, failed: &'static str) -> Result<Content> {
    Content::open(place).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            Error::new(ErrorKind::WrongFileType, "this is not a regular file").with_path(place)
        }
        _ => Error::io(failed, error).with_path(place),
    })
}

#[cfg(test)]
impl From<File> for Content {
    fn from(file: File) -> Content {
        let identity = Identity::of(file.as_fd()).unwrap();
        Content { bytes: Bytes::File(file), identity }
    }
}
