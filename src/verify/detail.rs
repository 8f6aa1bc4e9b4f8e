//! Parts of what is told while a dataset is verified.

use std::fmt;
use std::path::PathBuf;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Samples are read.
    Samples,
    /// Sums and hashes of files are computed.
    Checks,
}

/// Sums or hashes that could not be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotChecked {
    /// What the format calls the algorithm.
    pub algorithm: String,
    /// How many there are.
    pub count: u64,
    /// The file of the first of them.
    pub first: PathBuf,
}

impl fmt::Display for NotChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotChecked { algorithm, count, first } = self;
        write!(f, "{count} of {algorithm}, the first of {}", first.display())
    }
}
