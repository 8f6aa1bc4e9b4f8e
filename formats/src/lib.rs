//! Where samples lie: a dataset is an index (sample -> spans) plus a parser of the bytes that were read. It never reads
//! samples itself.
#![forbid(unsafe_code)]

mod arrays;
#[cfg(feature = "parquet")]
mod arrow;
mod beton;
mod checks;
mod classes;
#[cfg(feature = "parquet")]
mod columnar;
mod compression;
mod concat;
mod files;
mod fingerprint;
mod folder;
mod hdf5;
mod headers;
mod indexes;
mod lines;
mod litdata;
mod mds;
mod megatron;
mod npy;
mod npz;
mod parallel;
#[cfg(feature = "parquet")]
mod parquet;
mod paths;
mod patterns;
mod records;
mod safetensors;
mod shards;
mod sidecar;
mod sizes;
mod skipped;
mod tar;
mod tfrecord;
mod tokens;
mod units;
mod view;
mod walk;
mod window;
mod zip;

use uringload_core::{Error, ErrorKind, Result};

use bytes::Bytes;
pub use uringload_core::DType;

pub use arrays::{ArrayFormat, ArrayOptions, ArraySamples, Arrays};
#[cfg(feature = "parquet")]
pub use arrow::ArrowIpc;
pub use beton::{Beton, BetonOptions};
pub use checks::Check;
#[cfg(feature = "parquet")]
pub use columnar::{ColumnarOptions, Nulls};
pub use compression::Compression;
pub use concat::Concat;
pub use files::{FileTable, Root};
pub use folder::{Folder, FolderOptions, Labels};
pub use hdf5::{Hdf5, Hdf5Options};
pub use indexes::{IndexProgress, IndexReport};
pub use lines::{LineFormat, LineOptions, Lines};
pub use litdata::{LitData, LitDataOptions};
pub use mds::{Mds, MdsOptions};
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use records::{RecordOptions, Records, Tail};
pub use shards::BadShards;
pub use skipped::{SkipReason, Skipped};
pub use tar::{Damaged, Missing, Tar, TarOptions, TarProgress, TarReport};
pub use tfrecord::{TfRecord, TfRecordContent, TfRecordOptions, TfRecordProgress, TfRecordReport};
pub use tokens::{TokenOptions, TokenSource, Tokens};
pub use units::{UnitId, Units};
pub use view::{Repeat, Subset};

/// What the other crates of uringload use, and nobody else should: it may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::checks::{Checked, check_all};
    pub use crate::parallel::try_in_parallel;
    pub use crate::sidecar::{COLUMNS_MAX, KEY_BYTES_MAX};
    pub use crate::tar::{MANIFEST_NAME, split_name};
}

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
    /// The elements of a column of any type, a zero-copy slice of what was read.
    Bytes(Bytes),
    /// The value of a scalar `I64` column that the index tells.
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

    /// Makes the sample from what was read: `raw` holds one slice for each span, each exactly as long as its span, and
    /// then one for each of its units (see [`Units::of`]), which is the whole unit as it was decoded. `out.values` is
    /// empty on entry and has one value for each field on success.
    ///
    /// # Errors
    /// `Corrupt` where the bytes break the format; it becomes the error of this one sample.
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()>;

    /// The units that samples are cut from, where samples cannot be read one by one. `None` where all can.
    fn units(&self) -> Option<&dyn Units> {
        None
    }

    /// Appends the sample's key (bytes that name it to a person: a path relative to the root, a record number).
    fn key(&self, id: SampleId, out: &mut Vec<u8>);

    /// Sum of the bytes of all samples; of those that are cut from units, as far as the index tells.
    fn bytes(&self) -> u64;

    /// An upper bound of the summed span bytes of any `count` samples: what the memory limit is checked against. What
    /// is cut from units is not in it.
    fn largest(&self, count: u64) -> u64;

    /// A hash of everything that the order and the content of samples hang on (format, names, sizes), not of the bytes.
    fn fingerprint(&self) -> u64;

    /// Elements that the value of field number `field` of a sample has, as the index tells: what packing, buckets and
    /// padding go by before anything is read. `None` where only reading tells: of a field, for all samples or for none.
    fn length(&self, _id: SampleId, field: usize) -> Option<u64> {
        match &self.schema().fields[field].shape {
            Shape::Fixed(shape) => Some(shape.iter().product()),
            Shape::Ragged => None,
        }
    }

    /// The field whose value is exactly the sample's spans, end to end, while all other fields come from the index.
    /// Of such a sample a part can be read without the rest: `parse` then gets that part and makes it the value.
    fn plain_field(&self) -> Option<usize> {
        None
    }

    /// Whether [`parse`](Dataset::parse) looks at the bytes of samples. Where it does not, every value is a slice of
    /// what was read or a number that the index tells, so that the bytes may lie where only a device can see them.
    fn parse_reads_bytes(&self) -> bool {
        true
    }

    /// Bytes of a value of field `field` for each byte that it is stored in, at most: more than 1 where numbers are
    /// made of text, or of fewer bytes than their type has.
    fn widening(&self, _field: usize) -> u64 {
        1
    }

    /// Where each shard ends, in samples, ascending, the last at `len()`: what a shuffle of shards permutes. Empty
    /// where samples are not stored in shards.
    fn shards(&self) -> &[u64] {
        &[]
    }

    /// Appends the sums and hashes that the format keeps of bytes of a file, beside what [`parse`](Dataset::parse) and
    /// [`decode`](Units::decode) check of each sample. What cannot be computed is appended too, so that whoever asks
    /// can tell of it.
    ///
    /// Unlike the others it may read the file's headers, and is called from any thread but the reactor's.
    ///
    /// # Errors
    /// As opening the dataset, where the headers are not what they were.
    fn checks(&self, _file: FileId, _out: &mut Vec<Check>) -> Result<()> {
        Ok(())
    }

    /// What is wrong with the dataset beside its samples, each with its file: shards that cannot be had, indexes that
    /// do not belong to their shards. The files are looked at afresh where an index was believed when the dataset was
    /// opened, so that it may take as long as opening it without; never called from the reactor's thread.
    fn faults(&self) -> Vec<Error> {
        Vec::new()
    }

    /// Whether a sample has a value of field number `field`. Where it has none, and `parse` does not fail for it,
    /// `parse` gives an empty one.
    fn has_field(&self, _id: SampleId, _field: usize) -> bool {
        true
    }

    /// Which sample of which dataset this really is, where this dataset is a view of others.
    fn origin(&self, id: SampleId) -> Origin {
        Origin { fingerprint: self.fingerprint(), id }
    }
}

/// A sample, wherever it may be named: what a list of bad samples holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Of the dataset that has the sample.
    pub fingerprint: u64,
    /// The sample there.
    pub id: SampleId,
}

/// Which of several sequences, one behind the other, has element `id`, and the element's number there: `ends` has where
/// each ends. Empty ones end where they begin, so that the search passes over them.
fn locate(ends: &[u64], id: u64) -> (usize, u64) {
    let part = ends.partition_point(|&end| end <= id);
    let start = if part == 0 { 0 } else { ends[part - 1] };
    (part, id - start)
}

/// Samples in a shard, where a dataset has no shards of its own and is to be shuffled by shards.
pub const SHARD_SAMPLES: u64 = 4096;

/// A [`FileTable`] is full.
fn too_many_files(root: &std::path::Path) -> Error {
    Error::new(ErrorKind::InvalidArgument, "a dataset has at most 4294967295 files; too many are in").with_file(root)
}
