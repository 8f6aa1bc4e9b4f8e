//! Asked for is a [`Config`]; checked once here, against the dataset and the machine, it becomes a loader.

use super::run::{self, Job};
use super::{Loader, OnFailed, run::Limits};
use crate::batch::FailedSample;
use crate::config::{Batching, Collate, Config, EngineChoice, IoChoice, MaxFailures, OnError, Shuffle};
use crate::dataset::{Dataset, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::quarantine::Quarantine;
use crate::reactor::Failures;
use crate::sampler::{self, Cursor, Sampler, Strided};
use crate::stats::Stats;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory for samples where the user names no limit: enough to keep a fast disk busy while a batch is used.
const MEMORY_LIMIT: u64 = 256 << 20;

/// Batches of the largest size that the default limit holds: one in use, one ready, one under way.
const BATCHES_HELD: u64 = 3;

/// Batches that may be ready at most. Memory is the bound that matters; this one bounds the queue where samples are
/// tiny.
const QUEUE_MAX: u64 = 1024;

/// Sets up a [`Loader`].
#[derive(Clone)]
#[must_use = "call build"]
pub struct Builder {
    dataset: Arc<dyn Dataset>,
    sampler: Option<Arc<dyn Sampler>>,
    config: Config,
    on_failed: Option<OnFailed>,
}

impl Loader {
    /// A loader of `dataset`, with [`Config::default`] until told otherwise.
    pub fn builder(dataset: Arc<dyn Dataset>) -> Builder {
        Builder { dataset, sampler: None, config: Config::default(), on_failed: None }
    }
}

impl Builder {
    /// Replaces everything that was set so far.
    pub fn config(mut self, config: Config) -> Builder {
        self.config = config;
        self
    }

    /// Samples in a batch.
    pub fn batch_size(mut self, samples: u64) -> Builder {
        self.config.batch_size = samples;
        self
    }

    /// Epochs until the loader ends; `None`: never.
    pub fn epochs(mut self, epochs: impl Into<Option<u64>>) -> Builder {
        self.config.epochs = epochs.into();
        self
    }

    /// Whether, and how, each epoch has a random order of its own: `true` is [`Shuffle::Full`].
    pub fn shuffle(mut self, shuffle: impl Into<Shuffle>) -> Builder {
        self.config.shuffle = shuffle.into();
        self
    }

    /// What random orders derive from.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.config.seed = seed;
        self
    }

    /// An order of the caller's instead of `shuffle`.
    pub fn sampler(mut self, sampler: Arc<dyn Sampler>) -> Builder {
        self.sampler = Some(sampler);
        self
    }

    /// Which of `world_size` equal consumers this is.
    pub fn rank(mut self, rank: u64, world_size: u64) -> Builder {
        self.config.rank = rank;
        self.config.world_size = world_size;
        self
    }

    /// Whether samples that do not fill a batch on every rank are dropped.
    pub fn drop_last(mut self, drop_last: bool) -> Builder {
        self.config.drop_last = drop_last;
        self
    }

    /// Starts from `cursor` (the `next` of the last batch that was used) instead of the beginning.
    pub fn start(mut self, cursor: Cursor) -> Builder {
        self.config.start_epoch = cursor.epoch;
        self.config.start_position = cursor.position;
        self.config.start_rows = cursor.rows;
        self
    }

    /// What moves the bytes.
    pub fn engine(mut self, engine: EngineChoice) -> Builder {
        self.config.engine = engine;
        self
    }

    /// Past the page cache or through it.
    pub fn io(mut self, io: IoChoice) -> Builder {
        self.config.io = io;
        self
    }

    /// Bytes of memory for samples at most.
    pub fn memory_limit(mut self, bytes: u64) -> Builder {
        self.config.memory_limit = Some(bytes);
        self
    }

    /// What becomes of samples that cannot be read.
    pub fn on_error(mut self, on_error: OnError) -> Builder {
        self.config.on_error = on_error;
        self
    }

    /// What is told of each sample that cannot be had, under [`OnError::Warn`]: on the thread that takes the batches,
    /// when the batch that lacks the sample is handed out. So a slow one holds up nothing but its own thread.
    pub fn on_failed(mut self, told: impl Fn(&FailedSample) + Send + Sync + 'static) -> Builder {
        self.on_failed = Some(Arc::new(told));
        self
    }

    /// How many samples may fail before the loader ends; `None`: any number.
    pub fn max_failures(mut self, limit: impl Into<Option<MaxFailures>>) -> Builder {
        self.config.max_failures = limit.into();
        self
    }

    /// A file to which a line is added for each sample that cannot be had.
    pub fn quarantine(mut self, path: impl Into<PathBuf>) -> Builder {
        self.config.quarantine = Some(path.into());
        self
    }

    /// How long a read may take before it is given up; `None`: as long as it likes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Builder {
        self.config.timeout = timeout.into();
        self
    }

    /// How long the consumer may wait for memory that it holds itself.
    pub fn starved_after(mut self, wait: Duration) -> Builder {
        self.config.starved_after = wait;
        self
    }

    /// The form of a batch's columns.
    pub fn collate(mut self, collate: Collate) -> Builder {
        self.config.collate = collate;
        self
    }

    /// Reads in flight, fixed.
    pub fn queue_depth(mut self, reads: usize) -> Builder {
        self.config.queue_depth = Some(reads);
        self
    }

    /// Checks everything, opens the engine and starts to read. Returns when the engine is open.
    ///
    /// # Errors
    /// `InvalidArgument` for a rank, size, cursor, limit or timeout that cannot be; `Empty`; what the system says of a
    /// quarantine file that cannot be opened; `MemoryLimit`, with the arithmetic, where
    /// one batch cannot fit; `Unavailable` for an engine or mode that was asked for by name and is not to be had.
    pub fn build(self) -> Result<Loader> {
        let Builder { dataset, sampler, config, on_failed } = self;
        refuse_unbuilt(&config)?;
        check_errors(&config, on_failed.is_some())?;
        if dataset.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the dataset has no samples"));
        }
        let sampler = match sampler {
            Some(sampler) => sampler,
            None => sampler::for_dataset(&*dataset, config.shuffle, config.seed),
        };
        let strided = Strided::new(config.rank, config.world_size, config.batch_size, config.drop_last)?;
        let start = start(&config, &*sampler)?;
        let dense = is_dense(&config, &*dataset)?;
        let limits = limits(&config, &*dataset, dense)?;
        let batches_left = batches_left(&config, start, &strided, sampler.len());
        let stats = Arc::new(Stats::new());
        let quarantine = config.quarantine.as_deref().map(Quarantine::open).transpose()?;
        let failures = Failures::new(config.max_failures, quarantine, Arc::clone(&sampler), strided);
        let job = Job { dataset, sampler, strided, start, config, dense, limits, stats, failures };
        let mut loader = run::start(job, batches_left)?;
        loader.on_failed = on_failed;
        Ok(loader)
    }
}

