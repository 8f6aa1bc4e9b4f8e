//! From the buffers of a record batch to a column of a unit.

use super::schema::{Element, Storage};
use crate::columnar::layout::{self, ColumnWriter, Room, State, Writer, bound};
use crate::headers::{u32_at, u64_at};
use bytes::Bytes;
use std::io::Read;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// How the buffers of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Lz4,
    Zstd,
}

/// The values that the numbers of a column stand for: what came first, and what was added.
#[derive(Clone, Debug)]
pub(super) struct Dictionary {
    parts: Vec<(u64, Bytes)>,
    /// Bytes of a value, where all have as many.
    width: Option<u64>,
    /// Bytes of the longest value.
    pub(super) longest: u64,
}

impl Dictionary {
    pub(super) fn new(width: Option<u64>) -> Dictionary {
        Dictionary { parts: Vec::new(), width, longest: 0 }
    }

    /// Adds values, which are a column of a unit of its own.
    pub(super) fn add(&mut self, rows: u64, unit: Bytes) {
        let longest = (0..rows).filter_map(|row| layout::value(&unit, 0, row, self.width));
        self.longest = longest.map(|(value, _)| value.len() as u64).fold(self.longest, u64::max);
        self.parts.push((rows, unit));
    }

    fn value(&self, mut index: u64) -> Option<(Bytes, State)> {
        for (rows, unit) in &self.parts {
            if index < *rows {
                return layout::value(unit, 0, index, self.width);
            }
            index -= rows;
        }
        None
    }
}

/// What of a batch makes a column.
#[derive(Clone, Debug)]
pub(super) struct Cell<'a> {
    pub(super) storage: &'a Storage,
    /// Structs that it lies in: their validity comes first.
    pub(super) parents: usize,
    pub(super) rows: u64,
    /// Elements of its lists together.
    pub(super) elements: u64,
    pub(super) codec: Option<Codec>,
    pub(super) dictionary: Option<&'a Arc<Dictionary>>,
}

/// Bytes that a buffer may have more than what is needed of it: padding.
const PADDING_BYTES: u64 = 64 << 10;

/// Longest buffer of long strings: places in it are 31 bits.
const LONG_STRINGS_BYTES: u64 = 1 << 31;

