//! Requests on a disk that lies, all from one seed: each is answered once, with its bytes or an error of its own,
//! unless it was cancelled, and no memory is lost.

use super::*;
use crate::config::{Config, OnError};
use crate::dataset::{self, FileId, FileTable, Options};
use crate::engine::Width;
use crate::engine::sim::{Faults, Sim, byte_at};
use crate::plan::Layout;
use crate::pool::Pool;
use crate::queue::bounded;
use crate::reactor::tests::seeds::{each_seed, with_seed};
use crate::reactor::{Failures, Rules};
use crate::sampler::{Order, Sequential};
use crate::stats::Stats;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;

/// Seeds of the quick suite. The slow suite runs more (`URINGLOAD_SEEDS`).
const SEEDS: u64 = 150;
/// This many seeds show every kind of end.
const SEEDS_THAT_SHOW_ALL: u64 = 300;
/// A world that takes more turns than this has hung.
const TURNS_MAX: usize = 100_000;

/// What happened in at least one world. A suite in which nothing goes wrong proves nothing.
#[derive(Debug, Default)]
struct Seen {
    failed: u64,
    starved: u64,
    timeouts: u64,
    cancelled: u64,
    overtaken: u64,
    abandoned: u64,
    moved: u64,
    full: u64,
}

struct World {
    random: Xoshiro256PlusPlus,
    files: FileTable,
    faults: Faults,
    sim: Sim,
    reactor: Reactor,
    inbox: Arc<Inbox>,
    answers: crate::queue::Receiver<Answer>,
    /// Requests that were neither answered nor cancelled.
    asked: HashMap<u64, Vec<Span>>,
    held: Vec<Bytes>,
    seen: Seen,
    last: u64,
    /// Whether answers are kept until there is no memory for others.
    hoards: bool,
}

fn world(seed: u64) -> World {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut pick = |below: u64| random.next_u64() % below;
    let alignment = [1, 512, 4096][pick(3) as usize];
    let mut files = FileTable::new();
    files.push_root("/sim");
    for index in 0..1 + pick(6) {
        let size = if pick(8) == 0 { 0 } else { pick(200_000) };
        files.push(format!("f{index}").as_bytes(), size).unwrap();
    }
    let options = Options::new().format("folder").set("labels", false).threads(1);
    let dataset = dataset::inspect::of_files(files.clone(), &options).unwrap();
    let order = Order::new(&Config::default(), Arc::clone(&dataset), Arc::new(Sequential::new(dataset.len()))).unwrap();
    let lies = pick(3) > 0;
    let mut chance = |most: u64| if lies { pick(most) as u8 } else { 0 };
    let stuck = [0, chance(30)][chance(2) as usize];
    let faults = Faults {
        short: chance(80),
        momentary: chance(60),
        device: chance(40),
        lasting: chance(128),
        delay: chance(200),
        shrunk: chance(40),
        stuck,
        deaf: chance(256),
        reorder: lies,
        ..Faults::default()
    };
    let read_bytes = alignment.max(4096) * (1 + pick(8));
    let width = Width { start: 1 + pick(20) as usize, most: 1 + pick(20) as usize, fixed: pick(2) == 0 };
    let rules = Rules {
        width,
        read_bytes,
        on_error: OnError::Raise,
        seed,
        timeout: (stuck > 0 || pick(4) == 0).then(|| Duration::from_millis([2, 50, 2000][pick(3) as usize])),
        outage_timeout: Some(Duration::from_secs(60)),
        starved_after: Duration::from_secs(5),
    };
    let bell = Arc::new(Bell::new());
    let inbox = Arc::new(Inbox::new(Arc::clone(&bell)));
    let (sender, answers) = bounded([1, 3, 64][pick(3) as usize], Arc::clone(&bell));
    let layout = Layout { alignment, read_bytes, coalesce_gap: 0, border: 0 };
    let pool = Pool::new((1 << 20) + pick(4 << 20) as usize, 0, Arc::clone(&bell)).unwrap();
    let failures = Failures::new(None, None, order.clone());
    let (batches, _) = bounded(1, Arc::clone(&bell));
    let reactor = Reactor::new(order.planner(layout), pool, batches, bell, Arc::new(Stats::new()), rules, failures)
        .with_requests(Requests::new(Arc::clone(&inbox), sender));
    let sim = Sim::new(dataset, width.most, alignment, seed, faults);
    let (asked, held, seen) = (HashMap::new(), Vec::new(), Seen::default());
    World {
        random,
        files,
        faults,
        sim,
        reactor,
        inbox,
        answers,
        asked,
        held,
        seen,
        last: 0,
        hoards: seed.is_multiple_of(5),
    }
}

