//! Memory: one fixed arena, lent out in blocks. A block is in exactly one place: free here, in flight in an engine, or
//! leased to a consumer. A lease returns by drop.
//!
//! Only the reactor's thread takes and gives blocks, but a lease may be dropped anywhere. Allocation is address-ordered
//! first fit: the lowest free range that is long enough. So a consumer that keeps up is served from the same few
//! megabytes. They stay in the processor's caches and are the only memory ever taken from the system: the arena is
//! address space, backed from the bottom up, a few megabytes at a time, just before the first read into it starts.

use crate::plan::BLOCK_BYTES;
use crate::queue::Bell;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::ops::Range;
use std::sync::Arc;
use uringload_sys::arena::Backing;
use uringload_sys::{Arena, Part, cgroup};

/// Memory is taken from the system in steps of at least one huge page. Zeroing it takes 0.2 ms, or up to 4 ms in a
/// virtual machine whose host must find it first. That is still shorter than the reads in flight, so growing does not
/// stall the disk.
pub const GROWTH_BYTES: usize = 2 << 20;

/// Maximum number of steps to back the whole arena: a ring registers at most 16384 ranges.
const GROWTH_STEPS: usize = 8192;

/// How often, in bytes taken, the pool looks at what the container has left: 0.1 ms against the 3 ms that it takes to
/// zero so much.
const ROOM_STEP: usize = 16 << 20;

/// What must be left besides: a container without it has no room for a thread's stack or for a page table.
const ROOM_LEFT: u64 = 4 << 20;

/// Alignment of blocks, so that every block suits a 4096-byte logical sector.
pub const BLOCK_ALIGNMENT: usize = 4096;

/// The free parts of an arena, and the way back for leased ones.
#[derive(Debug)]
pub struct Pool {
    arena: Arena,
    /// Free parts, sorted by offset. No two are adjacent.
    free: Vec<Part>,
    free_bytes: usize,
    /// Total bytes that may be lent out. The arena may be longer, since it is rounded up to whole huge pages.
    bytes: usize,
    /// Length of the longest sample's block if that sample has a block of its own, else 0.
    longest: usize,
    /// Everything below this offset is reserved.
    reserved: usize,
    /// Everything below this offset is backed by memory.
    backed: usize,
    home: Arc<Home>,
}

/// Refuses to take `bytes` more where the kernel would kill a process of the container for it.
fn check_room(backed: usize, bytes: usize) -> Result<()> {
    let Some(group) = cgroup::memory().filter(|group| group.most() < ROOM_LEFT + bytes as u64) else { return Ok(()) };
    let what = format!(
        "{} allows {} bytes, of which {} are in use: the loader's memory cannot grow by {bytes} to {backed} bytes",
        group.path.display(),
        group.limit,
        group.used
    );
    Err(Error::new(ErrorKind::MemoryLimit, what)
        .with_remedy("lower memory_limit, or raise the memory limit of the container"))
}

/// Where dropped leases go. Unbounded, because a drop can neither wait nor fail; the arena is the actual bound.
#[derive(Debug)]
struct Home {
    parts: SegQueue<Part>,
    bell: Arc<Bell>,
}

impl Pool {
    /// Reserves `bytes` of address space for samples of up to `longest_sample` bytes. Memory follows as blocks are
    /// used. `bell` is rung when a lease is returned.
    ///
    /// # Errors
    /// `MemoryLimit` if the system refuses to reserve that much.
    pub fn new(bytes: usize, longest_sample: usize, bell: Arc<Bell>) -> Result<Pool> {
        let (arena, mut whole) = Arena::reserve(bytes).map_err(|source| {
            Error::new(ErrorKind::MemoryLimit, format!("cannot reserve {bytes} bytes for the pool"))
                .with_source(source)
                .with_remedy("lower memory_limit, or raise the address space limit (ulimit -v)")
        })?;
        let whole = whole.split_to(bytes / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT);
        Ok(Pool::over(arena, whole, longest_sample, bell))
    }

    /// Like `new`, but over memory elsewhere that already exists. `arena` is its [shadow](Arena::shadow), and `whole`
    /// is the part to lend out, from its start.
    pub fn of_shadow(arena: Arena, whole: Part, longest_sample: usize, bell: Arc<Bell>) -> Pool {
        let backed = arena.len();
        Pool { backed, ..Pool::over(arena, whole, longest_sample, bell) }
    }

    /// Reuses a pool whose memory is all back, with another longest sample and another bell.
    #[must_use]
    pub(crate) fn renewed(mut self, longest_sample: usize, bell: Arc<Bell>) -> Pool {
        debug_assert!(self.is_whole() && self.free.len() == 1);
        let backed = self.backed;
        match self.free.pop() {
            Some(whole) => Pool { backed, ..Pool::over(self.arena, whole, longest_sample, bell) },
            None => self,
        }
    }

