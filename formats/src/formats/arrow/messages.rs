//! Walks through the messages of a file (the schema, dictionaries and record batches) and finds where the buffers of
//! the wanted columns lie, and how much memory each batch takes when it is decoded.

use super::decode::{Buffers, Codec, Dictionary, decode_alone, plain_len, viewed_bytes};
use super::schema::{Columns, Element, Layout, Leaf, Node, Storage, read as read_schema};
use super::tables::{self, Batch, Block, CONTINUATION, Footer, Header, Schema, i64_at};
use crate::dataset::FileId;
use crate::formats::columnar::layout::{Room, bound};
use crate::formats::columnar::{ByteRange, Group, LZ4_FRAME_BYTES, Listing};
use crate::index::headers::{Source, u32_at};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// The first bytes of a file. It ends with the same, but without the zeros.
pub(super) const MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// What follows the footer of a file: its length and the magic.
const TAIL_BYTES: u64 = 10;

/// A message: its metadata, and the place of its body.
struct Message<'a> {
    header: Header<'a>,
    at: u64,
    body_at: u64,
    body_len: u64,
}

impl Message<'_> {
    fn end(&self) -> u64 {
        self.body_at + self.body_len
    }
}

/// Reads the metadata of a file or a stream, which is at `place` of the source, and its dictionaries. `choose` gets all
/// columns, and says which are wanted.
pub(super) fn read(
    source: &Source,
    file: FileId,
    place: Range<u64>,
    choose: impl FnOnce(Columns) -> Result<Listing<Leaf, Buffers>>,
) -> Result<Listing<Leaf, Buffers>> {
    let begin = |schema: &Schema<'_>, is_stream| {
        let placed = |error: Error| error.with_path(source.path());
        let Layout { nodes, columns, .. } = read_schema(schema).map_err(placed)?;
        Ok(BatchReader::new(source, file, nodes, choose(columns).map_err(placed)?, is_stream))
    };
    if is_file(source, &place)? { read_file(source, place, begin) } else { read_stream(source, place, begin) }
}

/// Reads which columns there are at `place` of the source, and nothing else.
pub(super) fn layout(source: &Source, place: Range<u64>) -> Result<Layout> {
    let placed = |error: Error| error.with_path(source.path());
    if is_file(source, &place)? {
        let (start, bytes) = footer(source, &place)?;
        return read_schema(&footer_schema(source, start, &bytes)?.1).map_err(placed);
    }
    let mut metadata = Vec::new();
    let first = message(source, place.start, place.end, &mut metadata)?;
    read_schema(stream_schema(source, place.start, first.as_ref())?.1).map_err(placed)
}

/// Whether it is a file and not a stream.
fn is_file(source: &Source, place: &Range<u64>) -> Result<bool> {
    let head = source.bytes(place.start, MAGIC.len(), "the magic of Arrow")?;
    if &head[..] != MAGIC && !head.starts_with(&CONTINUATION) {
        return Err(source.corrupt(place.start, "this is neither a file nor a stream of Arrow"));
    }
    Ok(&head[..] == MAGIC)
}

/// Reads the footer of a file. Returns where it begins.
fn footer(source: &Source, place: &Range<u64>) -> Result<(u64, Vec<u8>)> {
    let end = place.end;
    let magic = &MAGIC[..6];
    let least = place.start + MAGIC.len() as u64 + TAIL_BYTES;
    if end < least {
        return Err(source.truncated("the footer"));
    }
    let tail = source.bytes(end - TAIL_BYTES, TAIL_BYTES as usize, "the footer")?;
    if &tail[4..] != magic {
        return Err(source.truncated("the record batches, before the footer"));
    }
    let len = u64::from(u32_at(&tail, 0));
    if len > end - least {
        let what = format!("the footer says that it has {len} bytes, and the file has {}", end - least);
        return Err(source.corrupt(end - TAIL_BYTES, what));
    }
    let start = end - TAIL_BYTES - len;
    // The file has this many.
    Ok((start, source.bytes(start, len as usize, "the footer")?))
}

