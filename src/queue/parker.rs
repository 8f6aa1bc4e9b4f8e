//! A place for a thread to sleep until its waker is called. A wake-up that comes before the sleep ends it at once.

use super::primitives::{Condvar, Mutex, lock};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// A place to sleep, for any thread.
///
/// `std::thread::park` would do as well, but loom's model of it (0.7.2) loses an unpark that arrives while the thread
/// waits for a lock. This code is the same under loom, and it runs only when there is nothing to do.
#[derive(Default)]
pub(crate) struct Parker(Arc<Token>);

#[derive(Default)]
struct Token {
    there: Mutex<bool>,
    came: Condvar,
}

impl Parker {
    /// A waker that ends the sleep, from any thread.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Sleeps until woken.
    pub(crate) fn park(&self) {
        let mut there = lock(&self.0.there);
        while !*there {
            there = self.0.came.wait(there).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        *there = false;
    }

    /// Sleeps until woken, but at most for `wait`.
    pub(crate) fn park_timeout(&self, wait: Duration) {
        let mut there = lock(&self.0.there);
        if !*there {
            // It may end too early; the caller checks the time.
            let woken = self.0.came.wait_timeout(there, wait);
            there = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        *there = false;
    }
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        *lock(&self.there) = true;
        self.came.notify_one();
    }
}
