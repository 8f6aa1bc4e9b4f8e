//! Memory: one fixed arena, lent out in blocks. A block is in exactly one place: free here, in flight in an engine, or
//! leased to a consumer, and it comes back by drop.
//!
//! Only the reactor's thread takes and gives; a lease may be dropped anywhere. The pool is address-ordered first fit: the
//! lowest free range that is long enough. So a consumer that keeps up is served from the same few megabytes, which stay in
//! the processor's caches and are all the memory that is ever taken from the system.

use crate::error::{Error, ErrorKind, Result};
use crate::queue::Bell;
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::ops::Range;
use std::sync::Arc;
use uringload_sys::{Arena, Part};

/// Memory is taken from the system in steps of at least this: 8 MiB take about 1.5 ms to zero, less than the reads in
/// flight last, so growing does not stall the disk.
pub const GROWTH_BYTES: usize = 8 << 20;

/// Blocks start at multiples of this, so that every block suits a 4096-byte logical sector.
pub const BLOCK_ALIGNMENT: usize = 4096;

/// The free part of an arena, and the way home for the leased part.
#[derive(Debug)]
pub struct Pool {
    arena: Arena,
    /// Free parts, by offset; no two touch.
    free: Vec<Part>,
    free_bytes: usize,
    /// Everything below this offset has been populated.
    populated: usize,
    /// What was populated and not yet asked for with `grown`.
    grown: Option<Range<usize>>,
    home: Arc<Home>,
}

/// Where leases go when they are dropped. Unbounded, because a drop can neither wait nor fail; what bounds it is the arena.
#[derive(Debug)]
struct Home {
    parts: SegQueue<Part>,
    bell: Arc<Bell>,
}

impl Pool {
    /// Reserves `bytes` of address space; memory follows as blocks are taken. `bell` is rung when a lease comes back.
    ///
    /// # Errors
    /// `MemoryLimit` where the system refuses to reserve that much.
    pub fn new(bytes: usize, bell: Arc<Bell>) -> Result<Pool> {
        let (arena, whole) = Arena::reserve(bytes).map_err(|source| {
            Error::new(ErrorKind::MemoryLimit, format!("cannot reserve {bytes} bytes for the pool"))
                .with_source(source)
                .with_remedy("lower memory_limit, or raise the address space limit (ulimit -v)")
        })?;
        let free_bytes = whole.len();
        let home = Arc::new(Home { parts: SegQueue::new(), bell });
        Ok(Pool { arena, free: vec![whole], free_bytes, populated: 0, grown: None, home })
    }

    /// The arena that blocks come from.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Bytes that are neither in flight nor leased.
    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Bytes of memory that were taken from the system so far.
    pub fn populated_bytes(&self) -> usize {
        self.populated
    }

    /// Whether every block is home.
    pub fn is_whole(&self) -> bool {
        self.free_bytes == self.arena.len()
    }

    /// Takes a block of `bytes` (rounded up to [`BLOCK_ALIGNMENT`]), or `None` while no free range is that long.
    ///
    /// # Errors
    /// `MemoryLimit` where the system has no memory left to back it.
    pub fn take(&mut self, bytes: usize) -> Result<Option<Part>> {
        let bytes = bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let Some(index) = self.free.iter().position(|part| part.len() >= bytes) else { return Ok(None) };
        let block = self.free[index].split_to(bytes);
        if self.free[index].is_empty() {
            self.free.remove(index);
        }
        self.free_bytes -= bytes;
        if block.end() > self.populated
            && let Err(source) = self.populate_to(block.end())
        {
            self.give(block);
            return Err(Error::new(ErrorKind::MemoryLimit, format!("the system has no {bytes} bytes to give"))
                .with_source(source)
                .with_remedy("lower memory_limit, or raise the memory limit of the container"));
        }
        Ok(Some(block))
    }

    /// Takes the first memory from the system, so that the first batch does not wait for it.
    ///
    /// # Errors
    /// `MemoryLimit` where the system has none.
    pub fn warm_up(&mut self) -> Result<()> {
        if let Some(block) = self.take(1)? {
            self.give(block);
        }
        Ok(())
    }

    /// Takes a block back, by offset into the free list, joined with its neighbours.
    pub fn give(&mut self, block: Part) {
        if block.is_empty() {
            return;
        }
        debug_assert!(self.arena.owns(&block));
        self.free_bytes += block.len();
        let mut index = self.free.partition_point(|part| part.offset() < block.offset());
        self.free.insert(index, block);
        if index > 0 {
            index -= self.join(index - 1) as usize;
        }
        self.join(index);
    }

    /// Takes back what was leased and dropped since the last call; returns whether there was anything.
    pub fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some(part) = self.home.parts.pop() {
            self.give(part);
            any = true;
        }
        any
    }

    /// Shares a filled block with consumers: it comes home when the last clone and slice is dropped.
    pub fn lease(&self, block: Part) -> Bytes {
        if block.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(Lease { block: Some(block), home: Arc::clone(&self.home) })
    }

    /// The range that was populated since the last call, for registration with the ring. Ranges are adjacent and ascend.
    pub fn grown(&mut self) -> Option<Range<usize>> {
        self.grown.take()
    }

    /// Joins the free part behind `index` to the one at it if they touch.
    fn join(&mut self, index: usize) -> bool {
        if index + 1 >= self.free.len() || self.free[index].end() != self.free[index + 1].offset() {
            return false;
        }
        let next = self.free.remove(index + 1);
        self.free[index].unsplit(next).is_ok()
    }

    fn populate_to(&mut self, end: usize) -> std::io::Result<()> {
        let start = self.populated;
        let end = end.next_multiple_of(GROWTH_BYTES).min(self.arena.len());
        self.arena.populate(start..end)?;
        self.populated = end;
        let first = self.grown.as_ref().map_or(start, |range| range.start);
        self.grown = Some(first..end);
        Ok(())
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
        Pool::new(bytes, Arc::new(Bell::new())).unwrap()
    }

    #[test]
    fn blocks_come_home_and_join() {
        let mut pool = pool(16 * MIB);
        let total = pool.free_bytes();
        let blocks: Vec<Part> = (1..=8).map(|n| pool.take(n * 10_000).unwrap().unwrap()).collect();
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
    fn refuses_what_is_not_free_and_takes_it_later() {
        let mut pool = pool(4 * MIB);
        let first = pool.take(3 * MIB).unwrap().unwrap();
        assert!(pool.take(2 * MIB).unwrap().is_none());
        pool.give(first);
        assert!(pool.take(4 * MIB).unwrap().is_some());
    }

    #[test]
    fn a_lease_comes_home_with_its_last_slice() {
        let mut pool = pool(2 * MIB);
        let mut block = pool.take(100).unwrap().unwrap();
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
        assert_eq!(pool.populated_bytes(), 0);
        for _ in 0..100 {
            let block = pool.take(MIB).unwrap().unwrap();
            pool.give(block);
        }
        assert_eq!(pool.populated_bytes(), GROWTH_BYTES);
        assert_eq!(pool.grown(), Some(0..GROWTH_BYTES));
        assert_eq!(pool.grown(), None);
        let _big = pool.take(20 * MIB).unwrap().unwrap();
        assert_eq!(pool.grown(), Some(GROWTH_BYTES..3 * GROWTH_BYTES));
    }
}
