//! Looks through what is written in Thrift's compact protocol before the `parquet` crate does, for what that crate
//! takes on trust: how deep a schema is, and how much memory a page and a dictionary want.
//!
//! Source: apache/thrift `doc/specs/thrift-compact-protocol.md`; apache/parquet-format
//! `src/main/thrift/parquet.thrift`.

/// Structures within each other. A schema of Parquet needs two for a list.
const DEPTH_MAX: usize = 64;

const BOOLEAN_TRUE: u8 = 1;
const BOOLEAN_FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// What a page says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub(super) header_len: usize,
    pub(super) stored: i64,
    pub(super) decoded: i64,
    /// Values of a dictionary; 0 for other pages.
    pub(super) dictionary_values: i64,
    /// How the values of a data page are encoded; `None` for other pages.
    pub(super) encoding: Option<i64>,
}

/// Reads the header at the beginning of `bytes`. `None` where there is none.
pub(super) fn page_header(bytes: &[u8]) -> Option<PageHeader> {
    let mut at = Reader { bytes, at: 0 };
    let mut header = PageHeader::default();
    let mut fields = Fields::default();
    while let Some((id, kind)) = fields.next(&mut at)? {
        match (id, kind) {
            (2, I32) => header.decoded = at.zigzag()?,
            (3, I32) => header.stored = at.zigzag()?,
            // A data page of version 1, a dictionary, a data page of version 2.
            (5 | 7 | 8, STRUCT) => {
                let page = id;
                let mut inner = Fields::default();
                while let Some((id, kind)) = inner.next(&mut at)? {
                    match (page, id, kind) {
                        (7, 1, I32) => header.dictionary_values = at.zigzag()?,
                        (5, 2, I32) | (8, 4, I32) => header.encoding = Some(at.zigzag()?),
                        _ => at.skip(kind, DEPTH_MAX)?,
                    }
                }
            }
            _ => at.skip(kind, DEPTH_MAX)?,
        }
    }
    header.header_len = at.at;
    Some(header)
}

/// Whether the columns of a file are encrypted, as its footer says; `None` where the schema in the footer is not a tree
/// that is no deeper than [`DEPTH_MAX`] and has no more nodes than it lists. The crate follows it by recursion.
pub(super) fn is_encrypted(footer: &[u8]) -> Option<bool> {
    let mut at = Reader { bytes: footer, at: 0 };
    let mut fields = Fields::default();
    let (mut is_sound, mut is_encrypted) = (false, false);
    while let Some((id, kind)) = fields.next(&mut at)? {
        match (id, kind) {
            (2, LIST) => is_sound = sound_nodes(&mut at).filter(|&is_sound| is_sound)?,
            _ => {
                is_encrypted |= id == ENCRYPTION_FIELD;
                at.skip(kind, DEPTH_MAX)?;
            }
        }
    }
    is_sound.then_some(is_encrypted)
}

/// Of the footer: the algorithm by which columns are encrypted.
const ENCRYPTION_FIELD: i64 = 8;

fn sound_nodes(at: &mut Reader<'_>) -> Option<bool> {
    let (nodes, kind) = at.list()?;
    if kind != STRUCT {
        return Some(false);
    }
    // Children that are still to come, of each node on the way to the root.
    let mut open: Vec<u64> = Vec::new();
    for number in 0..nodes {
        let mut children = 0;
        let mut fields = Fields::default();
        while let Some((id, kind)) = fields.next(at)? {
            match (id, kind) {
                (5, I32) => children = u64::try_from(at.zigzag()?).ok()?,
                _ => at.skip(kind, DEPTH_MAX)?,
            }
        }
        if children > nodes || (number > 0 && open.is_empty()) {
            return Some(false);
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > DEPTH_MAX {
            return Some(false);
        }
    }
    Some(open.is_empty())
}

/// The fields of a structure, one after the other.
#[derive(Default)]
struct Fields {
    last: i64,
}

impl Fields {
    /// Number and type of the next field; `Some(None)` at the end, `None` where the bytes are no structure.
    fn next(&mut self, at: &mut Reader<'_>) -> Option<Option<(i64, u8)>> {
        let byte = at.byte()?;
        let kind = byte & 0x0f;
        if byte == 0 {
            return Some(None);
        }
        self.last = match byte >> 4 {
            0 => at.zigzag()?,
            delta => self.last.checked_add(delta.into())?,
        };
        Some(Some((self.last, kind)))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        self.at = (end <= self.bytes.len()).then_some(end)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Elements of a list, and their type.
    fn list(&mut self) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        Some((count, byte & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // The value of a boolean field is its type.
            BOOLEAN_TRUE | BOOLEAN_FALSE => Some(()),
            I8 => self.pass(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let len = self.varint()?;
                self.pass(len)
            }
            UUID => self.pass(16),
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0x0f, depth)
                })
            }
            STRUCT => {
                let mut fields = Fields::default();
                while let Some((_, kind)) = fields.next(self)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Elements of lists have a byte where fields of booleans have none, so that each element is a byte at least, and
    /// no count makes a long way.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            BOOLEAN_TRUE | BOOLEAN_FALSE => self.pass(1),
            _ => self.skip(kind, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header() {
        // type 2, 100 bytes that are 60, CRC, dictionary of 7 values that are PLAIN.
        let bytes = [0x15, 0x04, 0x15, 0xc8, 0x01, 0x15, 0x78, 0x15, 0x02, 0x3c, 0x15, 0x0e, 0x15, 0x00, 0x00, 0x00];
        let header = page_header(&bytes).unwrap();
        assert_eq!(
            header,
            PageHeader { header_len: 16, stored: 60, decoded: 100, dictionary_values: 7, encoding: None }
        );
        assert!((0..bytes.len()).all(|len| page_header(&bytes[..len]).is_none()));
        // A data page of version 1 with 7 values that are encoded by 8.
        let bytes = [0x15, 0x00, 0x15, 0x02, 0x15, 0x02, 0x2c, 0x15, 0x0e, 0x15, 0x10, 0x15, 0x06, 0x15, 0x06, 0, 0];
        assert_eq!(page_header(&bytes).unwrap().encoding, Some(8));
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
    }
}
