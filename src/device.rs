//! Puts batches where they are used: in the memory of a GPU, or on the host if there is none.
//!
//! Data goes to the device exactly as it was read, one copy per block, started when the block is complete rather than
//! the batch. Kernels assemble the columns there: they leave out the excess bytes that alignment added, bring values
//! end to end or to one length, and turn pixels and tokens into what a model takes. The host moves no values, except
//! those that it had to produce itself (numbers parsed from text, decoded units).

pub(crate) mod batch;
mod feeder;
mod gds;
mod host;
mod lane;
mod layout;
mod nvjpeg;
mod pinned;
mod straight;
mod traced;
mod transforms;

use crate::collate::{Collation, Form};
use crate::config::{Cause, Device, DeviceKind, DeviceRoute, Fallback, NvjpegRoute};
use crate::dataset::Dataset;
use crate::pool::Pool;
use crate::queue::{Bell, Starvation};
use crate::stats::{Doing, Role, Stats};
use crate::{Error, ErrorKind, Result};
use feeder::Destination;
use lane::{Lane, Need, Shadow};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uringload_sys::cuda::{Context, DeviceMemory, Driver, Kernel, MemoryError, Notice, Pinned, ProbeError};
use uringload_sys::numa::Near;

pub(crate) use batch::device_error;
pub use batch::{DeviceBatch, DeviceBytes, DeviceColumn, DeviceForm};
pub(crate) use feeder::{Feeder, THREAD};
pub(crate) use gds::{Asked, Loading, choose, give_up};
pub(crate) use nvjpeg::{THREADS as NVJPEG_THREADS, decoders, room_for_pixels, share as nvjpeg_share};
pub use pinned::PinnedMemory;
pub(crate) use pinned::open_to_pin;
pub(crate) use straight::STRAIGHT_BYTES;
pub(crate) use transforms::Transforms;

/// Number of batches that a device's memory holds: one in use, one ready, one in progress. They are of maximum size,
/// unless values go straight to their columns: then a batch takes as much as it has.
const BATCHES_HELD: u64 = 3;

/// Maximum number of batches handed over but not yet taken by the consumer. The device's memory bounds them too.
const QUEUE_DEVICE: usize = 16;
/// Same, for columns on the host's heap.
const QUEUE_HOST: usize = 2;

/// Upper bound of the bytes of one value: its integer plus its row in a table.
const TABLE_ROW_BYTES: u64 = 40 + 8;

/// Upper bounds for one batch, in bytes, as computed for the host's limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchBytes {
    /// Number of samples.
    pub(crate) samples: u64,
    /// Number of rows.
    pub(crate) rows: u64,
    /// Bytes of its samples.
    pub(crate) payload: u64,
    /// Decoded bytes of the units that its samples are cut from; 0 if samples are read one by one.
    pub(crate) decoded: u64,
    /// Memory that it is read into.
    pub(crate) read: u64,
    /// Bytes of labels that are computed as shares of classes, because its images are mixed.
    pub(crate) labels: u64,
    /// Bytes of values that may come from kept stretches of files, and are not in what is read for it.
    pub(crate) kept: u64,
}

/// The devices that batches go to, and the fallbacks taken while opening them.
pub(crate) struct Opened {
    contexts: Vec<Context>,
    /// The memory node nearest to all of them, on a machine with several.
    near: Option<Near>,
    /// How each decodes JPEGs; empty if none was requested to.
    nvjpeg: Vec<Option<NvjpegRoute>>,
    pub(crate) fallbacks: Vec<Fallback>,
}

impl Opened {
    /// The context to register host memory with, for all devices at once.
    pub(crate) fn context(&self) -> Option<&Context> {
        self.contexts.first()
    }

    /// The memory node for the host's memory of all devices.
    pub(crate) fn near(&self) -> Option<&Near> {
        self.near.as_ref()
    }
}

