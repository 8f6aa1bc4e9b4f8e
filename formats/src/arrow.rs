//! Arrow IPC, files and streams: tables in record batches, of which only the columns that are wanted are read.
//!
//! Source: apache/arrow `docs/source/format/Columnar.rst`, `format/{Message,Schema,File}.fbs`.

mod decode;
mod flat;
mod messages;
mod schema;

use crate::columnar::layout::Writer;
use crate::columnar::{self, Columnar, ColumnarOptions, Groups, Table, check_same, find};
use crate::headers::{Source, example, has_extension, head, map_files};
use crate::options::FormatOptions;
use crate::paths::thread_count;
use crate::registry::{Format, Shows};
use crate::{FileId, Span, UnitId};
use bytes::Bytes;
use decode::Cell;
use messages::{Batch, CONTINUATION, Listing, MAGIC};
use schema::Leaf;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// Endings of the names of files.
const EXTENSIONS: [&str; 4] = ["arrow", "arrows", "feather", "ipc"];

/// Arrow IPC files and streams (which Feather version 2 and Hugging Face's `save_to_disk` are): every row is a sample,
/// every column a column.
///
/// # Which files
/// The same paths, patterns and order as [`Folder`](super::Folder). Files that are not called `*.arrow` (`.arrows`,
/// `.feather`, `.ipc`) are left out and counted in `left_out`, unless some file was named by
/// itself. All files have the same columns; files and streams may be mixed.
///
/// # Columns
/// | Arrow | column |
/// |---|---|
/// | bool, integers, floats | scalars of that type |
/// | dates, times, timestamps, durations, decimals of 32 and 64 bits | the integer that is stored |
/// | fixed-size binary, decimals of 128 and 256 bits, long intervals | `U8` of shape `[n]`, as stored |
/// | binary, text, large or as views | `U8` of any length: text is not checked to be UTF-8 |
/// | lists of numbers | elements, of any number |
/// | fixed-size lists of numbers | a tensor of shape `[n]` |
/// | dictionaries of numbers, binary, text | the values |
/// | fields of structs | a column each: `image.bytes`, `image.path` |
///
/// Maps, unions, runs, lists of anything else, list views and null columns are refused where they are wanted.
///
/// # What is read, and when
/// Opening reads the metadata of every batch (through a stream from message to message, in a file by its footer), the
/// dictionaries of the wanted columns, which stay in memory, and of strings what tells how long they are: 8 bytes of
/// each compressed column, and the views. Afterwards a batch is read and decoded as a whole ([`Units`](crate::Units)),
/// of which only the buffers of the wanted columns are read. A shuffle of shards permutes batches.
///
/// A batch is given memory for as many of a dictionary's longest value as it has rows.
pub type ArrowIpc = Columnar<Batches>;

pub(crate) const FORMAT: Format = Format {
    name: "arrow",
    help: "Arrow IPC files and streams: every row is a sample.",
    options: ColumnarOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Path(|path, _| detect(path)),
    open: |paths, options| Ok(Arc::new(ArrowIpc::open(paths, &columnar::typed(options)?)?)),
};

/// Whether a path is a file that begins as Arrow's files or streams do and is called so, or a folder of nothing but
/// such files.
fn detect(path: &Path) -> bool {
    let is_called = |name: &[u8]| EXTENSIONS.iter().any(|extension| has_extension(name, extension));
    example(path, is_called).is_some_and(|file| {
        let head = head(&file);
        head.starts_with(MAGIC) || head.starts_with(&CONTINUATION)
    })
}

/// Record batches of Arrow.
#[derive(Debug)]
pub struct Batches {
    /// Of each file, since their numbers of nodes may differ.
    leaves: Vec<Vec<Leaf>>,
    batches: Vec<Batch>,
}

impl ArrowIpc {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open); for the first file whose metadata is bad `Corrupt` or `Truncated`,
    /// which a stream without its end is; `Unavailable` for what is sound and cannot be had: big endian numbers,
    /// columns without a form here; `Corrupt` for a file that has not the columns of the first; `InvalidArgument` for
    /// a wanted column that is not there; `Empty` where there is no row.
    fn open(paths: &[PathBuf], options: &ColumnarOptions) -> Result<ArrowIpc> {
        let found = find(paths, &EXTENSIONS, options.common.threads)?;
        let files = 0..found.files.len() as u32;
        let listings = map_files(files, thread_count(options.common.threads), |file| {
            messages::read(&Source::open(&found.files, file)?, file, options)
        })?;
        let (mut columns, mut stored) = (Vec::new(), Vec::new());
        let (mut leaves, mut groups, mut batches) = (Vec::new(), Vec::new(), Vec::new());
        for (number, mut listing) in (0..).zip(listings) {
            if number == 0 {
                stored = stored_as(&listing);
                columns = listing.columns;
            } else {
                check_same(&listing.columns, &columns)
                    .map_err(|error| error.with_path(found.files.path(FileId(number))))?;
            }
            groups.append(&mut listing.groups);
            batches.append(&mut listing.batches);
            leaves.push(listing.leaves);
        }
        let table = Table::new("arrow", found, columns, stored, groups, options.nulls, "record batch")?;
        Ok(Columnar::new(table, Batches { leaves, batches }))
    }
}

fn stored_as(listing: &Listing) -> Vec<String> {
    let kind = if listing.is_stream { "stream" } else { "file" };
    let codec = match listing.batches.first().and_then(|batch| batch.codec) {
        None => "not compressed",
        Some(decode::Codec::Lz4) => "LZ4",
        Some(decode::Codec::Zstd) => "ZSTD",
    };
    vec![format!("{kind}, {codec}"); listing.columns.len()]
}

impl Groups for Batches {
    /// The buffers of each column, some of which may have no byte.
    fn stored(&self, unit: UnitId, file: FileId, out: &mut Vec<Span>) {
        let places = self.batches[unit.0 as usize].parts.iter().flat_map(|part| &part.places);
        out.extend(places.map(|place| Span { file, offset: place.offset, len: place.len }));
    }

    fn decode(&self, table: &Table, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let Batch { parts, codec } = &self.batches[unit.0 as usize];
        let (group, columns) = (table.group(unit), table.columns());
        let leaves = &self.leaves[group.file.0 as usize];
        let mut writer = Writer::new(out, group.rows, columns.len())?;
        let mut first = 0;
        for (number, ((leaf, part), column)) in leaves.iter().zip(parts).zip(columns).enumerate() {
            let Some(buffers) = stored.get(first..first + part.places.len()) else {
                return Err(Error::new(ErrorKind::Internal, "a unit was decoded without what is stored of it"));
            };
            first += buffers.len();
            let cell = Cell {
                storage: &leaf.storage,
                parents: leaf.parents.len(),
                rows: group.rows,
                elements: part.elements,
                codec: *codec,
                dictionary: part.dictionary.as_ref(),
            };
            let width = column.kind.width().map(|width| width as usize);
            let column = writer.column(column.kind.is_nullable, width);
            let decoded = column.and_then(|column| decode::decode(&cell, buffers, group.decoded, column));
            decoded.map_err(|error| {
                let offset = part.places.first().map_or(0, |place| place.offset);
                table.placed(error, unit, number, offset)
            })?;
        }
        Ok(writer.finish())
    }
}
