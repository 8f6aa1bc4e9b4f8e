//! Walks through the messages of a file: the schema, dictionaries and record batches; where the buffers of the wanted
//! columns lie, and how much memory each batch takes when it is decoded.

use super::decode::{Cell, Codec, Dictionary, decode_alone, plain_len, viewed_bytes};
use super::flat::Table;
use super::schema::{Layout, Leaf, Node, Storage, read as read_schema};
use crate::FileId;
use crate::columnar::layout::{Room, bound};
use crate::columnar::{Column, ColumnarOptions, Group, choose};
use crate::headers::{Source, u32_at};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// What files begin with, and end with but for the zeros.
pub(super) const MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// What streams begin with.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Behind the footer of a file: its length and the magic.
const TAIL_BYTES: u64 = 10;

const MESSAGE_HEADER_TYPE: u16 = 1;
const MESSAGE_HEADER: u16 = 2;
const MESSAGE_BODY_LEN: u16 = 3;
const HEADER_SCHEMA: u8 = 1;
const HEADER_DICTIONARY: u8 = 2;
const HEADER_BATCH: u8 = 3;
const FOOTER_SCHEMA: u16 = 1;
const FOOTER_DICTIONARIES: u16 = 2;
const FOOTER_BATCHES: u16 = 3;
const DICTIONARY_ID: u16 = 0;
const DICTIONARY_DATA: u16 = 1;
const DICTIONARY_IS_DELTA: u16 = 2;
const BATCH_ROWS: u16 = 0;
const BATCH_NODES: u16 = 1;
const BATCH_BUFFERS: u16 = 2;
const BATCH_COMPRESSION: u16 = 3;
const BATCH_VARIADIC: u16 = 4;

/// A buffer in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What of a batch makes a column.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) places: Box<[Place]>,
    /// Elements of its lists together.
    pub(super) elements: u64,
    pub(super) dictionary: Option<Arc<Dictionary>>,
}

/// A record batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) parts: Box<[Part]>,
    pub(super) codec: Option<Codec>,
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) columns: Vec<Column>,
    pub(super) leaves: Vec<Leaf>,
    /// Batches that have rows.
    pub(super) groups: Vec<Group>,
    pub(super) batches: Vec<Batch>,
    pub(super) is_stream: bool,
}

/// A message: its metadata, and where its body lies.
struct Message {
    metadata: Vec<u8>,
    at: u64,
    body_at: u64,
    body_len: u64,
}

/// Reads the metadata of a file or a stream, and its dictionaries.
pub(super) fn read(source: &Source, file: FileId, options: &ColumnarOptions) -> Result<Listing> {
    let head = source.bytes(0, MAGIC.len(), "the magic of Arrow")?;
    if &head[..] == MAGIC {
        return read_file(source, file, options);
    }
    if head.starts_with(&CONTINUATION) {
        return read_stream(source, file, options);
    }
    Err(source.corrupt(0, "this is neither a file nor a stream of Arrow"))
}

/// A file lists its batches in a footer.
fn read_file(source: &Source, file: FileId, options: &ColumnarOptions) -> Result<Listing> {
    let end = source.size();
    let magic = &MAGIC[..6];
    let least = MAGIC.len() as u64 + TAIL_BYTES;
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
    // Not more than the file has.
    let bytes = source.bytes(start, len as usize, "the footer")?;
    let broken = || source.corrupt(start, "the footer is broken");
    let footer = Table::root(&bytes).ok_or_else(broken)?;
    let schema = footer.table(FOOTER_SCHEMA).ok_or_else(broken)?;
    let mut reader = Reader::new(source, file, schema, options, false)?;
    for number in [FOOTER_DICTIONARIES, FOOTER_BATCHES] {
        for [offset, metadata_len, body_len] in footer.structs::<3>(number).ok_or_else(broken)? {
            let offset = u64::try_from(offset).map_err(|_| broken())?;
            let message = message(source, offset, start)?.ok_or_else(broken)?;
            // The 4 bytes behind the length of the metadata are padding.
            let metadata_len = metadata_len as u32;
            let listed = u64::from(metadata_len).checked_add(offset);
            if listed != Some(message.body_at) || i64::try_from(message.body_len) != Ok(body_len) {
                return Err(source.corrupt(offset, "a message is not what the footer says"));
            }
            reader.add(&message)?;
        }
    }
    Ok(reader.listing)
}

