//! Writes an archive under a temporary name, in large pieces past the page cache. It gets its final name when it is
//! complete and on the disk.

use super::UNIT_BYTES;
use super::header::{self, BLOCK_BYTES};
use super::layout::Member;
use super::plan::END_BYTES;
use crate::{Error, Result};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uringload_sys::file::write_once_at;

/// The error of a kernel or a file system without `RWF_DONTCACHE`.
const EOPNOTSUPP: i32 = 95;

/// Bytes that are written at a time.
const PIECE_BYTES: usize = 4 << 20;

/// An archive in progress. Deleted by drop unless it was finished.
pub(super) struct Archive {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
    buffer: Buffer,
    /// Bytes that were written before those in the buffer.
    written: u64,
    is_finished: bool,
    /// The headers of a member.
    headers: Vec<u8>,
}

/// Memory that is aligned to units, as writes past the page cache require.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Buffer {
    fn new() -> Buffer {
        let unit = UNIT_BYTES as usize;
        let memory = vec![0; PIECE_BYTES + unit];
        let start = memory.as_ptr().addr().next_multiple_of(unit) - memory.as_ptr().addr();
        Buffer { memory, start, filled: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.filled]
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.start + self.filled..self.start + PIECE_BYTES]
    }
}

impl Archive {
    /// Begins the archive that will be at `path`.
    ///
    /// # Errors
    /// Why no file can be created beside it.
    pub(super) fn create(path: PathBuf) -> Result<Archive> {
        let temporary = temporary_of(&path);
        let open = |flags: OFlags| {
            let flags = flags.bits().cast_signed();
            File::options().write(true).create_new(true).custom_flags(flags).open(&temporary)
        };
        // A filesystem without direct writes refuses them here or at the first one.
        let file = match open(OFlags::DIRECT) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                // The name is created before the flag is checked.
                let _ = fs::remove_file(&temporary);
                open(OFlags::empty())
            }
            opened => opened,
        };
        let file = file.map_err(|source| failed(&path, source))?;
        // The lock keeps other jobs from deleting the file as a leftover. If files cannot be locked, that may happen.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let buffer = Buffer::new();
        Ok(Archive { file, path, temporary, buffer, written: 0, is_finished: false, headers: Vec::new() })
    }

    /// Bytes so far.
    pub(super) fn position(&self) -> u64 {
        self.written + self.buffer.filled as u64
    }

    /// Adds a member, with its padding.
    ///
    /// # Errors
    /// Why it cannot be written: most likely the disk is full.
    pub(super) fn push(&mut self, member: &Member) -> Result<()> {
        let mut headers = std::mem::take(&mut self.headers);
        headers.clear();
        header::write(&member.name, member.len, member.padding, &mut headers);
        let pushed = [&headers[..], &member.head, &member.value].into_iter().try_for_each(|bytes| self.write(bytes));
        self.headers = headers;
        pushed.and_then(|()| self.fill_up(BLOCK_BYTES)).map_err(|source| failed(&self.path, source))
    }

    /// Leaves `bytes` bytes, whole units, for a head that is written at the end.
    pub(super) fn leave_head(&mut self, bytes: u64) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let taken = left.min(UNIT_BYTES);
            self.write(&[0; UNIT_BYTES as usize][..taken as usize]).map_err(|source| failed(&self.path, source))?;
            left -= taken;
        }
        Ok(())
    }

    /// Adds bytes as they are.
    ///
    /// # Errors
    /// As [`Archive::push`].
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes).map_err(|source| failed(&self.path, source))
    }

    /// Ends a file of another format: writes `head` (whole units) at its start, syncs it, and gives it its name.
    /// Returns its bytes.
    ///
    /// # Errors
    /// As [`Archive::push`].
    pub(super) fn finish_with_head(mut self, head: &[u8]) -> Result<u64> {
        let bytes = self.position();
        let mut put = || {
            self.fill_up(UNIT_BYTES)?;
            self.flush()?;
            self.written = 0;
            for piece in head.chunks(PIECE_BYTES / 2) {
                self.write(piece)?;
                self.flush()?;
            }
            // The padding up to a whole unit is not part of the file.
            self.file.set_len(bytes)?;
            self.file.sync_all()?;
            fs::rename(&self.temporary, &self.path)
        };
        put().map_err(|source| failed(&self.path, source))?;
        self.is_finished = true;
        sync_folder(&self.path).map_err(|source| failed(&self.path, source))?;
        Ok(bytes)
    }

    /// Ends the archive, syncs it, and gives it its name. Returns its bytes.
    ///
    /// # Errors
    /// As [`Archive::push`].
    pub(super) fn finish(mut self) -> Result<u64> {
        let finished = self
            .write(&[0; END_BYTES as usize])
            // Whole units, so that reads past the page cache do not end within one.
            .and_then(|()| self.fill_up(UNIT_BYTES))
            .and_then(|()| self.flush())
            .and_then(|()| self.file.sync_all())
            .and_then(|()| fs::rename(&self.temporary, &self.path));
        finished.map_err(|source| failed(&self.path, source))?;
        self.is_finished = true;
        sync_folder(&self.path).map_err(|source| failed(&self.path, source))?;
        Ok(self.written)
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.buffer.room();
            let taken = bytes.len().min(room.len());
            room[..taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.buffer.filled += taken;
            if self.buffer.filled == PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends zeros up to the next multiple.
    fn fill_up(&mut self, multiple: u64) -> io::Result<()> {
        let missing = self.position().next_multiple_of(multiple) - self.position();
        self.write(&[0; UNIT_BYTES as usize][..missing as usize])
    }

    /// Writes the buffer, always in whole units.
    fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.buffer.filled {
            match self.write_at(&self.buffer.bytes()[done..], self.written + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.go_through_page_cache(error)?,
                Err(error) => return Err(error),
            }
        }
        self.written += done as u64;
        self.buffer.filled = 0;
        Ok(())
    }

    /// Writes through the page cache leave data there that is not needed; avoids that if possible.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if fcntl_getfl(&self.file)?.contains(OFlags::DIRECT) {
            return self.file.write_at(bytes, offset);
        }
        match write_once_at(self.file.as_fd(), bytes, offset) {
            Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => self.file.write_at(bytes, offset),
            written => written,
        }
    }

    /// Switches to the page cache if direct writes are refused, or one ended within a unit.
    fn go_through_page_cache(&self, refused: io::Error) -> io::Result<()> {
        let flags = fcntl_getfl(&self.file)?;
        if !flags.contains(OFlags::DIRECT) {
            return Err(refused);
        }
        Ok(fcntl_setfl(&self.file, flags - OFlags::DIRECT)?)
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if !self.is_finished {
            // If it cannot be deleted, it stays under a name that the next run deletes.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// The temporary name of `path`.
pub(super) fn temporary_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    path.with_file_name(name)
}

/// Syncs the names in the folder of `path`.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot sync folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// The error of a write there.
pub(super) fn failed(path: &Path, source: io::Error) -> Error {
    let remedy = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on its disk and run it again: shards that are whole are kept"
        }
        io::ErrorKind::FileTooLarge => "ask for smaller shards, or raise the limit (ulimit -f)",
        io::ErrorKind::PermissionDenied => "name a folder that this process may write to",
        _ => "mend that and run it again: shards that are whole are kept",
    };
    Error::io("cannot write", source).with_path(path).with_remedy(remedy)
}
