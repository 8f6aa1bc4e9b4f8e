//! Runs the threads that compute: they decode units and process single values. Work is numbered and completes in any
//! order; the receiver restores its own order by the numbers. The memory for work bounds how much is in progress.
//! Without threads, the consumer's thread does the work while it waits for batches.

mod nvjpeg;
mod prepared;

use crate::config::{Cause, Fallback};
use crate::dataset::{Dataset, FileId, SampleId, UnitId};
use crate::guard;
use crate::prepared::{Filling, Prepared};
use crate::queue::{Bell, Call};
use crate::resident::{RANGE_ALIGNMENT, Resident, Room};
use crate::samples::Samples;
use crate::stats::{Clock, Doing, Role, Stats};
use crate::transform::{DecodeMemory, Decoded, Map, MapScratch, Mixer};
use crate::{Error, ErrorKind, Result, dataset};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use prepared::Made;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uringload_sys::Part;
use uringload_sys::cuda::Pinned;
use uringload_sys::nvjpeg::Decoder;

/// A piece of work.
#[derive(Debug)]
pub struct Work {
    /// Returned in [`Finished::number`].
    pub number: Number,
    /// The task.
    pub task: Task,
    /// Destination of the result.
    pub out: Part,
}

/// Identifies a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// The load of a unit.
    Unit(u64),
    /// A value of a batch.
    Value {
        /// Number of the batch.
        batch: u64,
        /// Its index in the batch.
        place: u32,
    },
    /// The images of the batch of this number, for mixing.
    Mixed(u64),
}

/// What to do.
#[derive(Debug)]
pub enum Task {
    /// Decode a unit.
    Unit {
        /// The unit.
        unit: UnitId,
        /// Its stored bytes, one slice per span.
        stored: Vec<Bytes>,
    },
    /// Process a value.
    Value(Value),
    /// Mix the images of a batch, which are in the destination.
    Mix(Mixed),
}

/// The images of a batch to be mixed.
#[derive(Debug)]
pub struct Mixed {
    /// The epoch of the batch.
    pub epoch: u64,
    /// Its samples.
    pub ids: Vec<SampleId>,
    /// The locations of their images.
    pub places: Vec<Range<usize>>,
}

/// A value to process.
#[derive(Debug)]
pub struct Value {
    /// Index in [`Maps::columns`].
    pub column: usize,
    /// Its sample.
    pub id: SampleId,
    /// The epoch of its random numbers.
    pub epoch: u64,
    /// The value.
    pub bytes: Bytes,
    /// Values of other columns of the sample, which it follows.
    pub beside: Vec<Bytes>,
    /// The file that it was read from and its offset there, if it is in one piece.
    pub from: Option<(FileId, u64)>,
    /// Its field in the schema.
    pub field: usize,
    /// Whether its sample is kept prepared.
    pub keeping: Keeping,
    /// The place on a GPU where the result may stay.
    pub place: Option<Resident>,
}

/// Whether a value is kept prepared.
#[derive(Debug)]
pub enum Keeping {
    /// Nothing.
    Not,
    /// It is kept once it is prepared.
    Fill(Arc<Filling>),
    /// It is kept already: nothing of its sample was read.
    Kept,
}

/// How columns are processed, value by value.
#[derive(Debug)]
pub struct Maps {
    /// Name of each column and its map, in the order of the schema.
    pub columns: Vec<(String, Map)>,
    /// The seed of random numbers.
    pub seed: u64,
    /// Memory for decoding.
    pub memory: DecodeMemory,
    /// The samples that are kept prepared.
    pub prepared: Option<Arc<Prepared>>,
    /// Mixes batches.
    pub mixer: Option<Arc<Mixer>>,
}

impl Maps {
    /// The values that those of a column follow, from a sample with `values`.
    pub fn beside(&self, column: usize, values: &[dataset::Value]) -> Vec<Bytes> {
        let fields = self.columns.get(column).map_or(&[][..], |(_, map)| map.beside());
        let bytes = |field: &usize| match values.get(*field) {
            Some(dataset::Value::Bytes(bytes)) => bytes.clone(),
            Some(dataset::Value::I64(_)) | None => Bytes::new(),
        };
        fields.iter().map(bytes).collect()
    }
}

/// JPEG decoders on GPUs.
#[derive(Debug)]
pub struct OnGpus {
    /// One for each thread that uses them.
    pub decoders: Vec<Decoder>,
    /// Their share of the images, 0 to 1.
    pub share: f64,
    /// Where pixels stay if their column is made on the same GPU.
    pub staying: Option<Staying>,
}

