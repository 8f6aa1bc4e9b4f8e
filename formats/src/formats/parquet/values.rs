//! Decodes the values of a page. Nothing is trusted: each length is compared with the bytes that there are, and memory
//! is taken for one value at a time.

use super::delta::Delta;
use super::hybrid::Hybrid;
use super::types::{Physical, Primitive};
use crate::index::headers::u32_at;
use bytes::{Buf, Bytes};
use std::borrow::Cow;
use uringload_core::{Error, ErrorKind, Result};

/// Encodings, by number.
const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const DELTA_BINARY_PACKED: i64 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;
const BYTE_STREAM_SPLIT: i64 = 9;

/// How the values of a column are stored where nothing shortens them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Bits,
    /// This many bytes each.
    Fixed(usize),
    /// A `u32` length and the bytes.
    Strings,
}

impl Stored {
    pub(super) fn of(leaf: &Primitive) -> Stored {
        match leaf.physical {
            Physical::Boolean => Stored::Bits,
            Physical::Int32 | Physical::Float => Stored::Fixed(4),
            Physical::Int64 | Physical::Double => Stored::Fixed(8),
            Physical::Int96 => Stored::Fixed(12),
            Physical::FixedLenByteArray => Stored::Fixed(usize::try_from(leaf.len).unwrap_or(0).max(1)),
            Physical::ByteArray => Stored::Strings,
        }
    }

    /// The fewest bytes of a value.
    fn least(self) -> usize {
        match self {
            Stored::Bits => 1,
            Stored::Fixed(width) => width,
            Stored::Strings => LENGTH_BYTES,
        }
    }
}

/// Bytes of a string's length.
const LENGTH_BYTES: usize = 4;

/// The values that others refer to by number.
pub(super) struct Dictionary {
    bytes: Bytes,
    stored: Stored,
    /// Where each string begins, after its length. Less than 2^31: a page has no more bytes.
    starts: Vec<u32>,
}

impl Dictionary {
    /// # Errors
    /// `Corrupt` for more values than there are bytes for.
    pub(super) fn new(bytes: Bytes, encoding: i64, values: u64, stored: Stored) -> Result<Dictionary> {
        if ![PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&encoding) {
            return Err(broken(format!("a dictionary has the encoding {encoding}")));
        }
        if stored == Stored::Bits {
            return Err(broken("booleans have a dictionary"));
        }
        if values > (bytes.len() / stored.least()) as u64 {
            return Err(broken(format!("a dictionary has {values} values in {} bytes", bytes.len())));
        }
        let mut starts = Vec::new();
        if stored == Stored::Strings {
            starts.reserve_exact(values as usize);
            let mut rest = &bytes[..];
            for _ in 0..values {
                let start = bytes.len() - rest.len() + LENGTH_BYTES;
                string(&mut rest)?;
                starts.push(u32::try_from(start).map_err(|_| broken("a dictionary has more than 2^32 bytes"))?);
            }
        }
        Ok(Dictionary { bytes, stored, starts })
    }

    fn value(&self, number: u32) -> Result<&[u8]> {
        let number = number as usize;
        let found = match self.stored {
            Stored::Fixed(width) => number.checked_mul(width).and_then(|at| self.bytes.get(at..at.checked_add(width)?)),
            _ => self.starts.get(number).map(|&start| {
                let start = start as usize;
                // `new` has found it.
                &self.bytes[start..start + u32_at(&self.bytes, start - LENGTH_BYTES) as usize]
            }),
        };
        found.ok_or_else(|| broken(format!("a value refers to number {number}, which its dictionary does not have")))
    }
}

