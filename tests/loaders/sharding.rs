//! Ranks share an epoch: everything once, as many batches on every rank, and the same order after a resume elsewhere.

use proptest::prelude::*;
use uringload::ErrorKind;
use uringload::inspect::{Position, Strided};
use uringload::sampler::Cursor;

fn strided(rank: u64, world_size: u64, batch_size: u64, drop_last: bool) -> Strided {
    Strided::new(rank, world_size, batch_size, drop_last).unwrap()
}

fn batch(strided: &Strided, start: Cursor, len: u64, index: u64) -> Vec<Position> {
    let mut out = Vec::new();
    strided.batch(start, len, index, &mut out);
    out
}

/// The positions of batch `index` over all ranks in global order: dealing is undone by taking one of each rank in turn.
fn global_batch(ranks: &[Strided], start: Cursor, len: u64, index: u64) -> Vec<Position> {
    let batches: Vec<_> = ranks.iter().map(|rank| batch(rank, start, len, index)).collect();
    assert!(batches.iter().all(|other| other.len() == batches[0].len()), "ranks differ in batch {index}");
    (0..batches[0].len()).flat_map(|turn| batches.iter().map(move |batch| batch[turn])).collect()
}

fn ranks(world_size: u64, batch_size: u64, drop_last: bool) -> Vec<Strided> {
    (0..world_size).map(|rank| strided(rank, world_size, batch_size, drop_last)).collect()
}

proptest! {
    #[test]
    fn every_remaining_position_comes_once(
        len in 0..400_u64, passed in 0..400_u64, world_size in 1..9_u64, batch_size in 1..20_u64, drop_last: bool,
    ) {
        let start = Cursor::new(5, passed.min(len));
        let remaining = len - start.position;
        let ranks = ranks(world_size, batch_size, drop_last);
        let batches = ranks[0].batches(remaining);
        let all: Vec<Position> = (0..batches).flat_map(|index| global_batch(&ranks, start, len, index)).collect();

        let real: Vec<u64> = all.iter().filter(|place| !place.padding).map(|place| place.position).collect();
        let global = batch_size * world_size;
        let kept = if drop_last { remaining / global * global } else { remaining };
        prop_assert_eq!(real, (start.position..start.position + kept).collect::<Vec<_>>());

        let padding: Vec<&Position> = all.iter().filter(|place| place.padding).collect();
        prop_assert!((padding.len() as u64) < world_size);
        prop_assert!(!drop_last || padding.is_empty());
        // Padding comes at the very end, and from the beginning of what remained.
        prop_assert!(all.iter().rev().take(padding.len()).all(|place| place.padding));
        for (offset, place) in padding.iter().enumerate() {
            prop_assert_eq!(place.position, start.position + offset as u64 % remaining);
        }
        for rank in &ranks {
            prop_assert!(batch(rank, start, len, batches).is_empty(), "nothing after the last batch");
        }
    }

    /// Stop behind any batch, go on with another world size and batch size: the real positions are those of an epoch
    /// that was never stopped.
    #[test]
    fn a_resume_continues_the_same_order(
        len in 1..400_u64, first in (1..9_u64, 1..20_u64), second in (1..9_u64, 1..20_u64), stop in 0..40_u64,
    ) {
        let before = ranks(first.0, first.1, false);
        let after = ranks(second.0, second.1, false);
        let start = Cursor::new(2, 0);
        let stop = stop % before[0].batches(len);
        let mut seen: Vec<u64> = Vec::new();
        let mut take = |places: Vec<Position>| {
            seen.extend(places.iter().filter(|place| !place.padding).map(|place| place.position));
        };
        (0..=stop).for_each(|index| take(global_batch(&before, start, len, index)));
        let cursor = before[0].cursor_after(start, len, stop);
        prop_assert!(before.iter().all(|rank| rank.cursor_after(start, len, stop) == cursor), "the same on all ranks");
        if cursor.epoch == start.epoch {
            let batches = after[0].batches(len - cursor.position);
            prop_assert!(batches > 0);
            (0..batches).for_each(|index| take(global_batch(&after, cursor, len, index)));
            prop_assert_eq!(after[0].cursor_after(cursor, len, batches - 1), Cursor::new(3, 0));
        } else {
            prop_assert_eq!(cursor, Cursor::new(3, 0));
        }
        prop_assert_eq!(seen, (0..len).collect::<Vec<_>>());
    }

    /// A resume with the same sizes gives the very batches that were still to come.
    #[test]
    fn a_resume_with_the_same_sizes_gives_the_same_batches(
        rest in 0..400_u64, world_size in 1..9_u64, batch_size in 1..20_u64, drop_last: bool, stop in 0..40_u64,
    ) {
        // At least two batches, so that there is one to stop behind and one to go on with.
        let len = 2 * world_size * batch_size + rest;
        let rank = strided(world_size - 1, world_size, batch_size, drop_last);
        let batches = rank.batches(len);
        let stop = stop % (batches - 1);
        let cursor = rank.cursor_after(Cursor::default(), len, stop);
        for index in stop + 1..batches {
            let resumed = batch(&rank, cursor, len, index - stop - 1);
            let straight = batch(&rank, Cursor::default(), len, index);
            let real = |places: &[Position]| -> Vec<u64> {
                places.iter().filter(|place| !place.padding).map(|place| place.position).collect()
            };
            prop_assert_eq!(real(&resumed), real(&straight));
            prop_assert_eq!(resumed.len(), straight.len());
            let behind = rank.cursor_after(cursor, len, index - stop - 1);
            prop_assert_eq!(behind, rank.cursor_after(Cursor::default(), len, index));
        }
    }
}

