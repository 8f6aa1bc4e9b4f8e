//! Reads the metadata of a Parquet file: its row groups, the places of the wanted columns' chunks, and how much memory
//! they take when they are decoded.

use super::chunk::{Chunk, Chunks};
use super::decode::{decoded_bytes, total_bytes};
use super::lengths;
use super::metadata::{ChunkMetadata, Metadata, RowGroup};
use super::schema::{Build, Form, Leaf, Stem, columns_of};
use super::types::{Compression, Encoding};
use super::values::Stored;
use crate::dataset::FileId;
use crate::formats::arrow::tables::Schema;
use crate::formats::columnar::json::{Scalar, text_room};
use crate::formats::columnar::layout::{Room, bound};
use crate::formats::columnar::{BROTLI_BYTES, ByteRange, Column, Group, LZ4_FRAME_BYTES, Listing, Wanted};
use crate::index::headers::{Source, u32_at};
use uringload_core::{Error, ErrorKind, Result};

/// The first and the last bytes of a file.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";
/// The same for files with encrypted metadata.
const MAGIC_ENCRYPTED: &[u8; 4] = b"PARE";
/// What follows the metadata: its length and the magic.
const TAIL_BYTES: u64 = 8;
/// How much of the end of a file is read at once. Most metadata fits.
const GUESS_BYTES: u64 = 64 << 10;

/// Reads the metadata of a file, and whatever else shows how much memory its row groups take. `first` are the columns
/// of the first file, if it is another.
pub(super) fn read(
    source: &Source,
    file: FileId,
    wanted: Wanted<'_>,
    first: Option<&[Column]>,
) -> Result<Listing<Leaf, Chunks>> {
    let (metadata, end) = metadata(source)?;
    let mut listing = columns(source, end, &metadata, wanted)?;
    for ((column, leaf), first) in listing.columns.iter_mut().zip(&mut listing.leaves).zip(first.unwrap_or_default()) {
        leaf.like(&mut column.kind, &first.kind);
    }
    for (number, group) in metadata.groups.iter().enumerate() {
        let rows = u64::try_from(group.rows)
            .map_err(|_| source.corrupt(end, format!("row group {number} has {} rows", group.rows)))?;
        if rows == 0 {
            continue;
        }
        if listing.stored.is_empty() {
            listing.stored = listing.leaves.iter().map(|leaf| stored_as(&group.chunks[leaf.stems[0].number])).collect();
        }
        let (mut rooms, mut stored, mut scratch) = (Vec::with_capacity(listing.columns.len()), 0_u64, 0_u64);
        for (column, leaf) in listing.columns.iter().zip(&listing.leaves) {
            let found = leaf.stems.iter().map(|stem| chunk(source, end, rows, group, leaf, stem));
            let found = found.collect::<Result<Box<[Chunk]>>>();
            let chunks = found.map_err(|error| of_chunk(error, number, &column.name, source))?;
            let room = chunks.iter().map(|chunk| chunk.room).fold(0, u64::saturating_add);
            rooms.push((column.kind.is_nullable, column.kind.width().map_or(Room::Ragged(room), Room::Fixed)));
            stored = chunks.iter().map(|chunk| chunk.place.len).fold(stored, u64::saturating_add);
            // Columns are decoded one after the other, the leaves of a nested one together.
            scratch = scratch.max(chunks.iter().map(|chunk| chunk.scratch).fold(0, u64::saturating_add));
            listing.parts.push(Chunks { places: chunks.iter().map(|chunk| chunk.place).collect(), chunks });
        }
        let decoded = bound(rows, rooms.into_iter()).ok_or_else(|| {
            source.corrupt(end, format!("row group {number} says that it has {rows} rows and more than 2^63 bytes"))
        })?;
        // A footer has at most 2^32 bytes, and each row group takes some.
        listing.groups.push(Group { file, number: number as u32, rows, stored, decoded, scratch });
    }
    Ok(listing)
}

