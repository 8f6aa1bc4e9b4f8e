//! Memory: one fixed arena, lent out in blocks. A block is in exactly one place: free here, in flight in an engine, or
//! leased to a consumer. A lease returns by drop.
//!
//! Only the reactor's thread takes and gives blocks, but a lease may be dropped anywhere. Allocation is address-ordered
//! first fit: the lowest free range that is long enough. So a consumer that keeps up is served from the same few
//! megabytes. They stay in the processor's caches and are the only memory ever taken from the system: the arena is
//! address space, backed from the bottom up, a few megabytes at a time, just before the first read into it starts.
//!
//! If samples are longer than a block of many, the pool is one of *pages*: it has more address space than memory, and a
//! block gets idle pages, moved to its addresses, before new ones are taken. So blocks of any lengths take turns with
//! the same memory, and each takes only what it needs.

mod ahead;
mod pages;
#[cfg(test)]
mod tests;

use crate::config::{Cause, Fallback, Share};
use crate::plan::BLOCK_BYTES;
use crate::queue::Bell;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use pages::Pages;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use uringload_sys::arena::{Backing, HUGE_PAGE_BYTES};
use uringload_sys::{Arena, Part, cgroup, system};

/// Memory is taken from the system in steps of at least one huge page. Zeroing it takes 0.2 ms, or up to 4 ms in a
/// virtual machine whose host must find it first. That is still shorter than the reads in flight, so growing does not
/// stall the disk.
pub const GROWTH_BYTES: usize = 2 << 20;

/// Maximum number of steps to back the whole arena: a ring registers at most 16384 ranges.
const GROWTH_STEPS: usize = 8192;

/// How often, in bytes taken, the pool checks what the container has left: 0.1 ms compared with the 3 ms that zeroing
/// this much takes.
const ROOM_STEP: usize = 16 << 20;

/// Minimum that must be left over: without it, a container has no room for a thread's stack or for a page table.
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
    /// Everything below this offset is backed by memory, if it is not a pool of pages.
    backed: usize,
    /// Where the memory is, if it is a pool of pages.
    pages: Option<Box<Pages>>,
    home: Arc<Home>,
}

/// Refuses to take `bytes` more if the kernel would kill a process of the container for it.
fn check_room(backed: usize, bytes: usize) -> Result<()> {
    let Some(group) = cgroup::memory().filter(|group| group.most() < ROOM_LEFT + bytes as u64) else { return Ok(()) };
    let what = format!(
        "{} allows {} bytes, and {} are in use: the loader's memory cannot grow by {bytes} to {backed} bytes",
        group.path.display(),
        group.limit,
        group.used
    );
    Err(Error::new(ErrorKind::MemoryLimit, what)
        .with_remedy("lower memory_limit, or raise the memory limit of the container"))
}

/// Whether the system has reserved huge pages for this much memory. Those cannot be moved.
fn has_huge_pages(bytes: usize) -> bool {
    let pages = system::huge_pages();
    pages.page_bytes == HUGE_PAGE_BYTES as u64 && pages.free.saturating_mul(pages.page_bytes) >= bytes as u64
}

/// The error of a pool whose idle pages cannot be moved.
fn cannot_carry(source: Option<io::Error>) -> Error {
    let source = source.unwrap_or_else(|| io::ErrorKind::OutOfMemory.into());
    Error::new(ErrorKind::MemoryLimit, "memory cannot be carried from one sample to the next")
        .with_source(source)
        .with_remedy("raise the number of mappings of a process (sysctl vm.max_map_count), or memory_limit")
}

/// Where dropped leases go. Unbounded, because a drop can neither wait nor fail; the arena is the actual bound.
#[derive(Debug)]
struct Home {
    parts: SegQueue<Part>,
    bell: Arc<Bell>,
    /// The share that a budget granted for the arena, and the loader's bytes outside the arena. It is returned with the
    /// last lease.
    share: OnceLock<(Share, u64)>,
}

impl Home {
    fn new(bell: Arc<Bell>) -> Arc<Home> {
        Arc::new(Home { parts: SegQueue::new(), bell, share: OnceLock::new() })
    }
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

