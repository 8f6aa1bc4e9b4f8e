//! What was handed out: the place behind it, and the digest of it.

use crate::batch::Batch;
use crate::config::Config;
use crate::dataset::Dataset;
use crate::plan::{BatchPlan, Layout, Planner};
use crate::sampler::{Cursor, EpochDigest, Sampler, Strided, Windows};
use crate::state::{self, Delivered, Identity, State};
use std::sync::Arc;

/// Kept where batches are handed out, so that it knows nothing of what was only read ahead.
pub(super) struct Book {
    /// The state at the start, of which place and digest are replaced.
    template: State,
    dataset: Arc<dyn Dataset>,
    sampler: Arc<dyn Sampler>,
    strided: Strided,
    config: Config,
    cursor: Cursor,
    digest: EpochDigest,
    last_epoch: Option<EpochDigest>,
}

impl Book {
    /// Before the first batch from `start` on. `digest` is that of what was delivered before.
    pub(super) fn new(
        dataset: Arc<dyn Dataset>,
        sampler: Arc<dyn Sampler>,
        strided: Strided,
        start: Cursor,
        config: Config,
        digest: EpochDigest,
    ) -> Book {
        let template = State {
            dataset: Identity::of(&*dataset),
            order: sampler.describe(),
            batching: state::describe(&config.batching),
            cursor: start,
            length: sampler.len_of(start.epoch),
            mixer: None,
            delivered: None,
        };
        Book { template, dataset, sampler, strided, config, cursor: start, digest, last_epoch: None }
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

    /// Enters as lost the samples of batches whose place an error took: the consumer has gone on behind them. They are
    /// planned once more, for nothing was kept of them.
    fn pass(&mut self, to: Cursor) {
        let layout = Layout { alignment: 1, read_bytes: u64::MAX, coalesce_gap: 0 };
        let (dataset, sampler) = (Arc::clone(&self.dataset), Arc::clone(&self.sampler));
        // What was checked when the loader was built holds for every place that it has come to.
        let windows = Windows::new(&self.config, &dataset, &sampler, self.strided, self.cursor).unwrap_or_default();
        let planner = Planner::new(dataset, sampler, self.strided, self.cursor, None, layout);
        let mut planner = planner.with_windows(windows);
        let mut plan = BatchPlan::default();
        while planner.next(&mut plan) && plan.cursor < to {
            self.begin(plan.cursor);
            for (index, (position, &id)) in plan.positions.iter().zip(&plan.ids).enumerate() {
                if !position.padding {
                    self.digest.lost.add(position.position, id, plan.start_of(index));
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
        let (rank, world_size) = (self.strided.rank(), self.strided.world_size());
        State {
            cursor: self.cursor,
            length: self.sampler.len_of(self.cursor.epoch),
            mixer: self.sampler.mixer(self.cursor),
            delivered: Some(Delivered { rank, world_size, digest: self.digest }),
            ..self.template.clone()
        }
    }
}