/// Opens the requested devices.
///
/// # Errors
/// `Unavailable` if a device requested by number is not available. `InvalidArgument` if one is named twice, or if GPUs
/// and the host are both named.
pub(crate) fn open(devices: &[Device]) -> Result<Opened> {
    let mut opened = Opened { contexts: Vec::new(), near: None, nvjpeg: Vec::new(), fallbacks: Vec::new() };
    let mut driver: Option<Driver> = None;
    for device in devices {
        let index = match device.kind() {
            DeviceKind::Host if devices.len() > 1 => return Err(mixed()),
            DeviceKind::Host => return Ok(opened),
            DeviceKind::Auto => 0,
            DeviceKind::Cuda(index) => index,
        };
        let found = match &driver {
            Some(driver) => Context::new(driver, index),
            None => Driver::open(device.driver()).and_then(|found| Context::new(driver.insert(found), index)),
        };
        match found {
            Ok(context) if opened.contexts.iter().any(|other| other.is_same(&context)) => {
                let what = format!("{device} is named twice");
                return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("name each device once"));
            }
            Ok(context) => opened.contexts.push(context),
            Err(error) if device.kind() == DeviceKind::Auto && devices.len() == 1 => {
                let remedy = error.remedy();
                let step = Fallback::new(Cause::Device, "batches on the host", None);
                opened.fallbacks.push(step.with_reason(error.to_string()).with_remedy(remedy));
            }
            Err(error) => return Err(unavailable(device, error)),
        }
    }
    let root = devices.first().map_or(Path::new("/"), |device| device.search.root.as_path());
    let places: Vec<&str> = opened.contexts.iter().map(|context| context.info().pci.as_str()).collect();
    opened.near = Near::to(root, &places);
    Ok(opened)
}

/// Takes memory for the devices from the node nearest to them, and pins it. If pinning is refused, copies go through
/// the driver's own memory.
pub(crate) fn pin(
    context: &Context,
    near: Option<&Near>,
    pool: &mut Pool,
    fallbacks: &mut Vec<Fallback>,
) -> Result<Option<Arc<Pinned>>> {
    // Pages stay where they were first taken, so this comes before anything else.
    if let Some(near) = near
        && let Err(error) = near.hold(pool.arena())
        && !fallbacks.iter().any(|step| step.cause == Cause::MemoryNode)
    {
        fallbacks.push(Fallback::new(Cause::MemoryNode, "memory of any node", Some(&error)));
    }
    // Pinning backs all of the memory. Back it first, so that a failure gets its own message.
    pool.back(&(0..pool.arena().len()))?;
    match Pinned::new(context, pool.arena()) {
        Ok(pinned) => Ok(Some(Arc::new(pinned))),
        Err(error) => {
            let step = Fallback::new(Cause::Pinning, "copies through the driver's own memory", None);
            fallbacks.push(step.with_reason(error.to_string()));
            Ok(None)
        }
    }
}

/// Prepares everything needed before the first batch: the devices' memory, streams and kernels.
///
/// # Errors
/// `MemoryLimit` if a batch does not fit, with the arithmetic; `Device`.
pub(crate) fn prepare(
    opened: &mut Opened,
    devices: &[Device],
    (dataset, collation, transforms): (&dyn Dataset, &Collation, Transforms),
    (batch, host_bytes, gds): (BatchBytes, u64, Option<&Loading>),
    starved_after: Duration,
    stats: &Arc<Stats>,
) -> Result<(Feeder, Vec<DeviceRoute>, usize)> {
    let (bell, starvation) = (Arc::new(Bell::new()), Starvation::new(starved_after));
    let clock = |what| stats.clock(Role::Device, what);
    if opened.contexts.is_empty() {
        let (clock, pinned) = (clock(Doing::WaitInput), Vec::new());
        let feeder = Feeder { place: Destination::Host, transforms, bell, clock, starvation, near: None, pinned };
        return Ok((feeder, Vec::new(), QUEUE_HOST));
    }
    // Data read straight to the device takes none of a lane's memory.
    let batch = if gds.is_some() { BatchBytes { read: 0, ..batch } } else { batch };
    let is_straight = gds.is_none() && straight::is_possible(dataset, collation, &transforms, (batch, host_bytes));
    let batch = if is_straight { BatchBytes { read: 0, ..batch } } else { batch };
    let need = need((dataset, collation, &transforms), batch, is_straight);
    let mean = is_straight.then(|| mean_bytes(dataset, need, batch.samples));
    let shadow = gds.map(Loading::shadow);
    let kernels = if is_straight { Vec::new() } else { kernels(collation, &transforms) };
    let mut staging = Pool::new((need.staged * BATCHES_HELD) as usize, 0, Arc::clone(&bell))?;
    let Opened { contexts, near, nvjpeg, fallbacks } = opened;
    let pinned = pin(&contexts[0], near.as_ref(), &mut staging, fallbacks)?;
    let held = near.as_ref().filter(|_| !fallbacks.iter().any(|step| step.cause == Cause::MemoryNode));
    let step = contexts.len() as u64;
    let (mut lanes, mut routes) = (Vec::new(), Vec::new());
    for (first, (context, device)) in contexts.iter().zip(devices).enumerate() {
        let turns = (first as u64, step);
        let wanted = (need, mean, &kernels[..], shadow.clone());
        let lane = open_lane((context, device), wanted, turns, &bell, stats, fallbacks)?;
        routes.push(DeviceRoute {
            gds: gds.map(|gds| gds.route.clone()),
            nvjpeg: nvjpeg.get(first).cloned().flatten(),
            ..route(context, &lane, pinned.is_some(), held)
        });
        lanes.push(lane);
    }
    let place = Destination::Lanes { lanes, staging };
    let clock = clock(Doing::WaitInput);
    let feeder =
        Feeder { place, transforms, bell, clock, starvation, near: near.clone(), pinned: pinned.into_iter().collect() };
    Ok((feeder, routes, QUEUE_DEVICE))
}

