//! The indexes of a dataset's files: those beside the files, and those made by scanning the files in parallel. Also
//! what happened on the way: counts, fallbacks, damage.

use crate::dataset::{FileId, FileTable, Index, IndexProgress, IndexReport, SkipReason, Skips};
use crate::index::headers::Source;
use crate::index::sidecar::{Builder, EXTENSION, Memory, Places, Proof, RESIDENT_BYTES, Shard, Sidecar, Written};
use crate::index::window::Plain;
use crate::options::Common;
use crate::parallel::try_in_parallel;
use crate::place::Place;
use crate::watched::{asking, is_given_up};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_core::{Cause, Error, ErrorKind, Fallback, Result};

/// A step down that several shards share: how many, the first of them, and why there.
#[derive(Default)]
struct StepDown<'a>(u64, Option<(PathBuf, &'a dyn Display, Option<i32>)>);

impl<'a> StepDown<'a> {
    fn add(&mut self, path: PathBuf, reason: &'a dyn Display, errno: Option<i32>) {
        self.0 += 1;
        self.1.get_or_insert((path, reason, errno));
    }

    fn into_fallback(self, cause: Cause, got: String) -> Option<Fallback> {
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

/// Files that are scanned at once if only their headers are read and the user gives no number. Each scan mostly waits
/// for short reads, and a disk does this many at once with little extra time for each.
const SCAN_THREADS: usize = 16;

/// The threads for scans that only read headers.
pub(crate) fn scan_threads(common: &Common) -> usize {
    if common.threads == 0 { SCAN_THREADS } else { common.threads }
}

/// How the indexes of files are found or made.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) common: &'a Common,
    pub(crate) places: Places,
    /// Whether a damaged file has the samples in front of the damage, instead of being an error.
    pub(crate) keep_damaged: bool,
    /// Whether the index of a file that was scanned is written.
    pub(crate) write_index: bool,
    pub(crate) threads: usize,
}

/// A format whose files are scanned.
pub(crate) trait Indexing: Sync {
    /// What the files are read as. An index that was made by another rule does not fit.
    fn name(&self) -> &'static str;

    /// Why an existing index does not fit the file after all.
    ///
    /// # Errors
    /// If the file cannot be read; the error does not name the file.
    fn refuses(&self, _pass: &Pass<'_>, _index: &Sidecar) -> Result<Option<String>> {
        Ok(None)
    }

    /// Scans a file.
    ///
    /// # Errors
    /// What is not damage of the file, and so fails even if damaged files are kept; the error does not name the file.
    fn look(&self, pass: &Pass<'_>) -> Result<Found>;
}

/// What a scan of a file has found.
pub(crate) struct Found {
    pub(crate) builder: Builder,
    /// Bytes that were read for it.
    pub(crate) bytes_read: u64,
    /// Why it ends before the file does; the error does not name the file.
    pub(crate) damage: Option<Error>,
}

/// The index of one file, and where it comes from.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) sidecar: Sidecar,
    is_scanned: bool,
    bytes_read: u64,
    refused: Vec<(PathBuf, String)>,
    untrusted: Vec<(PathBuf, String)>,
    kept: Option<Written>,
    /// Why the file cannot be read to its end.
    pub(crate) damage: Option<Error>,
}

/// One scan of a file from its beginning to its end.
pub(crate) struct Pass<'a> {
    job: &'a Job<'a>,
    pub(crate) path: &'a Path,
    /// The open file.
    pub(crate) source: &'a Source,
    /// Its size in bytes.
    pub(crate) size: u64,
    told: Cell<u64>,
}

/// Bytes of a file between two reports of progress.
const TELL_BYTES: u64 = 64 << 20;

impl<'a> Pass<'a> {
    /// The file as it is.
    pub(crate) fn plain(&self) -> Plain<'a> {
        Plain(self.source)
    }

    /// The file; only its headers are looked at.
    pub(crate) fn headers(&self) -> Plain<'a> {
        self.source.advise_random();
        self.plain()
    }

    /// The look has come to this byte.
    pub(crate) fn passed(&self, offset: u64) {
        let offset = offset.min(self.size);
        if offset.saturating_sub(self.told.get()) >= TELL_BYTES {
            self.add(offset);
            self.job.tell();
        }
    }

    fn add(&self, offset: u64) {
        self.job.bytes.fetch_add(offset - self.told.replace(offset), Ordering::Relaxed);
    }
}

/// Whether a name is that of an index, our own or another program's.
pub(crate) fn is_index(name: &[u8]) -> bool {
    let extension = Path::new(OsStr::from_bytes(name)).extension();
    extension.is_some_and(|ending| ending == EXTENSION || ending == "idx")
}

