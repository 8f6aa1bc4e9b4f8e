//! Turns what was read into a [`Batch`]: parses samples and builds columns from their values.

use super::lost::{bytes_of, lost};
use super::stretches::KeptStretches;
use crate::batch::{Batch, FailedSample, Made, Samples, index_column, key_column, whole_column};
use crate::collate::Collation;
use crate::dataset::{DType, Dataset, Field, Sample, SampleId, Schema, Shape, Value};
use crate::guard;
use crate::plan::{BatchPlan, KEPT, SMALL_SPAN_BYTES, Slice};
use crate::pool::Pool;
use crate::sampler::{Digest, Piece};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use uringload_sys::Part;

/// The parsed samples of one batch. Reused from batch to batch.
#[derive(Default)]
pub(super) struct Parsed {
    /// Values per sample: the number of fields in the schema.
    width: usize,
    /// Sample i of the plan has `values[i * width..][..width]`. The values of a failed sample are meaningless.
    values: Vec<Value>,
    /// Samples that failed, ordered by index in the plan.
    failed: Vec<Lacking>,
    /// Plan indices of the samples whose values threads have not returned yet.
    held: Vec<usize>,
    /// Plan indices of the samples that are in the batch.
    good: Vec<u32>,
    raw: Vec<Bytes>,
    sample: Sample,
    /// The batch's only column, if its values lie end to end and need no parsing.
    whole: Option<Bytes>,
}

/// The memory that samples are parsed from: blocks that were read, decoded units, and stretches that are kept.
type Sources<'a> = (&'a [Bytes], &'a [Result<Bytes>], Option<&'a KeptStretches>);

/// A sample that failed.
struct Lacking {
    /// Index in the plan.
    index: usize,
    error: Error,
    /// The sample whose values replace it.
    replaced_by: Option<SampleId>,
}

impl Parsed {
    /// Parses every sample of `plan` from `blocks` and from its `units`. Skips samples that already have an error in
    /// `failed`.
    pub(super) fn parse(
        &mut self,
        dataset: &dyn Dataset,
        collation: &Collation,
        plan: &BatchPlan,
        sources: Sources<'_>,
        failed: &mut [Option<Error>],
    ) {
        self.clear();
        self.width = dataset.schema().fields.len();
        for index in 0..plan.batch.ids.len() {
            let error = match failed.get_mut(index).and_then(Option::take) {
                Some(error) => Some(error),
                None if plan.is_prepared(index) => {
                    self.held.push(index);
                    self.values.resize(self.values.len() + self.width, Value::Bytes(Bytes::new()));
                    continue;
                }
                None => self.parse_one(dataset, collation, plan, sources, index),
            };
            match error {
                None => self.values.append(&mut self.sample.values),
                Some(error) => {
                    self.failed.push(Lacking { index, error, replaced_by: None });
                    self.values.resize(self.values.len() + self.width, Value::I64(0));
                }
            }
        }
        // State reused for the next batch must not keep this batch's memory alive.
        self.raw.clear();
    }

    /// Takes the values of a plain batch without parsing, if they lie end to end in `blocks`. Returns false if not.
    pub(super) fn take_whole(&mut self, plan: &BatchPlan, blocks: &[Bytes]) -> bool {
        self.clear();
        let (Some(first), Some(last)) = (plan.slices.first(), plan.slices.last()) else { return false };
        let (start, end) = (first.at as usize, (last.at + last.span.len) as usize);
        let value_bytes = first.span.len;
        let is_one = |(slice, at): (&Slice, u64)| slice.block == 0 && slice.at == at;
        let wanted = (0..plan.slices.len() as u64).map(|index| first.at + index * value_bytes);
        let lies_end_to_end = plan.slices.iter().zip(wanted).all(is_one);
        self.whole = blocks.first().filter(|block| lies_end_to_end && end <= block.len()).map(|b| b.slice(start..end));
        self.whole.is_some()
    }

