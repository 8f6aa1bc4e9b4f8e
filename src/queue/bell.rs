//! A wake-up that is never lost, for a listener that is about to sleep until something changes.

use super::primitives::{AtomicBool, Mutex, Ordering, fence, lock};
use std::fmt;
use std::task::Waker;

/// Wakes one listener that sleeps until other threads change a condition.
///
/// The listener calls [`listen`](Bell::listen), checks its condition once more, and only then sleeps. A thread that
/// changes the condition calls [`ring`](Bell::ring) afterwards. Either the ringer sees the listener, or the listener's
/// second check sees the change: two sequentially consistent fences separate the two stores from the two loads, so both
/// cannot miss (the store-buffering pattern; the loom tests below try every interleaving). Without a listener, a ring
/// costs a fence and a load: no lock, no system call.
///
/// One bell may serve several conditions of one listener, such as a reactor that sleeps for room in the queue or for
/// memory.
#[derive(Default)]
pub struct Bell {
    wanted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// Creates a bell without a waker. Set one before listening.
    pub fn new() -> Bell {
        Bell::default()
    }

    /// Sets the waker of the listener. It may be replaced whenever no thread sleeps on the bell.
    pub fn set_waker(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    /// Declares that the listener is about to sleep. It must check its condition after this call and before sleeping.
    pub fn listen(&self) {
        // A swap, as in `ring` and `silence`: all changes to the flag have one order, in which each sees the previous
        // one.
        self.wanted.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Withdraws the declaration: the listener does not sleep after all, or is awake again.
    pub fn silence(&self) {
        // A ring in progress may still wake the listener once: wake-ups may be spurious.
        self.wanted.swap(false, Ordering::AcqRel);
    }

    /// Wakes the listener if it listens. Call it after the change that it may be waiting for.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::AcqRel) {
            // Cloned rather than called under the lock: a waker may run code that sets the next one.
            let waker = lock(&self.waker).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("wanted", &self.wanted.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::queue::tests::Count;

    #[test]
    fn rings_only_for_a_listener_and_once() {
        let (count, waker) = Count::waker();
        let bell = Bell::new();
        bell.ring();
        bell.listen();
        bell.ring();
        bell.set_waker(&waker);
        bell.ring();
        assert_eq!(count.get(), 0, "no listener, or no waker");
        bell.listen();
        bell.ring();
        bell.ring();
        assert_eq!(count.get(), 1);
        bell.listen();
        bell.silence();
        bell.ring();
        assert_eq!(count.get(), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::loom_tests::model;
    use super::super::parker::Parker;
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use std::sync::Arc;

    /// The condition is as weak as possible: relaxed loads and stores, so that only the bell's fences order them.
    #[test]
    fn queue_bell_never_loses_a_ring() {
        model(|| {
            let shared = Arc::new((Bell::new(), AtomicUsize::new(0)));
            let ringers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        shared.1.fetch_add(1, Ordering::Relaxed);
                        shared.0.ring();
                    })
                })
                .collect();
            let (bell, condition) = &*shared;
            let parker = Parker::default();
            bell.set_waker(&parker.waker());
            // If a ring were lost, this would park forever, which loom reports as a deadlock.
            while condition.load(Ordering::Relaxed) < 2 {
                bell.listen();
                if condition.load(Ordering::Relaxed) < 2 {
                    parker.park();
                }
                bell.silence();
            }
            for ringer in ringers {
                ringer.join().unwrap();
            }
        });
    }
}
