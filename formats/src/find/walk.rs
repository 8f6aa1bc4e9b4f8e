//! Finds the files below a folder and their sizes, in parallel.
//!
//! The same threads list folders and stat files, from one stack of tasks. Each thread appends its finds to parts of its
//! own; at the end, one sort of 8-byte references puts all names in byte order. Sources: getdents64(2), statx(2),
//! path_resolution(7).

use crate::dataset::{FileTable, SEGMENT_BYTES, SkipReason, Skips, Stamp, too_many_files};
use crate::find::objects;
use crate::parallel::{in_parallel, some_threads};
use crate::place::Place;
use crate::watched::asking;
pub(crate) use rustix::fs::FileType;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::mem::take;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use uringload_core::{Cause, Error, ErrorKind, Fallback, Result};
use uringload_sys::file::Identity;

/// Files per stat task: long compared with the lock that hands it out, short compared with a folder.
const TASK_FILES: usize = 512;
/// Most links to folders that are followed below one root. Folders that link to each other have a path for every order
/// in which they can be visited: with twenty of them, that takes practically for ever.
const FOLDER_LINKS_MAX: u64 = 1 << 18;
/// Buffer of one getdents64 call, in bytes: about a thousand names.
const LISTING_BYTES: usize = 64 << 10;

/// Appends every file below the folder `root` to `files`, sorted by the bytes of their relative paths.
pub(crate) fn walk(root: &Place, threads: usize, files: &mut FileTable, skips: &mut Skips) -> Result<()> {
    if let Some(far) = root.as_far() {
        return objects::add(root, far, threads, files, skips);
    }
    let root = root.path();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let asking = asking(root);
    let fd = rustix::fs::open(root, flags, Mode::empty())
        .map_err(|errno| Error::io("cannot open the folder", errno.into()).with_path(root))?;
    drop(asking);
    let walk = Walk {
        root: fd,
        root_path: root,
        folder_links: AtomicU64::new(0),
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    walk.state().tasks.push(Task::List(Folder { path: Vec::new(), parent: None, linked: false }));
    let mut fewer = None;
    let workers: Vec<Worker> = std::thread::scope(|scope| {
        let walk = &walk;
        let (handles, refused) = some_threads(scope, threads.max(1) - 1, move || walk.work());
        let got = || format!("{} of {threads} threads to list folders with", handles.len() + 1);
        fewer = refused.map(|error| Fallback::new(Cause::Threads, got(), Some(&error)));
        let mut workers = vec![walk.work()];
        for handle in handles {
            // A worker's panic is a bug; it continues in the caller's thread.
            workers.push(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        workers
    });
    if let Some(error) = walk.state().error.take() {
        return Err(error);
    }
    if let Some(fewer) = fewer {
        files.set_fallback(fewer);
    }
    let mut parts = Vec::new();
    for worker in workers {
        parts.extend(worker.parts);
        skips.append(worker.skips);
    }
    append_sorted(root, parts, files)
}

/// Puts the files of all parts into the table, sorted.
fn append_sorted(root: &Path, mut parts: Vec<Found>, files: &mut FileTable) -> Result<()> {
    files.push_root(root);
    let count = parts.iter().map(|part| part.files.len()).sum();
    let mut order: Vec<(u32, u32)> = Vec::with_capacity(count);
    for (number, part) in parts.iter_mut().enumerate() {
        part.segment = files.push_segment(take(&mut part.names)).ok_or_else(|| too_many_files(root))?;
        order.extend((0..part.files.len() as u32).map(|index| (number as u32, index)));
    }
    let name = |&(part, index): &(u32, u32)| {
        let part = &parts[part as usize];
        &files.segment(part.segment)[part.name(index as usize)]
    };
    // The stable sort, because it finds and merges runs, and each folder already is a run.
    order.sort_by(|a, b| name(a).cmp(name(b)));
    files.reserve_exact(count);
    for (part, index) in order {
        let (part, index) = (&parts[part as usize], index as usize);
        let (size, stamp) = part.files[index];
        files.push_in(part.segment, part.name(index), size, stamp).ok_or_else(|| too_many_files(root))?;
    }
    Ok(())
}

/// Type, size in bytes and stamp of a path's target.
pub(crate) type Measured = std::io::Result<(FileType, u64, Stamp)>;

/// State shared by all threads.
struct Walk<'a> {
    root: OwnedFd,
    root_path: &'a Path,
    folder_links: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A stack: a folder's sizes come before the next folder, so few folders are open at a time.
    tasks: Vec<Task>,
    /// Tasks in progress, which may still add new ones.
    running: usize,
    error: Option<Error>,
}

enum Task {
    List(Folder),
    Measure(Arc<Listing>, Range<usize>),
}

/// A folder to list.
struct Folder {
    /// Relative to the root; ends in a slash, or is empty for the root itself.
    path: Vec<u8>,
    parent: Option<Arc<Ancestor>>,
    /// Whether a symbolic link led here.
    linked: bool,
}

/// A folder on the path from the root, to detect links that lead back.
struct Ancestor {
    device: u64,
    inode: u64,
    parent: Option<Arc<Ancestor>>,
}

/// A folder whose names are known and whose files are being measured.
struct Listing {
    fd: OwnedFd,
    path: Vec<u8>,
    ancestor: Arc<Ancestor>,
    /// Names end to end, each followed by a NUL.
    names: Vec<u8>,
    /// Sorted by name.
    entries: Vec<Entry>,
}

struct Entry {
    start: usize,
    /// Without the NUL. A name has at most 255 bytes (`NAME_MAX`), or more on some network file systems.
    len: u16,
    kind: FileType,
}

/// What one thread has found.
#[derive(Default)]
struct Worker {
    parts: Vec<Found>,
    skips: Skips,
}

/// Files with their paths relative to the root.
#[derive(Default)]
struct Found {
    /// The names become a segment of the table, with this number.
    names: Vec<u8>,
    segment: usize,
    name_ends: Vec<u32>,
    /// Sizes in bytes, and stamps.
    files: Vec<(u64, Stamp)>,
}

impl Walk<'_> {
    /// Works on tasks until none are left or one has failed.
    fn work(&self) -> Worker {
        let mut worker = Worker::default();
        let mut buffer = Vec::with_capacity(LISTING_BYTES);
        let mut new_tasks = Vec::new();
        while let Some(task) = self.next() {
            let running = Running(self);
            let result = match task {
                Task::List(folder) => self.list(folder, &mut buffer, &mut worker, &mut new_tasks),
                Task::Measure(listing, range) => self.measure(&listing, range, &mut worker, &mut new_tasks),
            };
            let mut state = self.state();
            state.tasks.append(&mut new_tasks);
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            // Release the lock first: dropping `running` takes it to mark the task as done.
            drop(state);
            drop(running);
        }
        worker
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.error.is_some() {
                return None;
            }
            if let Some(task) = state.tasks.pop() {
                state.running += 1;
                return Some(task);
            }
            if state.running == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads the names of a folder and creates tasks for its files and subfolders.
    fn list(&self, folder: Folder, buffer: &mut Vec<u8>, worker: &mut Worker, tasks: &mut Vec<Task>) -> Result<()> {
        let asking = asking(self.root_path);
        asking.next(self.root_path, &folder.path, b"");
        let Some((fd, ancestor)) = self.open(&folder, worker)? else { return Ok(()) };
        let failed = |errno: Errno| self.error("cannot list the folder", &folder.path, errno);
        let (mut names, mut entries) = (Vec::new(), Vec::new());
        let mut directory = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = directory.next() {
            asking.again();
            let entry = match entry {
                // Removed after it was opened.
                Err(Errno::NOENT) => {
                    worker.skips.add(SkipReason::Vanished, &self.path(&folder.path, b""));
                    break;
                }
                entry => entry.map_err(failed)?,
            };
            let name = entry.file_name().to_bytes();
            match entry.file_type() {
                _ if name == b"." || name == b".." => {}
                _ if name.starts_with(b".") => worker.skips.add(SkipReason::Hidden, &self.path(&folder.path, name)),
                FileType::Directory => tasks.push(Task::List(child(&folder.path, name, &ancestor, false))),
                kind @ (FileType::RegularFile | FileType::Symlink | FileType::Unknown) => {
                    let len = u16::try_from(name.len()).map_err(|_| failed(Errno::NAMETOOLONG))?;
                    entries.push(Entry { start: names.len(), len, kind });
                    names.extend_from_slice(entry.file_name().to_bytes_with_nul());
                }
                _ => worker.skips.add(SkipReason::Special, &self.path(&folder.path, name)),
            }
        }
        entries.sort_unstable_by(|a: &Entry, b| a.name(&names).cmp(b.name(&names)));
        let count = entries.len();
        let listing = Arc::new(Listing { fd, path: folder.path, ancestor, names, entries });
        // Pushed last to first, so that they are popped in order, and names are found in order.
        for start in (0..count).step_by(TASK_FILES).rev() {
            tasks.push(Task::Measure(listing.clone(), start..(start + TASK_FILES).min(count)));
        }
        Ok(())
    }

    /// Opens a folder, unless it is gone or a link led back to one of its ancestors.
    fn open(&self, folder: &Folder, worker: &mut Worker) -> Result<Option<(OwnedFd, Arc<Ancestor>)>> {
        // Relaxed: this is a bound and orders nothing.
        if folder.linked && self.folder_links.fetch_add(1, Ordering::Relaxed) >= FOLDER_LINKS_MAX {
            let what = format!("there are more than {FOLDER_LINKS_MAX} links to folders, and this is the last");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_path(self.path(&folder.path, b""))
                .with_remedy("check whether folders link to each other, and name those that hold the files"));
        }
        let relative = if folder.path.is_empty() { b"." } else { &folder.path[..] };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.root, relative, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(errno) => {
                let reason = skip_reason(errno, folder.linked);
                let reason = reason.ok_or_else(|| self.error("cannot open the folder", &folder.path, errno))?;
                worker.skips.add(reason, &self.path(&folder.path, b""));
                return Ok(None);
            }
        };
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| self.error("cannot read the folder's identity", &folder.path, errno))?;
        // Only a link can lead back: Linux file systems refuse hard links to folders, and the kernel refuses mount
        // loops.
        if folder.linked && Ancestor::contains(&folder.parent, stat.st_dev, stat.st_ino) {
            worker.skips.add(SkipReason::LinkLoop, &self.path(&folder.path, b""));
            return Ok(None);
        }
        let ancestor = Ancestor { device: stat.st_dev, inode: stat.st_ino, parent: folder.parent.clone() };
        Ok(Some((fd, Arc::new(ancestor))))
    }

    /// Measures some files of a folder. Links to folders become tasks.
    fn measure(
        &self,
        listing: &Listing,
        range: Range<usize>,
        worker: &mut Worker,
        tasks: &mut Vec<Task>,
    ) -> Result<()> {
        let asking = asking(self.root_path);
        for entry in &listing.entries[range] {
            let name = entry.name(&listing.names);
            asking.next(self.root_path, &listing.path, name);
            match stat(&listing.fd, entry.c_name(&listing.names)) {
                Ok((FileType::RegularFile, size, stamp)) => worker.push(&listing.path, name, (size, stamp)),
                Ok((FileType::Directory, ..)) => {
                    tasks.push(Task::List(child(&listing.path, name, &listing.ancestor, true)));
                }
                Ok(_) => worker.skips.add(SkipReason::Special, &self.path(&listing.path, name)),
                Err(errno) => {
                    let path = self.path(&listing.path, name);
                    let reason = skip_reason(errno, entry.kind != FileType::RegularFile);
                    let failed = || Error::io("cannot read its size", errno.into()).with_path(&path);
                    worker.skips.add(reason.ok_or_else(failed)?, &path);
                }
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, folder: &[u8], name: &[u8]) -> PathBuf {
        let mut path = self.root_path.join(OsStr::from_bytes(folder));
        path.push(OsStr::from_bytes(name));
        path
    }

    fn error(&self, what: &'static str, folder: &[u8], errno: Errno) -> Error {
        let error = Error::io(what, errno.into()).with_path(self.root_path.join(OsStr::from_bytes(folder)));
        match errno {
            Errno::NAMETOOLONG => error.with_remedy("a path below a root has at most 4095 bytes: name a deeper folder"),
            Errno::MFILE => error.with_remedy("raise the limit of open files: ulimit -n"),
            Errno::ACCESS => error.with_remedy("give this user the right to read and search it, or move it elsewhere"),
            _ => error,
        }
    }
}

/// A task in progress. It ends on drop, so that a panic in it does not leave the other threads waiting.
struct Running<'a>(&'a Walk<'a>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.changed.notify_all();
    }
}

