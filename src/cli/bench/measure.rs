//! One run of the loader, measured.

use super::super::consume::{Consumer, Next};
use super::super::interrupt::{Interrupt, eprintln_quietly};
use super::super::state::resume;
use super::accelerator::Accelerator;
use super::progress::Progress;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::batch::{Batch, Data, FailedSample};
use uringload::config::{Config, EngineKind, OnError, Route};
use uringload::dataset::Dataset;
use uringload::loader::Loader;
use uringload::sampler::{EpochDigest, Sampler};
use uringload::stats::{Bottleneck, Counts, Doing, Role, Snapshot, ThreadSnapshot, Verdict};
use uringload::sys::system;
use uringload::{Error, Result, State};

/// What is to be measured.
pub struct Run<'a> {
    /// The dataset.
    pub dataset: &'a Arc<dyn Dataset>,
    /// How it is read.
    pub config: Config,
    /// The order.
    pub sampler: Arc<dyn Sampler>,
    /// Where it goes on from, if not from the beginning.
    pub state: Option<State>,
    /// How long each emulated step takes.
    pub step: Option<Duration>,
    /// When to stop at the latest.
    pub duration: Option<Duration>,
}

/// How a run came to its end.
#[derive(Debug)]
pub enum End {
    /// All epochs were read.
    Complete,
    /// The time was up.
    OutOfTime,
    /// A signal asked for it.
    Interrupted,
    /// An error took the place of a batch.
    Failed(Error),
}

/// What came of a run.
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
    /// Most memory that the process had resident.
    pub peak_memory: Option<u64>,
    /// Bytes of memory for samples at most.
    pub pool_bytes: u64,
    /// Utilization of the emulated accelerator.
    pub au_percent: Option<f64>,
    /// The loader's own stats.
    pub snapshot: Snapshot,
    /// The way that was taken in the end.
    pub route: Route,
    /// Where it ended.
    pub state: State,
    /// What was delivered of the last epoch.
    pub digest: EpochDigest,
}

impl Measured {
    /// Bytes of samples in a second.
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.snapshot.count.bytes_delivered, self.wall)
    }

    /// Share of the rate of a raw read of the same files.
    pub fn share_of_raw(&self, raw: f64) -> f64 {
        rate(self.snapshot.count.bytes_stored(), self.wall) / raw
    }

    /// Samples in a second.
    pub fn samples_per_second(&self) -> f64 {
        rate(self.snapshot.count.samples, self.wall)
    }

    /// Seconds of CPU for 10^9 bytes of samples.
    pub fn cpu_per_gb(&self) -> Option<f64> {
        cpu_per_gb(self.cpu, self.snapshot.count.bytes_delivered)
    }

    /// Who limits. `raw` is the rate of a raw read of the same files.
    pub fn verdict(&self, raw: Option<f64>) -> Verdict {
        let mut verdict = self.snapshot.verdict(raw);
        if verdict.bottleneck == Bottleneck::Storage && !self.route.direct_io {
            // A read through the page cache waits for the disk or for a processor that copies; the clocks cannot tell.
            verdict.advice += "; through the page cache copying counts too: more cores, or --io direct, may help";
        }
        verdict
    }
}

/// Seconds of CPU for 10^9 bytes.
pub fn cpu_per_gb(cpu: Duration, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| cpu.as_secs_f64() / (bytes as f64 / 1e9))
}

/// `count` in a second.
pub fn rate(count: u64, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { count as f64 / wall.as_secs_f64() }
}

