//! One run of the loader, measured.

use super::accelerator::Accelerators;
use super::gpus::Gpus;
use super::series::Series;
use super::timeline::Timeline;
use super::trainer::{Steps, Trainer};
use super::watch::{Watch, Watched};
use crate::caller::{Caller, Progress};
use crate::consume::{Consumer, Next};
use crate::subject::{Prepare, Subject};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::batch::{Batch, Data, FailedSample};
use uringload::config::Config;
use uringload::config::{Device, EngineKind, OnError, Route};
use uringload::dataset::Dataset;
use uringload::device::DeviceBatch;
use uringload::sampler::{EpochDigest, Sampler};
use uringload::stats::{DearSample, Decision, Evidence, Held, Snapshot, Verdict};
use uringload::stats::{Doing, Role, ThreadSnapshot};
use uringload::{Builder, Delivered, Loader};
use uringload::{Error, Result, State};
use uringload_sys::system;

/// What to measure.
pub struct Run<'a> {
    /// The dataset.
    pub dataset: &'a Arc<dyn Dataset>,
    /// How it is read.
    pub config: Config,
    /// What is done with its samples.
    pub prepare: &'a Prepare<'a>,
    /// The order.
    pub sampler: Arc<dyn Sampler>,
    /// The state to resume from, if any.
    pub state: Option<State>,
    /// Length of each emulated step.
    pub step: Option<Duration>,
    /// Emulated accelerators, which take batches in turn.
    pub accelerators: usize,
    /// The time limit.
    pub duration: Option<Duration>,
    /// Where batches end up; if empty, where they were read to.
    pub devices: Vec<Device>,
    /// The GPUs among the devices.
    pub gpus: Gpus,
}

impl<'a> Run<'a> {
    /// All of a dataset, once, on the host.
    pub fn of(subject: &'a Subject<'a>, config: Config, sampler: Arc<dyn Sampler>) -> Run<'a> {
        let (dataset, prepare) = (&subject.dataset, &*subject.prepare);
        let (state, step, duration, devices) = (None, None, None, Vec::new());
        let gpus = Gpus::open(&devices);
        Run { dataset, config, prepare, sampler, state, step, accelerators: 1, duration, devices, gpus }
    }
}

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// All epochs were read.
    Complete,
    /// The time was up.
    OutOfTime,
    /// A signal requested it.
    Interrupted,
    /// An error occurred instead of a batch.
    Failed(Error),
}

/// The result of a run.
#[derive(Debug)]
pub struct Measured {
    /// How it ended.
    pub end: End,
    /// From the opened engine to the last batch.
    pub wall: Duration,
    /// From the call of `build` to the opened engine.
    pub build: Duration,
    /// From the call of `build` to the first batch.
    pub first_batch: Option<Duration>,
    /// CPU time of the whole process, `build` included.
    pub cpu: Duration,
    /// Peak resident memory of the process.
    pub peak_memory: Option<u64>,
    /// Most bytes of memory for samples.
    pub pool_bytes: u64,
    /// Utilization of the emulated accelerator.
    pub au_percent: Option<f64>,
    /// The steps on GPUs, if there were any.
    pub steps: Option<Steps>,
    /// What the driver's management library reported for each GPU, or why it reported nothing; `None` if there is no
    /// GPU.
    pub watched: Option<Watched>,
    /// What was delivered over time and by epoch.
    pub series: Series,
    /// What the threads did over time.
    pub timeline: Timeline,
    /// The samples that took longest.
    pub dearest: Vec<DearSample>,
    /// Who held the memory.
    pub memory: Vec<Held>,
    /// The loader's own stats.
    pub snapshot: Snapshot,
    /// What it decided about how it reads.
    pub decisions: Vec<Decision>,
    /// The route that was finally taken.
    pub route: Route,
    /// Where it ended.
    pub state: State,
    /// What was delivered in the last epoch.
    pub digest: EpochDigest,
    /// Why the trace has not all of it.
    pub untraced: Option<Error>,
}

