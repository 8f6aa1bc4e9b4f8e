//! Serves requests instead of an order: callers decide what is read when, and each answer goes out as soon as it is
//! ready, even before older ones. Reads, memory, faults and deadlines work as for batches.
//!
//! A request keeps a slot until it ends, and its reads' tags name the slot. If its reads were given up, the slot stays
//! empty until they end, because their tags must not mean another request meanwhile.

use super::pending::Pending;
use super::{Reactor, Turn};
use crate::dataset::Span;
use crate::engine::Engine;
use crate::queue::{Bell, Sender};
use crate::stats::Doing;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of requests that may be in progress or wait for room among the answers. It bounds the work of each turn.
const LIVE_MAX: usize = 1024;

/// Bytes that a caller wants.
#[derive(Debug)]
pub struct Request {
    /// The caller's id for the answer.
    pub id: u64,
    /// Its number: each is greater than the one before.
    pub number: u64,
    /// Where the bytes are. Already checked.
    pub spans: Vec<Span>,
}

/// The result of a request.
#[derive(Debug)]
pub struct Answer {
    /// The request's id.
    pub id: u64,
    /// Its number.
    pub number: u64,
    /// The bytes of its spans, end to end.
    pub bytes: Result<Bytes>,
}

enum Ask {
    Read(Request),
    Cancel(u64),
}

/// Where other threads leave their requests.
pub struct Inbox {
    asks: SegQueue<Ask>,
    bell: Arc<Bell>,
}

impl Inbox {
    /// An inbox whose reactor listens on `bell`.
    pub fn new(bell: Arc<Bell>) -> Inbox {
        Inbox { asks: SegQueue::new(), bell }
    }

    /// Asks for bytes. Numbers ascend.
    pub fn read(&self, request: Request) {
        self.asks.push(Ask::Read(request));
        self.bell.ring();
    }

    /// Cancels a request. Its answer may already be on its way.
    pub fn cancel(&self, number: u64) {
        self.asks.push(Ask::Cancel(number));
        self.bell.ring();
    }
}

/// The requests of a reactor.
pub struct Requests {
    inbox: Arc<Inbox>,
    answers: Sender<Answer>,
    /// Not planned yet, by ascending number. A cancelled one is `None`.
    queue: VecDeque<(u64, Option<Request>)>,
    /// The id and the number of the request that is planned and waits for memory.
    waiting: Option<(u64, u64)>,
    /// Slots of requests in progress.
    live: Vec<u32>,
    /// Slots with reads to issue, oldest first.
    issue: VecDeque<u32>,
    free: Vec<u32>,
    /// Slots whose reads were given up.
    retired: Vec<u32>,
}

impl Requests {
    /// Serves the requests in `inbox`.
    pub fn new(inbox: Arc<Inbox>, answers: Sender<Answer>) -> Requests {
        let (queue, issue) = (VecDeque::new(), VecDeque::new());
        let (live, free, retired) = (Vec::new(), Vec::new(), Vec::new());
        Requests { inbox, answers, queue, waiting: None, live, issue, free, retired }
    }

    /// Whether a request or a cancellation has arrived, or the callers are gone.
    pub(super) fn has_news(&self) -> bool {
        !self.inbox.asks.is_empty() || self.answers.is_closed()
    }

    pub(super) fn is_full(&self) -> bool {
        self.answers.is_full()
    }

    /// The slot whose reads are issued next.
    pub(super) fn next_to_issue(&self) -> Option<usize> {
        self.issue.front().map(|&slot| slot as usize)
    }

    /// Notes that every read of the slot is issued.
    pub(super) fn issued(&mut self) {
        self.issue.pop_front();
    }
}

impl Reactor {
    /// Reads requests instead of the batches of an order: [`turn_for_requests`](Reactor::turn_for_requests).
    #[must_use]
    pub fn with_requests(self, requests: Requests) -> Reactor {
        Reactor { requests: Some(requests), ..self }
    }