fn footer_schema<'a>(source: &Source, start: u64, bytes: &'a [u8]) -> Result<(Footer<'a>, Schema<'a>)> {
    let footer = Footer::read(bytes);
    let mut footer = footer.map_err(|what| source.corrupt(start, format!("the footer is broken: {what}")))?;
    let schema = footer.schema.take().ok_or_else(|| source.corrupt(start, "the footer has no schema"))?;
    Ok((footer, schema))
}

/// The first message of a stream, and the schema that it is.
fn stream_schema<'m, 'a>(
    source: &Source,
    start: u64,
    first: Option<&'m Message<'a>>,
) -> Result<(&'m Message<'a>, &'m Schema<'a>)> {
    let schema = first.and_then(|first| match &first.header {
        Header::Schema(schema) => Some((first, schema)),
        _ => None,
    });
    schema.ok_or_else(|| source.corrupt(start, "the stream does not begin with a schema"))
}

/// A file lists its batches in a footer.
fn read_file<'a>(
    source: &Source,
    place: Range<u64>,
    begin: impl FnOnce(&Schema<'_>, bool) -> Result<BatchReader<'a>>,
) -> Result<Listing<Leaf, Buffers>> {
    let (start, bytes) = footer(source, &place)?;
    let (footer, schema) = footer_schema(source, start, &bytes)?;
    let mut reader = begin(&schema, false)?;
    let mut metadata = Vec::new();
    for block in footer.dictionaries.iter().chain(footer.batches).map(Block::of) {
        let broken = || source.corrupt(start, "the footer lists a message that is not there");
        let offset = u64::try_from(block.offset).ok().and_then(|offset| offset.checked_add(place.start));
        let offset = offset.ok_or_else(broken)?;
        let message = message(source, offset, start, &mut metadata)?.ok_or_else(broken)?;
        let metadata_end = u64::try_from(block.metadata_len).ok().and_then(|len| offset.checked_add(len));
        if metadata_end != Some(message.body_at) || u64::try_from(block.body_len) != Ok(message.body_len) {
            return Err(source.corrupt(offset, "a message is not what the footer says"));
        }
        reader.add(&message)?;
    }
    Ok(reader.listing)
}

/// A stream is read to its end, which it marks.
fn read_stream<'a>(
    source: &Source,
    place: Range<u64>,
    begin: impl FnOnce(&Schema<'_>, bool) -> Result<BatchReader<'a>>,
) -> Result<Listing<Leaf, Buffers>> {
    let end = place.end;
    let mut metadata = Vec::new();
    let first = message(source, place.start, end, &mut metadata)?;
    let (first, schema) = stream_schema(source, place.start, first.as_ref())?;
    let mut reader = begin(schema, true)?;
    let mut at = first.end();
    loop {
        if at == end {
            return Err(source
                .truncated("a stream")
                .with_remedy("batches may be lost; if not, append ff ff ff ff 00 00 00 00, which ends a stream"));
        }
        let Some(next) = message(source, at, end, &mut metadata)? else { break };
        reader.add(&next)?;
        at = next.end();
    }
    Ok(reader.listing)
}

