//! Kernels of bytes and tokens against their twins, on random data at any alignment.

use crate::bench::{Bench, Case, UNTOUCHED};
use crate::common::random::Random;
use crate::machine::{cases, gpu, is_watched, seed};
use std::ops::Range;
use uringload::inspect::twin;
use uringload_sys::cuda::{Fill, Piece, Row, TokenType, Tokens};

/// Memory of a case at most.
const BENCH_BYTES: usize = 8 << 20;

/// Any distance from a multiple of 64, and most often none.
fn off(random: &mut Random) -> usize {
    if random.below(3) == 0 { 0 } else { random.below(64) as usize }
}

/// Rows of bytes, each of a length that `length` tells, at any alignment; and their table.
fn rows(case: &mut Case, random: &mut Random, lengths: &[usize]) -> (Vec<Range<usize>>, Range<usize>) {
    let place = |&length: &usize| {
        let (off, bytes) = (off(random), random.bytes(length));
        case.place(off, &bytes)
    };
    let places: Vec<_> = lengths.iter().map(place).collect();
    let encode = |place: &Range<usize>| Row { source: case.address(place), len: place.len() as u64 }.encode();
    let encoded: Vec<_> = places.iter().map(encode).collect();
    (places, case.table(encoded))
}

/// The content of those places.
fn at<'a>(bytes: &'a [u8], places: &'a [Range<usize>]) -> impl Iterator<Item = &'a [u8]> {
    places.iter().map(|place| &bytes[place.clone()])
}

/// Pieces of those lengths, with gaps between some of them, gathered.
fn gather(bench: &mut Bench, random: &mut Random, lengths: &[usize], about: &str) {
    let mut case = bench.case();
    let (mut places, mut pieces, mut end) = (Vec::new(), Vec::new(), 0);
    for &length in lengths {
        let (off, bytes) = (off(random), random.bytes(length));
        let place = case.place(off, &bytes);
        end += if random.below(2) == 0 { 0 } else { random.below(20) as usize };
        pieces.push(Piece { source: case.address(&place), target: end as u64, len: length as u64 }.encode());
        places.push((end, place));
        end += length;
    }
    let table = case.table(pieces);
    let to = case.target(off(random), end + random.below(20) as usize);
    let sources = case.bytes.clone();
    let pieces = places.into_iter().map(|(target, place)| (target, &sources[place]));
    let expected = |bytes: &mut [u8]| twin::gather(&mut bytes[to.clone()], pieces);
    bench.check(about, case, expected, |launch| {
        launch.kernels.gather(launch.stream, (launch.table, table.clone()), launch.all, &launch.span(&to))
    });
}

#[test]
fn bytes_are_gathered() {
    let Some(context) = gpu("bytes_are_gathered") else { return };
    let (seed, mut bench) = (seed("bytes_are_gathered"), Bench::new(&context, BENCH_BYTES));
    for number in 0..cases(400) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let lengths: Vec<_> = (0..random.below(12)).map(|_| random.length()).collect();
        gather(&mut bench, &mut random, &lengths, &format!("seed {seed}"));
    }
}

#[test]
fn memory_is_filled() {
    let Some(context) = gpu("memory_is_filled") else { return };
    let (seed, mut bench) = (seed("memory_is_filled"), Bench::new(&context, BENCH_BYTES));
    for number in 0..cases(400) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let fill = Fill { pattern: random.number(), size: random.one_of(&[1, 2, 4, 8]) };
        let len = random.length() / fill.size as usize * fill.size as usize;
        let mut case = bench.case();
        let to = case.target(off(&mut random), len);
        let expected = |bytes: &mut [u8]| twin::fill(&mut bytes[to.clone()], fill.pattern, fill.size);
        let about = format!("seed {seed}: {fill:x?} of {len}");
        bench.check(about, case, expected, |launch| launch.kernels.fill(launch.stream, &launch.span(&to), fill));
    }
}

