//! From disk to the device, in turn with the same loader that stops at the host and with the disk alone; and from the
//! page cache, without a disk.

use crate::Setting;
use crate::files::{self, Work};
use crate::machine::{Gpu, Limits, Outcome, median, rate};
use crate::report::{Report, gb};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::Config;
use uringload::config::{Device, EngineChoice, Gds, IoChoice, Shuffle};
use uringload::dataset::Dataset;
use uringload::device::DeviceBatch;
use uringload::inspect::raw;
use uringload::stats::Counts;
use uringload::{Delivered, Loader};
use uringload::{ErrorKind, sampler};

const ROUNDS: usize = 5;
/// The longest and the shortest run of one loader.
const RUN_MOST: Duration = Duration::from_secs(4);
const RUN_LEAST: Duration = Duration::from_millis(500);

/// The result of one run of a loader.
#[derive(Default)]
struct Run {
    rate: f64,
    cpu_s_per_gb: f64,
    build_s: f64,
    first_s: f64,
    /// The copy rate while copies ran, by the device's clock.
    copy_rate: f64,
    batch_s: f64,
    route: String,
}

/// The medians of several runs.
fn told(runs: &[Run]) -> Value {
    let of = |number: fn(&Run) -> f64| median(&runs.iter().map(number).collect::<Vec<_>>());
    json!({
        "bytes_per_s": of(|run| run.rate), "cpu_s_per_gb": of(|run| run.cpu_s_per_gb), "runs": runs.len(),
        "build_s": of(|run| run.build_s), "first_s": of(|run| run.first_s), "copy_bytes_per_s": of(|run| run.copy_rate),
        "batch_s": of(|run| run.batch_s), "route": runs.last().map(|run| &run.route),
        "rates": runs.iter().map(|run| run.rate).collect::<Vec<_>>(),
    })
}

fn rates(runs: &[Run]) -> f64 {
    median(&runs.iter().map(|run| run.rate).collect::<Vec<_>>())
}

/// Takes batches until the epoch or the time is over. Bytes count once they have arrived, which `arrive` waits for.
fn drain<T: Delivered>(
    build: impl FnOnce() -> uringload::Result<Loader<T>>,
    limit: Duration,
    arrive: impl Fn(&T) -> uringload::Result<()>,
) -> Outcome<Run> {
    let asked = Instant::now();
    let mut loader = build()?;
    let (begin, cpu) = (Instant::now(), uringload_sys::system::cpu_time());
    let (mut bytes, mut batches, mut first) = (0, 0_u32, None);
    // Waits for each batch while the next one is in flight.
    let mut last: Option<T> = None;
    let mut arrived = |batch: T| -> Outcome<()> {
        arrive(&batch)?;
        first.get_or_insert_with(|| begin.elapsed());
        bytes += batch.bytes();
        batches += 1;
        Ok(())
    };
    for batch in loader.by_ref() {
        if let Some(last) = last.replace(batch?) {
            arrived(last)?;
        }
        if begin.elapsed() >= limit {
            break;
        }
    }
    if let Some(last) = last {
        arrived(last)?;
    }
    let (took, cpu) = (begin.elapsed(), uringload_sys::system::cpu_time() - cpu);
    let Counts { bytes_copied, copy_nanos, .. } = loader.stats().snapshot().count;
    Ok(Run {
        rate: rate(bytes, took),
        cpu_s_per_gb: cpu.as_secs_f64() / (bytes as f64 / 1e9).max(1e-9),
        build_s: (begin - asked).as_secs_f64(),
        first_s: first.unwrap_or_default().as_secs_f64(),
        copy_rate: rate(bytes_copied, Duration::from_nanos(copy_nanos)),
        batch_s: took.as_secs_f64() / f64::from(batches.max(1)),
        route: loader.route().to_string(),
    })
}

fn on_host(dataset: &Arc<dyn Dataset>, config: &Config, limit: Duration) -> Outcome<Run> {
    drain(|| Loader::builder(Arc::clone(dataset)).config(config.clone()).build(), limit, |_| Ok(()))
}

