//! Hands values to the loader's threads: each value goes to them with its place in the batch's column as soon as its
//! batch was read, even if earlier batches are not done. A batch waits for its own values only.

use super::Reactor;
use super::lost::{bytes_of, lost};
use super::pending::{Pending, micros};
use crate::batch::Made;
use crate::collate::Collation;
use crate::config::{Fallback, OnError};
use crate::dataset::{Dataset, FileId, SampleId};
use crate::engine::Engine;
use crate::plan::BatchPlan;
use crate::prepared::{Filling, Prepared, PreparedValue};
use crate::resident::Resident;
use crate::stage::{Finished, Keeping, Mixed, Number, Stage, Task, Value, Work};
use crate::stats::Clock;
use crate::transform::Mixer;
use crate::{Error, ErrorKind, Result, dataset};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use uringload_sys::Part;

/// State of a batch whose values threads process. Reused from batch to batch.
#[derive(Default)]
pub(super) struct Making {
    pub(super) made: Made,
    /// The place of each value, sample by sample within a column; `None` while a thread has it.
    places: Vec<Option<Part>>,
    /// The block behind the places.
    rest: Option<Part>,
    /// Number of values that threads have.
    left: usize,
    /// Samples and columns of values that failed.
    failed: Vec<((usize, usize), Error)>,
    /// Microseconds that each sample took, and the longest of them.
    pub(super) took: Vec<u32>,
    pub(super) slowest: u32,
    /// Whether the batch's images were mixed by a thread, or why not.
    mixed: Option<Result<()>>,
}

impl Making {
    /// Resets the times before the first value of a batch.
    pub(super) fn forget_times(&mut self) {
        self.took.clear();
        self.slowest = 0;
    }
}

impl Reactor {
    /// Sets the threads that compute.
    #[must_use]
    pub fn with_stage(self, stage: Option<Stage>) -> Reactor {
        Reactor { stage, ..self }
    }

    /// Takes a fallback that the threads have reported since the last call.
    pub fn said(&mut self) -> Option<Fallback> {
        self.stage.as_mut().and_then(Stage::said)
    }

