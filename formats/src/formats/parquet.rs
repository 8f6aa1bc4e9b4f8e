//! Apache Parquet: tables in row groups. Only the wanted columns are read.
//!
//! Source: apache/parquet-format.

mod chunk;
mod decode;
mod delta;
mod footer;
mod hybrid;
mod lengths;
#[doc(hidden)]
pub mod metadata;
mod nested;
mod pages;
mod reader;
mod schema;
mod tensors;
mod thrift;
#[doc(hidden)]
pub mod types;
mod values;

use crate::find::names::has_extension;
use crate::format::{Format, Paths, Shows};
use crate::formats::columnar::layout::ColumnWriter;
use crate::formats::columnar::{self, ByteRange, Columnar, ColumnarOptions, Group, GroupColumn};
use crate::index::headers::head;
use crate::options::FormatOptions;
use crate::place::Place;
use bytes::Bytes;
use chunk::Chunks;
use footer::MAGIC;
use schema::Leaf;
use std::sync::Arc;
use uringload_core::Result;

/// File name extensions.
const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// Parquet files: every row is a sample, every column a column.
///
/// # Which files
/// The same paths, patterns and order as [`Folder`](super::Folder). Files without the extension `.parquet`, `.parq` or
/// `.pq` are left out and counted in `left_out`, unless a path names a file directly. The first file says which columns
/// there are, unless they are asked for; others must have them in any order, and what else they have is left out.
///
/// # Columns
/// | Parquet | column |
/// |---|---|
/// | `BOOLEAN`, `FLOAT`, `DOUBLE` | `Bool`, `F32`, `F64` |
/// | `INT32`, `INT64` | integers of the size and sign that the logical type has, else `I32`, `I64` |
/// | `FIXED_LEN_BYTE_ARRAY(n)` | `U8` of shape `[n]`; `F16` where it is `Float16` |
/// | decimals in byte arrays | `I64` of up to 8 bytes; else `U8` of shape `[16]` or `[32]`, little endian |
/// | `INT96` | `U8` of shape `[12]` |
/// | `BYTE_ARRAY` | `U8` of any length: text is not checked to be UTF-8 |
/// | lists of numbers | any number of elements |
/// | such of one length by the Arrow schema in the footer, also within each other | a tensor of shape `[n]`, `[m, n]` |
/// | fields of structs | a column each: `image.bytes`, `image.path` |
/// | other lists and maps, however nested | `U8` of any length: JSON text |
///
/// Other logical types make no difference: dates, times, timestamps and decimals are the stored integers. In JSON text,
/// decimals have their point, bytes are base64, the keys of maps are text, and floats may be `NaN` or `Infinity`. A
/// column of a type that cannot be read is left out and counted in `left_out`; asking for it is an error.
///
/// # What is read, and when
/// Opening reads the footer of every file. For text and bytes it must also know their total length in each row group,
/// because that decides how much memory the group gets. Writers since 2024 put it into the footer (parquet 2.10:
/// `unencoded_byte_array_data_bytes`). If it is missing and a column has a dictionary, every opening reads and counts
/// the dictionary and the references to it. They are short unless no value repeats, and then the footer is enough.
///
/// Afterwards a row group is read and decoded as a whole ([`Units`](crate::Units)), but only the chunks of the wanted
/// columns. A shuffle of shards permutes row groups. Checksums of pages are compared if the file has them.
pub type Parquet = Columnar<Leaf, Chunks>;

pub(crate) const FORMAT: Format = Format {
    name: "parquet",
    help: "Parquet: every row is a sample.",
    options: ColumnarOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Names { called: is_called, begins },
    open: |paths, options| Ok(Arc::new(Parquet::open(paths, &columnar::typed(options)?)?)),
};

fn is_called(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| has_extension(name, extension))
}

fn begins(place: &Place) -> bool {
    head(place).starts_with(MAGIC)
}

impl Parquet {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`open`](crate::open); `Corrupt` or `Truncated` for the first file with a bad footer; `Unavailable` for
    /// encrypted files and for wanted columns of other types; `Corrupt` for a file that lacks a column of the first or
    /// has it with another type; `InvalidArgument` for a wanted column that does not exist; `Empty` if there are no
    /// rows.
    fn open(mut paths: Paths, options: &ColumnarOptions) -> Result<Parquet> {
        let found = paths.find(&EXTENSIONS, options.common.threads)?;
        Columnar::of(found, ["parquet", "row group"], options, footer::read)
    }
}

impl GroupColumn<Leaf> for Chunks {
    fn places(&self) -> &[ByteRange] {
        &self.places
    }

    fn decode(&self, leaf: &Leaf, stored: &[Bytes], _group: &Group, writer: ColumnWriter<'_>) -> Result<()> {
        decode::decode(&self.chunks, leaf, stored, writer)
    }
}
