//! What of a dataset's objects lies in files of a local disk: where each stretch is, and which are put there.
//!
//! Which stretches are kept is the arithmetic of [`Grid::share_of`]: those whose number hashes below the share that
//! fits. None is given up for another, so from the second epoch on the share is the share of hits, also after a resume.

mod writer;

use crate::Result;
use crate::config::{Cause, DiskCache, EngineKind, Fallback, Route, Said};
use crate::dataset::{Dataset, FileId, FileTable};
use crate::plan::{Grid, Share, Stretch};
use crate::sampler::hash;
use crate::segments::{Key, PAGE_BYTES, Place, RAW, Segments};
use crate::stats::Stats;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uringload_sys::file;
use writer::Writer;

/// Length of a stretch, unless the dataset has more than can be numbered. A request to a store costs as much as this
/// many bytes, and the first sample of a stretch waits for all of it.
const STRETCH_BYTES: u64 = 1 << 20;

/// Stretches that may be fetched whole for a part of them at a time: each takes a buffer, beside the memory limit.
const BUFFERS_MAX: usize = 64;

/// Buffers that wait for the next stretch.
const BUFFERS_FREE_MAX: usize = 8;

/// Shortest time between two looks at what others have written, and how many times longer it is than a look.
const LOOKS_APART: Duration = Duration::from_millis(10);
const LOOK_SHARE: u32 = 20;

/// Bytes of hits, as a multiple of a stretch, to each stretch that is read whole and compared with its checksum: disks
/// lie, and other programs write.
const CHECKED_EVERY: u64 = 256;

/// The stretches of objects in a folder.
pub(crate) struct Cached {
    dataset: Arc<dyn Dataset>,
    segments: Arc<Segments>,
    /// How many of them the engine of local files knows: none where a read may hang.
    near: u32,
    grid: Grid,
    share: Share,
    /// The files that have a version, by the hash of what they are.
    names: Vec<(u64, FileId)>,
    /// Where each stretch is: see [`packed`].
    places: Box<[AtomicU64]>,
    /// Their checksums.
    sums: Box<[AtomicU32]>,
    pub(super) buffers: Buffers,
    writer: Writer,
    /// Bytes of hits.
    hits: AtomicU64,
    /// When the folder is looked at again for what others have written, in nanoseconds since `start`.
    due: AtomicU64,
    /// A thread looks at it: one that gets no answer is the only one.
    is_looking: AtomicBool,
    start: Instant,
    /// Set when the folder takes no more.
    is_full: AtomicBool,
    pub(super) said: Said,
    stats: Arc<Stats>,
}

/// Memory for stretches of which only a part is wanted.
#[derive(Default)]
pub(super) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
    lent: AtomicUsize,
}

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a buffer of `bytes` bytes to `work`, which may keep it.
    pub(super) fn with<T>(&self, bytes: u64, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = self.lock().pop().unwrap_or_default();
        buffer.resize(bytes as usize, 0);
        self.lent.fetch_add(1, Ordering::Relaxed);
        let result = work(&mut buffer);
        self.lent.fetch_sub(1, Ordering::Relaxed);
        self.put(buffer);
        result
    }

    /// A buffer with a copy of `bytes`.
    pub(super) fn copy(&self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.lock().pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    fn put(&self, buffer: Vec<u8>) {
        let mut free = self.lock();
        if free.len() < BUFFERS_FREE_MAX && buffer.capacity() > 0 {
            free.push(buffer);
        }
    }

    fn are_all_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed) >= BUFFERS_MAX
    }
}

/// What to do for a read of a stretch.
pub(super) enum Lookup {
    /// It is not kept.
    Far,
    /// It is there, and to be compared with its checksum before it is used.
    Check(Place),
    /// It is there.
    Near(Place),
    /// It is to be fetched whole.
    Fetch(Claim),
}

/// The right to fetch a stretch, given back where it is not kept.
pub(super) struct Claim {
    cached: Arc<Cached>,
    number: u32,
}

/// A place in [`Cached::places`].
const ABSENT: u64 = 0;
const CLAIMED: u64 = 1;
/// Its bytes cannot be read. It is not tried again.
const BROKEN: u64 = 2;
const IS_THERE: u64 = 1 << 63;
const IS_SURE: u64 = 1 << 62;

