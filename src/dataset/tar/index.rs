//! The indexes of all shards: those that lie there, those that others wrote, and those that have to be made.

use super::super::parallel::try_in_parallel;
use super::super::sidecar::{Kept, Places, RESIDENT_BYTES, Shard, Sidecar};
use super::super::skipped::SkipReason;
use super::super::{FileId, FileTable};
use super::dali;
use super::header::BLOCK_BYTES;
use super::keys::Grouper;
use super::scan::{Entry, Sink, scan};
use super::window::Plain;
use super::{Damaged, TarOptions, TarProgress};
use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_sys::file::{Identity, OpenFlags, advise_random};

/// The index of one shard, and where it comes from.
#[derive(Debug)]
pub(super) struct Indexed {
    pub(super) sidecar: Sidecar,
    pub(super) origin: Origin,
    /// Bytes of the archive that were read for it.
    pub(super) bytes_read: u64,
    /// Sidecars that lay there and are not this shard's index, with the reason.
    pub(super) refused: Vec<(PathBuf, String)>,
    /// Why DALI's index, which lay there, was not used.
    pub(super) dali_refused: Option<String>,
    /// Where the sidecar was put, if it is a new one.
    pub(super) kept: Option<Kept>,
    /// Why the shard cannot be read to its end.
    pub(super) damage: Option<Error>,
}

/// Where an index comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Sidecar,
    Dali,
    Scan,
}

/// Finds or makes the index of every shard, in parallel.
///
/// # Errors
/// That of the first shard, in order, which has one and may not.
pub(super) fn index_all(
    files: &FileTable,
    options: &TarOptions,
    threads: usize,
    progress: &(dyn Fn(TarProgress) + Sync),
) -> Result<Vec<Indexed>> {
    let job = Job {
        files,
        options,
        places: Places { cache: options.cache.clone() },
        resident: AtomicU64::new(RESIDENT_BYTES),
        shards: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        progress,
    };
    // Fits: a table has fewer than 2^32 files.
    let all: Vec<FileId> = (0..files.len() as u32).map(FileId).collect();
    try_in_parallel(&all, threads, |&file| {
        let indexed = job.index(file);
        job.shards.fetch_add(1, Ordering::Relaxed);
        job.tell();
        indexed
    })
}

struct Job<'a> {
    files: &'a FileTable,
    options: &'a TarOptions,
    places: Places,
    /// Bytes of sidecars that may yet be read into memory.
    resident: AtomicU64,
    shards: AtomicU64,
    bytes: AtomicU64,
    progress: &'a (dyn Fn(TarProgress) + Sync),
}

