//! Writes any dataset as WebDataset shards whose payloads begin at boundaries of 4096 bytes, or, if its samples are
//! tiny, as MDS shards, which store them side by side.

mod archive;
mod costs;
mod dense;
mod far;
mod header;
mod images;
mod layout;
mod manifest;
mod names;
mod npy;
mod options;
mod plan;
mod proof;
mod shard;

use crate::config::{Batching, Collate, Config, Cursor, MaxFailures, OnError, Part, Shuffle};
use crate::dataset::inspect::try_in_parallel;
use crate::dataset::{self, Dataset, FileId, Options, SampleId};
use crate::guard;
use crate::loader::Builder;
use crate::{Error, ErrorKind, Result};
use dense::Dense;
use far::Far;
use images::Making;
use manifest::Destination;
use names::Names;
use plan::Plan;
use shard::Written;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use costs::PackCosts;
pub use images::{PackImages, PackPrediction, PackedImages};
pub use names::Keys;
pub use options::{PackLayout, PackOptions};

/// The alignment of direct reads on most disks. Archives are whole multiples of it.
const UNIT_BYTES: u64 = 4096;
/// Maximum default number of threads. A thread waits for its write most of the time, and a disk does several at once:
/// on two busy processors four threads wrote 620 to 750 MB/s, and two wrote 420 to 530.
const THREADS_MAX: usize = 4;
/// About one batch is read for each write: at most this many bytes, unless a sample is longer, and this many samples.
const BATCH_BYTES: u64 = 16 << 20;
const BATCH_SAMPLES: u64 = 1024;
/// Default memory that a thread reads into, unless a sample needs more: two batches with the alignment around their
/// samples. Each shard has a loader of its own, whose memory the system must find first.
const MEMORY_BYTES: u64 = 64 << 20;
/// Maximum number of failed samples whose errors are in a report.
const FAILED_NAMED: usize = 100;

/// A planned conversion of a dataset into shards of tar archives, as webdataset's `ShardWriter` would write them.
///
/// # Names of members
/// Archives (`tar`) keep their keys and fields. Each file of a folder becomes a member under its path. As in
/// webdataset, its key is the path up to the first dot of the last component, and the field is what follows ("bin" if
/// there is no dot). **Files with the same key are one sample**: `n01/7.jpg` and `n01/7.json` are the sample `n01/7`
/// with two fields, so there may be fewer samples than files. The label of a class folder is the member `KEY.cls`, in
/// decimal digits, unless the sample has a file of that name. Other formats have no names that webdataset would accept:
/// there a sample is called by its number, and each column is a member, `000000017.COLUMN`, in lower case and without
/// leading slashes, blanks and underscores.
///
/// # Content of members
/// A column of byte vectors is stored as it is. Numbers of any other type or shape are `.npy` files, and the field ends
/// in `.npy`, so that type and shape are kept. NumPy has no bfloat16 and no 8-bit floats: their bits are integers in a
/// field that ends in `.bf16.npy`, `.f8e4m3.npy` or `.f8e5m2.npy`. A sample that lacks a field has no such member.
///
/// # Alignment
/// Members of at least 4096 bytes begin at a multiple of 4096 bytes, and smaller ones do not cross such a boundary. The
/// space between is a comment in a PAX header, which all readers skip. Members are in the order of their fields, and
/// owner, mode and time are always the same, so two packs of a source have the same bytes, whatever the number of
/// threads.
///
/// # Samples of a shard
/// Which samples a shard has follows from the source's index and the options alone: shards are as long as `shard_bytes`
/// and `shard_samples` allow. A source in which a key would come twice in a shard is refused.
///
/// # Whole shards only
/// A shard is written under a name with a leading dot, synced and then renamed, and its index is written beside it. A
/// pack that was interrupted continues when it is run again: `pack.json` in the folder says what the shards are made
/// of, and existing shards are kept. Several jobs may each write a [`Part`] of the shards, in any order or at once: the
/// bytes are the same.
///
/// ```
/// use std::ops::ControlFlow;
/// use uringload::pack::PackOptions;
/// use uringload::{Loader, dataset};
///
/// # let (source, shards) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
/// # (0..10).for_each(|n| std::fs::write(source.path().join(format!("{n}.dat")), [n; 100]).unwrap());
/// let photos = dataset::open(&[source.path()], &dataset::Options::new())?;
/// let options = PackOptions::default().shard_samples(4);
/// let pack = Loader::builder(photos).pack(shards.path(), options)?;
/// let report = pack.run(&|progress| {
///     println!("{} of {} samples", progress.samples, progress.samples_total);
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!((report.samples, report.shards), (10, 3));
/// # Ok::<(), uringload::Error>(())
/// ```
pub struct Pack {
    dataset: Arc<dyn Dataset>,
    folder: PathBuf,
    /// The folder, if it is in a store.
    far: Option<Arc<Far>>,
    options: PackOptions,
    /// The original settings, which decide what happens to samples that fail.
    asked: Config,
    /// How the source is read.
    config: Config,
    names: Names,
    plan: Plan,
    /// How images are converted.
    images: Option<Making>,
    /// How samples are stored, if not in archives.
    dense: Option<Dense>,
    /// Whether the folder belongs to this pack.
    is_writing: Arc<AtomicBool>,
}

