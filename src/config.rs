//! What was asked ([`Config`]) and what was really got ([`Route`], with a [`Fallback`] for every step down).

mod collation;
mod cursor;
mod device;
mod errors;
mod order;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use collation::{Collate, PadValue, Padding};
pub use cursor::Cursor;
pub use device::{Device, DeviceKind, DeviceRoute, GDS_OPEN_BOUND, Gds, GdsRoute, GdsSearch, GdsTrial};
pub use errors::{MaxFailures, OnError};
pub use order::{Batching, Buckets, MIXED_SHARDS, PackMethod, Packing, Shuffle, WINDOW_SAMPLES};
pub use uringload_core::{Cause, Fallback, Part};
pub use uringload_formats::SHARD_SAMPLES;

/// What the user asks of a loader. `None` means: the loader chooses, from the device and the dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Rows (samples, unless `batching` says otherwise) in a batch.
    pub batch_size: u64,
    /// What a row is.
    pub batching: Batching,
    /// Epochs until the loader ends; `None`: it never ends.
    pub epochs: Option<u64>,
    /// Whether, and how, each epoch visits the samples in an order of its own.
    pub shuffle: Shuffle,
    /// What the shuffled orders derive from.
    pub seed: u64,
    /// Which of the `world_size` equal consumers this is, from 0.
    pub rank: u64,
    /// Number of equal consumers that share the samples of an epoch.
    pub world_size: u64,
    /// Whether samples that do not fill a batch on every rank are dropped at the end of an epoch.
    pub drop_last: bool,
    /// Where to start: the `next` of the last batch that was used, or the beginning of an epoch.
    pub start: Cursor,
    /// What moves the bytes.
    pub engine: EngineChoice,
    /// Whether reads go past the page cache.
    pub io: IoChoice,
    /// Reads in flight at most.
    pub queue_depth: Option<usize>,
    /// Length of one read at most, in bytes.
    pub read_bytes: Option<usize>,
    /// Threads of the `threads` engine.
    pub io_threads: Option<usize>,
    /// Threads that decode, where samples are stored in units that must be; 0: on the thread that reads. `None`: one
    /// for each processor, at most 8.
    pub num_threads: Option<usize>,
    /// Bytes of memory for samples at most.
    pub memory_limit: Option<u64>,
    /// Two reads whose gap is at most this many bytes become one.
    pub coalesce_gap: u64,
    /// What becomes of a sample that cannot be read.
    pub on_error: OnError,
    /// How many samples may fail, whatever `on_error` says, before the loader ends with `TooManyFailures` in the place
    /// of the batch that was one too many; `None`: any number.
    pub max_failures: Option<MaxFailures>,
    /// A file to which a line of JSON is added for each sample that cannot be had: see
    /// [`quarantine`](mod@crate::quarantine). It is made if it is not there.
    pub quarantine: Option<PathBuf>,
    /// How long a read may take, from when it is handed to the engine, before it is cancelled and its samples fail with
    /// `Timeout`; `None`: as long as it likes. One that does not end even so keeps its memory until it does. A read
    /// that only waits behind such ones may take four times as long.
    pub timeout: Option<Duration>,
    /// How long the loader waits for memory that the consumer holds before it fails with `Starved`.
    pub starved_after: Duration,
    /// The form of a batch's columns.
    pub collate: Collate,
    /// The form of single columns, by name, where it is another.
    pub collate_columns: Vec<(String, Collate)>,
    /// Whether each batch has a column "key" with the samples' keys.
    pub key_column: bool,
    /// Whether each batch has a column "index" with the samples' numbers in the dataset.
    pub index_column: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            batch_size: 64,
            batching: Batching::Samples,
            epochs: Some(1),
            shuffle: Shuffle::Off,
            seed: 0,
            rank: 0,
            world_size: 1,
            drop_last: false,
            start: Cursor::default(),
            engine: EngineChoice::Auto,
            io: IoChoice::Auto,
            queue_depth: None,
            read_bytes: None,
            io_threads: None,
            num_threads: None,
            memory_limit: None,
            coalesce_gap: 0,
            on_error: OnError::Raise,
            max_failures: None,
            quarantine: None,
            timeout: None,
            starved_after: Duration::from_secs(10),
            collate: Collate::Auto,
            collate_columns: Vec::new(),
            key_column: false,
            index_column: false,
        }
    }
}

/// Which engine is asked for. An engine asked for by name is had or the build fails; only `Auto` steps down.
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
    /// A simulated disk: made-up bytes on a virtual clock, for tests of what is printed.
    Sim,
}

/// Whether reads go past the page cache. A mode asked for by name is had or the build fails; only `Auto` chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoChoice {
    /// The page cache where the files lie in it already, the disk where they do not.
    #[default]
    Auto,
    /// `O_DIRECT`.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// io_uring.
    Uring,
    /// Threads that call `pread(2)`.
    Threads,
    /// A simulated disk.
    Sim,
    /// Threads that have cuFile read straight into a GPU's memory.
    Gds,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EngineKind::Uring => "uring",
            EngineKind::Threads => "threads",
            EngineKind::Sim => "sim",
            EngineKind::Gds => "gds",
        })
    }
}

/// What was really got: which way the bytes take, and every step down from the best one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What moves the bytes.
    pub engine: EngineKind,
    /// Whether reads go past the page cache (`O_DIRECT`).
    pub direct_io: bool,
    /// Offsets and lengths of reads are multiples of this many bytes; 1 where any will do.
    pub alignment: u32,
    /// Reads in flight at most.
    pub queue_depth: usize,
    /// Length of one read at most, in bytes.
    pub read_bytes: usize,
    /// Whether the arena is registered with the ring, so that the kernel does not pin pages for each read.
    pub registered_buffers: bool,
    /// What backs the arena's memory, in words.
    pub backing: Cow<'static, str>,
    /// Whether the arena is pinned for the copy engine of a GPU, although batches stay on the host.
    pub pinned: bool,
    /// The GPUs that batches go to, in turn; none where they stay on the host.
    pub devices: Vec<DeviceRoute>,
    /// Every step down, in the order in which it was taken; empty on the best route.
    pub fallbacks: Vec<Fallback>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.direct_io { "O_DIRECT" } else { "page cache" };
        let kib = self.read_bytes / 1024;
        write!(f, "{}, {way}, {} reads of <= {kib} KiB in flight", self.engine, self.queue_depth)?;
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
            alignment: 512,
            queue_depth: 64,
            read_bytes: 512 << 10,
            registered_buffers: true,
            backing: "transparent huge pages".into(),
            pinned: false,
            devices: Vec::new(),
            fallbacks: Vec::new(),
        };
        assert_eq!(
            route.to_string(),
            "uring, O_DIRECT, 64 reads of <= 512 KiB in flight, 512-byte aligned, registered buffers, \
             transparent huge pages"
        );
    }
}