/// A place that is there in 64 bits, but for its checksum: 22 bits of the segment's number, 16 of the page's.
fn packed(place: &Place) -> Option<u64> {
    let fits = place.segment < 1 << 22 && place.page < 1 << 16;
    let sure = if place.is_sure { IS_SURE } else { 0 };
    fits.then_some(IS_THERE | sure | u64::from(place.segment) << 16 | u64::from(place.page))
}

impl Cached {
    /// Opens the folder and finds what it has of the dataset. Nothing, and why, if nothing of the dataset can be kept.
    ///
    /// A write or a look that takes longer than `patience` never ends.
    ///
    /// # Errors
    /// Of the folder: it cannot be made or written to, or others may write to it.
    pub(super) fn open(
        cache: &DiskCache,
        dataset: &Arc<dyn Dataset>,
        stats: &Arc<Stats>,
        patience: Duration,
    ) -> Result<std::result::Result<Cached, Fallback>> {
        let files = dataset.files();
        let Some(grid) = Grid::of_at_least(files, STRETCH_BYTES) else {
            return Ok(Err(none("the dataset has too many objects to number", "pack them into shards")));
        };
        let segments = Segments::open(&cache.folder, RAW, cache.bytes)?.asked_within(patience);
        let mut may_be = vec![false; files.len()];
        let mut names = Vec::new();
        for root in roots_of_stores(files) {
            let of_root = RootHashes::of(files, root);
            for file in files.files_of(root).map(FileId) {
                if let Some(key) = key_of(files, &grid, file, of_root) {
                    may_be[file.0 as usize] = true;
                    names.push((key.whole(), file));
                }
            }
        }
        names.sort_unstable();
        if names.is_empty() {
            let reason = "no object has a version (ETag, generation or date), so a change could not be noticed";
            return Ok(Err(none(reason, "serve the objects by a server that says one")));
        }
        let places = std::iter::repeat_with(|| AtomicU64::new(ABSENT)).take(grid.len()).collect();
        let sums = std::iter::repeat_with(|| AtomicU32::new(0)).take(grid.len()).collect();
        let mut cached = Cached {
            dataset: Arc::clone(dataset),
            near: 0,
            segments: Arc::new(segments),
            share: Share::NONE,
            grid,
            names,
            places,
            sums,
            buffers: Buffers::default(),
            writer: Writer::new(patience),
            hits: AtomicU64::new(0),
            due: AtomicU64::new(0),
            is_looking: AtomicBool::new(false),
            start: Instant::now(),
            is_full: AtomicBool::new(false),
            said: Said::default(),
            stats: Arc::clone(stats),
        };
        for root in roots_of_stores(files) {
            cached.segments.name_root(RootHashes::of(files, root).root, &files.roots()[root].to_string_lossy()).ok();
        }
        let own = cached.learn()?;
        cached.near = if cached.segments.may_hang() { 0 } else { cached.segments.segments_max().max(1) };
        let room = own.saturating_add(cached.segments.free_bytes());
        cached.share = {
            let sizes = files.sizes().iter().copied().zip(may_be);
            cached.grid.share_of(sizes, PAGE_BYTES, room).0
        };
        if let Some(memory) = memory_below(cached.segments.folder()) {
            cached.said.say("memory", || {
                let reason = format!("{} is on {memory}: memory, and no disk", cached.segments.folder().display());
                let step = Fallback::new(Cause::DiskCache, "objects kept in memory", None).with_reason(reason);
                step.with_remedy("name a folder on a disk; what `cache = memory` keeps is counted in memory_limit")
            });
        }
        if cached.names.len() < numbers(files).filter(|&file| is_far(files, file)).count() {
            let reason = "some objects have no version (ETag, generation or date), so a change could not be noticed";
            cached.said.say("version", || none(reason, "serve the objects by a server that says one"));
        }
        Ok(Ok(cached))
    }

    pub(super) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The files of the folder that are read as [`hits`](Cached::hit).
    pub(super) fn near(&self) -> impl Iterator<Item = String> {
        (0..self.near).map(Segments::file_name)
    }

    /// No read may cross a multiple of it.
    pub(super) fn border(&self) -> u64 {
        self.grid.bytes()
    }

