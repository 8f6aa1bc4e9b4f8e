//! The order of samples as a function: a cursor goes in, a sample comes out, and nothing is stored.

use crate::dataset::SampleId;

/// A place in the order: the whole checkpoint of it.
///
/// `position` counts the samples that all ranks together have passed in this epoch, so a cursor means the same on every
/// rank and stays valid for another world size, batch size or thread count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Samples of this epoch that come before, over all ranks.
    pub position: u64,
}

/// An order of samples: for each epoch a bijection of `0..len()` onto the samples of the dataset.
pub trait Sampler: Send + Sync + 'static {
    /// Number of positions in an epoch.
    fn len(&self) -> u64;

    /// Whether there is no position.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at a position below `len()`.
    fn at(&self, cursor: Cursor) -> SampleId;
}

/// Samples in the order of the dataset.
#[derive(Clone, Copy, Debug)]
pub struct Sequential {
    len: u64,
}

impl Sequential {
    /// Over `len` samples.
    pub fn new(len: u64) -> Sequential {
        Sequential { len }
    }
}

impl Sampler for Sequential {
    fn len(&self) -> u64 {
        self.len
    }
    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position)
    }
}

/// Which positions of the global order one rank takes, batch by batch: position `p` of what is left of an epoch belongs
/// to rank `p % world_size`, and every rank gets the same number of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// This rank, below `world_size`.
    pub rank: u64,
    /// Number of ranks, at least 1.
    pub world_size: u64,
    /// Samples a batch and rank, at least 1.
    pub batch_size: u64,
    /// Whether what does not fill a batch on every rank is dropped; otherwise the last batch is smaller, and where ranks
    /// would differ by one sample the missing one is a repeat, marked as padding.
    pub drop_last: bool,
}

impl Strided {
    /// Batches that each rank gets of the `remaining` samples of an epoch.
    pub fn batches(&self, remaining: u64) -> u64 {
        let global = self.batch_size * self.world_size;
        if self.drop_last { remaining / global } else { remaining.div_ceil(global) }
    }
}
