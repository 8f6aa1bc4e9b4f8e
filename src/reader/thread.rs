//! The thread of a reader: opens the engine, and turns a reactor that reads requests instead of an order.

use crate::config::{Config, Route};
use crate::dataset::Dataset;
use crate::engine::{self, Engine, Opened};
use crate::guard;
use crate::patience::Patience;
use crate::plan::Layout;
use crate::pool::Pool;
use crate::queue::{Bell, Sender};
use crate::reactor::{self, Answer, Failures, Inbox, Reactor, Requests, Rules, Turn};
use crate::sampler::{Order, for_dataset};
use crate::stats::Stats;
use crate::{Error, Result};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

/// The inputs of the thread.
pub(super) struct Job {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) config: Config,
    pub(super) pool_bytes: usize,
    pub(super) inbox: Arc<Inbox>,
    pub(super) answers: Sender<Answer>,
    pub(super) bell: Arc<Bell>,
    /// Why the thread ended, if not because of a drop.
    pub(super) ended_by: Arc<Mutex<Option<Error>>>,
}

/// The thread's work. `tell` gets the route once the engine is open, or the error.
pub(super) fn run(job: Job, tell: &mpsc::Sender<Result<Arc<Mutex<Route>>>>) {
    let ended_by = Arc::clone(&job.ended_by);
    let opened = guard::thread(reactor::THREAD, || Reading::new(job));
    let mut reading = match opened {
        Ok(reading) => reading,
        Err(error) => {
            // Only `new` waits for this. If it is gone, the error has no recipient.
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(Arc::clone(&reading.route)));
    if let Err(error) = guard::thread(reactor::THREAD, || reading.run()) {
        *ended_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
    // The receiver looks for the error when the queue is closed, which dropping `reading` does.
}

struct Reading {
    reactor: Reactor,
    engine: Box<dyn Engine>,
    route: Arc<Mutex<Route>>,
}

impl Reading {
    fn new(job: Job) -> Result<Reading> {
        let Job { dataset, config, pool_bytes, inbox, answers, bell, .. } = job;
        let stats = Arc::new(Stats::new());
        let Opened { mut engine, mut route, width } = engine::open(&config, &dataset, &stats, &Patience::of(&config))?;
        let order = Order::new(&config, Arc::clone(&dataset), for_dataset(&*dataset, config.shuffle, 0)?)?;
        let planner = order.planner(Layout::new(&route, &config));
        let pool = Pool::new(pool_bytes, 0, Arc::clone(&bell))?;
        let rules = Rules {
            width,
            read_bytes: route.read_bytes as u64,
            on_error: config.on_error,
            seed: config.seed,
            timeout: config.timeout,
            outage_timeout: config.outage_timeout,
            starved_after: config.starved_after,
        };
        let failures = Failures::new(None, None, order);
        // A reader delivers answers, so nothing ever goes into the queue of batches.
        let (batches, _) = crate::queue::bounded(1, Arc::clone(&bell));
        let mut reactor = Reactor::new(planner, pool, batches, bell, stats, rules, failures)
            .with_requests(Requests::new(inbox, answers));
        let registered = reactor.adopt(&mut *engine)?;
        route.note_memory(reactor.backing(), &registered);
        Ok(Reading { reactor, engine, route: Arc::new(Mutex::new(route)) })
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let turn = self.reactor.turn_for_requests(&mut *self.engine)?;
            let (said, refused) = (self.engine.said(), self.reactor.registration_refused());
            if said.is_some() || refused.is_some() {
                let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
                route.fallbacks.extend(said);
                refused.iter().for_each(|error| route.note_unregistered("plain reads for a part of the memory", error));
            }
            if turn != Turn::Running {
                return Ok(());
            }
        }
    }
}