/// Builds a loader and reads it to the end.
///
/// # Errors
/// What `build` says. An error in the stream is the end of the run, not an error of this function.
pub fn measure(run: &Run<'_>, name: &str, interrupt: &Interrupt) -> Result<Measured> {
    // Not permitted everywhere; then the peak is that of everything so far, which is never too small.
    let _ = system::reset_peak_memory();
    let cpu = system::cpu_time();
    let asked = Instant::now();
    let builder = Loader::builder(Arc::clone(run.dataset)).config(run.config.clone()).sampler(Arc::clone(&run.sampler));
    let warn = |failed: &FailedSample| eprintln_quietly(&format!("uringload: left out: {}", failed.error));
    let builder = if run.config.on_error == OnError::Warn { builder.on_failed(warn) } else { builder };
    let mut loader = resume(builder, run.state.as_ref()).build()?;
    let start = Instant::now();
    let stats = loader.stats();
    let mut progress = Progress::new(name, loader.len());
    let consumer = Consumer::new(interrupt, run.duration.map(|duration| start + duration));
    let mut accelerator = run.step.map(Accelerator::new);
    let mut last = start;
    let end = loop {
        let batch = match consumer.next(&mut loader) {
            Next::Batch(batch) => match *batch {
                Ok(batch) => batch,
                Err(error) => break End::Failed(error),
            },
            Next::End => break End::Complete,
            Next::Late => break End::OutOfTime,
            Next::Interrupted => break End::Interrupted,
        };
        last = Instant::now();
        if let Some(accelerator) = &mut accelerator {
            last = step(accelerator, batch, run.config.batch_size, interrupt);
        }
        progress.batch(last, &stats);
    };
    let measured = Measured {
        end,
        wall: last - start,
        build: start - asked,
        first_batch: stats.snapshot().first_batch,
        cpu: system::cpu_time().saturating_sub(cpu),
        peak_memory: system::peak_memory(),
        pool_bytes: loader.memory_limit(),
        au_percent: accelerator.and_then(Accelerator::percent),
        snapshot: stats.snapshot(),
        route: loader.route(),
        state: loader.state(),
        digest: loader.digest(),
    };
    Ok(if measured.route.engine == EngineKind::Sim { on_virtual_clock(measured) } else { measured })
}

/// Touches the batch as a copy to a device would, gives its memory back, and sleeps for a step.
fn step(accelerator: &mut Accelerator, batch: Batch, full: u64, interrupt: &Interrupt) -> Instant {
    let touched: u64 = batch.columns.iter().map(|column| touch(&column.data)).sum();
    std::hint::black_box(touched);
    let (epoch, is_full) = (batch.cursor.epoch, batch.len() as u64 == full);
    drop(batch);
    interrupt.sleep_until(Instant::now() + accelerator.step());
    let now = Instant::now();
    if is_full && !interrupt.is_set() {
        accelerator.stepped(epoch, now);
    }
    now
}

fn touch(data: &Data) -> u64 {
    const PAGE_BYTES: usize = 4096;
    let pages = |bytes: &[u8]| bytes.iter().step_by(PAGE_BYTES).map(|&byte| u64::from(byte)).sum::<u64>();
    match data {
        Data::Dense { bytes, .. } => pages(bytes),
        Data::Ragged { values, .. } | Data::Padded { values, .. } => pages(values),
        Data::Packed(packed) => pages(&packed.values),
        Data::Views(views) => views.iter().map(|view| pages(view)).sum(),
        _ => 0,
    }
}

/// The simulated disk answers at once, so its times are made up from what was read, at 1 GB/s: then the same arguments
/// give the same output on every machine.
fn on_virtual_clock(measured: Measured) -> Measured {
    let count = Counts { turns: 0, batches_ready: 0, ..measured.snapshot.count };
    let time = |bytes: u64| Duration::from_nanos(bytes);
    let wall = time(count.bytes_read);
    let thread = |role, doing: Doing| {
        let mut spent = [Duration::ZERO; Doing::ALL.len()];
        spent[doing as usize] = wall;
        ThreadSnapshot { role, spent }
    };
    let mut snapshot = Snapshot::default();
    snapshot.elapsed = wall;
    snapshot.count = count;
    snapshot.read_latency = measured.snapshot.read_latency;
    snapshot.threads = vec![thread(Role::Consumer, Doing::WaitBatch), thread(Role::Reactor, Doing::WaitStorage)];
    Measured {
        wall,
        build: Duration::ZERO,
        first_batch: Some(time(count.bytes_read / count.batches.max(1))),
        cpu: Duration::ZERO,
        peak_memory: None,
        snapshot,
        route: Route { backing: "memory of any kind".into(), ..measured.route },
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
