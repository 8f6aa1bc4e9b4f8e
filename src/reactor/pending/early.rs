//! Sends blocks out before their batch is complete.

use super::Pending;
use crate::Result;
use crate::pool::Pool;
use crate::queue::Sender;
use crate::reactor::{REPAIRS, Reactor};
use bytes::Bytes;

/// Receiver of blocks whose batch is not complete yet.
pub struct Early {
    sender: Sender<EarlyBlock>,
    /// Exactly as long as the pool's memory. A byte here represents the byte at the same offset there, wherever only a
    /// value's location matters.
    echoes: Option<Bytes>,
}

impl Early {
    /// Sends blocks to `sender` while it has room. With `echoes`, which has as many bytes as the pool, the receiver
    /// owns each block alone. That is only for datasets that do not look at bytes, and for columns that do not stay on
    /// the host.
    pub fn new(sender: Sender<EarlyBlock>, echoes: Option<Bytes>) -> Early {
        Early { sender, echoes }
    }
}

/// A block that was read before its batch is complete.
#[derive(Clone, Debug)]
pub struct EarlyBlock {
    /// Number of its batch among all that the reactor delivers, from 0. A batch that ends as an error counts too.
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

impl Pending {
    /// Shares the block of read `index` before the batch is complete, if all of it was read without errors. From then
    /// on nothing may be moved inside it. With `echoes`, the batch keeps only the echo, so the block returns to the
    /// pool as soon as the receiver drops it.
    ///
    /// # Errors
    /// `Internal` if memory was lost, which is a bug.
    pub(in crate::reactor) fn tell_early(&mut self, index: usize, pool: &Pool, early: &Early) -> Result<()> {
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
}

impl Reactor {
    /// Called when a read is complete. If it was the last one of its block, the block may go out before its batch.
    pub(in crate::reactor) fn tell_early(&mut self, tag: u64) -> Result<()> {
        let (number, index) = ((tag >> 32) as u32, tag as u32 as usize);
        let Some(early) = self.early.as_ref().filter(|_| number & REPAIRS == 0) else { return Ok(()) };
        let place = (number.wrapping_sub(self.reads.first) & !REPAIRS) as usize;
        match self.pending.get_mut(place) {
            Some(pending) => pending.tell_early(index, &self.pool, early),
            None => Ok(()),
        }
    }
}
