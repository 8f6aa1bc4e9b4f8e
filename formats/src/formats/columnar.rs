//! What Parquet and Arrow share: their options, the table of row groups, how a group is decoded, and how a row becomes
//! a sample.

mod choice;
mod column;
pub(crate) mod json;
pub(crate) mod layout;
mod nulls;

use crate::dataset::{
    DType, Dataset, FileId, Fingerprint, Index, Sample, SampleId, Schema, SkipReason, Span, UnitId, Units, Value,
};
use crate::find::paths::{FoundFiles, thread_count};
use crate::index::headers::{Source, map_files};
use crate::options::{Options, options};
use bytes::Bytes;
use choice::{Chosen, choose};
pub(crate) use choice::{Wanted, name_file};
use column::SAME_COLUMNS;
pub(crate) use column::{Column, Kind};
use layout::{ColumnWriter, State, Writer};
pub(crate) use nulls::Fill;
use nulls::Nulls;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

/// What a decoder of LZ4 frames holds: a stored and a decoded block of up to 4 MiB, and the 64 KiB before it.
pub(crate) const LZ4_FRAME_BYTES: u64 = (8 << 20) + (128 << 10);
/// What a decoder of Brotli holds: a window of up to 16 MiB, and its tables.
pub(crate) const BROTLI_BYTES: u64 = 17 << 20;

options! {
    /// Options of parquet and arrow.
    pub struct ColumnarOptions {
        /// The columns or fields to read, in this order. Fields of structs have dots in their names: image.bytes, and
        /// image means all of its fields. Fields of lines may have a type after a colon: id:i64. Not given: all
        /// columns; those of csv as text; the line itself of jsonl.
        columns: Vec<String>,
        /// How nulls are read: refuse (an error of their sample), empty (values of any length become empty), nan (also
        /// NaN for floats), zero (also 0 for all numbers), mask (as zero, with a column NAME.valid that marks nulls).
        nulls: Nulls,
    }
}

/// Returns the typed options of a format. Files say what type a column has.
///
/// # Errors
/// `InvalidArgument` if a column is named with a type.
pub(crate) fn typed(options: &Options) -> Result<ColumnarOptions> {
    let typed: ColumnarOptions = options.typed()?;
    let has_type = |column: &&String| column.rsplit_once(':').is_some_and(|(_, dtype)| DType::named(dtype).is_some());
    match typed.columns.iter().find(has_type) {
        None => Ok(typed),
        Some(column) => {
            let what = format!("a column has the type that its file says, so {column:?} cannot name one");
            Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("name it without a type"))
        }
    }
}

/// A group of rows that is read and decoded as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) file: FileId,
    /// Number in its file, from 0.
    pub(crate) number: u32,
    pub(crate) rows: u64,
    /// How many bytes are read of it.
    pub(crate) stored: u64,
    /// The most bytes that it decodes to.
    pub(crate) decoded: u64,
    /// The most bytes that decoding it takes beside these.
    pub(crate) scratch: u64,
}

/// Where all rows are.
#[derive(Debug)]
pub(crate) struct Table {
    /// Every group is a shard.
    index: Index,
    columns: Vec<Column>,
    nulls: Nulls,
    groups: Vec<Group>,
    /// The format's word for a group.
    group_name: &'static str,
    fingerprint: OnceLock<u64>,
}

/// A range of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteRange {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A column of a group. Formats differ in how it is stored and decoded. `L` says where the values of a column come
/// from.
pub(crate) trait GroupColumn<L>: Send + Sync + 'static {
    fn places(&self) -> &[ByteRange];

    /// Decodes the column; `stored` are the bytes of its places.
    fn decode(&self, leaf: &L, stored: &[Bytes], group: &Group, writer: ColumnWriter<'_>) -> Result<()>;
}

/// What a file holds.
#[derive(Debug)]
pub(crate) struct Listing<L, P> {
    pub(crate) columns: Vec<Column>,
    /// One for each column.
    pub(crate) leaves: Vec<L>,
    /// The groups that have rows.
    pub(crate) groups: Vec<Group>,
    /// A part for each column of each group.
    pub(crate) parts: Vec<P>,
    /// How each column is stored, in words; empty if no group has rows.
    pub(crate) stored: Vec<String>,
    /// Columns that were not chosen, and why they are left out.
    pub(crate) left_out: Vec<(SkipReason, String)>,
}