    /// What is kept, for the route. `near` is that of the engine of local files, where there is one.
    pub(super) fn words(&self, near: Option<&Route>) -> String {
        let files = self.dataset.files();
        let all: u64 = numbers(files).filter(|&file| is_far(files, file)).map(|file| files.size(file)).sum();
        let (mut share, mut there) = (0, 0);
        for number in 0..self.grid.len() as u32 {
            let bytes = self.grid.stretch(number, files).span.len;
            let is_there = self.places[number as usize].load(Ordering::Relaxed) & IS_THERE > 0;
            share += if self.is_member(number) || is_there { bytes } else { 0 };
            there += if is_there { bytes } else { 0 };
        }
        let percent = |bytes: u64| 100.0 * bytes as f64 / all.max(1) as f64;
        let way = if near.is_some_and(|near| near.direct_io) { "O_DIRECT" } else { "page cache" };
        format!(
            "{:.1} % of the objects kept in {} ({:.1} % are there; {}, {way})",
            percent(share),
            self.segments.folder().display(),
            percent(there),
            near.map_or(EngineKind::Threads, |near| near.engine),
        )
    }

    /// Takes over what was logged since the last time, by any process. Returns the bytes that it takes.
    fn learn(&self) -> Result<u64> {
        let mut bytes = 0;
        self.segments.news(&mut |key, place| {
            if let Some(stretch) = self.stretch_of_key(&key)
                && stretch.span.len == u64::from(place.bytes)
            {
                bytes += stretch.span.len.next_multiple_of(PAGE_BYTES);
                self.put(stretch.number, &place);
            }
        })?;
        Ok(bytes)
    }

    /// Whether it is time to look at what others have written, and no thread does: where there are thousands of files,
    /// a look at all of them takes milliseconds. Who is told so has to [`look`](Cached::look).
    fn may_look(&self) -> bool {
        let is_due = self.start.elapsed().as_nanos() as u64 >= self.due.load(Ordering::Relaxed);
        is_due && !self.is_looking.swap(true, Ordering::Relaxed)
    }

    /// Takes over what others have written.
    fn look(&self) {
        let start = Instant::now();
        if let Err(error) = self.learn() {
            self.stop(&error);
        }
        let pause = (start.elapsed() * LOOK_SHARE).max(LOOKS_APART);
        self.due.store((self.start.elapsed() + pause).as_nanos() as u64, Ordering::Relaxed);
        self.is_looking.store(false, Ordering::Relaxed);
    }

    /// The later of two entries counts: it was written because the first was damaged, or both are good.
    fn put(&self, number: u32, place: &Place) {
        let Some(packed) = packed(place) else { return };
        self.sums[number as usize].store(place.crc, Ordering::Relaxed);
        // The checksum comes first: see `place`.
        self.places[number as usize].store(packed, Ordering::Release);
    }

    fn place(&self, stretch: &Stretch) -> Option<Place> {
        let packed = self.places[stretch.number as usize].load(Ordering::Acquire);
        (packed & IS_THERE > 0 && !self.segments.is_silent()).then(|| Place {
            segment: (packed >> 16 & 0x3f_ffff) as u32,
            page: (packed & 0xffff) as u32,
            bytes: stretch.span.len as u32,
            crc: self.sums[stretch.number as usize].load(Ordering::Relaxed),
            is_sure: packed & IS_SURE > 0,
        })
    }

    fn stretch_of_key(&self, wanted: &Key) -> Option<Stretch> {
        let files = self.dataset.files();
        let whole = wanted.whole();
        let first = self.names.partition_point(|&(name, _)| name < whole);
        let same = self.names[first..].iter().take_while(|&&(name, _)| name == whole);
        let (_, file) = same.into_iter().find(|&&(_, file)| {
            key(files, &self.grid, file).is_some_and(|key| (key.name, key.stamp) == (wanted.name, wanted.stamp))
        })?;
        let number = self.grid.of_file(*file).nth(wanted.piece as usize)?;
        Some(self.grid.stretch(number, files))
    }

    fn is_member(&self, number: u32) -> bool {
        self.share.has(number)
    }

    /// The stretch that a read of `bytes` bytes lies in: none if it lies in several, or cannot be kept.
    pub(super) fn stretch(&self, file: FileId, offset: u64, bytes: u64) -> Option<Stretch> {
        let span = crate::dataset::Span { file, offset, len: bytes };
        let (numbers, _) = self.grid.of(&span);
        (numbers.len() == 1).then(|| self.grid.stretch(numbers.start, self.dataset.files()))
    }

