//! The table of a loader's settings: name, type, default, what values it takes, and what it does. The configuration,
//! [`Builder::set`](crate::Builder::set) and the lists of names that faces show are made of it.

use super::value::{Kind, Settable, Setting, Value};
use super::{
    Batching, Cache, Collate, Cursor, DiskCache, EngineChoice, ImageCache, IoChoice, MaxFailures, MemoryBudget,
    OnError, Shuffle,
};
use crate::Result;
use std::path::PathBuf;
use std::time::Duration;

/// Declares the settings: those with a name, which are set by value, and those that only Rust's types can say.
macro_rules! settings {
    (
        $( $(#[doc = $help:literal])+ $name:ident: $type:ty = $default:expr, $kind:ident; )*
        unnamed:
        $( $(#[doc = $about:literal])+ $field:ident: $of:ty = $start:expr; )*
    ) => {
        /// What the user asks of a loader. `None` means: the loader chooses, from the device and the dataset.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $( $(#[doc = $help])+ pub $name: $type, )*
            $( $(#[doc = $about])+ pub $field: $of, )*
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $( $name: $default, )* $( $field: $start, )* }
            }
        }

        impl Config {
            /// The settings that have a name.
            pub const NAMED: &'static [Setting] = &[$(
                Setting { name: stringify!($name), kind: Kind::$kind, help: concat!($($help),+) },
            )*];

            /// Sets a setting by its name. Returns whether there is one of this name.
            ///
            /// # Errors
            /// `InvalidArgument` for a value that it cannot have.
            pub fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
                match name {
                    $( stringify!($name) => self.$name = Settable::of(name, Kind::$kind, value)?, )*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// The value of a setting by its name, if there is one of this name.
            pub fn get(&self, name: &str) -> Option<Value> {
                match name {
                    $( stringify!($name) => Some(self.$name.value()), )*
                    _ => None,
                }
            }
        }
    };
}

impl Setting {
    /// Its value where nothing is set.
    #[must_use]
    pub fn default(&self) -> Value {
        Config::default().get(self.name).unwrap_or(Value::Null)
    }
}

settings! {
    /// Samples in a batch, or rows where samples are packed.
    batch_size: u64 = 64, Count;
    /// Epochs of the whole run, counted from epoch 0 also where it resumes.
    epochs: Option<u64> = Some(1), Whole;
    /// Use a random order for each epoch: of all samples (full), of windows of N neighbours (window:N), of shards, N
    /// mixed at a time (shards:N), or of pieces of S neighbours (pieces:S:N); auto follows from how samples are stored.
    shuffle: Shuffle = Shuffle::Off, Word;
    /// The seed of random orders.
    seed: u64 = 0, Whole;
    /// The rank of this process, from 0.
    rank: u64 = 0, Whole;
    /// Number of ranks that share the samples.
    world_size: u64 = 1, Count;
    /// Drop the samples of an epoch that do not fill a batch on every rank.
    drop_last: bool = false, Flag;
    /// What reads the bytes: uring, threads, or the better one that this machine allows (auto); one that is
    /// named and cannot be used is an error.
    engine: EngineChoice = EngineChoice::Auto, Word;
    /// Past the page cache (direct), through it (buffered), or whichever is faster (auto).
    io: IoChoice = IoChoice::Auto, Word;
    /// Most reads in flight.
    queue_depth: Option<usize> = None, Count;
    /// Longest read, in bytes.
    read_size: Option<usize> = None, Bytes;
    /// Threads of the engine "threads".
    io_threads: Option<usize> = None, Count;
    /// Threads that decode; 0 decodes on the thread that takes the batches.
    num_threads: Option<usize> = None, Whole;
    /// Most memory for samples, in bytes.
    memory_limit: Option<u64> = None, Bytes;
    /// Keep the dataset's files in memory (memory), up to the memory limit: what fits is read once.
    cache: Cache = Cache::Off, Word;
    /// Keep what is read of objects (S3, GCS, Azure, HTTP) in a folder of a local disk: FOLDER:BYTES, such as
    /// /nvme/cache:100GiB. Ranks and later runs share it.
    cache_disk: Option<DiskCache> = None, Room;
    /// Repeat chroma instead of interpolating it, and decode large images at a part of their size: faster by
    /// libjpeg-turbo, and not the bytes that decoding all of an image makes.
    fast_images: bool = false, Flag;
    /// Turn images, and what follows them, as their EXIF or XMP orientation says.
    orient: bool = true, Flag;
    /// Write what every thread does to this file, for ui.perfetto.dev, as Chrome's JSON.
    trace: Option<PathBuf> = None, Path;
    /// Read two samples as one if at most this many bytes lie between them.
    coalesce_gap: Option<u64> = None, Bytes;
    /// What to do about a sample that cannot be read: raise, warn (skip it and tell), skip, or replace it by another.
    on_error: OnError = OnError::Raise, Word;
    /// Stop after more failures than this: a number, or a share of an epoch.
    max_failures: Option<MaxFailures> = None, Failures;
    /// Append a line of JSON to this file for each sample that fails; `exclude` reads it.
    quarantine: Option<PathBuf> = None, Path;
    /// Give up on a read, and the samples in it, after this time.
    timeout: Option<Duration> = None, Seconds;
    /// Stop after waiting this long for storage that is away, or for descriptors or memory to read with.
    outage_timeout: Option<Duration> = Some(OUTAGE_TIMEOUT), Seconds;
    /// Believe what a look at an open file said for this long; what another program writes is noticed that much later.
    check_every: Duration = CHECK_EVERY, Seconds;
    /// Stop after waiting this long for memory that the program holds.
    starved_after: Duration = Duration::from_secs(10), Seconds;
    /// Add a column "key" with the names of samples.
    key: bool = false, Flag;
    /// Add a column "index" with the numbers of samples in the dataset.
    index: bool = false, Flag;

    unnamed:
    /// Whether nothing that is read is wanted again from the page cache.
    read_once: bool = false;
    /// What a row is.
    batching: Batching = Batching::Samples;
    /// Whether they are counted from where the loader starts, and not from epoch 0.
    more_epochs: bool = true;
    /// Where to start: the `next` of the last batch that was used, or the beginning of an epoch.
    start: Cursor = Cursor::default();
    /// The share of the JPEGs that GPUs decode, by nvJPEG, 0 to 1.
    nvjpeg_share: f64 = 0.0;
    /// Threads beside `num_threads` that have them do it.
    nvjpeg_threads: usize = 0;
    /// What it takes that memory from together with other loaders.
    memory_budget: Option<MemoryBudget> = None;
    /// Where decoded images are kept from epoch to epoch.
    cache_images: Option<ImageCache> = None;
    /// The folder in which others find the loader's statistics while it runs.
    share_stats: Option<PathBuf> = None;
    /// What an operation of the storage costs, as bytes that could be read in the same time, 0 for nothing; `None`:
    /// what the machine reports about it.
    operation_bytes: Option<u64> = None;
    /// The form of a batch's columns.
    collate: Collate = Collate::Auto;
    /// The form of single columns, by name, where it is another.
    collate_columns: Vec<(String, Collate)> = Vec::new();
}

/// Long enough for a server that restarts or fails over.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// A file that is kept open is looked at again when it was read, but not twice within this time: another program that
/// writes into it is found out that much later. The clock behind a file's time of change often ticks no faster.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(4);