/// The folder `name` in the folder `path`, which `ancestor` identifies.
fn child(path: &[u8], name: &[u8], ancestor: &Arc<Ancestor>, linked: bool) -> Folder {
    Folder { path: [path, name, b"/"].concat(), parent: Some(ancestor.clone()), linked }
}

/// Why a name that cannot be followed is skipped, or `None` if that is an error.
fn skip_reason(errno: Errno, linked: bool) -> Option<SkipReason> {
    match errno {
        Errno::LOOP => Some(SkipReason::LinkLoop),
        Errno::NOENT | Errno::NOTDIR if linked => Some(SkipReason::DanglingLink),
        Errno::NOENT | Errno::NOTDIR => Some(SkipReason::Vanished),
        _ => None,
    }
}

/// Type, size in bytes and stamp of the target of `name`.
fn stat(folder: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<(FileType, u64, Stamp)> {
    let stat = rustix::fs::statx(folder, name, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    let identity = Identity::from(&stat);
    Ok((FileType::from_raw_mode(stat.stx_mode.into()), identity.size, Stamp::of(&identity)))
}

impl Ancestor {
    fn contains(mut chain: &Option<Arc<Ancestor>>, device: u64, inode: u64) -> bool {
        while let Some(ancestor) = chain {
            if (ancestor.device, ancestor.inode) == (device, inode) {
                return true;
            }
            chain = &ancestor.parent;
        }
        false
    }
}

impl Entry {
    fn name<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        &names[self.start..self.start + usize::from(self.len)]
    }

    fn c_name<'a>(&self, names: &'a [u8]) -> &'a CStr {
        let bytes = &names[self.start..=self.start + usize::from(self.len)];
        CStr::from_bytes_with_nul(bytes).expect("every name was pushed with its NUL, and getdents64 ends names at it")
    }
}

