//! Walks along an order from batch to batch: which samples each one holds. Reads nothing.

mod windows;

use super::{Cursor, Order, Position, Selection};
use windows::Windows;

/// Walks along the batches of an [`Order`]. In steady state it allocates nothing.
pub struct Walk(Kind);

/// By what a row is.
enum Kind {
    Samples(Samples),
    Windows(Box<Windows>),
}

impl Order {
    /// The batches of this rank, from the start to the end.
    pub fn batches(&self) -> impl Iterator<Item = Selection> + use<> {
        let mut walk = self.walk();
        std::iter::from_fn(move || {
            let mut batch = Selection::default();
            walk.next(&mut batch).then_some(batch)
        })
    }

    /// Walks from the start to the end, without allocating for each batch.
    #[doc(hidden)]
    pub fn walk(&self) -> Walk {
        Walk(match self.recipe() {
            Some(recipe) => Kind::Windows(Box::new(Windows::new(self, recipe))),
            None => Kind::Samples(Samples { start: self.start(), index: 0, order: self.clone() }),
        })
    }
}

impl Walk {
    /// The epoch that the next batch belongs to; `None` at the end.
    pub fn epoch(&mut self) -> Option<u64> {
        match &mut self.0 {
            Kind::Samples(samples) => samples.epoch(),
            Kind::Windows(windows) => windows.epoch(),
        }
    }

    /// Puts the next batch into `batch`, replacing its content; at the end, returns false and leaves `batch` empty.
    pub fn next(&mut self, batch: &mut Selection) -> bool {
        batch.clear();
        match &mut self.0 {
            Kind::Samples(samples) => samples.next(batch),
            Kind::Windows(windows) => windows.next(batch),
        }
    }
}

/// Where each sample is a row.
struct Samples {
    order: Order,
    /// Where the walk of the current epoch begins.
    start: Cursor,
    /// Number of the next batch from there.
    index: u64,
}

impl Samples {
    fn epoch(&mut self) -> Option<u64> {
        let sampler = self.order.sampler();
        let left = |cursor: Cursor| sampler.len_of(cursor.epoch).saturating_sub(cursor.position);
        let mut empty_epochs = 0;
        while self.index >= self.order.strided().batches(left(self.start)) {
            // An epoch without a batch (drop_last and fewer samples than a batch) is followed by more of the same.
            empty_epochs += 1;
            if empty_epochs > 2 {
                return None;
            }
            self.start = Cursor::new(self.start.epoch.saturating_add(1), 0);
            self.index = 0;
        }
        self.order.end().is_none_or(|end| self.start.epoch < end).then_some(self.start.epoch)
    }

    fn next(&mut self, batch: &mut Selection) -> bool {
        let Some(epoch) = self.epoch() else { return false };
        let (sampler, strided) = (self.order.sampler(), self.order.strided());
        let len = sampler.len_of(epoch);
        strided.batch(self.start, len, self.index, &mut batch.positions);
        batch.cursor = match self.index {
            0 => self.start,
            index => strided.cursor_after(self.start, len, index - 1),
        };
        batch.next = strided.cursor_after(self.start, len, self.index);
        self.index += 1;
        let at = |position: &Position| sampler.at(Cursor::new(epoch, position.position));
        batch.ids.extend(batch.positions.iter().map(at));
        true
    }
}

#[cfg(test)]
mod tests;
