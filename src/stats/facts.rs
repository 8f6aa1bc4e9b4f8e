//! Records what a loader reads, in which order, and how much memory is left, so that a verdict proposes nothing that is
//! already done or that is impossible.

use uringload_sys::throttle::ReadLimits;

/// What was known when the loader was built. By default nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Samples of the dataset; 0: unknown.
    pub(crate) samples: u64,
    /// Its files.
    pub(crate) files: u64,
    /// Whether some of them are objects of a store.
    pub(crate) has_objects: bool,
    /// Whether these are kept on a local disk.
    pub(crate) keeps_objects: bool,
    /// What the cache could do.
    pub(crate) keeping: Keeping,
    /// Where neighbours are in the order.
    pub(crate) order: Neighbours,
    /// What the control groups of this process allow to be read from its storage.
    pub(crate) allowed: ReadLimits,
}

/// What a cache of the dataset's files in memory could do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Unknown.
    #[default]
    Unknown,
    /// It is in use, or does not suit such batches.
    No,
    /// It would hold `fits` of `all` bytes.
    Room {
        /// Bytes of the files.
        all: u64,
        /// Bytes that fit in memory.
        fits: u64,
        /// The memory limit that would hold them, if the present one does not.
        limit: Option<u64>,
    },
}

/// Where neighbouring samples are in the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Unknown, or an order of the user's own.
    #[default]
    Unknown,
    /// One after the other.
    Stored,
    /// Within a window, a shard or a piece.
    Near,
    /// Anywhere in the epoch.
    Far,
}

/// Files with this many samples each, or more, are shards.
const IN_SHARD: u64 = 16;

impl Facts {
    /// Whether samples are already together in files.
    pub(crate) fn has_shards(&self) -> bool {
        self.files > 0 && self.samples / self.files >= IN_SHARD
    }
}
