//! Formats made of lines, each a sample: JSON Lines, comma separated values, text.

mod csv;
mod json;
mod learn;
mod names;
mod scan;
mod values;

use crate::fingerprint::Fingerprint;
use crate::indexes::{Found, IndexProgress, IndexReport, Indexing, Notes, Pass, Wanted, index_all};
use crate::paths::{Index, index, thread_count};
use crate::sidecar::{Builder, Member, Places, Sidecar};
use crate::sizes::sum_of_runs;
use crate::skipped::SkipReason;
use crate::{DType, Damaged, Dataset, Field, FileId, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, Value};
use bytes::Bytes;
use csv::{Rows, Table};
use learn::Indexes;
use scan::{Rule, scan};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use uringload_core::{Error, ErrorKind, Fallback, Part, Result};
use values::{Column, NUMBERS, Scratch, Wrong};

/// What lines are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LineFormat {
    /// Bytes.
    #[default]
    Text,
    /// A value of JSON each: JSON Lines, NDJSON.
    Jsonl,
    /// Rows of a table (RFC 4180), whose quoted fields may have ends of lines in them.
    Csv,
}

impl LineFormat {
    /// The name, as `--format` takes it: "text", "jsonl", "csv".
    pub const fn name(self) -> &'static str {
        match self {
            LineFormat::Text => "text",
            LineFormat::Jsonl => "jsonl",
            LineFormat::Csv => "csv",
        }
    }
}

/// How [`Lines`] are opened.
#[derive(Clone, Debug, Default)]
pub struct LineOptions {
    /// What lines are.
    pub format: LineFormat,
    /// The fields that are wanted, in this order, each a column. Empty: all columns of a table, and a line of JSON as
    /// it is.
    pub columns: Vec<String>,
    /// Types of columns, by name: an integer type, `F32`, `F64`, `Bool`, or `U8` for text. Others have the type that
    /// [`Lines`] tells.
    pub dtypes: Vec<(String, DType)>,
    /// Whether the first row of a table is a sample as any other; columns are then called "0", "1" and so on.
    pub no_header: bool,
    /// What stands between the fields of a row: `,`, a tab, `;` or `|`. `None`: a tab in files whose names end in
    /// ".tsv", a comma in others.
    pub delimiter: Option<u8>,
    /// What becomes of a file with a quote that is never closed, or a line that is too long.
    pub damaged: Damaged,
    /// A folder for the indexes of files whose own folder takes none.
    pub cache: Option<PathBuf>,
    /// Whether indexes stay in memory instead of being written as `FILE.uidx`; those that lie there are used.
    pub no_sidecars: bool,
    /// Whether files are looked through even where an index lies there.
    pub rebuild: bool,
    /// Threads that look through files, each one file at a time; 0 chooses by the machine.
    pub threads: usize,
    /// Which of the files, in their order: for jobs that make indexes together. The dataset has no others.
    pub part: Part,
}

/// Files of lines, each line a sample.
///
/// # What is a line
/// What ends with `\n` or `\r\n`, which are no part of it, and what stands behind the last of these. Of a table, ends
/// of lines within quotes end no row. The byte order mark of UTF-8 at the beginning of a file is left out. A line has
/// at most 1 GiB. Lines without a byte are samples of text, and none of a table; nor are those with nothing but blanks
/// of JSON. They are counted in [`skipped`](Lines::skipped). Nothing else is looked at: bytes may be of any encoding.
///
/// # Which files
/// The same paths, patterns and order as [`Folder`](super::Folder). Files are taken by their names (`.jsonl` and
/// `.ndjson`, `.csv` and `.tsv`, `.txt`), and others counted, unless some file was named by itself: then all are taken.
/// Files that are compressed as a whole are refused.
///
/// # Columns
/// Of text one column "text" of bytes, of JSON Lines one column "json": the line as it is. Where fields of JSON are
/// asked for by name, the first line that can be read decides what each column is:
///
/// | field | column |
/// |---|---|
/// | string | bytes: its text, without escapes |
/// | number | an `I64`; a `U64` or `F64` where it is none |
/// | array of numbers | any number of these |
/// | `true`, `false` | a `Bool` |
/// | object, `null`, any other array | bytes: its JSON |
///
/// A type that is asked for holds for numbers and for the elements of arrays. As `U8` every string is text, and
/// everything else its JSON. Names are those of fields at the top; of two of one name the last counts. `NaN` is no
/// JSON.
///
/// Of a table every field is a column of bytes, without its quotes, unless a type is asked for: then it is read as a
/// number, with blanks around it or without, or as a truth (`true`, `True`, `TRUE`, `1` and so on). The first row of
/// each file has the columns' names, and must be the same in all files.
///
/// A line that has not what its columns want is an error of its sample, with file, byte and field.
///
/// # Memory
/// Values lie where they were read. Those that do not lie in the file as they are delivered (numbers, text with escapes
/// or doubled quotes) take memory beside the loader's limit, in proportion to the lines that are held.
///
/// # The index
/// Opening looks through each file once, in parallel, and puts what it finds into `FILE.uidx` beside it, at most 16
/// bytes a line. It is used as long as name, size and time of the file's change are the same. What could not be done so
/// is told by [`fallbacks`](Lines::fallbacks).
#[derive(Debug)]
pub struct Lines {
    format: LineFormat,
    files: FileTable,
    indexes: Vec<Sidecar>,
    /// Samples in the files up to and with each.
    ends: Vec<u64>,
    content: Content,
    schema: Schema,
    bytes: u64,
    fingerprint: u64,
    skipped: Vec<Skipped>,
    report: IndexReport,
    fallbacks: Vec<Fallback>,
    damaged: Vec<Error>,
    /// Locked for a sample at a time; nobody but the reactor's thread parses.
    scratch: Mutex<(Scratch, Rows)>,
}

