//! The memory budget, checked once: a sum with one term per holder.

use super::room::{self, Room};
use crate::collate::Collation;
use crate::config::{Batching, Config, Fallback, ImageCache, OnError};
use crate::dataset::{Dataset, UnitId, Units};
use crate::device::BatchBytes;
use crate::engine::has_only_objects;
use crate::guard::{self, Bounds};
use crate::plan::{BLOCK_BYTES, FAR_GAP_MAX, GAP_MAX, Joining, UnitLimits, UnitsWanted, units_wanted};
use crate::pool::{BLOCK_ALIGNMENT, GROWTH_BYTES};
use crate::sampler::{Order, Selection};
use crate::{Error, ErrorKind, Result};

/// Largest alignment that a device requires. If one requires more, `build` has reserved too little memory.
pub(crate) const ALIGNMENT_MAX: u64 = 4096;

/// Default memory for samples: enough to keep a fast disk busy while a batch is in use.
pub(crate) const MEMORY_LIMIT: u64 = 256 << 20;

/// Number of maximum-size batches within the default limit: one in use, one ready, one in progress.
const BATCHES_HELD: u64 = 3;

/// Maximum number of ready batches. Memory is the real bound; this one bounds the queue when samples are tiny.
const QUEUE_MAX: u64 = 1024;

/// Default memory for decoded units, unless one batch needs more.
const UNITS_LIMIT: u64 = 1 << 30;

/// Units being read or queued at the disk at a time, so that it is not idle while units are decoded.
const STORED_HELD: u64 = 3;

/// Number of batches and samples to examine when estimating how many units an order uses.
const BATCHES_SEEN: usize = 64;
const SAMPLES_SEEN: usize = 16 << 10;

/// Samples to examine if memory is scarce: all of an epoch, or as many as take some tenths of a second.
const SAMPLES_WALKED: usize = 4 << 20;

/// Most bytes of gaps in a batch.
const GAPS_MAX: u64 = 32 << 20;

/// Maximum default number of decoding threads.
const THREADS_MAX: usize = 8;

/// Images are decoded in this part of the memory limit, or of half of the available memory. An image of 10 million
/// pixels takes up to 150 MB.
const DECODE_SHARE: u64 = 2;

/// Most memory for decoding images: the maximum for one image.
const DECODE_BYTES_MAX: u64 = 2 << 30;

/// How memory is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Size of the pool in bytes.
    pub(super) pool_bytes: usize,
    /// Bytes of the pool reserved for replacement samples.
    pub(super) reserve_bytes: usize,
    /// Maximum number of ready batches.
    pub(super) queue_capacity: usize,
    /// Memory for decoded units, outside the pool, if samples are cut from units.
    pub(super) units: Option<UnitMemory>,
    /// Bytes of stretches of files that are kept in memory, outside the pool.
    pub(super) kept_bytes: usize,
    /// Bytes for decoding images, outside the pool.
    pub(super) decode_bytes: u64,
    /// Bytes of decoded images that are kept, outside the pool.
    pub(super) cached_bytes: u64,
    /// Number of threads that compute, if there is work for them.
    pub(super) threads: usize,
    /// The largest batch.
    pub(super) batch: BatchBytes,
    /// How nearby spans are joined.
    pub(super) joining: Joining,
    /// Whether batches go to a device, which fixes their size when their memory is taken.
    pub(super) is_deferred: bool,
}

impl Limits {
    /// The limits for samples and units if no sample has more than `sample` bytes.
    pub(super) fn bounds(&self, sample: u64) -> Bounds {
        Bounds {
            sample,
            batch: (self.pool_bytes - self.reserve_bytes) as u64,
            stored: self.units.map_or(u64::MAX, |units| units.stored_bytes as u64),
            decoded: self.units.map_or(u64::MAX, |units| units.place_bytes as u64),
        }
    }

    /// Bounds the gaps that may be tried by the pool's memory beside a batch, after kept data is deducted: half of
    /// that, so that the rest absorbs the rounding of blocks.
    pub(super) fn bound_gaps(&mut self) {
        let free = (self.pool_bytes as u64).saturating_sub(self.batch.read) / 2;
        if self.joining.most > 0 {
            let may_read_whole = self.joining.may_read_whole;
            self.joining = Joining { may_read_whole, ..Joining::unknown(self.joining.room.min(free)) };
        }
    }