/// Keeps pixels on the GPU that decoded them, if the host would only pass them on.
#[derive(Debug)]
pub struct Staying {
    /// The GPU's memory for them. Batches take places there in order, so that no batch holds places that an earlier one
    /// waits for.
    pub room: Room,
    /// For each of [`Maps::columns`], the bytes of pixels of a value if the GPU makes the column from them; otherwise
    /// 0.
    pub columns: Vec<usize>,
}

impl Staying {
    /// Bytes of the room that a sample with these columns takes.
    pub fn sample_bytes(columns: &[usize]) -> usize {
        columns.iter().map(|bytes| bytes.next_multiple_of(RANGE_ALIGNMENT)).sum()
    }

    /// Whether there are places for all values of a batch of this many samples.
    pub fn has_places(&self, samples: usize) -> bool {
        Staying::sample_bytes(&self.columns).saturating_mul(samples) <= self.room.free_bytes()
    }
}

/// Finished work, or its error.
#[derive(Debug)]
pub struct Finished {
    /// Number of the [`Work`].
    pub number: Number,
    /// The memory. The result is its first `result` bytes.
    pub out: Part,
    /// Length of the result in bytes.
    pub result: Result<usize>,
    /// All values of a sample that needed no reads, with the first of its processed columns.
    pub others: Option<Vec<dataset::Value>>,
    /// The location of the result, if not in `out`: the pixels stay on the GPU that decoded them.
    pub resident: Option<Resident>,
    /// How long it took.
    pub took: Duration,
}

/// Does work on its own threads, on the consumer's, or on the caller's.
#[derive(Debug)]
pub struct Stage {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// For work on the caller's thread.
    scratch: MapScratch,
    staying: Option<Staying>,
    /// Memory that GPUs read files from, kept until the threads have ended: the thread that feeds devices may end
    /// earlier.
    pinned: Option<Arc<Pinned>>,
    /// Work submitted and not returned yet.
    under_way: usize,
    /// Set if the system started fewer threads than wanted.
    fewer: Option<Fallback>,
}

struct Shared {
    dataset: Arc<dyn Dataset>,
    maps: Option<Arc<Maps>>,
    work: SegQueue<Work>,
    finished: SegQueue<Finished>,
    /// Rung when work is finished.
    bell: Arc<Bell>,
    /// Called when there is work for the consumer's thread, if that does the work.
    call: OnceLock<Call>,
    /// Idle threads sleep on it. The lock is held while a thread checks the queue before sleeping, and taken after work
    /// was queued, so that no wake-up is lost.
    asleep: Mutex<()>,
    wake: Condvar,
    closed: AtomicBool,
    stats: Arc<Stats>,
    /// Reads samples that are no longer kept.
    samples: OnceLock<Samples>,
    /// Work that waits for a GPU decoder.
    jpegs: nvjpeg::Jpegs,
    /// Fallbacks while working.
    said: SegQueue<Fallback>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("work", &self.work.len()).finish_non_exhaustive()
    }
}

impl Stage {
    /// Starts `threads` threads that decode the units of `dataset` and apply `maps` to values, or as many as the system
    /// allows. With none, [`submit`](Stage::submit) does the work itself. `bell` is rung whenever work is finished.
    pub fn new(
        dataset: Arc<dyn Dataset>,
        maps: Option<Arc<Maps>>,
        threads: usize,
        bell: Arc<Bell>,
        stats: Arc<Stats>,
    ) -> Stage {
        let shared = Arc::new(Shared {
            dataset,
            maps,
            work: SegQueue::new(),
            finished: SegQueue::new(),
            bell,
            call: OnceLock::new(),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
            closed: AtomicBool::new(false),
            stats,
            samples: OnceLock::new(),
            jpegs: nvjpeg::Jpegs::default(),
            said: SegQueue::new(),
        });
        let mut stage = Stage {
            shared,
            threads: Vec::with_capacity(threads),
            scratch: MapScratch::default(),
            staying: None,
            pinned: None,
            under_way: 0,
            fewer: None,
        };
        for index in 0..threads {
            let shared = Arc::clone(&stage.shared);
            let thread = std::thread::Builder::new().name(format!("uringload-stage-{index}"));
            match thread.spawn(move || shared.run(shared.clock())) {
                Ok(thread) => stage.threads.push(thread),
                Err(error) => {
                    let got = format!("{index} of {threads} threads to decode with");
                    stage.fewer = Some(Fallback::new(Cause::Threads, got, Some(&error)));
                    break;
                }
            }
        }
        stage
    }

