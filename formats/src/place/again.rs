//! Asks a store again, while a dataset is opened: nothing above does.

use std::thread::sleep;
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Failure};

/// How long a request is made again that a server throttles, or has no credentials for, and one that does not reach it.
/// The first may be asked to wait for seconds; where there is no network, a user wants to know soon.
const THROTTLED_FOR: Duration = Duration::from_secs(60);
const UNREACHED_FOR: Duration = Duration::from_secs(5);

/// The first pause between two attempts, and the longest one that the server does not ask for: each is twice as long as
/// the one before.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Asks until there is an answer, or none in time.
///
/// # Errors
/// The last failure.
pub(crate) fn again<T>(mut ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        let failure = match ask() {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let limit = match failure.class() {
            Class::Throttled | Class::Expired => THROTTLED_FOR,
            Class::Storage | Class::Foreign | Class::Corrupt => UNREACHED_FOR,
            _ => return Err(failure),
        };
        let wait = failure.after().unwrap_or_default().max(pause);
        if begun.elapsed() + wait > limit {
            return Err(failure);
        }
        sleep(wait);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
