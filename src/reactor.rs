//! The reactor's loop. The reactor alone decides about reads: which come next, how many are in flight, how to handle a
//! short read or an error, and when a batch is complete. One bounded step, [`Reactor::turn`], runs over an engine that
//! only moves bytes, so tests can drive it with a simulated disk that lies.
//!
//! Batches get their memory in order: no later batch holds a block that an earlier one lacks. The batch that the
//! consumer waits for can therefore always be read with memory that is in flight or on its way back.

mod assemble;
mod classes;
mod depth;
mod failures;
mod groups;
mod lost;
mod maps;
mod outage;
mod pending;
mod repair;
mod requests;
mod starved;
mod stretches;
#[cfg(test)]
mod tests;
mod timeouts;
mod units;

use crate::batch::Batch;
use crate::config::OnError;
use crate::engine::{Engine, Width};
use crate::plan::{Joining, Layout, Planner};
use crate::pool::Pool;
use crate::queue::{Bell, Sender, Starvation};
use crate::stage::Stage;
use crate::stats::{Clock, Decision, Doing, Role, Stats};
use crate::{Error, Result};
use depth::{Depth, Ended};
use groups::{Ahead, Blocked, Reads, Spare};
use outage::Outages;
use pending::{Pending, Verdict};
use repair::{Repair, Repaired};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use timeouts::Timeouts;
use uringload_sys::arena::Backing;

/// Longest sleep. Wake-ups end a sleep; this only bounds the cost of a lost one.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How often a reactor that ends with an error checks whether the queue has room for it.
const FAIL_WAIT: Duration = Duration::from_millis(5);

/// Number of batches that may be planned but not delivered. Memory is the real bound; this one bounds the list when
/// samples are tiny.
const PENDING_BATCHES: usize = 256;

/// Number of batches to plan ahead if nothing needs to be read for them.
const UNREAD_BATCHES: usize = 2;

/// Marks the number of a replacement sample, in the upper half of its reads' tags. Batch numbers wrap below it.
const REPAIRS: u32 = 1 << 31;

/// Name of the reactor's thread.
pub(crate) const THREAD: &str = "uringload-reactor";

pub use failures::Failures;
pub use pending::{Early, EarlyBlock};
pub use requests::{Answer, Inbox, Request, Requests};
pub(crate) use starved::thread_ended;
pub use stretches::KeptStretches;
pub use units::Decoder;

/// The reactor's fixed settings.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How many reads may be in flight.
    pub width: Width,
    /// Longest read, in bytes.
    pub read_bytes: u64,
    /// What to do with samples that cannot be read.
    pub on_error: OnError,
    /// Seed for the choice of replacement samples.
    pub seed: u64,
    /// How long a read may take before it is given up.
    pub timeout: Option<Duration>,
    /// How long to wait for storage that gives nothing, or a machine without room. `None`: forever.
    pub outage_timeout: Option<Duration>,
    /// How long the consumer may wait for memory that it holds itself.
    pub starved_after: Duration,
}

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    Running,
    /// The next batch belongs to another epoch, which waits for `start_epoch`. Reported once as soon as that batch is
    /// next, and then whenever there is nothing else to do.
    Epoch {
        /// The epoch.
        epoch: u64,
        /// Whether nothing is in flight, so that the engine may be replaced.
        idle: bool,
    },
    /// Every batch was delivered.
    Finished,
    /// The consumer is gone.
    Abandoned,
}

/// Turns plans into batches.
pub struct Reactor {
    planner: Planner,
    pool: Pool,
    /// The units that samples are cut from.
    decoder: Option<Decoder>,
    /// The threads that compute.
    stage: Option<Stage>,
    early: Option<Early>,
    /// What is read where there is no order.
    requests: Option<Requests>,
    /// The stretches of files that are kept in memory.
    kept: Option<KeptStretches>,
    out: Sender<Result<Batch>>,
    bell: Arc<Bell>,
    stats: Arc<Stats>,
    clock: Clock,
    rules: Rules,
    ahead: Ahead,
    reads: Reads,
    spare: Spare,
    /// Planned, with memory, oldest first.
    pending: VecDeque<Pending>,
    /// The sample being read to replace one of `pending[0]`.
    repair: Repair,
    timeouts: Timeouts,
    /// Reads that failed and wait to be read again.
    outages: Outages,
    failures: Failures,
    /// An error to deliver to the consumer between batches.
    beside: Option<Error>,
    blocked: Blocked,
    starvation: Starvation,
    refused: Option<io::Error>,
}