/// The progress of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackProgress {
    /// Samples written or left out so far, including those of existing shards.
    pub samples: u64,
    /// All samples.
    pub samples_total: u64,
    /// Bytes of values written so far.
    pub bytes: u64,
    /// Complete shards, including those that existed before.
    #[doc(hidden)]
    pub shards: u64,
    /// All shards.
    #[doc(hidden)]
    pub shards_total: u64,
}

/// The result of a pack.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PackReport {
    /// Samples in the shards of this part (all shards, unless a part was set).
    pub samples: u64,
    /// Samples of the source that the shards lack, because they could not be read in this run or an earlier one.
    pub lacking: u64,
    /// Shards of this part in the folder.
    pub shards: u64,
    /// How many of them existed before.
    #[doc(hidden)]
    pub shards_kept: u64,
    /// Samples written by this run.
    #[doc(hidden)]
    pub samples_written: u64,
    /// Members written by this run.
    #[doc(hidden)]
    pub members_written: u64,
    /// Bytes of values written by this run.
    #[doc(hidden)]
    pub payload_bytes: u64,
    /// Bytes that this run has written only to align values.
    #[doc(hidden)]
    pub padding_bytes: u64,
    /// Bytes of the archives that this run wrote.
    pub bytes_written: u64,
    /// Samples that could not be read in this run.
    pub failed: u64,
    /// The errors of the first of these, at most a hundred.
    pub errors: Vec<Error>,
    /// Images converted by this run, with their sizes; `None` if images are stored as they are.
    pub images: Option<PackedImages>,
    /// Whether the pack was stopped before all shards were written; then the numbers are those of this run.
    pub is_interrupted: bool,
}

impl Builder {
    /// Plans how to pack the dataset into shards in `folder`. Reads only the index. [`Pack::run`] writes them.
    ///
    /// These settings apply to reading the source: engine, I/O mode, memory (of each thread), `on_error`,
    /// `max_failures` (of the whole pack), `quarantine` and `timeout`. The order is the source's; others are ignored.
    ///
    /// The folder must not be one that the dataset's files are in, or the shards would become a part of it. A URL of S3
    /// or GCS is one too: see [`PackOptions::stores`] and [`PackOptions::staging`].
    ///
    /// # Errors
    /// `InvalidArgument` for impossible options, for a store that takes no objects, for columns or files of one name,
    /// for keys that come twice in a shard, and for a source below `folder`; `Empty` for a dataset without samples.
    pub fn pack(self, folder: impl Into<PathBuf>, options: PackOptions) -> Result<Pack> {
        let dataset = Arc::clone(&self.dataset);
        guard::whole(&*dataset, "a method that describes it", || self.plan_pack(folder.into(), options))
    }

