//! A listing as the bytes of a file: names share what they have in common with the one before, and each block has a
//! checksum, so that no flipped bit becomes a name.
//!
//! The head: `uringls` and the version in a byte, then the bytes of the store's URL and of the prefix with their
//! lengths (u32), objects (u64), blocks (u32), the CRC32C of all that (u32). A block: objects, bytes of their names, bytes of
//! what follows (u32 each), the CRC32C of the rest of the block (u32); then for each object how many bytes its name
//! shares with the one before, how many follow, those, its size (varints), and its version (u64; 0 for none). Numbers
//! are little-endian. The first name of a block shares nothing.

use super::listing::Listing;
use crate::parallel::in_parallel;
use std::sync::{Mutex, PoisonError};

/// What such a file is called.
pub(crate) const EXTENSION: &str = "uls";

const MAGIC: &[u8; 7] = b"uringls";
const VERSION: u8 = 1;
/// Objects of a block.
const BLOCK_OBJECTS: usize = 4096;
const BLOCK_HEAD_BYTES: usize = 16;
/// Threads that decode: more wait for memory.
const THREADS: usize = 4;

/// A listing from a file.
#[derive(Debug)]
pub(crate) struct Listed {
    /// What the store is called.
    pub(crate) store: Vec<u8>,
    pub(crate) listing: Listing,
}

/// Why bytes are no listing: at which of them, and what about them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) offset: u64,
    pub(crate) what: &'static str,
    /// Whether it ends too early.
    pub(crate) is_short: bool,
    /// Whether it is sound, and of another version.
    pub(crate) is_other: bool,
}

