//! Thrift's compact protocol for Parquet: headers of pages here, the footer in `metadata`.
//!
//! Source: apache/thrift `doc/specs/thrift-compact-protocol.md`; apache/parquet-format
//! `src/main/thrift/parquet.thrift`.

/// The deepest nesting of structures, and of groups in a schema. A list needs two.
pub(super) const DEPTH_MAX: usize = 64;

/// Types of fields. The type of a boolean is its value.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const BYTE: u8 = 3;
pub(super) const I32: u8 = 5;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// What is read, or why it is broken.
pub(super) type Read<T> = Result<T, String>;

/// The integers of a structure, by the numbers of their fields.
pub(super) type Numbers<const COUNT: usize> = [Option<i64>; COUNT];

/// Some fields of a structure: a bit for each, by its number.
#[derive(Clone, Copy)]
pub(super) struct Fields(u32);

impl Fields {
    /// Up to number 15.
    pub(super) const ALL: Fields = Fields(0xffff);
    pub(super) const NONE: Fields = Fields(0);

    pub(super) const fn of<const COUNT: usize>(fields: [u32; COUNT]) -> Fields {
        let (mut bits, mut at) = (0, 0);
        while at < COUNT {
            bits |= 1 << fields[at];
            at += 1;
        }
        Fields(bits)
    }

    fn has(self, field: i16) -> bool {
        u32::try_from(field).is_ok_and(|field| self.0.checked_shr(field).unwrap_or(0) & 1 != 0)
    }
}

/// The header of a page.
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub(super) len: u64,
    /// Bytes of the page that follows.
    pub(super) stored: u64,
    /// Bytes of the page when it is decompressed.
    pub(super) decoded: u64,
    /// The integers of the header, and of the part for its type of page.
    pub(super) numbers: Numbers<5>,
    pub(super) own: Numbers<7>,
    pub(super) is_compressed: bool,
}

impl PageHeader {
    /// The header that `bytes` begin with. `None` where there is none.
    pub(super) fn read(bytes: &[u8]) -> Option<PageHeader> {
        let mut at = Thrift(bytes);
        let (mut own, mut is_compressed) = (Numbers::default(), true);
        let numbers = at.fields(Fields::ALL, |at, field, kind| match (field, kind) {
            (5 | 7 | 8, STRUCT) => {
                own = at.fields(Fields::ALL, |at, field, kind| {
                    is_compressed &= (field, kind) != (7, FALSE);
                    at.skip(kind)
                })?;
                Ok(())
            }
            _ => at.skip(kind),
        });
        let numbers = numbers.ok()?;
        let size = |field: usize| u64::try_from(numbers[field]?).ok();
        let len = (bytes.len() - at.0.len()) as u64;
        Some(PageHeader { len, stored: size(3)?, decoded: size(2)?, numbers, own, is_compressed })
    }
}

/// The bytes that are left to read. Each method fails where they end too early or break the protocol.
pub(super) struct Thrift<'a>(pub(super) &'a [u8]);

