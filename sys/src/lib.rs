//! What uringload calls: the kernel, and the driver of a GPU. Every `unsafe` of the library and the binary lives in
//! this crate, behind types that cannot be misused from safe code.
//!
//! - [`arena`]: one mapping lent out as [`Part`]s, each the only owner of its bytes.
//! - [`cuda`]: the driver of a GPU, loaded at run time.
//! - [`dlpack`]: tensors lent to others.
//! - [`copy`]: many pieces into one block.
//! - [`cufile`]: GPUDirect Storage, where it is there.
//! - [`event`]: a descriptor for poll loops.
//! - [`ring`]: an io_uring that owns every part in flight.
//! - [`mod@file`]: opening files and asking the kernel about them.
//! - [`block`]: the device behind a file.
//! - [`pci`]: how far a GPU is from a disk.
//! - [`system`]: what this process may do and what it has used.
//!
//! Linux only.

pub mod arena;
pub mod block;
pub mod copy;
pub mod cuda;
pub mod dlpack;
pub mod cufile;
pub mod event;
pub mod file;
pub mod pci;
pub mod ring;
pub mod system;

pub use arena::{Arena, Part};
pub use event::EventFd;
pub use file::OpenFlags;
pub use ring::{Completion, Open, Operation, Ring, RingOptions, Target};
