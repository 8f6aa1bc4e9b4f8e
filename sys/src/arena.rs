//! One contiguous anonymous mapping, lent out as [`Part`]s.
//!
//! A `Part` is the only owner of its bytes. `split_to` and `unsplit` move bytes between parts and never give one byte
//! two owners, as `BytesMut::split` and `unsplit` do. So the owner of a part may write to it, or hand it to the kernel
//! by value, and needs no lock or borrow to exclude other users.
//!
//! Address space is reserved at once, and memory is taken range by range with [`Arena::populate`]. Populating costs
//! about 0.18 ms per MiB, for zeroing, and a loader whose consumer keeps up never needs all of its limit.

mod pages;

use pages::Pages;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

pub use pages::Uncarried;

/// Everything in the arena starts at a multiple of this: the size of a transparent huge page on x86-64, and on arm64
/// with pages of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Size of a base page in bytes.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// What kind of memory backs an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// `MAP_HUGETLB` pages, reserved by the administrator through `vm.nr_hugepages`.
    HugeTlb,
    /// Transparent huge pages, requested with `MADV_HUGEPAGE`.
    Transparent,
    /// Pages of the base size: `MADV_HUGEPAGE` was refused.
    Base,
    /// Memory elsewhere, which the arena [shadows](Arena::shadow).
    Elsewhere,
}

impl Backing {
    /// The backing in words.
    pub fn name(self) -> &'static str {
        match self {
            Backing::HugeTlb => "reserved huge pages",
            Backing::Transparent => "transparent huge pages",
            Backing::Base => "pages of the base size",
            Backing::Elsewhere => "memory elsewhere",
        }
    }
}

/// A mapping whose bytes are handed out once, as one [`Part`].
pub struct Arena {
    map: Arc<Map>,
}

impl Arena {
    /// Reserves `len` bytes (rounded up to 2 MiB) of zeroed, private, anonymous memory that a forked child does not
    /// inherit. Returns the arena and the one part that owns all of it.
    ///
    /// # Errors
    /// What `mmap(2)` reports; `ENOMEM` if the address space or the overcommit limit has no room for `len`.
    pub fn reserve(len: usize) -> io::Result<(Arena, Part)> {
        let len = len.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = Arc::new(Map::new(len)?);
        let whole = Part { map: Arc::clone(&map), offset: 0, len };
        Ok((Arena { map }, whole))
    }

    /// Reserves `len` bytes (rounded up to 2 MiB) of address space that represents, byte for byte, memory elsewhere,
    /// such as a device's. The owner of a part owns those bytes there, by the same rules. The space itself gets no
    /// memory and reads as zeros; writes to it go nowhere.
    ///
    /// # Errors
    /// What `mmap(2)` reports.
    pub fn shadow(len: usize) -> io::Result<(Arena, Part)> {
        let len = len.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let (base, _) = map_transparent(len)?;
        let map = Arc::new(Map { base, len, backing: Backing::Elsewhere, pages: None });
        let whole = Part { map: Arc::clone(&map), offset: 0, len };
        Ok((Arena { map }, whole))
    }

    /// Address of the first byte, for arithmetic with the addresses of slices of its parts.
    pub fn address(&self) -> usize {
        self.map.base.addr().get()
    }

    /// Length in bytes, a multiple of 2 MiB.
    pub fn len(&self) -> usize {
        self.map.len
    }

    /// Always false: an arena has at least one huge page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What kind of memory backs it.
    pub fn backing(&self) -> Backing {
        self.map.backing
    }

    /// Backs all pages of a range with memory now (`MADV_POPULATE_WRITE`), so that no read and no registration meets a
    /// page fault later. It changes no byte. Before Linux 5.14 it does nothing, and pages are backed when they are
    /// first touched. A shadow gets none.
    ///
    /// # Errors
    /// `ENOMEM` if the kernel or a control group has no more memory to give; `InvalidInput` for a range outside the
    /// arena.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.touch(range.clone())?;
        if let Some(pages) = &self.map.pages {
            pages.number(range);
        }
        Ok(())
    }

    /// As [`populate`](Arena::populate), but pages that can be carried get no number: to take memory on one thread of
    /// which another one keeps the books.
    ///
    /// # Errors
    /// As for `populate`.
    pub fn touch(&self, range: Range<usize>) -> io::Result<()> {
        if range.start > range.end || range.end > self.map.len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.map.backing == Backing::Elsewhere {
            return Ok(());
        }
        let page = rustix::param::page_size();
        let start = range.start / page * page;
        let base = self.map.base.as_ptr().wrapping_add(start);
        // SAFETY: `start..range.end` is inside the mapping, which `self.map` keeps (checked above). Populating faults
        // pages in and changes no byte, so parts that others own in the range keep their content.
        let done =
            unsafe { rustix::mm::madvise(base.cast(), range.end - start, rustix::mm::Advice::LinuxPopulateWrite) };
        match done {
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether `part` is a part of this arena.
    pub fn owns(&self, part: &Part) -> bool {
        Arc::ptr_eq(&self.map, &part.map)
    }

    /// Whether `other` is a handle on the same mapping.
    pub(crate) fn is_same(&self, other: &Arena) -> bool {
        Arc::ptr_eq(&self.map, &other.map)
    }

    /// Address of the mapping, to register it with a ring or a driver inside this crate.
    pub(crate) fn base(&self) -> *mut u8 {
        self.map.base.as_ptr()
    }

    /// A second handle, which keeps the mapping: for a ring or a driver that registered it, or a thread that
    /// [touches](Arena::touch) it.
    pub fn handle(&self) -> Arena {
        Arena { map: Arc::clone(&self.map) }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.map.len).field("backing", &self.map.backing).finish()
    }
}

