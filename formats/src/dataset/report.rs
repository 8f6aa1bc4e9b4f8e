//! The work on the indexes of a dataset's files: how far a scan is, and where indexes came from.

use std::path::PathBuf;

/// The progress of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    /// Finished shards.
    pub shards: u64,
    /// All shards.
    pub shards_total: u64,
    /// Bytes of the finished shards, including bytes that did not have to be read.
    pub bytes: u64,
    /// Bytes of all shards.
    pub bytes_total: u64,
}

/// Where the indexes of the shards came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexReport {
    /// Shards that already had an index.
    pub current: u64,
    /// Shards that were scanned.
    pub scanned: u64,
    /// Indexes that were written.
    pub written: u64,
    /// Bytes of shards that were read to scan them.
    pub bytes_read: u64,
    /// Existing indexes that were not used, and why.
    pub refused: Vec<(PathBuf, String)>,
}
