//! Reads files straight into GPU memory, with threads that call cuFile. The GPU memory appears here as its shadow: an
//! arena in which the byte at each offset represents the GPU byte at that offset.
//!
//! Reads that cuFile cannot or should not do go through the pinned path instead, on the same thread and to the same
//! place: short reads, memory that could not be registered, files that cuFile does not accept, and reads that fail.

mod check;

use super::files::{Files, OpenFile};
use super::open::Opened;
use super::threads::{Reader, Threads};
use super::{ABANDONED_MAX, Read, Width, way};
use crate::config::GdsCause;
use crate::config::{Cause, Config, EngineKind, Fallback, IoChoice, Route};
use crate::dataset::{Dataset, FileId};
use crate::patience::Patience;
use crate::stats::Stats;
use crate::{Error, Result};
use check::Checks;
use crossbeam_queue::ArrayQueue;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uringload_sys::cuda::{Bounce, Context, Span};
use uringload_sys::cufile::{Cufile, CufileError, FileHandle, ReadError, RegisteredBuffer};
use uringload_sys::file;

/// Shorter reads go through the host: below this size cuFile costs more than it saves. cuDF uses the same limit; KvikIO
/// uses 16 KiB, and NVIDIA's own advice is 64.
pub(crate) const STRAIGHT_BYTES: u64 = 128 << 10;

/// Default length of one read, and its bounds. NIXL's 12.7 GB/s from one disk were measured with 4 MiB; cuFile splits
/// anything longer than 16 MiB.
pub(crate) const STRAIGHT_READ_BYTES: usize = 4 << 20;
const READ_BYTES_BOUNDS: [usize; 2] = [1 << 20, 16 << 20];

/// Minimum and maximum default number of threads. Each has one read in progress.
const THREADS: [usize; 2] = [8, 16];

/// Alignment of the offset, length and memory of direct reads.
const ALIGNMENT: u32 = 4096;

/// Maximum number of registered files.
const FILES_KEPT: usize = 256;

/// Pinned memory per thread.
const BOUNCE_BYTES: usize = 1 << 20;

/// Default time limit of a read. cuFile is known to hang, and only a timeout can detect that.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Smallest registration to try.
const REGISTERED_MIN: usize = 2 << 20;

/// Capacity of the queue of unreported fallbacks.
const SAID_MAX: usize = 16;

/// GPU memory that files are read into, and cuFile, which reads them.
pub(crate) struct Straight {
    files: Files,
    context: Context,
    cufile: Cufile,
    memory: Span,
    /// The registered bytes, from the start of the memory: all of it, or as much as was possible. `None` only while
    /// dropping.
    registered: Option<RegisteredBuffer<Span>>,
    alignment: u32,
    kept: Mutex<Registered>,
    kept_max: usize,
    /// Number of reads done by cuFile.
    reads: AtomicU64,
    said: ArrayQueue<Fallback>,
    file_was_said: AtomicBool,
    read_was_said: AtomicBool,
    checks: Checks,
}

/// Files registered with cuFile, a bounded number.
#[derive(Default)]
struct Registered {
    slots: HashMap<FileId, Slot>,
    /// Use counter.
    uses: u64,
}

#[derive(Default)]
struct Slot {
    /// Locked while the file is opened and registered. Empty until then, or if that failed.
    file: Arc<Mutex<Option<Arc<Known>>>>,
    used: u64,
}

/// A file opened for cuFile.
struct Known {
    /// `None` if cuFile does not accept the file.
    handle: Option<FileHandle>,
    /// Whether cuFile failed to read it.
    refused: AtomicBool,
}

/// Per-thread state for reads through the host.
#[derive(Default)]
pub(super) struct Own {
    file: Option<(FileId, OpenFile)>,
    bounce: Option<Bounce>,
}