    /// Starts a thread for each of these decoders, in addition to the others. They read files from `pinned`.
    pub fn add_nvjpeg(&mut self, OnGpus { decoders, share, staying }: OnGpus, pinned: Option<Arc<Pinned>>) {
        self.pinned = pinned;
        let (wanted, others) = (decoders.len(), self.threads.len());
        for (index, decoder) in decoders.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("uringload-jpeg-{index}"));
            match thread.spawn(move || shared.run_nvjpeg(decoder, shared.clock())) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    let got = format!("{index} of {wanted} threads with nvJPEG");
                    self.shared.said.push(Fallback::new(Cause::Threads, got, Some(&error)));
                    break;
                }
            }
        }
        if self.threads.len() > others {
            self.shared.jpegs.begin(share, others > 0);
            self.staying = staying;
            self.staying.iter().for_each(|staying| staying.room.tell(&self.shared.bell));
        }
    }

    /// Where values stay on a GPU, if any do.
    pub fn staying(&self) -> Option<&Staying> {
        self.staying.as_ref()
    }

    /// A place on the GPU for a value that it may decode.
    pub fn place(&self, column: usize, id: SampleId) -> Option<Resident> {
        let Staying { room, columns } = self.staying.as_ref()?;
        let bytes = columns.get(column).filter(|&&bytes| bytes > 0 && self.shared.jpegs.is_theirs(id))?;
        room.take(*bytes)
    }

    /// A fallback since the last call: the system started fewer threads than wanted, or a GPU no longer decodes.
    pub fn said(&mut self) -> Option<Fallback> {
        self.fewer.take().or_else(|| self.shared.said.pop())
    }

    /// Lets another thread do the work, if there are no threads and none were wanted: the returned value does it.
    /// `ready` gets a function that returns whether there is work, and returns a function that wakes the other thread.
    pub fn errands(&mut self, ready: impl FnOnce(HasWork) -> Call) -> Errands {
        let of = Arc::clone(&self.shared);
        let call = ready(Box::new(move || of.has_work()));
        let _ = self.shared.call.set(call);
        Errands { shared: Arc::clone(&self.shared), scratch: MapScratch::default() }
    }

    /// Submits work. If no other thread does it, does it right away. `clock` is the caller's.
    pub fn submit(&mut self, work: Work, clock: &mut Clock) {
        self.under_way += 1;
        if let Some(call) = self.shared.call.get() {
            self.shared.work.push(work);
            call();
            self.wake();
            return;
        }
        if self.threads.is_empty() {
            let before = clock.doing();
            let began = clock.switch(Doing::Decode);
            self.shared.finish(work, &mut self.scratch, began);
            clock.switch(before);
            return;
        }
        match self.shared.jpegs.queue(work) {
            None => self.shared.wake_jpegs(),
            Some(work) => {
                self.shared.work.push(work);
                self.wake();
            }
        }
    }

    /// Wakes a thread, if there are any.
    fn wake(&self) {
        if self.shared.jpegs.do_all() {
            self.shared.wake_jpegs();
        } else if !self.threads.is_empty() {
            drop(self.shared.lock());
            self.shared.wake.notify_one();
        }
    }

    /// Processes a value on the caller's thread, and returns the length of the result. `clock` is the caller's.
    ///
    /// # Errors
    /// As the work of a thread.
    pub fn make(&mut self, value: &Value, out: &mut [u8], clock: &mut Clock) -> Result<usize> {
        let before = clock.doing();
        clock.switch(Doing::Decode);
        let made = self.shared.make(value, None, out, &mut self.scratch).map(|made| made.bytes);
        clock.switch(before);
        made
    }

    /// How columns are processed.
    pub fn maps(&self) -> Option<&Arc<Maps>> {
        self.shared.maps.as_ref()
    }

    /// Whether work is done on other threads than the caller's.
    pub fn is_apart(&self) -> bool {
        !self.threads.is_empty() || self.shared.call.get().is_some()
    }

    /// Takes one piece of finished work, in any order.
    pub fn take(&mut self) -> Option<Finished> {
        let finished = self.shared.finished.pop();
        self.under_way -= usize::from(finished.is_some());
        finished
    }

    /// Whether finished work waits to be taken.
    pub fn has_finished(&self) -> bool {
        !self.shared.finished.is_empty()
    }

    /// Work submitted and not returned yet.
    pub fn under_way(&self) -> usize {
        self.under_way
    }
}