impl Reactor {
    /// Creates a reactor that delivers the batches of `planner` to `out`. Both the pool and the queue ring `bell`.
    pub fn new(
        planner: Planner,
        pool: Pool,
        out: Sender<Result<Batch>>,
        bell: Arc<Bell>,
        stats: Arc<Stats>,
        rules: Rules,
        failures: Failures,
    ) -> Reactor {
        let clock = stats.clock(Role::Reactor, Doing::Plan);
        let roots = planner.dataset().files().roots().len();
        let depth = Depth::new(rules.width, rules.read_bytes).with_joining(planner.joining());
        Reactor {
            planner,
            pool,
            decoder: None,
            stage: None,
            early: None,
            requests: None,
            kept: None,
            out,
            bell,
            stats,
            clock,
            rules,
            ahead: Ahead::default(),
            reads: Reads::new(depth),
            spare: Spare::default(),
            pending: VecDeque::new(),
            repair: Repair::default(),
            timeouts: Timeouts::new(rules.timeout),
            outages: Outages::new(rules.outage_timeout, roots, rules.seed),
            failures,
            beside: None,
            blocked: Blocked::default(),
            starvation: Starvation::new(rules.starved_after),
            refused: None,
        }
    }

    /// Sets the decoder, which keeps the units that the planner plans.
    #[must_use]
    pub fn with_decoder(self, decoder: Option<Decoder>) -> Reactor {
        Reactor { decoder, ..self }
    }

    /// Hands each block to `early` as soon as it has been read without errors, if `early` has room. Only for deferred
    /// collation: such blocks stay as they were read.
    #[must_use]
    pub fn with_early(self, early: Option<Early>) -> Reactor {
        debug_assert!(early.is_none() || self.planner.collation().is_deferred());
        Reactor { early, ..self }
    }

    /// Allows the batches of `epoch` to be planned.
    pub fn start_epoch(&mut self, epoch: u64) {
        self.ahead.epoch = Some(epoch);
    }

    /// Lays out batches for another route, with this many reads in flight.
    pub fn reroute(&mut self, layout: Layout, joining: Joining, width: Width) {
        self.planner.set_layout(layout);
        self.planner.set_joining(joining);
        self.reads.depth = Depth::new(width, layout.read_bytes).with_joining(joining);
    }

    /// Adopts a new engine: installs its waker and registers the memory taken so far. Returns whether that memory could
    /// be registered, or why not.
    ///
    /// # Errors
    /// `MemoryLimit` if the system has no memory for even the first blocks.
    pub fn adopt(&mut self, engine: &mut dyn Engine) -> Result<io::Result<bool>> {
        self.bell.set_waker(&engine.waker());
        // A read with a deadline is by itself.
        self.reads.bundles = engine.bundles() && self.rules.timeout.is_none();
        self.widen(engine);
        self.clock.switch(Doing::TakeMemory);
        self.pool.back(&(0..1))?;
        self.clock.switch(Doing::Submit);
        let register = |range| engine.register(self.pool.arena(), range);
        let registered: io::Result<Vec<bool>> = self.pool.backed().into_iter().map(register).collect();
        Ok(registered.map(|registered| !registered.contains(&false)))
    }

    /// Tells the engine how many reads to perform at a time.
    fn widen(&mut self, engine: &mut dyn Engine) {
        self.reads.started_most = engine.widen(self.reads.depth.now());
        self.stats.set_depth(self.reads.depth.now());
    }

    /// Books a change of the depth, if there was one.
    fn decided(&mut self, decision: Option<Decision>, engine: &mut dyn Engine) {
        if let Some(decision) = decision {
            self.stats.decided(decision);
            self.widen(engine);
        }
    }

    /// Why memory taken since `adopt` could not be registered. Returned once.
    pub fn registration_refused(&mut self) -> Option<io::Error> {
        self.refused.take()
    }

