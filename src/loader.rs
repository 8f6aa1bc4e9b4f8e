//! Wires the parts together and owns the threads. [`Loader::builder`] checks everything once; [`Loader`] iterates.

mod book;
mod builder;
mod columns;
mod epoch;
pub(crate) mod limits;
mod prepared;
mod report;
pub(crate) mod room;
mod rows;
mod run;
mod share;
mod stretches;
mod waiting;

use crate::batch::{Batch, FailedSample};
use crate::config::Route;
use crate::dataset::SampleId;
use crate::device::{DeviceBatch, PinnedMemory};
use crate::guard;
use crate::queue::{NoItem, Receiver};
use crate::reactor::{Failures, thread_ended};
use crate::sampler::{Cursor, EpochDigest};
use crate::stage::Errands;
use crate::state::State;
use crate::stats::{Clock, Doing, Stats};
use crate::{Error, ErrorKind, Result};
use book::Book;
use share::Sharing;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use builder::{Builder, DeviceBuilder};
pub use epoch::Epoch;
pub use report::Report;
pub use waiting::{Batches, CancelHandle};

/// A loader whose batches are on a device.
pub type DeviceLoader = Loader<DeviceBatch>;

/// What a loader delivers: a batch on the host or on a device.
pub trait Delivered: sealed::Sealed + Send + 'static {
    /// The part on the host.
    fn host(&self) -> &Batch;

    /// Bytes of its columns.
    fn bytes(&self) -> u64;
}

mod sealed {
    /// Only this library's types can be delivered by a loader.
    #[expect(unnameable_types, reason = "whoever could name it could implement it")]
    pub trait Sealed {}
    impl Sealed for crate::batch::Batch {}
    impl Sealed for crate::device::DeviceBatch {}
}

impl Delivered for Batch {
    fn host(&self) -> &Batch {
        self
    }

    fn bytes(&self) -> u64 {
        Batch::bytes(self)
    }
}

impl Delivered for DeviceBatch {
    fn host(&self) -> &Batch {
        &self.host
    }

    fn bytes(&self) -> u64 {
        DeviceBatch::bytes(self)
    }
}

/// Called for samples that failed.
type OnFailed = Arc<dyn Fn(&FailedSample) + Send + Sync>;

/// How long dropping a loader waits for its thread. Reads that a device never answers may take longer. Then the thread
/// is left alone with the memory that those reads own.
const JOIN_BOUND: Duration = Duration::from_secs(10);

/// Batches of a dataset, read ahead in the background.
///
/// It is an [`Iterator`] over `Result<Batch>`, has a [`stream`](Loader::stream) to await, and a file descriptor to poll
/// in an event loop. An error takes the place of the batch that failed, and iteration can go on after it. After the
/// last batch, or after an error that ends the loader, it yields `None`.
///
/// ```
/// use uringload::{Loader, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # std::fs::write(folder.path().join("0.dat"), "a sample").unwrap();
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// for batch in Loader::builder(dataset).batch_size(64).build()? {
///     println!("{:?}", batch?.ids);
/// }
/// # Ok::<(), uringload::Error>(())
/// ```
///
/// Dropping it at any time ends the reads in flight and returns in bounded time. Batches outlive it.
///
/// A forked child cannot use it: there it yields an error and then `None`, and dropping it does nothing. The child
/// cannot use batches either, because it does not inherit their memory (`MADV_DONTFORK`, see `madvise(2)`).
pub struct Loader<T: Delivered = Batch> {
    /// `None` only while the loader is being dropped.
    batches: Option<Receiver<Result<T>>>,
    /// The first one delivers the batches.
    threads: Vec<JoinHandle<()>>,
    /// Set by the delivering thread when it ends normally.
    ended_well: Arc<AtomicBool>,
    route: Arc<Mutex<Route>>,
    stats: Arc<Stats>,
    clock: Clock,
    book: Book,
    failures: Failures,
    remaining: Option<u64>,
    memory_limit: u64,
    keeps_stretches: bool,
    finished: bool,
    on_failed: Option<OnFailed>,
    /// The process that the thread runs in. A forked child has a copy of this, but no thread.
    process: u32,
    pinned: Option<PinnedMemory>,
    /// The page that others read, if there is one.
    sharing: Option<Sharing>,
    /// What this side computes itself if there is no thread for it.
    errands: Option<Errands>,
    /// When the consumer began to wait, if it is waiting.
    asked: Option<Instant>,
}

