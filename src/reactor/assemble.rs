//! What was read becomes a [`Batch`]: samples are parsed, and their values become columns.

use super::Rules;
use crate::batch::{Batch, Columns, FailedSample};
use crate::dataset::{Dataset, Sample, SampleId, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::BatchPlan;
use crate::sampler::Digest;
use bytes::Bytes;
use uringload_sys::Part;

/// The samples of one batch, parsed. Reused from batch to batch.
#[derive(Default)]
pub(super) struct Parsed {
    /// Values of a sample: as many as the schema has fields.
    width: usize,
    /// Sample i of the plan has `values[i * width..][..width]`; one that failed has values that mean nothing.
    values: Vec<Value>,
    /// What could not be had, by index in the plan.
    failed: Vec<Missing>,
    raw: Vec<Bytes>,
    sample: Sample,
}

/// A sample that could not be had.
struct Missing {
    /// Index in the plan.
    index: usize,
    error: Error,
    /// The sample whose values are in its place.
    replaced_by: Option<SampleId>,
}

impl Parsed {
    /// Parses every sample of `plan` whose bytes lie in `blocks`; those that have an error in `failed` are not looked
    /// at.
    pub(super) fn parse(
        &mut self,
        dataset: &dyn Dataset,
        plan: &BatchPlan,
        blocks: &[Bytes],
        failed: &mut [Option<Error>],
    ) {
        self.clear();
        self.width = dataset.schema().fields.len();
        for index in 0..plan.ids.len() {
            let error = match failed.get_mut(index).and_then(Option::take) {
                Some(error) => Some(error),
                None => self.parse_one(dataset, plan, blocks, index),
            };
            match error {
                None => self.values.append(&mut self.sample.values),
                Some(error) => {
                    self.failed.push(Missing { index, error, replaced_by: None });
                    self.values.resize(self.values.len() + self.width, Value::I64(0));
                }
            }
        }
        // What is reused for the next batch must not keep this one's memory.
        self.raw.clear();
    }

    fn parse_one(&mut self, dataset: &dyn Dataset, plan: &BatchPlan, blocks: &[Bytes], index: usize) -> Option<Error> {
        self.raw.clear();
        for slice in plan.slices_of(index) {
            let start = slice.at as usize;
            let bytes = match slice.span.len as usize {
                0 => Bytes::new(),
                len => blocks[slice.block as usize].slice(start..start + len),
            };
            self.raw.push(bytes);
        }
        self.sample.values.clear();
        let id = plan.ids[index];
        match dataset.parse(id, &self.raw, &mut self.sample) {
            Err(error) => Some(error),
            Ok(()) if self.fits(&self.sample.values) => None,
            Ok(()) => Some(mismatch(id)),
        }
    }

    /// Whether the values are one for each field, each of the kind that other samples have there.
    fn fits(&self, values: &[Value]) -> bool {
        let is_missing = |index| {
            let place = self.failed.binary_search_by_key(&index, |missing| missing.index);
            place.is_ok_and(|place| self.failed[place].replaced_by.is_none())
        };
        let first = (0..self.values.len() / self.width.max(1)).find(|&index| !is_missing(index));
        let first = first.map(|index| &self.values[index * self.width..][..self.width]);
        let same = |(a, b): (&Value, &Value)| std::mem::discriminant(a) == std::mem::discriminant(b);
        values.len() == self.width && first.is_none_or(|first| first.iter().zip(values).all(same))
    }

    /// Index in the plan of the first sample that is missing and has no other in its place.
    pub(super) fn missing(&self) -> Option<usize> {
        self.failed.iter().find(|missing| missing.replaced_by.is_none()).map(|missing| missing.index)
    }

    /// Why the sample at `index` of the plan could not be had.
    pub(super) fn error_at(&self, index: usize) -> Option<Error> {
        let missing = self.failed.iter().find(|missing| missing.index == index);
        missing.map(|missing| missing.error.clone())
    }

    /// Puts the values of the sample `by` in the place of the missing one at `index` of the plan.
    ///
    /// # Errors
    /// `Corrupt` where the values are not of the kind that the others are.
    pub(super) fn replace(&mut self, index: usize, by: SampleId, values: Vec<Value>) -> Result<()> {
        if !self.fits(&values) {
            return Err(mismatch(by));
        }
        for (place, value) in self.values[index * self.width..].iter_mut().zip(values) {
            *place = value;
        }
        let missing = self.failed.iter_mut().find(|missing| missing.index == index);
        missing.into_iter().for_each(|missing| missing.replaced_by = Some(by));
        Ok(())
    }

    /// The values of the first sample, copied out of the memory that they were read into.
    ///
    /// # Errors
    /// That of the sample.
    pub(super) fn take_one(&mut self) -> Result<Vec<Value>> {
        let copy = |value: Value| match value {
            Value::Bytes(bytes) => Value::Bytes(Bytes::copy_from_slice(&bytes)),
            Value::I64(number) => Value::I64(number),
        };
        let values = self.values.drain(..).take(self.width).map(copy).collect();
        match self.failed.pop() {
            Some(Missing { error, .. }) => Err(error),
            None => Ok(values),
        }
    }

    /// The samples of `plan` that could not be had.
    pub(super) fn failed_samples(&self, plan: &BatchPlan) -> Vec<FailedSample> {
        self.failed.iter().map(|missing| missing.of(plan)).collect()
    }

    /// Number of samples that have another one in their place.
    pub(super) fn replaced(&self) -> usize {
        self.failed.iter().filter(|missing| missing.replaced_by.is_some()).count()
    }

    /// Number of samples that could not be had.
    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// The error of the first of them.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.failed.first().map(|missing| missing.error.clone())
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.failed.clear();
        self.sample.values.clear();
    }

    /// Makes the batch, and lets go of everything. `scattered`: values of a column may not lie end to end although a
    /// dense batch was laid out so.
    pub(super) fn assemble(
        &mut self,
        dataset: &dyn Dataset,
        plan: &BatchPlan,
        blocks: &[Bytes],
        rules: &Rules,
        scattered: bool,
    ) -> Batch {
        let samples = plan.ids.len();
        let mut columns = Columns::new(dataset.schema(), samples);
        let mut ids = Vec::with_capacity(samples);
        let mut padding = Vec::new();
        let padded = plan.positions.iter().any(|position| position.padding);
        let (mut digest, mut lost) = (Digest::default(), Digest::default());
        let mut failed = Vec::with_capacity(self.failed.len());
        let mut errors = self.failed.drain(..).peekable();
        let mut values = self.values.drain(..);
        for (index, &id) in plan.ids.iter().enumerate() {
            let position = plan.positions[index];
            let values = values.by_ref().take(self.width);
            let missing = errors.next_if(|missing| missing.index == index);
            if !position.padding {
                let digest = if missing.is_some() { &mut lost } else { &mut digest };
                digest.add(position.position, id, 0);
            }
            let replaced_by = missing.as_ref().and_then(|missing| missing.replaced_by);
            let is_there = missing.is_none() || replaced_by.is_some();
            failed.extend(missing.map(|missing| missing.of(plan)));
            if !is_there {
                values.for_each(drop);
                continue;
            }
            columns.push(values);
            ids.push(replaced_by.unwrap_or(id));
            if padded {
                padding.push(position.padding);
            }
        }
        Batch {
            cursor: plan.cursor,
            next: plan.next,
            ids,
            padding: padded.then_some(padding),
            columns: columns.finish(rules.dense, blocks, scattered),
            failed,
            digest,
            lost,
        }
    }
}

