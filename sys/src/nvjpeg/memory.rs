//! The GPU's memory that nvJPEG works with. What comes back is kept, and given again: left to itself the library calls
//! `cudaMalloc` and `cudaFree` whenever a batch has another number of images, and each of these waits for everything on
//! the device.

use super::table::{DevAllocator, Handle};
use crate::cuda::{Context, DeviceMemory};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// `cudaSuccess`, `cudaErrorInvalidValue` and `cudaErrorMemoryAllocation`.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;

/// What a library's handle takes its memory from, of one device.
pub(super) struct Memory {
    context: Context,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    taken: Vec<DeviceMemory>,
    /// Each with the stream in whose order it was given back.
    free: Vec<(DeviceMemory, usize)>,
}

impl Memory {
    pub(super) fn new(context: &Context) -> Arc<Memory> {
        Arc::new(Memory { context: context.clone(), blocks: Mutex::default() })
    }

    /// What the library is given. It may be used as long as `self` lives.
    pub(super) fn allocator(self: &Arc<Memory>) -> DevAllocator {
        let dev_ctx = Arc::as_ptr(self).cast_mut().cast();
        DevAllocator { dev_malloc: take, dev_free: give, dev_ctx }
    }

    /// The address of so many bytes for work in `stream`. What was given back in another stream may still be in use
    /// there.
    fn take(&self, len: usize, stream: usize) -> Option<u64> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = blocks.free.iter().enumerate().filter(|(_, (block, of))| *of == stream && block.len() >= len);
        let smallest = fitting.min_by_key(|(_, (block, _))| block.len()).map(|(index, _)| index);
        let block = match smallest {
            Some(index) => blocks.free.swap_remove(index).0,
            None => DeviceMemory::new(&self.context, len).ok().or_else(|| {
                // `cuMemFree` waits for whatever uses them.
                blocks.free.clear();
                DeviceMemory::new(&self.context, len).ok()
            })?,
        };
        let address = block.address();
        blocks.taken.push(block);
        Some(address)
    }

    /// Whether there was such memory to be given back, behind what is in `stream`.
    fn give(&self, address: u64, stream: usize) -> bool {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = blocks.taken.iter().position(|block| block.address() == address) else { return false };
        let block = blocks.taken.swap_remove(index);
        blocks.free.push((block, stream));
        true
    }
}

/// # Safety
/// `memory` is that of [`Memory::allocator`] of one that lives, and `place` is one for an address.
unsafe extern "C" fn take(memory: *mut c_void, place: *mut *mut c_void, len: usize, stream: Handle) -> c_int {
    // SAFETY: as the caller promises. It is shared with other calls only, and a lock orders these.
    let memory = unsafe { &*memory.cast::<Memory>() };
    let Some(address) = memory.take(len, stream.addr()) else { return OUT_OF_MEMORY };
    // SAFETY: as the caller promises. The address is one of the device, which this process never follows.
    unsafe { place.write(std::ptr::without_provenance_mut(address as usize)) };
    SUCCESS
}

/// # Safety
/// As [`take`].
unsafe extern "C" fn give(memory: *mut c_void, address: *mut c_void, _len: usize, stream: Handle) -> c_int {
    // SAFETY: as in `take`.
    let memory = unsafe { &*memory.cast::<Memory>() };
    if memory.give(address.addr() as u64, stream.addr()) { SUCCESS } else { INVALID_VALUE }
}