impl<T: Delivered> Loader<T> {
    /// How bytes are read right now, and every fallback from the best way, with its reason.
    pub fn route(&self) -> Route {
        self.route.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether single values may be slices of memory that the loader keeps for later batches.
    #[doc(hidden)]
    pub fn keeps_stretches(&self) -> bool {
        self.keeps_stretches || self.stats.reads_whole()
    }

    /// Live statistics: counters, times and a verdict on the bottleneck.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// The position after the last batch that was delivered: start from it to get all remaining samples.
    #[doc(hidden)]
    pub fn cursor(&self) -> Cursor {
        self.book.cursor()
    }

    /// The checkpoint after the last batch that was delivered, whatever was read ahead: [`Builder::resume`] continues
    /// from it. Takes a few microseconds; the first call takes some milliseconds, because it reads a few blocks of up
    /// to 64 files and one of up to 4096, by which resuming recognizes them (1 s at most: if files do not answer, the
    /// state has only their names and sizes).
    ///
    /// If an error took the place of the last batch, the checkpoint is before that batch, so that resuming tries it
    /// again. Once a later batch is delivered, the checkpoint is after that one, and the samples in between count as
    /// lost.
    pub fn state(&self) -> State {
        self.book.state()
    }

    /// What this rank received of the epoch of the last batch. Once the first batch of the next epoch is delivered,
    /// this is about that epoch, and [`last_digest`](Loader::last_digest) about the one before.
    pub fn digest(&self) -> EpochDigest {
        self.book.digest()
    }

    /// What this rank received of the epoch before that of [`digest`](Loader::digest); `None` in the first epoch.
    pub fn last_digest(&self) -> Option<EpochDigest> {
        self.book.last_epoch()
    }

    /// The number of batches left on this rank. Each batch, or error in the place of one, counts it down. `None` if
    /// batches never end, or if packing or buckets make their number known only at the end.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Whether no batch is left. If the number is unknown, this is false until `next` has returned `None`.
    pub fn is_empty(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Maximum number of bytes of memory for samples.
    #[doc(hidden)]
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// The memory that batches are read into, if it is [pinned](Builder::pin).
    pub fn pinned(&self) -> Option<&PinnedMemory> {
        self.pinned.as_ref()
    }

    /// The next batch if it is ready. Never waits, but does outstanding work on this thread if
    /// [`num_threads`](Builder::num_threads) is 0. `Ok(None)` if none is ready yet, or none is left (see
    /// [`is_empty`](Loader::is_empty)).
    ///
    /// # Errors
    /// The error that takes the place of the batch.
    pub fn try_next(&mut self) -> Result<Option<T>> {
        let received = self.take_ahead();
        match &received {
            Ok(None) if !self.finished => {
                self.begin_wait();
            }
            _ => self.end_wait(matches!(received, Ok(Some(_)))),
        }
        received
    }

    /// As [`try_next`](Loader::try_next), for callers that process a batch before the user gets it: if none is ready,
    /// that does not count as a wait yet. [`begin_wait`](Loader::begin_wait) and [`end_wait`](Loader::end_wait) mark
    /// the user's waits.
    ///
    /// # Errors
    /// The error that takes the place of the batch.
    #[doc(hidden)]
    pub fn take_ahead(&mut self) -> Result<Option<T>> {
        if self.finished {
            return Ok(None);
        }
        if let Some(error) = self.forked() {
            return Err(error);
        }
        let (errands, clock) = (&mut self.errands, &mut self.clock);
        let errand = &mut || run_errand(errands, clock);
        let received = match self.batches.as_mut().map(|batches| batches.try_recv_with(errand)) {
            Some(Err(NoItem::Empty)) => return Ok(None),
            Some(Ok(received)) => Some(received),
            Some(Err(NoItem::Closed)) | None => None,
        };
        self.account(received).transpose()
    }

    /// Reports that the consumer cannot use a sample of the delivered batch at `at`: it fails like one that cannot be
    /// read. `raised` is whether its error goes to the consumer. Returns the entry for the batch's list, and an error
    /// to deliver beside the batches if the quarantine file cannot be written.
    ///
    /// # Errors
    /// `TooManyFailures`, after which no batch comes.
    #[doc(hidden)]
    pub fn fail(
        &mut self,
        at: Cursor,
        (id, error): (SampleId, Error),
        replaced_by: Option<SampleId>,
        raised: bool,
    ) -> Result<(FailedSample, Option<Error>)> {
        let failed = FailedSample { id, position: self.book.position_of(at, id), error, replaced_by };
        let count = &self.stats.count;
        let counter = match replaced_by {
            _ if raised => &count.samples_failed,
            Some(_) => &count.samples_replaced,
            None => &count.samples_skipped,
        };
        counter.add(1);
        match self.failures.report(self.book.dataset(), at.epoch, &failed) {
            Ok(beside) => Ok((failed, beside)),
            Err(error) => {
                self.finished = true;
                self.remaining = Some(0);
                Err(error)
            }
        }
    }

    /// A file descriptor that is readable whenever `try_next` would return a batch, an error or the end: for `poll(2)`,
    /// `epoll(7)` and event loops built on them. It may become readable once too often.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` if no descriptor is left.
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        let Some(batches) = &self.batches else { return Err(self.broken_off()) };
        batches.ready_fd().map_err(|source| {
            Error::io("cannot make a descriptor to poll", source)
                .with_remedy("raise the limit of open files (ulimit -n)")
        })
    }

    /// The work of this side, for a caller that does it without holding the loader and reports it to
    /// [`charge_errand`](Loader::charge_errand).
    #[doc(hidden)]
    pub fn take_errands(&mut self) -> Option<Errands> {
        self.errands.take()
    }

    /// Marks the begin or the end of an errand.
    #[doc(hidden)]
    pub fn charge_errand(&mut self, begins: bool) {
        let behind = if self.asked.is_some() { Doing::WaitBatch } else { Doing::Step };
        self.clock.switch(if begins { Doing::Decode } else { behind });
    }

    /// Ends the shared page of the loader, and leaves the rest, with the reads in flight, to the end of the process:
    /// they may take long.
    #[doc(hidden)]
    pub fn leave(mut self) {
        self.sharing = None;
        std::mem::forget(self);
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Ends the copy in a forked child, which no batch will ever reach, with an error.
    fn forked(&mut self) -> Option<Error> {
        if !self.is_forked() {
            return None;
        }
        self.finished = true;
        self.remaining = Some(0);
        let what = format!("a loader of process {} was used in a child that was forked from it", self.process);
        Some(Error::new(ErrorKind::InvalidArgument, what).with_remedy("build a loader in the child"))
    }

    /// Marks that the consumer got nothing and waits from now on, whatever else it does. Returns false if it waited
    /// already.
    #[doc(hidden)]
    pub fn begin_wait(&mut self) -> bool {
        let begins = self.clock.doing() != Doing::WaitBatch;
        if begins {
            self.asked = Some(self.clock.switch(Doing::WaitBatch));
        }
        begins
    }

    /// Marks that the consumer got something. If that is not a batch (an error, the end), it ends a wait but is not
    /// counted.
    #[doc(hidden)]
    pub fn end_wait(&mut self, is_batch: bool) {
        self.end_wait_for(is_batch, self.clock.doing() != Doing::WaitBatch);
    }

    /// As [`end_wait`](Loader::end_wait), for callers that begin a wait even if something is ready, because delivering
    /// it may take long: it may need Python's lock.
    #[doc(hidden)]
    pub fn end_wait_for(&mut self, is_batch: bool, is_ready: bool) {
        let is_waiting = self.clock.doing() == Doing::WaitBatch;
        let asked = self.asked.take().unwrap_or_else(|| self.clock.since());
        let got = self.clock.switch(Doing::Step);
        if is_batch {
            let waited = if is_waiting { got.saturating_duration_since(asked) } else { Duration::ZERO };
            self.stats.batch_wait.record(waited);
            self.stats.count.batches_ready.add(is_ready.into());
            self.stats.mark_batch(got, waited);
            self.clock.batch(self.stats.count.batches.get());
            self.clock.ready(self.batches.as_ref().map_or(0, Receiver::len));
        }
    }

    /// Ends the consumer's wait for what arrived, and records it.
    fn hand_out(&mut self, received: Option<Result<T>>) -> Option<Result<T>> {
        self.end_wait(matches!(received, Some(Ok(_))));
        self.account(received)
    }

    /// Records what arrived and returns it.
    fn account(&mut self, received: Option<Result<T>>) -> Option<Result<T>> {
        match &received {
            Some(Ok(batch)) => {
                self.stats.count.batches.add(1);
                self.stats.count.bytes_delivered.add(batch.bytes());
                let batch = batch.host();
                self.stats.count.samples.add(batch.len() as u64);
                self.remaining = self.remaining.map(|left| left.saturating_sub(1));
                // It walks the order again if an error took the place of a batch.
                if let Err(error) = guard::thread("of the consumer", || {
                    self.book.hand_out(batch);
                    Ok(())
                }) {
                    self.finished = true;
                    self.remaining = Some(0);
                    return Some(Err(error));
                }
                if let Some(told) = &self.on_failed {
                    batch.failed.iter().for_each(|failed| told(failed));
                }
            }
            Some(Err(error)) if error.is_beside_batches() => {}
            Some(Err(_)) => {
                self.book.miss();
                self.remaining = self.remaining.map(|left| left.saturating_sub(1));
            }
            None => {
                self.finished = true;
                self.remaining = Some(0);
                let is_cancelled = self.batches.as_ref().is_some_and(Receiver::is_cancelled);
                if !is_cancelled && !self.ended_well.load(Ordering::Acquire) {
                    return Some(Err(self.broken_off()));
                }
            }
        }
        received
    }

    /// The error of a stream that ended early because its thread did.
    fn broken_off(&self) -> Error {
        let thread = self.threads.first().and_then(|thread| thread.thread().name());
        thread_ended(thread.unwrap_or("uringload"))
    }
}

/// Does work that the next batches need, if this side has any.
fn run_errand(errands: &mut Option<Errands>, clock: &mut Clock) -> bool {
    let Some(errands) = errands.as_mut().filter(|errands| errands.is_waiting()) else { return false };
    let before = clock.doing();
    clock.switch(Doing::Decode);
    let ran = errands.run();
    clock.switch(before);
    ran
}

impl<T: Delivered> Iterator for Loader<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.finished {
            return None;
        }
        if let Some(error) = self.forked() {
            return Some(Err(error));
        }
        if self.batches.as_ref().is_some_and(Receiver::is_empty) {
            self.begin_wait();
        }
        let (errands, clock) = (&mut self.errands, &mut self.clock);
        let received = self.batches.as_mut()?.recv_with(&mut || run_errand(errands, clock));
        self.hand_out(received)
    }

    /// The value of [`remaining`](Loader::remaining). Errors beside the batches come in addition, and a loader that is
    /// cancelled or ended by an error yields fewer.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.remaining.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
        (left.unwrap_or(0), left)
    }
}

impl<T: Delivered> Drop for Loader<T> {
    fn drop(&mut self) {
        if self.is_forked() {
            // Locks that another thread held at the fork stay locked here forever, so leave everything that threads
            // share untouched.
            let threads = std::mem::take(&mut self.threads);
            std::mem::forget((self.batches.take(), threads, self.pinned.take(), self.errands.take()));
            return;
        }
        // Each thread notices that the receiver is gone, and ends. `hand_out` has already reported a panic there to the
        // consumer.
        self.batches = None;
        join(self.threads.drain(..));
    }
}

/// Waits for threads that were told to end.
pub(crate) fn join(threads: impl Iterator<Item = JoinHandle<()>>) {
    let start = Instant::now();
    for thread in threads {
        while !thread.is_finished() && start.elapsed() < JOIN_BOUND {
            std::thread::sleep(Duration::from_micros(100));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}
