//! Checks a dataset completely, and reports everything that is wrong: shards and indexes, every sample, and the
//! checksums of its files. [`Builder::verify`] runs it.

mod detail;

use crate::batch::{Batch, FailedSample};
use crate::config::{Batching, Config, MaxFailures, OnError, Shuffle};
use crate::dataset::inspect::{Checked, check_all};
use crate::dataset::{Dataset, SampleId, Span};
use crate::guard;
use crate::loader::{Builder, Loader};
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_core::Distinct;

pub use detail::{NotChecked, Stage};

/// Receives the findings of [`Builder::verify`].
pub trait Watch: Sync {
    /// Something is wrong. Called on the thread that verifies.
    fn found(&self, finding: &Finding);

    /// Progress. Called on any thread, whenever some more is done.
    fn progress(&self, _progress: Progress) {}

    /// Whether to stop. Called on any thread, at least several times per second.
    fn is_over(&self) -> bool {
        false
    }
}

/// Something that is wrong with the dataset.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What is wrong, in which file, at which byte, and what to do about it.
    pub error: Error,
    /// The samples that fail with this error; `None` if it was not found by reading samples.
    pub samples: Option<Samples>,
}

impl Finding {
    /// A finding that did not come from reading samples.
    #[doc(hidden)]
    pub fn new(error: Error) -> Finding {
        Finding { error, samples: None }
    }
}

/// Samples that fail with the same error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Samples {
    /// The first of these samples.
    pub first: SampleId,
    /// Its key.
    pub key: Vec<u8>,
    /// The number of these samples; most often they are neighbours.
    pub count: u64,
}

/// Progress: first in samples, then in bytes of files while checksums are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The current step.
    #[doc(hidden)]
    pub stage: Stage,
    /// Samples or bytes done so far.
    pub done: u64,
    /// All samples or bytes.
    pub total: u64,
}

/// The result of [`Builder::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Samples that passed all checks of their format.
    pub samples: u64,
    /// Samples that cannot be read.
    pub samples_lost: u64,
    /// Bytes of the good samples.
    pub sample_bytes: u64,
    /// Checksums computed, besides those that formats store for each sample.
    pub checks: u64,
    /// Bytes read for them.
    pub check_bytes: u64,
    /// Checksums in the dataset whose algorithm this build does not know.
    pub not_checked: Vec<NotChecked>,
    /// The number of findings.
    pub findings: u64,
    /// Whether everything was checked: false if [`Watch::is_over`] ended it.
    pub is_complete: bool,
}

/// Samples of a batch at most.
const BATCH_SAMPLES: u64 = 1024;
/// Bytes of a batch, unless a single sample has more.
const BATCH_BYTES: u64 = 64 << 20;

impl Builder {
    /// Verifies the dataset: reports its [`faults`](Dataset::faults), reads every sample once, in the order in which
    /// they are stored, and runs the [`checks`](Dataset::checks) that its format declares.
    ///
    /// The settings for reading (engine, I/O mode, memory, threads, timeout, quarantine) apply, and so do the
    /// transforms of columns: images that cannot be decoded are findings. The order, the batches and the handling of
    /// errors are ignored.
    ///
    /// To verify a dataset with missing or damaged shards, open it with the options that allow it (`allow_bad_shards`
    /// of MDS and LitData, `keep_damaged` of tar, TFRecord and lines).
    ///
    /// ```
    /// use uringload::verify::{Finding, Watch};
    /// use uringload::{Loader, dataset};
    ///
    /// struct Print;
    ///
    /// impl Watch for Print {
    ///     fn found(&self, finding: &Finding) {
    ///         eprintln!("{}", finding.error);
    ///     }
    /// }
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::fs::write(folder.path().join("0.dat"), "one sample").unwrap();
    /// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
    /// let summary = Loader::builder(dataset).verify(&Print)?;
    /// assert_eq!((summary.samples, summary.findings), (1, 0));
    /// # Ok::<(), uringload::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Builder::build), and whatever ends a loader. Anything wrong with the dataset is not an error but a
    /// [`Finding`].
    pub fn verify(&self, watch: &dyn Watch) -> Result<Summary> {
        guard::whole(&*self.dataset, "a method that describes it", || self.verify_all(watch))
    }

    fn verify_all(&self, watch: &dyn Watch) -> Result<Summary> {
        let dataset = &self.dataset;
        let mut run = Run { dataset, watch, summary: Summary::default(), faults: HashSet::new(), open: None };
        for error in dataset.faults() {
            run.faults.insert(Distinct(error.clone()));
            run.found(&Finding { error, samples: None });
        }
        run.summary.is_complete = run.samples(self)? && run.checks();
        Ok(run.summary)
    }
}

struct Run<'a> {
    dataset: &'a Arc<dyn Dataset>,
    watch: &'a dyn Watch,
    summary: Summary,
    /// Faults that were reported: samples that fail with them are counted, but not reported again.
    faults: HashSet<Distinct>,
    /// The last failed sample and its error: the next ones may fail the same way.
    open: Option<(Distinct, Finding)>,
}

