//! The reactor's thread: opens the engine, turns the reactor until the end, and checks for a better way to read between
//! epochs.

use super::book::Book;
use super::limits::{ALIGNMENT_MAX, Limits, UnitMemory};
use super::share::Sharing;
use super::stretches::Notes;
use super::{Delivered, DeviceLoader, Loader};
use crate::batch::Batch;
use crate::collate::Collation;
use crate::config::{Cause, Config, DeviceRoute, Fallback, Route};
use crate::dataset::Dataset;
use crate::device::{self, Feeder, Loading, PinnedMemory};
use crate::engine::{self, Engine, Opened};
use crate::guard;
use crate::patience::Patience;
use crate::plan::{Grid, Joining, Keep, Layout, Rows};
use crate::pool::Pool;
use crate::prepared::Prepared;
use crate::queue::{Bell, Receiver, Sender, bounded};
use crate::reactor::{self, Decoder, Early, EarlyBlock, Failures, KeptStretches, Reactor, Rules, Turn};
use crate::sampler::{EpochDigest, Order};
use crate::stage::{Errands, Maps, OnGpus, Stage};
use crate::stats::{Doing, Role, Stats};
use crate::{Error, Result};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uringload_sys::Arena;
use uringload_sys::cuda::{Context, Pinned};
use uringload_sys::numa::Near;

/// Everything that the reactor's thread needs.
pub(super) struct Job {
    pub(super) order: Order,
    pub(super) config: Config,
    pub(super) collation: Arc<Collation>,
    pub(super) limits: Limits,
    /// How threads process the columns.
    pub(super) maps: Option<Arc<Maps>>,
    /// The stretches of files that are read whole, and which of them are kept.
    pub(super) stretches: Option<(Grid, Keep)>,
    /// The columns that are read in part.
    pub(super) rows: Option<Arc<Rows>>,
    /// Choices and fallbacks from checking the settings.
    pub(super) notes: Notes,
    pub(super) stats: Arc<Stats>,
    /// Empty if nothing was delivered before.
    pub(super) digest: EpochDigest,
    pub(super) failures: Failures,
    /// The device whose copy engine must reach the pool's memory.
    pub(super) context: Option<Context>,
    /// The memory node nearest to the devices, for the pool's memory.
    pub(super) near: Option<Near>,
    /// The device memory that files are read straight into, if they are. It replaces the pool.
    pub(super) gds: Option<Loading>,
    /// Whether the consumer's thread computes.
    pub(super) by_consumer: bool,
    /// GPUs that decode images in addition to the loader's threads.
    pub(super) nvjpeg: Option<OnGpus>,
}

impl Job {
    /// Keeps no stretches of files: they are in the host's memory, which these reads bypass.
    pub(super) fn keep_nothing(&mut self) {
        if let Some(keep) = self.drop_stretches()
            // It is unknown whether a trial would have gained.
            && !matches!(keep, Keep::Tried(_))
        {
            self.notes.tell_straight(&self.config);
        }
    }

    /// Gives up a trial of stretches: they would take room on a device whose memory the user has limited.
    pub(super) fn try_nothing(&mut self) {
        if matches!(self.stretches, Some((_, Keep::Tried(_)))) {
            self.drop_stretches();
        }
    }

    /// Keeps no stretches, and returns how they would have been kept.
    fn drop_stretches(&mut self) -> Option<Keep> {
        let (_, keep) = self.stretches.take()?;
        (self.limits.kept_bytes, self.limits.batch.kept) = (0, 0);
        self.limits.joining.may_read_whole = false;
        self.notes.kept = None;
        Some(keep)
    }
}

/// Passes batches from the reactor on to devices.
pub(super) struct Feeding {
    pub(super) feeder: Feeder,
    pub(super) routes: Vec<DeviceRoute>,
    pub(super) queue_capacity: usize,
    pub(super) fallbacks: Vec<Fallback>,
}

/// Maximum number of blocks waiting to be copied before their batch is complete. A block that finds no room is copied
/// with its batch.
const EARLY_BLOCKS: usize = 256;

/// How long the way of reading files is kept without a check. Epochs of one batch may begin by the hundred while the
/// first is waited for, and each check opens files and queries the kernel about disks.
const WAY_KEPT: Duration = Duration::from_secs(1);

/// Sent by the reactor's thread once its engine is open.
struct Started {
    route: Arc<Mutex<Route>>,
    pinned: Option<Arc<Pinned>>,
    /// The work of the consumer's thread.
    errands: Option<Errands>,
}

