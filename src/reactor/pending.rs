//! A batch in progress: its memory, its reads, and its failures.

mod bundle;
mod dear;
mod early;
mod request;
mod stretch;

pub(super) use dear::micros;
pub use early::{Early, EarlyBlock};

use super::Rules;
use super::assemble::{self, Parsed};
use super::classes::Class;
use super::lost::{Failure, bytes_of, lost};
use super::maps::Making;
use super::stretches::KeptStretches;
use crate::batch::{Batch, FailedSample};
use crate::collate::{Collation, Gather};
use crate::config::OnError;
use crate::dataset::{Dataset, FileId, FileTable, SampleId, Value};
use crate::engine::{Done, Read};
use crate::plan::{BatchPlan, Load, PlannedRead, Slice, is_empty_file};
use crate::pool::Pool;
use crate::stage::Stage;
use crate::stats::Stats;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::time::Instant;
use uringload_sys::Part;

/// How often to retry at once a read that was interrupted.
const INTERRUPTED_RETRIES: u8 = 64;
/// The same for a read that the kernel cancelled. The kernel does so after it has tried for some 50 ms to start a
/// thread. If that repeats, it is no interruption but a machine without room.
const TAKEN_BACK_RETRIES: u8 = 3;

/// A batch whose reads are in progress.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) plan: BatchPlan,
    /// Which batch this is among all that were planned. Units are not counted.
    pub(super) number: u64,
    /// The plan's blocks, followed by spare ones of earlier plans.
    blocks: Vec<Block>,
    reads: Vec<Progress>,
    /// The memory of each read that is not issued yet. The first read of a bundle has the memory of all.
    parts: Vec<Option<Part>>,
    /// Number of issues: bundles and single reads.
    bundles: usize,
    /// Reads issued so far.
    issued: usize,
    /// Reads that are not settled yet.
    left: usize,
    failures: Vec<Failure>,
    /// Microseconds of the longest read.
    slowest: u32,
    /// Scratch: the reads by their places.
    by_place: Vec<u32>,
    /// The memory that holds the samples, once they are parsed.
    pub(super) blocks_read: Option<Vec<Bytes>>,
    /// The memory that values are gathered into.
    pub(super) target: Option<Part>,
    /// Whether this is a stretch that is read a second time.
    has_holes: bool,
    /// The caller's id of a request.
    is_second_try: bool,
    /// The caller's id of a request, and whether it was cancelled.
    pub(super) id: u64,
    pub(super) is_dropped: bool,
    pub(super) parsed: Parsed,
    /// State of the values that threads process.
    pub(super) making: Making,
}

/// One block of a batch: the memory not handed out yet, and the memory that came back.
#[derive(Default)]
struct Block {
    rest: Option<Part>,
    home: Vec<Part>,
    /// Its offset in the arena.
    start: usize,
    len: usize,
    /// Bytes held by reads that were given up.
    missing: usize,
    /// Reads into the block that are not settled yet.
    left: u32,
    /// Whether one of them failed.
    failed: bool,
    /// The whole block, or its echo, if it was handed out as soon as it was read.
    early: Option<Bytes>,
}

/// Progress of one read.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Bytes before the part in flight, from the start of the read. Their memory has been returned.
    base: u64,
    /// Good bytes, from the start of the read.
    got: u64,
    interrupted: u8,
    /// Number of reads that go to the engine as one, beginning with this one; 0: it goes with an earlier one, or alone.
    together: u32,
    /// Times it was cancelled before it began.
    waits: u32,
    /// Microseconds that it took, including all its parts.
    took: u32,
    /// When to cancel the read that is in flight.
    deadline: Option<Instant>,
}

/// What happened to a completed read.
pub(super) enum Verdict {
    /// All needed bytes have been read.
    Complete,
    /// It timed out, was cancelled, and came back without its bytes. It is not settled. The bytes before this place of
    /// its file are good.
    Late(Read, Error, u64),
    /// It returned fewer bytes than needed: read the rest.
    Short(Read),
    /// It was interrupted: read it again at once.
    Again(Read),
    /// It failed, perhaps for a reason that may pass. It is not settled.
    Trouble(Read, io::Error),
}