/// Returns whether there is work.
type HasWork = Box<dyn Fn() -> bool + Send + Sync>;

/// The work of a stage without threads, for the thread that takes the batches.
#[derive(Debug)]
pub struct Errands {
    shared: Arc<Shared>,
    scratch: MapScratch,
}

impl Errands {
    /// Whether there is work.
    pub fn is_waiting(&self) -> bool {
        self.shared.has_work()
    }

    /// Does one piece of work, and returns whether there was one.
    pub fn run(&mut self) -> bool {
        let work = self.shared.work.pop().filter(|_| !self.shared.closed.load(Ordering::Acquire));
        let Some(work) = work else { return false };
        self.shared.finish(work, &mut self.scratch, Instant::now());
        true
    }
}

impl Drop for Stage {
    /// Waits for the work in progress, at most one unit per thread. Work that has not begun is dropped.
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        drop(self.shared.lock());
        self.shared.wake.notify_all();
        self.shared.jpegs.wake.notify_all();
        for thread in self.threads.drain(..) {
            // The thread never panics: it catches panics of the work it runs.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_work(&self) -> bool {
        !self.work.is_empty() && !self.closed.load(Ordering::Acquire)
    }

    fn clock(&self) -> Clock {
        self.stats.clock(Role::Stage, Doing::WaitInput)
    }

    fn run(&self, mut clock: Clock) {
        let mut scratch = MapScratch::default();
        let mut ended = clock.since();
        while let Some(work) = self.next(&mut clock) {
            // One reading of the clock for each: without a wait between them, it began when the last one ended.
            let began = clock.since().max(ended);
            ended = self.finish(work, &mut scratch, began);
        }
    }

    fn wake_jpegs(&self) {
        drop(self.lock());
        self.jpegs.wake.notify_one();
    }

    /// The next work, or `None` if there will be no more.
    fn next(&self, clock: &mut Clock) -> Option<Work> {
        self.next_of(|| self.work.pop(), &self.wake, clock)
    }

