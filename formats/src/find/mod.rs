//! Finding files: from what a user names to a table of files.

pub(crate) mod absent;
pub(crate) mod names;
pub(crate) mod objects;
pub(crate) mod paths;
pub(crate) mod patterns;
pub(crate) mod walk;