/// Finds or makes the index of every file, in parallel.
///
/// # Errors
/// That of the first file, in order, that fails.
pub(crate) fn index_all(files: &FileTable, wanted: &Wanted<'_>, format: &dyn Indexing) -> Result<Vec<Indexed>> {
    let (memory, shards, bytes) = (Memory::new(RESIDENT_BYTES), AtomicU64::new(0), AtomicU64::new(0));
    let job = Job { files, wanted, memory, shards, bytes };
    // Fits: a table has fewer than 2^32 files.
    let all: Vec<FileId> = (0..files.len() as u32).map(FileId).collect();
    try_in_parallel(&all, wanted.threads, |&file| {
        let indexed = job.index(file, format).map_err(|error| error.with_path(files.path(file)));
        job.shards.fetch_add(1, Ordering::Relaxed);
        job.tell();
        indexed
    })
}

struct Job<'a> {
    files: &'a FileTable,
    wanted: &'a Wanted<'a>,
    /// For indexes that are opened.
    memory: Memory,
    shards: AtomicU64,
    bytes: AtomicU64,
}

impl Job<'_> {
    fn tell(&self) {
        self.wanted.common.progress.tell(IndexProgress {
            shards: self.shards.load(Ordering::Relaxed),
            shards_total: self.files.len() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.files.total_bytes(),
        });
    }

    fn index(&self, file: FileId, format: &dyn Indexing) -> Result<Indexed> {
        let failed = |error: io::Error| Error::io("cannot open", error);
        let failed_to_read = |error: io::Error| Error::io("cannot read", error);
        let _asking = asking(&self.files.path(file));
        let source = Source::to_scan(self.files, file)?;
        let path = source.path();
        let shard = Shard::new(format.name(), &source);
        let pass = Pass { job: self, path, source: &source, size: shard.size, told: Cell::new(0) };
        let (mut refused, mut untrusted) = (Vec::new(), Vec::new());
        if !self.wanted.common.rebuild {
            match self.wanted.places.find(&shard, &source, &self.memory) {
                Ok(sidecar) => match format.refuses(&pass, &sidecar)? {
                    None => {
                        pass.add(shard.size);
                        let (is_scanned, kept, damage) = (false, None, None);
                        return Ok(Indexed { sidecar, is_scanned, bytes_read: 0, refused, untrusted, kept, damage });
                    }
                    Some(reason) => refused.extend(sidecar.path().map(|place| (place.to_path_buf(), reason))),
                },
                Err(reasons) => {
                    refused = reasons.unfit;
                    untrusted = reasons.untrusted;
                }
            }
        }
        let found = format.look(&pass);
        pass.add(shard.size);
        let Found { builder, bytes_read, damage } = found?;
        let damage = damage.map(|error| error.with_path(path));
        if let Some(error) = damage.as_ref().filter(|_| !self.wanted.keep_damaged) {
            return Err(error.clone());
        }
        let is_kept = damage.is_none() && self.wanted.common.sidecars && self.wanted.write_index;
        let proof = if is_kept { builder.proof(source.content()).map_err(failed_to_read)? } else { Proof::default() };
        if is_given_up() {
            return Err(Error::new(ErrorKind::Timeout, "the wait for it has ended"));
        }
        // Before the index is written: it carries the identity of the file as it was when it was opened.
        if !source.content().is_unchanged().map_err(failed)? {
            return Err(Error::new(ErrorKind::Corrupt, "the file changed while it was indexed")
                .with_remedy("wait until it is written, and open it again"));
        }
        let (sidecar, kept) = self.finish(&shard, &source, builder.finish(&shard, proof), is_kept)?;
        Ok(Indexed { sidecar, is_scanned: true, bytes_read, refused, untrusted, kept, damage })
    }

    /// Puts a sidecar to disk, if it `is_kept`, and opens it.
    fn finish(
        &self,
        shard: &Shard,
        source: &Source,
        image: Vec<u8>,
        is_kept: bool,
    ) -> Result<(Sidecar, Option<Written>)> {
        let kept = is_kept.then(|| self.wanted.places.keep(source, &image));
        let written = match &kept {
            // Opened as any other, so that a large one is mapped.
            Some(Written::Beside(place) | Written::InCache(place, _)) => {
                Sidecar::open(&Place::new(place), (shard, source.content()), &self.memory).ok()
            }
            Some(Written::Nowhere(_)) | None => None,
        };
        let sidecar = match written {
            Some(sidecar) => sidecar,
            None => Sidecar::from_image(image, shard).map_err(|reason| {
                // Nothing that a file holds can lead here.
                Error::new(ErrorKind::Internal, format!("the new index is broken ({reason})"))
            })?,
        };
        Ok((sidecar, kept))
    }
}