    fn over(arena: Arena, whole: Part, longest_sample: usize, bell: Arc<Bell>) -> Pool {
        debug_assert!(whole.offset() == 0 && whole.len().is_multiple_of(BLOCK_ALIGNMENT));
        let bytes = whole.len();
        let longest =
            if longest_sample as u64 > BLOCK_BYTES { longest_sample.next_multiple_of(BLOCK_ALIGNMENT) } else { 0 };
        let home = Arc::new(Home { parts: SegQueue::new(), bell });
        Pool { arena, free: vec![whole], free_bytes: bytes, bytes, longest, reserved: 0, backed: 0, home }
    }

    /// The arena that blocks come from.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Reserves `bytes` while everything is free. From then on only [`take_reserved`](Pool::take_reserved) takes them.
    pub fn reserve(&mut self, bytes: usize) {
        debug_assert!(self.is_whole() && self.reserved == 0);
        self.reserved = bytes.next_multiple_of(BLOCK_ALIGNMENT).min(self.bytes);
        // At the bottom, since backing it also backs everything below it.
        if let Some(rest) = self.free.pop() {
            self.insert(rest);
        }
    }

    /// Bytes that may be lent out at once.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are neither in flight nor leased.
    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Bytes of memory taken from the system so far.
    pub fn backed_bytes(&self) -> usize {
        self.backed
    }

    /// Whether every block is back.
    pub fn is_whole(&self) -> bool {
        self.free_bytes == self.bytes
    }

    /// Takes a block of at least `bytes`, or returns `None` if no free range is long enough. It may not be backed by
    /// memory yet: see [`back`].
    ///
    /// [`back`]: Pool::back
    pub fn take(&mut self, bytes: usize) -> Option<Part> {
        let exact = bytes.checked_next_multiple_of(BLOCK_ALIGNMENT)?;
        // If a sample has its own block and is nearly as long as the longest, it takes as much room as the longest
        // would. The hole it leaves then suits the next such sample, whichever is longer, and two holes are enough.
        let roomy = if self.longest > 0 && exact > self.longest / 2 { exact.max(self.longest) } else { exact };
        self.first_fit(roomy).or_else(|| self.first_fit(exact))
    }

    /// Like [`take`](Pool::take), but never takes more than needed.
    pub fn take_exact(&mut self, bytes: usize) -> Option<Part> {
        self.first_fit(bytes.checked_next_multiple_of(BLOCK_ALIGNMENT)?)
    }

    /// Like `take`, but uses the reserved range if it has room.
    pub fn take_reserved(&mut self, bytes: usize) -> Option<Part> {
        let exact = bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let reserved = self.reserved;
        self.fit(exact, |part| part.offset() < reserved).or_else(|| self.take(bytes))
    }

    fn first_fit(&mut self, bytes: usize) -> Option<Part> {
        let reserved = self.reserved;
        self.fit(bytes, |part| part.offset() >= reserved)
    }

    fn fit(&mut self, bytes: usize, suits: impl Fn(&Part) -> bool) -> Option<Part> {
        let index = self.free.iter().position(|part| part.len() >= bytes && suits(part))?;
        let block = self.free[index].split_to(bytes);
        if self.free[index].is_empty() {
            self.free.remove(index);
        }
        self.free_bytes -= bytes;
        Some(block)
    }

    /// Ensures that everything below the offset `end` of the arena is backed by memory. Returns the range that was
    /// backed just now, for registration with a ring. These ranges are adjacent and ascending.
    ///
    /// # Errors
    /// `MemoryLimit` if the system has no memory left.
    pub fn back(&mut self, end: usize) -> Result<Option<Range<usize>>> {
        if end <= self.backed {
            return Ok(None);
        }
        let step = (self.arena.len() / GROWTH_STEPS).next_multiple_of(GROWTH_BYTES).max(GROWTH_BYTES);
        let range = self.backed..end.next_multiple_of(step).min(self.arena.len());
        if self.arena.backing() != Backing::Elsewhere && range.end / ROOM_STEP > range.start / ROOM_STEP {
            check_room(range.end, range.len())?;
        }
        self.arena.populate(range.clone()).map_err(|source| {
            Error::new(ErrorKind::MemoryLimit, format!("the system cannot give {} bytes of memory", range.len()))
                .with_source(source)
                .with_remedy("lower memory_limit, or raise the memory limit of the container")
        })?;
        self.backed = range.end;
        Ok(Some(range))
    }

    /// Takes a block back: inserts it into the free list by offset and joins it with its neighbours.
    pub fn give(&mut self, block: Part) {
        if block.is_empty() {
            return;
        }
        debug_assert!(self.arena.owns(&block));
        self.free_bytes += block.len();
        self.insert(block);
    }

    fn insert(&mut self, mut block: Part) {
        if block.offset() < self.reserved && self.reserved < block.end() {
            let rest = block.split_off(self.reserved - block.offset());
            self.insert(rest);
        }
        let mut index = self.free.partition_point(|part| part.offset() < block.offset());
        self.free.insert(index, block);
        if index > 0 {
            index -= self.join(index - 1) as usize;
        }
        self.join(index);
    }

