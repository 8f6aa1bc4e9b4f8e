//! Units on their way: read as if each were a batch of its own, decoded by the stage, and kept as long as the plan says
//! that samples are cut from them. Memory for decoded units is a pool of its own, in places of one length, so that it
//! never falls to pieces.

use super::Reactor;
use super::pending::Pending;
use crate::plan::{BatchPlan, Load};
use crate::pool::Pool;
use crate::stage::{Finished, Stage, Work};
use crate::{Error, Result};
use bytes::Bytes;
use std::collections::HashMap;
use uringload_sys::Part;

/// Decoded units, and what decodes them.
pub struct Decoder {
    /// Memory for decoded units alone.
    pool: Pool,
    /// Bytes of a place in it.
    place_bytes: usize,
    stage: Stage,
    /// By the number of their load.
    units: HashMap<u64, Unit>,
}

/// One load.
struct Unit {
    state: State,
    /// Batches that are planned, were not made, and have samples that are cut from it.
    uses: usize,
    /// No batch that is planned from now on uses it.
    evicted: bool,
}

enum State {
    /// It is read; its place waits for it.
    Reading(Option<Part>),
    Decoding,
    Ready(Bytes),
    Failed(Error),
}

impl Decoder {
    /// A decoder with memory for as many units of `place_bytes` as `pool` has room for.
    pub fn new(pool: Pool, place_bytes: usize, stage: Stage) -> Decoder {
        Decoder { pool, place_bytes, stage, units: HashMap::new() }
    }

    /// Bytes of the memory for decoded units, and those of them that are free.
    pub(super) fn memory(&self) -> (usize, usize) {
        (self.pool.bytes(), self.pool.free_bytes())
    }

    /// Whether there is something that `take` has not seen.
    pub(super) fn has_finished(&self) -> bool {
        self.stage.has_finished()
    }

    /// Units that are being decoded.
    pub(super) fn under_way(&self) -> usize {
        self.stage.under_way()
    }

    /// Takes back what was dropped; returns whether there was anything.
    pub(super) fn collect(&mut self) -> bool {
        self.pool.collect()
    }

    /// What is decoded becomes ready.
    fn take(&mut self) {
        while let Some(Finished { number, out, result }) = self.stage.take() {
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
    }

    /// Lets go of a unit that nobody uses and nobody will.
    fn let_go(&mut self, number: u64) {
        let is_done =
            |unit: &Unit| unit.evicted && unit.uses == 0 && matches!(unit.state, State::Ready(_) | State::Failed(_));
        if self.units.get(&number).is_some_and(is_done) {
            self.units.remove(&number);
        }
    }

    /// Takes note of what the plan says of the units that are there; once for each plan.
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

    /// Takes the place for a unit; false while none is free.
    pub(super) fn take_place(&mut self, load: Load) -> bool {
        let Some(place) = self.pool.take_exact(self.place_bytes) else { return false };
        let unit = Unit { state: State::Reading(Some(place)), uses: 0, evicted: false };
        self.units.insert(load.number, unit);
        true
    }

    /// Whether a load is done, well or badly.
    fn is_done(&self, load: Load) -> bool {
        let unit = self.units.get(&load.number);
        // One that nobody wants any more is gone.
        unit.is_none_or(|unit| matches!(unit.state, State::Ready(_) | State::Failed(_)))
    }

    /// What a batch is cut from, in the order of its list, or why it is not there.
    pub(super) fn of(&self, plan: &BatchPlan) -> Vec<Result<Bytes>> {
        let unit = |number| match self.units.get(number).map(|unit| &unit.state) {
            Some(State::Ready(bytes)) => Ok(bytes.clone()),
            Some(State::Failed(error)) => Err(error.clone()),
            _ => Err(super::pending::lost("a unit was not there when its batch was made")),
        };
        plan.uses.iter().map(unit).collect()
    }

    /// Units that memory is kept for.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.units.len()
    }

    /// Lets go of all units; whether all memory is home.
    #[cfg(test)]
    pub(super) fn forget_all(&mut self) -> bool {
        self.units.clear();
        self.pool.collect();
        self.pool.is_whole()
    }

    /// A batch was made.
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
    /// Sends what was read to be decoded, and takes back what is.
    pub(super) fn decode(&mut self) -> Result<()> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        for pending in self.pending.iter_mut().filter(|pending| pending.is_complete()) {
            let Some(load) = pending.load() else { continue };
            let Some(Unit { state, .. }) = decoder.units.get_mut(&load.number) else { continue };
            let State::Reading(place) = state else { continue };
            let Some(place) = place.take() else { continue };
            match pending.take_stored(&self.pool, &self.stats)? {
                Ok(stored) => {
                    *state = State::Decoding;
                    let work = Work { number: load.number, unit: load.unit, stored, out: place };
                    decoder.stage.submit(work, &mut self.clock);
                }
                Err(error) => {
                    *state = State::Failed(error);
                    decoder.pool.give(place);
                }
            }
        }
        decoder.take();
        Ok(())
    }

    /// Whether a batch that is pending can be taken from the front: it was read, and decoded if it is a unit.
    pub(super) fn is_done(&self, pending: &Pending) -> bool {
        pending.is_complete()
            && match (pending.load(), &self.decoder) {
                (Some(load), Some(decoder)) => decoder.is_done(load),
                _ => true,
            }
    }

    /// Whether the oldest batch waits for a unit that is being decoded.
    pub(super) fn waits_for_stage(&self) -> bool {
        let decodes = self.decoder.as_ref().is_some_and(|decoder| decoder.under_way() > 0);
        decodes && self.pending.front().is_some_and(Pending::is_complete)
    }

    /// Takes the memory for a plan, all or nothing.
    pub(super) fn take_memory(&mut self, pending: &mut Pending, plan: &BatchPlan) -> bool {
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
