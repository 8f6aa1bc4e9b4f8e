//! Threads that decode units. Work is numbered and completes in any order; the receiver restores its own order by the
//! numbers. The amount of work in progress is bounded by the memory given to it.

use crate::config::{Cause, Fallback};
use crate::dataset::{Dataset, UnitId};
use crate::guard;
use crate::queue::Bell;
use crate::stats::{Clock, Doing, Role, Stats};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use uringload_sys::Part;

/// A unit to decode.
#[derive(Debug)]
pub struct Work {
    /// Returned in [`Finished::number`].
    pub number: u64,
    /// The unit.
    pub unit: UnitId,
    /// Its stored bytes, one slice per span.
    pub stored: Vec<Bytes>,
    /// Destination of the decoded bytes.
    pub out: Part,
}

/// A decoded unit, or its error.
#[derive(Debug)]
pub struct Finished {
    /// Number of the [`Work`].
    pub number: u64,
    /// The memory. The unit is its first `result` bytes.
    pub out: Part,
    /// Length of the unit in bytes.
    pub result: Result<usize>,
}

/// Decodes units, on its own threads or on the caller's.
#[derive(Debug)]
pub struct Stage {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Work submitted and not taken back.
    under_way: usize,
    /// The system started fewer threads than were wanted.
    fewer: Option<Fallback>,
}

struct Shared {
    dataset: Arc<dyn Dataset>,
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
    /// Starts `threads` threads that decode the units of `dataset`, or as many as the system allows. With none,
    /// [`submit`](Stage::submit) does the work itself. `bell` is rung whenever work is finished.
    pub fn new(dataset: Arc<dyn Dataset>, threads: usize, bell: Arc<Bell>, stats: Arc<Stats>) -> Stage {
        let shared = Arc::new(Shared {
            dataset,
            work: SegQueue::new(),
            finished: SegQueue::new(),
            bell,
            asleep: Mutex::new(()),
            wake: Condvar::new(),
            closed: AtomicBool::new(false),
            stats,
        });
        let mut stage = Stage { shared, threads: Vec::with_capacity(threads), under_way: 0, fewer: None };
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

    /// Submits work. If there are no threads, decodes it right away. `clock` is the caller's.
    pub fn submit(&mut self, work: Work, clock: &mut Clock) {
        self.under_way += 1;
        if self.threads.is_empty() {
            let before = clock.doing();
            clock.switch(Doing::Decode);
            self.shared.finish(work);
            clock.switch(before);
            return;
        }
        self.shared.work.push(work);
        drop(self.shared.lock());
        self.shared.wake.notify_one();
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
        while let Some(work) = self.next(&mut clock) {
            self.finish(work);
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

    fn finish(&self, work: Work) {
        let Work { number, unit, stored, mut out } = work;
        // Unwind safe: nobody looks at the memory that a panicking decoder leaves behind.
        let method = format!("\"decode\" of unit {}", unit.0);
        let result = guard::whole(&*self.dataset, &method, || -> Result<(usize, usize)> {
            let absent = || Error::new(ErrorKind::Internal, "a dataset without units cannot have one decoded");
            let units = self.dataset.units().ok_or_else(absent)?;
            let room = usize::try_from(units.decoded_bytes(unit)).unwrap_or(usize::MAX).min(out.len());
            Ok((units.decode(unit, &stored, &mut out.as_mut()[..room])?, room))
        });
        let result = result.and_then(|(bytes, room)| {
            let what = || format!("\"decode\" of unit {} has {bytes} bytes, and \"decoded_bytes\" says {room}", unit.0);
            if bytes <= room { Ok(bytes) } else { Err(guard::wrong(&*self.dataset, what())) }
        });
        if let Ok(bytes) = result {
            self.stats.count.units_decoded.add(1);
            self.stats.count.bytes_decoded.add(bytes as u64);
        }
        // Free the stored bytes for the next reads before anybody learns of the result.
        drop(stored);
        self.finished.push(Finished { number, out, result });
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests;
