//! Copying many pieces into one block, faster than one `memcpy` after another.
//!
//! Two things cost a plain copy half of the memory bandwidth. It reads each line of the target before it overwrites it,
//! which stores that bypass the cache do not. And it waits for memory at the start of each piece, because the processor
//! prefetches only within a page. So the start of the next piece is fetched while this one is copied.

/// Shorter pieces go through the cache: their ends are not whole lines, and would cost more than the rest gains.
const STREAM_BYTES_MIN: usize = 2048;

/// How much of the next piece to fetch ahead: one page, after which the processor's own prefetching takes over.
const AHEAD_BYTES: usize = 4096;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Copies each piece to its place in `to`: `(at, piece)` goes to `to[at..][..piece.len()]`. The places can be in any
/// order and do not overlap.
///
/// # Panics
/// If a piece does not fit inside `to`.
pub fn gather<'a>(to: &mut [u8], pieces: impl IntoIterator<Item = (usize, &'a [u8])>) {
    // Its drop runs no matter what a piece or the iterator does, so no other code sees `to` before the stores have
    // reached it.
    let _written = Fence;
    let mut pieces = pieces.into_iter().peekable();
    while let Some((at, from)) = pieces.next() {
        let next = pieces.peek().map_or(&[][..], |(_, next)| next);
        copy(from, &mut to[at..][..from.len()], &next[..next.len().min(AHEAD_BYTES)]);
    }
}

/// Copies `from` to `to`, which has the same length, and fetches `ahead` meanwhile.
fn copy(from: &[u8], to: &mut [u8], ahead: &[u8]) {
    if from.len() < STREAM_BYTES_MIN {
        ahead.iter().step_by(LINE_BYTES).for_each(fetch);
        to.copy_from_slice(from);
        return;
    }
    // SAFETY: any bytes are a valid `Line` and any `Line` is valid bytes: it has no padding and no invalid value.
    let (head, lines, tail) = unsafe { to.align_to_mut::<Line>() };
    let (from_head, from) = from.split_at(head.len());
    let (from_lines, from_tail) = from.split_at(lines.len() * LINE_BYTES);
    head.copy_from_slice(from_head);
    for (index, (line, from)) in lines.iter_mut().zip(from_lines.chunks_exact(LINE_BYTES)).enumerate() {
        ahead.get(index * LINE_BYTES).into_iter().for_each(fetch);
        line.store(from);
    }
    tail.copy_from_slice(from_tail);
}

/// A cache line, as the processor writes it to memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([Quarter; 4]);

/// What one instruction writes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Quarter([u8; 16]);

impl Line {
    /// Writes 64 bytes past the cache.
    fn store(&mut self, from: &[u8]) {
        for (quarter, from) in self.0.iter_mut().zip(from.as_chunks().0) {
            quarter.store(from);
        }
    }
}

/// When dropped, orders what was written past the cache before anything that is written later.
struct Fence;

/// Every x86-64 processor has SSE2.
#[cfg(target_arch = "x86_64")]
mod processor {
    use super::{Fence, Quarter};
    use std::arch::x86_64::{_MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128};

    impl Quarter {
        pub(super) fn store(&mut self, from: &[u8; 16]) {
            // SAFETY: `from` is 16 readable bytes, and this load needs no alignment.
            let bytes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            // SAFETY: `self` is 16 writable bytes, which its type aligns to 16. The store is not ordered with other
            // stores, which is what `Fence` is for: no caller of `gather` can skip its drop.
            unsafe { _mm_stream_si128(self.0.as_mut_ptr().cast(), bytes) };
        }
    }

    impl Drop for Fence {
        fn drop(&mut self) {
            // SAFETY: it needs SSE, which every x86-64 processor has, and touches no memory.
            unsafe { _mm_sfence() };
        }
    }

    pub(super) fn fetch(byte: &u8) {
        // SAFETY: a hint, which neither faults nor changes memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
}

/// Plain copies.
#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use super::{Fence, Quarter};

    impl Quarter {
        pub(super) fn store(&mut self, from: &[u8; 16]) {
            self.0 = *from;
        }
    }

    impl Drop for Fence {
        fn drop(&mut self) {}
    }

    pub(super) fn fetch(_byte: &u8) {}
}

use processor::fetch;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length around the boundaries, from and to every alignment, byte by byte, with the neighbours untouched.
    #[test]
    fn pieces_come_to_their_places_and_nowhere_else() {
        let from: Vec<u8> = (0..20_000_u32).map(|index| (index * 31 / 7) as u8).collect();
        let around = |border: usize| border - 2..border + 3;
        let lens =
            (0..3).chain(around(64)).chain(around(2048)).chain(around(2112)).chain(around(4096)).chain(around(9000));
        for len in lens {
            for shift in [0, 1, 15, 16, 17, 63, 64] {
                let pieces =
                    [(5 + shift, &from[shift * 3..][..len]), (9200 + shift, &from[100..][..len]), (0, &from[7..9])];
                let mut to = vec![0xaa; 19_000];
                let mut wanted = to.clone();
                for (at, piece) in pieces {
                    wanted[at..at + piece.len()].copy_from_slice(piece);
                }
                gather(&mut to, pieces);
                assert!(to == wanted, "{len} bytes, shifted by {shift}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_panics_and_writes_nothing_outside() {
        let from = vec![1; 5000];
        for (at, len) in [(0, 4097), (4000, 97), (5000, 0), (usize::MAX, 1)] {
            let mut to = vec![0; 4096];
            let gathered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                gather(&mut to, [(at, &from[..len])]);
            }));
            assert!(gathered.is_err(), "{len} bytes at {at}");
        }
        gather(&mut [], [(0, &[][..])]);
    }
}