/// Mean bytes of a batch, if all of its columns are just what was read.
fn mean_bytes(dataset: &dyn Dataset, need: Need, samples: u64) -> u64 {
    let each = dataset.bytes().div_ceil(dataset.len().max(1));
    let columns = dataset.schema().fields.len() as u64 + 1;
    let columns = each.saturating_add(8).saturating_mul(samples).saturating_add(columns * lane::padded(1) as u64);
    Need { columns: columns.min(need.columns), ..need }.bytes()
}

/// Upper bound of one batch's bytes on a device.
fn need(
    (dataset, collation, transforms): (&dyn Dataset, &Collation, &Transforms),
    batch: BatchBytes,
    is_straight: bool,
) -> Need {
    let bounds = collation.column_bounds(dataset, batch.samples, batch.rows);
    let padded = |bytes: u64| bytes.saturating_add(lane::padded(1) as u64);
    let is_made = |index: usize| matches!(collation.forms()[index], Form::Mapped { .. });
    let makes = (0..bounds.len()).any(is_made);
    let columns = bounds.iter().enumerate().map(|(index, &bytes)| match transforms.bytes(index, batch.samples) {
        Some(made) => padded(padded(made)),
        None => padded(bytes),
    });
    // Column bounds do not cover data cut from units. All columns together are no longer than the units.
    let widening = (0..bounds.len()).map(|field| dataset.widening(field)).max().unwrap_or(1);
    let decoded = batch.decoded.saturating_mul(widening);
    let columns = columns.fold(decoded, u64::saturating_add).saturating_add(padded(batch.samples * 8));
    let columns = columns.saturating_add(padded(batch.labels));
    let fields = bounds.len() as u64 + 1;
    let tables = batch.samples.saturating_mul(fields).saturating_mul(TABLE_ROW_BYTES).saturating_add(4096);
    // Values that are not slices of the data read are made on the host: as many bytes as were read, or as many as their
    // types need.
    let is_sliced =
        (dataset.index().plain_field.is_some() || !dataset.index().parse_reads_bytes) && dataset.units().is_none();
    let aligned = batch.samples.saturating_mul(fields).saturating_mul(16);
    let others = bounds.iter().enumerate().filter(|&(index, _)| !is_made(index));
    let values: u64 = others.fold(decoded, |sum: u64, (_, &bytes)| sum.saturating_add(bytes));
    let loose = match (is_straight, makes, is_sliced) {
        // If some values of a sample are processed, the others are copied beside them.
        (_, true, _) => values.saturating_add(aligned),
        (true, ..) => 0,
        (.., true) if batch.kept == 0 => 0,
        (.., true) => batch.kept.saturating_add(aligned),
        _ => batch.payload.max(values).saturating_add(aligned),
    };
    let staged = tables.saturating_add(loose).next_multiple_of(lane::padded(4096) as u64);
    // If values are processed, what was read stays on the host, and the results are in one block. Only kernels need
    // that.
    let read = match makes {
        true if (0..bounds.len()).any(|index| is_made(index) && transforms.kernel(index).is_some()) => {
            collation.target_bound(dataset, 0, batch.samples, batch.rows)
        }
        true => 0,
        false => batch.read,
    };
    // Each block is at least half the maximum length and starts at an aligned offset.
    let blocks = read / (crate::plan::BLOCK_BYTES / 2) + 2;
    let rounding = blocks.saturating_mul(lane::padded(1) as u64);
    let raw = read.saturating_add(rounding).saturating_add(staged);
    Need { raw, columns, staged, is_straight }
}

/// The kernels that make the columns.
fn kernels(collation: &Collation, transforms: &Transforms) -> Vec<Kernel> {
    let forms = collation.forms().iter().enumerate();
    let mut kernels: Vec<Kernel> = forms
        .flat_map(|(index, form)| match (transforms.kernel(index), form) {
            (Some(kernel), _) => vec![kernel],
            (None, Form::Dense { .. } | Form::Ragged { .. }) => vec![Kernel::Gather],
            (None, Form::Views | Form::Mapped { .. }) => vec![],
            (None, Form::Padded(_)) => vec![Kernel::Pad],
            (None, Form::Packed { .. }) => vec![Kernel::Gather, Kernel::Fill],
        })
        .collect();
    kernels.dedup();
    kernels
}