impl Pending {
    /// Takes the memory for `plan`, all or nothing.
    pub(super) fn take_memory(&mut self, pool: &mut Pool, plan: &BatchPlan) -> bool {
        // A batch that has the whole pool to itself gets no slack. Then it fits, as `build` has checked.
        self.take_blocks(pool, plan, Pool::take) || (pool.is_whole() && self.take_blocks(pool, plan, Pool::take_exact))
    }

    /// Takes the memory for `plan` with `take`, all or nothing.
    pub(super) fn take_blocks(
        &mut self,
        pool: &mut Pool,
        plan: &BatchPlan,
        take: fn(&mut Pool, usize) -> Option<Part>,
    ) -> bool {
        // Never shortened: a block's list of parts keeps its capacity for the next batch with as many blocks.
        self.blocks.resize_with(plan.blocks.len().max(self.blocks.len()), Block::default);
        for (block, &bytes) in self.blocks.iter_mut().zip(&plan.blocks) {
            block.rest = take(pool, bytes as usize);
            if block.rest.is_none() {
                self.give_blocks(pool);
                return false;
            }
            let place = block.rest.as_ref().map(|rest| (rest.offset(), rest.len()));
            (block.start, block.len) = place.unwrap_or_default();
            (block.missing, block.left, block.failed) = (0, 0, false);
        }
        true
    }

    /// Gives the memory back before any read has begun.
    pub(super) fn give_blocks(&mut self, pool: &mut Pool) {
        self.blocks.iter_mut().filter_map(|block| block.rest.take()).for_each(|part| pool.give(part));
    }

    /// Whether every read is settled.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The read's deadline, if it is in flight and has one.
    pub(super) fn deadline(&self, index: usize) -> Option<Instant> {
        self.reads.get(index)?.deadline
    }

    /// Sets the deadline of a read that was started.
    pub(super) fn set_deadline(&mut self, index: usize, deadline: Instant) {
        self.reads[index].deadline = Some(deadline);
    }

    /// Clears the deadline of a read that has ended or is about to be cancelled, and returns its plan.
    pub(super) fn clear_deadline(&mut self, index: usize) -> PlannedRead {
        self.reads[index].deadline = None;
        self.plan.reads[index]
    }

    /// How often the read was cancelled before it began.
    pub(super) fn waits(&self, index: usize) -> u32 {
        self.reads[index].waits
    }

    /// Notes that the read was cancelled before it began, and will be started again.
    pub(super) fn wait_again(&mut self, index: usize) {
        self.reads[index].waits += 1;
    }

    /// Goes on without the memory of a read that does not come back. Returns the number of bytes.
    pub(super) fn abandon(&mut self, index: usize, error: Error) -> u64 {
        let base = self.reads[index].base;
        let PlannedRead { file, offset, len, block, .. } = self.plan.reads[index];
        self.failures.push(Failure { file, start: offset + base, end: offset + len, error });
        let block = &mut self.blocks[block as usize];
        block.missing += (len - base) as usize;
        (block.left, block.failed) = (block.left - 1, true);
        self.has_holes = true;
        self.left -= 1;
        len - base
    }

