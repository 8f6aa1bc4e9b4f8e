//! The indexes of all shards: those that lie there, those that others wrote, and those that have to be made.

use super::super::parallel::try_in_parallel;
use super::super::sidecar::{Kept, Places, RESIDENT_BYTES, Shard, Sidecar};
use super::super::skipped::SkipReason;
use super::super::window::{Plain, Source, Stored};
use super::super::{Compression, FileId, FileTable};
use super::dali;
use super::header::BLOCK_BYTES;
use super::keys::Grouper;
use super::packed::{self, Stream};
use super::scan::{Entry, Sink, scan};
use super::{Damaged, TarOptions, TarProgress, is_plain};
use crate::error::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_sys::file::{Identity, OpenFlags, Opened, advise_random};

/// The index of one shard, and where it comes from.
#[derive(Debug)]
pub(in crate::dataset) struct Indexed {
    pub(in crate::dataset) sidecar: Sidecar,
    pub(in crate::dataset) origin: Origin,
    /// Bytes of the archive that were read for it.
    pub(in crate::dataset) bytes_read: u64,
    /// Sidecars that lay there and are not this shard's index, with the reason.
    pub(in crate::dataset) refused: Vec<(PathBuf, String)>,
    /// Why DALI's index, which lay there, was not used.
    pub(in crate::dataset) dali_refused: Option<String>,
    /// Where the sidecar was put, if it is a new one.
    pub(in crate::dataset) kept: Option<Kept>,
    /// Why the shard cannot be read to its end.
    pub(in crate::dataset) damage: Option<Error>,
}

/// Where an index comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dataset) enum Origin {
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
                Ok(sidecar) => match self.other_way(&sidecar, &path, Plain { file: &opened.file, size: shard.size })? {
                    None => {
                        self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                        return Ok(Indexed::new(sidecar, Origin::Sidecar));
                    }
                    Some(reason) => refused.extend(sidecar.path().map(|place| (place.to_path_buf(), reason))),
                },
                Err(reasons) => refused = reasons,
            }
        }
        let compression =
            packed::detect(Plain { file: &opened.file, size: shard.size }).map_err(|error| error.with_file(&path))?;
        let mut indexed = match compression {
            Some(compression) => self.scan_packed(&path, &shard, &opened.file, compression)?,
            None => self.index_plain(&path, &shard, &opened)?,
        };
        indexed.refused = refused;
        match Identity::of(opened.file.as_fd()).map_err(failed)? {
            now if now == opened.identity => Ok(indexed),
            _ => Err(Error::new(ErrorKind::Corrupt, "the archive changed while it was looked through:")
                .with_file(&path)
                .with_remedy("wait until it is written")),
        }
    }

    /// What is wrong with the index of the shard if it says that the shard is compressed otherwise than it is. Where
    /// nothing hints at compression, no byte of the shard is read for it.
    fn other_way(&self, sidecar: &Sidecar, path: &Path, file: Plain<'_>) -> Result<Option<String>> {
        let told = sidecar.decoded().map(|(compression, _)| compression);
        if told.is_none() && is_plain(path) {
            return Ok(None);
        }
        let found = packed::detect(file).map_err(|error| error.with_file(path))?;
        Ok((found != told).then(|| "it is the index of a file that is compressed otherwise".to_owned()))
    }

    fn index_plain(&self, path: &Path, shard: &Shard, opened: &Opened) -> Result<Indexed> {
        let mut plain = Plain { file: &opened.file, size: shard.size };
        let imported = if self.options.rebuild { None } else { dali::import(path, &opened.identity, &mut plain) };
        let dali_refused = match imported {
            Some(Ok(grouper)) => {
                self.bytes.fetch_add(shard.size, Ordering::Relaxed);
                return self.finish(path, shard, grouper, Origin::Dali, None);
            }
            Some(Err(reason)) => Some(reason),
            None => None,
        };
        // Without readahead, which would read the payloads that are passed over. Where that cannot be had, it does.
        let _ = advise_random(opened.file.as_fd());
        let meter = Meter::new(self, shard.size);
        let mut collector = Collector::new(Some(&meter));
        let result = scan(&mut plain, &mut collector);
        meter.finish();
        let (bytes_read, damage) = match result {
            Ok(bytes_read) => (bytes_read, None),
            Err(error) => (0, Some(self.tolerate(error.with_file(path))?)),
        };
        let grouper = collector.into_grouper(damage.is_none());
        let indexed = self.finish(path, shard, grouper, Origin::Scan, damage)?;
        Ok(Indexed { bytes_read, dali_refused, ..indexed })
    }

    /// Looks through what a compressed shard decodes to.
    fn scan_packed(&self, path: &Path, shard: &Shard, file: &OwnedFd, compression: Compression) -> Result<Indexed> {
        let meter = Meter::new(self, shard.size);
        let mut collector = Collector::new(None);
        let mut stream = Stream::new(compression, Stored { file, at: 0, passed: |at| meter.passed(at) });
        let result = stream.as_mut().map_err(|error| error.clone()).and_then(|stream| scan(stream, &mut collector));
        // Behind the archive as well: the length of all is what it is read by, and the end is where checksums are.
        let len = match (stream, &result) {
            (Ok(mut stream), _) if !stream.is_broken() => stream.reach(u64::MAX),
            (_, Err(error)) => Err(error.clone()),
            (_, Ok(_)) => Err(Error::new(ErrorKind::Internal, "a broken stream was looked through to its end:")),
        };
        meter.finish();
        let damage = match result.and_then(|_| len.clone()) {
            Ok(_) => None,
            Err(error) => Some(self.tolerate(in_decoded(error).with_file(path))?),
        };
        let grouper = match len {
            Ok(len) => {
                let mut grouper = collector.into_grouper(damage.is_none());
                grouper.builder.decoded(compression, len);
                grouper
            }
            // All of it is decoded for any of its samples, so that none of them can be had.
            Err(_) => Grouper::new(BLOCK_BYTES as u32),
        };
        let indexed = self.finish(path, shard, grouper, Origin::Scan, damage)?;
        Ok(Indexed { bytes_read: shard.size, ..indexed })
    }

    /// The damage of a shard, where the dataset may be opened all the same.
    fn tolerate(&self, error: Error) -> Result<Error> {
        if self.options.damaged == Damaged::Error { Err(error) } else { Ok(error) }
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
    pub(in crate::dataset) fn new(sidecar: Sidecar, origin: Origin) -> Indexed {
        let (refused, dali_refused, kept, damage) = (Vec::new(), None, None, None);
        Indexed { sidecar, origin, bytes_read: 0, refused, dali_refused, kept, damage }
    }
}

