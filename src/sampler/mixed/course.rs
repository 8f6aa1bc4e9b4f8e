//! Finds the part that gives the sample at a position, and its count of earlier samples, from a table of one period.

use super::Stopping;
use super::weights::{self, PERIOD};
use crate::sampler::feistel::{SeedKey, below};
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;

/// Slots that are shuffled together: each run of this many has nearly exact proportions.
const RUN: usize = 64;

/// One slot of a period.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The part that gives the sample.
    part: u16,
    /// Slots of the same part before this one.
    rank: u16,
}

/// A period.
#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    /// Slots of each part.
    counts: Vec<u32>,
}

impl Table {
    /// Lays the slots of each part out evenly, then shuffles runs of them, so that there is no pattern to learn.
    fn new(counts: Vec<u32>, seed: u64) -> Table {
        let mut middles = Vec::with_capacity(PERIOD as usize);
        for (part, &count) in counts.iter().enumerate() {
            let count = u64::from(count);
            // Divides the period by the count and takes the middle of each such piece, in units of 2^-33 periods. The
            // lowest bits are the part, of at most 256, so that sorting the numbers sorts by middle, then by part.
            middles.extend((0..count).map(|slot| (((2 * slot + 1) << 32) / count) << 8 | part as u64));
        }
        middles.sort_unstable();
        let mut parts: Vec<u16> = middles.into_iter().map(|middle| (middle & 0xff) as u16).collect();
        let mut random = SeedKey::of_kind(seed, b"mixture\0").stream(0);
        for run in parts.chunks_mut(RUN) {
            for last in (1..run.len()).rev() {
                run.swap(last, below(last as u64 + 1, random.next_u64()) as usize);
            }
        }
        let mut ranks = vec![0; counts.len()];
        let slot = |part: u16| {
            let rank: &mut u32 = &mut ranks[usize::from(part)];
            *rank += 1;
            // A part has at most 65536 slots, so that a rank is at most 65535.
            Slot { part, rank: (*rank - 1) as u16 }
        };
        let slots = parts.into_iter().map(slot).collect();
        Table { slots, counts }
    }
}

/// A position in an epoch, and what each part had contributed by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) since: u64,
    pub(super) given: Vec<u64>,
}

/// Positions that share one period.
#[derive(Debug)]
struct Segment {
    start: Start,
    table: Table,
}

impl Segment {
    /// The slot at a position, which is not before the start, and the whole periods before it.
    fn slot(&self, position: u64) -> (usize, u64) {
        let behind = position - self.start.since;
        ((behind % PERIOD) as usize, behind / PERIOD)
    }

    /// What each part has contributed before `position`.
    fn given_at(&self, position: u64) -> Vec<u64> {
        let (slot, periods) = self.slot(position);
        let mut given = self.start.given.clone();
        for (given, &count) in given.iter_mut().zip(&self.table.counts) {
            *given += periods * u64::from(count);
        }
        for slot in &self.table.slots[..slot] {
            given[usize::from(slot.part)] += 1;
        }
        given
    }

    /// For each part that has not yet contributed `wanted`, the position after its last sample.
    fn ends(&self, wanted: &[u64]) -> Vec<Option<u128>> {
        let last = |part: usize| {
            let count = self.table.counts[part];
            let rest = wanted[part].saturating_sub(self.start.given[part]);
            (count > 0 && rest > 0).then(|| ((rest - 1) / u64::from(count), (rest - 1) % u64::from(count)))
        };
        let lasts: Vec<Option<(u64, u64)>> = (0..wanted.len()).map(last).collect();
        let mut ends = vec![None; wanted.len()];
        for (number, slot) in self.table.slots.iter().enumerate() {
            let part = usize::from(slot.part);
            if let Some((periods, rank)) = lasts[part]
                && rank == u64::from(slot.rank)
            {
                let behind = u128::from(periods) * u128::from(PERIOD) + number as u128 + 1;
                ends[part] = Some(u128::from(self.start.since) + behind);
            }
        }
        ends
    }
}

/// An epoch, or the rest of one.
#[derive(Debug)]
pub(super) struct Course {
    start: Start,
    segments: Vec<Segment>,
    /// Position at which the epoch ends.
    pub(super) len: u64,
}

impl Course {
    /// The course from `start` on, with `slots` for each part, whose passes have `lens` samples.
    ///
    /// # Errors
    /// `InvalidArgument` if an epoch has 2^64 samples or more.
    pub(super) fn new(start: Start, slots: &[u32], lens: &[u64], stopping: Stopping, seed: u64) -> Result<Course> {
        if stopping == Stopping::AllExhaustedWithoutReplacement {
            return Course::without_replacement(start, slots, lens, seed);
        }
        let is_exhausted = |(given, len): (&u64, &u64)| *len > 0 && given >= len;
        let any_exhausted = start.given.iter().zip(lens).any(is_exhausted);
        let segment = Segment { start: start.clone(), table: Table::new(slots.to_vec(), seed) };
        let ends = segment.ends(lens).into_iter().flatten();
        let end = match stopping {
            Stopping::FirstExhausted => ends.min().filter(|_| !any_exhausted),
            Stopping::After(samples) => Some(u128::from(samples)),
            _ => ends.max(),
        };
        let len = end.map_or(Ok(start.since), position)?;
        Ok(Course { start, segments: vec![segment], len })
    }

    /// When a part is exhausted, the others continue without it, with weights in the same ratios.
    fn without_replacement(start: Start, slots: &[u32], lens: &[u64], seed: u64) -> Result<Course> {
        let mut segments: Vec<Segment> = Vec::new();
        let Start { since: mut len, mut given } = start.clone();
        loop {
            let parts = slots.iter().zip(lens).zip(&given);
            let left: Vec<f64> = parts.map(|((&n, len), given)| if given < len { n.into() } else { 0.0 }).collect();
            if left.iter().all(|&weight| weight == 0.0) {
                return Ok(Course { start, segments, len });
            }
            let table = Table::new(weights::slots(&left)?, seed);
            let segment = Segment { start: Start { since: len, given }, table };
            // Some part has a weight and is not exhausted; one fewer in each iteration.
            len = segment.ends(lens).into_iter().flatten().min().map_or(Ok(len), position)?;
            given = segment.given_at(len);
            segments.push(segment);
        }
    }

    /// Where it begins.
    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    /// The part that gives the sample at `position`, and its count of earlier samples; `None` before the start.
    #[inline]
    pub(super) fn at(&self, position: u64) -> Option<(usize, u64)> {
        let segment = self.segment(position)?;
        let (slot, periods) = segment.slot(position);
        let Slot { part, rank } = segment.table.slots[slot];
        let part = usize::from(part);
        let before = segment.start.given[part] + periods * u64::from(segment.table.counts[part]);
        Some((part, before + u64::from(rank)))
    }

    /// What each part has contributed before `position`.
    pub(super) fn given_at(&self, position: u64) -> Vec<u64> {
        self.segment(position).map_or_else(|| self.start.given.clone(), |segment| segment.given_at(position))
    }

    #[inline]
    fn segment(&self, position: u64) -> Option<&Segment> {
        let begun = self.segments.partition_point(|segment| segment.start.since <= position);
        self.segments[..begun].last()
    }
}

fn position(end: u128) -> Result<u64> {
    u64::try_from(end).map_err(|_| {
        let what = "an epoch of the mixture has 2^64 samples or more";
        Error::new(ErrorKind::InvalidArgument, what).with_remedy("give the longest dataset a larger weight")
    })
}
