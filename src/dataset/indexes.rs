//! The indexes of a dataset's files: those that lie beside them, and those that have to be made by looking through the
//! files, in parallel. What opening them has to tell.

use super::parallel::try_in_parallel;
use super::sidecar::{Builder, EXTENSION, Kept, Places, RESIDENT_BYTES, Shard, Sidecar};
use super::skipped::{SkipReason, Skips};
use super::{Damaged, FileId, FileTable};
use crate::config::{Cause, Fallback};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_sys::file::{Identity, OpenFlags};

/// How far looking through the shards has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    /// Shards that are done.
    pub shards: u64,
    /// All shards.
    pub shards_total: u64,
    /// Bytes of shards that are done, also those that were passed over.
    pub bytes: u64,
    /// Bytes of all shards.
    pub bytes_total: u64,
}

/// How the indexes of the shards were come by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexReport {
    /// Shards whose index lay there.
    pub current: u64,
    /// Shards whose index was taken over from another program's (of archives, DALI's).
    pub imported: u64,
    /// Shards that were looked through.
    pub scanned: u64,
    /// Indexes that were written.
    pub written: u64,
    /// Bytes of shards that were read to look through them.
    pub bytes_read: u64,
    /// Indexes that lay there and were not used, each with the reason.
    pub refused: Vec<(PathBuf, String)>,
}

/// A step down that several shards share: how many, the first of them, and why there.
#[derive(Default)]
pub(super) struct StepDown<'a>(u64, Option<(PathBuf, &'a dyn Display, Option<i32>)>);

impl<'a> StepDown<'a> {
    pub(super) fn add(&mut self, path: PathBuf, reason: &'a dyn Display, errno: Option<i32>) {
        self.0 += 1;
        self.1.get_or_insert((path, reason, errno));
    }

    pub(super) fn into_fallback(self, cause: Cause, got: String) -> Option<Fallback> {
        let (path, reason, errno) = self.1?;
        let others = match self.0 - 1 {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        let mut fallback = Fallback::new(cause, got, None).with_reason(format!("{path:?}{others}: {reason}"));
        fallback.errno = errno;
        Some(fallback)
    }
}

/// How the indexes of files are to be had.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) places: Places,
    /// Whether new ones stay in memory.
    pub(super) no_sidecars: bool,
    /// Whether those that lie there are not looked at.
    pub(super) rebuild: bool,
    pub(super) damaged: Damaged,
    pub(super) threads: usize,
}

/// The index of one file, and where it comes from.
#[derive(Debug)]
pub(super) struct Indexed {
    pub(super) sidecar: Sidecar,
    is_new: bool,
    bytes_read: u64,
    refused: Vec<(PathBuf, String)>,
    kept: Option<Kept>,
    damage: Option<Error>,
}

/// One look through a file from its beginning to its end.
pub(super) struct Pass<'a> {
    job: &'a Job<'a>,
    /// The open file.
    pub(super) file: &'a OwnedFd,
    /// Its size in bytes.
    pub(super) size: u64,
    told: u64,
}

/// Bytes of a file between two reports of progress.
const TELL_BYTES: u64 = 64 << 20;

impl Pass<'_> {
    /// The look has come to this byte.
    pub(super) fn passed(&mut self, offset: u64) {
        if offset.saturating_sub(self.told) >= TELL_BYTES {
            self.job.bytes.fetch_add(offset - self.told, Ordering::Relaxed);
            self.told = offset;
            self.job.tell();
        }
    }
}

/// Whether a name is that of an index, our own or DALI's.
pub(super) fn is_index(name: &[u8]) -> bool {
    let extension = Path::new(OsStr::from_bytes(name)).extension();
    extension.is_some_and(|ending| ending == EXTENSION || ending == "idx")
}

/// Finds the index of every file, or has `look` make it, in parallel. `format` is what files are understood as. What
/// `look` returns beside the samples is the damage behind them, without the file.
///
/// # Errors
/// That of the first file, in order, which has one and may not.
pub(super) fn index_all(
    files: &FileTable,
    wanted: &Wanted,
    progress: &(dyn Fn(IndexProgress) + Sync),
    format: &'static str,
    look: impl Fn(&mut Pass<'_>) -> (Builder, Option<Error>) + Sync,
) -> Result<Vec<Indexed>> {
    let job = Job {
        files,
        wanted,
        resident: AtomicU64::new(RESIDENT_BYTES),
        shards: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        progress,
    };
    // Fits: a table has fewer than 2^32 files.
    let all: Vec<FileId> = (0..files.len() as u32).map(FileId).collect();
    try_in_parallel(&all, wanted.threads, |&file| {
        let indexed = job.index(file, format, &look);
        job.shards.fetch_add(1, Ordering::Relaxed);
        job.tell();
        indexed
    })
}

struct Job<'a> {
    files: &'a FileTable,
    wanted: &'a Wanted,
    /// Bytes of sidecars that may yet be read into memory.
    resident: AtomicU64,
    shards: AtomicU64,
    bytes: AtomicU64,
    progress: &'a (dyn Fn(IndexProgress) + Sync),
}

