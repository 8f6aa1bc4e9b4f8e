//! What uringload calls: the kernel. Every `unsafe` of the library and the binary lives in this crate, behind types
//! that cannot be misused from safe code.
//!
//! - [`arena`]: one mapping lent out as [`Part`]s, each the only owner of its bytes.
//! - [`event`]: a descriptor for poll loops.
//!
//! Linux only.

pub mod arena;
pub mod event;

pub use arena::{Arena, Part};
pub use event::EventFd;
