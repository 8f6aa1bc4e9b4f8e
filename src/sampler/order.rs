//! Combines everything that decides which samples come when, checked once, into one value.

use super::rows::{BatchingId, Piece, Recipe};
use super::{Cursor, Position, Sampler, Strided};
use crate::config::{Batching, Config};
use crate::dataset::{Dataset, SampleId};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The batches of one rank, from a position on: everything that decides which samples come when, checked once.
///
/// [`Builder::order`](crate::Builder::order) makes it. Nothing is read: [`batches`](Order::batches) lists what each
/// batch holds, and a [`Loader`](crate::Loader) of the same builder delivers exactly that. A clone shares everything
/// except the position.
///
/// ```
/// use uringload::sampler::epoch_digest;
/// use uringload::{Loader, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # (0..10).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// let order = Loader::builder(dataset).batch_size(4).shuffle(true).seed(42).order()?;
/// assert_eq!(order.remaining(), Some(3));
/// for batch in order.batches() {
///     println!("{:?} holds {:?}", batch.cursor, batch.ids);
/// }
/// // Goes on after the first batch.
/// let next = order.batches().next().expect("a first batch").next;
/// assert_eq!(order.at(next).batches().count(), 2);
/// // What the digests of all ranks must add up to.
/// assert_eq!(epoch_digest(&**order.sampler(), 0, 0..10).samples, 10);
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone)]
pub struct Order {
    dataset: Arc<dyn Dataset>,
    sampler: Arc<dyn Sampler>,
    strided: Strided,
    /// How windows of samples become rows, if they do.
    recipe: Option<Arc<Recipe>>,
    batching_id: BatchingId,
    start: Cursor,
    /// The epoch in which there are no more batches.
    end: Option<u64>,
}

impl Order {
    /// The order that `config` describes for `dataset` in the order of `sampler`: ranks, batch size and batching, from
    /// `config.start` on for `config.epochs` epochs.
    ///
    /// # Errors
    /// `InvalidArgument` for an impossible rank, batch size, window, row length or boundary; for a start after the end
    /// of its epoch or window; and, if rows are made from windows, for a dataset without a field whose lengths are in
    /// the index.
    #[doc(hidden)]
    pub fn new(config: &Config, dataset: Arc<dyn Dataset>, sampler: Arc<dyn Sampler>) -> Result<Order> {
        let strided = Strided::new(config.rank, config.world_size, config.batch_size, config.drop_last)?;
        let start = config.start;
        check_position(start, sampler.len_of(start.epoch))?;
        if start.rows > 0 && config.batching == Batching::Samples {
            let what = format!("cannot start after row {} of a window: a row is a sample", start.rows);
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("use the packing or the buckets of the cursor"));
        }
        let recipe = Recipe::new(config, &*dataset)?;
        if let Some(recipe) = &recipe {
            recipe.check_start(start, &*dataset, &*sampler)?;
        }
        let first = if config.more_epochs { start.epoch } else { 0 };
        let end = config.epochs.map(|epochs| first.saturating_add(epochs));
        let batching_id = BatchingId::of(config);
        Ok(Order { dataset, sampler, strided, recipe: recipe.map(Arc::new), batching_id, start, end })
    }

    /// The same order from another position to the same end. A cursor past the end of its window or epoch, which no
    /// batch of this order has, counts as the end.
    #[must_use]
    pub fn at(&self, start: Cursor) -> Order {
        Order { start, ..self.clone() }
    }

    /// The same order without an end.
    #[must_use]
    #[doc(hidden)]
    pub fn endless(&self) -> Order {
        Order { end: None, ..self.clone() }
    }

    /// The dataset.
    #[doc(hidden)]
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.dataset
    }

    /// The order of the samples of all ranks.
    pub fn sampler(&self) -> &Arc<dyn Sampler> {
        &self.sampler
    }

    /// How ranks share it.
    #[doc(hidden)]
    pub fn strided(&self) -> &Strided {
        &self.strided
    }

    /// How samples become rows.
    #[doc(hidden)]
    pub fn batching_id(&self) -> &BatchingId {
        &self.batching_id
    }

    /// Where it begins.
    #[doc(hidden)]
    pub fn start(&self) -> Cursor {
        self.start
    }

    /// The epoch that it ends before; `None` if it never ends.
    #[doc(hidden)]
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// The number of batches of this rank. `None` if there is no end, or if packing or buckets make their number known
    /// only at the end.
    pub fn remaining(&self) -> Option<u64> {
        let epochs = self.end?.saturating_sub(self.start.epoch);
        if epochs == 0 {
            return Some(0);
        }
        if self.recipe.is_some() {
            return None;
        }
        let full = self.strided.batches(self.sampler.len());
        // In the epoch in which it was resumed, a mixture may have other weights, and so another length.
        let left = self.sampler.len_of(self.start.epoch).saturating_sub(self.start.position);
        Some(self.strided.batches(left).saturating_add(full.saturating_mul(epochs - 1)))
    }

    /// How many ranks share it.
    pub fn world_size(&self) -> u64 {
        self.strided.world_size()
    }

    /// Samples that this rank gets of an epoch, padding included.
    pub fn share(&self, epoch: u64) -> u64 {
        self.strided.share(self.sampler.len_of(epoch))
    }

    /// How windows of samples become rows, if they do.
    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        self.recipe.as_ref()
    }

    /// Most samples in a batch, counting each piece, and most bytes that are read for them.
    pub(crate) fn largest_batch(&self) -> (u64, u64) {
        match &self.recipe {
            Some(recipe) => recipe.largest_batch(&*self.dataset),
            None => {
                let samples = self.strided.batch_size().min(self.dataset.len());
                (samples, self.dataset.largest(samples))
            }
        }
    }
}

fn check_position(start: Cursor, len: u64) -> Result<()> {
    if start.position <= len {
        return Ok(());
    }
    let what = format!("cannot start at position {} of an epoch of {len} samples", start.position);
    Err(Error::new(ErrorKind::InvalidArgument, what)
        .with_remedy("check that the cursor belongs to this dataset, and that the dataset has not changed"))
}

/// The content of one batch of one rank, before anything is read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// Where the batch begins in the order.
    pub cursor: Cursor,
    /// Where the batch ends in the order: the checkpoint once the batch is consumed.
    pub next: Cursor,
    /// The position of each sample in its epoch. A sample that is cut into pieces comes once for each piece.
    #[doc(hidden)]
    pub positions: Vec<Position>,
    /// The samples, by their numbers in the dataset.
    pub ids: Vec<SampleId>,
    /// The wanted part of each sample's value; empty if all values are wanted whole.
    #[doc(hidden)]
    pub pieces: Vec<Piece>,
    /// Where each row's samples end, as indices past the last; empty if rows list no pieces: each sample is a row, or,
    /// with buckets, each batch.
    #[doc(hidden)]
    pub row_ends: Vec<u32>,
}

impl Selection {
    /// The first wanted element of sample `index`.
    #[doc(hidden)]
    pub fn start_of(&self, index: usize) -> u64 {
        self.pieces.get(index).map_or(0, |piece| piece.start)
    }

    /// Forgets the samples and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.positions.clear();
        self.ids.clear();
        self.pieces.clear();
        self.row_ends.clear();
    }
}