impl<'a> Thrift<'a> {
    pub(super) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1).ok_or_else(ends_early)?[0])
    }

    fn count(&mut self) -> Read<u64> {
        self.varint().ok_or_else(ends_early)
    }

    pub(super) fn int(&mut self) -> Read<i64> {
        let number = self.count()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(super) fn bytes(&mut self) -> Read<&'a [u8]> {
        let len = self.count()?;
        self.take(len).ok_or_else(ends_early)
    }

    /// A number of the type `BYTE`.
    pub(super) fn int8(&mut self) -> Read<i8> {
        Ok(self.byte()? as i8)
    }

    pub(super) fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8".into())
    }

    /// Reads a structure. `ints` are its integers, which are kept; `other` reads whatever else there is: it gets the
    /// field's number and type.
    pub(super) fn fields<const COUNT: usize>(
        &mut self,
        ints: Fields,
        mut other: impl FnMut(&mut Self, i16, u8) -> Read<()>,
    ) -> Read<Numbers<COUNT>> {
        let (mut numbers, mut field) = ([None; COUNT], 0_i16);
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Ok(numbers);
            }
            let next = match byte >> 4 {
                0 => self.int()?.try_into().ok(),
                delta => field.checked_add(delta.into()),
            };
            field = next.ok_or("a field has a number of more than 15 bits")?;
            match byte & 0x0f {
                4..=6 if ints.has(field) => {
                    let number = self.int()?;
                    if let Some(kept) = usize::try_from(field).ok().and_then(|field| numbers.get_mut(field)) {
                        *kept = Some(number);
                    }
                }
                kind => other(self, field, kind)?,
            }
        }
    }

    /// Reads a list, whose elements `each` reads, by their number. Their type must be `wanted`. None takes less than a
    /// byte, so that no count makes a long loop.
    pub(super) fn elements(&mut self, wanted: u8, mut each: impl FnMut(&mut Self, u64) -> Read<()>) -> Read<()> {
        let (count, kind) = self.list()?;
        // Some writers omit the type of empty lists.
        if count > 0 && kind != wanted {
            return Err(format!("a list has elements of type {kind}, not {wanted}"));
        }
        (0..count).try_for_each(|number| each(self, number))
    }

    /// The number of elements of a list, and their type.
    fn list(&mut self) -> Read<(u64, u8)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.count()? } else { (byte >> 4).into() };
        Ok((count, byte & 0x0f))
    }

    /// Goes past a value of this type.
    pub(super) fn skip(&mut self, kind: u8) -> Read<()> {
        self.skip_within(kind, DEPTH_MAX)
    }

    fn skip_within(&mut self, kind: u8, depth: usize) -> Read<()> {
        let depth = depth.checked_sub(1).ok_or("structures are nested too deep")?;
        match kind {
            TRUE | FALSE => {}
            BYTE => self.byte().map(drop)?,
            4..=6 => self.count().map(drop)?,
            7 => self.take(8).map(drop).ok_or_else(ends_early)?,
            BINARY => self.bytes().map(drop)?,
            // Lists and sets.
            LIST | 10 => {
                let (count, kind) = self.list()?;
                self.skip_elements(count, &[kind], depth)?;
            }
            // A map, whose keys and values alternate.
            11 => {
                let count = self.count()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                self.skip_elements(count, &[kinds >> 4, kinds & 0x0f], depth)?;
            }
            STRUCT => self.fields::<0>(Fields::NONE, |at, _, kind| at.skip_within(kind, depth)).map(drop)?,
            // A UUID.
            13 => self.take(16).map(drop).ok_or_else(ends_early)?,
            kind => return Err(format!("a field has the unknown type {kind}")),
        }
        Ok(())
    }

    /// Refuses booleans, which Parquet has in no list. All else is a byte at least, so that no count makes a long loop.
    fn skip_elements(&mut self, count: u64, kinds: &[u8], depth: usize) -> Read<()> {
        if count > 0 && kinds.iter().any(|&kind| kind <= FALSE) {
            return Err("a list has booleans in it".into());
        }
        (0..count).try_for_each(|_| kinds.iter().try_for_each(|&kind| self.skip_within(kind, depth)))
    }
}

fn ends_early() -> String {
    "it ends early, or a number in it does not end".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header() {
        // type 2, 100 bytes that are 60, CRC, dictionary of 7 values that are PLAIN.
        let bytes = [0x15, 0x04, 0x15, 0xc8, 0x01, 0x15, 0x78, 0x15, 0x02, 0x3c, 0x15, 0x0e, 0x15, 0x00, 0x00, 0x00];
        let header = PageHeader::read(&bytes).unwrap();
        assert_eq!((header.len, header.stored, header.decoded), (16, 60, 100));
        assert_eq!((header.numbers[1], header.numbers[4], header.own[1]), (Some(2), Some(1), Some(7)));
        assert!((0..bytes.len()).all(|len| PageHeader::read(&bytes[..len]).is_none()));
        // A data page of version 1 with 7 values that are encoded by 8.
        let bytes = [0x15, 0x00, 0x15, 0x02, 0x15, 0x02, 0x2c, 0x15, 0x0e, 0x15, 0x10, 0x15, 0x06, 0x15, 0x06, 0, 0];
        assert_eq!(PageHeader::read(&bytes).unwrap().own[2], Some(8));
    }

    #[test]
    fn no_count_makes_a_long_loop() {
        // Field 1, a list of 2^63 booleans, of lists of as many, and of structures.
        let count = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        for kind in [TRUE, LIST, STRUCT] {
            let bytes = [&[0x19, 0xf0 | kind][..], &count, &[0xf1], &count, &[0; 9]].concat();
            assert!(PageHeader::read(&bytes).is_none(), "{kind}");
        }
    }
}