    /// What backs the pool's memory, in words.
    pub fn backing(&self) -> &'static str {
        match self.pool.arena().backing() {
            Backing::Elsewhere => "the GPU's memory",
            backing => backing.name(),
        }
    }

    /// Whether the engine still holds reads that were given up, with their memory.
    pub fn has_abandoned(&self) -> bool {
        self.timeouts.abandoned().0 > 0
    }

    /// Ends the stream with an error. Waits until the queue has room or the consumer is gone.
    pub fn fail(&mut self, error: Error) {
        self.clock.switch(Doing::WaitConsumer);
        let mut item = Err(error);
        while !self.out.is_closed() {
            match self.out.try_send(item) {
                Ok(()) => return,
                Err(back) => item = back,
            }
            std::thread::sleep(FAIL_WAIT);
        }
    }

    /// Runs one step: delivers complete batches, plans ahead, issues the reads that fit, and waits for the engine or
    /// the consumer.
    ///
    /// # Errors
    /// Only errors that end the loader: the engine as a whole failed, or the system has no memory.
    pub fn turn(&mut self, engine: &mut dyn Engine) -> Result<Turn> {
        self.blocked = Blocked::default();
        self.clock.switch(Doing::Assemble);
        self.expire(engine);
        self.deliver(engine)?;
        if self.out.is_closed() {
            // No consumer is left to hear that the list cannot be written.
            let _ = self.failures.end();
            return Ok(Turn::Abandoned);
        }
        self.clock.switch(Doing::Plan);
        let next_epoch = self.plan_ahead(self.room(engine));
        self.clock.switch(Doing::Submit);
        self.issue(engine)?;
        let idle = self.pending.is_empty() && !self.blocked.memory && self.beside.is_none();
        match next_epoch {
            Some(epoch) if idle || self.ahead.told != Some(epoch) => {
                self.ahead.told = Some(epoch);
                return Ok(Turn::Epoch { epoch, idle });
            }
            None if idle => {
                self.beside = self.failures.end();
                return Ok(if self.beside.is_none() { Turn::Finished } else { Turn::Running });
            }
            _ => {}
        }
        if engine.room() == 0 && engine.in_flight() == 0 {
            return Err(self.no_way_to_read());
        }
        // A batch of empty samples is complete without a read, so nothing would end a wait for it.
        let is_ready = self.pending.front().is_some_and(|front| self.is_done(front)) && !self.repair.is_busy();
        // A wait would not end either while values have not been handed to a thread.
        let is_ready = is_ready || self.can_map();
        if self.blocked.queue || !is_ready {
            self.wait(engine)?;
            self.settle(engine)?;
        }
        Ok(Turn::Running)
    }

    /// Delivers the complete batches at the front while the queue has room.
    fn deliver(&mut self, engine: &mut dyn Engine) -> Result<()> {
        self.decode()?;
        self.take_finished()?;
        self.map(engine)?;
        while self.beside.is_some() || self.pending.front().is_some_and(|front| self.is_done(front)) {
            if self.beside.is_none() && self.pending.front().is_some_and(|front| front.load().is_some()) {
                let unit = self.pop_front();
                self.spare.batches.extend(unit);
                continue;
            }
            if self.beside.is_some() && self.out.is_full() {
                self.blocked.queue = true;
                return Ok(());
            }
            if let Some(error) = self.beside.take() {
                let _ = self.out.try_send(Err(error));
                continue;
            }
            if self.beside.is_none() && self.keep_front()? {
                continue;
            }
            if self.pending.front().is_some_and(|front| !self.is_done(front)) {
                return Ok(());
            }
            if self.out.is_full() {
                self.blocked.queue = true;
                return Ok(());
            }
            if !self.front_is_parsed() {
                self.parse(0, engine)?;
            }
            let irreplaceable = match self.repair()? {
                Repaired::Waiting => return Ok(()),
                Repaired::Done => None,
                Repaired::Failed(error) => Some(error),
            };
            let (dataset, collation) = (Arc::clone(self.planner.dataset()), Arc::clone(self.planner.collation()));
            let Some(mut pending) = self.pop_front() else { return Ok(()) };
            if let Some(decoder) = &mut self.decoder {
                decoder.release(&pending.plan().uses);
            }
            self.beside = self.failures.book(&*dataset, (pending.epoch(), pending.samples()), &pending.failed())?;
            let of = (&*dataset, &*collation, self.stage.as_ref());
            let batch = pending.finish(of, &self.rules, irreplaceable, &self.pool, &self.stats);
            self.spare.batches.push(pending);
            // The queue had room, so a refusal means that the consumer is gone. The caller checks that next.
            let _ = self.out.try_send(batch);
        }
        Ok(())
    }

    /// Parses the samples of a batch that was read.
    fn parse(&mut self, index: usize, engine: &mut dyn Engine) -> Result<()> {
        for block in 0..self.pending.get(index).map_or(0, |pending| pending.plan().blocks.len()) {
            let target = self.pending.get(index).map_or(0..0, |pending| pending.target(block));
            self.back(target, engine)?;
        }
        let (dataset, collation) = (Arc::clone(self.planner.dataset()), Arc::clone(self.planner.collation()));
        let Some(pending) = self.pending.get_mut(index) else { return Ok(()) };
        let gather = collation.gather(self.planner.layout().coalesce_gap);
        let units = self.decoder.as_ref().map_or_else(Vec::new, |decoder| decoder.of(pending.plan()));
        let kept = self.kept.as_ref();
        pending.parse((&*dataset, &*collation, gather), (units, kept), &self.pool, &self.stats)
    }

    fn front_is_parsed(&self) -> bool {
        self.pending.front().is_some_and(Pending::is_parsed)
    }

    fn pop_front(&mut self) -> Option<Pending> {
        self.reads.first = self.reads.first.wrapping_add(1) & !REPAIRS;
        self.reads.issuing = self.reads.issuing.saturating_sub(1);
        self.pending.pop_front()
    }

    /// Plans batches until there are enough reads to issue now (more would only hold memory), or until memory or the
    /// epoch runs out. Returns the next epoch if the end of this one is what stops planning.
    fn plan_ahead(&mut self, room: usize) -> Option<u64> {
        while self.reads.unissued < room && self.pending.len() < PENDING_BATCHES && !self.is_far_ahead() {
            if self.ahead.waiting.is_none() {
                let epoch = self.planner.epoch();
                if epoch.is_none() || epoch != self.ahead.epoch {
                    return epoch;
                }
                self.adapt_reads();
                let mut plan = self.spare.plans.pop().unwrap_or_default();
                self.planner.next(&mut plan);
                if plan.load.is_none() && plan.stretch.is_none() && !plan.reads.is_empty() {
                    self.reads.depth.planned(plan.joined.could_join);
                }
                if let Some(decoder) = &mut self.decoder {
                    decoder.note(&mut plan);
                }
                self.ahead.waiting = Some(plan);
            }
            let plan = self.ahead.waiting.take()?;
            let mut pending = self.spare.batches.pop().unwrap_or_default();
            if !self.take_memory(&mut pending, &plan) {
                self.spare.batches.push(pending);
                self.ahead.waiting = Some(plan);
                self.blocked.memory = true;
                return None;
            }
            let number = self.ahead.planned;
            self.ahead.planned += u64::from(plan.load.is_none() && plan.stretch.is_none());
            let bundles = self.reads.bundles && self.outages.is_quiet();
            self.spare.plans.extend(pending.begin(plan, number, bundles));
            self.reads.unissued += pending.bundles();
            self.pending.push_back(pending);
        }
        None
    }

    /// Whether the batches planned last have nothing to read. To plan more of them would only take memory out of the
    /// processor's cache.
    fn is_far_ahead(&self) -> bool {
        if self.kept.is_none() {
            return false;
        }
        let last = self.pending.len().checked_sub(UNREAD_BATCHES).map(|first| self.pending.range(first..));
        last.is_some_and(|mut last| last.all(|pending| pending.plan().reads.is_empty()))
    }

    /// Plans reads of the length that the device handles well.
    fn adapt_reads(&mut self) {
        self.adapt_stretches();
        let joining = self.planner.joining();
        if joining.most > 0 && joining.gap != self.reads.depth.gap() {
            self.planner.set_joining(Joining { gap: self.reads.depth.gap(), ..joining });
        }
        let layout = self.planner.layout();
        let wanted = self.reads.depth.read_bytes().max(self.planner.joining().read_bytes);
        let read_bytes = (wanted / layout.alignment * layout.alignment).max(layout.alignment);
        if read_bytes != layout.read_bytes {
            self.planner.set_layout(Layout { read_bytes, ..layout });
        }
    }

    /// Number of reads that may be started. Reads that wait for a retry count as in flight: storage or a machine in
    /// trouble gets no more reads than before.
    fn room(&self, engine: &dyn Engine) -> usize {
        self.reads.started_most.saturating_sub(engine.in_flight() + self.outages.waiting(engine))
    }

    /// Starts reads, oldest batch first, while the depth and the engine allow.
    fn issue(&mut self, engine: &mut dyn Engine) -> Result<()> {
        self.read_again(engine);
        let mut room = self.room(engine);
        let now = self.deadline_clock(engine);
        while room > 0 && engine.room() > 0 {
            if let Some(read) = self.reads.again.pop_front() {
                self.start(read, now, engine);
            } else if let Some(read) = self.repair.issue() {
                self.back(read.part.offset()..read.part.end(), engine)?;
                self.start(read, now, engine);
            } else if let Some(index) = self.issuing()
                && let Some(pending) = self.pending.get_mut(index)
            {
                let number = self.reads.first.wrapping_add(index as u32) & !REPAIRS;
                match pending.issue(number, &mut self.spare.pieces) {
                    Some(read) => {
                        let grew = self.back(read.part.offset()..read.part.end(), engine)?;
                        self.start(read, now, engine);
                        self.reads.unissued -= 1;
                        if grew {
                            // Submit what was issued before taking more memory, so that the disk works meanwhile.
                            self.reads.hurry = true;
                            return Ok(());
                        }
                    }
                    None => {
                        match &mut self.requests {
                            Some(requests) => requests.issued(),
                            None => self.reads.issuing += 1,
                        }
                        continue;
                    }
                }
            } else {
                break;
            }
            room -= 1;
        }
        self.reads.depth.started(room == 0 || self.waits_for_stretches());
        Ok(())
    }

    /// Backs and registers a range before anything is read or gathered into it. Memory is taken here rather than with
    /// the block: a little between reads does not delay those in flight, but a hundred megabytes at once would.
    fn back(&mut self, wanted: Range<usize>, engine: &mut dyn Engine) -> Result<bool> {
        if self.pool.is_backed(&wanted) {
            return Ok(false);
        }
        let before = self.clock.doing();
        self.clock.switch(Doing::TakeMemory);
        while let Some(range) = self.pool.back(&wanted)? {
            if let Err(error) = engine.register(self.pool.arena(), range) {
                self.refused = Some(error);
            }
        }
        self.clock.switch(before);
        Ok(true)
    }

    /// Waits for reads or, if the consumer holds things up, for the consumer.
    fn wait(&mut self, engine: &mut dyn Engine) -> Result<()> {
        let in_flight = engine.in_flight();
        let mut longest = if std::mem::take(&mut self.reads.hurry) { Duration::ZERO } else { LONGEST_WAIT };
        if let Some(next) = self.timeouts.next() {
            longest = longest.min(next.saturating_duration_since(engine.now()));
        }
        if !self.outages.is_quiet() {
            let now = engine.now();
            let next = self.outages.next(now).map(|next| next.saturating_duration_since(now));
            longest = next.map_or(longest, |next| longest.min(next));
        }
        let asleep = self.may_be_rung(in_flight);
        if asleep {
            self.bell.listen();
            // The second check that the bell requires: a change before `listen` woke no thread.
            let decoded = self.decoder.as_mut().is_some_and(Decoder::collect);
            let decoded = decoded | self.stage.as_ref().is_some_and(Stage::has_finished);
            let changed = self.pool.collect() || decoded || self.consumer_has_moved();
            if changed {
                longest = Duration::ZERO;
            } else if in_flight == 0 && self.blocked.memory {
                longest = longest.min(self.starving(engine.now()));
            }
        }
        let waiting = if self.waits_for_stage() {
            Doing::WaitStage
        } else if self.blocked.queue {
            // The reactor is ahead of the consumer, so no thread waits for what is in flight.
            Doing::WaitConsumer
        } else if in_flight > 0 {
            Doing::WaitStorage
        } else if self.blocked.memory {
            Doing::WaitMemory
        } else {
            Doing::WaitStorage
        };
        let now = self.clock.switch(waiting);
        self.stats.count.turns.add(1);
        self.tell_now(in_flight, now);
        let wait = (!longest.is_zero()).then_some(longest);
        engine.turn(wait, &mut self.spare.done).map_err(|source| {
            Error::io("the engine failed while it waited for reads", source).with_remedy(
                "this is not an error of one file: see the kernel's log, or try engine=threads (--engine threads)",
            )
        })?;
        self.note_denied(engine)?;
        if asleep {
            self.bell.silence();
        }
        let end = self.clock.switch(Doing::Assemble);
        if waiting == Doing::WaitStorage {
            self.note_wait(in_flight, end.saturating_duration_since(now));
        }
        self.pool.collect();
        self.decoder.as_mut().map(Decoder::collect);
        Ok(())
    }

    /// Counts what limited a wait for the storage: the depth, memory, or neither.
    fn note_wait(&self, in_flight: usize, waited: Duration) {
        let (nanos, depth) = (waited.as_nanos() as u64, self.reads.depth.now());
        self.stats.count.depth_area.add(nanos.saturating_mul(depth as u64));
        if self.blocked.memory && in_flight < depth {
            self.stats.count.memory_bound_nanos.add(nanos);
        } else if in_flight >= depth {
            self.stats.count.depth_bound_nanos.add(nanos);
        }
    }

    /// Settles the reads that the engine has completed.
    fn settle(&mut self, engine: &mut dyn Engine) -> Result<()> {
        let mut done = std::mem::take(&mut self.spare.done);
        let alignment = self.planner.layout().alignment;
        let dataset = Arc::clone(self.planner.dataset());
        for done in done.drain(..) {
            let (tag, latency) = (done.tag, done.latency);
            if self.find(tag).is_some_and(|(pending, index)| pending.is_bundle(index)) {
                self.settle_bundle(done)?;
                continue;
            }
            if self.timeouts.take_abandoned(tag) {
                self.pool.give(done.part);
                continue;
            }
            let cancelled = self.timeouts.take_cancelled(tag).filter(|_| !self.outages.is_elsewhere(tag));
            if self.is_unwanted(tag) {
                self.lose(done.tag, done.part);
                continue;
            }
            let done = if cancelled.is_none() { self.note_end(done, engine) } else { Some(done) };
            let Some(done) = done else { continue };
            let Some((pending, _)) = self.find(tag) else {
                // An engine that invents tags is a bug, but its memory must not be lost.
                debug_assert!(false, "a read of no batch: tag {tag:#x}");
                self.pool.give(done.part);
                continue;
            };
            let bytes = done.result.as_ref().ok().copied();
            let ended = bytes.map(|bytes| Ended::new(bytes as u64, pending.plan().joined, latency));
            let verdict = pending.settle(done, alignment, dataset.files(), cancelled);
            self.stats.count.reads.add(1);
            if let Some(ended) = ended {
                self.stats.count.bytes_read.add(ended.bytes);
                self.stats.read_latency.record(ended.bytes, latency, 1);
                self.reads.depth.done(ended);
            }
            if !matches!(verdict, Verdict::Trouble(..) | Verdict::Late(..)) {
                self.outages.forget(tag);
            }
            match verdict {
                Verdict::Complete => self.tell_early(tag)?,
                Verdict::Late(read, error, good_end) => self.late(read, error, good_end, engine.now()),
                Verdict::Trouble(read, error) => self.trouble(read, error, engine)?,
                Verdict::Short(read) => {
                    self.stats.count.short_reads.add(1);
                    self.stats.count.retries.add(1);
                    self.reads.again.push_back(read);
                }
                Verdict::Again(read) => {
                    self.stats.count.retries.add(1);
                    self.reads.again.push_back(read);
                }
            }
        }
        self.spare.done = done;
        let decision = self.reads.depth.look(engine.now());
        self.decided(decision, engine);
        self.tell_outage(engine);
        Ok(())
    }
}
