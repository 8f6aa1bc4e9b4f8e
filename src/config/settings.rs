//! Everything that can be set of a loader, as plain data: what [`Builder`](crate::Builder) fills in.

use super::{
    Batching, Cache, Collate, Cursor, EngineChoice, ImageCache, IoChoice, MaxFailures, MemoryBudget, OnError, Shuffle,
};
use std::path::PathBuf;
use std::time::Duration;

/// What the user asks of a loader. `None` means: the loader chooses, from the device and the dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Rows (samples, unless `batching` says otherwise) in a batch.
    pub batch_size: u64,
    /// What a row is.
    pub batching: Batching,
    /// Epochs until the loader ends; `None`: it never ends.
    pub epochs: Option<u64>,
    /// Whether they are counted from where the loader starts, and not from epoch 0.
    pub more_epochs: bool,
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
    /// Whether nothing that is read is wanted again from the page cache.
    pub read_once: bool,
    /// Reads in flight at most.
    pub queue_depth: Option<usize>,
    /// Length of one read at most, in bytes.
    pub read_bytes: Option<usize>,
    /// Threads of the `threads` engine.
    pub io_threads: Option<usize>,
    /// Threads that decode, where samples are stored in units that must be; 0: on the thread that reads. `None`: one
    /// for each processor, at most 8.
    pub num_threads: Option<usize>,
    /// The share of the JPEGs that GPUs decode, by nvJPEG, 0 to 1.
    pub nvjpeg_share: f64,
    /// Threads beside `num_threads` that have them do it.
    pub nvjpeg_threads: usize,
    /// Bytes of memory for samples at most.
    pub memory_limit: Option<u64>,
    /// What it takes that memory from together with other loaders.
    pub memory_budget: Option<MemoryBudget>,
    /// What is kept in memory from epoch to epoch.
    pub cache: Cache,
    /// Where decoded images are kept from epoch to epoch.
    pub cache_images: Option<ImageCache>,
    /// Whether images that are decoded in parts have the bytes that decoding all of them makes.
    pub exact_images: bool,
    /// Whether images are turned as they say.
    pub orient_images: bool,
    /// The file that a trace is written to.
    pub trace: Option<PathBuf>,
    /// The folder in which others find the loader's statistics while it runs.
    pub share_stats: Option<PathBuf>,
    /// Two reads whose gap is at most this many bytes become one; `None`: by what an operation of the storage costs.
    pub coalesce_gap: Option<u64>,
    /// What an operation of the storage costs, as bytes that could be read in the same time, 0 for nothing; `None`:
    /// what the machine tells of it.
    pub operation_bytes: Option<u64>,
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
    /// How long nothing may come of a dataset's folder, or the machine may have no descriptor or memory to read with,
    /// before the loader ends with an error; `None`: as long as it takes. Until then no sample fails for that.
    pub outage_timeout: Option<Duration>,
    /// How long what a look at an open file has told is believed.
    pub check_every: Duration,
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

/// Long enough for a server that restarts or fails over.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// A file that is kept open is looked at again when it was read, but not twice within this time: another program that
/// writes into it is found out that much later. The clock behind a file's time of change often ticks no faster.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(4);

impl Default for Config {
    fn default() -> Config {
        Config {
            batch_size: 64,
            batching: Batching::Samples,
            epochs: Some(1),
            more_epochs: true,
            shuffle: Shuffle::Off,
            seed: 0,
            rank: 0,
            world_size: 1,
            drop_last: false,
            start: Cursor::default(),
            engine: EngineChoice::Auto,
            io: IoChoice::Auto,
            read_once: false,
            queue_depth: None,
            read_bytes: None,
            io_threads: None,
            num_threads: None,
            nvjpeg_share: 0.0,
            nvjpeg_threads: 0,
            memory_limit: None,
            memory_budget: None,
            cache: Cache::Off,
            cache_images: None,
            exact_images: true,
            orient_images: true,
            trace: None,
            share_stats: None,
            coalesce_gap: None,
            operation_bytes: None,
            on_error: OnError::Raise,
            max_failures: None,
            quarantine: None,
            timeout: None,
            outage_timeout: Some(OUTAGE_TIMEOUT),
            check_every: CHECK_EVERY,
            starved_after: Duration::from_secs(10),
            collate: Collate::Auto,
            collate_columns: Vec::new(),
            key_column: false,
            index_column: false,
        }
    }
}
