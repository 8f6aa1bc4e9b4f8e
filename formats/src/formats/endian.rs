//! Big endian numbers made little endian, as every column has them.

use bytes::Bytes;

/// A little endian copy of big endian elements of `width` bytes, in one pass over memory. Bytes after the last whole
/// element are left out.
pub(crate) fn little(stored: &[u8], width: usize) -> Bytes {
    // A width that the compiler knows is a handful of instructions for many elements; one that it does not know is a
    // loop for each.
    fn copied<const N: usize>(stored: &[u8], turned: impl Fn([u8; N]) -> [u8; N]) -> Vec<u8> {
        stored.as_chunks::<N>().0.iter().map(|&element| turned(element)).collect::<Vec<_>>().into_flattened()
    }
    match width {
        2 => copied(stored, |element| u16::from_be_bytes(element).to_le_bytes()),
        4 => copied(stored, |element| u32::from_be_bytes(element).to_le_bytes()),
        8 => copied(stored, |element| u64::from_be_bytes(element).to_le_bytes()),
        _ => {
            let mut copy = stored.to_vec();
            turn(&mut copy, width);
            copy
        }
    }
    .into()
}

/// Turns the bytes of each element of `width` bytes around, in place.
pub(crate) fn turn(elements: &mut [u8], width: usize) {
    fn each<const N: usize>(elements: &mut [u8], turned: impl Fn([u8; N]) -> [u8; N]) {
        elements.as_chunks_mut::<N>().0.iter_mut().for_each(|element| *element = turned(*element));
    }
    match width {
        1 => {}
        2 => each(elements, |element| u16::from_be_bytes(element).to_le_bytes()),
        4 => each(elements, |element| u32::from_be_bytes(element).to_le_bytes()),
        8 => each(elements, |element| u64::from_be_bytes(element).to_le_bytes()),
        _ => elements.chunks_exact_mut(width.max(1)).for_each(<[u8]>::reverse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_is_turned_around() {
        let stored: Vec<u8> = (0..48).collect();
        for width in [1, 2, 3, 4, 8, 16] {
            let wanted: Vec<u8> =
                stored.chunks_exact(width).flat_map(|element| element.iter().rev().copied()).collect();
            assert_eq!(little(&stored, width), wanted, "{width}");
            let mut in_place = stored.clone();
            turn(&mut in_place, width);
            assert_eq!(in_place, wanted, "{width}");
        }
    }
}
