//! What a bench on GPUs reports in addition, for programs and for humans.

use super::Round;
use super::run::rate;
use super::trainer::Steps;
use super::watch::Seen;
use crate::text::{bytes, count, time};
use serde::Serialize;
use std::time::Duration;
use uringload::config::{DeviceRoute, NvjpegRoute};
use uringload::inspect::GdsRoute;
use uringload::stats::{Doing, Role};
use uringload_sys::nvml::Link;

/// The object `device` of the JSON.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    h2d_bytes_per_s: Option<f64>,
    pageable_bytes_per_s: Option<f64>,
    share_of_h2d: Option<f64>,
    share_of_limit: Option<f64>,
    share_of_pageable: Option<f64>,
    bytes_copied: u64,
    copies: u64,
    copy_busy: f64,
    kernel_busy: f64,
    consumer_wait: f64,
    steps: Option<StepsReport>,
    nvml: Option<Vec<NvmlReport>>,
    nvml_error: Option<String>,
}

/// Steps that ran as kernels.
#[derive(Debug, Serialize)]
struct StepsReport {
    count: u64,
    mean_ms: Option<f64>,
    gpu_busy: Option<f64>,
    gap_ms: GapReport,
}

/// Where the time between steps went, over all gaps.
#[derive(Debug, Serialize)]
struct GapReport {
    loader: f64,
    copy: f64,
    nothing: f64,
    longest: f64,
}

#[derive(Debug, Serialize)]
struct NvmlReport {
    pci: String,
    samples: u32,
    utilization: f64,
    pcie_rx_bytes_per_s: Option<f64>,
    pcie_rx_max_bytes_per_s: Option<f64>,
    link: Option<LinkReport>,
}

#[derive(Debug, Serialize)]
struct LinkReport {
    generation: u32,
    width: u32,
    generation_max: u32,
    width_max: u32,
}

/// A GPU of the route in the JSON.
#[derive(Debug, Serialize)]
pub struct DeviceRouteReport {
    index: u32,
    name: String,
    pci: String,
    numa_node: Option<u32>,
    pinned: bool,
    flags: bool,
    memory_bytes: u64,
    gds: Option<GdsReport>,
    nvjpeg: Option<NvjpegReport>,
}

/// How a GPU decodes JPEGs.
#[derive(Debug, Serialize)]
struct NvjpegReport {
    version: String,
    share: f64,
    /// `null` where its multiprocessors decode.
    engines: Option<u32>,
    cores_per_engine: Option<u32>,
}

/// How files are read directly into a GPU's memory.
#[derive(Debug, Serialize)]
struct GdsReport {
    way: String,
    version: Option<String>,
    memory_bytes: u64,
    registered_bytes: u64,
    trial: Option<TrialReport>,
}

/// What a trial showed for both ways of reading.
#[derive(Debug, Serialize)]
struct TrialReport {
    gds_bytes_per_s: f64,
    gds_cpu_s_per_gb: f64,
    pinned_bytes_per_s: f64,
    pinned_cpu_s_per_gb: f64,
}

impl GdsReport {
    fn of(route: GdsRoute) -> GdsReport {
        let GdsRoute { way, version, memory_bytes, registered_bytes, trial, .. } = route;
        let trial = trial.map(|[gds, pinned]| TrialReport {
            gds_bytes_per_s: gds.rate(),
            gds_cpu_s_per_gb: gds.cpu_per_gb(),
            pinned_bytes_per_s: pinned.rate(),
            pinned_cpu_s_per_gb: pinned.cpu_per_gb(),
        });
        GdsReport { way, version, memory_bytes, registered_bytes, trial }
    }
}

impl From<&DeviceRoute> for DeviceRouteReport {
    fn from(route: &DeviceRoute) -> DeviceRouteReport {
        let DeviceRoute { index, name, pci, numa_node, pinned, flags, memory_bytes, gds, nvjpeg, .. } = route.clone();
        let gds = gds.map(GdsReport::of);
        let nvjpeg = nvjpeg.map(|NvjpegRoute { version, share, engines, .. }| {
            let (engines, cores_per_engine) = engines.unzip();
            NvjpegReport { version, share, engines, cores_per_engine }
        });
        DeviceRouteReport { index, name, pci, numa_node, pinned, flags, memory_bytes, gds, nvjpeg }
    }
}

/// The figures that both the JSON and the table use.
struct Figures {
    pinned: Option<f64>,
    pageable: Option<f64>,
    /// Bytes per second that reached the devices, including surplus bytes that were read.
    copied: f64,
    /// The same without the surplus: what is compared with the disk.
    rate: f64,
    copy_busy: f64,
    kernel_busy: f64,
    consumer_wait: f64,
}

impl Figures {
    /// `None` if batches were on the host.
    fn of(round: &Round) -> Option<Figures> {
        let measured = &round.measured;
        let devices = measured.route.devices.len();
        let counts = &measured.snapshot.count;
        let wall = measured.wall.as_secs_f64().max(1e-9) * devices as f64;
        let busy = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64() / wall;
        (devices > 0).then(|| Figures {
            pinned: round.bus.map(|bus| bus.pinned.bytes_per_second()),
            pageable: round.bus.map(|bus| bus.pageable.bytes_per_second()),
            copied: rate(counts.bytes_copied, measured.wall),
            rate: rate(counts.bytes_stored(), measured.wall),
            copy_busy: busy(counts.copy_nanos),
            kernel_busy: busy(counts.kernel_nanos),
            consumer_wait: measured.snapshot.share(Role::Consumer, Doing::WaitBatch).unwrap_or(0.0),
        })
    }