    /// Whether threads turn values into something else.
    pub(super) fn has_maps(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| stage.maps().is_some())
    }

    /// Whether threads still have work of the stage.
    pub(super) fn is_computing(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| stage.under_way() > 0)
    }

    /// Whether values of a batch wait to be handed to the threads.
    pub(super) fn can_map(&self) -> bool {
        self.has_maps() && self.next_to_map().is_some()
    }

    /// The first batch that was read and whose values no thread has. None after a stretch that is not kept yet, because
    /// the batch may need it. Where values get places on a GPU, it is the next batch in order, once all places exist.
    /// exist.
    fn next_to_map(&self) -> Option<usize> {
        let waits = |pending: &Pending| {
            let has_units = self.decoder.as_ref().is_none_or(|decoder| decoder.has_all(pending.plan()));
            pending.load().is_none() && pending.is_complete() && !pending.is_parsed() && has_units
        };
        let before_stretch = self.pending.iter().take_while(|pending| pending.plan().stretch.is_none());
        let mut before_stretch = before_stretch.enumerate();
        let Some(staying) = self.stage.as_ref().and_then(Stage::staying) else {
            return before_stretch.find(|(_, pending)| waits(pending)).map(|(index, _)| index);
        };
        let is_next = |pending: &Pending| pending.load().is_none() && !pending.is_parsed();
        let (index, next) = before_stretch.find(|(_, pending)| is_next(pending))?;
        (waits(next) && staying.has_places(next.samples() as usize)).then_some(index)
    }

    /// Hands the values of all batches that were read to the threads. If this thread does the work itself, handles one
    /// batch.
    pub(super) fn map(&mut self, engine: &mut dyn Engine) -> Result<()> {
        if !self.has_maps() {
            return Ok(());
        }
        let (dataset, collation) = (self.planner.dataset().clone(), self.planner.collation().clone());
        while let Some(index) = self.next_to_map() {
            self.parse(index, engine)?;
            let (Some(stage), Some(pending)) = (&mut self.stage, self.pending.get_mut(index)) else { return Ok(()) };
            pending.begin_making((&*dataset, &*collation), stage, &mut self.clock);
            if !stage.is_apart() {
                break;
            }
        }
        self.take_finished()
    }

    /// Collects what the threads have finished.
    pub(super) fn take_finished(&mut self) -> Result<()> {
        while let Some(Finished { number, out, result, others, resident, took }) =
            self.stage.as_mut().and_then(Stage::take)
        {
            match number {
                Number::Unit(number) => {
                    if let Some(decoder) = &mut self.decoder {
                        decoder.take(number, out, result);
                    }
                }
                Number::Mixed(batch) => {
                    let pending = self.pending.iter_mut().find(|pending| pending.is_batch(batch));
                    pending.ok_or_else(|| lost("a mixed batch came back to none"))?.take_mixed(out, result);
                }
                Number::Value { batch, place } => {
                    let of_batch = |pending: &&mut Pending| pending.is_batch(batch);
                    let pending = self.pending.iter_mut().find(of_batch);
                    let pending = pending.ok_or_else(|| lost("a value came back to no batch"))?;
                    if let Some(values) = others {
                        pending.take_others(place as usize, values, self.planner.collation());
                    }
                    pending.note_made(place as usize, micros(took));
                    pending.take_made(place as usize, out, (result, resident))?;
                    if let Some(stage) = self.stage.as_mut().filter(|_| pending.is_made()) {
                        pending.begin_mixing(self.rules.on_error, stage, &mut self.clock);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Pending {
    /// Whether all values of the batch are finished.
    pub(super) fn is_made(&self) -> bool {
        self.plan().stretch.is_some() || (self.is_parsed() && self.making.left == 0)
    }

    /// Hands the values of a parsed batch to the threads, each with its place in the block for gathered values.
    fn begin_making(&mut self, (dataset, collation): (&dyn Dataset, &Collation), stage: &mut Stage, clock: &mut Clock) {
        let samples = self.plan().batch.ids.len();
        let Making { made, places, rest, left, failed, took, mixed, .. } = &mut self.making;
        *mixed = None;
        made.lay_out(collation, samples);
        took.resize(samples, 0);
        (*left, *rest) = (0, None);
        places.clear();
        failed.clear();
        // A batch that was refused has neither values nor places.
        if self.parsed.is_empty() {
            return;
        }
        let Some(mut block) = self.target.take() else { return };
        for index in 0..made.columns() * samples {
            let (column, sample) = (index / samples, index % samples);
            // The last place of a column includes the padding before the next one.
            let end = if sample + 1 < samples { made.place(column, sample + 1) } else { made.column_end(column) };
            places.push(Some(block.split_to(end - made.place(column, sample))));
        }
        *rest = Some(block);
        let blocks = self.blocks_read.take().unwrap_or_default();
        let maps = stage.maps().cloned();
        let prepared = maps.as_ref().and_then(|maps| maps.prepared.clone());
        for sample in 0..samples {
            let is_kept = self.plan.is_prepared(sample);
            let filling = prepared.as_deref().filter(|_| !is_kept).and_then(|all| self.filling(sample, all, collation));
            // Looked at before any of them is taken.
            let values = self.parsed.values_of(sample).unwrap_or_default();
            let of = |column| maps.as_ref().map(|maps| maps.beside(column, values)).unwrap_or_default();
            let mut beside: Vec<Vec<Bytes>> = (0..collation.mapped_fields().len()).map(of).collect();
            for (column, (field, _)) in collation.mapped_fields().iter().enumerate() {
                let place = column * samples + sample;
                let beside = std::mem::take(&mut beside[column]);
                let Some(value) = self.parsed.take_value(sample, *field) else { continue };
                let dataset::Value::Bytes(bytes) = value else {
                    self.making.failed.push(((sample, column), no_bytes(&dataset.schema().fields[*field].name)));
                    continue;
                };
                let Some(out) = self.making.places[place].take() else { continue };
                let from = origin(&self.plan, sample, &blocks, &bytes);
                let (id, epoch) = (self.plan.batch.ids[sample], self.plan.batch.cursor.epoch);
                let keeping = match &filling {
                    Some(filling) => Keeping::Fill(Arc::clone(filling)),
                    None if is_kept => Keeping::Kept,
                    None => Keeping::Not,
                };
                let place_there = stage.place(column, id).filter(|_| matches!(keeping, Keeping::Not));
                let task = Task::Value(Value {
                    column,
                    id,
                    epoch,
                    bytes,
                    beside,
                    from,
                    field: *field,
                    keeping,
                    place: place_there,
                });
                self.making.left += 1;
                let number = Number::Value { batch: self.number, place: place as u32 };
                stage.submit(Work { number, task, out }, clock);
            }
        }
        self.parsed.copy_small_views();
        // What was read becomes free as soon as it is decoded. Columns that are gathered have slices of their own.
        self.blocks_read = Some(Vec::new());
        if self.making.left == 0 {
            // There are places and nothing to wait for, so they join.
            let _ = self.end_making();
        }
    }

    /// What gathers the values of a parsed sample that is to be kept.
    fn filling(&self, sample: usize, prepared: &Prepared, collation: &Collation) -> Option<Arc<Filling>> {
        let id = self.plan.batch.ids[sample];
        let stored = self.plan.slices_of(sample).iter().map(|slice| slice.span.len).sum();
        let values = self.parsed.values_of(sample)?.iter().enumerate();
        let is_made = |field: usize| collation.mapped_fields().iter().any(|(other, _)| *other == field);
        let values = values.map(|(field, value)| (!is_made(field)).then(|| PreparedValue::of(value)));
        prepared.fill(id, stored, values).map(Arc::new)
    }

    /// Takes the values of a sample that needed no reads.
    fn take_others(&mut self, place: usize, values: Vec<dataset::Value>, collation: &Collation) {
        let sample = place % self.plan.batch.ids.len();
        self.parsed.set(sample, self.plan.batch.ids[sample], values, collation);
    }

    /// Records the time that a value took.
    fn note_made(&mut self, place: usize, micros: u32) {
        let samples = self.plan.batch.ids.len();
        if let Some(took) = self.making.took.get_mut(place % samples.max(1)) {
            *took = took.saturating_add(micros);
            self.making.slowest = self.making.slowest.max(*took);
        }
    }

    /// Takes a thread's result for a value, and its location if that is not `out`.
    fn take_made(
        &mut self,
        place: usize,
        out: Part,
        (result, resident): (Result<usize>, Option<Resident>),
    ) -> Result<()> {
        let samples = self.plan.batch.ids.len();
        let (column, sample) = (place / samples, place % samples);
        match result {
            Ok(bytes) => self.making.made.set(column, sample, bytes, resident),
            Err(error) => self.making.failed.push(((sample, column), error)),
        }
        self.making.places[place] = Some(out);
        self.making.left -= 1;
        if self.making.left > 0 { Ok(()) } else { self.end_making() }
    }

    /// Joins the places once all are back, and records what failed.
    fn end_making(&mut self) -> Result<()> {
        let parts = self.making.places.drain(..).flatten().chain(self.making.rest.take());
        let mut block: Option<Part> = None;
        for part in parts {
            match &mut block {
                Some(block) => block.unsplit(part).map_err(|_| lost("a value's place came back out of order"))?,
                None => block = Some(part),
            }
        }
        self.target = block;
        // In the order of the samples, and within a sample by column, whichever failed first.
        self.making.failed.sort_by_key(|(place, _)| *place);
        for ((sample, _), error) in self.making.failed.drain(..) {
            self.parsed.fail(sample, error);
        }
        Ok(())
    }

    /// Hands the images of the batch to the threads for mixing, if they are to be mixed and no sample is missing. If
    /// some samples will be replaced, [`mix_here`](Pending::mix_here) mixes instead.
    fn begin_mixing(&mut self, on_error: OnError, stage: &mut Stage, clock: &mut Clock) {
        let Some(mixer) = stage.maps().and_then(|maps| maps.mixer.clone()) else { return };
        let waits = self.parsed.failed() > 0 && matches!(on_error, OnError::Replace | OnError::Raise);
        if self.making.mixed.is_some() || waits {
            return;
        }
        let Some(out) = self.target.take() else { return };
        let (ids, places) = self.images_to_mix(&mixer, stage);
        let task = Task::Mix(Mixed { epoch: self.epoch(), ids, places });
        self.making.left = 1;
        stage.submit(Work { number: Number::Mixed(self.number), task, out }, clock);
    }

    fn take_mixed(&mut self, out: Part, result: Result<usize>) {
        self.target = Some(out);
        self.making.left = 0;
        self.making.mixed = Some(result.map(drop));
    }

    /// Mixes the images of the batch, unless a thread did it.
    ///
    /// # Errors
    /// The thread's error.
    pub(super) fn mix_here(&mut self, stage: &Stage) -> Result<()> {
        let Some(mixer) = stage.maps().and_then(|maps| maps.mixer.clone()) else { return Ok(()) };
        if let Some(done) = self.making.mixed.take() {
            return done;
        }
        let (ids, places) = self.images_to_mix(&mixer, stage);
        let Some(block) = &mut self.target else { return Ok(()) };
        if let Some(mixing) = mixer.draw(self.plan.batch.cursor.epoch, ids.into_iter())? {
            mixer.mix(&mixing, block.as_mut(), &places);
        }
        Ok(())
    }

    /// The samples that are in the batch, and the locations of their images.
    fn images_to_mix(&self, mixer: &Mixer, stage: &Stage) -> (Vec<SampleId>, Vec<Range<usize>>) {
        let columns = stage.maps().map_or(&[][..], |maps| &maps.columns);
        let column = columns.iter().position(|(name, _)| name == mixer.images()).unwrap_or_default();
        let made = &self.making.made;
        let of_sample = |(index, id): (usize, SampleId)| {
            let start = made.place(column, index);
            (id, start..start + made.value_bytes(column))
        };
        self.parsed.present(&self.plan).into_iter().map(of_sample).unzip()
    }

    /// Processes the values of the sample `by`, which replaces the one at `index`, like those of all other samples.
    ///
    /// # Errors
    /// The error of the sample `by`.
    pub(super) fn make_replacement(
        &mut self,
        (index, by): (usize, SampleId),
        values: &mut [dataset::Value],
        collation: &Collation,
        stage: &mut Stage,
        clock: &mut Clock,
    ) -> Result<()> {
        for (column, (field, made_field)) in collation.mapped_fields().iter().enumerate() {
            let dataset::Value::Bytes(bytes) = &values[*field] else { return Err(no_bytes(&made_field.name)) };
            let (bytes, epoch, field) = (bytes.clone(), self.epoch(), *field);
            let beside = stage.maps().map(|maps| maps.beside(column, values)).unwrap_or_default();
            let keeping = Keeping::Not;
            let value = Value { column, id: by, epoch, bytes, beside, from: None, field, keeping, place: None };
            let made = &mut self.making.made;
            let start = made.place(column, index);
            let block = self.target.as_mut().ok_or_else(|| lost("a batch has no memory for its values"))?;
            let bytes = stage.make(&value, &mut block.as_mut()[start..start + made.value_bytes(column)], clock)?;
            made.set(column, index, bytes, None);
        }
        Ok(())
    }
}

fn no_bytes(column: &str) -> Error {
    let what = format!("the values of column {column:?} are integers from the index, and no bytes to transform");
    Error::new(ErrorKind::InvalidArgument, what).with_remedy("transform another column")
}

/// The file that a value was read from, and its offset there.
fn origin(plan: &BatchPlan, sample: usize, blocks: &[Bytes], value: &Bytes) -> Option<(FileId, u64)> {
    let start = value.as_ptr().addr();
    plan.slices_of(sample).iter().filter(|slice| !slice.is_kept()).find_map(|slice| {
        if slice.span.len == 0 {
            return value.is_empty().then_some((slice.span.file, slice.span.offset));
        }
        let from = bytes_of(slice, blocks);
        let ahead = start.checked_sub(from.as_ptr().addr())?;
        (ahead + value.len() <= from.len()).then(|| (slice.span.file, slice.span.offset + ahead as u64))
    })
}
