//! When nothing can go on: a consumer that holds the memory it waits for, and reads that were given up and do not end.

use super::Reactor;
use crate::plan::BatchPlan;
use crate::{Error, ErrorKind};
use std::time::{Duration, Instant};

impl Reactor {
    /// Bounds the wait of a consumer that itself holds the memory it waits for. After `starved_after` it gets an error
    /// instead of a hang. Returns the time left until then.
    pub(super) fn starving(&mut self, now: Instant) -> Duration {
        let waits = self.pending.is_empty() && self.out.is_empty() && self.out.receiver_waits();
        self.starvation.look(waits, now).unwrap_or_else(|| {
            let _ = self.out.try_send(Err(self.starved()));
            Duration::ZERO
        })
    }

    fn starved(&self) -> Error {
        let of_unit = |plan: &BatchPlan| plan.load.map_or(0, |load| load.bytes);
        let wanted = self.waiting.as_ref().map_or(0, |plan| plan.block_bytes().saturating_add(of_unit(plan)));
        let (units, free) = self.decoder.as_ref().map_or((0, 0), |decoder| decoder.memory());
        let total = self.pool.bytes() + units;
        let (reads, abandoned) = self.timeouts.abandoned();
        let held = (total - self.pool.free_bytes() - free) as u64 - abandoned;
        let lost = match reads {
            0 => String::new(),
            _ => format!("; {reads} reads that were given up and have not ended hold {abandoned}"),
        };
        Error::new(
            ErrorKind::Starved,
            format!(
                "no memory for the next batch after {:?}: it needs {wanted} bytes, and batches that were not dropped \
                 hold {held} of {total}{lost}",
                self.starvation.after()
            ),
        )
        .beside_batches()
        .with_remedy("drop batches sooner, copy out what is kept, or raise memory_limit")
    }

    /// The error when the engine is full of reads that were given up and do not end.
    pub(super) fn no_way_to_read(&self) -> Error {
        let (reads, _) = self.timeouts.abandoned();
        Error::new(ErrorKind::Timeout, format!("{reads} reads were given up and have not ended, so no more can begin"))
            .with_remedy("the storage does not answer: see the kernel's log, or the server behind the mount")
    }
}