    /// Settles a completed read and says what happens to it next. `cancelled` is the error of a read that was
    /// cancelled, used if it is not complete anyway.
    pub(super) fn settle(
        &mut self,
        done: Done,
        alignment: u64,
        files: &FileTable,
        cancelled: Option<Error>,
    ) -> Verdict {
        let index = done.tag as u32 as usize;
        let planned = self.clear_deadline(index);
        self.took(index, done.latency);
        let progress = &mut self.reads[index];
        let block = &mut self.blocks[planned.block as usize];
        let again = |part, base| Read {
            tag: done.tag,
            file: planned.file,
            offset: planned.offset + base,
            part,
            pieces: Vec::new(),
        };
        match done.result {
            Ok(bytes) => {
                let before = progress.got;
                progress.got = progress.base + bytes as u64;
                if progress.got >= planned.need {
                    block.home.push(done.part);
                    block.left -= 1;
                    self.left -= 1;
                    return Verdict::Complete;
                }
                if let Some(error) = cancelled {
                    let good_end = planned.offset + progress.got;
                    return Verdict::Late(again(done.part, progress.base), error, good_end);
                }
                // Ending at the same place twice means the end of the file. Anything else is a short read to repair.
                let first_try = before == 0 && progress.base == 0;
                if progress.got > before || (first_try && bytes > 0) {
                    let mut rest = done.part;
                    // The next read must be aligned again, so up to one alignment unit is read twice.
                    let base = progress.got & !(alignment - 1);
                    block.home.push(rest.split_to((base - progress.base) as usize));
                    progress.base = base;
                    return Verdict::Short(again(rest, base));
                }
                let at = planned.offset + progress.got;
                let error = truncated(files, planned.file, at, planned.offset + planned.need);
                let read = again(done.part, progress.base);
                Verdict::Trouble(read, io::Error::other(error))
            }
            Err(source) => {
                if let Some(error) = cancelled {
                    let good_end = planned.offset + progress.base;
                    return Verdict::Late(again(done.part, progress.base), error, good_end);
                }
                let read = again(done.part, progress.base);
                if Class::of(&source) == Class::Interrupted {
                    progress.interrupted += 1;
                    let most = if Class::is_taken_back(&source) { TAKEN_BACK_RETRIES } else { INTERRUPTED_RETRIES };
                    if progress.interrupted < most {
                        return Verdict::Again(read);
                    }
                }
                Verdict::Trouble(read, source)
            }
        }
    }

    /// The files of reads that are in flight or incomplete, with repetitions.
    pub(super) fn files_under_way(&self) -> impl Iterator<Item = FileId> {
        let issued = if self.is_complete() { 0 } else { self.issued };
        let reads = self.plan.issue_order[..issued].iter().map(|&index| index as usize);
        let under_way = reads.filter(|&index| self.reads[index].got < self.plan.reads[index].need);
        under_way.map(|index| self.plan.reads[index].file)
    }

    /// The file of a read, and where its part in flight begins.
    pub(super) fn place_of(&self, index: usize) -> (FileId, u64) {
        let PlannedRead { file, offset, .. } = self.plan.reads[index];
        (file, offset + self.reads[index].base)
    }

    /// Where the good bytes of a read end, in its file.
    pub(super) fn good_end(&self, index: usize) -> u64 {
        self.plan.reads[index].offset + self.reads[index].got
    }

    /// Settles a read that failed at `start`, with the error of the samples in it from there on.
    pub(super) fn fail(&mut self, index: usize, part: Part, start: u64, error: Error) {
        let PlannedRead { file, offset, len, block, .. } = self.plan.reads[index];
        let block = &mut self.blocks[block as usize];
        block.home.push(part);
        (block.left, block.failed) = (block.left - 1, true);
        self.failures.push(Failure { file, start, end: offset + len, error });
        self.left -= 1;
    }

    /// The memory of a block if values are gathered into it or kept ones are copied to it: no read has backed all of
    /// it.
    pub(super) fn target(&self, block: usize) -> Range<usize> {
        let is_target = self.plan.kept > 0 || self.plan.gather.is_some_and(|gather| gather as usize == block);
        let Block { start, len, .. } = self.blocks[block];
        if is_target { start..start + len } else { 0..0 }
    }

    /// Whether it is the batch of that number.
    pub(super) fn is_batch(&self, number: u64) -> bool {
        self.number == number && self.plan.load.is_none() && self.plan.stretch.is_none()
    }

    /// The unit to load, if this is a unit and not a batch.
    pub(super) fn load(&self) -> Option<Load> {
        self.plan.load
    }

    /// The plan of the batch.
    pub(super) fn plan(&self) -> &BatchPlan {
        &self.plan
    }

