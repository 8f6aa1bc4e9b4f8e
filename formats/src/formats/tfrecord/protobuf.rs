//! The wire format of protocol buffers, for `tf.train.Example`.
//!
//! Source: protobuf.dev, "Encoding". Groups, which no TensorFlow message uses, are refused.

use std::borrow::Cow;
use std::ops::Range;

/// What is wrong with a message, in words, and at which byte of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) what: Cow<'static, str>,
    pub(super) at: usize,
}

impl Fault {
    pub(super) fn new(what: impl Into<Cow<'static, str>>, at: usize) -> Fault {
        Fault { what: what.into(), at }
    }
}

/// The value of a field. Ranges refer to the record and are within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// A number.
    Varint(u64),
    /// 8 bytes.
    Fixed64,
    /// Any number of bytes: a string, a message, or packed numbers.
    Bytes(Range<usize>),
    /// 4 bytes.
    Fixed32(Range<usize>),
}

/// The rest of a message in a record.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    record: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// The fields of the message in `range` of `record`.
    pub(super) fn new(record: &'a [u8], range: Range<usize>) -> Fields<'a> {
        Fields { record, at: range.start, end: range.end.min(record.len()) }
    }

    /// Number and value of the next field; `None` at the end.
    ///
    /// # Errors
    /// What is wrong with it; nothing can be read after that.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire)>, Fault> {
        if self.at >= self.end {
            return Ok(None);
        }
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag).map_err(|_| Fault::new("the number of a field is too large", start))? >> 3;
        if number == 0 {
            return Err(Fault::new("a field has the number 0", start));
        }
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Wire::Fixed64
            }
            2 => {
                let len = self.varint()?;
                Wire::Bytes(self.take(len)?)
            }
            5 => Wire::Fixed32(self.take(4)?),
            other => return Err(Fault::new(format!("a field has the unknown wire type {other}"), start)),
        };
        Ok(Some((number, wire)))
    }

    /// The next packed number; `None` at the end.
    ///
    /// # Errors
    /// Those of [`Fields::next`].
    pub(super) fn packed(&mut self) -> Result<Option<u64>, Fault> {
        if self.at >= self.end { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let start = self.at;
        let mut number = 0;
        for (index, &byte) in self.record[start..self.end].iter().take(VARINT_BYTES_MAX).enumerate() {
            // The tenth byte has room for only one bit.
            if index == VARINT_BYTES_MAX - 1 && byte > 1 {
                return Err(Fault::new("a number has more than 64 bits", start));
            }
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.at = start + index + 1;
                return Ok(number);
            }
        }
        Err(Fault::new("the message ends within a number", start))
    }

    fn take(&mut self, len: u64) -> Result<Range<usize>, Fault> {
        let start = self.at;
        let left = self.end - start;
        match usize::try_from(len).ok().filter(|&len| len <= left) {
            Some(len) => {
                self.at = start + len;
                Ok(start..self.at)
            }
            None => Err(Fault::new(format!("a field claims {len} bytes, and the message has {left}"), start)),
        }
    }
}

/// Bytes of the longest 64-bit number.
const VARINT_BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn varint(bytes: &[u8]) -> Result<u64, Fault> {
        Fields::new(bytes, 0..bytes.len()).varint()
    }

    #[test]
    fn numbers_have_64_bits() {
        assert_eq!(varint(&[0]), Ok(0));
        assert_eq!(varint(&[0x96, 0x01]), Ok(150), "the specification's example");
        assert_eq!(varint(&[0x80, 0x00]), Ok(0), "longer than it needs to be");
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(varint(&most), Ok(u64::MAX));
        for last in [2, 0x7f, 0x81, 0xff] {
            most[9] = last;
            assert!(varint(&most).unwrap_err().what.contains("64 bits"), "{last}");
        }
        for len in 0..10 {
            assert!(varint(&[0xff; 10][..len]).unwrap_err().what.contains("ends within"), "{len}");
        }
    }

    #[test]
    fn fields_of_every_kind() {
        let bytes = [0x08, 5, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 2, b'h', b'i', 0x25, 1, 0, 0, 0];
        let mut fields = Fields::new(&bytes, 0..bytes.len());
        assert_eq!(fields.next(), Ok(Some((1, Wire::Varint(5)))));
        assert_eq!(fields.next(), Ok(Some((2, Wire::Fixed64))));
        assert_eq!(fields.next(), Ok(Some((3, Wire::Bytes(13..15)))));
        assert_eq!(fields.next(), Ok(Some((4, Wire::Fixed32(16..20)))));
        assert_eq!((fields.next(), fields.next()), (Ok(None), Ok(None)));
        for (bad, words) in [
            (&[0x02, 0][..], "number 0"),
            (&[0x0b], "unknown wire type 3"),
            (&[0x0c], "unknown wire type 4"),
            (&[0x0e], "unknown wire type 6"),
            (&[0x0a, 2, 0], "claims 2 bytes, and the message has 1"),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "claims 18446744073709551615"),
            (&[0x0d, 0, 0, 0], "claims 4"),
            (&[0x09, 0, 0, 0], "claims 8"),
            (&[0xf8, 0xff, 0xff, 0xff, 0x7f], "too large"),
        ] {
            assert!(Fields::new(bad, 0..bad.len()).next().unwrap_err().what.contains(words), "{words}");
        }
    }

    proptest! {
        /// Whatever the bytes are, every range is in the message, and parsing ends.
        #[test]
        fn no_message_leads_out_of_itself(bytes in vec(any::<u8>(), 0..100), cut in any::<prop::sample::Index>()) {
            let end = cut.index(bytes.len() + 1);
            let mut fields = Fields::new(&bytes, 0..end);
            let mut count = 0;
            while let Ok(Some((number, wire))) = fields.next() {
                prop_assert!(number > 0);
                if let Wire::Bytes(range) | Wire::Fixed32(range) = wire {
                    prop_assert!(range.start <= range.end && range.end <= end);
                }
                count += 1;
                prop_assert!(count <= end);
            }
        }
    }
}
