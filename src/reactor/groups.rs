//! What the reactor keeps, in groups: how far is planned, what is issued, memory for what comes.

use super::depth::Depth;
use super::pending::Pending;
use crate::engine::{Done, Piece, Read};
use crate::plan::BatchPlan;
use std::collections::VecDeque;

/// Why no more work can start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocked {
    pub(super) memory: bool,
    pub(super) queue: bool,
    pub(super) stretches: bool,
}

/// How far is planned.
#[derive(Default)]
pub(super) struct Ahead {
    /// Batches so far.
    pub(super) planned: u64,
    /// The epoch whose batches may be planned.
    pub(super) epoch: Option<u64>,
    /// The epoch that was asked for.
    pub(super) told: Option<u64>,
    /// Planned, but still without memory.
    pub(super) waiting: Option<BatchPlan>,
}

/// What is issued, and what may be.
pub(super) struct Reads {
    pub(super) depth: Depth,
    /// Reads that may be started: the depth, plus those that wait in the engine for their turn.
    pub(super) started_most: usize,
    /// Whether the engine takes short reads in groups.
    pub(super) bundles: bool,
    /// Number of `pending[0]`, wrapping below `REPAIRS`: the upper half of its reads' tags.
    pub(super) first: u32,
    /// Index in `pending` of the first batch that has reads to issue.
    pub(super) issuing: usize,
    /// Reads that are planned and have memory, but are not issued yet.
    pub(super) unissued: usize,
    /// Reads to issue again: the rest of short reads, and reads that failed temporarily. They go first.
    pub(super) again: VecDeque<Read>,
    /// There is more to issue right away.
    pub(super) hurry: bool,
}

impl Reads {
    /// None yet, and at most so many at a time.
    pub(super) fn new(depth: Depth) -> Reads {
        let (started_most, again) = (depth.now(), VecDeque::new());
        Reads { depth, started_most, bundles: false, first: 0, issuing: 0, unissued: 0, again, hurry: false }
    }
}

/// Memory of what is over, for what comes.
#[derive(Default)]
pub(super) struct Spare {
    pub(super) batches: Vec<Pending>,
    pub(super) plans: Vec<BatchPlan>,
    pub(super) pieces: Vec<Vec<Piece>>,
    pub(super) done: Vec<Done>,
}
