//! Opens one file and turns its datasets, named or found, into columns.

use super::bands::{Bands, RowSource};
use super::episodes;
use super::group;
use super::index::{Grid, chunks};
use super::meta::Meta;
use super::object::{self, Layout, Object, describe, of_dataset};
use super::superblock;
use super::types::{Kind, Taken};
use super::values;
use super::{Column, Row};
use crate::dataset::{Field, FileId, FileTable, Shape};
use crate::index::headers::Source;
use std::collections::BTreeMap;
use uringload_core::{Error, ErrorKind, Result};

/// Most columns of a file if none are requested by name. A file with more datasets of equal length stores one dataset
/// per sample, not rows.
const COLUMNS_MAX: usize = 256;
/// Bytes of a band of a dataset that was never written.
const FILLED_BYTES: u64 = 64 << 10;
/// Bands that a dataset may have for each byte of its file, and at least. Chunks that were never written take no space,
/// so a header can claim any number of them.
const BANDS_MIN: u64 = 1 << 16;

/// The columns of a file, or of a group in it, all with the same number of rows.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: FileId,
    /// The group, if others of the file are read like it.
    pub(super) group: String,
    pub(super) rows: u64,
    pub(super) columns: Vec<Column>,
}

/// The datasets of a file that are not columns, because they were not named.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Datasets with another number of rows.
    pub(super) others: Vec<String>,
    /// Datasets that cannot be read.
    pub(super) unreadable: Vec<String>,
}

/// A dataset: its rows, its path, and what it is.
pub(super) type Found = (u64, String, Object);

/// The most frequent number of rows, and how many datasets have it. Of equally frequent ones it is the largest.
pub(super) fn usual_rows(rows: impl Iterator<Item = u64>) -> Option<(u64, usize)> {
    let mut lengths: BTreeMap<u64, usize> = BTreeMap::new();
    rows.for_each(|rows| *lengths.entry(rows).or_default() += 1);
    lengths.into_iter().max_by_key(|&(_, count)| count)
}

/// Opens the datasets, or fields of datasets, with these names.
pub(super) fn open_named(files: &FileTable, file: FileId, names: &[String]) -> Result<Opened> {
    let source = Source::open(files, file)?;
    let (meta, root) = superblock::read(&source)?;
    let mut opened = Opened::new(file, String::new());
    let mut known = group::Known::new();
    for name in names {
        let (messages, fields) = group::find(&meta, root, name, &mut known)?;
        let dataset = name.strip_suffix(&*fields).unwrap_or(name);
        let object = describe(&meta, dataset, messages)?;
        let taken = taken(&meta, name, &object, &fields).map_err(|error| of_dataset(dataset, error))?;
        opened.add(&meta, name.clone(), &object, &taken)?;
    }
    Ok(opened)
}

/// What `fields` of the elements of a dataset is.
fn taken(meta: &Meta<'_>, name: &str, object: &Object, fields: &str) -> Result<Taken> {
    let mut columns = object.of.columns();
    let exact = columns.iter().position(|(of, _)| of == fields);
    if let Some(found) = exact.or_else(|| columns.iter().position(|(of, _)| group::are_same(of, fields))) {
        return Ok(columns.swap_remove(found).1);
    }
    let dataset = name.strip_suffix(fields).unwrap_or(name);
    let below = |of: &&String| of.strip_prefix(fields).is_some_and(|rest| rest.starts_with('/'));
    let names = |names: &mut dyn Iterator<Item = &String>| {
        names.map(|of| format!("{dataset}{of}")).collect::<Vec<_>>().join(", ")
    };
    let Some(of) = object.of.field(fields) else {
        let what = format!("the file has no dataset {name:?}, and no such field in a dataset");
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(meta.source.path());
        let names = names(&mut columns.iter().map(|(of, _)| of));
        return Err(error.with_remedy(format!("fields that can be read are {names}")));
    };
    let subject = if fields.is_empty() { "elements".into() } else { format!("values of field {name:?}") };
    let what = format!("{subject} are {}, which no column can hold", of.in_words());
    let error = meta.source.unavailable(meta.base, what);
    Err(match &*names(&mut columns.iter().map(|(of, _)| of).filter(below)) {
        "" => error,
        names => error.with_remedy(format!("name its fields: {names}")),
    })
}

