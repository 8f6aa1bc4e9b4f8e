//! Reads flatbuffers, in which Arrow writes its metadata: tables of fields by number. Every place is compared with the
//! end of the buffer before it is read.
//!
//! Source: google/flatbuffers `docs/source/internals.md`.

/// A table: `i32` back to the list of where its fields are, then the fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Table<'a> {
    /// The table that a buffer begins with.
    pub(super) fn root(bytes: &'a [u8]) -> Option<Table<'a>> {
        Table { bytes, at: 0 }.follow(0)
    }

    /// Where a field lies; `None` where it has its default.
    fn field(&self, number: u16) -> Option<usize> {
        let back = i64::from(i32::from_le_bytes(self.array(self.at)?));
        let list = usize::try_from(i64::try_from(self.at).ok()?.checked_sub(back)?).ok()?;
        let len = u16::from_le_bytes(self.array(list)?);
        let entry = 4 + 2 * usize::from(number);
        if entry + 2 > usize::from(len) {
            return None;
        }
        match u16::from_le_bytes(self.array(list.checked_add(entry)?)?) {
            0 => None,
            offset => self.at.checked_add(offset.into()),
        }
    }

    pub(super) fn u8(&self, number: u16) -> Option<u8> {
        self.array::<1>(self.field(number)?).map(|[byte]| byte)
    }

    pub(super) fn bool(&self, number: u16) -> bool {
        self.u8(number).is_some_and(|byte| byte != 0)
    }

    pub(super) fn i16(&self, number: u16) -> Option<i16> {
        self.array(self.field(number)?).map(i16::from_le_bytes)
    }

    pub(super) fn i32(&self, number: u16) -> Option<i32> {
        self.array(self.field(number)?).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&self, number: u16) -> Option<i64> {
        self.array(self.field(number)?).map(i64::from_le_bytes)
    }

    pub(super) fn table(&self, number: u16) -> Option<Table<'a>> {
        self.follow(self.field(number)?)
    }

    pub(super) fn text(&self, number: u16) -> Option<&'a str> {
        let (start, len) = self.vector(number, 1)?;
        std::str::from_utf8(self.bytes.get(start..start + len)?).ok()
    }

    /// The tables of a vector; none where it is not there.
    ///
    /// `None` where one of them lies outside.
    pub(super) fn tables(&self, number: u16) -> Option<Vec<Table<'a>>> {
        let Some((start, len)) = self.vector(number, 4) else { return self.is_absent(number) };
        (0..len).map(|index| self.follow(start + 4 * index)).collect()
    }

    /// The structures of a vector, of `N` numbers of 8 bytes each; none where it is not there.
    pub(super) fn structs<const N: usize>(&self, number: u16) -> Option<Vec<[i64; N]>> {
        let Some((start, len)) = self.vector(number, 8 * N) else { return self.is_absent(number) };
        let one = |index: usize| {
            let mut numbers = [0; N];
            for (part, number) in numbers.iter_mut().enumerate() {
                *number = i64::from_le_bytes(self.array(start + 8 * (N * index + part))?);
            }
            Some(numbers)
        };
        (0..len).map(one).collect()
    }

    fn is_absent<T>(&self, number: u16) -> Option<Vec<T>> {
        self.field(number).is_none().then(Vec::new)
    }

    /// Where the elements of a vector begin, and how many there are; all lie in the buffer.
    fn vector(&self, number: u16, element_bytes: usize) -> Option<(usize, usize)> {
        let at = self.field(number)?;
        let at = at.checked_add(u32_of(self.array(at)?)?)?;
        let len = u32_of(self.array(at)?)?;
        let start = at.checked_add(4)?;
        let end = len.checked_mul(element_bytes).and_then(|bytes| start.checked_add(bytes))?;
        (end <= self.bytes.len()).then_some((start, len))
    }

    /// The table that an offset at `at` leads to.
    fn follow(&self, at: usize) -> Option<Table<'a>> {
        let at = at.checked_add(u32_of(self.array(at)?)?)?;
        (at < self.bytes.len()).then_some(Table { bytes: self.bytes, at })
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }
}

fn u32_of(bytes: [u8; 4]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with field 0 a `u8` of 7, field 1 absent, field 2 the text "ab".
    const BUFFER: [u8; 34] = [
        16, 0, 0, 0, // where the root is
        10, 0, 12, 0, 4, 0, 0, 0, 8, 0, 0, 0, // bytes of the list and of the table, its three fields, padding
        12, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, // back to the list, field 0, field 2
        2, 0, 0, 0, b'a', b'b', // the length of the text
    ];

    #[test]
    fn fields_by_number() {
        let bytes = BUFFER;
        let table = Table::root(&bytes).unwrap();
        assert_eq!(table.u8(0), Some(7));
        assert_eq!((table.i64(1), table.i32(9)), (None, None));
        assert_eq!(table.text(2), Some("ab"));
        assert_eq!(table.tables(1).unwrap().len(), 0);
        // Whatever a number is changed to, nothing is read that is not there.
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes;
                changed[at] = value;
                let Some(table) = Table::root(&changed) else { continue };
                let _ = (table.u8(0), table.text(2), table.tables(2).map(|tables| tables.len()), table.structs::<2>(2));
            }
        }
    }
}