fn on_gpu(dataset: &Arc<dyn Dataset>, config: &Config, limit: Duration) -> Outcome<Run> {
    to_gpu(dataset, config, limit, Gds::Off)
}

fn to_gpu(dataset: &Arc<dyn Dataset>, config: &Config, limit: Duration, gds: Gds) -> Outcome<Run> {
    let device = Device::cuda(0).gds(gds);
    let build = || Loader::builder(Arc::clone(dataset)).config(config.clone()).device(device).build();
    drain(build, limit, DeviceBatch::wait)
}

/// Why files cannot be read straight into the device's memory; `None` if they can.
fn no_gds(dataset: &Arc<dyn Dataset>, config: &Config) -> Option<String> {
    let device = Device::cuda(0).gds(Gds::On);
    let built = Loader::builder(Arc::clone(dataset)).config(config.clone()).device(device).build();
    built.err().map(|error| error.to_string())
}

/// Empties the page cache; false if this process may not.
fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3\n").is_ok()
}

/// A configuration that reads past the page cache if the files allow it.
fn cold(work: &Work) -> Config {
    let (batch_size, shuffle) = (work.batch_size, Shuffle::Full);
    let config = Config { batch_size, shuffle, io: IoChoice::Direct, ..Config::default() };
    let built = Loader::builder(Arc::clone(&work.dataset)).config(config.clone()).build();
    match built {
        Err(error) if error.kind() == ErrorKind::Unavailable => Config { io: IoChoice::Auto, ..config },
        _ => config,
    }
}

pub fn run(_: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    let begin = Instant::now();
    let works = files::works(&setting.folder, setting.is_tiny)?;
    let made = begin.elapsed();
    let is_dropped = drop_caches();
    let left = limits.all().saturating_sub(made);
    let limit = (left / (works.len() * ROUNDS * 5) as u32).clamp(RUN_LEAST, RUN_MOST);
    let mut numbers = Map::new();
    numbers.insert("made_s".into(), json!(made.as_secs_f64()));
    numbers.insert("caches_dropped".into(), json!(is_dropped));
    for work in &works {
        let part = Limits::new(left / works.len() as u32);
        numbers.insert(work.name.into(), one(work, limit, &part, report)?);
    }
    report.put("works", numbers.into());
    Ok(())
}

fn one(work: &Work, limit: Duration, limits: &Limits, report: &mut Report) -> Outcome<Value> {
    let config = cold(work);
    let sampler = sampler::for_dataset(&*work.dataset, config.shuffle, config.seed)?;
    let (mut disk, mut host, mut gpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut straight, mut auto) = (Vec::new(), Vec::new());
    let no_gds = no_gds(&work.dataset, &config);
    for round in 0.. {
        if !limits.goes_on(round, 1, ROUNDS) {
            break;
        }
        // Every second round in reverse order, so that the drift of a shared disk affects all ways alike.
        let mut order = [0, 1, 2, 3, 4];
        if round % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            drop_caches();
            match kind {
                0 => disk.push(raw::measure(&work.dataset, &config, &sampler, limit, || false)?.bytes_per_second()),
                1 => host.push(on_host(&work.dataset, &config, limit)?),
                2 => auto.push(to_gpu(&work.dataset, &config, limit, Gds::Auto)?),
                3 if no_gds.is_some() => {}
                3 => straight.push(to_gpu(&work.dataset, &config, limit, Gds::On)?),
                _ => gpu.push(on_gpu(&work.dataset, &config, limit)?),
            }
        }
    }
    let (disk, to_host, to_gpu) = (median(&disk), rates(&host), rates(&gpu));
    let name = work.name;
    report.tell(format!("{name}: disk alone; to the host"), format!("{}; {}", gb(disk), gb(to_host)));
    let bound = disk.min(report.h2d_peak.unwrap_or(f64::INFINITY));
    let measured = format!("{} = {:.3}", gb(to_gpu), to_gpu / bound);
    let what = format!("{name}: disk to GPU, of min(disk alone, H2D)");
    report.judge(&what, measured, ">= 0.97", to_gpu >= 0.97 * bound);
    let cpu = median(&gpu.iter().map(|run| run.cpu_s_per_gb).collect::<Vec<_>>());
    let what = format!("{name}: host CPU seconds per GB delivered");
    report.judge(&what, format!("{cpu:.4}"), "<= 0.05", cpu <= 0.05);
    let of_pinned = rates(&auto) / to_gpu;
    report.judge(
        &format!("{name}: GDS auto, of the pinned path"),
        format!("{of_pinned:.3}"),
        ">= 0.98",
        of_pinned >= 0.98,
    );
    let what = format!("{name}: straight from files (GDS on), of the pinned path; its CPU");
    match &no_gds {
        Some(why) => report.tell(what, format!("not available: {why}")),
        None => {
            let cheaper = told(&straight)["cpu_s_per_gb"].as_f64().unwrap_or(f64::NAN) / cpu;
            report.tell(what, format!("{:.3}; {cheaper:.3}", rates(&straight) / to_gpu));
        }
    }
    Ok(json!({
        "disk_bytes_per_s": disk, "host": told(&host), "gpu": told(&gpu), "of_bound": to_gpu / bound,
        "gds_auto": told(&auto), "gds_on": told(&straight), "no_gds": no_gds,
    }))
}

