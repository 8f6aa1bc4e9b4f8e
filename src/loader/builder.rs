//! Asked for is a [`Config`]; checked once here, against the dataset and the machine, it becomes a loader.

use super::run::{self, Feeding, Job};
use super::{DeviceLoader, Loader, OnFailed, limits};
use crate::batch::FailedSample;
use crate::collate::Collation;
use crate::config::{Batching, Collate, Config, Cursor, Device, EngineChoice, IoChoice, MaxFailures, OnError, Shuffle};
use crate::dataset::Dataset;
use crate::device::{self, Transforms};
use crate::quarantine::Quarantine;
use crate::reactor::Failures;
use crate::sampler::{self, BatchingId, EpochDigest, Order, Sampler, Strided};
use crate::state::{Delivered, Identity, State};
use crate::stats::Stats;
use crate::transform::Transform;
use crate::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Sets up a [`Loader`].
#[derive(Clone)]
#[must_use = "call build"]
pub struct Builder {
    pub(crate) dataset: Arc<dyn Dataset>,
    sampler: Option<Arc<dyn Sampler>>,
    pub(crate) config: Config,
    resume: Option<Box<State>>,
    on_failed: Option<OnFailed>,
    pin: Option<Device>,
}

impl Loader {
    /// A loader of `dataset`, with [`Config::default`] until told otherwise.
    pub fn builder(dataset: Arc<dyn Dataset>) -> Builder {
        Builder { dataset, sampler: None, config: Config::default(), resume: None, on_failed: None, pin: None }
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

    /// Samples in a batch; rows of packed samples, if those are asked for.
    pub fn batch_size(mut self, samples: u64) -> Builder {
        self.config.batch_size = samples;
        self
    }

    /// What a row of a batch is: a sample, or samples put together by their lengths.
    pub fn batching(mut self, rows: impl Into<Batching>) -> Builder {
        self.config.batching = rows.into();
        self
    }

    /// Epochs until the loader ends; `None`: never.
    pub fn epochs(mut self, epochs: impl Into<Option<u64>>) -> Builder {
        self.config.epochs = epochs.into();
        self
    }

    /// Whether, and how, each epoch has a random order of its own: `true` is [`Shuffle::Auto`].
    pub fn shuffle(mut self, shuffle: impl Into<Shuffle>) -> Builder {
        self.config.shuffle = shuffle.into();
        self
    }

    /// What random orders derive from.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.config.seed = seed;
        self
    }

    /// An order of the caller's instead of `shuffle`, which still tells whether the rows of a window come in random
    /// order.
    pub fn sampler(mut self, sampler: Arc<dyn Sampler>) -> Builder {
        self.sampler = Some(sampler);
        self
    }

    /// Which of `world_size` equal consumers this is.
    pub fn rank(mut self, rank: u64, world_size: u64) -> Builder {
        self.config.rank = rank;
        self.config.world_size = world_size;
        self
    }

    /// Whether samples that do not fill a batch on every rank are dropped.
    pub fn drop_last(mut self, drop_last: bool) -> Builder {
        self.config.drop_last = drop_last;
        self
    }

    /// Starts from `cursor` (the `next` of the last batch that was used) instead of the beginning, or of the state to
    /// resume from. Nothing is known of the dataset and the order that the cursor belongs to, so nothing is checked but
    /// that there is such a place.
    pub fn start(mut self, cursor: Cursor) -> Builder {
        self.resume = None;
        self.config.start = cursor;
        self
    }

    /// Goes on from where `state` was saved: at the sample behind the last batch that was handed out then.
    ///
    /// The dataset and the order must be those of the state, and within a window of rows also the way in which rows are
    /// made; `build` checks it. World size, rank, batch size, engine, depth, threads and memory may be others: what is
    /// left of the epoch is the same, in the same global order. `epochs` counts from the state's epoch on, as it does
    /// with [`start`](Builder::start), which ignores all these checks when it is given the state's cursor.
    ///
    /// The digest goes on where rank and world size are those of the state; else it begins anew at its place.
    pub fn resume(mut self, state: &State) -> Builder {
        self = self.start(state.cursor());
        self.resume = Some(Box::new(state.clone()));
        self
    }