/// What happened while files were opened.
#[derive(Debug)]
pub(crate) struct Notes {
    report: IndexReport,
    fallbacks: Vec<Fallback>,
    damage: Vec<Error>,
    skips: Skips,
}

impl Notes {
    /// Of these files; `skips` has what was left out before they were opened.
    pub(crate) fn of(files: &FileTable, indexed: &[Indexed], skips: Skips) -> Notes {
        let mut notes = Notes { report: IndexReport::default(), fallbacks: Vec::new(), damage: Vec::new(), skips };
        let (mut cached, mut in_memory, mut untrusted) =
            (StepDown::default(), StepDown::default(), StepDown::default());
        let mut cache = PathBuf::new();
        let folder_of = |path: &Path| path.parent().unwrap_or(Path::new(".")).to_path_buf();
        for (number, indexed) in indexed.iter().enumerate() {
            // Fits: a table has fewer than 2^32 files.
            let path = files.path(FileId(number as u32));
            let report = &mut notes.report;
            *if indexed.is_scanned { &mut report.scanned } else { &mut report.current } += 1;
            report.bytes_read = report.bytes_read.saturating_add(indexed.bytes_read);
            report.refused.extend(indexed.refused.iter().cloned());
            match &indexed.kept {
                Some(Written::Beside(_)) => report.written += 1,
                Some(Written::InCache(place, error)) => {
                    report.written += 1;
                    cache = folder_of(place);
                    cached.add(folder_of(&path), error, error.raw_os_error());
                }
                Some(Written::Nowhere(error)) => in_memory.add(folder_of(&path), error, error.raw_os_error()),
                None => {}
            }
            for (place, reason) in &indexed.untrusted {
                untrusted.add(place.clone(), reason, None);
            }
            for (code, count, first) in indexed.sidecar.left_out() {
                let Some(reason) = SkipReason::of_code(*code) else { continue };
                let first = if first.is_empty() { path.clone() } else { path.join(OsStr::from_bytes(first)) };
                notes.skips.add_many(reason, *count, &first);
            }
            if let Some(damage) = &indexed.damage {
                notes.skips.add(SkipReason::DamagedShard, &path);
                notes.damage.push(damage.clone());
            }
        }
        let in_memory = in_memory.into_fallback(Cause::IndexPlace, "indexes in memory, made at each start".into());
        let cached = cached.into_fallback(Cause::IndexPlace, format!("indexes in {cache:?}"));
        let untrusted = untrusted.into_fallback(Cause::ForeignIndex, "a look through the files".into());
        let untrusted = untrusted
            .map(|step| step.with_remedy("delete them, and index again; keep indexes where no other user may write"));
        notes.fallbacks.extend([cached, in_memory, untrusted].into_iter().flatten());
        notes
    }

    /// Puts it where everybody can see it.
    pub(crate) fn tell(self, index: &mut Index) {
        index.report = Some(self.report);
        index.fallbacks.extend(self.fallbacks);
        index.damage = self.damage;
        index.left_out = self.skips.into_vec();
    }

    /// The error for files without a sample: their damage if there is any, else `what`.
    pub(crate) fn nothing(self, files: &FileTable, what: &'static str) -> Error {
        self.damage.into_iter().next().unwrap_or_else(|| {
            let place = if files.len() == 1 { files.path(FileId(0)) } else { files.place().to_path_buf() };
            let error = Error::new(ErrorKind::Empty, what).with_path(place);
            let left_out = self.skips.describe();
            if left_out.is_empty() { error } else { error.with_remedy(format!("left out: {left_out}")) }
        })
    }
}

/// The end of each file, in samples, if they have that many each.
///
/// # Errors
/// `InvalidArgument` for more than 2^64 samples.
pub(crate) fn ends(files: &FileTable, samples: impl Iterator<Item = u64>) -> Result<Vec<u64>> {
    let mut end = 0_u64;
    let add = |(number, samples): (usize, u64)| -> Result<u64> {
        end = end.checked_add(samples).ok_or_else(|| {
            // Fits: a table has fewer than 2^32 files.
            let path = files.path(FileId(number as u32));
            Error::new(ErrorKind::InvalidArgument, "the files have more than 2^64 samples").with_path(path)
        })?;
        Ok(end)
    };
    samples.enumerate().map(add).collect()
}
