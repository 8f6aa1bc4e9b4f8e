//! Detects a consumer that waits for memory which it holds itself, so that after a while it gets an error instead of a
//! hang.

use std::time::{Duration, Instant};

/// Longest interval between checks whether the consumer has begun to wait, which rings no bell.
const LOOK: Duration = Duration::from_millis(250);

/// Tracks since when a consumer has been waiting for something that it alone can release.
#[derive(Debug)]
pub(crate) struct Starvation {
    after: Duration,
    since: Option<Instant>,
}

impl Starvation {
    /// Counts a wait as starvation once it has lasted for `after`.
    pub(crate) fn new(after: Duration) -> Starvation {
        Starvation { after, since: None }
    }

    /// How long a wait must last to count as starvation.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// Ends the wait: there is something for the consumer.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Checks for starvation. `waits` says that the consumer waits and nothing is available for it. Returns the time
    /// until the next check, or `None` if the consumer has starved; the count then starts over.
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
