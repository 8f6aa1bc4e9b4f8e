//! Bytes that were read, and bytes that were not.

use crate::dataset::FileId;
use crate::plan::Slice;
use crate::{Error, ErrorKind};
use bytes::Bytes;

/// Bytes that could not be read.
pub(super) struct Failure {
    pub(super) file: FileId,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) error: Error,
}

#[cfg(test)]
impl Failure {
    /// Bytes from `start` to `end` of a file that cannot be read.
    pub(super) fn of(file: FileId, (start, end): (u64, u64), error: Error) -> Failure {
        Failure { file, start, end, error }
    }
}

/// An error that only a bug of ours makes.
pub(super) fn lost(what: &'static str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what}: this is a bug of uringload"))
}

/// The bytes of a span.
pub(super) fn bytes_of(slice: &Slice, blocks: &[Bytes]) -> Bytes {
    let start = slice.at as usize;
    match slice.span.len as usize {
        0 => Bytes::new(),
        len => blocks[slice.block as usize].slice(start..start + len),
    }
}