impl Run<'_> {
    fn found(&mut self, finding: &Finding) {
        self.summary.findings += 1;
        self.watch.found(finding);
    }

    /// Reads all samples. Returns whether it finished.
    fn samples(&mut self, builder: &Builder) -> Result<bool> {
        let config = &builder.config;
        let config = Config {
            batch_size: batch_size(&**self.dataset),
            batching: Batching::Samples,
            epochs: Some(1),
            shuffle: Shuffle::Off,
            on_error: OnError::Skip,
            // Every one is a finding, however many there are.
            max_failures: Some(MaxFailures::Count(u64::MAX)),
            outage_timeout: config.outage_timeout,
            engine: config.engine,
            io: config.io,
            queue_depth: config.queue_depth,
            read_size: config.read_size,
            io_threads: config.io_threads,
            num_threads: config.num_threads,
            memory_limit: config.memory_limit,
            coalesce_gap: config.coalesce_gap,
            timeout: config.timeout,
            quarantine: config.quarantine.clone(),
            ..Config::default()
        };
        let mut loader = match Loader::builder(Arc::clone(self.dataset)).config(config).maps_of(builder).build() {
            Ok(loader) => loader,
            // None of the files can be opened.
            Err(error) if error.path().is_some() => {
                self.summary.samples_lost = self.dataset.len();
                if self.faults.is_empty() {
                    self.found(&Finding { error, samples: None });
                }
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        loop {
            if self.watch.is_over() {
                self.tell_open();
                return Ok(false);
            }
            match loader.try_next()? {
                Some(batch) => self.batch(&batch),
                None if loader.is_empty() => break,
                None => wait(&loader)?,
            }
        }
        self.tell_open();
        let count = loader.stats().snapshot().count;
        if count.samples_decoded > 0 {
            // Delivered samples are good.
            self.summary.sample_bytes = count.bytes_wanted;
        }
        Ok(true)
    }

    fn batch(&mut self, batch: &Batch) {
        self.summary.samples += batch.len() as u64;
        self.summary.sample_bytes += batch.bytes();
        for failed in &batch.failed {
            self.summary.samples_lost += 1;
            self.failed(failed);
        }
        let done = self.summary.samples + self.summary.samples_lost;
        self.watch.progress(Progress { stage: Stage::Samples, done, total: self.dataset.len() });
    }

    fn failed(&mut self, FailedSample { id, error, .. }: &FailedSample) {
        let fault = Distinct(error.clone());
        match &mut self.open {
            _ if self.faults.contains(&fault) => {}
            Some((open, Finding { samples: Some(samples), .. })) if *open == fault => samples.count += 1,
            _ => {
                self.tell_open();
                let mut key = Vec::new();
                self.dataset.key(*id, &mut key);
                let samples = Some(Samples { first: *id, key, count: 1 });
                self.open = Some((fault, Finding { error: self.placed(error, *id), samples }));
            }
        }
    }

    /// An error without a file is about the location of its sample.
    fn placed(&self, error: &Error, id: SampleId) -> Error {
        let mut spans: Vec<Span> = Vec::new();
        // If this fails, the error is about that already.
        let _ = guard::spans(&**self.dataset, id, u64::MAX, &mut spans);
        match (error.path(), spans.first()) {
            (None, Some(span)) => {
                error.clone().with_path(self.dataset.files().path(span.file)).with_offset(span.offset)
            }
            _ => error.clone(),
        }
    }

    fn tell_open(&mut self) {
        if let Some((_, finding)) = self.open.take() {
            self.found(&finding);
        }
    }

    /// Computes the checksums that the format declares. Returns whether it finished.
    fn checks(&mut self) -> bool {
        let total = self.dataset.files().total_bytes();
        let (done, watch) = (AtomicU64::new(0), self.watch);
        let passed = |bytes| {
            // Some bytes are read for several checks.
            let done = done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes).min(total);
            watch.progress(Progress { stage: Stage::Checks, done, total });
            !watch.is_over()
        };
        let Checked { done, bytes, wrong, unknown, is_cut } = check_all(&**self.dataset, &passed);
        (self.summary.checks, self.summary.check_bytes) = (done, bytes);
        let not_checked = |(algorithm, count, first)| NotChecked { algorithm, count, first };
        self.summary.not_checked = unknown.into_iter().map(not_checked).collect();
        for error in wrong {
            self.found(&Finding { error, samples: None });
        }
        !is_cut
    }
}

fn batch_size(dataset: &dyn Dataset) -> u64 {
    let mut samples = BATCH_SAMPLES.min(dataset.len()).max(1);
    while samples > 1 && dataset.largest(samples) > BATCH_BYTES {
        samples /= 2;
    }
    samples
}

/// Waits until the loader is ready, or until the next check whether to stop.
fn wait(loader: &Loader) -> Result<()> {
    const BOUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let ready = loader.ready_fd()?;
    match poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&BOUND)) {
        // A signal is also a reason to check.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::io("cannot wait for a batch", error.into())),
    }
}