    fn parse_one(
        &mut self,
        dataset: &dyn Dataset,
        collation: &Collation,
        plan: &BatchPlan,
        (blocks, units, kept): Sources<'_>,
        index: usize,
    ) -> Option<Error> {
        self.raw.clear();
        for slice in plan.slices_of(index) {
            if !slice.is_kept() {
                self.raw.push(bytes_of(slice, blocks));
                continue;
            }
            match kept.and_then(|kept| kept.bytes(&slice.span)) {
                // A copy belongs to the batch alone, and keeps no stretch in memory.
                Some(bytes) if slice.span.len <= SMALL_SPAN_BYTES => self.raw.push(Bytes::copy_from_slice(&bytes)),
                Some(bytes) => self.raw.push(bytes),
                None => return Some(not_kept()),
            }
        }
        for &unit in plan.units_of(index) {
            match &units[unit as usize] {
                Ok(unit) => self.raw.push(unit.clone()),
                Err(error) => return Some(error.clone()),
            }
        }
        self.sample.values.clear();
        let id = plan.batch.ids[index];
        if let Err(error) = guard::parse(dataset, id, &self.raw, &mut self.sample) {
            return Some(error);
        }
        // With packing, the packed field's value is only a piece of the sample's.
        let piece = plan.batch.pieces.get(index).and_then(|&piece| Some((collation.packed_field()?, piece)));
        let is_whole = |field: usize| piece.is_none_or(|(packed, _)| packed != field);
        let is_part = |field: usize| plan.parts.binary_search(&(index as u32, field)).is_ok();
        let sized = |(index, (field, value)): (usize, (&Field, &Value))| {
            !is_whole(index) || is_part(index) || has_size(value, field)
        };
        let schema = dataset.schema();
        let fields = schema.fields.iter().zip(&self.sample.values);
        if !self.fits(&self.sample.values) || !fields.enumerate().all(sized) {
            return Some(mismatch(id));
        }
        let (field, piece) = piece?;
        let is_plain = dataset.index().plain_field == Some(field);
        if cut_out(&mut self.sample.values[field], schema, field, piece, is_plain) {
            return None;
        }
        Some(Error::new(
            ErrorKind::Corrupt,
            format!(
                "sample {} ends before element {}, which the index says it has",
                id.0,
                piece.start.saturating_add(piece.len)
            ),
        ))
    }

    /// Whether there is one value per field, each of the same kind as in other samples.
    fn fits(&self, values: &[Value]) -> bool {
        let is_missing = |index| {
            let place = self.failed.binary_search_by_key(&index, |missing| missing.index);
            place.is_ok_and(|place| self.failed[place].replaced_by.is_none()) || self.held.binary_search(&index).is_ok()
        };
        let first = (0..self.values.len() / self.width.max(1)).find(|&index| !is_missing(index));
        let first = first.map(|index| &self.values[index * self.width..][..self.width]);
        let same = |(a, b): (&Value, &Value)| std::mem::discriminant(a) == std::mem::discriminant(b);
        values.len() == self.width && first.is_none_or(|first| first.iter().zip(values).all(same))
    }

    /// Plan index of the first sample that is missing and not replaced.
    pub(super) fn missing(&self) -> Option<usize> {
        self.failed.iter().find(|missing| missing.replaced_by.is_none()).map(|missing| missing.index)
    }

    /// Why the sample at `index` of the plan failed.
    pub(super) fn error_at(&self, index: usize) -> Option<Error> {
        let missing = self.failed.iter().find(|missing| missing.index == index);
        missing.map(|missing| missing.error.clone())
    }

    /// The samples that are in the batch, original or replaced, with their index in the plan.
    pub(super) fn present(&self, plan: &BatchPlan) -> Vec<(usize, SampleId)> {
        let mut missing = self.failed.iter().peekable();
        let planned = plan.batch.ids.iter().enumerate();
        let there = planned.filter_map(|(index, &id)| match missing.next_if(|missing| missing.index == index) {
            None => Some((index, id)),
            Some(missing) => Some((index, missing.replaced_by?)),
        });
        there.collect()
    }

    /// Whether no sample was parsed.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Takes a value of the sample at `index` of the plan, unless the sample failed. An empty one takes its place.
    pub(super) fn take_value(&mut self, index: usize, field: usize) -> Option<Value> {
        if self.failed.binary_search_by_key(&index, |missing| missing.index).is_ok() {
            return None;
        }
        let value = self.values.get_mut(index * self.width + field)?;
        Some(match value {
            Value::Bytes(bytes) => Value::Bytes(std::mem::take(bytes)),
            Value::I64(number) => Value::I64(*number),
        })
    }

    /// The values of the sample at `index` of the plan, unless it failed or threads still have them.
    pub(super) fn values_of(&self, index: usize) -> Option<&[Value]> {
        let has_failed = self.failed.binary_search_by_key(&index, |missing| missing.index).is_ok();
        let is_there = !has_failed && self.held.binary_search(&index).is_err();
        self.values.get(index * self.width..(index + 1) * self.width).filter(|_| is_there)
    }

    /// Sets the values of the sample `id` at `index` of the plan, except those that threads turn into something else.
    pub(super) fn set(&mut self, index: usize, id: SampleId, values: Vec<Value>, collation: &Collation) {
        if !self.fits(&values) {
            self.fail(index, mismatch(id));
            return;
        }
        self.held.retain(|&held| held != index);
        let is_made = |field: usize| collation.mapped_fields().iter().any(|(other, _)| *other == field);
        let places = self.values[index * self.width..].iter_mut().zip(values).enumerate();
        places.filter(|(field, _)| !is_made(*field)).for_each(|(_, (place, value))| *place = value);
    }

