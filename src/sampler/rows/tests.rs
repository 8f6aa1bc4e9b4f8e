//! Compares packing and buckets with brute force: every element once, in the row where a plain search would put it.

use super::*;
use crate::config::order::WINDOW_SAMPLES;
use crate::config::{Buckets, PackMethod, Packing, PadValue};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

type Row = Vec<RowPiece>;

const METHODS: [PackMethod; 3] = [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat];

fn packer(method: PackMethod, seq_len: u64) -> Packer {
    Packer::new(&Packing { method, seq_len, window: WINDOW_SAMPLES, pad: PadValue::default() }).unwrap()
}

fn rows_of(rows: &Rows) -> Vec<Row> {
    rows.iter().map(<[RowPiece]>::to_vec).collect()
}

fn pack(method: PackMethod, seq_len: u64, lengths: &[u64]) -> Vec<Row> {
    let mut rows = Rows::default();
    packer(method, seq_len).pack(lengths, None, &mut rows);
    rows_of(&rows)
}

fn elements(row: &[RowPiece]) -> u64 {
    row.iter().map(|piece| piece.piece.len).sum()
}

fn cut(lengths: &[u64], seq_len: u64) -> Row {
    let mut pieces = Vec::new();
    for (index, &length) in (0..).zip(lengths) {
        let starts = (0..length.div_ceil(seq_len).max(1)).map(|piece| piece * seq_len);
        let piece = |start: u64| Piece { start, len: seq_len.min(length - start) };
        pieces.extend(starts.map(|start| RowPiece { index, piece: piece(start) }));
    }
    pieces
}

/// Packs rows by a plain search, without regard to time.
fn slow_pack(method: PackMethod, seq_len: u64, lengths: &[u64]) -> Vec<Row> {
    let pieces_max = packer(method, seq_len).pieces_max() as usize;
    let mut rows: Vec<Row> = Vec::new();
    let fits =
        |row: &Row, len: u64| row.len() < pieces_max && elements(row) + len <= seq_len && elements(row) < seq_len;
    let pieces = cut(lengths, seq_len);
    let filled = || pieces.iter().filter(|piece| piece.piece.len > 0);
    match method {
        PackMethod::FirstFit => {
            for piece in filled() {
                match rows.iter().position(|row| fits(row, piece.piece.len)) {
                    Some(row) => rows[row].push(*piece),
                    None => rows.push(vec![*piece]),
                }
            }
        }
        PackMethod::BestFit => {
            let mut sorted: Row = filled().copied().collect();
            sorted.sort_by_key(|piece| std::cmp::Reverse(piece.piece.len));
            // The rows in the order in which they reached their present room.
            let mut last_touched: Vec<usize> = Vec::new();
            for piece in sorted {
                let open = last_touched.iter().rev().filter(|&&row| fits(&rows[row], piece.piece.len));
                // The first among equals: `max_by_key` would return the last.
                let row = open.copied().reduce(
                    |best, row| {
                        if elements(&rows[row]) > elements(&rows[best]) { row } else { best }
                    },
                );
                let row = row.unwrap_or_else(|| {
                    rows.push(Vec::new());
                    rows.len() - 1
                });
                rows[row].push(piece);
                last_touched.retain(|&touched| touched != row);
                last_touched.push(row);
            }
        }
        PackMethod::Concat => {
            for (index, &length) in (0..).zip(lengths) {
                for start in 0..length {
                    match rows.last_mut() {
                        Some(row) if elements(row) < seq_len && row.last().unwrap().index == index => {
                            row.last_mut().unwrap().piece.len += 1;
                        }
                        Some(row) if fits(row, 1) => row.push(RowPiece { index, piece: Piece { start, len: 1 } }),
                        _ => rows.push(vec![RowPiece { index, piece: Piece { start, len: 1 } }]),
                    }
                }
            }
        }
    }
    place_empty(&mut rows, &pieces, pieces_max);
    sort(&mut rows);
    rows
}

/// Each empty piece into the row of the last piece before it, the first ones into that of the first filled one.
fn place_empty(rows: &mut Vec<Row>, pieces: &[RowPiece], pieces_max: usize) {
    let first_filled = pieces.iter().find(|piece| piece.piece.len > 0);
    for piece in pieces.iter().filter(|piece| piece.piece.len == 0) {
        let places = |index: u32| {
            let of_row = move |(number, row): (usize, &Row)| {
                let of_sample = row.iter().filter(|piece| piece.index == index);
                of_sample.map(|piece| (piece.piece.start, number)).collect::<Vec<_>>()
            };
            rows.iter().enumerate().flat_map(of_row)
        };
        let before = piece.index.checked_sub(1).and_then(|index| places(index).max());
        let place = before.or_else(|| first_filled.and_then(|first| places(first.index).min()));
        match place.map(|(_, row)| row).filter(|&row| rows[row].len() < pieces_max) {
            Some(row) => rows[row].push(*piece),
            None => rows.push(vec![*piece]),
        }
    }
}