/// Decodes a column; `stored` are its buffers.
///
/// # Errors
/// `Corrupt` for buffers that are too short, lead nowhere, or decompress to more than `most` bytes.
pub(super) fn decode(cell: &Cell<'_>, stored: &[Bytes], most: u64, mut writer: ColumnWriter<'_>) -> Result<()> {
    let rows = to_usize(cell.rows)?;
    let most = most.saturating_add(PADDING_BYTES);
    let own = cell.parents + 2;
    let plain = |(number, bytes): (usize, &Bytes)| {
        let is_long_strings = *cell.storage == Storage::View && number >= own;
        plain(bytes, cell.codec, if is_long_strings { LONG_STRINGS_BYTES } else { most })
    };
    let buffers: Vec<Bytes> = stored.iter().enumerate().map(plain).collect::<Result<_>>()?;
    let fewest = cell.parents + cell.storage.buffers();
    if buffers.len() < fewest {
        return Err(corrupt("buffers are missing"));
    }
    let (valid, buffers) = buffers.split_at(cell.parents + 1);
    let valid = Valid::new(valid, rows)?;
    match cell.storage {
        Storage::Bits => {
            let values = bits(&buffers[0], rows)?;
            fixed(&values, 1, rows, &valid, &mut writer)?;
        }
        Storage::Fixed(width) => fixed(&buffers[0], to_usize(*width)?, rows, &valid, &mut writer)?,
        Storage::FixedList { count, element } => {
            let count = to_usize(*count)?;
            let elements = rows.checked_mul(count).ok_or_else(too_short)?;
            let inside = Valid::new(&buffers[..1], elements)?;
            let width = to_usize(element.width())?;
            let values = elements_of(*element, &buffers[1], elements)?;
            let row_bytes = count * width;
            for row in 0..rows {
                let all = inside.all(row * count, (row + 1) * count);
                let state = valid.state(row, all);
                write_row(&mut writer, &values, row * row_bytes, (row + 1) * row_bytes, state)?;
            }
        }
        Storage::List { is_wide, element } => {
            let offsets = Offsets { bytes: &buffers[0], is_wide: *is_wide, rows }.checked()?;
            let elements = to_usize(cell.elements)?;
            let inside = Valid::new(&buffers[1..2], elements)?;
            let width = to_usize(element.width())?;
            let values = elements_of(*element, &buffers[2], elements)?;
            for row in 0..rows {
                let (start, end) = offsets.row(row, elements)?;
                let state = valid.state(row, inside.all(start, end));
                write_row(&mut writer, &values, start * width, end * width, state)?;
            }
        }
        Storage::Binary { is_wide } => {
            let offsets = Offsets { bytes: &buffers[0], is_wide: *is_wide, rows }.checked()?;
            for row in 0..rows {
                let (start, end) = offsets.row(row, buffers[1].len())?;
                write_row(&mut writer, &buffers[1], start, end, valid.state(row, true))?;
            }
        }
        Storage::View => {
            for row in 0..rows {
                match valid.state(row, true) {
                    State::Valid => {
                        writer.elements(viewed(&buffers[0], &buffers[1..], row)?)?;
                        writer.end_row(State::Valid)?;
                    }
                    state => writer.end_row(state)?,
                }
            }
        }
        Storage::Dictionary { index_bytes, .. } => {
            let Some(dictionary) = cell.dictionary else { return Err(corrupt("its dictionary is missing")) };
            numbers(&buffers[0], to_usize(*index_bytes)?, rows, &valid, dictionary, &mut writer)?;
        }
    }
    writer.finish()
}

