//! In steady state the ring allocates nothing, whatever it reads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use uringload_sys::{Arena, Open, OpenFlags, Operation, Part, Ring, RingOptions, Target};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged. The counter is a thread-local without a destructor,
// which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: as the trait requires of its caller.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as the trait requires of its caller.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on, and the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const DEPTH: usize = 8;

#[test]
fn operations_allocate_nothing_in_steady_state() {
    let mut ring = match Ring::open(&RingOptions::default().entries(64).files(DEPTH as u32)) {
        Ok((ring, _)) => ring,
        Err(error) => return eprintln!("skipped: io_uring is not available here: {error}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let name = "n".repeat(200);
    std::fs::write(folder.path().join(&name), vec![3; 100_000]).unwrap();
    let plain = Target::File(Arc::new(File::open(folder.path().join(&name)).unwrap().into()));
    let folder: Arc<OwnedFd> = Arc::new(File::open(folder.path()).unwrap().into());
    let (arena, mut memory) = Arena::reserve(4 << 20).unwrap();
    arena.populate(0..arena.len()).unwrap();
    if let Err(error) = ring.register(&arena, 0..2 << 20) {
        eprintln!("not registered, which changes nothing here: {error}");
    }
    let mut parts: Vec<Part> = (0..2 * DEPTH).map(|_| memory.split_to(200_000)).collect();
    let mut done = Vec::with_capacity(4 * DEPTH);

    let mut round = |names: [&str; 2]| {
        for slot in 0..DEPTH as u32 {
            let path = names[slot as usize % 2].as_bytes();
            let open = Open::new(slot, &folder, path, OpenFlags::default());
            ring.open_and_read(open, 0, parts.pop().unwrap(), u64::from(slot), false);
            ring.read(&plain, 50_000, parts.pop().unwrap(), 100, slot % 4 == 0);
        }
        ring.waker().wake();
        while ring.in_flight() > 0 {
            ring.turn(Some(Duration::from_secs(1)), 4, &mut done).unwrap();
        }
        let read = done.iter().filter(|done| done.kind == Operation::Read);
        let bytes: u64 = read.filter_map(|done| done.result.as_ref().ok()).map(|&bytes| u64::from(bytes)).sum();
        parts.extend(done.drain(..).filter_map(|done| done.part));
        bytes
    };
    round([&name, "missing"]);
    let before = ALLOCATIONS.get();
    let bytes: u64 = (0..200).map(|_| round([&name, "missing"])).sum();
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations in 4800 operations");
    assert_eq!(bytes, 200 * (DEPTH as u64 / 2 * 100_000 + DEPTH as u64 * 50_000));
    assert!(before > 0, "the allocator counts");
}