    /// Runs one step, like [`turn`](Reactor::turn): sends the answers that are ready, begins requests, issues the reads
    /// that fit, and waits.
    ///
    /// # Errors
    /// Only errors that end the reader: the engine as a whole failed, or the system has no memory.
    pub fn turn_for_requests(&mut self, engine: &mut dyn Engine) -> Result<Turn> {
        self.blocked = super::Blocked::default();
        self.clock.switch(Doing::Assemble);
        self.expire(engine);
        self.hear(engine);
        self.answer()?;
        if self.requests.as_ref().is_none_or(|requests| requests.answers.is_closed()) {
            return Ok(Turn::Abandoned);
        }
        self.clock.switch(Doing::Plan);
        self.begin_requests(self.room(engine));
        self.clock.switch(Doing::Submit);
        self.issue(engine)?;
        if engine.room() == 0 && engine.in_flight() == 0 {
            return Err(self.no_way_to_read());
        }
        if self.blocked.queue || !self.has_answer() {
            self.wait(engine)?;
            self.settle(engine)?;
        }
        Ok(Turn::Running)
    }

    /// Whether this reactor serves requests, not an order.
    pub(super) fn is_reader(&self) -> bool {
        self.requests.is_some()
    }

    /// Index in `pending` of the next entry with reads to issue.
    pub(super) fn issuing(&self) -> Option<usize> {
        self.requests.as_ref().map_or(Some(self.reads.issuing), Requests::next_to_issue)
    }

    /// Whether something other than the engine may give the reactor work.
    pub(super) fn may_be_rung(&self, in_flight: usize) -> bool {
        let is_blocked = self.blocked.memory || self.blocked.queue;
        is_blocked || self.is_reader() || self.is_computing() || self.waits_out(in_flight)
    }

    /// Whether an answer that waited has room, the receiver is gone, or a request has arrived.
    pub(super) fn consumer_has_moved(&self) -> bool {
        let is_full = self.requests.as_ref().map_or_else(|| self.out.is_full(), Requests::is_full);
        let has_news = self.requests.as_ref().map_or_else(|| self.out.is_closed(), Requests::has_news);
        let has_given_back = self.blocked.stretches && !self.must_wait_for_stretches();
        (self.blocked.queue && !is_full) || has_news || has_given_back
    }

    /// Whether a request is over that needed no read.
    fn has_answer(&self) -> bool {
        let is_over = |&slot: &u32| self.pending.get(slot as usize).is_some_and(Pending::is_complete);
        self.requests.as_ref().is_some_and(|requests| requests.live.iter().any(is_over))
    }

    fn hear(&mut self, engine: &mut dyn Engine) {
        while let Some(requests) = &mut self.requests
            && let Some(ask) = requests.inbox.asks.pop()
        {
            match ask {
                Ask::Read(request) => requests.queue.push_back((request.number, Some(request))),
                Ask::Cancel(number) => self.cancel_request(number, engine),
            }
        }
    }

    /// Stops the reads of a cancelled request. Its memory is free once the reads in flight have ended.
    fn cancel_request(&mut self, number: u64, engine: &mut dyn Engine) {
        let Some(requests) = &mut self.requests else { return };
        if let Ok(index) = requests.queue.binary_search_by_key(&number, |(number, _)| *number) {
            requests.queue[index].1 = None;
            return;
        }
        if requests.waiting.is_some_and(|(_, waiting)| waiting == number) {
            requests.waiting = None;
            self.spare.plans.extend(self.ahead.waiting.take());
            return;
        }
        let is_it = |&&slot: &&u32| self.pending.get(slot as usize).is_some_and(|pending| pending.number == number);
        let Some(&slot) = requests.live.iter().find(is_it) else { return };
        let Some(pending) = self.pending.get_mut(slot as usize) else { return };
        self.reads.unissued -= pending.drop_request();
        for tag in pending.tags_of_issued(slot) {
            engine.cancel(tag);
        }
        let is_of_slot = |tag: u64| (tag >> 32) as u32 == slot;
        let mut idle = self.outages.take_waiting(is_of_slot);
        while let Some(index) = self.reads.again.iter().position(|read| is_of_slot(read.tag)) {
            idle.extend(self.reads.again.remove(index));
        }
        for read in idle {
            self.lose(read.tag, read.part);
        }
    }

    /// Whether the read belongs to a cancelled request.
    pub(super) fn is_unwanted(&mut self, tag: u64) -> bool {
        self.is_reader() && self.find(tag).is_some_and(|(pending, _)| pending.is_dropped)
    }

