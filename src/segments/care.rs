//! Looks after the caches in a folder: says what is there, compares all checksums, and removes what is not wanted.

use super::log::{self, Log, lock};
use super::record::Record;
use super::{
    CLEAR_PATIENCE, IMAGES, LOCK, PAGE_BYTES, RAW, ROOTS, Segments, folder_in, numbers_in, open_or_make, roots, sized,
    trusted,
};
use crate::{Error, ErrorKind, Result};
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uringload_sys::file;

/// The longest read of `verify`.
const READ_BYTES: usize = 4 << 20;

/// What caches hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Bytes that their files take on the disk.
    pub bytes: u64,
    /// Files with entries.
    pub segments: u64,
    /// Files among them to which nothing is added any more, because their log or header is damaged.
    pub closed: u64,
    /// What they hold, by kind and name.
    pub datasets: Vec<Cached>,
}

/// What a cache holds of one dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cached {
    /// "raw": pieces of files as they are stored; "images": samples with decoded images.
    pub kind: &'static str,
    /// The URL, without user, query and fragment, or the path.
    pub name: String,
    /// Pieces or samples that can be used.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are not used any more: of an older version of the dataset, or there twice.
    pub dead_entries: u64,
    /// Their bytes.
    pub dead_bytes: u64,
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Entries that were read.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries, and files, that are damaged.
    pub damaged: u64,
}

/// What to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clear {
    /// Everything.
    All,
    /// The dataset of this name, as [`Cached::name`] has it.
    Dataset(String),
    /// What is not used any more.
    Stale,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleared {
    /// Entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that the disk has again.
    pub freed: u64,
}

/// Says what the caches in `dir` hold. Loaders may use them meanwhile.
///
/// # Errors
/// `NotFound` if there is none; `Unavailable` while entries are removed; the system's error.
pub fn stat(dir: &Path) -> Result<Stat> {
    let mut stat = Stat::default();
    for cache in Cache::all_in(dir, FlockOperation::NonBlockingLockShared)? {
        stat.bytes += taken(&cache.folder);
        stat.segments += cache.segments.len() as u64 + cache.unfit.len() as u64;
        stat.closed += cache.segments.values().filter(|segment| segment.log.is_closed).count() as u64;
        stat.closed += cache.unfit.len() as u64;
        let mut datasets: BTreeMap<String, Cached> = BTreeMap::new();
        for (entry, is_dead) in cache.entries.iter().zip(cache.dead()) {
            let name = cache.name_of(entry.record.key.root);
            let cached = datasets.entry(name).or_default();
            let of = if is_dead {
                (&mut cached.dead_entries, &mut cached.dead_bytes)
            } else {
                (&mut cached.entries, &mut cached.bytes)
            };
            *of.0 += 1;
            *of.1 += u64::from(entry.record.bytes);
        }
        stat.datasets.extend(datasets.into_iter().map(|(name, cached)| Cached { kind: cache.kind, name, ..cached }));
    }
    Ok(stat)
}

/// Reads all entries of the caches in `dir` from the disk and compares their checksums. Calls `found` with what is
/// damaged: the file, the byte, and the dataset. Loaders may use the caches meanwhile.
///
/// # Errors
/// Those of [`stat`].
pub fn verify(dir: &Path, found: &mut dyn FnMut(Error)) -> Result<Verified> {
    let mut verified = Verified::default();
    let mut bytes = Vec::new();
    for cache in Cache::all_in(dir, FlockOperation::NonBlockingLockShared)? {
        let mut damaged = |error: Error| {
            verified.damaged += 1;
            found(error);
        };
        for path in &cache.unfit {
            damaged(Error::new(ErrorKind::Corrupt, "this is no segment of its whole length").with_path(path));
        }
        for (number, segment) in &cache.segments {
            let path = cache.folder.join(Segments::file_name(*number));
            if segment.log.is_closed {
                let what = "the log has a wrong record: what it said is lost, and nothing is added to this file";
                damaged(Error::new(ErrorKind::Corrupt, what).with_path(&path));
            }
            let whole = || File::open(&path).and_then(|file| file::evict(file.as_fd()));
            // What the page cache has may be better than what the disk has. Where it stays, that is what is compared.
            let _ = whole();
            for Entry { record, .. } in &cache.entries[cache.entries_of(*number)] {
                let at = u64::from(record.page) * PAGE_BYTES;
                let sum = checksum(&segment.file, record, &mut bytes);
                let error = match sum {
                    Ok(crc) if crc == record.crc => None,
                    Ok(_) => Some(Error::new(ErrorKind::Corrupt, "the checksum of the entry differs")),
                    Err(error) => Some(Error::io("cannot read the entry", error)),
                };
                verified.entries += 1;
                verified.bytes += u64::from(record.bytes);
                if let Some(error) = error {
                    let name = cache.name_of(record.key.root);
                    let what = format!("{} ({} of {} bytes of {name})", error.what(), cache.kind, record.bytes);
                    let told = Error::new(error.kind(), what).with_path(&path).with_offset(at);
                    damaged(match error.cause() {
                        Some(cause) => told.with_source(io::Error::other(cause.to_string())),
                        None => told,
                    });
                }
            }
            let _ = whole();
        }
    }
    Ok(verified)
}

