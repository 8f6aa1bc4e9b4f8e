//! The fallback ladder: chooses the engine and the I/O path for a dataset on this machine, and records every step down
//! from the best choice with its reason and remedy.

use super::beside::Beside;
use super::cached::{self, Cached};
use super::files::Files;
use super::pread::Pread;
use super::remote::{Remote, has_only_objects};
use super::sim::{Faults, Sim};
use super::threads::{self, Reader, Threads};
use super::uring::Uring;
use super::way::{self, Way};
use super::{ABANDONED_MAX, Engine, Width};
use crate::config::{Cache, Cause, Config, DiskCache, EngineChoice, EngineKind, Fallback, IoChoice, Route};
use crate::dataset::{self, Dataset, FileTable, Options};
use crate::patience::Patience;
use crate::plan::Joining;
use crate::segments::{LOCK, PAGE_BYTES, SEGMENT_BYTES};
use crate::stats::Stats;
use crate::{Error, ErrorKind, Result};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use uringload_sys::block::BlockDevice;
use uringload_sys::ring::{Feature, Ring, RingOptions};

/// Longest read, unless the device asks for less. One core reads most with registered reads of 512 KiB. The kernel
/// splits longer ones, on raw devices in a worker thread.
const READ_BYTES: usize = 512 << 10;

/// Reads in flight at most if the device does not report its limits (network and stacked file systems).
const DEPTH_UNKNOWN: usize = 256;

/// Reads in flight of a ring at first: saturates every NVMe and virtio disk that was measured at 128 KiB.
const DEPTH_START: usize = 64;

/// Largest number of reads in flight that is ever useful to one ring.
const DEPTH_MAX: usize = 512;

/// Threads of the `threads` engine when reads wait for a device, at first and at most. Each has one read in flight.
const WAITING_THREADS: usize = 16;
const WAITING_THREADS_MAX: usize = 256;

/// The same for objects of a store. A stack that waits takes little.
const FAR_THREADS: usize = 32;
const FAR_THREADS_MAX: usize = 512;

/// Longest read of an object: as long as the parts in which many were written.
const FAR_READ_BYTES: usize = 8 << 20;

/// Reads of a dataset with a cache have a length that suits every disk.
const ALIGNMENT: usize = 4096;

/// Limit of a ring's kernel worker threads, which open names that are not in the dentry cache. A read that would block
/// the submitting thread also needs one.
const RING_WORKERS: u32 = 4;

/// How long a ring waits for more completions once it has one.
const RING_BATCH_WAIT: Duration = Duration::from_micros(200);

/// An open engine, and the route that led to it.
pub(crate) struct Opened {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) route: Route,
    pub(crate) width: Width,
}

/// Opens the engine that `config` asks for, or else the best one available. Call it on the thread that will use the
/// engine.
///
/// # Errors
/// `Unavailable` if `config` names something that is not available.
pub(crate) fn open(
    config: &Config,
    dataset: &Arc<dyn Dataset>,
    stats: &Arc<Stats>,
    patience: &Patience,
) -> Result<Opened> {
    if config.engine == EngineChoice::Sim {
        return Ok(simulated(config, dataset));
    }
    if dataset.files().has_objects() {
        return open_far(config, dataset, stats, patience);
    }
    let mut opened = open_files(config, (dataset, dataset), stats, patience)?;
    if config.cache_disk.is_some() {
        let reason = "files of folders are read where they are: only objects of a store are kept";
        opened.route.fallbacks.push(cached::none(reason, "harmless; put the folders on a fast disk"));
    }
    Ok(opened)
}

