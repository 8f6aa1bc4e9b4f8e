//! Measures the processor time that the process got, and what limited it.

use std::time::Duration;
use uringload_sys::cgroup::{self, Quota};
use uringload_sys::schedule::{self, Pressure};
use uringload_sys::system;

/// Processor time and pressure since the loader was built, or between two moments. A value is `None` if it could not be
/// read: containers may hide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processors {
    /// Processor time that the whole process used.
    pub used: Duration,
    /// Processors that it may use; 0 if unknown.
    pub available: usize,
    /// Processor time that its control groups allow it in a second; also `None` if they do not limit it.
    pub quota: Option<Duration>,
    /// Time in which its control groups kept it from running, summed over processors.
    pub throttled: Option<Duration>,
    /// Time in which something on this machine waited for a processor.
    pub processor_pressure: Option<Duration>,
    /// Time in which something on this machine waited for the storage.
    pub storage_pressure: Option<Duration>,
    /// Time in which something on this machine waited for memory.
    pub memory_pressure: Option<Duration>,
}

impl Processors {
    /// The kernel's numbers now, since it began to count.
    pub(super) fn now() -> Processors {
        let quota = cgroup::quota();
        let Pressure { processor, storage, memory } = schedule::pressure();
        Processors {
            used: system::cpu_time(),
            available: cgroup::processors_allowed(),
            quota: quota.and_then(|quota: Quota| quota.per_second),
            throttled: quota.map(|quota| quota.throttled),
            processor_pressure: processor,
            storage_pressure: storage,
            memory_pressure: memory,
        }
    }

    /// The difference from `earlier`. Nothing goes below zero: a process may move to another group.
    pub(super) fn since(&self, earlier: &Processors) -> Processors {
        let between = |now: Option<Duration>, before: Option<Duration>| {
            now.zip(before).map(|(now, before)| now.saturating_sub(before))
        };
        Processors {
            used: self.used.saturating_sub(earlier.used),
            available: self.available,
            quota: self.quota,
            throttled: between(self.throttled, earlier.throttled),
            processor_pressure: between(self.processor_pressure, earlier.processor_pressure),
            storage_pressure: between(self.storage_pressure, earlier.storage_pressure),
            memory_pressure: between(self.memory_pressure, earlier.memory_pressure),
        }
    }

    /// Processors that the process may use at a time: the available ones, or the quota if it is less. `None` if
    /// unknown.
    pub(super) fn capacity(&self) -> Option<f64> {
        let available = (self.available > 0).then_some(self.available as f64);
        let quota = self.quota.map(|quota| quota.as_secs_f64()).filter(|&quota| quota > 0.0);
        [available, quota].into_iter().flatten().min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_between_never_goes_below_zero() {
        let second = Duration::from_secs(1);
        let known = Processors { used: second, throttled: Some(second), available: 2, ..Processors::default() };
        let hidden = Processors { available: 4, ..Processors::default() };
        assert_eq!(known.since(&known).throttled, Some(Duration::ZERO));
        assert_eq!((hidden.since(&known).used, hidden.since(&known).throttled), (Duration::ZERO, None));
        assert_eq!((hidden.capacity(), Processors::default().capacity()), (Some(4.0), None));
        let quota = Processors { quota: Some(second / 2), ..known };
        assert_eq!(quota.capacity(), Some(0.5));
    }
}