/// The bytes of a listing of the store that is called `store`.
pub(crate) fn encode(store: &[u8], listing: &Listing) -> Vec<u8> {
    let blocks = listing.len().div_ceil(BLOCK_OBJECTS);
    let mut image = [&MAGIC[..], &[VERSION]].concat();
    for text in [store, listing.prefix()] {
        put_u32(&mut image, text.len());
        image.extend_from_slice(text);
    }
    image.extend_from_slice(&(listing.len() as u64).to_le_bytes());
    put_u32(&mut image, blocks);
    let crc = crc32c::crc32c(&image);
    image.extend_from_slice(&crc.to_le_bytes());
    for first in (0..listing.len()).step_by(BLOCK_OBJECTS) {
        let objects = first..(first + BLOCK_OBJECTS).min(listing.len());
        let (start, count) = (image.len(), objects.len());
        image.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
        let (mut last, mut names): (&[u8], usize) = (&[], 0);
        for index in objects {
            let name = listing.name(index);
            let shared = last.iter().zip(name).take_while(|(one, other)| one == other).count();
            put_varint(&mut image, shared as u64);
            put_varint(&mut image, (name.len() - shared) as u64);
            image.extend_from_slice(&name[shared..]);
            put_varint(&mut image, listing.size(index));
            image.extend_from_slice(&listing.bits(index).to_le_bytes());
            (last, names) = (name, names + name.len());
        }
        let bytes = image.len() - start - BLOCK_HEAD_BYTES;
        for (place, number) in [(0, count), (4, names), (8, bytes)] {
            // Fits: 4096 keys of 64 KiB.
            image[start + place..start + place + 4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        let crc = block_crc(&image[start..]);
        image[start + 12..start + 16].copy_from_slice(&crc.to_le_bytes());
    }
    image
}

/// The listing that these bytes are.
///
/// # Errors
/// What is wrong with them, and where.
pub(crate) fn decode(image: &[u8]) -> Result<Listed, Broken> {
    let mut head = Cursor { image, at: 0 };
    let magic = head.take(MAGIC.len() + 1).map_err(|_| broken(0, "this is no listing of objects"))?;
    if !magic.starts_with(MAGIC) {
        return Err(broken(0, "this is no listing of objects"));
    }
    if magic[MAGIC.len()] != VERSION {
        return Err(Broken { is_other: true, ..broken(MAGIC.len(), "the listing is of another version of uringload") });
    }
    let length = head.u32()?;
    let store = head.take(length)?.to_vec();
    let length = head.u32()?;
    let prefix = head.take(length)?.to_vec();
    let objects = head.u64()?;
    let blocks = head.u32()?;
    let end = head.at;
    if head.u32()? as u32 != crc32c::crc32c(&image[..end]) {
        return Err(broken(0, "the head of the listing has other bytes than were written"));
    }
    let mut heads = Vec::new();
    let mut cursor = head;
    for _ in 0..blocks {
        let start = cursor.at;
        let (count, names, bytes) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        cursor.u32()?;
        cursor.take(bytes)?;
        // An object takes 11 bytes at least, and a name is made of at most all the bytes before it.
        if count == 0 || count > BLOCK_OBJECTS || bytes / 11 < count || names > count.saturating_mul(bytes) {
            return Err(broken(start, "a block of the listing has other bytes than were written"));
        }
        heads.push((start, cursor.at, count, names));
    }
    if cursor.at != image.len() {
        return Err(broken(cursor.at, "the listing goes on behind its end"));
    }
    if heads.iter().map(|&(.., count, _)| count as u64).sum::<u64>() != objects {
        return Err(broken(end, "the listing has another number of objects than it says"));
    }
    let listing = blocks_of(image, &prefix, &heads)?;
    Ok(Listed { store, listing })
}

/// What is decoded into: the places of one block's names, ends, sizes and versions.
type Room<'a> = (&'a mut [u8], &'a mut [u64], &'a mut [u64], &'a mut [u64]);

/// Decodes blocks, each straight into its place: from where to where it is, its objects, and the bytes of their names.
fn blocks_of(image: &[u8], prefix: &[u8], heads: &[(usize, usize, usize, usize)]) -> Result<Listing, Broken> {
    // Each checksum holds before memory is taken for what a block says of itself.
    let sound = in_parallel(heads, THREADS, |&(start, end, ..)| {
        let told = u32::from_le_bytes(image[start + 12..start + 16].try_into().unwrap_or_default());
        (block_crc(&image[start..end]) == told).then_some(()).ok_or(start)
    });
    if let Some(start) = sound.into_iter().find_map(Result::err) {
        return Err(broken(start, "a block of the listing has other bytes than were written"));
    }
    let objects: usize = heads.iter().map(|&(.., count, _)| count).sum();
    let mut names = vec![0; heads.iter().map(|&(.., names)| names).sum()];
    let (mut ends, mut sizes, mut versions) = (vec![0; objects], vec![0; objects], vec![0; objects]);
    let mut rest: Room<'_> = (&mut names, &mut ends, &mut sizes, &mut versions);
    let mut jobs = Vec::with_capacity(heads.len());
    let mut base = 0;
    for &(start, end, count, bytes) in heads {
        let (names, names_rest) = rest.0.split_at_mut(bytes);
        let (ends, ends_rest) = rest.1.split_at_mut(count);
        let (sizes, sizes_rest) = rest.2.split_at_mut(count);
        let (versions, versions_rest) = rest.3.split_at_mut(count);
        rest = (names_rest, ends_rest, sizes_rest, versions_rest);
        let content = &image[start + BLOCK_HEAD_BYTES..end];
        jobs.push((start, content, base, Mutex::new((names, ends, sizes, versions))));
        base += bytes;
    }
    let decoded = in_parallel(&jobs, THREADS, |(start, content, base, room)| {
        let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
        let (names, ends, sizes, versions) = &mut *room;
        block(content, *base as u64, (names, ends, sizes, versions)).ok_or(*start)
    });
    drop(jobs);
    let wrong = |start| broken(start, "a block of the listing contradicts itself");
    if let Some(start) = decoded.into_iter().find_map(Result::err) {
        return Err(wrong(start));
    }
    let listing = Listing::of_parts(prefix, names, ends, sizes, versions);
    let mut first = 0;
    for &(start, _, count, _) in heads {
        if first > 0 && listing.name(first - 1) >= listing.name(first) {
            return Err(wrong(start));
        }
        first += count;
    }
    Ok(listing)
}

/// Decodes a block whose names begin at `base` of all. Nothing if it contradicts itself, or names do not ascend.
fn block(content: &[u8], base: u64, (names, ends, sizes, versions): Room<'_>) -> Option<()> {
    let (mut at, mut last, mut filled) = (0, 0..0, 0);
    for object in 0..ends.len() {
        let shared = usize::try_from(varint(content, &mut at)?).ok()?;
        let rest = usize::try_from(varint(content, &mut at)?).ok()?;
        let own = content.get(at..at.checked_add(rest)?)?;
        at += rest;
        let before = last.len();
        if shared > before || object > 0 && (rest == 0 || shared < before && own[0] <= names[last.start + shared]) {
            return None;
        }
        let end = filled + shared + rest;
        if end > names.len() {
            return None;
        }
        names.copy_within(last.start..last.start + shared, filled);
        names[filled + shared..end].copy_from_slice(own);
        last = filled..end;
        filled = end;
        ends[object] = base + end as u64;
        sizes[object] = varint(content, &mut at)?;
        versions[object] = u64::from_le_bytes(content.get(at..at + 8)?.try_into().ok()?);
        at += 8;
    }
    (at == content.len() && filled == names.len()).then_some(())
}

/// Of all of a block but the checksum itself.
fn block_crc(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[BLOCK_HEAD_BYTES..])
}

fn put_u32(image: &mut Vec<u8>, number: usize) {
    // Fits: of URLs, keys and blocks.
    image.extend_from_slice(&(number as u32).to_le_bytes());
}

fn put_varint(image: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        image.push(number as u8 | 0x80);
        number >>= 7;
    }
    image.push(number as u8);
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

struct Cursor<'a> {
    image: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Broken> {
        let end = self.at.checked_add(bytes).filter(|&end| end <= self.image.len());
        let end = end.ok_or_else(|| Broken { is_short: true, ..broken(self.image.len(), "the listing is cut off") })?;
        let taken = &self.image[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<usize, Broken> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default()) as usize)
    }

    fn u64(&mut self) -> Result<u64, Broken> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }
}

