//! A process with the maximum number of mappings cannot carry a page. Nothing is lost, and it can once there is room
//! again.

use uringload_sys::{Arena, Part};

const SLOT: usize = 2 << 20;

/// Maps pages apart from one another until the kernel refuses, and returns them.
fn exhaust() -> Vec<*mut libc::c_void> {
    let mut maps = Vec::new();
    for number in 0..1_000_000 {
        // Neighbours of other rights are never one mapping.
        let access = if number % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return maps;
        }
        maps.push(map);
    }
    panic!("the kernel has no limit of mappings");
}

#[test]
fn a_page_that_cannot_be_carried_stays_where_it_is() {
    let (arena, mut whole) = Arena::reserve_pages(8 * SLOT, SLOT).unwrap();
    let mut slot = || whole.split_to(SLOT);
    let (mut from, to): (Part, Part) = (slot(), slot());
    arena.populate(0..SLOT).unwrap();
    from.as_mut().fill(7);
    let mut maps = Vec::with_capacity(1_000_000);
    maps.extend(exhaust());
    let uncarried = arena.carry(from, to).unwrap_err();
    for map in maps {
        // SAFETY: the mapping was made above, and nothing refers to it.
        unsafe { libc::munmap(map, 4096) };
    }
    assert_eq!(uncarried.error.raw_os_error(), Some(libc::ENOMEM));
    let (from, to) = uncarried.parts.unwrap();
    assert!(from.as_ref().iter().all(|&byte| byte == 7));
    assert!(to.as_ref().iter().all(|&byte| byte == 0));
    let (from, to) = arena.carry(from, to).unwrap();
    assert!(from.as_ref().iter().all(|&byte| byte == 0) && to.as_ref().iter().all(|&byte| byte == 7));
}