    /// The next work of a thread that sleeps with `wake`.
    fn next_of(&self, pop: impl Fn() -> Option<Work>, wake: &Condvar, clock: &mut Clock) -> Option<Work> {
        if let Some(work) = pop() {
            // If the thread did not sleep, it went straight from one unit to the next.
            if clock.doing() != Doing::Decode {
                clock.switch(Doing::Decode);
            }
            return Some(work).filter(|_| !self.closed.load(Ordering::Acquire));
        }
        clock.switch(Doing::WaitInput);
        let mut asleep = self.lock();
        loop {
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            if let Some(work) = pop() {
                drop(asleep);
                clock.switch(Doing::Decode);
                return Some(work);
            }
            asleep = wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does work that began at `began`, and returns when it ended.
    fn finish(&self, work: Work, scratch: &mut MapScratch, began: Instant) -> Instant {
        self.finish_with(work, None, scratch, began)
    }

    /// The same, with `decoded` if the value's image was decoded already.
    fn finish_with(&self, work: Work, decoded: Option<Decoded>, scratch: &mut MapScratch, began: Instant) -> Instant {
        let Work { number, task, mut out } = work;
        let mut others = None;
        let result = match &task {
            Task::Unit { unit, stored } => self.decode(*unit, stored, &mut out),
            Task::Value(value) => self.make(value, decoded, out.as_mut(), scratch).map(|made| {
                others = made.others;
                made.bytes
            }),
            Task::Mix(mixed) => self.mix(mixed, out.as_mut()),
        };
        // Free the stored bytes for the next reads before the result is announced.
        drop(task);
        let ended = Instant::now();
        let took = ended.saturating_duration_since(began);
        self.hand_in(Finished { number, out, result, others, resident: None, took });
        ended
    }

    /// The same for a value that needs no more processing: it stays where it is.
    fn finish_there(&self, Work { number, task, out }: Work, resident: Resident, began: Instant) {
        drop(task);
        let result = Ok(self.count_made(resident.span().len()));
        self.hand_in(Finished { number, out, result, others: None, resident: Some(resident), took: began.elapsed() });
    }

    fn hand_in(&self, finished: Finished) {
        self.finished.push(finished);
        self.bell.ring();
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut Part) -> Result<usize> {
        // Unwind safe: no code reads the memory that a panicking decoder leaves behind.
        let method = format!("\"decode\" of unit {}", unit.0);
        let result = guard::whole(&*self.dataset, &method, || -> Result<(usize, usize)> {
            let absent = || Error::new(ErrorKind::Internal, "a dataset without units cannot have one decoded");
            let units = self.dataset.units().ok_or_else(absent)?;
            let room = usize::try_from(units.decoded_bytes(unit)).unwrap_or(usize::MAX).min(out.len());
            Ok((units.decode(unit, stored, &mut out.as_mut()[..room])?, room))
        });
        let (bytes, room) = result?;
        if bytes > room {
            let what = format!("{method} has {bytes} bytes, and \"decoded_bytes\" says {room}");
            return Err(guard::wrong(&*self.dataset, what));
        }
        self.stats.count.units_decoded.add(1);
        self.stats.count.bytes_decoded.add(bytes as u64);
        Ok(bytes)
    }

    /// Mixes the images of a batch.
    fn mix(&self, mixed: &Mixed, block: &mut [u8]) -> Result<usize> {
        let Some(mixer) = self.maps.as_ref().and_then(|maps| maps.mixer.as_ref()) else { return Ok(0) };
        // Unwind safe: no code reads what a panic leaves behind.
        let run = AssertUnwindSafe(|| -> Result<()> {
            if let Some(mixing) = mixer.draw(mixed.epoch, mixed.ids.iter().copied())? {
                mixer.mix(&mixing, block, &mixed.places);
            }
            Ok(())
        });
        let panicked = |panic: Box<dyn std::any::Any + Send>| {
            Err(Error::new(ErrorKind::Internal, format!("mixing a batch panicked: {}", guard::text(&*panic)))
                .with_remedy("report this bug of uringload"))
        };
        catch_unwind(run).unwrap_or_else(panicked).map(|()| 0)
    }

    /// Processes a value. Errors name the sample, and the place that it was read from.
    fn make(&self, value: &Value, decoded: Option<Decoded>, out: &mut [u8], scratch: &mut MapScratch) -> Result<Made> {
        let absent = || Error::new(ErrorKind::Internal, "nothing is to be made of the values of a column");
        let maps = self.maps.as_ref().ok_or_else(absent)?;
        let (name, map) = maps.columns.get(value.column).ok_or_else(absent)?;
        // The last place of a column is longer, because it includes the padding before the next column.
        let room = usize::try_from(map.output().bytes()).unwrap_or(usize::MAX).min(out.len());
        let out = &mut out[..room];
        // Unwind safe: no code reads what a panic leaves behind, in `out` or in the scratch memory.
        let run = || -> Result<Made> {
            let Some(decoded) = decoded else { return self.run_map(value, (&**maps, map), out, &mut *scratch) };

            let of = (maps.seed, value.epoch, value.id);
            let bytes = map.run_decoded((&value.bytes, decoded), of, out, &mut *scratch)?;
            Ok(Made { bytes, others: None })
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            *scratch = MapScratch::default();
            Err(Error::new(ErrorKind::Internal, format!("its transform panicked: {}", guard::text(&*panic)))
                .with_remedy("mend the closure, or report the file if the library decodes it"))
        });
        let made = result.map_err(|error| self.blamed(error, name, value))?;
        self.count_made(made.bytes);
        Ok(made)
    }

    fn count_made(&self, bytes: usize) -> usize {
        self.stats.count.samples_decoded.add(1);
        self.stats.count.bytes_decoded.add(bytes as u64);
        bytes
    }

    /// Adds to a value's error its sample and, if known, its file.
    fn blamed(&self, error: Error, column: &str, value: &Value) -> Error {
        let mut key = Vec::new();
        self.dataset.key(value.id, &mut key);
        let key = String::from_utf8_lossy(&key);
        let what = format!("column {column:?} of sample {} ({key}): {}", value.id.0, error.what());
        let mut blamed = Error::new(error.kind(), what);
        if let Some(remedy) = error.remedy() {
            blamed = blamed.with_remedy(remedy.to_owned());
        }
        if let Some((file, start)) = value.from {
            let offset = start.saturating_add(error.offset().unwrap_or(0));
            blamed = blamed.with_path(self.dataset.files().path(file)).with_offset(offset);
        }
        blamed
    }
}

#[cfg(test)]
mod tests;
