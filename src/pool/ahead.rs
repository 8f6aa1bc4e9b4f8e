//! Takes memory on a helper thread before the reactor needs it, if the system is slow to provide it.
//!
//! In a virtual machine whose host must find memory first, a page of 2 MiB takes up to 4 ms, and a sample of 140 MB a
//! quarter of a second, in which the reactor starts few reads. Two threads get memory twice as fast. So the helper
//! walks a block from its end while the reactor goes on from its start. Each slot is taken by one of them, and only as
//! many as the block needs.
//!
//! The helper touches memory but counts nothing: only the reactor tracks which pages exist. A block that is returned
//! takes its slots from the helper first, so that no page appears unexpectedly.

use super::{ROOM_LEFT, Range, cgroup};
use crossbeam_queue::SegQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use uringload_sys::Arena;

/// A page that takes longer is slow, and worth a thread: if the machine has the memory it takes 0.3 ms.
const DEAR: Duration = Duration::from_millis(1);

/// Fewer pages than this are not given to a thread.
const FEW: usize = 4;

/// How long the reactor sleeps before it checks again whether the helper has a page.
const LOOK: Duration = Duration::from_micros(50);

/// The slot is untouched.
const UNTOUCHED: u8 = 0;
/// The helper is touching it.
const AT_WORK: u8 = 1;
/// The helper has touched it.
const TOUCHED: u8 = 2;
/// The helper must not touch it.
const CLOSED: u8 = 3;

/// The blocks that lack some of their memory, and the helper.
#[derive(Debug)]
pub(super) struct Ahead {
    /// From this time on, a page is slow.
    dear: Duration,
    /// Slots of blocks that the helper has not received yet.
    waiting: Vec<Range<usize>>,
    jobs: Vec<Arc<Job>>,
    helper: Option<Helper>,
}

/// A block's slots.
#[derive(Debug)]
struct Job {
    arena: Arena,
    page: usize,
    slots: Range<usize>,
    states: Box<[AtomicU8]>,
}

#[derive(Debug)]
struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    jobs: SegQueue<Arc<Job>>,
    is_over: AtomicBool,
}

impl Default for Ahead {
    fn default() -> Ahead {
        // Threads on a single processor would only take turns.
        let dear = if cgroup::processors() > 1 { DEAR } else { Duration::MAX };
        Ahead { dear, waiting: Vec::new(), jobs: Vec::new(), helper: None }
    }
}

impl Ahead {
    /// Uses the helper however fast pages are.
    #[cfg(test)]
    pub(super) fn always(&mut self) {
        self.dear = Duration::ZERO;
    }

    /// Notes that a block was lent, some of whose slots have no page.
    pub(super) fn lent(&mut self, slots: Range<usize>, missing: usize) {
        if missing > FEW && self.dear < Duration::MAX {
            self.waiting.push(slots);
        }
    }

    /// The reactor is about to take the page of a slot: waits for the helper if it is touching it, or else locks it
    /// out.
    pub(super) fn reach(&self, slot: usize) {
        for job in self.jobs.iter().filter(|job| job.slots.contains(&slot)) {
            job.close(slot);
        }
    }

    /// Notes how long the page of a slot took. If that is slow, the helper takes the rest of its block.
    pub(super) fn took(&mut self, slot: usize, time: Duration, arena: &Arena, page: usize) {
        if time < self.dear {
            return;
        }
        let Some(index) = self.waiting.iter().position(|slots| slots.contains(&slot)) else { return };
        let slots = self.waiting.swap_remove(index);
        let state = |slot: usize| AtomicU8::new(if arena.page_at(slot * page).is_some() { CLOSED } else { UNTOUCHED });
        let states = slots.clone().map(state).collect();
        let job = Arc::new(Job { arena: arena.handle(), page, slots, states });
        if self.helper.is_none() {
            self.helper = Helper::start();
        }
        // Without a thread, the reactor takes all of it, as usual.
        if let Some(helper) = &self.helper {
            helper.shared.jobs.push(Arc::clone(&job));
            if let Some(thread) = &helper.thread {
                thread.thread().unpark();
            }
            self.jobs.push(job);
        }
    }

    /// These slots no longer belong to a block. Returns those that the helper has touched and the reactor never
    /// reached.
    pub(super) fn forget(&mut self, slots: &Range<usize>) -> Vec<usize> {
        self.waiting.retain(|of| of.end <= slots.start || slots.end <= of.start);
        let mut touched = Vec::new();
        for job in &self.jobs {
            // A block may return in pieces.
            let both = job.slots.start.max(slots.start)..job.slots.end.min(slots.end);
            touched.extend(both.filter(|&slot| job.close(slot)));
        }
        self.jobs.retain(|job| job.states.iter().any(|state| state.load(Ordering::Relaxed) != CLOSED));
        touched
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for job in &self.jobs {
            job.slots.clone().for_each(|slot| {
                job.close(slot);
            });
        }
    }
}

impl Helper {
    fn start() -> Option<Helper> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let work = move || {
            while !of_thread.is_over.load(Ordering::Acquire) {
                match of_thread.jobs.pop() {
                    Some(job) => job.run(),
                    None => std::thread::park(),
                }
            }
        };
        let thread = std::thread::Builder::new().name("uringload-memory".into()).spawn(work).ok()?;
        Some(Helper { shared, thread: Some(thread) })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It is touching at most one page: jobs are closed first.
            let _ = thread.join();
        }
    }
}

/// Marks that the helper is done with a slot, however its work there ends: the reactor may be waiting.
struct Touched<'a>(&'a AtomicU8);

impl Drop for Touched<'_> {
    fn drop(&mut self) {
        self.0.store(TOUCHED, Ordering::Release);
    }
}

impl Job {
    fn state(&self, slot: usize) -> &AtomicU8 {
        &self.states[slot - self.slots.start]
    }

    /// Touches slots from the last to the first, while any is untouched.
    fn run(&self) {
        for slot in self.slots.clone().rev() {
            let state = self.state(slot);
            if state.compare_exchange(UNTOUCHED, AT_WORK, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            let _touched = Touched(state);
            // If memory is short, the reactor reports it when it gets there. It may be taking a page, too.
            let needed = ROOM_LEFT + 2 * self.page as u64;
            let has_room = cgroup::memory().is_none_or(|group| group.most() >= needed);
            if !has_room || self.arena.touch(slot * self.page..(slot + 1) * self.page).is_err() {
                return;
            }
        }
    }

    /// Locks the helper out of a slot, after it has finished there. Returns whether it has touched it, once.
    fn close(&self, slot: usize) -> bool {
        let state = self.state(slot);
        loop {
            match state.compare_exchange(UNTOUCHED, CLOSED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) | Err(CLOSED) => return false,
                Err(TOUCHED) => {
                    // Only this side closes slots.
                    state.store(CLOSED, Ordering::Relaxed);
                    return true;
                }
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }
}
