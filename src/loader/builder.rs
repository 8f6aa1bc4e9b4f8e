//! Asked for is a [`Config`]; checked once here, against the dataset and the machine, it becomes a loader.

mod columns;
mod devices;

use columns::{check_labels, maps_of};
pub use devices::DeviceBuilder;

use super::run::{self, Job};
use super::{Loader, OnFailed, limits, prepared, rows, stretches};
use crate::batch::FailedSample;
use crate::collate::Collation;
use crate::config::{
    Batching, Cache, Collate, Config, Cursor, Device, DiskCache, EngineChoice, ImageCache, IoChoice, MaxFailures,
    MemoryBudget, OnError, Profile, Setting, Shuffle, Value,
};
use crate::dataset::Dataset;
use crate::device;
use crate::engine::{Price, read_limits};
use crate::guard;
use crate::patience::Patience;
use crate::quarantine::Quarantine;
use crate::reactor::Failures;
use crate::sampler::{self, BatchingId, EpochDigest, Order, Sampler, Strided};
use crate::state::{Identity, Received, State};
use crate::stats::trace::Tracer;
use crate::stats::{Facts, Stats};
use crate::transform::{Array, DecodeMemory, Follow, Map, Mix, Mixer};
use crate::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Sets up a [`Loader`]. It can also tell the order alone ([`order`](Builder::order)), convert the dataset
/// ([`pack`](Builder::pack)) or check it ([`verify`](Builder::verify)).
///
/// Every setting has a default: batches of 64 samples, one epoch in the order of the dataset, on the host, with the
/// engine, the memory and the number of reads in flight that suit the machine.
///
/// ```
/// use std::time::Duration;
/// use uringload::config::{Collate, OnError, Padding, Shuffle};
/// use uringload::{Loader, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # (0..8).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), vec![n; n as usize]).unwrap());
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// let loader = Loader::builder(dataset)
///     .batch_size(2)
///     .shuffle(Shuffle::Full)
///     .seed(7)
///     .rank(1, 4)
///     .collate(Collate::Padded(Padding::default().multiple_of(8)))
///     .on_error(OnError::Skip)
///     .timeout(Duration::from_secs(30))
///     .memory_limit(64 << 20)
///     .build()?;
/// println!("{}", loader.route());
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "call build"]
pub struct Builder {
    pub(crate) dataset: Arc<dyn Dataset>,
    sampler: Option<Arc<dyn Sampler>>,
    pub(crate) config: Config,
    resume: Option<Box<State>>,
    on_failed: Option<OnFailed>,
    pin: Option<Device>,
    /// The transforms of columns.
    maps: Vec<(String, Map)>,
    /// Columns that go where the pixels of others go.
    follows: Vec<(String, Follow)>,
    arrays: Vec<(String, Array)>,
    mix: Option<Mix>,
    /// The first error of a transform, which `build` returns.
    wrong: Option<Error>,
}

