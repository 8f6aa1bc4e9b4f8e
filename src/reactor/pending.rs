//! One batch on its way: its memory, its reads, and what went wrong.

use super::Rules;
use super::assemble::{self, Parsed};
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

/// Times that a read which the system interrupted or had no room for is started again.
const MOMENTARY_RETRIES: u8 = 64;

/// Times that a read which the device failed is started again: a second failure is not bad luck.
const DEVICE_RETRIES: u8 = 1;

/// A batch whose reads are under way.
#[derive(Default)]
pub(super) struct Pending {
    plan: BatchPlan,
    /// Which batch it is, of all that were planned; units are not counted.
    number: u64,
    /// As many as the plan has, and then such as earlier plans had.
    blocks: Vec<Block>,
    reads: Vec<Progress>,
    /// The memory of each read that was not issued yet.
    parts: Vec<Option<Part>>,
    /// Reads issued so far.
    issued: usize,
    /// Reads that are not settled.
    left: usize,
    failures: Vec<Failure>,
    /// The memory that the samples lie in, once they were parsed.
    blocks_read: Option<Vec<Bytes>>,
    /// The memory that values are gathered into.
    target: Option<Part>,
    /// Whether memory was left behind with reads that were given up.
    has_holes: bool,
    parsed: Parsed,
}

/// One block of a batch: what was not handed out yet, and what came back.
#[derive(Default)]
struct Block {
    rest: Option<Part>,
    home: Vec<Part>,
    /// Where it starts in the arena.
    start: usize,
    len: usize,
    /// Bytes that reads which were given up have kept.
    missing: usize,
    /// Reads into it that are not settled.
    left: u32,
    /// Whether one of them failed.
    failed: bool,
    /// The whole of it, or what stands for it, where it was handed out as soon as it was read.
    early: Option<Bytes>,
}

/// How far one read has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Bytes before the part that is in flight, from the read's start on: they are home.
    base: u64,
    /// Bytes that are good, from the read's start on.
    got: u64,
    momentary: u8,
    device: u8,
    /// Times that it was taken back because it had not begun.
    waits: u32,
    /// When the read that is in flight is to be cancelled.
    deadline: Option<Instant>,
}

/// Who is told of blocks before their batch is complete.
pub struct Early {
    sender: Sender<EarlyBlock>,
    /// As long as the pool's memory: the byte at an offset here stands for the one at the same offset there, wherever
    /// values are only asked where they lie.
    echoes: Option<Bytes>,
}

impl Early {
    /// Tells `sender`, as far as it has room. With `echoes`, of as many bytes as the pool has, a block is the
    /// receiver's alone: only for datasets that do not look at bytes, and for columns that do not stay on the host.
    pub fn new(sender: Sender<EarlyBlock>, echoes: Option<Bytes>) -> Early {
        Early { sender, echoes }
    }
}

/// A block that was read before the batch that it belongs to is complete.
#[derive(Clone, Debug)]
pub struct EarlyBlock {
    /// Which batch, of all that the reactor delivers, from 0. Each is delivered in its place, be it as an error.
    pub batch: u64,
    /// All of it.
    pub bytes: Bytes,
    /// What the batch's values are slices of: the bytes, or an echo of them, which has as many bytes somewhere else
    /// that mean nothing.
    pub known_as: Bytes,
    /// Bytes of all blocks of the batch.
    pub batch_bytes: u64,
    /// Number of blocks of the batch.
    pub blocks: usize,
}

/// Bytes that could not be read.
struct Failure {
    file: FileId,
    start: u64,
    end: u64,
    error: Error,
}

/// What became of a read that was done.
pub(super) enum Verdict {
    /// All that is needed is there.
    Complete,
    /// It will not be had; the failure is booked.
    Failed,
    /// Fewer bytes came than are needed: the rest is to be read.
    Short(Read),
    /// It failed for a moment and is to be read again.
    Again(Read),
}

impl Pending {
    /// Takes the memory for `plan`, all or nothing.
    pub(super) fn take_memory(&mut self, pool: &mut Pool, plan: &BatchPlan) -> bool {
        // A batch that has the whole pool to itself gets no room to spare: then it fits, as was checked by `build`.
        self.take_blocks(pool, plan, Pool::take) || (pool.is_whole() && self.take_blocks(pool, plan, Pool::take_exact))
    }

