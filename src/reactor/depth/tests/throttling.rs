//! The controller on simulated servers that refuse what is too much.

use super::*;

/// What an event in the future is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answered {
        began: Instant,
    },
    Refused,
    /// The pause of a refused read is over.
    Due,
}

/// A server that answers so many requests at a time and refuses all others at once, and a reader that asks again after
/// a pause, during which the read counts as in flight.
struct Server {
    depth: Depth,
    limit: usize,
    latency: Duration,
    /// What it asks a refused read to wait.
    pause: Duration,
    random: Xoshiro256PlusPlus,
    start: Instant,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    number: u64,
    at_once: usize,
    answered: usize,
    refused: usize,
    depths: Vec<usize>,
}

impl Server {
    fn new(limit: usize, latency: Duration, seed: u64) -> Server {
        let now = Instant::now();
        Server {
            depth: Depth::new(Width { start: 32, most: 512, fixed: false }, READ_BYTES),
            limit,
            latency,
            pause: Duration::ZERO,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            start: now,
            now,
            events: BinaryHeap::new(),
            number: 0,
            at_once: 0,
            answered: 0,
            refused: 0,
            depths: Vec::new(),
        }
    }

    fn push(&mut self, after: Duration, event: Event) {
        self.number += 1;
        self.events.push(Reverse((self.now + after, self.number, event)));
    }

    fn ask(&mut self) {
        if self.at_once >= self.limit {
            return self.push(Duration::from_micros(200), Event::Refused);
        }
        self.at_once += 1;
        let share = 0.7 + 0.6 * f64::from(self.random.next_u32()) / f64::from(u32::MAX);
        self.push(self.latency.mul_f64(share), Event::Answered { began: self.now });
    }

    /// Until so many seconds after the start: the answered and the refused of this time, in a second.
    fn until(&mut self, seconds: u64) -> (f64, f64) {
        let (before, since) = ((self.answered, self.refused), self.now);
        while self.now < self.start + Duration::from_secs(seconds) {
            while self.events.len() < self.depth.now() {
                self.ask();
            }
            self.depth.started(true);
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            let decision = match event {
                Event::Answered { began } => {
                    self.at_once -= 1;
                    self.answered += 1;
                    self.depth.done(Ended::new(110_000, Joined::default(), self.now - began));
                    None
                }
                Event::Refused => {
                    self.refused += 1;
                    let pause = self.pause + Duration::from_micros(5000 + self.random.next_u64() % 10_000);
                    self.push(pause, Event::Due);
                    self.depth.throttled(self.pause)
                }
                Event::Due => {
                    self.ask();
                    None
                }
            };
            let looked = self.depth.look(self.now);
            self.depths.extend(decision.or(looked).map(|_| self.depth.now()));
        }
        let time = (self.now - since).as_secs_f64();
        ((self.answered - before.0) as f64 / time, (self.refused - before.1) as f64 / time)
    }
}

#[test]
fn a_server_that_refuses_gets_what_it_grants() {
    for (limit, millis) in [(64, 5), (64, 30), (20, 10), (100, 20), (300, 30), (33, 8)] {
        for seed in 0..4 {
            let mut server = Server::new(limit, Duration::from_millis(millis), seed);
            server.until(5);
            let (answered, refused) = server.until(15);
            let best = limit as f64 / Duration::from_millis(millis).as_secs_f64();
            let (share, refused) = (answered / best, refused / (answered + refused));
            let told = format!("limit {limit}, {millis} ms: {share:.3} of it, {refused:.4} refused");
            assert!(share >= 0.9 && refused <= 0.02, "{told}: {:?}", server.depths);
        }
    }
}

/// A refused read delays its batch, and those behind it, for as long as the server asks.
#[test]
fn trials_take_a_small_share_of_the_time_where_a_pause_is_long() {
    for seed in 0..4 {
        let mut server = Server::new(64, Duration::from_millis(5), seed);
        server.pause = Duration::from_secs(1);
        server.until(5);
        server.depths.clear();
        let (answered, refused) = server.until(65);
        let told = format!("{answered} answered, {refused} refused a second: {:?}", server.depths);
        // Up and down again.
        assert!(server.depths.len() <= 8 && answered >= 0.9 * 12_800.0, "{told}");
    }
}

#[test]
fn what_a_server_grants_may_change() {
    let mut server = Server::new(200, Duration::from_millis(10), 1);
    server.until(5);
    server.limit = 40;
    server.until(10);
    let (answered, refused) = server.until(20);
    let told = format!("{answered} {refused} {:?}", server.depths);
    assert!(answered >= 0.9 * 4000.0 && refused <= 0.02 * answered, "less: {told}");
    server.limit = 200;
    server.until(50);
    let (answered, refused) = server.until(60);
    let told = format!("{answered} {refused} {:?}", server.depths);
    assert!(answered >= 0.9 * 20_000.0 && refused <= 0.02 * answered, "more again: {told}");
}

#[test]
fn a_few_refusals_move_nothing() {
    let mut depth = Depth::new(adaptive(64), READ_BYTES);
    let start = Instant::now();
    // It looks when a read has ended, and so begins to measure.
    depth.done(Ended::new(1, Joined::default(), Duration::ZERO));
    assert_eq!((depth.look(start), depth.throttled(Duration::ZERO)), (None, None));
    (0..99).for_each(|_| depth.done(Ended::new(1, Joined::default(), Duration::ZERO)));
    assert_eq!((depth.throttled(Duration::ZERO), depth.now()), (None, 64), "2 of 101");
    let decision = (0..99).find_map(|_| depth.throttled(Duration::ZERO)).unwrap();
    assert_eq!((decision.from, decision.to, decision.reason), (64, 62, "the server asks for fewer requests"));
    assert_eq!(depth.throttled(Duration::ZERO), None, "once for all reads of a depth");
}
