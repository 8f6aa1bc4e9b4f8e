//! Chooses whether stretches of files are read whole and kept in memory: for good (`cache`), or while a shuffle by
//! windows or shards takes samples from them.

use super::columns::Columns;
use super::limits::{ALIGNMENT_MAX, Limits, MEMORY_LIMIT};
use super::room::Room;
use crate::collate::Collation;
use crate::config::{Batching, Cache, Cause, Config, EngineChoice, Fallback, Shuffle};
use crate::dataset::{Dataset, SampleId};
use crate::device::STRAIGHT_BYTES;
use crate::engine::Price;
use crate::guard;
use crate::plan::{Grid, Joining, Keep, SMALL_SPAN_BYTES};
use crate::pool::BLOCK_ALIGNMENT;
use crate::sampler::{KnownOrder, Order};
use crate::stats::{Facts, Keeping, Neighbours};
use std::borrow::Cow;

/// If a sample needs this many bytes of files or fewer, it costs less as a part of a whole stretch than as a read of
/// its own: a disk that reads 120 000 single samples a second gives 2 GB/s in long reads. The rest is margin.
const SMALL_BYTES: u64 = 8 << 10;

/// Assumed price of an operation, in bytes, if it is unknown and whole windows are to be tried: longer samples are not
/// worth a trial. On a device, neither are samples whose values may go straight to their columns, which kept ones
/// cannot.
const TRIED_BYTES: u64 = 512 << 10;

/// Stretches in flight at a time, so that the disk is not idle.
const STRETCHES_AHEAD: u64 = 16;

/// Shortest stretch of a piece.
const STRETCH_BYTES: u64 = 256 << 10;

/// Minimum number of stretches in a window, if its length allows: it is mixed while the next ones are read.
const STRETCHES_IN_WINDOW: u64 = 8;

/// Places of the dataset to examine, and samples at each: whether neighbours in the dataset are neighbours in files.
const PLACES_SEEN: u64 = 4;
const SAMPLES_SEEN: u64 = 4096;

/// Notes on the choice, for reports.
#[derive(Default)]
pub(super) struct Notes {
    /// What is read together, for the route.
    pub(super) locality: Vec<Cow<'static, str>>,
    /// The same, about what is kept.
    pub(super) kept: Option<Cow<'static, str>>,
    pub(super) fallbacks: Vec<Fallback>,
}

impl Notes {
    /// Notes that nothing is kept, because files are read straight into the memory of a GPU.
    pub(super) fn tell_straight(&mut self, config: &Config) {
        let (cause, got) = match config.cache {
            Cache::Memory => (Cause::Cache, "reading every sample again"),
            _ => (Cause::Locality, "a read for each value"),
        };
        let step = Fallback::new(cause, got, None).with_reason("files are read straight into the memory of the GPU");
        self.fallbacks.push(step.with_remedy("turn GPUDirect Storage off, so that the host can keep what it has read"));
    }

    /// Notes what an order mixes that was left to the layout.
    pub(super) fn tell_order(&mut self, config: &Config, order: &Order) {
        if config.shuffle == Shuffle::Auto
            && let KnownOrder::Pieces { samples, mixed, .. } = order.sampler().id().0
        {
            let told = format!(
                "shuffle auto: {mixed} pieces of {samples} neighbours mixed at a time, because samples lie in shards \
                 (shuffle full mixes all)"
            );
            self.locality.push(told.into());
        }
    }

    /// Notes how nearby spans are joined.
    pub(super) fn tell_gaps(&mut self, price: Option<&Price>, config: &Config, limits: &Limits) {
        let Some(price) = price.filter(|_| config.coalesce_gap.is_none() && limits.units.is_none()) else { return };
        if limits.joining.gap > 0 {
            let kib = limits.joining.gap >> 10;
            self.locality.push(format!("gaps of <= {kib} KiB read along ({})", price.reason).into());
        } else {
            let step = Fallback::new(Cause::Locality, "a read for each sample", None);
            self.fallbacks.push(step.with_reason(format!("{}, and no memory is left for gaps", price.reason)));
        }
    }
}