/// Pieces in their order in each row, and rows in that of their first pieces.
fn sort(rows: &mut [Row]) {
    let key = |piece: &RowPiece| (piece.index, piece.piece.start);
    rows.iter_mut().for_each(|row| row.sort_by_key(key));
    rows.sort_by_key(|row| key(&row[0]));
}

/// Every element of every sequence is in one row, and no row is too long.
fn check(rows: &[Row], lengths: &[u64], seq_len: u64, pieces_max: u64) {
    let mut pieces: Row = rows.iter().flatten().copied().collect();
    pieces.sort_by_key(|piece| (piece.index, piece.piece.start));
    let mut at = (0, 0);
    for RowPiece { index, piece } in pieces {
        while at.0 < index {
            assert_eq!(at.1, lengths[at.0 as usize], "sequence {} is not whole", at.0);
            at = (at.0 + 1, 0);
        }
        assert_eq!((index, piece.start), at, "in order, without a hole");
        assert!(piece.len > 0 || lengths[index as usize] == 0, "an empty piece of a sequence that is not");
        at.1 += piece.len;
    }
    assert_eq!((at.0 as usize + 1, Some(&at.1)), (lengths.len(), lengths.last()), "up to the last element");
    for row in rows {
        assert!(!row.is_empty() && elements(row) <= seq_len && row.len() as u64 <= pieces_max, "{row:?}");
        assert!(row.is_sorted_by_key(|piece| (piece.index, piece.piece.start)), "{row:?}");
    }
}

/// Mostly shorter than a row, some empty, some much longer.
fn any_lengths(seq_len: u64) -> impl Strategy<Value = Vec<u64>> {
    let length = prop_oneof![
        1 => Just(0),
        6 => 0..=seq_len,
        2 => 0..=seq_len / 8 + 1,
        1 => Just(seq_len),
        1 => 0..=4 * seq_len,
    ];
    prop::collection::vec(length, 1..150)
}

fn any_packing() -> impl Strategy<Value = (u64, Vec<u64>)> {
    prop_oneof![1..5_u64, 1..100_u64, Just(64), Just(65), 4000..5000_u64]
        .prop_flat_map(|seq_len| (Just(seq_len), any_lengths(seq_len)))
}

proptest! {
    #[test]
    fn packs_are_those_of_a_plain_search((seq_len, lengths) in any_packing(), seed: u64) {
        for method in METHODS {
            let rows = pack(method, seq_len, &lengths);
            check(&rows, &lengths, seq_len, packer(method, seq_len).pieces_max());
            assert_eq!(rows, slow_pack(method, seq_len, &lengths), "{method:?}");
            let mut mixed = Rows::default();
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            packer(method, seq_len).pack(&lengths, Some(&mut random), &mut mixed);
            let mut sorted = rows_of(&mixed);
            if method != PackMethod::Concat {
                sort(&mut sorted);
            }
            assert_eq!(sorted, rows, "{method:?}: the same rows, and Concat's in order");
        }
    }

    /// Short pieces: rows are full of pieces before they are full of elements.
    #[test]
    fn rows_hold_a_bounded_number_of_pieces(lengths in prop::collection::vec(0..4_u64, 1..700)) {
        for method in METHODS {
            let rows = pack(method, 1000, &lengths);
            check(&rows, &lengths, 1000, 64);
            assert_eq!(rows, slow_pack(method, 1000, &lengths), "{method:?}");
        }
    }

    /// Earlier packing leaves no trace.
    #[test]
    fn memory_is_reused_without_a_trace((seq_len, first) in any_packing(), mut second in any_lengths(70)) {
        for method in METHODS {
            let mut packer = packer(method, seq_len);
            let mut rows = Rows::default();
            packer.pack(&first, None, &mut rows);
            second.iter_mut().for_each(|length| *length = (*length).min(3 * seq_len));
            packer.pack(&second, None, &mut rows);
            assert_eq!(rows_of(&rows), pack(method, seq_len, &second), "{method:?}");
        }
    }

    #[test]
    fn buckets_are_those_of_a_plain_search(
        boundaries in prop::collection::btree_set(1..50_u64, 0..6), sizes in prop::collection::vec(1..9_u64, 7),
        lengths in prop::collection::vec(0..60_u64, 0..200), seed: u64,
    ) {
        let boundaries: Vec<u64> = boundaries.into_iter().collect();
        let batch_sizes = sizes[..=boundaries.len()].to_vec();
        let buckets = Buckets { boundaries, batch_sizes, window: 1 };
        let mut bucketer = Bucketer::new(&buckets).unwrap();
        let mut rows = Rows::default();
        let has_rest = bucketer.bucket(&lengths, None, &mut rows);
        let (full, rest) = slow_bucket(&buckets, &lengths);
        assert_eq!(has_rest, !rest.is_empty());
        let mut expected = full;
        expected.extend(has_rest.then_some(rest));
        let whole = |index: &u32| RowPiece { index: *index, piece: Piece { start: 0, len: lengths[*index as usize] } };
        let expected: Vec<Row> = expected.iter().map(|batch| batch.iter().map(whole).collect()).collect();
        assert_eq!(rows_of(&rows), expected);
        // In random order, the batch that is not full stays the last.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        assert_eq!(bucketer.bucket(&lengths, Some(&mut random), &mut rows), has_rest);
        let mut mixed = rows_of(&rows);
        let full = mixed.len() - usize::from(has_rest);
        sort(&mut mixed[..full]);
        assert_eq!(mixed, expected);
        if has_rest {
            rows.pop();
        }
        assert_eq!((rows.len(), rows.pieces.len()), (full, expected[..full].iter().map(Vec::len).sum()));
    }
}