/// Removes entries of the caches in `dir`. What remains of a file is moved to others, entry by entry, and left out if
/// it is damaged: 256 MiB more are taken meanwhile, and whoever ends this process loses nothing.
///
/// # Errors
/// `Unavailable` if a loader uses one of the caches; `InvalidArgument` if there is no dataset of the name. Else those
/// of [`stat`].
pub fn clear(dir: &Path, what: &Clear) -> Result<Cleared> {
    let caches = Cache::all_in(dir, FlockOperation::NonBlockingLockExclusive)?;
    if let Clear::Dataset(name) = what {
        let mut known: Vec<String> = caches.iter().flat_map(|cache| cache.names.values().cloned()).collect();
        if !known.iter().any(|known| is_same(known, name)) {
            known.sort_unstable();
            known.dedup();
            let error = Error::new(ErrorKind::InvalidArgument, format!("the cache has nothing of {name}"));
            let listed = if known.is_empty() { "it is empty".into() } else { known.join(", ") };
            return Err(error.with_path(dir).with_remedy(format!("name one that it has: {listed}")));
        }
    }
    let mut cleared = Cleared::default();
    for cache in caches {
        let (before, folder) = (taken(&cache.folder), cache.folder.clone());
        let removed = match what {
            Clear::All => vec![true; cache.entries.len()],
            Clear::Stale => cache.dead(),
            Clear::Dataset(name) => {
                let of_name = |entry: &Entry| is_same(&cache.name_of(entry.record.key.root), name);
                cache.entries.iter().map(of_name).collect()
            }
        };
        let gone = cache.entries.iter().zip(&removed).filter(|(_, is_removed)| **is_removed);
        for (entry, _) in gone {
            cleared.entries += 1;
            cleared.bytes += u64::from(entry.record.bytes);
        }
        let done = if *what == Clear::All { cache.remove_all() } else { cache.remove(&removed) };
        done.map_err(|error| {
            let error = Error::io("cannot remove entries of the cache", error).with_path(&folder);
            error.with_remedy("remove all of it: `uringload cache clear DIR` needs no room on the disk")
        })?;
        cleared.freed += before.saturating_sub(taken(&folder));
    }
    Ok(cleared)
}

/// A cache of one kind, and the lock on it.
struct Cache {
    kind: &'static str,
    folder: PathBuf,
    names: BTreeMap<u64, String>,
    segments: BTreeMap<u32, Segment>,
    /// Files that have the name of a segment and are none.
    unfit: Vec<PathBuf>,
    /// In the order of the segments, and of the pages in each.
    entries: Vec<Entry>,
    held: File,
}

struct Segment {
    file: File,
    log: Log,
}

struct Entry {
    segment: u32,
    record: Record,
}

impl Cache {
    /// The caches of all kinds in a folder.
    fn all_in(dir: &Path, operation: FlockOperation) -> Result<Vec<Cache>> {
        let mut found = Vec::new();
        for kind in [RAW, IMAGES] {
            let folder = folder_in(dir, kind);
            if folder.is_dir() {
                trusted(&folder)?;
                found.push(Cache::open(kind, folder, operation)?);
            }
        }
        if found.is_empty() {
            let error = Error::new(ErrorKind::NotFound, "no cache is in the folder").with_path(dir);
            return Err(error.with_remedy("name the folder that loaders were given as the place of their cache"));
        }
        Ok(found)
    }

    fn open(kind: &'static str, folder: PathBuf, operation: FlockOperation) -> Result<Cache> {
        let failed = |error| Error::io("cannot read the cache", error).with_path(&folder);
        let path = folder.join(LOCK);
        // It may be on a file system that is read only.
        let held = File::open(&path).or_else(|_| open_or_make(&path)).map_err(failed)?;
        let is_alone = matches!(operation, FlockOperation::NonBlockingLockExclusive);
        let patience = if is_alone { Duration::ZERO } else { CLEAR_PATIENCE };
        if !lock(&held, operation, patience).map_err(failed)? {
            let (what, remedy) = if is_alone {
                ("a loader uses the cache", "end the training runs that use it")
            } else {
                ("entries are being removed from the cache", "wait until `uringload cache clear` has ended")
            };
            return Err(Error::new(ErrorKind::Unavailable, what).with_path(&folder).with_remedy(remedy));
        }
        let names = roots(&folder).map_err(failed)?;
        let (segments, unfit, entries) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut cache = Cache { kind, folder: folder.clone(), names, segments, unfit, entries, held };
        cache.read().map_err(failed)?;
        Ok(cache)
    }

