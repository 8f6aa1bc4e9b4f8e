//! Replaces samples that cannot be read. Replacements are read one at a time, only for the oldest batch and only once
//! none of its reads is in flight. They use memory reserved for them, so no batch ever waits for memory that a later
//! one holds.

use super::{REPAIRS, Reactor};
use crate::collate::Gather;
use crate::config::OnError;
use crate::dataset::SampleId;
use crate::engine::Read;
use crate::plan::{BatchPlan, Planner};
use crate::pool::Pool;
use crate::reactor::pending::Pending;
use crate::sampler::replacement;
use crate::{Error, ErrorKind, Result};

/// Number of replacements to try for one sample before its batch fails.
const ATTEMPTS: u64 = 16;

/// A replacement sample that is being read.
#[derive(Default)]
pub(super) struct Repair {
    /// A batch of just that sample.
    one: Pending,
    spare_plan: BatchPlan,
    /// Number of the last replacement that was begun, wrapping.
    number: u32,
    trying: Option<Trying>,
}

struct Trying {
    /// Index of the missing sample in the oldest batch.
    index: usize,
    /// Number of earlier attempts.
    attempt: u64,
    id: SampleId,
}

/// State of the oldest batch.
pub(super) enum Repaired {
    /// A replacement is being read.
    Waiting,
    /// Each missing sample has been replaced, or stays missing on purpose.
    Done,
    /// A sample cannot be replaced. This error takes the place of the batch.
    Failed(Error),
}

impl Repair {
    /// Whether there are other samples to try if the one that is being read fails.
    pub(super) fn has_others(&self) -> bool {
        self.trying.as_ref().is_some_and(|trying| trying.attempt + 1 < ATTEMPTS)
    }

    /// Whether a replacement is being read.
    pub(super) fn is_busy(&self) -> bool {
        self.trying.is_some() && !self.one.is_complete()
    }

    /// The next read of the current replacement.
    pub(super) fn issue(&mut self) -> Option<Read> {
        self.one.issue(REPAIRS | self.number, &mut Vec::new())
    }

    /// The owner of the reads with that number, if they belong to the current replacement.
    pub(super) fn owns(&mut self, number: u32) -> Option<&mut Pending> {
        (number == REPAIRS | self.number).then_some(&mut self.one)
    }

    /// Begins to read a replacement for `original`.
    fn begin(
        &mut self,
        original: SampleId,
        attempt: u64,
        seed: u64,
        (planner, pool): (&mut Planner, &mut Pool),
    ) -> Result<SampleId, &'static str> {
        if attempt >= ATTEMPTS {
            return Err("the limit of attempts is reached");
        }
        let id =
            replacement(seed, original, attempt, planner.dataset().len()).ok_or("the dataset has no other sample")?;
        let mut plan = std::mem::take(&mut self.spare_plan);
        planner.plan_one(id, &mut plan);
        if !self.one.take_blocks(pool, &plan, Pool::take_reserved) {
            return Err("a read that was given up holds the memory for it");
        }
        self.spare_plan = self.one.begin(plan, 0, false).unwrap_or_default();
        self.number = self.number.wrapping_add(1) & !REPAIRS;
        Ok(id)
    }
}

impl Reactor {
    /// Advances the oldest batch, which is parsed, until every missing sample is replaced or a read is pending.
    pub(super) fn repair(&mut self) -> Result<Repaired> {
        let Some(batch) = self.pending.front_mut() else { return Ok(Repaired::Done) };
        if self.rules.on_error != OnError::Replace || !batch.is_replaceable() {
            return Ok(Repaired::Done);
        }
        loop {
            let (index, attempt, last) = match self.repair.trying.take() {
                None => match batch.missing() {
                    None => return Ok(Repaired::Done),
                    Some(index) => (index, 0, None),
                },
                Some(trying) if !self.repair.one.is_complete() => {
                    self.repair.trying = Some(trying);
                    return Ok(Repaired::Waiting);
                }
                Some(Trying { index, attempt, id }) => {
                    let one = &mut self.repair.one;
                    let of = (&**self.planner.dataset(), &**self.planner.collation(), Gather::Nowhere);
                    one.parse(of, (Vec::new(), None), &self.pool, &self.stats)?;
                    let read = one.take_one();
                    // The sample was copied, so its memory is free for the next one.
                    self.pool.collect();
                    let read = read.and_then(|mut values| {
                        if let Some(stage) = self.stage.as_mut().filter(|stage| stage.maps().is_some()) {
                            let collation = self.planner.collation();
                            batch.make_replacement((index, id), &mut values, collation, stage, &mut self.clock)?;
                        }
                        Ok(values)
                    });
                    match read.and_then(|values| batch.replace(index, id, values)) {
                        Ok(()) => continue,
                        Err(error) => (index, attempt + 1, Some((id, error))),
                    }
                }
            };
            let (original, error) = batch.missing_at(index);
            match self.repair.begin(original, attempt, self.rules.seed, (&mut self.planner, &mut self.pool)) {
                Ok(id) => self.repair.trying = Some(Trying { index, attempt, id }),
                Err(why) => return Ok(Repaired::Failed(irreplaceable(original, error, attempt, why, last))),
            }
        }
    }
}

/// The error that takes the place of a batch when one of its samples cannot be replaced.
fn irreplaceable(
    original: SampleId,
    error: Option<Error>,
    tried: u64,
    why: &str,
    last: Option<(SampleId, Error)>,
) -> Error {
    let tried = match &last {
        Some((id, error)) => format!("{tried} failed, the last of them sample {} ({})", id.0, error.headline()),
        None => format!("{tried} failed"),
    };
    let what = format!("no other sample could take the place of sample {}: {why}, {tried}", original.0);
    let Some(error) = error else { return Error::new(ErrorKind::Internal, what) };
    let remedy = error.remedy().or(last.as_ref().and_then(|(_, error)| error.remedy())).map(str::to_owned);
    let irreplaceable = Error::new(error.kind(), what);
    match remedy {
        Some(remedy) if error.remedy().is_none() => irreplaceable.with_source(error).with_remedy(remedy),
        _ => irreplaceable.with_source(error),
    }
}
