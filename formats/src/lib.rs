//! Finds the samples of a dataset: which there are, where each one lies, and how it is parsed.
//!
//! [`open`] turns paths into a [`Dataset`], in any of 19 formats. A dataset is an [`Index`], which names the byte
//! ranges of every sample, and a parser for the bytes once somebody has read them. This crate never reads samples
//! itself; the crate `uringload` does.
//!
//! ```
//! use uringload_formats::{Dataset, Options, SampleId, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("frames.bin"), [7; 48])?;
//!
//! let options = Options::new().format("records").set("record_bytes", 16).set("header_bytes", 16);
//! let dataset = open(&[folder.path()], &options)?;
//! assert_eq!(dataset.len(), 2);
//! let mut spans = Vec::new();
//! for id in 0..dataset.len() {
//!     spans.clear();
//!     dataset.spans(SampleId(id), &mut spans);
//!     for span in &spans {
//!         let path = dataset.files().path(span.file);
//!         println!("sample {id}: {} bytes at {} of {}", span.len, span.offset, path.display());
//!     }
//! }
//! # assert_eq!((spans[0].offset, spans[0].len), (32, 16));
//! # Ok(())
//! # }
//! ```
//!
//! [`Concat`] puts datasets end to end; [`View`] takes some of a dataset's samples. A format of your own implements
//! [`Dataset`]. What each format takes for a sample is in `docs/formats.md`.
#![forbid(unsafe_code)]

mod absent;
mod array_record;
mod arrays;
#[cfg(feature = "parquet")]
mod arrow;
mod beton;
mod changes;
mod checks;
mod classes;
#[cfg(feature = "parquet")]
mod columnar;
#[cfg(not(feature = "parquet"))]
mod columnar_absent;
mod compression;
mod concat;
mod content;
mod detect;
mod endian;
mod files;
mod fingerprint;
mod folder;
mod format;
mod hdf5;
mod headers;
mod idx;
mod index;
mod indexes;
mod known;
mod labels;
mod lines;
mod litdata;
mod mds;
mod megatron;
mod names;
mod npy;
mod npz;
mod options;
mod packed;
mod pairs;
mod parallel;
#[cfg(feature = "parquet")]
mod parquet;
mod paths;
mod patterns;
mod ranges;
mod records;
mod registry;
mod safetensors;
mod shards;
mod sidecar;
mod sizes;
mod skipped;
mod stamp;
mod tar;
mod tfrecord;
mod tokens;
mod units;
mod view;
mod walk;
mod watched;
mod window;
mod zip;

use uringload_core::{Error, ErrorKind, Result};

use bytes::Bytes;
use std::ffi::OsStr;
use std::io::Write;

pub use checks::Check;
pub use concat::Concat;
pub use files::FileTable;
pub use fingerprint::Fingerprint;
pub use index::{Encoding, Index, Role};
pub use indexes::{IndexProgress, IndexReport};
pub use known::{KnownColumn, WithColumns};
pub use labels::{Labels, Unlabelled};
pub use options::{OptionValue, Options};
pub use ranges::Ranges;
pub use registry::open;
pub use sizes::sum_of_largest as largest_of;
pub use skipped::Skipped;
pub use units::{UnitId, Units};
pub use uringload_core::DType;
pub use view::View;

/// What the other crates of uringload use, and nobody else should: it may change in any release.
#[doc(hidden)]
pub mod internal {
    /// What the metadata of Arrow and Parquet says, which tests/oracles holds against that of other readers.
    #[cfg(feature = "parquet")]
    pub use crate::{
        arrow::tables as arrow_tables,
        parquet::{metadata as parquet_metadata, types as parquet_types},
    };

    pub use crate::changes::names;
    pub use crate::checks::{Checked, check_all};
    pub use crate::content::{
        CONTENT_FILES_MAX, CONTENT_GROUPS, content_files, content_group, content_of_file, content_of_group,
    };
    pub use crate::format::Format;
    pub use crate::headers::open_regular;
    pub use crate::mds::array_shape;
    pub use crate::names::{MANIFEST_NAME, split_name};
    pub use crate::npy::array_of as npy_array_of;
    pub use crate::options::{OptionKind, OptionSpec};
    pub use crate::parallel::try_in_parallel;
    pub use crate::ranges::Numbers;
    pub use crate::registry::{FORMATS, all_options, detect, formats_with, of_files};
    pub use crate::sidecar::{COLUMNS_MAX, KEY_BYTES_MAX};
    pub use crate::watched::REMEDY as NO_ANSWER;
}