    /// Like `new`, but if samples are longer than a block of many, pages are moved from one block to the next. If they
    /// cannot be, also returns why: then each long block takes the room of the longest.
    ///
    /// # Errors
    /// As for `new`.
    pub fn carrying(bytes: usize, longest_sample: usize, bell: Arc<Bell>) -> Result<(Pool, Option<Fallback>)> {
        if longest_sample as u64 <= BLOCK_BYTES || has_huge_pages(bytes) {
            return Ok((Pool::new(bytes, longest_sample, bell)?, None));
        }
        match Pool::of_pages(bytes, Arc::clone(&bell)) {
            Ok(pool) => Ok((pool, None)),
            Err(error) => {
                let step = Fallback::new(Cause::Carrying, "the room of the longest sample for each", Some(&error));
                Ok((Pool::new(bytes, longest_sample, bell)?, Some(step)))
            }
        }
    }

    /// A pool of pages. Moves one page to test whether the system can.
    fn of_pages(bytes: usize, bell: Arc<Bell>) -> io::Result<Pool> {
        let bytes = bytes / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
        let page = (bytes / GROWTH_STEPS).next_multiple_of(GROWTH_BYTES).max(GROWTH_BYTES);
        let most = bytes.div_ceil(page);
        let slots = most.saturating_mul(pages::SPACE).max(2);
        let (arena, whole) = Arena::reserve_pages(slots.saturating_mul(page), page)?;
        let home = Home::new(bell);
        let pages = Some(Box::new(Pages::new(slots, most, page)));
        let (free, free_bytes) = (vec![whole], bytes);
        let mut pool = Pool { arena, free, free_bytes, bytes, longest: 0, reserved: 0, backed: 0, pages, home };
        pool.arena.populate(0..page)?;
        pool.carry(0, 1).and_then(|()| pool.carry(1, 0))?;
        if let Some(pages) = &mut pool.pages {
            pages.backed = 1;
            pages.rest(0);
        }
        Ok(pool)
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
        let home = Home::new(bell);
        Pool { arena, free: vec![whole], free_bytes: bytes, bytes, longest, reserved: 0, backed: 0, pages: None, home }
    }

    /// From now on, takes memory only if `share` covers it together with the `beside` bytes of the loader outside the
    /// pool.
    pub fn share(&mut self, share: Share, beside: u64) {
        // A pool has one loader, which has one budget.
        let _ = self.home.share.set((share, beside));
    }

    /// The arena that blocks come from.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Reserves `bytes` while everything is free. From then on only [`take_reserved`](Pool::take_reserved) takes them.
    pub fn reserve(&mut self, bytes: usize) {
        debug_assert!(self.is_whole() && self.reserved == 0);
        self.reserved = bytes.next_multiple_of(BLOCK_ALIGNMENT).min(self.bytes);
        if let Some(pages) = &mut self.pages {
            pages.pin(self.reserved);
        }
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
        self.pages.as_ref().map_or(self.backed, |pages| pages.backed * pages.bytes)
    }

    /// The ranges that are backed by memory, in the order in which they were backed.
    pub fn backed(&self) -> Vec<Range<usize>> {
        let Some(pages) = &self.pages else { return std::iter::once(0..self.backed).collect() };
        let page = |offset| Some((self.arena.page_at(offset)?, offset..offset + pages.bytes));
        let mut backed: Vec<_> = (0..self.arena.len()).step_by(pages.bytes).filter_map(page).collect();
        backed.sort_unstable_by_key(|(number, _)| *number);
        backed.into_iter().map(|(_, range)| range).collect()
    }

    /// Whether a range is backed by memory.
    pub fn is_backed(&self, range: &Range<usize>) -> bool {
        match &self.pages {
            Some(pages) => pages.slots(range).all(|slot| self.arena.page_at(slot * pages.bytes).is_some()),
            None => range.end <= self.backed,
        }
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
        let reserved = self.reserved;
        self.fit(bytes.checked_next_multiple_of(BLOCK_ALIGNMENT)?, BLOCK_ALIGNMENT, |part| part.offset() >= reserved)
    }

