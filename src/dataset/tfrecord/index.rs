//! The indexes of all files: those that lie there, those that DALI wrote, and those that have to be made.

use super::super::compression::Compression;
use super::super::parallel::try_in_parallel;
use super::super::sidecar::{Builder, Kept, Member, Places, RESIDENT_BYTES, Shard, Sidecar};
use super::super::tar::{Damaged, Indexed, Origin, TarProgress};
use super::super::window::{Plain, Source, Stored};
use super::super::{FileId, FileTable};
use super::frame::{HEADER_BYTES, Header, compression, scan, scan_decoded};
use super::{TfRecordOptions, dali};
use crate::config::{Cause, Fallback};
use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_sys::file::{Identity, OpenFlags, advise_random};

/// The index of a file, and DALI's index of it, if that was not used, with the reason.
#[derive(Debug)]
pub(super) struct File {
    pub(super) indexed: Indexed,
    pub(super) foreign: Option<(PathBuf, String)>,
}

/// Name of the one column that an index has.
const COLUMN: &str = "record";

/// Finds or makes the index of every file, in parallel.
///
/// # Errors
/// That of the first file, in order, which has one and may not.
pub(super) fn index_all(
    files: &FileTable,
    options: &TfRecordOptions,
    threads: usize,
    progress: &(dyn Fn(TarProgress) + Sync),
) -> Result<Vec<File>> {
    let job = Job {
        files,
        options,
        places: Places { cache: options.cache.clone() },
        resident: AtomicU64::new(RESIDENT_BYTES),
        done: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        progress,
    };
    // Fits: a table has fewer than 2^32 files.
    let all: Vec<FileId> = (0..files.len() as u32).map(FileId).collect();
    try_in_parallel(&all, threads, |&file| {
        let path = files.path(file);
        let indexed = job.index(&path).map_err(|error| error.with_file(&path));
        job.done.fetch_add(1, Ordering::Relaxed);
        job.tell();
        indexed
    })
}

/// The step down from DALI's indexes to a look through the files, if any was taken: how often, and why at first.
pub(super) fn not_imported(files: &[File]) -> Option<Fallback> {
    let mut foreign = files.iter().filter_map(|file| file.foreign.as_ref());
    let (place, reason) = foreign.next()?;
    let others = match foreign.count() {
        0 => String::new(),
        others => format!(" and {others} others"),
    };
    let fallback = Fallback::new(Cause::ForeignIndex, "a look through the files", None);
    Some(fallback.with_reason(format!("{place:?}{others}: {reason}")))
}

struct Job<'a> {
    files: &'a FileTable,
    options: &'a TfRecordOptions,
    places: Places,
    /// Bytes of sidecars that may yet be read into memory.
    resident: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
    progress: &'a (dyn Fn(TarProgress) + Sync),
}