    /// The memory that a loader is guaranteed if several share a budget: the batch that a consumer holds and the next
    /// one, or all of its memory if that is pinned, plus the memory beside the pool.
    pub(super) fn least(&self, is_pinned: bool) -> u64 {
        let pool = self.pool_bytes as u64;
        let step = GROWTH_BYTES as u64;
        // If memory is carried from one long sample to the next, each takes whole pages.
        let is_long = self.batch.read > self.batch.samples.saturating_mul(BLOCK_BYTES);
        let pages = if is_long { self.batch.samples.saturating_mul(step) } else { 0 };
        let batches = self.batch.read.saturating_add(pages).saturating_mul(2);
        let batches = batches.checked_next_multiple_of(step).unwrap_or(u64::MAX);
        self.beside() + if is_pinned { pool } else { batches.min(pool) }
    }

    /// Bytes outside the pool.
    pub(super) fn beside(&self) -> u64 {
        self.bytes() - self.pool_bytes as u64
    }

    /// Total bytes of memory for samples.
    pub(super) fn bytes(&self) -> u64 {
        let units = self.units.map_or(0, |units| units.limits.most * units.place_bytes);
        (self.pool_bytes + units + self.kept_bytes) as u64 + self.decode_bytes + self.cached_bytes
    }
}

/// Memory for decoded units.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitMemory {
    /// The maximum number of units.
    pub(super) limits: UnitLimits,
    /// Bytes per decoded unit.
    pub(super) place_bytes: usize,
    /// Stored bytes of the longest unit, with alignment.
    pub(super) stored_bytes: usize,
    /// Number of threads that decode them.
    pub(super) threads: usize,
}

/// Computes the memory budget: the most that one batch of `order` can take, and the most that all of them together may
/// take. `decode_bytes` are already deducted from the limit.
pub(super) fn check(
    config: &Config,
    order: &Order,
    collation: &Collation,
    decode_bytes: u64,
    fallbacks: &mut Vec<Fallback>,
) -> Result<Limits> {
    let room = Room::now();
    let cached_bytes = check_room(&room, config, decode_bytes)?;
    let dataset = &**order.dataset();
    let (samples, payload) = order.largest_batch();
    // Alignment reads up to one alignment unit before and after each sample; 4096 is the largest that a device
    // requires. Samples that are read as one also bring the bytes between them.
    let around = samples.saturating_mul((2 * ALIGNMENT_MAX).saturating_add(config.coalesce_gap.unwrap_or(0)));
    let mut batch_bytes = payload.saturating_add(around);
    // Gathered values go into a block of their own, next to the blocks that they are gathered from.
    let target = collation.target_bound(dataset, config.coalesce_gap.unwrap_or(0), samples, config.batch_size);
    batch_bytes = batch_bytes.saturating_add(target);
    // Blocks start at 4096-byte boundaries, and the gather target is one more block.
    let roundings = block_roundings(batch_bytes) + if target > 0 { block_roundings(0) } else { 0 };
    batch_bytes = batch_bytes.saturating_add(roundings);
    // A replacement sample is read into memory that no batch takes.
    let mut reserve_bytes = match config.on_error {
        OnError::Replace => dataset.largest(1).saturating_add(2 * ALIGNMENT_MAX),
        _ => 0,
    };
    reserve_bytes = reserve_bytes.saturating_add(if reserve_bytes > 0 { block_roundings(reserve_bytes) } else { 0 });
    batch_bytes = batch_bytes.saturating_add(reserve_bytes);
    let joining = joining(config, order, &room, (samples, &mut batch_bytes));
    let ample = room::ample(batch_bytes, BATCHES_HELD);
    let (units, limit, decoded) = match dataset.units() {
        None => {
            let limit = config.memory_limit.unwrap_or_else(|| ample.min(room.default_for(batch_bytes)));
            (None, limit, 0)
        }
        Some(units) => {
            let mut wanted = wanted(units, order, (BATCHES_SEEN, SAMPLES_SEEN));
            let threads = threads(config, collation);
            let divided = |wanted| unit_memory(config, (dataset, units), wanted, (batch_bytes, ample, &room), threads);
            let mut memory = divided(wanted);
            // The first batches may fit within units whose ends later batches straddle. If memory may be too little for
            // that, all batches are examined, so that the loader is refused now and not in the middle of an epoch.
            if !memory.as_ref().is_ok_and(|(memory, _)| memory.limits.most >= 2 * wanted.by_batch) {
                wanted.by_batch = self::wanted(units, order, (usize::MAX, SAMPLES_WALKED)).by_batch;
                memory = divided(wanted);
            }
            let memory = memory?;
            (Some(memory.0), memory.1, (wanted.by_batch as u64).saturating_mul(units.largest_decoded()))
        }
    };
    if batch_bytes > limit {
        let lower = match &config.batching {
            Batching::Buckets(_) => "batch_sizes".to_owned(),
            _ => format!("batch_size (now {})", config.batch_size),
        };
        let gathered = if target > 0 { format!(", {target} more to gather them") } else { String::new() };
        let (decoding, needed) = match decode_bytes {
            0 => (String::new(), batch_bytes),
            _ => (format!(" beside {decode_bytes} to decode with"), batch_bytes.saturating_mul(DECODE_SHARE)),
        };
        let padded = if collation.is_padded_without_bound() { ", or give a max_length" } else { "" };
        return Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "a batch does not fit: its {samples} samples have up to {payload} bytes{gathered}, with alignment \
                 {batch_bytes}; the memory limit is {limit}{}{decoding}",
                by_default(config, &room)
            ),
        )
        .with_remedy(format!("raise memory_limit to {needed} or more, or lower {lower}{padded}")));
    }
    if config.memory_limit.is_none() {
        fallbacks.extend(room.told(ample, ample.min(room.default_for(batch_bytes))));
    }
    let threads = units.map_or_else(|| threads(config, collation), |units| units.threads);
    if config.num_threads.is_none() && (units.is_some() || !collation.mapped_fields().is_empty()) {
        fallbacks.extend(room::quota_told(threads, "to decode with"));
    }
    // A packed batch is about as full as possible.
    let mean = match &config.batching {
        Batching::Packed(_) => payload.max(1),
        _ => (dataset.bytes() / dataset.len().max(1)).saturating_mul(samples).max(1),
    };
    let queue_capacity = (limit / mean).clamp(2, QUEUE_MAX) as usize;
    let (rows, read) = (config.batch_size, batch_bytes);
    let batch = BatchBytes { samples, rows, payload, decoded, read, labels: 0, kept: 0 };
    Ok(Limits {
        pool_bytes: limit as usize,
        reserve_bytes: reserve_bytes as usize,
        queue_capacity,
        units,
        kept_bytes: 0,
        decode_bytes,
        cached_bytes,
        threads,
        batch,
        joining,
        is_deferred: collation.is_deferred(),
    })
}