#[test]
fn rows_are_padded() {
    let Some(context) = gpu("rows_are_padded") else { return };
    let (seed, mut bench) = (seed("rows_are_padded"), Bench::new(&context, BENCH_BYTES));
    for number in 0..cases(400) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let fill = Fill { pattern: random.number(), size: random.one_of(&[1, 2, 4, 8]) };
        let size = fill.size as usize;
        let lengths: Vec<_> = (0..random.below(8)).map(|_| random.length() / size * size).collect();
        let row_bytes = lengths.iter().max().unwrap_or(&0) + size * random.below(30) as usize;
        pad(&mut bench, &mut random, &lengths, (row_bytes, fill), &format!("seed {seed}"));
    }
}

fn pad(bench: &mut Bench, random: &mut Random, lengths: &[usize], (row_bytes, fill): (usize, Fill), about: &str) {
    let mut case = bench.case();
    let (places, table) = rows(&mut case, random, lengths);
    let to = case.target(off(random), row_bytes * lengths.len());
    let sources = case.bytes.clone();
    let expected = |bytes: &mut [u8]| {
        twin::pad(&mut bytes[to.clone()], at(&sources, &places), row_bytes, fill.pattern, fill.size);
    };
    let about = format!("{about}: {fill:x?} {row_bytes} {} rows", lengths.len());
    bench.check(about, case, expected, |launch| {
        let (table, to) = ((launch.table, table.clone()), launch.span(&to));
        launch.kernels.pad(launch.stream, table, launch.all, &to, (row_bytes as u64, fill))
    });
}

#[test]
fn tokens_become_ids_and_labels() {
    let Some(context) = gpu("tokens_become_ids_and_labels") else { return };
    let (seed, mut bench) = (seed("tokens_become_ids_and_labels"), Bench::new(&context, BENCH_BYTES));
    for number in 0..cases(500) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let stored = random.one_of(&[TokenType::U16, TokenType::U32]);
        let size = stored.size() as usize;
        let lengths: Vec<_> = (0..random.below(8)).map(|_| random.length() / size * size).collect();
        let longest = (lengths.iter().max().unwrap_or(&0) / size) as u64;
        let seq_len = match random.below(4) {
            0 => random.length() as u64 / 16,
            1 => longest.saturating_sub(1),
            _ => longest + random.below(5),
        };
        let pad_id = random.number() as i64;
        let wanted = Tokens::new(stored, seq_len).pad_id(pad_id);
        let has_labels = random.below(3) > 0;
        tokens(&mut bench, &mut random, &lengths, (wanted, has_labels), &format!("seed {seed}"));
    }
}

fn tokens(
    bench: &mut Bench,
    random: &mut Random,
    lengths: &[usize],
    (wanted, has_labels): (Tokens, bool),
    about: &str,
) {
    let Tokens { stored, seq_len, pad_id, ignore, .. } = wanted;
    let mut case = bench.case();
    let (places, table) = rows(&mut case, random, lengths);
    let bytes = seq_len as usize * lengths.len() * 8;
    let ids = case.target(8 * random.below(8) as usize, bytes);
    let labels = has_labels.then(|| case.target(8 * random.below(8) as usize, bytes));
    let sources = case.bytes.clone();
    let expected = |memory: &mut [u8]| {
        let (mut made, mut next) = (vec![UNTOUCHED; bytes], vec![UNTOUCHED; bytes]);
        let run = if stored == TokenType::U16 { twin::tokens_u16 } else { twin::tokens_u32 };
        let labels_made = has_labels.then_some(&mut next[..]);
        run(&mut made, labels_made, at(&sources, &places), seq_len as usize, pad_id, ignore);
        memory[ids.clone()].copy_from_slice(&made);
        if let Some(labels) = &labels {
            memory[labels.clone()].copy_from_slice(&next);
        }
    };
    let about = format!("{about}: {wanted:?} {has_labels} {} rows", lengths.len());
    bench.check(about, case, expected, |launch| {
        let labels = labels.as_ref().map(|labels| launch.span(labels));
        let to = (&launch.span(&ids), labels.as_ref());
        launch.kernels.tokens(launch.stream, (launch.table, table.clone()), launch.all, to, wanted)
    });
}

