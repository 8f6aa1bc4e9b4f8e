//! Reads a stretch of a file like a batch, and takes it without parsing.

use super::Pending;
use crate::Result;
use crate::plan::BatchPlan;
use crate::pool::Pool;
use crate::reactor::lost::{Failure, lost};
use bytes::Bytes;

impl Pending {
    /// Begins again with another plan of the same stretch, in the memory that was taken. Returns the previous plan for
    /// reuse.
    pub(in crate::reactor) fn begin_again(&mut self, plan: BatchPlan) -> Option<BatchPlan> {
        let previous = self.begin(plan, self.number, false);
        self.is_second_try = true;
        previous
    }

    /// Whether this was begun again.
    pub(in crate::reactor) fn is_second_try(&self) -> bool {
        self.is_second_try
    }

    /// Whether reads that were given up still hold some of the memory.
    pub(in crate::reactor) fn has_holes(&self) -> bool {
        self.has_holes
    }

    /// Takes what was read of a stretch, and what could not be. Those bytes have no meaning.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(in crate::reactor) fn take_stretch(&mut self, pool: &Pool) -> Result<(Bytes, Vec<Failure>)> {
        let mut parts = Vec::with_capacity(1);
        for block in &mut self.blocks[..self.plan.blocks.len()] {
            block.join(&mut parts)?;
        }
        let failures = std::mem::take(&mut self.failures);
        let (Some(slice), Some(block)) = (self.plan.slices.first(), self.blocks.first()) else {
            return Err(lost("a stretch has no memory"));
        };
        let (start, len) = (block.start + slice.at as usize, slice.span.len as usize);
        if let ([part], false) = (&parts[..], self.has_holes) {
            let at = start - part.offset();
            let whole = parts.pop().map(|part| pool.lease(part));
            return Ok((whole.unwrap_or_default().slice(at..at + len), failures));
        }
        // A read that was given up holds some of the memory. The rest is in pieces.
        let mut bytes = vec![0; len];
        for part in parts {
            let (from, to) = (part.offset().max(start), part.end().min(start + len));
            if from < to {
                bytes[from - start..to - start]
                    .copy_from_slice(&part.as_ref()[from - part.offset()..to - part.offset()]);
            }
            drop(pool.lease(part));
        }
        Ok((Bytes::from(bytes), failures))
    }

    /// Takes the numbers of the stretches to drop before this batch or stretch is built.
    pub(in crate::reactor) fn take_given_up(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.plan.given_up)
    }
}