/// Images in the page cache: what remains is memory, the processor and the bus to the device. Beside it what reads of
/// the same places take alone.
pub fn cached(_: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    files::works(&setting.folder, setting.is_tiny)?;
    let dataset = files::records(&setting.folder)?;
    warm(&setting.folder.join("records/records.bin"))?;
    let limit = (limits.all() / (6 * ROUNDS as u32)).clamp(RUN_LEAST, RUN_MOST);
    let mut numbers = Map::new();
    let mut best: Option<(f64, f64)> = None;
    let ways = [("auto", EngineChoice::Auto, None), ("8 threads", EngineChoice::Threads, Some(8))];
    for (name, engine, io_threads) in ways {
        let shuffle = Shuffle::Full;
        let io = IoChoice::Buffered;
        let config = Config { batch_size: 256, shuffle, io, engine, io_threads, ..Config::default() };
        let sampler = sampler::for_dataset(&*dataset, shuffle, config.seed)?;
        let (mut alone, mut host, mut gpu) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            if !limits.goes_on(round, 1, ROUNDS) {
                break;
            }
            alone.push(raw::measure(&dataset, &config, &sampler, limit, || false)?.bytes_per_second());
            host.push(on_host(&dataset, &config, limit)?);
            gpu.push(on_gpu(&dataset, &config, limit)?);
        }
        let (alone, to_host, to_gpu) = (median(&alone), rates(&host), rates(&gpu));
        let copied = median(&gpu.iter().map(|run| run.copy_rate).collect::<Vec<_>>());
        let measured = format!("{}; {}; {} = {:.2}", gb(alone), gb(to_host), gb(to_gpu), to_gpu / alone);
        report.tell(format!("page cache, {name}: alone; to the host; to the GPU, of alone"), measured);
        let told = json!({"alone_bytes_per_s": alone, "host": told(&host), "gpu": told(&gpu)});
        numbers.insert(name.into(), told);
        if best.is_none_or(|(rate, _)| to_gpu > rate) {
            best = Some((to_gpu, copied));
        }
    }
    report.put("cached", numbers.into());
    if let (Some((_, copied)), Some(peak)) = (best, report.h2d_peak) {
        let measured = format!("{} = {:.3}", gb(copied), copied / peak);
        report.judge("H2D in a loader while it copies, of the peak", measured, ">= 0.98", copied >= 0.98 * peak);
    }
    Ok(())
}

/// Reads a file into the page cache.
pub fn warm(path: &Path) -> Outcome<()> {
    std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())?;
    Ok(())
}