    /// Like `take`, but uses the reserved range if it has room.
    pub fn take_reserved(&mut self, bytes: usize) -> Option<Part> {
        let exact = bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let reserved = self.reserved;
        self.fit(exact, BLOCK_ALIGNMENT, |part| part.offset() < reserved).or_else(|| self.take(bytes))
    }

    fn first_fit(&mut self, bytes: usize) -> Option<Part> {
        let reserved = self.reserved;
        let suits = |part: &Part| part.offset() >= reserved;
        // A block of whole pages begins with one, so that all of them can be moved to it, and few reads cross two.
        match self.pages.as_ref().map(|pages| pages.bytes).filter(|&page| bytes >= page) {
            Some(page) => self.fit(bytes, page, suits).or_else(|| self.fit(bytes, BLOCK_ALIGNMENT, suits)),
            None => self.fit(bytes, BLOCK_ALIGNMENT, suits),
        }
    }

    fn fit(&mut self, bytes: usize, alignment: usize, suits: impl Fn(&Part) -> bool) -> Option<Part> {
        if bytes > self.free_bytes {
            return None;
        }
        let place = |part: &Part| {
            let start = part.offset().next_multiple_of(alignment);
            (suits(part) && start.checked_add(bytes)? <= part.end()).then_some(start..start + bytes)
        };
        let may_lend = |range: &Range<usize>| self.pages.as_ref().is_none_or(|pages| pages.may_lend(range));
        let range = self.free.iter().filter_map(place).find(may_lend)?;
        if !self.is_covered(&range) {
            return None;
        }
        self.bring(&range);
        let block = self.extract(&range)?;
        if let Some(pages) = &mut self.pages {
            pages.lend(&range);
            let slots = pages.slots(&range);
            let missing = slots.clone().filter(|slot| self.arena.page_at(slot * pages.bytes).is_none()).count();
            pages.ahead.lent(slots, missing);
        }
        self.free_bytes -= bytes;
        Some(block)
    }

    /// Whether the pool's budget, if any, covers the memory that lending a range takes.
    fn is_covered(&self, range: &Range<usize>) -> bool {
        let Some((share, beside)) = self.home.share.get() else { return true };
        let bytes = match &self.pages {
            Some(pages) => (pages.used_with(range) * pages.bytes).max(self.backed_bytes()),
            None => self.grown(range.end).max(self.backed),
        };
        share.covers(beside + bytes as u64)
    }

    /// How much is backed once everything below `end` is.
    fn grown(&self, end: usize) -> usize {
        let step = (self.arena.len() / GROWTH_STEPS).next_multiple_of(GROWTH_BYTES).max(GROWTH_BYTES);
        end.next_multiple_of(step).min(self.arena.len())
    }

    /// Removes a range, which is free and lies in one part, from the free list.
    fn extract(&mut self, range: &Range<usize>) -> Option<Part> {
        let index = self.free.partition_point(|part| part.end() <= range.start);
        let part = self.free.get_mut(index).filter(|part| part.offset() <= range.start && range.end <= part.end())?;
        let mut block = part.split_off(range.start - part.offset());
        let rest = block.split_off(range.len());
        if !rest.is_empty() {
            self.free.insert(index + 1, rest);
        }
        if self.free[index].is_empty() {
            self.free.remove(index);
        }
        Some(block)
    }

    /// Moves idle pages to the place of a block, longest idle first: they are the least likely to be needed where they
    /// are. Missing pages are taken from the system before the first read into them.
    fn bring(&mut self, range: &Range<usize>) {
        let Some(slots) = self.pages.as_ref().map(|pages| pages.slots(range)) else { return };
        for slot in slots.clone() {
            let Some(pages) = &mut self.pages else { return };
            if !pages.is_idle(slot) || self.arena.page_at(slot * pages.bytes).is_some() {
                continue;
            }
            let Some(oldest) = pages.oldest(&slots) else { return };
            if let Err(error) = self.carry(oldest, slot) {
                let Some(pages) = &mut self.pages else { return };
                pages.rest(oldest);
                pages.refused = Some(error);
                return;
            }
        }
    }

