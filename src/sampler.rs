//! The order of samples as a function: a cursor goes in, a sample comes out, and nothing is stored. Mixtures, orders of
//! your own, and digests that prove what was delivered.

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
use crate::dataset::{Dataset, SHARD_SAMPLES, SampleId};
use std::sync::Arc;

pub(crate) use digest::hash;
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

/// An order of samples: for each epoch, a function from the positions `0..len_of(epoch)` to samples of the dataset. All
/// orders of this library except mixtures have every sample once in each epoch.
pub trait Sampler: Send + Sync + 'static {
    /// Number of positions in an epoch.
    fn len(&self) -> u64;

    /// Number of positions in the given epoch, if epochs may differ in length.
    fn len_of(&self, _epoch: u64) -> u64 {
        self.len()
    }

    /// Whether there is no position.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at the cursor's position, which is below `len_of(cursor.epoch)`.
    fn at(&self, cursor: Cursor) -> SampleId;

    /// Identifies the order. States store it, and a state of another order is refused. An order of your own returns
    /// [`OrderId::custom`].
    fn id(&self) -> OrderId;

    /// The order in words, on one line, for people.
    fn describe(&self) -> String {
        self.id().to_string()
    }

    /// The state of a mixture beyond the cursor. `None` for all other orders.
    fn mixer(&self, _cursor: Cursor) -> Option<Mixer> {
        None
    }

    /// This order, continued at `cursor` from the `mixer` that a mixture stored there, perhaps with other weights.
    /// `None` for all other orders: the cursor is enough.
    ///
    /// # Errors
    /// `StateMismatch` if `mixer` does not belong to such a mixture at this cursor; `InvalidArgument` if the weights
    /// cannot change there.
    fn resumed(&self, _mixer: &Mixer, _cursor: Cursor) -> Result<Option<Arc<dyn Sampler>>> {
        Ok(None)
    }
}

/// The progress of a mixture of datasets: what a state stores besides the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mixer {
    /// The weights, as slots of each dataset in a period of 65536.
    #[doc(hidden)]
    pub slots: Vec<u32>,
    /// The epoch of the cursor.
    #[doc(hidden)]
    pub epoch: u64,
    /// Position in that epoch from which these weights apply.
    #[doc(hidden)]
    pub since: u64,
    /// Samples that each dataset had contributed in that epoch by then.
    #[doc(hidden)]
    pub given: Vec<u64>,
}

/// The order of a dataset under a shuffle and a seed, as [`Builder`](crate::Builder) makes it.
///
/// # Errors
/// `InvalidArgument` for windows and pieces without samples, for zero mixed shards, and if the shards of the dataset do
/// not ascend.
pub fn for_dataset(dataset: &dyn Dataset, shuffle: Shuffle, seed: u64) -> Result<Arc<dyn Sampler>> {
    let len = dataset.len();
    let shards = |mixed| match dataset.shards() {
        [] => Sharded::pieces(len, mixed, seed),
        ends => Sharded::new(ends, mixed, seed),
    };
    Ok(match shuffle {
        Shuffle::Auto => return for_dataset(dataset, by_layout(dataset), seed),
        Shuffle::Off => Arc::new(Sequential::new(len)),
        Shuffle::Full => Arc::new(Shuffled::new(len, seed)),
        Shuffle::Pieces { samples, mixed } => Arc::new(Sharded::pieces_of(len, samples, mixed, seed)?),
        Shuffle::Window(window) => Arc::new(Windowed::new(len, window, seed)?),
        Shuffle::Shards { mixed } => Arc::new(shards(mixed)?),
    })
}

/// Approximate length of a piece of [`Shuffle::Auto`]: a disk with heads, of 150 operations a second, reads it at nine
/// tenths of its bandwidth.
const PIECE_BYTES: u64 = 16 << 20;

/// Maximum mean length, in bytes, of samples that are not shuffled one by one if they are in shards: a longer sample is
/// a long read by itself.
const SHORT_BYTES: u64 = 1 << 20;

/// Pieces that are permuted as one, and the minimum number of samples for that: fewer are read one by one within half a
/// minute on any disk.
const MIXED_PIECES: u64 = 16;
const MANY_SAMPLES: u64 = SHARD_SAMPLES;

/// What [`Shuffle::Auto`] means: a function of the stored data, so that all ranks and machines agree.
pub(crate) fn by_layout(dataset: &dyn Dataset) -> Shuffle {
    let len = dataset.len();
    let each = dataset.files().total_bytes() / len.max(1);
    if dataset.units().is_some() {
        Shuffle::Shards { mixed: MIXED_SHARDS }
    } else if dataset.shards().len() < 2 || len < MANY_SAMPLES || each > SHORT_BYTES {
        Shuffle::Full
    } else {
        // A power of two: a few more or fewer samples do not change the order.
        let samples = 1 << (PIECE_BYTES / each.max(1)).clamp(1, SHARD_SAMPLES).ilog2();
        Shuffle::Pieces { samples, mixed: MIXED_PIECES }
    }
}

/// All orders that [`Shuffle::Auto`] has ever meant for a dataset: a state may be of any of them.
pub(crate) fn ever_auto(dataset: &dyn Dataset, seed: u64) -> Vec<Arc<dyn Sampler>> {
    let kinds = [by_layout(dataset), Shuffle::Full, Shuffle::Shards { mixed: MIXED_SHARDS }];
    kinds.into_iter().filter_map(|kind| for_dataset(dataset, kind, seed).ok()).collect()
}