/// A stream is read to its end, which it tells.
fn read_stream(source: &Source, file: FileId, options: &ColumnarOptions) -> Result<Listing> {
    let end = source.size();
    let broken = |at: u64| source.corrupt(at, "the stream does not begin with a schema");
    let first = message(source, 0, end)?.ok_or_else(|| broken(0))?;
    let table = Table::root(&first.metadata).ok_or_else(|| broken(0))?;
    let schema = (table.u8(MESSAGE_HEADER_TYPE) == Some(HEADER_SCHEMA)).then(|| table.table(MESSAGE_HEADER)).flatten();
    let mut reader = Reader::new(source, file, schema.ok_or_else(|| broken(0))?, options, true)?;
    let mut at = first.body_at + first.body_len;
    loop {
        if at == end {
            return Err(source
                .truncated("a stream")
                .with_remedy("batches may be lost; if not, append ff ff ff ff 00 00 00 00, which ends a stream"));
        }
        let Some(next) = message(source, at, end)? else { break };
        reader.add(&next)?;
        at = next.body_at + next.body_len;
    }
    Ok(reader.listing)
}

/// The message at a place; `None` for the end of a stream. All of it lies before `end`.
fn message(source: &Source, at: u64, end: u64) -> Result<Option<Message>> {
    let mut head = [0; 8];
    let is_in = |bytes: u64| at.checked_add(bytes).is_some_and(|reached| reached <= end);
    if !is_in(8) {
        return Err(source.truncated("a message"));
    }
    source.read(at, &mut head, "a message")?;
    let (len, metadata_at) = match head[..4] == CONTINUATION {
        true => (u32_at(&head, 4), at + 8),
        // As it was before version 0.15.
        false => (u32_at(&head, 0), at + 4),
    };
    if len == 0 {
        return Ok(None);
    }
    let body_at = metadata_at + u64::from(len);
    if body_at > end {
        return Err(source.truncated("a message"));
    }
    let metadata = source.bytes(metadata_at, len as usize, "a message")?;
    let table = Table::root(&metadata).ok_or_else(|| source.corrupt(at, "a message is broken"))?;
    let body_len = u64::try_from(table.i64(MESSAGE_BODY_LEN).unwrap_or(0)).ok();
    let Some(body_len) = body_len.filter(|&len| body_at.checked_add(len).is_some_and(|reached| reached <= end)) else {
        return Err(source.truncated("the body of a message"));
    };
    Ok(Some(Message { metadata, at, body_at, body_len }))
}

struct Reader<'a> {
    source: &'a Source,
    file: FileId,
    nodes: Vec<Node>,
    dictionaries: BTreeMap<i64, Arc<Dictionary>>,
    batches: u32,
    listing: Listing,
}

