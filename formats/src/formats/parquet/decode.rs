//! Decodes the pages of a column chunk into a column of a unit.

use super::chunk::Chunk;
use super::nested::{self, Repeated};
use super::reader::{ChunkReader, Run};
use super::schema::{Build, Form, Leaf, Stem};
use super::tensors::Row;
use super::thrift::PageHeader;
use super::values::{Stored, broken};
use crate::formats::columnar::ByteRange;
use crate::formats::columnar::layout::{ColumnWriter, State};
use crate::index::headers::Source;
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

/// Decodes the chunks of a column.
///
/// # Errors
/// `Corrupt`, with the offset of the page where it is known.
pub(super) fn decode(chunks: &[Chunk], leaf: &Leaf, stored: &[Bytes], mut writer: ColumnWriter<'_>) -> Result<()> {
    let opened = chunks.iter().zip(&leaf.stems).zip(stored);
    let mut readers: Vec<ChunkReader> =
        opened.map(|((chunk, stem), stored)| ChunkReader::new(chunk, &stem.leaf, stored.clone())).collect();
    let (Some(reader), Some(stem)) = (readers.first_mut(), leaf.stems.first()) else {
        return Err(Error::new(ErrorKind::Internal, "a column has no chunk"));
    };
    match &leaf.build {
        Build::Values => rows(reader, stem, &mut writer)?,
        Build::Numbers(_) => lists(reader, stem, &mut writer)?,
        Build::Tensors(of) => tensors(reader, stem, of, &mut writer)?,
        Build::Nested(tree) => nested::rows(tree, &leaf.stems, &mut readers, &mut writer)?,
    }
    writer.finish()
}

/// The definition level of a value.
fn most_of(stem: &Stem) -> u32 {
    stem.leaf.definition
}

/// Every entry is a row.
fn rows(reader: &mut ChunkReader, stem: &Stem, writer: &mut ColumnWriter<'_>) -> Result<()> {
    let (most, stored, mut scratch) = (most_of(stem), Stored::of(&stem.leaf), Vec::new());
    while let Some(Run { definition, count, .. }) = reader.peek()? {
        if definition < most {
            (0..count).try_for_each(|_| writer.end_row(State::Null))?;
        } else if stem.form == Form::Bytes {
            reader.values(count, |value| {
                writer.elements(value)?;
                writer.end_row(State::Valid)
            })?;
        } else {
            reader.values(count, |values| {
                let (elements, rows) = elements(stem.form, stored, values, &mut scratch)?;
                writer.whole_rows(elements, rows)
            })?;
        }
        reader.skip(count);
    }
    Ok(())
}

/// Entries are elements of lists. The highest definition level is a value. The level of the repeated part of the schema
/// is an element without a value, one less is an empty list, and anything below is no list.
fn lists(reader: &mut ChunkReader, stem: &Stem, writer: &mut ColumnWriter<'_>) -> Result<()> {
    let (most, stored, mut scratch) = (most_of(stem), Stored::of(&stem.leaf), Vec::new());
    let element = stem.leaf.element;
    let mut open = None;
    while let Some(Run { repetition, definition, count }) = reader.peek()? {
        // Entries that begin rows are taken one by one.
        let count = if repetition == 0 { 1 } else { count };
        if repetition == 0 {
            if let Some(state) = open.replace(if definition + 1 < element { State::Null } else { State::Valid }) {
                writer.end_row(state)?;
            }
        } else if open.is_none() {
            return Err(broken("the first row continues a list"));
        }
        if definition == most {
            reader.values(count, |values| writer.elements(elements(stem.form, stored, values, &mut scratch)?.0))?;
        } else if definition >= element {
            writer.nulls(usize::try_from(count).unwrap_or(usize::MAX), stem.bytes as usize)?;
            open = Some(State::NullInside);
        }
        reader.skip(count);
    }
    open.map_or(Ok(()), |state| writer.end_row(state))
}