/// What becomes of a line.
#[derive(Debug)]
enum Content {
    /// The only value.
    Whole,
    Fields(Vec<Column>),
    Row(Table),
}

impl Lines {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open) for what cannot be found; `Corrupt` for a file with a quote that is
    /// never closed or a line of more than 1 GiB, with file and offset, and where none of the first lines can be read
    /// to learn what columns are; `Unavailable` for compressed files; `InvalidArgument` for columns that are not there,
    /// types that no column can have, and tables of different columns; `Empty` if there is no line.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &LineOptions) -> Result<Lines> {
        Lines::open_with_progress(paths, options, &|_| {})
    }

    /// Opens folders, files and patterns, and tells `progress` how far it has come, from several threads.
    ///
    /// # Errors
    /// As [`Lines::open`].
    pub fn open_with_progress<P: AsRef<Path>>(
        paths: &[P],
        options: &LineOptions,
        progress: &(dyn Fn(IndexProgress) + Sync),
    ) -> Result<Lines> {
        check(options)?;
        let threads = thread_count(options.threads);
        let index = names::only_lines(index(paths, threads)?, options)?;
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None if options.format == LineFormat::Csv => names::delimiter_of(&index.files)?,
            None => b',',
        };
        let Index { files, mut skips, .. } = index.only_part(options.part)?;
        let (rule, kind) = rule(options.format, delimiter)?;
        let wanted = Wanted {
            places: Places { cache: options.cache.clone() },
            no_sidecars: options.no_sidecars,
            rebuild: options.rebuild,
            damaged: options.damaged,
            threads,
        };
        let indexed = index_all(&files, &wanted, progress, &Looking { rule, kind })?;
        let notes = Notes::of(&files, &indexed, &mut skips);
        let indexes: Vec<Sidecar> = indexed.into_iter().map(|indexed| indexed.sidecar).collect();
        let source = Indexes { files: &files, indexes: &indexes, threads };
        let content = match options.format {
            LineFormat::Csv => Content::Row(source.table(options, delimiter)?),
            LineFormat::Jsonl if !options.columns.is_empty() => Content::Fields(source.fields(options)?),
            _ => Content::Whole,
        };
        let (ends, bytes) = source.count(&content)?;
        if ends.last().is_none_or(|&end| end == 0) {
            return Err(notes.nothing(&files, &skips, "no file has a line that is a sample in"));
        }
        let schema = content.schema(options.format);
        Ok(Lines {
            format: options.format,
            fingerprint: fingerprint(options.format, &schema, &content, &files, &indexes),
            files,
            indexes,
            ends,
            content,
            schema,
            bytes,
            skipped: skips.into_vec(),
            report: notes.report,
            fallbacks: notes.fallbacks,
            damaged: notes.damaged,
            scratch: Mutex::new((Scratch::default(), Rows::new(delimiter))),
        })
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// How the indexes of the files were come by.
    pub fn report(&self) -> &IndexReport {
        &self.report
    }

    /// What went otherwise than wished: indexes that could not be written beside their files.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Why files cannot be read to their end, where [`Damaged::Keep`] was asked for.
    pub fn damaged(&self) -> &[Error] {
        &self.damaged
    }

    /// The file that a line lies in, and the number of the sample there, from 0.
    pub fn locate(&self, id: SampleId) -> (FileId, u64) {
        let (file, number) = super::locate(&self.ends, id.0);
        (FileId(file as u32), number)
    }

    /// Where a line lies; `None` where the index is damaged.
    fn span(&self, id: SampleId) -> Option<Span> {
        let (file, number) = self.locate(id);
        let (offset, len) = line(&self.indexes[file.0 as usize], number + self.content.header_rows())?;
        Some(Span { file, offset, len })
    }

    fn wrong(&self, span: Span, wrong: Wrong) -> Error {
        let Wrong { doing, at, remedy } = wrong;
        let offset = span.offset.saturating_add(at as u64);
        let error = Error::new(ErrorKind::Corrupt, doing).with_file(self.files.path(span.file));
        error.with_offset(offset).with_remedy(remedy)
    }
}

