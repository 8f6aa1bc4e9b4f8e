//! Measures the loader: counters, latencies, the time of every thread, and a verdict on the bottleneck. Always on, and
//! readable at any time from any thread without stopping one.

pub(crate) mod clock;
pub(crate) mod counters;
mod dearest;
mod decisions;
mod endpoints;
mod facts;
pub(crate) mod histogram;
mod holders;
mod processors;
mod sizes;
pub(crate) mod trace;
mod verdict;

use crate::Result;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use uringload_core::store::{self, Store};

pub use clock::{Clock, Doing, Role, ThreadSnapshot};
pub use counters::Counts;
pub use dearest::DearSample;
pub use decisions::{Decision, Knob};
pub use histogram::Distribution;
pub use holders::{Held, Holder};
pub use processors::Processors;
pub use sizes::ReadsOfSize;
pub use verdict::{Bottleneck, Evidence, Remedy, Trial, Tried, Verdict};

pub(crate) use facts::{Facts, Keeping, Neighbours};
pub(crate) use histogram::Histogram;
pub(crate) use trace::Lane;

use clock::ThreadTimes;
use counters::{Counters, Gauge};
use dearest::Dearest;
use decisions::Decisions;
use endpoints::Endpoints;
use holders::Holders;
use sizes::ReadLatencies;
use trace::Tracer;

/// The live statistics of a loader. [`snapshot`](Stats::snapshot) reads them at any time.
#[derive(Debug)]
pub struct Stats {
    epoch: Instant,
    /// The counters.
    #[doc(hidden)]
    pub count: Counters,
    /// Time from the start of a read to its end, by read.
    pub(crate) read_latency: ReadLatencies,
    /// Time that the consumer waited for a batch, by batch.
    pub(crate) batch_wait: Histogram,
    in_flight: Gauge,
    /// How many reads may be in flight now.
    depth: AtomicU64,
    /// Whether the user chose how many threads read.
    threads_are_fixed: AtomicBool,
    /// Estimated price of a storage operation, in bytes read in the same time; 0: none, or unknown.
    operation_bytes: AtomicU64,
    /// Whether whole windows or shards were read in a trial: values may be slices of them.
    reads_whole: AtomicBool,
    /// What the loader reads. Set once.
    facts: OnceLock<Facts>,
    /// The stores that it reads from. Set once.
    endpoints: OnceLock<Endpoints>,
    decisions: Decisions,
    /// The samples that took longest.
    pub(crate) dearest: Dearest,
    holders: Holders,
    /// The current outage, and when it was reported.
    outage: Mutex<Option<(Outage, Instant)>>,
    /// Nanoseconds from `epoch` to the first batch; 0 until then.
    first_batch: AtomicU64,
    threads: Mutex<Vec<Arc<ThreadTimes>>>,
    /// The processors' state for this process at `epoch`.
    before: Processors,
    tracer: Option<Tracer>,
    /// The lane of the reactor, which counts its reads in flight.
    counted: OnceLock<Arc<Lane>>,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats::new()
    }
}

impl Stats {
    /// Everything at zero. Time starts now.
    #[doc(hidden)]
    pub fn new() -> Stats {
        Stats {
            epoch: Instant::now(),
            count: Counters::default(),
            read_latency: ReadLatencies::default(),
            batch_wait: Histogram::default(),
            in_flight: Gauge::default(),
            depth: AtomicU64::new(0),
            threads_are_fixed: AtomicBool::new(false),
            operation_bytes: AtomicU64::new(0),
            reads_whole: AtomicBool::new(false),
            facts: OnceLock::new(),
            endpoints: OnceLock::new(),
            decisions: Decisions::default(),
            dearest: Dearest::default(),
            holders: Holders::default(),
            outage: Mutex::default(),
            first_batch: AtomicU64::new(0),
            threads: Mutex::default(),
            before: Processors::now(),
            tracer: None,
            counted: OnceLock::new(),
        }
    }

    /// The same, with a trace of what threads do.
    pub(crate) fn traced(tracer: Option<Tracer>) -> Stats {
        Stats { tracer, ..Stats::new() }
    }