impl Missing {
    fn of(&self, plan: &BatchPlan) -> FailedSample {
        FailedSample {
            id: plan.ids[self.index],
            position: plan.positions[self.index].position,
            error: self.error.clone(),
            replaced_by: self.replaced_by,
        }
    }
}

fn mismatch(id: SampleId) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("sample {} was parsed into values that do not match the dataset's schema", id.0),
    )
}

/// Moves the spans of good samples end to end: down within their block where memory has the batch's order, into the
/// block set aside for it where it has not. A batch that lies so already is not touched.
pub(super) fn compact(plan: &mut BatchPlan, parts: &mut [Part], failed: &[Option<Error>]) {
    let target = plan.gather;
    let mut at = 0;
    for index in 0..plan.ids.len() {
        if failed.get(index).is_some_and(Option::is_some) {
            continue;
        }
        for slice in plan.slice_range(index) {
            let slice = &mut plan.slices[slice];
            let (start, len) = (slice.at as usize, slice.span.len as usize);
            match target {
                _ if len == 0 => {}
                None if start == at => {}
                None => parts[slice.block as usize].as_mut().copy_within(start..start + len, at),
                Some(target) => {
                    // The target is the last block, so the two sides of the split are different blocks.
                    let (from, to) = parts.split_at_mut(target as usize);
                    let from = &from[slice.block as usize].as_ref()[start..start + len];
                    to[0].as_mut()[at..at + len].copy_from_slice(from);
                    slice.block = target;
                }
            }
            slice.at = at as u64;
            at += len;
        }
    }
}
