//! Asks a store again, while a dataset is opened: nothing above does.

use std::time::Duration;
use uringload_core::store::{self, Class, Failure};

/// How long a request is made again that a server throttles, or has no credentials for, and one that does not reach it.
/// The first may be asked to wait for seconds; where there is no network, a user wants to know soon.
const THROTTLED_FOR: Duration = Duration::from_secs(60);
const UNREACHED_FOR: Duration = Duration::from_secs(5);

/// Asks until there is an answer, or none in time.
///
/// # Errors
/// The last failure.
pub(crate) fn again<T>(ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let limit = |class| match class {
        Class::Throttled | Class::Expired => Some(THROTTLED_FOR),
        Class::Storage | Class::Foreign | Class::Corrupt => Some(UNREACHED_FOR),
        _ => None,
    };
    store::again(limit, || Ok(()), ask)
}
