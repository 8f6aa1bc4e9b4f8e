//! Apache Parquet: tables in row groups, of which only the columns that are wanted are read.
//!
//! Source: apache/parquet-format. Pages are decoded by the `parquet` crate; what is read, and when, is decided here.

mod decode;
mod footer;
mod pages;
mod schema;
mod thrift;

use crate::columnar::layout::Writer;
use crate::columnar::{ColumnarOptions, Group, Table, check_same, find};
use crate::headers::{Source, example, has_extension, head, map_files};
use crate::paths::thread_count;
use crate::{Dataset, FileId, FileTable, Sample, SampleId, Schema, Skipped, Span, UnitId, Units};
use bytes::Bytes;
use footer::{Chunk, MAGIC};
use schema::Leaf;
use std::path::Path;
use uringload_core::Result;

/// Endings of the names of files.
const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// Parquet files: every row is a sample, every column a column.
///
/// # Which files
/// The same paths, patterns and order as [`Folder`](super::Folder). Files that are not called `*.parquet` (`.parq`,
/// `.pq`) are left out and counted in [`skipped`](Parquet::skipped), unless some file was named by itself. All files
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
/// [`Units`]. A shuffle of shards permutes row groups. Checksums of pages are compared where they are there.
#[derive(Debug)]
pub struct Parquet {
    table: Table,
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
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &ColumnarOptions) -> Result<Parquet> {
        let found = find(paths, &EXTENSIONS, options.threads)?;
        let files = 0..found.files.len() as u32;
        let listings = map_files(files, thread_count(options.threads), |file| {
            footer::read(&Source::open(&found.files, file)?, file, options)
        })?;
        let (mut columns, mut stored) = (Vec::new(), Vec::new());
        let (mut leaves, mut groups, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
        for (number, mut listing) in (0..).zip(listings) {
            if number == 0 {
                columns = listing.columns;
            } else {
                check_same(&listing.columns, &columns)
                    .map_err(|error| error.with_file(found.files.path(FileId(number))))?;
            }
            if stored.is_empty() {
                stored = listing.stored;
            }
            groups.append(&mut listing.groups);
            chunks.append(&mut listing.chunks);
            leaves.push(listing.leaves);
        }
        let table = Table::new(found, columns, stored, groups, options.nulls, "row group")?;
        Ok(Parquet { table, leaves, chunks })
    }

    /// Whether a path is a file that begins as Parquet does and is called so, or a folder of nothing but such files.
    pub fn detect(path: impl AsRef<Path>) -> bool {
        let is_called = |name: &[u8]| EXTENSIONS.iter().any(|extension| has_extension(name, extension));
        example(path.as_ref(), is_called).is_some_and(|file| head(&file).starts_with(MAGIC))
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        self.table.skipped()
    }

    /// The type of each column, whether it may be null, and how it is stored in the first row group, in the words of
    /// the format.
    pub fn encodings(&self) -> Vec<String> {
        self.table.encodings()
    }

    fn chunks(&self, unit: UnitId) -> &[Chunk] {
        let columns = self.table.columns().len();
        &self.chunks[unit.0 as usize * columns..][..columns]
    }
}

impl Dataset for Parquet {
    fn files(&self) -> &FileTable {
        self.table.files()
    }

    fn format(&self) -> &'static str {
        "parquet"
    }

    fn len(&self) -> u64 {
        self.table.len()
    }

    fn schema(&self) -> &Schema {
        self.table.schema()
    }

    /// None: rows are cut from row groups.
    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        self.table.parse(id, raw, out)
    }

    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }

    /// The name of the file and the number of the row in it: "train.parquet#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.table.key(id, out);
    }

    /// As they are stored: the chunks of the wanted columns.
    fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    fn largest(&self, _count: u64) -> u64 {
        0
    }

    /// FNV-1a over "parquet", the columns with their types, rows of all row groups, and names and sizes of all files.
    fn fingerprint(&self) -> u64 {
        self.table.fingerprint(self.format())
    }

    /// Every row group is a shard.
    fn shards(&self) -> &[u64] {
        self.table.ends()
    }
}

impl Units for Parquet {
    fn count(&self) -> u32 {
        self.table.count()
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.push(self.table.locate(id).0);
    }

    /// A chunk of each column.
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let file = self.table.group(unit).file;
        out.extend(self.chunks(unit).iter().map(|chunk| Span { file, offset: chunk.start, len: chunk.len }));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.table.group(unit).decoded
    }

    fn largest_decoded(&self) -> u64 {
        self.table.largest_decoded()
    }

    fn largest_stored(&self) -> u64 {
        self.table.largest_stored()
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let Group { file, rows, .. } = *self.table.group(unit);
        let leaves = &self.leaves[file.0 as usize];
        let mut writer = Writer::new(out, rows, leaves.len())?;
        let columns = leaves.iter().zip(self.table.columns()).zip(self.chunks(unit)).zip(stored);
        for (number, (((leaf, column), chunk), bytes)) in columns.enumerate() {
            let width = column.kind.width().map(|width| width as usize);
            let column = writer.column(column.kind.is_nullable, width);
            let decoded = column.and_then(|column| decode::decode(chunk, leaf, bytes.clone(), rows, column));
            decoded.map_err(|error| self.table.placed(error, unit, number, chunk.start))?;
        }
        Ok(writer.finish())
    }
}
