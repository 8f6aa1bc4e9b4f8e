//! The layout of a decoded unit in memory: column by column, so that a value is a slice.
//!
//! A table of three `u64` a column (where its states, its offsets and its elements begin; 0 for what it lacks), then
//! each column: a byte of state a row where values may be null, `rows + 1` offsets where they are of any length, and
//! the elements end to end. Everything begins at a multiple of 64 bytes and is little endian.

use super::nulls::Fill;
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

/// Every part of a column begins at a multiple of this, which suits any processor's vectors.
const ALIGN_BYTES: usize = 64;

/// Numbers of a column in the table.
const ENTRY_NUMBERS: usize = 3;

/// What a column holds for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A value.
    Valid,
    /// No value.
    Null,
    /// A list with an element that has no value.
    NullInside,
}

/// The most room that the elements of a column take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// Bytes of each row.
    Fixed(u64),
    /// Bytes of all rows together.
    Ragged(u64),
}

/// Returns the most bytes that a unit of `rows` rows takes, or `None` for more than 2^63. `columns` says of each
/// whether it may be null, and its room.
pub(crate) fn bound(rows: u64, columns: impl Iterator<Item = (bool, Room)>) -> Option<u64> {
    let padded = |bytes: u64| bytes.checked_next_multiple_of(ALIGN_BYTES as u64);
    let mut number = 0_u64;
    let mut bytes = 0_u64;
    for (is_nullable, room) in columns {
        number += 1;
        if is_nullable {
            bytes = bytes.checked_add(padded(rows)?)?;
        }
        let elements = match room {
            Room::Fixed(width) => rows.checked_mul(width)?,
            Room::Ragged(all) => {
                bytes = bytes.checked_add(padded(rows.checked_add(1)?.checked_mul(8)?)?)?;
                all
            }
        };
        bytes = bytes.checked_add(padded(elements)?)?;
    }
    let table = padded(number.checked_mul(8 * ENTRY_NUMBERS as u64)?)?;
    bytes.checked_add(table).filter(|&bytes| bytes <= i64::MAX as u64)
}

/// Writes a unit, one column after another.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    rows: usize,
    columns: usize,
    /// How many columns are written.
    written: usize,
    /// Where the next column begins.
    at: usize,
}

impl<'a> Writer<'a> {
    /// # Errors
    /// `Corrupt` if the table does not fit into `out`.
    pub(crate) fn new(out: &'a mut [u8], rows: u64, columns: usize) -> Result<Writer<'a>> {
        let rows = usize::try_from(rows).map_err(|_| full())?;
        let table = columns * 8 * ENTRY_NUMBERS;
        out.get_mut(..table).ok_or_else(full)?.fill(0);
        Ok(Writer { out, rows, columns, written: 0, at: table })
    }

    /// Begins the next column. `width` is the bytes of a row, or `None` if rows differ in length; `fill` replaces
    /// nulls.
    ///
    /// # Errors
    /// `Corrupt` if it does not fit.
    pub(crate) fn column(&mut self, is_nullable: bool, width: Option<usize>, fill: Fill) -> Result<ColumnWriter<'_>> {
        debug_assert!(self.written < self.columns);
        let entry = self.written * 8 * ENTRY_NUMBERS;
        self.written += 1;
        let (mut states, mut offsets) = (None, None);
        if is_nullable {
            let at = self.place(self.rows)?;
            self.out[at..at + self.rows].fill(0);
            states = Some(at);
        }
        if width.is_none() {
            let at = self.place(self.rows.checked_add(1).and_then(|count| count.checked_mul(8)).ok_or_else(full)?)?;
            self.out[at..at + 8].fill(0);
            offsets = Some(at);
        }
        let elements = self.place(0)?;
        for (number, place) in [states.unwrap_or(0), offsets.unwrap_or(0), elements].into_iter().enumerate() {
            let at = entry + 8 * number;
            self.out[at..at + 8].copy_from_slice(&(place as u64).to_le_bytes());
        }
        let Writer { out, rows, at, .. } = self;
        Ok(ColumnWriter { out, at, rows: *rows, row: 0, states, offsets, elements, width, fill })
    }

    /// Returns how many bytes were written.
    pub(crate) fn finish(self) -> usize {
        debug_assert_eq!(self.written, self.columns);
        self.at
    }

    /// Takes room that begins at a multiple of the alignment.
    fn place(&mut self, bytes: usize) -> Result<usize> {
        let start = self.at.next_multiple_of(ALIGN_BYTES);
        let end = start.checked_add(bytes).filter(|&end| end <= self.out.len()).ok_or_else(full)?;
        self.at = end;
        Ok(start)
    }
}