impl Measured {
    /// Bytes of samples per second.
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.snapshot.count.bytes_delivered, self.wall)
    }

    /// Fraction of the rate of a raw read of the same files.
    pub fn share_of_raw(&self, raw: f64) -> f64 {
        self.stored_bytes_per_second() / raw
    }

    /// Bytes of the delivered samples per second, as they are stored.
    pub fn stored_bytes_per_second(&self) -> f64 {
        rate(self.snapshot.count.bytes_stored(), self.wall)
    }

    /// Samples per second.
    pub fn samples_per_second(&self) -> f64 {
        rate(self.snapshot.count.samples, self.wall)
    }

    /// CPU seconds per 10^9 bytes of samples.
    pub fn cpu_per_gb(&self) -> Option<f64> {
        cpu_per_gb(self.cpu, self.snapshot.count.bytes_delivered)
    }

    /// The bottleneck, by what was measured besides.
    pub fn verdict(&self, evidence: &Evidence) -> Verdict {
        let mut verdict = self.snapshot.verdict_with(evidence);
        // The loader's own rate begins before its first batch, and this one with it.
        for remedy in &mut verdict.remedies {
            remedy.samples_per_second = remedy.gain.map(|gain| gain * self.samples_per_second());
        }
        let is_cached = !self.route.direct_io && self.route.engine != EngineKind::Remote;
        if verdict.bottleneck.is_storage() && is_cached {
            // A read through the page cache waits for the disk or for a CPU that copies; the timings cannot tell which.
            verdict.advice +=
                "; through the page cache copying counts too: more cores, or io=direct (--io direct), may help";
        }
        verdict
    }
}

/// CPU seconds per 10^9 bytes.
pub fn cpu_per_gb(cpu: Duration, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| cpu.as_secs_f64() / (bytes as f64 / 1e9))
}

/// `count` per second.
pub fn rate(count: u64, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { count as f64 / wall.as_secs_f64() }
}

/// Builds a loader and reads it to the end.
///
/// # Errors
/// Those of `build`. An error in the stream ends the run, but is not an error of this function.
pub fn measure(run: &Run<'_>, name: &str, caller: &Caller) -> Result<Measured> {
    let accelerators = run.step.map(|step| Accelerators::new(run.accelerators, step));
    let user = HostTrainer { accelerators, full: run.config.batch_size, caller };
    if run.devices.is_empty() {
        return follow(run, name, caller, user, Builder::build);
    }
    let devices = DeviceTrainer { host: user, gpus: run.gpus.trainers(run.step)? };
    follow(run, name, caller, devices, |builder| builder.devices(run.devices.iter().cloned()).build())
}

/// Builds a loader and passes its batches to `user`.
fn follow<T: Delivered, U: User<T>>(
    run: &Run<'_>,
    name: &str,
    caller: &Caller,
    mut user: U,
    build: impl FnOnce(Builder) -> Result<Loader<T>>,
) -> Result<Measured> {
    // Not permitted everywhere; then this is the peak of the whole process so far, which is never too small.
    let _ = system::reset_peak_memory();
    let cpu = system::cpu_time();
    let asked = Instant::now();
    let builder = Loader::builder(Arc::clone(run.dataset)).config(run.config.clone()).sampler(Arc::clone(&run.sampler));
    let builder = (run.prepare)(builder, run.dataset)?;
    let say = caller.sayer();
    let warn = move |failed: &FailedSample| say(&format!("left out: {}", failed.error.headline()));
    let builder = if run.config.on_error == OnError::Warn { builder.on_failed(warn) } else { builder };
    let builder = match &run.state {
        Some(state) => builder.resume(state),
        None => builder,
    };
    let opening = caller.doing("opening the loader", None);
    let mut loader = build(builder)?;
    drop(opening);
    let start = Instant::now();
    let stats = loader.stats();
    let watch = Watch::start(&run.gpus.addresses());
    let until = run.duration.map(|duration| start + duration);
    let mut progress = caller.progress(name, loader.remaining(), until);
    let consumer = Consumer::new(caller, until);
    let (mut series, mut timeline) = (Series::default(), Timeline::begin(&stats));
    let watching = (&mut progress, &mut series, &mut timeline, start);
    let (end, last) = take_all(&consumer, &mut user, &mut loader, watching);
    series.end();
    let wall = last.unwrap_or(start) - start;
    timeline.end(wall, &stats);
    drop(progress);
    let measured = Measured {
        end,
        wall,
        build: start - asked,
        first_batch: stats.snapshot().first_batch,
        cpu: system::cpu_time().saturating_sub(cpu),
        peak_memory: system::peak_memory(),
        pool_bytes: loader.memory_limit(),
        au_percent: None,
        steps: None,
        watched: watch.map(Watch::end),
        series,
        timeline,
        dearest: stats.dearest(),
        memory: stats.memory(),
        snapshot: stats.snapshot(),
        decisions: stats.decisions(),
        route: loader.route(),
        state: loader.state(),
        digest: loader.digest(),
        untraced: None,
    };
    // Before the trainers, because batches hold on to their streams.
    consumer.leave(loader);
    let measured = Measured { untraced: stats.end_trace().err(), ..user.tell(measured) };
    Ok(if measured.route.engine == EngineKind::Sim { on_virtual_clock(measured) } else { measured })
}

