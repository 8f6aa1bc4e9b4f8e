//! The choices that a [`Builder`](crate::Builder) takes, and what a loader really uses: its [`Route`], with a
//! [`Fallback`] for every step down.

mod budget;
mod cache;
mod collation;
pub(crate) mod cursor;
pub(crate) mod device;
mod errors;
pub(crate) mod order;
mod profile;
mod said;
pub(crate) mod settings;
mod value;
mod words;

use std::borrow::Cow;
use std::fmt;
use std::io;

pub use budget::MemoryBudget;
pub(crate) use budget::Share;
pub use cache::{Cache, DiskCache, ImageCache};
pub use collation::{Collate, PadValue, Padding};
pub use device::{Device, DeviceRoute, Gds, NvjpegRoute};
pub use errors::{MaxFailures, OnError};
pub use order::{Batching, Buckets, MIXED_SHARDS, PackMethod, Packing, Shuffle, WINDOW_SAMPLES};
pub use profile::Profile;
pub use settings::Config;
pub use uringload_core::{Cause, Fallback, GdsCause, Part, parse_bytes, split_unit};
pub use value::{Kind, Setting, Value};

pub(crate) use cursor::Cursor;
pub(crate) use device::{DeviceKind, GdsRoute, GdsTrial};
pub(crate) use said::Said;
pub(crate) use settings::CHECK_EVERY;

/// Which engine reads. If an engine chosen by name is not available, `build` fails; only `Auto` falls back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineChoice {
    /// io_uring where the system allows it, threads otherwise.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// Threads that call `pread(2)`.
    Threads,
    /// A simulated disk: made-up bytes on a virtual clock, for tests.
    Sim,
}

/// Whether reads bypass the page cache. If a mode chosen by name is not available, `build` fails; only `Auto` chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoChoice {
    /// The page cache if the files are in it already, `O_DIRECT` otherwise.
    #[default]
    Auto,
    /// `O_DIRECT`.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// What reads the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// io_uring.
    Uring,
    /// Threads that call `pread(2)`.
    Threads,
    /// Threads that ask stores for objects, and call `pread(2)` for files beside them.
    Remote,
    /// A simulated disk.
    Sim,
    /// Threads that read straight into a GPU's memory through cuFile.
    Gds,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EngineKind::Uring => "uring",
            EngineKind::Threads => "threads",
            EngineKind::Remote => "remote",
            EngineKind::Sim => "sim",
            EngineKind::Gds => "gds",
        })
    }
}

/// How a loader really reads: the path of the bytes, and every step down from the best one. `Display` is one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Route {
    /// What reads the bytes.
    pub engine: EngineKind,
    /// Whether reads bypass the page cache (`O_DIRECT`).
    pub direct_io: bool,
    /// Whether what is read through the page cache does not stay there (`RWF_DONTCACHE`).
    #[doc(hidden)]
    pub reads_once: bool,
    /// Offsets and lengths of reads are multiples of this many bytes; 1 if any will do.
    #[doc(hidden)]
    pub alignment: u32,
    /// Reads in flight at most.
    #[doc(hidden)]
    pub queue_depth: usize,
    /// Length of one read at most, in bytes.
    #[doc(hidden)]
    pub read_bytes: usize,
    /// No read crosses a multiple of this many bytes; 0 if any may.
    #[doc(hidden)]
    pub border: u64,
    /// Whether the arena is registered with the ring, so that the kernel does not pin pages for each read.
    #[doc(hidden)]
    pub registered_buffers: bool,
    /// What backs the arena's memory, in words.
    #[doc(hidden)]
    pub backing: Cow<'static, str>,
    /// Whether memory is pinned for the copy engine of a GPU although batches stay on the host.
    pub pinned: bool,
    /// The GPUs that batches go to, in turn; none if they stay on the host.
    pub devices: Vec<DeviceRoute>,
    /// What is read together because it lies together, what decodes images and which are kept, in words.
    #[doc(hidden)]
    pub locality: Vec<Cow<'static, str>>,
    /// Every step down, in order; empty on the best route.
    pub fallbacks: Vec<Fallback>,
}

impl Route {
    /// Notes what backs the arena's memory, and whether that could be registered with the engine.
    pub(crate) fn note_memory(&mut self, backing: &'static str, registered: &io::Result<bool>) {
        self.backing = backing.into();
        self.registered_buffers = matches!(registered, Ok(true));
        if let Err(error) = registered {
            self.note_unregistered("plain reads", error);
        }
    }

    /// Notes that memory could not be registered, and what was got instead.
    pub(crate) fn note_unregistered(&mut self, got: &'static str, error: &io::Error) {
        self.fallbacks.push(Fallback::new(Cause::BufferRegistration, got, Some(error)));
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match (self.direct_io, self.reads_once) {
            (true, _) => "O_DIRECT",
            (false, true) => "page cache, which keeps nothing",
            (false, false) if self.engine == EngineKind::Remote => "requests to a store",
            (false, false) => "page cache",
        };
        let kib = self.read_bytes / 1024;
        write!(f, "{}, {way}, up to {} reads of <= {kib} KiB in flight", self.engine, self.queue_depth)?;
        if self.direct_io {
            write!(f, ", {}-byte aligned", self.alignment)?;
        }
        if self.registered_buffers {
            f.write_str(", registered buffers")?;
        }
        write!(f, ", {}", self.backing)?;
        if self.pinned {
            f.write_str(", pinned")?;
        }
        self.locality.iter().try_for_each(|what| write!(f, ", {what}"))?;
        self.devices.iter().try_for_each(|device| write!(f, " -> {device}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_is_one_readable_line() {
        let route = Route {
            engine: EngineKind::Uring,
            direct_io: true,
            reads_once: false,
            alignment: 512,
            queue_depth: 64,
            read_bytes: 512 << 10,
            border: 0,
            registered_buffers: true,
            backing: "transparent huge pages".into(),
            pinned: false,
            devices: Vec::new(),
            locality: vec!["small columns read once (up to 3 MiB)".into()],
            fallbacks: Vec::new(),
        };
        assert_eq!(
            route.to_string(),
            "uring, O_DIRECT, up to 64 reads of <= 512 KiB in flight, 512-byte aligned, registered buffers, \
             transparent huge pages, small columns read once (up to 3 MiB)"
        );
    }
}
