//! Which content of an object is meant: a stamp that a listing and the head of an answer give alike.

use ring::digest;
use uringload_core::store::{Known, Version};

/// A version by the hash of what it is known by.
fn version(known: Known, parts: &[&[u8]]) -> Version {
    let mut hash = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| hash.update(part));
    let hash = hash.finish();
    Version::new(known, hash.as_ref().first_chunk().map_or(0, |first| u64::from_le_bytes(*first)))
}

/// All that one listing or one head says of an object's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    pub generation: Option<Version>,
    pub etag: Option<Version>,
    /// Seconds since 1970.
    pub modified: Option<i64>,
    /// Whether there is an ETag that proves nothing, because it is weak.
    pub has_weak_etag: bool,
}

impl Versions {
    /// Takes an ETag as the header or a listing writes it: listings of Azure leave the quotes out.
    pub fn take_etag(&mut self, written: &str) {
        let written = written.trim();
        self.has_weak_etag = written.starts_with("W/");
        let bare = written.trim_matches('"');
        self.etag = (!self.has_weak_etag && !bare.is_empty()).then(|| version(Known::Etag, &[bare.as_bytes()]));
    }

    pub fn take_generation(&mut self, written: &str) {
        let number: Option<u64> = written.trim().parse().ok();
        self.generation = number.map(|number| version(Known::Generation, &[&number.to_le_bytes()]));
    }

    fn by(&self, known: Known, size: Option<u64>) -> Option<Version> {
        match known {
            Known::Generation => self.generation,
            Known::Etag => self.etag,
            Known::Modified => {
                let (modified, size) = (self.modified?, size?);
                Some(version(Known::Modified, &[&modified.to_le_bytes(), &size.to_le_bytes()]))
            }
        }
    }

    /// The best that there is for an object of `size` bytes.
    pub fn best(&self, size: Option<u64>) -> Option<Version> {
        [Known::Generation, Known::Etag, Known::Modified].into_iter().find_map(|known| self.by(known, size))
    }

    /// Whether this is surely not `expected`. Where nothing of its kind is said, nothing is known.
    pub fn is_other(&self, expected: Version, size: Option<u64>) -> bool {
        self.by(expected.known_by(), size).is_some_and(|found| found != expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(etag: &str, generation: &str, modified: Option<i64>) -> Versions {
        let mut versions = Versions { modified, ..Versions::default() };
        versions.take_etag(etag);
        versions.take_generation(generation);
        versions
    }

    #[test]
    fn the_best_is_taken() {
        let size = Some(7);
        assert_eq!(of("\"a\"", "5", Some(1)).best(size).unwrap().known_by(), Known::Generation);
        assert_eq!(of("\"a\"", "", Some(1)).best(size).unwrap().known_by(), Known::Etag);
        assert_eq!(of("W/\"a\"", "", Some(1)).best(size).unwrap().known_by(), Known::Modified);
        assert_eq!(of("W/\"a\"", "", None).best(size), None);
        assert_eq!(of("a", "", None).best(size), of("\"a\"", "", None).best(size));
    }

    #[test]
    fn only_what_is_of_the_same_kind_is_compared() {
        let size = Some(7);
        let expected = of("\"a\"", "", Some(1)).best(size).unwrap();
        assert!(!of("\"a\"", "9", Some(2)).is_other(expected, size));
        assert!(of("\"b\"", "9", Some(1)).is_other(expected, size));
        assert!(!of("W/\"a\"", "9", Some(1)).is_other(expected, size), "a weak ETag says nothing");
        let written = of("", "", Some(1)).best(size).unwrap();
        assert!(of("", "", Some(1)).is_other(written, Some(8)), "another size");
        assert!(of("", "", Some(2)).is_other(written, size));
    }

    #[test]
    fn bits_come_back() {
        for versions in [of("x", "", None), of("", "3", None), of("", "", Some(-1))] {
            let version = versions.best(Some(0)).unwrap();
            assert_eq!(Version::from_bits(version.to_bits()), Some(version));
        }
        assert_eq!((Version::from_bits(0), Version::from_bits(u64::MAX >> 2)), (None, None));
    }
}
