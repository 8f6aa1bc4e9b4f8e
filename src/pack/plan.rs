//! Assigns samples to shards: a function of the source's index and the options, so that shards can be written in any
//! order, by any number of threads, and in several runs.

use super::header::BLOCK_BYTES;
use super::layout::{Member, arrange, round_up};
use super::names::{Keys, Names};
use super::{PackOptions, UNIT_BYTES};
use crate::dataset::inspect::COLUMNS_MAX;
use crate::dataset::{Dataset, SampleId, Span};
use crate::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::ops::Range;

/// The plan.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The samples of the source that each shard has, in order.
    pub(super) shards: Vec<Range<u64>>,
    /// Samples in the shards: fewer than the source's if several of its samples make one.
    pub(super) samples: u64,
    /// Bytes of all shards, as known from the index.
    bytes: u64,
}

/// Archives of this many times the bytes of their values, and this many bytes more, are mostly headers.
const MOSTLY_HEADERS: (f64, u64) = (1.3, 1 << 20);

/// Blocks of zeros that end an archive.
pub(super) const END_BYTES: u64 = 2 * BLOCK_BYTES;

/// Plans shards that are as large as the options allow.
///
/// # Errors
/// `InvalidArgument` for keys that come twice in a shard, for names that are not keys, and for more fields in a shard
/// than an index can hold.
pub(super) fn plan(dataset: &dyn Dataset, names: &Names, options: &PackOptions) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut shard = Shard::default();
    let (mut key, mut members, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    let mut id = 0;
    while id < dataset.len() {
        let first = id;
        let mut guessed = None;
        key.clear();
        members.clear();
        names.key(SampleId(first), &mut key);
        loop {
            let before = members.len();
            let is_known = names.members(SampleId(id), id == first, &mut members);
            if !is_known {
                let own = estimated(dataset, SampleId(id), members.len() - before, &mut spans);
                guessed = Some(guessed.unwrap_or(0_u64).saturating_add(own));
            }
            id += 1;
            if id == dataset.len() || names.begins(id) {
                break;
            }
        }
        names.finish(&key, &mut members)?;
        let mut end = shard.end_with(&mut members, guessed, options.align);
        let is_full = options.shard_samples.is_some_and(|most| shard.samples >= most);
        if shard.samples > 0 && (is_full || whole(end) > options.shard_bytes) {
            plan.close(&mut shard, first);
            end = shard.end_with(&mut members, guessed, options.align);
        }
        shard.end = end;
        shard.samples += 1;
        if names.keys() == Keys::Source && !shard.keys.insert(key.clone()) {
            return Err(twice(&key, first, plan.shards.len()));
        }
        shard.add_fields(&members)?;
    }
    plan.close(&mut shard, id);
    Ok(plan)
}

impl Plan {
    /// Shards of whole samples of the source.
    pub(super) fn of(shards: Vec<Range<u64>>) -> Plan {
        let samples = shards.last().map_or(0, |last| last.end);
        Plan { shards, samples, bytes: 0 }
    }

    /// Whether a denser layout pays for values of this many bytes, if each of the source's samples is one.
    pub(super) fn is_mostly_headers(&self, values: u64, samples: u64) -> bool {
        let (share, more) = MOSTLY_HEADERS;
        self.samples == samples && self.bytes as f64 > share * values as f64 && self.bytes > values.saturating_add(more)
    }

    fn close(&mut self, shard: &mut Shard, end: u64) {
        let start = self.shards.last().map_or(0, |last| last.end);
        self.shards.push(start..end);
        self.samples += shard.samples;
        self.bytes = self.bytes.saturating_add(whole(shard.end));
        *shard = Shard::default();
    }
}

/// The shard that is being planned.
#[derive(Default)]
struct Shard {
    end: u64,
    samples: u64,
    keys: HashSet<Vec<u8>>,
    fields: HashSet<Vec<u8>>,
}

impl Shard {
    /// Where it would end with these members.
    fn end_with(&self, members: &mut [Member], guessed: Option<u64>, align: u64) -> u64 {
        match guessed {
            Some(bytes) => self.end.saturating_add(bytes),
            None => arrange(align, self.end, members),
        }
    }

    fn add_fields(&mut self, members: &[Member]) -> Result<()> {
        for member in members {
            if !self.fields.contains(&member.field) {
                self.fields.insert(member.field.clone());
            }
        }
        if self.fields.len() <= COLUMNS_MAX {
            return Ok(());
        }
        let what = format!(
            "a shard would have more than {COLUMNS_MAX} different fields (what follows the first dot of a name)"
        );
        let remedy = "rename files whose names have dots within, or call samples by number: keys=numbers \
                      (--keys numbers)";
        Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy))
    }
}

/// Bytes of an archive whose last member ends there.
pub(super) fn whole(end: u64) -> u64 {
    round_up(end.saturating_add(END_BYTES), UNIT_BYTES)
}

/// Estimates the bytes of a sample if the lengths of its values are known only by reading: the bytes read for it or, if
/// it is cut from units, the mean of all samples; plus the headers of its members, one of which is padded.
fn estimated(dataset: &dyn Dataset, id: SampleId, members: usize, spans: &mut Vec<Span>) -> u64 {
    spans.clear();
    let values = match dataset.units() {
        Some(_) => dataset.bytes() / dataset.len().max(1),
        None => {
            dataset.spans(id, spans);
            spans.iter().fold(0, |sum: u64, span| sum.saturating_add(span.len))
        }
    };
    // Half a block at the end of each member is empty.
    values.saturating_add(members as u64 * (BLOCK_BYTES + BLOCK_BYTES / 2)).saturating_add(UNIT_BYTES / 2)
}

fn twice(key: &[u8], id: u64, shard: usize) -> Error {
    let key = String::from_utf8_lossy(key);
    let what = format!("sample {id} has the key {key:?}, which shard {shard} has already");
    Error::new(ErrorKind::InvalidArgument, what)
        .with_remedy("rename it, or call samples by number: keys=numbers (--keys numbers)")
}
