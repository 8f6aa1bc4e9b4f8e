//! A batch in progress: its memory, its reads, and its failures.

mod stretch;

use super::Rules;
use super::assemble::{self, Parsed};
use super::classes::Class;
use super::maps::Making;
use super::stretches::Kept;
use crate::batch::{Batch, FailedSample};
use crate::collate::{Collation, Gather};
use crate::config::OnError;
use crate::dataset::{Dataset, FileId, FileTable, SampleId, Value};
use crate::engine::{Done, Read};
use crate::plan::{BatchPlan, Load, PlannedRead, Slice};
use crate::pool::Pool;
use crate::queue::Sender;
use crate::stats::Stats;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::io;
use std::time::Instant;
use uringload_sys::Part;

/// How often to retry at once a read that was interrupted or taken back.
const INTERRUPTED_RETRIES: u8 = 64;

/// A batch whose reads are in progress.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) plan: BatchPlan,
    /// Which batch this is among all that were planned. Units are not counted.
    pub(super) number: u64,
    /// The plan's blocks, followed by spare ones of earlier plans.
    blocks: Vec<Block>,
    reads: Vec<Progress>,
    /// The memory of each read that is not issued yet.
    parts: Vec<Option<Part>>,
    /// Reads issued so far.
    issued: usize,
    /// Reads that are not settled yet.
    left: usize,
    failures: Vec<Failure>,
    /// The memory that holds the samples, once they are parsed.
    pub(super) blocks_read: Option<Vec<Bytes>>,
    /// The memory that values are gathered into.
    pub(super) target: Option<Part>,
    /// Whether reads that were given up still hold some of the memory.
    has_holes: bool,
    /// Whether it is a stretch that is read a second time.
    is_second_try: bool,
    pub(super) parsed: Parsed,
    /// What is being made of its values.
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
    /// Bytes before the part in flight, from the start of the read. Their memory is back.
    base: u64,
    /// Good bytes, from the start of the read.
    got: u64,
    interrupted: u8,
    /// Times it was taken back because it had not begun.
    waits: u32,
    /// When to cancel the read that is in flight.
    deadline: Option<Instant>,
}

/// Receiver of blocks whose batch is not complete yet.
pub struct Early {
    sender: Sender<EarlyBlock>,
    /// As long as the pool's memory. A byte here stands for the byte at the same offset there, wherever only a value's
    /// location matters.
    echoes: Option<Bytes>,
}

impl Early {
    /// Sends blocks to `sender` as far as it has room. With `echoes`, which has as many bytes as the pool, the receiver
    /// owns each block alone. That is only for datasets that do not look at bytes, and for columns that do not stay on
    /// the host.
    pub fn new(sender: Sender<EarlyBlock>, echoes: Option<Bytes>) -> Early {
        Early { sender, echoes }
    }
}

/// A block that was read before its batch is complete.
#[derive(Clone, Debug)]
pub struct EarlyBlock {
    /// Number of its batch among all that the reactor delivers, from 0. Each batch is delivered at its position, even
    /// if as an error.
    pub batch: u64,
    /// The whole block.
    pub bytes: Bytes,
    /// What the batch's values are slices of: either these bytes, or an echo of them. An echo has the same length, lies
    /// elsewhere, and has no meaningful content.
    pub known_as: Bytes,
    /// Total bytes of all blocks of the batch.
    pub batch_bytes: u64,
    /// Number of blocks of the batch.
    pub blocks: usize,
}

/// Bytes that could not be read.
pub(super) struct Failure {
    file: FileId,
    start: u64,
    end: u64,
    error: Error,
}

/// What happened to a completed read.
pub(super) enum Verdict {
    /// All needed bytes have been read.
    Complete,
    /// It took too long, was cancelled, and came back without its bytes. It is not settled; what lies before this place
    /// of its file is good.
    Late(Read, Error, u64),
    /// It returned fewer bytes than needed: read the rest.
    Short(Read),
    /// It was interrupted: read it again at once.
    Again(Read),
    /// It failed, perhaps for a reason that passes. It is not settled.
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