/// The only owner of a range of an [`Arena`]'s bytes.
pub struct Part {
    map: Arc<Map>,
    offset: usize,
    len: usize,
}

impl Part {
    /// Where the part starts in its arena, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the part owns no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset just past the last byte.
    pub fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Splits the part: returns the first `at` bytes and keeps the rest.
    ///
    /// # Panics
    /// If `at` is more than its length.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Part {
        assert!(at <= self.len, "split_to({at}) of a part of {} bytes", self.len);
        let front = Part { map: Arc::clone(&self.map), offset: self.offset, len: at };
        self.offset += at;
        self.len -= at;
        front
    }

    /// Splits the part: keeps the first `at` bytes and returns the rest.
    ///
    /// # Panics
    /// If `at` is more than its length.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Part {
        let front = self.split_to(at);
        std::mem::replace(self, front)
    }

    /// Gives the memory of all whole pages of the system in the part back to it. They read as zeros.
    ///
    /// # Errors
    /// `EINVAL` for memory that is locked (`mlock(2)`) or of reserved huge pages.
    pub fn discard(&mut self) -> io::Result<()> {
        let page = rustix::param::page_size();
        let start = self.offset.next_multiple_of(page);
        let end = self.end() / page * page;
        if start >= end || self.map.backing == Backing::Elsewhere {
            return Ok(());
        }
        let base = self.map.base.as_ptr().wrapping_add(start);
        // SAFETY: `start..end` is in this part, which owns its bytes alone, and `&mut self` keeps other code from
        // reading them meanwhile. The mapping is private and anonymous: discarded pages read as zeros, which is a value
        // of every byte.
        unsafe { rustix::mm::madvise(base.cast(), end - start, rustix::mm::Advice::LinuxDontNeed)? };
        Ok(())
    }

    /// Joins the part that starts where this one ends.
    ///
    /// # Errors
    /// Returns `next` if it does not start there or belongs to another arena.
    pub fn unsplit(&mut self, next: Part) -> Result<(), Part> {
        if !Arc::ptr_eq(&self.map, &next.map) || next.offset != self.end() {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }

    /// Address of the first byte, for a kernel or a device that writes to it while this crate holds the part by value.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `offset + len <= map.len` holds for every part, because `reserve` and `shadow` make the first one so,
        // and `split_to` and `unsplit` keep it so. The address is inside the mapping or one past its end.
        unsafe { self.map.base.as_ptr().add(self.offset) }
    }

    /// Whether this is a part of `arena`.
    pub(crate) fn is_of(&self, arena: &Arena) -> bool {
        arena.owns(self)
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is mapped for as long as `self.map` lives, and always initialised: anonymous mappings read
        // as zeros. No other part owns a byte of it, so its only writers are `&mut self` and those to whom this crate
        // gives the address. They write only while the crate holds the part by value: a ring while a read is in flight,
        // the device to the word that `cuda::Copies` keeps to itself, and nvJPEG to parts that no other code sees.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl AsMut<[u8]> for Part {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({}..{})", self.offset, self.end())
    }
}

/// The mapping, which is unmapped when the arena and the last part are gone.
struct Map {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
    /// The place of each page, if pages can be carried.
    pages: Option<Pages>,
}

// SAFETY: `Map` is an address range, and numbers of pages that are atomic: it never reads or writes the bytes. Only a
// `Part` does, and because a `Part` owns its range alone, it can be moved to another thread or read from one.
unsafe impl Send for Map {}
// SAFETY: as for Send; `&Map` gives out copies of the address and the length only.
unsafe impl Sync for Map {}

impl Map {
    fn new(len: usize) -> io::Result<Map> {
        let (base, backing) = match map_huge_tlb(len) {
            Some(base) => (base, Backing::HugeTlb),
            None => map_transparent(len)?,
        };
        let map = Map { base, len, backing, pages: None };
        map.keep_from_children()?;
        Ok(map)
    }