/// Writes the rows of a column.
pub(crate) struct ColumnWriter<'a> {
    out: &'a mut [u8],
    /// Where the next element goes.
    at: &'a mut usize,
    rows: usize,
    /// How many rows are written.
    row: usize,
    states: Option<usize>,
    offsets: Option<usize>,
    elements: usize,
    width: Option<usize>,
    fill: Fill,
}

impl ColumnWriter<'_> {
    /// How many rows are still to be written.
    pub(crate) fn rows_left(&self) -> usize {
        self.rows - self.row
    }

    /// Appends elements of the row that is being written.
    ///
    /// # Errors
    /// `Corrupt` if they do not fit.
    #[inline]
    pub(crate) fn elements(&mut self, bytes: &[u8]) -> Result<()> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends `len` bytes of elements, which the caller writes.
    ///
    /// # Errors
    /// As [`elements`](ColumnWriter::elements).
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> Result<&mut [u8]> {
        let start = *self.at;
        let end = start.checked_add(len).filter(|&end| end <= self.out.len()).ok_or_else(full)?;
        *self.at = end;
        Ok(&mut self.out[start..end])
    }

    /// Appends the replacement for `count` null elements of `width` bytes.
    ///
    /// # Errors
    /// `Corrupt` if they do not fit.
    pub(crate) fn nulls(&mut self, count: usize, width: usize) -> Result<()> {
        let fill = self.fill;
        fill.into(self.room(count.checked_mul(width).ok_or_else(full)?)?);
        Ok(())
    }

    /// Ends a row. A row that is null must have no elements.
    ///
    /// # Errors
    /// `Corrupt` for one row too many, a row of the wrong length, and a null in a column that has none.
    pub(crate) fn end_row(&mut self, state: State) -> Result<()> {
        if self.row == self.rows {
            return Err(corrupt(format!("there are more rows than the {} of the metadata", self.rows)));
        }
        if state != State::Valid {
            let Some(states) = self.states else {
                return Err(corrupt(format!("row {} is null in a column without nulls", self.row)));
            };
            self.out[states + self.row] = match state {
                State::Valid => VALID,
                State::Null => NULL,
                State::NullInside => NULL_INSIDE,
            };
        }
        self.row += 1;
        if let Some(width) = self.width {
            let expected = self.elements + self.row * width;
            if state == State::Null {
                // A row without a value takes its room nevertheless.
                self.fill.into(self.out.get_mut(expected - width..expected).ok_or_else(full)?);
                *self.at = expected;
            }
            if *self.at != expected {
                return Err(corrupt(format!("row {} does not have the {width} bytes of all rows", self.row - 1)));
            }
        }
        if let Some(offsets) = self.offsets {
            let at = offsets + 8 * self.row;
            let end = (*self.at - self.elements) as u64;
            self.out[at..at + 8].copy_from_slice(&end.to_le_bytes());
        }
        Ok(())
    }

    /// Appends whole rows of equal length that all have a value.
    ///
    /// # Errors
    /// As [`elements`](ColumnWriter::elements) and [`end_row`](ColumnWriter::end_row).
    pub(crate) fn whole_rows(&mut self, bytes: &[u8], rows: usize) -> Result<()> {
        if rows > self.rows_left() {
            return Err(corrupt(format!("there are more rows than the {} of the metadata", self.rows)));
        }
        self.elements(bytes)?;
        self.row += rows;
        match self.width {
            Some(width) if *self.at == self.elements + self.row * width => Ok(()),
            _ => Err(corrupt(format!("the rows before {} do not have as many bytes as all rows have", self.row))),
        }
    }

    /// Ends the column.
    ///
    /// # Errors
    /// `Corrupt` if rows are missing.
    pub(crate) fn finish(self) -> Result<()> {
        if self.row != self.rows {
            return Err(corrupt(format!("there are {} rows, and the metadata says {}", self.row, self.rows)));
        }
        Ok(())
    }
}

const VALID: u8 = 0;
const NULL: u8 = 1;
const NULL_INSIDE: u8 = 2;

