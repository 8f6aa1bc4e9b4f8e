//! A consumer that waits for memory which it holds itself gets an error instead of a hang, after a while.

use std::time::{Duration, Instant};

/// How often it is looked whether the consumer has begun to wait, at most: nobody rings then.
const LOOK: Duration = Duration::from_millis(250);

/// Since when a consumer waits for what can only come of itself.
#[derive(Debug)]
pub(crate) struct Starvation {
    after: Duration,
    since: Option<Instant>,
}

impl Starvation {
    /// It is one when it has lasted for `after`.
    pub(crate) fn new(after: Duration) -> Starvation {
        Starvation { after, since: None }
    }

    /// How long it has to last to be one.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// There is something for the consumer.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Looks at it; `waits`: the consumer waits, and there is nothing that it could get. Returns how long to wait
    /// before the next look, or `None` where it has lasted: then it begins anew.
    pub(crate) fn look(&mut self, waits: bool, now: Instant) -> Option<Duration> {
        if !waits {
            self.end();
            return Some((self.after / 4).min(LOOK));
        }
        let since = *self.since.get_or_insert(now);
        let left = self.after.saturating_sub(now.saturating_duration_since(since));
        if left.is_zero() {
            self.end();
            return None;
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_it_has_lasted_and_begins_anew_then() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut starvation = Starvation::new(10 * second);
        assert_eq!(starvation.look(true, start), Some(10 * second));
        assert_eq!(starvation.look(true, start + 4 * second), Some(6 * second));
        assert_eq!(starvation.look(false, start + 5 * second), Some(LOOK), "what came in between ends it");
        assert_eq!(starvation.look(true, start + 9 * second), Some(10 * second));
        assert_eq!(starvation.look(true, start + 19 * second), None);
        assert_eq!(starvation.look(true, start + 19 * second), Some(10 * second));
        starvation.end();
        assert_eq!(starvation.look(true, start + 29 * second), Some(10 * second));
    }

    #[test]
    fn nobody_who_does_not_wait_starves() {
        let now = Instant::now();
        let mut starvation = Starvation::new(Duration::ZERO);
        assert_eq!(starvation.look(false, now), Some(Duration::ZERO));
        assert_eq!(starvation.look(true, now), None);
    }
}