impl Loader {
    /// Sets up a loader of `dataset`; every setting of the [`Builder`] has a default.
    pub fn builder(dataset: Arc<dyn Dataset>) -> Builder {
        Builder {
            dataset,
            sampler: None,
            config: Config::default(),
            resume: None,
            on_failed: None,
            pin: None,
            maps: Vec::new(),
            follows: Vec::new(),
            arrays: Vec::new(),
            mix: None,
            wrong: None,
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("dataset", &self.dataset)
            .field("config", &self.config)
            .field("resumes", &self.resume.is_some())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Replaces everything that was set so far.
    #[doc(hidden)]
    pub fn config(mut self, config: Config) -> Builder {
        self.config = config;
        self.resume = None;
        self
    }

    /// Sets a setting by its name, for programs that get names and values from elsewhere: a file, another language.
    ///
    /// ```
    /// # use uringload::{Loader, dataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::fs::write(folder.path().join("a.bin"), [0; 10]).unwrap();
    /// # let dataset = dataset::open(&[folder.path()], &dataset::Options::new().format("folder"))?;
    /// let builder = Loader::builder(dataset).set("batch_size", 1)?.set("memory_limit", "64MiB")?;
    /// assert!(builder.set("batch_size", "many").is_err());
    /// # Ok::<(), uringload::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none of [`settings`](Builder::settings), or a value that it cannot have.
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Result<Builder> {
        if self.config.set(name, &value.into())? {
            return Ok(self);
        }
        let names: Vec<&str> = Builder::settings().iter().map(|setting| setting.name).collect();
        Err(Error::new(ErrorKind::InvalidArgument, format!("a loader has no setting {name:?}"))
            .with_remedy(format!("its settings are {}", names.join(", "))))
    }

    /// The settings that [`set`](Builder::set) knows.
    pub fn settings() -> &'static [Setting] {
        Config::NAMED
    }

    /// Samples in a batch, or rows if samples are packed. Default: 64.
    pub fn batch_size(mut self, samples: u64) -> Builder {
        self.config.batch_size = samples;
        self
    }

    /// Makes batches of sequences packed into rows ([`Packing`](crate::config::Packing)), or of samples of similar
    /// length ([`Buckets`](crate::config::Buckets)). Default: a row is a sample.
    pub fn batching(mut self, rows: impl Into<Batching>) -> Builder {
        self.config.batching = rows.into();
        self
    }

    /// The number of epochs of the whole run, counted from epoch 0: a loader that [resumes](Builder::resume) in epoch
    /// 30 of 90 reads the rest of that epoch and 59 more, and one that resumes after the last reads nothing. `None`:
    /// the loader never ends. Default: the epoch that it starts in, to its end.
    pub fn epochs(mut self, epochs: impl Into<Option<u64>>) -> Builder {
        (self.config.epochs, self.config.more_epochs) = (epochs.into(), false);
        self
    }

    /// The number of epochs from where the loader starts: the rest of the epoch that it resumes in counts as one.
    /// Instead of [`epochs`](Builder::epochs).
    pub fn more_epochs(mut self, epochs: u64) -> Builder {
        (self.config.epochs, self.config.more_epochs) = (Some(epochs), true);
        self
    }

    /// Whether and how each epoch is shuffled: `true` is [`Shuffle::Auto`]. Default: the order of the dataset.
    pub fn shuffle(mut self, shuffle: impl Into<Shuffle>) -> Builder {
        self.config.shuffle = shuffle.into();
        self
    }

    /// The seed that all random orders derive from. Default: 0.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.config.seed = seed;
        self
    }

    /// Uses an order of your own, or a mixture, instead of `shuffle`. With packing and buckets, `shuffle` still decides
    /// whether the rows of a window come in random order.
    pub fn sampler(mut self, sampler: Arc<dyn Sampler>) -> Builder {
        self.sampler = Some(sampler);
        self
    }

    /// Which of `world_size` equal consumers this is, from 0. Default: the only one.
    pub fn rank(mut self, rank: u64, world_size: u64) -> Builder {
        self.config.rank = rank;
        self.config.world_size = world_size;
        self
    }

    /// Whether to drop the samples at the end of an epoch that do not fill a batch on every rank. Default: false.
    pub fn drop_last(mut self, drop_last: bool) -> Builder {
        self.config.drop_last = drop_last;
        self
    }

    /// Starts from `cursor` (the `next` of the last batch that was used) instead of the beginning or the state to
    /// resume from. A cursor does not say which dataset and order it belongs to, so only its range is checked.
    pub fn start(mut self, cursor: Cursor) -> Builder {
        self.resume = None;
        self.config.start = cursor;
        self
    }

    /// Resumes where `state` was saved: after the last batch that had been handed out.
    ///
    /// The dataset and the order must be those of the state, and within a window of packed or bucketed rows also the
    /// packing or buckets; `build` checks this. World size, rank, batch size, engine, number of reads, threads and
    /// memory may differ: the rest of the epoch is the same, in the same global order. `epochs` counts from the state's
    /// epoch. To resume without these checks, pass the state's cursor to [`start`](Builder::start).
    ///
    /// The digest continues if rank and world size are those of the state; otherwise it starts at the state's position.
    pub fn resume(mut self, state: &State) -> Builder {
        self = self.start(state.cursor());
        self.resume = Some(Box::new(state.clone()));
        self
    }

    /// What reads the bytes. Default: io_uring if the system allows it, threads otherwise.
    pub fn engine(mut self, engine: EngineChoice) -> Builder {
        self.config.engine = engine;
        self
    }