type Told = Result<Started>;

/// Starts the thread and waits until its engine is open. `fallbacks` are earlier ones.
pub(super) fn start(mut job: Job, mut fallbacks: Vec<Fallback>) -> Result<Loader> {
    fallbacks.append(&mut job.notes.fallbacks);
    // The thread that feeds a device has no time for that.
    job.by_consumer = job.limits.threads == 0;
    let making = Making::new(&job);
    let context = job.context.clone();
    let Reading { batches, thread, ended_well, told } = read(job, None)?;
    let book = making.book();
    let Started { route, pinned, errands } = wait(&told)?;
    let pinned = context.zip(pinned).map(|(context, pinned)| PinnedMemory::new(context, pinned)).transpose()?;
    {
        let mut route = route.lock().unwrap_or_else(PoisonError::into_inner);
        route.pinned = pinned.is_some();
        route.fallbacks.append(&mut fallbacks);
    }
    let mut loader = making.loader(book, batches, vec![thread], ended_well, route)?;
    (loader.pinned, loader.errands) = (pinned, errands);
    Ok(loader)
}

/// Like `start`, with a second thread that passes batches on to devices.
pub(super) fn start_on_devices(mut job: Job, feeding: Feeding) -> Result<DeviceLoader> {
    let making = Making::new(&job);
    let Feeding { mut feeder, routes, queue_capacity, mut fallbacks } = feeding;
    fallbacks.append(&mut job.notes.fallbacks);
    let (tell_early, early) = bounded(EARLY_BLOCKS, Arc::new(Bell::new()));
    // Early blocks do not help if batches stay on the host, are read straight to the device, or have values that go
    // straight to their columns or that threads process.
    let tell_early = (job.gds.is_none() && job.maps.is_none() && feeder.takes_early()).then_some(tell_early);
    let Reading { batches, thread, ended_well: read_well, told } = read(job, tell_early)?;
    let book = making.book();
    let Started { route, pinned, .. } = wait(&told)?;
    {
        let mut route = route.lock().unwrap_or_else(PoisonError::into_inner);
        // Data read straight to a device uses no host memory, except for tables.
        let is_pinned = |device: &DeviceRoute| pinned.is_some() || (device.gds.is_some() && device.pinned);
        let devices = routes.into_iter();
        route.devices = devices.map(|device| DeviceRoute { pinned: is_pinned(&device), ..device }).collect();
        route.fallbacks.append(&mut fallbacks);
    }
    feeder.keep(pinned);
    let (sender, receiver) = bounded(queue_capacity, Arc::clone(feeder.bell()));
    let ended_well = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ended_well);
    let feed = move || feeder.run(batches, early, sender, (&read_well, &ended));
    let feeding = std::thread::Builder::new()
        .name(device::THREAD.into())
        .spawn(feed)
        .map_err(|source| Error::io("cannot start the thread that feeds the device", source))?;
    making.loader(book, receiver, vec![feeding, thread], ended_well, route)
}

/// The parts of a loader, besides its threads.
struct Making {
    order: Order,
    digest: EpochDigest,
    stats: Arc<Stats>,
    memory_limit: u64,
    failures: Failures,
    keeps_stretches: bool,
    share_stats: Option<PathBuf>,
}

impl Making {
    fn new(job: &Job) -> Making {
        Making {
            order: job.order.clone(),
            digest: job.digest,
            stats: Arc::clone(&job.stats),
            memory_limit: job.limits.bytes(),
            failures: job.failures.clone(),
            // Stretches on trial are reported when the trial begins.
            keeps_stretches: job.stretches.as_ref().is_some_and(|(_, keep)| keep.lends()),
            share_stats: job.config.share_stats.clone(),
        }
    }

    /// Computing a large dataset's fingerprint takes a while. Meanwhile the reactor's thread opens its engine and
    /// starts to read.
    fn book(&self) -> Book {
        Book::new(self.order.clone(), self.digest)
    }

