//! What formats that store columns in groups of rows share: their options, the table of groups, and how a row becomes
//! a sample.

pub(super) mod layout;

use crate::fingerprint::Fingerprint;
use crate::headers::has_extension;
use crate::paths::{Index, index, thread_count};
use crate::{DType, Field, FileId, FileTable, Sample, SampleId, Schema, Shape, Skipped, UnitId, Value};
use bytes::Bytes;
use layout::State;
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

/// What becomes of a value that is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nulls {
    /// It is an error of its sample, which names column and row.
    #[default]
    Refuse,
    /// In a column of values of any length (text, bytes, lists) it is an empty value; numbers are errors of their
    /// samples, and so are elements of lists.
    Empty,
}

/// How [`Parquet`](super::Parquet) and [`ArrowIpc`](super::ArrowIpc) are opened.
#[derive(Clone, Debug, Default)]
pub struct ColumnarOptions {
    /// The columns that are wanted, in this order; nothing else is read. Fields of structs have dots in their names:
    /// "image.bytes", and "image" stands for all that it has. Empty: all columns.
    pub columns: Vec<String>,
    /// What becomes of values that are null.
    pub nulls: Nulls,
    /// Threads that look for files and read their metadata; 0 chooses by the machine.
    pub threads: usize,
}

/// What a column holds, as a file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) is_nullable: bool,
    /// The type in the words of the format, for people.
    pub(super) described: String,
}

impl Kind {
    pub(super) fn scalar(dtype: DType, described: impl Into<String>) -> Kind {
        Kind { dtype, shape: Shape::Fixed(Vec::new()), is_nullable: false, described: described.into() }
    }

    pub(super) fn bytes(described: impl Into<String>) -> Kind {
        Kind { dtype: DType::U8, shape: Shape::Ragged, is_nullable: false, described: described.into() }
    }

    pub(super) fn fixed_bytes(bytes: u64, described: impl Into<String>) -> Kind {
        Kind { dtype: DType::U8, shape: Shape::Fixed(vec![bytes]), is_nullable: false, described: described.into() }
    }

    /// Bytes of a value, where all have as many.
    pub(super) fn width(&self) -> Option<u64> {
        match &self.shape {
            Shape::Fixed(shape) => Some(shape.iter().product::<u64>() * self.dtype.size()),
            Shape::Ragged => None,
        }
    }
}

/// A column with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// A group of rows that is read and decoded as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) file: FileId,
    /// Number in its file, from 0.
    pub(super) number: u32,
    pub(super) rows: u64,
    /// Bytes that are read of it.
    pub(super) stored: u64,
    /// Bytes that it is decoded to at most.
    pub(super) decoded: u64,
}

/// Where all rows are.
#[derive(Debug)]
pub(super) struct Table {
    files: FileTable,
    skipped: Vec<Skipped>,
    schema: Schema,
    columns: Vec<Column>,
    /// How each column is stored, for people.
    stored: Vec<String>,
    nulls: Nulls,
    groups: Vec<Group>,
    /// Rows in the groups up to and with each.
    ends: Vec<u64>,
    /// What the format calls a group.
    group_name: &'static str,
    fingerprint: OnceLock<u64>,
}

/// Finds files. Those with other extensions are left out, unless a file was named by itself.
pub(super) fn find<P: AsRef<Path>>(paths: &[P], extensions: &[&str], threads: usize) -> Result<Index> {
    let index = index(paths, thread_count(threads))?;
    if index.has_single_files {
        return Ok(index);
    }
    let place = index.files.roots().first().map_or(PathBuf::from("."), |root| root.path.clone());
    let fits = |name: &[u8]| extensions.iter().any(|extension| has_extension(name, extension));
    let index = index.retain(fits, |_| true);
    if index.files.is_empty() {
        return Err(Error::new(ErrorKind::Empty, format!("there is no .{} file in", extensions[0]))
            .with_file(place)
            .with_remedy(format!("left out: {}", index.skips.describe())));
    }
    Ok(index)
}

/// The numbers of the columns that are wanted, of those that a file has. Names with an error cannot be had: they are
/// refused only where they are wanted.
///
/// # Errors
/// `InvalidArgument` for a name that is not there or wanted twice; the error of a column that is wanted.
pub(super) fn choose(names: &[(String, Result<()>)], wanted: &[String]) -> Result<Vec<usize>> {
    let mut chosen: Vec<usize> = Vec::new();
    let mut take = |number: usize| {
        let (name, is_had) = &names[number];
        is_had.clone().map_err(|error| error.with_remedy(others_of(names)))?;
        if chosen.contains(&number) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("column {name:?} is wanted twice, of")));
        }
        chosen.push(number);
        Ok(())
    };
    if wanted.is_empty() {
        (0..names.len()).try_for_each(&mut take)?;
    }
    for name in wanted {
        let is_one = |column: &str| match column.strip_prefix(name.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => false,
        };
        let mut found = (0..names.len()).filter(|&number| is_one(&names[number].0)).peekable();
        if found.peek().is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("there is no column {name:?} in"))
                .with_remedy(others_of(names)));
        }
        found.try_for_each(&mut take)?;
    }
    match chosen.is_empty() {
        true => Err(Error::new(ErrorKind::Empty, "there is no column in")),
        false => Ok(chosen),
    }
}