    /// Takes back the leases dropped since the last call. Returns whether there were any.
    pub fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some(part) = self.home.parts.pop() {
            self.give(part);
            any = true;
        }
        any
    }

    /// Shares a filled block with consumers. It comes back when its last clone or slice is dropped.
    pub fn lease(&self, block: Part) -> Bytes {
        if block.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(Lease { block: Some(block), home: Arc::clone(&self.home) })
    }

    /// Joins the free part after `index` to the one at `index` if they touch, but never across the end of the reserved
    /// range.
    fn join(&mut self, index: usize) -> bool {
        let Some(next) = self.free.get(index + 1).map(Part::offset) else { return false };
        if self.free[index].end() != next || next == self.reserved {
            return false;
        }
        let next = self.free.remove(index + 1);
        self.free[index].unsplit(next).is_ok()
    }
}

/// One leased block.
struct Lease {
    block: Option<Part>,
    home: Arc<Home>,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.home.parts.push(block);
            self.home.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn pool(bytes: usize) -> Pool {
        Pool::new(bytes, 150 * MIB, Arc::new(Bell::new())).unwrap()
    }

    #[test]
    fn no_more_is_lent_than_was_asked_for() {
        let mut pool = pool(MIB + 100);
        assert_eq!((pool.bytes(), pool.arena().len()), (MIB, 2 * MIB));
        assert!(pool.take(MIB + 1).is_none());
        let block = pool.take(MIB).unwrap();
        assert!(pool.take(1).is_none() && !pool.is_whole());
        pool.give(block);
        assert!(pool.is_whole());
    }

    #[test]
    fn blocks_come_home_and_join() {
        let mut pool = pool(16 * MIB);
        let total = pool.free_bytes();
        let blocks: Vec<Part> = (1..=8).map(|n| pool.take(n * 10_000).unwrap()).collect();
        assert!(blocks.windows(2).all(|pair| pair[0].end() == pair[1].offset()), "address order");
        let mut order = blocks;
        order.swap(0, 5);
        order.swap(2, 7);
        for block in order {
            pool.give(block);
        }
        assert_eq!(pool.free_bytes(), total);
        assert_eq!(pool.free.len(), 1, "all joined");
        assert!(pool.is_whole());
    }

    #[test]
    fn what_is_kept_aside_is_for_those_who_ask_for_it() {
        let mut pool = pool(4 * MIB);
        pool.reserve(MIB - 1);
        assert!(pool.is_whole());
        let all = pool.take(3 * MIB).unwrap();
        assert_eq!(all.offset(), MIB);
        assert!(pool.take(1).is_none());
        let (first, second) = (pool.take_reserved(MIB / 2).unwrap(), pool.take_reserved(MIB / 2).unwrap());
        assert_eq!((first.offset(), second.end()), (0, MIB));
        assert!(pool.take_reserved(1).is_none());
        [all, second, first].into_iter().for_each(|part| pool.give(part));
        assert!(pool.is_whole() && pool.take(4 * MIB).is_none(), "it does not join the rest");
        assert!(pool.take_reserved(2 * MIB).is_some(), "where it is too short the rest serves");
    }

    #[test]
    fn refuses_what_is_not_free_and_takes_it_later() {
        let mut pool = pool(4 * MIB);
        let first = pool.take(3 * MIB).unwrap();
        assert!(pool.take(2 * MIB).is_none());
        pool.give(first);
        assert!(pool.take(4 * MIB).is_some());
    }

    #[test]
    fn a_lease_comes_home_with_its_last_slice() {
        let mut pool = pool(2 * MIB);
        let mut block = pool.take(100).unwrap();
        block.as_mut()[..3].copy_from_slice(b"abc");
        let bytes = pool.lease(block);
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert!(!pool.collect());
        std::thread::spawn(move || assert_eq!(&slice[..], b"bc")).join().unwrap();
        assert!(pool.collect());
        assert!(pool.is_whole());
    }

    #[test]
    fn memory_is_taken_as_needed() {
        let mut pool = pool(64 * MIB);
        for _ in 0..100 {
            let block = pool.take(MIB).unwrap();
            let _ = pool.back(block.end()).unwrap();
            pool.give(block);
        }
        assert_eq!(pool.backed_bytes(), GROWTH_BYTES, "the same block again and again");
        assert_eq!(pool.back(1).unwrap(), None);
        assert_eq!(pool.back(20 * MIB).unwrap(), Some(GROWTH_BYTES..20 * MIB));
        assert_eq!(pool.back(64 * MIB).unwrap(), Some(20 * MIB..64 * MIB));
    }

    #[test]
    fn a_long_block_fits_the_hole_of_one_a_little_shorter() {
        let mut pool = pool(400 * MIB);
        let first = pool.take(140 * MIB).unwrap();
        let second = pool.take(140 * MIB).unwrap();
        let hole = first.offset();
        pool.give(first);
        let third = pool.take(150 * MIB).unwrap();
        assert_eq!(third.offset(), hole);
        let fourth = pool.take(80 * MIB).unwrap();
        assert_eq!(fourth.len(), 80 * MIB, "rounded only where there is room for it");
        assert!(second.end() <= fourth.offset());
    }
}