/// What the configuration has words for and nothing does yet.
fn refuse_unbuilt(config: &Config) -> Result<()> {
    let unbuilt = [
        (matches!(config.shuffle, Shuffle::Window(_) | Shuffle::Shards { .. }), "a shuffle of windows or shards"),
        (config.batching != Batching::Samples, "packing and buckets"),
        (matches!(config.collate, Collate::Ragged | Collate::Padded(_)), "ragged and padded columns"),
        (!config.collate_columns.is_empty(), "the form of single columns"),
        (config.key_column || config.index_column, "key and index columns"),
    ];
    match unbuilt.iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(Error::new(ErrorKind::Unavailable, format!("not there yet: {what}"))),
        None => Ok(()),
    }
}

/// What is asked for where samples cannot be had.
fn check_errors(config: &Config, on_failed: bool) -> Result<()> {
    let refused =
        |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
    if let Some(MaxFailures::Fraction(share)) = config.max_failures
        && !(0.0..=1.0).contains(&share)
    {
        return refused(format!("max_failures as a share of the samples cannot be {share}"), "give one from 0 to 1");
    }
    if config.timeout == Some(Duration::ZERO) {
        return refused("no read ends within a timeout of 0".into(), "give a longer one, or none");
    }
    if on_failed && config.on_error != OnError::Warn {
        return refused("on_failed is told of nothing unless on_error is warn".into(), "set on_error to warn");
    }
    Ok(())
}

