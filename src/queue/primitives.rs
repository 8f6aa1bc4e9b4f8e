//! What the queue is built of, in one place so that the loom tests can replace it: under `--cfg loom` every atomic,
//! lock and park is loom's, and the lock-free ring (which is tested where it comes from) a locked one.

#[cfg(not(loom))]
pub(super) use {
    crossbeam_queue::ArrayQueue,
    std::sync::Mutex,
    std::sync::atomic::{AtomicBool, Ordering, fence},
    std::thread::{Thread, ThreadId, current, park},
};

#[cfg(loom)]
pub(super) use {
    locked::{ArrayQueue, Thread, ThreadId, current, park},
    loom::sync::Mutex,
    loom::sync::atomic::{AtomicBool, Ordering, fence},
};

#[cfg(loom)]
mod locked {
    use super::Mutex;
    use loom::sync::Condvar;
    use std::collections::VecDeque;
    use std::sync::Arc;

    pub(in crate::queue) struct ArrayQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(in crate::queue) fn new(capacity: usize) -> ArrayQueue<T> {
            ArrayQueue { items: Mutex::new(VecDeque::new()), capacity }
        }
        pub(in crate::queue) fn push(&self, item: T) -> Result<(), T> {
            let mut items = self.items.lock().unwrap();
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            Ok(())
        }
        pub(in crate::queue) fn pop(&self) -> Option<T> {
            self.items.lock().unwrap().pop_front()
        }
        pub(in crate::queue) fn len(&self) -> usize {
            self.items.lock().unwrap().len()
        }
        pub(in crate::queue) fn is_full(&self) -> bool {
            self.len() == self.capacity
        }
        pub(in crate::queue) fn is_empty(&self) -> bool {
            self.len() == 0
        }
        pub(in crate::queue) fn capacity(&self) -> usize {
            self.capacity
        }
    }

    // Parking of our own: loom's (0.7.2) takes an unpark that comes while the thread waits for a lock as the end of
    // that wait, and forgets it for the park.
    #[derive(Default)]
    struct Token {
        there: Mutex<bool>,
        came: Condvar,
    }

    loom::thread_local! {
        static TOKEN: Arc<Token> = Arc::default();
    }

    #[derive(Clone)]
    pub(in crate::queue) struct Thread(Arc<Token>);

    pub(in crate::queue) type ThreadId = usize;

    impl Thread {
        pub(in crate::queue) fn id(&self) -> ThreadId {
            Arc::as_ptr(&self.0) as usize
        }
        pub(in crate::queue) fn unpark(&self) {
            *self.0.there.lock().unwrap() = true;
            self.0.came.notify_one();
        }
    }

    pub(in crate::queue) fn current() -> Thread {
        Thread(TOKEN.with(Arc::clone))
    }

    pub(in crate::queue) fn park() {
        let thread = current();
        let mut there = thread.0.there.lock().unwrap();
        while !*there {
            there = thread.0.came.wait(there).unwrap();
        }
        *there = false;
    }
}