/// The engine of local files. How to read them is judged by the files of `seen`.
fn open_files(
    config: &Config,
    (dataset, seen): (&Arc<dyn Dataset>, &Arc<dyn Dataset>),
    stats: &Arc<Stats>,
    patience: &Patience,
) -> Result<Opened> {
    let way = way::choose(config, seen, patience)?;
    let files = Files::new(Arc::clone(dataset), way.direct, way.blocking, patience)?;
    let files = Arc::new(files.checked_every(config.check_every));
    let mut route = Route {
        engine: EngineKind::Uring,
        direct_io: way.direct,
        reads_once: false,
        alignment: way.alignment,
        queue_depth: depth(config, &way),
        read_bytes: read_bytes(config, &way),
        border: 0,
        registered_buffers: false,
        backing: "".into(),
        pinned: false,
        devices: Vec::new(),
        locality: Vec::new(),
        fallbacks: way.fallbacks.clone(),
    };
    // A buffered read through a ring copies on the one thread that owns the ring (or in kernel workers). Threads copy
    // on every processor.
    let ring_suits = way.direct || config.engine == EngineChoice::Uring;
    if config.engine != EngineChoice::Threads && ring_suits && way.fuse {
        let step = Fallback::new(Cause::RingOnFuse, "pread threads", None);
        if config.engine == EngineChoice::Uring {
            return Err(Error::new(ErrorKind::Unavailable, format!("engine uring was asked for, but {}", step.reason))
                .with_remedy("go without engine=uring (--engine uring), or put the data on a local file system"));
        }
        route.fallbacks.push(step);
    } else if config.engine != EngineChoice::Threads && ring_suits {
        match open_ring(&mut route, &files, (spare(config), way.blocking)) {
            Ok(engine) => {
                let (most, fixed) = (route.queue_depth, config.queue_depth.is_some());
                return Ok(Opened { engine, route, width: Width { start: DEPTH_START, most, fixed } });
            }
            Err(error) if config.engine == EngineChoice::Uring => return Err(unavailable(&error)),
            Err(error) => route.fallbacks.push(Fallback::new(Cause::RingSetup, "pread threads", Some(&error))),
        }
    }
    // Data in the page cache stays there, and is not read from the disk.
    if !way.direct && !way.resident && (config.read_once || config.cache == Cache::Memory) {
        match way::reads_once(seen, patience) {
            Ok(()) => route.reads_once = true,
            Err(error) => route.fallbacks.push(Fallback::new(Cause::ReadOnce, "the page cache", Some(&error))),
        }
        files.read_once(route.reads_once);
    }
    // If reads are copies, use one thread per processor, including the reactor's own. If reads wait, use many threads.
    // A thread that is itself inside a read cannot enforce a deadline.
    let helps = way.resident && config.io_threads.is_none() && config.timeout.is_none();
    route.engine = EngineKind::Threads;
    let most = (WAITING_THREADS, WAITING_THREADS_MAX);
    let (engine, route, width) = by_threads(Pread::new(files), most, helps, (config, stats), route)?;
    Ok(Opened { engine: Box::new(engine), route, width })
}

/// Threads that read with `reader`: `start` of them at first, and up to `most` if each waits in its reads.
fn by_threads<R: Reader>(
    reader: R,
    (start, most): (usize, usize),
    helps: bool,
    (config, stats): (&Config, &Arc<Stats>),
    mut route: Route,
) -> Result<(Threads<R>, Route, Width)> {
    // A thread holds a descriptor while it reads.
    let most = most.min(Files::open_at_once());
    let waiting = config.queue_depth.map_or(most, |depth| depth.clamp(1, most));
    let threads = config.io_threads.unwrap_or(if helps { processors() - 1 } else { waiting });
    let fixed = helps || config.io_threads.is_some() || config.queue_depth.is_some();
    let most = threads + usize::from(helps);
    let width = Width { start, most: most.max(1), fixed };
    stats.set_threads_fixed(config.io_threads.is_some());
    // Reads that wait for a thread are not in flight. Where few were asked for, few wait: a read has its deadline.
    let depth = match config.queue_depth {
        Some(asked) if asked < width.most => asked.max(1),
        Some(asked) => threads::started(threads).min(asked.saturating_mul(threads::STARTED_TIMES)),
        None => threads::started(threads),
    };
    route.queue_depth = width.most.min(depth);
    let width = Width { most: route.queue_depth, ..width };
    let engine = Threads::new(Arc::new(reader), threads, helps, (depth, spare(config)), stats)
        .map_err(|source| Error::io(format!("cannot start {threads} threads to read with"), source))?
        .joined_within(config.timeout);
    Ok((engine, route, width))
}

