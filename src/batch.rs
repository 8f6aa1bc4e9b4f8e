//! What the consumer gets: samples in plan order, as columns that point into the memory that was read.

mod columns;
mod packed;

use crate::Error;
use crate::dataset::{DType, SampleId};
use crate::sampler::{Cursor, Digest};
use bytes::Bytes;
use std::ops::Range;

pub(crate) use columns::{Pieces, Samples, index_column, key_column};
pub use packed::{Packed, Segment};

/// One batch. Its memory returns to the loader when the batch, and every `Bytes` cloned out of it, is dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// Place of the batch's first sample in the order.
    pub cursor: Cursor,
    /// Place behind the batch: what to resume from once this batch has been used.
    pub next: Cursor,
    /// The samples, in order; all columns have one value for each.
    pub ids: Vec<SampleId>,
    /// Which samples are repeats that only fill the batch up on this rank, so that all ranks have the same number;
    /// `None` where none is.
    pub padding: Option<Vec<bool>>,
    /// The columns, in the order of the dataset's schema; behind them "key" and "index", where they were asked for.
    pub columns: Vec<Column>,
    /// Samples of this batch that could not be had, unless `on_error` is `raise`.
    pub failed: Vec<FailedSample>,
    /// Of what was delivered: the samples that were planned, without padding.
    #[doc(hidden)]
    pub digest: Digest,
    /// Of the samples in `failed`: with `digest`, it adds up to what was planned.
    #[doc(hidden)]
    pub lost: Digest,
    /// What the columns' values are put together of, where that is done elsewhere.
    pub(crate) deferred: Option<Box<Deferred>>,
}

/// A batch whose columns have no values yet.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    /// The memory that was read, of which most pieces are slices.
    pub(crate) blocks: Vec<Bytes>,
    /// By column; `None` for integers and views, which are there.
    pub(crate) columns: Vec<Option<Pieces>>,
}

/// A sample that could not be had.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedSample {
    /// The sample.
    pub id: SampleId,
    /// Its position in the epoch.
    pub position: u64,
    /// Why.
    pub error: Error,
    /// The sample that stands in its place in the batch, under `on_error = replace`.
    pub replaced_by: Option<SampleId>,
}

impl Batch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether every sample was skipped.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes of all values; what fills up is not counted.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// One column of a batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Column {
    /// Name, as in the schema.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// The values.
    pub data: Data,
}

/// The values of a column, in the form that was asked for ([`Collate`](crate::config::Collate)).
///
/// Lengths and offsets count elements of the column's type, of which each has `dtype.size()` bytes. What was gathered
/// starts at a multiple of 64 bytes; what could stay where it was read starts at a multiple of the element's size.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Data {
    /// Values of one shape, end to end: a tensor of shape `[samples, shape...]`.
    Dense {
        /// Shape of one sample's value.
        shape: Vec<u64>,
        /// The elements, row-major, `samples * product(shape) * size(dtype)` bytes.
        bytes: Bytes,
    },
    /// Values of any lengths, end to end.
    Ragged {
        /// The elements of all samples: a tensor of shape `[offsets[samples]]`.
        values: Bytes,
        /// Where each value begins, in elements, and behind them where the last one ends: sample i has
        /// `offsets[i]..offsets[i + 1]`.
        offsets: Vec<u64>,
    },
    /// Values brought to one length: a tensor of shape `[samples, length]`.
    Padded {
        /// Elements in each row: of the longest value of this batch, rounded up as was asked.
        length: u64,
        /// The elements, `samples * length * size(dtype)` bytes.
        values: Bytes,
        /// Elements of each row that are the sample's; what is behind them fills up.
        lengths: Vec<u64>,
    },
    /// Pieces of samples end to end in rows of one length.
    Packed(Packed),
    /// One slice a sample, each of its own length.
    Views(Vec<Bytes>),
    /// One integer a sample, as the dataset's index tells them, whatever the form.
    I64(Vec<i64>),
}

impl Column {
    /// Bytes of all values; what fills up is not counted.
    pub fn bytes(&self) -> u64 {
        let size = self.dtype.size();
        match &self.data {
            Data::Dense { bytes, .. } => bytes.len() as u64,
            Data::Ragged { values, .. } => values.len() as u64,
            Data::Padded { lengths, .. } => lengths.iter().sum::<u64>() * size,
            Data::Packed(packed) => packed.segments.iter().map(|segment| segment.len).sum::<u64>() * size,
            Data::Views(views) => views.iter().map(|view| view.len() as u64).sum(),
            Data::I64(values) => values.len() as u64 * 8,
        }
    }

    /// The bytes of the value of sample `index`, without what fills up and without a copy; `None` behind the last
    /// sample, and where the column is of integers. A tensor of values without elements does not know where it ends.
    pub fn bytes_of(&self, index: usize) -> Option<Bytes> {
        let size = self.dtype.size();
        let of = |bytes: &Bytes, start: u64, len: u64| Some(bytes.slice(range(start * size, len * size)));
        match &self.data {
            Data::Dense { shape, bytes } => {
                let len = shape.iter().product::<u64>();
                let Some(samples) = (bytes.len() as u64).checked_div(len * size) else { return Some(Bytes::new()) };
                if index as u64 >= samples { None } else { of(bytes, index as u64 * len, len) }
            }
            Data::Ragged { values, offsets } => {
                let end = offsets.get(index + 1)?;
                of(values, offsets[index], end - offsets[index])
            }
            Data::Padded { length, values, lengths } => of(values, index as u64 * length, *lengths.get(index)?),
            Data::Packed(packed) => {
                let segment = packed.segments.get(index)?;
                of(&packed.values, segment.row * packed.seq_len + segment.start, segment.len)
            }
            Data::Views(views) => views.get(index).cloned(),
            Data::I64(_) => None,
        }
    }
}

/// As a range of memory: everything that is there at all is shorter than an address.
fn range(start: u64, len: u64) -> Range<usize> {
    start as usize..(start + len) as usize
}

#[cfg(test)]
mod tests;
