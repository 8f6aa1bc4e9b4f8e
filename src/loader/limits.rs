//! How much memory there may be, checked once: a sum with a term for each holder.

use crate::collate::Collation;
use crate::config::{Batching, Config, OnError};
use crate::dataset::{UnitId, Units};
use crate::device::BatchBytes;
use crate::plan::{UnitLimits, UnitsWanted, units_wanted};
use crate::pool::BLOCK_ALIGNMENT;
use crate::sampler::{Order, Selection};
use crate::{Error, ErrorKind, Result};

/// The largest alignment that a device asks for; where one asks for more, `build` has promised too little memory.
pub(super) const ALIGNMENT_MAX: u64 = 4096;

/// Memory for samples where the user names no limit: enough to keep a fast disk busy while a batch is used.
const MEMORY_LIMIT: u64 = 256 << 20;

/// Batches of the largest size that the default limit holds: one in use, one ready, one under way.
const BATCHES_HELD: u64 = 3;

/// Batches that may be ready at most. Memory is the bound that matters; this one bounds the queue where samples are
/// tiny.
const QUEUE_MAX: u64 = 1024;

/// Memory for decoded units where the user names no limit, as long as a batch needs no more.
const UNITS_LIMIT: u64 = 1 << 30;

/// Units that are read or waited for by the disk at a time, so that it does not rest while they are decoded.
const STORED_HELD: u64 = 3;

/// Batches, and samples, that are looked at to see how many units an order uses.
const BATCHES_SEEN: usize = 64;
const SAMPLES_SEEN: usize = 16 << 10;

/// Threads that decode, where the user has no wish, at most.
const THREADS_MAX: usize = 8;

/// How much memory there is, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of the pool.
    pub(super) pool_bytes: usize,
    /// Bytes of these that are kept aside for samples that stand in for others.
    pub(super) reserve_bytes: usize,
    /// Batches that may be ready.
    pub(super) queue_capacity: usize,
    /// Where samples are cut from units: what those take beside the pool.
    pub(super) units: Option<UnitMemory>,
    /// The largest batch.
    pub(super) batch: BatchBytes,
}

impl Limits {
    /// Bytes of memory for samples, all together.
    pub(super) fn bytes(&self) -> u64 {
        let units = self.units.map_or(0, |units| units.limits.most * units.place_bytes);
        (self.pool_bytes + units) as u64
    }
}

/// What decoded units may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitMemory {
    /// How many there may be.
    pub(super) limits: UnitLimits,
    /// Bytes of each.
    pub(super) place_bytes: usize,
    /// Bytes that the longest is stored in, with alignment.
    pub(super) stored_bytes: usize,
    /// Threads that decode them.
    pub(super) threads: usize,
}

/// The memory sum: the most that one batch of `order` can take, and the most that all of them together may.
pub(super) fn check(config: &Config, order: &Order, collation: &Collation) -> Result<Limits> {
    let dataset = &**order.dataset();
    let (samples, payload) = order.largest_batch();
    // Alignment reads up to a unit before and behind each sample; 4096 is the largest unit that a device asks for.
    // What lies between two samples that are read as one comes with them.
    let around = samples.saturating_mul((2 * ALIGNMENT_MAX).saturating_add(config.coalesce_gap));
    let mut batch_bytes = payload.saturating_add(around);
    // What is gathered lies in a block of its own, beside those that it is gathered from.
    let target = collation.target_bound(dataset, config.coalesce_gap, samples, config.batch_size);
    batch_bytes = batch_bytes.saturating_add(target);
    // Blocks start at 4096-byte boundaries, and the one that is gathered into is a block more.
    let roundings = block_roundings(batch_bytes) + if target > 0 { block_roundings(0) } else { 0 };
    batch_bytes = batch_bytes.saturating_add(roundings);
    // One sample that stands in for another is read into memory that no batch takes.
    let mut reserve_bytes = match config.on_error {
        OnError::Replace => dataset.largest(1).saturating_add(2 * ALIGNMENT_MAX),
        _ => 0,
    };
    reserve_bytes += if reserve_bytes > 0 { block_roundings(reserve_bytes) } else { 0 };
    batch_bytes = batch_bytes.saturating_add(reserve_bytes);
    let available = uringload_sys::system::memory_available().unwrap_or(u64::MAX);
    let most = (available / 2).max(MEMORY_LIMIT);
    let ample = MEMORY_LIMIT.max(batch_bytes.saturating_mul(BATCHES_HELD));
    let (units, limit, decoded) = match dataset.units() {
        None => (None, config.memory_limit.unwrap_or(ample.min(most)), 0),
        Some(units) => {
            let wanted = wanted(units, order);
            let memory = unit_memory(config, units, wanted, (batch_bytes, ample, most))?;
            (Some(memory.0), memory.1, (wanted.by_batch as u64).saturating_mul(units.largest_decoded()))
        }
    };
    if batch_bytes > limit {
        let lower = match &config.batching {
            Batching::Buckets(_) => "batch_sizes".to_owned(),
            _ => format!("batch_size (now {})", config.batch_size),
        };
        let gathered = if target > 0 { format!(", {target} more to gather them") } else { String::new() };
        let padded = if collation.is_padded_without_bound() { ", or give a max_length" } else { "" };
        return Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "a batch does not fit: its {samples} samples have up to {payload} bytes{gathered}, with alignment \
                 {batch_bytes}; the memory limit is {limit}"
            ),
        )
        .with_remedy(format!("raise memory_limit to {batch_bytes} or more, or lower {lower}{padded}")));
    }
    // A packed batch is about as full as it can be.
    let mean = match &config.batching {
        Batching::Packed(_) => payload.max(1),
        _ => (dataset.bytes() / dataset.len().max(1)).saturating_mul(samples).max(1),
    };
    let queue_capacity = (limit / mean).clamp(2, QUEUE_MAX) as usize;
    let rows = config.batch_size;
    let batch = BatchBytes { samples, rows, payload, decoded, read: batch_bytes };
    Ok(Limits { pool_bytes: limit as usize, reserve_bytes: reserve_bytes as usize, queue_capacity, units, batch })
}