/// Takes memory for stretches from the pool, and returns what to keep in it.
pub(super) fn choose(config: &Config, order: &Order, limits: &mut Limits, notes: &mut Notes) -> Option<(Grid, Keep)> {
    let chosen = chosen(config, order, limits, notes);
    let batch = &mut limits.batch;
    batch.kept = match &chosen {
        None => 0,
        // On a device, values that are not in what was read have their place from the start.
        Some((_, keep)) if keep.lends() || limits.is_deferred && keep.may_lend() => batch.payload,
        Some(_) => batch.samples.saturating_mul(values_of(order).saturating_mul(SMALL_SPAN_BYTES)).min(batch.payload),
    };
    chosen
}

/// Values of a sample.
fn values_of(order: &Order) -> u64 {
    order.dataset().schema().fields.len() as u64
}

fn chosen(config: &Config, order: &Order, limits: &mut Limits, notes: &mut Notes) -> Option<(Grid, Keep)> {
    let dataset = &**order.dataset();
    if config.cache == Cache::Memory {
        let chosen = cache(config, dataset, limits);
        return match chosen {
            Ok((chosen, step)) => {
                notes.fallbacks.extend(step);
                Some(chosen)
            }
            Err(step) => {
                notes.fallbacks.push(step);
                None
            }
        };
    }
    if dataset.units().is_some() {
        return None;
    }
    let can_pass = config.coalesce_gap.unwrap_or(0) == 0 && config.batching == Batching::Samples;
    let passing = if can_pass { passing(config, order, limits, notes) } else { None };
    passing.or_else(|| columns(dataset, limits, notes))
}

/// The facts about what is read, for a verdict.
pub(super) fn facts(config: &Config, order: &Order, collation: &Collation, limits: &Limits) -> Facts {
    let dataset = &**order.dataset();
    let neighbours = match order.sampler().id().0 {
        KnownOrder::Sequential => Neighbours::Stored,
        KnownOrder::Shuffled { .. } => Neighbours::Far,
        KnownOrder::Windows { .. } | KnownOrder::Shards { .. } | KnownOrder::Pieces { .. } => Neighbours::Near,
        _ => Neighbours::Unknown,
    };
    let is_of_no_use = dataset.units().is_some() || collation.is_deferred() || config.cache == Cache::Memory;
    let keeping = if is_of_no_use { Keeping::No } else { keeping(config, dataset, limits) };
    let (samples, files) = (dataset.len(), dataset.files().len() as u64);
    let (has_objects, keeps_objects) = (dataset.files().has_objects(), config.cache_disk.is_some());
    Facts { samples, files, has_objects, keeps_objects, keeping, order: neighbours, ..Facts::default() }
}

/// What would fit in memory if the dataset's files were kept in addition to what reading takes: at most half of what is
/// left, as `cache` itself takes without a limit.
fn keeping(config: &Config, dataset: &dyn Dataset, limits: &Limits) -> Keeping {
    let (all, reading) = (dataset.files().total_bytes(), limits.pool_bytes as u64);
    let fits = all.min(Room::now().half().saturating_sub(reading));
    // What `cache` reserves for reading, out of a given limit.
    let apart = reading.max(MEMORY_LIMIT.min(fits / 3 + 1));
    let limit = config.memory_limit.map(|_| fits.saturating_add(apart));
    Keeping::Room { all, fits, limit }
}

/// What to keep of small columns that are stored apart from the rest of their samples.
fn columns(dataset: &dyn Dataset, limits: &mut Limits, notes: &mut Notes) -> Option<(Grid, Keep)> {
    match Columns::find(dataset)?.keep(dataset, limits)? {
        Ok((grid, keep, bytes)) => {
            notes.kept = Some(format!("small columns read once (up to {} MiB)", bytes.div_ceil(1 << 20)).into());
            Some((grid, keep))
        }
        Err(missing) => {
            let total = (limits.pool_bytes as u64).saturating_add(missing);
            let step = Fallback::new(Cause::Locality, "a read for each value of a small column", None);
            let step = step.with_reason(format!("batches leave no room for them: {missing} bytes are missing"));
            notes.fallbacks.push(step.with_remedy(format!("raise memory_limit to {total}, or lower batch_size")));
            None
        }
    }
}

