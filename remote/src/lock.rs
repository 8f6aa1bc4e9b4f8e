//! Locks that are never waited for without a bound: after a fork, whoever held one may be gone for good.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for what is held for a look or a push: 10 ms.
pub const BRIEF: Duration = Duration::from_millis(10);
/// Tries before the waiting thread sleeps between them.
const SPINS: u32 = 32;
const SLEEP: Duration = Duration::from_millis(1);

/// The lock, or nothing if it was not free within `limit`. What a panicking thread left is taken as it is.
pub fn lock<T>(mutex: &Mutex<T>, limit: Duration) -> Option<MutexGuard<'_, T>> {
    let mut until = None;
    for tries in 0u32.. {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if tries < SPINS => thread::yield_now(),
            Err(TryLockError::WouldBlock) => {
                if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + limit) {
                    return None;
                }
                thread::sleep(SLEEP);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_never_freed_is_given_up() {
        let mutex = Mutex::new(7);
        let held = lock(&mutex, BRIEF).unwrap();
        assert!(thread::scope(|scope| scope.spawn(|| lock(&mutex, BRIEF).is_none()).join().unwrap()));
        drop(held);
        assert_eq!(*lock(&mutex, BRIEF).unwrap(), 7);
    }
}