/// Reads the message at `at`, which must end before `end`. Its metadata is read into `metadata`. Returns `None` for the
/// end of a stream.
fn message<'a>(source: &Source, at: u64, end: u64, metadata: &'a mut Vec<u8>) -> Result<Option<Message<'a>>> {
    let mut head = [0; 8];
    let is_in = |bytes: u64| at.checked_add(bytes).is_some_and(|reached| reached <= end);
    if !is_in(8) {
        return Err(source.truncated("a message"));
    }
    source.read(at, &mut head, "a message")?;
    // Before version 0.15, a message began with its length.
    let is_new = head[..4] == CONTINUATION;
    let (len, metadata_at) = if is_new { (u32_at(&head, 4), at + 8) } else { (u32_at(&head, 0), at + 4) };
    if len == 0 {
        return Ok(None);
    }
    let body_at = metadata_at + u64::from(len);
    if body_at > end {
        return Err(source.truncated("a message"));
    }
    *metadata = source.bytes(metadata_at, len as usize, "a message")?;
    let read = tables::Message::read(metadata);
    let read = read.map_err(|what| source.corrupt(at, format!("a message is broken: {what}")))?;
    let body_len = u64::try_from(read.body_len).ok();
    let Some(body_len) = body_len.filter(|&len| body_at.checked_add(len).is_some_and(|reached| reached <= end)) else {
        return Err(source.truncated("the body of a message"));
    };
    Ok(Some(Message { header: read.header, at, body_at, body_len }))
}

struct BatchReader<'a> {
    source: &'a Source,
    file: FileId,
    nodes: Vec<Node>,
    dictionaries: BTreeMap<i64, Arc<Dictionary>>,
    batches: u32,
    is_stream: bool,
    listing: Listing<Leaf, Buffers>,
}

