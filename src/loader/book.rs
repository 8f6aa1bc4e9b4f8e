//! What was handed out: the place behind it, and the digest of it.

use crate::batch::Batch;
use crate::sampler::{Cursor, EpochDigest, Order, Selection};
use crate::state::{Delivered, Identity, Saved, State};

/// Kept where batches are handed out, so that it knows nothing of what was only read ahead.
pub(super) struct Book {
    /// The state at the start, of which place and digest are replaced.
    template: State,
    order: Order,
    cursor: Cursor,
    digest: EpochDigest,
    last_epoch: Option<EpochDigest>,
}

impl Book {
    /// Before the first batch of `order`. `digest` is that of what was delivered before.
    pub(super) fn new(order: Order, digest: EpochDigest) -> Book {
        let (sampler, start) = (order.sampler(), order.start());
        let template = State {
            dataset: Identity::of(&**order.dataset()),
            order: Saved::Id(sampler.id()),
            batching: Saved::Id(order.batching_id().clone()),
            cursor: start,
            length: sampler.len_of(start.epoch),
            mixer: None,
            delivered: None,
        };
        Book { template, order, cursor: start, digest, last_epoch: None }
    }

    /// Enters a batch.
    pub(super) fn hand_out(&mut self, batch: &Batch) {
        if batch.cursor != self.cursor {
            self.pass(batch.cursor);
        }
        self.begin(batch.cursor);
        self.digest.delivered += batch.digest;
        self.digest.lost += batch.lost;
        self.cursor = batch.next;
    }

    /// Enters as lost the samples of batches that an error stood in the place of: the consumer went on behind them.
    /// Nothing was kept of them, so the order is walked again.
    fn pass(&mut self, to: Cursor) {
        let (mut walk, mut batch) = (self.order.at(self.cursor).walk(), Selection::default());
        while walk.next(&mut batch) && batch.cursor < to {
            self.begin(batch.cursor);
            for (index, (position, &id)) in batch.positions.iter().zip(&batch.ids).enumerate() {
                if !position.padding {
                    self.digest.lost.add(position.position, id, batch.start_of(index));
                }
            }
        }
    }

    /// A batch at `cursor` comes next: where it is the first of its epoch, so is its digest.
    fn begin(&mut self, cursor: Cursor) {
        if cursor.epoch != self.digest.epoch {
            self.last_epoch = Some(std::mem::replace(&mut self.digest, EpochDigest::new(cursor)));
        }
    }

    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }

    pub(super) fn digest(&self) -> EpochDigest {
        self.digest
    }

    pub(super) fn last_epoch(&self) -> Option<EpochDigest> {
        self.last_epoch
    }

    pub(super) fn state(&self) -> State {
        let (sampler, strided) = (self.order.sampler(), self.order.strided());
        let (rank, world_size) = (strided.rank(), strided.world_size());
        State {
            cursor: self.cursor,
            length: sampler.len_of(self.cursor.epoch),
            mixer: sampler.mixer(self.cursor),
            delivered: Some(Delivered { rank, world_size, digest: self.digest }),
            ..self.template.clone()
        }
    }
}