    /// What moves the bytes.
    pub fn engine(mut self, engine: EngineChoice) -> Builder {
        self.config.engine = engine;
        self
    }

    /// Past the page cache or through it.
    pub fn io(mut self, io: IoChoice) -> Builder {
        self.config.io = io;
        self
    }

    /// Bytes of memory for samples at most.
    pub fn memory_limit(mut self, bytes: u64) -> Builder {
        self.config.memory_limit = Some(bytes);
        self
    }

    /// What becomes of samples that cannot be read.
    pub fn on_error(mut self, on_error: OnError) -> Builder {
        self.config.on_error = on_error;
        self
    }

    /// What is told of each sample that cannot be had, under [`OnError::Warn`]: on the thread that takes the batches,
    /// when the batch that lacks the sample is handed out. So a slow one holds up nothing but its own thread.
    pub fn on_failed(mut self, told: impl Fn(&FailedSample) + Send + Sync + 'static) -> Builder {
        self.on_failed = Some(Arc::new(told));
        self
    }

    /// How many samples may fail before the loader ends; `None`: any number.
    pub fn max_failures(mut self, limit: impl Into<Option<MaxFailures>>) -> Builder {
        self.config.max_failures = limit.into();
        self
    }

    /// A file to which a line is added for each sample that cannot be had.
    pub fn quarantine(mut self, path: impl Into<PathBuf>) -> Builder {
        self.config.quarantine = Some(path.into());
        self
    }

