//! What tests ask the allocator for. Their files are small, so an allocation that is not is one that the library made
//! because a header claimed it.

use crate::common::allocator::Watched;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A timeout with which a dataset is opened on the thread that a test watches.
pub const ON_THIS_THREAD: Duration = Duration::MAX;

/// No thread allocates more at once, in bytes, unless it has a [`Limit`] of its own.
const ALLOCATION_MAX: usize = 8 << 20;

/// The largest allocation above its limit, by any thread of the process: the library has threads of its own.
static TOO_LARGE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The largest allocation of this thread, in bytes.
    pub static LARGEST: Cell<usize> = const { Cell::new(0) };
    /// How often this thread allocated.
    pub static COUNT: Cell<u64> = const { Cell::new(0) };
    /// What this thread may allocate at once, in bytes.
    static ALLOWED: Cell<usize> = const { Cell::new(ALLOCATION_MAX) };
    /// What this thread took and has not freed, and the most that was ever. What others free of it is not seen.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Returns the most memory that `work` held at a time, in bytes, beside what this thread held before.
#[cfg(feature = "parquet")]
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get().0;
    HELD.set((before, before));
    let made = work();
    (made, usize::try_from(HELD.get().1 - before).unwrap_or(0))
}

fn watch(bytes: usize) {
    // A thread that ends has no cells any more, and is not asked.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now + bytes as isize;
        held.set((now, most.max(now)));
    });
    if bytes > ALLOWED.try_with(Cell::get).unwrap_or(ALLOCATION_MAX) {
        TOO_LARGE.fetch_max(bytes, Ordering::Relaxed);
    }
}

fn freed(bytes: usize) {
    let _ = HELD.try_with(|held| held.set((held.get().0 - bytes as isize, held.get().1)));
}

#[global_allocator]
static WATCHED: Watched = Watched(watch, freed);

/// Fails if anything in this process allocated more at once than it may.
///
/// # Panics
/// Then. The allocation may be that of a test that runs beside this one.
pub fn assert_small() {
    let bytes = TOO_LARGE.load(Ordering::Relaxed);
    assert_eq!(bytes, 0, "a thread of this process allocated {bytes} bytes at once, which is more than it may");
}

/// While it lives, the thread that made it may allocate that many bytes at once, for data that is large on purpose.
pub struct Limit {
    before: usize,
}

impl Limit {
    pub fn new(bytes: usize) -> Limit {
        Limit { before: ALLOWED.replace(bytes) }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        ALLOWED.set(self.before);
    }
}