/// Names that a message tells.
const NAMES_TOLD: usize = 12;

fn others_of(names: &[(String, Result<()>)]) -> String {
    let had = names.iter().filter(|(_, is_had)| is_had.is_ok()).map(|(name, _)| name.as_str());
    let told: Vec<&str> = had.clone().take(NAMES_TOLD).collect();
    let more = if had.count() > NAMES_TOLD { ", ..." } else { "" };
    format!("choose of the columns {}{more}", told.join(", "))
}

/// Refuses a file whose columns are not those of the first.
pub(super) fn check_same(columns: &[Column], first: &[Column]) -> Result<()> {
    for (column, first) in columns.iter().zip(first) {
        if column != first {
            let null = |column: &Column| if column.kind.is_nullable { ", may be null" } else { "" };
            let (is, was) = (&column.kind.described, &first.kind.described);
            let (is_null, was_null) = (null(column), null(first));
            let doing = format!(
                "column {:?} is {is}{is_null}, and {:?} of the first file {was}{was_null}:",
                column.name, first.name
            );
            return Err(Error::new(ErrorKind::Corrupt, doing).with_remedy(SAME_COLUMNS));
        }
    }
    match columns.len() == first.len() {
        true => Ok(()),
        false => {
            let doing = format!("there are {} columns, and {} in the first file:", columns.len(), first.len());
            Err(Error::new(ErrorKind::Corrupt, doing).with_remedy(SAME_COLUMNS))
        }
    }
}

const SAME_COLUMNS: &str = "choose columns that all files have, or open others as a dataset of their own";

/// Does what a crate does with bytes that anybody may have written. Their authors mean to return errors and have
/// missed some before: a panic must not end the thread that opens or decodes.
pub(super) fn guarded<T>(doing: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(doing)).unwrap_or_else(|panic| {
        let said = told(&*panic);
        Err(Error::new(ErrorKind::Corrupt, format!("the decoder gave up ({said}) on")))
    })
}

fn told(panic: &(dyn Any + Send)) -> String {
    let said = match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(said), _) => said,
        (None, Some(said)) => said.as_str(),
        (None, None) => "it did not say why",
    };
    // A message is one line.
    said.replace('\n', " ")
}

