//! Memory of all kinds, taken and given back.

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
        let _ = pool.back(&(block.offset()..block.end())).unwrap();
        pool.give(block);
    }
    assert_eq!(pool.backed_bytes(), GROWTH_BYTES, "the same block again and again");
    assert_eq!(pool.back(&(0..1)).unwrap(), None);
    assert_eq!(pool.back(&(0..20 * MIB)).unwrap(), Some(GROWTH_BYTES..20 * MIB));
    assert_eq!(pool.back(&(0..64 * MIB)).unwrap(), Some(20 * MIB..64 * MIB));
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

/// A pool of pages, as for long samples.
fn carrying(bytes: usize) -> Pool {
    let (pool, step) = Pool::carrying(bytes, 150 * MIB, Arc::new(Bell::new())).unwrap();
    assert_eq!(step, None);
    pool
}

/// Takes a block, backs it as the reactor does and writes to all of it.
fn filled(pool: &mut Pool, bytes: usize, byte: u8) -> Part {
    let mut block = pool.take(bytes).unwrap();
    while pool.back(&(block.offset()..block.end())).unwrap().is_some() {}
    block.as_mut().fill(byte);
    block
}

#[test]
fn blocks_of_any_lengths_take_turns_with_the_same_memory() {
    if super::has_huge_pages(0) {
        return eprintln!("skipped: this machine has reserved huge pages, which are not carried");
    }
    let mut pool = carrying(400 * MIB);
    let mut held = std::collections::VecDeque::new();
    for round in 0..60_usize {
        let bytes = (20 + round * 37 % 60) * MIB + 4096 * (round % 7);
        held.push_back((filled(&mut pool, bytes, round as u8), round as u8));
        if held.len() == 3 {
            let (block, byte) = held.pop_front().unwrap();
            assert!(block.as_ref().iter().step_by(1000).all(|&is| is == byte), "round {round}");
            let lease = pool.lease(block);
            drop(lease);
            pool.collect();
        }
    }
    // Two are held when the third is taken: at most 3 * 80 MiB, where rounding up to the longest takes 3 * 150.
    assert!(pool.backed_bytes() <= 250 * MIB, "{} MiB", pool.backed_bytes() / MIB);
    held.into_iter().for_each(|(block, _)| pool.give(block));
    assert!(pool.is_whole());
    assert_eq!(pool.free.len(), 1, "all joined");
    assert_eq!(pool.backed().len() * GROWTH_BYTES, pool.backed_bytes());
}

/// Bytes of memory behind a pool's address space.
fn resident(pool: &Pool) -> usize {
    let all = pool.arena().address()..pool.arena().address() + pool.arena().len();
    let (mut is_ours, mut bytes) = (false, 0);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, _)) = first.split_once('-') {
            is_ours = usize::from_str_radix(start, 16).is_ok_and(|start| all.contains(&start));
        } else if is_ours && first == "Rss:" {
            bytes += line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10;
        }
    }
    bytes
}

/// A pool that uses its helper however fast pages are.
fn helped(bytes: usize) -> Option<Pool> {
    if super::has_huge_pages(0) || uringload_sys::cgroup::processors() < 2 {
        eprintln!("skipped: one processor, or reserved huge pages, which are not carried");
        return None;
    }
    let mut pool = carrying(bytes);
    pool.pages.as_mut().unwrap().ahead.always();
    Some(pool)
}

#[test]
fn pages_that_a_helper_took_are_booked_in_the_order_in_which_they_are_reached() {
    let Some(mut pool) = helped(400 * MIB) else { return };
    let mut held = std::collections::VecDeque::new();
    let mut pages = pool.backed().len();
    for round in 0..60_usize {
        let mut block = pool.take((20 + round * 37 % 60) * MIB + 4096 * (round % 7)).unwrap();
        while let Some(range) = pool.back(&(block.offset()..block.end())).unwrap() {
            assert_eq!(pool.arena().page_at(range.start), Some(pages as u32), "as a ring registers them");
            pages += 1;
        }
        block.as_mut().fill(round as u8);
        held.push_back((block, round as u8));
        if held.len() == 3 {
            let (block, byte) = held.pop_front().unwrap();
            assert!(block.as_ref().iter().step_by(1000).all(|&is| is == byte), "round {round}");
            pool.give(block);
        }
    }
    assert_eq!(pages * GROWTH_BYTES, pool.backed_bytes());
    assert!(pool.backed_bytes() <= 250 * MIB && resident(&pool) <= pool.backed_bytes(), "nothing beside the books");
    held.into_iter().for_each(|(block, _)| pool.give(block));
    assert_eq!((pool.is_whole(), pool.free.len()), (true, 1));
}