fn start(config: &Config, sampler: &dyn Sampler) -> Result<Cursor> {
    let start = Cursor { epoch: config.start_epoch, position: config.start_position, rows: config.start_rows };
    if start.position > sampler.len() {
        let (position, len) = (start.position, sampler.len());
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("cannot start at position {position} of an epoch of {len} samples"),
        )
        .with_remedy("the cursor belongs to another dataset, or the dataset has changed"));
    }
    Ok(start)
}

/// Whether batches are to be one tensor where their shape allows it.
fn is_dense(config: &Config, dataset: &dyn Dataset) -> Result<bool> {
    let fields = &dataset.schema().fields;
    let ragged = fields.iter().find(|field| field.shape == Shape::Ragged);
    match (config.collate, ragged) {
        (Collate::Dense, Some(field)) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("column {:?} cannot be dense: its values differ in length", field.name),
        )
        .with_remedy("ask for views, or for auto")),
        (Collate::Views, _) => Ok(false),
        (_, ragged) => Ok(ragged.is_none()),
    }
}

/// The memory sum: what one batch can take at most, and what all of them together may.
fn limits(config: &Config, dataset: &dyn Dataset, dense: bool) -> Result<Limits> {
    let samples = config.batch_size.min(dataset.len());
    let payload = dataset.largest(samples);
    let mut batch_bytes = payload;
    // Alignment reads up to a unit before and behind each sample; 4096 is the largest unit that a device asks for.
    batch_bytes += samples * 2 * run::ALIGNMENT_MAX;
    // What lies between two samples that are read as one.
    batch_bytes += samples * config.coalesce_gap;
    // Samples that were read in the order of the disk are gathered into a second block.
    batch_bytes += if dense && config.coalesce_gap > 0 { payload } else { 0 };
    // Blocks start at 4096-byte boundaries.
    batch_bytes += block_roundings(batch_bytes);
    // One sample that stands in for another is read into memory that no batch takes.
    let mut reserve_bytes =
        if config.on_error == OnError::Replace { dataset.largest(1) + 2 * run::ALIGNMENT_MAX } else { 0 };
    reserve_bytes += if reserve_bytes > 0 { block_roundings(reserve_bytes) } else { 0 };
    batch_bytes += reserve_bytes;
    let available = uringload_sys::system::memory_available().unwrap_or(u64::MAX);
    let limit = match config.memory_limit {
        Some(limit) => limit,
        None => MEMORY_LIMIT.max(batch_bytes.saturating_mul(BATCHES_HELD)).min((available / 2).max(MEMORY_LIMIT)),
    };
    if batch_bytes > limit {
        let batch_size = config.batch_size;
        return Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "a batch does not fit: its {samples} samples have up to {payload} bytes, with alignment {batch_bytes}; \
                 the \
                 memory limit is {limit}"
            ),
        )
        .with_remedy(format!("raise memory_limit to {batch_bytes} or more, or lower batch_size (now {batch_size})")));
    }
    let mean = (dataset.bytes() / dataset.len().max(1)).saturating_mul(samples).max(1);
    let queue_capacity = (limit / mean).clamp(2, QUEUE_MAX) as usize;
    Ok(Limits { pool_bytes: limit as usize, reserve_bytes: reserve_bytes as usize, queue_capacity })
}

/// What rounding up the blocks of `bytes` adds at most: there are n / 16 MiB + 1 of them.
fn block_roundings(bytes: u64) -> u64 {
    (bytes / (crate::plan::BLOCK_BYTES / 2) + 1) * crate::pool::BLOCK_ALIGNMENT as u64
}

fn batches_left(config: &Config, start: Cursor, strided: &Strided, len: u64) -> Option<u64> {
    let epochs = config.epochs?;
    let full = strided.batches(len);
    let first = strided.batches(len - start.position);
    Some(if epochs == 0 { 0 } else { first + full.saturating_mul(epochs - 1) })
}
