//! Tracks what was delivered: the position after it, and its digest.

use crate::batch::Batch;
use crate::dataset::{Dataset, SampleId};
use crate::sampler::{Cursor, EpochDigest, Order, Selection};
use crate::state::{Identity, Look, Received, State};

/// Updated when batches are delivered, so it excludes what was only read ahead.
pub(super) struct Book {
    /// The initial state. Position and digest are replaced in it.
    template: State,
    content: Look,
    order: Order,
    cursor: Cursor,
    /// Batches after the cursor that were replaced by errors.
    missed: u64,
    digest: EpochDigest,
    last_epoch: Option<EpochDigest>,
}

impl Book {
    /// Starts before the first batch of `order`. `digest` is that of earlier deliveries.
    pub(super) fn new(order: Order, digest: EpochDigest) -> Book {
        let (sampler, start) = (order.sampler(), order.start());
        let template = State {
            dataset: Identity::of(&**order.dataset()),
            content: None,
            order: sampler.id(),
            batching: order.batching_id().clone(),
            cursor: start,
            length: sampler.len_of(start.epoch),
            mixer: None,
            delivered: None,
        };
        Book { template, content: Look::default(), order, cursor: start, missed: 0, digest, last_epoch: None }
    }

    /// Records a batch.
    pub(super) fn hand_out(&mut self, batch: &Batch) {
        if batch.cursor != self.cursor {
            self.pass(batch.cursor);
        }
        self.begin(batch.cursor);
        self.digest.delivered += batch.digest;
        self.digest.lost += batch.lost;
        self.cursor = batch.next;
        self.missed = 0;
    }

    /// Records that an error took the place of a batch.
    pub(super) fn miss(&mut self) {
        self.missed += 1;
    }

    /// The epoch of the next batch, after batches that were replaced by errors; `None` at the end.
    pub(super) fn next_epoch(&self) -> Option<u64> {
        // After the last batch of an epoch, a cursor is in the next one. Only the start may be elsewhere.
        if self.missed == 0 && self.cursor != self.order.start() {
            let epoch = self.cursor.epoch;
            return self.order.end().is_none_or(|end| epoch < end).then_some(epoch);
        }
        let mut walk = self.order.at(self.cursor).walk();
        let mut batch = Selection::default();
        for _ in 0..self.missed {
            walk.next(&mut batch);
        }
        walk.epoch()
    }

    /// Records as lost the samples of batches that errors replaced, because the consumer continued after them. Those
    /// batches were not kept, so the order is walked again.
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

    /// Notes that a batch at `cursor` comes next. The first batch of an epoch starts a new digest.
    fn begin(&mut self, cursor: Cursor) {
        if cursor.epoch != self.digest.epoch {
            self.last_epoch = Some(std::mem::replace(&mut self.digest, EpochDigest::new(cursor)));
        }
    }

    pub(super) fn dataset(&self) -> &dyn Dataset {
        &**self.order.dataset()
    }

    /// The position of sample `id` of the batch at `at`, or of the batch if the sample is not in it (it replaced
    /// another). Batches are not kept, so the order is walked again.
    pub(super) fn position_of(&self, at: Cursor, id: SampleId) -> u64 {
        let (mut walk, mut batch) = (self.order.at(at).walk(), Selection::default());
        walk.next(&mut batch);
        let found = batch.ids.iter().position(|&other| other == id).and_then(|index| batch.positions.get(index));
        found.map_or(at.position, |position| position.position)
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
            delivered: Some(Received { rank, world_size, digest: self.digest }),
            content: self.content.content(self.order.dataset()),
            ..self.template.clone()
        }
    }
}
