//! The objects of a bucket in the order of their keys, and pages of them.

use std::sync::Arc;

/// The bucket whose objects are computed.
pub const SYNTHETIC: &str = "synthetic";
/// Objects of a folder of it.
const FOLDER_OBJECTS: u64 = 1000;

/// What a listing says about an object.
#[derive(Clone)]
pub struct Entry {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: u64,
}

/// All objects of a bucket, by the bytes of their keys.
#[derive(Clone)]
pub enum Listing {
    Sorted(Arc<[Entry]>),
    Synthetic { count: u64, size: u64, modified: u64 },
}

/// A page of a listing.
pub struct Page {
    pub entries: Vec<Entry>,
    /// What keys have in common up to a delimiter.
    pub prefixes: Vec<String>,
    /// Where the next page begins.
    pub next: Option<u64>,
}

impl Listing {
    /// The object of a synthetic bucket, or one of those that were found.
    pub fn get(&self, key: &str) -> Option<Entry> {
        let at = self.first(|known| known < key);
        (at < self.len()).then(|| self.at(at)).filter(|entry| entry.key == key)
    }

    /// At most `most` of the objects and prefixes behind the `from`th object that begin with `prefix`.
    pub fn page(&self, prefix: &str, delimiter: &str, from: u64, most: usize) -> Page {
        let mut page = Page { entries: Vec::new(), prefixes: Vec::new(), next: None };
        let mut at = from.max(self.first(|key| key < prefix));
        while at < self.len() {
            let entry = self.at(at);
            let Some(rest) = entry.key.strip_prefix(prefix) else { break };
            if page.entries.len() + page.prefixes.len() == most {
                page.next = Some(at);
                break;
            }
            match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
                Some(end) => {
                    let common = entry.key[..prefix.len() + end + delimiter.len()].to_owned();
                    at = self.first(|key| key < &*common || key.starts_with(&common));
                    page.prefixes.push(common);
                }
                None => {
                    page.entries.push(entry);
                    at += 1;
                }
            }
        }
        page
    }

    /// The number of the first object whose key is not `before`.
    pub fn first(&self, before: impl Fn(&str) -> bool) -> u64 {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&self.key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn len(&self) -> u64 {
        match self {
            Listing::Sorted(entries) => entries.len() as u64,
            Listing::Synthetic { count, .. } => *count,
        }
    }

    fn key(&self, at: u64) -> String {
        match self {
            Listing::Sorted(entries) => entries[at as usize].key.clone(),
            Listing::Synthetic { .. } => format!("{:07}/{at:010}.bin", at / FOLDER_OBJECTS),
        }
    }

    fn at(&self, at: u64) -> Entry {
        match self {
            Listing::Sorted(entries) => entries[at as usize].clone(),
            Listing::Synthetic { size, modified, .. } => {
                Entry { key: self.key(at), size: *size, etag: format!("{at:x}-{size:x}"), modified: *modified }
            }
        }
    }
}
