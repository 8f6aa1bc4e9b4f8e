//! A wake-up that is never lost: "I am about to sleep until something of yours changes".

use super::primitives::{AtomicBool, Mutex, Ordering, fence, lock};
use std::fmt;
use std::task::Waker;

/// Wakes one listener that sleeps until a condition changes which other threads change.
///
/// The listener calls [`listen`](Bell::listen), looks at its condition once more, and only then sleeps. Whoever changes
/// the condition calls [`ring`](Bell::ring) afterwards. Either the ringer sees that somebody listens, or the listener's
/// second look sees the change: between the two stores and the two loads stand two sequentially consistent fences, so
/// both cannot miss (the store-buffering pattern; the loom tests below try every interleaving). While nobody listens a
/// ring costs a fence and a load: no lock, no system call.
///
/// One bell may stand for several conditions of one listener: a reactor that sleeps for room in the queue or for
/// memory.
#[derive(Default)]
pub struct Bell {
    wanted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// A bell with no waker: set one before listening.
    pub fn new() -> Bell {
        Bell::default()
    }

    /// How to wake the listener. It may be replaced whenever nobody sleeps on the bell.
    pub fn set_waker(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    /// Declares that the listener is about to sleep. It must look at its condition after this call and before it
    /// sleeps.
    pub fn listen(&self) {
        // A swap, as in `ring` and `silence`: one order of all changes to the flag, in which each sees the one before
        // it.
        self.wanted.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes the declaration back: the listener does not sleep after all, or is awake again.
    pub fn silence(&self) {
        // A ring that is under way may still wake the listener once: wake-ups may be spurious.
        self.wanted.swap(false, Ordering::AcqRel);
    }

    /// Wakes the listener if it listens. Call it after the change it may wait for.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::AcqRel) {
            // Cloned, not called under the lock: a waker may run code that sets the next one.
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
        assert_eq!(count.get(), 0, "nobody listened, or no waker was set");
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
    use super::*;
    use crate::queue::loom_tests::model;
    use crate::queue::parker::Parker;
    use loom::sync::atomic::AtomicUsize;
    use std::sync::Arc;

    /// The condition is as weak as it may be: relaxed loads and stores, so that only the bell's fences order them.
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
            // If a ring were lost this would park for ever, which loom reports as a deadlock.
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