    /// Takes back the memory of a read of a cancelled request, and forgets its failures.
    pub(super) fn lose(&mut self, tag: u64, part: uringload_sys::Part) {
        self.outages.forget(tag);
        match self.find(tag) {
            Some((pending, index)) => {
                let offset = pending.clear_deadline(index).offset;
                pending.fail(index, part, offset, Error::new(ErrorKind::Internal, "taken back"));
            }
            None => self.pool.give(part),
        }
    }

    /// Sends the answers of finished requests while there is room for them.
    fn answer(&mut self) -> Result<()> {
        let Some(requests) = &mut self.requests else { return Ok(()) };
        let mut at = 0;
        while let Some(&slot) = requests.live.get(at) {
            let Some(pending) = self.pending.get_mut(slot as usize).filter(|pending| pending.is_complete()) else {
                at += 1;
                continue;
            };
            if !pending.is_dropped && requests.answers.is_full() {
                self.blocked.queue = true;
                at += 1;
                continue;
            }
            let bytes = pending.take_answer(&self.pool, &self.stats)?;
            if !pending.is_dropped {
                // There was room, so a refusal means that the receiver is gone.
                let _ = requests.answers.try_send(Answer { id: pending.id, number: pending.number, bytes });
                self.starvation.end();
            }
            let places = if pending.has_holes() { &mut requests.retired } else { &mut requests.free };
            places.push(slot);
            // In the order of the requests, so that answers that wait for room stay in order too.
            requests.live.remove(at);
        }
        Ok(())
    }

    /// Begins requests until there are enough reads to issue now, or until memory runs out.
    fn begin_requests(&mut self, room: usize) {
        while self.reads.unissued < room {
            let Some(requests) = &mut self.requests else { return };
            if requests.live.len() >= LIVE_MAX {
                return;
            }
            if self.ahead.waiting.is_none() {
                let Some((number, request)) = requests.queue.pop_front() else { return };
                let Some(Request { id, spans, .. }) = request else { continue };
                requests.waiting = Some((id, number));
                self.adapt_reads();
                let mut plan = self.spare.plans.pop().unwrap_or_default();
                self.planner.plan_request(&spans, &mut plan);
                self.ahead.waiting = Some(plan);
            }
            let slot = self.slot();
            let (Some(plan), Some(requests)) = (self.ahead.waiting.take(), &mut self.requests) else { return };
            let pending = &mut self.pending[slot as usize];
            if !pending.take_memory(&mut self.pool, &plan) {
                requests.free.push(slot);
                self.ahead.waiting = Some(plan);
                self.blocked.memory = true;
                return;
            }
            self.reads.unissued += plan.reads.len();
            let (id, number) = requests.waiting.take().unwrap_or_default();
            self.spare.plans.extend(pending.begin(plan, number, false));
            pending.id = id;
            requests.live.push(slot);
            requests.issue.push_back(slot);
        }
    }

    /// A slot for the next request.
    fn slot(&mut self) -> u32 {
        let Some(requests) = &mut self.requests else { return 0 };
        if let Some(slot) = requests.free.pop() {
            return slot;
        }
        let timeouts = &self.timeouts;
        if let Some(index) = requests.retired.iter().position(|&slot| !timeouts.has_abandoned_of(slot)) {
            return requests.retired.swap_remove(index);
        }
        self.pending.push_back(Pending::default());
        self.pending.len() as u32 - 1
    }

    /// As [`starving`](Reactor::starving), for a request that waits for memory which the reader's user holds.
    pub(super) fn starving_request(&mut self, now: Instant) -> Duration {
        let Some(requests) = &self.requests else { return Duration::ZERO };
        let waits = requests.live.is_empty() && requests.answers.is_empty() && requests.answers.receiver_waits();
        self.starvation.look(waits, now).unwrap_or_else(|| {
            let error = self.starved("answers");
            self.spare.plans.extend(self.ahead.waiting.take());
            if let Some(requests) = &mut self.requests
                && let Some((id, number)) = requests.waiting.take()
            {
                let _ = requests.answers.try_send(Answer { id, number, bytes: Err(error) });
            }
            Duration::ZERO
        })
    }
}

#[cfg(test)]
mod tests;
