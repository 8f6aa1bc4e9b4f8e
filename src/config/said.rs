//! Steps down that threads find while they read.

use super::Fallback;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps down to be told, one of each kind: a damaged disk causes many.
#[derive(Debug, Default)]
pub(crate) struct Said {
    found: Mutex<Found>,
    /// Spares who asks the lock.
    is_waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct Found {
    waiting: VecDeque<Fallback>,
    /// The kinds that were found, told or not.
    kinds: Vec<&'static str>,
}

impl Said {
    /// Notes a step down, unless one of this kind was noted before.
    pub(crate) fn say(&self, kind: &'static str, step: impl FnOnce() -> Fallback) {
        let mut found = self.found();
        if !found.kinds.contains(&kind) {
            found.kinds.push(kind);
            found.waiting.push_back(step());
            self.is_waiting.store(true, Ordering::Relaxed);
        }
    }

    /// A step down that was not told yet.
    pub(crate) fn next(&self) -> Option<Fallback> {
        if !self.is_waiting.load(Ordering::Relaxed) {
            return None;
        }
        let mut found = self.found();
        let next = found.waiting.pop_front();
        self.is_waiting.store(!found.waiting.is_empty(), Ordering::Relaxed);
        next
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
