//! Reports who holds the memory, and detects two deadlocks: a consumer that holds the memory it waits for, and reads
//! that were given up and do not end.

use super::Reactor;
use crate::plan::BatchPlan;
use crate::{Error, ErrorKind};
use std::time::{Duration, Instant};

impl Reactor {
    /// Reports how many reads are in flight and, from time to time, who holds how much memory.
    pub(super) fn tell_now(&self, in_flight: usize, now: Instant) {
        // Reads that wait for a thread of the engine are not in flight yet.
        self.stats.set_in_flight(in_flight.min(self.reads.depth.now()), now);
        self.stats.look_at_memory(now, || {
            let lent = (self.pool.bytes() - self.pool.free_bytes()) as u64;
            let planned: u64 = self.pending.iter().map(|pending| pending.plan().block_bytes()).sum();
            // Memory of values that were decoded has already been returned.
            let reading = planned.min(lent);
            let units = self.decoder.as_ref().map_or(0, |decoder| decoder.memory().0 - decoder.memory().1) as u64;
            let kept = self.kept.as_ref().map_or(0, super::KeptStretches::held_bytes);
            let free = (self.pool.backed_bytes() as u64).saturating_sub(lent);
            [reading, lent - reading, units, kept, free]
        });
    }

    /// Bounds the wait of a consumer that itself holds the memory it waits for. After `starved_after` it gets an error
    /// instead of a hang. Returns the time left until then.
    pub(super) fn starving(&mut self, now: Instant) -> Duration {
        if self.is_reader() {
            return self.starving_request(now);
        }
        let waits = self.pending.is_empty() && self.out.is_empty() && self.out.receiver_waits();
        self.starvation.look(waits, now).unwrap_or_else(|| {
            let _ = self.out.try_send(Err(self.starved("batches")));
            Duration::ZERO
        })
    }

    /// The error for a consumer that waits for memory which `what` holds.
    pub(super) fn starved(&self, what: &str) -> Error {
        let of_unit = |plan: &BatchPlan| plan.load.map_or(0, |load| load.bytes);
        let wanted = self.ahead.waiting.as_ref().map_or(0, |plan| plan.block_bytes().saturating_add(of_unit(plan)));
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
                "no memory for the next of the {what} after {:?}: it needs {wanted} bytes, and {what} that were not \
                 dropped hold {held} of {total}{lost}",
                self.starvation.after()
            ),
        )
        .beside_batches()
        .with_remedy(format!("drop {what} sooner, copy out what is kept, or raise memory_limit"))
    }

    /// The error when the engine is full of reads that were given up and do not end.
    pub(super) fn no_way_to_read(&self) -> Error {
        let (reads, _) = self.timeouts.abandoned();
        Error::new(ErrorKind::Timeout, format!("{reads} reads were given up and have not ended, so no more can begin"))
            .with_remedy("the storage does not answer: see the kernel's log, or the server behind the mount")
    }
}

/// The error of a loader whose thread `name` ended without reporting an error.
pub(crate) fn thread_ended(name: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("thread {name} ended unexpectedly: this is a bug of uringload"))
        .with_remedy("please report it with the message that the thread printed")
}
