//! Chunks that are decoded: the chunks that hold the same rows form a band, which decodes to these rows end to end.

use super::filters::{Filters, Scratch};
use super::index::{Chunk, Grid};
use super::values::Values;
use bytes::Bytes;
use std::io;

/// Where the rows of a dataset come from.
#[derive(Debug)]
pub(super) enum RowSource {
    /// All rows are end to end from this byte on.
    Rows(u64),
    /// Each chunk holds this many rows end to end; the chunks begin at these offsets. Within a chunk, rows are `stride`
    /// bytes apart, which is more than a row's length if chunks are wider than the dataset.
    Runs { rows: u64, stride: u64, offsets: Vec<u64> },
    /// Rows are cut from bands.
    Bands(Bands),
    /// Each row has its own place.
    Values(Values),
}

/// The chunks of a dataset that must be decoded, or assembled from pieces.
pub(super) struct Bands {
    pub(super) grid: Grid,
    pub(super) shape: Vec<u64>,
    pub(super) element_bytes: u64,
    /// The chunks that were written, by number.
    pub(super) chunks: Vec<Chunk>,
    pub(super) filters: Filters,
    /// Whether chunks that reach past the end of the dataset are unfiltered.
    pub(super) plain_edges: bool,
    /// The value of an element that was never written; of an element of zeros, one of them.
    pub(super) fill: Vec<u8>,
}

/// A chunk that cannot be decoded: its place, and why.
pub(super) struct BadChunk {
    pub(super) offset: u64,
    pub(super) cause: io::Error,
}

impl std::fmt::Debug for Bands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bands").field("shape", &self.shape).field("chunk", &self.grid.chunk).finish_non_exhaustive()
    }
}

impl Bands {
    /// Rows of every band except the last.
    pub(super) fn rows(&self) -> u64 {
        self.grid.chunk[0]
    }