/// Opens the datasets of the most frequent length that can be read, or those of all groups of one form, and lists
/// those that were left out.
pub(super) fn open_all(files: &FileTable, file: FileId) -> Result<(Vec<Opened>, LeftOut)> {
    let source = Source::open(files, file)?;
    let (meta, root) = superblock::read(&source)?;
    let (mut found, mut left_out, mut refused) = (Vec::new(), LeftOut::default(), None);
    group::walk(&meta, root, |name, messages| {
        let Some(extent) = object::extent(&meta, &messages)? else { return Ok(()) };
        let Some(&rows) = extent.shape.first() else {
            left_out.others.push(name);
            return Ok(());
        };
        let described = describe(&meta, &name, messages).and_then(|object| {
            let refused = |error| of_dataset(&name, error);
            check(&meta, &name, &object).map_err(refused)?;
            if object.of.columns().is_empty() {
                taken(&meta, &name, &object, "").map_err(refused)?;
            }
            Ok(object)
        });
        match described {
            Ok(object) => found.push((rows, name, object)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                refused.get_or_insert(error);
                left_out.unreadable.push(name);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    let Some((rows, count)) = usual_rows(found.iter().map(|(rows, ..)| *rows)) else {
        return Err(refused.unwrap_or_else(|| {
            let error = Error::new(ErrorKind::Empty, "the file has no dataset with rows").with_path(source.path());
            error.with_remedy("list its datasets with h5ls -r")
        }));
    };
    if let Some(opened) = episodes::joined(&meta, file, &found, count > COLUMNS_MAX, &mut left_out)? {
        left_out.others.sort_unstable();
        return Ok((opened, left_out));
    }
    if count > COLUMNS_MAX {
        let what = format!("{count} datasets have {rows} rows; without names at most {COLUMNS_MAX} are read");
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(source.path());
        return Err(error.with_remedy("name the datasets to read; one dataset for each sample cannot be read as rows"));
    }
    let (wanted, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(of, ..)| *of == rows);
    left_out.others.extend(others.into_iter().map(|(_, name, _)| name));
    left_out.others.sort_unstable();
    let mut opened = Opened::new(file, String::new());
    for (_, name, object) in wanted {
        left_out.unreadable.extend(object.of.odd_fields().iter().map(|field| format!("{name}{field}")));
        for (field, taken) in object.of.columns() {
            let name = format!("{name}{field}");
            // A slash may be part of a field's name.
            if opened.columns.iter().any(|column| column.field.name == name) {
                let what = format!("two fields are called {name:?}");
                let error = Error::new(ErrorKind::InvalidArgument, what).with_path(source.path());
                return Err(error.with_remedy("name the datasets to read, without these fields"));
            }
            opened.add(&meta, name, &object, &taken)?;
        }
    }
    Ok((vec![opened], left_out))
}

/// Refuses rows of several elements that are no numbers.
fn check(meta: &Meta<'_>, name: &str, object: &Object) -> Result<()> {
    let extent = &object.extent;
    let is_plain = matches!(object.of.kind, Kind::Plain(_));
    if extent.file_rank > 1 && !is_plain {
        let what = format!("rows of dataset {name:?} have several elements that are {}", object.of.in_words());
        return Err(meta.source.unavailable(meta.base, what).with_remedy("write one element to each row"));
    }
    Ok(())
}

impl Opened {
    pub(super) fn new(file: FileId, group: String) -> Opened {
        Opened { file, group, rows: 0, columns: Vec::new() }
    }

    /// Adds a column.
    pub(super) fn add(&mut self, meta: &Meta<'_>, name: String, object: &Object, taken: &Taken) -> Result<()> {
        let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what).with_path(meta.source.path());
        let extent = &object.extent;
        let Some((&rows, shape)) = extent.shape.split_first().filter(|_| extent.file_rank > 0) else {
            return Err(invalid(format!("dataset {name:?} is a scalar: it has no rows")));
        };
        if let Some(first) = self.columns.first().filter(|_| rows != self.rows) {
            let (first, of_first) = (&first.field.name, self.rows);
            let error = invalid(format!("dataset {name:?} has {rows} rows, and {first:?} has {of_first}"));
            return Err(error.with_remedy("name datasets with the same number of rows"));
        }
        check(meta, &name, object)?;
        self.rows = rows;
        let dtype = taken.plain.dtype;
        let of_value = || shape[..extent.file_rank - 1].iter().chain(&taken.plain.shape).copied();
        let (shape, len) = if taken.is_elsewhere {
            (Shape::Ragged, 0)
        } else {
            // Fits, as all of the dataset does.
            (Shape::Fixed(of_value().collect()), of_value().product::<u64>() * dtype.size())
        };
        let stride = extent.shape[1..].iter().product::<u64>() * object.atom_bytes;
        let turned = if taken.plain.is_big_endian { dtype.size() as usize } else { 1 };
        let row = Row { stride, at: taken.at, len, turned };
        let (part, encoding) = part(meta, &name, object)?;
        let part = if taken.is_elsewhere { elsewhere(meta, &name, rows, part, dtype.size())? } else { part };
        let encoding = if turned > 1 { format!("{encoding}, big endian") } else { encoding };
        self.columns.push(Column { field: Field { name, dtype, shape }, part, encoding, row });
        Ok(())
    }
}

/// Rows that a dataset of references may have for each byte of its file, and at least: chunks that were never written
/// take no space.
const REFERENCES_MIN: u64 = 1 << 16;

/// The values to which the elements of a dataset refer.
fn elsewhere(meta: &Meta<'_>, name: &str, rows: u64, part: RowSource, element_bytes: u64) -> Result<RowSource> {
    if rows > meta.source.size().max(REFERENCES_MIN) {
        let what = format!("dataset {name:?} has {rows} rows, more than the file has bytes");
        return Err(meta.source.unavailable(meta.base, what).with_remedy("write its rows into a smaller dataset"));
    }
    let bytes = values::reference_bytes(meta);
    let read = |offset, rows: u64| {
        // Fits: it is in the file, or reading fails.
        let len = usize::try_from(rows * bytes).unwrap_or(usize::MAX);
        meta.source.bytes(offset, len, "references to values")
    };
    let stored = match part {
        RowSource::Rows(offset) => read(offset, rows)?,
        RowSource::Runs { rows: run, stride, offsets } if stride == bytes => {
            let runs = offsets.iter().enumerate().map(|(number, &offset)| {
                // Fits: there is a run for every row.
                read(offset, run.min(rows - number as u64 * run))
            });
            runs.collect::<Result<Vec<_>>>()?.concat()
        }
        RowSource::Bands(bands) => values::decoded(meta, &bands)?,
        RowSource::Runs { .. } | RowSource::Values(_) => {
            return Err(meta.source.corrupt(meta.base, format!("the elements of dataset {name:?} are no references")));
        }
    };
    values::locate(meta, &stored, element_bytes).map(RowSource::Values)
}

/// Locates the bytes of a dataset, and describes in words how they are stored.
fn part(meta: &Meta<'_>, name: &str, object: &Object) -> Result<(RowSource, String)> {
    let Object { extent, layout, filters, fill, atom_bytes, .. } = object.clone();
    let source = meta.source;
    let bytes = extent.shape.iter().product::<u64>() * atom_bytes;
    if bytes == 0 {
        // Whatever the layout, there is nothing to read.
        return Ok((RowSource::Rows(0), "no element".into()));
    }
    match layout {
        Layout::At(offset, len) => {
            if len < bytes {
                return Err(source.corrupt(offset, format!("dataset {name:?} takes {bytes} bytes, and has {len}")));
            }
            if offset.checked_add(bytes).is_none_or(|end| end > source.size()) {
                let what = format!("dataset {name:?} of {bytes} bytes ends past the end of the file");
                return Err(Error::new(ErrorKind::Truncated, what)
                    .with_path(source.path())
                    .with_offset(offset)
                    .with_remedy("fetch or write the file again"));
            }
            Ok((RowSource::Rows(offset), "contiguous".into()))
        }
        // All of it is the fill value, as chunks are that were never written.
        Layout::Nowhere => {
            let mut chunk = extent.shape.clone();
            chunk[0] = (FILLED_BYTES / (bytes / chunk[0]).max(1)).clamp(1, chunk[0]);
            let grid = Grid::new(chunk, &extent, atom_bytes, false);
            let grid = grid.filter(|grid| grid.counts[0] <= source.size().max(BANDS_MIN)).ok_or_else(|| {
                let what = format!("dataset {name:?} was never written, and has more rows than the file has bytes");
                source.unavailable(meta.base, what).with_remedy("write it, or name other datasets")
            })?;
            let (element_bytes, chunks) = (atom_bytes, Vec::new());
            let bands = Bands { grid, shape: extent.shape, element_bytes, chunks, filters, plain_edges: false, fill };
            Ok((RowSource::Bands(bands), "never written".into()))
        }
        Layout::Chunks { chunk, index, plain_edges } => {
            let names = filters.names();
            let encoding = match names.as_str() {
                "" => format!("chunks of {chunk:?}"),
                names => format!("chunks of {chunk:?}, {names}"),
            };
            let grid = Grid::new(chunk, &extent, atom_bytes, !filters.0.is_empty());
            let grid = grid
                .ok_or_else(|| source.corrupt(meta.base, format!("chunks of {name:?} are larger than any can be")))?;
            let bands = grid.counts[0];
            if bands > source.size().max(BANDS_MIN) {
                let what = format!("dataset {name:?} has {bands} rows of chunks, more than the file has bytes");
                return Err(source.unavailable(meta.base, what).with_remedy("write its rows into a smaller dataset"));
            }
            let chunks = chunks(meta, &index, &grid)?;
            let element_bytes = atom_bytes;
            let bands = Bands { grid, shape: extent.shape, element_bytes, chunks, filters, plain_edges, fill };
            Ok((bands.runs().unwrap_or(RowSource::Bands(bands)), encoding))
        }
    }
}
