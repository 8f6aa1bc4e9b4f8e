//! Everything that decides which samples come when, checked once and carried as one value.

use super::rows::{BatchingId, Piece, Recipe};
use super::{Cursor, Position, Sampler, Strided};
use crate::config::{Batching, Config};
use crate::dataset::{Dataset, SampleId};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The batches of one rank from a place on: dataset, sampler, ranks, batching, start and end.
///
/// A clone shares everything but the place. Nothing is read: [`walk`](Order::walk) tells what each batch holds, and a
/// [`Loader`](crate::Loader) delivers exactly that.
///
/// ```no_run
/// # fn main() -> uringload::Result<()> {
/// use std::sync::Arc;
/// use uringload::internal::Config;
/// use uringload::dataset::{Dataset, Folder};
/// use uringload::sampler::{Order, Selection, for_dataset};
///
/// let dataset: Arc<dyn Dataset> = Arc::new(Folder::open(&["/data/train"])?);
/// let config = Config { batch_size: 64, shuffle: true.into(), rank: 3, world_size: 8, ..Config::default() };
/// let sampler = for_dataset(&*dataset, config.shuffle, config.seed)?;
/// let mut walk = Order::new(&config, dataset, sampler)?.walk();
/// let mut batch = Selection::default();
/// while walk.next(&mut batch) {
///     println!("{:?} holds {:?}", batch.cursor, batch.ids);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Order {
    dataset: Arc<dyn Dataset>,
    sampler: Arc<dyn Sampler>,
    strided: Strided,
    /// Where rows are made of windows of samples.
    recipe: Option<Arc<Recipe>>,
    batching_id: BatchingId,
    start: Cursor,
    /// The epoch in which there are no more batches.
    end: Option<u64>,
}

impl Order {
    /// What `config` asks of `dataset` in the order of `sampler`: ranks, batch size and batching, from `config.start`
    /// on for `config.epochs` epochs.
    ///
    /// # Errors
    /// `InvalidArgument` for an impossible rank, batch size, window, row length or boundary; for a start behind the
    /// end of its epoch or window; and, where rows are made of windows, for a dataset without a field whose lengths
    /// the index knows.
    #[doc(hidden)]
    pub fn new(config: &Config, dataset: Arc<dyn Dataset>, sampler: Arc<dyn Sampler>) -> Result<Order> {
        let strided = Strided::new(config.rank, config.world_size, config.batch_size, config.drop_last)?;
        let start = config.start;
        check_position(start, sampler.len_of(start.epoch))?;
        if start.rows > 0 && config.batching == Batching::Samples {
            let doing = format!("cannot start behind row {} of a window: a row is a sample", start.rows);
            return Err(Error::new(ErrorKind::InvalidArgument, doing)
                .with_remedy("use the packing or the buckets of the cursor"));
        }
        let recipe = Recipe::new(config, &*dataset)?;
        if let Some(recipe) = &recipe {
            recipe.check_start(start, &*dataset, &*sampler)?;
        }
        let end = config.epochs.map(|epochs| start.epoch.saturating_add(epochs));
        let batching_id = BatchingId::of(config);
        Ok(Order { dataset, sampler, strided, recipe: recipe.map(Arc::new), batching_id, start, end })
    }

    /// The same order from another place on, to the same end. A cursor that is behind its window or epoch, which none
    /// from a batch of this order is, counts as the end of it.
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

    /// What decides which samples make a row.
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

    /// Batches of this rank from the start to the end. `None` if there is no end, or if only walking there tells their
    /// number, because rows are made of windows of samples.
    pub fn remaining(&self) -> Option<u64> {
        let epochs = self.end?.saturating_sub(self.start.epoch);
        if epochs == 0 {
            return Some(0);
        }
        if self.recipe.is_some() {
            return None;
        }
        let full = self.strided.batches(self.sampler.len());
        // A mixture may have other weights, and so another length, in the epoch that it was resumed in.
        let left = self.sampler.len_of(self.start.epoch).saturating_sub(self.start.position);
        Some(self.strided.batches(left).saturating_add(full.saturating_mul(epochs - 1)))
    }

    /// Samples that this rank gets of an epoch, padding included.
    #[doc(hidden)]
    pub fn share(&self, epoch: u64) -> u64 {
        self.strided.share(self.sampler.len_of(epoch))
    }

    /// How rows are made, where they are made of windows of samples.
    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        self.recipe.as_ref()
    }

    /// Most samples in a batch, where each piece counts, and most bytes that are read for them.
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
    let doing = format!("cannot start at position {} of an epoch of {len} samples", start.position);
    Err(Error::new(ErrorKind::InvalidArgument, doing)
        .with_remedy("check that the cursor belongs to this dataset, and that the dataset has not changed"))
}

/// What one batch of one rank holds, before anything of it is read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// Place of the first sample, or row, of all ranks' batches.
    pub cursor: Cursor,
    /// Place behind the last one: the checkpoint once the batch is consumed.
    pub next: Cursor,
    /// The place of each sample in its epoch. A sample that is cut into pieces comes once for each piece.
    #[doc(hidden)]
    pub positions: Vec<Position>,
    /// Their numbers in the dataset.
    pub ids: Vec<SampleId>,
    /// Which part of each sample's value is wanted; empty where all of each is.
    #[doc(hidden)]
    pub pieces: Vec<Piece>,
    /// Where each row's samples end, as indices behind the last; empty where rows list no pieces: each sample is a row,
    /// or, with buckets, each batch.
    #[doc(hidden)]
    pub row_ends: Vec<u32>,
}

impl Selection {
    /// The element at which what is wanted of sample `index` begins.
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