    /// Whether reads bypass the page cache. Default: only if the files are not in it already.
    pub fn io(mut self, io: IoChoice) -> Builder {
        self.config.io = io;
        self
    }

    /// The most memory for samples, in bytes. Default: chosen by the size of a batch, within half of what the machine
    /// has available and a quarter of what the control groups of the container leave.
    pub fn memory_limit(mut self, bytes: u64) -> Builder {
        self.config.memory_limit = Some(bytes);
        self
    }

    /// Takes the memory for samples from a budget that several loaders share: at first two batches (what is pinned, and
    /// what images and units are decoded in, as a whole), then more as it reads, up to
    /// [`memory_limit`](Builder::memory_limit) and to half of the budget. If nothing is left, it goes on with what it
    /// has.
    ///
    /// [`build`](Builder::build) fails with `MemoryLimit` if the budget has no room for what is taken at first. The
    /// memory of GPUs is not counted.
    pub fn memory_budget(mut self, budget: &MemoryBudget) -> Builder {
        self.config.memory_budget = Some(budget.clone());
        self
    }

    /// What happens to samples that cannot be read. Default: their error takes the place of the batch.
    pub fn on_error(mut self, on_error: OnError) -> Builder {
        self.config.on_error = on_error;
        self
    }

    /// Called for each sample that cannot be read, under [`OnError::Warn`], on the thread that takes the batches, when
    /// the batch that lacks the sample is handed out. A slow callback delays only that thread.
    pub fn on_failed(mut self, told: impl Fn(&FailedSample) + Send + Sync + 'static) -> Builder {
        self.on_failed = Some(Arc::new(told));
        self
    }

    /// How many samples may fail, whatever `on_error` says, before the loader ends with `TooManyFailures`. `None`, the
    /// default: any number.
    pub fn max_failures(mut self, limit: impl Into<Option<MaxFailures>>) -> Builder {
        self.config.max_failures = limit.into();
        self
    }

    /// A file to which a line of JSON is appended for each sample that cannot be read: see
    /// [`quarantine`](mod@crate::quarantine). It is created if it does not exist.
    pub fn quarantine(mut self, path: impl Into<PathBuf>) -> Builder {
        self.config.quarantine = Some(path.into());
        self
    }