    /// Writes the rest of the loader's [trace](crate::Builder::trace) and ends it. Dropping the loader and its
    /// statistics does that too, but reports no error.
    ///
    /// # Errors
    /// Why the file does not have the whole trace: for example, its disk is full.
    pub fn end_trace(&self) -> Result<()> {
        self.tracer.as_ref().map_or(Ok(()), Tracer::end)
    }

    /// A clock for a thread of this role. Charges `doing` at first.
    #[doc(hidden)]
    pub fn clock(&self, role: Role, doing: Doing) -> Clock {
        let times = Arc::new(ThreadTimes::new(role, self.epoch));
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&times));
        let lane = self.tracer.as_ref().map(|tracer| tracer.lane(role));
        if let Some(lane) = lane.as_ref().filter(|_| role == Role::Reactor) {
            // There is one reactor.
            let _ = self.counted.set(Arc::clone(lane));
        }
        Clock::start(times, doing, lane)
    }

    /// For a device: the lane that records its activity in the trace, if there is one.
    pub(crate) fn traced_beside(&self, name: impl FnOnce() -> String) -> Option<Arc<Lane>> {
        self.tracer.as_ref().map(|tracer| tracer.beside(name()))
    }

    /// The reactor's: how many reads are in flight from `now` on.
    pub(crate) fn set_in_flight(&self, reads: usize, now: Instant) {
        if let Some(lane) = self.counted.get().filter(|_| self.in_flight.value() != reads as u64) {
            lane.in_flight(reads, now);
        }
        self.in_flight.set(reads as u64, self.nanos(now));
    }

    /// The reactor's: how many reads may be in flight from now on.
    pub(crate) fn set_depth(&self, reads: usize) {
        self.depth.store(reads as u64, Ordering::Relaxed);
    }

    /// The engine's: whether the user chose how many threads read.
    pub(crate) fn set_threads_fixed(&self, fixed: bool) {
        self.threads_are_fixed.store(fixed, Ordering::Relaxed);
    }

    /// The builder's: the price of a storage operation, in bytes read in the same time.
    pub(crate) fn set_operation_bytes(&self, bytes: u64) {
        self.operation_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The reactor's: from now on values may be slices of windows or shards that are read whole.
    pub(crate) fn note_whole(&self) {
        self.reads_whole.store(true, Ordering::Release);
    }

    /// Whether values may be slices of windows or shards that were read whole on trial.
    #[doc(hidden)]
    pub fn reads_whole(&self) -> bool {
        self.reads_whole.load(Ordering::Acquire)
    }

    /// The builder's: what is read. Only the first call counts.
    pub(crate) fn set_facts(&self, facts: Facts) {
        let _ = self.facts.set(facts);
    }

    /// The builder's: the stores that are read from, whose counts begin now. Only the first call counts.
    pub(crate) fn set_stores<'a>(&self, stores: impl Iterator<Item = &'a Arc<dyn Store>>) {
        let _ = self.endpoints.set(Endpoints::new(stores));
    }

    /// The reactor's: it changed a knob.
    pub(crate) fn decided(&self, decision: Decision) {
        self.decisions.add(Decision { after: self.epoch.elapsed(), ..decision });
    }

    /// What the loader decided about how it reads, oldest first: the last 256 changes, each with the figures behind it.
    pub fn decisions(&self) -> Vec<Decision> {
        self.decisions.all()
    }

    /// The samples that took longest to read and to decode, slowest first: at most 16, since the loader was built.
    /// Excludes those of a [`Reader`](crate::Reader).
    pub fn dearest(&self) -> Vec<DearSample> {
        self.dearest.all()
    }

    /// Who held how much of the loader's memory. Memory that [`Builder::memory_limit`](crate::Builder::memory_limit)
    /// allows but that was never used was never taken from the system, and is not listed.
    pub fn memory(&self) -> Vec<Held> {
        self.holders.all(self.nanos(Instant::now()))
    }

    /// The reactor's: records what each holder has, in the order of [`Holder::ALL`], if a measurement is due.
    pub(crate) fn look_at_memory(&self, now: Instant, held: impl FnOnce() -> [u64; Holder::ALL.len()]) {
        let now = self.nanos(now);
        if self.holders.is_due(now) {
            self.holders.set(held(), now);
        }
    }

    /// What the threads have spent their time on until now, in the order in which they started. Reads no file.
    #[doc(hidden)]
    pub fn threads(&self) -> Vec<(Role, [Duration; Doing::ALL.len()])> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().map(|times| times.spent_now()).collect()
    }

    /// The reactor's: the outage that it waits out from now on, if any.
    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        let told = outage.map(|outage| (outage, Instant::now()));
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// The outage that the loader waits out now, if any. Cheaper than a snapshot.
    pub fn outage(&self) -> Option<Outage> {
        self.outage_at(Instant::now())
    }

    fn outage_at(&self, now: Instant) -> Option<Outage> {
        let told = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let (outage, told) = told.clone()?;
        Some(Outage { lasting: outage.lasting + now.saturating_duration_since(told), ..outage })
    }

    /// The consumer's: it got a batch `now`, for which it had `waited`. Only the first one counts.
    pub(crate) fn mark_batch(&self, now: Instant, waited: Duration) {
        if self.first_batch.load(Ordering::Relaxed) == 0 {
            self.count.first_wait_nanos.add(waited.as_nanos() as u64);
            self.first_batch.store(self.nanos(now).max(1), Ordering::Relaxed);
        }
    }

    /// The statistics at this moment. Reads files of `/proc`, which takes some 10 us, and 5 us for each thread.
    pub fn snapshot(&self) -> Snapshot {
        let now = Instant::now();
        let first_batch = self.first_batch.load(Ordering::Relaxed);
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_latency, read_latency_by_size) = self.read_latency.snapshot();
        Snapshot {
            elapsed: now - self.epoch,
            count: self.count.snapshot(),
            fastest_read: read_latency.percentile(0.0),
            read_latency,
            read_latency_by_size,
            batch_wait: self.batch_wait.snapshot(),
            in_flight_max: self.in_flight.max(),
            in_flight: self.in_flight.value(),
            in_flight_area: self.in_flight.area_at(self.nanos(now)),
            depth: self.depth.load(Ordering::Relaxed),
            threads_are_fixed: self.threads_are_fixed.load(Ordering::Relaxed),
            operation_bytes: self.operation_bytes.load(Ordering::Relaxed),
            facts: self.facts.get().cloned().unwrap_or_default(),
            endpoints: self.endpoints.get().map(Endpoints::now).unwrap_or_default(),
            outage: self.outage_at(now),
            first_batch: (first_batch > 0).then(|| Duration::from_nanos(first_batch)),
            threads: threads.iter().map(|times| times.snapshot()).collect(),
            processors: Processors::now().since(&self.before),
        }
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// The statistics of a loader at a moment, or between two moments ([`since`](Snapshot::since)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Time since the loader was built, or between the two moments.
    pub elapsed: Duration,
    /// The counters.
    pub count: Counts,
    /// How long reads took.
    pub read_latency: Distribution,
    /// How long the fastest read took since the loader was built. In a queue of constant length, all reads take equally
    /// long; only those before the queue built up show how long a read takes alone.
    pub(crate) fastest_read: Option<Duration>,
    /// The same by length of read, from the shortest class. Only classes that have reads.
    pub read_latency_by_size: Vec<ReadsOfSize>,
    /// How long the consumer waited for batches.
    pub batch_wait: Distribution,
    /// Reads in flight at the (later) moment.
    #[doc(hidden)]
    pub in_flight: u64,
    /// Most reads in flight since the loader was built.
    pub in_flight_max: u64,
    in_flight_area: u64,
    /// Reads that may be in flight at the (later) moment: the depth that the loader chose.
    pub depth: u64,
    pub(crate) threads_are_fixed: bool,
    pub(crate) operation_bytes: u64,
    pub(crate) facts: Facts,
    /// What the servers of object stores were asked and gave, each server once. A server counts all loaders of a
    /// dataset together.
    pub endpoints: Vec<store::Counts>,
    /// The outage that the loader waits out at the (later) moment, if any.
    pub outage: Option<Outage>,
    /// Time from building the loader to its first batch.
    pub first_batch: Option<Duration>,
    /// What each thread spent its time on, in the order in which they started.
    #[doc(hidden)]
    pub threads: Vec<ThreadSnapshot>,
    /// The processors' state for this process.
    pub processors: Processors,
}