    /// Copies short values out of what was read, so that they do not hold all of it.
    pub(super) fn copy_small_views(&mut self) {
        for value in &mut self.values {
            if let Value::Bytes(bytes) = value
                && (1..=SMALL_VIEW_BYTES).contains(&bytes.len())
            {
                *bytes = Bytes::copy_from_slice(bytes);
            }
        }
    }

    /// Marks the sample at `index` of the plan as failed, unless it has failed already.
    pub(super) fn fail(&mut self, index: usize, error: Error) {
        if let Err(place) = self.failed.binary_search_by_key(&index, |missing| missing.index) {
            self.failed.insert(place, Lacking { index, error, replaced_by: None });
        }
    }

    /// Replaces the missing sample at `index` of the plan with the values of the sample `by`.
    ///
    /// # Errors
    /// `Corrupt` if the values are not of the same kinds as the others.
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

    /// Takes the values of the first sample, copied out of the memory that they were read into.
    ///
    /// # Errors
    /// The sample's error.
    pub(super) fn take_one(&mut self) -> Result<Vec<Value>> {
        let copy = |value: Value| match value {
            Value::Bytes(bytes) => Value::Bytes(Bytes::copy_from_slice(&bytes)),
            Value::I64(number) => Value::I64(number),
        };
        let values = self.values.drain(..).take(self.width).map(copy).collect();
        match self.failed.pop() {
            Some(Lacking { error, .. }) => Err(error),
            None => Ok(values),
        }
    }

    /// The samples of `plan` that failed.
    pub(super) fn failed_samples(&self, plan: &BatchPlan) -> Vec<FailedSample> {
        self.failed.iter().map(|missing| missing.of(plan)).collect()
    }

    /// Number of samples that were replaced by another one.
    pub(super) fn replaced(&self) -> usize {
        self.failed.iter().filter(|missing| missing.replaced_by.is_some()).count()
    }

    /// Number of samples that failed.
    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// The error of the first failed sample.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.failed.first().map(|missing| missing.error.clone())
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.failed.clear();
        self.held.clear();
        self.sample.values.clear();
        self.whole = None;
    }

    /// Builds the batch and drops everything else. Gathered values are written to `target`. Returns how many values
    /// were truncated.
    pub(super) fn assemble(
        &mut self,
        (dataset, collation): (&dyn Dataset, &Collation),
        plan: &BatchPlan,
        (blocks, made): (&[Bytes], &mut Made),
        target: Option<Part>,
        pool: &Pool,
    ) -> (Batch, u64) {
        let samples = plan.batch.ids.len();
        let mut ids = Vec::with_capacity(samples);
        let mut padding = Vec::new();
        let padded = plan.batch.positions.iter().any(|position| position.padding);
        let (mut digest, mut lost) = (Digest::default(), Digest::default());
        let mut failed = Vec::with_capacity(self.failed.len());
        let mut errors = self.failed.drain(..).peekable();
        self.good.clear();
        for (index, &id) in plan.batch.ids.iter().enumerate() {
            let position = plan.batch.positions[index];
            let missing = errors.next_if(|missing| missing.index == index);
            if !position.padding {
                let digest = if missing.is_some() { &mut lost } else { &mut digest };
                digest.add(position.position, id, plan.batch.start_of(index));
            }
            let replaced_by = missing.as_ref().and_then(|missing| missing.replaced_by);
            let is_there = missing.is_none() || replaced_by.is_some();
            failed.extend(missing.map(|missing| missing.of(plan)));
            if !is_there {
                continue;
            }
            self.good.push(index as u32);
            ids.push(replaced_by.unwrap_or(id));
            if padded {
                padding.push(position.padding);
            }
        }
        let (good, row_ends, whole) = (&self.good, &plan.batch.row_ends, self.whole.take());
        let samples = Samples { schema: dataset.schema(), values: &mut self.values, good, row_ends, blocks, made };
        let (mut columns, deferred, truncated) = if let Some(whole) = whole {
            (vec![whole_column(dataset.schema(), whole)], None, 0)
        } else if collation.is_deferred() {
            let (columns, deferred, truncated) = samples.into_pieces(collation, target, pool);
            (columns, Some(Box::new(deferred)), truncated)
        } else {
            let (columns, truncated) = samples.into_columns(collation, target, pool);
            (columns, None, truncated)
        };
        // Gathered values no longer need the memory that they were read into.
        self.values.clear();
        if collation.has_key() {
            columns.push(key_column(dataset, &ids));
        }
        if collation.has_index() {
            columns.push(index_column(&ids));
        }
        let padding = padded.then_some(padding);
        let (cursor, next) = (plan.batch.cursor, plan.batch.next);
        let batch = Batch { cursor, next, ids, padding, columns, failed, digest, lost, deferred };
        (batch, truncated)
    }
}