    /// What disk and bus allow: the lesser of the two.
    fn limit(&self, raw: Option<f64>) -> Option<f64> {
        Some(raw?.min(self.pinned?)).filter(|&limit| limit > 0.0)
    }
}

fn share(of: f64, limit: Option<f64>) -> Option<f64> {
    limit.filter(|&limit| limit > 0.0).map(|limit| of / limit)
}

impl DeviceReport {
    /// `None` if batches were on the host. `raw` is the disk's rate in a raw read.
    pub fn of(round: &Round, raw: Option<f64>) -> Option<DeviceReport> {
        let figures = Figures::of(round)?;
        let (measured, counts) = (&round.measured, &round.measured.snapshot.count);
        let (nvml, nvml_error) = match measured.watched.clone() {
            Some(Ok(seen)) => (Some(seen.iter().map(NvmlReport::of).collect()), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Some(DeviceReport {
            h2d_bytes_per_s: figures.pinned,
            pageable_bytes_per_s: figures.pageable,
            share_of_h2d: share(figures.copied, figures.pinned),
            share_of_limit: share(figures.rate, figures.limit(raw)),
            share_of_pageable: share(figures.copied, figures.pageable),
            bytes_copied: counts.bytes_copied,
            copies: counts.copies,
            copy_busy: figures.copy_busy,
            kernel_busy: figures.kernel_busy,
            consumer_wait: figures.consumer_wait,
            steps: measured.steps.as_ref().map(StepsReport::of),
            nvml,
            nvml_error,
        })
    }
}

impl StepsReport {
    fn of(steps: &Steps) -> StepsReport {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        StepsReport {
            count: steps.count,
            mean_ms: steps.mean().map(millis),
            gpu_busy: steps.busy_share(),
            gap_ms: GapReport {
                loader: millis(steps.for_loader),
                copy: millis(steps.for_copy),
                nothing: millis(steps.for_nothing),
                longest: millis(steps.longest),
            },
        }
    }
}

impl NvmlReport {
    fn of(seen: &Seen) -> NvmlReport {
        let link = |Link { generation, width, generation_max, width_max }| LinkReport {
            generation,
            width,
            generation_max,
            width_max,
        };
        NvmlReport {
            pci: seen.pci.clone(),
            samples: seen.samples,
            utilization: seen.busy,
            pcie_rx_bytes_per_s: seen.received.map(|(mean, _)| mean),
            pcie_rx_max_bytes_per_s: seen.received.map(|(_, most)| most),
            link: seen.link.map(link),
        }
    }
}

/// The rows of the table: name and value.
pub fn rows(round: &Round, raw: Option<f64>) -> Vec<(&'static str, String)> {
    let Some(figures) = Figures::of(round) else { return Vec::new() };
    let (measured, counts) = (&round.measured, &round.measured.snapshot.count);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut rows = Vec::new();
    if let Some(share) = share(figures.rate, figures.limit(raw)) {
        rows.push(("of the limit", format!("{:<12} of the lesser of disk and copy engine", percent(share))));
    }
    for (name, limit, what) in [
        ("of the bus", figures.pinned, "plain copies of pinned memory"),
        ("of pageable", figures.pageable, "plain copies of any memory"),
    ] {
        if let Some((share, limit)) = share(figures.copied, limit).zip(limit) {
            rows.push((name, format!("{:<12} of {}/s by {what} in the same run", percent(share), bytes(limit))));
        }
    }
    let copied = format!("{} in {} copies", bytes(counts.bytes_copied as f64), count(counts.copies));
    rows.push(("copy busy", format!("{:<12} {copied}", percent(figures.copy_busy))));
    rows.push(("kernel busy", format!("{:<12} making columns", percent(figures.kernel_busy))));
    rows.push(("consumer", format!("{:<12} of its time waiting for batches", percent(figures.consumer_wait))));
    if let Some(steps) = &measured.steps {
        let mean = time(steps.mean().unwrap_or_default());
        let busy = percent(steps.busy_share().unwrap_or(0.0));
        rows.push(("GPU busy", format!("{busy:<12} after the first batch, in {} steps of {mean}", count(steps.count))));
        let [loader, copy, nothing, longest] =
            [steps.for_loader, steps.for_copy, steps.for_nothing, steps.longest].map(time);
        let gaps = format!("{loader} for the loader, {copy} for copies, {nothing} for nothing; the longest {longest}");
        rows.push(("gaps waited", gaps));
    }
    match &measured.watched {
        Some(Ok(seen)) => rows.extend(seen.iter().filter(|seen| seen.samples > 0).map(|seen| ("NVML", watched(seen)))),
        Some(Err(error)) => rows.push(("NVML", format!("not available: {error}"))),
        None => {}
    }
    rows
}

fn watched(seen: &Seen) -> String {
    let mut line = format!("{:<12} busy", format!("{:.0} %", 100.0 * seen.busy));
    if let Some((mean, most)) = seen.received {
        line += &format!(", {}/s over PCIe, at most {}/s", bytes(mean), bytes(most));
    }
    if let Some(Link { generation, width, generation_max, width_max }) = seen.link {
        line += &format!("; a link of generation {generation} with {width} lanes");
        if (generation, width) != (generation_max, width_max) {
            line += &format!(" (it could have generation {generation_max} with {width_max})");
        }
    }
    line
}