/// Offset and length of line `number` of a file.
fn line(index: &Sidecar, number: u64) -> Option<(u64, u64)> {
    let mut found = None;
    let is_whole = index.sample(number, |_, offset, len| found = found.or(Some((offset, len))));
    found.filter(|_| is_whole)
}

/// How a file is looked through, and what its index is that of: with another delimiter, other rows may be found.
fn rule(format: LineFormat, delimiter: u8) -> Result<(Rule, &'static str)> {
    let kind = match (format, delimiter) {
        (LineFormat::Text, _) => return Ok((Rule::Text, "text")),
        (LineFormat::Jsonl, _) => return Ok((Rule::Json, "jsonl")),
        (LineFormat::Csv, b',') => "csv",
        (LineFormat::Csv, b'\t') => "tsv",
        (LineFormat::Csv, b';') => "csv;",
        (LineFormat::Csv, b'|') => "csv|",
        (LineFormat::Csv, other) => {
            let doing = format!("{:?} cannot stand between fields", char::from(other));
            let error = Error::new(ErrorKind::InvalidArgument, doing);
            return Err(error.with_remedy("a comma, a tab, \";\" and \"|\" can"));
        }
    };
    Ok((Rule::Csv { delimiter }, kind))
}

/// Refuses options that contradict each other.
fn check(options: &LineOptions) -> Result<()> {
    let refuse = |doing: String, remedy| Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy));
    if options.format == LineFormat::Text && !(options.columns.is_empty() && options.dtypes.is_empty()) {
        return refuse("lines of text have no columns that could be chosen".into(), "use the format jsonl or csv");
    }
    for (number, name) in options.columns.iter().enumerate() {
        if options.columns[..number].contains(name) {
            return refuse(format!("the column {name:?} is asked for twice"), "name it once");
        }
    }
    for (name, dtype) in &options.dtypes {
        if !NUMBERS.contains(dtype) && !matches!(dtype, DType::U8 | DType::Bool) {
            return refuse(
                format!("column {name:?} cannot be had as {dtype}"),
                "integers, f32, f64, bool and u8 can be",
            );
        }
        let is_open = options.format == LineFormat::Csv && options.columns.is_empty();
        if !is_open && !options.columns.contains(name) {
            return refuse(format!("a type is given for {name:?}, which is not asked for"), "name it as a column");
        }
    }
    Ok(())
}

fn fingerprint(format: LineFormat, schema: &Schema, content: &Content, files: &FileTable, indexes: &[Sidecar]) -> u64 {
    let mut fingerprint = Fingerprint::new(format.name());
    fingerprint.number(content.header_rows());
    fingerprint.number(schema.fields.len() as u64);
    for field in &schema.fields {
        fingerprint.bytes(field.name.as_bytes());
        fingerprint.bytes(field.dtype.name().as_bytes());
        fingerprint.number(u64::from(field.shape == Shape::Ragged));
    }
    fingerprint.files(files);
    indexes.iter().for_each(|index| fingerprint.number(index.content()));
    fingerprint.finish()
}

impl Content {
    /// Rows of each file that are no samples.
    fn header_rows(&self) -> u64 {
        match self {
            Content::Row(table) => table.has_header.into(),
            _ => 0,
        }
    }

