//! A data loader that keeps a GPU fed from NVMe.
//!
//! One process, no workers: an io_uring reactor issues batched `O_DIRECT` reads into registered memory, a lock-free
//! queue hands over whole batches, and the consumer iterates over them in an order that it can prove and resume.
#![forbid(unsafe_code)]

// In layer order: a module imports only from modules above it (a test enforces it).
pub mod config;
pub mod gds;
pub mod stats;
pub mod queue;
pub mod sampler;
pub mod transform;
pub mod collate;
pub mod plan;
pub mod pool;
pub mod batch;
pub mod state;
pub mod quarantine;
pub mod engine;
pub mod stage;
pub mod reactor;
pub mod device;
pub mod loader;
pub mod pack;
pub mod raw;
pub mod verify;

pub use loader::Loader;
pub use state::State;
pub use uringload_core::{Error, ErrorKind, Result};
pub use uringload_formats as dataset;
pub use uringload_sys as sys;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// And that of the page on orders.
#[cfg(doctest)]
#[doc = include_str!("../docs/orders.md")]
struct Orders;

/// And those of the page on GPUs.
#[cfg(doctest)]
#[doc = include_str!("../docs/gpu.md")]
struct Gpu;