    /// Takes the memory for `plan` by `take`, all or nothing.
    pub(super) fn take_blocks(
        &mut self,
        pool: &mut Pool,
        plan: &BatchPlan,
        take: fn(&mut Pool, usize) -> Option<Part>,
    ) -> bool {
        // Never shortened: a block's list of parts keeps its length for the next batch that has as many blocks.
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

    /// Gives back what was taken, before anything was begun.
    pub(super) fn give_blocks(&mut self, pool: &mut Pool) {
        self.blocks.iter_mut().filter_map(|block| block.rest.take()).for_each(|part| pool.give(part));
    }

    /// Begins the batch, for which memory was taken; gives back the plan it had before, for reuse. `number` says which
    /// batch it is.
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
            // A plan's blocks reach to the ends of their reads, so the part is always there.
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
        Some(std::mem::replace(&mut self.plan, plan))
    }

    /// Whether every read is settled.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The next read, if there is one left to issue. `number` is the batch's.
    pub(super) fn issue(&mut self, number: u32) -> Option<Read> {
        let index = *self.plan.issue_order.get(self.issued)?;
        let planned = self.plan.reads[index as usize];
        let part = self.parts[index as usize].take()?;
        self.issued += 1;
        let tag = (u64::from(number) << 32) | u64::from(index);
        Some(Read { tag, file: planned.file, offset: planned.offset, part })
    }

    /// Until when the read may be in flight, if it is and has a deadline.
    pub(super) fn deadline(&self, index: usize) -> Option<Instant> {
        self.reads.get(index)?.deadline
    }

    /// The read was started and is to be cancelled then.
    pub(super) fn set_deadline(&mut self, index: usize, deadline: Instant) {
        self.reads[index].deadline = Some(deadline);
    }

    /// The read is about to be cancelled, or has ended; returns what it is.
    pub(super) fn clear_deadline(&mut self, index: usize) -> PlannedRead {
        self.reads[index].deadline = None;
        self.plan.reads[index]
    }

    /// Times that the read was taken back because it had not begun.
    pub(super) fn waits(&self, index: usize) -> u32 {
        self.reads[index].waits
    }

    /// The read was taken back before it had begun, and is to be started again.
    pub(super) fn wait_again(&mut self, index: usize) {
        self.reads[index].waits += 1;
    }

    /// Goes on without the memory of a read that does not come back; returns how much that is.
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

