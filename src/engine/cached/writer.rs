//! Writes stretches, and looks at what others have written, in threads of its own: no sample waits for a file system
//! that has gone and never answers.

use super::{Cached, Claim};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads that write, each to a segment of its own.
const THREADS: usize = 4;

/// Stretches that are written or wait for it. A disk that is slower than the store holds readers up from here on.
const TAKEN_MAX: usize = 16;

/// Time between two looks whether a write goes on.
const PAUSE: Duration = Duration::from_millis(100);

/// Threads that write, and what they have to do.
pub(super) struct Writer(Arc<Queue>);

struct Queue {
    /// What takes longer never ends. Disks with much to write hold a write up for seconds.
    patience: Duration,
    state: Mutex<State>,
    /// There is something to do, or nothing will be.
    given: Condvar,
    /// Something was written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Stretches among those, what is being written, and what is about to be given.
    taken: usize,
    /// Since when each thread is at a job, if it is.
    threads: Vec<Option<Instant>>,
    is_closed: bool,
}

enum Job {
    Write(Claim, Vec<u8>),
    Look(Arc<Cached>),
}

impl State {
    fn is_stuck(&self, patience: Duration) -> bool {
        self.threads.iter().flatten().any(|since| since.elapsed() > patience)
    }
}

impl Writer {
    /// What takes longer than `patience` never ends.
    pub(super) fn new(patience: Duration) -> Writer {
        let (state, given, written) = (Mutex::default(), Condvar::new(), Condvar::new());
        Writer(Arc::new(Queue { patience, state, given, written }))
    }

    /// Waits for room for a stretch, which has to be [`given`](Writer::give) then. Returns false if the file system
    /// does not answer.
    pub(super) fn reserve(&self) -> bool {
        let (mut state, patience) = (self.0.lock(), self.0.patience);
        while state.taken >= TAKEN_MAX && !state.is_stuck(patience) {
            state = self.0.written.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        let has_room = !state.is_stuck(patience);
        state.taken += usize::from(has_room);
        has_room
    }

    /// Writes a stretch, soon.
    pub(super) fn give(&self, claim: Claim, bytes: Vec<u8>) {
        self.push(Job::Write(claim, bytes));
    }

    /// Looks at what others have written, soon.
    pub(super) fn look(&self, cached: &Arc<Cached>) {
        self.push(Job::Look(Arc::clone(cached)));
    }

    fn push(&self, job: Job) {
        let mut state = self.0.lock();
        state.jobs.push_back(job);
        let idle = state.threads.iter().filter(|since| since.is_none()).count();
        if state.jobs.len() > idle && state.threads.len() < THREADS {
            let (queue, number) = (Arc::clone(&self.0), state.threads.len());
            let thread = std::thread::Builder::new().name("uringload-keep".into());
            match thread.spawn(move || queue.work(number)) {
                Ok(_) => state.threads.push(None),
                // The system has no thread left. Most disks answer.
                Err(_) if state.threads.is_empty() => {
                    state = self.0.do_first(state);
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.0.given.notify_one();
    }

    /// Waits until all is written, as long as something is.
    pub(super) fn finish(&self) {
        let mut state = self.0.lock();
        while state.taken > 0 {
            let left = state.taken;
            let waited = self.0.written.wait_timeout_while(state, self.0.patience, |state| state.taken == left);
            let (now, over) = waited.unwrap_or_else(PoisonError::into_inner);
            if over.timed_out() {
                return;
            }
            state = now;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.given.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, number: usize) {
        let mut state = self.lock();
        while !state.is_closed {
            if state.jobs.is_empty() {
                state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.threads[number] = Some(Instant::now());
            state = self.do_first(state);
            state.threads[number] = None;
        }
    }

    /// Does what waits longest. The lock is not held meanwhile.
    fn do_first<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(job) = state.jobs.pop_front() else { return state };
        drop(state);
        let written = usize::from(matches!(job, Job::Write(..)));
        match job {
            Job::Write(claim, bytes) => claim.write(bytes),
            Job::Look(cached) => cached.look(),
        }
        let mut state = self.lock();
        state.taken -= written;
        self.written.notify_all();
        state
    }
}
