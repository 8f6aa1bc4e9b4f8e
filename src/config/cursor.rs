//! A position in the order of the samples: where a loader starts, and what a checkpoint keeps.

/// A position in the order of the samples.
///
/// `position` counts the samples that all ranks together have passed in this epoch, so a cursor means the same on every
/// rank, and stays valid for another world size, batch size or number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Samples of this epoch that come before it, over all ranks.
    pub position: u64,
    /// Rows passed, over all ranks, in the window of samples that begins at `position`: 0 unless samples are packed or
    /// bucketed.
    pub rows: u64,
}

impl Cursor {
    /// Before the sample at `position` of `epoch`.
    pub fn new(epoch: u64, position: u64) -> Cursor {
        Cursor { epoch, position, rows: 0 }
    }
}
