//! The memory of nvJPEG, the GPU's and the host's. Freed memory is kept and given out again: by itself the library
//! calls `cudaMalloc` and `cudaFree` whenever a batch has another number of images, and each call waits for everything
//! on the device.

use super::table::{Allocator, Handle};
use crate::arena::{Arena, Part};
use crate::cuda::{Context, DeviceMemory, Pinned};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// `cudaSuccess`, `cudaErrorInvalidValue` and `cudaErrorMemoryAllocation`.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;

/// Of a block of the host's memory, as `cudaMallocHost` aligns.
const ALIGNMENT: usize = 256;

/// What a library's handle takes its memory of one kind from: both kinds, because nvJPEG refuses a handle with one
/// (`NVJPEG_STATUS_INVALID_PARAMETER`, which its documentation does not say).
pub(super) struct Memory<B: Block> {
    context: Context,
    blocks: Mutex<Blocks<B>>,
}

struct Blocks<B: Block> {
    /// What the driver gave beyond what was taken of it.
    rest: B::Rest,
    taken: Vec<B>,
    /// Given back by work that may not be over, where that matters.
    given: Vec<(B, usize)>,
    /// Each with the stream in whose order it was given back.
    free: Vec<(B, usize)>,
}

/// Memory of one kind, which is given back when it is dropped.
pub(super) trait Block: Sized {
    /// Whether only work in its stream uses it. The processor writes to the host's memory at once.
    const IS_IN_ORDER: bool;

    /// What is left of the driver's memory when a block is taken of it.
    type Rest: Default;

    /// `None` if there is not enough.
    fn new(context: &Context, len: usize, rest: &mut Self::Rest) -> Option<Self>;

    /// Where nvJPEG reads and writes. No other code does.
    fn place(&self) -> *mut c_void;

    /// Bytes from there on.
    fn len(&self) -> usize;
}

impl Block for DeviceMemory {
    const IS_IN_ORDER: bool = true;

    type Rest = ();

    fn new(context: &Context, len: usize, (): &mut ()) -> Option<DeviceMemory> {
        DeviceMemory::new(context, len).ok()
    }

    fn place(&self) -> *mut c_void {
        // An address of the device, which this process never follows.
        std::ptr::without_provenance_mut(self.address() as usize)
    }

    fn len(&self) -> usize {
        DeviceMemory::len(self)
    }
}

/// Pinned memory of the host: a part of an arena, which is 2 MiB at least, because blocks may be small and many.
pub(super) struct HostMemory {
    part: Part,
    /// Its registration goes with its last block.
    pinned: Arc<Pinned>,
}

impl Block for HostMemory {
    const IS_IN_ORDER: bool = false;

    type Rest = Option<HostMemory>;

    fn new(context: &Context, len: usize, rest: &mut Option<HostMemory>) -> Option<HostMemory> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        if rest.as_ref().is_none_or(|rest| rest.len() < len) {
            let (arena, part) = Arena::reserve(len).ok()?;
            *rest = Some(HostMemory { part, pinned: Arc::new(Pinned::new(context, &arena).ok()?) });
        }
        let rest = rest.as_mut()?;
        Some(HostMemory { part: rest.part.split_to(len), pinned: Arc::clone(&rest.pinned) })
    }

    fn place(&self) -> *mut c_void {
        self.part.as_ptr().cast()
    }

    fn len(&self) -> usize {
        self.part.len()
    }
}

impl<B: Block> Memory<B> {
    pub(super) fn new(context: &Context) -> Arc<Memory<B>> {
        let blocks =
            Mutex::new(Blocks { rest: B::Rest::default(), taken: Vec::new(), given: Vec::new(), free: Vec::new() });
        Arc::new(Memory { context: context.clone(), blocks })
    }

    /// What the library is given. It may be used as long as `self` lives.
    pub(super) fn allocator(self: &Arc<Memory<B>>) -> Allocator {
        Allocator { malloc: take::<B>, free: give::<B>, ctx: Arc::as_ptr(self).cast_mut().cast() }
    }

    /// The place of that many bytes for work in `stream`. Memory that was given back in another stream may still be in
    /// use there.
    fn take(&self, len: usize, stream: usize) -> Option<*mut c_void> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = blocks.free.iter().enumerate().filter(|(_, (block, of))| *of == stream && block.len() >= len);
        let smallest = fitting.min_by_key(|(_, (block, _))| block.len()).map(|(index, _)| index);
        let block = match smallest {
            Some(index) => blocks.free.swap_remove(index).0,
            None => B::new(&self.context, len, &mut blocks.rest).or_else(|| {
                // The driver waits for whatever uses them.
                blocks.free.clear();
                B::new(&self.context, len, &mut blocks.rest)
            })?,
        };
        let place = block.place();
        blocks.taken.push(block);
        Some(place)
    }

    /// Whether there was such memory to be given back, after the work in `stream`.
    fn give(&self, place: *mut c_void, stream: usize) -> bool {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = blocks.taken.iter().position(|block| block.place() == place) else { return false };
        let block = blocks.taken.swap_remove(index);
        let to = if B::IS_IN_ORDER { &mut blocks.free } else { &mut blocks.given };
        to.push((block, stream));
        true
    }

    /// All work of the library is over: what it gave back in it may be written to.
    pub(super) fn settled(&self) {
        let blocks = &mut *self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.free.append(&mut blocks.given);
    }
}

/// # Safety
/// `memory` is that of [`Memory::allocator`] of one that lives, and `place` is one for an address.
unsafe extern "C" fn take<B: Block>(memory: *mut c_void, place: *mut *mut c_void, len: usize, stream: Handle) -> c_int {
    // SAFETY: as the caller promises. It is shared with other calls only, and a lock orders these.
    let memory = unsafe { &*memory.cast::<Memory<B>>() };
    let Some(taken) = memory.take(len, stream.addr()) else { return OUT_OF_MEMORY };
    // SAFETY: as the caller promises.
    unsafe { place.write(taken) };
    SUCCESS
}

/// # Safety
/// As [`take`].
unsafe extern "C" fn give<B: Block>(memory: *mut c_void, place: *mut c_void, _len: usize, stream: Handle) -> c_int {
    // SAFETY: as in `take`.
    let memory = unsafe { &*memory.cast::<Memory<B>>() };
    if memory.give(place, stream.addr()) { SUCCESS } else { INVALID_VALUE }
}