    /// Takes a unit's stored bytes, one slice per span, or the error if it could not be read. Every block is leased or
    /// back in the pool afterwards.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(super) fn take_stored(&mut self, pool: &Pool, stats: &Stats) -> Result<Result<Vec<Bytes>>> {
        let parts = self.take_parts()?;
        let blocks: Vec<Bytes> = parts.into_iter().map(|part| pool.lease(part)).collect();
        let wrong = self.plan.failed.first().map(|(_, error)| error);
        if let Some(error) = wrong.or(self.failures.first().map(|failure| &failure.error)) {
            return Ok(Err(error.clone()));
        }
        stats.count.bytes_wanted.add(self.plan.slices.iter().map(|slice| slice.span.len).sum());
        Ok(Ok(self.plan.slices.iter().map(|slice| bytes_of(slice, &blocks)).collect()))
    }

    /// Parses the samples once every read is settled. `gather` says how they must lie in memory. Afterwards every block
    /// is leased or back in the pool, except the one that values are gathered into.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(super) fn parse(
        &mut self,
        (dataset, collation, gather): (&dyn Dataset, &Collation, Gather),
        (units, kept): (Vec<Result<Bytes>>, Option<&KeptStretches>),
        pool: &Pool,
        stats: &Stats,
    ) -> Result<()> {
        let mut failed = self.failed_samples(dataset.files(), kept);
        let mut parts = Vec::with_capacity(self.plan.blocks.len());
        let mut blocks = Vec::with_capacity(self.plan.blocks.len());
        for index in 0..self.plan.blocks.len() {
            if let Some(early) = self.blocks[index].early.take() {
                // It is whole and stays where the slices say. Keep its place among the runs.
                blocks.push(early);
                if self.has_holes {
                    self.renumber_slices(index, blocks.len() - 1);
                }
                continue;
            }
            let first = parts.len();
            self.blocks[index].join(&mut parts)?;
            if self.has_holes {
                self.move_slices(index, &failed, (first, blocks.len()), &parts)?;
            }
            if gather == Gather::Nowhere {
                // A block may be longer than the data read into it.
                let len = self.plan.blocks[index] as usize;
                blocks.extend(
                    parts.drain(..).map(|part| pool.lease(part)).map(|bytes| bytes.slice(..len.min(bytes.len()))),
                );
            }
        }
        if self.has_holes {
            // The pieces around a hole are blocks of their own now.
            self.plan.slices.iter_mut().for_each(|slice| slice.block &= !MOVED);
        }
        // The gather block is the last one. Nothing is read into it, so it has no holes.
        self.target = self.plan.gather.and_then(|_| parts.pop());
        if gather == Gather::InPlace && !self.has_holes {
            assemble::compact(&mut self.plan, &mut parts, &failed, kept)?;
        }
        blocks.extend(parts.into_iter().map(|part| pool.lease(part)));
        if self.plan.refused.is_none() {
            let is_plain = self.plan.is_plain && gather == Gather::InPlace && failed.is_empty() && !self.has_holes;
            if !(is_plain && self.parsed.take_whole(&self.plan, &blocks)) {
                self.parsed.parse(dataset, collation, &self.plan, (&blocks, &units, kept), &mut failed);
            }
        }
        // Values may lie end to end in a unit as well.
        blocks.extend(units.into_iter().flatten());
        self.blocks_read = Some(blocks);
        let read = self.plan.slices.iter().filter(|slice| !slice.is_kept());
        let wanted: u64 = read.map(|slice| slice.span.len).sum();
        stats.count.bytes_wanted.add(wanted.saturating_sub(self.plan.left_out));
        stats.count.reads_saved.add(self.plan.kept);
        Ok(())
    }

    /// Whether `parse` has run.
    pub(super) fn is_parsed(&self) -> bool {
        self.blocks_read.is_some()
    }

    /// Whether another sample can replace one of this batch. Packed rows cannot: the other sample would have a
    /// different length.
    pub(super) fn is_replaceable(&self) -> bool {
        self.plan.batch.pieces.is_empty() && self.plan.batch.row_ends.is_empty()
    }

    /// Index of the first sample that is missing and not replaced.
    pub(super) fn missing(&self) -> Option<usize> {
        self.parsed.missing()
    }

    /// The missing sample at `index`, and why it is missing.
    pub(super) fn missing_at(&self, index: usize) -> (SampleId, Option<Error>) {
        (self.plan.batch.ids[index], self.parsed.error_at(index))
    }

    /// Replaces the missing sample at `index` with the values of the sample `by`.
    ///
    /// # Errors
    /// `Corrupt` if the values are not of the same kinds as the others.
    pub(super) fn replace(&mut self, index: usize, by: SampleId, values: Vec<Value>) -> Result<()> {
        self.parsed.replace(index, by, values)
    }

    /// Takes the values of a parsed batch of one sample, copied, so that its memory becomes free.
    ///
    /// # Errors
    /// The sample's error.
    pub(super) fn take_one(&mut self) -> Result<Vec<Value>> {
        let values = self.parsed.take_one();
        self.blocks_read = None;
        values
    }

    /// The epoch of the batch.
    pub(super) fn epoch(&self) -> u64 {
        self.plan.batch.cursor.epoch
    }

    /// Number of samples planned for the batch.
    pub(super) fn samples(&self) -> u64 {
        self.plan.batch.ids.len() as u64
    }

    /// The samples that failed.
    pub(super) fn failed(&self) -> Vec<FailedSample> {
        self.parsed.failed_samples(&self.plan)
    }

    /// Builds the batch from the parsed samples, or returns the error that takes its place: `irreplaceable`, or the one
    /// that `rules` require.
    ///
    /// # Errors
    /// That error.
    pub(super) fn finish(
        &mut self,
        (dataset, collation, stage): (&dyn Dataset, &Collation, Option<&Stage>),
        rules: &Rules,
        irreplaceable: Option<Error>,
        pool: &Pool,
        stats: &Stats,
    ) -> Result<Batch> {
        let blocks = self.blocks_read.take().unwrap_or_default();
        let (failed, replaced) = (self.parsed.failed() as u64, self.parsed.replaced() as u64);
        if let Some(error) = self.plan.refused.take() {
            stats.count.samples_failed.add(self.plan.batch.ids.len() as u64);
            self.give_up(pool);
            return Err(error);
        }
        let raised = if rules.on_error == OnError::Raise { self.parsed.first_error() } else { irreplaceable };
        if let Some(error) = raised {
            stats.count.samples_failed.add(failed);
            self.give_up(pool);
            return Err(error);
        }
        stats.count.samples_skipped.add(failed - replaced);
        stats.count.samples_replaced.add(replaced);
        if let Some(stage) = stage
            && let Err(error) = self.mix_here(stage)
        {
            self.give_up(pool);
            return Err(error);
        }
        self.offer_dearest(stats);
        let target = self.target.take();
        let (mut batch, truncated) =
            self.parsed.assemble((dataset, collation), &self.plan, (&blocks, &mut self.making.made), target, pool);
        stats.count.samples_truncated.add(truncated);
        if let Some(mixer) = stage.and_then(Stage::maps).and_then(|maps| maps.mixer.as_ref()) {
            batch.soften(mixer)?;
        }
        Ok(batch)
    }

    /// Returns the memory of a batch that is an error.
    fn give_up(&mut self, pool: &Pool) {
        self.parsed.clear();
        self.making.made.clear();
        // Dropping the lease returns the memory.
        let _ = self.target.take().map(|part| pool.lease(part));
    }

    /// Updates the slices of a block that came back with holes: each now lies in one of `parts[first..]`, the runs that
    /// came back.
    fn move_slices(
        &mut self,
        block: usize,
        failed: &[Option<Error>],
        (first, before): (usize, usize),
        parts: &[Part],
    ) -> Result<()> {
        let start = self.blocks[block].start;
        for index in 0..self.plan.batch.ids.len() {
            if failed.get(index).is_some_and(Option::is_some) {
                continue;
            }
            for slice in self.plan.slice_range(index) {
                let slice = &mut self.plan.slices[slice];
                if slice.block as usize != block || slice.span.len == 0 {
                    continue;
                }
                let (from, to) = (start + slice.at as usize, start + (slice.at + slice.span.len) as usize);
                let run = parts[first..].iter().position(|part| part.offset() <= from && to <= part.end());
                let run = first + run.ok_or_else(|| lost("a sample's memory is missing"))?;
                slice.at = (from - parts[run].offset()) as u64;
                slice.block = MOVED | (before + run) as u32;
            }
        }
        Ok(())
    }

    /// Sets the block number of the slices of a whole block to `to`, its index among the blocks that came back.
    fn renumber_slices(&mut self, block: usize, to: usize) {
        let of_block = self.plan.slices.iter_mut().filter(|slice| slice.block as usize == block);
        of_block.for_each(|slice| slice.block = MOVED | to as u32);
    }

    /// The error of each sample that lacks a byte, by sample index. Empty if all samples are good.
    fn failed_samples(&self, files: &FileTable, kept: Option<&KeptStretches>) -> Vec<Option<Error>> {
        let kept = kept.filter(|kept| self.plan.kept > 0 && kept.is_broken());
        if self.failures.is_empty() && kept.is_none() && self.plan.failed.is_empty() {
            return Vec::new();
        }
        let of = |slice: &Slice| {
            let (start, end) = (slice.span.offset, slice.span.offset + slice.span.len);
            // An empty file lacks no bytes, but it is opened and checked, and that may fail.
            let is_empty = start == end && is_empty_file(files, &slice.span);
            let hits = |failure: &&Failure| {
                let is_within = failure.start < end && start < failure.end && start < end;
                failure.file == slice.span.file && (is_within || is_empty)
            };
            let of_kept = kept.filter(|_| slice.is_kept()).and_then(|kept| kept.failures(&slice.span).find(hits));
            let failure = if slice.is_kept() { of_kept } else { self.failures.iter().find(hits) };
            failure.map(|failure| failure.error.clone())
        };
        let failed = |index: usize| self.plan.slices_of(index).iter().find_map(of);
        let mut failed: Vec<Option<Error>> = (0..self.plan.batch.ids.len()).map(failed).collect();
        for (index, error) in &self.plan.failed {
            failed[*index as usize] = Some(error.clone());
        }
        failed
    }
}