/// The engine of a dataset that has objects. It reads the files of folders beside them too, through the page cache.
fn open_far(config: &Config, dataset: &Arc<dyn Dataset>, stats: &Arc<Stats>, patience: &Patience) -> Result<Opened> {
    let asked = match (config.engine, config.io) {
        (EngineChoice::Uring, _) => Some(("engine uring was asked for", "engine=uring (--engine uring)")),
        (_, IoChoice::Direct) => Some(("O_DIRECT was asked for", "io=direct (--io direct)")),
        _ => None,
    };
    let files = dataset.files();
    if let Some((asked, option)) = asked {
        let store = (0..files.roots().len()).find(|&root| files.store_of(root).is_some()).unwrap_or(0);
        let what = format!("{asked}, but objects of a store are read by threads that wait for its answers");
        return Err(Error::new(ErrorKind::Unavailable, what)
            .with_path(&files.roots()[store])
            .with_remedy(format!("go without {option}, or copy the data to a local disk")));
    }
    let mut fallbacks = Vec::new();
    if !has_only_objects(files) {
        let reason = "objects of a store are read beside the files of folders";
        let beside = |cause| Fallback::new(cause, "the page cache", None).with_reason(reason);
        let remedy = "harmless; to read the folders past the page cache open them without the store";
        fallbacks.push(beside(Cause::DirectOpen).with_remedy(remedy));
        if config.read_once {
            fallbacks.push(beside(Cause::ReadOnce).with_remedy("open the folders without the store"));
        }
    }
    let mut route = Route {
        engine: EngineKind::Remote,
        direct_io: false,
        reads_once: false,
        alignment: 1,
        queue_depth: 0,
        read_bytes: config.read_size.unwrap_or(FAR_READ_BYTES).max(1),
        border: 0,
        registered_buffers: false,
        backing: "".into(),
        pinned: false,
        devices: Vec::new(),
        locality: Vec::new(),
        fallbacks,
    };
    let files = Arc::new(Files::new(Arc::clone(dataset), false, true, patience)?.checked_every(config.check_every));
    let cached = match &config.cache_disk {
        Some(cache) => open_cache(cache, dataset, stats, patience)?.map_err(|step| route.fallbacks.push(step)).ok(),
        None => None,
    };
    let threads = |route, cached| {
        let reader = Remote::new(Arc::clone(dataset), Arc::clone(&files), cached);
        by_threads(reader, (FAR_THREADS, FAR_THREADS_MAX), false, (config, stats), route)
    };
    let cached = cached.map(Arc::new);
    let mut near = None;
    if let Some(cached) = &cached {
        route.border = cached.border();
        route.read_bytes = (route.read_bytes.min(cached.border() as usize) / ALIGNMENT * ALIGNMENT).max(ALIGNMENT);
        // Its reads own the memory of samples, which a store could not fill while one of them hangs.
        if !cached.segments().may_hang() {
            let opened = open_near(config, cached, stats, patience)?;
            (route.direct_io, route.alignment) = (opened.route.direct_io, opened.route.alignment);
            route.fallbacks.extend_from_slice(&opened.route.fallbacks);
            near = Some(opened);
        }
        route.locality.push(cached.words(near.as_ref().map(|near| &near.route)).into());
    }
    let (far, route, width) = threads(route, cached.clone())?;
    let engine: Box<dyn Engine> = match (near, cached) {
        (Some(near), Some(cached)) => Box::new(Beside::new(near.engine, far, cached, Arc::clone(dataset))),
        _ => Box::new(far),
    };
    Ok(Opened { engine, route, width })
}

/// Opens a cache, whose folder may never answer.
fn open_cache(
    cache: &DiskCache,
    dataset: &Arc<dyn Dataset>,
    stats: &Arc<Stats>,
    patience: &Patience,
) -> Result<std::result::Result<Cached, Fallback>> {
    let whole = patience.whole();
    let (asked, dataset, stats) = (cache.clone(), Arc::clone(dataset), Arc::clone(stats));
    let of_cache = patience.of_cache();
    let opened = whole.ask_one(move || Cached::open(&asked, &dataset, &stats, of_cache));
    opened.unwrap_or_else(|| Err(whole.over(cache.folder())))
}

/// The engine of the files of a cache. They need no checks: a cache's files are never written anew.
fn open_near(config: &Config, cached: &Cached, stats: &Arc<Stats>, patience: &Patience) -> Result<Opened> {
    let segments = cached.segments();
    let options = Options::new().format("records").set("record_bytes", PAGE_BYTES);
    let of = |names: &mut dyn Iterator<Item = String>| {
        let mut files = FileTable::new();
        files.push_root(segments.folder());
        names.for_each(|name| _ = files.push(name.as_bytes(), SEGMENT_BYTES));
        dataset::inspect::of_files(files, &options)
    };
    let all = of(&mut cached.near())?;
    // There may be no segment yet.
    let seen = of(&mut std::iter::once(LOCK.to_owned()))?;
    let config = Config {
        engine: if config.engine == EngineChoice::Threads { EngineChoice::Threads } else { EngineChoice::Auto },
        cache: Cache::Off,
        cache_disk: None,
        read_once: false,
        check_every: Duration::MAX,
        read_size: Some(cached.border() as usize),
        ..config.clone()
    };
    open_files(&config, (&all, &seen), stats, patience)
}