impl<'a> BatchReader<'a> {
    fn new(
        source: &'a Source,
        file: FileId,
        nodes: Vec<Node>,
        listing: Listing<Leaf, Buffers>,
        is_stream: bool,
    ) -> BatchReader<'a> {
        BatchReader { source, file, nodes, dictionaries: BTreeMap::new(), batches: 0, is_stream, listing }
    }

    fn add(&mut self, message: &Message<'_>) -> Result<()> {
        match &message.header {
            Header::Batch(batch) => self.add_batch(message, *batch),
            Header::Dictionary { id, data, is_delta } => self.add_dictionary(message, *id, *data, *is_delta),
            Header::Schema(_) => Err(self.source.corrupt(message.at, "there is a second schema")),
            // A tensor.
            Header::Other(_) => Err(self.source.corrupt(message.at, "there is a message that is no part of a table")),
        }
    }

    fn add_dictionary(
        &mut self,
        message: &Message<'_>,
        id: i64,
        data: Option<Batch<'_>>,
        is_delta: bool,
    ) -> Result<()> {
        let has_id = |leaf: &&Leaf| matches!(&leaf.storage, Storage::Dictionary { id: its, .. } if *its == id);
        let Some(number) = self.listing.leaves.iter().position(|leaf| has_id(&leaf)) else { return Ok(()) };
        let Storage::Dictionary { values, .. } = &self.listing.leaves[number].storage else { return Ok(()) };
        let known = self.dictionaries.get(&id);
        if !self.is_stream && known.is_some() && !is_delta {
            return Err(self.source.corrupt(message.at, "a dictionary comes twice"));
        }
        let broken = || self.source.corrupt(message.at, "a dictionary is broken");
        let data = data.ok_or_else(broken)?;
        let is_view = **values == Storage::View;
        let node = Node { buffers: values.buffers(), is_view, is_union: false };
        let found = Found::of(data, message, std::slice::from_ref(&node)).ok_or_else(broken)?;
        let leaf = Leaf { storage: (**values).clone(), node: 0, parents: Vec::new() };
        let width = self.listing.columns[number].kind.width();
        let part = found.part(&leaf, None).ok_or_else(broken)?;
        let placed = |error: Error| placed(error, message, self.source);
        let room = self.room(&leaf, &part, &found).map_err(placed)?;
        let part = Buffers { plain: self.plain(&leaf, &part, &found, width, room).map_err(placed)?, ..part };
        // All places are in the file.
        let read = |place: &ByteRange| self.source.bytes(place.offset, place.len as usize, "a dictionary");
        let stored = part.places.iter().map(|place| read(place).map(Bytes::from)).collect::<Result<Vec<_>>>()?;
        let unit = decode_alone(&leaf, &part, found.rows, &stored, width, room.0).map_err(placed)?;
        let mut dictionary = match known {
            Some(known) if is_delta => (**known).clone(),
            _ => Dictionary::new(width),
        };
        dictionary.add(found.rows, unit);
        self.dictionaries.insert(id, Arc::new(dictionary));
        Ok(())
    }

    fn add_batch(&mut self, message: &Message<'_>, header: Batch<'_>) -> Result<()> {
        let broken = || self.source.corrupt(message.at, "a record batch is broken");
        let found = Found::of(header, message, &self.nodes).ok_or_else(broken)?;
        let number = self.batches;
        self.batches = self.batches.checked_add(1).ok_or_else(broken)?;
        if found.rows == 0 {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(self.listing.leaves.len());
        let (mut rooms, mut scratch) = (Vec::with_capacity(parts.capacity()), 0_u64);
        for (leaf, column) in self.listing.leaves.iter().zip(&self.listing.columns) {
            let dictionary = match &leaf.storage {
                Storage::Dictionary { id, .. } => self.dictionaries.get(id).cloned(),
                _ => None,
            };
            let part = found.part(leaf, dictionary).ok_or_else(broken)?;
            let placed = |error: Error| placed(error, message, self.source);
            let (width, text) = (column.kind.width(), self.room(leaf, &part, &found).map_err(placed)?);
            // If the schema says that there are no nulls, a null is an error.
            rooms.push((column.kind.is_nullable, width.map_or(Room::Ragged(text.0), Room::Fixed)));
            let plain = self.plain(leaf, &part, &found, width, text).map_err(placed)?;
            scratch = scratch.max(plain);
            parts.push(Buffers { plain, ..part });
        }
        let stored = parts.iter().flat_map(|part| &part.places).map(|place| place.len).fold(0, u64::saturating_add);
        let decoded = bound(found.rows, rooms.into_iter()).ok_or_else(broken)?;
        self.listing.groups.push(Group { file: self.file, number, rows: found.rows, stored, decoded, scratch });
        if self.listing.stored.is_empty() {
            let kind = if self.is_stream { "stream" } else { "file" };
            let codec = match found.codec {
                None => "not compressed",
                Some(Codec::Lz4) => "LZ4",
                Some(Codec::Zstd) => "ZSTD",
            };
            self.listing.stored = vec![format!("{kind}, {codec}"); parts.len()];
        }
        self.listing.parts.append(&mut parts);
        Ok(())
    }

    /// Returns the most bytes that the values of a column have together, and those of the strings inside a nested one.
    fn room(&self, leaf: &Leaf, part: &Buffers, found: &Found) -> Result<(u64, u64)> {
        let own = |buffer: usize| part.places[leaf.parents.len() + buffer];
        let room = match &leaf.storage {
            Storage::Binary { .. } => self.plain_len(own(2), found)?,
            Storage::View => self.viewed(own(1), found, found.rows)?,
            Storage::Nested(tree) => {
                let mut all = 0_u64;
                let room = tree.room(&mut &*part.nodes, &mut 0, 0, &mut |storage, len, first| {
                    let bytes = match storage {
                        Storage::View => self.viewed(own(first + 1), found, len)?,
                        Storage::Fixed(element) => len.saturating_mul(element.width()),
                        _ => self.plain_len(own(first + 2), found)?,
                    };
                    all = all.saturating_add(bytes);
                    Ok(bytes)
                })?;
                let room = room.ok_or_else(|| Error::new(ErrorKind::Corrupt, "there are too many elements"))?;
                return Ok((room, all));
            }
            Storage::List { element, .. } => {
                let too_many = || Error::new(ErrorKind::Corrupt, "there are too many elements");
                part.elements.checked_mul(element.width()).ok_or_else(too_many)?
            }
            Storage::Dictionary { .. } => {
                let longest = part.dictionary.as_ref().map_or(0, |dictionary| dictionary.longest);
                let too_many = || Error::new(ErrorKind::Corrupt, "there are too many values");
                found.rows.checked_mul(longest).ok_or_else(too_many)?
            }
            Storage::Nulls { width, .. } => {
                let too_many = || Error::new(ErrorKind::Corrupt, "there are too many elements");
                part.elements.checked_mul(*width).ok_or_else(too_many)?
            }
            // The room of these follows from the number of rows.
            Storage::Fixed(_) | Storage::FixedList { .. } | Storage::Absent => 0,
        };
        Ok((room, 0))
    }

    /// The length of a buffer when it is decompressed.
    fn plain_len(&self, place: ByteRange, found: &Found) -> Result<u64> {
        if found.codec.is_none() || place.len == 0 {
            return Ok(place.len);
        }
        let mut head = [0; 8];
        self.source.read(place.offset, &mut head, "a compressed buffer")?;
        let len = plain_len(&head, place.len);
        len.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a compressed buffer does not say its length"))
    }

    /// The length of all strings that views lead to.
    fn viewed(&self, place: ByteRange, found: &Found, rows: u64) -> Result<u64> {
        // It is in the file.
        let views = self.source.bytes(place.offset, place.len as usize, "views")?;
        viewed_bytes(&views.into(), found.codec, rows)
    }

    /// Returns the most bytes that decoding a column takes beside what is stored and decoded: its buffers, if they are
    /// compressed, and bits that become bytes. `width` and `room` are what it decodes to, `strings` those inside a
    /// nested column.
    fn plain(
        &self,
        leaf: &Leaf,
        part: &Buffers,
        found: &Found,
        width: Option<u64>,
        (room, strings): (u64, u64),
    ) -> Result<u64> {
        let rows = found.rows;
        // Offsets and references of up to 8 bytes, views of 16, and the bits of what may be null, are counted by these.
        let nodes = part.nodes.iter().map(|node| node.0).fold(rows.saturating_add(part.elements), u64::saturating_add);
        let elements = match &leaf.storage {
            Storage::Fixed(Element::Bit) => rows,
            Storage::List { element: Element::Bit, .. } => part.elements,
            Storage::FixedList { element, counts } => {
                let bytes = if *element == Element::Bit { part.elements } else { 0 };
                // A bit for each element of lists within lists.
                bytes.saturating_add(if counts.len() > 1 { part.elements / 8 + 1 } else { 0 })
            }
            Storage::Nested(_) => nodes,
            _ => 0,
        };
        if found.codec.is_none() {
            return Ok(elements);
        }
        let values = match &leaf.storage {
            // Decimals have up to 32 bytes.
            Storage::Nested(_) => strings.saturating_add(nodes.saturating_mul(24)),
            _ => width.map_or(room, |width| rows.saturating_mul(width)),
        };
        let mut plain = elements.saturating_add(values).saturating_add(nodes.saturating_mul(17)).saturating_add(64);
        if found.codec == Some(Codec::Lz4) {
            plain = plain.saturating_add(LZ4_FRAME_BYTES);
        }
        // Views may lead to a part of what there is.
        let has_views = match &leaf.storage {
            Storage::View => true,
            Storage::Nested(tree) => tree.has_views(),
            _ => false,
        };
        if has_views {
            for &place in part.places.iter().filter(|place| place.len >= 8) {
                let len = self.plain_len(place, found)?;
                if len > LONG_STRINGS_BYTES {
                    return Err(Error::new(ErrorKind::Corrupt, format!("a buffer says that it has {len} bytes")));
                }
                plain = plain.saturating_add(len);
            }
        }
        Ok(plain)
    }
}