#[test]
fn what_a_helper_took_for_a_block_that_is_given_up_goes_back() {
    let Some(mut pool) = helped(300 * MIB) else { return };
    for pieces in [1, 3] {
        let mut block = pool.take(200 * MIB).unwrap();
        assert!(pool.back(&(block.offset()..block.offset() + 1)).unwrap().is_some() || pieces > 1);
        // The reactor got an error for the first read, say.
        let begun = std::time::Instant::now();
        while pieces == 1 && resident(&pool) < 50 * MIB {
            assert!(begun.elapsed().as_secs() < 60, "no helper took anything: {}", resident(&pool));
            std::thread::yield_now();
        }
        for piece in 1..pieces {
            let rest = block.split_off(block.len() - piece * 20 * MIB - 4096);
            pool.give(rest);
        }
        pool.give(block);
        let now = resident(&pool);
        assert!(now <= pool.backed_bytes() && pool.is_whole(), "{now} of {}", pool.backed_bytes());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(resident(&pool), now, "it goes on with a block that is no more");
    }
    // A pool that is dropped while its helper is working.
    let block = pool.take(250 * MIB).unwrap();
    pool.back(&(block.offset()..block.end())).unwrap();
    drop(pool);
    drop(block);
}

#[test]
fn a_pool_of_pages_never_takes_more_than_its_limit() {
    let mut pool = carrying(100 * MIB + 4096);
    let mut random = 1_u64;
    let mut blocks: Vec<Part> = Vec::new();
    let mut refused = 0;
    for _ in 0..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (random >> 33) as usize;
        if draw.is_multiple_of(3) && !blocks.is_empty() {
            let mut block = blocks.swap_remove(draw / 3 % blocks.len());
            // Blocks return in pieces, too.
            let rest = block.split_off(block.len() / 4096 / 2 * 4096);
            pool.give(rest);
            pool.give(block);
        } else if let Some(block) = pool.take(1 + draw % (40 * MIB)) {
            while pool.back(&(block.offset()..block.end())).unwrap().is_some() {}
            blocks.push(block);
        } else {
            refused += 1;
        }
        let lent: usize = blocks.iter().map(Part::len).sum();
        assert_eq!(pool.free_bytes() + lent, 100 * MIB + 4096);
        assert!(pool.backed_bytes() <= 102 * MIB, "{}", pool.backed_bytes());
    }
    assert!(refused > 100, "{refused}");
    blocks.into_iter().for_each(|block| pool.give(block));
    assert!(pool.take(100 * MIB + 8192).is_none(), "more than the limit");
    // The capacity that `build` promised for an empty pool: blocks that take all of it, without a byte to spare.
    let all: Vec<Part> = [33 * MIB, 4096, 50 * MIB - 4096, 17 * MIB].map(|len| pool.take_exact(len).unwrap()).into();
    assert!(pool.take_exact(4096).is_some() && pool.take_exact(1).is_none());
    drop(all);
}

#[test]
fn what_is_kept_aside_is_not_carried_away() {
    let mut pool = carrying(64 * MIB);
    pool.reserve(3 * MIB);
    let aside = pool.take_reserved(3 * MIB).unwrap();
    while pool.back(&(0..aside.end())).unwrap().is_some() {}
    pool.give(aside);
    let block = pool.take_exact(61 * MIB).unwrap();
    while pool.back(&(block.offset()..block.end())).unwrap().is_some() {}
    assert_eq!((block.offset(), pool.backed_bytes()), (3 * MIB, 64 * MIB));
    assert!(pool.is_backed(&(0..3 * MIB)), "its pages are where they were");
    assert!(pool.take_reserved(3 * MIB).is_some());
}
