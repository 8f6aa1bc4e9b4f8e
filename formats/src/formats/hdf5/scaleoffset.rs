//! The filter `scaleoffset`: numbers less their minimum, in as few bits as the largest of them needs.
//!
//! Source: HDF5's `H5Zscaleoffset.c`. Floating-point numbers were multiplied by a power of ten and rounded before.

use std::io;

/// Before the bits: their number for each element (4 bytes), bytes of the minimum (1), the minimum (8), and padding.
const HEAD_BYTES: usize = 21;
/// Client values that come before the fill value.
const VALUES: usize = 8;

/// How a dataset's chunks were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScaleOffset {
    /// Elements of a chunk.
    count: u64,
    /// Bytes of an element.
    bytes: usize,
    is_big_endian: bool,
    /// Decimal digits that were kept of floating-point numbers.
    digits: Option<i32>,
    /// The value that the highest number represents, if it was known.
    fill: Option<u64>,
}

impl ScaleOffset {
    /// From the client values of the filter; `None` for what the library does not write.
    pub(super) fn of(values: &[u32]) -> Option<ScaleOffset> {
        let &[kind, digits, count, class, bytes, _sign, order, has_fill] = values.first_chunk::<VALUES>()?;
        // Kind 0 keeps digits of floating-point numbers, kind 2 is of integers.
        let digits = match (kind, class) {
            (2, 0) => None,
            (0, 1) if matches!(bytes, 4 | 8) => Some(digits.cast_signed()),
            _ => return None,
        };
        let word = |at: usize| values.get(VALUES + at).copied().map(u64::from);
        let fill = match (has_fill, bytes) {
            (0, _) => None,
            (_, 8) => Some(word(0)? | word(1)? << 32),
            _ => Some(word(0)?),
        };
        let is_big_endian = order == 1;
        let bytes = matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes as usize)?;
        Some(ScaleOffset { count: count.into(), bytes, is_big_endian, digits, fill })
    }

    /// Undoes the filter and returns the number of bytes written to `out`.
    pub(super) fn undo(self, stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let len = usize::try_from(self.count).ok().and_then(|count| count.checked_mul(self.bytes));
        let out = len.and_then(|len| out.get_mut(..len)).ok_or_else(|| broken("it decodes to more than it should"))?;
        let (head, packed) = stored.split_at_checked(HEAD_BYTES).ok_or_else(|| broken("it ends too early"))?;
        let bits = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let mut minimum = [0; 8];
        let minimum_bytes = usize::from(head[4]).min(minimum.len());
        minimum[..minimum_bytes].copy_from_slice(&head[5..5 + minimum_bytes]);
        let minimum = u64::from_le_bytes(minimum);
        let width = 8 * self.bytes as u32;
        if bits > width {
            return Err(broken("its numbers have more bits than they should"));
        }
        // Fits: both have fewer than 2^61 bytes.
        let needed = (u128::from(self.count) * u128::from(bits)).div_ceil(8);
        if needed > packed.len() as u128 {
            return Err(broken("it ends too early"));
        }
        if bits == width {
            // As they were, in the order of the file's type.
            let len = out.len();
            out.copy_from_slice(&packed[..len]);
            return Ok(len);
        }
        let highest = (1_u64 << bits) - 1;
        let mut reader = Bits { packed, held: 0, count: 0 };
        for element in out.chunks_exact_mut(self.bytes) {
            let number = reader.take(bits);
            let value = match self.fill {
                Some(fill) if number == highest => fill,
                _ => self.restored(number, minimum),
            };
            element.copy_from_slice(&value.to_le_bytes()[..self.bytes]);
            if self.is_big_endian {
                element.reverse();
            }
        }
        Ok(out.len())
    }

    /// The element that was stored as `number`, as its bits.
    fn restored(self, number: u64, minimum: u64) -> u64 {
        match (self.digits, self.bytes) {
            (None, _) => minimum.wrapping_add(number),
            // The library computes in the type itself.
            (Some(digits), 4) => {
                let minimum = f32::from_bits(minimum as u32);
                let number = (number as u32).cast_signed() as f32;
                u64::from((number / 10_f32.powi(digits) + minimum).to_bits())
            }
            (Some(digits), _) => {
                (number.cast_signed() as f64 / 10_f64.powi(digits) + f64::from_bits(minimum)).to_bits()
            }
        }
    }
}

/// Reads numbers of some bits each, the highest first.
struct Bits<'a> {
    packed: &'a [u8],
    held: u128,
    count: u32,
}

impl Bits<'_> {
    /// The caller has made sure that this many bits are there.
    fn take(&mut self, bits: u32) -> u64 {
        while self.count < bits {
            let Some((&byte, rest)) = self.packed.split_first() else { break };
            self.packed = rest;
            self.held = self.held << 8 | u128::from(byte);
            self.count += 8;
        }
        self.count -= bits.min(self.count);
        let number = self.held >> self.count;
        self.held &= (1 << self.count) - 1;
        number as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_takes_its_bits_and_the_highest_is_the_fill_value() {
        // Five bits each: 1, 30, 31 (which is the fill value).
        let head = [&5_u32.to_le_bytes()[..], &[8], &(-2_i64).to_le_bytes(), &[0; 8]].concat();
        let stored = [&head[..], &[0b0000_1111, 0b1011_1110]].concat();
        let filter = ScaleOffset::of(&[2, 0, 3, 0, 2, 1, 0, 1, 77]).expect("integers");
        let mut out = [0; 6];
        assert_eq!(filter.undo(&stored, &mut out).unwrap(), 6);
        assert_eq!(out, [0xff, 0xff, 28, 0, 77, 0]);
        assert!(filter.undo(&stored[..22], &mut out).is_err() && filter.undo(&stored[..9], &mut out).is_err());
        assert!(filter.undo(&stored, &mut out[..5]).is_err());
        let big = ScaleOffset::of(&[2, 0, 3, 0, 2, 1, 1, 0]).expect("integers");
        big.undo(&stored, &mut out).unwrap();
        assert_eq!(out, [0xff, 0xff, 0, 28, 0, 29]);
        assert_eq!(ScaleOffset::of(&[1, 0, 3, 1, 4, 1, 0, 0]), None, "kept exponents");
    }
}