/// Opens a lane with as much memory as requested, or as much as is available.
fn open_lane(
    (context, device): (&Context, &Device),
    (need, mean, kernels, shadow): (Need, Option<u64>, &[Kernel], Option<Shadow>),
    turns: (u64, u64),
    bell: &Arc<Bell>,
    stats: &Arc<Stats>,
    fallbacks: &mut Vec<Fallback>,
) -> Result<Lane> {
    let one = need.bytes();
    let index = context.info().index;
    let taken = shadow.as_ref().map_or(0, |shadow| shadow.span.len() as u64);
    let limit = device.memory_limit.map(|limit| limit.saturating_sub(taken));
    if let Some(limit) = limit
        && limit < one
    {
        return Err(no_room(index, need, format!("the limit is {limit}")));
    }
    // A batch above the mean gets room once smaller ones have returned it, and the largest of all once all have.
    let by_default = mean.unwrap_or(one).saturating_mul(BATCHES_HELD).max(one);
    let wanted = limit.unwrap_or(by_default);
    let mut bytes = wanted;
    loop {
        let memory = match &device.allocator {
            Some(allocator) => DeviceMemory::of(context, bytes as usize, &allocator.0),
            None => DeviceMemory::new(context, bytes as usize).map_err(MemoryError::from),
        };
        let open = |memory| Ok(Lane::open(context, (need, memory, kernels), shadow.clone(), turns, bell, stats)?);
        match memory.and_then(open) {
            Ok(lane) => {
                if bytes < wanted {
                    let got = format!("{bytes} bytes of it");
                    let step = Fallback::new(Cause::DeviceMemory, got, None);
                    fallbacks.push(step.with_reason(format!("{wanted} bytes were not free on cuda:{index}")));
                }
                if lane.notice() == Notice::Events {
                    fallbacks.push(Fallback::new(Cause::CopyFlags, "events", None));
                }
                if lane.lacks_lists() {
                    fallbacks.push(Fallback::new(Cause::CopyLists, "a call for each", None));
                }
                return Ok(lane);
            }
            Err(error) if error.is_out_of_memory() && bytes > one => bytes = (bytes - one).max(one),
            Err(error) if error.is_out_of_memory() => {
                let has = match (&error, context.memory()) {
                    (MemoryError::Allocator(_), _) => "its allocator has less".to_owned(),
                    (_, Ok((free, _))) => format!("{free} bytes are free there"),
                    (_, Err(error)) => error.to_string(),
                };
                return Err(no_room(index, need, has).with_source(error));
            }
            Err(MemoryError::Driver(error)) => return Err(device_error("cannot make a device ready", error)),
            Err(error) => {
                let error = Error::new(ErrorKind::Device, "cannot make a device ready").with_source(error);
                return Err(error.with_remedy("give an allocator of aligned device memory, or leave it out"));
            }
        }
    }
}

fn no_room(index: u32, need: Need, has: String) -> Error {
    let Need { raw, columns, .. } = need;
    Error::new(
        ErrorKind::MemoryLimit,
        format!(
            "a batch does not fit on cuda:{index}: it takes up to {raw} bytes as it was read and {columns} for its \
             columns; {has}"
        ),
    )
    .with_remedy("raise the device's memory limit, free memory there, or lower batch_size")
}

fn route(context: &Context, lane: &Lane, pinned: bool, near: Option<&Near>) -> DeviceRoute {
    let info = context.info();
    DeviceRoute {
        index: info.index,
        name: info.name.clone(),
        pci: info.pci.clone(),
        numa_node: near.map(Near::node).or_else(|| uringload_sys::system::numa_node_of_pci(&info.pci)),
        is_near: near.is_some(),
        pinned,
        flags: lane.notice() == Notice::Flag,
        memory_bytes: lane.memory_bytes(),
        gds: None,
        nvjpeg: None,
    }
}

fn unavailable(device: &Device, error: ProbeError) -> Error {
    let remedy = error.remedy();
    Error::new(ErrorKind::Unavailable, format!("{device} is not available"))
        .with_source(error)
        .with_remedy(format!("{remedy}; or choose auto, which also works without a GPU"))
}

fn mixed() -> Error {
    Error::new(ErrorKind::InvalidArgument, "batches cannot go to both GPUs and the host")
        .with_remedy("name GPUs only, or the host alone")
}
