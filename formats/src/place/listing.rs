//! All objects whose keys begin alike, in blocks: names share what they have in common with the one before, so an
//! object takes some 20 bytes. It is the form of a listing's file too, so each block has a checksum.
//!
//! A block: objects, bytes of what follows the head, the CRC32C of the rest of the block (u32 each); then for each
//! object how many bytes its name shares with the one before, how many follow, those, its size (varints), and its
//! version (u64; 0 for none). Numbers are little-endian. The first name of a block shares nothing.

mod lookup;

use lookup::Lookup;
use std::mem::replace;
use std::ops::Range;
use uringload_core::store::{Object, Version};
use uringload_sys::heap::prefer_huge;

/// Objects of a block: to find one, a block is opened.
pub(super) const BLOCK_OBJECTS: usize = 1024;
pub(super) const BLOCK_HEAD_BYTES: usize = 12;
/// Blocks that one thread walks: their names are in few huge pages.
const PART_BLOCKS: usize = 256;
/// Bytes of names that a walk keeps if they are not wanted, and of the last of them if it is as long as keys may be.
const NAMES_BYTES: usize = 64 << 10;
const NAME_BYTES: usize = 1 << 10;
const GROWTH_BYTES: usize = 4 << 10;

/// The objects whose keys begin with a prefix, in ascending order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    prefix: Vec<u8>,
    bytes: Vec<u8>,
    /// Bytes in front of the blocks: the head of a file.
    front: usize,
    blocks: Vec<Block>,
    len: usize,
    /// While it grows: the last name, and objects of the last block.
    last: Vec<u8>,
    open: usize,
    is_unsorted: bool,
    lookup: Lookup,
}

/// Where a block is, and which of all objects is its first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) start: usize,
    pub(super) first: usize,
}

impl Listing {
    pub(super) fn new(prefix: &[u8]) -> Listing {
        Listing { prefix: prefix.to_vec(), ..Listing::default() }
    }

    /// One whose blocks are these, behind `front` bytes, with so many objects.
    pub(super) fn of_blocks(
        prefix: &[u8],
        (bytes, front): (Vec<u8>, usize),
        blocks: Vec<Block>,
        len: usize,
    ) -> Listing {
        Listing { prefix: prefix.to_vec(), bytes, front, blocks, len, ..Listing::default() }
    }

    /// Adds an object, whose key begins with the prefix.
    pub(super) fn push(&mut self, object: &Object) {
        self.push_named(&object.key[self.prefix.len()..], object.size, object.version.map_or(0, Version::to_bits));
    }

    fn push_named(&mut self, name: &[u8], size: u64, version: u64) {
        let alike = self.last.iter().zip(name).take_while(|(one, other)| one == other).count();
        self.is_unsorted |= self.len > 0 && self.last.get(alike) >= name.get(alike);
        let is_first = self.open == 0;
        if is_first {
            self.blocks.push(Block { start: self.bytes.len(), first: self.len });
            self.bytes.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
        }
        let shared = if is_first { 0 } else { alike };
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (name.len() - shared) as u64);
        self.bytes.extend_from_slice(&name[shared..]);
        put_varint(&mut self.bytes, size);
        self.bytes.extend_from_slice(&version.to_le_bytes());
        self.last.truncate(alike);
        self.last.extend_from_slice(&name[alike..]);
        self.len += 1;
        self.open += 1;
        if self.open == BLOCK_OBJECTS {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(block) = self.blocks.last().filter(|_| self.open > 0) else { return };
        let (start, bytes) = (block.start, self.bytes.len() - block.start - BLOCK_HEAD_BYTES);
        // Fits: 1024 keys of 64 KiB.
        for (place, number) in [(0, self.open as u32), (4, bytes as u32)] {
            self.bytes[start + place..start + place + 4].copy_from_slice(&number.to_le_bytes());
        }
        let crc = block_crc(&self.bytes[start..]);
        self.bytes[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
        self.open = 0;
    }

    /// Ends it, and puts its objects in order. Azure lists in an order of its own.
    pub(super) fn sorted(mut self) -> Listing {
        self.close();
        self.last = Vec::new();
        if !self.is_unsorted {
            self.bytes.shrink_to_fit();
            return self;
        }
        let mut objects = Vec::with_capacity(self.len);
        let mut walk = self.walk();
        while walk.next() {
            objects.push((walk.name().to_vec(), walk.size(), walk.bits()));
        }
        objects.sort();
        objects.dedup_by(|one, other| one.0 == other.0);
        let mut sorted = Listing::new(&self.prefix);
        objects.iter().for_each(|(name, size, version)| sorted.push_named(name, *size, *version));
        sorted.sorted()
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether it has all objects whose keys begin with this.
    pub(super) fn covers(&self, start: &[u8]) -> bool {
        start.starts_with(&self.prefix)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The blocks as they are in a file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.front..]
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// All objects, from the first on.
    pub(crate) fn walk(&self) -> Walk<'_> {
        self.walk_from(0)
    }

    /// Parts of it that several threads walk, in order: which blocks.
    pub(crate) fn parts(&self) -> Vec<Range<usize>> {
        let all = self.blocks.len();
        (0..all).step_by(PART_BLOCKS).map(|first| first..(first + PART_BLOCKS).min(all)).collect()
    }

    /// Objects of a part.
    pub(crate) fn len_of(&self, part: &Range<usize>) -> usize {
        let first = |block: usize| self.blocks.get(block).map_or(self.len, |block| block.first);
        first(part.end) - first(part.start)
    }

    /// A walk through a part, which keeps `bytes` of the names that it went by, to be taken.
    pub(crate) fn walk_part(&self, part: &Range<usize>, bytes: usize) -> Walk<'_> {
        Walk { end_block: part.end, kept_bytes: bytes, is_keeping: true, ..self.walk_from(part.start) }
    }