/// Returns the wanted columns. The metadata begins at `end`.
fn columns(source: &Source, end: u64, metadata: &Metadata, wanted: Wanted<'_>) -> Result<Listing<Leaf, Chunks>> {
    let broken = |what: String| {
        source
            .corrupt(end, format!("the Arrow schema in the footer is broken: {what}"))
            .with_remedy("write the file again, also without that schema (pyarrow: store_schema=False)")
    };
    let text = metadata.arrow_schema.as_deref();
    let message = text.map(lengths::decoded).transpose().map_err(broken)?;
    let note = message.as_deref().map(Schema::alone).transpose().map_err(broken)?;
    let found = columns_of(&metadata.fields, note.as_ref().map(|note| &note.fields[..]));
    Listing::choose(found, wanted).map_err(|error| error.with_path(source.path()))
}

/// Returns the metadata, and where it begins.
fn metadata(source: &Source) -> Result<(Metadata, u64)> {
    let size = source.size();
    let (magic_len, least) = (MAGIC.len() as u64, MAGIC.len() as u64 + TAIL_BYTES);
    if size < least {
        return Err(source.truncated("the magic of Parquet"));
    }
    let read_at = size.saturating_sub(GUESS_BYTES);
    let guess = source.bytes(read_at, (size - read_at) as usize, "the footer")?;
    let tail = &guess[guess.len() - TAIL_BYTES as usize..];
    if &tail[4..] == MAGIC_ENCRYPTED {
        return Err(encrypted("the footer is", size - magic_len, source));
    }
    if &tail[4..] != MAGIC {
        return Err(source
            .corrupt(size - magic_len, "the end is not that of a Parquet file")
            .with_remedy("copy the file again; if it was being written, wait for the end"));
    }
    let len = u64::from(u32_at(tail, 0));
    if len > size - least {
        let what = format!("the footer says that it has {len} bytes, and the file has {}", size - least);
        return Err(source.corrupt(size - TAIL_BYTES, what));
    }
    let start = size - TAIL_BYTES - len;
    let longer = if start < read_at { source.bytes(start, len as usize, "the footer")? } else { Vec::new() };
    let bytes = match start.checked_sub(read_at) {
        // Both are bounded by the guess.
        Some(at) => &guess[at as usize..guess.len() - TAIL_BYTES as usize],
        None => &longer,
    };
    let metadata = Metadata::read(bytes);
    let metadata = metadata.map_err(|what| source.corrupt(start, format!("the footer is broken: {what}")))?;
    if metadata.is_encrypted { Err(encrypted("columns are", start, source)) } else { Ok((metadata, start)) }
}

fn encrypted(what: &str, offset: u64, source: &Source) -> Error {
    let error = source.unavailable(offset, format!("{what} encrypted"));
    error.with_remedy("write the file without encryption")
}

fn of_chunk(error: Error, group: usize, name: &str, source: &Source) -> Error {
    let what = format!("cannot read column {name:?} of row group {group}");
    Error::new(error.kind(), what).with_path(source.path()).with_source(error)
}

/// Returns the chunk of a leaf, which must be in the file.
fn chunk(source: &Source, end: u64, rows: u64, group: &RowGroup, leaf: &Leaf, stem: &Stem) -> Result<Chunk> {
    let chunk = &group.chunks[stem.number];
    if chunk.is_elsewhere {
        let error = Error::new(ErrorKind::Unavailable, "the column is in another file");
        return Err(error.with_remedy("open the files that have the data"));
    }
    let corrupt = |what: String| Error::new(ErrorKind::Corrupt, what).with_offset(end);
    let number = |number: i64, what: &str| u64::try_from(number).map_err(|_| corrupt(format!("{what} is {number}")));
    let data_at = number(chunk.data_at, "the place of its pages")?;
    // Some writers say 0 if there is no dictionary.
    let dictionary = chunk.dictionary_at.and_then(|at| u64::try_from(at).ok());
    let dictionary = dictionary.filter(|&at| at > 0 && at < data_at);
    let start = dictionary.unwrap_or(data_at);
    let len = number(chunk.stored, "its length")?;
    if start < MAGIC.len() as u64 || start.checked_add(len).is_none_or(|chunk_end| chunk_end > end) {
        return Err(corrupt(format!("{len} bytes from {start} on reach out of the file's data")));
    }
    let values = number(chunk.values, "its number of values")?;
    let decoded = number(chunk.decoded, "its length when it is decompressed")?;
    if stem.leaf.repetition == 0 && values != rows {
        return Err(corrupt(format!("there are {values} values for {rows} rows")));
    }
    let compression = chunk.compression;
    if compression == Compression::Lzo {
        let error = Error::new(ErrorKind::Unavailable, "the column is compressed with LZO");
        return Err(error.with_remedy("write the file with another compression"));
    }
    let place = ByteRange { offset: start, len };
    // As the first writers of DuckDB and some of fastparquet say it.
    let decoded = if decoded == 0 && len > 0 { decoded_bytes(source, place)? } else { decoded };
    let mut found = Chunk { place, values, decoded, compression, room: 0, scratch: 0 };
    found.room = room(source, chunk, &found, leaf, stem)?;
    found.scratch = scratch(chunk, &found, stem);
    Ok(found)
}

