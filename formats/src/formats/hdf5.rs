//! HDF5: rows of datasets, read in place and decoded chunk by chunk, without the HDF5 library.
//!
//! Source: "HDF5 File Format Specification Version 3.0" (The HDF Group). Crates that read these files exist. Those that
//! report the places of chunks ignore what changes a chunk's bytes (edge chunks without filters), give no file offset
//! when they refuse a file, and pull in a dozen crates for elements that would not be read through them.

mod array;
mod bands;
mod episodes;
mod filters;
mod group;
mod header;
mod heap;
mod index;
mod meta;
mod object;
mod open;
mod scaleoffset;
mod superblock;
mod tree;
mod types;
mod values;

use crate::dataset::sizes::sum_of_largest;
use crate::dataset::{
    Dataset, Encoding, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, SkipReason, Span,
    UnitId, Units, Value,
};
use crate::find::names::has_extension;
use crate::find::paths::{FoundFiles, thread_count};
use crate::format::{Format, Paths, Shows};
use crate::formats::endian;
use crate::index::headers::map_files;
use crate::options::{FormatOptions, options};
use bands::{Bands, RowSource};
use bytes::Bytes;
use open::Opened;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// File extensions that mark HDF5 files in a folder.
const EXTENSIONS: [&str; 7] = ["h5", "hdf5", "hdf", "he5", "nc", "nc4", "mat"];

