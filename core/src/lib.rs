//! The types that all crates of uringload share: errors, fallbacks, element types, parts of a job.
#![forbid(unsafe_code)]

// This check is here alone: every other crate depends on this one, which uses nothing of Linux's own, so the compiler
// reports only this line.
#[cfg(not(target_os = "linux"))]
compile_error!(
    "uringload needs Linux: io_uring, O_DIRECT and eventfd are its own. Build for Linux, in a container or a virtual \
     machine; to type-check elsewhere: cargo check --target x86_64-unknown-linux-gnu"
);

mod dtype;
mod error;
mod fallback;
mod float;
mod part;
mod size;
pub mod store;

pub use dtype::DType;
pub use error::{Distinct, Error, ErrorKind, Result, not_built_in};
pub use fallback::{Cause, Fallback, GdsCause};
pub use float::{bf16_bits, f16_bits};
pub use part::Part;
pub use size::{parse_bytes, split_unit};

/// The program of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
