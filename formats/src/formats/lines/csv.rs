//! Turns the fields of a row of comma-separated values into values. The parser is csv-core's.

use super::values::{Column, Kind, Room, Wrong, number, shortened, truth};
use crate::dataset::Value;
use bytes::Bytes;
use csv_core::{ReadFieldResult, Reader, ReaderBuilder, Terminator};
use std::fmt;

/// Parses rows. Reused from row to row.
pub(super) struct Rows {
    reader: Reader,
    /// The fields of a row without their quotes, end to end.
    unquoted: Vec<u8>,
}

/// A field of a row.
pub(super) struct FieldText<'a> {
    /// The text without quotes.
    pub(super) text: &'a [u8],
    /// The place of the same bytes in the row, unless quotes come in between.
    pub(super) place: Option<usize>,
}

/// The most memory for the fields of a row that is kept for the next row.
const KEPT_BYTES: usize = 1 << 20;

impl Rows {
    pub(super) fn new(delimiter: u8) -> Rows {
        // Rows are passed without their line ends, and a carriage return in them is an ordinary byte.
        let reader = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
        Rows { reader, unquoted: Vec::new() }
    }

    /// Calls `each` with every field of a row. The row must not be empty.
    pub(super) fn fields(
        &mut self,
        row: &[u8],
        mut each: impl FnMut(usize, FieldText<'_>) -> Result<(), Wrong>,
    ) -> Result<usize, Wrong> {
        self.reader.reset();
        if self.unquoted.len() <= row.len() {
            self.unquoted.resize(row.len() + 1, 0);
        }
        // The parser drops a byte order mark at the start of its input. A row is not the start, so it gets a newline
        // first.
        self.reader.read_field(b"\n", &mut self.unquoted);
        let (mut count, mut start, mut at, mut filled) = (0, 0, 0, 0);
        loop {
            // At the end of the row: empty input would mean the end of all rows.
            let input = if at < row.len() { &row[at..] } else { b"\n" };
            let (result, read, written) = self.reader.read_field(input, &mut self.unquoted[filled..]);
            let is_end = at >= row.len();
            at += read;
            filled += written;
            match result {
                ReadFieldResult::InputEmpty if !is_end => continue,
                ReadFieldResult::Field { record_end } if record_end == is_end => {
                    let text = &self.unquoted[..filled];
                    let place = [start, start + 1].into_iter().find(|&place| {
                        let is_within = place <= row.len();
                        is_within && row[place..].starts_with(text)
                    });
                    each(count, FieldText { text, place })?;
                    count += 1;
                    (start, filled) = (at, 0);
                    if record_end {
                        break;
                    }
                }
                // Neither can happen with a row that the index was made from.
                _ => {
                    let what = "a row does not end where the index says".to_owned();
                    return Err(Wrong { what, at: start, remedy: "the file may have changed: open it again" });
                }
            }
        }
        if self.unquoted.len() > KEPT_BYTES {
            self.unquoted = Vec::new();
        }
        Ok(count)
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

/// The columns of a table, and which fields they come from.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    /// For each field of a row its column, if it is wanted.
    pub(super) wanted: Vec<Option<usize>>,
    /// Whether the first row holds the names.
    pub(super) has_header: bool,
}

/// Sets the values of the columns.
pub(super) fn values(
    row: &Bytes,
    table: &Table,
    rows: &mut Rows,
    room: &mut Room,
    out: &mut Vec<Value>,
) -> Result<(), Wrong> {
    out.resize(table.columns.len(), Value::I64(0));
    let count = rows.fields(row, |number, field| {
        if let Some(&Some(column)) = table.wanted.get(number) {
            out[column] = value(row, &table.columns[column], field, room)?;
        }
        Ok(())
    })?;
    if count != table.wanted.len() {
        let first = if table.has_header { "the header" } else { "the first row" };
        let what = format!("a row has {count} fields, and {first} has {}", table.wanted.len());
        return Err(Wrong {
            what,
            at: 0,
            remedy: "write the row again, with quotes around fields that contain the delimiter",
        });
    }
    Ok(())
}

fn value(row: &Bytes, column: &Column, field: FieldText<'_>, room: &mut Room) -> Result<Value, Wrong> {
    let FieldText { text, place } = field;
    let at = place.unwrap_or(0);
    let trimmed = || std::str::from_utf8(text).unwrap_or_default().trim();
    let parsed = match column.kind {
        Kind::Number(dtype) => number(trimmed(), dtype, room),
        Kind::Bool => match trimmed() {
            "1" | "true" | "True" | "TRUE" => Some(truth(true)),
            "0" | "false" | "False" | "FALSE" => Some(truth(false)),
            _ => None,
        },
        _ => Some(Value::Bytes(match place {
            Some(place) => row.slice(place..place + text.len()),
            None => room.value(|out| {
                out.extend_from_slice(text);
                Ok::<(), Wrong>(())
            })?,
        })),
    };
    parsed.ok_or_else(|| {
        let (name, dtype) = (&column.name, column.field().dtype);
        let what = format!("field {name:?} is {:?}, which is no {dtype}", shortened(trimmed()));
        Wrong { what, at, remedy: "leave out the type of the column: without one it is text" }
    })
}
