//! A data loader that keeps a GPU fed from NVMe.
//!
//! One process, no workers: an io_uring reactor issues batched `O_DIRECT` reads into registered memory, a lock-free
//! queue hands over whole batches, and the consumer iterates over them in an order that it can prove and resume.
#![forbid(unsafe_code)]

// In layer order: a module imports only from modules above it (a test enforces it).
pub mod batch;
pub mod config;
pub mod dataset;
pub mod engine;
pub mod error;
pub mod loader;
pub mod plan;
pub mod pool;
pub mod queue;
pub mod reactor;
pub mod sampler;
pub mod stats;

pub use error::{Error, ErrorKind, Result};
