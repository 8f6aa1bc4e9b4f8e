//! The types that all crates of uringload share: errors, fallbacks, element types, parts of a job.
#![forbid(unsafe_code)]

// Here and nowhere else: every other crate depends on this one, which has nothing that is Linux's own, so this line is
// all that the compiler says.
#[cfg(not(target_os = "linux"))]
compile_error!(
    "uringload needs Linux: io_uring, O_DIRECT and eventfd are its own. Build for Linux, in a container or a virtual \
     machine; to type-check elsewhere: cargo check --target x86_64-unknown-linux-gnu"
);

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