    /// Number of bands.
    pub(super) fn count(&self) -> u64 {
        self.grid.counts[0]
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> u64 {
        // Fits, as the whole dataset does.
        self.shape[1..].iter().product::<u64>() * self.element_bytes
    }

    /// The first row of a band, and its number of rows.
    pub(super) fn rows_of(&self, band: u64) -> (u64, u64) {
        let first = band * self.rows();
        (first, self.rows().min(self.shape[0] - first))
    }

    /// The chunks of a band that were written.
    pub(super) fn chunks_of(&self, band: u64) -> &[Chunk] {
        let per_band = self.grid.counts[1..].iter().product::<u64>();
        let from = self.chunks.partition_point(|chunk| chunk.number < band * per_band);
        let chunks = &self.chunks[from..];
        // If a band could have more chunks than there are in total, it ends with the list.
        let end = (band + 1).saturating_mul(per_band);
        &chunks[..chunks.partition_point(|chunk| chunk.number < end)]
    }

    /// The most bytes that the chunks of any band take in the file.
    pub(super) fn largest_stored(&self) -> u64 {
        let per_band = self.grid.counts[1..].iter().product::<u64>().max(1);
        let bands = self.chunks.chunk_by(|a, b| a.number / per_band == b.number / per_band);
        bands.map(|band| band.iter().map(|chunk| u64::from(chunk.len)).sum()).max().unwrap_or(0)
    }

    /// The place of the rows, if every chunk is stored unfiltered and holds whole rows.
    pub(super) fn runs(&self) -> Option<RowSource> {
        let plain = self.filters.0.is_empty() && self.chunks.len() as u64 == self.count();
        // If a chunk is wider than the dataset in a dimension other than the first of a row, its rows are in pieces.
        let whole = self.grid.counts[1..].iter().all(|&count| count == 1)
            && self.shape.iter().zip(&self.grid.chunk).skip(2).all(|(len, chunk)| len == chunk);
        let stride = self.grid.chunk_bytes / self.rows();
        let offsets = || self.chunks.iter().map(|chunk| chunk.offset).collect();
        (plain && whole).then(|| RowSource::Runs { rows: self.rows(), stride, offsets: offsets() })
    }

    /// Decodes a band from its stored chunks. `out` is exactly as long as the band's rows.
    pub(super) fn decode(&self, band: u64, stored: &[Bytes], out: &mut [u8]) -> Result<(), BadChunk> {
        let chunks = self.chunks_of(band);
        if (chunks.len() as u64) < self.grid.counts[1..].iter().product() {
            out.chunks_exact_mut(self.fill.len()).for_each(|out| out.copy_from_slice(&self.fill));
        }
        let mut scratch = Scratch::default();
        for (chunk, stored) in chunks.iter().zip(stored) {
            let placed = self.place(chunk.number, band);
            let is_edge = placed.lens != self.grid.chunk;
            let mask = if is_edge && self.plain_edges { u32::MAX } else { chunk.mask };
            let bad = |cause| BadChunk { offset: chunk.offset, cause };
            if placed.is_whole(&self.grid.chunk, &self.shape) {
                let (from, len) = (placed.offset(&self.shape, self.element_bytes), self.grid.chunk_bytes as usize);
                self.filters.undo(mask, stored, &mut out[from..from + len], &mut scratch).map_err(bad)?;
                continue;
            }
            // A chunk may be far larger than the dataset, or claim to be.
            let tile = self.filters.undone(mask, stored, self.grid.chunk_bytes as usize, &mut scratch).map_err(bad)?;
            placed.copy(tile, &self.grid.chunk, out, &self.shape, self.element_bytes as usize);
        }
        Ok(())
    }

    /// The place of a chunk within its band.
    fn place(&self, number: u64, band: u64) -> Placed {
        let rank = self.shape.len();
        let (mut starts, mut lens) = (vec![0; rank], vec![0; rank]);
        let mut rest = number;
        for dimension in (0..rank).rev() {
            let at = rest % self.grid.counts[dimension];
            rest /= self.grid.counts[dimension];
            let start = at * self.grid.chunk[dimension];
            lens[dimension] = self.grid.chunk[dimension].min(self.shape[dimension] - start);
            starts[dimension] = start;
        }
        starts[0] -= band * self.rows();
        Placed { starts, lens }
    }
}

/// The part of a chunk within the dataset: where it begins in the rows of its band, and its extent.
struct Placed {
    starts: Vec<u64>,
    lens: Vec<u64>,
}

impl Placed {
    /// Whether the chunk consists of whole rows and is completely within the dataset.
    fn is_whole(&self, chunk: &[u64], shape: &[u64]) -> bool {
        self.lens == chunk && self.lens[1..] == shape[1..]
    }

    /// The byte offset in the rows at which it begins.
    fn offset(&self, shape: &[u64], element_bytes: u64) -> usize {
        let elements = self.starts.iter().zip(shape).enumerate();
        // The length of the first dimension is unknown here, and not needed: nothing precedes that dimension.
        let at =
            elements.fold(0, |at, (dimension, (start, len))| if dimension == 0 { *start } else { at * len + start });
        (at * element_bytes) as usize
    }

    /// Copies it from a decoded chunk into the rows, run by run.
    fn copy(&self, tile: &[u8], chunk: &[u64], out: &mut [u8], shape: &[u64], element_bytes: usize) {
        let rank = chunk.len();
        // Dimensions from `inner` on form one contiguous run: all but the first of them are complete on both sides.
        let mut inner = rank - 1;
        while inner > 0 && self.lens[inner] == chunk[inner] && self.lens[inner] == shape[inner] {
            inner -= 1;
        }
        let run = self.lens[inner..].iter().product::<u64>() as usize * element_bytes;
        let mut at = vec![0; rank];
        loop {
            let (mut from, mut to) = (0, 0);
            for dimension in 0..rank {
                from = from * chunk[dimension] + at[dimension];
                // As above, the length of the first dimension does not matter.
                let len = if dimension == 0 { 0 } else { shape[dimension] };
                to = to * len + self.starts[dimension] + at[dimension];
            }
            let (from, to) = (from as usize * element_bytes, to as usize * element_bytes);
            out[to..to + run].copy_from_slice(&tile[from..from + run]);
            let mut dimension = inner;
            loop {
                let Some(outer) = dimension.checked_sub(1) else { return };
                dimension = outer;
                at[dimension] += 1;
                if at[dimension] < self.lens[dimension] {
                    break;
                }
                at[dimension] = 0;
            }
        }
    }
}
