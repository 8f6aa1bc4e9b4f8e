//! What is known of a store's server: what it was asked and gave, how soon it answers, and how many second attempts
//! may be made.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use uringload_core::store::Counts;

/// Bounds of the silence after which another attempt is made. The longer one holds until an answer was measured.
const PATIENCE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_MAX: Duration = Duration::from_secs(2);
/// The patience, in multiples of the time within which 95 % of answers begin.
const PATIENCE: u64 = 2;
/// The first time that is measured counts as often: it may be a quick one.
const FIRST: u64 = 4;
/// How far the 95th percentile walks, in parts of itself: 19 up for a time above it, 1 down for one below.
const WALK: u64 = 200;
const UP: u64 = 19;

/// Bodies in which less than this comes in a second drip, if at least this many times as much is usual.
const DRIP_BYTES: f64 = 65_536.0;
const USUAL: f64 = 100.0;
/// Shorter bodies do not tell how fast bodies are.
const SPEED_BYTES: u64 = 64 << 10;
/// How far the median speed walks, in parts of itself.
const SPEED_WALK: u64 = 32;

/// What a second attempt costs, where each request earns 1: 2 % of the requests may have one.
const HEDGE: i64 = 50;
/// The attempts that are there at first, and the most that are saved.
const HEDGES_FIRST: i64 = 16;
const HEDGES_MAX: i64 = 64;

/// The server of a store.
#[derive(Debug)]
pub struct Endpoint {
    requests: AtomicU64,
    lists: AtomicU64,
    hedges: AtomicU64,
    hedges_won: AtomicU64,
    throttled: AtomicU64,
    connections: AtomicU64,
    bytes: AtomicU64,
    /// The time within which 95 % of answers begin, in nanoseconds; 0 until one was measured.
    first_byte: AtomicU64,
    /// The median speed of bodies in bytes a second; 0 until one was measured.
    speed: AtomicU64,
    tokens: AtomicI64,
}

impl Default for Endpoint {
    fn default() -> Endpoint {
        Endpoint {
            requests: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            hedges: AtomicU64::new(0),
            hedges_won: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            first_byte: AtomicU64::new(0),
            speed: AtomicU64::new(0),
            tokens: AtomicI64::new(HEDGES_FIRST * HEDGE),
        }
    }
}

// None of these words orders others. A step of a walk that two threads take at once counts once.
impl Endpoint {
    /// Counts a request that is sent, whoever makes it.
    pub fn note_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.tokens.load(Ordering::Relaxed) < HEDGES_MAX * HEDGE {
            self.tokens.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says of one of the requests that it lists.
    pub fn note_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts an answer that asks for fewer requests. What was saved for second attempts is lost: they are requests.
    pub fn note_throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_min(0, Ordering::Relaxed);
    }

