//! Reads and keeps units. Each is read like a batch of its own, decoded by the stage, and kept while the plan cuts
//! samples from it. Decoded units have a pool of their own, divided into buffers of one length, so that it never
//! fragments.

use super::Reactor;
use super::pending::Pending;
use crate::plan::{BatchPlan, Load};
use crate::pool::Pool;
use crate::stage::{Number, Task, Work};
use crate::{Error, Result};
use bytes::Bytes;
use std::collections::HashMap;
use uringload_sys::Part;

/// Decoded units, and their memory.
pub struct Decoder {
    /// Memory for decoded units only.
    pool: Pool,
    /// Bytes per buffer in it.
    place_bytes: usize,
    /// Units by load number.
    units: HashMap<u64, Unit>,
}

/// One loaded unit.
struct Unit {
    state: State,
    /// Planned batches, not built yet, that have samples cut from this unit.
    uses: usize,
    /// No batch planned from now on uses it.
    evicted: bool,
}

enum State {
    /// It is being read, and its buffer is reserved.
    Reading(Option<Part>),
    Decoding,
    Ready(Bytes),
    Failed(Error),
}

impl Decoder {
    /// Creates a decoder with room for as many units of `place_bytes` as fit into `pool`.
    pub fn new(pool: Pool, place_bytes: usize) -> Decoder {
        Decoder { pool, place_bytes, units: HashMap::new() }
    }

    /// Total bytes of the memory for decoded units, and how many of them are free.
    pub(super) fn memory(&self) -> (usize, usize) {
        (self.pool.bytes(), self.pool.free_bytes())
    }

    /// Takes back dropped memory. Returns whether there was any.
    pub(super) fn collect(&mut self) -> bool {
        self.pool.collect()
    }

    /// Takes the result of decoding a unit, and marks it ready.
    pub(super) fn take(&mut self, number: u64, out: Part, result: Result<usize>) {
        let state = match result {
            Ok(len) => {
                let mut unit = self.pool.lease(out);
                unit.truncate(len);
                State::Ready(unit)
            }
            Err(error) => {
                self.pool.give(out);
                State::Failed(error)
            }
        };
        if let Some(unit) = self.units.get_mut(&number) {
            unit.state = state;
        }
        self.let_go(number);
    }

    /// Drops a unit that is neither used now nor needed later.
    fn let_go(&mut self, number: u64) {
        let is_done =
            |unit: &Unit| unit.evicted && unit.uses == 0 && matches!(unit.state, State::Ready(_) | State::Failed(_));
        if self.units.get(&number).is_some_and(is_done) {
            self.units.remove(&number);
        }
    }

    /// Notes which of the loaded units a plan uses and evicts. Call once per plan.
    pub(super) fn note(&mut self, plan: &mut BatchPlan) {
        for number in plan.evicted.drain(..) {
            if let Some(unit) = self.units.get_mut(&number) {
                unit.evicted = true;
            }
            self.let_go(number);
        }
        for number in &plan.uses {
            if let Some(unit) = self.units.get_mut(number) {
                unit.uses += 1;
            }
        }
    }

    /// Takes the buffer for a unit. Returns false if none is free.
    pub(super) fn take_place(&mut self, load: Load) -> bool {
        let Some(place) = self.pool.take_exact(self.place_bytes) else { return false };
        let unit = Unit { state: State::Reading(Some(place)), uses: 0, evicted: false };
        self.units.insert(load.number, unit);
        true
    }

    /// Whether a load has finished, successfully or not.
    fn is_done(&self, load: Load) -> bool {
        let unit = self.units.get(&load.number);
        // A unit that is no longer needed is gone.
        unit.is_none_or(|unit| matches!(unit.state, State::Ready(_) | State::Failed(_)))
    }

    /// The units that a batch is cut from, in the order of its list, or why one is missing.
    pub(super) fn of(&self, plan: &BatchPlan) -> Vec<Result<Bytes>> {
        let unit = |number| match self.units.get(number).map(|unit| &unit.state) {
            Some(State::Ready(bytes)) => Ok(bytes.clone()),
            Some(State::Failed(error)) => Err(error.clone()),
            _ => Err(super::lost::lost("a unit was not there when its batch was made")),
        };
        plan.uses.iter().map(unit).collect()
    }

    /// Whether all units that a batch is cut from are ready or failed.
    pub(super) fn has_all(&self, plan: &BatchPlan) -> bool {
        let is_there = |unit: &Unit| matches!(unit.state, State::Ready(_) | State::Failed(_));
        plan.uses.iter().all(|number| self.units.get(number).is_some_and(is_there))
    }

    /// Number of units that hold memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.units.len()
    }

    /// Drops all units. Returns whether all memory is back.
    #[cfg(test)]
    pub(super) fn forget_all(&mut self) -> bool {
        self.units.clear();
        self.pool.collect();
        self.pool.is_whole()
    }

    /// Notes that a batch was built.
    pub(super) fn release(&mut self, uses: &[u64]) {
        for &number in uses {
            if let Some(unit) = self.units.get_mut(&number) {
                unit.uses -= 1;
            }
            self.let_go(number);
        }
    }
}

impl Reactor {
    /// Submits units that were read for decoding.
    pub(super) fn decode(&mut self) -> Result<()> {
        let (Some(decoder), Some(stage)) = (&mut self.decoder, &mut self.stage) else { return Ok(()) };
        for pending in self.pending.iter_mut().filter(|pending| pending.is_complete()) {
            let Some(load) = pending.load() else { continue };
            let Some(Unit { state, .. }) = decoder.units.get_mut(&load.number) else { continue };
            let State::Reading(place) = state else { continue };
            let Some(place) = place.take() else { continue };
            match pending.take_stored(&self.pool, &self.stats)? {
                Ok(stored) => {
                    *state = State::Decoding;
                    let task = Task::Unit { unit: load.unit, stored };
                    let work = Work { number: Number::Unit(load.number), task, out: place };
                    stage.submit(work, &mut self.clock);
                }
                Err(error) => {
                    *state = State::Failed(error);
                    decoder.pool.give(place);
                }
            }
        }
        Ok(())
    }

    /// Whether the entry can be taken from the front: it was read and, for a unit, decoded, or, for a batch, all its
    /// values are finished.
    pub(super) fn is_done(&self, pending: &Pending) -> bool {
        pending.is_complete()
            && match (pending.load(), &self.decoder) {
                (Some(load), Some(decoder)) => decoder.is_done(load),
                _ => !self.has_maps() || pending.is_made(),
            }
    }

    /// Whether the oldest batch waits for a unit that is being decoded, or for values that threads process.
    pub(super) fn waits_for_stage(&self) -> bool {
        self.is_computing() && self.pending.front().is_some_and(Pending::is_complete)
    }

    /// Takes the memory for a plan, all or nothing.
    pub(super) fn take_memory(&mut self, pending: &mut Pending, plan: &BatchPlan) -> bool {
        if plan.stretch.is_some() && self.must_wait_for_stretches() {
            self.blocked.stretches = true;
            return false;
        }
        if !pending.take_memory(&mut self.pool, plan) {
            return false;
        }
        let (Some(load), Some(decoder)) = (plan.load, &mut self.decoder) else { return true };
        if decoder.take_place(load) {
            return true;
        }
        pending.give_blocks(&mut self.pool);
        false
    }
}
