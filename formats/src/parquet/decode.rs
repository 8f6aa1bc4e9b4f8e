//! Decodes the pages of a column chunk into a column of a unit.

use super::footer::Chunk;
use super::pages::{Pages, broken};
use super::schema::{Form, Leaf};
use super::thrift::PageHeader;
use crate::columnar::layout::{ColumnWriter, State};
use crate::columnar::{Place, guarded};
use crate::headers::Source;
use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    AsBytes, BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
    Int96Type, SliceAsBytes,
};
use uringload_core::{Error, ErrorKind, Result};

/// The most rows that are decoded at once.
const ROWS_AT_ONCE: usize = 4096;
/// About how many bytes are decoded at once, if all rows have the same length.
const BYTES_AT_ONCE: u64 = 1 << 20;

/// How many strings are counted at once. Each may repeat the one before it, so a few bytes can stand for a long one.
const COUNTED_AT_ONCE: usize = 16;

/// Decodes a chunk.
///
/// # Errors
/// `Corrupt`, with the offset of the page where it is known.
pub(super) fn decode(chunk: &Chunk, leaf: &Leaf, stored: Bytes, rows: u64, writer: ColumnWriter<'_>) -> Result<()> {
    let pages = Pages::new(chunk, &leaf.descriptor, stored);
    let rows = Rows { leaf, pages, at_once: rows_at_once(rows, chunk), writer };
    guarded(|| match leaf.form {
        Form::Bool => rows.fixed::<BoolType>(each_as_it_is),
        Form::Int32(width) => rows.fixed::<Int32Type>(|values, out| int32(values, width, out)),
        Form::Int64 => rows.fixed::<Int64Type>(all_as_they_are),
        Form::Int96 => rows.fixed::<Int96Type>(each_as_it_is),
        Form::Float => rows.fixed::<FloatType>(all_as_they_are),
        Form::Double => rows.fixed::<DoubleType>(all_as_they_are),
        Form::FixedBytes => rows.fixed::<FixedLenByteArrayType>(each_as_it_is),
        Form::Decimal(width) if leaf.descriptor.physical_type() == Physical::BYTE_ARRAY => {
            rows.fixed::<ByteArrayType>(|values, out| decimals(values, width, out))
        }
        Form::Decimal(width) => rows.fixed::<FixedLenByteArrayType>(|values, out| decimals(values, width, out)),
        Form::Bytes => rows.bytes(),
    })
}

/// Numbers are little endian in memory, as they are delivered.
fn all_as_they_are<T: SliceAsBytes>(values: &[T], out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(T::slice_as_bytes(values));
    Ok(())
}

fn each_as_it_is<T: AsBytes>(values: &[T], out: &mut Vec<u8>) -> Result<()> {
    values.iter().for_each(|value| out.extend_from_slice(value.as_bytes()));
    Ok(())
}

fn decimals<T: AsBytes>(values: &[T], width: usize, out: &mut Vec<u8>) -> Result<()> {
    values.iter().try_for_each(|value| decimal(value.as_bytes(), width, out))
}

/// The total length of all strings of a chunk, or an upper bound of it. Reads the pages at its beginning that do not
/// hold strings one by one: a dictionary, and references to it. They are short; what does not fit into a dictionary
/// follows.
pub(super) fn total_bytes(source: &Source, chunk: &Chunk, leaf: &Leaf) -> Result<u64> {
    let Place { offset, len } = chunk.place;
    let (end, mut at, mut decoded) = (offset + len, offset, 0_u64);
    while at < end {
        let header = header_at(source, at, end)?;
        let is_dictionary = header.numbers[1] == Some(2);
        let values = header.own[1].and_then(|values| u64::try_from(values).ok());
        if is_dictionary && header.decoded > COUNTED_BYTES && values >= Some(chunk.values) {
            return Ok(chunk.decoded);
        }
        // Pages of version 2 and of version 1 have their encoding in different fields.
        let encoding = header.own[if header.numbers[1] == Some(3) { 4 } else { 2 }];
        if !is_dictionary && encoding.is_some_and(|encoding| !REFERRING.contains(&encoding)) {
            break;
        }
        let next = header.len.checked_add(header.stored).filter(|&len| len <= end - at);
        at += next.ok_or_else(|| source.corrupt(at, "a page leads out of its column chunk"))?;
        decoded = decoded.saturating_add(header.decoded);
    }
    let stored = source.bytes(offset, to_usize(at - offset)?, "a column chunk")?;
    let pages = Pages::new(chunk, &leaf.descriptor, stored.into());
    let mut reader = ColumnReaderImpl::<ByteArrayType>::new(leaf.descriptor.clone(), pages);
    let (mut batch, mut total) = (Batch::new(), 0_u64);
    guarded(|| {
        while batch.read(&mut reader, COUNTED_AT_ONCE)? {
            total += batch.values.iter().map(|value| value.len() as u64).sum::<u64>();
        }
        Ok(())
    })?;
    // The pages that follow may hold strings that were counted already. The sum is still an upper bound.
    Ok(if at < end { total.saturating_add(chunk.decoded.saturating_sub(decoded)) } else { total })
}