impl World {
    fn pick(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn span(&mut self) -> Span {
        let file = FileId(self.pick(self.files.len() as u64) as u32);
        let size = self.files.size(file);
        let offset = self.pick(size + 1);
        let most = (size - offset).min([1, 100, 5000, 100_000][self.pick(4) as usize]);
        let len = self.pick(most + 1);
        Span { file, offset, len }
    }

    fn ask(&mut self, number: u64) {
        let count = [1, 1, 1, 0, 2, 5][self.pick(6) as usize];
        let spans: Vec<Span> = (0..count).map(|_| self.span()).collect();
        self.asked.insert(number, spans.clone());
        self.inbox.read(Request { id: number * 7, number, spans });
    }

    /// Takes an answer and compares it with the disk.
    fn take(&mut self) {
        let Ok(Answer { id, number, bytes }) = self.answers.try_recv() else { return };
        assert_eq!(id, number * 7);
        // It may have been on its way when its request was cancelled.
        let Some(spans) = self.asked.remove(&number) else { return };
        self.seen.overtaken += u64::from(number < self.last);
        self.last = self.last.max(number);
        match bytes {
            Ok(bytes) => {
                let expected = |span: &Span| {
                    let span = *span;
                    (span.offset..span.offset + span.len).map(move |at| byte_at(span.file, at))
                };
                assert!(bytes.iter().copied().eq(spans.iter().flat_map(expected)), "wrong bytes of {spans:?}");
                assert!(spans.iter().all(|span| span.len == 0 || span.offset + span.len <= self.sim.size(span.file)));
                self.seen.moved += u64::from(spans.len() > 1 && !bytes.is_empty());
                self.held.push(bytes);
            }
            Err(error) => {
                self.seen.failed += 1;
                match error.kind() {
                    ErrorKind::Starved => {
                        self.seen.starved += 1;
                        assert!(!self.held.is_empty() || self.reactor.has_abandoned());
                        self.held.clear();
                        self.sim.release();
                    }
                    ErrorKind::Timeout => self.seen.timeouts += 1,
                    ErrorKind::Truncated => {
                        assert!(spans.iter().any(|span| span.offset + span.len > self.sim.size(span.file)), "{error}");
                    }
                    ErrorKind::Io => assert!(self.faults.device > 0, "{error}"),
                    _ => panic!("{error}"),
                }
                assert!(error.kind() == ErrorKind::Starved || error.path().is_some(), "{error}");
            }
        }
    }

    fn run(mut self) -> Seen {
        let requests = 1 + self.pick(150);
        let (mut asked, mut ended) = (0, false);
        for _ in 0..TURNS_MAX {
            for _ in 0..self.pick(20) {
                if asked < requests {
                    asked += 1;
                    self.ask(asked);
                }
            }
            if self.pick(4) == 0
                && asked > 0
                && let number = 1 + self.pick(asked)
                && self.asked.remove(&number).is_some()
            {
                self.seen.cancelled += 1;
                self.inbox.cancel(number);
            }
            match self.reactor.turn_for_requests(&mut self.sim) {
                Ok(turn) => assert_eq!(turn, Turn::Running),
                // The disk is full of reads that do not end.
                Err(error) => {
                    assert!(error.kind() == ErrorKind::Timeout && self.faults.stuck > 0, "{error}");
                    ended = true;
                    break;
                }
            }
            self.seen.abandoned += u64::from(self.reactor.has_abandoned());
            self.seen.full += u64::from(self.reactor.blocked.queue);
            if self.pick(100) < 60 {
                self.take();
            }
            if !self.hoards && self.pick(100) < 40 {
                self.held.clear();
            }
            if asked == requests && self.asked.is_empty() && self.answers.is_empty() {
                break;
            }
        }
        if ended {
            return self.seen;
        }
        assert!(self.asked.is_empty(), "a hang or a loss: {:?}", self.asked.keys());
        self.held.clear();
        self.check_end();
        self.seen
    }

    /// Checks that all memory was returned.
    fn check_end(&mut self) {
        for _ in 0..1000 {
            self.sim.release();
            self.reactor.turn_for_requests(&mut self.sim).unwrap();
            let requests = self.reactor.requests.as_ref().unwrap();
            if requests.live.is_empty() && !self.reactor.has_abandoned() {
                break;
            }
        }
        let requests = self.reactor.requests.as_ref().unwrap();
        assert!(requests.live.is_empty() && requests.queue.is_empty() && requests.waiting.is_none());
        assert_eq!(requests.free.len() + requests.retired.len(), self.reactor.pending.len(), "a slot is lost");
        assert_eq!((self.reactor.reads.unissued, self.reactor.reads.again.len(), self.sim.in_flight()), (0, 0, 0));
        assert!(self.reactor.outages.is_quiet());
        self.reactor.pool.collect();
        assert!(self.reactor.pool.is_whole(), "memory is lost");
    }
}

#[test]
fn every_request_is_answered_once_or_taken_back() {
    let mut all = Seen::default();
    let seeds = each_seed(SEEDS, |seed| {
        let seen = world(seed).run();
        all.failed += seen.failed;
        all.starved += seen.starved;
        all.timeouts += seen.timeouts;
        all.cancelled += seen.cancelled;
        all.overtaken += seen.overtaken;
        all.abandoned += seen.abandoned;
        all.moved += seen.moved;
        all.full += seen.full;
    });
    let Seen { failed, starved, timeouts, cancelled, overtaken, abandoned, moved, full } = all;
    let counts = [failed, starved, timeouts, cancelled, overtaken, abandoned, moved, full];
    assert!(seeds < SEEDS_THAT_SHOW_ALL || !counts.contains(&0), "{seeds} seeds have not shown everything: {counts:?}");
}

/// The request is cancelled between the failure and the next attempt.
#[test]
fn a_read_that_is_to_be_made_again_is_forgotten_with_its_request() {
    with_seed(5113, || {
        world(5113).run();
    });
}

#[test]
fn a_stuck_request_holds_nobody_up_and_ends_when_it_is_taken_back() {
    let mut world = world(0);
    let sim =
        Sim::new(Arc::clone(world.reactor.planner.dataset()), 8, 1, 0, Faults { stuck: 255, ..Faults::default() });
    world.sim = sim;
    while world.files.size(FileId(0)) == 0 {
        world.files.push(b"more", 1);
    }
    let span = Span { file: FileId(0), offset: 0, len: 1 };
    world.inbox.read(Request { id: 1, number: 1, spans: vec![span] });
    world.inbox.read(Request { id: 2, number: 2, spans: Vec::new() });
    for _ in 0..3 {
        world.reactor.turn_for_requests(&mut world.sim).unwrap();
    }
    assert_eq!(world.answers.try_recv().unwrap().id, 2);
    assert_eq!(world.sim.in_flight(), 1);
    world.inbox.cancel(1);
    for _ in 0..100 {
        world.reactor.turn_for_requests(&mut world.sim).unwrap();
    }
    assert!(world.answers.try_recv().is_err(), "no answer comes for it");
    assert_eq!(world.sim.in_flight(), 0);
    world.reactor.pool.collect();
    assert!(world.reactor.pool.is_whole());
}
