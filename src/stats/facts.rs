//! What a loader reads, in which order and beside how much memory: so that a verdict proposes nothing that is so
//! already, and nothing that cannot be.

/// What was known when the loader was built. The default knows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Samples of the dataset; 0: nobody told.
    pub(crate) samples: u64,
    /// Its files.
    pub(crate) files: u64,
    /// What the cache could do.
    pub(crate) keeping: Keeping,
    /// How neighbours come.
    pub(crate) order: Neighbours,
}

/// What a cache of the dataset's files in memory could do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Nobody told.
    #[default]
    Unknown,
    /// It is in use, or it is not for such batches.
    No,
    /// It would hold `fits` of `all` bytes.
    Room {
        /// Bytes of the files.
        all: u64,
        /// Those that there is memory for.
        fits: u64,
        /// The memory limit that holds them, where the present one does not.
        limit: Option<u64>,
    },
}

/// How samples that lie side by side come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Nobody told, or an order of the user's own.
    #[default]
    Unknown,
    /// One behind the other.
    Stored,
    /// Within a window, a shard or a piece.
    Near,
    /// Anywhere in the epoch.
    Far,
}

/// From so many samples a file on, files are shards.
const IN_SHARD: u64 = 16;

impl Facts {
    /// Whether samples lie together in files already.
    pub(crate) fn has_shards(&self) -> bool {
        self.files > 0 && self.samples / self.files >= IN_SHARD
    }
}
