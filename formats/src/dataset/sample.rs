//! A sample: its number, its place, its columns and their values.

use bytes::Bytes;
use uringload_core::DType;

/// The number of a sample in its dataset, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u64);

/// The number of a file in its dataset's [`FileTable`](crate::FileTable), from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub offset: u64,
    /// Length in bytes; may be 0.
    pub len: u64,
}

/// The shape of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every value has this shape. An empty shape is a scalar.
    Fixed(Vec<u64>),
    /// Values are vectors of different lengths.
    Ragged,
}

/// One column of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The column's name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of one sample's value.
    pub shape: Shape,
}

/// The columns of a dataset, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The columns.
    pub fields: Vec<Field>,
}

/// One sample's value of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The elements, in little endian: a slice of what was read, without a copy.
    Bytes(Bytes),
    /// The value of a scalar `I64` column that the index knows.
    I64(i64),
}

/// One parsed sample. Parsers fill it again and again.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// One value for each field of the schema.
    pub values: Vec<Value>,
}

/// Which of several adjacent sequences has element `id`, and the element's number there: `ends` has the end of each.
/// Empty ones end where they begin, so the search passes over them.
pub(crate) fn locate(ends: &[u64], id: u64) -> (usize, u64) {
    let part = ends.partition_point(|&end| end <= id);
    let start = if part == 0 { 0 } else { ends[part - 1] };
    (part, id - start)
}
