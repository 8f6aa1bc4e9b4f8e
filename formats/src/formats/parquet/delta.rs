//! Integers as differences, in blocks of packed parts.
//!
//! Source: apache/parquet-format `Encodings.md`, "Delta Encoding".

use super::thrift::Thrift;
use bytes::Bytes;

/// Integers that are unpacked at once.
const UNPACKED: usize = 64;

/// Integers of up to 64 bits, in order. Their differences wrap around.
pub(super) struct Delta {
    bytes: Bytes,
    at: usize,
    /// How many integers each part has.
    each: u64,
    parts: usize,
    /// How many integers are left, and the last one.
    pub(super) left: u64,
    last: i64,
    is_first: bool,
    least: i64,
    /// The bits of the differences of each part that is still to come in this block, last first.
    widths: Vec<u8>,
    /// Bits of a difference in this part, the bit at which the next begins, and how many are left.
    part: (usize, usize, u64),
    unpacked: [i64; UNPACKED],
}

/// The most parts of a block. Writers make 4 of them.
const PARTS_MAX: u64 = 1 << 10;

impl Delta {
    /// `None` where there is no header, or one that breaks the format.
    pub(super) fn new(bytes: Bytes) -> Option<Delta> {
        let mut at = Thrift(&bytes);
        let [block, parts, left] = [at.varint()?, at.varint()?, at.varint()?];
        let last = zigzag(at.varint()?);
        let each = block
            .checked_div(parts)
            .filter(|&each| each > 0 && each % 8 == 0 && each.checked_mul(parts) == Some(block))?;
        let parts = usize::try_from(parts).ok().filter(|&parts| parts as u64 <= PARTS_MAX)?;
        let at = bytes.len() - at.0.len();
        let (widths, part, unpacked) = (Vec::new(), (0, 0, 0), [0; UNPACKED]);
        Some(Delta { bytes, at, each, parts, left, last, is_first: true, least: 0, widths, part, unpacked })
    }

    /// Up to this many of the integers that follow; empty at the end, and if they are broken.
    pub(super) fn some(&mut self, most: u64) -> &[i64] {
        let count = self.unpack(most.min(UNPACKED as u64)).unwrap_or(0);
        &self.unpacked[..count]
    }

    pub(super) fn next(&mut self) -> Option<i64> {
        self.some(1).first().copied()
    }

    /// Where the integers end. Only for one from which nothing was taken.
    pub(super) fn end(&self) -> Option<usize> {
        let (mut rest, mut left) = (Delta { bytes: self.bytes.clone(), widths: Vec::new(), ..*self }, self.left);
        left = left.saturating_sub(1);
        while left > 0 {
            rest.next_part()?;
            let (width, bit, each) = rest.part;
            // A part is stored as a whole, with zeros after the last integer.
            let bits = usize::try_from(each).ok()?.checked_mul(width)?;
            if bit.checked_add(bits)? > self.bytes.len().checked_mul(8)? {
                return None;
            }
            left = left.saturating_sub(each);
        }
        Some(rest.at)
    }

    /// Unpacks up to `most` integers, which are at most [`UNPACKED`].
    fn unpack(&mut self, most: u64) -> Option<usize> {
        let most = most.min(self.left);
        if most == 0 {
            return Some(0);
        }
        if self.is_first {
            self.is_first = false;
            self.left -= 1;
            self.unpacked[0] = self.last;
            return Some(1);
        }
        if self.part.2 == 0 {
            self.next_part()?;
        }
        let (width, bit, left) = self.part;
        // At most `UNPACKED`.
        let count = most.min(left) as usize;
        if bit.checked_add(count.checked_mul(width)?)? > self.bytes.len().checked_mul(8)? {
            return None;
        }
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        for (number, value) in self.unpacked[..count].iter_mut().enumerate() {
            let bit = bit + number * width;
            let bytes = &self.bytes[bit / 8..];
            let mut word = [0; 16];
            let held = bytes.len().min(9);
            word[..held].copy_from_slice(&bytes[..held]);
            let difference = (u128::from_le_bytes(word) >> (bit % 8)) as u64 & mask;
            self.last = self.last.wrapping_add(self.least).wrapping_add(difference as i64);
            *value = self.last;
        }
        self.left -= count as u64;
        self.part = (width, bit + count * width, left - count as u64);
        Some(count)
    }

    fn next_part(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            let mut at = Thrift(self.bytes.get(self.at..)?);
            self.least = zigzag(at.varint()?);
            self.widths.extend(at.take(self.parts as u64)?.iter().rev());
            self.at = self.bytes.len() - at.0.len();
        }
        let width = usize::from(self.widths.pop()?);
        if width > 64 {
            return None;
        }
        let stored = usize::try_from(self.each / 8).ok()?.checked_mul(width)?;
        self.part = (width, self.at * 8, self.each);
        // The last part may be cut short: what it lacks is found when it is unpacked.
        self.at = self.at.checked_add(stored)?.min(self.bytes.len());
        Some(())
    }
}

fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<i64>, Option<usize>) {
        let mut delta = Delta::new(bytes.to_vec().into()).unwrap();
        let end = delta.end();
        let mut values = Vec::new();
        loop {
            let some = delta.some(5);
            if some.is_empty() {
                return (values, end);
            }
            values.extend_from_slice(some);
        }
    }

    /// The example of the specification: 7, 5, 3, 1, 2, 3, 4, 5, in blocks of 128.
    #[test]
    fn integers_as_differences() {
        let mut bytes = vec![0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0];
        bytes.extend([0xc0, 0x3f, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"rest");
        assert_eq!(all(&bytes), (vec![7, 5, 3, 1, 2, 3, 4, 5], Some(18)));
        assert_eq!(all(&[0x80, 0x01, 4, 1, 14]), (vec![7], Some(5)));
        assert_eq!(all(&[0x80, 0x01, 4, 0, 0]), (vec![], Some(5)));
        assert_eq!(all(&bytes[..10]), (vec![7], None), "the bits are lacking");
        // Blocks without integers, parts without a multiple of eight, and more bits than an integer has.
        assert!(Delta::new(vec![0, 4, 8, 14].into()).is_none());
        assert!(Delta::new(vec![0x80, 0x01, 0, 8, 14].into()).is_none());
        assert!(Delta::new(vec![12, 4, 8, 14].into()).is_none());
        assert_eq!(all(&[0x80, 0x01, 1, 2, 14, 0, 65, 0, 0]).0, [7]);
    }

    /// 2^63 integers without a bit each.
    #[test]
    fn a_long_part_takes_no_memory() {
        let mut delta =
            Delta::new(vec![0x80, 1, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 2, 0, 0, 0, 0].into())
                .unwrap();
        assert_eq!((delta.next(), delta.some(1 << 40)[..3].to_vec()), (Some(0), vec![1, 2, 3]));
    }
}