#[test]
fn compute_steps_take_their_time() {
    let Some(context) = gpu("compute_steps_take_their_time") else { return };
    let (seed, mut bench) = (seed("compute_steps_take_their_time"), Bench::new(&context, BENCH_BYTES));
    for number in 0..cases(60) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let (count, rounds) = (random.below(50_000), random.below(60) as u32);
        let floats: Vec<u8> = (0..count).flat_map(|_| (random.below(1 << 20) as f32 / 1024.0).to_le_bytes()).collect();
        let mut case = bench.case();
        let floats = case.place(4 * random.below(16) as usize, &floats);
        let expected = |bytes: &mut [u8]| twin::burn(&mut bytes[floats.clone()], rounds);
        let about = format!("seed {seed}: {count} floats, {rounds} rounds");
        bench.check(about, case, expected, |launch| launch.kernels.burn(launch.stream, &launch.span(&floats), rounds));
    }
}

/// More rows than a grid has in y, and pieces of more chunks than blocks of threads run at a time.
#[test]
fn no_number_of_rows_and_no_length_is_too_large() {
    let Some(context) = gpu("no_number_of_rows_and_no_length_is_too_large") else { return };
    if is_watched("no_number_of_rows_and_no_length_is_too_large") {
        return;
    }
    let seed = seed("no_number_of_rows_and_no_length_is_too_large");
    let (mut bench, mut random) = (Bench::new(&context, 160 << 20), Random::new(seed));
    let about = format!("seed {seed}");
    let mut short = |most: u64, size: u64| -> Vec<usize> {
        let mut random = Random::new(random.number());
        (0..66_000).map(|_| (random.below(most / size) * size) as usize).collect()
    };
    let lengths = [short(40, 1), short(64, 4), short(24, 2)];
    gather(&mut bench, &mut random, &lengths[0], &about);
    gather(&mut bench, &mut random, &[40_000_003, 1, 0, 12_345_678], &about);
    let fill = Fill { pattern: random.number(), size: 4 };
    pad(&mut bench, &mut random, &lengths[1], (100, fill), &about);
    pad(&mut bench, &mut random, &[20_000_000, 4, 30_000_000], (30_000_000, fill), &about);
    let wanted = Tokens::new(TokenType::U16, 9).pad_id(-1);
    tokens(&mut bench, &mut random, &lengths[2], (wanted, true), &about);
    let wanted = Tokens::new(TokenType::U32, 3_000_001);
    tokens(&mut bench, &mut random, &[12_000_000, 400], (wanted, true), &about);
}

/// A row of a table that leads anywhere else is refused before it is launched, and nothing is written.
#[test]
fn nothing_is_read_or_written_outside() {
    let Some(context) = gpu("nothing_is_read_or_written_outside") else { return };
    let mut bench = Bench::new(&context, 1 << 20);
    let mut case = bench.case();
    let source = case.place(0, &[7; 100]);
    let address = case.address(&source);
    let pieces = [
        Piece { source: address + 1, target: 0, len: 100 },
        Piece { source: address - 1, target: 0, len: 100 },
        Piece { source: address, target: 1, len: 100 },
        Piece { source: address, target: u64::MAX, len: 2 },
        Piece { source: u64::MAX, target: 0, len: 2 },
        Piece { source: 0, target: 0, len: 1 },
    ];
    let rows = [(address + 1, 100), (address - 1, 100), (address, 101), (u64::MAX, 2), (0, 1)];
    let rows = rows.map(|(source, len)| Row { source, len });
    let pieces = pieces.map(|piece| (piece, case.table([piece.encode()])));
    let rows = rows.map(|row| (row, case.table([row.encode()])));
    let to = case.target(0, 100);
    bench.check(
        "nothing",
        case,
        |_| {},
        |launch| {
            let (from, to) = (launch.span(&source), launch.span(&to));
            for (piece, table) in pieces {
                let refused = launch.kernels.gather(launch.stream, (launch.table, table), &from, &to);
                assert_eq!(refused.expect_err("it is refused").code, 1, "{piece:?}");
            }
            for (row, table) in rows {
                let each = (100, Fill { pattern: 0, size: 1 });
                let refused = launch.kernels.pad(launch.stream, (launch.table, table), &from, &to, each);
                assert_eq!(refused.expect_err("it is refused").code, 1, "{row:?}");
            }
            Ok(())
        },
    );
}