/// Refuses limits that would make the system kill the process in its container. Returns the bytes of images that are
/// kept.
fn check_room(room: &Room, config: &Config, decode_bytes: u64) -> Result<u64> {
    let cached_bytes = config.cache_images.as_ref().map_or(0, ImageCache::memory_bytes);
    let beside = decode_bytes.saturating_add(cached_bytes);
    let name = if cached_bytes > 0 { "memory_limit and cache_images together" } else { "memory_limit" };
    room.check(name, config.memory_limit.map(|limit| limit.saturating_add(beside)))?;
    Ok(cached_bytes)
}

/// Memory for decoding images, given a limit.
pub(super) fn decode_bytes(memory_limit: Option<u64>) -> u64 {
    let most = || Room::now().half() / DECODE_SHARE;
    memory_limit.map_or_else(most, |limit| limit / DECODE_SHARE).min(DECODE_BYTES_MAX)
}

/// Number of threads that compute. Memory soon limits the decoding of units; processors limit other work.
fn threads(config: &Config, collation: &Collation) -> usize {
    config.num_threads.unwrap_or_else(|| {
        let processors = uringload_sys::cgroup::processors();
        if collation.mapped_fields().is_empty() { processors.min(THREADS_MAX) } else { processors }
    })
}

/// Decides how nearby spans are joined. Adds the room for gaps to the size of a batch: at most half of what is left
/// beside it, so that a batch which fits without gaps is never refused because of them.
fn joining(config: &Config, order: &Order, room: &Room, (samples, batch_bytes): (u64, &mut u64)) -> Joining {
    let free = config.memory_limit.unwrap_or_else(|| room.default_for(*batch_bytes)).saturating_sub(*batch_bytes);
    // Units are read whole, and bytes between the pieces of one are never read along.
    let may_join = config.coalesce_gap.is_none() && order.dataset().units().is_none();
    let is_far = has_only_objects(order.dataset().files());
    let gap_max = if is_far { FAR_GAP_MAX } else { GAP_MAX };
    let gaps = samples.saturating_mul(gap_max).min(GAPS_MAX).min(free / 2);
    let (operation_bytes, room) = (config.operation_bytes.unwrap_or(0), if may_join { gaps } else { 0 });
    let joining = if is_far { Joining::far(operation_bytes, room) } else { Joining::new(operation_bytes, room) };
    if joining.room > 0 {
        *batch_bytes = batch_bytes.saturating_add(joining.room).saturating_add(block_roundings(joining.room));
    } else if may_join && config.operation_bytes.is_none() {
        // A trial takes no more than what is left anyway.
        return Joining::unknown(gaps);
    }
    joining
}

/// How many units the first batches need, even past the end of the order: up to this many batches and samples, and an
/// epoch.
fn wanted(units: &dyn Units, order: &Order, (batches_seen, samples_seen): (usize, usize)) -> UnitsWanted {
    let epoch = usize::try_from(order.dataset().len()).unwrap_or(usize::MAX);
    let (mut walk, mut batch, mut left) = (order.endless().walk(), Selection::default(), samples_seen.min(epoch));
    let batches = std::iter::from_fn(|| {
        let has_more = left > 0 && walk.next(&mut batch);
        left = left.saturating_sub(batch.ids.len());
        has_more.then(|| batch.ids.clone())
    });
    units_wanted(units, batches.take(batches_seen))
}

