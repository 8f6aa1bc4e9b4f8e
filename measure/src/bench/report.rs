//! The result of `bench` as JSON. docs/bench-json.md describes every key; a key never changes its meaning within a
//! version.

use super::ceilings::{self, Ceiling};
use super::compare::Compared;
use super::device::{DeviceReport, DeviceRouteReport};
use super::found::{DearReport, EndpointReport, MemoryReport, SizeReport};
use super::machine::{Command, Machine};
use super::run::Measured;
use super::series::{Epoch, Point};
use super::spread::Spread;
use super::timeline::TimelineReport;
use super::yardstick::Yardstick;
use super::{Outcome, Round};
use serde::Serialize;
use std::time::Duration;
use uringload::config::Config;
use uringload::config::{Device, EngineKind, Fallback, Route, Shuffle};
use uringload::sampler::{Cursor, EpochDigest};
use uringload::stats::{Decision, Distribution, Processors, Remedy, Snapshot, Trial, Tried, Verdict};
use uringload::stats::{Doing, Role, ThreadSnapshot};

/// Incremented when a key is removed or changes its meaning.
const VERSION: u32 = 3;

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    uringload: &'static str,
    machine: Option<Machine>,
    run: Option<Command>,
    dataset: DatasetReport,
    config: ConfigReport,
    cold: bool,
    ended: &'static str,
    samples: u64,
    bytes: u64,
    batches: u64,
    samples_skipped: u64,
    digest: DigestReport,
    samples_per_s: f64,
    bytes_per_s: f64,
    stored_bytes_per_s: f64,
    wall_s: f64,
    build_ms: f64,
    cpu_s: f64,
    cpu_s_per_gb: Option<f64>,
    peak_rss_bytes: Option<u64>,
    memory_taken_s: f64,
    pool_bytes: u64,
    memory: MemoryReport,
    first_batch_ms: Option<f64>,
    batch_wait_ms: Waits,
    read_latency_us: Latencies,
    read_latency_by_size: Vec<SizeReport>,
    dearest_samples: Vec<DearReport>,
    reads: u64,
    bytes_read: u64,
    short_reads: u64,
    retries: u64,
    read_amplification: Option<f64>,
    units_decoded: u64,
    samples_decoded: u64,
    cache_hits: u64,
    cache_misses: u64,
    bytes_cached: u64,
    bytes_decoded: u64,
    endpoints: Vec<EndpointReport>,
    in_flight_mean: f64,
    in_flight_max: u64,
    depth: u64,
    decisions: Vec<DecisionReport>,
    raw_read_bytes_per_s: Option<f64>,
    raw_read: Option<RawReport>,
    share_of_raw: Option<f64>,
    step_ms: Option<f64>,
    au_percent: Option<f64>,
    mlperf: Option<MlperfReport>,
    device: Option<DeviceReport>,
    route: RouteReport,
    verdict: VerdictReport,
    ceilings: Vec<Ceiling>,
    threads: Vec<ThreadReport>,
    timeline: TimelineReport,
    processors: ProcessorsReport,
    comparisons: Vec<Comparison>,
    rounds: Vec<RoundReport>,
    spread: SpreadReport,
}

/// The workload that was emulated.
#[derive(Debug, Serialize)]
struct MlperfReport {
    workload: &'static str,
    accelerator: &'static str,
    accelerators: usize,
    bar_percent: f64,
    is_reached: Option<bool>,
}

impl MlperfReport {
    fn of(outcome: &Outcome<'_>) -> Option<MlperfReport> {
        let reached = outcome.median().measured.au_percent;
        outcome.bench.mlperf.map(|workload| MlperfReport {
            workload: workload.name,
            accelerator: workload.accelerator,
            accelerators: outcome.bench.accelerators,
            bar_percent: workload.bar_percent,
            is_reached: reached.map(|au| au >= workload.bar_percent),
        })
    }
}

