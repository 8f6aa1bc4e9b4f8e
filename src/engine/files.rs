//! How to open the files of a dataset: relative to which folder, and with which flags.

use super::roots::Roots;
use crate::Result;
use crate::dataset::{Dataset, FileId};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uringload_sys::file::{self, OpenFlags};

/// A dataset's files, as engines open them.
pub(super) struct Files {
    dataset: Arc<dyn Dataset>,
    roots: Arc<Roots>,
    direct: bool,
    /// Whether reads of these files may block the submitting thread (FUSE and similar).
    blocking: bool,
    /// Cleared at the first file that belongs to another user.
    noatime: AtomicBool,
}

impl Files {
    /// Opens the root folders.
    ///
    /// # Errors
    /// Names the root that is missing or that this process may not open.
    pub(super) fn new(dataset: Arc<dyn Dataset>, direct: bool, blocking: bool) -> Result<Files> {
        let roots = Arc::new(Roots::open(Arc::clone(&dataset))?);
        Ok(Files { dataset, roots, direct, blocking, noatime: AtomicBool::new(true) })
    }

    /// How many files may be open at once as plain descriptors: a quarter of the process's limit.
    pub(super) fn open_at_once() -> usize {
        (uringload_sys::system::open_files_limit().soft.unwrap_or(u64::MAX).min(4096) as usize / 4).max(4)
    }

    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.dataset.files().len()
    }

    /// The file's root folder, and its path relative to that folder.
    pub(super) fn place(&self, file: FileId) -> (Arc<OwnedFd>, &[u8]) {
        let files = self.dataset.files();
        (self.roots.folder(files.root_of(file)), files.name(file))
    }

    /// Why no file of the root of `file` can be found, if that is so: see [`Engine::lost`](super::Engine::lost).
    pub(super) fn lost(&self, file: FileId) -> Option<String> {
        self.roots.lost(file)
    }

    /// Opens the root of `file` again, without waiting for it.
    pub(super) fn reopen_root(&self, file: FileId) {
        self.roots.reopen(file);
    }

    /// The file's path, for messages.
    pub(super) fn path(&self, file: FileId) -> PathBuf {
        self.dataset.files().path(file)
    }

    /// Flags to open files with.
    pub(super) fn flags(&self) -> OpenFlags {
        // O_NONBLOCK has no effect on a regular file. If a FIFO has taken its place, it keeps the open from blocking.
        let nonblock = !self.blocking;
        OpenFlags::default().direct(self.direct).noatime(self.noatime.load(Ordering::Relaxed)).nonblock(nonblock)
    }

    /// Whether reads must go to a kernel worker because they could block the submitting thread.
    pub(super) fn must_not_block(&self) -> bool {
        self.blocking
    }

    /// Learns from an open with `flags` that failed. Returns true if there is another way to open the file, which the
    /// method `flags` now gives. Many opens may have been in progress when the first one failed; each gets a second try
    /// and no third.
    pub(super) fn learn(&self, flags: OpenFlags, error: &io::Error) -> bool {
        // Only the owner of a file may use O_NOATIME: open(2).
        let refused = flags.noatime && error.raw_os_error() == Some(EPERM);
        if refused {
            self.noatime.store(false, Ordering::Relaxed);
        }
        refused
    }

    /// Opens a file as a plain descriptor.
    pub(super) fn open(&self, id: FileId) -> io::Result<OwnedFd> {
        let (folder, path) = self.place(id);
        // Reads of a regular file block whatever O_NONBLOCK says. Leaving it set saves one system call per file.
        let flags = self.flags().nonblock(true);
        let opened = file::open(folder.as_fd(), path, flags)?;
        if flags.noatime && !opened.flags.noatime {
            self.noatime.store(false, Ordering::Relaxed);
        }
        Ok(opened.file)
    }
}

/// Whether the process or the system has no descriptor left.
pub(super) fn has_no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

const EPERM: i32 = 1;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
