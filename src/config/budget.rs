//! A budget of memory that several loaders share.

use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that several loaders may take together: see [`Builder::memory_budget`](crate::Builder::memory_budget).
///
/// Each loader is sure of the memory of two batches, which it takes when it is built. It takes more as it reads, first
/// come, first served, up to its own [`memory_limit`](crate::Builder::memory_limit), but only from the first half of
/// the budget: the second half is kept for what loaders take when they are built. What a loader has taken is given back
/// when the loader and all of its batches are dropped. Clones are the same budget.
///
/// ```
/// use uringload::config::MemoryBudget;
/// use uringload::{Loader, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # (0..4).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
/// let budget = MemoryBudget::new(1 << 30);
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// let mut loaders = Vec::new();
/// for seed in 0..10 {
///     loaders.push(Loader::builder(dataset.clone()).batch_size(2).seed(seed).memory_budget(&budget).build()?);
/// }
/// assert!(budget.used() <= budget.bytes());
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    bytes: u64,
    used: AtomicU64,
    loaders: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `bytes` bytes.
    pub fn new(bytes: u64) -> MemoryBudget {
        MemoryBudget(Arc::new(Budget { bytes, used: AtomicU64::new(0), loaders: AtomicU64::new(0) }))
    }

    /// The bytes that the loaders may take together.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The bytes that they have taken by now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Acquire)
    }

    /// Takes what a loader cannot do without.
    ///
    /// # Errors
    /// `MemoryLimit` if there is not so much left.
    pub(crate) fn share(&self, least: u64) -> Result<Share> {
        let share = Share { of: self.clone(), taken: AtomicU64::new(0) };
        let others = self.0.loaders.fetch_add(1, Ordering::AcqRel);
        if share.take(least, self.bytes()) {
            return Ok(share);
        }
        let what = format!(
            "a loader needs {least} bytes of a memory budget of {}, of which {others} others have taken {}",
            self.bytes(),
            self.used()
        );
        Err(Error::new(ErrorKind::MemoryLimit, what)
            .with_remedy("raise the budget, lower batch_size, or drop loaders and their batches"))
    }
}

/// Whether both are the same budget.
impl PartialEq for MemoryBudget {
    fn eq(&self, other: &MemoryBudget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What one loader has taken of a budget. It goes back by drop.
#[derive(Debug)]
pub(crate) struct Share {
    of: MemoryBudget,
    taken: AtomicU64,
}

impl Share {
    /// Whether the loader may have `bytes` in all: it takes what it lacks, if loaders to come keep half of the budget.
    /// One thread asks.
    pub(crate) fn covers(&self, bytes: u64) -> bool {
        self.take(bytes, self.of.bytes() / 2)
    }

    /// Takes what is lacking to `bytes`, unless all loaders had more than `most` then.
    fn take(&self, bytes: u64, most: u64) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        let Some(more) = bytes.checked_sub(taken).filter(|&more| more > 0) else { return true };
        let of = &*self.of.0;
        let take = |used: u64| used.checked_add(more).filter(|&used| used <= most);
        let has_taken = of.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok();
        if has_taken {
            self.taken.store(bytes, Ordering::Relaxed);
        }
        has_taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.used.fetch_sub(self.taken.load(Ordering::Relaxed), Ordering::AcqRel);
        self.of.0.loaders.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_what_is_left_and_give_it_back() {
        let budget = MemoryBudget::new(100);
        let first = budget.share(40).expect("room");
        let second = budget.share(40).expect("room");
        assert!(first.covers(40) && !first.covers(41) && second.covers(40) && budget.used() == 80);
        let error = budget.share(21).expect_err("20 are left").to_string();
        assert!(error.contains("21 bytes") && error.contains("2 others have taken 80"), "{error}");
        let third = budget.share(20).expect("room");
        drop((first, third));
        assert!(second.covers(50) && !second.covers(51) && !second.covers(u64::MAX) && budget.used() == 50);
        drop(second);
        assert_eq!(budget.used(), 0);
        assert!(budget == budget.clone() && budget != MemoryBudget::new(100));
    }
}