/// Decodes a column by itself, into a unit of its own, for a dictionary.
pub(super) fn decode_alone(cell: &Cell<'_>, stored: &[Bytes], width: Option<u64>, room: u64) -> Result<Bytes> {
    let kind = width.map_or(Room::Ragged(room), Room::Fixed);
    let most = bound(cell.rows, [(true, kind)].into_iter()).filter(|&most| most <= DICTIONARY_BYTES_MAX);
    let Some(most) = most else {
        let what = format!("the dictionary has more than {DICTIONARY_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::Unavailable, what).with_remedy("write the column without a dictionary"));
    };
    let mut out = vec![0; to_usize(most)?];
    let mut writer = Writer::new(&mut out, cell.rows, 1)?;
    let width = width.map(to_usize).transpose()?;
    decode(cell, stored, most, writer.column(true, width)?)?;
    let len = writer.finish();
    out.truncate(len);
    out.shrink_to_fit();
    Ok(out.into())
}

/// Dictionaries stay in memory, beside the loader's.
const DICTIONARY_BYTES_MAX: u64 = 1 << 30;

/// The bytes that all views of a column lead to, which may be the same again and again.
pub(super) fn viewed_bytes(views: &Bytes, codec: Option<Codec>, rows: u64) -> Result<u64> {
    let most = rows.saturating_mul(VIEW_BYTES as u64).saturating_add(PADDING_BYTES);
    let views = plain(views, codec, most)?;
    let rows = to_usize(rows)?;
    let views = rows.checked_mul(VIEW_BYTES).and_then(|len| views.get(..len)).ok_or_else(too_short)?;
    Ok(views.chunks_exact(VIEW_BYTES).map(|view| u64::from(u32_at(view, 0))).sum())
}

/// Length that a buffer has when it is decompressed, by its first bytes.
pub(super) fn plain_len(head: &[u8], stored: u64) -> Option<u64> {
    let head: [u8; 8] = head.get(..8)?.try_into().ok()?;
    match head {
        NOT_COMPRESSED => stored.checked_sub(8),
        len => u64::try_from(i64::from_le_bytes(len)).ok(),
    }
}

/// Stands for the length of a buffer that compression would have made longer: -1.
const NOT_COMPRESSED: [u8; 8] = [0xff; 8];

/// A buffer, decompressed. Takes memory as bytes come, not by what is claimed.
fn plain(stored: &Bytes, codec: Option<Codec>, most: u64) -> Result<Bytes> {
    let Some(codec) = codec.filter(|_| !stored.is_empty()) else { return Ok(stored.clone()) };
    let Some(len) = plain_len(stored, stored.len() as u64) else {
        return Err(corrupt("a compressed buffer does not say its length"));
    };
    let is_stored = stored[..8] == NOT_COMPRESSED;
    let stored = stored.slice(8..);
    if is_stored {
        return Ok(stored);
    }
    if len > most {
        return Err(corrupt(&format!(
            "a buffer says that it decompresses to {len} bytes, and at most {most} are expected"
        )));
    }
    let mut bytes = Vec::new();
    let read = match codec {
        Codec::Lz4 => lz4_flex::frame::FrameDecoder::new(&stored[..]).take(len + 1).read_to_end(&mut bytes),
        Codec::Zstd => zstd::stream::read::Decoder::with_buffer(&stored[..])
            .and_then(|decoder| decoder.take(len + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|cause| corrupt("a buffer cannot be decompressed").with_source(cause))?;
    match bytes.len() as u64 == len {
        true => Ok(bytes.into()),
        false => Err(corrupt(&format!("a buffer of {len} bytes decompresses to {}", bytes.len()))),
    }
}

/// Which rows have a value: one bit a row in each of several buffers, of which those without a byte say yes.
struct Valid<'a> {
    buffers: Vec<&'a [u8]>,
}

impl<'a> Valid<'a> {
    fn new(buffers: &'a [Bytes], rows: usize) -> Result<Valid<'a>> {
        let buffers: Vec<&[u8]> = buffers.iter().filter(|bits| !bits.is_empty()).map(|bits| &bits[..]).collect();
        match buffers.iter().all(|bits| bits.len() >= rows.div_ceil(8)) {
            true => Ok(Valid { buffers }),
            false => Err(too_short()),
        }
    }

    /// Below the number that `new` was given.
    fn is(&self, row: usize) -> bool {
        self.buffers.iter().all(|bits| bit(bits, row))
    }

    fn all(&self, start: usize, end: usize) -> bool {
        self.buffers.is_empty() || (start..end).all(|row| self.is(row))
    }

    /// Of a row whose elements all have values, or not.
    fn state(&self, row: usize, has_all: bool) -> State {
        match (self.is(row), has_all) {
            (false, _) => State::Null,
            (true, false) => State::NullInside,
            (true, true) => State::Valid,
        }
    }
}

fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

/// Bits as bytes.
fn bits(bytes: &[u8], count: usize) -> Result<Bytes> {
    let bytes = bytes.get(..count.div_ceil(8)).ok_or_else(too_short)?;
    Ok((0..count).map(|at| u8::from(bit(bytes, at))).collect::<Vec<u8>>().into())
}

/// The elements of lists as they are delivered, all of them there.
fn elements_of(element: Element, buffer: &Bytes, count: usize) -> Result<Bytes> {
    match element {
        Element::Bit => bits(buffer, count),
        Element::Bytes(width) => {
            let len = count.checked_mul(to_usize(width)?).filter(|&len| len <= buffer.len());
            Ok(buffer.slice(..len.ok_or_else(too_short)?))
        }
    }
}

fn fixed(bytes: &Bytes, width: usize, rows: usize, valid: &Valid<'_>, writer: &mut ColumnWriter<'_>) -> Result<()> {
    let values = rows.checked_mul(width).and_then(|len| bytes.get(..len)).ok_or_else(too_short)?;
    if valid.buffers.is_empty() {
        return writer.whole_rows(values, rows);
    }
    for (row, value) in values.chunks_exact(width).enumerate() {
        match valid.state(row, true) {
            State::Valid => writer.whole_rows(value, 1)?,
            state => writer.end_row(state)?,
        }
    }
    Ok(())
}

/// Writes a row whose value are the bytes from `start` to `end`. A null one has none, whatever lies there.
fn write_row(writer: &mut ColumnWriter<'_>, values: &[u8], start: usize, end: usize, state: State) -> Result<()> {
    if state == State::Valid {
        writer.elements(values.get(start..end).ok_or_else(too_short)?)?;
    }
    writer.end_row(state)
}

/// Where each row of a column begins and ends.
struct Offsets<'a> {
    bytes: &'a [u8],
    is_wide: bool,
    rows: usize,
}

impl Offsets<'_> {
    fn checked(self) -> Result<Self> {
        let width = if self.is_wide { 8 } else { 4 };
        let needed = self.rows.checked_add(1).and_then(|count| count.checked_mul(width));
        match self.rows == 0 || needed.is_some_and(|needed| needed <= self.bytes.len()) {
            true => Ok(self),
            false => Err(too_short()),
        }
    }

    /// Of a row that there is; within `len`.
    fn row(&self, row: usize, len: usize) -> Result<(usize, usize)> {
        let (start, end) = (self.at(row), self.at(row + 1));
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= len => Ok((start, end)),
            _ => Err(corrupt(&format!("the offsets of row {row} are wrong"))),
        }
    }

    fn at(&self, number: usize) -> Option<usize> {
        match self.is_wide {
            true => usize::try_from(u64_at(self.bytes, 8 * number)).ok(),
            false => usize::try_from(u32_at(self.bytes, 4 * number)).ok(),
        }
    }
}