impl<'a> Reader<'a> {
    fn new(
        source: &'a Source,
        file: FileId,
        schema: Table<'_>,
        options: &ColumnarOptions,
        is_stream: bool,
    ) -> Result<Reader<'a>> {
        let placed = |error: Error| error.with_path(source.path());
        let Layout { nodes, names, columns } = read_schema(schema).map_err(placed)?;
        let chosen = choose(&names, &options.columns).map_err(placed)?;
        // What was chosen can be had.
        let (columns, leaves) = chosen.iter().filter_map(|&number| columns[number].clone()).unzip();
        let listing = Listing { columns, leaves, groups: Vec::new(), batches: Vec::new(), is_stream };
        Ok(Reader { source, file, nodes, dictionaries: BTreeMap::new(), batches: 0, listing })
    }

    fn add(&mut self, message: &Message) -> Result<()> {
        let broken = || self.source.corrupt(message.at, "a message is broken");
        let table = Table::root(&message.metadata).ok_or_else(broken)?;
        let header = table.table(MESSAGE_HEADER).ok_or_else(broken)?;
        match table.u8(MESSAGE_HEADER_TYPE) {
            Some(HEADER_BATCH) => self.add_batch(message, header),
            Some(HEADER_DICTIONARY) => self.add_dictionary(message, header),
            Some(HEADER_SCHEMA) => Err(self.source.corrupt(message.at, "there is a second schema")),
            // Tensors, which are no part of a table.
            _ => Err(self.source.corrupt(message.at, "there is a message that is no part of a table")),
        }
    }

    fn add_dictionary(&mut self, message: &Message, header: Table<'_>) -> Result<()> {
        let id = header.i64(DICTIONARY_ID).unwrap_or(0);
        let has_id = |leaf: &&Leaf| matches!(&leaf.storage, Storage::Dictionary { id: its, .. } if *its == id);
        let Some(number) = self.listing.leaves.iter().position(|leaf| has_id(&leaf)) else { return Ok(()) };
        let Storage::Dictionary { values, .. } = &self.listing.leaves[number].storage else { return Ok(()) };
        let is_delta = header.bool(DICTIONARY_IS_DELTA);
        let known = self.dictionaries.get(&id);
        if !self.listing.is_stream && known.is_some() && !is_delta {
            return Err(self.source.corrupt(message.at, "a dictionary comes twice"));
        }
        let broken = || self.source.corrupt(message.at, "a dictionary is broken");
        let data = header.table(DICTIONARY_DATA).ok_or_else(broken)?;
        let is_view = **values == Storage::View;
        let node = Node { buffers: values.buffers(), is_view };
        let found = Found::of(data, message, std::slice::from_ref(&node)).ok_or_else(broken)?;
        let leaf = Leaf { storage: (**values).clone(), node: 0, parents: Vec::new() };
        let width = self.listing.columns[number].kind.width();
        let part = found.part(&leaf, None).ok_or_else(broken)?;
        let placed = |error: Error| placed(error, message, self.source);
        let room = self.room(&leaf, &part, &found).map_err(placed)?;
        let mut stored = Vec::with_capacity(part.places.len());
        for place in &part.places {
            // Places lie in the file.
            stored.push(Bytes::from(self.source.bytes(place.offset, place.len as usize, "a dictionary")?));
        }
        let (rows, elements, codec) = (found.rows, part.elements, found.codec);
        let cell = Cell { storage: &leaf.storage, parents: 0, rows, elements, codec, dictionary: None };
        let unit = decode_alone(&cell, &stored, width, room).map_err(placed)?;
        let mut dictionary = match known {
            Some(known) if is_delta => (**known).clone(),
            _ => Dictionary::new(width),
        };
        dictionary.add(rows, unit);
        self.dictionaries.insert(id, Arc::new(dictionary));
        Ok(())
    }

    fn add_batch(&mut self, message: &Message, header: Table<'_>) -> Result<()> {
        let broken = || self.source.corrupt(message.at, "a record batch is broken");
        let found = Found::of(header, message, &self.nodes).ok_or_else(broken)?;
        let number = self.batches;
        self.batches = self.batches.checked_add(1).ok_or_else(broken)?;
        if found.rows == 0 {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(self.listing.leaves.len());
        let mut rooms = Vec::with_capacity(parts.capacity());
        for (leaf, column) in self.listing.leaves.iter().zip(&self.listing.columns) {
            let dictionary = match &leaf.storage {
                Storage::Dictionary { id, .. } => self.dictionaries.get(id).cloned(),
                _ => None,
            };
            let part = found.part(leaf, dictionary).ok_or_else(broken)?;
            let room = match column.kind.width() {
                Some(width) => Room::Fixed(width),
                None => {
                    Room::Ragged(self.room(leaf, &part, &found).map_err(|error| placed(error, message, self.source))?)
                }
            };
            // Who says that none is null may still have some: a null is an error then.
            rooms.push((column.kind.is_nullable, room));
            parts.push(part);
        }
        let stored = parts.iter().flat_map(|part| &part.places).map(|place| place.len).fold(0, u64::saturating_add);
        let decoded = bound(found.rows, rooms.into_iter()).ok_or_else(broken)?;
        self.listing.groups.push(Group { file: self.file, number, rows: found.rows, stored, decoded });
        self.listing.batches.push(Batch { parts: parts.into(), codec: found.codec });
        Ok(())
    }

    /// Bytes that the values of a column have together at most.
    fn room(&self, leaf: &Leaf, part: &Part, found: &Found) -> Result<u64> {
        let own = |buffer: usize| part.places[leaf.parents.len() + buffer];
        match &leaf.storage {
            Storage::Binary { .. } => {
                let place = own(2);
                if found.codec.is_none() || place.len == 0 {
                    return Ok(place.len);
                }
                let mut head = [0; 8];
                self.source.read(place.offset, &mut head, "a compressed buffer")?;
                let len = plain_len(&head, place.len);
                len.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a compressed buffer does not say its length"))
            }
            Storage::View => {
                let place = own(1);
                // It lies in the file.
                let views = self.source.bytes(place.offset, place.len as usize, "views")?;
                viewed_bytes(&views.into(), found.codec, found.rows)
            }
            Storage::List { element, .. } => {
                let too_many = || Error::new(ErrorKind::Corrupt, "there are too many elements");
                part.elements.checked_mul(element.width()).ok_or_else(too_many)
            }
            Storage::Dictionary { .. } => {
                let longest = part.dictionary.as_ref().map_or(0, |dictionary| dictionary.longest);
                let too_many = || Error::new(ErrorKind::Corrupt, "there are too many values");
                found.rows.checked_mul(longest).ok_or_else(too_many)
            }
            // As many bytes as rows.
            Storage::Bits | Storage::Fixed(_) | Storage::FixedList { .. } => Ok(0),
        }
    }
}

