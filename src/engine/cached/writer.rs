//! Writes stretches in threads of its own: no sample waits for a write, which a file system that has gone never ends.

use super::Claim;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads that write, each to a segment of its own.
const THREADS: usize = 4;

/// Stretches that are written or wait for it. A disk that is slower than the store holds readers up from here on.
const TAKEN_MAX: usize = 16;

/// A write that takes longer never ends. Disks with much to write hold one up for seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two looks whether a write goes on.
const PAUSE: Duration = Duration::from_millis(100);

/// Threads that write, and what they have to write.
#[derive(Default)]
pub(super) struct Writer(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// There is something to write, or nothing will be.
    given: Condvar,
    /// Something was written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Claim, Vec<u8>)>,
    /// Those, what is being written, and what is about to be given.
    taken: usize,
    /// Since when each thread writes, if it does.
    threads: Vec<Option<Instant>>,
    is_closed: bool,
}

impl State {
    fn is_stuck(&self) -> bool {
        self.threads.iter().flatten().any(|since| since.elapsed() > PATIENCE)
    }
}

impl Writer {
    /// Waits for room for a stretch, which has to be [`given`](Writer::give) then. Returns false if a write does not
    /// end.
    pub(super) fn reserve(&self) -> bool {
        let mut state = self.0.lock();
        while state.taken >= TAKEN_MAX && !state.is_stuck() {
            state = self.0.written.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        let has_room = !state.is_stuck();
        state.taken += usize::from(has_room);
        has_room
    }

    /// Writes a stretch, soon.
    pub(super) fn give(&self, claim: Claim, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        state.jobs.push_back((claim, bytes));
        let idle = state.threads.iter().filter(|since| since.is_none()).count();
        if state.jobs.len() > idle && state.threads.len() < THREADS {
            let (queue, number) = (Arc::clone(&self.0), state.threads.len());
            let thread = std::thread::Builder::new().name("uringload-keep".into());
            match thread.spawn(move || queue.work(number)) {
                Ok(_) => state.threads.push(None),
                // The system has no thread left. Most disks end a write.
                Err(_) if state.threads.is_empty() => {
                    state = self.0.write_first(state);
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
            let waited = self.0.written.wait_timeout_while(state, PATIENCE, |state| state.taken == left);
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
            state = self.write_first(state);
            state.threads[number] = None;
        }
    }

    /// Writes what waits longest. The lock is not held meanwhile.
    fn write_first<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some((claim, bytes)) = state.jobs.pop_front() else { return state };
        drop(state);
        claim.write(bytes);
        let mut state = self.lock();
        state.taken -= 1;
        self.written.notify_all();
        state
    }
}
