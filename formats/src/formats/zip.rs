//! Zip archives.

pub(crate) mod directory;
