//! Reads into pages that were carried elsewhere after they were registered.

use super::*;

const SLOT: usize = 2 << 20;

#[test]
fn a_page_stays_registered_wherever_it_is_carried() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, _) = folder();
    let file = Target::File(write_file(folder.path(), "a", 3, 4 * SLOT));
    let (arena, mut whole) = Arena::reserve_pages(8 * SLOT, SLOT).unwrap();
    let mut slots: Vec<Option<Part>> = (0..8).map(|_| Some(whole.split_to(SLOT))).collect();
    arena.populate(0..2 * SLOT).unwrap();
    if !registered(&mut ring, &arena, 0..SLOT) || !registered(&mut ring, &arena, SLOT..2 * SLOT) {
        return;
    }
    // Both pages move, the second one over the place of the first, where a fresh page comes in between.
    let mut carry = |from: usize, to: usize| {
        let (old, new) = arena.carry(slots[from].take().unwrap(), slots[to].take().unwrap()).unwrap();
        (slots[from], slots[to]) = (Some(old), Some(new));
    };
    carry(0, 5);
    carry(1, 0);
    carry(0, 6);
    arena.populate(0..SLOT).unwrap();
    assert!(registered(&mut ring, &arena, 0..SLOT));
    for (tag, slot) in [(0, 5), (1, 6), (2, 0)] {
        let part = slots[slot].take().unwrap();
        let (index, _) = ring.buffers.place_of(&part).unwrap();
        assert_eq!(u64::from(index), tag, "by the page's number, not by its place");
        ring.read(&file, tag * SLOT as u64, part, tag, false);
    }
    // A place without a registered page is read as any memory.
    let plain = slots[3].take().unwrap();
    assert!(ring.buffers.place_of(&plain).is_none());
    ring.read(&file, 3 * SLOT as u64, plain, 3, false);
    for done in finish(&mut ring) {
        assert_eq!(*done.result.as_ref().unwrap() as usize, SLOT, "read {}", done.tag);
        let part = done.part.unwrap();
        assert!(part.as_ref() == content(3, done.tag * SLOT as u64, SLOT), "read {}", done.tag);
    }
}

#[test]
fn pages_are_registered_in_the_order_of_their_numbers() {
    let Some(mut ring) = ring(&small()) else { return };
    let (arena, _memory) = Arena::reserve_pages(4 * SLOT, SLOT).unwrap();
    arena.populate(SLOT..2 * SLOT).unwrap();
    arena.populate(0..SLOT).unwrap();
    let refused = |result: io::Result<()>| result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput);
    assert!(refused(ring.register(&arena, 0..SLOT)), "the second page first");
    assert!(refused(ring.register(&arena, 2 * SLOT..3 * SLOT)), "no page");
    assert!(refused(ring.register(&arena, SLOT..3 * SLOT)), "more than a page");
    if registered(&mut ring, &arena, SLOT..2 * SLOT) {
        assert!(registered(&mut ring, &arena, 0..SLOT));
        assert_eq!(ring.pieces(), 2);
    }
}