/// Returns the value of a row in a column of a unit, and its state. `width` is what the column was written with. `None`
/// if the unit does not have this layout.
pub(crate) fn value(unit: &Bytes, column: usize, row: u64, width: Option<u64>) -> Option<(Bytes, State)> {
    let row = usize::try_from(row).ok()?;
    let number = |at: usize| {
        let bytes = unit.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let entry = column * 8 * ENTRY_NUMBERS;
    let (states, offsets, elements) = (number(entry)?, number(entry + 8)?, number(entry + 16)?);
    let state = match states {
        0 => State::Valid,
        states => match *unit.get(states.checked_add(row)?)? {
            VALID => State::Valid,
            NULL => State::Null,
            _ => State::NullInside,
        },
    };
    let (start, end) = match width {
        Some(width) => {
            let width = usize::try_from(width).ok()?;
            let start = row.checked_mul(width)?;
            (start, start.checked_add(width)?)
        }
        None => {
            let at = offsets.checked_add(row.checked_mul(8)?)?;
            (number(at)?, number(at + 8)?)
        }
    };
    let (start, end) = (elements.checked_add(start)?, elements.checked_add(end)?);
    (start <= end && end <= unit.len()).then(|| (unit.slice(start..end), state))
}

fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// More was decoded than the index had been told.
#[cold]
fn full() -> Error {
    Error::new(ErrorKind::Corrupt, "there are more bytes than the metadata says")
        .with_remedy("the file contradicts itself: write it again with a current version of its writer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(room: usize) -> Result<Bytes> {
        let mut out = vec![0xa5; room];
        let mut writer = Writer::new(&mut out, 3, 3)?;
        let mut numbers = writer.column(false, Some(2), Fill::ZERO)?;
        numbers.whole_rows(&[1, 2, 3, 4], 2)?;
        numbers.elements(&[5, 6])?;
        numbers.end_row(State::Valid)?;
        numbers.finish()?;
        let mut texts = writer.column(true, None, Fill::ZERO)?;
        texts.elements(b"hello")?;
        texts.end_row(State::Valid)?;
        texts.end_row(State::Null)?;
        texts.end_row(State::NullInside)?;
        texts.finish()?;
        let mut nulls = writer.column(true, Some(4), Fill::ZERO)?;
        nulls.end_row(State::Null)?;
        nulls.whole_rows(&[1; 8], 2)?;
        nulls.finish()?;
        let len = writer.finish();
        out.truncate(len);
        Ok(out.into())
    }

    #[test]
    fn what_was_written_is_found_and_the_bound_is_one() {
        let columns = [(false, Room::Fixed(2)), (true, Room::Ragged(5)), (true, Room::Fixed(4))];
        let room = bound(3, columns.into_iter()).unwrap() as usize;
        let unit = written(room).unwrap();
        assert!(unit.len() <= room);
        let of = |column, row, width| value(&unit, column, row, width).unwrap();
        assert_eq!(of(0, 2, Some(2)), (Bytes::from_static(&[5, 6]), State::Valid));
        assert_eq!(of(1, 0, None), (Bytes::from_static(b"hello"), State::Valid));
        assert_eq!(of(1, 1, None), (Bytes::new(), State::Null));
        assert_eq!(of(1, 2, None).1, State::NullInside);
        assert_eq!(of(2, 0, Some(4)), (Bytes::from_static(&[0; 4]), State::Null));
        assert_eq!(of(2, 2, Some(4)), (Bytes::from_static(&[1; 4]), State::Valid));
        for room in 0..unit.len() {
            assert_eq!(written(room).unwrap_err().kind(), ErrorKind::Corrupt, "{room}");
        }
        assert!((0..unit.len()).all(|len| {
            // Bytes that are not a unit are detected, or have a value within them.
            (0..4).all(|row| value(&unit.slice(..len), 1, row, None).is_none_or(|(value, _)| value.len() <= len))
        }));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let mut out = vec![0; 1 << 12];
        let mut writer = Writer::new(&mut out, 2, 1).unwrap();
        let mut column = writer.column(false, Some(4), Fill::ZERO).unwrap();
        assert!(column.end_row(State::Null).is_err());
        column.elements(&[0; 3]).unwrap();
        assert!(column.end_row(State::Valid).is_err());
        let mut column = Writer { written: 0, ..writer };
        let column = column.column(false, None, Fill::ZERO).unwrap();
        assert!(column.finish().unwrap_err().to_string().contains("there are 0 rows, and the metadata says 2"));
    }

    #[test]
    fn hostile_sizes_have_no_bound() {
        for (rows, room) in [(u64::MAX, Room::Fixed(1)), (1 << 62, Room::Fixed(8)), (1, Room::Ragged(u64::MAX))] {
            assert_eq!(bound(rows, [(true, room)].into_iter()), None);
        }
        assert_eq!(bound(u64::MAX, [(false, Room::Fixed(0))].into_iter()), Some(64));
    }
}
