//! The cancellations of single operations that the kernel is asked for.
//!
//! A cancellation does nothing if it meets an operation between two of its steps: before a worker has taken it, before
//! that worker waits, or before the read that follows an open has begun. `io_uring_prep_cancel(3)` calls these `ENOENT`
//! and `EALREADY`, and gives the same answers for a read that a disk works on. So each is repeated at growing
//! intervals, until the operation ends.

use std::time::{Duration, Instant};

/// The first pause before a cancellation is repeated; each one after it is twice as long.
const PAUSE: Duration = Duration::from_millis(1);

/// No cancellation is repeated after a longer pause: one that has not succeeded within two seconds never will.
const PAUSE_MAX: Duration = Duration::from_millis(1024);

#[derive(Debug, Default)]
pub(super) struct Cancels(Vec<Cancel>);

#[derive(Debug)]
struct Cancel {
    /// User data of the operation.
    index: u64,
    due: Instant,
    /// From then until it is due again.
    pause: Duration,
}

impl Cancels {
    /// Asks for these operations, given by their user data, from now on.
    pub(super) fn add(&mut self, indices: impl Iterator<Item = u64>) {
        let due = Instant::now();
        self.0.extend(indices.map(|index| Cancel { index, due, pause: PAUSE }));
    }

    /// Forgets an operation that has ended: the next one with its user data must not be cancelled.
    pub(super) fn forget(&mut self, index: u64) {
        self.0.retain(|cancel| cancel.index != index);
    }

    /// User data of an operation whose cancellation is due.
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        let now = Instant::now();
        let at = self.0.iter().position(|cancel| cancel.due <= now)?;
        let cancel = &mut self.0[at];
        let index = cancel.index;
        if cancel.pause > PAUSE_MAX {
            self.0.swap_remove(at);
        } else {
            cancel.due = now + cancel.pause;
            cancel.pause *= 2;
        }
        Some(index)
    }

    /// Shortens a wait to the time until the next one is due. `None` does not wait.
    pub(super) fn shorten(&self, wait: Option<Duration>) -> Option<Duration> {
        let Some(due) = self.0.iter().map(|cancel| cancel.due).min() else { return wait };
        let until = due.saturating_duration_since(Instant::now());
        wait.map(|wait| wait.min(until)).filter(|wait| !wait.is_zero())
    }
}