const VIEW_BYTES: usize = 16;
/// Longest string that lies in its view.
const SHORT_BYTES: usize = 12;

/// A string by its view: `u32` length, then the string itself, or 4 bytes of it, `u32` buffer and `u32` offset.
fn viewed<'a>(views: &'a [u8], buffers: &'a [Bytes], row: usize) -> Result<&'a [u8]> {
    let at = row * VIEW_BYTES;
    let view = views.get(at..at + VIEW_BYTES).ok_or_else(too_short)?;
    let len = to_usize(u32_at(view, 0).into())?;
    if len <= SHORT_BYTES {
        return Ok(&view[4..4 + len]);
    }
    let (buffer, offset) = (to_usize(u32_at(view, 8).into())?, to_usize(u32_at(view, 12).into())?);
    let found = buffers.get(buffer).and_then(|bytes| bytes.get(offset..offset.checked_add(len)?));
    found.ok_or_else(|| corrupt(&format!("the view of row {row} points to no string")))
}

fn numbers(
    indexes: &[u8],
    width: usize,
    rows: usize,
    valid: &Valid<'_>,
    dictionary: &Dictionary,
    writer: &mut ColumnWriter<'_>,
) -> Result<()> {
    let indexes = rows.checked_mul(width).and_then(|len| indexes.get(..len)).ok_or_else(too_short)?;
    for (row, index) in indexes.chunks_exact(width).enumerate() {
        if !valid.is(row) {
            writer.end_row(State::Null)?;
            continue;
        }
        let mut number = [0; 8];
        number[..width].copy_from_slice(index);
        // A number below 0 is one of the largest here, and of no value.
        let found = dictionary.value(u64::from_le_bytes(number));
        let (value, state) =
            found.ok_or_else(|| corrupt(&format!("row {row} points behind the end of the dictionary")))?;
        if state == State::Valid {
            writer.elements(&value)?;
        }
        writer.end_row(state)?;
    }
    Ok(())
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what.to_owned())
}

fn too_short() -> Error {
    corrupt("a buffer is shorter than its rows need")
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| corrupt(&format!("the number {number} is too large for this machine")))
}