/// What to keep for good, and how much of it does not fit.
fn cache(
    config: &Config,
    dataset: &dyn Dataset,
    limits: &mut Limits,
) -> Result<((Grid, Keep), Option<Fallback>), Fallback> {
    if dataset.units().is_some() {
        return Err(not("decoded units, as many as fit", "samples are cut from units, which are kept decoded")
            .with_remedy("raise memory_limit to keep more of them"));
    }
    let files = dataset.files();
    let all = files.total_bytes();
    let few = || not("reading every sample again", "the dataset has too many files").with_remedy("pack it into shards");
    let grid = Grid::new(files, dataset.bytes() / dataset.len().max(1)).ok_or_else(few)?;
    let least = limits.batch.read.max(stretch_bytes(&grid));
    let (limit, reading) = match config.memory_limit {
        Some(limit) => (limit, least.max(MEMORY_LIMIT.min(limit / 4))),
        None => {
            let most = Room::now().half();
            (most.max(limits.pool_bytes as u64), least.max(limits.pool_bytes as u64))
        }
    };
    let room = limit.saturating_sub(reading);
    let (share, bytes) = grid.share_that_fits(files, room);
    let needed = all.saturating_add(reading);
    let remedy = format!("raise memory_limit to {needed} to keep all of it");
    if bytes == 0 {
        let reason = format!("batches need {reading} of the {limit} bytes of memory, and the rest holds nothing");
        return Err(not("reading every sample again", reason).with_remedy(remedy));
    }
    limits.kept_bytes = bytes as usize;
    limits.pool_bytes = if config.memory_limit.is_some() { (limit - bytes) as usize } else { reading as usize };
    let step = (bytes < all).then(|| {
        let reason = format!("beside {reading} bytes for reading, memory has room for {room}");
        not(format!("{bytes} of its {all} bytes, the rest read each time"), reason).with_remedy(remedy)
    });
    Ok(((grid, Keep::Share(share)), step))
}

/// What to keep while windows or shards are shuffled: as much as two of them take, if that beats reading their samples
/// one by one.
fn passing(config: &Config, order: &Order, limits: &mut Limits, notes: &mut Notes) -> Option<(Grid, Keep)> {
    let dataset = &**order.dataset();
    // Number of samples that are mixed as one, and in how many places.
    let (samples, places, what) = match order.sampler().id().0 {
        KnownOrder::Windows { samples, .. } => (samples, 1, "windows"),
        KnownOrder::Shards { mixed, .. } => (mixed.saturating_mul(longest_shard(dataset)), 1, "shards"),
        KnownOrder::Pieces { samples, mixed, .. } => (mixed.saturating_mul(samples), mixed, "pieces of shards"),
        _ => return None,
    };
    let files = dataset.files();
    let each = files.total_bytes().div_ceil(dataset.len().max(1));
    // An operation may cost as much as many samples. If the price is unknown, that is tried while reading.
    let (read_bytes, known) = (each.saturating_mul(config.world_size), config.operation_bytes.unwrap_or(0));
    let is_trial = read_bytes > SMALL_BYTES.max(known) && may_try(config);
    let longest = if limits.is_deferred { TRIED_BYTES.min(STRAIGHT_BYTES - 1) } else { TRIED_BYTES };
    let price = if is_trial { longest } else { known };
    if read_bytes > SMALL_BYTES.max(price) {
        return None;
    }
    let window_bytes = samples.min(dataset.len()).saturating_mul(each);
    let grid = Grid::new(files, each)?;
    // As long as reads get, but short enough that a window has several, and so does a piece: at its ends it shares
    // stretches with neighbours that are not wanted now.
    let places = places.clamp(1, samples.min(dataset.len()).max(1));
    let of_place = (window_bytes / places / STRETCHES_IN_WINDOW).checked_ilog2().map_or(0, |bits| 1 << bits);
    let shortest = if places > 1 { grid.bytes().min(of_place) } else { grid.bytes() };
    let length = shortest.max(Joining::new(price, 0).read_bytes.min(of_place));
    let grid = Grid::of_at_least(files, length.max(STRETCH_BYTES))?;
    let window_bytes = window_bytes.saturating_add((places - 1).saturating_mul(grid.bytes()));
    // Two windows: finished batches still hold slices of the previous one.
    let bytes = window_bytes.saturating_mul(2).saturating_add(4 * grid.bytes());
    let reading = limits.batch.read.saturating_mul(3).max(STRETCHES_AHEAD * stretch_bytes(&grid));
    let needed = bytes.saturating_add(reading);
    if !are_neighbours(dataset, &grid, samples, each) {
        return None;
    }
    if is_trial {
        return tried(config, limits, notes, (grid, bytes, needed, what));
    }
    let room = room_for_passing(config, limits, needed, price);
    if needed > room {
        if price > 0 {
            notes.fallbacks.push(too_long(what, needed, room));
        }
        return None;
    }
    limits.pool_bytes = limits.pool_bytes.saturating_sub(bytes as usize).max(reading as usize);
    limits.kept_bytes = bytes as usize;
    notes.kept = Some(format!("{what} read whole (up to {} MiB kept)", bytes.div_ceil(1 << 20)).into());
    Some((grid, Keep::Latest(bytes)))
}

