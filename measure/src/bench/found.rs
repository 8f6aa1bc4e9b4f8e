//! Single reads, single samples, memory, and servers, in the JSON.

use super::run::Measured;
use serde::Serialize;
use std::time::Duration;
use uringload::dataset::Dataset;
use uringload::stats::{DearSample, Held, ReadsOfSize};
use uringload::store;

/// What a server was asked and gave.
#[derive(Debug, Serialize)]
pub struct EndpointReport {
    endpoint: String,
    requests: u64,
    lists: u64,
    hedges: u64,
    hedges_won: u64,
    throttled: u64,
    connections: u64,
    bytes: u64,
}

impl From<&store::Counts> for EndpointReport {
    fn from(counts: &store::Counts) -> EndpointReport {
        let store::Counts { endpoint, requests, lists, hedges, hedges_won, throttled, connections, bytes } =
            counts.clone();
        EndpointReport { endpoint, requests, lists, hedges, hedges_won, throttled, connections, bytes }
    }
}

/// How long the reads of one class of lengths took, in microseconds.
#[derive(Debug, Serialize)]
pub struct SizeReport {
    up_to_bytes: Option<u64>,
    reads: u64,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
}

impl From<&ReadsOfSize> for SizeReport {
    fn from(reads: &ReadsOfSize) -> SizeReport {
        let at = |percent| reads.latency.percentile(percent).map(|time| time.as_secs_f64() * 1e6);
        SizeReport {
            up_to_bytes: reads.up_to_bytes,
            reads: reads.latency.count(),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
        }
    }
}

/// A sample that took long.
#[derive(Debug, Serialize)]
pub struct DearReport {
    index: u64,
    key: String,
    epoch: u64,
    read_ms: f64,
    made_ms: f64,
}

impl DearReport {
    /// Of a sample of this dataset.
    pub fn of(sample: &DearSample, dataset: &dyn Dataset) -> DearReport {
        let mut key = Vec::new();
        dataset.key(sample.id, &mut key);
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        DearReport {
            index: sample.id.0,
            key: String::from_utf8_lossy(&key).into_owned(),
            epoch: sample.epoch,
            read_ms: millis(sample.read),
            made_ms: millis(sample.made),
        }
    }
}

/// Who held the memory for samples.
#[derive(Debug, Serialize)]
pub struct MemoryReport {
    limit_bytes: u64,
    holders: Vec<HolderReport>,
}

#[derive(Debug, Serialize)]
struct HolderReport {
    name: &'static str,
    mean_bytes: u64,
    most_bytes: u64,
}

impl MemoryReport {
    /// Of a run.
    pub fn of(measured: &Measured) -> MemoryReport {
        let holder = |held: &Held| HolderReport {
            name: held.holder.name(),
            mean_bytes: held.mean_bytes,
            most_bytes: held.most_bytes,
        };
        MemoryReport { limit_bytes: measured.pool_bytes, holders: measured.memory.iter().map(holder).collect() }
    }
}