/// Room for reads that are given up. Without a timeout, none is.
fn spare(config: &Config) -> usize {
    if config.timeout.is_some() { ABANDONED_MAX } else { 0 }
}

fn open_ring(route: &mut Route, files: &Arc<Files>, (spare, blocking): (usize, bool)) -> io::Result<Box<dyn Engine>> {
    let depth = route.queue_depth;
    let workers = if blocking { depth as u32 } else { RING_WORKERS };
    let options = RingOptions::default()
        .entries(2 * (depth + spare) as u32)
        .files(Uring::slots_wanted(depth + spare, files.len()))
        .max_workers([workers, RING_WORKERS])
        .batch_wait(RING_BATCH_WAIT);
    let (ring, steps) = Ring::open(&options)?;
    for step in steps {
        let error = io::Error::from_raw_os_error(step.errno);
        let (cause, got) = match step.feature {
            Feature::FileTable | Feature::FullFileTable => (Cause::FileTable, "plain descriptors"),
            _ => (Cause::RingFlags, "a simpler ring"),
        };
        route.fallbacks.push(Fallback::new(cause, got, Some(&error)).with_reason(step.feature.to_string()));
    }
    Ok(Box::new(Uring::new(ring, Arc::clone(files), depth, spare)))
}

fn unavailable(source: &io::Error) -> Error {
    let step = Fallback::new(Cause::RingSetup, "nothing", Some(source));
    Error::new(ErrorKind::Unavailable, format!("engine uring was asked for, but {}", step.reason))
        .with_source(io::Error::from(source.kind()))
        .with_remedy(format!("{}; or engine=threads (--engine threads)", step.remedy))
}

fn simulated(config: &Config, dataset: &Arc<dyn Dataset>) -> Opened {
    let route = Route {
        engine: EngineKind::Sim,
        direct_io: true,
        reads_once: false,
        alignment: 512,
        queue_depth: config.queue_depth.unwrap_or(DEPTH_START).max(1),
        read_bytes: config.read_size.unwrap_or(READ_BYTES).next_multiple_of(512),
        border: 0,
        registered_buffers: false,
        backing: "".into(),
        pinned: false,
        devices: Vec::new(),
        locality: Vec::new(),
        fallbacks: Vec::new(),
    };
    let sim = Sim::new(Arc::clone(dataset), route.queue_depth, 512, config.seed, Faults::default());
    let width = Width { start: DEPTH_START, most: route.queue_depth, fixed: config.queue_depth.is_some() };
    Opened { engine: Box::new(sim), route, width }
}

/// Maximum number of reads in flight: below the capacity of the device's queue, so that submitting never sleeps for a
/// request slot.
fn depth(config: &Config, way: &Way) -> usize {
    if let Some(depth) = config.queue_depth {
        return depth.max(1);
    }
    let read_bytes = read_bytes(config, way) as u64;
    let of_device = |device: &BlockDevice| {
        let requests_a_read = read_bytes.div_ceil(device.request_bytes().max(1)).max(1);
        // Leave a quarter to others: metadata, the page cache, other processes.
        (u64::from(device.requests()) * 3 / 4 / requests_a_read) as usize
    };
    let known = way.devices.iter().map(of_device).filter(|&depth| depth > 0);
    known.min().unwrap_or(DEPTH_UNKNOWN).min(DEPTH_MAX)
}

fn read_bytes(config: &Config, way: &Way) -> usize {
    let wanted = config.read_size.unwrap_or_else(|| {
        let limits = way.devices.iter().map(|device| device.request_bytes() as usize).filter(|&bytes| bytes > 0);
        let of_device = limits.min().unwrap_or(READ_BYTES).min(READ_BYTES);
        // Where an operation costs as much as many bytes, a read has at least that many, in several requests if
        // necessary.
        let priced = Joining::new(config.operation_bytes.unwrap_or(0), 0).read_bytes;
        of_device.max(priced as usize)
    });
    let unit = way.alignment as usize;
    (wanted / unit * unit).max(unit)
}

fn processors() -> usize {
    uringload_sys::cgroup::processors()
}