/// A dictionary of up to this many bytes is always read. Writers make a longer one with as many strings as rows if the
/// column holds images: none repeats, so the rows take no more bytes than the pages. If one repeats nevertheless while
/// others are unused, decoding fails because there is more than expected.
const COUNTED_BYTES: u64 = 1 << 20;

/// Encodings that refer to other strings: in a dictionary (both of its names), or the string before.
const REFERRING: [i64; 3] = [2, 8, 7];

/// How much is read to find a page's header: first a little, then more, since a header may hold statistics.
const HEADER_BYTES: [u64; 2] = [256, 64 << 10];

fn header_at(source: &Source, at: u64, end: u64) -> Result<PageHeader> {
    for len in HEADER_BYTES {
        let bytes = source.bytes(at, to_usize(len.min(end - at))?, "a page header")?;
        if let Some(header) = PageHeader::read(&bytes) {
            return Ok(header);
        }
    }
    Err(source.corrupt(at, "there is no page header"))
}

/// A chunk on its way into a column.
struct Rows<'a, 'b> {
    leaf: &'a Leaf,
    pages: Box<Pages>,
    /// How many rows are decoded at once.
    at_once: usize,
    writer: ColumnWriter<'b>,
}

impl Rows<'_, '_> {
    /// Decodes values of equal length, or lists of them. `encode` appends their bytes.
    fn fixed<T: DataType>(mut self, encode: impl Fn(&[T::T], &mut Vec<u8>) -> Result<()>) -> Result<()> {
        let mut batch = Batch::new();
        let mut reader = ColumnReaderImpl::<T>::new(self.leaf.descriptor.clone(), self.pages);
        let mut bytes = Vec::new();
        while batch.read(&mut reader, self.at_once)? {
            bytes.clear();
            encode(&batch.values, &mut bytes)?;
            let values = batch.values.len();
            if values == batch.levels && !self.leaf.is_list {
                self.writer.whole_rows(&bytes, values)?;
                continue;
            }
            let width = bytes.len().checked_div(values).unwrap_or(0);
            batch.write(self.leaf, &mut self.writer, &mut bytes.chunks_exact(width.max(1)))?;
        }
        self.writer.finish()
    }

    /// Decodes strings.
    fn bytes(mut self) -> Result<()> {
        let mut batch = Batch::new();
        let mut reader = ColumnReaderImpl::<ByteArrayType>::new(self.leaf.descriptor.clone(), self.pages);
        while batch.read(&mut reader, self.at_once)? {
            batch.write(self.leaf, &mut self.writer, &mut batch.values.iter().map(|value| value.data()))?;
        }
        self.writer.finish()
    }
}

/// Some rows of a column, as the crate reads them.
struct Batch<T> {
    /// Values that are not null.
    values: Vec<T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
    /// The number of values, with nulls.
    levels: usize,
}

impl<T> Batch<T> {
    fn new() -> Batch<T> {
        Batch { values: Vec::new(), definition: Vec::new(), repetition: Vec::new(), levels: 0 }
    }

    /// Reads up to `rows` whole rows. Returns whether there were any.
    fn read<D: DataType<T = T>>(&mut self, reader: &mut ColumnReaderImpl<D>, rows: usize) -> Result<bool> {
        self.values.clear();
        self.definition.clear();
        self.repetition.clear();
        let read = reader.read_records(rows, Some(&mut self.definition), Some(&mut self.repetition), &mut self.values);
        let (rows, _, levels) = read.map_err(broken)?;
        self.levels = levels;
        Ok(rows > 0)
    }

