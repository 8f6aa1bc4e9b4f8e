//! Casts numbers of one type to another, some dozens at a time: first to the widest type of their kind, then to the
//! target, so that compilers can use vectors for both.

use crate::dataset::DType;
use crate::transform::twin::{bf16_bits, f16_bits};

/// Elements at a time.
const TURN: usize = 64;

/// The widest numbers of each kind.
struct Wide {
    floats: [f64; TURN],
    signed: [i64; TURN],
    unsigned: [u64; TURN],
}

#[derive(Clone, Copy)]
enum Kind {
    Float,
    Signed,
    Unsigned,
}

/// Whether numbers of this type are cast.
pub(super) fn is_known(dtype: DType) -> bool {
    !matches!(dtype, DType::F8E4M3 | DType::F8E5M2)
}

/// Writes as many elements as `out` holds, in reverse if `is_reversed`.
pub(super) fn convert((bytes, from): (&[u8], DType), (out, to): (&mut [u8], DType), is_reversed: bool) {
    let (size, width) = (from.size() as usize, to.size() as usize);
    if from == to {
        // The same bits, whatever they mean.
        let elements = bytes.chunks_exact(size);
        let each = |(place, element): (&mut [u8], &[u8])| place.copy_from_slice(element);
        return if is_reversed {
            out.chunks_exact_mut(width).zip(elements.rev()).for_each(each);
        } else {
            out.chunks_exact_mut(width).zip(elements).for_each(each);
        };
    }
    let mut wide = Wide { floats: [0.0; TURN], signed: [0; TURN], unsigned: [0; TURN] };
    let count = bytes.len() / size;
    for (turn, elements) in bytes.chunks(TURN * size).enumerate() {
        let kind = wide.read(elements, from);
        let (start, len) = (turn * TURN, elements.len() / size);
        if is_reversed {
            match kind {
                Kind::Float => wide.floats[..len].reverse(),
                Kind::Signed => wide.signed[..len].reverse(),
                Kind::Unsigned => wide.unsigned[..len].reverse(),
            }
        }
        let start = if is_reversed { count - start - len } else { start };
        wide.write(kind, &mut out[start * width..(start + len) * width], to);
    }
}

macro_rules! read {
    ($type:ty, $bytes:expr, $to:expr) => {
        for (place, bytes) in $to.iter_mut().zip($bytes.as_chunks().0) {
            *place = <$type>::from_le_bytes(*bytes).into();
        }
    };
}

macro_rules! write {
    ($wide:expr, $kind:expr, $out:expr, $float:expr, $signed:expr, $unsigned:expr) => {
        match $kind {
            Kind::Float => {
                $out.as_chunks_mut().0.iter_mut().zip(&$wide.floats).for_each(|(to, &one)| *to = $float(one))
            }
            Kind::Signed => {
                $out.as_chunks_mut().0.iter_mut().zip(&$wide.signed).for_each(|(to, &one)| *to = $signed(one));
            }
            Kind::Unsigned => {
                $out.as_chunks_mut().0.iter_mut().zip(&$wide.unsigned).for_each(|(to, &one)| *to = $unsigned(one));
            }
        }
    };
    ($wide:expr, $kind:expr, $out:expr, $type:ty) => {
        write!(
            $wide,
            $kind,
            $out,
            |one: f64| (one as $type).to_le_bytes(),
            |one: i64| (one as $type).to_le_bytes(),
            |one: u64| (one as $type).to_le_bytes()
        )
    };
}

impl Wide {
    fn read(&mut self, bytes: &[u8], from: DType) -> Kind {
        match from {
            DType::F64 => read!(f64, bytes, self.floats),
            DType::F32 => read!(f32, bytes, self.floats),
            DType::F16 => {
                for (place, bytes) in self.floats.iter_mut().zip(bytes.as_chunks().0) {
                    *place = of_f16(u16::from_le_bytes(*bytes));
                }
            }
            DType::BF16 => {
                for (place, bytes) in self.floats.iter_mut().zip(bytes.as_chunks().0) {
                    *place = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16).into();
                }
            }
            DType::I8 => read!(i8, bytes, self.signed),
            DType::I16 => read!(i16, bytes, self.signed),
            DType::I32 => read!(i32, bytes, self.signed),
            DType::I64 => read!(i64, bytes, self.signed),
            DType::U16 => read!(u16, bytes, self.unsigned),
            DType::U32 => read!(u32, bytes, self.unsigned),
            DType::U64 => read!(u64, bytes, self.unsigned),
            // Bytes and booleans; others are not cast.
            _ => read!(u8, bytes, self.unsigned),
        }
        match from {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Kind::Float,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Kind::Signed,
            _ => Kind::Unsigned,
        }
    }

    fn write(&self, kind: Kind, out: &mut [u8], to: DType) {
        let half = |bits: fn(f32) -> u16| move |one: f64| bits(to_odd(one)).to_le_bytes();
        match to {
            DType::F64 => write!(self, kind, out, f64),
            DType::F32 => write!(self, kind, out, f32),
            DType::F16 => {
                let float = half(f16_bits);
                write!(self, kind, out, float, |one: i64| float(one as f64), |one: u64| float(one as f64));
            }
            DType::BF16 => {
                let float = half(bf16_bits);
                write!(self, kind, out, float, |one: i64| float(one as f64), |one: u64| float(one as f64));
            }
            DType::I8 => write!(self, kind, out, i8),
            DType::I16 => write!(self, kind, out, i16),
            DType::I32 => write!(self, kind, out, i32),
            DType::I64 => write!(self, kind, out, i64),
            DType::U16 => write!(self, kind, out, u16),
            DType::U32 => write!(self, kind, out, u32),
            DType::U64 => write!(self, kind, out, u64),
            DType::Bool => {
                write!(
                    self,
                    kind,
                    out,
                    |one: f64| [u8::from(one != 0.0)],
                    |one: i64| [u8::from(one != 0)],
                    |one: u64| [u8::from(one != 0)]
                );
            }
            _ => write!(self, kind, out, u8),
        }
    }
}