impl Worker {
    fn push(&mut self, folder: &[u8], name: &[u8], file: (u64, Stamp)) {
        if self.parts.last().is_none_or(|part| part.names.len() >= SEGMENT_BYTES) {
            if let Some(part) = self.parts.last_mut() {
                part.shrink_to_fit();
            }
            self.parts.push(Found::default());
        }
        let part = self.parts.last_mut().expect("one was pushed if there was none");
        part.names.extend_from_slice(folder);
        part.names.extend_from_slice(name);
        // Fits: a part is closed at SEGMENT_BYTES, and one path has at most 4096 + 65535 bytes.
        part.name_ends.push(part.names.len() as u32);
        part.files.push(file);
    }
}

impl Found {
    fn shrink_to_fit(&mut self) {
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.files.shrink_to_fit();
    }

    /// The place of a file's name.
    fn name(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.name_ends[index - 1] as usize };
        start..self.name_ends[index] as usize
    }
}

/// Types, sizes in bytes and stamps of the targets of `paths`, in order, measured by up to `threads` threads. Paths are
/// relative to `base`.
pub(crate) fn measure_paths<P: AsRef<Path> + Sync>(base: &Path, paths: &[P], threads: usize) -> Vec<Measured> {
    let measure = |path: &P| {
        let path = base.join(path);
        let _asking = asking(&path);
        Ok(stat(CWD, &path)?)
    };
    let share = paths.len().div_ceil(threads.max(1)).max(TASK_FILES);
    let shares: Vec<&[P]> = paths.chunks(share).collect();
    let measured = in_parallel(&shares, threads, |share| share.iter().map(measure).collect::<Vec<_>>());
    measured.into_iter().flatten().collect()
}