    fn plan_pack(self, folder: PathBuf, options: PackOptions) -> Result<Pack> {
        let (dataset, asked) = (self.dataset, self.config);
        check(&options, &asked)?;
        if dataset.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the dataset has no samples"));
        }
        let far = Far::new(&folder, &options)?.map(Arc::new);
        check_apart(&*dataset, &folder, far.is_some())?;
        let images = options.images.as_ref().map(|images| Making::new(images, &dataset)).transpose()?;
        let names = Names::new(Arc::clone(&dataset), options.keys)?;
        let (dense, plan) = match options.layout {
            PackLayout::Mds => dense::plan(Dense::new(&*dataset, &names, &options)?, &*dataset, &options),
            layout => {
                let plan = plan::plan(&*dataset, &names, &options)?;
                let denser = || Dense::new(&*dataset, &names, &options).ok();
                let is_dear = layout == PackLayout::Auto && plan.is_mostly_headers(dataset.bytes(), dataset.len());
                match is_dear.then(denser).flatten() {
                    Some(dense) => dense::plan(dense, &*dataset, &options),
                    None => (None, plan),
                }
            }
        };
        let config = reading(&asked, &*dataset, threads(&options));
        Ok(Pack {
            dataset,
            folder,
            far,
            options,
            asked,
            config,
            names,
            plan,
            images,
            dense,
            is_writing: Arc::default(),
        })
    }
}

impl Pack {
    /// The samples of the source in each shard.
    pub fn shards(&self) -> &[Range<u64>] {
        &self.plan.shards
    }