/// The number of a sample in its dataset, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u64);

/// The number of a file in its dataset's [`FileTable`], from 0.
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

/// A dataset: an [`Index`] of where its samples lie, and the parser that makes them of the bytes that were read.
///
/// [`open`] returns one as `Arc<dyn Dataset>`. A format of your own implements [`index`](Dataset::index),
/// [`spans`](Dataset::spans) and [`parse`](Dataset::parse), and overrides other methods where its index knows better:
///
/// ```
/// use bytes::Bytes;
/// use uringload_formats::*;
///
/// /// A file whose every byte is a sample.
/// struct EveryByte(Index);
///
/// impl EveryByte {
///     fn of(folder: &str, name: &str, size: u64) -> EveryByte {
///         let mut files = FileTable::new();
///         files.push_root(folder);
///         files.push(name.as_bytes(), size).expect("room for one file");
///         let field = Field { name: "byte".into(), dtype: DType::U8, shape: Shape::Fixed(vec![]) };
///         EveryByte(Index::new("bytes", files, Schema { fields: vec![field] }, size))
///     }
/// }
///
/// impl Dataset for EveryByte {
///     fn index(&self) -> &Index {
///         &self.0
///     }
///
///     fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
///         out.push(Span { file: FileId(0), offset: id.0, len: 1 });
///     }
///
///     fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> uringload_core::Result<()> {
///         out.values.push(Value::Bytes(raw[0].clone()));
///         Ok(())
///     }
/// }
///
/// let dataset = EveryByte::of("/data", "noise.bin", 1000);
/// assert_eq!((dataset.len(), dataset.largest(3)), (1000, 3));
/// ```
///
/// The reading thread calls these methods, so they must neither block nor do I/O. Exceptions are named.
pub trait Dataset: Send + Sync + 'static {
    /// What every dataset knows of itself.
    fn index(&self) -> &Index;

    /// Appends the spans of sample `id` in the order in which `parse` wants them. `id` is less than
    /// [`len`](Dataset::len).
    fn spans(&self, id: SampleId, out: &mut Vec<Span>);

    /// Makes the sample of the bytes that were read.
    ///
    /// `raw` holds one slice for each span, exactly as long as the span (or a part of it: see
    /// [`span_of`](Dataset::span_of)), and then one for each unit of the sample (see [`Units::of`]), which is the whole
    /// decoded unit. `out.values` is empty, and gets one value for each field.
    ///
    /// # Errors
    /// `Corrupt` where the bytes break the format. It becomes the error of this one sample.
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

    /// Whether there is no sample. [`open`] refuses empty datasets.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns.
    fn schema(&self) -> &Schema {
        &self.index().schema
    }

    /// Bytes of all samples. For samples that are cut from units, as far as the index knows.
    fn bytes(&self) -> u64 {
        self.index().bytes
    }

    /// Where each shard ends: see [`Index::shards`].
    fn shards(&self) -> &[u64] {
        &self.index().shards
    }

    /// The units that samples are cut from, or `None` where every sample can be read by itself.
    fn units(&self) -> Option<&dyn Units> {
        None
    }

    /// Appends the sample's key: bytes that name it to a person. By default the file's name and the sample's number in
    /// it, if each file is a shard; otherwise the sample's number.
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

    /// An upper bound of the bytes that the spans of any `count` samples have together, without units. The memory limit
    /// is checked against it. By default every sample is looked at; [`largest_of`] sums lengths that are known.
    fn largest(&self, count: u64) -> u64 {
        sizes::sum_of_largest(sizes::bytes_of(|id, out| self.spans(id, out), 0..self.len()), count)
    }

    /// A hash of everything that decides the order and the content of samples, but not of their bytes. By default:
    /// [`Fingerprint::of`] the index: FNV-1a over the format's name, the names and types of the columns, the names and
    /// sizes of all files, and the number of samples.
    fn fingerprint(&self) -> u64 {
        Fingerprint::of(self.index()).finish()
    }

    /// The number of elements in a sample's value of field number `field`, or `None` where only reading tells: for all
    /// samples of a field or for none. Packing, buckets and padding need it before anything is read.
    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let column = &self.schema().fields[field];
        match &column.shape {
            Shape::Fixed(shape) => Some(shape.iter().product()),
            Shape::Ragged if self.index().plain_field == Some(field) => {
                let bytes = sizes::sum(sizes::bytes_of(|id, out| self.spans(id, out), id.0..id.0 + 1));
                Some(bytes / column.dtype.size())
            }
            Shape::Ragged => None,
        }
    }

    /// The shape of a sample's value of field number `field`, even if the column is ragged. `None` where the index
    /// knows no more than the [`length`](Dataset::length).
    fn shape(&self, _id: SampleId, field: usize) -> Option<&[u64]> {
        match &self.schema().fields[field].shape {
            Shape::Fixed(shape) => Some(shape),
            Shape::Ragged => None,
        }
    }

    /// Which of a sample's spans is its value of field number `field`, byte for byte and row by row, if `parse` makes
    /// whatever was read of it the value: where only a part of an array is wanted, only that part is read then. `None`
    /// where the whole value must be there. By default the first span of the [`plain_field`](Index::plain_field).
    fn span_of(&self, _id: SampleId, field: usize) -> Option<usize> {
        (self.index().plain_field == Some(field)).then_some(0)
    }

    /// How many bytes one stored byte of field number `field` can become: more than 1 where numbers are parsed from
    /// text, or stored in fewer bytes than their type has.
    fn widening(&self, _field: usize) -> u64 {
        1
    }

    /// Whether `parse` always succeeds and gives exactly the spans of a sample, end to end, as its only value. Then it
    /// need not be called. No property of the index, because who wraps a dataset may parse more than it does.
    #[doc(hidden)]
    fn is_plain(&self) -> bool {
        false
    }

    /// Whether a sample has a value of field number `field`. If it has none, `parse` fails or gives an empty value.
    fn has_field(&self, _id: SampleId, _field: usize) -> bool {
        true
    }

    /// The sample's label and the name of its class, if there are classes. The label is the position of the class in
    /// the [`Index::classes`] of the dataset that owns the sample.
    fn label(&self, _id: SampleId) -> Option<(i64, &OsStr)> {
        None
    }

    /// Appends the checksums that the format stores for the bytes of a file, apart from those that
    /// [`parse`](Dataset::parse) and [`decode`](Units::decode) check. Unknown algorithms are appended as well, so that
    /// the caller can report them.
    ///
    /// This may read the file's headers. It is never called from the reading thread.
    ///
    /// # Errors
    /// As [`open`], if the headers have changed.
    fn checks(&self, _file: FileId, _out: &mut Vec<Check>) -> Result<()> {
        Ok(())
    }

    /// What is wrong with the dataset apart from its samples: shards that cannot be read, indexes that do not belong to
    /// their shards. A format that trusted an index when it was opened scans the files again, so this may take as long
    /// as opening without an index. It is never called from the reading thread.
    fn faults(&self) -> Vec<Error> {
        self.index().damage.clone()
    }

    /// Which sample of which dataset this really is, if this dataset is made of others.
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

/// A sample and its dataset, as a list of bad samples stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The [`fingerprint`](Dataset::fingerprint) of the dataset that owns the sample.
    pub fingerprint: u64,
    /// The sample's number there.
    pub id: SampleId,
}

/// Which of several sequences, one behind the other, has element `id`, and the element's number there: `ends` has where
/// each ends. Empty ones end where they begin, so that the search passes over them.
fn locate(ends: &[u64], id: u64) -> (usize, u64) {
    let part = ends.partition_point(|&end| end <= id);
    let start = if part == 0 { 0 } else { ends[part - 1] };
    (part, id - start)
}

/// The number of samples in a shard when a dataset without shards is shuffled by shards.
pub const SHARD_SAMPLES: u64 = 4096;

/// A [`FileTable`] is full.
fn too_many_files(root: &std::path::Path) -> Error {
    Error::new(ErrorKind::InvalidArgument, "the folder has more than 4294967295 files").with_path(root)
}

/// The program of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
