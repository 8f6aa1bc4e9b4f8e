//! The table of a loader's settings: name, type, default, what values it takes, and what it does. The configuration,
//! [`Builder::set`](crate::Builder::set) and the lists of names that faces show are made of it.

use super::value::{Kind, Settable, Setting, Value};
use super::{
    Batching, Cache, Collate, Cursor, EngineChoice, ImageCache, IoChoice, MaxFailures, MemoryBudget, OnError, Shuffle,
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
    /// Rows (samples, unless `batching` says otherwise) in a batch.
    batch_size: u64 = 64, Count;
    /// Epochs until the loader ends; `None`: it never ends.
    epochs: Option<u64> = Some(1), Whole;
    /// Whether, and how, each epoch visits the samples in an order of its own.
    shuffle: Shuffle = Shuffle::Off, Word;
    /// What the shuffled orders derive from.
    seed: u64 = 0, Whole;
    /// Which of the `world_size` equal consumers this is, from 0.
    rank: u64 = 0, Whole;
    /// Number of equal consumers that share the samples of an epoch.
    world_size: u64 = 1, Count;
    /// Whether samples that do not fill a batch on every rank are dropped at the end of an epoch.
    drop_last: bool = false, Flag;
    /// What moves the bytes.
    engine: EngineChoice = EngineChoice::Auto, Word;
    /// Whether reads go past the page cache.
    io: IoChoice = IoChoice::Auto, Word;
    /// Reads in flight at most.
    queue_depth: Option<usize> = None, Count;
    /// Length of one read at most, in bytes.
    read_size: Option<usize> = None, Bytes;
    /// Threads of the `threads` engine.
    io_threads: Option<usize> = None, Count;
    /// Threads that decode, where samples are stored in units that must be; 0: on the thread that reads. `None`: one
    /// for each processor, at most 8.
    num_threads: Option<usize> = None, Whole;
    /// Bytes of memory for samples at most.
    memory_limit: Option<u64> = None, Bytes;
    /// What is kept in memory from epoch to epoch.
    cache: Cache = Cache::Off, Word;
    /// Whether chroma may be repeated, and images decoded at a part of their size, instead of having the bytes that
    /// decoding all of an image makes.
    fast_images: bool = false, Flag;
    /// Whether images are turned as they say.
    orient: bool = true, Flag;
    /// The file that a trace is written to.
    trace: Option<PathBuf> = None, Path;
    /// Two reads whose gap is at most this many bytes become one; `None`: by what an operation of the storage costs.
    coalesce_gap: Option<u64> = None, Bytes;
    /// What to do about a sample that cannot be read.
    on_error: OnError = OnError::Raise, Word;
    /// How many samples may fail, whatever `on_error` says, before the loader ends with `TooManyFailures` in the place
    /// of the batch that was one too many; `None`: any number.
    max_failures: Option<MaxFailures> = None, Failures;
    /// A file to which a line of JSON is added for each sample that cannot be read: see
    /// [`quarantine`](mod@crate::quarantine). It is made if it is not there.
    quarantine: Option<PathBuf> = None, Path;
    /// How long a read may take, from when it is handed to the engine, before it is cancelled and its samples fail with
    /// `Timeout`; `None`: as long as it likes. One that does not end even so keeps its memory until it does. A read
    /// that only waits behind such ones may take four times as long.
    timeout: Option<Duration> = None, Seconds;
    /// How long nothing may come of a dataset's folder, or the machine may have no descriptor or memory to read with,
    /// before the loader ends with an error; `None`: as long as it takes. Until then no sample fails for that.
    outage_timeout: Option<Duration> = Some(OUTAGE_TIMEOUT), Seconds;
    /// How long what a look at an open file has told is believed.
    check_every: Duration = CHECK_EVERY, Seconds;
    /// How long the loader waits for memory that the consumer holds before it fails with `Starved`.
    starved_after: Duration = Duration::from_secs(10), Seconds;
    /// Whether each batch has a column "key" with the samples' keys.
    key: bool = false, Flag;
    /// Whether each batch has a column "index" with the samples' numbers in the dataset.
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