    fn walk_from(&self, block: usize) -> Walk<'_> {
        Walk {
            listing: self,
            next_block: block,
            end_block: self.blocks.len(),
            at: 0,
            left: 0,
            kept_bytes: NAMES_BYTES,
            is_keeping: false,
            names: Vec::new(),
            name: 0..0,
            shared: 0,
            size: 0,
            bits: 0,
            state: State::Begun,
        }
    }

    /// The objects from the first on whose whole key, which it covers, is this or behind it: that is looked at already.
    pub(super) fn from(&self, key: &[u8]) -> Walk<'_> {
        let name = &key[self.prefix.len()..];
        let mut walk = self.walk_from(self.block_of(name));
        while walk.next() && walk.name() < name {}
        walk
    }

    /// The block in which an object of this name, behind the prefix, would be.
    fn block_of(&self, name: &[u8]) -> usize {
        self.blocks.partition_point(|block| self.first_of(block) <= name).saturating_sub(1)
    }

    /// A walk through one block.
    fn walk_block(&self, block: usize) -> Walk<'_> {
        Walk { end_block: block.saturating_add(1), ..self.walk_from(block) }
    }

    fn first_of(&self, block: &Block) -> &[u8] {
        let mut at = block.start + BLOCK_HEAD_BYTES;
        let name = varint(&self.bytes, &mut at).and_then(|_| {
            let bytes = usize::try_from(varint(&self.bytes, &mut at)?).ok()?;
            self.bytes.get(at..at.checked_add(bytes)?)
        });
        name.unwrap_or_default()
    }
}

/// Goes from object to object.
pub(crate) struct Walk<'a> {
    listing: &'a Listing,
    next_block: usize,
    end_block: usize,
    /// Where the next object is, and how many more the block has.
    at: usize,
    left: usize,
    kept_bytes: usize,
    is_keeping: bool,
    /// Names end to end, and room for copies of [`CHUNK`] bytes behind them. The last one is the object's.
    names: Vec<u8>,
    name: Range<usize>,
    shared: usize,
    size: u64,
    bits: u64,
    state: State,
}

/// Bytes of a name that are copied at once, whether it has so many or not: short copies of any length cost more.
const CHUNK: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begun,
    AtOne,
    Ended,
    Broken,
}

