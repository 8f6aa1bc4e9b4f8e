//! What was read becomes a [`Batch`]: samples are parsed, and their values become columns.

use super::Rules;
use crate::batch::{Batch, Columns, FailedSample};
use crate::dataset::{Dataset, Sample, Value};
use crate::error::{Error, ErrorKind};
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
    failed: Vec<(usize, Error)>,
    raw: Vec<Bytes>,
    sample: Sample,
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
                    self.failed.push((index, error));
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
            Ok(()) if self.fits() => None,
            Ok(()) => Some(Error::new(
                ErrorKind::Corrupt,
                format!("sample {} was parsed into values that do not match the dataset's schema", id.0),
            )),
        }
    }

    /// Whether the sample has a value for each field, each of the kind that the samples before it have.
    fn fits(&self) -> bool {
        let first = (0..self.values.len() / self.width.max(1))
            .find(|&index| self.failed.binary_search_by_key(&index, |failed| failed.0).is_err());
        let first = first.map(|index| &self.values[index * self.width..][..self.width]);
        let same = |(a, b): (&Value, &Value)| std::mem::discriminant(a) == std::mem::discriminant(b);
        self.sample.values.len() == self.width
            && first.is_none_or(|first| first.iter().zip(&self.sample.values).all(same))
    }

    /// Number of samples that could not be had.
    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// The error of the first of them.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.failed.first().map(|(_, error)| error.clone())
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.failed.clear();
        self.sample.values.clear();
    }

    /// Makes the batch, and lets go of everything.
    pub(super) fn assemble(
        &mut self,
        dataset: &dyn Dataset,
        plan: &BatchPlan,
        blocks: &[Bytes],
        rules: &Rules,
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
            let start = plan.pieces.get(index).map_or(0, |piece| piece.start);
            let values = values.by_ref().take(self.width);
            if let Some((_, error)) = errors.next_if(|error| error.0 == index) {
                values.for_each(drop);
                if !position.padding {
                    lost.add(position.position, id, start);
                }
                failed.push(FailedSample { id, position: position.position, error, replaced_by: None });
                continue;
            }
            if !position.padding {
                digest.add(position.position, id, start);
            }
            columns.push(values);
            ids.push(id);
            if padded {
                padding.push(position.padding);
            }
        }
        Batch {
            cursor: plan.cursor,
            next: plan.next,
            ids,
            padding: padded.then_some(padding),
            columns: columns.finish(rules.dense, blocks),
            failed,
            digest,
            lost,
        }
    }
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