    /// Books a read that is done and says what is next for it. `cancelled` is what it fails with if it was cancelled
    /// and is not complete all the same.
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
                    let at = planned.offset + progress.got;
                    return self.fail(index, done.part, at, error);
                }
                // The same end twice is the end of the file; anything more is a short read to be repaired.
                let first_try = before == 0 && progress.base == 0;
                if progress.got > before || (first_try && bytes > 0) {
                    let mut rest = done.part;
                    // What is read next must be aligned again, so up to a unit is read twice.
                    let base = progress.got & !(alignment - 1);
                    block.home.push(rest.split_to((base - progress.base) as usize));
                    progress.base = base;
                    // It got further: what failed it before was passed.
                    progress.device = 0;
                    return Verdict::Short(again(rest, base));
                }
                let at = planned.offset + progress.got;
                let error = truncated(files, planned.file, at, planned.offset + planned.need);
                self.fail(index, done.part, at, error)
            }
            Err(source) => {
                if let Some(error) = cancelled {
                    let at = planned.offset + progress.base;
                    return self.fail(index, done.part, at, error);
                }
                if is_momentary(&source) && progress.momentary < MOMENTARY_RETRIES {
                    progress.momentary += 1;
                    return Verdict::Again(again(done.part, progress.base));
                }
                if source.raw_os_error() == Some(EIO) && progress.device < DEVICE_RETRIES {
                    progress.device += 1;
                    return Verdict::Again(again(done.part, progress.base));
                }
                let at = planned.offset + progress.base;
                let error = Error::io("cannot read", source).with_path(files.path(planned.file)).with_offset(at);
                self.fail(index, done.part, at, error)
            }
        }
    }

    fn fail(&mut self, index: usize, part: Part, start: u64, error: Error) -> Verdict {
        let PlannedRead { file, offset, len, block, .. } = self.plan.reads[index];
        let block = &mut self.blocks[block as usize];
        block.home.push(part);
        (block.left, block.failed) = (block.left - 1, true);
        self.failures.push(Failure { file, start, end: offset + len, error });
        self.left -= 1;
        Verdict::Failed
    }

    /// Shares the block of read `index` with whoever wants it before the batch is complete, if all of it was read well.
    /// Nothing may be moved in it any more. Where `echoes` stands for the pool's memory, the batch keeps its echo only,
    /// so that the block goes home as soon as whoever wanted it has let go of it.
    ///
    /// # Errors
    /// `Internal` where memory was lost: a bug.
    pub(super) fn tell_early(&mut self, index: usize, pool: &Pool, early: &Early) -> Result<()> {
        let which = self.plan.reads[index].block as usize;
        let block = &mut self.blocks[which];
        if block.left > 0 || block.failed || self.plan.load.is_some() {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(1);
        block.join(&mut parts)?;
        let Some(part) = parts.pop() else { return Ok(()) };
        // A block may be longer than what is read into it.
        let (start, len) = (part.offset(), self.plan.blocks[which] as usize);
        let bytes = pool.lease(part).slice(..len);
        let kept = early.echoes.as_ref().map_or_else(|| bytes.clone(), |echoes| echoes.slice(start..start + len));
        let (batch, batch_bytes, blocks) = (self.number, self.plan.block_bytes(), self.plan.blocks.len());
        let told = EarlyBlock { batch, bytes, known_as: kept.clone(), batch_bytes, blocks };
        block.early = Some(match early.sender.try_send(told) {
            Ok(()) => kept,
            // Where there is no room the block goes with its batch.
            Err(EarlyBlock { bytes, .. }) => bytes,
        });
        Ok(())
    }

    /// Where the memory ends that values are gathered into, which no read has taken from the system.
    pub(super) fn target_end(&self) -> Option<usize> {
        let target = &self.blocks[self.plan.gather? as usize];
        target.rest.as_ref().map(Part::end)
    }

    /// The unit that this is, if it is no batch.
    pub(super) fn load(&self) -> Option<Load> {
        self.plan.load
    }

    /// The loads that samples are cut from.
    pub(super) fn plan(&self) -> &BatchPlan {
        &self.plan
    }

    /// Of a unit that was read: what it is stored in, one slice for each span, or why it could not be had. Every block
    /// is leased or home afterwards.
    ///
    /// # Errors
    /// `Internal` where memory was lost: a bug.
    pub(super) fn take_stored(&mut self, pool: &Pool, stats: &Stats) -> Result<Result<Vec<Bytes>>> {
        let mut parts = Vec::with_capacity(self.plan.blocks.len());
        for block in &mut self.blocks[..self.plan.blocks.len()] {
            block.join(&mut parts)?;
        }
        let blocks: Vec<Bytes> = parts.into_iter().map(|part| pool.lease(part)).collect();
        if let Some(failure) = self.failures.first() {
            return Ok(Err(failure.error.clone()));
        }
        stats.count.bytes_wanted.add(self.plan.slices.iter().map(|slice| slice.span.len).sum());
        Ok(Ok(self.plan.slices.iter().map(|slice| bytes_of(slice, &blocks)).collect()))
    }

    /// Parses the samples, once every read is settled, where `gather` says that they are to lie. Every block is leased
    /// or home afterwards, but for the one that values are gathered into.
    ///
    /// # Errors
    /// `Internal` where memory was lost: a bug.
    pub(super) fn parse(
        &mut self,
        (dataset, collation, gather): (&dyn Dataset, &Collation, Gather),
        units: Vec<Result<Bytes>>,
        pool: &Pool,
        stats: &Stats,
    ) -> Result<()> {
        let mut failed = self.failed_samples();
        let mut parts = Vec::with_capacity(self.plan.blocks.len());
        let mut blocks = Vec::with_capacity(self.plan.blocks.len());
        for index in 0..self.plan.blocks.len() {
            if let Some(early) = self.blocks[index].early.take() {
                // It is whole, and stays where the slices say; its place among the runs is kept.
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
                // A block may be longer than what is read into it.
                let len = self.plan.blocks[index] as usize;
                blocks.extend(
                    parts.drain(..).map(|part| pool.lease(part)).map(|bytes| bytes.slice(..len.min(bytes.len()))),
                );
            }
        }
        if self.has_holes {
            // What lies around a hole are blocks of their own now.
            self.plan.slices.iter_mut().for_each(|slice| slice.block &= !MOVED);
        }
        // The block to gather into is the last; nothing is read into it, so it has no hole.
        self.target = self.plan.gather.and_then(|_| parts.pop());
        if gather == Gather::InPlace && !self.has_holes {
            assemble::compact(&mut self.plan, &mut parts, &failed);
        }
        blocks.extend(parts.into_iter().map(|part| pool.lease(part)));
        if self.plan.refused.is_none() {
            self.parsed.parse(dataset, collation, &self.plan, (&blocks, &units), &mut failed);
        }
        // Values may lie end to end in a unit as well.
        blocks.extend(units.into_iter().flatten());
        self.blocks_read = Some(blocks);
        stats.count.bytes_wanted.add(self.plan.slices.iter().map(|slice| slice.span.len).sum());
        Ok(())
    }

    /// Whether `parse` was done.
    pub(super) fn is_parsed(&self) -> bool {
        self.blocks_read.is_some()
    }

    /// Whether another sample can stand in for one of this batch: where rows are packed it would be of another length.
    pub(super) fn is_replaceable(&self) -> bool {
        self.plan.batch.pieces.is_empty() && self.plan.batch.row_ends.is_empty()
    }

    /// Index of the first sample that is missing and has no other in its place.
    pub(super) fn missing(&self) -> Option<usize> {
        self.parsed.missing()
    }

    /// The missing sample at `index`, and why it is missing.
    pub(super) fn missing_at(&self, index: usize) -> (SampleId, Option<Error>) {
        (self.plan.batch.ids[index], self.parsed.error_at(index))
    }

    /// Puts the values of the sample `by` in the place of the missing one at `index`.
    ///
    /// # Errors
    /// `Corrupt` where the values are not of the kind that the others are.
    pub(super) fn replace(&mut self, index: usize, by: SampleId, values: Vec<Value>) -> Result<()> {
        self.parsed.replace(index, by, values)
    }

    /// Of a batch of one sample, which was parsed: its values, copied, so that its memory is free.
    ///
    /// # Errors
    /// That of the sample.
    pub(super) fn take_one(&mut self) -> Result<Vec<Value>> {
        let values = self.parsed.take_one();
        self.blocks_read = None;
        values
    }

    /// The epoch of the batch.
    pub(super) fn epoch(&self) -> u64 {
        self.plan.batch.cursor.epoch
    }

    /// The samples that could not be had.
    pub(super) fn failed(&self) -> Vec<FailedSample> {
        self.parsed.failed_samples(&self.plan)
    }

    /// Makes the batch of what was parsed, or the error that stands in its place: `irreplaceable`, or what `rules`
    /// says.
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
            // Goes home by drop.
            let _ = self.target.take().map(|part| pool.lease(part));
            return Err(error);
        }
        stats.count.samples_skipped.add(failed - replaced);
        stats.count.samples_replaced.add(replaced);
        let target = self.target.take();
        let (batch, truncated) = self.parsed.assemble((dataset, collation), &self.plan, &blocks, target, pool);
        stats.count.samples_truncated.add(truncated);
        Ok(batch)
    }

    /// Tells the slices of a block that came back with holes where they lie: in one of `parts[first..]`, which are the
    /// runs that it came back in.
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

    /// Tells the slices of a whole block that it is number `to` of what came back.
    fn renumber_slices(&mut self, block: usize, to: usize) {
        let of_block = self.plan.slices.iter_mut().filter(|slice| slice.block as usize == block);
        of_block.for_each(|slice| slice.block = MOVED | to as u32);
    }

    /// The error of each sample that lacks a byte, by sample; empty where all are good.
    fn failed_samples(&self) -> Vec<Option<Error>> {
        if self.failures.is_empty() {
            return Vec::new();
        }
        let of = |slice: &Slice| {
            let (start, end) = (slice.span.offset, slice.span.offset + slice.span.len);
            let hits = |failure: &&Failure| {
                failure.file == slice.span.file && failure.start < end && start < failure.end && start < end
            };
            self.failures.iter().find(hits).map(|failure| failure.error.clone())
        };
        (0..self.plan.batch.ids.len()).map(|index| self.plan.slices_of(index).iter().find_map(of)).collect()
    }
}

impl Block {
    /// Joins what came back to one part again, or to one for each run where memory is missing, and appends it.
    fn join(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.home.extend(self.rest.take());
        // A repair may have split off nothing; an empty part has no place in the order.
        self.home.retain(|part| !part.is_empty());
        self.home.sort_unstable_by_key(Part::offset);
        let first = parts.len();
        let mut bytes = 0;
        for part in self.home.drain(..) {
            bytes += part.len();
            // The first part of a block may lie right behind the block before, which it is no part of.
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

/// Marks the block of a slice as one of those that came back, while others still count in those that were taken.
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

const EIO: i32 = 5;
const ECANCELED: i32 = 125;

/// EINTR, EAGAIN, ENOMEM of a kernel that is short of memory for a moment, and ECANCELED of a read that was taken back.
fn is_momentary(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ECANCELED)
        || matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
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

    /// A sample of another length does not fit into the gap of a packed row: what is missing there is left out.
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