impl<L, P> Listing<L, P> {
    /// Of the columns of a file, those that are wanted.
    ///
    /// # Errors
    /// As [`choose`].
    pub(crate) fn choose(found: Vec<(String, Result<(Kind, L)>)>, wanted: Wanted<'_>) -> Result<Listing<L, P>> {
        let names: Vec<(String, Result<()>)> = found
            .iter()
            .map(|(name, column)| (name.clone(), column.as_ref().map(|_| ()).map_err(Error::clone)))
            .collect();
        let Chosen { columns: chosen, left_out } = choose(&names, wanted)?;
        let (mut columns, mut leaves) = (Vec::with_capacity(chosen.len()), Vec::with_capacity(chosen.len()));
        let mut found: Vec<_> = found.into_iter().map(Some).collect();
        for number in chosen {
            // No column is chosen twice.
            if let Some((name, column)) = found[number].take() {
                let (kind, leaf) = column?;
                columns.push(Column { name, kind });
                leaves.push(leaf);
            }
        }
        Ok(Listing { columns, leaves, left_out, ..Listing::empty() })
    }

    /// Of columns that are chosen already, with those that were left out.
    pub(crate) fn chosen(columns: Vec<Column>, leaves: Vec<L>, left_out: Vec<(SkipReason, String)>) -> Listing<L, P> {
        Listing { columns, leaves, left_out, ..Listing::empty() }
    }

    fn empty() -> Listing<L, P> {
        let (columns, leaves, groups, parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Listing { columns, leaves, groups, parts, stored: Vec::new(), left_out: Vec::new() }
    }
}

/// Tables in groups of rows: every row is a sample that is cut from its group.
#[derive(Debug)]
pub struct Columnar<L, P> {
    table: Table,
    /// For each file, because a struct around a column may be nullable in one file and not in another.
    leaves: Vec<Vec<L>>,
    parts: Vec<P>,
}

impl<L: Send, P: Send> Columnar<L, P> {
    /// Opens files. `read` lists what one of them holds, and gets the columns of the first for all others; `names` are
    /// the format's, and its word for a group.
    pub(crate) fn of(
        found: FoundFiles,
        names: [&'static str; 2],
        options: &ColumnarOptions,
        read: impl Fn(&Source, FileId, Wanted<'_>, Option<&[Column]>) -> Result<Listing<L, P>> + Sync,
    ) -> Result<Columnar<L, P>> {
        let mut found = found;
        let count = found.files.len() as u32;
        // `find` returns at least one file.
        let wanted = if options.columns.is_empty() { Wanted::All } else { Wanted::Named(&options.columns) };
        let first = read(&Source::open(&found.files, FileId(0))?, FileId(0), wanted, None)?;
        let like = if options.columns.is_empty() { Wanted::Like(&first.columns) } else { wanted };
        let listings = map_files(1..count, thread_count(options.common.threads), |file| {
            let listing = read(&Source::open(&found.files, file)?, file, like, Some(&first.columns))?;
            check_same(&listing.columns, &first.columns).map_err(|error| error.with_path(found.files.path(file)))?;
            Ok(listing)
        })?;
        let (mut columns, mut stored, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let (mut leaves, mut parts) = (Vec::new(), Vec::new());
        for (number, mut listing) in (0..).zip([first].into_iter().chain(listings)) {
            if number == 0 {
                columns = listing.columns;
            }
            if stored.is_empty() {
                stored = listing.stored;
            }
            for (reason, name) in listing.left_out {
                let mut place = found.files.path(FileId(number)).into_os_string();
                place.push("/");
                place.push(name);
                found.skips.add(reason, Path::new(&place));
            }
            groups.append(&mut listing.groups);
            parts.append(&mut listing.parts);
            leaves.push(listing.leaves);
        }
        let table = Table::new(names, found, columns, stored, groups, options.nulls)?;
        Ok(Columnar { table, leaves, parts })
    }

    fn parts(&self, unit: UnitId) -> &[P] {
        let columns = self.table.columns.len();
        &self.parts[unit.0 as usize * columns..][..columns]
    }
}

impl<L: Send + Sync + 'static, P: GroupColumn<L>> Dataset for Columnar<L, P> {
    fn index(&self) -> &Index {
        &self.table.index
    }

    /// Appends nothing: rows are cut from groups.
    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        self.table.parse(id, raw, out)
    }

    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.table.key(id, out);
    }