/// The longest buffer that views lead to: offsets into it have 31 bits.
const LONG_STRINGS_BYTES: u64 = 1 << 31;

fn placed(error: Error, message: &Message<'_>, source: &Source) -> Error {
    match error.path() {
        Some(_) => error,
        None => Error::new(error.kind(), "cannot read a message")
            .with_path(source.path())
            .with_offset(message.at)
            .with_source(error),
    }
}

/// The metadata of a record batch.
struct Found {
    rows: u64,
    /// The number of elements of each node.
    lengths: Vec<u64>,
    /// The first buffer of each node, and the end of the last.
    firsts: Vec<usize>,
    places: Vec<ByteRange>,
    codec: Option<Codec>,
}

impl Found {
    /// Returns `None` if it does not have these nodes, or leads out of its body.
    fn of(header: Batch<'_>, message: &Message<'_>, nodes: &[Node]) -> Option<Found> {
        let rows = u64::try_from(header.rows).ok()?;
        let codec = match header.compression {
            None => None,
            Some((0, 0)) => Some(Codec::Lz4),
            Some((1, 0)) => Some(Codec::Zstd),
            _ => return None,
        };
        let lengths = header.nodes.iter().map(|node| u64::try_from(i64_at(node, 0)).ok());
        let lengths = lengths.collect::<Option<_>>()?;
        let places = header.buffers.iter().map(|buffer| {
            let (offset, len) = (u64::try_from(i64_at(buffer, 0)).ok()?, u64::try_from(i64_at(buffer, 8)).ok()?);
            let is_in = offset.checked_add(len)? <= message.body_len;
            is_in.then_some(ByteRange { offset: message.body_at + offset, len })
        });
        let places = places.collect::<Option<Vec<ByteRange>>>()?;
        let mut variadic = header.variadic.iter().map(|&count| i64::from_le_bytes(count));
        let mut firsts = Vec::with_capacity(nodes.len() + 1);
        let mut first = 0_usize;
        for node in nodes {
            firsts.push(first);
            let more = if node.is_view { usize::try_from(variadic.next()?).ok()? } else { 0 };
            let more = more.checked_add(usize::from(node.is_union && header.has_union_bits))?;
            first = first.checked_add(node.buffers)?.checked_add(more)?;
        }
        firsts.push(first);
        (first <= places.len()).then_some(Found { rows, lengths, firsts, places, codec })
    }

