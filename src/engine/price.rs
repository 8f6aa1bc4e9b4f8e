//! Estimates the price of a storage operation, in bytes that could be read in the same time, from what the machine
//! reports: limits of the control group, and disks with heads.

use crate::config::{Config, EngineChoice};
use crate::dataset::Dataset;
use std::borrow::Cow;
use std::os::fd::AsFd;
use std::path::Path;
use uringload_sys::block::BlockDevice;
use uringload_sys::file;
use uringload_sys::throttle::ReadLimits;

/// Bytes a second of a device that is limited by its operations alone.
const BYTES_UNLIMITED: u64 = 1 << 30;

/// The limits of a disk with heads: random reads a second, and sequential bytes a second.
const HEADS: [Option<u64>; 2] = [Some(150), Some(120_000_000)];

/// Cheaper operations are not worth a longer read: on a fast disk they cost about half of this.
const LEAST_BYTES: u64 = 32 << 10;

/// The price of a request to a store: what comes over one connection in the time until its first byte, some tens of
/// milliseconds.
const REQUEST_BYTES: u64 = 1 << 20;

/// Maximum number of folders to check: datasets have few.
const ROOTS_SEEN: usize = 16;

/// The price of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Price {
    /// Bytes that could be read in the time of an operation; 0 if reads of any length will do.
    pub(crate) operation_bytes: u64,
    /// The reason, as text.
    pub(crate) reason: Cow<'static, str>,
}

impl Price {
    /// The price for the storage below a dataset: from `config`, or else from the machine. `None` if operations cost
    /// nothing, or the price is unknown.
    pub(crate) fn of(config: &Config, dataset: &dyn Dataset) -> Option<Price> {
        if let Some(operation_bytes) = config.operation_bytes {
            return (operation_bytes > 0).then(|| Price { operation_bytes, reason: "as set".into() });
        }
        if config.engine == EngineChoice::Sim {
            return None;
        }
        // If operations are free on the storage of any folder, no price holds for all files.
        let mut cheapest: Option<Price> = None;
        let files = dataset.files();
        for (number, root) in files.roots().iter().enumerate().take(ROOTS_SEEN) {
            let price = if let Some(cache) = config.cache_disk.as_ref().filter(|cache| cache.holds(files)) {
                Price::of_folder(cache.folder())?
            } else if files.store_of(number).is_some() {
                Price { operation_bytes: REQUEST_BYTES, reason: "each read is a request to a store".into() }
            } else {
                Price::of_folder(root)?
            };
            if cheapest.as_ref().is_none_or(|known| price.operation_bytes < known.operation_bytes) {
                cheapest = Some(price);
            }
        }
        cheapest
    }

    fn of_folder(folder: &Path) -> Option<Price> {
        let folder = file::open_folder(folder).ok()?;
        let device = BlockDevice::of(folder.as_fd())?;
        let limits = device.read_limits();
        let allowed = [limits.operations, limits.bytes].map(|limit| limit.map(|limit| limit.most));
        let of_heads = || if device.has_heads() { Price::of_limits(HEADS, "the disk has heads") } else { None };
        Price::of_limits(allowed, "the control group").or_else(of_heads)
    }

    /// `[operations, bytes]`: limits a second.
    fn of_limits([operations, bytes]: [Option<u64>; 2], whose: &str) -> Option<Price> {
        let operations = operations?.max(1);
        let operation_bytes = bytes.unwrap_or(BYTES_UNLIMITED) / operations;
        let reason = format!("{whose}: {operations} reads a second").into();
        (operation_bytes >= LEAST_BYTES).then_some(Price { operation_bytes, reason })
    }
}

/// What the control groups of this process allow to be read from the devices of a dataset: the lowest of them.
pub(crate) fn read_limits(config: &Config, dataset: &dyn Dataset) -> ReadLimits {
    if config.engine == EngineChoice::Sim {
        return ReadLimits::default();
    }
    let files = dataset.files();
    let folders = files.roots().iter().enumerate().filter(|(root, _)| files.store_of(*root).is_none());
    let devices = folders.take(ROOTS_SEEN).filter_map(|(_, root)| {
        let folder = file::open_folder(root).ok()?;
        BlockDevice::of(folder.as_fd())
    });
    devices.fold(ReadLimits::default(), |limits, device| limits.lower(device.read_limits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_costs_the_bytes_of_its_time() {
        let of = |operations, bytes| Price::of_limits([operations, bytes], "x").map(|price| price.operation_bytes);
        assert_eq!(of(Some(150), Some(120_000_000)), Some(800_000));
        assert_eq!(of(Some(1000), None), Some(BYTES_UNLIMITED / 1000));
        assert_eq!(of(Some(1), None), Some(BYTES_UNLIMITED));
        assert_eq!(of(Some(0), Some(1 << 20)), Some(1 << 20), "a limit of 0 divides nothing");
        for (operations, bytes) in
            [(None, None), (None, Some(1000)), (Some(100_000), None), (Some(10_000), Some(1 << 20))]
        {
            assert_eq!(of(operations, bytes), None, "{operations:?} {bytes:?}");
        }
    }
}
