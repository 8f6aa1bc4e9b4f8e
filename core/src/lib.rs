//! The words that all crates of uringload share: errors, steps down, element types, shares of work.
#![forbid(unsafe_code)]

mod dtype;
mod error;
mod fallback;
mod part;

pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use fallback::{Cause, Fallback};
pub use part::Part;