/// The values of a page that are still to come, without nulls.
pub(super) enum Values {
    Plain(Bytes, usize),
    Strings(Bytes),
    Bits(Hybrid),
    Numbers(Hybrid),
    Differences(Box<Delta>, usize),
    Lengths(Box<Delta>, Bytes),
    /// How many bytes of the string before are repeated, how many follow, these, and the string before.
    Prefixes(Box<Delta>, Box<Delta>, Bytes, Vec<u8>),
    /// The first bytes of all values, then the second ones, and so on; bytes of a value; how many are taken.
    Split(Bytes, usize, usize),
}

impl Values {
    /// # Errors
    /// `Corrupt` where the page is too short, or has an encoding that these values cannot have.
    pub(super) fn new(encoding: i64, mut bytes: Bytes, stored: Stored, has_dictionary: bool) -> Result<Values> {
        let delta = |bytes: &Bytes| Delta::new(bytes.clone()).map(Box::new).ok_or_else(too_short);
        let delta_end = |bytes: &Bytes| {
            let delta = delta(bytes)?;
            let end = delta.end().ok_or_else(too_short)?;
            Ok::<_, Error>((delta, bytes.slice(end..)))
        };
        Ok(match (encoding, stored) {
            (PLAIN, Stored::Bits) => Values::Bits(Hybrid::packed(bytes, 1).ok_or_else(too_short)?),
            (PLAIN, Stored::Fixed(width)) => Values::Plain(bytes, width),
            (PLAIN, Stored::Strings) => Values::Strings(bytes),
            (PLAIN_DICTIONARY | RLE_DICTIONARY, _) => {
                if !has_dictionary {
                    return Err(broken("values refer to a dictionary that the column chunk does not have"));
                }
                let width = bytes.first().copied().ok_or_else(too_short)?;
                let numbers = Hybrid::new(bytes.slice(1..), width);
                Values::Numbers(numbers.ok_or_else(|| broken(format!("references have {width} bits")))?)
            }
            (RLE, Stored::Bits) => {
                let len = bytes.try_get_u32_le().map_err(|_| too_short())? as usize;
                let bits = (len <= bytes.len()).then(|| bytes.slice(..len)).ok_or_else(too_short)?;
                Values::Bits(Hybrid::new(bits, 1).ok_or_else(too_short)?)
            }
            (DELTA_BINARY_PACKED, Stored::Fixed(width @ (4 | 8))) => Values::Differences(delta(&bytes)?, width),
            (DELTA_LENGTH_BYTE_ARRAY, Stored::Strings) => {
                let (lengths, bytes) = delta_end(&bytes)?;
                Values::Lengths(lengths, bytes)
            }
            (DELTA_BYTE_ARRAY, Stored::Strings | Stored::Fixed(_)) => {
                let (prefixes, rest) = delta_end(&bytes)?;
                let (lengths, bytes) = delta_end(&rest)?;
                Values::Prefixes(prefixes, lengths, bytes, Vec::new())
            }
            (BYTE_STREAM_SPLIT, Stored::Fixed(width)) => Values::Split(bytes, width, 0),
            _ => return Err(broken(format!("a page has the encoding {encoding}, which its type cannot have"))),
        })
    }