    /// Where a stretch is, if `bytes` of it can be used as they are. One in many is not, and is compared with its
    /// checksum.
    pub(super) fn hit(&self, stretch: &Stretch, bytes: u64) -> Option<Place> {
        let place = self.place(stretch).filter(|place| place.is_sure && place.segment < self.near)?;
        self.is_trusted(bytes).then_some(place)
    }

    /// Counts `bytes` of a hit. Returns whether they are used as they are.
    fn is_trusted(&self, bytes: u64) -> bool {
        let every = CHECKED_EVERY * self.grid.bytes();
        let before = self.hits.fetch_add(bytes, Ordering::Relaxed);
        before / every == (before + bytes) / every
    }

    /// What to do for a read of `bytes` bytes in a stretch that was no [`hit`](Cached::hit).
    pub(super) fn look_up(self: &Arc<Cached>, stretch: &Stretch, bytes: u64) -> Lookup {
        if let Some(place) = self.place(stretch) {
            let is_later = place.is_sure && place.segment >= self.near && self.is_trusted(bytes);
            return if is_later { Lookup::Near(place) } else { Lookup::Check(place) };
        }
        let is_wanted = self.is_member(stretch.number) && !self.is_full.load(Ordering::Relaxed);
        let is_whole = bytes == stretch.span.len;
        if !is_wanted || self.segments.is_silent() || !is_whole && self.buffers.are_all_lent() {
            return Lookup::Far;
        }
        // Another process may have it by now, or the next one: no read waits for the folder's answer.
        if self.may_look() {
            self.writer.look(self);
        }
        let cell = &self.places[stretch.number as usize];
        if cell.compare_exchange(ABSENT, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Lookup::Far;
        }
        Lookup::Fetch(Claim { cached: Arc::clone(self), number: stretch.number })
    }

    /// Reads the bytes of a stretch from byte `from` on.
    pub(super) fn read(&self, place: Place, from: u64, into: &mut [u8]) -> io::Result<()> {
        self.segments.read(place, from as u32, into)
    }

    /// Waits until the disk has what was kept. A disk that does not end a write is not waited for.
    pub(super) fn finish(&self) {
        self.writer.finish();
    }

    /// Counts bytes of samples that came from the folder.
    pub(super) fn count(&self, bytes: usize) -> usize {
        self.stats.count.bytes_cached.add(bytes as u64);
        bytes
    }

    /// Notes that the bytes of a stretch have been compared.
    pub(super) fn trust(&self, stretch: &Stretch) {
        self.places[stretch.number as usize].fetch_or(IS_SURE, Ordering::Relaxed);
    }

    /// Notes that a stretch is damaged: it is fetched again.
    pub(super) fn lose(&self, stretch: &Stretch) {
        self.places[stretch.number as usize].store(ABSENT, Ordering::Relaxed);
        self.said.say("damaged", || {
            let what = format!("what {} has of {}", self.segments.folder().display(), self.path(stretch));
            let reason = format!("{what} is not what was written: its checksum differs; it is fetched again");
            far(reason, "harmless; check the disk, and the folder by `uringload cache verify`")
        });
    }

    /// Notes that the disk does not give a stretch.
    pub(super) fn give_up(&self, stretch: &Stretch, error: Option<&io::Error>) {
        self.places[stretch.number as usize].store(BROKEN, Ordering::Relaxed);
        self.said.say("broken", || {
            let told = error.map_or("it is short".to_owned(), ToString::to_string);
            let reason = format!("{} cannot be read ({told})", self.segments.folder().display());
            far(reason, "harmless; check the disk, or clear the folder by `uringload cache clear`")
        });
    }

    /// Keeps no more.
    fn stop(&self, error: &dyn std::fmt::Display) {
        self.is_full.store(true, Ordering::Relaxed);
        self.said.say("full", || {
            let reason = format!("{} takes no more ({error})", self.segments.folder().display());
            far(reason, "make room on its disk, or name a folder that this user may write to")
        });
    }

    fn path(&self, stretch: &Stretch) -> String {
        let path = self.dataset.files().path(stretch.span.file);
        format!("{}:{}", path.display(), stretch.span.offset)
    }
}

impl Claim {
    /// Puts the whole stretch into the folder, soon. `bytes` is called if there is room for them.
    pub(super) fn keep(self, bytes: impl FnOnce() -> Vec<u8>) {
        let cached = Arc::clone(&self.cached);
        if cached.writer.reserve() {
            cached.writer.give(self, bytes());
        } else {
            cached.stop(&"it does not answer");
        }
    }