    fn part(&self, leaf: &Leaf, dictionary: Option<Arc<Dictionary>>) -> Option<Buffers> {
        if leaf.storage == Storage::Absent {
            return Some(Buffers {
                plain: 0,
                elements: 0,
                places: [].into(),
                nodes: [].into(),
                codec: None,
                dictionary,
            });
        }
        let has_rows = |&node: &usize| self.lengths.get(node) == Some(&self.rows);
        if !leaf.parents.iter().chain([&leaf.node]).all(has_rows) {
            return None;
        }
        let of = |node: usize| self.places.get(*self.firsts.get(node)?..*self.firsts.get(node + 1)?);
        let mut places: Vec<ByteRange> = Vec::new();
        for &parent in &leaf.parents {
            places.push(*of(parent)?.first()?);
        }
        places.extend(of(leaf.node)?);
        let (mut elements, mut nodes) = (0, Vec::new());
        if let Storage::Nested(tree) = &leaf.storage {
            places.truncate(leaf.parents.len());
            for node in leaf.node..leaf.node.checked_add(tree.nodes())? {
                let own = of(node)?;
                nodes.push((*self.lengths.get(node)?, own.len()));
                places.extend(own);
            }
        }
        let inside = match &leaf.storage {
            Storage::List { .. } | Storage::Nulls { .. } => 1,
            Storage::FixedList { counts, .. } => counts.len(),
            _ => 0,
        };
        for node in leaf.node + 1..=leaf.node + inside {
            elements = *self.lengths.get(node)?;
            places.extend(of(node)?);
        }
        let is_whole = places.len() >= leaf.parents.len() + leaf.storage.buffers();
        let (places, nodes) = (places.into(), nodes.into());
        is_whole.then_some(Buffers { places, elements, nodes, plain: 0, codec: self.codec, dictionary })
    }
}
