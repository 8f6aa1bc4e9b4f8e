//! Decodes the buffers of a record batch into a column of a unit.

use super::nested::{Array, Node, Tree};
use super::schema::{Element, Leaf, Storage};
use crate::compression::{Compression, fill};
use crate::formats::columnar::json::Text;
use crate::formats::columnar::layout::{self, ColumnWriter, Room, State, Writer, bound};
use crate::formats::columnar::{ByteRange, Fill};
use crate::index::headers::{u32_at, u64_at};
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

/// The values that a column refers to by number: those that came first, and those that were added.
#[derive(Clone, Debug)]
pub(super) struct Dictionary {
    parts: Vec<(u64, Bytes)>,
    /// Bytes of a value, if all have the same length.
    width: Option<u64>,
    /// Bytes of the longest value.
    pub(super) longest: u64,
}

impl Dictionary {
    pub(super) fn new(width: Option<u64>) -> Dictionary {
        Dictionary { parts: Vec::new(), width, longest: 0 }
    }

    /// Adds values, which are the only column of `unit`.
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

/// A column of a record batch.
#[derive(Clone, Debug)]
pub struct Buffers {
    pub(super) places: Box<[ByteRange]>,
    /// Elements of its lists together.
    pub(super) elements: u64,
    /// Its nodes, where it is nested.
    pub(super) nodes: Box<[Node]>,
    /// The most bytes that its buffers decompress to together.
    pub(super) plain: u64,
    pub(super) codec: Option<Codec>,
    pub(super) dictionary: Option<Arc<Dictionary>>,
}

/// How many bytes of padding a buffer may have.
const PADDING_BYTES: u64 = 64 << 10;

/// Decodes `rows` rows of a column; `stored` are its buffers. `memory` is counted, unless a file is just being opened:
/// then it grows with the bytes that come, not with the length that is claimed.
///
/// # Errors
/// `Corrupt` for buffers that are too short, lead nowhere, or decompress to more bytes than expected.
pub(super) fn decode(
    leaf: &Leaf,
    part: &Buffers,
    rows: u64,
    stored: &[Bytes],
    memory: Memory,
    mut writer: ColumnWriter<'_>,
) -> Result<()> {
    let rows = to_usize(rows)?;
    // The validity of the structs around it comes first, then its own.
    let own = leaf.parents.len() + 1;
    let mut left = part.plain;
    let mut buffers = Vec::with_capacity(stored.len());
    for bytes in stored {
        let buffer = plain(bytes, part.codec, left.saturating_add(PADDING_BYTES), memory)?;
        left = left.saturating_sub(buffer.len() as u64);
        buffers.push(buffer);
    }
    if buffers.len() < leaf.parents.len() + leaf.storage.buffers() {
        return Err(corrupt("buffers are missing"));
    }
    if leaf.storage == Storage::Absent {
        (0..rows).try_for_each(|_| writer.end_row(State::Null))?;
        return writer.finish();
    }
    if let Storage::Nested(tree) = &leaf.storage {
        return nested(tree, leaf.parents.len(), part, rows, &buffers, writer);
    }
    let (valid, buffers) = buffers.split_at(own);
    let valid = Valid::new(valid, rows)?;
    match &leaf.storage {
        Storage::Fixed(element) => {
            let (values, width) = (elements_of(*element, &buffers[0], rows)?, to_usize(element.width())?);
            if valid.buffers.is_empty() {
                writer.whole_rows(&values, rows)?;
            } else {
                each_row(rows, &valid, &mut writer, |row| Ok((&values[row * width..][..width], State::Valid)))?;
            }
        }
        Storage::List { element, .. } => {
            let (ends, elements) = (Ends::of(&leaf.storage, &buffers[0], rows)?, to_usize(part.elements)?);
            let inside = Valid::new(&buffers[1..2], elements)?;
            let (values, width) = (elements_of(*element, &buffers[2], elements)?, to_usize(element.width())?);
            lists((rows, elements), (&valid, &inside), &ends, (&values, width), &mut writer)?;
        }
        Storage::FixedList { counts, element } => {
            let each = counts.iter().try_fold(1, |each: u64, &count| each.checked_mul(count));
            let each = to_usize(each.ok_or_else(too_short)?)?;
            let elements = rows.checked_mul(each).ok_or_else(too_short)?;
            let (levels, values) = (&buffers[..counts.len()], &buffers[counts.len()]);
            let (values, width) = (elements_of(*element, values, elements)?, to_usize(element.width())?);
            let bits = [valid_elements((rows, elements), counts, levels)?];
            let inside = Valid::new(&bits, elements)?;
            lists((rows, elements), (&valid, &inside), &Ends::Every(each), (&values, width), &mut writer)?;
        }
        Storage::Binary { .. } => {
            let (ends, bytes) = (Ends::of(&leaf.storage, &buffers[0], rows)?, &buffers[1]);
            each_row(rows, &valid, &mut writer, |row| {
                let (start, end) = ends.row(row, bytes.len())?;
                Ok((&bytes[start..end], State::Valid))
            })?;
        }
        Storage::View => {
            let (views, strings) = buffers.split_at(1);
            each_row(rows, &valid, &mut writer, |row| Ok((viewed(&views[0], strings, row)?, State::Valid)))?;
        }
        Storage::Nulls { is_wide, width } => {
            let (ends, elements) = (Ends::new(*is_wide, &buffers[0], rows)?, to_usize(part.elements)?);
            for row in 0..rows {
                let (start, end) = if valid.is(row) { ends.row(row, elements)? } else { (0, 0) };
                writer.nulls(end - start, to_usize(*width)?)?;
                writer.end_row(match (valid.is(row), start == end) {
                    (false, _) => State::Null,
                    (true, true) => State::Valid,
                    (true, false) => State::NullInside,
                })?;
            }
        }
        Storage::Nested(_) | Storage::Absent => return Err(corrupt("a column was taken for a plain one")),
        Storage::Dictionary { index_bytes, .. } => {
            let dictionary = part.dictionary.as_ref().ok_or_else(|| corrupt("its dictionary is missing"))?;
            let width = to_usize(*index_bytes)?;
            let indexes = elements_of(Element::Bytes(*index_bytes), &buffers[0], rows)?;
            each_row(rows, &valid, &mut writer, |row| {
                let mut number = [0; 8];
                number[..width].copy_from_slice(&indexes[row * width..][..width]);
                // A negative number becomes one that is too large.
                let found = dictionary.value(u64::from_le_bytes(number));
                found.ok_or_else(|| corrupt(&format!("row {row} points past the end of the dictionary")))
            })?;
        }
    }
    writer.finish()
}

/// The bits of the elements of lists of these lengths: one is set where the element has a value, and so have the lists
/// that it is in, up to the row. `levels` are the bits of the lists in a row, of those in them, and so on.
fn valid_elements((rows, elements): (usize, usize), counts: &[u64], levels: &[Bytes]) -> Result<Bytes> {
    let Some((own, lists)) = levels.split_last() else { return Err(too_short()) };
    let len = elements.div_ceil(8);
    if lists.iter().all(Bytes::is_empty) {
        return Ok(own.clone());
    }
    let mut bits = if own.is_empty() { vec![0xff; len] } else { own.get(..len).ok_or_else(too_short)?.to_vec() };
    let mut count = rows;
    for (list, length) in lists.iter().zip(counts) {
        // Neither is more than all elements, or there are none.
        count = count.saturating_mul(to_usize(*length)?);
        let each = elements.checked_div(count).unwrap_or(0);
        let valid = Valid::new(std::slice::from_ref(list), count)?;
        for number in (0..count).filter(|&number| !valid.is(number)) {
            (number * each..(number + 1) * each).for_each(|element| bits[element / 8] &= !(1 << (element % 8)));
        }
    }
    Ok(bits.into())
}

/// Writes rows that are lists of values, some of which may be missing.
fn lists(
    (rows, elements): (usize, usize),
    (valid, inside): (&Valid<'_>, &Valid<'_>),
    ends: &Ends<'_>,
    (values, width): (&[u8], usize),
    writer: &mut ColumnWriter<'_>,
) -> Result<()> {
    for row in 0..rows {
        if !valid.is(row) {
            writer.end_row(State::Null)?;
            continue;
        }
        let (start, end) = ends.row(row, elements)?;
        if inside.all(start, end) {
            writer.elements(&values[start * width..end * width])?;
            writer.end_row(State::Valid)?;
            continue;
        }
        for element in start..end {
            if inside.is(element) {
                writer.elements(&values[element * width..][..width])?;
            } else {
                writer.nulls(1, width)?;
            }
        }
        writer.end_row(State::NullInside)?;
    }
    Ok(())
}

/// Decodes a nested column. The validity of the structs around it comes first.
fn nested(
    tree: &Tree,
    parents: usize,
    part: &Buffers,
    rows: usize,
    buffers: &[Bytes],
    mut writer: ColumnWriter<'_>,
) -> Result<()> {
    let (parents, mut buffers) = buffers.split_at_checked(parents).ok_or_else(too_short)?;
    let around = Valid::new(parents, rows)?;
    let array = Array::take(tree, rows, &mut &*part.nodes, &mut buffers)?;
    let mut text = Text::new(&mut writer);
    for row in 0..rows {
        let is_there = around.is(row) && array.is_valid(row);
        if is_there {
            array.write(row, &mut text)?;
        }
        text.writer().end_row(if is_there { State::Valid } else { State::Null })?;
    }
    writer.finish()
}

/// Writes rows. A null has no value, whatever the buffer holds in its place.
fn each_row<B: AsRef<[u8]>>(
    rows: usize,
    valid: &Valid<'_>,
    writer: &mut ColumnWriter<'_>,
    value: impl Fn(usize) -> Result<(B, State)>,
) -> Result<()> {
    for row in 0..rows {
        if !valid.is(row) {
            writer.end_row(State::Null)?;
            continue;
        }
        let (bytes, state) = value(row)?;
        if state == State::Valid {
            writer.elements(bytes.as_ref())?;
        }
        writer.end_row(state)?;
    }
    Ok(())
}

/// Decodes the values of a dictionary into a unit of their own.
pub(super) fn decode_alone(
    leaf: &Leaf,
    part: &Buffers,
    rows: u64,
    stored: &[Bytes],
    width: Option<u64>,
    room: u64,
) -> Result<Bytes> {
    let kind = width.map_or(Room::Ragged(room), Room::Fixed);
    let most = bound(rows, [(true, kind)].into_iter()).filter(|&most| most <= DICTIONARY_BYTES_MAX);
    let Some(most) = most else {
        let what = format!("the dictionary has more than {DICTIONARY_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::Unavailable, what).with_remedy("write the column without a dictionary"));
    };
    let mut out = vec![0; to_usize(most)?];
    let mut writer = Writer::new(&mut out, rows, 1)?;
    let width = width.map(to_usize).transpose()?;
    decode(leaf, part, rows, stored, Memory::Grows, writer.column(true, width, Fill::ZERO)?)?;
    let len = writer.finish();
    out.truncate(len);
    out.shrink_to_fit();
    Ok(out.into())
}

/// The most memory of a dictionary, which is not part of the loader's.
const DICTIONARY_BYTES_MAX: u64 = 1 << 30;

/// Returns the total length of the strings that views lead to. Many views may lead to the same string.
pub(super) fn viewed_bytes(views: &Bytes, codec: Option<Codec>, rows: u64) -> Result<u64> {
    let most = rows.saturating_mul(VIEW_BYTES as u64).saturating_add(PADDING_BYTES);
    let views = plain(views, codec, most, Memory::Grows)?;
    let rows = to_usize(rows)?;
    let views = rows.checked_mul(VIEW_BYTES).and_then(|len| views.get(..len)).ok_or_else(too_short)?;
    Ok(views.chunks_exact(VIEW_BYTES).map(|view| u64::from(u32_at(view, 0))).sum())
}

/// Returns the decompressed length of a buffer, which its first bytes say.
pub(super) fn plain_len(head: &[u8], stored: u64) -> Option<u64> {
    let head: [u8; 8] = head.get(..8)?.try_into().ok()?;
    match head {
        NOT_COMPRESSED => stored.checked_sub(8),
        len => u64::try_from(i64::from_le_bytes(len)).ok(),
    }
}

/// A length of -1 marks a buffer that was not compressed, because that would have made it longer.
const NOT_COMPRESSED: [u8; 8] = [0xff; 8];

/// How memory is taken for what is decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// As much as is claimed, at once: it was counted before.
    Counted,
    /// It grows with the bytes that come.
    Grows,
}

/// Decompresses a buffer of up to `most` bytes.
fn plain(stored: &Bytes, codec: Option<Codec>, most: u64, memory: Memory) -> Result<Bytes> {
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
    let lz4 = || lz4_flex::frame::FrameDecoder::new(&stored[..]);
    let read = match (codec, memory) {
        (_, Memory::Counted) => {
            bytes = vec![0; to_usize(len)?];
            // Without a window of its own.
            let filled = match codec {
                Codec::Lz4 => fill(&mut lz4(), &mut bytes),
                Codec::Zstd => Compression::Zstd.decode(&stored, &mut bytes),
            };
            filled.map(|filled| bytes.truncate(filled))
        }
        (Codec::Lz4, _) => lz4().take(len + 1).read_to_end(&mut bytes).map(drop),
        (Codec::Zstd, _) => zstd::stream::read::Decoder::with_buffer(&stored[..])
            .and_then(|decoder| decoder.take(len + 1).read_to_end(&mut bytes))
            .map(drop),
    };
    read.map_err(|cause| corrupt("a buffer cannot be decompressed").with_source(cause))?;
    if bytes.len() as u64 != len {
        return Err(corrupt(&format!("a buffer of {len} bytes decompresses to {}", bytes.len())));
    }
    Ok(bytes.into())
}

/// Which rows have a value: a bit for each row in several buffers. An empty buffer means all.
struct Valid<'a> {
    buffers: Vec<&'a [u8]>,
}