/// Storage that returns nothing, or a machine without room to read, while a loader waits for it: see
/// [`outage_timeout`](crate::Builder::outage_timeout). `Display` is one line: `waiting for "/data" for 40 s: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outage {
    /// The folder; `None` if the machine itself is out of descriptors or memory.
    pub path: Option<PathBuf>,
    /// How long it has lasted.
    pub lasting: Duration,
    /// The last error, in one line.
    pub cause: String,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { path, lasting, cause } = self;
        let seconds = lasting.as_secs();
        match path {
            Some(path) => write!(f, "waiting for {path:?} for {seconds} s: {cause}"),
            None => write!(f, "waiting for descriptors or memory for {seconds} s: {cause}"),
        }
    }
}

impl Snapshot {
    /// What happened since `earlier`, a snapshot of the same loader.
    #[must_use]
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let threads = self.threads.iter().enumerate();
        Snapshot {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            count: self.count.since(&earlier.count),
            read_latency: self.read_latency.since(&earlier.read_latency),
            fastest_read: self.fastest_read,
            read_latency_by_size: sizes::since(&self.read_latency_by_size, &earlier.read_latency_by_size),
            batch_wait: self.batch_wait.since(&earlier.batch_wait),
            in_flight: self.in_flight,
            in_flight_max: self.in_flight_max,
            in_flight_area: self.in_flight_area.wrapping_sub(earlier.in_flight_area),
            depth: self.depth,
            threads_are_fixed: self.threads_are_fixed,
            operation_bytes: self.operation_bytes,
            facts: self.facts.clone(),
            endpoints: endpoints::since(&self.endpoints, &earlier.endpoints),
            outage: self.outage.clone(),
            first_batch: self.first_batch,
            threads: threads.map(|(index, thread)| thread.since(earlier.threads.get(index))).collect(),
            processors: self.processors.since(&earlier.processors),
        }
    }

    /// Reads in flight: the mean over time.
    pub fn in_flight_mean(&self) -> f64 {
        let nanos = self.elapsed.as_nanos() as f64;
        if nanos > 0.0 { self.in_flight_area as f64 / nanos } else { 0.0 }
    }

    /// Bytes read per byte that samples needed; `None` before the first.
    pub fn read_amplification(&self) -> Option<f64> {
        let wanted = self.count.bytes_wanted;
        (wanted > 0).then(|| self.count.bytes_read as f64 / wanted as f64)
    }

    /// Bytes of samples per second that the consumer received.
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.count.bytes_delivered, self.elapsed)
    }

    /// Useful bytes a second from the storage, for comparison with a raw read.
    #[doc(hidden)]
    pub fn stored_bytes_per_second(&self) -> f64 {
        rate(self.count.bytes_stored(), self.elapsed)
    }

    /// Samples per second that the consumer received.
    pub fn samples_per_second(&self) -> f64 {
        rate(self.count.samples, self.elapsed)
    }

    /// What limits the loader. `raw` is the rate of a raw read of the same files in bytes per second, if known.
    pub fn verdict(&self, raw: Option<f64>) -> Verdict {
        verdict::judge(self, &Evidence { raw, ..Evidence::default() })
    }

    /// As [`verdict`](Snapshot::verdict), with evidence beyond a raw read.
    #[doc(hidden)]
    pub fn verdict_with(&self, evidence: &Evidence) -> Verdict {
        verdict::judge(self, evidence)
    }

    /// What the threads spent their time on: for each kind of thread and each activity its name, and the time of all
    /// such threads together.
    ///
    /// The kinds are "consumer" (your own thread), "reactor" (plans and submits reads), "io" (reads, in the `threads`
    /// engine), "stage" (decodes), "device" (feeds GPUs) and "transform" (runs your own Python). `docs/idle-gpu.md`
    /// explains the activities.
    pub fn activities(&self) -> Vec<(&'static str, &'static str, Duration)> {
        let mut activities = Vec::new();
        for role in Role::ALL {
            let of_role = |activity| (role.name(), Doing::name(activity), self.time(role, activity));
            activities.extend(Doing::ALL.map(of_role).into_iter().filter(|(.., time)| !time.is_zero()));
        }
        activities
    }

    /// Time that all threads of a role spent on one activity.
    #[doc(hidden)]
    pub fn time(&self, role: Role, doing: Doing) -> Duration {
        self.threads.iter().filter(|thread| thread.role == role).map(|thread| thread.on(doing)).sum()
    }

    /// Share (0 to 1) of the time of all threads of a role that went to one activity; `None` without such a thread.
    #[doc(hidden)]
    pub fn share(&self, role: Role, doing: Doing) -> Option<f64> {
        let of_role = || self.threads.iter().filter(|thread| thread.role == role);
        let total: Duration = of_role().map(ThreadSnapshot::total).sum();
        let spent = self.time(role, doing);
        (!total.is_zero()).then(|| spent.as_secs_f64() / total.as_secs_f64())
    }
}

