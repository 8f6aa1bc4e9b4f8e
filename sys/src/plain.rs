//! Numbers as bytes, and bytes as numbers, without a copy.

/// Types without padding for which every pattern of bits is a value.
///
/// # Safety
/// Both must be true of the type.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($number:ty),*) => {
        $(
            // SAFETY: a primitive number: every pattern of bits is one, and none of its bytes is padding.
            unsafe impl Plain for $number {}
        )*
    };
}

plain!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// The bytes as numbers. `None` where they begin at an address that is not aligned for them, or end within one.
pub fn cast<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    if bytes.is_empty() {
        return Some(&[]);
    }
    // SAFETY: `align_to` asks that the bytes of the middle are values of T, and `Plain` promises it of any bytes. The
    // slice borrows `bytes`.
    let (before, numbers, after) = unsafe { bytes.align_to::<T>() };
    (before.is_empty() && after.is_empty()).then_some(numbers)
}

/// The bytes of numbers, in the machine's order, which is little endian.
pub fn bytes_of<T: Plain>(numbers: &[T]) -> &[u8] {
    // SAFETY: every byte of a `Plain` is a byte of a value, none is padding, and any byte is a `u8`. The slice borrows
    // `numbers`. Bytes have no alignment to miss, so the middle is all of it.
    let (_, bytes, _) = unsafe { numbers.align_to::<u8>() };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bytes_and_back() {
        let numbers = [1.5_f32, -0.0, f32::NAN];
        let bytes = bytes_of(&numbers);
        assert_eq!(bytes.len(), 12);
        let back: &[f32] = cast(bytes).expect("aligned, whole");
        assert!(back.iter().zip(&numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert_eq!(cast::<f32>(&bytes[..11]), None, "it ends within a number");
        assert_eq!(cast::<f32>(&bytes[1..9]), None, "it begins within one");
        assert_eq!(cast::<u8>(&bytes[1..9]).map(<[u8]>::len), Some(8));
        assert_eq!(cast::<i64>(&[]), Some(&[][..]));
    }
}
