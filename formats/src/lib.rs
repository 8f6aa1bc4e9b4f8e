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
#[cfg(not(feature = "parquet"))]
mod columnar_absent;
mod compression;
mod concat;
mod files;
mod fingerprint;
mod folder;
mod hdf5;
mod headers;
mod index;
mod indexes;
mod lines;
mod litdata;
mod mds;
mod megatron;
mod npy;
mod npz;
mod options;
mod parallel;
#[cfg(feature = "parquet")]
mod parquet;
mod paths;
mod patterns;
mod records;
mod registry;
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
use std::ffi::OsStr;
use std::io::Write;

pub use checks::Check;
pub use concat::Concat;
pub use files::FileTable;
pub use index::{Encoding, Index, Role};
pub use indexes::{IndexProgress, IndexReport};
pub use options::{OptionValue, Options};
pub use registry::open;
pub use skipped::Skipped;
pub use units::{UnitId, Units};
pub use uringload_core::DType;
pub use view::View;

/// What the other crates of uringload use, and nobody else should: it may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::checks::{Checked, check_all};
    pub use crate::mds::array_shape;
    pub use crate::options::{OptionKind, OptionSpec};
    pub use crate::parallel::try_in_parallel;
    pub use crate::registry::{FORMATS, Format, all_options, detect, formats_with, of_files};
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