impl Table {
    /// # Errors
    /// `Empty` where there is no row; `Corrupt` for more rows or groups than can be numbered.
    pub(super) fn new(
        found: Index,
        columns: Vec<Column>,
        stored: Vec<String>,
        groups: Vec<Group>,
        nulls: Nulls,
        group_name: &'static str,
    ) -> Result<Table> {
        let Index { files, skips, .. } = found;
        let mut ends = Vec::with_capacity(groups.len());
        let mut end = 0_u64;
        for group in &groups {
            end = end.checked_add(group.rows).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "more than 2^64 rows up to").with_file(files.path(group.file))
            })?;
            ends.push(end);
        }
        if groups.is_empty() || u32::try_from(groups.len()).is_err() {
            let place = files.roots().first().map_or(Path::new("."), |root| &root.path).to_path_buf();
            let (kind, doing) = match groups.is_empty() {
                true => (ErrorKind::Empty, "there is no row in"),
                false => (ErrorKind::Corrupt, "more than 2^32 groups of rows in"),
            };
            return Err(Error::new(kind, doing).with_file(place));
        }
        let field = |column: &Column| {
            let Column { name, kind } = column;
            Field { name: name.clone(), dtype: kind.dtype, shape: kind.shape.clone() }
        };
        let schema = Schema { fields: columns.iter().map(field).collect() };
        let skipped = skips.into_vec();
        let fingerprint = OnceLock::new();
        Ok(Table { files, skipped, schema, columns, stored, nulls, groups, ends, group_name, fingerprint })
    }

    pub(super) fn files(&self) -> &FileTable {
        &self.files
    }

    pub(super) fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn encodings(&self) -> Vec<String> {
        let described = |(column, stored): (&Column, &String)| {
            let null = if column.kind.is_nullable { ", may be null" } else { "" };
            format!("{}{null}: {stored}", column.kind.described)
        };
        self.columns.iter().zip(&self.stored).map(described).collect()
    }

    pub(super) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    pub(super) fn count(&self) -> u32 {
        // `new` has compared it.
        self.groups.len() as u32
    }

    pub(super) fn group(&self, unit: UnitId) -> &Group {
        &self.groups[unit.0 as usize]
    }

    /// The group of a row, and the row's number there.
    pub(super) fn locate(&self, id: SampleId) -> (UnitId, u64) {
        let (group, number) = super::locate(&self.ends, id.0);
        // `new` has compared the number of groups.
        (UnitId(group as u32), number)
    }

    pub(super) fn largest_decoded(&self) -> u64 {
        self.groups.iter().map(|group| group.decoded).max().unwrap_or(0)
    }

    pub(super) fn largest_stored(&self) -> u64 {
        self.groups.iter().map(|group| group.stored).max().unwrap_or(0)
    }

    /// Bytes that are read of all groups.
    pub(super) fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.stored).fold(0, u64::saturating_add)
    }

    /// The name of the file and the number of the row in it: "train.parquet#17".
    pub(super) fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (unit, row) = self.locate(id);
        let file = self.group(unit).file;
        let start_of = |group: usize| if group == 0 { 0 } else { self.ends[group - 1] };
        // Groups come in the order of the files.
        let first = self.groups.partition_point(|group| group.file.0 < file.0);
        let row = start_of(unit.0 as usize) - start_of(first) + row;
        out.extend_from_slice(self.files.name(file));
        write!(out, "#{row}").expect("a Vec takes everything");
    }

    /// Makes a sample of a row of a decoded group.
    pub(super) fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (unit, row) = self.locate(id);
        for (number, column) in self.columns.iter().enumerate() {
            let found = raw.first().and_then(|bytes| layout::value(bytes, number, row, column.kind.width()));
            let Some((value, state)) = found else {
                let doing = format!("sample {} was parsed without its unit", id.0);
                return Err(Error::new(ErrorKind::Internal, doing));
            };
            match state {
                State::Valid => {}
                State::Null if self.nulls == Nulls::Empty && column.kind.shape == Shape::Ragged => {}
                _ => return Err(self.null(unit, row, column, state)),
            }
            out.values.push(Value::Bytes(value));
        }
        Ok(())
    }

    fn null(&self, unit: UnitId, row: u64, column: &Column, state: State) -> Error {
        let Group { file, number, .. } = *self.group(unit);
        let is = if state == State::Null { "null" } else { "a list with a null in it" };
        let doing = format!("column {:?} is {is} in row {row} of {} {number} of", column.name, self.group_name);
        let remedy = match (state, &column.kind.shape) {
            (State::Null, Shape::Ragged) => "let nulls be empty values, leave the column out, or skip such samples",
            _ => "leave the column out, or skip such samples",
        };
        Error::new(ErrorKind::Unavailable, doing).with_file(self.files.path(file)).with_remedy(remedy)
    }

    /// FNV-1a over the format, columns with their types, what becomes of nulls, rows of all groups, and names and
    /// sizes of all files in order.
    pub(super) fn fingerprint(&self, format: &str) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new(format);
            fingerprint.number(match self.nulls {
                Nulls::Refuse => 0,
                Nulls::Empty => 1,
            });
            for Column { name, kind } in &self.columns {
                fingerprint.bytes(name.as_bytes());
                fingerprint.bytes(kind.dtype.name().as_bytes());
                fingerprint.bytes(kind.described.as_bytes());
                fingerprint.number(kind.width().unwrap_or(u64::MAX));
            }
            self.ends.iter().for_each(|&end| fingerprint.number(end));
            fingerprint.files(&self.files);
            fingerprint.finish()
        })
    }

    /// Says where an error of decoding arose.
    pub(super) fn placed(&self, error: Error, unit: UnitId, column: usize, offset: u64) -> Error {
        let Group { file, number, .. } = *self.group(unit);
        let name = &self.columns[column].name;
        let doing = format!("cannot decode column {name:?} of {} {number} of", self.group_name);
        let remedy = error.remedy().map(str::to_owned);
        let placed =
            Error::new(error.kind(), doing).with_file(self.files.path(file)).with_offset(offset).with_source(error);
        match remedy {
            // It stands in the cause's message already.
            Some(_) => placed,
            None => placed.with_remedy("fetch or write the file again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<(String, Result<()>)> {
        let bad = || Err(Error::new(ErrorKind::Unavailable, "column \"m\" is a map"));
        [("a", Ok(())), ("i.bytes", Ok(())), ("i.path", Ok(())), ("m", bad()), ("ix", Ok(()))]
            .into_iter()
            .map(|(name, is_had)| (name.to_owned(), is_had))
            .collect()
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let choose = |wanted: &[&str]| {
            choose(&names(), &wanted.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(choose(&["ix", "i", "a"]), Ok(vec![4, 1, 2, 0]));
        assert_eq!(choose(&["i.path"]), Ok(vec![2]));
        assert!(choose(&[]).unwrap_err().contains("is a map (choose of the columns a, i.bytes, i.path, ix)"));
        assert!(choose(&["i", "i.bytes"]).unwrap_err().contains("\"i.bytes\" is wanted twice"));
        assert!(choose(&["b"]).unwrap_err().contains("there is no column \"b\""));
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = guarded::<()>(|| panic!("on\npurpose {}", 7)).unwrap_err();
        assert_eq!(error.to_string(), "the decoder gave up (on purpose 7) on");
    }
}