impl Job<'_> {
    fn tell(&self) {
        (self.progress)(TarProgress {
            shards: self.done.load(Ordering::Relaxed),
            shards_total: self.files.len() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.files.sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size)),
        });
    }

    fn index(&self, path: &Path) -> Result<File> {
        let failed = |error: io::Error| Error::io("cannot open", error);
        let opened = uringload_sys::file::open(rustix::fs::CWD, path.as_os_str().as_bytes(), OpenFlags::default());
        let opened = opened.map_err(failed)?;
        let shard = Shard::new("tfrecord", path, &opened.identity);
        let mut refused = Vec::new();
        if !self.options.rebuild {
            match self.places.find(path, &shard, &self.resident) {
                Ok(sidecar) => {
                    self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                    return Ok(File { indexed: Indexed::new(sidecar, Origin::Sidecar), foreign: None });
                }
                Err(reasons) => refused = reasons,
            }
        }
        let mut plain = Plain { file: &opened.file, size: shard.size };
        let mut head: Header = [0; HEADER_BYTES as usize];
        let have = plain.read_at_least(&mut head, 0, HEADER_BYTES as usize)?;
        let mut file = match compression(&head[..have]) {
            Ok(None) => self.plain(path, &shard, &opened.identity, plain)?,
            Ok(Some(compression)) => self.decoded(path, &shard, &opened.file, compression)?,
            // What is no file of records has none in front of the damage.
            Err(damage) => self.finish(path, &shard, Builder::new(1), Some(damage))?,
        };
        file.indexed.refused = refused;
        match Identity::of(opened.file.as_fd()).map_err(failed)? {
            now if now == opened.identity => Ok(file),
            _ => Err(Error::new(ErrorKind::Corrupt, "the file changed while it was looked through:")
                .with_remedy("wait until it is written")),
        }
    }

    /// Of a file that holds records as they are.
    fn plain(&self, path: &Path, shard: &Shard, identity: &Identity, mut file: Plain<'_>) -> Result<File> {
        // Without readahead, which would read the payloads that are passed over. Where that cannot be had, it does.
        let _ = advise_random(file.file.as_fd());
        let mut records = Records::new();
        let imported = if self.options.rebuild { None } else { dali::import(path, identity, &mut file) };
        let foreign = match imported {
            Some((_, Ok(places))) => {
                places.into_iter().for_each(|(offset, len)| records.push(offset, len));
                self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                let mut file = self.finish(path, shard, records.builder, None)?;
                file.indexed.origin = Origin::Dali;
                return Ok(file);
            }
            Some((place, Err(reason))) => Some((place, reason)),
            None => None,
        };
        let mut told = 0;
        let result = scan(&mut file, |offset, len| {
            records.push(offset, len);
            if offset - told >= TELL_BYTES {
                self.bytes.fetch_add(offset - told, Ordering::Relaxed);
                told = offset;
                self.tell();
            }
        });
        self.bytes.fetch_add(shard.size - told, Ordering::Relaxed);
        let (bytes_read, damage) = match result {
            Ok(bytes_read) => (bytes_read, None),
            Err(error) => (0, Some(error)),
        };
        let mut file = self.finish(path, shard, records.builder, damage)?;
        file.indexed.bytes_read = bytes_read;
        Ok(File { foreign, ..file })
    }

    /// Of a file that is compressed as a whole.
    fn decoded(&self, path: &Path, shard: &Shard, file: &OwnedFd, compression: Compression) -> Result<File> {
        let mut records = Records::new();
        let stored = Stored { file, at: 0, passed: |_| {} };
        let decoded = scan_decoded(stored, compression, |offset, len| records.push(offset, len))
            .map_err(|error| Error::io("cannot open", error))?;
        self.bytes.fetch_add(shard.size, Ordering::Relaxed);
        records.builder.decoded(compression, decoded.bytes);
        let mut file = self.finish(path, shard, records.builder, decoded.damage)?;
        file.indexed.bytes_read = shard.size;
        Ok(file)
    }

    /// Makes the sidecar and puts it to disk, unless it is that of a part of a damaged file.
    fn finish(&self, path: &Path, shard: &Shard, builder: Builder, damage: Option<Error>) -> Result<File> {
        let damage = damage.map(|error| error.with_file(path));
        if let Some(damage) = damage.as_ref().filter(|_| self.options.damaged == Damaged::Error) {
            return Err(damage.clone());
        }
        let image = builder.finish(shard);
        let kept = (damage.is_none() && !self.options.no_sidecars).then(|| self.places.keep(path, &image));
        let written = match &kept {
            // Opened as any other, so that a large one is mapped.
            Some(Kept::Beside(place) | Kept::InCache(place, _)) => Sidecar::open(place, shard, &self.resident).ok(),
            Some(Kept::Nowhere(_)) | None => None,
        };
        let sidecar = match written {
            Some(sidecar) => sidecar,
            None => Sidecar::from_image(image, shard).map_err(|reason| {
                // Nothing that a file holds can lead here.
                Error::new(ErrorKind::Internal, format!("made an index that is none ({reason}) of"))
            })?,
        };
        Ok(File { indexed: Indexed { kept, damage, ..Indexed::new(sidecar, Origin::Scan) }, foreign: None })
    }
}

/// Bytes of a file between two reports of progress.
const TELL_BYTES: u64 = 64 << 20;

/// An index in the making.
struct Records {
    builder: Builder,
    column: u16,
}

impl Records {
    fn new() -> Records {
        let mut builder = Builder::new(1);
        let column = builder.column(COLUMN).unwrap_or(0);
        Records { builder, column }
    }

    fn push(&mut self, offset: u64, len: u64) {
        // Keys are told from the numbers of the samples.
        self.builder.push(b"", &mut [Member { column: self.column, offset, len }]);
    }
}
