//! The threads that compute: they decode units, and make tensors and other things of single values. Work is numbered
//! and completes in any order; the receiver restores its own order by the numbers. The amount of work in progress is
//! bounded by the memory given to it.

use crate::config::{Cause, Fallback};
use crate::dataset::{Dataset, FileId, SampleId, UnitId};
use crate::guard;
use crate::queue::Bell;
use crate::stats::{Clock, Doing, Role, Stats};
use crate::transform::{DecodeMemory, Map, MapScratch};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use uringload_sys::Part;

/// Something to do.
#[derive(Debug)]
pub struct Work {
    /// Returned in [`Finished::number`].
    pub number: Number,
    /// What it is.
    pub task: Task,
    /// Destination of the bytes that come out.
    pub out: Part,
}

/// Which work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// The load of a unit.
    Unit(u64),
    /// A value of a batch.
    Value {
        /// Number of the batch.
        batch: u64,
        /// Place in it.
        place: u32,
    },
}

/// What there is to do.
#[derive(Debug)]
pub enum Task {
    /// To decode a unit.
    Unit {
        /// The unit.
        unit: UnitId,
        /// Its stored bytes, one slice per span.
        stored: Vec<Bytes>,
    },
    /// To make something else of a value.
    Value(Value),
}

/// A value to make something else of.
#[derive(Debug)]
pub struct Value {
    /// Index in [`Maps::columns`].
    pub column: usize,
    /// Whose it is.
    pub id: SampleId,
    /// The epoch that its random numbers are of.
    pub epoch: u64,
    /// The value.
    pub bytes: Bytes,
    /// The file it was read from and its place there, if it is in one piece.
    pub from: Option<(FileId, u64)>,
}

/// What becomes of columns, value by value.
#[derive(Debug)]
pub struct Maps {
    /// Name of each column, and what becomes of it, in the order of the schema.
    pub columns: Vec<(String, Map)>,
    /// What random numbers derive from.
    pub seed: u64,
    /// What decoding may take.
    pub memory: DecodeMemory,
}

/// Work that is done, or its error.
#[derive(Debug)]
pub struct Finished {
    /// Number of the [`Work`].
    pub number: Number,
    /// The memory. What came out is its first `result` bytes.
    pub out: Part,
    /// Length in bytes of what came out.
    pub result: Result<usize>,
}

/// Does work, on its own threads or on the caller's.
#[derive(Debug)]
pub struct Stage {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// For what the caller's thread does.
    scratch: MapScratch,
    /// Work submitted and not taken back.
    under_way: usize,
    /// The system started fewer threads than were wanted.
    fewer: Option<Fallback>,
}

