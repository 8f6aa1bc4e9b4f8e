//! What looking through the files of a dataset for their indexes has to tell.

use crate::config::{Cause, Fallback};
use std::fmt::Display;
use std::path::PathBuf;

/// How far looking through the shards has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    /// Shards that are done.
    pub shards: u64,
    /// All shards.
    pub shards_total: u64,
    /// Bytes of shards that are done, also those that were passed over.
    pub bytes: u64,
    /// Bytes of all shards.
    pub bytes_total: u64,
}

/// How the indexes of the shards were come by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexReport {
    /// Shards whose index lay there.
    pub current: u64,
    /// Shards whose index was taken over from another program's (of archives, DALI's).
    pub imported: u64,
    /// Shards that were looked through.
    pub scanned: u64,
    /// Indexes that were written.
    pub written: u64,
    /// Bytes of shards that were read to look through them.
    pub bytes_read: u64,
    /// Indexes that lay there and were not used, each with the reason.
    pub refused: Vec<(PathBuf, String)>,
}

/// A step down that several shards share: how many, the first of them, and why there.
#[derive(Default)]
pub(super) struct StepDown<'a>(u64, Option<(PathBuf, &'a dyn Display, Option<i32>)>);

impl<'a> StepDown<'a> {
    pub(super) fn add(&mut self, path: PathBuf, reason: &'a dyn Display, errno: Option<i32>) {
        self.0 += 1;
        self.1.get_or_insert((path, reason, errno));
    }

    pub(super) fn into_fallback(self, cause: Cause, got: String) -> Option<Fallback> {
        let (path, reason, errno) = self.1?;
        let others = match self.0 - 1 {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        let mut fallback = Fallback::new(cause, got, None).with_reason(format!("{path:?}{others}: {reason}"));
        fallback.errno = errno;
        Some(fallback)
    }
}
