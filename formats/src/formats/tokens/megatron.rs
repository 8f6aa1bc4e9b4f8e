//! Megatron-LM's `.idx`: which tokens of the `.bin` beside it form which document.
//!
//! Source: NVIDIA/Megatron-LM, `megatron/core/datasets/indexed_dataset.py`, version 1 of "MMIDIDX". All numbers are
//! little endian: magic (9 bytes), version u64, type u8, number of sequences n u64, entries of the document index m
//! u64; then n lengths i32 in tokens, n offsets i64 in bytes, m document borders i64 in sequences, and n modes i8 in
//! multimodal sets.

use crate::dataset::DType;
use crate::index::headers::{Source, u32_at, u64_at};
use uringload_core::Result;

/// The first bytes of the file.
pub(super) const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;
const HEADER_BYTES: u64 = 34;
/// Bytes of a table per read.
const CHUNK_BYTES: usize = 256 << 10;

/// The header of an index.
#[derive(Debug)]
pub(super) struct MegatronIndex {
    source: Source,
    pub(super) dtype: DType,
    sequences: u64,
    /// Entries of the document index: one more than there are documents.
    borders: u64,
}

impl MegatronIndex {
    /// Reads the header and checks it against the file's length.
    pub(super) fn open(source: Source) -> Result<MegatronIndex> {
        let start = source.bytes(0, source.size().min(MAGIC.len() as u64) as usize, "the index")?;
        if !MAGIC.starts_with(&start) {
            return Err(source.corrupt(0, "this is no index of Megatron-LM (its first bytes are not MMIDIDX)"));
        }
        let header = source.bytes(0, HEADER_BYTES as usize, "the header of the index")?;
        let version = u64_at(&header, 9);
        if version != VERSION {
            return Err(source
                .unavailable(9, format!("the index has version {version}, and only version {VERSION} can be read")));
        }
        let dtype = match header[17] {
            1 => DType::U8,
            2 => DType::I8,
            3 => DType::I16,
            4 => DType::I32,
            5 => DType::I64,
            8 => DType::U16,
            code @ (6 | 7) => {
                let what = format!("the elements are floating-point numbers (type {code}), not tokens");
                return Err(source.unavailable(17, what));
            }
            code => return Err(source.corrupt(17, format!("the elements have the unknown type {code}"))),
        };
        let (sequences, borders) = (u64_at(&header, 18), u64_at(&header, 26));
        let tables = || {
            let sequences = sequences.checked_mul(4 + 8)?;
            HEADER_BYTES.checked_add(sequences)?.checked_add(borders.checked_mul(8)?)
        };
        let index = MegatronIndex { source, dtype, sequences, borders };
        index.check_size(tables())?;
        Ok(index)
    }

    fn check_size(&self, needed: Option<u64>) -> Result<()> {
        let (source, sequences) = (&self.source, self.sequences);
        let size = source.size();
        match needed {
            Some(needed) if needed == size => Ok(()),
            Some(needed) if needed.checked_add(sequences) == Some(size) && sequences > 0 => {
                Err(source.unavailable(needed, "the dataset is multimodal (its sequences have modes)"))
            }
            Some(needed) if needed < size => {
                Err(source.corrupt(needed, format!("{} bytes follow the tables of the index", size - needed)))
            }
            _ => Err(source.truncated("the tables of the index")),
        }
    }

    /// Calls `document` with the number of tokens of each document, in order. Checks that sequences are end to end,
    /// that documents cover them all, and that `bin` has exactly their total length. Memory does not grow with the
    /// index.
    pub(super) fn documents(&self, bin: &Source, mut document: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let lengths_at = HEADER_BYTES;
        let places_at = lengths_at + self.sequences * 4;
        let borders_at = places_at + self.sequences * 8;
        let mut lengths = Table::new(&self.source, lengths_at..places_at);
        let mut places = Table::new(&self.source, places_at..borders_at);
        let mut borders = Table::new(&self.source, borders_at..borders_at + self.borders * 8);
        let mut sequence = 0;
        let mut place: u64 = 0;
        for number in 0..self.borders {
            let (at, border) = borders.next(u64_at)?;
            let is_right = match number {
                0 => border == 0,
                _ => border >= sequence && border <= self.sequences,
            };
            if !is_right {
                let what = format!("document {number} ends at sequence {border} of {}", self.sequences);
                return Err(self.source.corrupt(at, what));
            }
            let start = place;
            while sequence < border {
                let (at, length) = lengths.next(u32_at)?;
                let bytes = u64::from(length) * self.dtype.size();
                if length > i32::MAX as u32 {
                    return Err(self.source.corrupt(at, format!("sequence {sequence} has a negative length")));
                }
                let (at, told) = places.next(u64_at)?;
                if told != place {
                    let what = format!("sequence {sequence} is at {told}, and the one before it ends at {place}");
                    let remedy =
                        "only files whose sequences lie end to end can be read: write it again with Megatron-LM";
                    return Err(self.source.corrupt(at, what).with_remedy(remedy));
                }
                // If this overflows, no file is long enough, and the check at the end finds it.
                place = place.saturating_add(bytes);
                sequence += 1;
            }
            if number > 0 {
                document((place - start) / self.dtype.size())?;
            }
        }
        if sequence < self.sequences || self.borders == 0 {
            let what = format!("{} sequences belong to no document", self.sequences - sequence);
            return Err(self.source.corrupt(borders_at, what));
        }
        match bin.size() {
            size if size == place => Ok(()),
            size if size < place => Err(bin.truncated("the tokens that its index names")),
            size => Err(bin
                .corrupt(place, format!("the file has {} bytes more than its index names", size - place))
                .with_remedy("check that the index belongs to this file, and that both were written to their ends")),
        }
    }
}

/// Entries of one size, read in chunks.
struct Table<'a> {
    source: &'a Source,
    /// What has not been read yet.
    rest: std::ops::Range<u64>,
    chunk: Vec<u8>,
    at: usize,
}

impl<'a> Table<'a> {
    fn new(source: &'a Source, rest: std::ops::Range<u64>) -> Table<'a> {
        Table { source, rest, chunk: Vec::new(), at: 0 }
    }

    /// The next entry and its offset in the file. The caller must not ask for more entries than there are.
    fn next<T>(&mut self, read: fn(&[u8], usize) -> T) -> Result<(u64, T)> {
        if self.at == self.chunk.len() {
            // Fits: it is at most one chunk.
            let len = (self.rest.end - self.rest.start).min(CHUNK_BYTES as u64) as usize;
            self.chunk.resize(len, 0);
            self.source.read(self.rest.start, &mut self.chunk, "a table of the index")?;
            self.rest.start += len as u64;
            self.at = 0;
        }
        let entry = read(&self.chunk, self.at);
        let place = self.rest.start - (self.chunk.len() - self.at) as u64;
        self.at += size_of::<T>();
        Ok((place, entry))
    }
}
