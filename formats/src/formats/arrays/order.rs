//! Arrays in Fortran order, converted to the usual C order.

/// Elements along each side of a tile: what is read and what is written of it both stay in the processor's cache.
const TILE: usize = 32;

/// Puts the elements of `stored`, which are in Fortran order, into `out` in C order. Both have exactly the elements of
/// an array of that shape, of `N` bytes each.
fn c_order_of<const N: usize>(stored: &[u8], shape: &[usize], out: &mut [u8]) {
    let (stored, out) = (stored.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    let (Some((&first, rest)), Some(&last)) = (shape.split_first(), shape.last()) else {
        out.copy_from_slice(stored);
        return;
    };
    if rest.is_empty() {
        out.copy_from_slice(stored);
        return;
    }
    // The first dimension is end to end in the file, the last in the output; all others are counted through.
    let middle = &rest[..rest.len() - 1];
    let planes: usize = middle.iter().product();
    let mut at = vec![0; middle.len()];
    for plane in 0..planes {
        // Where the plane begins in Fortran order, in units of the first dimension.
        let from = at.iter().zip(middle).rev().fold(0, |from, (at, len)| from * len + at);
        for (row, column) in tiles(first, last) {
            for i in row..(row + TILE).min(first) {
                for k in column..(column + TILE).min(last) {
                    out[(i * planes + plane) * last + k] = stored[i + first * (from + planes * k)];
                }
            }
        }
        for (at, &len) in at.iter_mut().zip(middle).rev() {
            *at += 1;
            if *at < len {
                break;
            }
            *at = 0;
        }
    }
}

/// The corners of all tiles.
fn tiles(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(TILE).flat_map(move |row| (0..columns).step_by(TILE).map(move |column| (row, column)))
}

/// Puts the elements of `stored`, which are in Fortran order, into `out` in C order. Both are as long as an array of
/// that shape, with elements of 1, 2, 4 or 8 bytes.
pub(super) fn c_order(stored: &[u8], shape: &[u64], element_bytes: usize, out: &mut [u8]) {
    // Fits: the elements are in memory.
    let shape: Vec<usize> = shape.iter().map(|&len| len as usize).collect();
    match element_bytes {
        1 => c_order_of::<1>(stored, &shape, out),
        2 => c_order_of::<2>(stored, &shape, out),
        4 => c_order_of::<4>(stored, &shape, out),
        _ => c_order_of::<8>(stored, &shape, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_element_is_where_its_indexes_say(
            shape in prop::collection::vec(1_u64..40, 0..4),
            element_bytes in prop::sample::select(vec![1_usize, 2, 4, 8]),
        ) {
            let count = shape.iter().product::<u64>() as usize;
            let number = |number: usize| (number as u64).to_le_bytes()[..element_bytes].to_vec();
            let stored: Vec<u8> = (0..count).flat_map(number).collect();
            let mut out = vec![0; stored.len()];
            c_order(&stored, &shape, element_bytes, &mut out);
            for at in 0..count {
                // The index in each dimension, the last first, then the place in Fortran order.
                let mut rest = at;
                let mut indexes: Vec<usize> = Vec::new();
                for &len in shape.iter().rev() {
                    indexes.push(rest % len as usize);
                    rest /= len as usize;
                }
                let from = indexes.iter().zip(shape.iter().rev()).fold(0, |from, (at, &len)| from * len as usize + at);
                prop_assert_eq!(&out[at * element_bytes..][..element_bytes], &number(from)[..]);
            }
        }
    }
}
