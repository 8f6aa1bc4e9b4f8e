//! Opens one file and turns its datasets, named or found, into columns.

use super::Column;
use super::bands::{Bands, Part};
use super::group;
use super::header::Message;
use super::index::{Grid, chunks};
use super::meta::Meta;
use super::object::{self, Layout, Object, describe};
use super::superblock;
use crate::headers::Source;
use crate::{Field, FileId, FileTable, Shape};
use std::collections::BTreeMap;
use uringload_core::{Error, ErrorKind, Result};

/// Most columns of a file if none are requested by name. A file with more datasets of equal length stores one dataset
/// per sample, not rows.
const COLUMNS_MAX: usize = 256;
/// Most names that an error lists.
const NAMES_TOLD: usize = 8;
/// Bands that a dataset may have for each byte of its file, and at least. Chunks that were never written take no space,
/// so a header can claim any number of them.
const BANDS_MIN: u64 = 1 << 16;

/// The columns of a file, all with the same number of rows.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) rows: u64,
    pub(super) columns: Vec<Column>,
}

/// Opens the datasets with these names.
pub(super) fn open_named(files: &FileTable, file: FileId, names: &[String]) -> Result<Opened> {
    let source = Source::open(files, file)?;
    let (meta, root) = superblock::read(&source)?;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        found.push((name.clone(), group::find(&meta, root, name)?));
    }
    columns(&meta, found)
}

/// Opens the datasets of the most frequent length, and lists those that were left out.
pub(super) fn open_all(files: &FileTable, file: FileId) -> Result<(Opened, Vec<String>)> {
    let source = Source::open(files, file)?;
    let (meta, root) = superblock::read(&source)?;
    let mut found = Vec::new();
    group::walk(&meta, root, |name, messages| {
        if let Some(extent) = object::extent(&meta, &messages)? {
            found.push((extent.shape.first().copied(), name, messages));
        }
        Ok(())
    })?;
    let mut lengths: BTreeMap<u64, usize> = BTreeMap::new();
    found.iter().filter_map(|(rows, ..)| *rows).for_each(|rows| *lengths.entry(rows).or_default() += 1);
    // Of equally frequent lengths, the last one, which is the largest.
    let Some((&rows, &count)) = lengths.iter().max_by_key(|&(_, &count)| count) else {
        let error = Error::new(ErrorKind::Empty, "the file has no dataset with rows").with_path(source.path());
        return Err(error.with_remedy("list its datasets with h5ls -r"));
    };
    if count > COLUMNS_MAX {
        let what = format!("{count} datasets have {rows} rows; without names at most {COLUMNS_MAX} are read");
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(source.path());
        return Err(error.with_remedy("name the datasets to read; one dataset for each sample cannot be read as rows"));
    }
    let (taken, left_out): (Vec<_>, Vec<_>) = found.into_iter().partition(|(of, ..)| *of == Some(rows));
    let names = taken.iter().take(NAMES_TOLD).map(|(_, name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let opened = columns(&meta, taken.into_iter().map(|(_, name, messages)| (name, messages)).collect());
    let opened = opened.map_err(|error| match error.kind() {
        ErrorKind::Unavailable => {
            let remedy = error.remedy().map_or_else(String::new, |remedy| format!("{remedy}; "));
            error.with_remedy(format!("{remedy}or name the datasets to read, out of {names}"))
        }
        _ => error,
    })?;
    Ok((opened, left_out.into_iter().map(|(_, name, _)| name).collect()))
}

fn columns<'a>(meta: &Meta<'a>, found: Vec<(String, Vec<Message<'a>>)>) -> Result<Opened> {
    let mut opened = Opened { rows: 0, columns: Vec::with_capacity(found.len()) };
    for (name, messages) in found {
        let object = describe(meta, &name, messages)?;
        let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what).with_path(meta.source.path());
        let Some((&rows, shape)) = object.extent.shape.split_first().filter(|_| object.extent.file_rank > 0) else {
            return Err(invalid(format!("dataset {name:?} is a scalar: it has no rows")));
        };
        if let Some(first) = opened.columns.first().filter(|_| rows != opened.rows) {
            let (first, of_first) = (&first.field.name, opened.rows);
            let error = invalid(format!("dataset {name:?} has {rows} rows, and {first:?} has {of_first}"));
            return Err(error.with_remedy("name datasets with the same number of rows"));
        }
        opened.rows = rows;
        let field = Field { name: name.clone(), dtype: object.dtype, shape: Shape::Fixed(shape.to_vec()) };
        let (part, encoding) = part(meta, &name, object)?;
        opened.columns.push(Column { field, part, encoding });
    }
    Ok(opened)
}

/// Locates the bytes of a dataset, and describes in words how they are stored.
fn part(meta: &Meta<'_>, name: &str, object: Object) -> Result<(Part, String)> {
    let Object { dtype, extent, layout, filters, fill } = object;
    let source = meta.source;
    let bytes = extent.shape.iter().product::<u64>() * dtype.size();
    if bytes == 0 {
        // Whatever the layout, there is nothing to read.
        return Ok((Part::Rows(0), "no element".into()));
    }
    match layout {
        Layout::At(offset, len) => {
            if len < bytes {
                return Err(source.corrupt(offset, format!("dataset {name:?} takes {bytes} bytes, and has {len}")));
            }
            if offset.checked_add(bytes).is_none_or(|end| end > source.size()) {
                let what = format!("dataset {name:?} of {bytes} bytes ends behind the end of the file");
                return Err(Error::new(ErrorKind::Truncated, what)
                    .with_path(source.path())
                    .with_offset(offset)
                    .with_remedy("fetch or write the file again"));
            }
            Ok((Part::Rows(offset), "contiguous".into()))
        }
        Layout::Nowhere => {
            let error = source.unavailable(meta.base, format!("dataset {name:?} was created and never written"));
            Err(error.with_remedy("write it, or name other datasets"))
        }
        Layout::Chunks { chunk, index, plain_edges } => {
            let names = filters.names();
            let encoding = match names.as_str() {
                "" => format!("chunks of {chunk:?}"),
                names => format!("chunks of {chunk:?}, {names}"),
            };
            let grid = Grid::new(chunk, &extent, dtype.size(), !filters.0.is_empty());
            let grid = grid
                .ok_or_else(|| source.corrupt(meta.base, format!("chunks of {name:?} are larger than any can be")))?;
            let bands = grid.counts[0];
            if bands > source.size().max(BANDS_MIN) {
                let what = format!("dataset {name:?} has {bands} rows of chunks, more than the file has bytes");
                return Err(source.unavailable(meta.base, what).with_remedy("write its rows into a smaller dataset"));
            }
            let chunks = chunks(meta, &index, &grid)?;
            let element_bytes = dtype.size();
            let bands = Bands { grid, shape: extent.shape, element_bytes, chunks, filters, plain_edges, fill };
            Ok((bands.runs().unwrap_or(Part::Bands(bands)), encoding))
        }
    }
}
