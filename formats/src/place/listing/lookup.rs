//! Looks names up in a listing. The block that was looked into last stays open: names that are asked for one after the
//! other are mostly near each other, and to open a block costs as much as to walk through it.

use super::{BLOCK_OBJECTS, Listing};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use uringload_core::store::Version;

/// The block that was looked into last.
#[derive(Debug, Default)]
pub(super) struct Lookup(Mutex<Option<Opened>>);

/// The objects of a block.
#[derive(Debug)]
struct Opened {
    block: usize,
    /// Names end to end.
    names: Vec<u8>,
    objects: Vec<Entry>,
    /// Whether it contradicts itself behind these.
    is_broken: bool,
}

/// Where an object's name is, its size and version.
#[derive(Debug)]
struct Entry {
    name: Range<usize>,
    size: u64,
    version: Option<Version>,
}

impl Opened {
    fn new(listing: &Listing, block: usize) -> Opened {
        let (mut names, mut objects) = (Vec::new(), Vec::with_capacity(BLOCK_OBJECTS));
        let mut walk = listing.walk_block(block);
        while walk.next() {
            let start = names.len();
            names.extend_from_slice(walk.name());
            objects.push(Entry { name: start..names.len(), size: walk.size(), version: walk.version() });
        }
        Opened { block, names, objects, is_broken: walk.is_broken() }
    }

    fn name(&self, object: &Entry) -> &[u8] {
        &self.names[object.name.clone()]
    }
}

impl Listing {
    /// What `look` says of the first object whose whole key, which it covers, is this or behind it: of its name behind
    /// the prefix, its size and its version. Nothing if there is none.
    fn first_from<T>(&self, key: &[u8], look: impl Fn(&[u8], u64, Option<Version>) -> T) -> Option<T> {
        let name = &key[self.prefix().len()..];
        let block = self.block_of(name);
        let mut last = self.lookup.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match last.take() {
            Some(opened) if opened.block == block => last.insert(opened),
            _ => last.insert(Opened::new(self, block)),
        };
        let first = opened.objects.partition_point(|object| opened.name(object) < name);
        if let Some(object) = opened.objects.get(first) {
            return Some(look(opened.name(object), object.size, object.version));
        }
        if opened.is_broken {
            return None;
        }
        let mut next = self.walk_block(block + 1);
        next.next().then(|| look(next.name(), next.size(), next.version()))
    }

    /// Size and version of the object with this whole key, which it covers.
    pub(in crate::place) fn find(&self, key: &[u8]) -> Option<(u64, Option<Version>)> {
        let wanted = &key[self.prefix().len()..];
        self.first_from(key, |name, size, version| (name == wanted).then_some((size, version))).flatten()
    }

    /// Whether the key of an object, which it covers, begins with this.
    pub(in crate::place) fn has_inside(&self, start: &[u8]) -> bool {
        let wanted = &start[self.prefix().len()..];
        self.first_from(start, |name, _, _| name.starts_with(wanted)) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use uringload_core::store::Object;

    /// Names of a few letters, so that many begin alike.
    fn drawn(mut seed: u64) -> Vec<Vec<u8>> {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) % below
        };
        (0..40_000).map(|_| (0..=draw(9)).map(|_| b"ab/.\xff"[draw(5) as usize]).collect()).collect()
    }

    #[test]
    fn what_is_looked_up_is_what_a_map_has() {
        let objects: BTreeMap<Vec<u8>, u64> = drawn(1).into_iter().zip(0..).collect();
        let mut listing = Listing::new(b"data/");
        for (name, &size) in &objects {
            listing.push(&Object { key: [b"data/", &name[..]].concat(), size, version: None });
        }
        let listing = listing.sorted();
        assert!(listing.blocks() > 2, "{} names", objects.len());
        // In order, so that a block stays open, and from block to block; names that are there, and others.
        for name in objects.keys().cloned().chain(drawn(2).into_iter().take(2000)) {
            let key = [b"data/", &name[..]].concat();
            let behind = objects.range(name.clone()..).next().map(|(name, &size)| (name.clone(), size));
            assert_eq!(listing.first_from(&key, |name, size, _| (name.to_vec(), size)), behind);
            assert_eq!(listing.find(&key).map(|(size, _)| size), objects.get(&name).copied());
            assert_eq!(listing.has_inside(&key), behind.is_some_and(|(found, _)| found.starts_with(&name)));
        }
        assert_eq!(Listing::new(b"").sorted().find(b"none"), None);
    }
}