/// A dataset: an [`Index`] of where its samples lie, and how they are made from the bytes that were read.
///
/// A format of one's own implements [`index`](Dataset::index), [`spans`](Dataset::spans) and
/// [`parse`](Dataset::parse), and refines the other methods where its index knows better. The first nine methods behind
/// these three only read the index.
///
/// Methods are called from the thread that reads, so they must neither block nor do I/O.
pub trait Dataset: Send + Sync + 'static {
    /// What every dataset knows of itself.
    fn index(&self) -> &Index;

    /// Appends the spans that sample `id`, which is below [`len`](Dataset::len), consists of, in the order in which
    /// `parse` wants them. A pure look-up.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>);

    /// Makes the sample from what was read: `raw` holds one slice for each span, each exactly as long as its span, and
    /// then one for each of its units (see [`Units::of`]), which is the whole unit as it was decoded. `out.values` is
    /// empty on entry and has one value for each field on success.
    ///
    /// # Errors
    /// `Corrupt` where the bytes break the format; it becomes the error of this one sample.
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()>;

    /// The files that spans refer to.
    fn files(&self) -> &FileTable {
        &self.index().files
    }

    /// Short name of the format ("folder", "records").
    fn format(&self) -> &'static str {
        self.index().format
    }

    /// Number of samples.
    fn len(&self) -> u64 {
        self.index().samples
    }

    /// Whether there is no sample. Constructors refuse empty datasets, so this is false for those of this crate.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns.
    fn schema(&self) -> &Schema {
        &self.index().schema
    }

    /// Bytes of all samples; of those that are cut from units, as far as the index tells.
    fn bytes(&self) -> u64 {
        self.index().bytes
    }

    /// Where each shard ends: see [`Index::shards`].
    fn shards(&self) -> &[u64] {
        &self.index().shards
    }

    /// The field whose value is the sample's spans: see [`Index::plain_field`].
    fn plain_field(&self) -> Option<usize> {
        self.index().plain_field
    }

    /// Whether [`parse`](Dataset::parse) looks at the bytes of samples: see [`Index::parse_reads_bytes`].
    fn parse_reads_bytes(&self) -> bool {
        self.index().parse_reads_bytes
    }

    /// The units that samples are cut from, where samples cannot be read one by one. `None` where all can.
    fn units(&self) -> Option<&dyn Units> {
        None
    }

    /// Appends the sample's key: bytes that name it to a person. The file's name and the sample's number in it, where
    /// each file is a shard; else the sample's number.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let index = self.index();
        if index.shards.len() == index.files.len() {
            let (file, number) = index.locate(id);
            out.extend_from_slice(index.files.name(file));
            write!(out, "#{number}").expect("a Vec takes everything");
        } else {
            write!(out, "{}", id.0).expect("a Vec takes everything");
        }
    }

    /// An upper bound of the summed span bytes of any `count` samples: what the memory limit is checked against. What
    /// is cut from units is not in it. Without an answer of the format's own, it takes a look at every sample.
    fn largest(&self, count: u64) -> u64 {
        sizes::sum_of_largest(sizes::bytes_of(|id, out| self.spans(id, out), 0..self.len()), count)
    }

    /// A hash of everything that the order and the content of samples hang on, not of the bytes. Without an answer of
    /// the format's own: FNV-1a over the format's name, the columns' names and types, the names and sizes of all files,
    /// and the number of samples.
    fn fingerprint(&self) -> u64 {
        let index = self.index();
        let mut fingerprint = fingerprint::Fingerprint::new(index.format);
        for field in &index.schema.fields {
            fingerprint.bytes(field.name.as_bytes());
            fingerprint.bytes(field.dtype.name().as_bytes());
        }
        fingerprint.files(&index.files);
        fingerprint.number(index.samples);
        fingerprint.finish()
    }

    /// Elements that the value of field number `field` of a sample has, as the index tells: what packing, buckets and
    /// padding go by before anything is read. `None` where only reading tells: of a field, for all samples or for none.
    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let column = &self.schema().fields[field];
        match &column.shape {
            Shape::Fixed(shape) => Some(shape.iter().product()),
            Shape::Ragged if self.plain_field() == Some(field) => {
                let bytes = sizes::sum(sizes::bytes_of(|id, out| self.spans(id, out), id.0..id.0 + 1));
                Some(bytes / column.dtype.size())
            }
            Shape::Ragged => None,
        }
    }

    /// The shape of a sample's value of field number `field`, also where the column is ragged. `None` where the index
    /// knows no more than its [`length`](Dataset::length).
    fn shape(&self, _id: SampleId, field: usize) -> Option<&[u64]> {
        match &self.schema().fields[field].shape {
            Shape::Fixed(shape) => Some(shape),
            Shape::Ragged => None,
        }
    }

    /// Bytes of a value of field `field` for each byte that it is stored in, at most: more than 1 where numbers are
    /// made of text, or of fewer bytes than their type has.
    fn widening(&self, _field: usize) -> u64 {
        1
    }

    /// Whether a sample has a value of field number `field`. Where it has none, and `parse` does not fail for it,
    /// `parse` gives an empty one.
    fn has_field(&self, _id: SampleId, _field: usize) -> bool {
        true
    }

    /// The sample's label and the name of its class, where there are classes. The label is the position of the class in
    /// [`Index::classes`] of the dataset that has the sample.
    fn label(&self, _id: SampleId) -> Option<(i64, &OsStr)> {
        None
    }

    /// Appends the sums and hashes that the format keeps of bytes of a file, beside what [`parse`](Dataset::parse) and
    /// [`decode`](Units::decode) check of each sample. What cannot be computed is appended too, so that whoever asks
    /// can tell of it.
    ///
    /// Unlike the others it may read the file's headers, and is called from any thread but the one that reads.
    ///
    /// # Errors
    /// As opening the dataset, where the headers are not what they were.
    fn checks(&self, _file: FileId, _out: &mut Vec<Check>) -> Result<()> {
        Ok(())
    }

    /// What is wrong with the dataset apart from its samples, each with its file: shards that cannot be read, indexes
    /// that do not belong to their shards. A format that trusted an index when it was opened scans the files again, so
    /// this may take as long as opening without an index. It is never called from the thread that reads.
    fn faults(&self) -> Vec<Error> {
        self.index().damage.clone()
    }

    /// Which sample of which dataset this really is, where this dataset is a view of others.
    fn origin(&self, id: SampleId) -> Origin {
        Origin { fingerprint: self.fingerprint(), id }
    }
}

impl std::fmt::Debug for dyn Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let index = self.index();
        f.debug_struct("Dataset")
            .field("format", &index.format)
            .field("samples", &index.samples)
            .finish_non_exhaustive()
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
    Error::new(ErrorKind::InvalidArgument, "the folder has more than 4294967295 files").with_path(root)
}