options! {
    /// Options of hdf5.
    pub struct Hdf5Options {
        /// Arrays, tensors or datasets that become columns, by name and in this order; not given: all. Of HDF5's
        /// datasets, all that have as many rows as most of them; of two such numbers, the larger.
        tensors: Vec<String>,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "hdf5",
    help: "Rows of the datasets of HDF5 files.",
    options: Hdf5Options::SPECS,
    has_sidecars: false,
    shows: Shows::Names { called: is_named_so, begins: superblock::is_there },
    open: |paths, options| Ok(Arc::new(Hdf5::open(paths, &options.typed()?)?)),
};

/// Rows of the datasets of HDF5 files.
///
/// Opening reads all structures that lead to the datasets, and verifies their checksums (only the later format has
/// them). No span points outside its file, and no allocation trusts a size that a header claims.
///
/// Memory: 24 bytes for each chunk that is decoded, 8 for each that is not. The chunk indexes are read at every start
/// and not cached. For a hundred thousand chunks that takes 0.04 to 0.1 s from the page cache, and up to 0.6 s from a
/// disk if the nodes of an index of the earliest form are between the chunks.
#[derive(Debug)]
pub struct Hdf5 {
    /// The shards are the rows of one unit (of the tallest, if columns differ), or a file if it has no units.
    index: Index,
    opened: Vec<Opened>,
    /// Total samples up to and including each file, or group.
    ends: Vec<u64>,
    /// The first unit of each column that has any: file by file, then column by column.
    units: Vec<(u32, Owner)>,
    unit_count: u32,
    largest_decoded: u64,
    largest_stored: u64,
    fingerprint: u64,
}

/// The file, or group, and column that units belong to: numbers in `opened`.
#[derive(Clone, Copy, Debug)]
struct Owner {
    file: u32,
    column: u32,
}

impl Hdf5 {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &Hdf5Options) -> Result<Hdf5> {
        let threads = thread_count(options.common.threads);
        let FoundFiles { files, mut skips, .. } = paths.find(&EXTENSIONS, options.common.threads)?;
        let mut names: Vec<String> = options.tensors.iter().map(|name| name.trim_matches('/').to_owned()).collect();
        let mut known = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !known.insert(*name)) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("dataset {twice:?} is named twice")));
        }
        let place = files.place().to_path_buf();
        let mut opened = Vec::with_capacity(files.len());
        if names.is_empty() {
            let (first, left_out) = open::open_all(&files, FileId(0))?;
            names.extend(first[0].columns.iter().map(|column| column.field.name.clone()));
            for (reason, names) in
                [(SkipReason::OtherDataset, left_out.others), (SkipReason::UnreadableDataset, left_out.unreadable)]
            {
                names.iter().for_each(|name| skips.add(reason, &files.path(FileId(0)).join(name)));
            }
            opened.extend(first);
        }
        let has_groups = opened.len() > 1;
        // Fits: a table has fewer files than 2^32.
        let rest = u32::from(!opened.is_empty())..files.len() as u32;
        let others = map_files(rest, threads, |file| {
            if has_groups {
                return open::open_all(&files, file).map(|(opened, _)| opened);
            }
            open::open_named(&files, file, &names).map(|opened| vec![opened])
        })?;
        opened.extend(others.into_iter().flatten());
        let mut hdf5 = Hdf5::assemble(files, opened, &place)?;
        hdf5.index.left_out = skips.into_vec();
        Ok(hdf5)
    }

    fn assemble(files: FileTable, opened: Vec<Opened>, place: &Path) -> Result<Hdf5> {
        let (mut ends, mut shards, mut end) = (Vec::with_capacity(opened.len()), Vec::new(), 0_u64);
        let (mut units, mut unit_count, mut largest_decoded, mut largest_stored) = (Vec::new(), 0_u32, 1, 0);
        let of_first = |column: usize| &opened[0].columns[column].field;
        for (number, file) in opened.iter().enumerate() {
            let path = files.path(file.file);
            if file.columns.len() != opened[0].columns.len() {
                let what = format!("there are {} columns, and {}", file.columns.len(), opened[0].columns.len());
                let error = Error::new(ErrorKind::InvalidArgument, format!("{what} in the first file")).with_path(path);
                return Err(error.with_remedy("open files with different datasets one by one"));
            }
            let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what).with_path(&path);
            let start = end;
            end = end.checked_add(file.rows).ok_or_else(|| invalid("the files have more than 2^64 rows".into()))?;
            let mut tallest: u64 = 0;
            for (column, Column { field, part, .. }) in file.columns.iter().enumerate() {
                let first = of_first(column);
                if field != first {
                    let what = format!(
                        "rows of dataset {:?} are {} {:?}, and {} {:?} in the first file",
                        field.name, field.dtype, field.shape, first.dtype, first.shape
                    );
                    return Err(invalid(what).with_remedy("open files with different datasets one by one"));
                }
                let RowSource::Bands(bands) = part else { continue };
                // Fits: the number of a file, and no more columns than the file has bytes.
                units.push((unit_count, Owner { file: number as u32, column: column as u32 }));
                let count = u32::try_from(bands.count()).ok().and_then(|count| unit_count.checked_add(count));
                unit_count = count.ok_or_else(|| invalid("the files have more than 2^32 bands of chunks".into()))?;
                largest_decoded = largest_decoded.max(bands.rows().min(file.rows).saturating_mul(bands.row_bytes()));
                largest_stored = largest_stored.max(bands.largest_stored());
                tallest = tallest.max(bands.rows());
            }
            ends.push(end);
            // Shards are the bands of the tallest chunks. Bands of other columns are then decoded for at most two
            // neighbours.
            match tallest {
                0 => shards.push(end),
                rows => shards.extend(
                    (1..=file.rows.div_ceil(rows)).map(|band| start + band.saturating_mul(rows).min(file.rows)),
                ),
            }
        }
        if end == 0 {
            return Err(Error::new(ErrorKind::Empty, "the datasets have no row").with_path(place));
        }
        let first = &opened[0].columns;
        let fields: Vec<_> = first.iter().map(|column| column.field.clone()).collect();
        let fingerprint = fingerprint(&fields, &files, &ends, opened.iter().map(|opened| &*opened.group));
        let mut index = Index::new("hdf5", files, Schema { fields }, end);
        let columns = || opened.iter().flat_map(|file| file.columns.iter().zip(std::iter::repeat(file.rows)));
        index.bytes = columns().fold(0, |sum: u64, (column, rows)| {
            sum.saturating_add(match &column.part {
                RowSource::Values(values) => values.bytes(),
                _ => column.row.len.saturating_mul(rows),
            })
        });
        let turns = columns().any(|(column, _)| column.row.turned > 1);
        index.shards = shards;
        index.plain_field = (first.len() == 1 && unit_count == 0 && !turns).then_some(0);
        index.parse_reads_bytes = unit_count > 0 || turns;
        index.encodings = first.iter().map(|column| Encoding::raw(&*column.encoding)).collect();
        Ok(Hdf5 { index, opened, ends, units, unit_count, largest_decoded, largest_stored, fingerprint })
    }

    /// Which of `opened` has a sample, and its row there.
    fn locate(&self, id: SampleId) -> (usize, u64) {
        crate::dataset::locate(&self.ends, id.0)
    }

    /// The bands that a unit belongs to, their file, and the unit's number among them.
    fn bands(&self, unit: UnitId) -> (&Bands, FileId, u64) {
        let owner = self.units.partition_point(|&(first, _)| first <= unit.0) - 1;
        let (first, Owner { file, column }) = self.units[owner];
        match &self.opened[file as usize].columns[column as usize].part {
            RowSource::Bands(bands) => (bands, self.opened[file as usize].file, u64::from(unit.0 - first)),
            RowSource::Rows(_) | RowSource::Runs { .. } | RowSource::Values(_) => {
                unreachable!("units belong to columns with bands")
            }
        }
    }
}

