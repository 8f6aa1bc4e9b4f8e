//! The computations of the kernels in `sys/kernels`, in safe Rust and byte by byte as their comments say: the oracle
//! for their tests, the mock driver's implementation, and the host's path without a GPU.
//!
//! Inputs are slices of raw memory, so that nothing has to be aligned, and numbers are little endian. Integers are
//! exact. So are floats: each operation rounds once to nearest even, and the list of operations is part of the
//! definition. A source that a kernel could not read without leaving its memory causes a panic here.

mod images;
mod resample;

pub use images::{CHANNELS_MAX, IMAGE_RECORD_BYTES, ImageLayout, ImageParams, images, normalizer};
pub use resample::{PASS_RECORD_BYTES, PassParams, resample};
pub use uringload_core::{bf16_bits, f16_bits};

/// `ur_burn` multiplies by this, and adds [`BURN_ADD`], which keeps any number finite and normal.
const BURN_MULTIPLY: f32 = 0.999;
/// See [`BURN_MULTIPLY`].
const BURN_ADD: f32 = 0.001;

/// `ur_gather`: copies each piece to its place, `(at, piece)` to `to[at..][..piece.len()]`. Places do not overlap, and
/// bytes that no piece covers stay.
///
/// # Panics
/// If a piece does not fit within `to`.
pub fn gather<'a>(to: &mut [u8], pieces: impl IntoIterator<Item = (usize, &'a [u8])>) {
    for (at, piece) in pieces {
        to[at..][..piece.len()].copy_from_slice(piece);
    }
}

/// `ur_fill`: fills `to` with elements of `size` bytes, the low bytes of `pattern`.
///
/// # Panics
/// If `size` is not 1, 2, 4 or 8.
pub fn fill(to: &mut [u8], pattern: u64, size: u32) {
    fill_from(to, 0, pattern, size);
}

/// `ur_pad`: row i of `to`, which is `row_bytes` long, has the bytes of `rows[i]`, as many as fit, and then elements of
/// `size` bytes, the low bytes of `pattern`. Elements are at multiples of `size` of the row, so one is cut at its front
/// if a row ends within it.
///
/// # Panics
/// If `size` is not 1, 2, 4 or 8, and if `to` is shorter than the rows.
pub fn pad<'a>(to: &mut [u8], rows: impl IntoIterator<Item = &'a [u8]>, row_bytes: usize, pattern: u64, size: u32) {
    let mut rest = to;
    for row in rows {
        let (to, behind) = rest.split_at_mut(row_bytes);
        let kept = row.len().min(row_bytes);
        to[..kept].copy_from_slice(&row[..kept]);
        fill_from(&mut to[kept..], kept, pattern, size);
        rest = behind;
    }
}

/// `ur_tokens_u16`: rows of tokens become rows of `seq_len` 64-bit integers. With t tokens in row i, its element j is
/// token j in `ids`, or `pad_id` from t on, and token j + 1 in `labels`, or `ignore` from t - 1 on: a row of
/// `seq_len + 1` tokens has every label. Bytes after the last whole token of a row are ignored.
///
/// # Panics
/// If `ids` or `labels` is shorter than the rows.
pub fn tokens_u16<'a>(
    ids: &mut [u8],
    labels: Option<&mut [u8]>,
    rows: impl IntoIterator<Item = &'a [u8]>,
    seq_len: usize,
    pad_id: i64,
    ignore: i64,
) {
    tokens(ids, labels, rows, seq_len, (pad_id, ignore), |token: &[u8; 2]| i64::from(u16::from_le_bytes(*token)));
}

/// `ur_tokens_u32`: as [`tokens_u16`], for tokens of 4 bytes.
///
/// # Panics
/// As [`tokens_u16`].
pub fn tokens_u32<'a>(
    ids: &mut [u8],
    labels: Option<&mut [u8]>,
    rows: impl IntoIterator<Item = &'a [u8]>,
    seq_len: usize,
    pad_id: i64,
    ignore: i64,
) {
    tokens(ids, labels, rows, seq_len, (pad_id, ignore), |token: &[u8; 4]| i64::from(u32::from_le_bytes(*token)));
}

/// `ur_burn`: each single-precision number of `floats` becomes `0.999 x + 0.001`, `rounds` times. Bytes after the last
/// whole number stay.
pub fn burn(floats: &mut [u8], rounds: u32) {
    for float in floats.as_chunks_mut::<4>().0 {
        let mut value = f32::from_le_bytes(*float);
        for _ in 0..rounds {
            value = value.mul_add(BURN_MULTIPLY, BURN_ADD);
        }
        *float = value.to_le_bytes();
    }
}

/// Fills `to`, which starts at byte `at` of a row of elements.
fn fill_from(to: &mut [u8], at: usize, pattern: u64, size: u32) {
    assert!(matches!(size, 1 | 2 | 4 | 8), "no element has {size} bytes");
    let element = &pattern.to_le_bytes()[..size as usize];
    for (byte, from) in to.iter_mut().zip(element.iter().cycle().skip(at % element.len())) {
        *byte = *from;
    }
}

/// Rows of tokens of `N` bytes.
fn tokens<'a, const N: usize>(
    ids: &mut [u8],
    mut labels: Option<&mut [u8]>,
    rows: impl IntoIterator<Item = &'a [u8]>,
    seq_len: usize,
    (pad_id, ignore): (i64, i64),
    token: impl Fn(&[u8; N]) -> i64,
) {
    let write = |to: &mut [u8], row: usize, tokens: &[[u8; N]], behind: i64| {
        let (to, rest) = to[row * seq_len * 8..][..seq_len * 8].as_chunks_mut::<8>();
        debug_assert!(rest.is_empty());
        for (index, element) in to.iter_mut().enumerate() {
            *element = tokens.get(index).map_or(behind, &token).to_le_bytes();
        }
    };
    for (row, bytes) in rows.into_iter().enumerate() {
        let tokens = bytes.as_chunks::<N>().0;
        write(ids, row, tokens, pad_id);
        if let Some(labels) = labels.as_deref_mut() {
            write(labels, row, tokens.get(1..).unwrap_or_default(), ignore);
        }
    }
}

#[cfg(test)]
mod tests;