#[test]
fn fewer_samples_than_ranks_are_repeated_for_all() {
    let ranks = ranks(4, 8, false);
    let all = global_batch(&ranks, Cursor::new(0, 9), 10, 0);
    assert_eq!(
        all.iter().map(|place| (place.position, place.padding)).collect::<Vec<_>>(),
        [(9, false), (9, true), (9, true), (9, true)]
    );
    assert_eq!(ranks[0].batches(0), 0);
}

#[test]
fn a_dropped_tail_ends_the_epoch() {
    let rank = strided(1, 2, 3, true);
    assert_eq!(rank.batches(17), 2);
    let start = Cursor::new(4, 0);
    assert_eq!(rank.cursor_after(start, 17, 0), Cursor::new(4, 6));
    assert_eq!(rank.cursor_after(start, 17, 1), Cursor::new(5, 0));
    assert_eq!(rank.batches(5), 0, "less than one batch for each rank: none");
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let rank = strided(u64::MAX - 1, u64::MAX, 1, false);
    let start = Cursor::new(u64::MAX, 0);
    assert_eq!(batch(&rank, start, 10, 0).len(), 1);
    assert_eq!(rank.cursor_after(start, 10, u64::MAX), Cursor::new(u64::MAX, 0));
    let rank = strided(1, 2, 1 << 62, false);
    let (last, mut out) = (rank.batches(u64::MAX) - 1, Vec::new());
    assert_eq!(last, 1);
    rank.batch(Cursor::new(0, u64::MAX - 3), u64::MAX, 0, &mut out);
    assert_eq!(out.iter().map(|place| place.position).collect::<Vec<_>>(), [u64::MAX - 2, u64::MAX - 3]);
    // A cursor after the end, of a dataset that has shrunk: nothing is left.
    assert!(batch(&rank, Cursor::new(0, 11), 10, 0).is_empty());
    assert_eq!(rank.cursor_after(Cursor::new(0, 11), 10, 0), Cursor::new(1, 0));
}

#[test]
fn impossible_shares_are_refused_in_words() {
    for (rank, world_size, batch_size, word) in
        [(0, 1, 0, "batch size is 0"), (0, 0, 1, "world size is 0"), (2, 2, 1, "rank 2"), (0, 4, u64::MAX, "2^64")]
    {
        let error = Strided::new(rank, world_size, batch_size, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.remedy().is_some());
    }
}