/// Whether windows may be read whole to see if that gains. If a budget is shared, the memory would be taken from
/// others.
fn may_try(config: &Config) -> bool {
    let is_unknown = config.operation_bytes.is_none() && config.coalesce_gap.is_none();
    is_unknown && config.engine != EngineChoice::Sim && config.memory_budget.is_none()
}

/// What to keep on trial. Its memory is reserved but not taken: beside the default limit or, under the user's limit, at
/// most half of the pool.
fn tried(
    config: &Config,
    limits: &mut Limits,
    notes: &mut Notes,
    (grid, bytes, needed, what): (Grid, u64, u64, &str),
) -> Option<(Grid, Keep)> {
    let pool = limits.pool_bytes as u64;
    if config.memory_limit.is_some() {
        let reading = needed - bytes;
        if bytes > pool / 2 || pool - bytes < reading {
            return None;
        }
        limits.pool_bytes -= bytes as usize;
    } else if pool.saturating_add(needed) > Room::now().half() / 2 {
        return None;
    }
    limits.kept_bytes = bytes as usize;
    limits.joining.may_read_whole = true;
    notes.kept = Some(format!("{what} read whole if that gains (up to {} MiB kept)", bytes.div_ceil(1 << 20)).into());
    Some((grid, Keep::Tried(bytes)))
}

/// Memory for stretches and for reading. If operations cost much, more than the default is taken if wanted, unless the
/// user has set a limit.
fn room_for_passing(config: &Config, limits: &Limits, wanted: u64, price: u64) -> u64 {
    let pool = limits.pool_bytes as u64;
    if price == 0 || config.memory_limit.is_some() || wanted <= pool {
        return pool;
    }
    pool.max(wanted.min(Room::now().half() / 2))
}

fn too_long(what: &'static str, needed: u64, limit: u64) -> Fallback {
    let step = Fallback::new(Cause::Locality, "a read for each sample", None);
    let reason = format!("to read {what} whole and mix them in memory takes {needed} bytes, and the limit is {limit}");
    step.with_reason(reason).with_remedy(format!(
        "raise memory_limit to {needed}, or shuffle in shorter windows or fewer shards or pieces at a time"
    ))
}

fn longest_shard(dataset: &dyn Dataset) -> u64 {
    let shards = dataset.shards();
    let starts = std::iter::once(0).chain(shards.iter().copied());
    starts.zip(shards).map(|(start, &end)| end - start).max().unwrap_or(0)
}

/// Whether neighbouring samples are in few stretches, judging by some. In a view, they may be anywhere.
fn are_neighbours(dataset: &dyn Dataset, grid: &Grid, window: u64, each: u64) -> bool {
    let window = window.min(SAMPLES_SEEN).min(dataset.len());
    let few = 2 * (window.saturating_mul(each) / grid.bytes()) + 4;
    let (mut spans, mut seen) = (Vec::new(), Vec::new());
    (0..PLACES_SEEN).all(|place| {
        let first = (dataset.len() - window) / PLACES_SEEN * place;
        spans.clear();
        seen.clear();
        let told = (first..first + window).all(|id| guard::spans(dataset, SampleId(id), u64::MAX, &mut spans).is_ok());
        seen.extend(spans.iter().flat_map(|span| grid.of(span).0));
        seen.sort_unstable();
        seen.dedup();
        told && seen.len() as u64 <= few
    })
}

/// Memory to read a stretch into.
fn stretch_bytes(grid: &Grid) -> u64 {
    grid.bytes() + 2 * ALIGNMENT_MAX + BLOCK_ALIGNMENT as u64
}

fn not(got: impl Into<std::borrow::Cow<'static, str>>, reason: impl Into<std::borrow::Cow<'static, str>>) -> Fallback {
    Fallback::new(Cause::Cache, got, None).with_reason(reason)
}
