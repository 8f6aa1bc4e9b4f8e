//! How the files of a dataset are opened: relative to which folder, with which flags.

use crate::dataset::{Dataset, FileId};
use crate::{Error, Result};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uringload_sys::file::{self, OpenFlags};

/// The files of a dataset, for engines.
pub(super) struct Files {
    dataset: Arc<dyn Dataset>,
    roots: Vec<Arc<OwnedFd>>,
    direct: bool,
    /// Whether reads of these files may block the thread that submits them (FUSE and its kin).
    blocking: bool,
    /// Cleared at the first file that belongs to somebody else.
    noatime: AtomicBool,
}

impl Files {
    /// Opens the roots.
    ///
    /// # Errors
    /// Names the root that is gone or closed to this process.
    pub(super) fn new(dataset: Arc<dyn Dataset>, direct: bool, blocking: bool) -> Result<Files> {
        let open = |root: &PathBuf| {
            let folder = file::open_folder(root);
            folder.map(Arc::new).map_err(|source| Error::io("cannot open the folder", source).with_path(root))
        };
        let roots = dataset.files().roots().iter().map(open).collect::<Result<_>>()?;
        Ok(Files { dataset, roots, direct, blocking, noatime: AtomicBool::new(true) })
    }

    /// Files that may be open at once as plain descriptors: a quarter of what the process may have.
    pub(super) fn open_at_once() -> usize {
        (uringload_sys::system::open_files_limit().soft.unwrap_or(u64::MAX).min(4096) as usize / 4).max(4)
    }

    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.dataset.files().len()
    }

    /// The folder that the file's path is relative to, and the path.
    pub(super) fn place(&self, file: FileId) -> (&Arc<OwnedFd>, &[u8]) {
        let files = self.dataset.files();
        (&self.roots[files.root_of(file)], files.name(file))
    }

    /// Where the file is, for people.
    pub(super) fn path(&self, file: FileId) -> PathBuf {
        self.dataset.files().path(file)
    }

    /// How to open the files.
    pub(super) fn flags(&self) -> OpenFlags {
        // O_NONBLOCK means nothing to a regular file, and keeps a FIFO that took its place from holding the open up.
        let nonblock = !self.blocking;
        OpenFlags::default().direct(self.direct).noatime(self.noatime.load(Ordering::Relaxed)).nonblock(nonblock)
    }

    /// Whether a read must be left to a kernel worker, because it could block the submitting thread.
    pub(super) fn must_not_block(&self) -> bool {
        self.blocking
    }

    /// Learns from an open with `flags` that failed: true if there is another way to open the file, which `flags` now
    /// gives. Many opens may have been under way when the first of them failed; each has its second try, and no third.
    pub(super) fn learn(&self, flags: OpenFlags, error: &io::Error) -> bool {
        // O_NOATIME is only for a file's owner: open(2).
        let refused = flags.noatime && error.raw_os_error() == Some(EPERM);
        if refused {
            self.noatime.store(false, Ordering::Relaxed);
        }
        refused
    }

    /// Opens a file as a plain descriptor.
    pub(super) fn open(&self, id: FileId) -> io::Result<OwnedFd> {
        let (folder, path) = self.place(id);
        // Reads of a regular file block whatever O_NONBLOCK says; leaving it set saves a system call a file.
        let flags = self.flags().nonblock(true);
        let opened = file::open(folder.as_fd(), path, flags)?;
        if flags.noatime && !opened.flags.noatime {
            self.noatime.store(false, Ordering::Relaxed);
        }
        Ok(opened.file)
    }
}

const EPERM: i32 = 1;