    /// How long a read may take before it is given up; `None`: as long as it likes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Builder {
        self.config.timeout = timeout.into();
        self
    }

    /// How long the consumer may wait for memory that it holds itself.
    pub fn starved_after(mut self, wait: Duration) -> Builder {
        self.config.starved_after = wait;
        self
    }

    /// The form of a batch's columns.
    pub fn collate(mut self, collate: Collate) -> Builder {
        self.config.collate = collate;
        self
    }

    /// The form of one column, where it is another; each column once.
    pub fn collate_column(mut self, name: impl Into<String>, collate: Collate) -> Builder {
        self.config.collate_columns.push((name.into(), collate));
        self
    }

    /// Whether each batch has a column "key" with what names its samples to a person: views of bytes.
    pub fn key_column(mut self, key_column: bool) -> Builder {
        self.config.key_column = key_column;
        self
    }

    /// Whether each batch has a column "index" with the samples' numbers in the dataset: integers.
    pub fn index_column(mut self, index_column: bool) -> Builder {
        self.config.index_column = index_column;
        self
    }

    /// Threads that decode, where samples are stored in units that must be; 0: on the thread that reads. `None`: one
    /// for each processor, at most 8.
    pub fn num_threads(mut self, threads: impl Into<Option<usize>>) -> Builder {
        self.config.num_threads = threads.into();
        self
    }

    /// The number of threads of [`EngineChoice::Threads`]. `None`, the default: the library chooses.
    pub fn io_threads(mut self, threads: impl Into<Option<usize>>) -> Builder {
        self.config.io_threads = threads.into();
        self
    }

    /// The length of the longest read, in bytes. `None`, the default: the library chooses by the device.
    pub fn read_bytes(mut self, bytes: impl Into<Option<usize>>) -> Builder {
        self.config.read_bytes = bytes.into();
        self
    }

    /// Merges two reads whose gap is at most this many bytes into one. Default: 0.
    pub fn coalesce_gap(mut self, bytes: u64) -> Builder {
        self.config.coalesce_gap = bytes;
        self
    }

    /// Reads in flight, fixed.
    pub fn queue_depth(mut self, reads: usize) -> Builder {
        self.config.queue_depth = Some(reads);
        self
    }

    /// Pins the memory that batches are read into, so that the copy engine of a GPU reads it by itself while the host
    /// goes on; batches stay on the host. All of the memory limit is taken at once by that. Where `device` is auto and
    /// there is no GPU, the memory is not pinned, and the route says why.
    ///
    /// A copy that was queued reads the memory later: hold the batch until it is done, or see [`PinnedMemory::keep`].
    ///
    /// [`PinnedMemory::keep`]: crate::device::PinnedMemory::keep
    pub fn pin(mut self, device: Device) -> Builder {
        self.pin = Some(device);
        self
    }

    /// Checks everything, opens the engine and starts to read. Returns when the engine is open.
    ///
    /// # Errors
    /// `InvalidArgument` for a rank, size, shuffle, cursor, limit or timeout that cannot be, and for a form that a
    /// column cannot have (see [`Collate`]); `Empty`; what the system says of a quarantine file that cannot be
    /// opened; `MemoryLimit`, with the arithmetic, where one batch cannot fit; `Unavailable` for an engine, mode or GPU
    /// that was asked for by name and is not to be had; `StateMismatch`, with what differs, for a state to resume from
    /// that is of another dataset or order.
    pub fn build(self) -> Result<Loader> {
        let on_failed = self.on_failed.clone();
        let (pin, mut fallbacks) = (self.pin.clone(), Vec::new());
        let context = pin.map(|device| device::open_to_pin(&device, &mut fallbacks)).transpose()?.flatten();
        let job = self.check(|collation| collation)?;
        let mut loader = run::start(Job { context, ..job }, fallbacks)?;
        loader.on_failed = on_failed;
        Ok(loader)
    }

    /// Puts the batches on a device. Its columns are dense where they are of one shape and ragged where they are not,
    /// unless another form is asked for; views stay on the host.
    pub fn device(self, device: Device) -> DeviceBuilder {
        self.devices([device])
    }

    /// Puts the batches on devices, in turn: batch k goes to device k modulo their number.
    pub fn devices(self, devices: impl IntoIterator<Item = Device>) -> DeviceBuilder {
        DeviceBuilder { builder: self, devices: devices.into_iter().collect(), transforms: Vec::new() }
    }

    /// The batches that the loader would deliver, as a value: which samples come when, without reading any of them.
    ///
    /// # Errors
    /// As [`build`](Builder::build), for what concerns the order.
    pub fn order(self) -> Result<Order> {
        let Builder { dataset, sampler, config, resume, .. } = self;
        order(dataset, sampler, &config, resume.as_deref())
    }

    /// Checks everything. `form` says where values are put together.
    fn check(self, form: impl FnOnce(Collation) -> Collation) -> Result<Job> {
        let Builder { dataset, sampler, config, resume, on_failed, .. } = self;
        check_errors(&config, &*dataset, on_failed.is_some())?;
        let order = order(dataset, sampler, &config, resume.as_deref())?;
        let collation = Arc::new(form(Collation::new(&config, &**order.dataset())?));
        let limits = limits::check(&config, &order, &collation)?;
        let stats = Arc::new(Stats::new());
        let delivered = resume.and_then(|state| state.delivered);
        let digest = digest(delivered, order.strided()).unwrap_or(EpochDigest::new(order.start()));
        let quarantine = config.quarantine.as_deref().map(Quarantine::open).transpose()?;
        let failures = Failures::new(config.max_failures, quarantine, order.clone());
        let (context, gds) = (None, None);
        Ok(Job { order, config, collation, limits, stats, digest, failures, context, gds })
    }
}

/// Sets up a [`DeviceLoader`]; made by [`Builder::device`].
#[derive(Clone)]
#[must_use = "call build"]
pub struct DeviceBuilder {
    builder: Builder,
    devices: Vec<Device>,
    transforms: Vec<(String, Transform)>,
}

impl DeviceBuilder {
    /// What becomes of a column on its way; each column once.
    pub fn transform(mut self, column: impl Into<String>, transform: impl Into<Transform>) -> DeviceBuilder {
        self.transforms.push((column.into(), transform.into()));
        self
    }

