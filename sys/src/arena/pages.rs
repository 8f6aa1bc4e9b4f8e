//! Memory that moves: whole pages of an arena are carried from one place in its address space to another.
//!
//! An arena of pages has more address space than memory. A page is 2 MiB or a multiple, and gets a number when it is
//! [populated](Arena::populate). [`Arena::carry`] moves it by `mremap(2)`: the bytes stay where they are in memory and
//! get another address. So a long block is put together from scattered pages, without a copy and without zeroing. What
//! the kernel knows about a page (a registered buffer) stays true, because it concerns the memory and not its address.

use super::{Arena, HUGE_PAGE_BYTES, Map, Part, map_transparent};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The page in each slot of the address space.
pub(super) struct Pages {
    bytes: usize,
    /// The number of the page in each slot, plus one; 0 for an empty slot.
    at: Box<[AtomicU32]>,
    /// Pages that were populated.
    count: AtomicU32,
}

impl Pages {
    fn new(slots: usize, bytes: usize) -> Pages {
        Pages { bytes, at: (0..slots).map(|_| AtomicU32::new(0)).collect(), count: AtomicU32::new(0) }
    }

    /// Numbers the pages of the slots that `range` touches and that have none yet.
    pub(super) fn number(&self, range: std::ops::Range<usize>) {
        for slot in &self.at[range.start / self.bytes..range.end.div_ceil(self.bytes)] {
            if slot.load(Ordering::Relaxed) == 0 {
                slot.store(self.count.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        }
    }
}

/// A page that could not be carried.
pub struct Uncarried {
    /// What `mremap(2)` reports.
    pub error: io::Error,
    /// The parts, as they were. `None` if the place has become unusable: its address space is never used again.
    pub parts: Option<(Part, Part)>,
}

impl fmt::Debug for Uncarried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uncarried").field("error", &self.error).field("is_usable", &self.parts.is_some()).finish()
    }
}