/// Values up to this length, such as names of classes, are copied out of memory that becomes free once the other values
/// in it are decoded.
const SMALL_VIEW_BYTES: usize = 1024;

fn not_kept() -> Error {
    lost("a stretch of a file was not in memory when its batch was made")
}

/// Whether a value has the length that the schema gives.
fn has_size(value: &Value, field: &Field) -> bool {
    match (value, &field.shape) {
        (Value::I64(_), Shape::Fixed(shape)) => field.dtype == DType::I64 && shape.is_empty(),
        (Value::I64(_), Shape::Ragged) => false,
        (Value::Bytes(bytes), Shape::Ragged) => (bytes.len() as u64).is_multiple_of(field.dtype.size()),
        (Value::Bytes(bytes), Shape::Fixed(shape)) => {
            let size = field.dtype.size();
            shape.iter().try_fold(size, |bytes, &dimension| bytes.checked_mul(dimension)) == Some(bytes.len() as u64)
        }
    }
}

/// Cuts a value down to the wanted piece. Returns false if the value does not contain it. For a plain field, only the
/// piece itself was read.
fn cut_out(value: &mut Value, schema: &Schema, field: usize, piece: Piece, is_plain: bool) -> bool {
    let Value::Bytes(bytes) = value else { return false };
    let size = schema.fields[field].dtype.size();
    let start = if is_plain { Some(0) } else { piece.start.checked_mul(size) };
    let len = piece.len.checked_mul(size);
    let Some((start, end)) = start.and_then(|start| Some((start, start.checked_add(len?)?))) else { return false };
    if end > bytes.len() as u64 || (is_plain && end != bytes.len() as u64) {
        return false;
    }
    *bytes = bytes.slice(start as usize..end as usize);
    true
}

impl Lacking {
    fn of(&self, plan: &BatchPlan) -> FailedSample {
        FailedSample {
            id: plan.batch.ids[self.index],
            position: plan.batch.positions[self.index].position,
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

/// Moves the spans of good samples, which lie in one block in batch order, so that they follow each other without gaps,
/// and copies kept spans to their places between them. Moves nothing if they already lie that way and start at an
/// offset that is aligned for every type.
///
/// # Errors
/// `Internal` if a kept span is not in memory, which is a bug.
pub(super) fn compact(
    plan: &mut BatchPlan,
    parts: &mut [Part],
    failed: &[Option<Error>],
    kept: Option<&KeptStretches>,
) -> Result<()> {
    let is_good = |index: usize| failed.get(index).is_none_or(Option::is_none);
    if plan.kept == 0 && lie_end_to_end(plan, is_good) {
        return Ok(());
    }
    let mut at = 0;
    for index in (0..plan.batch.ids.len()).filter(|&index| is_good(index)) {
        for slice in plan.slice_range(index) {
            let slice = &mut plan.slices[slice];
            let (start, len) = (slice.at as usize, slice.span.len as usize);
            // A kept span ends at or before the place that the plan left for it, so no span that must still move is
            // there.
            if start != at && len > 0 && !slice.is_kept() {
                parts[slice.block as usize].as_mut().copy_within(start..start + len, at);
            }
            slice.at = at as u64;
            at += len;
        }
    }
    if plan.kept == 0 {
        return Ok(());
    }
    let good = (0..plan.batch.ids.len()).filter(|&index| is_good(index)).flat_map(|index| plan.slices_of(index));
    let spans = good.filter(|slice| slice.is_kept()).map(|slice| (slice.at as usize, &slice.span));
    let (Some(block), Some(kept)) = (parts.first_mut(), kept) else { return Err(not_kept()) };
    if !kept.copy(block.as_mut(), spans) {
        return Err(not_kept());
    }
    plan.slices.iter_mut().for_each(|slice| slice.block &= !KEPT);
    Ok(())
}

/// Alignment of the elements of every type.
const ELEMENT_BYTES_MAX: u64 = 8;

fn lie_end_to_end(plan: &BatchPlan, is_good: impl Fn(usize) -> bool) -> bool {
    let mut end = None;
    for index in (0..plan.batch.ids.len()).filter(|&index| is_good(index)) {
        for slice in plan.slices_of(index).iter().filter(|slice| slice.span.len > 0) {
            let follows = match end {
                Some(end) => slice.at == end,
                None => slice.at.is_multiple_of(ELEMENT_BYTES_MAX),
            };
            if !follows {
                return false;
            }
            end = Some(slice.at + slice.span.len);
        }
    }
    true
}

#[cfg(test)]
mod tests;
