//! The consumer's batch: its samples, in order, as columns that point into the memory that they were read into.

mod columns;
mod made;
mod packed;
mod soft;
mod typed;

use crate::Error;
use crate::dataset::{DType, SampleId};
use crate::sampler::{Cursor, Digest};
use bytes::Bytes;
use std::ops::Range;

pub(crate) use columns::{Pieces, Samples, index_column, key_column, whole_column};
pub(crate) use made::Made;
pub use packed::{Packed, Segment};
pub use typed::Element;

/// One batch. Its memory returns to the loader when the batch, and every `Bytes` cloned out of it, is dropped.
///
/// ```
/// use uringload::batch::Data;
/// use uringload::{Loader, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # (0..4).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// for batch in Loader::builder(dataset).batch_size(2).build()? {
///     let batch = batch?;
///     for column in &batch.columns {
///         match &column.data {
///             Data::Dense { shape, bytes } => println!("{}: {shape:?}, {} bytes", column.name, bytes.len()),
///             Data::Views(values) => println!("{}: {} values of any length", column.name, values.len()),
///             other => println!("{}: {other:?}", column.name),
///         }
///     }
/// }
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// Where the batch begins in the order.
    pub cursor: Cursor,
    /// Where the batch ends in the order: resume from here once the batch has been used.
    pub next: Cursor,
    /// The samples, in order. Each column has one value per sample.
    pub ids: Vec<SampleId>,
    /// Which samples are repeats that only pad the batch so that all ranks have the same number of samples; `None` if
    /// there are none.
    pub padding: Option<Vec<bool>>,
    /// The columns, in the order of the dataset's schema, followed by "key" and "index" if the builder enabled them.
    pub columns: Vec<Column>,
    /// Samples of this batch that could not be read, unless `on_error` is `raise`.
    pub failed: Vec<FailedSample>,
    /// Digest of the samples that this batch delivered, without padding: the digests of all batches and ranks add up to
    /// that of the epoch.
    pub digest: Digest,
    /// Digest of the samples in `failed`. Together with `digest`, it adds up to what was planned.
    pub lost: Digest,
    /// The pieces of the columns' values, if they are assembled elsewhere.
    pub(crate) deferred: Option<Box<Deferred>>,
}

/// The pieces of a batch whose columns have no values yet.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    /// The memory that was read. Most pieces are slices of it.
    pub(crate) blocks: Vec<Bytes>,
    /// By column. `None` for integers and views, which already have their values.
    pub(crate) columns: Vec<Option<Pieces>>,
    /// The blocks that a device's kernels need, once its lane has determined them.
    pub(crate) in_use: Option<Vec<Bytes>>,
}

/// A sample that could not be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedSample {
    /// The sample.
    pub id: SampleId,
    /// Its position in the epoch.
    pub position: u64,
    /// Why it failed.
    pub error: Error,
    /// The sample that replaces it in the batch, under `on_error = replace`.
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

    /// Bytes of all values, without padding.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// The column named `name`.
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

/// The values of a column, in the form that [`Collate`](crate::config::Collate) selects.
///
/// Lengths and offsets count elements of the column's type, each `dtype.size()` bytes long. Gathered values start at a
/// multiple of 64 bytes; values that stayed where they were read start at a multiple of the element's size.
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
    /// Values of any length, end to end.
    Ragged {
        /// The elements of all samples: a tensor of shape `[offsets[samples]]`.
        values: Bytes,
        /// Where each value begins, in elements, and at the end where the last one ends: sample i has
        /// `offsets[i]..offsets[i + 1]`.
        offsets: Vec<u64>,
    },
    /// Values padded to one length: a tensor of shape `[samples, length]`.
    Padded {
        /// Elements in each row: those of the longest value of this batch, rounded up as the padding says.
        length: u64,
        /// The elements, `samples * length * size(dtype)` bytes.
        values: Bytes,
        /// Elements of each row that belong to the sample; the rest is padding.
        lengths: Vec<u64>,
    },
    /// Pieces of samples, end to end in rows of one length.
    Packed(Packed),
    /// One slice per sample, each of its own length.
    Views(Vec<Bytes>),
    /// One integer per sample, from the dataset's index, for any requested form.
    I64(Vec<i64>),
}

impl Column {
    /// Bytes of all values, without padding.
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

    /// The bytes of the value of sample `index`, without padding and without a copy. `None` past the last sample, and
    /// for a column of integers. If values have no elements at all, the number of samples is not checked.
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

/// Converts to a range of memory. Anything that exists in memory is shorter than the address space.
fn range(start: u64, len: u64) -> Range<usize> {
    start as usize..(start + len) as usize
}

#[cfg(test)]
mod tests;
