//! Chunks whose rows are plain Python values (numbers, text, lists and dictionaries of them): if pyarrow is installed,
//! litdata writes such rows as a table of Arrow after items that are all empty.
//!
//! ```text
//! u32 N; u32 offsets[N + 1]          all the same: where the items would begin
//! a file of Arrow IPC                record batches of 256 rows; a stream, by older versions
//! u32 bytes of that; "LDARW01\0"
//! ```
//!
//! Source: litdata 0.2.76, `streaming/item_loader.py`, `append_arrow_row_footer`.

use super::LitDataOptions;
use super::ends::ends_with_arrow;
use super::index::Index;
use crate::dataset::{FileId, FileTable, Stamp, too_many_files};
use crate::find::paths::{FoundFiles, thread_count};
use crate::formats::arrow::{ArrowIpc, Within};
use crate::formats::columnar;
use crate::formats::shards::{OFFSETS_AT, OpenFile, check_names};
use crate::options::Options;
use crate::parallel::try_in_parallel;
use crate::place::Place;
use uringload_core::{Error, ErrorKind, Result};

/// The end of a table: its length, and the magic.
const TAIL_BYTES: u64 = 12;

/// Chunks that are looked at to distinguish rows from items: several, so that a broken one has its own error.
const CHUNKS_LOOKED_AT: usize = 4;

/// Whether one of the first chunks has rows as Arrow in the stead of items.
pub(super) fn has_rows(indexes: &[(Index, Place)]) -> bool {
    let chunks = indexes.iter().flat_map(|(index, place)| index.chunks.iter().map(move |chunk| (place, index, chunk)));
    chunks.filter(|(.., chunk)| chunk.chunk_size > 0).take(CHUNKS_LOOKED_AT).any(|(place, index, chunk)| {
        let root = place.folder();
        if index.config.encryption.is_some() || check_names(&root, [&*chunk.filename]).is_err() {
            return false;
        }
        let is_table = |file: OpenFile<'_>| Ok(has_no_items(&file, chunk.chunk_size)? && ends_with_arrow(&file, 0)?);
        OpenFile::open(&root.join(&chunk.filename)).and_then(is_table).unwrap_or(false)
    })
}

/// Opens the rows of all chunks.
///
/// # Errors
/// `InvalidArgument` for options that are for items; as [`ArrowIpc::within`].
pub(super) fn open(indexes: &[(Index, Place)], options: &LitDataOptions, given: &Options) -> Result<ArrowIpc> {
    if let Some(name) = ["block_size", "allow_bad_shards"].into_iter().find(|name| given.is_set(name)) {
        let what = format!("{name} is for items, and these chunks have rows as Arrow");
        let error = Error::new(ErrorKind::InvalidArgument, what);
        return Err(error.with_path(&indexes[0].1).with_remedy("leave it out"));
    }
    let (mut files, mut all) = (FileTable::new(), Vec::new());
    for (index, place) in indexes {
        let root = place.folder();
        check_names(&root, index.chunks.iter().map(|chunk| &*chunk.filename))?;
        files.push_root_at(&root);
        for chunk in index.chunks.iter().filter(|chunk| chunk.chunk_size > 0) {
            let file = files.push(chunk.filename.as_bytes(), chunk.chunk_bytes);
            all.push((chunk, file.ok_or_else(|| too_many_files(root.path()))?));
        }
    }
    files.shrink_to_fit();
    let found: Vec<(Within, Stamp)> = try_in_parallel(&all, thread_count(options.common.threads), |(chunk, file)| {
        let open = OpenFile::open(&files.at(*file))?;
        open.check_size(chunk.chunk_bytes)?;
        Ok((table(&open, chunk.chunk_size)?, open.stamp()))
    })?;
    let (mut tables, mut number) = (Vec::with_capacity(found.len()), 0);
    for (table, stamp) in found {
        files.set_stamp(FileId(number), stamp);
        tables.push(table);
        number += 1;
    }
    let found = FoundFiles { files, ..FoundFiles::default() };
    ArrowIpc::within(super::FORMAT.name, found, &tables, &columnar::typed(given)?)
}

/// Whether no item of a chunk has a byte.
fn has_no_items(file: &OpenFile<'_>, items: u64) -> Result<bool> {
    file.check_count(items, 0)?;
    let start = head_bytes(items);
    Ok(u64::from(file.number(OFFSETS_AT)?) == start && u64::from(file.number(start - 4)?) == start)
}

/// Bytes of the number of items, which is of 32 bits, and of their offsets.
fn head_bytes(items: u64) -> u64 {
    OFFSETS_AT + 4 * (items + 1)
}

/// The place of a chunk's table.
fn table(file: &OpenFile<'_>, items: u64) -> Result<Within> {
    if !has_no_items(file, items)? || !ends_with_arrow(file, head_bytes(items))? {
        let what = "the chunk has no rows as Arrow, and others of the dataset have";
        let error = Error::new(ErrorKind::Unavailable, what).with_path(&file.path);
        return Err(error.with_remedy("write the dataset again, all of it with the same version of litdata"));
    }
    let (start, end) = (head_bytes(items), file.size - TAIL_BYTES.min(file.size));
    let len = u64::from(file.number(end)?);
    if start.checked_add(len) != Some(end) {
        let what = format!("the table has {len} bytes, which do not lie between {start} and {end}");
        return Err(file.corrupt(what, end).with_remedy("copy the chunk again"));
    }
    Ok(Within { place: start..end, rows: items })
}