impl<'a> Valid<'a> {
    fn new(buffers: &'a [Bytes], rows: usize) -> Result<Valid<'a>> {
        let buffers: Vec<&[u8]> = buffers.iter().filter(|bits| !bits.is_empty()).map(|bits| &bits[..]).collect();
        let is_enough = buffers.iter().all(|bits| bits.len() >= rows.div_ceil(8));
        is_enough.then_some(Valid { buffers }).ok_or_else(too_short)
    }

    /// `row` is below the number that `new` was given.
    fn is(&self, row: usize) -> bool {
        self.buffers.iter().all(|bits| bit(bits, row))
    }

    fn all(&self, start: usize, end: usize) -> bool {
        self.buffers.is_empty() || (start..end).all(|row| self.is(row))
    }
}

pub(super) fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

/// Returns `count` elements in the form in which they are delivered.
pub(super) fn elements_of(element: Element, buffer: &Bytes, count: usize) -> Result<Bytes> {
    match element {
        Element::Bit => {
            let bits = buffer.get(..count.div_ceil(8)).ok_or_else(too_short)?;
            Ok((0..count).map(|at| u8::from(bit(bits, at))).collect::<Vec<u8>>().into())
        }
        Element::Bytes(width) => {
            let len = count.checked_mul(to_usize(width)?).filter(|&len| len <= buffer.len());
            Ok(buffer.slice(..len.ok_or_else(too_short)?))
        }
    }
}

/// Where the elements of each row end, and those of the next begin.
pub(super) enum Ends<'a> {
    /// Every row has this many.
    Every(usize),
    /// Offsets of 4 bytes.
    Narrow(&'a [u8]),
    /// Offsets of 8 bytes.
    Wide(&'a [u8]),
}

impl Ends<'_> {
    fn of<'a>(storage: &Storage, bytes: &'a [u8], rows: usize) -> Result<Ends<'a>> {
        let is_wide = matches!(storage, Storage::List { is_wide: true, .. } | Storage::Binary { is_wide: true });
        Ends::new(is_wide, bytes, rows)
    }

    pub(super) fn new(is_wide: bool, bytes: &[u8], rows: usize) -> Result<Ends<'_>> {
        let needed = rows.checked_add(1).and_then(|count| count.checked_mul(if is_wide { 8 } else { 4 }));
        if rows > 0 && needed.is_none_or(|needed| needed > bytes.len()) {
            return Err(too_short());
        }
        Ok(if is_wide { Ends::Wide(bytes) } else { Ends::Narrow(bytes) })
    }

    /// Returns where the elements of a row begin and end, within `len` elements.
    #[inline]
    pub(super) fn row(&self, row: usize, len: usize) -> Result<(usize, usize)> {
        let at = |number: usize| match self {
            Ends::Every(count) => number.checked_mul(*count),
            Ends::Narrow(bytes) => usize::try_from(u32_at(bytes, 4 * number)).ok(),
            Ends::Wide(bytes) => usize::try_from(u64_at(bytes, 8 * number)).ok(),
        };
        match (at(row), at(row + 1)) {
            (Some(start), Some(end)) if start <= end && end <= len => Ok((start, end)),
            _ => Err(wrong_offsets(row)),
        }
    }
}

#[cold]
fn wrong_offsets(row: usize) -> Error {
    corrupt(&format!("the offsets of row {row} are wrong"))
}

const VIEW_BYTES: usize = 16;
/// The longest string that fits into its view.
const SHORT_BYTES: usize = 12;

/// Returns the string of a view: a `u32` length, then the string itself or 4 bytes of it, a `u32` buffer and a `u32`
/// offset.
pub(super) fn viewed<'a>(views: &'a [u8], buffers: &'a [Bytes], row: usize) -> Result<&'a [u8]> {
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

pub(super) fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what.to_owned())
}

pub(super) fn too_short() -> Error {
    corrupt("a buffer is shorter than its rows need")
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| corrupt(&format!("the number {number} is too large for this machine")))
}
