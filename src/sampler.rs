//! The order of samples as a function: a cursor goes in, a sample comes out, and nothing is stored.

mod feistel;
mod random;
mod shuffled;
mod strided;

use crate::dataset::SampleId;
use std::sync::Arc;

pub use random::sample_rng;
pub use shuffled::{EpochOrder, Shuffled};
pub use strided::{Position, Strided};

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

/// The order of `len` samples that a configuration asks for: shuffled by `seed`, or that of the dataset.
pub fn for_dataset(len: u64, shuffle: bool, seed: u64) -> Arc<dyn Sampler> {
    if shuffle { Arc::new(Shuffled::new(len, seed)) } else { Arc::new(Sequential::new(len)) }
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