    fn schema(&self, format: LineFormat) -> Schema {
        let fields = match self {
            Content::Whole => {
                let name = if format == LineFormat::Jsonl { "json" } else { "text" };
                vec![Field { name: name.into(), dtype: DType::U8, shape: Shape::Ragged }]
            }
            Content::Fields(columns) | Content::Row(Table { columns, .. }) => {
                columns.iter().map(Column::field).collect()
            }
        };
        Schema { fields }
    }
}

/// How files are looked through, and what their indexes are those of.
struct Looking {
    rule: Rule,
    kind: &'static str,
}

impl Indexing for Looking {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn look(&self, pass: &mut Pass<'_>) -> Result<Found> {
        let mut collector = Collector::new();
        let damage = match scan(pass, self.rule, &mut collector) {
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            scanned => scanned.err(),
        };
        Ok(Found { builder: collector.finish(), bytes_read: pass.size, damage })
    }
}

/// Puts what a pass finds into an index. Keys need no place there: they are numbers.
struct Collector {
    builder: Builder,
    empty: u64,
}

impl Collector {
    fn new() -> Collector {
        let mut builder = Builder::new(1);
        builder.column("line");
        Collector { builder, empty: 0 }
    }

    fn finish(mut self) -> Builder {
        if self.empty > 0 {
            self.builder.left_out(SkipReason::EmptyLine.code(), self.empty, b"");
        }
        self.builder
    }
}

impl scan::Sink for Collector {
    fn line(&mut self, offset: u64, len: u64) {
        self.builder.push(b"", &mut [Member { column: 0, offset, len }]);
    }

    fn empty(&mut self) {
        self.empty += 1;
    }
}

impl Dataset for Lines {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn format(&self) -> &'static str {
        self.format.name()
    }

    /// What was damaged where it was looked through.
    fn faults(&self) -> Vec<Error> {
        self.damaged.clone()
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// One, which is empty where its place in the index is damaged: `parse` says so.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        out.push(self.span(id).unwrap_or(Span { file: self.locate(id).0, offset: 0, len: 0 }));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (Some(span), Some(bytes)) = (self.span(id), raw.first()) else {
            let file = self.locate(id).0;
            return Err(self.indexes[file.0 as usize].damage(&self.files.path(file)));
        };
        if let Content::Whole = self.content {
            out.values.push(Value::Bytes(bytes.clone()));
            return Ok(());
        }
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let (scratch, rows) = &mut *scratch;
        let parsed = match &self.content {
            Content::Row(table) => csv::values(bytes, table, rows, &mut scratch.room, &mut out.values),
            Content::Fields(columns) => json::values(bytes, columns, scratch, &mut out.values),
            Content::Whole => Ok(()),
        };
        parsed.map_err(|wrong| self.wrong(span, wrong))
    }

    /// The name of the file and the number of the sample in it: "part.jsonl#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, number) = self.locate(id);
        out.extend_from_slice(self.files.name(file));
        write!(out, "#{number}").expect("a Vec takes everything");
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of each file the longest line, the 2nd, 4th, 8th and so on are known, and those between are taken to be as long
    /// as the next longer of these.
    fn largest(&self, count: u64) -> u64 {
        let columns = self.indexes.iter().flat_map(|index| index.columns().iter().zip(std::iter::repeat(index.len())));
        sum_of_runs(columns.flat_map(|(column, lines)| column.runs(lines)).collect(), count).min(self.bytes)
    }

    /// FNV-1a over the format, the columns, names and sizes of all files, and the hash of each one's lines.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        match (&self.schema.fields[field].shape, &self.content) {
            (Shape::Fixed(shape), _) => Some(shape.iter().product()),
            (Shape::Ragged, Content::Whole) => Some(self.span(id).map_or(0, |span| span.len)),
            (Shape::Ragged, _) => None,
        }
    }

    fn plain_field(&self) -> Option<usize> {
        matches!(self.content, Content::Whole).then_some(0)
    }

    fn parse_reads_bytes(&self) -> bool {
        !matches!(self.content, Content::Whole)
    }

    /// A digit may become a whole element.
    fn widening(&self, field: usize) -> u64 {
        if matches!(self.content, Content::Whole) { 1 } else { self.schema().fields[field].dtype.size() }
    }

    /// Every file is a shard.
    fn shards(&self) -> &[u64] {
        &self.ends
    }
}