/// Checks whether a dataset's files can be read past the page cache and, unless `insists`, also whether they should be.
///
/// # Errors
/// Why not.
pub(crate) fn suits(config: &Config, dataset: &Arc<dyn Dataset>, insists: bool) -> Result<(), Box<Fallback>> {
    let fails =
        |reason: String| Err(Box::new(Fallback::new(Cause::Gds(GdsCause::Files), PINNED, None).with_reason(reason)));
    if config.io == IoChoice::Buffered {
        return fails("reads through the page cache were asked for".into());
    }
    if dataset.files().has_objects() {
        return fails("cuFile reads files, and some of these are objects of a store".into());
    }
    let io = if insists { IoChoice::Direct } else { config.io };
    match way::choose(&Config { io, ..config.clone() }, dataset, &Patience::of(config)) {
        Ok(way) if way.direct => Ok(()),
        Ok(way) => fails(way.fallbacks.first().map_or_else(String::new, |step| step.reason.to_string())),
        Err(error) => Err(files_step(&error)),
    }
}

fn files_step(error: &Error) -> Box<Fallback> {
    Box::new(Fallback::new(Cause::Gds(GdsCause::Files), PINNED, None).with_error(error))
}

/// The path that is used instead.
pub(crate) const PINNED: &str = "the pinned path";

/// Time limit of a read.
pub(crate) fn timeout(config: &Config) -> Duration {
    config.timeout.unwrap_or(TIMEOUT)
}

impl Straight {
    /// Registers `memory` with cuFile, or as much of it, from its start, as cuFile accepts. In the second case also
    /// returns the fallback to report.
    ///
    /// # Errors
    /// Why no memory could be registered, or why the files cannot be read this way.
    pub(crate) fn new(
        config: &Config,
        dataset: &Arc<dyn Dataset>,
        (cufile, context): (Cufile, &Context),
        memory: Span,
        check_every: u64,
    ) -> Result<(Straight, Option<Fallback>), Box<Fallback>> {
        let step = |cause, reason: String| Box::new(Fallback::new(cause, PINNED, None).with_reason(reason));
        let files = |error: Error| files_step(&error);
        let patience = Patience::of(config);
        let insisting = Config { io: IoChoice::Direct, ..config.clone() };
        let way = way::choose(&insisting, dataset, &patience).map_err(files)?;
        let files = Files::new(Arc::clone(dataset), way.direct, way.blocking, &patience).map_err(files)?;
        let files = files.checked_every(config.check_every);
        let _current = context.enter().map_err(|error| step(Cause::Gds(GdsCause::Context), error.to_string()))?;
        let refused = |error: CufileError| {
            step(Cause::Gds(GdsCause::Memory), format!("no memory could be registered: {error}"))
                .with_remedy(error.remedy())
        };
        let (registered, limit) = register(&cufile, &memory).map_err(refused)?;
        let said = limit.map(|error| {
            let got = format!("{} of {} bytes of it", registered.len(), memory.len());
            Fallback::new(Cause::Gds(GdsCause::Memory), got, None)
                .with_reason(error.to_string())
                .with_remedy(error.remedy())
        });
        let straight = Straight {
            files,
            context: context.clone(),
            cufile,
            memory,
            registered: Some(registered),
            alignment: way.alignment.max(ALIGNMENT),
            kept: Mutex::default(),
            kept_max: FILES_KEPT.min(Files::open_at_once()),
            reads: AtomicU64::new(0),
            said: ArrayQueue::new(SAID_MAX),
            file_was_said: AtomicBool::new(false),
            read_was_said: AtomicBool::new(false),
            checks: Checks::new(check_every),
        };
        Ok((straight, said))
    }

    /// The memory that files are read into.
    pub(crate) fn memory(&self) -> &Span {
        &self.memory
    }