    /// Whether a second attempt may be made; it is counted.
    pub fn may_hedge(&self) -> bool {
        if self.tokens.fetch_sub(HEDGE, Ordering::Relaxed) < HEDGE {
            self.tokens.fetch_add(HEDGE, Ordering::Relaxed);
            return false;
        }
        self.hedges.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts a second attempt that brought the next byte. It gets back what it cost: where many first attempts
    /// stall, that share of second ones has to be made.
    pub fn note_won(&self) {
        self.hedges_won.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(HEDGE, Ordering::Relaxed);
    }

    /// How long nothing may come before another attempt is made.
    pub fn patience(&self) -> Duration {
        match self.first_byte.load(Ordering::Relaxed) {
            0 => PATIENCE_MAX,
            nanos => Duration::from_nanos(nanos.saturating_mul(PATIENCE)).clamp(PATIENCE_MIN, PATIENCE_MAX),
        }
    }

    /// Learns how soon an answer began to a request that had one attempt alone.
    pub fn learn_first_byte(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let now = self.first_byte.load(Ordering::Relaxed);
        let next = match now {
            0 => time.saturating_mul(FIRST),
            now if time > now => now.saturating_add((now / WALK).max(1).saturating_mul(UP)),
            now => now - now / WALK,
        };
        self.first_byte.store(next, Ordering::Relaxed);
    }

    /// Learns how long a body took that came without a stall.
    pub fn learn_speed(&self, bytes: u64, time: Duration) {
        if bytes < SPEED_BYTES {
            return;
        }
        let speed = (bytes as f64 / time.as_secs_f64().max(1e-6)) as u64;
        let now = self.speed.load(Ordering::Relaxed);
        let step = now / SPEED_WALK;
        let next = match now {
            0 => speed,
            now if speed > now => now.saturating_add(step.max(1)),
            now => now - step,
        };
        self.speed.store(next, Ordering::Relaxed);
    }

    /// Whether a body of which that much came in this time is hardly moving, while others move.
    pub fn drips(&self, bytes: u64, time: Duration) -> bool {
        let speed = bytes as f64 / time.as_secs_f64().max(1e-6);
        speed < DRIP_BYTES && self.speed.load(Ordering::Relaxed) as f64 >= USUAL * speed.max(1.0)
    }

    /// What was counted so far; `name` is the server's.
    pub fn counts(&self, name: String) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            endpoint: name,
            requests: of(&self.requests),
            lists: of(&self.lists),
            hedges: of(&self.hedges),
            hedges_won: of(&self.hedges_won),
            throttled: of(&self.throttled),
            connections: of(&self.connections),
            bytes: of(&self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn the_patience_is_twice_what_nineteen_of_twenty_take() {
        let endpoint = Endpoint::default();
        assert_eq!(endpoint.patience(), PATIENCE_MAX);
        // Evenly from 0 to 100 ms: 95 of 100 take 95 ms.
        let mut draws = Draws::new(1);
        for _ in 0..20_000 {
            endpoint.learn_first_byte(Duration::from_micros(draws.below(0..=99_999) as u64));
        }
        let patience = endpoint.patience().as_millis();
        assert!((150..=230).contains(&patience), "{patience} ms");
        (0..5000).for_each(|_| endpoint.learn_first_byte(Duration::from_micros(1)));
        assert_eq!(endpoint.patience(), PATIENCE_MIN);
        (0..500).for_each(|_| endpoint.learn_first_byte(Duration::MAX));
        assert_eq!(endpoint.patience(), PATIENCE_MAX);
    }

    #[test]
    fn two_of_a_hundred_requests_have_a_second_attempt_and_those_that_win_are_free() {
        let endpoint = Endpoint::default();
        let made = (0..100).filter(|_| endpoint.may_hedge()).count() as i64;
        assert_eq!(made, HEDGES_FIRST);
        let made = (0..10_000).filter(|_| {
            endpoint.note_request();
            endpoint.may_hedge()
        });
        assert_eq!(made.count(), 200);
        (0..HEDGE).for_each(|_| endpoint.note_request());
        for _ in 0..1000 {
            assert!(endpoint.may_hedge(), "the one before has won");
            endpoint.note_won();
        }
        (0..1_000_000).for_each(|_| endpoint.note_request());
        let made = (0..1000).filter(|_| endpoint.may_hedge()).count() as i64;
        assert_eq!(made, HEDGES_MAX, "what is saved has a bound");
        endpoint.note_won();
        endpoint.note_throttled();
        assert!(!endpoint.may_hedge(), "a server that asks for fewer requests gets fewer");
        let counts = endpoint.counts("h".to_owned());
        assert_eq!((counts.hedges, counts.hedges_won, counts.throttled), (16 + 200 + 1000 + 64, 1001, 1));
    }

    #[test]
    fn a_slow_link_is_no_drip() {
        let endpoint = Endpoint::default();
        let second = Duration::from_secs(1);
        assert!(!endpoint.drips(10, second), "nothing is known of others");
        (0..100).for_each(|_| endpoint.learn_speed(70_000, second));
        assert!(!endpoint.drips(10_000, second), "others are 7 times as fast");
        assert!(endpoint.drips(100, second));
        (0..1000).for_each(|_| endpoint.learn_speed(8 << 20, Duration::from_millis(10)));
        assert!(endpoint.drips(60_000, second) && !endpoint.drips(70_000, second));
    }
}