/// Offsets of a compressed archive are those of what it decodes to, and an error says so.
fn in_decoded(error: Error) -> Error {
    let place = "the offset is one of the decompressed archive";
    let remedy = error.remedy().map_or_else(|| place.to_owned(), |remedy| format!("{remedy}; {place}"));
    error.with_remedy(remedy)
}

/// Bytes of an archive between two reports of progress.
const TELL_BYTES: u64 = 64 << 20;

/// Tells how far the look through one shard has come.
struct Meter<'a> {
    job: &'a Job<'a>,
    size: u64,
    told: Cell<u64>,
}

impl<'a> Meter<'a> {
    fn new(job: &'a Job<'a>, size: u64) -> Meter<'a> {
        Meter { job, size, told: Cell::new(0) }
    }

    /// The look has come to this byte of the file.
    fn passed(&self, offset: u64) {
        let offset = offset.min(self.size);
        if offset.saturating_sub(self.told.get()) >= TELL_BYTES {
            self.add(offset);
            self.job.tell();
        }
    }

    /// Counts what was not told of, whether it was looked through or not.
    fn finish(&self) {
        self.add(self.size);
    }

    fn add(&self, offset: u64) {
        self.job.bytes.fetch_add(offset - self.told.replace(offset), Ordering::Relaxed);
    }
}

/// Puts what a scan finds together.
struct Collector<'a> {
    grouper: Grouper,
    left_out: Vec<(SkipReason, u64, Vec<u8>)>,
    /// Where the offsets of the scan are those of the file.
    meter: Option<&'a Meter<'a>>,
}

impl<'a> Collector<'a> {
    fn new(meter: Option<&'a Meter<'a>>) -> Collector<'a> {
        Collector { grouper: Grouper::new(BLOCK_BYTES as u32), left_out: Vec::new(), meter }
    }

    /// The samples that were found, in an archive that is whole or not.
    fn into_grouper(self, is_whole: bool) -> Grouper {
        let Collector { mut grouper, left_out, .. } = self;
        if !is_whole {
            // The sample that was under way may lack what lies behind the damage.
            grouper.drop_open();
        }
        for (reason, count, first) in left_out {
            grouper.builder.left_out(reason.code(), count, &first);
        }
        grouper
    }
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
        if let Some(meter) = self.meter {
            meter.passed(offset);
        }
    }
}