    /// Number of its bytes that are registered.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.registered.as_ref().map_or(0, RegisteredBuffer::len)
    }

    /// Number of reads done by cuFile.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Opens the engine.
    ///
    /// # Errors
    /// If the system cannot start the threads.
    pub(crate) fn open(self: &Arc<Self>, config: &Config, stats: &Arc<Stats>) -> Result<Opened> {
        let [least, most] = THREADS;
        let processors = uringload_sys::cgroup::processors();
        let threads = config.io_threads.unwrap_or(processors.clamp(least, most)).max(1);
        let [shortest, longest] = READ_BYTES_BOUNDS;
        let read_bytes = config.read_size.map_or(STRAIGHT_READ_BYTES, |bytes| bytes.clamp(shortest, longest));
        // So that each thread that finishes finds its next read waiting.
        let queue_depth = config.queue_depth.unwrap_or(2 * threads).max(1);
        let engine = Threads::new(Arc::clone(self), threads, false, (queue_depth, ABANDONED_MAX), stats)
            .map_err(|source| Error::io(format!("cannot start {threads} threads to read with"), source))?;
        let route = Route {
            engine: EngineKind::Gds,
            direct_io: true,
            reads_once: false,
            alignment: self.alignment,
            queue_depth,
            read_bytes: read_bytes / self.alignment as usize * self.alignment as usize,
            border: 0,
            registered_buffers: true,
            backing: "".into(),
            pinned: false,
            devices: Vec::new(),
            locality: Vec::new(),
            fallbacks: Vec::new(),
        };
        let width = Width { start: queue_depth, most: queue_depth, fixed: config.queue_depth.is_some() };
        Ok(Opened { engine: Box::new(engine), route, width })
    }

    /// The file as registered with cuFile, registering it if necessary.
    fn known(&self, id: FileId, opening: &AtomicBool) -> io::Result<Arc<Known>> {
        let mut evicted = None;
        let file = {
            let mut kept = lock(&self.kept);
            kept.uses += 1;
            let used = kept.uses;
            if kept.slots.len() >= self.kept_max && !kept.slots.contains_key(&id) {
                let oldest = kept.slots.iter().min_by_key(|(_, slot)| slot.used).map(|(&id, _)| id);
                evicted = oldest.and_then(|oldest| kept.slots.remove(&oldest));
            }
            let slot = kept.slots.entry(id).or_default();
            slot.used = used;
            Arc::clone(&slot.file)
        };
        // Not under the lock: dropping the file deregisters it with cuFile, unless a read in progress still holds it.
        drop(evicted);
        let mut file = lock(&file);
        if let Some(known) = &*file {
            return Ok(Arc::clone(known));
        }
        opening.store(true, Ordering::Relaxed);
        let known = self.register(id).map(Arc::new);
        opening.store(false, Ordering::Relaxed);
        let known = known?;
        *file = Some(Arc::clone(&known));
        Ok(known)
    }

    fn register(&self, id: FileId) -> io::Result<Known> {
        let file = self.files.open(id)?.into();
        let handle = match self.cufile.register_file(file) {
            Ok(handle) => Some(handle),
            Err(error) => {
                self.say(&self.file_was_said, Cause::Gds(GdsCause::File), id, &error.to_string(), error.remedy());
                None
            }
        };
        Ok(Known { handle, refused: AtomicBool::new(false) })
    }

    /// Reports the first fallback of a kind.
    fn say(&self, was_said: &AtomicBool, cause: Cause, id: FileId, error: &str, remedy: &'static str) {
        if !was_said.swap(true, Ordering::Relaxed) {
            let reason = format!("{}: {error}", self.files.path(id).display());
            // The queue is full if the caller does not take the fallbacks.
            let _ = self.said.push(Fallback::new(cause, PINNED, None).with_reason(reason).with_remedy(remedy));
        }
    }

    /// Reads with cuFile. Returns `None` if this read should not use it.
    fn straight(&self, read: &Read, own: &mut Own, opening: &AtomicBool) -> io::Result<Option<usize>> {
        let len = read.part.len() as u64;
        let holds = |buffer: &&RegisteredBuffer<Span>| read.part.end() as u64 <= buffer.len();
        let is_open = |_: &&RegisteredBuffer<Span>| !self.checks.failed.load(Ordering::Relaxed);
        let Some(buffer) = self.registered.as_ref().filter(holds).filter(|_| len >= STRAIGHT_BYTES).filter(is_open)
        else {
            return Ok(None);
        };
        let known = self.known(read.file, opening)?;
        let Some(handle) = known.handle.as_ref().filter(|_| !known.refused.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let is_checked = self.checks.is_due();
        if is_checked {
            self.poison(read, own)?;
        }
        match self.cufile.read(handle, buffer, read.part.offset() as u64, read.offset, len) {
            // At most `len`, which is a length of memory.
            Ok(bytes) => {
                // A registered file stays readable after another file has taken its place.
                self.files.check_path(read.file, false)?;
                self.reads.fetch_add(1, Ordering::Relaxed);
                let is_right = !is_checked || self.is_right(read, bytes as usize, own, opening)?;
                // Wrong bytes are read again, through the host.
                Ok(is_right.then_some(bytes as usize))
            }
            // If the device is gone, cuFile blames the file.
            Err(ReadError::Io(error)) => match self.context.memory() {
                Err(of_device) if of_device.is_fatal() => Err(io::Error::other(of_device)),
                _ => Err(error),
            },
            Err(error) => {
                let (passes, remedy) = match &error {
                    ReadError::Cufile(error) => (error.is_limit(), error.remedy()),
                    _ => (false, "report it with the message"),
                };
                known.refused.fetch_or(!passes, Ordering::Relaxed);
                self.say(&self.read_was_said, Cause::Gds(GdsCause::Read), read.file, &error.to_string(), remedy);
                Ok(None)
            }
        }
    }

    /// Takes the file, which the thread may have open. The caller puts it back.
    fn take_file(&self, id: FileId, own: &mut Own, opening: &AtomicBool) -> io::Result<OpenFile> {
        if let Some((_, file)) = own.file.take().filter(|(known, _)| *known == id) {
            return Ok(file);
        }
        opening.store(true, Ordering::Relaxed);
        let opened = self.files.open(id);
        opening.store(false, Ordering::Relaxed);
        opened
    }

    /// Reads into pinned memory and copies to the GPU from there. Bytes copied before an error count; the rest is read
    /// again.
    fn bounced(&self, read: &Read, own: &mut Own, opening: &AtomicBool) -> io::Result<usize> {
        let file = self.take_file(read.file, own, opening)?;
        let mut bounce = self.take_bounce(own)?;
        let mut done = 0;
        while done < read.part.len() {
            let len = BOUNCE_BYTES.min(read.part.len() - done);
            let got = match file::read_at(file.as_fd(), &mut bounce.memory()[..len], read.offset + done as u64) {
                Ok(got) => got,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            // A bounce buffer that has failed is not reused.
            bounce.copy(&self.target(read, done, got)?).map_err(io::Error::other)?;
            done += got;
            if got < len {
                break;
            }
        }
        let is_still = self.files.check_again(read.file, &file);
        (own.file, own.bounce) = (Some((read.file, file)), Some(bounce));
        is_still.map(|()| done)
    }
}

impl Drop for Straight {
    fn drop(&mut self) {
        // cuFile needs the memory's context to be current while it releases the memory.
        let _current = self.context.enter();
        lock(&self.kept).slots.clear();
        self.registered = None;
    }
}

impl Reader for Straight {
    type Own = Own;

    fn read(&self, read: &mut Read, own: &mut Own, opening: &AtomicBool) -> io::Result<usize> {
        let _current = self.context.enter().map_err(io::Error::other)?;
        match self.straight(read, own, opening)? {
            Some(bytes) => Ok(bytes),
            None => self.bounced(read, own, opening),
        }
    }

    fn said(&self) -> Option<Fallback> {
        self.said.pop()
    }

    fn lost(&self, file: FileId) -> Option<String> {
        self.files.lost(file)
    }

    fn renew(&self, file: FileId) {
        // Not under the lock: see `known`. A read that failed has already dropped what its thread held.
        let evicted = lock(&self.kept).slots.remove(&file);
        drop(evicted);
        self.files.reopen_root(file);
    }
}

/// Registers the memory, or as much of it as the limits allow. Also returns the error that limited it.
fn register(
    cufile: &Cufile,
    memory: &Span,
) -> std::result::Result<(RegisteredBuffer<Span>, Option<CufileError>), CufileError> {
    let mut limit = None;
    let mut len = memory.len();
    loop {
        let range = memory.slice(0..len).ok_or(CufileError::INVALID_VALUE)?;
        match cufile.register_buffer(range) {
            Ok(registered) => return Ok((registered, limit)),
            Err((error, _)) if error.is_limit() && len / 2 >= REGISTERED_MIN => {
                limit = Some(error);
                len = len / 2 / REGISTERED_MIN * REGISTERED_MIN;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
