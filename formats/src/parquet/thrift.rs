//! Thrift's compact protocol, as far as Parquet needs it here: headers of pages, which nothing else reads, and a look
//! at the footer before the `parquet` crate follows its schema by recursion.
//!
//! Source: apache/thrift `doc/specs/thrift-compact-protocol.md`; apache/parquet-format
//! `src/main/thrift/parquet.thrift`.

/// The deepest nesting of structures, and of groups in a schema. A list needs two.
const DEPTH_MAX: usize = 64;

/// Types of fields. The type of a boolean is its value.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// The integers of a structure, by the numbers of their fields.
pub(super) type Numbers = [Option<i64>; 9];

/// The header of a page.
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub(super) len: u64,
    /// Bytes of the page that follows.
    pub(super) stored: u64,
    /// Bytes of the page when it is decompressed.
    pub(super) decoded: u64,
    /// The integers of the header, and of the part for its type of page.
    pub(super) numbers: Numbers,
    pub(super) own: Numbers,
    pub(super) is_compressed: bool,
}

impl PageHeader {
    /// The header that `bytes` begin with. `None` where there is none.
    pub(super) fn read(bytes: &[u8]) -> Option<PageHeader> {
        let mut at = Thrift(bytes);
        let (mut own, mut is_compressed) = (Numbers::default(), true);
        let numbers = at.fields(|at, field, kind| match (field, kind) {
            (5 | 7 | 8, STRUCT) => {
                own = at.fields(|at, field, kind| {
                    is_compressed &= (field, kind) != (7, FALSE);
                    at.skip(kind, DEPTH_MAX)
                })?;
                Some(())
            }
            _ => at.skip(kind, DEPTH_MAX),
        })?;
        let size = |field: usize| u64::try_from(numbers[field]?).ok();
        let len = (bytes.len() - at.0.len()) as u64;
        Some(PageHeader { len, stored: size(3)?, decoded: size(2)?, numbers, own, is_compressed })
    }
}

/// Whether the columns of a file are encrypted, as its footer says. `None` where the footer is not one, or its schema
/// is not a tree of bounded depth: the crate reserves memory for as many children as a node claims.
pub(super) fn is_encrypted(footer: &[u8]) -> Option<bool> {
    let (mut has_schema, mut is_encrypted) = (false, false);
    // The crate looks only at the number of a field. It would read one of another type differently, so that is refused.
    Thrift(footer).fields(|at, field, kind| match (field, kind) {
        (2, LIST) => {
            has_schema = true;
            check_schema(at)
        }
        (4 | 5 | 7, LIST) | (6 | 9, BINARY) | (8, STRUCT) | (10.., _) => {
            is_encrypted |= field == 8;
            at.skip(kind, DEPTH_MAX)
        }
        _ => None,
    })?;
    has_schema.then_some(is_encrypted)
}

fn check_schema(at: &mut Thrift<'_>) -> Option<()> {
    let (nodes, kind) = at.list()?;
    // How many children are still to come, for each node from the root down. The first entry stands for the root
    // itself.
    let mut open = vec![1_u64];
    for _ in 0..nodes {
        let node = at.fields(|at, field, kind| match (field, kind) {
            (4, BINARY) | (10.., _) => at.skip(kind, DEPTH_MAX),
            _ => None,
        })?;
        let children = u64::try_from(node[5].unwrap_or(0)).ok().filter(|&children| children <= nodes)?;
        *open.last_mut()? -= 1;
        open.push(children);
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > DEPTH_MAX + 1 {
            return None;
        }
    }
    (open.is_empty() && kind == STRUCT).then_some(())
}