    /// Checks everything, opens the devices and the engine, and starts to read.
    ///
    /// # Errors
    /// As [`Builder::build`]. `Unavailable` where a GPU was asked for by its number and is not to be had; `MemoryLimit`
    /// where a batch does not fit there, or [`Gds::On`](crate::config::Gds::On) cannot be had; `InvalidArgument` for a
    /// transform that a column cannot have; `Device` for what
    /// the driver says.
    pub fn build(self) -> Result<DeviceLoader> {
        let DeviceBuilder { mut builder, devices, transforms } = self;
        if builder.pin.is_some() {
            let what = "pin is for batches that stay on the host, and these go to a device";
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("leave pin out: the memory that a device copies from is pinned anyway"));
        }
        if devices.is_empty() {
            let what = "no device is given";
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("name a device, or build a loader for the host"));
        }
        if builder.config.collate == Collate::Auto {
            // Where it takes no copy of the host's, a tensor is better than slices that nobody can follow there.
            builder.config.collate = Collate::Ragged;
        }
        let transforms = Transforms::new(&transforms, &mut builder.config, &*builder.dataset)?;
        let mut opened = device::open(&devices)?;
        let on_failed = builder.on_failed.clone();
        let mut job = builder.check(Collation::deferred)?;
        let (batch, starved_after) = (job.limits.batch, job.config.starved_after);
        job.gds = choose_gds(&job, &mut opened, &devices)?;
        let prepare = |opened: &mut device::Opened, gds: Option<&device::Loading>| {
            let wanted = (&**job.order.dataset(), &*job.collation, transforms.clone());
            device::prepare(opened, &devices, wanted, (batch, gds), starved_after, &job.stats)
        };
        let (feeder, routes, queue_capacity) = match prepare(&mut opened, job.gds.as_ref()) {
            Err(error) if job.gds.is_some() => {
                device::give_up(&mut opened, &devices, error)?;
                job.gds = None;
                prepare(&mut opened, None)?
            }
            prepared => prepared?,
        };
        job.context = opened.context().cloned();
        let fallbacks = std::mem::take(&mut opened.fallbacks);
        let feeding = Feeding { feeder, routes, queue_capacity, fallbacks };
        let mut loader = run::start_on_devices(job, feeding)?;
        loader.on_failed = on_failed;
        Ok(loader)
    }
}

/// Looks whether files are to be read straight into the device's memory.
fn choose_gds(job: &Job, opened: &mut device::Opened, devices: &[Device]) -> Result<Option<device::Loading>> {
    let asked = device::Asked {
        config: &job.config,
        order: &job.order,
        collation: &job.collation,
        batch: job.limits.batch,
        pool_bytes: job.limits.pool_bytes,
    };
    device::choose(opened, devices, &asked)
}

/// What is asked for where samples cannot be had.
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
    let mut sampler = match sampler {
        Some(sampler) => sampler,
        None => sampler::for_dataset(&*dataset, config.shuffle, config.seed)?,
    };
    if let Some(state) = resume {
        sampler = resumed(state, &*dataset, sampler, config)?;
    }
    Order::new(config, dataset, sampler)
}

/// The order, going on from `state`, if that belongs to it and to the dataset.
fn resumed(
    state: &State,
    dataset: &dyn Dataset,
    sampler: Arc<dyn Sampler>,
    config: &Config,
) -> Result<Arc<dyn Sampler>> {
    state.check_dataset(&Identity::of(dataset))?;
    let other = match &state.mixer {
        Some(mixer) => sampler.resumed(mixer, state.cursor())?,
        None => None,
    };
    let sampler = other.unwrap_or(sampler);
    state.check_order(&*sampler)?;
    state.check_batching(&BatchingId::of(config))?;
    Ok(sampler)
}

/// What was delivered to this very rank before.
fn digest(delivered: Option<Delivered>, strided: &Strided) -> Option<EpochDigest> {
    let ours = |delivered: &Delivered| (delivered.rank, delivered.world_size) == (strided.rank(), strided.world_size());
    delivered.filter(ours).map(|delivered| delivered.digest)
}