#[derive(Debug, Serialize)]
struct DatasetReport {
    format: &'static str,
    samples: u64,
    bytes: u64,
    files: usize,
    roots: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ConfigReport {
    batch_size: u64,
    epochs: Option<u64>,
    duration_s: Option<f64>,
    shuffle: bool,
    seed: u64,
    rank: u64,
    world_size: u64,
    ranks_from: Option<String>,
    drop_last: bool,
    resumed: Option<PlaceReport>,
    devices: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PlaceReport {
    epoch: u64,
    position: u64,
}

/// Sums are 16 hexadecimal digits: as numbers, programs that only have floats would round them.
#[derive(Debug, Serialize)]
struct DigestReport {
    epoch: u64,
    since: u64,
    samples: u64,
    sum: String,
    lost_samples: u64,
    lost_sum: String,
}

/// Milliseconds.
#[derive(Debug, Serialize)]
struct Waits {
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
}

/// Microseconds.
#[derive(Debug, Serialize)]
struct Latencies {
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
}

/// The yardstick.
#[derive(Debug, Serialize)]
struct RawReport {
    count: usize,
    spread: Option<f64>,
    disturbed: bool,
    queue_depth: Option<usize>,
    read_bytes: Option<usize>,
}

impl RawReport {
    fn of(yardstick: &Yardstick) -> Option<RawReport> {
        let shape = yardstick.shape().filter(|_| yardstick.count() > 0)?;
        Some(RawReport {
            count: yardstick.count(),
            spread: yardstick.spread(),
            disturbed: yardstick.is_disturbed(),
            queue_depth: shape.depth,
            read_bytes: shape.read_bytes,
        })
    }
}

/// A change of a knob, and the figures that led to it.
#[derive(Debug, Serialize)]
struct DecisionReport {
    after_s: f64,
    knob: String,
    from: u64,
    to: u64,
    reads_per_s: u64,
    bytes_per_s: u64,
    mean_latency_us: u64,
    operation_bytes: Option<u64>,
    why: &'static str,
}

impl From<&Decision> for DecisionReport {
    fn from(decision: &Decision) -> DecisionReport {
        DecisionReport {
            after_s: decision.after.as_secs_f64(),
            knob: decision.knob.to_string(),
            from: decision.from,
            to: decision.to,
            reads_per_s: decision.reads_per_second,
            bytes_per_s: decision.bytes_per_second,
            mean_latency_us: decision.latency.as_micros() as u64,
            operation_bytes: Some(decision.operation_bytes).filter(|&bytes| bytes > 0),
            why: decision.reason,
        }
    }
}

/// The route that the bytes took.
#[derive(Debug, Serialize)]
pub struct RouteReport {
    engine: String,
    direct_io: bool,
    reads_once: bool,
    alignment: u32,
    queue_depth: usize,
    read_bytes: usize,
    registered_buffers: bool,
    backing: String,
    devices: Vec<DeviceRouteReport>,
    locality: Vec<String>,
    fallbacks: Vec<FallbackReport>,
}

#[derive(Debug, Serialize)]
struct FallbackReport {
    wanted: String,
    got: String,
    reason: String,
    errno: Option<i32>,
    remedy: String,
}

#[derive(Debug, Serialize)]
struct VerdictReport {
    bottleneck: String,
    share: f64,
    advice: String,
    gain: Option<f64>,
    remedies: Vec<RemedyReport>,
    without: Vec<&'static str>,
    trials: Vec<TrialReport>,
}

#[derive(Debug, Serialize)]
struct RemedyReport {
    what: String,
    gain: Option<f64>,
    samples_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct TrialReport {
    queue_depth: Option<usize>,
    long_reads: bool,
    bytes_per_s: f64,
}

/// What the process had of the processors.
#[derive(Debug, Serialize)]
struct ProcessorsReport {
    used_s: f64,
    available: usize,
    quota: Option<f64>,
    throttled_s: Option<f64>,
    processor_pressure_s: Option<f64>,
    storage_pressure_s: Option<f64>,
    memory_pressure_s: Option<f64>,
}

/// Fractions (0 to 1) of a thread's lifetime.
#[derive(Debug, Serialize)]
struct ThreadReport {
    role: String,
    cpu_s: Option<f64>,
    queued_s: Option<f64>,
    shares: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct Comparison {
    name: &'static str,
    threads: usize,
    samples: u64,
    bytes_per_s: f64,
    cpu_s_per_gb: Option<f64>,
    rate_ratio: Option<f64>,
    cpu_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RoundReport {
    bytes_per_s: f64,
    samples_per_s: f64,
    wall_s: f64,
    cpu_s_per_gb: Option<f64>,
    first_batch_ms: Option<f64>,
    raw_read_bytes_per_s: Option<f64>,
    au_percent: Option<f64>,
    cpu_s: f64,
    epochs: Vec<Epoch>,
    series: Vec<Point>,
}

/// How far the rounds lie apart.
#[derive(Debug, Serialize)]
struct SpreadReport {
    mean_samples_per_s: f64,
    deviation_samples_per_s: Option<f64>,
    outliers: Vec<usize>,
}

impl Report {
    /// The report of the median round.
    pub fn of(outcome: &Outcome<'_>) -> Report {
        let Measured { end, wall, build, first_batch, cpu, snapshot, .. } = &outcome.median().measured;
        let measured = &outcome.median().measured;
        let dataset = &outcome.bench.subject.dataset;
        let (raw, count) = (outcome.raw(), &snapshot.count);
        let Config { batch_size, epochs, seed, rank, world_size, drop_last, .. } = outcome.bench.config;
        let shuffle = outcome.bench.config.shuffle != Shuffle::Off;
        let duration_s = outcome.bench.duration.as_ref().map(Duration::as_secs_f64);
        let ranks_from = outcome.bench.ranks_from.clone();
        let place = |Cursor { epoch, position, .. }| PlaceReport { epoch, position };
        let is_simulated = measured.route.engine == EngineKind::Sim;
        let spread = Spread::of(&outcome.rounds);
        let resumed = outcome.bench.state.as_ref().map(|state| place(state.cursor()));
        Report {
            version: VERSION,
            uringload: env!("CARGO_PKG_VERSION"),
            machine: (!is_simulated).then(|| Machine::here(&**dataset)),
            run: (!is_simulated).then(Command::now),
            dataset: DatasetReport {
                format: dataset.format(),
                samples: dataset.len(),
                bytes: dataset.bytes(),
                files: dataset.files().len(),
                roots: dataset.files().roots().iter().map(|root| root.to_string_lossy().into_owned()).collect(),
            },
            config: ConfigReport {
                batch_size,
                epochs,
                duration_s,
                shuffle,
                seed,
                rank,
                world_size,
                ranks_from,
                drop_last,
                resumed,
                devices: outcome.bench.devices.iter().map(Device::to_string).collect(),
            },
            cold: outcome.bench.is_cold(),
            ended: end.name(),
            samples: count.samples,
            bytes: count.bytes_delivered,
            batches: count.batches,
            samples_skipped: count.samples_skipped,
            digest: DigestReport::of(&measured.digest),
            samples_per_s: measured.samples_per_second(),
            bytes_per_s: measured.bytes_per_second(),
            stored_bytes_per_s: measured.stored_bytes_per_second(),
            wall_s: wall.as_secs_f64(),
            build_ms: millis(*build),
            cpu_s: cpu.as_secs_f64(),
            cpu_s_per_gb: measured.cpu_per_gb(),
            peak_rss_bytes: measured.peak_memory,
            memory_taken_s: snapshot.time(Role::Reactor, Doing::TakeMemory).as_secs_f64(),
            pool_bytes: measured.pool_bytes,
            memory: MemoryReport::of(measured),
            first_batch_ms: first_batch.map(millis),
            batch_wait_ms: Waits::of(&snapshot.batch_wait),
            read_latency_us: Latencies::of(&snapshot.read_latency),
            read_latency_by_size: snapshot.read_latency_by_size.iter().map(SizeReport::from).collect(),
            dearest_samples: measured.dearest.iter().map(|one| DearReport::of(one, &**dataset)).collect(),
            reads: count.reads,
            bytes_read: count.bytes_read,
            short_reads: count.short_reads,
            retries: count.retries,
            read_amplification: snapshot.read_amplification(),
            units_decoded: count.units_decoded,
            samples_decoded: count.samples_decoded,
            cache_hits: count.cache_hits,
            cache_misses: count.cache_misses,
            bytes_cached: count.bytes_cached,
            bytes_decoded: count.bytes_decoded,
            endpoints: snapshot.endpoints.iter().map(EndpointReport::from).collect(),
            in_flight_mean: snapshot.in_flight_mean(),
            in_flight_max: snapshot.in_flight_max,
            depth: snapshot.depth,
            decisions: measured.decisions.iter().map(DecisionReport::from).collect(),
            raw_read_bytes_per_s: outcome.yardstick.rate(),
            raw_read: RawReport::of(&outcome.yardstick),
            share_of_raw: raw.map(|raw| measured.share_of_raw(raw)),
            step_ms: outcome.bench.emulate_step.map(millis),
            au_percent: measured.au_percent,
            mlperf: MlperfReport::of(outcome),
            device: DeviceReport::of(outcome.median(), raw),
            route: RouteReport::from(&measured.route),
            verdict: VerdictReport::of(&measured.verdict(&outcome.evidence()), &outcome.trials),
            ceilings: ceilings::ceilings(outcome),
            threads: threads(snapshot),
            timeline: measured.timeline.report(),
            processors: ProcessorsReport::from(&snapshot.processors),
            comparisons: outcome.compared().into_iter().map(|compared| Comparison::of(compared, measured)).collect(),
            rounds: outcome.rounds.iter().map(RoundReport::of).collect(),
            spread: SpreadReport {
                mean_samples_per_s: spread.mean,
                deviation_samples_per_s: spread.deviation,
                outliers: spread.outliers.iter().map(|round| round + 1).collect(),
            },
        }
    }
}

impl DigestReport {
    fn of(digest: &EpochDigest) -> DigestReport {
        let EpochDigest { epoch, since, delivered, lost, .. } = digest;
        DigestReport {
            epoch: *epoch,
            since: *since,
            samples: delivered.samples,
            sum: format!("{:016x}", delivered.sum),
            lost_samples: lost.samples,
            lost_sum: format!("{:016x}", lost.sum),
        }
    }
}

impl Waits {
    fn of(waits: &Distribution) -> Waits {
        let at = |percent| waits.percentile(percent).map(millis);
        Waits { p50: at(50.0), p90: at(90.0), p99: at(99.0) }
    }
}

impl Latencies {
    fn of(latencies: &Distribution) -> Latencies {
        let at = |percent| latencies.percentile(percent).map(|time| time.as_secs_f64() * 1e6);
        Latencies { p50: at(50.0), p90: at(90.0), p99: at(99.0), p999: at(99.9) }
    }
}

impl From<&Route> for RouteReport {
    fn from(route: &Route) -> RouteReport {
        let fallback = |step: &Fallback| FallbackReport {
            wanted: step.wanted.to_string(),
            got: step.got.to_string(),
            reason: step.reason.to_string(),
            errno: step.errno,
            remedy: step.remedy.to_string(),
        };
        RouteReport {
            engine: route.engine.to_string(),
            direct_io: route.direct_io,
            reads_once: route.reads_once,
            alignment: route.alignment,
            queue_depth: route.queue_depth,
            read_bytes: route.read_bytes,
            registered_buffers: route.registered_buffers,
            backing: route.backing.to_string(),
            devices: route.devices.iter().map(DeviceRouteReport::from).collect(),
            locality: route.locality.iter().map(ToString::to_string).collect(),
            fallbacks: route.fallbacks.iter().map(fallback).collect(),
        }
    }
}

impl VerdictReport {
    fn of(verdict: &Verdict, trials: &[Trial]) -> VerdictReport {
        let remedy = |remedy: &Remedy| RemedyReport {
            what: remedy.what.clone(),
            gain: remedy.gain,
            samples_per_s: remedy.samples_per_second,
        };
        let trial = |trial: &Trial| TrialReport {
            queue_depth: if let Tried::Depth(depth) = trial.tried { Some(depth) } else { None },
            long_reads: trial.tried == Tried::LongReads,
            bytes_per_s: trial.bytes_per_second,
        };
        VerdictReport {
            bottleneck: verdict.bottleneck.to_string(),
            share: verdict.share,
            advice: verdict.advice.clone(),
            gain: verdict.gain,
            remedies: verdict.remedies.iter().map(remedy).collect(),
            without: verdict.without.clone(),
            trials: trials.iter().map(trial).collect(),
        }
    }
}

impl From<&Processors> for ProcessorsReport {
    fn from(processors: &Processors) -> ProcessorsReport {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        ProcessorsReport {
            used_s: processors.used.as_secs_f64(),
            available: processors.available,
            quota: seconds(processors.quota),
            throttled_s: seconds(processors.throttled),
            processor_pressure_s: seconds(processors.processor_pressure),
            storage_pressure_s: seconds(processors.storage_pressure),
            memory_pressure_s: seconds(processors.memory_pressure),
        }
    }
}

impl Comparison {
    fn of(compared: &Compared, measured: &Measured) -> Comparison {
        let ratio = |ours: f64, theirs: f64| (theirs > 0.0).then(|| ours / theirs);
        Comparison {
            name: compared.way.name(),
            threads: compared.threads,
            samples: compared.samples,
            bytes_per_s: compared.bytes_per_second(),
            cpu_s_per_gb: compared.cpu_per_gb(),
            rate_ratio: ratio(measured.bytes_per_second(), compared.bytes_per_second()),
            cpu_ratio: measured.cpu_per_gb().zip(compared.cpu_per_gb()).and_then(|(ours, theirs)| ratio(ours, theirs)),
        }
    }
}

impl RoundReport {
    fn of(round: &Round) -> RoundReport {
        let measured = &round.measured;
        RoundReport {
            bytes_per_s: measured.bytes_per_second(),
            samples_per_s: measured.samples_per_second(),
            wall_s: measured.wall.as_secs_f64(),
            cpu_s_per_gb: measured.cpu_per_gb(),
            first_batch_ms: measured.first_batch.map(millis),
            raw_read_bytes_per_s: round.raw,
            au_percent: measured.au_percent,
            cpu_s: measured.cpu.as_secs_f64(),
            epochs: measured.series.epochs.clone(),
            series: measured.series.points.clone(),
        }
    }
}

fn threads(snapshot: &Snapshot) -> Vec<ThreadReport> {
    let report = |thread: &ThreadSnapshot| {
        let total = thread.total().as_secs_f64();
        let share = |doing: Doing| {
            let share = thread.on(doing).as_secs_f64() / total;
            (share > 0.0).then(|| (doing.to_string().replace(' ', "_"), share.into()))
        };
        ThreadReport {
            role: thread.role.to_string(),
            cpu_s: thread.scheduled.map(|scheduled| scheduled.used.as_secs_f64()),
            queued_s: thread.scheduled.and_then(|scheduled| scheduled.queued).map(|queued| queued.as_secs_f64()),
            shares: Doing::ALL.into_iter().filter_map(share).collect(),
        }
    };
    snapshot.threads.iter().map(report).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
