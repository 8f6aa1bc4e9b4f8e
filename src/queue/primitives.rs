//! The queue's building blocks, in one place so that the loom tests can replace them. Under `--cfg loom`, every atomic,
//! lock and park is loom's, and a locked ring replaces the lock-free one (which is tested by its own crate).

#[cfg(not(loom))]
pub(super) use {
    crossbeam_queue::ArrayQueue,
    std::sync::atomic::{AtomicBool, Ordering, fence},
    std::sync::{Condvar, Mutex, MutexGuard},
};

#[cfg(loom)]
pub(super) use {
    locked::ArrayQueue,
    loom::sync::atomic::{AtomicBool, Ordering, fence},
    loom::sync::{Condvar, Mutex, MutexGuard},
};

/// Locks a mutex. What it guards is never left half changed, so a panic elsewhere need not cause another one here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(loom)]
mod locked {
    use super::Mutex;
    use std::collections::VecDeque;

    pub(in super::super) struct ArrayQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(in super::super) fn new(capacity: usize) -> ArrayQueue<T> {
            ArrayQueue { items: Mutex::new(VecDeque::new()), capacity }
        }
        pub(in super::super) fn push(&self, item: T) -> Result<(), T> {
            let mut items = self.items.lock().unwrap();
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            Ok(())
        }
        pub(in super::super) fn pop(&self) -> Option<T> {
            self.items.lock().unwrap().pop_front()
        }
        pub(in super::super) fn len(&self) -> usize {
            self.items.lock().unwrap().len()
        }
        pub(in super::super) fn is_full(&self) -> bool {
            self.len() == self.capacity
        }
        pub(in super::super) fn is_empty(&self) -> bool {
            self.len() == 0
        }
        pub(in super::super) fn capacity(&self) -> usize {
            self.capacity
        }
    }
}