    /// Takes the next `count` values: strings one by one, others several at once, end to end. `few` is room for them.
    ///
    /// # Errors
    /// `Corrupt` where there are fewer; the first of `take`.
    pub(super) fn each(
        &mut self,
        dictionary: Option<&Dictionary>,
        count: u64,
        few: &mut Vec<u8>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let taken = match self {
                Values::Plain(bytes, width) => {
                    let len = usize::try_from(left).ok().and_then(|count| count.checked_mul(*width));
                    let len = len.filter(|&len| len <= bytes.len()).ok_or_else(too_short)?;
                    take(&bytes[..len])?;
                    bytes.advance(len);
                    left
                }
                Values::Strings(bytes) => {
                    let mut rest = &bytes[..];
                    take(string(&mut rest)?)?;
                    let gone = bytes.len() - rest.len();
                    bytes.advance(gone);
                    1
                }
                Values::Bits(bits) => {
                    few.clear();
                    // A bit each.
                    few.extend(bits.some(left).iter().map(|&bit| bit as u8));
                    take(few)?;
                    few.len() as u64
                }
                Values::Numbers(numbers) => {
                    let dictionary = dictionary.ok_or_else(|| broken("there is no dictionary"))?;
                    let numbers = numbers.some(left);
                    few.clear();
                    for &number in numbers {
                        let value = dictionary.value(number)?;
                        match dictionary.stored {
                            Stored::Strings => take(value)?,
                            _ => few.extend_from_slice(value),
                        }
                    }
                    if dictionary.stored != Stored::Strings {
                        take(few)?;
                    }
                    numbers.len() as u64
                }
                Values::Differences(differences, width) => {
                    few.clear();
                    let some = differences.some(left);
                    // Differences wrap around, so only the lowest bytes of an integer count.
                    some.iter().for_each(|value| few.extend_from_slice(&value.to_le_bytes()[..*width]));
                    take(few)?;
                    some.len() as u64
                }
                Values::Lengths(lengths, bytes) => {
                    let len = length(lengths, bytes.len())?;
                    take(&bytes[..len])?;
                    bytes.advance(len);
                    1
                }
                Values::Prefixes(prefixes, lengths, bytes, value) => {
                    let (kept, len) = (length(prefixes, value.len())?, length(lengths, bytes.len())?);
                    value.truncate(kept);
                    value.extend_from_slice(&bytes[..len]);
                    take(value)?;
                    bytes.advance(len);
                    1
                }
                Values::Split(bytes, width, taken) => {
                    let stride = bytes.len() / *width;
                    let some = (stride - *taken).min(SPLIT_AT_ONCE).min(usize::try_from(left).unwrap_or(usize::MAX));
                    few.clear();
                    few.resize(some * *width, 0);
                    for byte in 0..*width {
                        let from = &bytes[byte * stride + *taken..][..some];
                        few.iter_mut().skip(byte).step_by(*width).zip(from).for_each(|(to, &from)| *to = from);
                    }
                    take(few)?;
                    *taken += some;
                    some as u64
                }
            };
            if taken == 0 {
                return Err(too_short());
            }
            left -= taken;
        }
        Ok(())
    }
}

impl Values {
    /// Takes the next value, as [`each`](Values::each) does: a short cut for it.
    ///
    /// # Errors
    /// As [`each`](Values::each).
    #[inline]
    pub(super) fn one(
        &mut self,
        dictionary: Option<&Dictionary>,
        few: &mut Vec<u8>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match (&mut *self, dictionary) {
            (Values::Plain(bytes, width), _) if bytes.len() >= *width => {
                take(&bytes[..*width])?;
                bytes.advance(*width);
                Ok(())
            }
            (Values::Strings(bytes), _) => {
                let mut rest = &bytes[..];
                take(string(&mut rest)?)?;
                let gone = bytes.len() - rest.len();
                bytes.advance(gone);
                Ok(())
            }
            (Values::Numbers(numbers), Some(dictionary)) => {
                let number = numbers.first().ok_or_else(too_short)?;
                numbers.skip(1);
                take(dictionary.value(number)?)
            }
            _ => self.each(dictionary, 1, few, take),
        }
    }

    /// The length of the next `count` strings together. A repeated reference is counted once, however often it comes.
    pub(super) fn total(&mut self, dictionary: Option<&Dictionary>, count: u64, few: &mut Vec<u8>) -> Result<u64> {
        let mut total = 0_u64;
        let (Values::Numbers(numbers), Some(dictionary)) = (&mut *self, dictionary) else {
            self.each(dictionary, count, few, |value| {
                total = total.saturating_add(value.len() as u64);
                Ok(())
            })?;
            return Ok(total);
        };
        let mut left = count;
        while left > 0 {
            let (number, run) = numbers.peek().ok_or_else(too_short)?;
            let run = run.min(left);
            total = total.saturating_add(run.saturating_mul(dictionary.value(number)?.len() as u64));
            numbers.skip(run);
            left -= run;
        }
        Ok(total)
    }
}

