//! Details of progress and results of a verification.

use std::fmt;
use std::path::PathBuf;

/// A step of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Samples are read.
    Samples,
    /// Sums and hashes of files are computed.
    Checks,
}

/// Checksums that could not be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotChecked {
    /// The format's name for the algorithm.
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