fn broken(offset: usize, what: &'static str) -> Broken {
    Broken { offset: offset as u64, what, is_short: false, is_other: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringload_core::store::{Known, Object, Version};

    /// SplitMix64.
    fn draw(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }

    fn listing(objects: usize) -> Listing {
        let mut listing = Listing::new(b"data/");
        for number in 0..objects {
            let mut seed = number as u64;
            let version = (number % 3 > 0).then(|| Version::new(Known::Etag, draw(&mut seed)));
            let key = format!("data/{:04}/{number:08}.jpg", number / 100).into_bytes();
            listing.push(&Object { key, size: draw(&mut seed) >> (number % 60), version });
        }
        listing.sorted()
    }

    fn same(one: &Listing, other: &Listing) {
        assert_eq!((one.prefix(), one.len()), (other.prefix(), other.len()));
        for index in 0..one.len() {
            assert_eq!(one.name(index), other.name(index));
            assert_eq!((one.size(index), one.version(index)), (other.size(index), other.version(index)));
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for objects in [0, 1, 2, BLOCK_OBJECTS, BLOCK_OBJECTS + 1, 3 * BLOCK_OBJECTS] {
            let written = listing(objects);
            let image = encode(b"s3://bucket/", &written);
            let read = decode(&image).unwrap();
            assert_eq!(read.store, b"s3://bucket/");
            same(&written, &read.listing);
            assert!(objects < 1000 || image.len() / objects < 24, "{} bytes an object", image.len() / objects);
        }
    }

    #[test]
    fn keys_of_any_bytes() {
        let mut keys: Vec<Vec<u8>> =
            vec![b"".to_vec(), b"/".to_vec(), b"//".to_vec(), vec![255; 1000], vec![0], vec![128; 1024]];
        keys.extend((0..=255).map(|byte| vec![byte, b'a', 10]));
        let mut written = Listing::new(b"");
        keys.iter().for_each(|key| written.push(&Object { key: key.clone(), size: u64::MAX, version: None }));
        let written = written.sorted();
        same(&written, &decode(&encode(b"", &written)).unwrap().listing);
    }

    #[test]
    fn what_is_cut_off_or_flipped_is_told() {
        let image = encode(b"s3://bucket/", &listing(5000));
        for end in (0..image.len()).step_by(97).chain(0..200) {
            let broken = decode(&image[..end]).unwrap_err();
            assert!(end < 8 || broken.is_short, "{end}: {broken:?}");
        }
        assert!(decode(&[&image[..], b"x"].concat()).is_err());
        let mut seed = 7;
        for round in 0..3000 {
            let mut bad = image.clone();
            let at = if round < 100 { round } else { draw(&mut seed) as usize % bad.len() };
            bad[at] ^= 1 << (draw(&mut seed) % 8);
            let broken = decode(&bad).expect_err("a flipped bit");
            assert!(broken.offset <= image.len() as u64 && (at != 7 || broken.is_other), "{at}: {broken:?}");
        }
    }

    /// With checksums that are right, as who means harm would write them: no panic, and names that ascend.
    #[test]
    fn blocks_that_lie_are_refused_or_in_order() {
        let image = encode(b"s", &listing(300));
        let head = MAGIC.len() + 1 + 4 + 1 + 4 + 5 + 8 + 4 + 4;
        let mut seed = 3;
        let mut sound = 0;
        for _ in 0..20_000 {
            let mut bad = image.clone();
            for _ in 0..=draw(&mut seed) % 3 {
                let at = head + draw(&mut seed) as usize % (bad.len() - head);
                bad[at] = draw(&mut seed) as u8;
            }
            let crc = block_crc(&bad[head..]);
            bad[head + 12..head + 16].copy_from_slice(&crc.to_le_bytes());
            if let Ok(read) = decode(&bad) {
                sound += 1;
                assert!((1..read.listing.len()).all(|at| read.listing.name(at - 1) < read.listing.name(at)));
            }
        }
        assert!(sound > 0);
    }
}