    fn loader<T: Delivered>(
        self,
        book: Book,
        batches: Receiver<Result<T>>,
        threads: Vec<JoinHandle<()>>,
        ended_well: Arc<AtomicBool>,
        route: Arc<Mutex<Route>>,
    ) -> Result<Loader<T>> {
        let mut loader = Loader {
            batches: Some(batches),
            threads,
            ended_well,
            route: Arc::clone(&route),
            clock: self.stats.clock(Role::Consumer, Doing::Step),
            stats: Arc::clone(&self.stats),
            book,
            failures: self.failures,
            remaining: self.order.remaining(),
            memory_limit: self.memory_limit,
            keeps_stretches: self.keeps_stretches,
            finished: false,
            on_failed: None,
            process: std::process::id(),
            pinned: None,
            sharing: None,
            errands: None,
            asked: None,
        };
        if let Some(folder) = self.share_stats {
            let dataset = self.order.dataset();
            let about = serde_json::json!({ "format": dataset.format(), "samples": dataset.len(),
                "bytes": dataset.bytes() });
            loader.sharing = Some(Sharing::begin(&folder, self.stats, route, about)?);
        }
        Ok(loader)
    }
}

/// The reactor's thread.
struct Reading {
    batches: Receiver<Result<Batch>>,
    thread: JoinHandle<()>,
    ended_well: Arc<AtomicBool>,
    /// Receives one message, once the engine is open.
    told: mpsc::Receiver<Told>,
}

/// Starts the thread.
fn read(job: Job, early: Option<Sender<EarlyBlock>>) -> Result<Reading> {
    let bell = Arc::new(Bell::new());
    let (sender, batches) = bounded(job.limits.queue_capacity, Arc::clone(&bell));
    let ended_well = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let ended = Arc::clone(&ended_well);
    let thread = std::thread::Builder::new()
        .name(reactor::THREAD.into())
        .spawn(move || run(job, sender, early, &bell, &tell, &ended))
        .map_err(|source| Error::io("cannot start the reactor's thread", source))?;
    Ok(Reading { batches, thread, ended_well, told })
}

fn wait(told: &mpsc::Receiver<Told>) -> Told {
    match told.recv() {
        Ok(started) => started,
        Err(mpsc::RecvError) => Err(reactor::thread_ended(reactor::THREAD)),
    }
}