/// The bytes that are left to read. Each method returns `None` where they end too early or break the protocol.
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

    fn int(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads a structure. `other` reads the values that are no integers: it gets their field's number and type.
    fn fields(&mut self, mut other: impl FnMut(&mut Self, i16, u8) -> Option<()>) -> Option<Numbers> {
        let (mut numbers, mut field) = (Numbers::default(), 0_i16);
        loop {
            let byte = self.take(1)?[0];
            if byte == 0 {
                return Some(numbers);
            }
            field = match byte >> 4 {
                0 => self.int()?.try_into().ok()?,
                delta => field.checked_add(delta.into())?,
            };
            match byte & 0x0f {
                4..=6 => {
                    let number = self.int()?;
                    if let Some(kept) = usize::try_from(field).ok().and_then(|field| numbers.get_mut(field)) {
                        *kept = Some(number);
                    }
                }
                kind => other(self, field, kind)?,
            }
        }
    }

    /// The number of elements of a list, and their type.
    fn list(&mut self) -> Option<(u64, u8)> {
        let byte = self.take(1)?[0];
        let count = if byte >> 4 == 15 { self.varint()? } else { (byte >> 4).into() };
        Some((count, byte & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => {}
            3 => self.take(1).map(drop)?,
            4..=6 => self.varint().map(drop)?,
            7 => self.take(8).map(drop)?,
            BINARY => {
                let len = self.varint()?;
                self.take(len)?;
            }
            // Lists and sets.
            LIST | 10 => {
                let (count, kind) = self.list()?;
                self.skip_elements(count, &[kind], depth)?;
            }
            // A map, whose keys and values alternate.
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.take(1)?[0] } else { 0 };
                self.skip_elements(count, &[kinds >> 4, kinds & 0x0f], depth)?;
            }
            STRUCT => self.fields(|at, _, kind| at.skip(kind, depth)).map(drop)?,
            // A UUID.
            13 => self.take(16).map(drop)?,
            _ => return None,
        }
        Some(())
    }

    /// Refuses booleans, which Parquet has in no list: the crate takes no byte for each, and would count to 2^31.
    /// All else is a byte at least, so that no count makes a long loop.
    fn skip_elements(&mut self, count: u64, kinds: &[u8], depth: usize) -> Option<()> {
        if count > 0 && kinds.iter().any(|&kind| kind <= FALSE) {
            return None;
        }
        (0..count).try_for_each(|_| kinds.iter().try_for_each(|&kind| self.skip(kind, depth)))
    }
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

    /// A footer with nothing but a schema: each node has so many children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x29, 0xfc];
        let mut count = children.len();
        while count > 0x7f {
            bytes.push(count as u8 | 0x80);
            count >>= 7;
        }
        bytes.push(count as u8);
        for &children in children {
            // Field 4, a name; field 5, the number of children.
            bytes.extend([0x48, 1, b'a', 0x15, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn schemas_are_trees_of_a_bounded_depth() {
        assert_eq!(is_encrypted(&footer(&[2, 0, 1, 0])), Some(false));
        assert_eq!(is_encrypted(&footer(&[2, 0])), None, "a child is lacking");
        assert_eq!(is_encrypted(&footer(&[1, 0, 0])), None, "there are two roots");
        assert_eq!(is_encrypted(&footer(&[60, 0])), None, "more children than nodes");
        let chain = |depth: usize| footer(&[vec![1; depth], vec![0]].concat());
        assert_eq!(is_encrypted(&chain(DEPTH_MAX)), Some(false));
        assert_eq!(is_encrypted(&chain(DEPTH_MAX + 1)), None);
        assert_eq!(is_encrypted(&[0]), None, "no schema");
        let sound = footer(&[2, 0, 1, 0]);
        assert!((0..sound.len()).all(|len| is_encrypted(&sound[..len]).is_none()));
        let encrypted = [&sound[..sound.len() - 1], &[0x6c, 0, 0]].concat();
        assert_eq!(is_encrypted(&encrypted), Some(true));
        // The number of children as a boolean, whose value takes a byte only for the crate.
        assert_eq!(is_encrypted(&[0x29, 0x1c, 0x51, 0, 0]), None);
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
