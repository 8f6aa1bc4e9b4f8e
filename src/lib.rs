//! A data loader that keeps a GPU fed from NVMe.
//!
//! One process, no workers: an io_uring reactor issues batched `O_DIRECT` reads into registered memory, a lock-free
//! queue hands over whole batches, and the consumer iterates over them in an order that it can prove and resume.
#![forbid(unsafe_code)]

// In layer order: a module imports only from modules above it (a test enforces it).
pub mod config;
mod gds;
pub mod stats;
mod queue;
pub mod sampler;
pub mod transform;
mod collate;
mod plan;
mod pool;
pub mod batch;
mod state;
pub mod quarantine;
mod engine;
mod stage;
mod reactor;
pub mod device;
mod loader;
pub mod pack;
mod raw;
pub mod verify;

pub use loader::{Builder, DeviceBuilder, DeviceLoader, Loader};
pub use state::State;
pub use uringload_core::{Error, ErrorKind, Result};
pub use uringload_formats as dataset;

/// The types of the CUDA driver and of DLPack that batches on a GPU are handed over with.
pub mod sys {
    pub use uringload_sys::cuda::{Context, SharedStream, Stream, StreamRef};
    pub use uringload_sys::dlpack::Tensor;
}

/// What the other crates of uringload use, and nobody else should: it may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::config::device::{DeviceKind, GDS_OPEN_BOUND, GdsRoute, GdsSearch, GdsTrial};
    pub use crate::config::order::{Batching, MIXED_SHARDS, WINDOW_SAMPLES};
    pub use crate::config::settings::Config;
    pub use crate::device::batch::element_type;
    pub use crate::loader::Delivered;
    pub use crate::sampler::id::{KnownOrder, Parts};
    pub use crate::sampler::random::sample_rng;
    pub use crate::sampler::replacement::replacement;
    pub use crate::sampler::rows::{BatchingId, Bucketer, Packer, Piece, RowPiece, Rows, SEQ_LEN_MAX};
    pub use crate::sampler::sequential::Sequential;
    pub use crate::sampler::shards::Sharded;
    pub use crate::sampler::shuffled::{EpochOrder, Shuffled};
    pub use crate::sampler::strided::{Position, Strided};
    pub use crate::sampler::walk::Walk;
    pub use crate::sampler::window::Windowed;
    pub use crate::state::{Identity, Saved, VERSION};
    pub use crate::stats::clock::{Clock, Doing, Role, ThreadSnapshot};
    pub use crate::stats::counters::{Counter, Counters, Gauge};
    pub use crate::stats::histogram::Histogram;
    pub use crate::transform::column::{Output, Transform};
    pub use crate::transform::images::{SIDE_MAX, images_on_host};
    pub use crate::transform::tokens::tokens_on_host;
    pub use crate::verify::detail::{NotChecked, Stage};
    pub use uringload_core::internal::{GdsCause, parse_bytes, split_unit};
    pub use uringload_formats::SHARD_SAMPLES;

    /// Everything that GPUDirect Storage needs, link by link.
    pub mod gds {
        pub use crate::gds::*;
    }

    /// What the storage and the bus give with nothing in the way.
    pub mod raw {
        pub use crate::raw::*;
    }

    /// What the kernels compute, on the host.
    pub mod twin {
        pub use crate::transform::twin::*;
    }
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
