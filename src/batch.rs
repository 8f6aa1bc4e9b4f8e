//! What the consumer gets: samples in plan order, as columns that point into the memory that was read.

use crate::dataset::{DType, Field, SampleId, Schema, Shape, Value};
use crate::error::Error;
use crate::sampler::{Cursor, Digest};
use bytes::Bytes;

/// One batch. Its memory returns to the loader when the batch, and every `Bytes` cloned out of it, is dropped.
#[derive(Clone, Debug)]
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
    /// The columns, in the order of the dataset's schema.
    pub columns: Vec<Column>,
    /// Samples of this batch that could not be had, unless `on_error` is `raise`.
    pub failed: Vec<FailedSample>,
    /// Of what was delivered: the samples that were planned, without padding.
    pub digest: Digest,
    /// Of the samples in `failed`: with `digest`, it adds up to what was planned.
    pub lost: Digest,
}

/// A sample that could not be had.
#[derive(Clone, Debug)]
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

    /// Bytes of all values.
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
pub struct Column {
    /// Name, as in the schema.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// The values.
    pub data: Data,
}

/// The values of a column.
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
    /// One slice a sample, each of its own length.
    Views(Vec<Bytes>),
    /// One integer a sample.
    I64(Vec<i64>),
}

impl Column {
    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        match &self.data {
            Data::Dense { bytes, .. } => bytes.len() as u64,
            Data::Views(views) => views.iter().map(|view| view.len() as u64).sum(),
            Data::I64(values) => values.len() as u64 * 8,
        }
    }

    /// The bytes of the value of sample `index`, unless the column is of index integers.
    pub fn bytes_of(&self, index: usize) -> Option<Bytes> {
        match &self.data {
            Data::Dense { shape, bytes, .. } => {
                let len = (shape.iter().product::<u64>() * self.dtype.size()) as usize;
                (index < bytes.len().checked_div(len)?).then(|| bytes.slice(index * len..(index + 1) * len))
            }
            Data::Views(views) => views.get(index).cloned(),
            Data::I64(_) => None,
        }
    }
}

/// Collects parsed samples into columns.
pub(crate) struct Columns<'a> {
    schema: &'a Schema,
    data: Vec<Data>,
}

impl<'a> Columns<'a> {
    pub(crate) fn new(schema: &'a Schema, samples: usize) -> Columns<'a> {
        Columns { schema, data: schema.fields.iter().map(|_| Data::Views(Vec::with_capacity(samples))).collect() }
    }

    /// Adds the values of one sample, which fit the schema.
    pub(crate) fn push(&mut self, values: impl Iterator<Item = Value>) {
        for (value, data) in values.zip(&mut self.data) {
            match (value, data) {
                (Value::Bytes(bytes), Data::Views(views)) => views.push(bytes),
                (Value::I64(number), Data::I64(numbers)) => numbers.push(number),
                // A column of numbers shows itself with the first sample; `fit` has seen that all are alike.
                (Value::I64(number), data) => *data = Data::I64(vec![number]),
                (Value::Bytes(_), _) => {}
            }
        }
    }

    /// The columns. With `dense`, a byte column of fixed shape whose slices lie end to end in one of `blocks` becomes
    /// one tensor, without a copy. Slices of a `scattered` batch, of which some lie elsewhere, are copied together.
    pub(crate) fn finish(self, dense: bool, blocks: &[Bytes], scattered: bool) -> Vec<Column> {
        let named = |(field, data): (&Field, Data)| {
            let data = match (&field.shape, data) {
                (Shape::Fixed(shape), Data::Views(views)) if dense => match end_to_end(&views, blocks) {
                    Some(bytes) => Data::Dense { shape: shape.clone(), bytes },
                    None if scattered => Data::Dense { shape: shape.clone(), bytes: views.concat().into() },
                    None => Data::Views(views),
                },
                (_, data) => data,
            };
            Column { name: field.name.clone(), dtype: field.dtype, data }
        };
        self.schema.fields.iter().zip(self.data).map(named).collect()
    }
}

/// The one slice that `views` cover, in order and without a hole.
fn end_to_end(views: &[Bytes], blocks: &[Bytes]) -> Option<Bytes> {
    let Some(first) = views.first() else { return Some(Bytes::new()) };
    let start = first.as_ptr() as usize;
    let mut end = start;
    for view in views {
        if view.as_ptr() as usize != end {
            return None;
        }
        end += view.len();
    }
    let holds = |block: &&Bytes| {
        let base = block.as_ptr() as usize;
        base <= start && end <= base + block.len()
    };
    let block = blocks.iter().find(holds)?;
    let offset = start - block.as_ptr() as usize;
    Some(block.slice(offset..offset + (end - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_end_to_end_are_one_tensor() {
        let block = Bytes::from((0..100).collect::<Vec<u8>>());
        let blocks = [Bytes::from_static(b"other"), block.clone()];
        let views: Vec<Bytes> = (0..4).map(|n| block.slice(10 + n * 20..30 + n * 20)).collect();
        let dense = end_to_end(&views, &blocks).unwrap();
        assert_eq!(&dense[..], &block[10..90]);
        assert_eq!(dense.as_ptr(), views[0].as_ptr(), "no copy");
        assert!(end_to_end(&[views[1].clone(), views[0].clone()], &blocks).is_none());
        assert!(end_to_end(&views, &blocks[..1]).is_none());
    }
}
