//! All objects whose keys begin alike: 24 bytes each in addition to their keys.

use std::ops::Range;
use uringload_core::store::{Object, Version};

/// The objects whose keys begin with a prefix, in ascending order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    prefix: Vec<u8>,
    /// What is behind the prefix, end to end.
    names: Vec<u8>,
    ends: Vec<u64>,
    sizes: Vec<u64>,
    versions: Vec<u64>,
}

impl Listing {
    pub(super) fn new(prefix: &[u8]) -> Listing {
        Listing { prefix: prefix.to_vec(), ..Listing::default() }
    }

    /// One whose names are end to end and ascend.
    pub(super) fn of_parts(
        prefix: &[u8],
        names: Vec<u8>,
        ends: Vec<u64>,
        sizes: Vec<u64>,
        versions: Vec<u64>,
    ) -> Listing {
        Listing { prefix: prefix.to_vec(), names, ends, sizes, versions }
    }

    /// Adds an object, whose key begins with the prefix.
    pub(super) fn push(&mut self, object: &Object) {
        self.names.extend_from_slice(&object.key[self.prefix.len()..]);
        self.ends.push(self.names.len() as u64);
        self.sizes.push(object.size);
        self.versions.push(object.version.map_or(0, Version::to_bits));
    }

    /// Puts them in order. Azure lists in an order of its own.
    pub(super) fn sorted(mut self) -> Listing {
        if (1..self.len()).all(|index| self.name(index - 1) < self.name(index)) {
            [&mut self.ends, &mut self.sizes, &mut self.versions].into_iter().for_each(Vec::shrink_to_fit);
            self.names.shrink_to_fit();
            return self;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by(|&one, &other| self.name(one).cmp(self.name(other)));
        let mut sorted = Listing::new(&self.prefix);
        for index in order {
            sorted.names.extend_from_slice(self.name(index));
            sorted.ends.push(sorted.names.len() as u64);
            sorted.sizes.push(self.sizes[index]);
            sorted.versions.push(self.versions[index]);
        }
        sorted
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
        self.ends.len()
    }

    /// The key of an object, behind the prefix.
    pub(crate) fn name(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.names[start as usize..self.ends[index] as usize]
    }

    /// The names from `first` on, end to end: at least one, and further ones up to `most` bytes. Where they end.
    pub(crate) fn names(&self, first: usize, most: usize) -> (&[u8], usize) {
        let start = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let fit = self.ends[first..].partition_point(|&end| end - start <= most as u64);
        let end = first + fit.max(1);
        (&self.names[start as usize..self.ends[end - 1] as usize], end)
    }

    pub(crate) fn size(&self, index: usize) -> u64 {
        self.sizes[index]
    }

    pub(crate) fn version(&self, index: usize) -> Option<Version> {
        Version::from_bits(self.bits(index))
    }

    /// The version in 64 bits; 0 for none.
    pub(super) fn bits(&self, index: usize) -> u64 {
        self.versions[index]
    }

    /// The object with this whole key, which it covers.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        let name = &key[self.prefix.len()..];
        let at = self.first(0, |other| other >= name);
        (at < self.len() && self.name(at) == name).then_some(at)
    }

    /// The objects whose whole keys begin with this, which it covers.
    pub(super) fn below(&self, start: &[u8]) -> Range<usize> {
        let name = &start[self.prefix.len()..];
        let first = self.first(0, |other| other >= name);
        first..self.first(first, |other| !other.starts_with(name))
    }

    /// The first object from `low` on whose name `is_behind`, as all after it are.
    fn first(&self, mut low: usize, is_behind: impl Fn(&[u8]) -> bool) -> usize {
        let mut high = self.len();
        while low < high {
            let middle = low + (high - low) / 2;
            if is_behind(self.name(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}