/// Divides the memory between units and everything else, which needs `batch_bytes` for one batch and can use up to
/// `ample`. The total is the user's limit, or else at most `most`, unless one batch needs more.
fn unit_memory(
    config: &Config,
    (dataset, units): (&dyn Dataset, &dyn Units),
    wanted: UnitsWanted,
    (batch_bytes, ample, room): (u64, u64, &Room),
    threads: usize,
) -> Result<(UnitMemory, u64)> {
    let place = units.largest_decoded().max(1).checked_next_multiple_of(BLOCK_ALIGNMENT as u64).unwrap_or(u64::MAX);
    let stored = largest_stored(dataset, units);
    let needed = batch_bytes.max(stored);
    let ample = ample.max(stored.saturating_mul(STORED_HELD)).max(needed);
    // All the units in use, plus room for those decoded meanwhile. More than exist would be useless.
    let by_batch = wanted.by_batch.max(1) as u64;
    let ahead = (by_batch + 1).max(threads as u64 + 1);
    let useful = (wanted.in_all as u64 + ahead).min(u64::from(units.count()) + ahead);
    // The memory that one thread takes to decode a unit, in addition to the stored and the decoded one.
    let scratch = units.largest_scratch();
    let held = needed.saturating_add(by_batch.saturating_mul(place));
    let least = held.saturating_add(scratch);
    let limit = config.memory_limit.unwrap_or_else(|| {
        let units_bytes = useful.saturating_mul(place).min(UNITS_LIMIT.max((by_batch + ahead).saturating_mul(place)));
        let scratch = scratch.saturating_mul(threads as u64);
        ample.saturating_add(units_bytes).saturating_add(scratch).min(room.default_for(least))
    });
    if least > limit {
        return Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "a batch does not fit: it is cut from up to {} units of {place} bytes, beside which {} bytes are \
                 needed to read and to decode; the memory limit is {limit}{}",
                wanted.by_batch,
                needed.saturating_add(scratch),
                by_default(config, room)
            ),
        )
        .with_remedy(format!(
            "raise memory_limit to {least} or more, shuffle by shards or in windows, or lower batch_size (now {})",
            config.batch_size
        )));
    }
    // As many threads decode as this memory allows, up to a quarter of what is not needed otherwise.
    let most_threads = ((limit - held) / 4).checked_div(scratch).unwrap_or(u64::MAX).max(1);
    let threads = threads.min(usize::try_from(most_threads).unwrap_or(usize::MAX));
    let limit = limit - scratch.saturating_mul(threads as u64);
    // Reserve memory for reading first: at most half, or whatever it needs. Memory beyond the useful units also goes to
    // reading.
    let reading = ample.min(needed.max(limit / 2)).min(limit - by_batch * place);
    let places = ((limit - reading) / place).min(useful);
    let ahead = (places / 4).max(1).min(places - by_batch);
    let limits = UnitLimits { kept: (places - ahead) as usize, most: places as usize };
    let memory = UnitMemory { limits, place_bytes: place as usize, stored_bytes: stored as usize, threads };
    Ok((memory, limit - places * place))
}

/// Where the limit comes from if the user set none.
fn by_default(config: &Config, room: &Room) -> String {
    if config.memory_limit.is_some() { String::new() } else { format!(", {}", room.words()) }
}

/// Memory that the longest unit is read into, in bytes, with alignment. If the dataset reports invalid values for a
/// unit, nothing of it is read.
fn largest_stored(dataset: &dyn Dataset, units: &dyn Units) -> u64 {
    let bounds = Bounds { stored: guard::largest_stored(units), ..Bounds::NONE };
    let mut spans = Vec::new();
    let stored = |unit: u32| {
        spans.clear();
        if guard::stored(dataset, units, UnitId(unit), bounds, &mut spans).is_err() {
            return 0;
        }
        spans.iter().fold(0, |sum: u64, span| sum.saturating_add(span.len).saturating_add(2 * ALIGNMENT_MAX))
    };
    let bytes = (0..units.count()).map(stored).max().unwrap_or(0);
    bytes.saturating_add(block_roundings(bytes))
}

/// Upper bound of the rounding of blocks of `bytes` in total: there are n / 16 MiB + 1 of them.
pub(crate) fn block_roundings(bytes: u64) -> u64 {
    (bytes / (crate::plan::BLOCK_BYTES / 2) + 1) * crate::pool::BLOCK_ALIGNMENT as u64
}
