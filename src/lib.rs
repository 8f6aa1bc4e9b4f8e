//! A data loader that keeps a GPU fed from NVMe.
//!
//! One process, no workers: an io_uring reactor issues batched `O_DIRECT` reads into registered memory, a lock-free
//! queue hands over whole batches, and the consumer iterates over them in an order that it can prove and resume.
#![forbid(unsafe_code)]

// In layer order: a module imports only from modules above it (a test enforces it).
pub mod config;
pub mod gds;
pub mod stats;
mod queue;
pub mod sampler;
pub mod transform;
mod collate;
mod plan;
mod pool;
pub mod batch;
pub mod state;
pub mod quarantine;
mod engine;
mod stage;
mod reactor;
pub mod device;
pub mod loader;
pub mod pack;
pub mod raw;
pub mod verify;

pub use loader::Loader;
pub use state::State;
pub use uringload_core::{Error, ErrorKind, Result, parse_bytes, split_unit};
pub use uringload_formats as dataset;

/// What programs need of the system below: the CUDA driver, DLPack, and facts about this machine.
pub mod sys {
    pub use uringload_sys::{cuda, dlpack, system};
}

/// The programs of the README and of the pages in `docs` compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;

    #[doc = include_str!("../docs/orders.md")]
    struct Orders;

    #[doc = include_str!("../docs/own-format.md")]
    struct OwnFormat;

    #[doc = include_str!("../docs/resume.md")]
    struct Resume;
}