impl Job<'_> {
    fn tell(&self) {
        (self.progress)(TarProgress {
            shards: self.shards.load(Ordering::Relaxed),
            shards_total: self.files.len() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.files.sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size)),
        });
    }

    fn index(&self, id: FileId) -> Result<Indexed> {
        let path = self.files.path(id);
        let failed = |error: io::Error| Error::io("cannot open", error).with_file(&path);
        let opened = uringload_sys::file::open(rustix::fs::CWD, path.as_os_str().as_bytes(), OpenFlags::default());
        let opened = opened.map_err(failed)?;
        let shard = Shard::new("tar", &path, &opened.identity);
        let mut refused = Vec::new();
        if !self.options.rebuild {
            match self.places.find(&path, &shard, &self.resident) {
                Ok(sidecar) => {
                    self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                    return Ok(Indexed::new(sidecar, Origin::Sidecar));
                }
                Err(reasons) => refused = reasons,
            }
        }
        let mut plain = Plain { file: &opened.file, size: shard.size };
        let imported = if self.options.rebuild { None } else { dali::import(&path, &opened.identity, &mut plain) };
        let (grouper, dali_refused) = match imported {
            Some(Ok(grouper)) => (Some(grouper), None),
            Some(Err(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        let mut indexed = match grouper {
            Some(grouper) => {
                self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                self.finish(&path, &shard, grouper, Origin::Dali, None)?
            }
            None => self.scan(&path, &shard, &mut plain)?,
        };
        indexed.refused = refused;
        indexed.dali_refused = dali_refused;
        match Identity::of(opened.file.as_fd()).map_err(failed)? {
            now if now == opened.identity => Ok(indexed),
            _ => Err(Error::new(ErrorKind::Corrupt, "the archive changed while it was looked through:")
                .with_file(&path)
                .with_remedy("wait until it is written")),
        }
    }

    fn scan(&self, path: &Path, shard: &Shard, source: &mut Plain<'_>) -> Result<Indexed> {
        // Without readahead, which would read the payloads that are passed over. Where that cannot be had, it does.
        let _ = advise_random(source.file.as_fd());
        let mut collector =
            Collector { job: self, grouper: Grouper::new(BLOCK_BYTES as u32), left_out: Vec::new(), told: 0 };
        let result = scan(source, &mut collector);
        self.bytes.fetch_add(shard.size - collector.told.min(shard.size), Ordering::Relaxed);
        let Collector { mut grouper, left_out, .. } = collector;
        let (bytes_read, damage) = match result {
            Ok(bytes_read) => (bytes_read, None),
            Err(error) => {
                let error = error.with_file(path);
                if self.options.damaged == Damaged::Error {
                    return Err(error);
                }
                // The sample that was under way may lack what lies behind the damage.
                grouper.drop_open();
                (0, Some(error))
            }
        };
        for (reason, count, first) in left_out {
            grouper.builder.left_out(reason.code(), count, &first);
        }
        let mut indexed = self.finish(path, shard, grouper, Origin::Scan, damage)?;
        indexed.bytes_read = bytes_read;
        Ok(indexed)
    }

    /// Makes the sidecar and puts it to disk, unless it is that of a part of a damaged shard.
    fn finish(
        &self,
        path: &Path,
        shard: &Shard,
        grouper: Grouper,
        origin: Origin,
        damage: Option<Error>,
    ) -> Result<Indexed> {
        let image = grouper.builder.finish(shard);
        let kept = (damage.is_none() && !self.options.no_sidecars).then(|| self.places.keep(path, &image));
        let written = match &kept {
            // Opened as any other, so that a large one is mapped.
            Some(Kept::Beside(place) | Kept::InCache(place, _)) => Sidecar::open(place, shard, &self.resident).ok(),
            Some(Kept::Nowhere(_)) | None => None,
        };
        let sidecar = match written {
            Some(sidecar) => sidecar,
            None => Sidecar::from_image(image, shard).map_err(|reason| {
                // Nothing that an archive holds can lead here.
                Error::new(ErrorKind::Internal, format!("made an index that is none ({reason}) of")).with_file(path)
            })?,
        };
        Ok(Indexed { kept, damage, ..Indexed::new(sidecar, origin) })
    }
}

impl Indexed {
    fn new(sidecar: Sidecar, origin: Origin) -> Indexed {
        let (refused, dali_refused, kept, damage) = (Vec::new(), None, None, None);
        Indexed { sidecar, origin, bytes_read: 0, refused, dali_refused, kept, damage }
    }
}

/// Bytes of an archive between two reports of progress.
const TELL_BYTES: u64 = 64 << 20;

/// Puts what a scan finds together.
struct Collector<'a> {
    job: &'a Job<'a>,
    grouper: Grouper,
    left_out: Vec<(SkipReason, u64, Vec<u8>)>,
    told: u64,
}

impl Sink for Collector<'_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<(), String> {
        if let Some(reason) = self.grouper.push(entry.name, entry.offset, entry.len)? {
            self.skip(reason, entry.name);
        }
        Ok(())
    }

    fn cut(&mut self, name: &[u8]) {
        self.grouper.end_before(name);
    }

    fn skip(&mut self, reason: SkipReason, name: &[u8]) {
        match self.left_out.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, count, _)) => *count += 1,
            None => self.left_out.push((reason, 1, name.to_vec())),
        }
    }

    fn end(&mut self) {
        self.grouper.flush();
    }

    fn passed(&mut self, offset: u64) {
        if offset - self.told >= TELL_BYTES {
            self.job.bytes.fetch_add(offset - self.told, Ordering::Relaxed);
            self.told = offset;
            self.job.tell();
        }
    }
}
