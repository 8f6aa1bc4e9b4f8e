//! What a loader decided about how it reads: each change of a knob, with the figures that led to it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many decisions are kept: the last ones. A loader that has settled makes few.
const KEPT: usize = 256;

/// A setting that the loader changes while it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Knob {
    /// Reads in flight at most.
    Depth,
    /// Length of the longest read, in bytes.
    ReadBytes,
    /// Longest gap between samples that a read spans, in bytes.
    Gap,
    /// Whether shuffled windows or shards are read whole (1) or sample by sample (0).
    Whole,
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Knob::Depth => "queue_depth",
            Knob::ReadBytes => "read_bytes",
            Knob::Gap => "coalesce_gap",
            Knob::Whole => "read_whole",
        })
    }
}

/// A change of a knob. `Display` is one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Time since the loader was built.
    pub after: Duration,
    /// What was changed.
    pub knob: Knob,
    /// The old value.
    pub from: u64,
    /// The new value.
    pub to: u64,
    /// Reads that ended in a second, as measured just before; 0 before the first measurement.
    pub reads_per_second: u64,
    /// Bytes that were read in a second.
    pub bytes_per_second: u64,
    /// Mean time that a read took.
    pub latency: Duration,
    /// Price of a storage operation, in bytes that are read in the same time: measured by a trial of a gap or of whole
    /// windows; otherwise 0.
    pub operation_bytes: u64,
    /// The reason.
    pub reason: &'static str,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { after, knob, from, to, reads_per_second, bytes_per_second, latency, reason, operation_bytes } =
            self;
        let (seconds, megabytes) = (after.as_secs_f64(), *bytes_per_second as f64 / 1e6);
        write!(
            f,
            "{seconds:.3} s: {knob} {from} -> {to}: {reason} ({reads_per_second} reads/s, {megabytes:.1} MB/s, a read \
             {latency:.1?})"
        )?;
        match operation_bytes {
            0 => Ok(()),
            _ => write!(f, ": an operation costs as much as {} KiB", operation_bytes >> 10),
        }
    }
}

/// The last decisions, oldest first.
#[derive(Debug, Default)]
pub(super) struct Decisions(Mutex<VecDeque<Decision>>);

impl Decisions {
    pub(super) fn add(&self, decision: Decision) {
        let mut decisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() == KEPT {
            decisions.pop_front();
        }
        decisions.push_back(decision);
    }

    pub(super) fn all(&self) -> Vec<Decision> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(to: u64) -> Decision {
        let latency = Duration::from_micros(19_970);
        let (reads_per_second, bytes_per_second) = (3205, 1_680_343_040);
        let after = Duration::from_millis(72);
        Decision {
            after,
            knob: Knob::Depth,
            from: 64,
            to,
            reads_per_second,
            bytes_per_second,
            latency,
            operation_bytes: 0,
            reason: "a trial",
        }
    }

    #[test]
    fn a_decision_is_one_line_and_the_last_ones_are_kept() {
        let line = "0.072 s: queue_depth 64 -> 128: a trial (3205 reads/s, 1680.3 MB/s, a read 20.0ms)";
        assert_eq!(decision(128).to_string(), line);
        let measured = Decision { knob: Knob::Gap, operation_bytes: 800_000, ..decision(65_536) };
        assert!(measured.to_string().ends_with(": an operation costs as much as 781 KiB"), "{measured}");
        let decisions = Decisions::default();
        (0..1000).for_each(|to| decisions.add(decision(to)));
        let all: Vec<u64> = decisions.all().iter().map(|decision| decision.to).collect();
        assert_eq!(all, (1000 - KEPT as u64..1000).collect::<Vec<_>>());
    }
}
