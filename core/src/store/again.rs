//! Asks a store again, where nothing above does.

use super::{Class, Failure};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The first pause between two attempts, and the longest one that the server does not ask for: each is twice as long as
/// the one before.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause that a server is granted.
const ASKED_MAX: Duration = Duration::from_secs(30);
/// How soon a pause sees that it is over.
const STEP: Duration = Duration::from_millis(50);

/// Calls `ask` until there is an answer, or a failure that lasts. `limit` says for how long after the first attempt a
/// failure of this class is followed by another one, if at all. `watch` is called before each attempt, and several
/// times a second between them.
///
/// # Errors
/// The last failure, or that of `watch`.
pub fn again<T>(
    limit: impl Fn(Class) -> Option<Duration>,
    watch: impl Fn() -> Result<(), Failure>,
    mut ask: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        watch()?;
        let failure = match ask() {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let Some(limit) = limit(failure.class()) else { return Err(failure) };
        let until = Instant::now() + failure.after().unwrap_or_default().min(ASKED_MAX).max(pause);
        if until.duration_since(begun) > limit {
            return Err(failure);
        }
        while Instant::now() < until {
            watch()?;
            sleep(STEP.min(until.saturating_duration_since(Instant::now())));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
