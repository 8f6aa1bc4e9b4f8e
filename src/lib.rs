//! A data loader that keeps a GPU fed from NVMe, inside your training process.
//!
//! There are no worker processes. One thread issues batched `O_DIRECT` reads through io_uring into registered memory,
//! and a lock-free queue hands whole batches to your loop. The order of the samples is a function of a seed, so it
//! takes no memory, is the same for any number of ranks, and can be resumed at any batch.
//!
//! ```
//! use uringload::dataset::{self, Options};
//! use uringload::{Loader, State};
//!
//! # fn main() -> uringload::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # (0..10).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
//! // Ten files in a folder: each is a sample. Other formats are detected in the same way.
//! let dataset = dataset::open(&[folder.path()], &Options::new())?;
//! let builder = Loader::builder(dataset).batch_size(4).shuffle(true).seed(42).epochs(2);
//!
//! let mut loader = builder.clone().build()?;
//! let batch = loader.next().expect("a first batch")?;
//! let data = batch.column("data").expect("the content of the files");
//! for (index, id) in batch.ids.iter().enumerate() {
//!     println!("sample {id:?} has {} bytes", data.bytes_of(index).map_or(0, |bytes| bytes.len()));
//! }
//!
//! // A checkpoint is less than 1 KB of JSON. It is the place after the last batch that was handed out.
//! let saved = loader.state().to_json();
//! drop(loader);
//!
//! let mut loader = builder.resume(&State::from_json(&saved)?).build()?;
//! assert_eq!(loader.remaining(), Some(5)); // of three batches in each of two epochs
//! for batch in &mut loader {
//!     let batch = batch?;
//!     println!("{} samples, resume from {:?}", batch.len(), batch.next);
//! }
//! let stats = loader.stats().snapshot();
//! println!("{:.0} samples/s; limited by {}", stats.samples_per_second(), stats.verdict(None));
//! # Ok(())
//! # }
//! ```
//!
//! | where | what |
//! |---|---|
//! | [`dataset`] | opens datasets; the trait for a format of your own |
//! | [`Loader`], [`Builder`] | builds a loader, iterates over it, or awaits its `stream` |
//! | [`batch`], [`config`] | what a batch holds, and the choices that a builder takes |
//! | [`sampler`] | orders: mixtures, orders of your own, and digests that prove what was delivered |
//! | [`State`] | checkpoints |
//! | [`Reader`] | bytes in an order of your own |
//! | [`read_into`] | ranges of files into memory that you have, such as a checkpoint |
//! | [`transform`] | transforms of values: encoded images, closures, and what a GPU's kernels do |
//! | [`device`] | batches in the memory of a GPU |
//! | [`stats`] | counters, latencies, and a verdict on the bottleneck |
//! | [`guide`] | pages on resuming, orders, images, GPUs, a format of your own, and the features of the crate |
//! | [`pack`], [`verify`], [`quarantine`] | converts a dataset to shards, checks one, lists bad samples |
//!
//! What a dataset's files may need to be decoded with is behind features of the crate. `zstd` is on by default; `lz4`,
//! `snappy`, `brotli`, `bzip2`, `array-record`, `webp`, `gif`, `tiff` and `jpeg-encoder` (all ten: `codecs`), `hashes`
//! and `parquet` are not; `full` is everything, and `turbojpeg-vendored` links libjpeg-turbo. Without a feature, what
//! needs it is refused with an error of kind [`Unavailable`](ErrorKind::Unavailable) that names it.
//!
//! A choice by name ([`EngineChoice::Uring`](config::EngineChoice::Uring), [`Device::cuda`](config::Device::cuda)) is
//! honoured or `build` fails; only the automatic choices fall back, and each [`Fallback`](config::Fallback) in the
//! [route](Loader::route) says why and what to do about it. For every setting that takes an `Option`, `None` means that
//! the library chooses or that there is no limit.
#![forbid(unsafe_code)]
// What a signature has, its caller can name.
#![deny(unnameable_types)]