/// How many units the first batches want, whether or not the order ends before.
fn wanted(units: &dyn Units, order: &Order) -> UnitsWanted {
    let (mut walk, mut batch, mut left) = (order.endless().walk(), Selection::default(), SAMPLES_SEEN);
    let batches = std::iter::from_fn(|| {
        let has_more = left > 0 && walk.next(&mut batch);
        left = left.saturating_sub(batch.ids.len());
        has_more.then(|| batch.ids.clone())
    });
    units_wanted(units, batches.take(BATCHES_SEEN))
}

/// Shares the memory out: what units get, and what is left to everything else, which needs `batch_bytes` for one batch,
/// and is well served with `ample`. All together is the user's limit, or not above `most` unless one batch needs it.
fn unit_memory(
    config: &Config,
    units: &dyn Units,
    wanted: UnitsWanted,
    (batch_bytes, ample, most): (u64, u64, u64),
) -> Result<(UnitMemory, u64)> {
    let place = units.largest_decoded().max(1).checked_next_multiple_of(BLOCK_ALIGNMENT as u64).unwrap_or(u64::MAX);
    let stored = largest_stored(units);
    let needed = batch_bytes.max(stored);
    let ample = ample.max(stored.saturating_mul(STORED_HELD)).max(needed);
    let threads = config
        .num_threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX));
    // All that is used, and room for what is decoded meanwhile; more than there are is of no use.
    let by_batch = wanted.by_batch.max(1) as u64;
    let ahead = (by_batch + 1).max(threads as u64 + 1);
    let useful = (wanted.in_all as u64 + ahead).min(u64::from(units.count()) + ahead);
    let least = needed.saturating_add(by_batch.saturating_mul(place));
    let limit = config.memory_limit.unwrap_or_else(|| {
        let units_bytes = useful.saturating_mul(place).min(UNITS_LIMIT.max((by_batch + ahead).saturating_mul(place)));
        ample.saturating_add(units_bytes).min(most).max(least)
    });
    if least > limit {
        return Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "a batch does not fit: it is cut from up to {} units of {place} bytes, beside which {needed} bytes are \
                 needed to read; the memory limit is {limit}",
                wanted.by_batch
            ),
        )
        .with_remedy(format!(
            "raise memory_limit to {least} or more, shuffle by shards or in windows, or lower batch_size (now {})",
            config.batch_size
        )));
    }
    // What is not needed for units that are of use is left to reading, and at most a half goes to reading before.
    let reading = ample.min(needed.max(limit / 2)).min(limit - by_batch * place);
    let places = ((limit - reading) / place).min(useful);
    let ahead = (places / 4).max(1).min(places - by_batch);
    let limits = UnitLimits { kept: (places - ahead) as usize, most: places as usize };
    let memory = UnitMemory { limits, place_bytes: place as usize, stored_bytes: stored as usize, threads };
    Ok((memory, limit - places * place))
}

/// Bytes of memory that the longest unit is read into, with alignment.
fn largest_stored(units: &dyn Units) -> u64 {
    let mut spans = Vec::new();
    let stored = |unit: u32| {
        spans.clear();
        units.stored(UnitId(unit), &mut spans);
        spans.iter().fold(0, |sum: u64, span| sum.saturating_add(span.len).saturating_add(2 * ALIGNMENT_MAX))
    };
    let bytes = (0..units.count()).map(stored).max().unwrap_or(0);
    bytes.saturating_add(block_roundings(bytes))
}

/// What rounding up the blocks of `bytes` adds at most: there are n / 16 MiB + 1 of them.
fn block_roundings(bytes: u64) -> u64 {
    (bytes / (crate::plan::BLOCK_BYTES / 2) + 1) * crate::pool::BLOCK_ALIGNMENT as u64
}
