//! The files of a cache on a disk: a few large ones, which processes fill together, and which later runs find again.
//!
//! `DIR/uringload-KIND-1/` holds files of up to 256 MiB, the segments. Each has entries, at pages of 4096 bytes, and a
//! log of them at its end ([`record`]). A segment is allocated whole, so the sizes of the files are what the cache
//! takes, and no process counts for others. An entry is there once its record is: whoever is killed before that leaves
//! nothing. Records are never changed, so readers take no lock. A writer takes one on a segment (`flock`), for as long
//! as one entry takes; it ends with the process. The number at the end of the folder's name is the version of all this.

mod answers;
mod care;
mod log;
mod record;
mod write;

use crate::sampler::hash;
use crate::{Error, ErrorKind, Result};
use answers::Answers;
pub use care::{Cached, Clear, Cleared, Stat, Verified, clear, stat, verify};
use log::{Log, lock};
pub(crate) use record::RECORD_BYTES;
use record::{HEADER_BYTES, Record, header};
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uringload_sys::file;

/// Bytes of a segment; the last one of a budget may be shorter.
pub(crate) const SEGMENT_BYTES: u64 = 256 << 20;

/// Entries begin at multiples of it.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Bytes of the budget that a segment takes beside its own: what file systems note of a file.
const SEGMENT_OVERHEAD: u64 = 16 << 10;

/// Bytes of the budget that the folder itself takes.
const FOLDER_OVERHEAD: u64 = 32 << 10;

/// Most segments that are kept open: a process may have 1024 files by default. Others are opened for each use.
const OPEN_MAX: usize = 384;

/// The kinds: stretches of files as they are stored, and decoded images.
pub(crate) const RAW: &str = "raw";
pub(crate) const IMAGES: &str = "images";

/// The file that users of the cache lock in common, and who removes entries lock for themselves.
pub(crate) const LOCK: &str = "lock";

/// The file with the names of the roots.
const ROOTS: &str = "roots";

/// Longest wait for a process that removes entries.
const CLEAR_PATIENCE: Duration = Duration::from_secs(2);

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// A hash of where the dataset is: for objects the URL without user, query and fragment.
    pub(crate) root: u64,
    /// A hash of the object's name.
    pub(crate) name: u64,
    /// Its version and size.
    pub(crate) stamp: u64,
    /// Which stretch of it.
    pub(crate) piece: u32,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    /// Its first page.
    pub(crate) page: u32,
    pub(crate) bytes: u32,
    /// CRC-32C of the entry.
    pub(crate) crc: u32,
    /// It was written since the machine started. Killed processes cannot tear such an entry; a power failure may have
    /// torn others, whose checksum must be compared before they are used.
    pub(crate) is_sure: bool,
}

/// The segments of one kind in a folder, for reading and writing. Threads and processes share them.
#[derive(Debug)]
pub(crate) struct Segments {
    folder: PathBuf,
    /// The bytes that the folder may take.
    budget: u64,
    /// A hash of this boot; 0 if the system does not tell it.
    boot: u64,
    /// What is written need not stay in the page cache: its reader passes that by.
    is_direct: bool,
    /// The kernel can write so that nothing stays there.
    leaves_cache: AtomicBool,
    /// The file system cannot allocate files.
    is_sparse: AtomicBool,
    state: Mutex<State>,
    /// A segment is free to be written to.
    freed: Condvar,
    /// Held by `news`, so that no entry is told twice.
    telling: Mutex<()>,
    answers: Answers,
    /// Holds the lock against whoever removes entries.
    held: File,
}

/// What this process knows of the segments.
#[derive(Debug, Default)]
struct State {
    segments: BTreeMap<u32, Segment>,
    /// How many of them are kept open.
    open: usize,
    /// The segment that was written last.
    last: u32,
}

/// What this process knows of one segment.
#[derive(Debug)]
struct Segment {
    size: u64,
    log: Log,
    /// How much of the log `news` has told.
    told: Log,
    /// A thread of this process writes to it.
    is_busy: bool,
    file: Option<Arc<File>>,
}

impl Place {
    /// Whether these are the bytes that were written.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes as usize && crc32c::crc32c(bytes) == self.crc
    }
}

impl Segments {
    /// Opens `DIR/uringload-KIND-1`, which is made if necessary and may take `bytes` bytes. Other files are made when
    /// they are needed.
    ///
    /// # Errors
    /// The system's error if the folder cannot be made or written to, or if its file system has no locks.
    /// `PermissionDenied` if another user made it or may write to it. `Unavailable` while entries are removed from it.
    pub(crate) fn open(dir: &Path, kind: &str, bytes: u64) -> Result<Segments> {
        let folder = folder_in(dir, kind);
        let failed = |error| {
            let error = Error::io("cannot keep a cache in the folder", error).with_path(&folder);
            error.with_remedy("name a folder on a local disk that this user may write to")
        };
        // No other user should be able to change training data.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        trusted(&folder)?;
        let folder = fs::canonicalize(&folder).map_err(failed)?;
        let held = open_or_make(&folder.join(LOCK)).map_err(failed)?;
        if !lock(&held, FlockOperation::NonBlockingLockShared, CLEAR_PATIENCE).map_err(failed)? {
            let error = Error::new(ErrorKind::Unavailable, "entries are being removed from the cache");
            return Err(error.with_path(&folder).with_remedy("begin when `uringload cache clear` has ended"));
        }
        let segments = Segments::of(folder, kind, bytes, held);
        segments
            .list()
            .map_err(|error| Error::io("cannot list the segments of the cache", error).with_path(segments.folder()))?;
        Ok(segments)
    }

