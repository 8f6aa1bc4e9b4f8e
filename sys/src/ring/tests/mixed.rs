//! Thousands of operations of all kinds at once, byte-exact.

use super::*;
use std::collections::HashMap;

#[test]
fn ten_thousand_mixed_operations_are_byte_exact() {
    const FILES: u64 = 12;
    const OPERATIONS: u64 = 10_000;
    let options = RingOptions { entries: 48, files: 8, ..RingOptions::default() };
    let Some(mut ring) = ring(&options) else { return };
    let (folder, handle) = folder();
    let mut random = Random(1);
    let sizes: Vec<u64> = (0..FILES).map(|_| random.below(300_000)).collect();
    let files: Vec<_> = (0..FILES)
        .map(|file| Target::File(write_file(folder.path(), &file.to_string(), file, sizes[file as usize] as usize)))
        .collect();
    let (arena, mut memory) = Arena::reserve(8 << 20).unwrap();
    arena.populate(0..arena.len()).unwrap();
    // Without registered memory this is still a test.
    let _ = registered(&mut ring, &arena, 0..2 << 20) && registered(&mut ring, &arena, 2 << 20..4 << 20);
    let mut parts: Vec<Part> = (0..48).map(|_| memory.split_to(150_001)).collect();

    // What each operation expects, by tag: file, offset, length.
    let mut expected = HashMap::new();
    let mut free_slots: Vec<u32> = (0..8).collect();
    let (mut done, mut next, mut finished) = (Vec::new(), 0, 0);
    while finished < OPERATIONS {
        while next < OPERATIONS && ring.room() >= 2 && !parts.is_empty() {
            let file = random.below(FILES + 1);
            let (offset, len) = (random.below(310_000), random.below(150_000) as usize);
            let chained = random.below(2) == 0 || file == FILES;
            if chained && free_slots.is_empty() {
                break;
            }
            let mut part = parts.pop().unwrap();
            let rest = part.split_off(len);
            let force_async = random.below(8) == 0;
            let slot = if chained { free_slots.pop() } else { None };
            match slot {
                // File number FILES does not exist.
                Some(slot) => {
                    let path = file.to_string();
                    ring.open_and_read(open_of(slot, &handle, path.as_bytes()), offset, part, next, force_async);
                }
                None => ring.read(&files[file as usize], offset, part, next, force_async),
            }
            expected.insert(next, (file, offset, len, slot, rest));
            next += 1;
        }
        ring.turn(Some(Duration::from_secs(5)), 8, &mut done).unwrap();
        for done in done.drain(..).filter(|done| done.kind == Operation::Read) {
            let (file, offset, len, slot, rest) = expected.remove(&done.tag).unwrap();
            let mut part = done.part.unwrap();
            match done.result {
                Ok(got) => {
                    let left = sizes[file as usize].saturating_sub(offset);
                    assert_eq!(u64::from(got), left.min(len as u64));
                    assert!(part.as_ref()[..got as usize] == content(file, offset, got as usize));
                }
                Err(error) => assert_eq!((file, error.raw_os_error()), (FILES, Some(libc::ECANCELED))),
            }
            part.as_mut().fill(0xaa);
            part.unsplit(rest).unwrap();
            parts.push(part);
            free_slots.extend(slot);
            finished += 1;
        }
    }
    assert_eq!((ring.in_flight(), ring.room(), parts.len(), expected.len()), (0, 48, 48, 0));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
