//! Walks window after window: which rows of the global order one rank takes, batch by batch.

use crate::sampler::rows::{Recipe, Window};
use crate::sampler::{Cursor, Order, Position, Selection};
use std::sync::Arc;

/// The walk ends after this many consecutive epochs without a batch (because rows that do not fill one on every rank
/// are dropped). Epochs differ in their number of rows, so one may have a batch when another has none.
const EMPTY_EPOCHS_MAX: u32 = 16;

/// Walks through the windows of epoch after epoch.
///
/// A window is the next positions after the cursor: fewer at the end of an epoch, and if samples are so long that they
/// would be cut into more than eight pieces on average. The rows of an epoch's windows are one sequence, which depends
/// neither on the ranks nor on the batch size: row `k` after the cursor belongs to rank `k % world_size`, and the
/// batches of all ranks together are runs of it. So a cursor means the same for another world size or batch size.
///
/// If the last run of an epoch is not full, `drop_last` leaves it out on all ranks. Otherwise each rank has the same
/// number of its rows: a rank without one repeats a row from the beginning of that run, marked as padding.
pub(super) struct Windows {
    order: Order,
    recipe: Arc<Recipe>,
    /// Where the next batch begins.
    at: Cursor,
    window: Window,
    /// The next batch, if `is_ready`.
    batch: Selection,
    is_ready: bool,
    is_ended: bool,
}

impl Windows {
    /// Walks along `order`, whose rows `recipe` makes.
    pub(super) fn new(order: &Order, recipe: &Arc<Recipe>) -> Windows {
        Windows {
            order: order.clone(),
            recipe: Arc::clone(recipe),
            at: order.start(),
            window: recipe.window(),
            batch: Selection::default(),
            is_ready: false,
            is_ended: false,
        }
    }

    /// The epoch that the next batch belongs to; `None` at the end.
    pub(super) fn epoch(&mut self) -> Option<u64> {
        let mut empty_epochs = 0;
        while !self.is_ready && !self.is_ended {
            if self.order.end().is_some_and(|end| self.at.epoch >= end) || empty_epochs > EMPTY_EPOCHS_MAX {
                self.is_ended = true;
            } else if self.fill() {
                self.is_ready = true;
            } else {
                empty_epochs += 1;
                self.at = Cursor::new(self.at.epoch.saturating_add(1), 0);
            }
        }
        self.is_ready.then_some(self.batch.cursor.epoch)
    }

    /// Puts the next batch into `batch`, replacing its content; false at the end.
    pub(super) fn next(&mut self, batch: &mut Selection) -> bool {
        if self.epoch().is_none() {
            return false;
        }
        std::mem::swap(batch, &mut self.batch);
        self.at = batch.next;
        self.is_ready = false;
        // Rows at the end of an epoch that will be dropped are passed with the batch before them, so that the cursor
        // after an epoch's last batch begins with the next epoch.
        if self.order.strided().drop_last() && batch.next.epoch == batch.cursor.epoch {
            self.is_ready = self.fill();
            if !self.is_ready {
                self.at = Cursor::new(batch.cursor.epoch.saturating_add(1), 0);
                batch.next = self.at;
            }
        }
        true
    }

    /// Makes the next batch of the epoch ready; false if the epoch has none left.
    fn fill(&mut self) -> bool {
        let strided = *self.order.strided();
        let (rank, world_size) = (strided.rank(), strided.world_size());
        let start = self.at;
        let len = self.order.sampler().len_of(start.epoch);
        // `Strided` checked that it fits.
        let global_rows = self.recipe.batch_rows() * world_size;
        let mut at = start;
        let mut passed = 0;
        self.batch.clear();
        while passed < global_rows && at.position < len {
            self.make(at);
            let rows = self.window.rows().len() as u64;
            let taken = rows.saturating_sub(at.rows).min(global_rows - passed);
            // The first of them whose number in the batch is this rank's.
            let turn = passed % world_size;
            let mut row = if rank >= turn { rank - turn } else { world_size - (turn - rank) };
            while row < taken {
                self.push(at.rows + row, false);
                row = row.saturating_add(world_size);
            }
            passed += taken;
            at.rows += taken;
            if at.rows >= rows {
                at = Cursor::new(at.epoch, self.window.end());
            }
        }
        if passed == 0 || (passed < global_rows && strided.drop_last()) {
            return false;
        }
        // This rank may have no row of the last turn.
        let place = (passed.div_ceil(world_size) - 1).saturating_mul(world_size).saturating_add(rank);
        if place >= passed {
            self.push_again(start, (place - passed) % passed);
        }
        self.batch.cursor = start;
        self.batch.next = if at.position < len { at } else { Cursor::new(at.epoch.saturating_add(1), 0) };
        true
    }

    /// Adds row `row`, counted from `start` on, as padding.
    fn push_again(&mut self, start: Cursor, row: u64) {
        let mut at = start;
        let mut left = row;
        loop {
            self.make(at);
            let rows = (self.window.rows().len() as u64).saturating_sub(at.rows);
            if left < rows {
                return self.push(at.rows + left, true);
            }
            left -= rows;
            at = Cursor::new(at.epoch, self.window.end());
        }
    }

    /// Adds a row of the window to the batch.
    fn push(&mut self, row: u64, padding: bool) {
        let (first, is_packed) = (self.window.start(), self.recipe.is_packed());
        for piece in self.window.rows().row(row as usize) {
            self.batch.positions.push(Position { position: first + u64::from(piece.index), padding });
            self.batch.ids.push(self.window.ids()[piece.index as usize]);
            if is_packed {
                self.batch.pieces.push(piece.piece);
            }
        }
        if is_packed {
            self.batch.row_ends.push(self.batch.ids.len() as u32);
        }
    }

    /// Makes the window that begins at `at`, which is before the end of its epoch.
    fn make(&mut self, at: Cursor) {
        self.window.make(&self.recipe, at, &**self.order.dataset(), &**self.order.sampler());
    }
}

#[cfg(test)]
mod tests;