fn rate(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of these activities.
    fn spent(times: &[(Doing, u64)]) -> [Duration; Doing::ALL.len()] {
        let mut spent = [Duration::ZERO; Doing::ALL.len()];
        times.iter().for_each(|&(doing, millis)| spent[doing as usize] = Duration::from_millis(millis));
        spent
    }

    #[test]
    fn a_difference_holds_what_came_between() {
        let stats = Stats::new();
        let mut clock = stats.clock(Role::Reactor, Doing::Plan);
        stats.count.samples.add(3);
        stats.set_in_flight(8, Instant::now());
        let mut first = stats.snapshot();
        clock.switch(Doing::WaitStorage);
        let _late = stats.clock(Role::Consumer, Doing::WaitBatch);
        stats.count.samples.add(4);
        stats.count.bytes_delivered.add(1000);
        stats.mark_batch(Instant::now(), Duration::ZERO);
        let mut second = stats.snapshot();
        // The times are made up, so the thread's real processor time does not count.
        let millis = Duration::from_millis;
        (first.elapsed, second.elapsed) = (millis(2), millis(102));
        (first.in_flight_area, second.in_flight_area) = (16_000_000, 816_000_000);
        first.threads[0].spent = spent(&[(Doing::Plan, 2)]);
        second.threads[0].spent = spent(&[(Doing::Plan, 7), (Doing::WaitStorage, 95)]);
        second.threads[1].spent = spent(&[(Doing::WaitBatch, 99)]);
        let between = second.since(&first);
        assert_eq!((between.count.samples, second.count.samples), (4, 7));
        assert_eq!(between.elapsed, millis(100));
        assert!((between.share(Role::Reactor, Doing::WaitStorage).unwrap() - 0.95).abs() < 1e-9);
        let late = between.share(Role::Consumer, Doing::WaitBatch);
        assert_eq!(late, Some(1.0), "a thread that the first did not know");
        assert_eq!(between.share(Role::Stage, Doing::Decode), None);
        assert!((between.in_flight_mean() - 8.0).abs() < 1e-9, "{}", between.in_flight_mean());
        assert!((between.bytes_per_second() - 10_000.0).abs() < 1e-6, "{}", between.bytes_per_second());
        assert!(first.first_batch.is_none() && second.first_batch.is_some());
    }

    #[test]
    fn an_empty_snapshot_divides_by_nothing() {
        let nothing = Snapshot::default();
        assert_eq!((nothing.bytes_per_second(), nothing.in_flight_mean()), (0.0, 0.0));
        assert_eq!(nothing.read_amplification(), None);
    }
}
