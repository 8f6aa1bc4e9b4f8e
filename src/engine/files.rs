//! Opens the files of a dataset (relative to which folder, with which flags), and checks whether they are still those
//! that were indexed.

use super::roots::Roots;
use crate::Result;
use crate::config::CHECK_EVERY;
use crate::dataset::{Dataset, FileId};
use crate::patience::Patience;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload_sys::file::{self, Identity, OpenFlags};

/// A dataset's files, as engines open them.
pub(crate) struct Files {
    dataset: Arc<dyn Dataset>,
    roots: Arc<Roots>,
    direct: bool,
    /// Whether reads of these files may block the submitting thread (FUSE and similar).
    blocking: bool,
    /// Cleared at the first file that belongs to another user.
    noatime: AtomicBool,
    /// Whether reads leave nothing in the page cache.
    read_once: AtomicBool,
    /// How long the result of a check of an open file is valid.
    check_every: Duration,
    /// When this was created; other times are relative to it.
    start: Instant,
}

/// An open file that matched the index when it was last checked.
pub(crate) struct OpenFile {
    file: OwnedFd,
    /// When that was, in nanoseconds since [`Files::start`].
    checked: AtomicU64,
}

impl From<OpenFile> for OwnedFd {
    fn from(open: OpenFile) -> OwnedFd {
        open.file
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Files {
    /// Opens the root folders.
    ///
    /// # Errors
    /// Names the root that is missing, that this process may not open, or that does not answer.
    pub(crate) fn new(dataset: Arc<dyn Dataset>, direct: bool, blocking: bool, patience: &Patience) -> Result<Files> {
        let roots = Arc::new(Roots::open(Arc::clone(&dataset), patience.clone())?);
        Ok(Files {
            dataset,
            roots,
            direct,
            blocking,
            noatime: AtomicBool::new(true),
            read_once: AtomicBool::new(false),
            check_every: CHECK_EVERY,
            start: Instant::now(),
        })
    }

    /// Sets how long the result of a check of an open file is valid.
    #[must_use]
    pub(crate) fn checked_every(self, check_every: Duration) -> Files {
        Files { check_every, ..self }
    }

    /// How long the result of a check is valid.
    pub(crate) fn check_every(&self) -> Duration {
        self.check_every
    }

    /// How many files may be open at once as plain descriptors: a quarter of the process's limit.
    pub(crate) fn open_at_once() -> usize {
        (uringload_sys::system::open_files_limit().soft.unwrap_or(u64::MAX).min(4096) as usize / 4).max(4)
    }

    /// Number of files.
    pub(crate) fn len(&self) -> usize {
        self.dataset.files().len()
    }

    /// The file's root folder, and its path relative to that folder.
    pub(crate) fn place(&self, file: FileId) -> (Arc<OwnedFd>, &[u8]) {
        let files = self.dataset.files();
        (self.roots.folder(files.root_of(file)), files.name(file))
    }

    /// Why no file of the root of `file` can be found, if none can: see [`Engine::lost`](super::Engine::lost).
    pub(crate) fn lost(&self, file: FileId) -> Option<String> {
        self.roots.lost(file)
    }

    /// Opens the root of `file` again, without waiting for it.
    pub(crate) fn reopen_root(&self, file: FileId) {
        self.roots.reopen(file);
    }

    /// The file's path, for messages.
    pub(crate) fn path(&self, file: FileId) -> PathBuf {
        self.dataset.files().path(file)
    }

    /// Flags to open files with.
    pub(crate) fn flags(&self) -> OpenFlags {
        // O_NONBLOCK has no effect on a regular file. If a FIFO has taken its place, it keeps the open from blocking.
        let nonblock = !self.blocking;
        OpenFlags::default().direct(self.direct).noatime(self.noatime.load(Ordering::Relaxed)).nonblock(nonblock)
    }

    /// Whether reads must go to a kernel worker because they could block the submitting thread.
    pub(crate) fn must_not_block(&self) -> bool {
        self.blocking
    }

    /// Learns from a failed open with `flags`. Returns true if there is another way to open the file, which `flags`
    /// then returns. Many opens may have been in progress when the first one failed; each gets a second try and no
    /// third.
    pub(crate) fn learn(&self, flags: OpenFlags, error: &io::Error) -> bool {
        // Only the owner of a file may use O_NOATIME: open(2).
        let refused = flags.noatime && error.raw_os_error() == Some(EPERM);
        if refused {
            self.noatime.store(false, Ordering::Relaxed);
        }
        refused
    }

    /// Checks that `found` is the file that was indexed.
    ///
    /// # Errors
    /// Carries the [`Error`] that says how it differs.
    pub(crate) fn check(&self, id: FileId, found: &Identity) -> io::Result<()> {
        let inodes_vary = || file::inodes_vary(self.place(id).0.as_fd());
        self.dataset.files().is_still(id, found, inodes_vary).map_err(io::Error::other)
    }

    /// Checks that the file at its path is the one that was indexed. If `is_open`, it may also have been removed.
    ///
    /// # Errors
    /// As [`check`](Files::check), or the system's error for the path.
    pub(crate) fn check_path(&self, id: FileId, is_open: bool) -> io::Result<()> {
        let (folder, path) = self.place(id);
        match Identity::at(folder.as_fd(), path) {
            Ok(found) => self.check(id, &found),
            Err(error) if is_open && error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_removed(&self, id: FileId) -> bool {
        let (folder, path) = self.place(id);
        Identity::at(folder.as_fd(), path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Checks again, after a read, that an open file is still the one that was indexed, unless that was done less than
    /// [`CHECK_EVERY`] ago, or the user's interval instead.
    ///
    /// # Errors
    /// As [`check`](Files::check).
    pub(crate) fn check_again(&self, id: FileId, file: &OpenFile) -> io::Result<()> {
        let now = self.start.elapsed().as_nanos() as u64;
        // Relaxed: this is only a time, and two threads may both check.
        if now.saturating_sub(file.checked.load(Ordering::Relaxed)) < self.check_every.as_nanos() as u64 {
            return Ok(());
        }
        let changed = self.check(id, &Identity::known_of(file.as_fd())?);
        // Removing a file changes it too, but open descriptors of it stay valid.
        if changed.is_err() && !self.is_removed(id) {
            return changed;
        }
        file.checked.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Sets whether reads leave nothing in the page cache.
    pub(crate) fn read_once(&self, read_once: bool) {
        self.read_once.store(read_once, Ordering::Relaxed);
    }

    /// Reads from an open file.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn read_at(&self, file: &OpenFile, into: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.read_once.load(Ordering::Relaxed) {
            match file::read_once_at(file.as_fd(), into, offset) {
                // A mount below the root cannot do this, although the file system that was asked can.
                Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => {}
                read => return read,
            }
        }
        file::read_at(file.as_fd(), into, offset)
    }

    /// Opens a file as a plain descriptor, if it still is the file that was indexed.
    ///
    /// # Errors
    /// What the system reports, and those of [`check`](Files::check).
    pub(crate) fn open(&self, id: FileId) -> io::Result<OpenFile> {
        let (folder, path) = self.place(id);
        // Reads of a regular file block whatever O_NONBLOCK says. Leaving it set saves one system call per file.
        let flags = self.flags().nonblock(true);
        let opened = file::open(folder.as_fd(), path, flags)?;
        if flags.noatime && !opened.flags.noatime {
            self.noatime.store(false, Ordering::Relaxed);
        }
        self.check(id, &opened.identity)?;
        Ok(OpenFile { file: opened.file, checked: AtomicU64::new(self.start.elapsed().as_nanos() as u64) })
    }
}

/// Whether the process or the system has no descriptor left.
pub(crate) fn has_no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

const EPERM: i32 = 1;
const ENFILE: i32 = 23;
const EOPNOTSUPP: i32 = 95;
const EMFILE: i32 = 24;
