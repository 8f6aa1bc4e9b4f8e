//! One batch on its way: its memory, its reads, and what went wrong.

use super::Rules;
use super::assemble::{self, Parsed};
use crate::batch::Batch;
use crate::collate::Gather;
use crate::config::OnError;
use crate::dataset::{FileId, FileTable};
use crate::engine::{Done, Read};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{BatchPlan, PlannedRead, Planner, Slice};
use crate::pool::Pool;
use crate::stats::Stats;
use bytes::Bytes;
use std::io;
use uringload_sys::Part;

/// Times that a read which the system interrupted or had no room for is started again.
const MOMENTARY_RETRIES: u8 = 64;

/// Times that a read which the device failed is started again: a second failure is not bad luck.
const DEVICE_RETRIES: u8 = 1;

/// A batch whose reads are under way.
#[derive(Default)]
pub(super) struct Pending {
    plan: BatchPlan,
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
    parsed: Parsed,
}

/// One block of a batch: what was not handed out yet, and what came back.
#[derive(Default)]
struct Block {
    rest: Option<Part>,
    home: Vec<Part>,
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

    fn take_blocks(&mut self, pool: &mut Pool, plan: &BatchPlan, take: fn(&mut Pool, usize) -> Option<Part>) -> bool {
        // Never shortened: a block's list of parts keeps its length for the next batch that has as many blocks.
        self.blocks.resize_with(plan.blocks.len().max(self.blocks.len()), Block::default);
        for (block, &bytes) in self.blocks.iter_mut().zip(&plan.blocks) {
            block.rest = take(pool, bytes as usize);
            if block.rest.is_none() {
                self.blocks.iter_mut().filter_map(|block| block.rest.take()).for_each(|part| pool.give(part));
                return false;
            }
        }
        true
    }