fn placed(error: Error, message: &Message, source: &Source) -> Error {
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
    /// Elements of each node.
    lengths: Vec<u64>,
    /// The first buffer of each node, and behind the last.
    firsts: Vec<usize>,
    places: Vec<Place>,
    codec: Option<Codec>,
}

impl Found {
    /// `None` where it is not of these nodes, or leads out of its body.
    fn of(header: Table<'_>, message: &Message, nodes: &[Node]) -> Option<Found> {
        let rows = u64::try_from(header.i64(BATCH_ROWS).unwrap_or(0)).ok()?;
        let codec = match header.table(BATCH_COMPRESSION) {
            None => None,
            Some(compression) => match (compression.u8(0).unwrap_or(0), compression.u8(1).unwrap_or(0)) {
                (0, 0) => Some(Codec::Lz4),
                (1, 0) => Some(Codec::Zstd),
                _ => return None,
            },
        };
        let lengths: Option<Vec<u64>> =
            header.structs::<2>(BATCH_NODES)?.into_iter().map(|[length, _]| u64::try_from(length).ok()).collect();
        let lengths = lengths?;
        let mut variadic = header.structs::<1>(BATCH_VARIADIC)?.into_iter();
        let place = |[offset, len]: [i64; 2]| {
            let (offset, len) = (u64::try_from(offset).ok()?, u64::try_from(len).ok()?);
            let is_in = offset.checked_add(len)? <= message.body_len;
            is_in.then_some(Place { offset: message.body_at + offset, len })
        };
        let places: Option<Vec<Place>> = header.structs::<2>(BATCH_BUFFERS)?.into_iter().map(place).collect();
        let places = places?;
        let mut firsts = Vec::with_capacity(nodes.len() + 1);
        let mut first = 0_usize;
        for node in nodes {
            firsts.push(first);
            let more = if node.is_view { usize::try_from(variadic.next()?[0]).ok()? } else { 0 };
            first = first.checked_add(node.buffers)?.checked_add(more)?;
        }
        firsts.push(first);
        (first <= places.len()).then_some(Found { rows, lengths, firsts, places, codec })
    }

    fn part(&self, leaf: &Leaf, dictionary: Option<Arc<Dictionary>>) -> Option<Part> {
        let has_rows = |&node: &usize| self.lengths.get(node) == Some(&self.rows);
        if !leaf.parents.iter().chain([&leaf.node]).all(has_rows) {
            return None;
        }
        let of = |node: usize| self.places.get(*self.firsts.get(node)?..*self.firsts.get(node + 1)?);
        let mut places: Vec<Place> = Vec::new();
        for &parent in &leaf.parents {
            places.push(*of(parent)?.first()?);
        }
        places.extend(of(leaf.node)?);
        let mut elements = 0;
        if let Storage::List { .. } | Storage::FixedList { .. } = &leaf.storage {
            elements = *self.lengths.get(leaf.node + 1)?;
            places.extend(of(leaf.node + 1)?);
        }
        let is_whole = places.len() >= leaf.parents.len() + leaf.storage.buffers();
        is_whole.then_some(Part { places: places.into(), elements, dictionary })
    }
}