    fn largest(&self, _count: u64) -> u64 {
        0
    }

    fn fingerprint(&self) -> u64 {
        self.table.fingerprint()
    }
}

impl<L: Send + Sync + 'static, P: GroupColumn<L>> Units for Columnar<L, P> {
    fn count(&self) -> u32 {
        // `Table::new` has checked that it fits.
        self.table.groups.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.push(self.table.locate(id).0);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let file = self.table.group(unit).file;
        let places = self.parts(unit).iter().flat_map(|part| part.places());
        out.extend(places.map(|place| Span { file, offset: place.offset, len: place.len }));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.table.group(unit).decoded
    }

    fn largest_decoded(&self) -> u64 {
        self.table.groups.iter().map(|group| group.decoded).max().unwrap_or(0)
    }

    fn largest_stored(&self) -> u64 {
        self.table.groups.iter().map(|group| group.stored).max().unwrap_or(0)
    }

    fn largest_scratch(&self) -> u64 {
        self.table.groups.iter().map(|group| group.scratch).max().unwrap_or(0)
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let group = self.table.group(unit);
        let columns = self.table.columns.iter().zip(&self.leaves[group.file.0 as usize]).zip(self.parts(unit));
        let mut writer = Writer::new(out, group.rows, columns.len())?;
        let mut left = stored;
        for ((column, leaf), part) in columns {
            let places = part.places();
            let Some((stored, rest)) = left.split_at_checked(places.len()) else {
                return Err(Error::new(ErrorKind::Internal, "a unit was decoded without what is stored of it"));
            };
            left = rest;
            let width = column.kind.width().map(|width| width as usize);
            let writer = writer.column(column.kind.is_nullable, width, self.table.nulls.fill(&column.kind));
            writer.and_then(|writer| part.decode(leaf, stored, group, writer)).map_err(|error| {
                self.table.placed(error, group, &column.name, places.first().map_or(0, |place| place.offset))
            })?;
        }
        Ok(writer.finish())
    }
}

/// Refuses a file whose columns differ from those of the first. Structs may have other fields.
fn check_same(columns: &[Column], first: &[Column]) -> Result<()> {
    if columns.len() != first.len() {
        let what = format!("{} columns are wanted of the file, and {} of the first", columns.len(), first.len());
        return Err(Error::new(ErrorKind::Corrupt, what).with_remedy(SAME_COLUMNS));
    }
    for (column, first) in columns.iter().zip(first) {
        if column != first {
            let (is, was) = (column.kind.in_words(), first.kind.in_words());
            let what = format!("column {:?} is {is}, and {:?} of the first file is {was}", column.name, first.name);
            return Err(Error::new(ErrorKind::Corrupt, what).with_remedy(SAME_COLUMNS));
        }
    }
    Ok(())
}