    /// Writes a row for each level that starts one, with the values up to the next.
    ///
    /// The highest definition level is a value. In a list, the level of the repeated part of the schema is an element
    /// without a value, one less is an empty list, and anything below is no list.
    fn write(
        &self,
        leaf: &Leaf,
        writer: &mut ColumnWriter<'_>,
        values: &mut dyn Iterator<Item = &'_ [u8]>,
    ) -> Result<()> {
        let most = leaf.descriptor.max_def_level();
        let element = if leaf.is_list { leaf.descriptor.repeated_ancestor_def_level() } else { most };
        let mut open = None;
        for level in 0..self.levels {
            // Columns without nulls or without lists have no levels of that kind.
            let definition = self.definition.get(level).copied().unwrap_or(most);
            if self.repetition.get(level).is_none_or(|&repetition| repetition == 0) {
                if let Some(state) = open.take() {
                    writer.end_row(state)?;
                }
                let least = if leaf.is_list { element - 1 } else { most };
                open = Some(if definition < least { State::Null } else { State::Valid });
            }
            if definition == most {
                writer.elements(values.next().ok_or_else(lacking)?)?;
            } else if definition >= element {
                open = Some(State::NullInside);
            }
        }
        open.map_or(Ok(()), |state| writer.end_row(state))
    }
}

/// How many rows have about [`BYTES_AT_ONCE`].
fn rows_at_once(rows: u64, chunk: &Chunk) -> usize {
    let row_bytes = (chunk.room.max(chunk.decoded) / rows.max(1)).max(1);
    // Not more than `ROWS_AT_ONCE`.
    (BYTES_AT_ONCE / row_bytes).clamp(1, ROWS_AT_ONCE as u64) as usize
}

fn int32(values: &[i32], width: u64, out: &mut Vec<u8>) -> Result<()> {
    let fits = |value: &i32| match width {
        1 => i8::try_from(*value).is_ok() || u8::try_from(*value).is_ok(),
        2 => i16::try_from(*value).is_ok() || u16::try_from(*value).is_ok(),
        _ => true,
    };
    if let Some(value) = values.iter().find(|value| !fits(value)) {
        return Err(Error::new(ErrorKind::Corrupt, format!("the value {value} does not fit into {width} bytes")));
    }
    match width {
        1 => out.extend(values.iter().map(|value| value.to_le_bytes()[0])),
        2 => out.extend(values.iter().flat_map(|value| [value.to_le_bytes()[0], value.to_le_bytes()[1]])),
        _ => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
    Ok(())
}

/// Turns a big endian integer into a little endian one of `width` bytes.
fn decimal(value: &[u8], width: usize, out: &mut Vec<u8>) -> Result<()> {
    let sign = if value.first().is_some_and(|&byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let (beyond, kept) = value.split_at(value.len().saturating_sub(width));
    let is_kept = beyond.iter().all(|&byte| byte == sign) && kept.first().is_none_or(|byte| (byte ^ sign) & 0x80 == 0);
    if !beyond.is_empty() && !is_kept {
        return Err(Error::new(ErrorKind::Corrupt, format!("a decimal does not fit into {width} bytes")));
    }
    out.extend(kept.iter().rev());
    out.extend(std::iter::repeat_n(sign, width - kept.len()));
    Ok(())
}

fn lacking() -> Error {
    Error::new(ErrorKind::Corrupt, "there are fewer values than levels")
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number)
        .map_err(|_| Error::new(ErrorKind::Corrupt, format!("the number {number} is too large for this machine")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_turn_round() {
        let of = |value: &[u8], width| {
            let mut out = Vec::new();
            decimal(value, width, &mut out).map(|()| out)
        };
        assert_eq!(of(&[0x01, 0x02], 4).unwrap(), [2, 1, 0, 0]);
        assert_eq!(of(&[0xff, 0xfe], 4).unwrap(), [0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(of(&[], 2).unwrap(), [0, 0]);
        assert_eq!(of(&[0xff, 0xff, 0x80, 0x00], 2).unwrap(), [0x00, 0x80]);
        assert_eq!(of(&[0x00, 0x00, 0x7f, 0xff], 2).unwrap(), [0xff, 0x7f]);
        for value in [[0x00, 0x00, 0x80, 0x00], [0xff, 0xff, 0x7f, 0xff], [0x01, 0x00, 0x00, 0x00]] {
            assert!(of(&value, 2).is_err(), "{value:x?}");
        }
    }

    #[test]
    fn integers_that_do_not_fit_are_refused() {
        let of = |value: i32, width| {
            let mut out = Vec::new();
            int32(&[value], width, &mut out).map(|()| out)
        };
        assert_eq!(of(-1, 1).unwrap(), [0xff]);
        assert_eq!(of(255, 1).unwrap(), [0xff]);
        assert_eq!(of(-2, 2).unwrap(), [0xfe, 0xff]);
        assert!(of(256, 1).is_err() && of(-129, 1).is_err() && of(65536, 2).is_err());
    }
}