impl Walk<'_> {
    /// Goes to the next object, if there is one.
    #[inline]
    pub(crate) fn next(&mut self) -> bool {
        let is_new = self.left == 0;
        if is_new {
            let block = self.listing.blocks.get(self.next_block).filter(|_| self.next_block < self.end_block);
            let Some(block) = block else {
                self.state = State::Ended;
                return false;
            };
            let end = self.listing.blocks.get(self.next_block + 1).map_or(self.listing.len, |next| next.first);
            (self.at, self.left) = (block.start + BLOCK_HEAD_BYTES, end - block.first);
            self.next_block += 1;
        }
        if self.step(is_new).is_none() {
            (self.left, self.next_block, self.state) = (0, usize::MAX, State::Broken);
            return false;
        }
        self.left -= 1;
        self.state = State::AtOne;
        true
    }

    /// Reads an object. Nothing if it contradicts the listing, or its name is not behind the one before.
    fn step(&mut self, is_new: bool) -> Option<()> {
        let listing = self.listing;
        let end = listing.blocks.get(self.next_block).map_or(listing.bytes.len(), |next| next.start);
        let bytes = &listing.bytes[..end];
        let shared = usize::try_from(varint(bytes, &mut self.at)?).ok()?;
        let rest = usize::try_from(varint(bytes, &mut self.at)?).ok()?;
        let own = bytes.get(self.at..self.at.checked_add(rest)?)?;
        let is_sorted = !listing.is_unsorted && self.state == State::AtOne;
        let name = self.name();
        let is_behind = if is_new {
            shared == 0 && (!is_sorted || own > name)
        } else {
            shared <= name.len() && (!is_sorted || own.first() > name.get(shared))
        };
        if !is_behind {
            return None;
        }
        self.put(shared, own);
        self.at += rest;
        self.size = varint(bytes, &mut self.at)?;
        self.bits = u64::from_le_bytes(*bytes.get(self.at..)?.first_chunk()?);
        self.at += 8;
        Some(())
    }

    /// Puts a name behind the one before, of which it has the first `shared` bytes. `own` begins at `self.at`.
    fn put(&mut self, shared: usize, own: &[u8]) {
        if self.is_full() {
            self.names.copy_within(self.name.clone(), 0);
            self.name = 0..self.name.len();
        }
        let (from, to) = (self.name.start, self.name.end);
        let end = to + shared + own.len();
        if self.names.len() < end + CHUNK {
            self.grow(end + CHUNK);
        }
        match self.names[from..].first_chunk::<CHUNK>() {
            Some(&chunk) if shared <= CHUNK => self.names[to..to + CHUNK].copy_from_slice(&chunk),
            _ => self.names.copy_within(from..from + shared, to),
        }
        match self.listing.bytes[self.at..].first_chunk::<CHUNK>() {
            Some(chunk) if own.len() <= CHUNK => self.names[to + shared..to + shared + CHUNK].copy_from_slice(chunk),
            _ => self.names[to + shared..end].copy_from_slice(own),
        }
        (self.name, self.shared) = (to..end, shared);
    }

    /// Makes room for `least` bytes of names or more.
    fn grow(&mut self, least: usize) {
        if self.is_keeping && self.names.capacity() < self.kept_bytes {
            self.names.reserve_exact(self.kept_bytes + NAME_BYTES - self.names.len());
            prefer_huge(self.names.spare_capacity_mut());
        }
        // A page at a time, which is in a cache when it is written to.
        self.names.resize(least.max((self.names.len() + GROWTH_BYTES).min(self.kept_bytes + NAME_BYTES)), 0);
    }

    /// Whether it is at an object.
    pub(crate) fn is_at_one(&self) -> bool {
        self.state == State::AtOne
    }

    /// Whether it ended because the listing contradicts itself.
    pub(crate) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// The key of the object, behind the prefix.
    pub(crate) fn name(&self) -> &[u8] {
        &self.names[self.name.clone()]
    }

    /// How many bytes of it are those of the name before.
    pub(crate) fn shared(&self) -> usize {
        self.shared
    }

    /// Where it will be among the names that are taken.
    pub(crate) fn place(&self) -> Range<usize> {
        self.name.clone()
    }

    /// Whether names must be taken before the next object: else all but the last are forgotten.
    pub(crate) fn is_full(&self) -> bool {
        self.name.end >= self.kept_bytes
    }

    /// The names that it went by since they were taken last, end to end; there may be others in front.
    pub(crate) fn take_names(&mut self) -> Vec<u8> {
        let last = self.name().to_vec();
        let mut names = replace(&mut self.names, last);
        names.truncate(self.name.end);
        self.name = 0..self.name.len();
        names
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn version(&self) -> Option<Version> {
        Version::from_bits(self.bits)
    }

    /// The version in 64 bits; 0 for none.
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }
}

/// Of all of a block but the checksum itself.
pub(super) fn block_crc(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..8]), &block[BLOCK_HEAD_BYTES..])
}

fn put_varint(image: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        image.push(number as u8 | 0x80);
        number >>= 7;
    }
    image.push(number as u8);
}

#[inline]
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(first.into());
    }
    let mut number = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