    /// Moves the page in one slot to another. Nothing of either is lent.
    fn carry(&mut self, from: usize, to: usize) -> io::Result<()> {
        let Some(pages) = &self.pages else { return Err(io::ErrorKind::Unsupported.into()) };
        let (from, to) = (pages.range(from), pages.range(to));
        let Some(from) = self.extract(&from) else { return Err(io::ErrorKind::NotFound.into()) };
        let Some(to) = self.extract(&to) else {
            self.insert(from);
            return Err(io::ErrorKind::NotFound.into());
        };
        let (carried, parts) = match self.arena.carry(from, to) {
            Ok(parts) => (Ok(()), Some(parts)),
            Err(uncarried) => (Err(uncarried.error), uncarried.parts),
        };
        if let Some((from, to)) = parts {
            self.insert(from);
            self.insert(to);
        }
        carried
    }

    /// Backs some of `wanted` with memory, unless all of it is: everything below its end, or in a pool of pages its
    /// first page without memory. Returns the range that was just backed, for registration with a ring: adjacent and
    /// ascending ranges, or pages in the order of their numbers. Call it until nothing is left to back.
    ///
    /// # Errors
    /// `MemoryLimit` if the system has no memory left, or cannot move an idle page.
    pub fn back(&mut self, wanted: &Range<usize>) -> Result<Option<Range<usize>>> {
        if self.is_backed(wanted) {
            return Ok(None);
        }
        let range = match &mut self.pages {
            None => self.backed..self.grown(wanted.end),
            Some(pages) => {
                if !pages.may_grow() {
                    return Err(cannot_carry(pages.refused.take()));
                }
                let missing = |slot: &usize| self.arena.page_at(slot * pages.bytes).is_none();
                pages.slots(wanted).find(missing).map_or(0..0, |slot| pages.range(slot))
            }
        };
        let (before, after) = (self.backed_bytes(), self.backed_bytes() + range.len());
        if self.arena.backing() != Backing::Elsewhere && after / ROOM_STEP > before / ROOM_STEP {
            check_room(after, range.len())?;
        }
        let begun = Instant::now();
        if let Some(pages) = &self.pages {
            pages.ahead.reach(range.start / pages.bytes);
        }
        self.arena.populate(range.clone()).map_err(|source| {
            Error::new(ErrorKind::MemoryLimit, format!("the system cannot give {} bytes of memory", range.len()))
                .with_source(source)
                .with_remedy("lower memory_limit, or raise the memory limit of the container")
        })?;
        match &mut self.pages {
            Some(pages) => {
                pages.backed += 1;
                pages.ahead.took(range.start / pages.bytes, begun.elapsed(), &self.arena, pages.bytes);
            }
            None => self.backed = range.end,
        }
        Ok(Some(range))
    }

    /// Takes a block back: inserts it into the free list by offset and joins it with its neighbours.
    pub fn give(&mut self, mut block: Part) {
        if block.is_empty() {
            return;
        }
        debug_assert!(self.arena.owns(&block));
        self.take_from_helper(&mut block);
        self.free_bytes += block.len();
        if let Some(pages) = &mut self.pages {
            pages.give(&(block.offset()..block.end()), &self.arena);
        }
        self.insert(block);
    }

    /// Memory that the helper has taken for a block, but that was never read into, goes back to the system: it was not
    /// counted.
    fn take_from_helper(&mut self, block: &mut Part) {
        let Some(pages) = &mut self.pages else { return };
        for slot in pages.ahead.forget(&pages.slots(&(block.offset()..block.end()))) {
            let range = pages.range(slot);
            let within = range.start.max(block.offset())..range.end.min(block.end());
            if self.arena.page_at(range.start).is_some() || within.is_empty() {
                continue;
            }
            let mut rest = block.split_off(within.start - block.offset());
            let behind = rest.split_off(within.len());
            // On failure, the memory is used when the slot is.
            let _ = rest.discard();
            for part in [rest, behind] {
                let joined = block.unsplit(part);
                debug_assert!(joined.is_ok(), "they were one");
            }
        }
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