/// Entries are elements of lists within each other, whose levels and lengths come from the outside in.
fn tensors(
    reader: &mut ChunkReader,
    stem: &Stem,
    lists: &[(Repeated, u64)],
    writer: &mut ColumnWriter<'_>,
) -> Result<()> {
    let mut row = Row::new(lists.iter().map(|(_, length)| *length).collect())?;
    let (most, stored, width, mut scratch) = (most_of(stem), Stored::of(&stem.leaf), stem.bytes as usize, Vec::new());
    while let Some(Run { repetition, definition, count }) = reader.peek()? {
        // Entries that begin lists are taken one by one.
        let goes_on = repetition as usize;
        let count = if goes_on == lists.len() { count } else { 1 };
        row.begin(goes_on, writer)?;
        // The lists that have an element here; what follows them is an empty list, or none.
        let there = lists.iter().take_while(|(of, _)| of.definition <= definition).count();
        let is_empty = lists.get(there).is_some_and(|(of, _)| definition + 1 == of.definition);
        let numbers = row.take(there, goes_on, count, is_empty)?;
        if definition == most {
            reader.values(count, |values| writer.elements(elements(stem.form, stored, values, &mut scratch)?.0))?;
        } else {
            if there == lists.len() {
                row.state = Some(State::NullInside);
            }
            writer.nulls(numbers, width)?;
        }
        reader.skip(count);
    }
    row.end(writer)
}

/// Appends the element of a value.
type Encode<'a> = &'a dyn Fn(&[u8], &mut Vec<u8>) -> Result<()>;

/// Turns values into elements, which `scratch` is room for, and counts them.
pub(super) fn elements<'a>(
    form: Form,
    stored: Stored,
    values: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], usize)> {
    // A string comes alone.
    let width = match stored {
        Stored::Bits => 1,
        Stored::Fixed(width) => width,
        Stored::Strings => values.len().max(1),
    };
    let mut each = |encode: Encode<'_>| {
        scratch.clear();
        // Of an empty string too.
        match stored {
            Stored::Strings => encode(values, scratch)?,
            _ => values.chunks_exact(width).try_for_each(|value| encode(value, scratch))?,
        }
        Ok::<(), Error>(())
    };
    match form {
        Form::Int32(bytes @ (1 | 2)) => each(&|value, out| int32(value, bytes as usize, out))?,
        Form::Decimal(bytes) => each(&|value, out| decimal(value, bytes, out))?,
        // Numbers are little endian in memory, as they are stored and delivered.
        _ => return Ok((values, values.len() / width)),
    }
    let count = if stored == Stored::Strings { 1 } else { values.len() / width };
    Ok((scratch, count))
}

/// The bytes of all pages of a chunk when they are decompressed, with their headers, as the pages say it.
pub(super) fn decoded_bytes(source: &Source, place: ByteRange) -> Result<u64> {
    let (end, mut at, mut decoded) = (place.offset + place.len, place.offset, 0_u64);
    while at < end {
        let header = header_at(source, at, end)?;
        let next = header.len.checked_add(header.stored).filter(|&len| len <= end - at);
        at += next.ok_or_else(|| source.corrupt(at, "a page leads out of its column chunk"))?;
        decoded = decoded.saturating_add(header.len).saturating_add(header.decoded);
    }
    Ok(decoded)
}

/// The total length of all strings of a chunk, or an upper bound of it. Reads the pages at its beginning that do not
/// hold strings one by one: a dictionary, and references to it. They are short; what does not fit into a dictionary
/// follows.
pub(super) fn total_bytes(source: &Source, chunk: &Chunk, stem: &Stem) -> Result<u64> {
    let ByteRange { offset, len } = chunk.place;
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
    let mut reader = ChunkReader::new(chunk, &stem.leaf, stored.into());
    let (most, mut total) = (most_of(stem), 0_u64);
    while let Some(run) = reader.peek()? {
        if run.definition == most {
            total = total.saturating_add(reader.total(run.count)?);
        }
        reader.skip(run.count);
    }
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

/// Shortens an integer of 4 bytes to the `bytes` that count; the others repeat its sign, or are 0.
fn int32(value: &[u8], bytes: usize, out: &mut Vec<u8>) -> Result<()> {
    let number = value.first_chunk().map_or(0, |value| i32::from_le_bytes(*value));
    let fits = match bytes {
        1 => i8::try_from(number).is_ok() || u8::try_from(number).is_ok(),
        _ => i16::try_from(number).is_ok() || u16::try_from(number).is_ok(),
    };
    if !fits {
        return Err(broken(format!("the value {number} does not fit into {bytes} bytes")));
    }
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
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
            int32(&value.to_le_bytes(), width, &mut out).map(|()| out)
        };
        assert_eq!(of(-1, 1).unwrap(), [0xff]);
        assert_eq!(of(255, 1).unwrap(), [0xff]);
        assert_eq!(of(-2, 2).unwrap(), [0xfe, 0xff]);
        assert!(of(256, 1).is_err() && of(-129, 1).is_err() && of(65536, 2).is_err());
    }
}