    /// How long a read may take before it is cancelled and its samples fail with `Timeout`. A read that does not end
    /// even then keeps its memory until it does; one that only waits behind such reads may take four times as long.
    /// `None`, the default: no limit.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Builder {
        self.config.timeout = timeout.into();
        self
    }

    /// How long to wait while nothing of a dataset's folder can be read (a server that restarts, a mount that is lost),
    /// or while the machine has no descriptor or memory to read with. Until then no sample fails for it, whatever
    /// `on_error` says, and [`Snapshot::outage`](crate::stats::Snapshot::outage) reports it. Then the loader ends with
    /// an error. `None`: wait as long as it takes. Default: 5 minutes.
    pub fn outage_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Builder {
        self.config.outage_timeout = timeout.into();
        self
    }

    /// How long what a look at an open file has told is believed. Default: 4 ms. If another program writes *into* a
    /// file while it is read, that is found out so much later, and samples that were read meanwhile may have its bytes.
    /// With [`Duration::ZERO`] every read is followed by a look before anybody gets its bytes: what was written into a
    /// file is then always an error of its samples (`Changed`), for some 0.4 us of a processor a read (1.3 with
    /// io_uring).
    pub fn check_every(mut self, time: Duration) -> Builder {
        self.config.check_every = time;
        self
    }

    /// How long the loader waits for memory that the consumer holds before it fails with `Starved`. Default: 10
    /// seconds.
    pub fn starved_after(mut self, wait: Duration) -> Builder {
        self.config.starved_after = wait;
        self
    }

    /// The form of the columns of a batch. Default: [`Collate::Auto`].
    pub fn collate(mut self, collate: Collate) -> Builder {
        self.config.collate = collate;
        self
    }

    /// The form of one column, if it differs. Call it at most once per column.
    pub fn collate_column(mut self, name: impl Into<String>, collate: Collate) -> Builder {
        self.config.collate_columns.push((name.into(), collate));
        self
    }

    /// Whether each batch has a column "key" with the samples' names, as views of bytes. Default: false.
    pub fn key(mut self, key: bool) -> Builder {
        self.config.key = key;
        self
    }

    /// Whether each batch has a column "index" with the samples' numbers in the dataset. Default: false.
    pub fn index(mut self, index: bool) -> Builder {
        self.config.index = index;
        self
    }

    /// The number of threads that compute: that decode images and the units of formats that compress several samples as
    /// one, and run closures. `None`, the default: one per processor that this process may use, by its affinity and its
    /// control group; at most 8 where only units are decoded.
    ///
    /// 0: the thread that takes the batches does that while it waits for them, so that closures run where the loader is
    /// iterated. Reads go on in the background. Samples that stand in for others
    /// ([`OnError::Replace`]), and batches for a device, are made by the thread that reads.
    pub fn num_threads(mut self, threads: impl Into<Option<usize>>) -> Builder {
        self.config.num_threads = threads.into();
        self
    }

    /// The number of threads of [`EngineChoice::Threads`]. `None`, the default: as many as give most, up to 256.
    pub fn io_threads(mut self, threads: impl Into<Option<usize>>) -> Builder {
        self.config.io_threads = threads.into();
        self
    }

    /// The length of the longest read, in bytes. `None`, the default: the library chooses by the device.
    pub fn read_size(mut self, bytes: impl Into<Option<usize>>) -> Builder {
        self.config.read_size = bytes.into();
        self
    }

    /// Merges two reads whose gap is at most this many bytes into one; at most 8 KiB where files lie in the page cache,
    /// because to copy more costs more than a read. `None`, the default: by what an operation of the storage costs. It
    /// costs nothing, unless a limit of the control group or a disk with heads makes reads rare. Then gaps of up to
    /// 64 KiB are read along, as long as reads get no longer than 8 times the pages wanted, and the route says so.
    pub fn coalesce_gap(mut self, bytes: impl Into<Option<u64>>) -> Builder {
        self.config.coalesce_gap = bytes.into();
        self
    }

    /// What is kept in memory from epoch to epoch. Default: [`Cache::Off`]. Without a
    /// [`memory_limit`](Builder::memory_limit), a cache takes up to half of the memory that is available.
    pub fn cache(mut self, cache: Cache) -> Builder {
        self.config.cache = cache;
        self
    }

    /// Reads as a [`Profile`] says, where nothing else was chosen: what is set before or after wins. The order of
    /// the samples does not depend on it. Default: none.
    ///
    /// ```no_run
    /// use uringload::config::Profile;
    /// use uringload::{Loader, dataset};
    ///
    /// # fn main() -> uringload::Result<()> {
    /// let photos = dataset::open(&["/data/photos"], &dataset::Options::new())?;
    /// // Written by `uringload tune /data/photos`.
    /// let loader = Loader::builder(photos).shuffle(true).profile(&Profile::load(".uringload.toml")?).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn profile(mut self, profile: &Profile) -> Builder {
        profile.fill(&mut self.config);
        self
    }

    /// Keeps decoded images from epoch to epoch, as they are before the first random operation of their
    /// [`transform`](Builder::transform): `resize(256), random_crop(224)` keeps what is resized, and
    /// `random_resized_crop(224)` all of an image. Samples, bytes, states and digests stay the same; what is kept is
    /// neither read nor decoded. Default: `None`.
    ///
    /// Where not all fit, a hash of its number decides whether a sample is kept: the same in every run, on every rank
    /// and after a resume. After a resize, images that are stored in more bytes come first, because they cost more.
    /// Nothing is given up for something else, so the share that fits is the share of hits from the second epoch on:
    /// [`Counts::cache_hits`](crate::stats::Counts::cache_hits). `build` reads up to 256 samples to know that share.
    ///
    /// Files that are written to while the loader lives are noticed when they are read, and those that are kept are
    /// not read.
    pub fn cache_images(mut self, cache: impl Into<Option<ImageCache>>) -> Builder {
        self.config.cache_images = cache.into();
        self
    }

    /// Keeps what is read of objects in a folder of a local disk, and reads it there from then on. Default: `None`.
    ///
    /// Objects are kept in stretches of 1 MiB, or whole where they are shorter; a stretch is fetched when the first of
    /// its samples is wanted. Where not all fit, a hash of its place decides whether a stretch is kept: the same in
    /// every run, on every rank and after a resume. Nothing is given up for something else, so the share that fits is
    /// the share of hits from the second epoch on: [`Counts::bytes_cached`](crate::stats::Counts::bytes_cached). Order,
    /// bytes, states and digests stay the same.
    ///
    /// An object that is replaced is another one; what is kept of the old one stays until `uringload cache clear`. What
    /// the disk has damaged, or does not give, is read from the store, and [`Loader::route`](crate::Loader::route) says
    /// so. Objects without a version (ETag, generation, date) and files of folders are not kept. Single samples, and a
    /// [`Reader`](crate::Reader), read the store.
    pub fn cache_disk(mut self, cache: impl Into<Option<DiskCache>>) -> Builder {
        self.config.cache_disk = cache.into();
        self
    }

    /// Repeats chroma instead of interpolating it, and decodes an image that is much larger than what comes out at a
    /// half, a quarter or an eighth of its size: faster where libjpeg-turbo decodes, and the same as before where it
    /// does not. `docs/images.md` has the difference. Default: false, and the tensors of a
    /// [`transform`](Builder::transform) are those that decoding all of an image makes, to the bit.
    pub fn fast_images(mut self, fast: bool) -> Builder {
        self.config.fast_images = fast;
        self
    }

    /// Whether images are turned and mirrored as their EXIF or XMP orientation says, and what follows them with them.
    /// Default: true.
    pub fn orient(mut self, orient: bool) -> Builder {
        self.config.orient = orient;
        self
    }

    /// Writes what every thread does to a file while it runs, in Chrome's JSON, for
    /// [Perfetto](https://ui.perfetto.dev): threads by activity, reads in flight, and the batches as they are taken. A
    /// file that a killed process left opens too. Default: none, which costs nothing.
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Builder {
        self.config.trace = Some(path.into());
        self
    }

    /// Shares the loader's statistics while it runs, in a page of JSON in this folder, which should be in memory:
    /// `/dev/shm`, where `uringload top` looks. For this user alone. Default: none.
    pub fn share_stats(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.config.share_stats = Some(folder.into());
        self
    }

    /// Fixes the number of reads in flight. Default: found by trying what gives most, up to what the device's queue
    /// takes, or 256 where that is not known.
    pub fn queue_depth(mut self, reads: usize) -> Builder {
        self.config.queue_depth = Some(reads);
        self
    }

    /// Pins the memory that batches are read into, so that a GPU can copy it asynchronously; batches stay on the host.
    /// This allocates all of the memory limit at once. If `device` is auto and there is no GPU, memory is not pinned,
    /// and the route says why.
    ///
    /// A queued copy reads the memory later: hold the batch until the copy is done, or see [`PinnedMemory::keep`].
    ///
    /// [`PinnedMemory::keep`]: crate::device::PinnedMemory::keep
    pub fn pin(mut self, device: Device) -> Builder {
        self.pin = Some(device);
        self
    }

    /// Checks all settings, opens the engine and starts to read. Returns when the engine is open.
    ///
    /// # Errors
    /// - `InvalidArgument` for an impossible rank, size, shuffle, cursor, limit or timeout, and for a form that a
    ///   column cannot have (see [`Collate`]).
    /// - `Empty` for a dataset without samples.
    /// - `MemoryLimit`, with the arithmetic, if one batch cannot fit.
    /// - `Unavailable` for an engine, mode or GPU that was chosen by name and is not available.
    /// - `StateMismatch`, with the differences, for a state of another dataset or order.
    /// - The system's error for a quarantine file that cannot be opened.
    pub fn build(self) -> Result<Loader> {
        let dataset = Arc::clone(&self.dataset);
        guard::whole(&*dataset, TELLS, || self.build_here())
    }

    fn build_here(self) -> Result<Loader> {
        let on_failed = self.on_failed.clone();
        let (pin, mut fallbacks) = (self.pin.clone(), Vec::new());
        let pinning = pin.map(|device| device::open_to_pin(&device, &mut fallbacks)).transpose()?.flatten();
        let (context, near) = pinning.map_or((None, None), |(context, near)| (Some(context), near));
        let job = self.check(|collation| collation)?;
        let mut loader = run::start(Job { context, near, ..job }, fallbacks)?;
        loader.on_failed = on_failed;
        Ok(loader)
    }

    /// Puts the batches on a device. Columns are dense if all samples have one shape and ragged otherwise, unless
    /// `collate` asks for another form; views stay on the host.
    ///
    /// It comes after all settings of the batches, and before those of the device:
    /// [`on_device`](DeviceBuilder::on_device) and [`build`](DeviceBuilder::build).
    ///
    /// ```compile_fail,E0599
    /// # use uringload::{Loader, config::Device, dataset::{Options, open}};
    /// # let dataset = open(&["/data"], &Options::new()).unwrap();
    /// // No method named `batch_size` is found for `DeviceBuilder`.
    /// let loader = Loader::builder(dataset).device(Device::auto()).batch_size(8);
    /// ```
    pub fn device(self, device: Device) -> DeviceBuilder {
        self.devices([device])
    }

    /// Puts the batches on several devices in turn: batch k goes to device k modulo their number.
    pub fn devices(self, devices: impl IntoIterator<Item = Device>) -> DeviceBuilder {
        DeviceBuilder { builder: self, devices: devices.into_iter().collect(), transforms: Vec::new() }
    }

    /// The batches that the loader would deliver, as a value: which samples come when, without reading any of them.
    ///
    /// # Errors
    /// As [`build`](Builder::build), for what concerns the order.
    pub fn order(self) -> Result<Order> {
        let Builder { dataset, sampler, config, resume, .. } = self;
        let of = Arc::clone(&dataset);
        guard::whole(&*of, TELLS, || order(dataset, sampler, &config, resume.as_deref()))
    }

    /// Checks everything. `form` says where values are put together.
    fn check(self, form: impl FnOnce(Collation) -> Collation) -> Result<Job> {
        let Builder { dataset, sampler, config, resume, on_failed, maps, follows, arrays, mix, wrong, .. } = self;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        check_errors(&config, &*dataset, on_failed.is_some())?;
        let mut maps = columns::resolved(maps, &follows, &arrays, dataset.index())?;
        maps.iter_mut().for_each(|(_, map)| map.set_decoding(!config.fast_images, config.orient));
        let mixer = mix.map(|mix| Mixer::new(mix, &maps, config.seed)).transpose()?;
        mixer.iter().try_for_each(|mixer| check_labels(mixer, &*dataset, &maps))?;
        let order = order(dataset, sampler, &config, resume.as_deref())?;
        let collation = Arc::new(form(Collation::with_maps(&config, &**order.dataset(), &maps)?));
        let decodes = maps.iter().any(|(_, map)| map.decodes());
        let decode_bytes = if decodes { limits::decode_bytes(config.memory_limit) } else { 0 };
        // What is left is for everything else.
        let memory_limit = config.memory_limit.map(|limit| limit - decode_bytes.min(limit));
        let patience = Patience::of(&config);
        let (asked, of_config) = (Arc::clone(order.dataset()), config.clone());
        let ask = move || (Price::of(&of_config, &*asked), read_limits(&of_config, &*asked));
        let (price, allowed) = patience.ask_one(ask).unwrap_or_default();
        let operation_bytes = price.as_ref().map(|price| price.operation_bytes).or(config.operation_bytes);
        let config = Config { memory_limit, operation_bytes, ..config };
        let mut notes = stretches::Notes::default();
        let mut limits = limits::check(&config, &order, &collation, decode_bytes, &mut notes.fallbacks)?;
        notes.tell_order(&config, &order);
        notes.tell_gaps(price.as_ref(), &config, &limits);
        let stretches = stretches::choose(&config, &order, &mut limits, &mut notes);
        limits.bound_gaps();
        let rows = rows::choose(&config, &order, &maps, stretches.as_ref(), &mut notes);
        if decodes {
            notes.locality.push(prepared::decoder(!config.fast_images).into());
        }
        let prepared = prepared::choose(&config, &order, &maps, &mut notes)?;
        let memory = DecodeMemory::new(decode_bytes, limits.threads + config.nvjpeg_threads);
        let maps = maps_of(maps, &collation, config.seed, (memory, prepared, mixer));
        let tracer = config.trace.as_deref().map(Tracer::begin).transpose()?;
        let stats = Arc::new(Stats::traced(tracer));
        stats.set_operation_bytes(config.operation_bytes.unwrap_or(0));
        let files = order.dataset().files();
        stats.set_stores((0..files.roots().len()).filter_map(|root| files.store_of(root)));
        stats.set_facts(Facts { allowed, ..stretches::facts(&config, &order, &collation, &limits) });
        let delivered = resume.and_then(|state| state.delivered);
        let digest = digest(delivered, order.strided()).unwrap_or(EpochDigest::new(order.start()));
        let quarantine = config.quarantine.as_deref().map(Quarantine::open).transpose()?;
        let failures = Failures::new(config.max_failures, quarantine, order.clone());
        let (context, near, gds, by_consumer, nvjpeg) = (None, None, None, false, None);
        Ok(Job {
            order,
            config,
            collation,
            limits,
            maps,
            stretches,
            rows,
            notes,
            stats,
            digest,
            failures,
            context,
            near,
            gds,
            by_consumer,
            nvjpeg,
        })
    }
}

