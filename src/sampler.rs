//! The order of samples as a function: a cursor goes in, a sample comes out, and nothing is stored.

mod digest;
mod feistel;
pub(crate) mod id;
mod mixed;
mod order;
pub(crate) mod random;
pub(crate) mod replacement;
pub(crate) mod rows;
pub(crate) mod sequential;
pub(crate) mod shards;
pub(crate) mod shuffled;
#[cfg(test)]
mod statistics;
pub(crate) mod strided;
pub(crate) mod walk;
pub(crate) mod window;

use crate::Result;
use crate::config::{MIXED_SHARDS, Shuffle};
use crate::dataset::{Dataset, SampleId};
use std::sync::Arc;

pub(crate) use digest::hash;
pub(crate) use feistel::below;
pub(crate) use id::{Difference, Field, Identified, KnownOrder, OnLine, Parts};
pub(crate) use random::sample_rng;
pub(crate) use replacement::replacement;
pub(crate) use rows::{BatchingId, METHODS, Piece, SEQ_LEN_MAX, method_name, row_field};
pub(crate) use sequential::Sequential;
pub(crate) use shards::Sharded;
pub(crate) use shuffled::Shuffled;
pub(crate) use strided::{Position, Strided};
pub(crate) use walk::Walk;
pub(crate) use window::Windowed;

pub use crate::config::cursor::Cursor;
pub use digest::{Digest, EpochDigest, epoch_digest};
pub use id::OrderId;
pub use mixed::{Mixed, Stopping};
pub use order::{Order, Selection};

/// An order of samples: for each epoch a function of `0..len_of(epoch)` into the samples of the dataset. All but
/// mixtures have every sample once in each epoch.
pub trait Sampler: Send + Sync + 'static {
    /// Number of positions in an epoch.
    fn len(&self) -> u64;

    /// Number of positions in that epoch, where one may differ from the others: a mixture whose weights were changed
    /// within it.
    fn len_of(&self, _epoch: u64) -> u64 {
        self.len()
    }

    /// Whether there is no position.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at the cursor's position, which is below `len_of(cursor.epoch)`.
    fn at(&self, cursor: Cursor) -> SampleId;

    /// Everything that decides the order but the dataset. States store it, and a state of another order is refused;
    /// an order of your own has an [`OrderId::custom`].
    fn id(&self) -> OrderId;

    /// The order in words, on one line, for people. Nothing stores, compares or parses it.
    fn describe(&self) -> String {
        self.id().to_string()
    }

    /// What a state keeps of a mixture beside the cursor. `None`: the cursor is all there is.
    fn mixer(&self, _cursor: Cursor) -> Option<Mixer> {
        None
    }

    /// This order, going on at `cursor` from where a mixture was that said `mixer` of this cursor; its weights may have
    /// been others. `None`: it needs no more than the cursor.
    ///
    /// # Errors
    /// `StateMismatch` where `mixer` is not of such a mixture at this cursor; `InvalidArgument` where the weights
    /// cannot change there.
    fn resumed(&self, _mixer: &Mixer, _cursor: Cursor) -> Result<Option<Arc<dyn Sampler>>> {
        Ok(None)
    }
}

/// Where a mixture of datasets stands: counters of the part of an epoch that has the same weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mixer {
    /// The weights, as slots that the datasets have of a period of 65536.
    #[doc(hidden)]
    pub slots: Vec<u32>,
    /// The epoch that it is about, that of the cursor.
    #[doc(hidden)]
    pub epoch: u64,
    /// Position in that epoch from which on it has these weights.
    #[doc(hidden)]
    pub since: u64,
    /// Samples that each dataset had given in that epoch by then.
    #[doc(hidden)]
    pub given: Vec<u64>,
}

/// The order of the dataset's samples that a configuration asks for.
///
/// # Errors
/// `InvalidArgument` for windows of no sample, for shards mixed with none, and where the shards of the dataset do not
/// ascend.
pub fn for_dataset(dataset: &dyn Dataset, shuffle: Shuffle, seed: u64) -> Result<Arc<dyn Sampler>> {
    let len = dataset.len();
    let shards = |mixed| match dataset.shards() {
        [] => Sharded::pieces(len, mixed, seed),
        ends => Sharded::new(ends, mixed, seed),
    };
    Ok(match shuffle {
        Shuffle::Off => Arc::new(Sequential::new(len)),
        Shuffle::Auto if dataset.units().is_some() => Arc::new(shards(MIXED_SHARDS)?),
        Shuffle::Full | Shuffle::Auto => Arc::new(Shuffled::new(len, seed)),
        Shuffle::Window(window) => Arc::new(Windowed::new(len, window, seed)?),
        Shuffle::Shards { mixed } => Arc::new(shards(mixed)?),
    })
}
