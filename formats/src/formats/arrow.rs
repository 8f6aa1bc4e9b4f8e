//! Arrow IPC, files and streams: tables in record batches. Only the wanted columns are read.
//!
//! Source: apache/arrow `docs/source/format/Columnar.rst`.

mod decode;
mod flat;
mod messages;
mod nested;
mod schema;
#[doc(hidden)]
pub mod tables;
mod within;

use crate::find::names::has_extension;
use crate::format::{Format, Paths, Shows};
use crate::formats::columnar::layout::ColumnWriter;
use crate::formats::columnar::{self, ByteRange, Columnar, ColumnarOptions, Group, GroupColumn, Listing};
use crate::index::headers::head;
use crate::options::FormatOptions;
use crate::place::Place;
use bytes::Bytes;
use decode::{Buffers, Memory};
use messages::MAGIC;
use schema::Leaf;
use std::sync::Arc;
use tables::CONTINUATION;
use uringload_core::Result;
pub(crate) use within::Within;

/// File name extensions.
const EXTENSIONS: [&str; 4] = ["arrow", "arrows", "feather", "ipc"];

/// Arrow IPC files and streams (which Feather version 2 and Hugging Face's `save_to_disk` are): every row is a sample,
/// every column a column.
///
/// # Which files
/// The same paths, patterns and order as [`Folder`](super::Folder). Files without the extension `.arrow`, `.arrows`,
/// `.feather` or `.ipc` are left out and counted in `left_out`, unless a path names a file directly. The
/// first file says which columns there are, unless they are asked for; others must have them in any order, and what
/// else they have is left out. Files and streams may be mixed.
///
/// # Columns
/// | Arrow | column |
/// |---|---|
/// | bool, integers, floats | scalars of that type |
/// | dates, times, timestamps, durations, decimals of 32 and 64 bits | the integer that is stored |
/// | fixed-size binary, decimals of 128 and 256 bits, long intervals | `U8` of shape `[n]`, as stored |
/// | binary, text, large or as views | `U8` of any length: text is not checked to be UTF-8 |
/// | lists of numbers | any number of elements |
/// | fixed-size lists of numbers, also within each other | a tensor of shape `[n]`, `[m, n]` |
/// | dictionaries of numbers, binary, text | the values |
/// | fields of structs | a column each: `image.bytes`, `image.path` |
/// | other lists and maps, however nested | `U8` of any length: JSON text |
///
/// In JSON text, decimals have their point, bytes are base64, the keys of maps are text, and floats may be `NaN` or
/// `Infinity`. Unions, runs, list views, null columns and nested dictionaries cannot be read: such a column is left out
/// and counted in `left_out`, and asking for it is an error.
///
/// # What is read, and when
/// Opening reads the metadata of every batch (from message to message in a stream, by the footer in a file) and the
/// dictionaries of the wanted columns, which stay in memory. To learn how long strings are, it also reads 8 bytes of
/// each compressed column, and all views. Afterwards a batch is read and decoded as a whole ([`Units`](crate::Units)),
/// but only the buffers of the wanted columns. A shuffle of shards permutes batches.
///
/// For a column with a dictionary, a batch gets memory for the dictionary's longest value in every row.
pub type ArrowIpc = Columnar<Leaf, Buffers>;

pub(crate) const FORMAT: Format = Format {
    name: "arrow",
    help: "Arrow IPC files and streams: every row is a sample.",
    options: ColumnarOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Names { called: is_called, begins },
    open: |paths, options| Ok(Arc::new(ArrowIpc::open(paths, &columnar::typed(options)?)?)),
};

fn is_called(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| has_extension(name, extension))
}

fn begins(place: &Place) -> bool {
    let head = head(place);
    head.starts_with(MAGIC) || head.starts_with(&CONTINUATION)
}

impl ArrowIpc {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`open`](crate::open); `Corrupt` or `Truncated` for the first file with bad metadata, such as a stream
    /// without its end; `Unavailable` for big endian numbers and for wanted columns of other types; `Corrupt` for a
    /// file that lacks a column of the first or has it with another type; `InvalidArgument` for a wanted column that
    /// does not exist; `Empty` if there are no rows.
    fn open(mut paths: Paths, options: &ColumnarOptions) -> Result<ArrowIpc> {
        let found = paths.find(&EXTENSIONS, options.common.threads)?;
        Columnar::of(found, ["arrow", "record batch"], options, |source, file, wanted, _| {
            messages::read(source, file, 0..source.size(), |columns| Listing::choose(columns, wanted))
        })
    }
}

impl GroupColumn<Leaf> for Buffers {
    fn places(&self) -> &[ByteRange] {
        &self.places
    }

    fn decode(&self, leaf: &Leaf, stored: &[Bytes], group: &Group, writer: ColumnWriter<'_>) -> Result<()> {
        decode::decode(leaf, self, group.rows, stored, Memory::Counted, writer)
    }
}
