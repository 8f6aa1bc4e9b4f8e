//! The clock of a thread that runs the user's own Python: its time belongs to the loader's statistics and verdict.

use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use uringload::stats::Stats;
use uringload::stats::{Clock as Times, Doing, Role};

/// Records where a transform thread's time goes. It waits for input until it is told otherwise, and ends when it is
/// dropped.
#[pyclass(frozen)]
pub(crate) struct Clock {
    times: Mutex<Times>,
    stats: Arc<Stats>,
}

impl Clock {
    /// A clock for one thread, which counts in `stats`.
    pub(crate) fn new(stats: &Arc<Stats>) -> Clock {
        Clock { times: Mutex::new(stats.clock(Role::Transform, Doing::WaitInput)), stats: Arc::clone(stats) }
    }

    fn switch(&self, doing: Doing) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).switch(doing);
    }
}

#[pymethods]
impl Clock {
    /// From now on the thread transforms samples or a batch.
    fn transform(&self) {
        self.switch(Doing::Transform);
    }

    /// From now on the thread collates.
    fn collate(&self) {
        self.switch(Doing::Collate);
    }

    /// From now on the thread waits for its next batch. The last one had this many samples, and took this many
    /// nanoseconds of processor time.
    fn wait(&self, samples: u64, cpu_nanos: u64) {
        self.switch(Doing::WaitInput);
        self.stats.count.samples_transformed.add(samples);
        self.stats.count.transform_cpu_nanos.add(cpu_nanos);
    }
}
