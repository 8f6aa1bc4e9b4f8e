//! Fixed-size records in one or many files.

/// Fixed-size records.
#[derive(Debug)]
pub struct Records {}