struct Shared {
    dataset: Arc<dyn Dataset>,
    maps: Option<Arc<Maps>>,
    work: SegQueue<Work>,
    finished: SegQueue<Finished>,
    /// Rung when work is finished.
    bell: Arc<Bell>,
    /// Idle threads sleep with it. The lock is held while a thread checks the queue before sleeping, and taken by
    /// whoever has just queued work, so that no wake-up is lost.
    asleep: Mutex<()>,
    wake: Condvar,
    closed: AtomicBool,
    stats: Arc<Stats>,
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
            asleep: Mutex::new(()),
            wake: Condvar::new(),
            closed: AtomicBool::new(false),
            stats,
        });
        let (scratch, under_way) = (MapScratch::default(), 0);
        let mut stage = Stage { shared, threads: Vec::with_capacity(threads), scratch, under_way, fewer: None };
        for index in 0..threads {
            let shared = Arc::clone(&stage.shared);
            let thread = std::thread::Builder::new().name(format!("uringload-stage-{index}"));
            match thread.spawn(move || shared.run()) {
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

    /// The step down if the system started fewer threads than were wanted.
    pub fn fewer(&mut self) -> Option<Fallback> {
        self.fewer.take()
    }

    /// Submits work. If there are no threads, does it right away. `clock` is the caller's.
    pub fn submit(&mut self, work: Work, clock: &mut Clock) {
        self.under_way += 1;
        if self.threads.is_empty() {
            let before = clock.doing();
            clock.switch(Doing::Decode);
            self.shared.finish(work, &mut self.scratch);
            clock.switch(before);
            return;
        }
        self.shared.work.push(work);
        drop(self.shared.lock());
        self.shared.wake.notify_one();
    }

    /// Makes something else of a value in the caller's thread, and returns its length. `clock` is the caller's.
    ///
    /// # Errors
    /// As the work of a thread.
    pub fn make(&mut self, value: &Value, out: &mut [u8], clock: &mut Clock) -> Result<usize> {
        let before = clock.doing();
        clock.switch(Doing::Decode);
        let made = self.shared.make(value, out, &mut self.scratch);
        clock.switch(before);
        made
    }

    /// What becomes of columns.
    pub fn maps(&self) -> Option<&Arc<Maps>> {
        self.shared.maps.as_ref()
    }

    /// Whether work is done on threads of its own.
    pub fn has_threads(&self) -> bool {
        !self.threads.is_empty()
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

    /// Work submitted and not taken back.
    pub fn under_way(&self) -> usize {
        self.under_way
    }
}

impl Drop for Stage {
    /// Waits for the work in progress, at most one unit per thread. Work that has not begun is dropped.
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        drop(self.shared.lock());
        self.shared.wake.notify_all();
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

    fn run(&self) {
        let mut clock = self.stats.clock(Role::Stage, Doing::WaitInput);
        let mut scratch = MapScratch::default();
        while let Some(work) = self.next(&mut clock) {
            self.finish(work, &mut scratch);
        }
    }

    /// The next work, or `None` if there will be no more.
    fn next(&self, clock: &mut Clock) -> Option<Work> {
        let work = self.work.pop();
        if work.is_some() {
            // If the thread did not sleep, it went straight from one unit to the next.
            if clock.doing() != Doing::Decode {
                clock.switch(Doing::Decode);
            }
            return work.filter(|_| !self.closed.load(Ordering::Acquire));
        }
        clock.switch(Doing::WaitInput);
        let mut asleep = self.lock();
        loop {
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            if let Some(work) = self.work.pop() {
                drop(asleep);
                clock.switch(Doing::Decode);
                return Some(work);
            }
            asleep = self.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self, work: Work, scratch: &mut MapScratch) {
        let Work { number, task, mut out } = work;
        let result = match &task {
            Task::Unit { unit, stored } => self.decode(*unit, stored, &mut out),
            Task::Value(value) => self.make(value, out.as_mut(), scratch),
        };
        // Free the stored bytes for the next reads before anybody learns of the result.
        drop(task);
        self.finished.push(Finished { number, out, result });
        self.bell.ring();
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut Part) -> Result<usize> {
        // Unwind safe: nobody looks at the memory that a panicking decoder leaves behind.
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

    /// Makes something else of a value. What fails says which sample, and where it was read from.
    fn make(&self, value: &Value, out: &mut [u8], scratch: &mut MapScratch) -> Result<usize> {
        let absent = || Error::new(ErrorKind::Internal, "nothing is to be made of the values of a column");
        let maps = self.maps.as_ref().ok_or_else(absent)?;
        let (name, map) = maps.columns.get(value.column).ok_or_else(absent)?;
        let of = (maps.seed, value.epoch, value.id);
        // The last place of a column is longer: the next column is aligned behind it.
        let room = usize::try_from(map.output().bytes()).unwrap_or(usize::MAX).min(out.len());
        let out = &mut out[..room];
        // Unwind safe: nobody looks at what a panic leaves behind, in `out` or in the scratch memory.
        let run = || map.run(&value.bytes, of, out, (&maps.memory, &mut *scratch));
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            *scratch = MapScratch::default();
            Err(Error::new(ErrorKind::Internal, format!("its transform panicked: {}", guard::text(&*panic)))
                .with_remedy("mend the closure, or report the file if the library decodes it"))
        });
        let bytes = result.map_err(|error| self.blamed(error, name, value))?;
        self.stats.count.samples_decoded.add(1);
        self.stats.count.bytes_decoded.add(bytes as u64);
        Ok(bytes)
    }

    /// The error of a value, with its sample, and with its file where that is known.
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