/// Returns the most bytes that decoding a chunk takes in addition to the stored and the decoded bytes: a dictionary
/// with a page, which the chunk's pages have together; where each string of a dictionary begins; and the string before,
/// if strings repeat its beginning. Uncompressed pages are used where they are stored.
fn scratch(metadata: &ChunkMetadata, chunk: &Chunk, stem: &Stem) -> u64 {
    let pages = match chunk.compression {
        Compression::Uncompressed => 0,
        Compression::Lz4 => chunk.decoded.saturating_add(LZ4_FRAME_BYTES),
        Compression::Brotli => chunk.decoded.saturating_add(BROTLI_BYTES),
        _ => chunk.decoded,
    };
    if stem.form != Form::Bytes {
        return pages;
    }
    let starts = chunk.values.saturating_mul(4).min(chunk.decoded);
    let before = if metadata.encodings.has(Encoding::DeltaByteArray) { chunk.decoded } else { 0 };
    pages.saturating_add(starts).saturating_add(before)
}

/// Returns the most bytes that the elements of a chunk take, if their number is not the number of rows.
///
/// Current writers put the length of strings into the footer. Without it, strings that are stored one by one take no
/// more than their pages. Only those that refer to others (to a dictionary, or to the string before) must be looked at,
/// once, when the file is opened.
fn room(source: &Source, metadata: &ChunkMetadata, chunk: &Chunk, leaf: &Leaf, stem: &Stem) -> Result<u64> {
    let too_many = || Error::new(ErrorKind::Corrupt, "there are too many values");
    match &leaf.build {
        // It follows from the number of rows.
        Build::Tensors(_) => Ok(0),
        Build::Values if stem.form != Form::Bytes => Ok(0),
        Build::Values => strings(source, metadata, chunk, stem),
        Build::Numbers(_) => chunk.values.checked_mul(stem.bytes).ok_or_else(too_many),
        Build::Nested(_) => {
            let entries = chunk.values.checked_mul(stem.words.saturating_add(stem.scalar.room()));
            let bytes = match (stem.scalar, Stored::of(&stem.leaf)) {
                (Scalar::Text | Scalar::Bytes, Stored::Fixed(width)) => chunk.values.saturating_mul(width as u64),
                (Scalar::Text | Scalar::Bytes, _) => strings(source, metadata, chunk, stem)?,
                _ => 0,
            };
            entries.and_then(|entries| entries.checked_add(text_room(bytes))).ok_or_else(too_many)
        }
    }
}

/// Returns the most bytes that the strings of a chunk take together.
fn strings(source: &Source, metadata: &ChunkMetadata, chunk: &Chunk, stem: &Stem) -> Result<u64> {
    if let Some(bytes) = metadata.strings {
        let what = "the length of its strings is below 0";
        return u64::try_from(bytes).map_err(|_| Error::new(ErrorKind::Corrupt, what));
    }
    let refers = [Encoding::PlainDictionary, Encoding::RleDictionary, Encoding::DeltaByteArray];
    // A chunk begins with its dictionary, if it has one.
    let has_dictionary = u64::try_from(metadata.data_at) != Ok(chunk.place.offset);
    if has_dictionary || refers.iter().any(|&encoding| metadata.encodings.has(encoding)) {
        total_bytes(source, chunk, stem)
    } else {
        Ok(chunk.decoded)
    }
}

fn stored_as(chunk: &ChunkMetadata) -> String {
    let encodings: Vec<String> = chunk.encodings.all().map(|encoding| encoding.to_string()).collect();
    let compression = match chunk.compression {
        Compression::Uncompressed => "not compressed".to_owned(),
        compression => compression.to_string(),
    };
    format!("{compression}, {}", encodings.join("+"))
}