    /// Begins the batch whose memory was taken, as batch `number`. Returns the previous plan for reuse.
    pub(super) fn begin(&mut self, plan: BatchPlan, number: u64) -> Option<BatchPlan> {
        self.number = number;
        self.reads.clear();
        self.reads.resize(plan.reads.len(), Progress::default());
        self.parts.clear();
        let (mut block, mut filled) = (0, 0);
        for read in &plan.reads {
            if read.block != block {
                (block, filled) = (read.block, 0);
            }
            // A plan's blocks extend to the ends of their reads, so the part is always there.
            let Block { rest, home, left, .. } = &mut self.blocks[block as usize];
            if read.at > filled {
                home.extend(rest.as_mut().map(|rest| rest.split_to((read.at - filled) as usize)));
            }
            *left += 1;
            self.parts.push(rest.as_mut().map(|rest| rest.split_to(read.len as usize)));
            filled = read.at + read.len;
        }
        self.issued = 0;
        self.left = plan.reads.len();
        self.failures.clear();
        self.has_holes = false;
        self.is_second_try = false;
        Some(std::mem::replace(&mut self.plan, plan))
    }

    /// Whether every read is settled.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The next read to issue, if any is left. `number` is the batch's number.
    pub(super) fn issue(&mut self, number: u32) -> Option<Read> {
        let index = *self.plan.issue_order.get(self.issued)?;
        let planned = self.plan.reads[index as usize];
        let part = self.parts[index as usize].take()?;
        self.issued += 1;
        let tag = (u64::from(number) << 32) | u64::from(index);
        Some(Read { tag, file: planned.file, offset: planned.offset, part })
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

    /// How often the read was taken back because it had not begun.
    pub(super) fn waits(&self, index: usize) -> u32 {
        self.reads[index].waits
    }

    /// Notes that the read was taken back before it had begun, and will be started again.
    pub(super) fn wait_again(&mut self, index: usize) {
        self.reads[index].waits += 1;
    }

    /// Goes on without the memory of a read that does not come back. Returns how many bytes that is.
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
        let progress = &mut self.reads[index];
        let block = &mut self.blocks[planned.block as usize];
        let again = |part, base| Read { tag: done.tag, file: planned.file, offset: planned.offset + base, part };
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
                    if progress.interrupted < INTERRUPTED_RETRIES {
                        return Verdict::Again(read);
                    }
                }
                Verdict::Trouble(read, source)
            }
        }
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

    /// Shares the block of read `index` before the batch is complete, if all of it was read without errors. From then
    /// on nothing may be moved inside it. If `echoes` stands for the pool's memory, the batch keeps only the echo, so
    /// the block returns to the pool as soon as the receiver drops it.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(super) fn tell_early(&mut self, index: usize, pool: &Pool, early: &Early) -> Result<()> {
        let which = self.plan.reads[index].block as usize;
        let block = &mut self.blocks[which];
        if block.left > 0 || block.failed || self.plan.load.is_some() || self.plan.stretch.is_some() {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(1);
        block.join(&mut parts)?;
        let Some(part) = parts.pop() else { return Ok(()) };
        // A block may be longer than the data read into it.
        let (start, len) = (part.offset(), self.plan.blocks[which] as usize);
        let bytes = pool.lease(part).slice(..len);
        let kept = early.echoes.as_ref().map_or_else(|| bytes.clone(), |echoes| echoes.slice(start..start + len));
        let (batch, batch_bytes, blocks) = (self.number, self.plan.block_bytes(), self.plan.blocks.len());
        let told = EarlyBlock { batch, bytes, known_as: kept.clone(), batch_bytes, blocks };
        block.early = Some(match early.sender.try_send(told) {
            Ok(()) => kept,
            // If there is no room, the block goes with its batch.
            Err(EarlyBlock { bytes, .. }) => bytes,
        });
        Ok(())
    }

    /// End of the memory that values are gathered into, or that kept ones are copied to. No read goes there, so no read
    /// has backed it.
    pub(super) fn target_end(&self) -> Option<usize> {
        if self.plan.kept > 0 {
            let blocks = self.blocks[..self.plan.blocks.len()].iter();
            return blocks.filter_map(|block| block.rest.as_ref().map(Part::end)).max();
        }
        let target = &self.blocks[self.plan.gather? as usize];
        target.rest.as_ref().map(Part::end)
    }

    /// Whether it is the batch of that number.
    pub(super) fn is_batch(&self, number: u64) -> bool {
        self.number == number && self.plan.load.is_none() && self.plan.stretch.is_none()
    }

    /// The unit to load, if this is not a batch.
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
        let mut parts = Vec::with_capacity(self.plan.blocks.len());
        for block in &mut self.blocks[..self.plan.blocks.len()] {
            block.join(&mut parts)?;
        }
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
        (units, kept): (Vec<Result<Bytes>>, Option<&Kept>),
        pool: &Pool,
        stats: &Stats,
    ) -> Result<()> {
        let mut failed = self.failed_samples(kept);
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
        stats.count.bytes_wanted.add(read.map(|slice| slice.span.len).sum());
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
    /// `rules` asks for.
    ///
    /// # Errors
    /// That error.
    pub(super) fn finish(
        &mut self,
        (dataset, collation): (&dyn Dataset, &Collation),
        rules: &Rules,
        irreplaceable: Option<Error>,
        pool: &Pool,
        stats: &Stats,
    ) -> Result<Batch> {
        let blocks = self.blocks_read.take().unwrap_or_default();
        let (failed, replaced) = (self.parsed.failed() as u64, self.parsed.replaced() as u64);
        if let Some(error) = self.plan.refused.take() {
            self.parsed.clear();
            stats.count.samples_failed.add(self.plan.batch.ids.len() as u64);
            let _ = self.target.take().map(|part| pool.lease(part));
            return Err(error);
        }
        let raised = if rules.on_error == OnError::Raise { self.parsed.first_error() } else { irreplaceable };
        if let Some(error) = raised {
            stats.count.samples_failed.add(failed);
            self.parsed.clear();
            // Dropping the lease returns the memory.
            let _ = self.target.take().map(|part| pool.lease(part));
            return Err(error);
        }
        stats.count.samples_skipped.add(failed - replaced);
        stats.count.samples_replaced.add(replaced);
        let target = self.target.take();
        let (batch, truncated) =
            self.parsed.assemble((dataset, collation), &self.plan, (&blocks, &self.making.made), target, pool);
        stats.count.samples_truncated.add(truncated);
        Ok(batch)
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
                let run = first + run.ok_or_else(|| lost("a sample lies in memory that is not there"))?;
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
    fn failed_samples(&self, kept: Option<&Kept>) -> Vec<Option<Error>> {
        let kept = kept.filter(|kept| self.plan.kept > 0 && kept.is_broken());
        if self.failures.is_empty() && kept.is_none() && self.plan.failed.is_empty() {
            return Vec::new();
        }
        let of = |slice: &Slice| {
            let (start, end) = (slice.span.offset, slice.span.offset + slice.span.len);
            let hits = |failure: &&Failure| {
                failure.file == slice.span.file && failure.start < end && start < failure.end && start < end
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
    /// Joins what came back into one part again, or into one part per run if memory is missing, and appends the result.
    fn join(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.home.extend(self.rest.take());
        // A repair may have split off nothing, and an empty part has no place in the order.
        self.home.retain(|part| !part.is_empty());
        self.home.sort_unstable_by_key(Part::offset);
        let first = parts.len();
        let mut bytes = 0;
        for part in self.home.drain(..) {
            bytes += part.len();
            // The block's first part may directly follow the previous block, which must not be joined with it.
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

pub(super) fn lost(what: &'static str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what}: this is a bug of uringload"))
}

/// The bytes of a span.
pub(super) fn bytes_of(slice: &Slice, blocks: &[Bytes]) -> Bytes {
    let start = slice.at as usize;
    match slice.span.len as usize {
        0 => Bytes::new(),
        len => blocks[slice.block as usize].slice(start..start + len),
    }
}

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

    /// A sample of another length does not fit into the gap in a packed row, so the missing one is left out.
    #[test]
    fn packed_rows_get_no_replacements() {
        let mut pending = Pending::default();
        assert!(pending.is_replaceable());
        let begin = |pending: &mut Pending, batch| pending.begin(BatchPlan { batch, ..BatchPlan::default() }, 0);
        let pieces = vec![Piece { start: 0, len: 3 }];
        begin(&mut pending, Selection { pieces, ..Selection::default() });
        assert!(!pending.is_replaceable());
        begin(&mut pending, Selection { row_ends: vec![1], ..Selection::default() });
        assert!(!pending.is_replaceable());
    }
}
