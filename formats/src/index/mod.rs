//! Looking into files: headers, indexes of files that are scanned, checksums, and what has changed since.

pub(crate) mod changes;
pub(crate) mod checks;
pub(crate) mod content;
pub(crate) mod headers;
pub(crate) mod indexes;
pub(crate) mod object;
pub(crate) mod opened;
pub(crate) mod packed;
pub(crate) mod sidecar;
pub(crate) mod window;
