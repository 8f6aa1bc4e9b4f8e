//! A forked child inherits a ring that it cannot use. Dropping it there harms neither process.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use uringload_sys::{Arena, Ring, RingOptions, Target};

#[test]
fn a_forked_child_drops_the_ring_and_the_parent_goes_on() {
    let mut ring = match Ring::open(&RingOptions::default()) {
        Ok((ring, _)) => ring,
        Err(error) => return eprintln!("skipped: io_uring is not available here: {error}"),
    };
    let (arena, mut memory) = Arena::reserve(1).unwrap();
    arena.populate(0..arena.len()).unwrap();
    if let Err(error) = ring.register(&arena, 0..arena.len()) {
        eprintln!("not registered, which changes nothing here: {error}");
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let file = Target::File(Arc::new(File::open(source).unwrap().into()));
    ring.read(&file, 0, memory.split_to(4096), 1, true);
    ring.turn(None, 1, &mut Vec::new()).unwrap();

    // SAFETY: the child only drops values and leaves by `_exit`, and glibc keeps its allocator usable after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((ring, memory, arena));
        // SAFETY: ends the child at once, without the parent's destructors and buffers.
        unsafe { libc::_exit(7) };
    }
    assert!(child > 0, "fork failed");
    let mut status = 0;
    // SAFETY: `status` is valid for the call, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the child died: {status:#x}");

    ring.read(&file, 0, memory.split_to(4096), 2, false);
    let mut done = Vec::new();
    while ring.in_flight() > 0 {
        ring.turn(Some(Duration::from_secs(5)), 1, &mut done).unwrap();
    }
    let source = std::fs::read(source).unwrap();
    for done in done {
        let len = done.result.unwrap() as usize;
        assert_eq!(done.part.unwrap().as_ref()[..len], source[..len.min(4096)]);
    }
}
