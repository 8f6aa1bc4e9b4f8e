//! The device by itself: short and long reads at random places of the dataset's largest files, few and many at a time.

use super::AFTERWARDS;
use super::trial::Bed;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use uringload::config::Config;
use uringload::dataset::{Dataset, FileId, Ranges};
use uringload::inspect::raw;
use uringload::sampler::Sampler;

/// Reads in flight, and lengths of reads.
const DEPTHS: [usize; 4] = [1, 16, 64, 256];
const READ_BYTES: [u64; 2] = [4 << 10, 1 << 20];

/// Files that are read, and places in them.
const FILES: usize = 64;
const PLACES: u64 = 1 << 15;

/// Places begin at multiples of this many bytes.
const ALIGNMENT: u64 = 4096;

/// What one depth gave at one length.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Bytes of a read.
    pub read_bytes: u64,
    /// Reads in flight.
    pub depth: usize,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean time of a read, by Little's law: reads in flight over reads a second.
    pub latency_us: f64,
}

/// The device of a dataset. Points of a shape that cannot be read are missing.
pub fn probe(bed: &Bed<'_>, config: &Config, time: Duration) -> Vec<Point> {
    let mut points = Vec::new();
    for wanted in READ_BYTES {
        let Some((dataset, read_bytes)) = places(&*bed.subject().dataset, wanted) else { continue };
        if points.iter().any(|point: &Point| point.read_bytes == read_bytes) {
            continue;
        }
        let Ok(sampler) = uringload::sampler::for_dataset(&*dataset, Default::default(), 0) else { continue };
        for depth in DEPTHS {
            if !bed.has_time(AFTERWARDS) {
                return points;
            }
            points.extend(point(bed, (&dataset, &sampler), config, (depth, read_bytes), time));
        }
    }
    points
}

fn point(
    bed: &Bed<'_>,
    (dataset, sampler): (&Arc<dyn Dataset>, &Arc<dyn Sampler>),
    config: &Config,
    (depth, read_bytes): (usize, u64),
    time: Duration,
) -> Option<Point> {
    let config = Config {
        engine: config.engine,
        io: config.io,
        io_threads: config.io_threads.map(|_| depth),
        queue_depth: Some(depth),
        read_size: usize::try_from(read_bytes).ok(),
        coalesce_gap: Some(0),
        operation_bytes: Some(0),
        ..Config::default()
    };
    let is_over = || bed.caller.is_set();
    let rate = raw::measure(dataset, &config, sampler, time, is_over).ok()?.bytes_per_second();
    let reads_per_s = rate / read_bytes as f64;
    (rate > 0.0).then(|| Point {
        read_bytes,
        depth,
        reads_per_s,
        bytes_per_s: rate,
        latency_us: 1e6 * depth as f64 / reads_per_s,
    })
}

/// Random places in the largest files, of a length that they have.
fn places(dataset: &dyn Dataset, wanted: u64) -> Option<(Arc<dyn Dataset>, u64)> {
    let files = dataset.files();
    let mut largest: Vec<u32> = (0..files.len() as u32).collect();
    largest.sort_by_key(|&file| std::cmp::Reverse(files.size(FileId(file))));
    largest.truncate(FILES);
    let most = largest.first().map_or(0, |&file| files.size(FileId(file)));
    let length = wanted.min(most / ALIGNMENT * ALIGNMENT).max(most.min(ALIGNMENT));
    largest.retain(|&file| files.size(FileId(file)) >= length);
    if length == 0 || largest.is_empty() {
        return None;
    }
    let paths: Vec<PathBuf> = largest.iter().map(|&file| files.path(FileId(file))).collect();
    let (mut which, mut offsets) = (Vec::new(), Vec::new());
    for place in 0..PLACES {
        // A multiplicative hash: places that no disk expects.
        let random = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let file = (random >> 48) as usize % largest.len();
        let starts = (files.size(FileId(largest[file])) - length) / ALIGNMENT + 1;
        which.push(file as u32);
        offsets.push((random & 0xffff_ffff_ffff) % starts * ALIGNMENT);
    }
    let lengths = vec![length; which.len()];
    let ranges = Ranges::new(&paths, which, offsets, lengths).ok()?;
    Some((Arc::new(ranges), length))
}