    fn read(&mut self) -> io::Result<()> {
        for number in numbers_in(&self.folder)? {
            let path = self.folder.join(Segments::file_name(number));
            match sized(&path)? {
                Some((file, size, true)) => {
                    let (mut log, first) = (Log::NEW, self.entries.len());
                    let mut take = |record: &Record| self.entries.push(Entry { segment: number, record: *record });
                    log::read_settled(&path, &file, size, &mut log, &mut take)?;
                    self.entries[first..].sort_by_key(|entry| entry.record.page);
                    self.segments.insert(number, Segment { file, log });
                }
                Some((_, _, false)) => self.unfit.push(path),
                None => {}
            }
        }
        Ok(())
    }

    /// For each entry, whether it is not used any more: a newer one has the same place in the same dataset.
    fn dead(&self) -> Vec<bool> {
        let mut newest: HashMap<(u64, u64, u32), usize> = HashMap::with_capacity(self.entries.len());
        let mut dead = vec![false; self.entries.len()];
        for (index, Entry { record, .. }) in self.entries.iter().enumerate() {
            let other = newest.entry((record.key.root, record.key.name, record.key.piece)).or_insert(index);
            if *other != index {
                let is_newer = record.written >= self.entries[*other].record.written;
                dead[if is_newer { std::mem::replace(other, index) } else { index }] = true;
            }
        }
        dead
    }

    /// Where the entries of a segment are among all.
    fn entries_of(&self, segment: u32) -> Range<usize> {
        let start = self.entries.partition_point(|entry| entry.segment < segment);
        start..self.entries.partition_point(|entry| entry.segment <= segment)
    }

    fn name_of(&self, root: u64) -> String {
        self.names.get(&root).cloned().unwrap_or_else(|| format!("not named ({root:016x})"))
    }

    fn remove_all(self) -> io::Result<()> {
        for number in numbers_in(&self.folder)? {
            match fs::remove_file(self.folder.join(Segments::file_name(number))) {
                // A folder of such a name is not ours.
                Err(error) if error.kind() != io::ErrorKind::IsADirectory => return Err(error),
                _ => {}
            }
        }
        self.name_roots(&BTreeSet::new())
    }

    /// Removes these entries, and moves the others of their segments.
    fn remove(self, removed: &[bool]) -> io::Result<()> {
        let that_are = |are: bool| self.entries.iter().zip(removed).filter(move |(_, removed)| **removed == are);
        let changed: BTreeSet<u32> = that_are(true).map(|(entry, _)| entry.segment).collect();
        let segments = Segments::of(self.folder.clone(), self.kind, u64::MAX, self.held.try_clone()?);
        segments.list()?;
        segments.state().segments.iter_mut().filter(|(number, _)| changed.contains(number)).for_each(|(_, segment)| {
            segment.log.is_closed = true;
        });
        let mut bytes = Vec::new();
        for number in changed {
            let of_segment = self.entries_of(number);
            let both = self.entries[of_segment.clone()].iter().zip(&removed[of_segment]);
            for (Entry { record, .. }, _) in both.filter(|(_, removed)| !**removed) {
                bytes.resize(record.bytes as usize, 0);
                let at = u64::from(record.page) * PAGE_BYTES;
                let read = self.segments[&number].file.read_exact_at(&mut bytes, at);
                if read.is_ok() && crc32c::crc32c(&bytes) == record.crc {
                    segments.put(record.key, &[&bytes])?;
                }
            }
            fs::remove_file(self.folder.join(Segments::file_name(number)))?;
            segments.state().segments.remove(&number);
        }
        let roots: BTreeSet<u64> = that_are(false).map(|(entry, _)| entry.record.key.root).collect();
        self.name_roots(&roots)
    }

    /// Leaves the names of these roots.
    fn name_roots(&self, left: &BTreeSet<u64>) -> io::Result<()> {
        file::replace(&self.folder.join(ROOTS), |file| {
            let mut names = self.names.iter().filter(|(root, _)| left.contains(root));
            names.try_for_each(|(root, name)| writeln!(file, "{root:016x} {name}"))
        })
    }
}

/// Whether both name one dataset: a path may be relative, and a slash may stand at the end.
fn is_same(known: &str, given: &str) -> bool {
    let known = known.trim_end_matches('/');
    let absolute = std::path::absolute(given).ok();
    given.trim_end_matches('/') == known || absolute.is_some_and(|given| given == Path::new(known))
}

/// Bytes that a folder and its files take on the disk.
fn taken(folder: &Path) -> u64 {
    let of = |path: &Path| fs::symlink_metadata(path).map_or(0, |data| data.blocks() * 512);
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| of(&entry.path()));
    of(folder) + files.sum::<u64>()
}

/// The checksum of an entry, as it is in the file.
fn checksum(file: &File, record: &Record, bytes: &mut Vec<u8>) -> io::Result<u32> {
    let (mut at, mut left, mut crc) = (u64::from(record.page) * PAGE_BYTES, record.bytes as usize, 0);
    while left > 0 {
        bytes.resize(left.min(READ_BYTES), 0);
        file.read_exact_at(bytes, at)?;
        crc = crc32c::crc32c_append(crc, bytes);
        (at, left) = (at + bytes.len() as u64, left - bytes.len());
    }
    Ok(crc)
}