fn run(
    job: Job,
    sender: Sender<Result<Batch>>,
    early: Option<Sender<EarlyBlock>>,
    bell: &Arc<Bell>,
    tell: &mpsc::Sender<Told>,
    ended_well: &AtomicBool,
) {
    let opened = guard::thread(reactor::THREAD, || Running::new(job, sender, early, bell));
    let (mut running, pinned, errands) = match opened {
        Ok(running) => running,
        Err(error) => {
            // Only the builder waits for this. If it is gone, the error has no recipient.
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(Started { route: Arc::clone(&running.route), pinned, errands }));
    if let Err(error) = guard::thread(reactor::THREAD, || running.run()) {
        running.reactor.fail(error);
    }
    ended_well.store(true, Ordering::Release);
}

struct Running {
    reactor: Reactor,
    engine: Box<dyn Engine>,
    route: Arc<Mutex<Route>>,
    dataset: Arc<dyn Dataset>,
    config: Config,
    joining: Joining,
    stats: Arc<Stats>,
    /// The samples to keep prepared.
    prepared: Option<Arc<Prepared>>,
    /// Their bytes when the last epoch began.
    prepared_bytes: Option<u64>,
    /// Whether this is the first epoch, whose way was chosen when the engine was opened.
    first_epoch: bool,
    /// When the way of reading files was last confirmed.
    way_seen: Instant,
    /// Whether files are read straight into a device's memory. That never changes.
    is_straight: bool,
    /// How long files may take to answer checks between epochs.
    patience: Patience,
}

/// The addresses that represent the pool's memory in batches for a device, if no code looks at the bytes on the host. A
/// block then returns when its copy is done, rather than when its batch is complete.
fn echoes(dataset: &dyn Dataset, collation: &Collation, pool: &Pool) -> Result<Option<Bytes>> {
    if dataset.index().parse_reads_bytes || dataset.units().is_some() || collation.keeps_views() {
        return Ok(None);
    }
    let (_, whole) = Arena::shadow(pool.arena().len())
        .map_err(|source| Error::io("cannot reserve the addresses that represent the pool's memory", source))?;
    Ok(Some(Bytes::from_owner(whole)))
}

/// Creates the store of decoded units, with its memory.
fn decoder(units: UnitMemory, bell: &Arc<Bell>) -> Result<Decoder> {
    let UnitMemory { limits, place_bytes, .. } = units;
    let pool = Pool::new(limits.most * place_bytes, 0, Arc::clone(bell))?;
    Ok(Decoder::new(pool, place_bytes))
}

impl Running {
    /// Creates the reactor with its engine, and pins the pool's memory for a device.
    fn new(
        job: Job,
        sender: Sender<Result<Batch>>,
        early: Option<Sender<EarlyBlock>>,
        bell: &Arc<Bell>,
    ) -> Result<(Running, Option<Arc<Pinned>>, Option<Errands>)> {
        let Job { order, config, collation, limits, maps, stretches, rows, notes, stats, failures, nvjpeg, .. } = job;
        let dataset = Arc::clone(order.dataset());
        let is_straight = job.gds.is_some();
        let patience = Patience::of(&config);
        let Opened { engine, mut route, width } = match &job.gds {
            Some(gds) => gds.straight.open(&config, &stats)?,
            None => engine::open(&config, &dataset, &stats, &patience)?,
        };
        route.locality.extend(notes.locality.into_iter().chain(notes.kept));
        let units = limits.units.map(|units| units.limits);
        let kept = |(grid, keep): &(Grid, Keep)| KeptStretches::new(grid.clone(), keep.room(), Arc::clone(bell));
        let kept = stretches.as_ref().map(kept);
        // The size of a batch on a device is fixed when its memory is taken.
        let joining = if early.is_some() || job.context.is_some() { limits.joining.settled() } else { limits.joining };
        let joining = if is_straight { Joining::default() } else { joining };
        let planner = order.planner(Layout::new(&route, &config));
        let planner = planner.with_joining(joining.for_route(&route));
        let prepared = maps.as_ref().and_then(|maps| maps.prepared.clone());
        let planner = planner.with_collation(collation).with_prepared(prepared.clone()).with_rows(rows);
        let largest = guard::named(&*dataset, "largest", || dataset.largest(1));
        let planner = planner.with_units(units).with_stretches(stretches).with_bounds(limits.bounds(largest));
        let longest = largest.saturating_add(2 * ALIGNMENT_MAX) as usize;
        let longest = longest.max(limits.units.map_or(0, |units| units.stored_bytes));
        let least = limits.least(job.context.is_some());
        let share = config.memory_budget.as_ref().map(|budget| budget.share(least)).transpose()?;
        let mut pool = match job.gds {
            Some(gds) => gds.pool.renewed(longest, Arc::clone(bell)),
            // A driver identifies memory by its address.
            None if job.context.is_some() => Pool::new(limits.pool_bytes, longest, Arc::clone(bell))?,
            None => {
                let (pool, step) = Pool::carrying(limits.pool_bytes, longest, Arc::clone(bell))?;
                route.fallbacks.extend(step);
                pool
            }
        };
        if let Some(share) = share {
            pool.share(share, limits.beside());
        }
        pool.reserve(limits.reserve_bytes);
        // Pin before the ring registers the memory: both lock its pages.
        let pinned = match &job.context {
            Some(context) if !is_straight => device::pin(context, job.near.as_ref(), &mut pool, &mut route.fallbacks)?,
            _ => None,
        };
        let rules = Rules {
            width,
            read_bytes: route.read_bytes as u64,
            on_error: config.on_error,
            seed: config.seed,
            timeout: if is_straight { Some(engine::timeout(&config)) } else { config.timeout },
            outage_timeout: config.outage_timeout,
            starved_after: config.starved_after,
        };
        let echoes = if early.is_some() { echoes(&*dataset, planner.collation(), &pool)? } else { None };
        let decoder = limits.units.map(|units| decoder(units, bell)).transpose()?;
        let mut stage = (decoder.is_some() || maps.is_some())
            .then(|| Stage::new(Arc::clone(&dataset), maps, limits.threads, Arc::clone(bell), Arc::clone(&stats)));
        if let Some(stage) = stage.as_mut() {
            nvjpeg.into_iter().for_each(|on_gpus| stage.add_nvjpeg(on_gpus, pinned.clone()));
            route.fallbacks.extend(std::iter::from_fn(|| stage.said()));
        }
        let errands =
            stage.as_mut().filter(|_| job.by_consumer).map(|stage| stage.errands(|has| sender.give_errands(has)));
        let reactor = Reactor::new(planner, pool, sender, Arc::clone(bell), Arc::clone(&stats), rules, failures)
            .with_decoder(decoder)
            .with_stage(stage)
            .with_kept(kept)
            .with_early(early.map(|sender| Early::new(sender, echoes)));
        let route = Arc::new(Mutex::new(route));
        let first_epoch = true;
        let mut running = Running {
            reactor,
            engine,
            route,
            dataset,
            config,
            joining,
            stats,
            prepared,
            prepared_bytes: None,
            first_epoch,
            way_seen: Instant::now(),
            is_straight,
            patience,
        };
        running.adopt()?;
        Ok((running, pinned, errands))
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let turn = self.reactor.turn(&mut *self.engine)?;
            for step in self.prepared.iter().flat_map(|prepared| prepared.said()) {
                self.with_route(|route| route.fallbacks.push(step));
            }
            while let Some(step) = self.engine.said().or_else(|| self.reactor.said()) {
                self.with_route(|route| route.fallbacks.push(step));
            }
            match turn {
                Turn::Running => {}
                Turn::Epoch { epoch, idle } => self.start_epoch(epoch, idle)?,
                Turn::Finished | Turn::Abandoned => return Ok(()),
            }
            if let Some(error) = self.reactor.registration_refused() {
                self.with_route(|route| route.note_unregistered("plain reads for a part of the memory", &error));
            }
        }
    }

    /// Hands the engine to the reactor and records whether registration worked.
    fn adopt(&mut self) -> Result<()> {
        let registered = self.reactor.adopt(&mut *self.engine)?;
        let backing = self.reactor.backing();
        self.with_route(|route| route.note_memory(backing, &registered));
        Ok(())
    }

    /// Before an epoch, if the choice is automatic, checks whether the files are now in the page cache, but not again
    /// within a second. If the way stays the same, the epoch begins while the last one is still being read; otherwise
    /// it waits for the engine to be idle.
    fn start_epoch(&mut self, epoch: u64, idle: bool) -> Result<()> {
        if let Some(prepared) = self.prepared.as_ref().filter(|_| !self.first_epoch) {
            let bytes = Some(prepared.taken());
            // The next epoch should find the images that this one keeps: wait for its last batches, unless it keeps
            // nothing new.
            if self.prepared_bytes != bytes && !idle {
                return Ok(());
            }
            self.prepared_bytes = bytes;
        }
        // Keep an engine that holds abandoned reads: it owns their memory until they end.
        if !self.first_epoch && !self.is_straight && !self.reactor.has_abandoned() && self.way_has_changed() {
            if !idle {
                return Ok(());
            }
            // If the storage or the machine is in trouble, the current engine goes on: it can wait that out.
            let Ok(Opened { engine, route, width }) =
                engine::open(&self.config, &self.dataset, &self.stats, &self.patience)
            else {
                self.begin_epoch(epoch);
                return Ok(());
            };
            self.engine = engine;
            let (layout, joining) = (Layout::new(&route, &self.config), self.joining.for_route(&route));
            self.reactor.reroute(layout, joining, width);
            self.with_route(|old| {
                let (devices, locality) = (std::mem::take(&mut old.devices), std::mem::take(&mut old.locality));
                *old = Route { devices, locality, pinned: old.pinned, ..route };
            });
            self.adopt()?;
            self.way_seen = Instant::now();
        }
        self.first_epoch = false;
        self.begin_epoch(epoch);
        Ok(())
    }

    /// Lets the reactor plan the batches of an epoch. Drops kept data of files that have changed, and reports that.
    fn begin_epoch(&mut self, epoch: u64) {
        let changed = self.reactor.look_at_kept(epoch, &mut *self.engine, &self.patience);
        if let Some(&file) = changed.first() {
            let path = self.dataset.files().path(file).display().to_string();
            let reason = format!("{} files changed since they were read, such as {path}", changed.len());
            let step = Fallback::new(Cause::Cache, "these files read again", None).with_reason(reason);
            let step = step.with_remedy("open the dataset again");
            // They may stay changed in every later epoch.
            self.with_route(|route| {
                if !route.fallbacks.contains(&step) {
                    route.fallbacks.push(step)
                }
            });
        }
        self.reactor.start_epoch(epoch);
    }

    fn way_has_changed(&mut self) -> bool {
        if self.way_seen.elapsed() < WAY_KEPT {
            return false;
        }
        // If this cannot be determined (files are missing), keep the way. Each file's own error says why.
        let direct = engine::would_be_direct(&self.config, &self.dataset, &self.patience).unwrap_or(None);
        let now = self.route.lock().unwrap_or_else(PoisonError::into_inner).direct_io;
        let has_changed = direct.is_some_and(|direct| direct != now);
        if !has_changed {
            self.way_seen = Instant::now();
        }
        has_changed
    }

    fn with_route(&self, change: impl FnOnce(&mut Route)) {
        change(&mut self.route.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
