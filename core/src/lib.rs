//! The types that all crates of uringload share: errors, fallbacks, element types, parts of a job.
#![forbid(unsafe_code)]

mod dtype;
mod error;
mod fallback;
mod part;
mod size;

/// What the other crates of uringload use, and nobody else should: it may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::error::{Distinct, not_built_in};
    pub use crate::fallback::GdsCause;
    pub use crate::size::{parse_bytes, split_unit};
}

pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use fallback::{Cause, Fallback};
pub use part::Part;

/// The program of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