    /// The numbers of the shards that this part writes: all of them if it is the whole.
    #[doc(hidden)]
    pub fn own_shards(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.shards().len() as u64).filter(|&shard| self.options.part.has(shard))
    }

    /// Samples in all shards: fewer than the source's if several files are one sample.
    #[doc(hidden)]
    pub fn samples(&self) -> u64 {
        self.plan.samples
    }

    /// The part of the shards that is written.
    #[doc(hidden)]
    pub fn part(&self) -> Part {
        self.options.part
    }

    /// The folder that shards go to.
    #[doc(hidden)]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where shard number `shard` is, or will be.
    #[doc(hidden)]
    pub fn path(&self, shard: u64) -> PathBuf {
        self.folder.join(self.name(shard))
    }

    fn name(&self, shard: u64) -> String {
        let name = shard_name(&self.options.prefix, shard);
        if self.dense.is_some() { name.replace(TAR_ENDING, dense::ENDING) } else { name }
    }

    /// The format of shards, never [`PackLayout::Auto`].
    pub fn layout(&self) -> PackLayout {
        if self.dense.is_some() { PackLayout::Mds } else { PackLayout::Tar }
    }

    /// Writes the missing shards, on several threads. `tell` is called on each of them with the progress, and may stop
    /// the pack: complete shards stay.
    ///
    /// # Errors
    /// `InvalidArgument` for a folder with other files in it, for one with shards of another source or other options
    /// (unless `overwrite` is set), and for one that another pack is writing to; the error of a sample that cannot be
    /// read, unless `on_error` skips it; `TooManyFailures`; the system's error for what cannot be written. Complete
    /// shards stay.
    pub fn run(&self, tell: &(dyn Fn(PackProgress) -> ControlFlow<()> + Sync)) -> Result<PackReport> {
        let _destination = Destination::prepare(self)?;
        // From here on, the files in it belong to this run.
        self.is_writing.store(true, Ordering::Relaxed);
        let (there, missing) = self.there()?;
        let job = Job::new(self, tell);
        for &shard in &there {
            job.samples.fetch_add(self.samples_of(shard), Ordering::Relaxed);
            job.shards.fetch_add(1, Ordering::Relaxed);
        }
        let written = try_in_parallel(&missing, self.threads(), |&shard| {
            // After a failure, the others need not finish first.
            let written = guard::whole(&*self.dataset, "a method that describes it", || self.write_shard(&job, shard));
            written.inspect_err(|_| job.is_ended.store(true, Ordering::Relaxed))
        })?;
        let mut report = PackReport { failed: job.failed.load(Ordering::Relaxed), ..PackReport::default() };
        report.images = self.images.as_ref().map(Making::done);
        report.errors = job.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
        for shard in written {
            let Some(shard) = shard else {
                report.is_interrupted = true;
                continue;
            };
            report.shards += 1;
            report.samples_written += shard.samples;
            report.members_written += shard.members;
            report.payload_bytes += shard.payload_bytes;
            report.padding_bytes += shard.padding_bytes;
            report.bytes_written += shard.bytes;
        }
        report.shards_kept = there.len() as u64;
        report.shards += report.shards_kept;
        report.samples = report.samples_written;
        if !report.is_interrupted {
            self.check_all(&mut report)?;
        }
        Ok(report)
    }

    /// Removes unfinished shards, for a process that ends while [`run`](Pack::run) is running.
    #[doc(hidden)]
    pub fn cleaner(&self) -> impl FnOnce() + Send + use<> {
        manifest::cleaner(self)
    }

    /// The shards of this part that are there, and those that are missing.
    fn there(&self) -> Result<(Vec<u64>, Vec<u64>)> {
        let far = self.far.as_ref().map(|far| far.names()).transpose()?;
        Ok(self.own_shards().partition(|&shard| match &far {
            Some(names) => names.contains(&self.name(shard)),
            None => self.path(shard).exists(),
        }))
    }

    /// How datasets of a format are opened where the shards are.
    fn opening(&self, format: &str) -> Options {
        self.far.as_ref().map_or_else(|| Options::new().format(format), |far| far.options(format))
    }

    /// How shards are opened: samples may lack fields.
    fn tar_options(&self) -> Options {
        self.opening("tar").set("missing", "empty")
    }

    /// Samples that a shard is planned to have.
    fn samples_of(&self, shard: u64) -> u64 {
        // Fits: an index into the plan.
        self.plan.shards[shard as usize].clone().filter(|&id| self.names.begins(id)).count() as u64
    }

    /// Samples of this part's shards.
    fn own_samples(&self) -> u64 {
        if self.options.part.is_whole() {
            return self.plan.samples;
        }
        self.own_shards().map(|shard| self.samples_of(shard)).sum()
    }

    fn threads(&self) -> usize {
        threads(&self.options)
    }

    /// Writes a shard and its index. `None` if the pack was stopped.
    fn write_shard(&self, job: &Job<'_>, shard: u64) -> Result<Option<Written>> {
        if job.is_ended() {
            return Ok(None);
        }
        let path = match &self.far {
            Some(far) => far.staging()?.join(self.name(shard)),
            None => self.path(shard),
        };
        // Fits: an index into the plan.
        let range = self.plan.shards[shard as usize].clone();
        let written = match &self.dense {
            Some(dense) => dense::write(self, dense, job, range, path.clone())?,
            None => shard::write(self, job, range, path.clone())?,
        };
        let Some(written) = written else { return Ok(None) };
        if self.dense.is_none() {
            // An archive whose samples were all left out has nothing to find.
            let options = Options::new().format("tar").set("missing", "empty");
            let found = if written.samples == 0 { 0 } else { dataset::open(&[&path], &options)?.len() };
            if found != written.samples {
                let what = format!(
                    "{} samples were written, and {found} are read: this is a bug of uringload",
                    written.samples
                );
                return Err(Error::new(ErrorKind::Internal, what).with_path(path));
            }
        }
        if let Some(far) = &self.far
            && !far.send_with_index(&self.name(shard), &path, &|| job.is_ended())?
        {
            return Ok(None);
        }
        job.shards.fetch_add(1, Ordering::Relaxed);
        Ok(Some(written))
    }

    /// Opens all shards, as a reader will, and counts their contents.
    fn check_all(&self, report: &mut PackReport) -> Result<()> {
        if let Some(dense) = &self.dense {
            report.samples = dense::finish(self, dense)?;
            report.lacking = self.own_samples().saturating_sub(report.samples);
            return Ok(());
        }
        let shards: Vec<PathBuf> = self.own_shards().map(|shard| self.path(shard)).collect();
        let samples = match dataset::open(&shards, &self.tar_options()) {
            _ if shards.is_empty() => 0,
            Ok(tar) => tar.len(),
            Err(error) if error.kind() == ErrorKind::Empty => 0,
            Err(error) => return Err(unreadable(error)),
        };
        report.samples = samples;
        report.lacking = self.own_samples().saturating_sub(samples);
        Ok(())
    }
}

