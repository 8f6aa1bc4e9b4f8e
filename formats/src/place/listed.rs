//! A listing as the bytes of a file: a head, and the listing's own blocks, whose checksums let no flipped bit become a
//! name.
//!
//! The head: `uringls` and the version in a byte, then the bytes of the store's URL and of the prefix with their
//! lengths (u32), objects (u64), blocks (u32), the CRC32C of all that (u32). Numbers are little-endian.

use super::listing::{BLOCK_HEAD_BYTES, BLOCK_OBJECTS, Block, Listing, block_crc};
use crate::parallel::in_parallel;

/// What such a file is called.
pub(crate) const EXTENSION: &str = "uls";

const MAGIC: &[u8; 7] = b"uringls";
const VERSION: u8 = 1;
/// Least bytes of an object: three numbers and a version.
const OBJECT_BYTES: usize = 11;
/// Threads that compare checksums: more wait for memory. Blocks that one compares at a time.
const THREADS: usize = 4;
const BLOCKS_AT_A_TIME: usize = 64;

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

/// The bytes of the file of a listing of the store that is called `store`.
pub(crate) fn encode(store: &[u8], listing: &Listing) -> Vec<u8> {
    let mut head = [&MAGIC[..], &[VERSION]].concat();
    for text in [store, listing.prefix()] {
        put_u32(&mut head, text.len());
        head.extend_from_slice(text);
    }
    head.extend_from_slice(&(listing.len() as u64).to_le_bytes());
    put_u32(&mut head, listing.blocks());
    let crc = crc32c::crc32c(&head);
    head.extend_from_slice(&crc.to_le_bytes());
    [&head, listing.bytes()].concat()
}

/// The listing that these bytes are.
///
/// # Errors
/// What is wrong with them, and where.
pub(crate) fn decode(image: Vec<u8>) -> Result<Listed, Broken> {
    let mut cursor = Cursor { image: &image, at: 0 };
    let magic = cursor.take(MAGIC.len() + 1).map_err(|_| broken(0, "this is no listing of objects"))?;
    if !magic.starts_with(MAGIC) {
        return Err(broken(0, "this is no listing of objects"));
    }
    if magic[MAGIC.len()] != VERSION {
        return Err(Broken { is_other: true, ..broken(MAGIC.len(), "the listing is of another version of uringload") });
    }
    let length = cursor.u32()?;
    let store = cursor.take(length)?.to_vec();
    let length = cursor.u32()?;
    let prefix = cursor.take(length)?.to_vec();
    let objects = cursor.u64()?;
    let count = cursor.u32()?;
    let end = cursor.at;
    if cursor.u32()? as u32 != crc32c::crc32c(&image[..end]) {
        return Err(broken(0, "the head of the listing has other bytes than were written"));
    }
    let (front, mut blocks, mut first) = (cursor.at, Vec::new(), 0);
    for _ in 0..count {
        let start = cursor.at;
        let (objects, bytes) = (cursor.u32()?, cursor.u32()?);
        cursor.u32()?;
        cursor.take(bytes)?;
        if objects == 0 || objects > BLOCK_OBJECTS || bytes / OBJECT_BYTES < objects {
            return Err(other_bytes(start));
        }
        blocks.push(Block { start, first });
        first += objects;
    }
    if cursor.at != image.len() {
        return Err(broken(cursor.at, "the listing goes on behind its end"));
    }
    if first as u64 != objects {
        return Err(broken(end, "the listing has another number of objects than it says"));
    }
    let is_sound = |at: usize| {
        let end = blocks.get(at + 1).map_or(image.len(), |next| next.start);
        let block = &image[blocks[at].start..end];
        let told = block[8..BLOCK_HEAD_BYTES].first_chunk().map_or(0, |told| u32::from_le_bytes(*told));
        block_crc(block) == told
    };
    let some: Vec<usize> = (0..blocks.len()).step_by(BLOCKS_AT_A_TIME).collect();
    let unsound = in_parallel(&some, THREADS, |&first| {
        (first..(first + BLOCKS_AT_A_TIME).min(blocks.len())).find(|&at| !is_sound(at))
    });
    if let Some(at) = unsound.into_iter().flatten().next() {
        return Err(other_bytes(blocks[at].start));
    }
    Ok(Listed { store, listing: Listing::of_blocks(&prefix, (image, front), blocks, first) })
}

fn other_bytes(offset: usize) -> Broken {
    broken(offset, "a block of the listing has other bytes than were written")
}

fn put_u32(image: &mut Vec<u8>, number: usize) {
    // Fits: of URLs, keys and blocks.
    image.extend_from_slice(&(number as u32).to_le_bytes());
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
        let (mut walk, mut beside) = (one.walk(), other.walk());
        for _ in 0..one.len() {
            assert!(walk.next() && beside.next());
            assert_eq!(walk.name(), beside.name());
            assert_eq!((walk.size(), walk.version()), (beside.size(), beside.version()));
        }
        assert!(!walk.next() && !beside.next() && !walk.is_broken() && !beside.is_broken());
    }

    #[test]
    fn what_was_written_is_read() {
        for objects in [0, 1, 2, BLOCK_OBJECTS, BLOCK_OBJECTS + 1, 3 * BLOCK_OBJECTS] {
            let written = listing(objects);
            let image = encode(b"s3://bucket/", &written);
            let read = decode(image.clone()).unwrap();
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
        same(&written, &decode(encode(b"", &written)).unwrap().listing);
        keys.iter().for_each(|key| assert_eq!(written.find(key), Some((u64::MAX, None)), "{key:?}"));
        assert_eq!(written.find(b"none"), None);
    }

    #[test]
    fn what_is_cut_off_or_flipped_is_told() {
        let image = encode(b"s3://bucket/", &listing(5000));
        for end in (0..image.len()).step_by(97).chain(0..200) {
            let broken = decode(image[..end].to_vec()).unwrap_err();
            assert!(end < 8 || broken.is_short, "{end}: {broken:?}");
        }
        assert!(decode([&image[..], b"x"].concat()).is_err());
        let mut seed = 7;
        for round in 0..3000 {
            let mut bad = image.clone();
            let at = if round < 100 { round } else { draw(&mut seed) as usize % bad.len() };
            bad[at] ^= 1 << (draw(&mut seed) % 8);
            let broken = decode(bad).expect_err("a flipped bit");
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
        for _ in 0..4000 {
            let mut bad = image.clone();
            for _ in 0..=draw(&mut seed) % 3 {
                let at = head + draw(&mut seed) as usize % (bad.len() - head);
                bad[at] = draw(&mut seed) as u8;
            }
            let crc = block_crc(&bad[head..]);
            bad[head + 8..head + 12].copy_from_slice(&crc.to_le_bytes());
            let Ok(read) = decode(bad) else { continue };
            let (mut walk, mut last) = (read.listing.walk(), None);
            while walk.next() {
                assert!(last.as_deref() < Some(walk.name()));
                last = Some(walk.name().to_vec());
            }
            if let Some(last) = &last {
                read.listing.find(&[b"data/", &last[..]].concat());
            }
            sound += usize::from(!walk.is_broken());
        }
        assert!(sound > 0);
    }
}
