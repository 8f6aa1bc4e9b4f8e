//! Where samples lie: a dataset is an index (sample -> spans) plus a parser of the bytes that were read. It never reads
//! samples itself.

mod classes;
mod files;
mod fingerprint;
mod folder;
mod paths;
mod patterns;
mod records;
mod skipped;
mod walk;

use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;

pub use files::{FileTable, Root};
pub use folder::{Folder, FolderOptions, Labels};
pub use records::{RecordOptions, Records, Tail};
pub use skipped::{SkipReason, Skipped};

/// Number of a sample in its dataset, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u64);

/// Number of a file in its dataset's [`FileTable`], from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; may be 0.
    pub len: u64,
}

/// Element type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned bytes.
    U8,
    /// Signed 64-bit integers, little endian.
    I64,
}

/// How large the values of a column are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every sample has this shape (empty: a scalar).
    Fixed(Vec<u64>),
    /// A vector whose length differs from sample to sample.
    Ragged,
}

/// One column of a dataset's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, as the user sees it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape of one sample's value.
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
    /// Bytes of a `U8` column, a zero-copy slice of what was read.
    Bytes(Bytes),
    /// The value of an `I64` scalar column.
    I64(i64),
}

/// One parsed sample: a value for each field of the schema, in order. Reused from sample to sample.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// One value for each field of the schema.
    pub values: Vec<Value>,
}

/// A format: an index plus a parser.
///
/// Methods are called from the reactor's thread and must neither block nor do I/O.
pub trait Dataset: Send + Sync + 'static {
    /// The files that spans refer to.
    fn files(&self) -> &FileTable;

    /// Short name of the format, as `--format` takes it ("folder", "records").
    fn format(&self) -> &'static str;

    /// Number of samples.
    fn len(&self) -> u64;

    /// Whether there is no sample. Constructors refuse empty datasets, so this is false for those of this crate.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns.
    fn schema(&self) -> &Schema;

    /// Appends the spans that `id` consists of, in the order in which `parse` wants them. A pure look-up.
    ///
    /// `id` is below `len()`.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>);

    /// Makes the sample from what was read: `raw` holds one slice for each span, each exactly as long as its span.
    /// `out.values` is empty on entry and has one value for each field on success.
    ///
    /// # Errors
    /// `Corrupt` where the bytes break the format; it becomes the error of this one sample.
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()>;

    /// Appends the sample's key (bytes that name it to a person: a path relative to the root, a record number).
    fn key(&self, id: SampleId, out: &mut Vec<u8>);

    /// Sum of the bytes of all samples.
    fn bytes(&self) -> u64;

    /// An upper bound of the summed span bytes of any `count` samples: what the memory limit is checked against.
    fn largest(&self, count: u64) -> u64;

    /// A hash of everything that the order and the content of samples hang on (format, names, sizes), not of the bytes.
    fn fingerprint(&self) -> u64;
}

/// A [`FileTable`] is full.
fn too_many_files(root: &std::path::Path) -> Error {
    Error::new(ErrorKind::InvalidArgument, "a dataset has at most 4294967295 files; too many are in").with_file(root)
}
