//! Tells the user of each step down from the best way, by Python's logging, once in a process.

use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uringload::config::{Fallback, Route};

/// How long a route is believed to have no new step.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When a loader's or reader's route is looked at next.
pub(crate) struct Said {
    next: Mutex<Instant>,
}

impl Said {
    pub(crate) fn new() -> Said {
        Said { next: Mutex::new(Instant::now() + LOOK_EVERY) }
    }

    /// Tells the route's new steps, if the last look is a while ago.
    pub(crate) fn now_and_then(&self, py: Python<'_>, route: impl FnOnce() -> Option<Route>) -> PyResult<()> {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if now < *next {
            return Ok(());
        }
        *next = now + LOOK_EVERY;
        // Python's logging may run code of the user's.
        drop(next);
        route().map_or(Ok(()), |route| steps(py, &route.fallbacks))
    }
}

/// Tells these steps. A defect is a warning; a choice, such as to read from the page cache, is not.
pub(crate) fn steps(py: Python<'_>, steps: &[Fallback]) -> PyResult<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let steps: Vec<(String, bool)> = steps.iter().map(|step| (step.to_string(), step.is_degraded())).collect();
    py.import("uringload._log")?.call_method1("steps", (steps,)).map(drop)
}