/// Takes batches and uses them until there are none or the time is up. Returns how it ended, and when the last one was
/// finished.
fn take_all<T: Delivered, U: User<T>>(
    consumer: &Consumer<'_>,
    user: &mut U,
    loader: &mut Loader<T>,
    (progress, series, timeline, start): (&mut Progress, &mut Series, &mut Timeline, Instant),
) -> (End, Option<Instant>) {
    let stats = loader.stats();
    let mut last = None;
    let mut end = loop {
        let asked = Instant::now();
        let batch = match consumer.next(loader) {
            Next::Batch(batch) => match *batch {
                Ok(batch) => batch,
                Err(error) => break End::Failed(error),
            },
            Next::End => break End::Complete,
            Next::Late => break End::OutOfTime,
            Next::Interrupted => break End::Interrupted,
        };
        let got = Instant::now();
        let (epoch, delivered) = (batch.host().cursor.epoch, (batch.host().len() as u64, batch.bytes()));
        let done = match user.use_batch(batch, got - asked) {
            Ok(done) => done.unwrap_or(got),
            Err(error) => break End::Failed(error),
        };
        last = Some(done);
        series.batch(epoch, delivered, got.saturating_duration_since(start), done.saturating_duration_since(start));
        timeline.batch(done.saturating_duration_since(start), &stats);
        progress(&stats);
    };
    match user.finish() {
        Ok(done) => last = last.max(done),
        // Only the first error counts.
        Err(_) if matches!(end, End::Failed(_)) => {}
        Err(error) => end = End::Failed(error),
    }
    (end, last)
}

/// What happens to batches.
trait User<T> {
    /// Uses a batch after waiting `waited` for it. Returns when that was done, if it is known.
    fn use_batch(&mut self, batch: T, waited: Duration) -> Result<Option<Instant>>;

    /// Finishes outstanding work. Returns when that was done, if there was any.
    fn finish(&mut self) -> Result<Option<Instant>> {
        Ok(None)
    }

    /// Adds what only this user knows.
    fn tell(self, measured: Measured) -> Measured;
}

/// A trainer emulated on the host: it sleeps.
struct HostTrainer<'a> {
    accelerators: Option<Accelerators>,
    full: u64,
    caller: &'a Caller,
}

impl HostTrainer<'_> {
    /// Touches the batch as a copy to a device would, returns its memory, and sleeps until an accelerator is free.
    fn step<T: Delivered>(&mut self, batch: T) -> Option<Instant> {
        let accelerators = self.accelerators.as_mut()?;
        let host = batch.host();
        let epoch = (host.len() as u64 == self.full).then_some(host.cursor.epoch);
        drop(batch);
        let free = accelerators.begin(epoch, Instant::now());
        self.caller.sleep_until(free);
        Some(Instant::now())
    }

    /// Sleeps until all steps have ended.
    fn end(&self) -> Option<Instant> {
        self.caller.sleep_until(self.accelerators.as_ref()?.end()?);
        Some(Instant::now())
    }
}

impl User<Batch> for HostTrainer<'_> {
    fn use_batch(&mut self, batch: Batch, _: Duration) -> Result<Option<Instant>> {
        if self.accelerators.is_some() {
            std::hint::black_box(batch.columns.iter().map(|column| touch(&column.data)).sum::<u64>());
        }
        Ok(self.step(batch))
    }

    fn finish(&mut self) -> Result<Option<Instant>> {
        Ok(self.end())
    }

    fn tell(self, measured: Measured) -> Measured {
        Measured { au_percent: self.accelerators.and_then(Accelerators::percent), ..measured }
    }
}