/// FNV-1a over "hdf5", the names, types and shapes of all columns, and the names, sizes and rows of all files.
fn fingerprint<'a>(fields: &[Field], files: &FileTable, ends: &[u64], groups: impl Iterator<Item = &'a str>) -> u64 {
    let mut fingerprint = Fingerprint::new("hdf5");
    fingerprint.number(fields.len() as u64);
    for field in fields {
        fingerprint.bytes(field.name.as_bytes());
        fingerprint.bytes(field.dtype.name().as_bytes());
        let Shape::Fixed(shape) = &field.shape else {
            fingerprint.number(u64::MAX);
            continue;
        };
        fingerprint.number(shape.len() as u64);
        shape.iter().for_each(|&len| fingerprint.number(len));
    }
    fingerprint.files(files);
    ends.iter().for_each(|&end| fingerprint.number(end));
    groups.filter(|group| !group.is_empty()).for_each(|group| fingerprint.bytes(group.as_bytes()));
    fingerprint.finish()
}

fn is_named_so(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| has_extension(name, extension))
}

/// One dataset of one file.
#[derive(Debug)]
struct Column {
    field: Field,
    part: RowSource,
    encoding: String,
    row: Row,
}

/// What of a stored row is the column's value.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Bytes of a stored row.
    stride: u64,
    /// Where the value begins in it: that of a field of a compound need not begin with the row.
    at: u64,
    /// Bytes of the value; 0 if it is elsewhere.
    len: u64,
    /// Bytes of an element that is big endian, which the value is not; else 1.
    turned: usize,
}

impl Row {
    /// The value as it is delivered.
    fn value(self, stored: Bytes) -> Bytes {
        if self.turned == 1 { stored } else { endian::little(&stored, self.turned) }
    }
}

impl Dataset for Hdf5 {
    fn index(&self) -> &Index {
        &self.index
    }

    /// One span for each column that is not cut from units.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, row) = self.locate(id);
        for column in &self.opened[file].columns {
            let Row { stride, at, len, .. } = column.row;
            let (offset, len) = match &column.part {
                RowSource::Rows(offset) => (offset + row * stride + at, len),
                // Fits: there is a chunk for every row.
                RowSource::Runs { rows, stride, offsets } => {
                    (offsets[(row / rows) as usize] + row % rows * stride + at, len)
                }
                // Fits: there is a value for every row.
                RowSource::Values(values) => {
                    let (offset, len) = values.0[row as usize];
                    (offset, len.into())
                }
                RowSource::Bands(_) => continue,
            };
            out.push(Span { file: self.opened[file].file, offset, len });
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (file, row) = self.locate(id);
        let columns = &self.opened[file].columns;
        let spans = columns.iter().filter(|column| !matches!(column.part, RowSource::Bands(_))).count();
        let (mut spans, mut units) = (raw[..spans].iter(), raw[spans..].iter());
        for column in columns {
            let Row { stride, at, len, .. } = column.row;
            let value = match &column.part {
                RowSource::Bands(bands) => units.next().map(|unit| {
                    // A unit is complete, or it has an error.
                    let at = (row % bands.rows() * stride + at) as usize;
                    unit.slice(at..at + len as usize)
                }),
                _ => spans.next().cloned(),
            };
            out.values.push(Value::Bytes(column.row.value(value.unwrap_or_default())));
        }
        Ok(())
    }