    /// Begins the batch, for which memory was taken; gives back the plan it had before, for reuse.
    pub(super) fn begin(&mut self, plan: BatchPlan) -> Option<BatchPlan> {
        self.reads.clear();
        self.reads.resize(plan.reads.len(), Progress::default());
        self.parts.clear();
        for read in &plan.reads {
            // A plan's blocks are as long as the sum of their reads, so the part is always there.
            let rest = self.blocks[read.block as usize].rest.as_mut();
            self.parts.push(rest.map(|rest| rest.split_to(read.len as usize)));
        }
        self.issued = 0;
        self.left = plan.reads.len();
        self.failures.clear();
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

    /// Books a read that is done and says what is next for it.
    pub(super) fn settle(&mut self, done: Done, alignment: u64, files: &FileTable) -> Verdict {
        let index = done.tag as u32 as usize;
        let planned = self.plan.reads[index];
        let progress = &mut self.reads[index];
        let block = &mut self.blocks[planned.block as usize].home;
        let again = |part, base| Read { tag: done.tag, file: planned.file, offset: planned.offset + base, part };
        match done.result {
            Ok(bytes) => {
                let before = progress.got;
                progress.got = progress.base + bytes as u64;
                if progress.got >= planned.need {
                    block.push(done.part);
                    self.left -= 1;
                    return Verdict::Complete;
                }
                // The same end twice is the end of the file; anything more is a short read to be repaired.
                let first_try = before == 0 && progress.base == 0;
                if progress.got > before || (first_try && bytes > 0) {
                    let mut rest = done.part;
                    // What is read next must be aligned again, so up to a unit is read twice.
                    let base = progress.got & !(alignment - 1);
                    block.push(rest.split_to((base - progress.base) as usize));
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
                if is_momentary(&source) && progress.momentary < MOMENTARY_RETRIES {
                    progress.momentary += 1;
                    return Verdict::Again(again(done.part, progress.base));
                }
                if source.raw_os_error() == Some(EIO) && progress.device < DEVICE_RETRIES {
                    progress.device += 1;
                    return Verdict::Again(again(done.part, progress.base));
                }
                let at = planned.offset + progress.base;
                let error = Error::io("cannot read", source).with_file(files.path(planned.file)).with_offset(at);
                self.fail(index, done.part, at, error)
            }
        }
    }

    fn fail(&mut self, index: usize, part: Part, start: u64, error: Error) -> Verdict {
        let PlannedRead { file, offset, len, block, .. } = self.plan.reads[index];
        self.blocks[block as usize].home.push(part);
        self.failures.push(Failure { file, start, end: offset + len, error });
        self.left -= 1;
        Verdict::Failed
    }

    /// Where the memory ends that values are gathered into, which no read has taken from the system.
    pub(super) fn target_end(&self) -> Option<usize> {
        let target = &self.blocks[self.plan.gather? as usize];
        target.rest.as_ref().map(Part::end)
    }

    /// Makes the batch, or the error that stands in its place. Every block is leased or home afterwards.
    ///
    /// # Errors
    /// `Internal` where memory was lost: a bug.
    pub(super) fn finish(
        &mut self,
        planner: &Planner,
        pool: &Pool,
        rules: &Rules,
        stats: &Stats,
    ) -> Result<Result<Batch>> {
        let mut parts = Vec::with_capacity(self.plan.blocks.len());
        for block in &mut self.blocks[..self.plan.blocks.len()] {
            parts.push(block.whole()?);
        }
        let target = self.plan.gather.and_then(|_| parts.pop());
        let (dataset, collation) = (&**planner.dataset(), &**planner.collation());
        let mut failed = self.failed_samples();
        if collation.gather(planner.layout().coalesce_gap) == Gather::InPlace {
            assemble::compact(&mut self.plan, &mut parts, &failed);
        }
        let blocks: Vec<Bytes> = parts.into_iter().map(|part| pool.lease(part)).collect();
        self.parsed.parse(dataset, collation, &self.plan, &blocks, &mut failed);
        stats.count.bytes_wanted.add(self.plan.slices.iter().map(|slice| slice.span.len).sum());
        let failed = self.parsed.failed() as u64;
        if rules.on_error == OnError::Raise
            && let Some(error) = self.parsed.first_error()
        {
            stats.count.samples_failed.add(failed);
            self.parsed.clear();
            // Goes home by drop.
            let _ = target.map(|part| pool.lease(part));
            return Ok(Err(error));
        }
        stats.count.samples_skipped.add(failed);
        let (batch, truncated) = self.parsed.assemble(dataset, collation, &self.plan, &blocks, target, pool);
        stats.count.samples_truncated.add(truncated);
        Ok(Ok(batch))
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
        (0..self.plan.ids.len()).map(|index| self.plan.slices_of(index).iter().find_map(of)).collect()
    }
}

impl Block {
    /// Joins what came back to one part again.
    fn whole(&mut self) -> Result<Part> {
        self.home.extend(self.rest.take());
        // A repair may have split off nothing; an empty part has no place in the order.
        self.home.retain(|part| !part.is_empty());
        self.home.sort_unstable_by_key(Part::offset);
        let mut parts = self.home.drain(..);
        let lost = || Error::new(ErrorKind::Internal, "a block came back with a hole: this is a bug of uringload");
        let mut whole = parts.next().ok_or_else(lost)?;
        for part in parts {
            whole.unsplit(part).map_err(|_| lost())?;
        }
        Ok(whole)
    }
}

const EIO: i32 = 5;

/// EINTR, EAGAIN, and ENOMEM of a kernel that is short of memory for a moment.
fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
}

fn truncated(files: &FileTable, file: FileId, at: u64, wanted: u64) -> Error {
    let indexed = files.size(file);
    Error::new(
        ErrorKind::Truncated,
        format!(
            "the file ended before byte {wanted}: it had {indexed} bytes when it was indexed, and shrank since, in"
        ),
    )
    .with_file(files.path(file))
    .with_offset(at)
    .with_remedy("restore the file, or open the dataset again")
}
