//! Chunk indexes: each of the seven forms becomes a list of places.

use super::array;
use super::meta::Meta;
use super::object::{Extent, Index};
use super::tree;
use uringload_core::{Error, ErrorKind, Result};

/// The place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Its number among all chunks of the dataset, in row-major order.
    pub(super) number: u64,
    /// First byte in the file.
    pub(super) offset: u64,
    /// Stored bytes. Up to version 4 of the layout, chunks cannot be longer.
    pub(super) len: u32,
    /// Filters that were skipped, one bit each.
    pub(super) mask: u32,
}

/// What all chunks of a dataset share.
pub(super) struct Grid {
    /// Elements of a chunk in each dimension, 1 or more.
    pub(super) chunk: Vec<u64>,
    /// Chunks in each dimension.
    pub(super) counts: Vec<u64>,
    /// The same at the dataset's maximum size; `None` for an unlimited dimension.
    limits: Vec<Option<u64>>,
    /// Dimensions as the file counts them, without those of elements that are arrays.
    file_rank: usize,
    /// Bytes of a chunk before filters.
    pub(super) chunk_bytes: u64,
    is_filtered: bool,
}

impl Grid {
    /// `None` if a chunk has more bytes than any file.
    pub(super) fn new(chunk: Vec<u64>, extent: &Extent, element_bytes: u64, is_filtered: bool) -> Option<Grid> {
        let file_rank = extent.file_rank;
        let chunk_bytes = chunk.iter().copied().try_fold(element_bytes, u64::checked_mul)?;
        let chunks = |(&len, &chunk): (&u64, &u64)| len.div_ceil(chunk);
        let counts = extent.shape.iter().zip(&chunk).map(chunks).collect();
        let limits = extent.limits.iter().zip(&chunk).map(|(limit, chunk)| limit.map(|limit| limit.div_ceil(*chunk)));
        let limits = limits.collect();
        (chunk_bytes <= i64::MAX as u64).then_some(Grid { chunk, counts, limits, file_rank, chunk_bytes, is_filtered })
    }

    /// The number of a chunk from its place in each dimension; `None` if it is outside the dataset.
    pub(super) fn number(&self, place: &[u64]) -> Option<u64> {
        let mut number: u64 = 0;
        for (&at, &count) in place.iter().zip(&self.counts) {
            if at >= count {
                return None;
            }
            // The dataset has more elements than chunks, and its size fits into 63 bits.
            number = number.checked_mul(count)?.checked_add(at)?;
        }
        Some(number)
    }

    /// The place of a chunk from its number in an array, which counts as if the dataset had its maximum size. An
    /// unlimited dimension varies slowest.
    fn place(&self, mut number: u64) -> Option<Vec<u64>> {
        let unlimited = self.limits.iter().position(Option::is_none);
        let mut place = vec![0; self.limits.len()];
        for dimension in (0..self.limits.len()).rev().filter(|&dimension| Some(dimension) != unlimited) {
            let count = self.limits[dimension]?.max(1);
            place[dimension] = number % count;
            number /= count;
        }
        match unlimited {
            Some(dimension) => place[dimension] = number,
            None if number > 0 => return None,
            None => {}
        }
        Some(place)
    }
}

/// Collects chunks and checks each.
struct Found<'m, 'a> {
    meta: &'m Meta<'a>,
    grid: &'m Grid,
    chunks: Vec<Chunk>,
}

impl Found<'_, '_> {
    /// Adds a chunk that is stored at an address; `stored` is `None` for unfiltered datasets.
    fn add(&mut self, place: &[u64], address: u64, stored: Option<(u64, u32)>) -> Result<()> {
        // Chunks from before the dataset shrank may still be listed.
        let Some(number) = self.grid.number(place) else { return Ok(()) };
        let source = self.meta.source;
        let (len, mask) = stored.unwrap_or((self.grid.chunk_bytes, 0));
        let offset = self.meta.base.saturating_add(address);
        if offset.checked_add(len).is_none_or(|end| end > source.size()) {
            let what = format!("chunk {place:?} of {len} bytes ends past the end of the file");
            return Err(Error::new(ErrorKind::Truncated, what)
                .with_path(source.path())
                .with_offset(offset)
                .with_remedy("fetch or write the file again"));
        }
        if !self.grid.is_filtered && len != self.grid.chunk_bytes {
            let what = format!("chunk {place:?} has {len} bytes instead of {}", self.grid.chunk_bytes);
            return Err(source.corrupt(offset, what));
        }
        let Ok(len) = u32::try_from(len) else {
            let error = source.unavailable(offset, format!("chunk {place:?} has 4 GiB or more"));
            return Err(error.with_remedy("write smaller chunks"));
        };
        self.chunks.push(Chunk { number, offset, len, mask });
        Ok(())
    }
}