/// How many values are put together at once from their split bytes.
const SPLIT_AT_ONCE: usize = 256;

/// Takes a string with its length.
fn string<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let (len, behind) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or_else(too_short)?;
    let (value, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(too_short)?;
    *rest = behind;
    Ok(value)
}

/// The next length, which is at most `most`.
fn length(lengths: &mut Delta, most: usize) -> Result<usize> {
    let len = lengths.next().ok_or_else(too_short)?;
    let found = usize::try_from(len).ok().filter(|&len| len <= most);
    found.ok_or_else(|| broken(format!("a string has {len} bytes where {most} are left")))
}

pub(super) fn broken(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

fn too_short() -> Error {
    broken("a page ends before its values")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values, each as it is taken.
    fn all(encoding: i64, bytes: &[u8], stored: Stored, count: u64) -> Result<Vec<Vec<u8>>> {
        let mut taken = Vec::new();
        let mut values = Values::new(encoding, bytes.to_vec().into(), stored, false)?;
        values.each(None, count, &mut Vec::new(), |value| {
            taken.push(value.to_vec());
            Ok(())
        })?;
        Ok(taken)
    }

    /// Integers below 64 as differences, in a block of 128.
    fn differences(numbers: &[i64]) -> Vec<u8> {
        let zigzag = |number: i64| ((number << 1) ^ (number >> 63)) as u8;
        let mut bytes = vec![0x80, 1, 4, numbers.len() as u8, zigzag(numbers[0])];
        if numbers.len() > 1 {
            bytes.extend([zigzag(-40), 8, 0, 0, 0]);
            let mut part: Vec<u8> = numbers.windows(2).map(|pair| (pair[1] - pair[0] + 40) as u8).collect();
            part.resize(32, 0);
            bytes.append(&mut part);
        }
        bytes
    }

    #[test]
    fn strings_have_the_lengths_that_come_before_them() {
        let stored = |lengths: &[i64]| [&differences(lengths), &b"abcdef"[..]].concat();
        let of =
            |lengths: &[i64]| all(DELTA_LENGTH_BYTE_ARRAY, &stored(lengths), Stored::Strings, lengths.len() as u64);
        assert_eq!(of(&[3, 0, 3]).unwrap(), [&b"abc"[..], b"", b"def"]);
        for (lengths, what) in [
            (&[3, 0, 4][..], "a string has 4 bytes where 3 are left"),
            (&[3, -1, 4], "a string has -1 bytes where 3 are left"),
        ] {
            assert!(of(lengths).unwrap_err().to_string().contains(what));
        }
        let more = all(DELTA_LENGTH_BYTE_ARRAY, &stored(&[3]), Stored::Strings, 2);
        assert!(more.unwrap_err().to_string().contains("a page ends before its values"));
        // Lengths themselves may be cut.
        let bytes = differences(&[1, 2, 3]);
        for len in 0..bytes.len() {
            assert!(all(DELTA_LENGTH_BYTE_ARRAY, &bytes[..len], Stored::Strings, 1).is_err(), "{len}");
        }
    }

    #[test]
    fn strings_repeat_the_beginning_of_the_one_before() {
        let of = |kept: &[i64], lengths: &[i64]| {
            let bytes = [&differences(kept), &differences(lengths), &b"abcXY"[..]].concat();
            all(DELTA_BYTE_ARRAY, &bytes, Stored::Strings, kept.len() as u64)
        };
        assert_eq!(of(&[0, 2, 3], &[3, 1, 1]).unwrap(), [&b"abc"[..], b"abX", b"abXY"]);
        for (kept, lengths) in [(&[0, 4, 0], &[3, 1, 1]), (&[0, -1, 0], &[3, 1, 1]), (&[0, 0, 0], &[3, 1, 2])] {
            let error = of(kept, lengths).unwrap_err().to_string();
            assert!(error.contains("a string has "), "{error}");
        }
    }

    #[test]
    fn plain_values_lie_in_their_page() {
        let text = [&[2, 0, 0, 0][..], b"hi", &[9, 0, 0, 0], b"no"].concat();
        assert_eq!(all(PLAIN, &text, Stored::Strings, 1).unwrap(), [b"hi"]);
        for (encoding, bytes, stored, count) in [
            (PLAIN, &text[..], Stored::Strings, 2),
            (PLAIN, &text[..3], Stored::Strings, 1),
            (PLAIN, &[0; 15], Stored::Fixed(8), 2),
            (PLAIN, &[0], Stored::Bits, 9),
            (PLAIN, &[0; 15], Stored::Fixed(8), u64::MAX),
            (RLE, &[9, 0, 0, 0, 1], Stored::Bits, 1),
            (RLE, &[1, 0], Stored::Bits, 1),
            (BYTE_STREAM_SPLIT, &[0; 15], Stored::Fixed(8), 2),
            (DELTA_BINARY_PACKED, &[], Stored::Fixed(4), 1),
            (DELTA_BINARY_PACKED, &[0x80, 1, 4, 0, 0], Stored::Fixed(4), 1),
            (RLE_DICTIONARY, &[1, 2, 0], Stored::Fixed(4), 1),
            (RLE, &[2, 0, 0, 0, 2, 1], Stored::Fixed(4), 1),
            (99, &[0; 8], Stored::Fixed(4), 1),
        ] {
            let error = all(encoding, bytes, stored, count).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{encoding} {stored:?}: {error}");
        }
        assert_eq!(all(PLAIN, &[0b101], Stored::Bits, 3).unwrap(), [[1, 0, 1]]);
        assert_eq!(all(RLE, &[2, 0, 0, 0, 6, 1], Stored::Bits, 3).unwrap(), [[1, 1, 1]]);
        assert_eq!(all(BYTE_STREAM_SPLIT, b"ac1bd2", Stored::Fixed(2), 3).unwrap(), [b"abcd12"]);
        assert_eq!(
            all(DELTA_BINARY_PACKED, &differences(&[1, -2]), Stored::Fixed(4), 2).unwrap()[1],
            [254, 255, 255, 255]
        );
    }

    #[test]
    fn references_lie_in_their_dictionary() {
        let text = Bytes::from_static(&[1, 0, 0, 0, b'a', 0, 0, 0, 0]);
        let dictionary = Dictionary::new(text.clone(), PLAIN, 2, Stored::Strings).unwrap();
        let mut values = Values::new(RLE_DICTIONARY, vec![1, 2, 1, 4, 0, 3, 2].into(), Stored::Strings, true).unwrap();
        let (mut taken, mut few) = (Vec::new(), Vec::new());
        let mut take = |count| {
            values.each(Some(&dictionary), count, &mut few, |value| {
                taken.push(value.to_vec());
                Ok(())
            })
        };
        take(3).unwrap();
        assert!(take(10).is_err());
        assert_eq!(taken[..3], [&b""[..], b"a", b"a"]);
        let error = dictionary.value(2).unwrap_err().to_string();
        assert!(error.contains("a value refers to number 2, which its dictionary does not have"), "{error}");
        let error = Dictionary::new(text.clone(), PLAIN, 5, Stored::Strings).err().unwrap().to_string();
        assert!(error.contains("a dictionary has 5 values in 9 bytes"), "{error}");
        assert!(Dictionary::new(text.slice(..8), PLAIN, 2, Stored::Strings).is_err());
        let numbers = Dictionary::new(text, PLAIN, 2, Stored::Fixed(4)).unwrap();
        assert_eq!((numbers.value(1).unwrap(), numbers.value(2).is_err()), (&[b'a', 0, 0, 0][..], true));
    }
}