    /// A forked child must not share these pages: bytes in flight would be copied on write, and the kernel would write
    /// to one copy while the parent reads the other.
    fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping, and the advice changes no byte of it.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, rustix::mm::Advice::LinuxDontFork)? };
        Ok(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the code that made `self` mapped `base..base + len`, and no part or arena that could reach it is
        // left. An error leaves the range mapped, which is a harmless leak.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn map_huge_tlb(len: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags};
    // Without `NORESERVE` this call sets the pages aside or fails, so that no access ends in a SIGBUS.
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses touches no existing memory.
    let base =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
    NonNull::new(base.ok()?.cast())
}

fn map_transparent(len: usize) -> io::Result<(NonNull<u8>, Backing)> {
    use rustix::mm::{MapFlags, ProtFlags};
    // One huge page more than requested, so that it contains a 2 MiB boundary. The excess at both ends is given back.
    let wide = len.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses touches no existing memory.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), wide, ProtFlags::READ | ProtFlags::WRITE, flags)? }
            .cast::<u8>();
    let head = start.align_offset(HUGE_PAGE_BYTES);
    let tail = wide - head - len;
    let base = start.wrapping_add(head);
    if head > 0 {
        // SAFETY: `start..start + head` is the unused front of the mapping made above.
        unsafe { rustix::mm::munmap(start.cast(), head)? };
    }
    if tail > 0 {
        // SAFETY: `base + len..start + wide` is the unused end of the mapping made above.
        unsafe { rustix::mm::munmap(base.wrapping_add(len).cast(), tail)? };
    }
    // SAFETY: `base..base + len` is what remains of the mapping made above.
    let huge = unsafe { rustix::mm::madvise(base.cast(), len, rustix::mm::Advice::LinuxHugepage) };
    let backing = if huge.is_ok() { Backing::Transparent } else { Backing::Base };
    Ok((NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, backing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_split_and_join() {
        let (arena, mut whole) = Arena::reserve(3 << 20).unwrap();
        assert_eq!(arena.len(), 4 << 20);
        assert_eq!(whole.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        let mut front = whole.split_to(4096);
        let mid = front.split_off(1024);
        assert_eq!((front.offset(), front.len(), mid.offset(), mid.len()), (0, 1024, 1024, 3072));
        assert!(front.unsplit(whole).is_err_and(|back| back.offset() == 4096), "not a neighbour");
        front.unsplit(mid).unwrap();
        assert_eq!(front.len(), 4096);
    }

    #[test]
    fn parts_of_two_arenas_do_not_join() {
        let (_a, mut a) = Arena::reserve(1).unwrap();
        let (_b, mut b) = Arena::reserve(1).unwrap();
        let mut front = a.split_to(512);
        let _ = b.split_to(512);
        assert!(front.unsplit(b).is_err());
    }

    #[test]
    fn populate_keeps_bytes_and_parts_are_disjoint() {
        let (arena, mut whole) = Arena::reserve(1).unwrap();
        let mut front = whole.split_to(100);
        front.as_mut().fill(7);
        arena.populate(0..arena.len()).unwrap();
        assert!(arena.populate(0..arena.len() + 1).is_err());
        whole.as_mut().fill(9);
        assert!(front.as_ref().iter().all(|&b| b == 7));
        assert!(whole.as_ref().iter().all(|&b| b == 9));
    }

    #[test]
    fn what_is_discarded_reads_as_zeros_and_its_neighbours_do_not() {
        let (arena, mut whole) = Arena::reserve(1).unwrap();
        arena.touch(0..arena.len()).unwrap();
        assert!(arena.touch(1..arena.len() + 1).is_err());
        whole.as_mut().fill(7);
        let mut middle = whole.split_off(100);
        let back = middle.split_off(1 << 20);
        middle.discard().unwrap();
        // Whole pages only: its first one is partly the front's.
        let page = rustix::param::page_size();
        let (edge, inside) = middle.as_ref().split_at(page - 100);
        let inside = &inside[..inside.len() / page * page];
        assert!(edge.iter().all(|&byte| byte == 7) && inside.iter().all(|&byte| byte == 0));
        assert!(whole.as_ref().iter().chain(back.as_ref()).all(|&byte| byte == 7));
    }

    #[test]
    fn a_shadow_gets_no_memory() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        let before = resident();
        let (arena, mut whole) = Arena::shadow(1 << 30).unwrap();
        arena.populate(0..arena.len()).unwrap();
        assert_eq!((arena.backing(), arena.address() % HUGE_PAGE_BYTES), (Backing::Elsewhere, 0));
        let part = whole.split_to(4096);
        assert_eq!(part.as_ref().as_ptr().addr(), arena.address());
        assert!(part.as_ref().iter().all(|&byte| byte == 0));
        assert!(resident() < before + (256 << 20), "{} of {before}", resident());
    }

    #[test]
    fn memory_outlives_the_arena_handle() {
        let (arena, mut part) = Arena::reserve(1).unwrap();
        drop(arena);
        part.as_mut()[0] = 1;
        let sent = std::thread::spawn(move || part.as_ref()[0]).join().unwrap();
        assert_eq!(sent, 1);
    }
}
