//! How little of a file is read to index it, and columns of examples of any bytes.

use std::io;

/// A file whose bytes lie in memory.
pub(super) fn in_memory(bytes: &[u8]) -> impl Fn(&mut [u8], u64) -> io::Result<usize> {
    move |into, offset| {
        let rest = &bytes[(offset as usize).min(bytes.len())..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}
