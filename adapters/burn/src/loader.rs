//! burn's `DataLoader`: an epoch for each call of `iter`.

use burn_core::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn_core::data::dataset::DatasetError;
use burn_core::tensor::Device;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uringload::batch::Batch;
use uringload::dataset::SampleId;
use uringload::sampler::{Cursor, OrderId, Sampler};
use uringload::{Builder, Error, ErrorKind, Loader, Result, State};

type Batcher<O> = dyn Fn(Batch, &Device) -> Result<O> + Send + Sync;

/// A loader that burn's training can take: `iter` hands out one epoch, in an order that the seed and the epoch's number
/// decide.
///
/// Reading goes on after the end of an epoch, so that the next one begins without a wait. An epoch that is broken off
/// is not gone on with: the next `iter` begins the next epoch.
pub struct BurnLoader<O> {
    builder: Builder,
    batcher: Arc<Batcher<O>>,
    device: Device,
    /// Which positions of each epoch's order, if not all.
    slice: Option<Range<u64>>,
    running: Arc<Mutex<Running>>,
    items: u64,
}

/// What comes next.
struct Running {
    start: Cursor,
    /// It stands at `start`.
    loader: Option<Loader>,
    state: Option<State>,
}

impl<O> Clone for BurnLoader<O> {
    /// A loader that begins where this one is now, and goes on by itself.
    fn clone(&self) -> BurnLoader<O> {
        self.with(self.device.clone(), self.slice.clone(), self.items)
    }
}

impl<O> fmt::Debug for BurnLoader<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurnLoader")
            .field("items", &self.items)
            .field("slice", &self.slice)
            .field("next", &lock(&self.running).start)
            .finish_non_exhaustive()
    }
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<O> BurnLoader<O> {
    /// A loader of what `builder` says; its number of epochs plays no part. `batcher` makes of each batch what the
    /// model takes, on burn's default device unless [`to_device`](DataLoader::to_device) names another.
    ///
    /// # Errors
    /// As [`Builder::build`] for settings that cannot work; `InvalidArgument` for several ranks: burn shares a dataset
    /// by [`slice`](DataLoader::slice), whose positions are those of all ranks.
    pub fn new(
        builder: Builder,
        batcher: impl Fn(Batch, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Result<BurnLoader<O>> {
        let builder = builder.epochs(None);
        let order = builder.clone().order()?;
        let start = order.start();
        if order.world_size() > 1 {
            let what = "burn's loader is asked for one rank of several";
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("leave `rank` out, and give each device a `slice`"));
        }
        let running = Running { start, loader: None, state: None };
        Ok(BurnLoader {
            items: order.share(start.epoch),
            builder,
            batcher: Arc::new(batcher),
            device: Device::default(),
            slice: None,
            running: Arc::new(Mutex::new(running)),
        })
    }

    /// Goes on after what `state` says was delivered: the first `iter` hands out the rest of that epoch.
    ///
    /// # Errors
    /// `InvalidArgument` for the state of another dataset or another order.
    pub fn resume(mut self, state: &State) -> Result<BurnLoader<O>> {
        self.builder = self.builder.resume(state);
        let start = self.builder.clone().order()?.start();
        self.running = Arc::new(Mutex::new(Running { start, loader: None, state: Some(state.clone()) }));
        Ok(self)
    }

    /// The state after the last batch that was handed out: save it with the model. `None` before the first one.
    pub fn state(&self) -> Option<State> {
        lock(&self.running).state.clone()
    }

    fn with(&self, device: Device, slice: Option<Range<u64>>, items: u64) -> BurnLoader<O> {
        let now = lock(&self.running);
        let running = Running { start: now.start, loader: None, state: now.state.clone() };
        BurnLoader {
            builder: self.builder.clone(),
            batcher: Arc::clone(&self.batcher),
            device,
            slice,
            running: Arc::new(Mutex::new(running)),
            items,
        }
    }

    /// A loader that stands at the beginning of the epoch to come, or in it after a resume.
    fn stands(&self) -> Result<(Loader, u64)> {
        let mut running = lock(&self.running);
        let epoch = running.start.epoch;
        let start = std::mem::replace(&mut running.start, Cursor::new(epoch + 1, 0));
        if let Some(loader) = running.loader.take() {
            return Ok((loader, epoch));
        }
        drop(running);
        let mut builder = self.builder.clone();
        if let Some(slice) = &self.slice {
            let order = builder.clone().order()?;
            builder = builder.sampler(Arc::new(Slice { all: Arc::clone(order.sampler()), range: slice.clone() }));
        }
        Ok((builder.start(start).build()?, epoch))
    }
}

impl<O: Send + 'static> DataLoader<O> for BurnLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let (loader, epoch, error) = match self.stands() {
            Ok((loader, epoch)) => (Some(loader), epoch, None),
            Err(error) => (None, 0, Some(error)),
        };
        Box::new(Epoch { of: self, loader, error, epoch, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.items as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.with(device.clone(), self.slice.clone(), self.items))
    }

    /// The samples at these positions of each epoch's order, so that the slices of several devices share every epoch
    /// without a sample in common. A slice has no [`resume`](BurnLoader::resume) of its own.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let within = self.slice.clone().unwrap_or(0..self.items);
        let at = |position: usize| within.start.saturating_add(position as u64).min(within.end);
        let range = at(start)..at(end.max(start));
        let items = range.end - range.start;
        Arc::new(self.with(self.device.clone(), Some(range), items))
    }
}

/// The batches of one epoch.
struct Epoch<'a, O> {
    of: &'a BurnLoader<O>,
    loader: Option<Loader>,
    error: Option<Error>,
    epoch: u64,
    done: usize,
}

impl<O> Iterator for Epoch<'_, O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.error.take() {
            return Some(Err(DatasetError::new(error)));
        }
        let loader = self.loader.as_mut()?;
        let rest = loader.next_epoch().filter(|rest| rest.number() == self.epoch);
        let Some(batch) = rest.and_then(|mut rest| rest.next()) else {
            self.give_back();
            return None;
        };
        let state = loader.state();
        let made = batch.and_then(|batch| {
            self.done += batch.len();
            (self.of.batcher)(batch, &self.of.device)
        });
        lock(&self.of.running).state = Some(state);
        Some(made.map_err(DatasetError::new))
    }
}

impl<O> Epoch<'_, O> {
    /// The loader has read on: the next epoch is handed out by it, if no one has begun that meanwhile.
    fn give_back(&mut self) {
        let mut running = lock(&self.of.running);
        if running.start == Cursor::new(self.epoch + 1, 0) {
            running.loader = self.loader.take();
        }
    }
}

impl<O> DataLoaderIterator<O> for Epoch<'_, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.of.items as usize, Some("items".into()))
    }
}

/// A range of the positions of each epoch of another order.
struct Slice {
    all: Arc<dyn Sampler>,
    range: Range<u64>,
}

impl Sampler for Slice {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        self.all.at(Cursor::new(cursor.epoch, self.range.start + cursor.position))
    }

    fn id(&self) -> OrderId {
        let of = self.all.id().to_string();
        OrderId::custom(format!("slice of {of}"), 1, &[self.range.start, self.range.end])
    }
}
