//! A loader's measurements of itself, as dictionaries.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::time::Duration;
use uringload::config::Route;
use uringload::stats::Doing;
use uringload::stats::{Decision, Distribution, Processors, Snapshot};

/// Counters, rates, times and threads.
pub(crate) fn dictionary<'py>(
    py: Python<'py>,
    snapshot: &Snapshot,
    decisions: &[Decision],
) -> PyResult<Bound<'py, PyDict>> {
    let stats = PyDict::new(py);
    let count = &snapshot.count;
    stats.set_item("elapsed_s", snapshot.elapsed.as_secs_f64())?;
    stats.set_item("first_batch_s", snapshot.first_batch.map(|time| time.as_secs_f64()))?;
    for (name, number) in [
        ("batches", count.batches),
        ("batches_ready", count.batches_ready),
        ("samples", count.samples),
        ("samples_failed", count.samples_failed),
        ("samples_skipped", count.samples_skipped),
        ("samples_replaced", count.samples_replaced),
        ("samples_truncated", count.samples_truncated),
        ("bytes_delivered", count.bytes_delivered),
        ("bytes_wanted", count.bytes_wanted),
        ("bytes_read", count.bytes_read),
        ("units_decoded", count.units_decoded),
        ("samples_decoded", count.samples_decoded),
        ("samples_decoded_on_device", count.samples_decoded_on_device),
        ("cache_hits", count.cache_hits),
        ("cache_misses", count.cache_misses),
        ("bytes_cached", count.bytes_cached),
        ("bytes_decoded", count.bytes_decoded),
        ("samples_transformed", count.samples_transformed),
    ] {
        stats.set_item(name, number)?;
    }
    stats.set_item("transform_cpu_s", Duration::from_nanos(count.transform_cpu_nanos).as_secs_f64())?;
    stats.set_item("samples_per_s", snapshot.samples_per_second())?;
    stats.set_item("bytes_per_s", snapshot.bytes_per_second())?;
    stats.set_item("read_amplification", snapshot.read_amplification())?;
    stats.set_item("outage", snapshot.outage.as_ref().map(ToString::to_string))?;
    stats
        .set_item("endpoints", snapshot.endpoints.iter().map(|one| endpoint(py, one)).collect::<PyResult<Vec<_>>>()?)?;
    stats.set_item("reads_in_flight", snapshot.in_flight)?;
    stats.set_item("reads_in_flight_mean", snapshot.in_flight_mean())?;
    stats.set_item("reads_in_flight_max", snapshot.in_flight_max)?;
    stats.set_item("depth", snapshot.depth)?;
    stats.set_item("decisions", decisions.iter().map(|one| decision(py, one)).collect::<PyResult<Vec<_>>>()?)?;
    stats.set_item("batch_wait", distribution(py, &snapshot.batch_wait)?)?;
    stats.set_item("read_latency", distribution(py, &snapshot.read_latency)?)?;
    let threads = PyList::empty(py);
    for thread in &snapshot.threads {
        let times = PyDict::new(py);
        for doing in Doing::ALL {
            let spent = thread.on(doing);
            if !spent.is_zero() {
                times.set_item(doing.to_string(), spent.as_secs_f64())?;
            }
        }
        threads.append((format!("{:?}", thread.role).to_lowercase(), times))?;
    }
    stats.set_item("threads", threads)?;
    stats.set_item("processors", processors(py, &snapshot.processors)?)?;
    Ok(stats)
}

/// What a server of object stores was asked and gave.
fn endpoint<'py>(py: Python<'py>, counts: &uringload::store::Counts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("endpoint", &counts.endpoint)?;
    for (name, number) in [
        ("requests", counts.requests),
        ("lists", counts.lists),
        ("hedges", counts.hedges),
        ("hedges_won", counts.hedges_won),
        ("throttled", counts.throttled),
        ("connections", counts.connections),
        ("bytes", counts.bytes),
    ] {
        dict.set_item(name, number)?;
    }
    Ok(dict)
}

/// The processor time of the process; None if it cannot be read.
fn processors<'py>(py: Python<'py>, processors: &Processors) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    dictionary.set_item("used_s", processors.used.as_secs_f64())?;
    dictionary.set_item("available", processors.available)?;
    for (name, time) in [
        ("quota", processors.quota),
        ("throttled_s", processors.throttled),
        ("processor_pressure_s", processors.processor_pressure),
        ("storage_pressure_s", processors.storage_pressure),
        ("memory_pressure_s", processors.memory_pressure),
    ] {
        dictionary.set_item(name, time.map(|time| time.as_secs_f64()))?;
    }
    Ok(dictionary)
}

/// A change of a knob, with the figures that led to it.
fn decision<'py>(py: Python<'py>, decision: &Decision) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    dictionary.set_item("after_s", decision.after.as_secs_f64())?;
    dictionary.set_item("knob", decision.knob.to_string())?;
    dictionary.set_item("from", decision.from)?;
    dictionary.set_item("to", decision.to)?;
    dictionary.set_item("reads_per_s", decision.reads_per_second)?;
    dictionary.set_item("bytes_per_s", decision.bytes_per_second)?;
    dictionary.set_item("mean_latency_s", decision.latency.as_secs_f64())?;
    dictionary.set_item("operation_bytes", decision.operation_bytes)?;
    dictionary.set_item("why", decision.reason)?;
    Ok(dictionary)
}

/// Times in seconds.
fn distribution<'py>(py: Python<'py>, times: &Distribution) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    dictionary.set_item("count", times.count())?;
    dictionary.set_item("mean_s", seconds(times.mean()))?;
    for (name, percent) in [("p50_s", 50.0), ("p90_s", 90.0), ("p99_s", 99.0), ("max_s", 100.0)] {
        dictionary.set_item(name, seconds(times.percentile(percent)))?;
    }
    Ok(dictionary)
}

/// How the bytes are read.
pub(crate) fn route<'py>(py: Python<'py>, route: &Route) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    dictionary.set_item("engine", route.engine.to_string())?;
    dictionary.set_item("direct_io", route.direct_io)?;
    dictionary.set_item("reads_once", route.reads_once)?;
    dictionary.set_item("alignment", route.alignment)?;
    dictionary.set_item("queue_depth", route.queue_depth)?;
    dictionary.set_item("read_bytes", route.read_bytes)?;
    dictionary.set_item("registered_buffers", route.registered_buffers)?;
    dictionary.set_item("backing", route.backing.as_ref())?;
    dictionary.set_item("pinned", route.pinned)?;
    let locality: Vec<&str> = route.locality.iter().map(AsRef::as_ref).collect();
    dictionary.set_item("locality", locality)?;
    let devices: Vec<String> = route.devices.iter().map(ToString::to_string).collect();
    dictionary.set_item("devices", devices)?;
    let fallbacks: Vec<String> = route.fallbacks.iter().map(ToString::to_string).collect();
    dictionary.set_item("fallbacks", fallbacks)?;
    dictionary.set_item("text", route.to_string())?;
    Ok(dictionary)
}
