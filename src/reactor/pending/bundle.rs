//! Starts reads: short ones that are adjacent in memory go to the engine together. Parts of a bundle that do not come
//! back whole are read again, one by one, so errors and short reads are handled like those of any read.

use super::{Pending, Progress};
use crate::Result;
use crate::engine::{Done, Piece, Read};
use crate::plan::{BatchPlan, PlannedRead};
use crate::reactor::Reactor;
use crate::reactor::depth::Ended;
use std::collections::VecDeque;

/// Longest read that joins a bundle: copying it takes no longer than submitting it.
const PIECE_BYTES_MAX: u64 = 8 << 10;

/// Most reads of a bundle: submitting one is then a small part of reading it, and a batch still has several.
const PIECES_MAX: usize = 16;

impl Pending {
    /// Begins the batch whose memory was taken, as batch `number`, in bundles if the engine takes them. Returns the
    /// previous plan for reuse.
    pub(in crate::reactor) fn begin(&mut self, plan: BatchPlan, number: u64, bundles: bool) -> Option<BatchPlan> {
        self.number = number;
        self.reads.clear();
        self.reads.resize(plan.reads.len(), Progress::default());
        self.parts.clear();
        (self.bundles, self.slowest) = (0, 0);
        self.making.forget_times();
        let (mut block, mut filled) = (0, 0);
        while let Some(read) = plan.reads.get(self.parts.len()) {
            let first = self.parts.len();
            let together = if bundles { together(&plan.reads[first..]) } else { 1 };
            let bytes: u64 = plan.reads[first..first + together].iter().map(|read| read.len).sum();
            if read.block != block {
                (block, filled) = (read.block, 0);
            }
            // A plan's blocks extend to the ends of their reads, so the part is always there.
            let of_block = &mut self.blocks[block as usize];
            if read.at > filled {
                let gap = of_block.rest.as_mut().map(|rest| rest.split_to((read.at - filled) as usize));
                of_block.home.extend(gap);
            }
            of_block.left += together as u32;
            self.parts.push(of_block.rest.as_mut().map(|rest| rest.split_to(bytes as usize)));
            self.parts.resize_with(first + together, || None);
            self.reads[first].together = together as u32;
            self.bundles += 1;
            filled = read.at + bytes;
        }
        self.issued = 0;
        self.left = plan.reads.len();
        self.failures.clear();
        self.has_holes = false;
        (self.is_second_try, self.is_dropped) = (false, false);
        Some(std::mem::replace(&mut self.plan, plan))
    }

    /// Number of issues, if none was made yet.
    pub(in crate::reactor) fn bundles(&self) -> usize {
        self.bundles
    }

    /// The next read to issue, if any is left. `number` is the batch's number; lists of pieces are taken from `spare`.
    pub(in crate::reactor) fn issue(&mut self, number: u32, spare: &mut Vec<Vec<Piece>>) -> Option<Read> {
        loop {
            let index = *self.plan.issue_order.get(self.issued)? as usize;
            self.issued += 1;
            // Otherwise it goes with an earlier read in memory.
            let Some(part) = self.parts[index].take() else { continue };
            let PlannedRead { file, offset, .. } = self.plan.reads[index];
            let tag = (u64::from(number) << 32) | index as u64;
            let pieces = match self.reads[index].together as usize {
                0 | 1 => Vec::new(),
                together => {
                    let mut pieces = spare.pop().unwrap_or_default();
                    pieces.extend(self.plan.reads[index..index + together].iter().map(piece));
                    pieces
                }
            };
            return Some(Read { tag, file, offset, part, pieces });
        }
    }

    /// Whether several reads went to the engine as this one.
    pub(in crate::reactor) fn is_bundle(&self, index: usize) -> bool {
        self.reads.get(index).is_some_and(|progress| progress.together > 1)
    }

    /// Settles the reads of a bundle that came back whole, and returns their number and bytes. The others join `again`,
    /// to be read one by one.
    pub(in crate::reactor) fn settle_bundle(&mut self, done: Done, again: &mut VecDeque<Read>) -> (u64, u64) {
        let first = done.tag as u32 as usize;
        let together = std::mem::take(&mut self.reads[first].together) as usize;
        // They were read one after the other: each took its share of the time.
        (first..first + together).for_each(|index| self.took(index, done.latency / together as u32));
        let planned = &self.plan.reads[first..first + together];
        let good = done.result.unwrap_or(0) as u64;
        let (mut whole, mut filled, mut bytes) = (0, 0, 0);
        for read in planned.iter().take_while(|read| {
            filled += read.len;
            filled <= good
        }) {
            whole += 1;
            bytes += read.need;
        }
        let filled: u64 = planned[..whole].iter().map(|read| read.len).sum();
        let mut part = done.part;
        let block = &mut self.blocks[planned[0].block as usize];
        block.home.push(part.split_to(filled as usize));
        block.left -= whole as u32;
        self.left -= whole;
        for (index, &PlannedRead { file, offset, len, .. }) in planned.iter().enumerate().skip(whole) {
            let tag = done.tag + index as u64;
            again.push_back(Read { tag, file, offset, part: part.split_to(len as usize), pieces: Vec::new() });
        }
        (whole as u64, bytes)
    }
}

impl Reactor {
    /// Settles reads that went to the engine together.
    pub(in crate::reactor) fn settle_bundle(&mut self, mut done: Done) -> Result<()> {
        let (tag, latency) = (done.tag, done.latency);
        done.pieces.clear();
        self.spare.pieces.push(std::mem::take(&mut done.pieces));
        let mut again = std::mem::take(&mut self.reads.again);
        let before = again.len();
        let (joined, (reads, bytes)) = match self.find(tag) {
            Some((pending, _)) => (pending.plan().joined, pending.settle_bundle(done, &mut again)),
            None => Default::default(),
        };
        self.stats.count.retries.add((again.len() - before) as u64);
        self.reads.again = again;
        self.stats.count.reads.add(reads);
        self.stats.count.bytes_read.add(bytes);
        let Some(each) = bytes.checked_div(reads) else { return Ok(()) };
        // They were read one after the other: each took its share of the time.
        self.stats.read_latency.record(each, latency / reads as u32, reads);
        self.reads.depth.done(Ended::new(bytes, joined, latency));
        self.tell_early(tag)
    }
}

/// How many of these reads go to the engine together.
fn together(reads: &[PlannedRead]) -> usize {
    let is_short = |read: &PlannedRead| read.len <= PIECE_BYTES_MAX;
    if !reads.first().is_some_and(is_short) {
        return 1;
    }
    let follows = |pair: &&[PlannedRead]| {
        is_short(&pair[1]) && pair[1].block == pair[0].block && pair[1].at == pair[0].at + pair[0].len
    };
    1 + reads.windows(2).take(PIECES_MAX - 1).take_while(follows).count()
}

fn piece(read: &PlannedRead) -> Piece {
    Piece { file: read.file, offset: read.offset, len: read.len as usize, need: read.need as usize }
}
