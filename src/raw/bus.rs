//! Measures the raw rate of copies to GPUs, from memory that is already filled. A loader for devices is compared with
//! this, in addition to the disk.

use super::RawRate;
use crate::device::device_error;
use crate::pool::Pool;
use crate::queue::Bell;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_sys::cuda::{Context, Copies, DeviceMemory, Pinned, Span};

/// Length of one copy: as long as the longest blocks that a loader copies.
pub const COPY_BYTES: usize = 32 << 20;

/// Copies in flight to each device: one in progress, the others ready.
const UNDER_WAY: usize = 4;

/// Places that the copies alternate between, so that no cache serves them.
const PLACES: usize = 2;

/// How long the host waits before it checks the copies again: far less than the copies in flight take.
const WAIT: Duration = Duration::from_micros(50);

/// The longest wait for a copy after the time is up; then the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// Rates of copies to the devices, all at once if there are several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusRates {
    /// From pinned memory, by the copy engines alone: the limit of a loader.
    pub pinned: RawRate,
    /// From any memory, through the driver's own: the rate of a program that does not pin.
    pub pageable: RawRate,
}

/// Copies to the devices for `limit`, half of it from each kind of memory.
///
/// # Errors
/// `InvalidArgument` without a device; `MemoryLimit` if the host has no memory for it; `Device` for errors of the
/// driver: it has no memory left, or cannot pin.
pub fn measure(devices: &[Context], limit: Duration) -> Result<BusRates> {
    let Some(first) = devices.first() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "copies to no device cannot be measured"));
    };
    let failed = |error| device_error("cannot measure copies to the device", error);
    let mut pool = Pool::new(PLACES * COPY_BYTES, 0, Arc::new(Bell::new()))?;
    pool.back(&(0..pool.arena().len()))?;
    // Held until the copies are done: lanes are dropped before it.
    let pinned = Pinned::new(first, pool.arena()).map_err(failed)?;
    let parts = (0..PLACES).filter_map(|_| pool.take(COPY_BYTES)).collect::<Vec<_>>();
    let from: Vec<Bytes> = parts.into_iter().map(|part| pool.lease(part)).collect();
    let pinned_rate = copy(devices, &from, limit / 2)?;
    drop((from, pinned));
    // Not zeros, which the allocator would have from the system without a page behind them.
    let from: Vec<Bytes> = (0..PLACES).map(|_| Bytes::from(vec![1; COPY_BYTES])).collect();
    Ok(BusRates { pinned: pinned_rate, pageable: copy(devices, &from, limit / 2)? })
}

/// The copies to one device.
struct Lane {
    copies: Copies,
    to: Vec<Span>,
    started: usize,
}

impl Lane {
    fn open(context: &Context) -> Result<Lane> {
        let failed = |error| device_error("cannot measure copies to the device", error);
        let memory = DeviceMemory::new(context, PLACES * COPY_BYTES).map_err(failed)?;
        let place = |index| Span::new(&memory, index * COPY_BYTES..(index + 1) * COPY_BYTES);
        let to = (0..PLACES).filter_map(place).collect();
        Ok(Lane { copies: Copies::new(context).map_err(failed)?, to, started: 0 })
    }

    /// Records finished copies and, while it `goes_on`, starts as many again. Returns the bytes that were copied.
    fn turn(&mut self, from: &[Bytes], goes_on: bool) -> Result<u64> {
        let failed = |error| device_error("a copy to the device failed", error);
        let bytes = self.copies.finished().map_err(failed)?;
        while goes_on && self.copies.under_way() < UNDER_WAY {
            let (from, to) = (&from[self.started % from.len()], &self.to[self.started % self.to.len()]);
            self.copies.start(from.clone(), to).map_err(failed)?;
            self.started += 1;
        }
        Ok(bytes)
    }
}

/// Copies for `limit` to all devices at once.
fn copy(devices: &[Context], from: &[Bytes], limit: Duration) -> Result<RawRate> {
    let mut lanes = devices.iter().map(Lane::open).collect::<Result<Vec<_>>>()?;
    // The first copies meet cold caches and a device in power saving.
    run(&mut lanes, from, limit / 8)?;
    run(&mut lanes, from, limit)
}

fn run(lanes: &mut [Lane], from: &[Bytes], limit: Duration) -> Result<RawRate> {
    let (start, mut bytes) = (Instant::now(), 0);
    loop {
        let elapsed = start.elapsed();
        for lane in &mut *lanes {
            bytes += lane.turn(from, elapsed < limit)?;
        }
        if lanes.iter().all(|lane| lane.copies.under_way() == 0) {
            return Ok(RawRate { bytes, elapsed: start.elapsed(), fastest: None, reads: 0, direct_io: false });
        }
        if elapsed > limit + PATIENCE {
            let what = format!("a copy to the device was not done after {PATIENCE:?}");
            return Err(Error::new(ErrorKind::Timeout, what).with_remedy("see nvidia-smi and the kernel's log"));
        }
        std::thread::sleep(WAIT);
    }
}
