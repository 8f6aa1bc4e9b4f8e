//! Divides one order among the ranks of a distributed training.

use super::Cursor;
use crate::{Error, ErrorKind, Result};

/// The positions of the global order that one rank takes, batch by batch.
///
/// The rest of an epoch from a cursor on is dealt out in turn: the position `p` places after the cursor belongs to rank
/// `p % world_size`, and batch `i` of all ranks together is the `i`-th run of `batch_size * world_size` positions. So
/// every rank has the same number of batches, and a cursor after any batch means the same for another world size or
/// batch size.
///
/// With `drop_last`, a run that is not full is left out, on all ranks. Otherwise each rank has the same share of it, a
/// smaller batch; a rank that would have one sample fewer than the others repeats one from the beginning of that rest
/// of the epoch, marked as padding: fewer than `world_size` in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    rank: u64,
    world_size: u64,
    batch_size: u64,
    drop_last: bool,
}

/// A position of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Position in the epoch.
    pub position: u64,
    /// Whether the sample only gives every rank as many as the others: it also comes elsewhere.
    pub padding: bool,
}

impl Strided {
    /// For rank `rank`, with `batch_size` samples a batch and rank.
    ///
    /// # Errors
    /// `InvalidArgument` if the batch size or the world size is 0, the rank is not below the world size, or the
    /// batches of all ranks together have 2^64 samples or more.
    pub fn new(rank: u64, world_size: u64, batch_size: u64, drop_last: bool) -> Result<Strided> {
        let refuse =
            |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
        if batch_size == 0 {
            return refuse("the batch size is 0".into(), "give at least one sample a batch");
        }
        if world_size == 0 {
            return refuse("the world size is 0".into(), "give the number of ranks: 1 for one process");
        }
        if rank >= world_size {
            let what = format!("rank {rank} is not below the world size {world_size}");
            return refuse(what, "ranks count from 0 to the world size minus 1");
        }
        if batch_size.checked_mul(world_size).is_none() {
            let what = format!("{world_size} batches of {batch_size} samples are more than 2^64 samples");
            return refuse(what, "give a smaller batch size");
        }
        Ok(Strided { rank, world_size, batch_size, drop_last })
    }

    /// This rank.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> u64 {
        self.world_size
    }

    /// Samples in a full batch of one rank.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// Whether samples that do not fill a batch on every rank are left out.
    pub fn drop_last(&self) -> bool {
        self.drop_last
    }

    /// Batches that each rank gets of the `remaining` samples of an epoch.
    pub fn batches(&self, remaining: u64) -> u64 {
        if self.drop_last { remaining / self.global_batch() } else { remaining.div_ceil(self.global_batch()) }
    }

    /// Samples that each rank gets of an epoch of `len`, padding included.
    pub fn share(&self, len: u64) -> u64 {
        if self.drop_last { self.batches(len) * self.batch_size } else { len.div_ceil(self.world_size) }
    }

    /// Appends the positions of batch `index`, counted from `start`, of an epoch of `len` samples. Appends nothing if
    /// there is no such batch.
    pub fn batch(&self, start: Cursor, len: u64, index: u64, out: &mut Vec<Position>) {
        let remaining = len.saturating_sub(start.position);
        if index >= self.batches(remaining) {
            return;
        }
        let passed = index * self.global_batch();
        let share = (remaining - passed).min(self.global_batch()).div_ceil(self.world_size);
        for turn in 0..share {
            // Without the rank it is below `remaining`; with it, it may pass the largest number, which is padding too.
            let place = (passed + turn * self.world_size).saturating_add(self.rank);
            let padding = place >= remaining;
            let place = if padding { (place - remaining) % remaining } else { place };
            out.push(Position { position: start.position + place, padding });
        }
    }

    /// The cursor after batch `index`, counted from `start`, of an epoch of `len` samples: the checkpoint once that
    /// batch is done. After the last batch it is the beginning of the next epoch.
    pub fn cursor_after(&self, start: Cursor, len: u64, index: u64) -> Cursor {
        let remaining = len.saturating_sub(start.position);
        let done = index.saturating_add(1);
        if done >= self.batches(remaining) {
            return Cursor::new(start.epoch.saturating_add(1), 0);
        }
        Cursor::new(start.epoch, start.position + done * self.global_batch())
    }

    /// Samples in a full batch of all ranks together. `new` checked that it fits.
    fn global_batch(&self) -> u64 {
        self.batch_size * self.world_size
    }
}