    fn write(self, bytes: Vec<u8>) {
        self.put(&bytes);
        self.cached.buffers.put(bytes);
    }

    fn put(&self, bytes: &[u8]) {
        let cached = &self.cached;
        if cached.is_full.load(Ordering::Relaxed) {
            return;
        }
        let stretch = cached.grid.stretch(self.number, cached.dataset.files());
        let Some(mut key) = key(cached.dataset.files(), &cached.grid, stretch.span.file) else { return };
        key.piece = self.number - cached.grid.of_file(stretch.span.file).start;
        // Another process may have been faster.
        if cached.may_look() {
            cached.look();
        }
        if cached.place(&stretch).is_some() || cached.is_full.load(Ordering::Relaxed) {
            return;
        }
        match cached.segments.put(key, &[bytes]) {
            Ok(Some(place)) => {
                cached.put(self.number, &place);
                if cached.segments.is_sparse() {
                    cached.said.say("sparse", || {
                        let folder = cached.segments.folder().display();
                        let reason = format!("the file system of {folder} cannot reserve room (fallocate)");
                        let step = Fallback::new(Cause::DiskCache, "files without reserved room", None);
                        step.with_reason(reason).with_remedy("leave enough room on the disk, or name another")
                    });
                }
            }
            Ok(None) if cached.segments.free_bytes() >= cached.grid.bytes() => {}
            Ok(None) => cached.stop(&"its budget is used up"),
            // Others held the files for seconds. The next one that wants the stretch keeps it.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => cached.stop(&error),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let cell = &self.cached.places[self.number as usize];
        let _ = cell.compare_exchange(CLAIMED, ABSENT, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The fallback where the store is asked for what is kept, or was to be.
fn far(reason: String, remedy: &'static str) -> Fallback {
    Fallback::new(Cause::DiskCache, "the store", None).with_reason(reason).with_remedy(remedy)
}

/// The fallback where nothing is kept.
pub(super) fn none(reason: &'static str, remedy: &'static str) -> Fallback {
    Fallback::new(Cause::DiskCache, "reading where the files are", None).with_reason(reason).with_remedy(remedy)
}

/// The file system of a folder, if it is one in memory.
fn memory_below(folder: &Path) -> Option<String> {
    let folder = file::open_folder(folder).ok()?;
    let name = file::file_system(folder.as_fd()).ok()?;
    matches!(&*name, "tmpfs" | "ramfs").then(|| name.into_owned())
}

fn numbers(files: &FileTable) -> impl Iterator<Item = FileId> {
    (0..files.len() as u32).map(FileId)
}

fn is_far(files: &FileTable, file: FileId) -> bool {
    files.store_of(files.root_of(file)).is_some()
}

fn roots_of_stores(files: &FileTable) -> impl Iterator<Item = usize> {
    (0..files.roots().len()).filter(|&root| files.store_of(root).is_some())
}

/// A hash of bytes that is the same on every machine.
fn hash_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    words.fold(bytes.len() as u64, |state, word| hash(state ^ hash(word)))
}

/// Hashes of what the objects of a root have in common: the root, and the store.
#[derive(Clone, Copy)]
struct RootHashes {
    root: u64,
    store: u64,
}

impl RootHashes {
    fn of(files: &FileTable, root: usize) -> RootHashes {
        let shown = files.store_of(root).map(|store| store.shown(b"")).unwrap_or_default();
        let hash = |path: &Path| hash_of(path.as_os_str().as_bytes());
        RootHashes { root: hash(&files.roots()[root]), store: hash(&shown) }
    }
}

/// What an object is in a cache, but for the piece: none without a version.
fn key(files: &FileTable, grid: &Grid, file: FileId) -> Option<Key> {
    key_of(files, grid, file, RootHashes::of(files, files.root_of(file)))
}

fn key_of(files: &FileTable, grid: &Grid, file: FileId, of_root: RootHashes) -> Option<Key> {
    let far = files.far(file)?;
    let version = far.version?.to_bits();
    let name = hash(of_root.store ^ hash_of(&far.key));
    let stamp = hash(hash(version ^ files.size(file)) ^ grid.bytes());
    Some(Key { root: of_root.root, name, stamp, piece: 0 })
}

impl Key {
    /// A hash of what it is of.
    fn whole(&self) -> u64 {
        hash(self.name ^ hash(self.stamp))
    }
}