    /// In a folder that is there, whose lock is held.
    fn of(folder: PathBuf, kind: &str, bytes: u64, held: File) -> Segments {
        Segments {
            folder,
            budget: bytes.saturating_sub(FOLDER_OVERHEAD),
            boot: boot(),
            is_direct: kind == RAW,
            leaves_cache: AtomicBool::new(kind == RAW),
            is_sparse: AtomicBool::new(false),
            state: Mutex::default(),
            freed: Condvar::new(),
            telling: Mutex::default(),
            answers: Answers::default(),
            held,
        }
    }

    /// Where the segments are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of a segment's file.
    pub(crate) fn file_name(segment: u32) -> String {
        format!("seg-{segment:04}")
    }

    /// All numbers of segments are below it. It rises where another process has a larger budget.
    pub(crate) fn segments_max(&self) -> u32 {
        let state = self.state();
        let known = state.segments.last_key_value().map_or(0, |(&number, _)| number.saturating_add(1));
        // Those that are there may be short: the last ones of smaller budgets.
        let taken: u64 = state.segments.values().map(|segment| segment.size).sum();
        let more = self.budget.saturating_sub(taken).div_ceil(SEGMENT_BYTES);
        known.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// Bytes that an entry may have.
    pub(crate) fn entry_bytes_max(&self) -> u64 {
        Log::NEW.room(SEGMENT_BYTES.min(self.budget.saturating_sub(SEGMENT_OVERHEAD)))
    }

    /// Bytes that pages of entries, and their records, may take in a budget of `bytes` bytes.
    pub(crate) fn room_in(bytes: u64) -> u64 {
        let left = bytes.saturating_sub(FOLDER_OVERHEAD);
        let (whole, rest) = (left / (SEGMENT_BYTES + SEGMENT_OVERHEAD), left % (SEGMENT_BYTES + SEGMENT_OVERHEAD));
        whole * Log::NEW.room(SEGMENT_BYTES) + Log::NEW.room(rest.saturating_sub(SEGMENT_OVERHEAD))
    }

    /// About the bytes that entries may still take, as of the last [`news`](Segments::news).
    pub(crate) fn free_bytes(&self) -> u64 {
        let state = self.state();
        let taken: u64 = state.segments.values().map(|segment| segment.size + SEGMENT_OVERHEAD).sum();
        let room: u64 = state.segments.values().map(|segment| segment.log.room(segment.size)).sum();
        self.budget.saturating_sub(taken) + room
    }

    /// Whether no room is reserved on the disk, because its file system cannot: then a full disk is noticed late.
    pub(crate) fn is_sparse(&self) -> bool {
        self.is_sparse.load(Ordering::Relaxed)
    }

    /// Calls `take` with each entry that was written since the last call, by whatever process.
    ///
    /// # Errors
    /// The system's error, if a segment cannot be read: entries of all others have been told.
    pub(crate) fn news(&self, take: &mut dyn FnMut(Key, Place)) -> Result<()> {
        let _one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |path: &Path, error| {
            let error = Error::io("cannot read what the cache holds", error).with_path(path);
            error.with_remedy("check the disk; `uringload cache clear` begins anew")
        };
        self.list().map_err(|error| failed(&self.folder, error))?;
        let known: Vec<(u32, u64, Log)> =
            self.state().segments.iter().map(|(&number, segment)| (number, segment.size, segment.told)).collect();
        let mut result = Ok(());
        for (number, size, mut told) in known {
            // Nothing is added to a segment without room: where there are thousands, few are read again.
            if told.room(size) == 0 {
                continue;
            }
            let mut take = |record: &Record| take(record.key, self.place(number, record));
            let read = self.read_log(number, size, &mut told, &mut take);
            if let Some(segment) = self.state().segments.get_mut(&number) {
                segment.log.join(&told);
                segment.told = told;
            }
            result = result.and(read.map_err(|error| failed(&self.path_of(number), error)));
        }
        result
    }

    /// Reads bytes of an entry, from its byte `from` on.
    ///
    /// # Errors
    /// `InvalidInput` for bytes that it has not; the system's error; those of [`ask`](Segments::ask).
    pub(crate) fn read(self: &Arc<Segments>, place: Place, from: u32, into: &mut [u8]) -> io::Result<()> {
        if u64::from(from) + into.len() as u64 > u64::from(place.bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the entry of the cache has not these bytes"));
        }
        let at = u64::from(place.page) * PAGE_BYTES + u64::from(from);
        if !self.may_hang() {
            return self.file(place.segment)?.read_exact_at(into, at);
        }
        let (segments, mut bytes) = (Arc::clone(self), vec![0; into.len()]);
        let read = self.ask(move || segments.file(place.segment)?.read_exact_at(&mut bytes, at).map(|()| bytes))??;
        into.copy_from_slice(&read);
        Ok(())
    }

    /// Notes which dataset a root is: one line, for people.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn name_root(&self, root: u64, shown: &str) -> io::Result<()> {
        let path = self.folder.join(ROOTS);
        if roots(&self.folder)?.contains_key(&root) {
            return Ok(());
        }
        let shown: String = shown.chars().map(|char| if char.is_control() { '?' } else { char }).collect();
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        // One write, so lines of other processes stay whole.
        file.write_all(format!("{root:016x} {shown}\n").as_bytes())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path_of(&self, segment: u32) -> PathBuf {
        self.folder.join(Segments::file_name(segment))
    }

    fn place(&self, segment: u32, record: &Record) -> Place {
        let is_sure = self.boot != 0 && record.boot == self.boot;
        Place { segment, page: record.page, bytes: record.bytes, crc: record.crc, is_sure }
    }

    /// Learns of segments that other processes have made. Returns how many.
    fn list(&self) -> io::Result<usize> {
        let mut new = 0;
        for number in numbers_in(&self.folder)? {
            if !self.state().segments.contains_key(&number) {
                let path = self.path_of(number);
                let Some((file, size, is_segment)) = sized(&path)? else { continue };
                let log = Log { is_closed: !is_segment, ..Log::NEW };
                self.state().add(number, Segment { size, log, told: log, is_busy: false, file: Some(Arc::new(file)) });
                new += 1;
            }
        }
        Ok(new)
    }

    fn file(&self, segment: u32) -> io::Result<Arc<File>> {
        let open = self.state().segments.get(&segment).and_then(|segment| segment.file.clone());
        open.map_or_else(|| file::open_regular(&self.path_of(segment)).map(Arc::new), Ok)
    }

    fn read_log(&self, number: u32, size: u64, told: &mut Log, take: &mut dyn FnMut(&Record)) -> io::Result<()> {
        log::read_settled(&self.path_of(number), &*self.file(number)?, size, told, take)
    }
}

impl State {
    /// Adds a segment, if no other thread has done it. Its file stays open if few are.
    fn add(&mut self, number: u32, mut segment: Segment) {
        if self.segments.contains_key(&number) {
            return;
        }
        if self.open >= OPEN_MAX {
            segment.file = None;
        }
        self.open += usize::from(segment.file.is_some());
        self.segments.insert(number, segment);
    }
}

/// The folder of a kind of cache.
fn folder_in(dir: &Path, kind: &str) -> PathBuf {
    dir.join(format!("uringload-{kind}-1"))
}

/// Refuses a folder that another user has created, or may write to.
fn trusted(path: &Path) -> Result<()> {
    let folder = file::open_folder(path).map_err(|error| Error::io("cannot open the folder", error).with_path(path))?;
    file::distrust(folder.as_fd(), None).map_or(Ok(()), |reason| {
        let what = format!("what the cache in the folder holds is not trusted: {reason}");
        let error = Error::new(ErrorKind::PermissionDenied, what).with_path(path);
        Err(error.with_remedy("delete the folder, or keep the cache where no other user may write"))
    })
}

fn open_or_make(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The numbers of the segments in a folder, in order.
fn numbers_in(folder: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("seg-")?.parse().ok());
        numbers.extend(number.filter(|&number| *name == *Segments::file_name(number)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Opens a segment: its size, and whether it is one, of its whole length. `None`: it is no file.
fn sized(path: &Path) -> io::Result<Option<(File, u64, bool)>> {
    let file = match file::open_regular(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory) => {
            return Ok(None);
        }
        file => file?,
    };
    let size = file.metadata()?.len();
    let mut found = [0; HEADER_BYTES];
    let is_segment = size >= PAGE_BYTES && file.read_exact_at(&mut found, 0).is_ok() && found == header(size);
    Ok(Some((file, size, is_segment)))
}

/// The names of the roots in a folder; a line that was cut is none.
fn roots(folder: &Path) -> io::Result<BTreeMap<u64, String>> {
    let text = match fs::read(folder.join(ROOTS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => String::from_utf8_lossy(&text?).into_owned(),
    };
    let named = |line: &str| {
        let (root, shown) = line.strip_suffix('\n')?.split_once(' ')?;
        Some((u64::from_str_radix(root, 16).ok()?, shown.to_owned()))
    };
    Ok(text.split_inclusive('\n').filter_map(named).collect())
}

/// A hash of the boot of this machine; 0 if the system does not tell it.
fn boot() -> u64 {
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.iter().fold(0, |sum, &byte| hash(sum ^ u64::from(byte)))
}

#[cfg(test)]
mod tests;
