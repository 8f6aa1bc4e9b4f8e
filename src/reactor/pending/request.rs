//! Ends a request in progress, with its bytes or without.

use super::super::assemble;
use super::Pending;
use crate::pool::Pool;
use crate::stats::Stats;
use crate::{Error, Result};
use bytes::Bytes;
use uringload_sys::Part;

impl Pending {
    /// Takes back the memory of the reads that are not issued yet, which cancels them. Returns their number.
    fn take_back_unissued(&mut self) -> usize {
        let unissued = &self.plan.issue_order[self.issued..];
        for &index in unissued {
            let block = &mut self.blocks[self.plan.reads[index as usize].block as usize];
            block.home.extend(self.parts[index as usize].take());
            block.left -= 1;
        }
        let count = unissued.len();
        self.issued += count;
        self.left -= count;
        count
    }

    /// Tags of the reads that were issued, whether or not they have ended.
    pub(in crate::reactor) fn tags_of_issued(&self, number: u32) -> impl Iterator<Item = u64> {
        let tag = move |&index: &u32| (u64::from(number) << 32) | u64::from(index);
        self.plan.issue_order[..self.issued].iter().map(tag)
    }

    /// The first failure of a request, if it has one.
    fn take_failure(&mut self) -> Option<Error> {
        let first =
            (0..self.failures.len()).min_by_key(|&index| (self.failures[index].file, self.failures[index].start));
        first.map(|index| self.failures.swap_remove(index).error)
    }

    /// Takes what was read as whole blocks, or in runs where memory is missing.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(super) fn take_parts(&mut self) -> Result<Vec<Part>> {
        let mut parts = Vec::with_capacity(self.plan.blocks.len());
        for block in &mut self.blocks[..self.plan.blocks.len()] {
            block.join(&mut parts)?;
        }
        Ok(parts)
    }

    /// Cancels the request. Returns how many of its reads were not issued, and now never are.
    pub(in crate::reactor) fn drop_request(&mut self) -> usize {
        self.is_dropped = true;
        self.take_back_unissued()
    }

    /// Takes the bytes of a request, end to end. Every block is leased or back in the pool afterwards.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(in crate::reactor) fn take_answer(&mut self, pool: &Pool, stats: &Stats) -> Result<Result<Bytes>> {
        let failed = self.take_failure();
        let mut parts = self.take_parts()?;
        if let Some(error) = failed {
            // Dropping the leases returns the memory.
            parts.into_iter().for_each(|part| drop(pool.lease(part)));
            return Ok(Err(error));
        }
        let plan = &mut self.plan;
        let wanted: u64 = plan.slices.iter().map(|slice| slice.span.len).sum();
        stats.count.bytes_wanted.add(wanted);
        let mut slices = plan.slices.iter().filter(|slice| slice.span.len > 0);
        let Some(first) = slices.next() else {
            // For files without bytes, which were checked.
            parts.into_iter().for_each(|part| drop(pool.lease(part)));
            return Ok(Ok(Bytes::new()));
        };
        let is_one = slices.next().is_none();
        let mut start = first.at as usize;
        if !is_one {
            assemble::compact(plan, &mut parts, &[], None)?;
            start = plan.slices.iter().find(|slice| slice.span.len > 0).map_or(0, |slice| slice.at as usize);
        }
        let whole = parts.pop().map_or_else(Bytes::new, |part| pool.lease(part));
        Ok(Ok(whole.slice(start..start + wanted as usize)))
    }
}
