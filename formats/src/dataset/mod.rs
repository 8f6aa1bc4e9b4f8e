//! A dataset: the places of its samples, and how each is parsed.

mod check;
mod files;
mod fingerprint;
mod index;
mod report;
mod sample;
pub(crate) mod sizes;
mod skipped;
mod stamp;
mod units;

pub use check::Check;
pub use files::{FarFile, FileTable};
pub(crate) use files::{Room, SEGMENT_BYTES, SEGMENT_BYTES_MAX, too_many_files};
pub use fingerprint::Fingerprint;
pub use index::{Encoding, Index, Role};
pub use report::{IndexProgress, IndexReport};
pub(crate) use sample::locate;
pub use sample::{Field, FileId, Sample, SampleId, Schema, Shape, Span, Value};
pub(crate) use skipped::Skips;
pub use skipped::{SkipReason, Skipped};
pub(crate) use stamp::Stamp;
pub use units::{UnitId, Units};
pub use uringload_core::DType;

use bytes::Bytes;
use std::ffi::OsStr;
use std::io::Write;
use uringload_core::{Error, Result};

/// The number of samples in a shard when a dataset without shards is shuffled by shards.
pub const SHARD_SAMPLES: u64 = 4096;

/// A dataset: an [`Index`] of the places of its samples, and the parser that makes them of the bytes that were read.
///
/// [`open`](crate::open) returns one as `Arc<dyn Dataset>`. A format of your own implements [`index`](Dataset::index),
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

    /// Whether there is no sample. [`open`](crate::open) refuses empty datasets.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns.
    fn schema(&self) -> &Schema {
        &self.index().schema
    }

    /// Bytes of all samples. For samples that are cut from units, an estimate by the index.
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
    /// is checked against it. By default every sample is looked at; [`largest_of`](crate::largest_of) sums lengths that
    /// are known.
    fn largest(&self, count: u64) -> u64 {
        sizes::sum_of_largest(sizes::bytes_of(|id, out| self.spans(id, out), 0..self.len()), count)
    }

    /// A hash of everything that decides the order and the content of samples, but not of their bytes. By default:
    /// [`Fingerprint::of`] the index: FNV-1a over the format's name, the names and types of the columns, the names and
    /// sizes of all files, and the number of samples.
    fn fingerprint(&self) -> u64 {
        Fingerprint::of(self.index()).finish()
    }

    /// The number of elements in a sample's value of field number `field`, or `None` if only reading shows it: for all
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
    /// As [`open`](crate::open), if the headers have changed.
    fn checks(&self, _file: FileId, _out: &mut Vec<Check>) -> Result<()> {
        Ok(())
    }

    /// What is wrong with the dataset apart from its samples: shards that cannot be read, indexes that do not belong to
    /// their shards. A format that trusted an index when it was opened scans the files again, so this may take as long
    /// as opening without an index. It is never called from the reading thread.
    fn faults(&self) -> Vec<Error> {
        self.index().damage.clone()
    }

    /// Which sample of which dataset this is, if this dataset is made of others.
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

/// The bytes of each sample, if all have the same size.
pub(crate) fn bytes_of_each(dataset: &dyn Dataset) -> Option<u64> {
    let longest = dataset.largest(1);
    (longest.checked_mul(dataset.len()) == Some(dataset.bytes())).then_some(longest)
}