    /// Rows that are in the file as they are delivered.
    fn span_of(&self, id: SampleId, field: usize) -> Option<usize> {
        let columns = &self.opened[self.locate(id).0].columns;
        let is_span = |column: &&Column| !matches!(column.part, RowSource::Bands(_));
        columns.get(field).filter(|column| is_span(column) && column.row.turned == 1)?;
        Some(columns[..field].iter().filter(is_span).count())
    }

    fn units(&self) -> Option<&dyn Units> {
        (self.unit_count > 0).then_some(self)
    }

    /// The file name and the row in that file, or in its group: "train.h5#17", "train.h5/data/demo_1#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, row) = self.locate(id);
        let Opened { file, group, .. } = &self.opened[file];
        out.extend_from_slice(self.files().name(*file));
        let before = if group.is_empty() { "" } else { "/" };
        write!(out, "{before}{group}#{row}").expect("a Vec takes everything");
    }

    fn largest(&self, count: u64) -> u64 {
        let of_column = |column: usize| {
            let parts = || self.opened.iter().map(|file| &file.columns[column]);
            let lens = parts().filter_map(|column| match &column.part {
                RowSource::Values(values) => Some(values.lens()),
                _ => None,
            });
            // The columns that are read by span in any file.
            let in_spans = parts().find(|column| !matches!(column.part, RowSource::Bands(_) | RowSource::Values(_)));
            let rows = in_spans.map_or(0, |column| column.row.len).saturating_mul(count.min(self.len()));
            rows.saturating_add(sum_of_largest(lens.flatten(), count))
        };
        (0..self.schema().fields.len()).map(of_column).fold(0, u64::saturating_add)
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let (file, row) = self.locate(id);
        let column = &self.opened[file].columns[field];
        match (&column.field.shape, &column.part) {
            (Shape::Fixed(shape), _) => Some(shape.iter().product()),
            (Shape::Ragged, RowSource::Values(values)) => {
                Some(u64::from(values.0[row as usize].1) / column.field.dtype.size())
            }
            (Shape::Ragged, _) => None,
        }
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Units for Hdf5 {
    fn count(&self) -> u32 {
        self.unit_count
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        let (file, row) = self.locate(id);
        let first = self.units.partition_point(|(_, owner)| (owner.file as usize) < file);
        for (first, owner) in self.units[first..].iter().take_while(|(_, owner)| owner.file as usize == file) {
            let RowSource::Bands(bands) = &self.opened[file].columns[owner.column as usize].part else { continue };
            // Fits: there are fewer bands than units.
            out.push(UnitId(first + (row / bands.rows()) as u32));
        }
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let (bands, file, band) = self.bands(unit);
        out.extend(bands.chunks_of(band).iter().map(|chunk| Span {
            file,
            offset: chunk.offset,
            len: chunk.len.into(),
        }));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let (bands, _, band) = self.bands(unit);
        bands.rows_of(band).1 * bands.row_bytes()
    }

    fn largest_decoded(&self) -> u64 {
        self.largest_decoded
    }

    fn largest_stored(&self) -> u64 {
        self.largest_stored
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let (bands, file, band) = self.bands(unit);
        bands.decode(band, stored, out).map_err(|bad| {
            let (first, rows) = bands.rows_of(band);
            let what = format!("cannot decode a chunk of rows {first} to {}", first + rows - 1);
            Error::new(ErrorKind::Corrupt, what)
                .with_path(self.files().path(file))
                .with_offset(bad.offset)
                .with_source(bad.cause)
                .with_remedy("fetch or write the file again")
        })?;
        Ok(out.len())
    }
}
