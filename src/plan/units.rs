//! Decides which units to read for a batch and which to keep for later ones: the cache of decoded units, as arithmetic.
//! The decision is made here, not where the memory is, so that it is a function of the order alone.

use super::BatchPlan;
use crate::dataset::{Dataset, SampleId, Span, UnitId, Units};
use crate::guard::{self, Bounds};
use crate::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How many decoded units there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLimits {
    /// Units to keep; the rest of the memory goes to reading ahead.
    pub kept: usize,
    /// Units that one batch's samples may be cut from: as many as fit in memory. At least `kept`.
    pub most: usize,
}

/// A unit to read and decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The unit.
    pub unit: UnitId,
    /// Distinguishes this load from other loads of the same unit. Counts from 0.
    pub number: u64,
    /// Maximum number of bytes when decoded.
    pub bytes: u64,
}

/// The units that are cached when a batch is planned, assuming all earlier work is done. The least recently used ones
/// are evicted first.
pub(super) struct CachedUnits {
    limits: UnitLimits,
    loads: HashMap<UnitId, KeptUnit>,
    /// The cached units by last use.
    by_use: BTreeMap<u64, UnitId>,
    /// Use counter.
    clock: u64,
    /// Number of the next load.
    next: u64,
    /// Units to load before the batch that is held back.
    pub(super) queue: VecDeque<Load>,
    /// The batch that follows those loads.
    pub(super) held: Option<BatchPlan>,
    of: Vec<UnitId>,
    stored: Vec<Span>,
    /// Units examined for the current sample, and their maximum bytes.
    decoded: Vec<(UnitId, u64)>,
}

struct KeptUnit {
    load: Load,
    /// Time of last use.
    used: u64,
    /// Its index in the list of the batch that last used it.
    place: u32,
}

impl CachedUnits {
    pub(super) fn new(limits: UnitLimits) -> CachedUnits {
        CachedUnits {
            limits,
            loads: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            next: 0,
            queue: VecDeque::new(),
            held: None,
            of: Vec::new(),
            stored: Vec::new(),
            decoded: Vec::new(),
        }
    }

    /// Records in `plan` which loads its samples are cut from, and queues the missing ones.
    pub(super) fn find(&mut self, dataset: &dyn Dataset, units: &dyn Units, bounds: Bounds, plan: &mut BatchPlan) {
        let begin = self.clock;
        for index in 0..plan.batch.ids.len() {
            self.of.clear();
            if plan.is_prepared(index) {
                plan.unit_ends.push(plan.units.len() as u32);
                continue;
            }
            let found = guard::units_of(dataset, units, plan.batch.ids[index], &mut self.of);
            if let Err(error) = found.and_then(|()| self.look(dataset, units, bounds)) {
                plan.failed.push((index as u32, error));
                self.of.clear();
            }
            for place in 0..self.of.len() {
                let place = self.touch(self.of[place], &mut plan.uses, begin);
                plan.units.push(place);
            }
            plan.unit_ends.push(plan.units.len() as u32);
        }
        if plan.uses.len() > self.limits.most {
            plan.refused = Some(too_many(dataset, units, plan.uses.len(), self.limits.most));
            self.forget_queue(plan);
        }
        self.evict(begin, plan);
    }

    /// Examines the units in `of` that are not cached, before memory is taken for them.
    fn look(&mut self, dataset: &dyn Dataset, units: &dyn Units, bounds: Bounds) -> Result<()> {
        self.decoded.clear();
        for &unit in self.of.iter().filter(|unit| !self.loads.contains_key(unit)) {
            self.stored.clear();
            let bytes = guard::stored(dataset, units, unit, bounds, &mut self.stored)?;
            self.decoded.push((unit, bytes));
        }
        Ok(())
    }

    /// Index in `uses` of the load of `unit`, which is used by the batch that began at `begin`.
    fn touch(&mut self, unit: UnitId, uses: &mut Vec<u64>, begin: u64) -> u32 {
        let used = self.clock;
        self.clock += 1;
        let (queue, next, decoded) = (&mut self.queue, &mut self.next, &self.decoded);
        let kept = self.loads.entry(unit).or_insert_with(|| {
            let bytes = decoded.iter().find(|(looked_at, _)| *looked_at == unit).map_or(1, |&(_, bytes)| bytes);
            let load = Load { unit, number: *next, bytes };
            *next += 1;
            queue.push_back(load);
            uses.push(load.number);
            KeptUnit { load, used, place: uses.len() as u32 - 1 }
        });
        if kept.used < begin {
            uses.push(kept.load.number);
            kept.place = uses.len() as u32 - 1;
        }
        self.by_use.remove(&kept.used);
        kept.used = used;
        self.by_use.insert(used, unit);
        kept.place
    }

    /// Cancels the loads of a batch that is refused.
    fn forget_queue(&mut self, plan: &mut BatchPlan) {
        for load in self.queue.drain(..) {
            if let Some(kept) = self.loads.remove(&load.unit) {
                self.by_use.remove(&kept.used);
            }
        }
        plan.uses.clear();
        plan.units.clear();
        plan.unit_ends.clear();
    }

    /// Evicts units last used before `begin`, until at most the allowed number is kept.
    fn evict(&mut self, begin: u64, plan: &mut BatchPlan) {
        while self.loads.len() > self.limits.kept {
            let Some((&used, &unit)) = self.by_use.first_key_value() else { return };
            if used >= begin {
                return;
            }
            self.by_use.remove(&used);
            if let Some(kept) = self.loads.remove(&unit) {
                plan.evicted.push(kept.load.number);
            }
        }
    }
}

fn too_many(dataset: &dyn Dataset, units: &dyn Units, wanted: usize, most: usize) -> Error {
    let mebibytes = units.largest_decoded().div_ceil(1 << 20);
    Error::new(
        ErrorKind::MemoryLimit,
        format!(
            "the samples of a batch lie in {wanted} units of up to {mebibytes} MiB of the {} dataset, and there is \
             memory for {most}",
            dataset.format()
        ),
    )
    .with_remedy("shuffle by shards or in windows, lower batch_size, or raise memory_limit")
}

/// How many units the batches of an order need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitsWanted {
    /// Largest number needed by one batch.
    pub by_batch: usize,
    /// Number needed by all examined batches together.
    pub in_all: usize,
}

/// Counts the units that batches of samples are cut from. `batches` yields each batch's samples.
pub fn units_wanted(units: &dyn Units, batches: impl Iterator<Item = Vec<SampleId>>) -> UnitsWanted {
    let (mut by_batch, mut all, mut of) = (0, Vec::new(), Vec::new());
    for batch in batches {
        of.clear();
        batch.iter().for_each(|&id| guard::known_units_of(units, id, &mut of));
        of.sort_unstable();
        of.dedup();
        by_batch = by_batch.max(of.len());
        all.extend_from_slice(&of);
        all.sort_unstable();
        all.dedup();
    }
    UnitsWanted { by_batch, in_all: all.len() }
}