impl Block {
    /// Joins the returned memory into one part, or into one part per run if memory is missing, and appends the result.
    fn join(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.home.extend(self.rest.take());
        // A repair may have split off nothing, and an empty part has no place in the order.
        self.home.retain(|part| !part.is_empty());
        self.home.sort_unstable_by_key(Part::offset);
        let first = parts.len();
        let mut bytes = 0;
        for part in self.home.drain(..) {
            bytes += part.len();
            // The block's first part may directly follow the previous block. The two must not be joined.
            let apart = match parts[first..].last_mut() {
                Some(last) => last.unsplit(part).err(),
                None => Some(part),
            };
            parts.extend(apart);
        }
        let is_whole = parts.len() == first + 1 || self.missing > 0;
        if is_whole && bytes + self.missing == self.len { Ok(()) } else { Err(lost("a block came back with a hole")) }
    }
}

/// Marks a slice's block number as an index among the blocks that came back. Unmarked numbers still index the blocks
/// that were taken.
const MOVED: u32 = 1 << 31;

fn truncated(files: &FileTable, file: FileId, at: u64, wanted: u64) -> Error {
    let indexed = files.size(file);
    Error::new(
        ErrorKind::Truncated,
        format!("the file ends before byte {wanted}: it had {indexed} bytes when it was indexed, and has shrunk since"),
    )
    .with_path(files.path(file))
    .with_offset(at)
    .with_remedy("restore the file, or open the dataset again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Piece, Selection};

    /// A sample of another length does not fit into the gap in a packed row, so the missing sample is left out.
    #[test]
    fn packed_rows_get_no_replacements() {
        let mut pending = Pending::default();
        assert!(pending.is_replaceable());
        let begin = |pending: &mut Pending, batch| pending.begin(BatchPlan { batch, ..BatchPlan::default() }, 0, false);
        let pieces = vec![Piece { start: 0, len: 3 }];
        begin(&mut pending, Selection { pieces, ..Selection::default() });
        assert!(!pending.is_replaceable());
        begin(&mut pending, Selection { row_ends: vec![1], ..Selection::default() });
        assert!(!pending.is_replaceable());
    }
}
