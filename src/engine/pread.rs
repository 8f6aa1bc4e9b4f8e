//! The engine for systems without io_uring: threads that call `pread(2)`. It is also the faster one for files in the
//! page cache, where a read is a copy and a second processor can copy too.

use super::Read;
use super::files::{Files, OpenFile};
use super::threads::Reader;
use crate::dataset::FileId;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use uringload_sys::file::read_at;

/// If a dataset has at most this many files, each is opened once and stays open.
const FILES_KEPT_OPEN: usize = 256;

/// Reads with `pread(2)`.
pub(super) struct Pread {
    files: Arc<Files>,
    /// The dataset's files if there are few. Empty if each thread opens what it reads.
    kept: Vec<OnceLock<OpenFile>>,
}

impl Pread {
    /// Creates a reader of these files.
    pub(super) fn new(files: Arc<Files>) -> Pread {
        let kept = if files.len() <= FILES_KEPT_OPEN.min(Files::open_at_once()) { files.len() } else { 0 };
        Pread { files, kept: (0..kept).map(|_| OnceLock::new()).collect() }
    }

    fn open(&self, file: FileId, opening: &AtomicBool) -> io::Result<OpenFile> {
        opening.store(true, Ordering::Relaxed);
        let file = self.files.open(file);
        opening.store(false, Ordering::Relaxed);
        file
    }

    fn read_open(&self, read: &mut Read, file: &OpenFile) -> io::Result<usize> {
        let bytes = read_at(file.as_fd(), read.part.as_mut(), read.offset)?;
        self.files.check_again(read.file, file)?;
        Ok(bytes)
    }
}

impl Reader for Pread {
    /// The last file read.
    type Own = Option<(FileId, OpenFile)>;

    fn read(&self, read: &mut Read, last: &mut Self::Own, opening: &AtomicBool) -> io::Result<usize> {
        if let Some(kept) = self.kept.get(read.file.0 as usize) {
            let file = match kept.get() {
                Some(file) => file,
                None => {
                    let file = self.open(read.file, opening)?;
                    kept.get_or_init(|| file)
                }
            };
            return self.read_open(read, file);
        }
        if last.as_ref().is_none_or(|(file, _)| *file != read.file) {
            // Close the file before opening the next: a thread holds one descriptor.
            *last = None;
            *last = Some((read.file, self.open(read.file, opening)?));
        }
        match last {
            Some((_, file)) => self.read_open(read, file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