/// All chunks that were written, by number.
pub(super) fn chunks<'a>(meta: &Meta<'a>, index: &Index, grid: &Grid) -> Result<Vec<Chunk>> {
    let mut found = Found { meta, grid, chunks: Vec::new() };
    match *index {
        Index::Nothing => {}
        Index::Single(address, stored) => found.add(&vec![0; grid.counts.len()], address, stored)?,
        Index::OldTree(address) => old_tree(&mut found, address)?,
        Index::Implicit(address) => implicit(&mut found, address)?,
        Index::Tree(address) => tree(&mut found, address)?,
        Index::FixedArray(address) | Index::ExtensibleArray(address) => {
            let show = |number, address, stored| match grid.place(number) {
                Some(place) => found.add(&place, address, stored),
                None => Ok(()),
            };
            match index {
                Index::FixedArray(_) => array::fixed(meta, address, show)?,
                _ => array::extensible(meta, address, show)?,
            }
        }
    }
    let Found { mut chunks, .. } = found;
    chunks.sort_unstable_by_key(|chunk| chunk.number);
    if let Some(twice) = chunks.windows(2).find(|pair| pair[0].number == pair[1].number) {
        return Err(meta.source.corrupt(twice[1].offset, "a chunk is stored twice"));
    }
    chunks.shrink_to_fit();
    Ok(chunks)
}

/// Chunks that are end to end, as many as the dataset may ever have.
fn implicit(found: &mut Found<'_, '_>, address: u64) -> Result<()> {
    let all = found.grid.limits.iter().try_fold(1_u64, |all, limit| all.checked_mul((*limit)?));
    let end = all.and_then(|all| all.checked_mul(found.grid.chunk_bytes)).and_then(|len| len.checked_add(address));
    let end = end.and_then(|end| end.checked_add(found.meta.base));
    if end.is_none_or(|end| end > found.meta.source.size()) {
        return Err(found.meta.source.truncated("the chunks of a dataset"));
    }
    for number in 0..all.unwrap_or(0) {
        if let Some(place) = found.grid.place(number) {
            found.add(&place, address + number * found.grid.chunk_bytes, None)?;
        }
    }
    Ok(())
}

/// A B-tree of version 1 with chunks as keys.
fn old_tree(found: &mut Found<'_, '_>, root: u64) -> Result<()> {
    const WHAT: &str = "the B-tree of chunks";
    let meta = found.meta;
    let (mut waiting, mut place) = (vec![(root, None)], Vec::new());
    while let Some((address, level)) = waiting.pop() {
        // Its type, 1, takes the place of other structures' version.
        let mut head = meta.signed(address, 8, b"TREE", 1, WHAT)?;
        let (own_level, used) = (head.u8()?, usize::from(head.u16()?));
        if level.is_some_and(|level| level != own_level) {
            return Err(head.corrupt("the B-tree of chunks is a loop"));
        }
        let before = 8 + 2 * meta.address_bytes;
        let rank = found.grid.file_rank;
        let key = 8 + 8 * (rank + 1);
        let mut node = meta.read(address, (before + used * (key + meta.address_bytes)) as u64, WHAT)?;
        node.skip(before)?;
        for _ in 0..used {
            let (len, mask) = (node.u32()?, node.u32()?);
            place.clear();
            for dimension in 0..rank {
                let (at, chunk) = (node.u64()?, found.grid.chunk[dimension]);
                if at % chunk != 0 {
                    return Err(node.corrupt(format!("a chunk begins at element {at}, among chunks of {chunk}")));
                }
                place.push(at / chunk);
            }
            place.resize(found.grid.counts.len(), 0);
            node.skip(8)?;
            let child = meta.address(&mut node)?;
            let child = child.ok_or_else(|| node.corrupt("a child in the B-tree of chunks is missing"))?;
            match own_level.checked_sub(1) {
                Some(below) => waiting.push((child, Some(below))),
                None => found.add(&place, child, Some((len.into(), mask)))?,
            }
        }
    }
    Ok(())
}

/// A B-tree of version 2.
fn tree(found: &mut Found<'_, '_>, address: u64) -> Result<()> {
    let (meta, rank) = (found.meta, found.grid.file_rank);
    tree::records(meta, address, &[tree::CHUNKS, tree::FILTERED_CHUNKS], |kind, mut record| {
        let address = meta.address(&mut record)?;
        let stored = match kind {
            tree::FILTERED_CHUNKS => {
                let width = record.left().checked_sub(4 + 8 * rank);
                let width = width.ok_or_else(|| record.corrupt("records of chunks are too short"))?;
                Some((record.number(width)?, record.u32()?))
            }
            _ => None,
        };
        let mut place = (0..rank).map(|_| record.u64()).collect::<Result<Vec<u64>>>()?;
        place.resize(found.grid.counts.len(), 0);
        match address {
            Some(address) => found.add(&place, address, stored),
            None => Ok(()),
        }
    })
}