/// A trainer on each GPU; batches that are on the host go to the host's trainer.
struct DeviceTrainer<'a> {
    host: HostTrainer<'a>,
    gpus: Vec<Trainer>,
}

impl User<DeviceBatch> for DeviceTrainer<'_> {
    fn use_batch(&mut self, batch: DeviceBatch, waited: Duration) -> Result<Option<Instant>> {
        let on = |trainer: &&mut Trainer| batch.device().is_some_and(|index| trainer.is_on(index));
        if let Some(trainer) = self.gpus.iter_mut().find(on) {
            let full = (batch.len() as u64 == self.host.full).then_some(batch.host.cursor.epoch);
            trainer.use_batch(batch, waited, full, self.host.caller)?;
            return Ok(None);
        }
        if self.host.accelerators.is_some() {
            let bytes = batch.columns.iter().filter_map(|column| column.memory.as_host());
            std::hint::black_box(bytes.map(|bytes| pages(bytes)).sum::<u64>());
        }
        Ok(self.host.step(batch))
    }

    fn finish(&mut self) -> Result<Option<Instant>> {
        self.gpus.iter_mut().try_for_each(|trainer| trainer.finish(self.host.caller))?;
        Ok((!self.gpus.is_empty()).then(Instant::now))
    }

    fn tell(self, measured: Measured) -> Measured {
        let steps: Vec<Steps> = self.gpus.into_iter().filter_map(Trainer::steps).filter(|one| one.count > 0).collect();
        if steps.is_empty() {
            return self.host.tell(measured);
        }
        let au: Vec<f64> = steps.iter().filter_map(Steps::au_percent).collect();
        let au_percent = (!au.is_empty()).then(|| au.iter().sum::<f64>() / au.len() as f64);
        Measured { au_percent, steps: Steps::all(steps), ..measured }
    }
}

fn touch(data: &Data) -> u64 {
    match data {
        Data::Dense { bytes, .. } => pages(bytes),
        Data::Ragged { values, .. } | Data::Padded { values, .. } => pages(values),
        Data::Packed(packed) => pages(&packed.values),
        Data::Views(views) => views.iter().map(|view| pages(view)).sum(),
        _ => 0,
    }
}

/// Reads one byte of each page.
fn pages(bytes: &[u8]) -> u64 {
    const PAGE_BYTES: usize = 4096;
    bytes.iter().step_by(PAGE_BYTES).map(|&byte| u64::from(byte)).sum()
}

/// The simulated disk answers at once, so times are made up from the bytes read, at 1 GB/s: the same arguments then
/// give the same output on every machine.
fn on_virtual_clock(measured: Measured) -> Measured {
    let mut count = measured.snapshot.count;
    (count.turns, count.batches_ready) = (0, 0);
    let time = |bytes: u64| Duration::from_nanos(bytes);
    let wall = time(count.bytes_read);
    let thread = |role, doing: Doing| {
        let mut spent = [Duration::ZERO; Doing::ALL.len()];
        spent[doing as usize] = wall;
        ThreadSnapshot { role, spent, scheduled: None }
    };
    let mut snapshot = Snapshot::default();
    snapshot.elapsed = wall;
    snapshot.count = count;
    snapshot.depth = measured.snapshot.depth;
    snapshot.read_latency = measured.snapshot.read_latency;
    snapshot.read_latency_by_size = measured.snapshot.read_latency_by_size;
    snapshot.threads = vec![thread(Role::Consumer, Doing::WaitBatch), thread(Role::Reactor, Doing::WaitStorage)];
    let mut route = measured.route;
    route.backing = "memory of any kind".into();
    Measured {
        wall,
        build: Duration::ZERO,
        first_batch: Some(time(count.bytes_read / count.batches.max(1))),
        cpu: Duration::ZERO,
        peak_memory: None,
        series: Series::default(),
        snapshot,
        // They have the time of the machine.
        timeline: Timeline::default(),
        dearest: Vec::new(),
        memory: Vec::new(),
        decisions: Vec::new(),
        route,
        ..measured
    }
}

impl End {
    /// For the JSON.
    pub fn name(&self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::OutOfTime => "duration",
            End::Interrupted => "interrupted",
            End::Failed(_) => "failed",
        }
    }
}