/// What a loader asks a dataset before it reads.
const TELLS: &str = "a method that describes it, or its sampler";

/// Checks the choices about samples that fail.
fn check_errors(config: &Config, dataset: &dyn Dataset, on_failed: bool) -> Result<()> {
    let refused =
        |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
    if let Some(MaxFailures::Fraction(share)) = config.max_failures
        && !(0.0..=1.0).contains(&share)
    {
        return refused(
            format!("max_failures as a share of the samples cannot be {share}"),
            "give a share from 0 to 1",
        );
    }
    if config.timeout == Some(Duration::ZERO) {
        return refused("no read ends within a timeout of 0".into(), "give a longer one, or none");
    }
    if config.on_error == OnError::Replace && dataset.units().is_some() {
        let format = dataset.format();
        let what = format!("a sample of this {format} dataset cannot be read alone, to take the place of another");
        return refused(what, "set on_error to skip: its samples are cut from units that are decoded as a whole");
    }
    if on_failed && config.on_error != OnError::Warn {
        return refused("on_failed is only called if on_error is warn".into(), "set on_error to warn");
    }
    Ok(())
}

/// The batches of a rank, in the order that was given or else that of `config`.
fn order(
    dataset: Arc<dyn Dataset>,
    sampler: Option<Arc<dyn Sampler>>,
    config: &Config,
    resume: Option<&State>,
) -> Result<Order> {
    if dataset.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the dataset has no samples"));
    }
    let is_own = sampler.is_some();
    let mut sampler = match sampler {
        Some(sampler) => sampler,
        None => sampler::for_dataset(&*dataset, config.shuffle, config.seed)?,
    };
    if let Some(state) = resume {
        sampler = resumed(state, &dataset, (sampler, is_own), config)?;
    }
    Order::new(config, dataset, sampler)
}

