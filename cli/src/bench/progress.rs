//! The live progress line of a run.

use crate::progress::{Line, bar};
use crate::units;
use std::time::Instant;
use uringload::stats::{Snapshot, Stats};

/// One line on stderr.
pub struct Progress {
    line: Line,
    name: String,
    total: Option<u64>,
    start: Instant,
    before: Snapshot,
}

impl Progress {
    /// A line for a run named `name` with `total` batches, if it has an end.
    pub fn new(name: &str, total: Option<u64>) -> Progress {
        Progress { line: Line::new(), name: name.into(), total, start: Instant::now(), before: Snapshot::default() }
    }

    /// Records that a batch arrived. Only a change of the line costs a snapshot, some 20 µs.
    pub fn batch(&mut self, stats: &Stats) {
        let Progress { line, name, total, start, before } = self;
        line.show(|| {
            let snapshot = stats.snapshot();
            let live = snapshot.since(before);
            let done = match *total {
                Some(total) => bar(snapshot.count.batches, total),
                None => units::time(start.elapsed()),
            };
            let rate = units::bytes(live.bytes_per_second());
            let samples = units::count(live.samples_per_second() as u64);
            let limit = live.verdict(None).bottleneck;
            *before = snapshot;
            format!("{name} {done}  {rate}/s  {samples} samples/s  limit: {limit}")
        });
    }
}
