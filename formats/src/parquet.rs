//! Apache Parquet: tables in row groups, of which only the columns that are wanted are read.
//!
//! Source: apache/parquet-format. Pages are decoded by the `parquet` crate; what is read, and when, is decided here.

mod decode;
mod footer;
mod pages;
mod schema;
mod thrift;

use crate::columnar::layout::Writer;
use crate::columnar::{self, Columnar, ColumnarOptions, Group, Groups, Table, check_same, find};
use crate::headers::{Source, example, has_extension, head, map_files};
use crate::options::FormatOptions;
use crate::paths::thread_count;
use crate::registry::{Format, Shows};
use crate::{FileId, Span, UnitId};
use bytes::Bytes;
use footer::{Chunk, MAGIC};
use schema::Leaf;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::Result;

/// Endings of the names of files.
const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// Parquet files: every row is a sample, every column a column.
///
/// # Which files
/// The same paths, patterns and order as [`Folder`](super::Folder). Files that are not called `*.parquet` (`.parq`,
/// `.pq`) are left out and counted in `left_out`, unless some file was named by itself. All files
/// have the same columns.
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
/// | lists of numbers | elements, of any number |
/// | fields of structs | a column each: `image.bytes`, `image.path` |
///
/// Logical types are not looked at otherwise: dates, times, timestamps and decimals are the integers that are stored.
/// Maps, lists of lists, of structs and of strings are refused where they are wanted.
///
/// # What is read, and when
/// Opening reads the footer of every file. Of text and bytes it must also know how long they are together in each row
/// group, since that is the memory which the group is given. Footers tell it where the writer is of 2024 or later
/// (parquet 2.10: `unencoded_byte_array_data_bytes`); where they do not and a column has a dictionary, the dictionary
/// and the references to it are read and counted, at every opening: they are short, unless nothing in them repeats,
/// and then the footer is enough.
///
/// Afterwards a row group is read and decoded as a whole, of which only the chunks of the wanted columns are read:
/// [`Units`](crate::Units). A shuffle of shards permutes row groups. Checksums of pages are compared where they are
pub type Parquet = Columnar<RowGroups>;

pub(crate) const FORMAT: Format = Format {
    name: "parquet",
    help: "Parquet: every row is a sample.",
    options: ColumnarOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Path(|path, _| detect(path)),
    open: |paths, options| Ok(Arc::new(Parquet::open(paths, &columnar::typed(options)?)?)),
};

/// Whether a path is a file that begins as Parquet does and is called so, or a folder of nothing but such files.
fn detect(path: &Path) -> bool {
    let is_called = |name: &[u8]| EXTENSIONS.iter().any(|extension| has_extension(name, extension));
    example(path, is_called).is_some_and(|file| head(&file).starts_with(MAGIC))
}

/// Row groups of Parquet.
#[derive(Debug)]
pub struct RowGroups {
    /// How many columns there are.
    columns: usize,
    /// Of each file, since structs that columns lie in may be null in one and not in another.
    leaves: Vec<Vec<Leaf>>,
    /// Of each group, a chunk for each column.
    chunks: Vec<Chunk>,
}

impl Parquet {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open); for the first file whose footer is bad `Corrupt` or `Truncated`;
    /// `Unavailable` for what is sound and cannot be had: encrypted files, columns without a form here; `Corrupt` for
    /// a file that has not the columns of the first; `InvalidArgument` for a wanted column that is not there; `Empty`
    /// where there is no row.
    fn open(paths: &[PathBuf], options: &ColumnarOptions) -> Result<Parquet> {
        let found = find(paths, &EXTENSIONS, options.common.threads)?;
        let files = 0..found.files.len() as u32;
        let listings = map_files(files, thread_count(options.common.threads), |file| {
            footer::read(&Source::open(&found.files, file)?, file, options)
        })?;
        let (mut columns, mut stored) = (Vec::new(), Vec::new());
        let (mut leaves, mut groups, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
        for (number, mut listing) in (0..).zip(listings) {
            if number == 0 {
                columns = listing.columns;
            } else {
                check_same(&listing.columns, &columns)
                    .map_err(|error| error.with_path(found.files.path(FileId(number))))?;
            }
            if stored.is_empty() {
                stored = listing.stored;
            }
            groups.append(&mut listing.groups);
            chunks.append(&mut listing.chunks);
            leaves.push(listing.leaves);
        }
        let count = columns.len();
        let table = Table::new("parquet", found, columns, stored, groups, options.nulls, "row group")?;
        Ok(Columnar::new(table, RowGroups { columns: count, leaves, chunks }))
    }
}

impl RowGroups {
    fn chunks(&self, unit: UnitId) -> &[Chunk] {
        &self.chunks[unit.0 as usize * self.columns..][..self.columns]
    }
}

impl Groups for RowGroups {
    /// A chunk of each column.
    fn stored(&self, unit: UnitId, file: FileId, out: &mut Vec<Span>) {
        out.extend(self.chunks(unit).iter().map(|chunk| Span { file, offset: chunk.start, len: chunk.len }));
    }

    fn decode(&self, table: &Table, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let Group { file, rows, .. } = *table.group(unit);
        let leaves = &self.leaves[file.0 as usize];
        let mut writer = Writer::new(out, rows, leaves.len())?;
        let columns = leaves.iter().zip(table.columns()).zip(self.chunks(unit)).zip(stored);
        for (number, (((leaf, column), chunk), bytes)) in columns.enumerate() {
            let width = column.kind.width().map(|width| width as usize);
            let column = writer.column(column.kind.is_nullable, width);
            let decoded = column.and_then(|column| decode::decode(chunk, leaf, bytes.clone(), rows, column));
            decoded.map_err(|error| table.placed(error, unit, number, chunk.start))?;
        }
        Ok(writer.finish())
    }
}