/// The order, going on from `state`, if that belongs to it and to the dataset.
fn resumed(
    state: &State,
    dataset: &Arc<dyn Dataset>,
    (sampler, is_own): (Arc<dyn Sampler>, bool),
    config: &Config,
) -> Result<Arc<dyn Sampler>> {
    state.check_dataset(&Identity::of(&**dataset))?;
    state.check_content(dataset, config.timeout)?;
    let other = match &state.mixer {
        Some(mixer) => sampler.resumed(mixer, state.cursor())?,
        None => None,
    };
    let mut sampler = other.unwrap_or(sampler);
    if !is_own && config.shuffle == Shuffle::Auto && state.check_order(&*sampler).is_err() {
        // What the layout decides may be another order than when the state was made: the state's goes on.
        let kinds = sampler::ever_auto(&**dataset, config.seed);
        if let Some(same) = kinds.into_iter().find(|kind| state.check_order(&**kind).is_ok()) {
            sampler = same;
        }
    }
    state.check_order(&*sampler)?;
    state.check_batching(&BatchingId::of(config))?;
    Ok(sampler)
}

/// What was delivered to this very rank before.
fn digest(delivered: Option<Received>, strided: &Strided) -> Option<EpochDigest> {
    let ours = |delivered: &Received| (delivered.rank, delivered.world_size) == (strided.rank(), strided.world_size());
    delivered.filter(ours).map(|delivered| delivered.digest)
}
