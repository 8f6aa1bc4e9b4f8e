//! Memory: the devices', which is on the heap here, and the registered part of the host's.

use crate::abi::{Code, HostPointer, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_REGISTERED};
use crate::order::{Accesses, Actor, Kind};
use std::collections::{BTreeMap, VecDeque};

/// The alignment of device memory.
const ALIGN_BYTES: usize = 256;

/// The content of fresh memory, so that it is not taken for zeros. Larger memory is zeros: touching all of it is slow.
const FRESH: u8 = 0xa5;
const FRESH_BYTES_MAX: usize = 64 << 20;

/// Bytes of freed memory that are kept back from reuse, so that a late access is found.
const KEPT_BYTES: usize = 16 << 20;

/// The memory of all devices.
#[derive(Default)]
pub struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    freed: VecDeque<Vec<u8>>,
    /// Descriptions of accesses that were not ordered.
    pub conflicts: Vec<String>,
}

struct Allocation {
    device: usize,
    bytes: Vec<u8>,
    /// Where the memory starts in `bytes`.
    offset: usize,
    len: usize,
    accesses: Accesses,
}

impl Memory {
    /// Allocates memory; returns its address.
    pub fn allocate(&mut self, device: usize, len: usize) -> u64 {
        let fresh = if len <= FRESH_BYTES_MAX { FRESH } else { 0 };
        let bytes = vec![fresh; len + ALIGN_BYTES];
        let start = bytes.as_ptr().addr();
        let offset = start.next_multiple_of(ALIGN_BYTES) - start;
        let address = (start + offset) as u64;
        self.allocations.insert(address, Allocation { device, bytes, offset, len, accesses: Accesses::default() });
        address
    }

    /// Frees memory.
    pub fn free(&mut self, address: u64) -> Result<(), Code> {
        let allocation = self.allocations.remove(&address).ok_or(INVALID_VALUE)?;
        self.freed.push_back(allocation.bytes);
        while self.freed.iter().map(Vec::len).sum::<usize>() > KEPT_BYTES {
            self.freed.pop_front();
        }
        Ok(())
    }

    /// The device that owns the allocation at `address`.
    pub fn device_of(&self, address: u64) -> Option<usize> {
        self.allocations.get(&address).map(|allocation| allocation.device)
    }

    /// Frees all of a device's memory.
    pub fn free_all(&mut self, device: usize) {
        self.allocations.retain(|_, allocation| allocation.device != device);
    }

    /// Bytes allocated on a device.
    pub fn taken_bytes(&self, device: usize) -> u64 {
        let own = self.allocations.values().filter(|allocation| allocation.device == device);
        own.map(|allocation| allocation.len as u64).sum()
    }

    /// The number of allocations, and their bytes.
    pub fn count(&self) -> (u64, u64) {
        let bytes = self.allocations.values().map(|allocation| allocation.len as u64).sum();
        (self.allocations.len() as u64, bytes)
    }

    /// Forgets all recorded accesses.
    pub fn forget_accesses(&mut self) {
        self.allocations.values_mut().for_each(|allocation| allocation.accesses = Accesses::default());
    }

    /// A copy of a range.
    pub fn read(&mut self, device: usize, address: u64, len: u64, actor: &Actor) -> Result<Vec<u8>, Code> {
        Ok(self.access(device, address, len, Kind::Read, actor)?.to_vec())
    }

    /// Writes to a range.
    pub fn write(&mut self, device: usize, address: u64, bytes: &[u8], actor: &Actor) -> Result<(), Code> {
        self.access(device, address, bytes.len() as u64, Kind::Write, actor)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The bytes of a range, which must lie within one allocation of the device; records the access.
    fn access(&mut self, device: usize, address: u64, len: u64, kind: Kind, actor: &Actor) -> Result<&mut [u8], Code> {
        if len == 0 {
            return Ok(&mut []);
        }
        let (&start, allocation) = self.allocations.range_mut(..=address).next_back().ok_or(ILLEGAL_ADDRESS)?;
        let end = address.checked_add(len).ok_or(ILLEGAL_ADDRESS)?;
        if allocation.device != device || end > start + allocation.len as u64 {
            return Err(ILLEGAL_ADDRESS);
        }
        self.conflicts.extend(allocation.accesses.note(&(address..end), kind, actor));
        let first = allocation.offset + (address - start) as usize;
        Ok(&mut allocation.bytes[first..first + len as usize])
    }
}

/// Registered host memory.
#[derive(Default)]
pub struct Host {
    ranges: Vec<Registered>,
}

struct Registered {
    device: usize,
    base: HostPointer,
    len: usize,
}

/// How much of a range of host memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    All,
    Part,
    Nothing,
}

impl Host {
    /// Registers a range; false if part of it is registered already.
    pub fn register(&mut self, device: usize, base: HostPointer, len: usize) -> bool {
        if self.look(base.address(), len) != Pinned::Nothing {
            return false;
        }
        base.expose();
        self.ranges.push(Registered { device, base, len });
        true
    }

    /// Unregisters a range.
    pub fn unregister(&mut self, base: HostPointer) -> Result<(), Code> {
        let found = self.ranges.iter().position(|range| range.base.address() == base.address());
        self.ranges.swap_remove(found.ok_or(NOT_REGISTERED)?);
        Ok(())
    }

    /// Unregisters everything in a context.
    pub fn unregister_all(&mut self, device: usize) {
        self.ranges.retain(|range| range.device != device);
    }

    /// How much of a range is registered.
    pub fn look(&self, address: usize, len: usize) -> Pinned {
        let end = address + len;
        let touches = |range: &&Registered| range.base.address() < end && address < range.base.address() + range.len;
        let holds = |range: &Registered| range.base.address() <= address && end <= range.base.address() + range.len;
        match self.ranges.iter().find(touches) {
            Some(range) if holds(range) => Pinned::All,
            Some(_) => Pinned::Part,
            None => Pinned::Nothing,
        }
    }

    /// The number of ranges, and their bytes.
    pub fn count(&self) -> (u64, u64) {
        (self.ranges.len() as u64, self.ranges.iter().map(|range| range.len as u64).sum())
    }
}