impl Arena {
    /// Reserves `space` bytes of address space (rounded up to whole pages), as [`reserve`](Arena::reserve) does. Its
    /// memory is pages of `page` bytes that can be [carried](Arena::carry). Such an arena never has reserved huge
    /// pages, and cannot be pinned for a device: both know memory by its address.
    ///
    /// # Errors
    /// `InvalidInput` if `page` is not a multiple of 2 MiB; what `mmap(2)` reports.
    pub fn reserve_pages(space: usize, page: usize) -> io::Result<(Arena, Part)> {
        if page == 0 || !page.is_multiple_of(HUGE_PAGE_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = space.max(1).checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let (base, backing) = map_transparent(len)?;
        let pages = Some(Pages::new(len / page, page));
        let map = Arc::new(Map { base, len, backing, pages });
        map.keep_from_children()?;
        let whole = Part { map: Arc::clone(&map), offset: 0, len };
        Ok((Arena { map }, whole))
    }

    /// Length of a page in bytes, if its memory is pages that can be carried.
    pub fn page_bytes(&self) -> Option<usize> {
        self.map.pages.as_ref().map(|pages| pages.bytes)
    }

    /// The number of the page at `offset`, if one was populated there or carried to it.
    pub fn page_at(&self, offset: usize) -> Option<u32> {
        let pages = self.map.pages.as_ref()?;
        pages.at.get(offset / pages.bytes)?.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Carries the page in `from` to `to`, which has none. Both parts must be exactly a slot of this arena. Then `from`
    /// is without memory and reads as zeros, until it is populated or gets a page again.
    ///
    /// # Errors
    /// `InvalidInput` if that is not so. `EINVAL` before Linux 5.7; `ENOMEM` beyond `vm.max_map_count`.
    pub fn carry(&self, from: Part, to: Part) -> Result<(Part, Part), Uncarried> {
        let (Some(page), Some(bytes)) = (self.page_at(from.offset), self.page_bytes()) else {
            return Err(Uncarried { error: io::ErrorKind::InvalidInput.into(), parts: Some((from, to)) });
        };
        let is_slot = |part: &Part| self.owns(part) && part.len == bytes && part.offset.is_multiple_of(bytes);
        if !is_slot(&from) || !is_slot(&to) || self.page_at(to.offset).is_some() {
            return Err(Uncarried { error: io::ErrorKind::InvalidInput.into(), parts: Some((from, to)) });
        }
        // `DONTUNMAP` keeps the address space of `from`: without it, another mapping of the process could take its
        // place.
        let flags = rustix::mm::MremapFlags::MAYMOVE | rustix::mm::MremapFlags::DONTUNMAP;
        // SAFETY: both are ranges of this arena's mapping, page-aligned, of one length, and apart, since two parts
        // never own one byte. This call owns both parts, so no other code reads or writes either: no slice of them
        // exists, and no ring has them in flight. The old content of `to` is replaced: it had no page, or one that was
        // only ever zero and belongs to the part that this call owns. A ring that registered the page goes on writing
        // to the same memory only for parts that it looks up by the page's number, which moves with it below.
        let moved = unsafe { rustix::mm::mremap_fixed(from.as_ptr().cast(), bytes, bytes, flags, to.as_ptr().cast()) };
        if let Err(error) = moved {
            let usable = still_mapped(&to);
            if !usable {
                // Nothing is mapped there any more. Whoever leaks the part keeps the whole arena from being unmapped,
                // since another mapping may move into the hole.
                std::mem::forget(to);
                return Err(Uncarried { error: error.into(), parts: None });
            }
            return Err(Uncarried { error: error.into(), parts: Some((from, to)) });
        }
        if let Some(pages) = &self.map.pages {
            pages.at[from.offset / bytes].store(0, Ordering::Relaxed);
            pages.at[to.offset / bytes].store(page + 1, Ordering::Relaxed);
        }
        Ok((from, to))
    }
}

/// Whether the range of a part whose `mremap` failed is mapped: the kernel unmaps the target before it moves, and may
/// fail after that. Then it is mapped again.
fn still_mapped(part: &Part) -> bool {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    // SAFETY: `part` owns the range. The advice changes no byte; it fails with `ENOMEM` where something is not mapped.
    if unsafe { rustix::mm::madvise(part.as_ptr().cast(), part.len, Advice::LinuxDontFork) }.is_ok() {
        return true;
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: `part` owns the range, in which nothing is mapped. If another thread has mapped something there since,
    // `FIXED_NOREPLACE` fails and touches nothing.
    let mapped = unsafe { rustix::mm::mmap_anonymous(part.as_ptr().cast(), part.len, access, flags) };
    if !mapped.is_ok_and(|base| base.cast::<u8>() == part.as_ptr()) {
        return false;
    }
    // SAFETY: the range was mapped just now, for this part alone.
    unsafe { rustix::mm::madvise(part.as_ptr().cast(), part.len, Advice::LinuxDontFork) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Slots of an arena of `space` pages, each a part of its own.
    fn slots(space: usize) -> (Arena, Vec<Option<Part>>) {
        let (arena, mut whole) = Arena::reserve_pages(space * 2 * MIB, 2 * MIB).unwrap();
        let parts = (0..space).map(|_| Some(whole.split_to(2 * MIB))).collect();
        (arena, parts)
    }

    #[test]
    fn a_page_takes_its_bytes_and_its_number_along() {
        let (arena, mut parts) = slots(4);
        assert_eq!((arena.page_bytes(), arena.page_at(0)), (Some(2 * MIB), None));
        arena.populate(2 * MIB..6 * MIB).unwrap();
        assert_eq!((arena.page_at(2 * MIB), arena.page_at(4 * MIB)), (Some(0), Some(1)));
        parts[1].as_mut().unwrap().as_mut().fill(7);
        parts[2].as_mut().unwrap().as_mut().fill(9);
        let (from, to) = arena.carry(parts[1].take().unwrap(), parts[3].take().unwrap()).unwrap();
        assert!(to.as_ref().iter().all(|&byte| byte == 7), "the bytes are at the new address");
        assert!(from.as_ref().iter().all(|&byte| byte == 0), "and no longer at the old one");
        assert!(parts[2].as_ref().unwrap().as_ref().iter().all(|&byte| byte == 9), "a neighbour keeps its own");
        assert_eq!((arena.page_at(2 * MIB), arena.page_at(6 * MIB)), (None, Some(0)));
        // A fresh page in the old place is another one.
        arena.populate(2 * MIB..4 * MIB).unwrap();
        assert_eq!(arena.page_at(2 * MIB), Some(2));
        assert!(to.as_ref().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_not_a_page_or_has_one_is_refused() {
        let (arena, mut parts) = slots(4);
        arena.populate(0..4 * MIB).unwrap();
        let refused = |result: Result<(Part, Part), Uncarried>| {
            let uncarried = result.unwrap_err();
            assert_eq!(uncarried.error.kind(), io::ErrorKind::InvalidInput);
            uncarried.parts.unwrap()
        };
        let (first, second) = refused(arena.carry(parts[0].take().unwrap(), parts[1].take().unwrap()));
        let (third, first) = refused(arena.carry(parts[2].take().unwrap(), first));
        let mut short = first;
        let front = short.split_to(MIB);
        let (_front, _third) = refused(arena.carry(front, third));
        let (other, _) = Arena::reserve_pages(2 * MIB, 2 * MIB).unwrap();
        refused(other.carry(second, parts[3].take().unwrap()));
        assert!(Arena::reserve_pages(1, MIB).is_err());
        let (plain, mut whole) = Arena::reserve(8 * MIB).unwrap();
        plain.populate(0..8 * MIB).unwrap();
        assert_eq!((plain.page_bytes(), plain.page_at(0)), (None, None));
        let to = whole.split_off(2 * MIB).split_to(2 * MIB);
        refused(plain.carry(whole, to));
    }

    #[test]
    fn any_order_of_moves_keeps_every_byte() {
        let (arena, mut parts) = slots(12);
        arena.populate(0..8 * MIB).unwrap();
        let mut holds: Vec<Option<u8>> = (0..12).map(|slot| (slot < 4).then_some(slot as u8 + 1)).collect();
        for (part, byte) in parts.iter_mut().zip(&holds) {
            byte.iter().for_each(|&byte| part.as_mut().unwrap().as_mut().fill(byte));
        }
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..500 {
            let (from, to) = (random(12), random(12));
            if holds[from].is_none() || holds[to].is_some() {
                continue;
            }
            let (old, new) = arena.carry(parts[from].take().unwrap(), parts[to].take().unwrap()).unwrap();
            (parts[from], parts[to]) = (Some(old), Some(new));
            holds.swap(from, to);
        }
        for (part, byte) in parts.iter().zip(&holds) {
            let part = part.as_ref().unwrap();
            assert!(part.as_ref().iter().all(|&is| is == byte.unwrap_or(0)), "{part:?}");
        }
    }
}
