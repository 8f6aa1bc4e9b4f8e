//! The padding element, as bytes of its type.

use super::refused;
use crate::Result;
use crate::config::PadValue;
use crate::dataset::{DType, Field};

/// One element of a type, used to fill the space that values leave free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pad {
    /// Little-endian. Bytes from `size` on are 0.
    bytes: [u8; 8],
    size: u8,
}

impl Pad {
    /// Converts the value to an element of the field's type.
    ///
    /// # Errors
    /// `InvalidArgument` if the type cannot hold it.
    pub(super) fn new(value: PadValue, field: &Field) -> Result<Pad> {
        let dtype = field.dtype;
        let bits = match value {
            PadValue::Int(number) => bits_of(number, dtype),
            PadValue::Bits(bits) => holds(bits, dtype).then_some(bits),
        };
        let Some(bits) = bits else {
            let what = format!("{value:?} is no {dtype}, so it cannot fill up column {:?}", field.name);
            let remedy = match (value, dtype) {
                (PadValue::Int(_), DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2) => {
                    "this type is only carried: give the element's bits (PadValue::Bits), or 0"
                }
                (PadValue::Int(_), _) => "give a number that the type holds exactly, or the element's bits",
                (PadValue::Bits(_), _) => "give the bits of one element, the lowest first",
            };
            return Err(refused(what, remedy));
        };
        Ok(Pad { bytes: bits.to_le_bytes(), size: dtype.size() as u8 })
    }

    /// Bytes of the element.
    pub(crate) fn size(self) -> u64 {
        u64::from(self.size)
    }

    /// Its bytes as a number, little-endian.
    pub(crate) fn bits(self) -> u64 {
        u64::from_le_bytes(self.bytes)
    }

    /// Fills `to`, whose length must be a whole number of elements.
    pub(crate) fn fill(self, to: &mut [u8]) {
        fn each<const N: usize>(to: &mut [u8], bytes: [u8; 8]) {
            let mut element = [0; N];
            element.copy_from_slice(&bytes[..N]);
            to.as_chunks_mut().0.fill(element);
        }
        match self.size {
            _ if self.bytes[..self.size as usize].iter().all(|&byte| byte == self.bytes[0]) => to.fill(self.bytes[0]),
            2 => each::<2>(to, self.bytes),
            4 => each::<4>(to, self.bytes),
            _ => each::<8>(to, self.bytes),
        }
    }
}

/// The bits of an integer as an element of the type, if the type can hold it.
fn bits_of(number: i64, dtype: DType) -> Option<u64> {
    let wide = i128::from(number);
    match dtype {
        DType::U8 => u8::try_from(number).ok().map(u64::from),
        DType::U16 => u16::try_from(number).ok().map(u64::from),
        DType::U32 => u32::try_from(number).ok().map(u64::from),
        DType::U64 => u64::try_from(number).ok(),
        DType::I8 => i8::try_from(number).ok().map(|number| u64::from(number as u8)),
        DType::I16 => i16::try_from(number).ok().map(|number| u64::from(number as u16)),
        DType::I32 => i32::try_from(number).ok().map(|number| u64::from(number as u32)),
        DType::I64 => Some(number as u64),
        // Compared in a wider type: converted back to `i64`, 2^63 would saturate to the largest value and hide the
        // difference.
        DType::F32 => (number as f32 as i128 == wide).then(|| u64::from((number as f32).to_bits())),
        DType::F64 => (number as f64 as i128 == wide).then(|| (number as f64).to_bits()),
        DType::Bool => u64::try_from(number).ok().filter(|&number| number <= 1),
        // F16, BF16 and the 8-bit floats are carried but not computed with, so only 0 converts.
        _ => (number == 0).then_some(0),
    }
}

/// Whether `bits` are one element of the type.
fn holds(bits: u64, dtype: DType) -> bool {
    match dtype {
        DType::Bool => bits <= 1,
        _ => dtype.size() == 8 || bits >> (8 * dtype.size()) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Shape;

    fn pad(value: PadValue, dtype: DType) -> Result<Pad> {
        Pad::new(value, &Field { name: "x".into(), dtype, shape: Shape::Ragged })
    }

    fn filled(value: PadValue, dtype: DType) -> Vec<u8> {
        let pad = pad(value, dtype).unwrap();
        let mut to = vec![0xaa; 3 * dtype.size() as usize];
        pad.fill(&mut to);
        let (first, rest) = to.split_at(dtype.size() as usize);
        assert!(rest.chunks(first.len()).all(|element| element == first), "{value:?} {dtype}");
        first.to_vec()
    }

    #[test]
    fn a_number_becomes_the_bytes_of_its_type() {
        use PadValue::{Bits, Int};
        assert_eq!(filled(Int(200), DType::U8), [200]);
        assert_eq!(filled(Int(-100), DType::I16), (-100_i16).to_le_bytes());
        assert_eq!(filled(Int(-100), DType::I32), (-100_i32).to_le_bytes());
        assert_eq!(filled(Int(-100), DType::I64), (-100_i64).to_le_bytes());
        assert_eq!(filled(Int(i64::MAX), DType::U64), i64::MAX.to_le_bytes());
        assert_eq!(filled(Int(-3), DType::F32), (-3_f32).to_le_bytes());
        assert_eq!(filled(Int(1 << 40), DType::F64), (2_f64.powi(40)).to_le_bytes());
        assert_eq!(filled(Int(i64::MIN), DType::F32), (-(2_f32.powi(63))).to_le_bytes());
        assert_eq!(filled(Int(1), DType::Bool), [1]);
        assert_eq!(filled(Bits(0x3f80), DType::BF16), [0x80, 0x3f]);
        assert_eq!(filled(Bits(0x7f), DType::F8E4M3), [0x7f]);
        assert_eq!(filled(Bits(u64::MAX), DType::I64), [0xff; 8]);
        assert_eq!(filled(Bits(0xffff_ffff), DType::U32), [0xff; 4]);
        for dtype in DType::ALL {
            assert!(filled(Int(0), dtype).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn what_the_type_does_not_hold_is_refused() {
        use PadValue::{Bits, Int};
        let wrong = [
            (Int(256), DType::U8),
            (Int(-1), DType::U16),
            (Int(128), DType::I8),
            (Int(-40_000), DType::I16),
            (Int(1 << 32), DType::U32),
            (Int(1 << 31), DType::I32),
            (Int(-1), DType::U64),
            (Int((1 << 24) + 1), DType::F32),
            (Int(i64::MAX), DType::F32),
            (Int(i64::MAX), DType::F64),
            (Int(2), DType::Bool),
            (Bits(2), DType::Bool),
            (Bits(256), DType::U8),
            (Bits(1 << 16), DType::BF16),
            (Bits(1 << 32), DType::F32),
        ];
        for (value, dtype) in wrong {
            let error = pad(value, dtype).unwrap_err();
            assert!(error.to_string().contains("\"x\"") && error.remedy().is_some(), "{error}");
        }
        for dtype in [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
            assert!(pad(Int(1), dtype).unwrap_err().remedy().unwrap().contains("Bits"));
        }
    }
}