/// The value of half precision.
fn of_f16(bits: u16) -> f64 {
    let magnitude = u32::from(bits & 0x7fff);
    let value = match magnitude {
        // Infinite, or none.
        0x7c00.. => f32::from_bits(magnitude << 13 | 0x7f80_0000),
        // The exponent's bias goes from 15 to 127.
        0x0400.. => f32::from_bits((magnitude << 13) + 0x3800_0000),
        // In units of 2^-24.
        _ => magnitude as f32 / (1 << 24) as f32,
    };
    f64::from(if bits & 0x8000 == 0 { value } else { -value })
}

/// A single-precision number near `value`, such that rounding it to a shorter type equals rounding `value` itself: if
/// it is not exact, its last bit is set ("round to odd").
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || !near.is_finite() {
        return near;
    }
    // The neighbour nearer to zero, with the last bit set: either it is odd or its neighbour is.
    let toward_zero = if back.abs() > value.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(numbers: &[f64], one: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        numbers.iter().flat_map(|&number| one(number)).collect()
    }

    fn cast(from: &[u8], stored: DType, to: DType, is_reversed: bool) -> Vec<u8> {
        let mut out = vec![0; from.len() / stored.size() as usize * to.size() as usize];
        convert((from, stored), (&mut out, to), is_reversed);
        out
    }

    #[test]
    fn numbers_become_those_of_each_type() {
        let numbers: Vec<f64> = (0..200).map(|number| f64::from(number) - 70.0).collect();
        let stored = [
            (DType::F64, bytes(&numbers, f64::to_le_bytes)),
            (DType::F32, bytes(&numbers, |one| (one as f32).to_le_bytes())),
            (DType::F16, bytes(&numbers, |one| f16_bits(one as f32).to_le_bytes())),
            (DType::BF16, bytes(&numbers, |one| bf16_bits(one as f32).to_le_bytes())),
            (DType::I64, bytes(&numbers, |one| (one as i64).to_le_bytes())),
            (DType::I32, bytes(&numbers, |one| (one as i32).to_le_bytes())),
            (DType::I16, bytes(&numbers, |one| (one as i16).to_le_bytes())),
        ];
        for (from, bytes) in &stored {
            for (to, wanted) in &stored {
                assert_eq!(&cast(bytes, *from, *to, false), wanted, "{from} to {to}");
                let mut reversed: Vec<&[u8]> = wanted.chunks(to.size() as usize).collect();
                reversed.reverse();
                assert_eq!(cast(bytes, *from, *to, true), reversed.concat(), "{from} to {to}, reversed");
            }
        }
    }

    #[test]
    fn what_does_not_fit_ends_at_the_least_or_greatest() {
        let floats = bytes(&[300.0, -1.5, f64::NAN, 1e300, -0.5, 255.9], f64::to_le_bytes);
        assert_eq!(cast(&floats, DType::F64, DType::U8, false), [255, 0, 0, 255, 0, 255]);
        assert_eq!(cast(&floats, DType::F64, DType::Bool, false), [1, 1, 1, 1, 1, 1]);
        // Between integers, the upper bits are dropped.
        assert_eq!(cast(&300_i32.to_le_bytes(), DType::I32, DType::U8, false), [44]);
        let large = u64::MAX.to_le_bytes();
        assert_eq!(cast(&large, DType::U64, DType::F32, false), (u64::MAX as f32).to_le_bytes());
    }

    /// Differs from the middle of two 16-bit numbers by less than single precision can represent.
    #[test]
    fn doubles_are_rounded_once() {
        let middle = 1.0 + 2.0_f64.powi(-11);
        for (value, wanted) in [(middle, 0x3c00), (middle + 1e-12, 0x3c01), (middle - 1e-12, 0x3c00)] {
            assert_eq!(cast(&value.to_le_bytes(), DType::F64, DType::F16, false), u16::to_le_bytes(wanted), "{value}");
        }
        let middle = 1.0 + 2.0_f64.powi(-8);
        for (value, wanted) in [(middle, 0x3f80), (middle + 1e-12, 0x3f81), (-middle - 1e-12, 0xbf81)] {
            assert_eq!(cast(&value.to_le_bytes(), DType::F64, DType::BF16, false), u16::to_le_bytes(wanted), "{value}");
        }
        for bits in 0..=u16::MAX {
            let value = of_f16(bits);
            assert!(value.is_nan() || f16_bits(value as f32) == bits, "{bits:#x}");
        }
    }
}