impl std::fmt::Debug for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Pack { folder, options, plan, .. } = self;
        f.debug_struct("Pack")
            .field("folder", folder)
            .field("options", options)
            .field("plan", plan)
            .finish_non_exhaustive()
    }
}

/// State that the threads share.
struct Job<'a> {
    pack: &'a Pack,
    tell: &'a (dyn Fn(PackProgress) -> ControlFlow<()> + Sync),
    is_ended: AtomicBool,
    samples: AtomicU64,
    bytes: AtomicU64,
    shards: AtomicU64,
    failed: AtomicU64,
    errors: Mutex<Vec<Error>>,
    /// Samples and shards in the complete result.
    totals: (u64, u64),
}

impl<'a> Job<'a> {
    fn new(pack: &'a Pack, tell: &'a (dyn Fn(PackProgress) -> ControlFlow<()> + Sync)) -> Job<'a> {
        let [samples, bytes, shards, failed] = [0; 4].map(AtomicU64::new);
        let (is_ended, errors) = (AtomicBool::new(false), Mutex::default());
        let totals = (pack.own_samples(), pack.own_shards().count() as u64);
        Job { pack, tell, is_ended, samples, bytes, shards, failed, errors, totals }
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    fn add_sample(&self) {
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn tell(&self) -> ControlFlow<()> {
        let told = (self.tell)(PackProgress {
            samples: self.samples.load(Ordering::Relaxed),
            samples_total: self.totals.0,
            bytes: self.bytes.load(Ordering::Relaxed),
            shards: self.shards.load(Ordering::Relaxed),
            shards_total: self.totals.1,
        });
        if told.is_break() {
            self.is_ended.store(true, Ordering::Relaxed);
        }
        if self.is_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Handles a failed sample: ends the pack, or counts it.
    fn add_failed(&self, key: &[u8], id: SampleId, error: Error) -> Result<()> {
        let config = &self.pack.asked;
        let key = String::from_utf8_lossy(key).into_owned();
        let named = Error::new(error.kind(), format!("cannot pack sample {} ({key:?})", id.0)).with_source(error);
        if config.on_error == OnError::Raise {
            return Err(named.with_remedy("mend it, or leave out what cannot be read: on_error=skip (--on-error skip)"));
        }
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        let limit = match config.max_failures {
            None => u64::MAX,
            Some(MaxFailures::Count(count)) => count,
            Some(MaxFailures::Fraction(share)) => (share * self.pack.dataset.len() as f64) as u64,
        };
        if failed > limit {
            let what = format!("{failed} samples could not be read, and {limit} may fail");
            return Err(Error::new(ErrorKind::TooManyFailures, what).with_source(named));
        }
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < FAILED_NAMED {
            errors.push(named);
        }
        Ok(())
    }
}

/// Number of shards that are written at once.
fn threads(options: &PackOptions) -> usize {
    let processors = uringload_sys::cgroup::processors();
    // Images keep processors busy; without them, a thread mostly waits for its write.
    let most = if options.images.is_some() { processors } else { processors.saturating_mul(2).min(THREADS_MAX) };
    options.threads.unwrap_or(most)
}

/// The file name of a shard that is an archive.
fn shard_name(prefix: &str, shard: u64) -> String {
    format!("{prefix}-{shard:06}{TAR_ENDING}")
}

const TAR_ENDING: &str = ".tar";

fn check(options: &PackOptions, config: &Config) -> Result<()> {
    let refused =
        |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
    let PackOptions { prefix, align, shard_bytes, shard_samples, part, overwrite, .. } = options;
    if *overwrite && !part.is_whole() {
        return refused(format!("part {part} cannot replace the shards of another pack"), "empty the folder first");
    }
    if prefix.is_empty() || prefix.starts_with('.') || prefix.contains(['/', '\0']) {
        return refused(format!("shards cannot have names that begin with {prefix:?}"), "give a plain word");
    }
    if ![512, UNIT_BYTES].contains(align) {
        return refused(format!("values cannot be aligned to {align} bytes"), "give 4096 or 512");
    }
    if *shard_bytes == 0 || *shard_samples == Some(0) {
        return refused("a shard has at least one sample".into(), "give at least 1");
    }
    if config.on_error == OnError::Replace {
        return refused("a pack cannot replace samples that fail".into(), "skip them, or raise");
    }
    Ok(())
}

/// The output must not be part of the input.
fn check_apart(dataset: &dyn Dataset, folder: &Path, is_far: bool) -> Result<()> {
    let canonical = if is_far { Ok(folder.to_path_buf()) } else { folder.canonicalize() };
    let Ok(folder) = canonical else { return Ok(()) };
    for (number, root) in dataset.files().roots().iter().enumerate() {
        let root_path = root.canonicalize().unwrap_or_else(|_| root.clone());
        if !root_path.starts_with(&folder) && !folder.starts_with(&root_path) {
            continue;
        }
        for file in dataset.files().files_of(number).map(FileId) {
            let path = dataset.files().path(file);
            if path.canonicalize().unwrap_or_else(|_| path.clone()).starts_with(&folder) {
                let what = format!("the source has a file in the folder of the shards: {path:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, what)
                    .with_path(folder)
                    .with_remedy("name a folder apart from the source"));
            }
        }
    }
    Ok(())
}

/// How the source is read: in its order, once, as views of the reads.
fn reading(config: &Config, dataset: &dyn Dataset, threads: usize) -> Config {
    let mut batch_size = BATCH_SAMPLES.min(dataset.len());
    let memory_bytes = memory_bytes(threads);
    let batch_bytes = BATCH_BYTES.min(memory_bytes / 4);
    while batch_size > 1 && dataset.largest(batch_size) > batch_bytes {
        batch_size /= 2;
    }
    let is_small = dataset.units().is_none() && dataset.largest(batch_size) <= batch_bytes;
    Config {
        batch_size,
        memory_limit: config.memory_limit.or(is_small.then_some(memory_bytes)),
        batching: Batching::Samples,
        epochs: Some(1),
        shuffle: Shuffle::Off,
        rank: 0,
        world_size: 1,
        drop_last: false,
        start: Cursor::default(),
        // Errors of samples are reported with their keys, and counted over all shards.
        on_error: OnError::Skip,
        read_once: true,
        max_failures: config.max_failures.map(|_| MaxFailures::Count(u64::MAX)),
        collate: Collate::Views,
        collate_columns: Vec::new(),
        key: false,
        index: false,
        ..config.clone()
    }
}

/// The memory of each loader if several run at a time: together no more than half of what a container leaves.
fn memory_bytes(threads: usize) -> u64 {
    let room = uringload_sys::cgroup::memory().map_or(u64::MAX, |group| group.room());
    MEMORY_BYTES.min(room / (2 * threads.max(THREADS_MAX) as u64)).max(1)
}

/// Adds what to do about a shard that was written and cannot be opened.
fn unreadable(error: Error) -> Error {
    error.with_remedy("the shard was whole when it was written: delete it and run the pack again")
}
