//! Measures gathering a batch, in GB/s against one `memcpy` of as many bytes: the samples' values are copied from
//! scattered places, where they were read, into one block, end to end; or they are moved together in place.
//! `cargo bench --bench gather`.
//!
//! Each number is the median of several rounds. Each round measures everything once, so that a disturbance affects
//! everything alike. The memory is the pool's, and more of it is used than a cache holds. The program prints a hash of
//! all results, so that the work cannot be optimized away.

use std::hint::black_box;
use std::time::Instant;
use uringload_sys::{Arena, Part, copy};

const SAMPLES: usize = 64;
const ROUNDS: usize = 21;
/// Bytes on each side of a copy: much more than the last-level cache holds.
const SIDE_BYTES: usize = 512 << 20;
/// The lowest rate of gathering that is acceptable, as a share of one copy's.
const LIMIT: f64 = 0.8;

fn main() {
    let (arena, mut from) = Arena::reserve(2 * SIDE_BYTES).expect("memory");
    arena.populate(0..2 * SIDE_BYTES).expect("memory");
    let mut to = from.split_off(SIDE_BYTES);
    for (index, byte) in from.as_mut().iter_mut().enumerate().step_by(61) {
        *byte = index as u8;
    }
    let mut lowest = f64::MAX;
    for value_bytes in [4 << 10, 150_528, 1 << 20] {
        lowest = lowest.min(report(value_bytes, &mut from, &mut to));
    }
    println!("lowest: {lowest:.2} of memcpy, {LIMIT} is wanted");
}

/// Where the values of each batch lie: each batch in a block of its own, shuffled as reads in disk order leave them,
/// each value a few odd bytes after a multiple of 512.
fn places(value_bytes: usize, batches: usize, seed: u64) -> Vec<usize> {
    let room = (value_bytes + 512).next_multiple_of(512);
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut places = Vec::with_capacity(batches * SAMPLES);
    for batch in 0..batches {
        let block = batch * SAMPLES * room;
        places.extend((0..SAMPLES).map(|index| block + index * room + random(512)));
        for index in (1..SAMPLES).rev() {
            places.swap(batch * SAMPLES + index, batch * SAMPLES + random(index + 1));
        }
    }
    places
}

fn report(value_bytes: usize, from: &mut Part, to: &mut Part) -> f64 {
    let batch_bytes = value_bytes * SAMPLES;
    let batches = (SIDE_BYTES / (2 * batch_bytes)).max(1);
    let places = places(value_bytes, batches, 42);
    let mut rates: [Vec<f64>; 3] = Default::default();
    let mut hash = 0_u64;
    for round in 0..ROUNDS {
        for (kind, rates) in rates.iter_mut().enumerate() {
            let start = Instant::now();
            for batch in 0..batches {
                let target = batch * batch_bytes;
                let places = &places[batch * SAMPLES..][..SAMPLES];
                match kind {
                    0 => {
                        let start = (target + round * 512) % (SIDE_BYTES - batch_bytes);
                        let from = &from.as_ref()[start..start + batch_bytes];
                        to.as_mut()[target..target + batch_bytes].copy_from_slice(from);
                    }
                    1 => gather(from.as_ref(), places, value_bytes, &mut to.as_mut()[target..target + batch_bytes]),
                    _ => compact(&mut to.as_mut()[target..], value_bytes),
                }
            }
            let nanos = start.elapsed().as_nanos() as f64;
            rates.push((batches * batch_bytes) as f64 / nanos);
            let sum: u64 = to.as_ref()[round..].iter().step_by(4099).map(|&byte| u64::from(byte)).sum();
            hash = hash.wrapping_mul(31).wrapping_add(black_box(sum));
        }
    }
    let [copy, gathered, compacted] = rates.map(median);
    println!(
        "{SAMPLES} x {value_bytes:>7} bytes  memcpy {copy:>6.2} GB/s  gather {gathered:>6.2} ({:.2})  \
         in place {compacted:>6.2} ({:.2})  {hash:016x}",
        gathered / copy,
        compacted / copy
    );
    (gathered / copy).min(compacted / copy)
}

/// Copies values from where they lie to where they belong.
fn gather(from: &[u8], places: &[usize], value_bytes: usize, to: &mut [u8]) {
    let piece = |(index, &place): (usize, &usize)| (index * value_bytes, &from[place..place + value_bytes]);
    copy::gather(to, places.iter().enumerate().map(piece));
}

/// Moves values together that lie up to 4 KiB apart.
fn compact(block: &mut [u8], value_bytes: usize) {
    let room = (value_bytes + 511).next_multiple_of(512);
    let fits = (block.len() / room).min(SAMPLES);
    for index in 0..fits {
        let start = index * room + 24;
        block.copy_within(start..start + value_bytes, index * value_bytes);
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}