// In layer order: a module imports only from modules above it (a test enforces it).
pub mod config;
mod guard;
mod patience;
mod gds;
pub mod stats;
mod queue;
pub mod sampler;
pub mod transform;
// The engine is its second user.
#[allow(dead_code)]
mod segments;
mod prepared;
mod collate;
mod plan;
mod pool;
mod resident;
pub mod batch;
mod state;
pub mod quarantine;
mod engine;
mod here;
mod samples;
mod stage;
mod reactor;
pub mod device;
mod loader;
mod reader;
pub mod pack;
mod raw;
pub mod verify;

pub use loader::{Batches, Builder, CancelHandle, Delivered, DeviceBuilder, DeviceLoader, Epoch, Loader, Report};
pub use reader::{Answers, FileRange, Reader, ReaderOptions, read_into};
pub use state::State;
pub use uringload_core::{Error, ErrorKind, Result, store};
pub use uringload_formats as dataset;

/// The types of the CUDA driver and of DLPack with which batches are handed over.
pub mod sys {
    pub use uringload_sys::cuda::{
        Allocate, AllocatorFunctions, Context, DeviceAllocator, Free, SharedStream, Stream, StreamRef,
    };
    pub use uringload_sys::dlpack;
    pub use uringload_sys::plain::bytes_of;
}

/// What looks into a loader, and at the machine under it: the orders, single samples, raw reads, the links of GPUDirect
/// Storage, and what the kernels compute. `uringload bench`, `verify-order`, `doctor` and the tests are made of it.
pub mod inspect {
    pub use crate::config::device::{DeviceKind, GDS_OPEN_BOUND, GdsRoute, GdsSearch, GdsTrial};
    pub use crate::device::batch::element_type;
    pub use crate::here::Here;
    pub use crate::plan::Planned;
    pub use crate::reader::read_into_unless;
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
    pub use crate::samples::{Content, Samples};
    pub use crate::stage::Errands;
    pub use crate::state::{Identity, Received, VERSION};
    pub use crate::stats::counters::{Counter, Counters, Gauge};
    pub use crate::stats::histogram::Histogram;
    pub use crate::transform::column::Output;
    pub use crate::transform::images::{SIDE_MAX, images_on_host};
    pub use crate::transform::tokens::tokens_on_host;
    pub use uringload_formats::SHARD_SAMPLES;
    pub use uringload_images::{Format, Media, example_bmp};
    pub use uringload_sys::file::{may_replace, replace};

    /// What caches on disks hold, and how to remove it: `uringload cache`.
    pub mod cache {
        pub use crate::segments::{Cached, Clear, Cleared, Stat, Verified, clear, stat, verify};
    }

    /// Everything that GPUDirect Storage needs, link by link.
    pub mod gds {
        pub use crate::gds::*;
    }

    /// The raw rates of the storage and the bus.
    pub mod raw {
        pub use crate::raw::*;
    }

    /// The computations of the kernels, on the host.
    pub mod twin {
        pub use crate::transform::twin::*;
    }
}

/// The guides that a program in Rust follows: the pages of the folder `docs` in the repository, whose programs are
/// compiled with the tests.
#[cfg(any(doc, doctest))]
pub mod guide {
    #[doc = include_str!("../docs/features.md")]
    pub mod features {}

    #[doc = include_str!("../docs/gpu.md")]
    pub mod gpu {}

    #[doc = include_str!("../docs/images.md")]
    pub mod images {}

    #[doc = include_str!("../docs/object-stores.md")]
    pub mod object_stores {}

    #[doc = include_str!("../docs/orders.md")]
    pub mod orders {}

    #[doc = include_str!("../docs/own-format.md")]
    pub mod own_format {}

    #[doc = include_str!("../docs/resume.md")]
    pub mod resume {}
}

/// The programs of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
