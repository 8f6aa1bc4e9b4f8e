//! Flatbuffers for Arrow's metadata: tables whose fields are found through a table of offsets.
//!
//! Nothing is trusted. Each offset is compared with the bytes that there are. Tables may be shared, so a few bytes
//! could claim to be any number of them: the number of tables and of the bytes that they seem to have is bounded.
//!
//! Source: google/flatbuffers `docs/source/internals.md`.

/// What is read, or why it is broken.
pub(super) type Read<T> = Result<T, String>;

/// The most tables of a buffer.
const TABLES_MAX: usize = 1_000_000;

/// A buffer that is being read.
pub(super) struct Flat<'a> {
    bytes: &'a [u8],
    /// How many tables, and how many bytes of shared and other things, may still be read.
    tables: usize,
    apparent: usize,
}

/// A table.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    name: &'static str,
    at: usize,
    /// The place of each field, from the table on. 0 means that there is none.
    offsets: &'a [[u8; 2]],
}

/// A field of a table: the number of its slot, and its name.
pub(super) type Slot = (usize, &'static str);

impl<'a> Flat<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Flat<'a> {
        Flat { bytes, tables: TABLES_MAX, apparent: 16 * bytes.len() + (64 << 10) }
    }

    /// The table that a buffer begins with.
    pub(super) fn root(&mut self, name: &'static str) -> Read<Table<'a>> {
        let at = self.behind(0, (name, "place"))?;
        self.table_at(at, name)
    }

    /// Takes `len` bytes.
    fn take(&mut self, at: usize, len: usize, of: (&str, &str)) -> Read<&'a [u8]> {
        let found = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        let (table, field) = of;
        let all = self.bytes.len();
        let found = found.ok_or_else(|| format!("{table}.{field} would take {len} bytes from {at} on, of {all}"))?;
        let left = self.apparent.checked_sub(len);
        self.apparent = left.ok_or_else(|| format!("{table}.{field} is shared so often that it seems too large"))?;
        Ok(found)
    }

    /// Takes a number, which is at a multiple of its length.
    fn number<const LEN: usize>(&mut self, at: usize, of: (&str, &str)) -> Read<[u8; LEN]> {
        if !at.is_multiple_of(LEN) {
            return Err(format!("{}.{} is at byte {at}, not at a multiple of {LEN}", of.0, of.1));
        }
        let mut number = [0; LEN];
        number.copy_from_slice(self.take(at, LEN, of)?);
        Ok(number)
    }

    /// Where the offset at `at` leads.
    fn behind(&mut self, at: usize, of: (&str, &str)) -> Read<usize> {
        let offset = u32::from_le_bytes(self.number(at, of)?);
        let there = usize::try_from(offset).ok().and_then(|offset| at.checked_add(offset));
        there.ok_or_else(|| format!("{}.{} leads {offset} bytes on from {at}", of.0, of.1))
    }

    fn table_at(&mut self, at: usize, name: &'static str) -> Read<Table<'a>> {
        let of = (name, "offsets");
        let offset = i32::from_le_bytes(self.number(at, of)?);
        let offsets_at = isize::try_from(offset).ok().and_then(|offset| at.checked_add_signed(offset.checked_neg()?));
        let offsets_at = offsets_at.ok_or_else(|| format!("{name}.offsets leads {offset} bytes back from {at}"))?;
        let len = usize::from(u16::from_le_bytes(self.number(offsets_at, of)?));
        if len < 4 || len % 2 > 0 {
            return Err(format!("{name}.offsets has {len} bytes"));
        }
        // Its own length and that of the table come first.
        let offsets = self.take(offsets_at, len, of)?[4..].as_chunks().0;
        self.tables = self.tables.checked_sub(1).ok_or("there are too many tables")?;
        Ok(Table { name, at, offsets })
    }

    /// The place of a field, if it is there.
    fn field(&self, table: Table<'_>, (slot, _): Slot) -> Option<usize> {
        let offset = u16::from_le_bytes(*table.offsets.get(slot)?);
        // Of memory, which has no more than half of all addresses.
        (offset > 0).then(|| table.at + usize::from(offset))
    }

    /// A number, or its default.
    pub(super) fn int<const LEN: usize, T>(
        &mut self,
        table: Table<'_>,
        slot: Slot,
        default: T,
        of: impl FnOnce([u8; LEN]) -> T,
    ) -> Read<T> {
        match self.field(table, slot) {
            Some(at) => Ok(of(self.number(at, (table.name, slot.1))?)),
            None => Ok(default),
        }
    }

    pub(super) fn bool(&mut self, table: Table<'_>, slot: Slot) -> Read<bool> {
        self.int(table, slot, false, |[byte]| byte != 0)
    }

    /// What `read` makes of a table within a table, if there is one.
    pub(super) fn table<T>(
        &mut self,
        table: Table<'_>,
        slot: Slot,
        name: &'static str,
        read: impl FnOnce(&mut Self, Table<'a>) -> Read<T>,
    ) -> Read<Option<T>> {
        let Some(at) = self.field(table, slot) else { return Ok(None) };
        let at = self.behind(at, (table.name, slot.1))?;
        let inside = self.table_at(at, name)?;
        read(self, inside).map(Some)
    }

    /// The number of a union's type, which has the slot before that of its value. There is none without the other.
    pub(super) fn union(&mut self, table: Table<'_>, slot: Slot) -> Read<Option<u8>> {
        let (number, name) = slot;
        match (self.field(table, (number - 1, name)), self.field(table, slot)) {
            (None, None) => Ok(None),
            (Some(at), Some(_)) => Ok(Some(u8::from_le_bytes(self.number(at, (table.name, name))?))),
            _ => Err(format!("{}.{name} has a type or a value, and not both", table.name)),
        }
    }

    /// The elements of a vector, and where they begin. None where there is no vector.
    fn vector_at<const LEN: usize>(&mut self, table: Table<'_>, slot: Slot) -> Read<(usize, &'a [[u8; LEN]])> {
        let of = (table.name, slot.1);
        let Some(at) = self.field(table, slot) else { return Ok((0, &[])) };
        let at = self.behind(at, of)?;
        let count = u32::from_le_bytes(self.number(at, of)?) as usize;
        // Within the buffer, since its length is.
        let at = at + 4;
        Ok((at, self.take(at, count.saturating_mul(LEN), of)?.as_chunks().0))
    }

    /// The numbers or structures of a vector, as they are stored.
    pub(super) fn vector<const LEN: usize>(&mut self, table: Table<'_>, slot: Slot) -> Read<&'a [[u8; LEN]]> {
        Ok(self.vector_at(table, slot)?.1)
    }

    /// The tables of a vector.
    pub(super) fn tables<T>(
        &mut self,
        table: Table<'_>,
        slot: Slot,
        name: &'static str,
        mut read: impl FnMut(&mut Self, Table<'a>) -> Read<T>,
    ) -> Read<Vec<T>> {
        let (first, elements) = self.vector_at::<4>(table, slot)?;
        let mut found = Vec::new();
        for number in 0..elements.len() {
            let at = self.behind(first + 4 * number, (table.name, slot.1))?;
            let element = self.table_at(at, name)?;
            found.push(read(self, element)?);
        }
        Ok(found)
    }

    /// A text, which is empty where there is none. It is UTF-8, and a zero follows.
    pub(super) fn text(&mut self, table: Table<'_>, slot: Slot) -> Read<&'a str> {
        let of = (table.name, slot.1);
        if self.field(table, slot).is_none() {
            return Ok("");
        }
        let (at, bytes) = self.vector_at::<1>(table, slot)?;
        let bytes = bytes.as_flattened();
        if self.take(at + bytes.len(), 1, of)? != [0] {
            return Err(format!("{}.{} does not end in a zero", of.0, of.1));
        }
        std::str::from_utf8(bytes).map_err(|_| format!("{}.{} is not UTF-8", of.0, of.1))
    }
}
