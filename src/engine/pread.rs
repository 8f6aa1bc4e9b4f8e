//! The engine for systems without io_uring: threads that call `pread(2)`. It is also the faster one for files in the
//! page cache, where a read is a copy and a second processor can copy too.

use super::Read;
use super::files::{Files, has_no_descriptor};
use super::threads::Reader;
use crate::dataset::FileId;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// If a dataset has at most this many files, each is opened once and stays open.
const FILES_KEPT_OPEN: usize = 256;

/// Reads with `pread(2)`.
pub(super) struct Pread {
    files: Arc<Files>,
    /// The dataset's files if there are few. Empty if each thread opens what it reads.
    kept: Vec<RwLock<Option<Arc<File>>>>,
    /// How often files were let go of. What a thread holds from before is not used any more.
    renewed: AtomicU64,
}

/// The file that a thread read last.
pub(super) struct Last {
    id: FileId,
    file: Opened,
    /// [`Pread::renewed`] when it was opened.
    renewed: u64,
}

/// An open file.
enum Opened {
    /// Kept for all threads.
    Kept(Arc<File>),
    /// Of one thread.
    Own(File),
}

impl Pread {
    /// Creates a reader of these files.
    pub(super) fn new(files: Arc<Files>) -> Pread {
        let kept = if files.len() <= FILES_KEPT_OPEN.min(Files::open_at_once()) { files.len() } else { 0 };
        Pread { files, kept: (0..kept).map(|_| RwLock::default()).collect(), renewed: AtomicU64::new(0) }
    }

    /// The file, from those that are kept or newly opened.
    fn file(&self, id: FileId, opening: &AtomicBool) -> io::Result<Opened> {
        let kept = self.kept.get(id.0 as usize);
        if let Some(kept) = kept
            && let Some(file) = &*kept.read().unwrap_or_else(PoisonError::into_inner)
        {
            return Ok(Opened::Kept(Arc::clone(file)));
        }
        opening.store(true, Ordering::Relaxed);
        let mut file = self.files.open(id);
        if file.as_ref().is_err_and(has_no_descriptor) && self.let_go() {
            file = self.files.open(id);
        }
        opening.store(false, Ordering::Relaxed);
        let file = File::from(file?);
        let Some(kept) = kept else { return Ok(Opened::Own(file)) };
        let file = Arc::new(file);
        *kept.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&file));
        Ok(Opened::Kept(file))
    }

    /// Closes all files that are kept, because the process has no descriptor left. Returns whether there were any.
    fn let_go(&self) -> bool {
        self.renewed.fetch_add(1, Ordering::Relaxed);
        let close =
            |kept: &RwLock<Option<Arc<File>>>| kept.write().unwrap_or_else(PoisonError::into_inner).take().is_some();
        self.kept.iter().fold(false, |any, kept| close(kept) | any)
    }
}

impl Reader for Pread {
    type Own = Option<Last>;

    fn read(&self, read: &mut Read, last: &mut Self::Own, opening: &AtomicBool) -> io::Result<usize> {
        let renewed = self.renewed.load(Ordering::Relaxed);
        if last.as_ref().is_none_or(|last| last.id != read.file || last.renewed != renewed) {
            // Close the file before opening the next: a thread holds one descriptor.
            *last = None;
            *last = Some(Last { id: read.file, file: self.file(read.file, opening)?, renewed });
        }
        match last {
            Some(Last { file: Opened::Own(file), .. }) => file.read_at(read.part.as_mut(), read.offset),
            Some(Last { file: Opened::Kept(file), .. }) => file.read_at(read.part.as_mut(), read.offset),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn lost(&self, file: FileId) -> Option<String> {
        self.files.lost(file)
    }

    fn renew(&self, file: FileId) {
        if let Some(kept) = self.kept.get(file.0 as usize) {
            *kept.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.renewed.fetch_add(1, Ordering::Relaxed);
        self.files.reopen_root(file);
    }
}