impl Job<'_> {
    fn tell(&self) {
        (self.progress)(IndexProgress {
            shards: self.shards.load(Ordering::Relaxed),
            shards_total: self.files.len() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.files.sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size)),
        });
    }

    fn index(
        &self,
        id: FileId,
        format: &'static str,
        look: &dyn Fn(&mut Pass<'_>) -> (Builder, Option<Error>),
    ) -> Result<Indexed> {
        let path = self.files.path(id);
        let failed = |error: io::Error| Error::io("cannot open", error).with_file(&path);
        let opened = uringload_sys::file::open(rustix::fs::CWD, path.as_os_str().as_bytes(), OpenFlags::default());
        let opened = opened.map_err(failed)?;
        let shard = Shard::new(format, &path, &opened.identity);
        let mut refused = Vec::new();
        if !self.wanted.rebuild {
            match self.wanted.places.find(&path, &shard, &self.resident) {
                Ok(sidecar) => {
                    self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                    let (refused, kept, damage) = (Vec::new(), None, None);
                    return Ok(Indexed { sidecar, is_new: false, bytes_read: 0, refused, kept, damage });
                }
                Err(reasons) => refused = reasons,
            }
        }
        let mut pass = Pass { job: self, file: &opened.file, size: shard.size, told: 0 };
        let (builder, damage) = look(&mut pass);
        self.bytes.fetch_add(shard.size.saturating_sub(pass.told), Ordering::Relaxed);
        let damage = damage.map(|error| error.with_file(&path));
        if let Some(error) = &damage
            && (self.wanted.damaged == Damaged::Error || error.kind() == ErrorKind::Io)
        {
            return Err(error.clone());
        }
        // Before the index is put anywhere: it would bear the marks of the file that was there before.
        if Identity::of(opened.file.as_fd()).map_err(failed)? != opened.identity {
            return Err(Error::new(ErrorKind::Corrupt, "the file changed while it was looked through:")
                .with_file(&path)
                .with_remedy("wait until it is written"));
        }
        let bytes_read = shard.size;
        self.finish(&path, &shard, builder, damage).map(|indexed| Indexed { refused, bytes_read, ..indexed })
    }

    /// Makes the sidecar and puts it to disk, unless it is that of a part of a damaged file.
    fn finish(&self, path: &Path, shard: &Shard, builder: Builder, damage: Option<Error>) -> Result<Indexed> {
        let image = builder.finish(shard);
        let is_kept = damage.is_none() && !self.wanted.no_sidecars;
        let kept = is_kept.then(|| self.wanted.places.keep(path, &image));
        let written = match &kept {
            // Opened as any other, so that a large one is mapped.
            Some(Kept::Beside(place) | Kept::InCache(place, _)) => Sidecar::open(place, shard, &self.resident).ok(),
            Some(Kept::Nowhere(_)) | None => None,
        };
        let sidecar = match written {
            Some(sidecar) => sidecar,
            None => Sidecar::from_image(image, shard).map_err(|reason| {
                // Nothing that a file holds can lead here.
                Error::new(ErrorKind::Internal, format!("made an index that is none ({reason}) of")).with_file(path)
            })?,
        };
        Ok(Indexed { sidecar, is_new: true, bytes_read: 0, refused: Vec::new(), kept, damage })
    }
}

/// What opening files has to tell.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) report: IndexReport,
    pub(super) fallbacks: Vec<Fallback>,
    pub(super) damaged: Vec<Error>,
}

impl Notes {
    /// What the files have to tell; adds what they left out to `skips`.
    pub(super) fn of(files: &FileTable, indexed: &[Indexed], skips: &mut Skips) -> Notes {
        let mut notes = Notes::default();
        let (mut cached, mut in_memory) = (StepDown::default(), StepDown::default());
        let mut cache = PathBuf::new();
        let folder_of = |path: &Path| path.parent().unwrap_or(Path::new(".")).to_path_buf();
        for (number, indexed) in indexed.iter().enumerate() {
            // Fits: a table has fewer than 2^32 files.
            let path = files.path(FileId(number as u32));
            let report = &mut notes.report;
            report.scanned += u64::from(indexed.is_new);
            report.current += u64::from(!indexed.is_new);
            report.bytes_read = report.bytes_read.saturating_add(indexed.bytes_read);
            report.refused.extend(indexed.refused.iter().cloned());
            match &indexed.kept {
                Some(Kept::Beside(_)) => report.written += 1,
                Some(Kept::InCache(place, error)) => {
                    report.written += 1;
                    cache = folder_of(place);
                    cached.add(folder_of(&path), error, error.raw_os_error());
                }
                Some(Kept::Nowhere(error)) => in_memory.add(folder_of(&path), error, error.raw_os_error()),
                None => {}
            }
            for (code, count, first) in indexed.sidecar.left_out() {
                let Some(reason) = SkipReason::of_code(*code) else { continue };
                let first = if first.is_empty() { path.clone() } else { path.join(OsStr::from_bytes(first)) };
                skips.add_many(reason, *count, &first);
            }
            if let Some(damage) = &indexed.damage {
                skips.add(SkipReason::DamagedShard, &path);
                notes.damaged.push(damage.clone());
            }
        }
        notes.fallbacks.extend(cached.into_fallback(Cause::IndexPlace, format!("indexes in {cache:?}")));
        notes
            .fallbacks
            .extend(in_memory.into_fallback(Cause::IndexPlace, "indexes in memory, made at each start".into()));
        notes
    }
}
