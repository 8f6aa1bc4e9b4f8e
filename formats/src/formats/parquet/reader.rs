//! The levels and the values of a column chunk, page after page.

use super::chunk::Chunk;
use super::hybrid::Hybrid;
use super::pages::{Data, Page, Pages};
use super::types::Primitive;
use super::values::{Dictionary, Stored, Values, broken};
use bytes::Bytes;
use uringload_core::{Error, Result};

/// Some entries of a column that follow each other with the same levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The depth of the list that goes on; 0 begins a row.
    pub(super) repetition: u32,
    /// How much of the path to the value is there; the highest is a value.
    pub(super) definition: u32,
    /// At least 1.
    pub(super) count: u64,
}

/// A chunk that is being read.
pub(super) struct ChunkReader {
    pages: Pages,
    stored: Stored,
    dictionary: Option<Dictionary>,
    repetition: Levels,
    definition: Levels,
    values: Values,
    /// Entries of this page that are still to come.
    left: u64,
    /// Where this page begins in the file.
    at: u64,
    /// Room for a few values.
    few: Vec<u8>,
}

impl ChunkReader {
    /// `stored` is the chunk, or its first pages.
    pub(super) fn new(chunk: &Chunk, leaf: &Primitive, stored: Bytes) -> ChunkReader {
        ChunkReader {
            pages: Pages::new(chunk, leaf, stored),
            stored: Stored::of(leaf),
            dictionary: None,
            repetition: Levels::new(leaf.repetition),
            definition: Levels::new(leaf.definition),
            values: Values::Plain(Bytes::new(), 1),
            left: 0,
            at: chunk.place.offset,
            few: Vec::new(),
        }
    }

    /// The next entries; `None` at the end of the chunk.
    ///
    /// # Errors
    /// `Corrupt`, with the offset of the page.
    pub(super) fn peek(&mut self) -> Result<Option<Run>> {
        if !self.has_entry()? {
            return Ok(None);
        }
        let levels = self.repetition.peek().zip(self.definition.peek());
        let ((repetition, repeated), (definition, defined)) = levels.ok_or_else(|| self.no_level())?;
        Ok(Some(Run { repetition, definition, count: self.left.min(repeated).min(defined) }))
    }

    /// Takes the levels of the next entries, all of one page; their values are still to be taken. `None` at the end of
    /// the chunk.
    ///
    /// # Errors
    /// As [`peek`](ChunkReader::peek).
    pub(super) fn take_levels(&mut self, repetition: &mut [u32], definition: &mut [u32]) -> Result<Option<usize>> {
        if !self.has_entry()? {
            return Ok(None);
        }
        let count = repetition.len().min(definition.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if !self.repetition.fill(&mut repetition[..count]) || !self.definition.fill(&mut definition[..count]) {
            return Err(self.no_level());
        }
        self.left -= count as u64;
        Ok(Some(count))
    }

    /// Takes the next value.
    ///
    /// # Errors
    /// As [`values`](ChunkReader::values).
    #[inline]
    pub(super) fn value(&mut self, take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let taken = self.values.one(self.dictionary.as_ref(), &mut self.few, take);
        taken.map_err(|error: Error| if error.offset().is_some() { error } else { error.with_offset(self.at) })
    }

    /// Whether there is another entry, on this page or a later one.
    fn has_entry(&mut self) -> Result<bool> {
        while self.left == 0 {
            let Some((page, at)) = self.pages.next()? else { return Ok(false) };
            self.at = at;
            self.open(page).map_err(|error| error.with_offset(at))?;
        }
        Ok(true)
    }

    fn no_level(&self) -> Error {
        broken("the levels of a page end early, or are broken").with_offset(self.at)
    }

    /// Goes past `count` entries, at most as many as `peek` returned.
    pub(super) fn skip(&mut self, count: u64) {
        self.left -= count;
        self.repetition.skip(count);
        self.definition.skip(count);
    }

    /// Takes the next `count` values: strings one by one, others several at once, end to end.
    ///
    /// # Errors
    /// `Corrupt` where there are fewer, with the offset of the page; the first of `take`.
    pub(super) fn values(&mut self, count: u64, take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let taken = self.values.each(self.dictionary.as_ref(), count, &mut self.few, take);
        taken.map_err(|error: Error| if error.offset().is_some() { error } else { error.with_offset(self.at) })
    }

    /// The length of the next `count` strings together, which are passed.
    ///
    /// # Errors
    /// As [`values`](ChunkReader::values).
    pub(super) fn total(&mut self, count: u64) -> Result<u64> {
        let total = self.values.total(self.dictionary.as_ref(), count, &mut self.few);
        total.map_err(|error| error.with_offset(self.at))
    }

    fn open(&mut self, page: Page) -> Result<()> {
        match page {
            Page::Dictionary { values, encoding, bytes } => {
                if self.dictionary.is_some() {
                    return Err(broken("the column chunk has two dictionaries"));
                }
                self.dictionary = Some(Dictionary::new(bytes, encoding, values, self.stored)?);
            }
            Page::Data(Data { values, encoding, repetition, definition, bytes }) => {
                self.left = values;
                self.repetition.open(repetition)?;
                self.definition.open(definition)?;
                // A page without entries may be without anything.
                if values > 0 {
                    self.values = Values::new(encoding, bytes, self.stored, self.dictionary.is_some())?;
                }
            }
        }
        Ok(())
    }
}

/// Levels of a kind; a column may have none.
struct Levels {
    most: u32,
    levels: Option<Hybrid>,
}

impl Levels {
    fn new(most: u32) -> Levels {
        Levels { most, levels: None }
    }

    fn open(&mut self, bytes: Bytes) -> Result<()> {
        if self.most > 0 {
            let width = (u32::BITS - self.most.leading_zeros()) as u8;
            self.levels = Some(Hybrid::new(bytes, width).ok_or_else(|| broken("levels have too many bits"))?);
        }
        Ok(())
    }

    /// The next level, and how often it certainly comes. `None` where it is missing or too high.
    fn peek(&mut self) -> Option<(u32, u64)> {
        match &mut self.levels {
            None => Some((0, u64::MAX)),
            Some(levels) => levels.peek().filter(|&(level, _)| level <= self.most),
        }
    }

    /// Takes levels until `out` is full; false where some are missing or too high.
    fn fill(&mut self, out: &mut [u32]) -> bool {
        let Some(levels) = &mut self.levels else {
            out.fill(0);
            return true;
        };
        let mut filled = 0;
        while filled < out.len() {
            let some = levels.some((out.len() - filled) as u64);
            if some.is_empty() {
                return false;
            }
            out[filled..filled + some.len()].copy_from_slice(some);
            filled += some.len();
        }
        out.iter().all(|&level| level <= self.most)
    }

    fn skip(&mut self, count: u64) {
        if let Some(levels) = &mut self.levels {
            levels.skip(count);
        }
    }
}