/// Full batches in the order of their first samples, and the rest.
fn slow_bucket(buckets: &Buckets, lengths: &[u64]) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut full = Vec::new();
    let mut rest: Vec<u32> = Vec::new();
    for (bucket, &size) in buckets.batch_sizes.iter().enumerate() {
        let low = if bucket == 0 { 0 } else { buckets.boundaries[bucket - 1] };
        let high = buckets.boundaries.get(bucket).copied().unwrap_or(u64::MAX);
        let in_bucket = |index: &u32| (low..high).contains(&lengths[*index as usize]);
        rest.extend((0..lengths.len() as u32).filter(in_bucket));
        while rest.len() as u64 >= size {
            full.push(rest.drain(..size as usize).collect());
        }
    }
    full.iter_mut().for_each(|batch: &mut Vec<u32>| batch.sort_unstable());
    full.sort_unstable_by_key(|batch| batch[0]);
    rest.sort_unstable();
    (full, rest)
}

#[test]
fn the_words_of_the_configuration_hold() {
    let buckets = Buckets { boundaries: vec![10, 20], batch_sizes: vec![3, 2, 1], window: 1 };
    let mut rows = Rows::default();
    // 10 is no longer below the first boundary; one sample is left over and goes to the longer ones.
    let has_rest = Bucketer::new(&buckets).unwrap().bucket(&[9, 10, 20, 1, 19, 0, 5], None, &mut rows);
    let indices = |row: &[RowPiece]| row.iter().map(|piece| piece.index).collect::<Vec<_>>();
    assert_eq!(rows.iter().map(indices).collect::<Vec<_>>(), [vec![0, 3, 5], vec![1, 6], vec![2], vec![4]]);
    assert!(!has_rest, "the last one of the longest bucket's size");
}

#[test]
fn long_and_empty_sequences_lose_nothing() {
    for method in METHODS {
        for lengths in [vec![0], vec![0, 0, 0], vec![0, 7, 0], vec![5000, 0], vec![1 << 20], vec![0; 200], vec![1; 200]]
        {
            for seq_len in [1, 2, 7, 100, 4096, 4097, 1 << 20, SEQ_LEN_MAX] {
                let rows = pack(method, seq_len, &lengths);
                check(&rows, &lengths, seq_len, packer(method, seq_len).pieces_max());
            }
        }
        assert!(pack(method, 8, &[]).is_empty());
    }
}

/// A million sequences of log-normal lengths into 2048, window by window.
#[test]
fn rows_of_a_million_sequences_are_full() {
    const SEQ_LEN: u64 = 2048;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut uniform = || ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    for median in [300.0, 600.0] {
        let lengths: Vec<u64> = (0..1_000_000).map(|_| (median * f64::exp(normal())).ceil() as u64).collect();
        let elements: u64 = lengths.iter().sum();
        for (method, at_least) in [(PackMethod::FirstFit, 0.97), (PackMethod::BestFit, 0.99)] {
            let mut packer = packer(method, SEQ_LEN);
            let mut rows = Rows::default();
            let windows = lengths.chunks(WINDOW_SAMPLES as usize);
            let count: usize = windows
                .map(|window| {
                    packer.pack(window, None, &mut rows);
                    rows.len()
                })
                .sum();
            let full = elements as f64 / (count as u64 * SEQ_LEN) as f64;
            println!("{method:?}, median {median}: {:.2} % full, {count} rows", full * 100.0);
            assert!(full >= at_least && full <= 1.0, "{method:?}, median {median}: {full}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for seq_len in [0, SEQ_LEN_MAX + 1] {
        let packing = Packing { method: PackMethod::Concat, seq_len, window: 1, pad: PadValue::default() };
        let error = Packer::new(&packing).unwrap_err();
        assert!(error.to_string().contains(&seq_len.to_string()) && error.remedy().is_some(), "{error}");
    }
    let refused = |boundaries: &[u64], batch_sizes: &[u64], word: &str| {
        let (boundaries, batch_sizes) = (boundaries.to_vec(), batch_sizes.to_vec());
        let error = Bucketer::new(&Buckets { boundaries, batch_sizes, window: 1 }).unwrap_err();
        assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
    };
    refused(&[5, 5], &[1, 1, 1], "ascend");
    refused(&[6, 5], &[1, 1, 1], "ascend");
    refused(&[0, 5], &[1, 1, 1], "is 0");
    refused(&[5], &[1], "1 batch sizes are given for 1");
    refused(&[], &[], "0 batch sizes are given for 0");
    refused(&[5], &[1, 0], "bucket 1 is 0");
}