impl Table {
    /// # Errors
    /// `Empty` if there are no rows; `Corrupt` for more rows or groups than can be numbered.
    fn new(
        [format, group_name]: [&'static str; 2],
        found: FoundFiles,
        columns: Vec<Column>,
        stored: Vec<String>,
        groups: Vec<Group>,
        nulls: Nulls,
    ) -> Result<Table> {
        let FoundFiles { files, skips, .. } = found;
        let mut ends = Vec::with_capacity(groups.len());
        let mut end = 0_u64;
        for group in &groups {
            end = end.checked_add(group.rows).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "the files have more than 2^64 rows").with_path(files.path(group.file))
            })?;
            ends.push(end);
        }
        if groups.is_empty() || u32::try_from(groups.len()).is_err() {
            let place = files.place().to_path_buf();
            let (kind, what) = if groups.is_empty() {
                (ErrorKind::Empty, "the files have no row")
            } else {
                (ErrorKind::Corrupt, "the files have more than 2^32 groups of rows")
            };
            return Err(Error::new(kind, what).with_path(place));
        }
        let schema = Schema { fields: nulls.fields(&columns).map_err(|error| error.with_path(files.place()))? };
        let mut index = Index::new(format, files, schema, end);
        // The stored bytes that are read of all groups.
        index.bytes = groups.iter().map(|group| group.stored).fold(0, u64::saturating_add);
        index.shards = ends;
        index.left_out = skips.into_vec();
        index.encodings = nulls.encodings(&columns, &stored);
        let fingerprint = OnceLock::new();
        Ok(Table { index, columns, nulls, groups, group_name, fingerprint })
    }

    fn group(&self, unit: UnitId) -> &Group {
        &self.groups[unit.0 as usize]
    }

    /// Returns the group of a row, and the row's number in it.
    fn locate(&self, id: SampleId) -> (UnitId, u64) {
        let (group, number) = crate::dataset::locate(&self.index.shards, id.0);
        // `new` has checked the number of groups.
        (UnitId(group as u32), number)
    }

    /// Appends the file's name and the row's number in it: "train.parquet#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (unit, row) = self.locate(id);
        let file = self.group(unit).file;
        let start_of = |group: usize| if group == 0 { 0 } else { self.index.shards[group - 1] };
        // Groups come in the order of the files.
        let first = self.groups.partition_point(|group| group.file.0 < file.0);
        let row = start_of(unit.0 as usize) - start_of(first) + row;
        out.extend_from_slice(self.index.files.name(file));
        write!(out, "#{row}").expect("a Vec takes everything");
    }

    /// Makes a sample from a row of a decoded group.
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (unit, row) = self.locate(id);
        for (number, column) in self.columns.iter().enumerate() {
            let found = raw.first().and_then(|bytes| layout::value(bytes, number, row, column.kind.width()));
            let Some((value, state)) = found else {
                let what = format!("sample {} was parsed without its unit", id.0);
                return Err(Error::new(ErrorKind::Internal, what));
            };
            if !self.nulls.has_value(&column.kind, state) {
                return Err(self.null(unit, row, column, state));
            }
            out.values.push(Value::Bytes(value));
            if self.nulls.has_mask(column) {
                let is_valid: &[u8] = if state == State::Valid { &[1] } else { &[0] };
                out.values.push(Value::Bytes(Bytes::from_static(is_valid)));
            }
        }
        Ok(())
    }

    fn null(&self, unit: UnitId, row: u64, column: &Column, state: State) -> Error {
        let Group { file, number, .. } = *self.group(unit);
        let is = if state == State::Null { "null" } else { "a list with a null in it" };
        let what = format!("column {:?} is {is} in row {row} of {} {number}", column.name, self.group_name);
        let remedy = Nulls::remedy(&column.kind, state);
        Error::new(ErrorKind::Unavailable, what).with_path(self.index.files.path(file)).with_remedy(remedy)
    }

    /// FNV-1a over the format, columns with their types, the choice about nulls, rows of all groups, and names and
    /// sizes of all files in order.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new(self.index.format);
            fingerprint.number(match self.nulls {
                Nulls::Refuse => 0,
                Nulls::Empty => 1,
                Nulls::Nan => 2,
                Nulls::Zero => 3,
                Nulls::Mask => 4,
            });
            for Column { name, kind } in &self.columns {
                fingerprint.bytes(name.as_bytes());
                fingerprint.bytes(kind.dtype.name().as_bytes());
                fingerprint.bytes(kind.described.as_bytes());
                fingerprint.number(kind.width().unwrap_or(u64::MAX));
            }
            self.index.shards.iter().for_each(|&end| fingerprint.number(end));
            fingerprint.files(&self.index.files);
            fingerprint.finish()
        })
    }

    /// Adds to an error of decoding where it happened.
    fn placed(&self, error: Error, group: &Group, name: &str, offset: u64) -> Error {
        let Group { file, number, .. } = *group;
        let what = format!("cannot decode column {name:?} of {} {number}", self.group_name);
        let has_remedy = error.remedy().is_some();
        let placed = Error::new(error.kind(), what).with_path(self.index.files.path(file)).with_offset(offset);
        let placed = placed.with_source(error);
        if has_remedy { placed } else { placed.with_remedy("fetch or write the file again") }
    }
}
