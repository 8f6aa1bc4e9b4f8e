//! Formats made of lines, each a sample: JSON Lines, comma separated values, text.

mod csv;
mod elements;
mod json;
mod learn;
mod names;
mod nonfinite;
mod scan;
mod units;
mod values;

use crate::compression::Coding;
use crate::dataset::sizes::sum_of_runs;
use crate::dataset::{
    DType, Dataset, Encoding, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape,
    SkipReason, Span, UnitId, Units, Value,
};
use crate::find::paths::{FoundFiles, thread_count};
use crate::format::{Format, Paths, Shows};
use crate::index::headers::decoded;
use crate::index::indexes::{Found, Indexed, Indexing, Notes, Pass, Wanted, ends, index_all};
use crate::index::packed::{self, PackedFile};
use crate::index::sidecar::{Builder, Member, Places, Sidecar};
use crate::options::{FormatOptions, OptionKind, OptionSpec, OptionType, OptionValue, options};
use bytes::Bytes;
use csv::{Rows, Table};
use learn::Indexes;
use scan::{Rule, scan, scan_decoded};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use uringload_core::{Error, ErrorKind, Result};
use values::{Column, NUMBERS, Scratch, Wrong};

/// What a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LineFormat {
    /// Bytes.
    #[default]
    Text,
    /// A JSON value: JSON Lines, NDJSON.
    Jsonl,
    /// A row of a table (RFC 4180); quoted fields may contain line ends.
    Csv,
}

impl LineFormat {
    /// Short name of the format: "text", "jsonl", "csv".
    pub const fn name(self) -> &'static str {
        match self {
            LineFormat::Text => "text",
            LineFormat::Jsonl => "jsonl",
            LineFormat::Csv => "csv",
        }
    }
}

/// The delimiter between the fields of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    Comma = b',' as isize,
    Tab = b'\t' as isize,
    Semicolon = b';' as isize,
    Bar = b'|' as isize,
}

impl OptionType for Delimiter {
    const KIND: OptionKind = OptionKind::OneOf(&[",", "tab", ";", "|"]);

    fn of(value: &OptionValue) -> Option<Delimiter> {
        match &*String::of(value)? {
            "," => Some(Delimiter::Comma),
            // Shells make a tab hard to write.
            "tab" | "\t" | "\\t" => Some(Delimiter::Tab),
            ";" => Some(Delimiter::Semicolon),
            "|" => Some(Delimiter::Bar),
            _ => None,
        }
    }
}

/// Names of columns, in order, some with a type: "name" or "name:type". The text after the last colon is part of the
/// name, unless it is the name of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedNames(pub Vec<(String, Option<DType>)>);

impl TypedNames {
    fn of_texts<T: AsRef<str>>(texts: &[T]) -> TypedNames {
        let typed = |text: &T| {
            let text = text.as_ref();
            let typed = text.rsplit_once(':').and_then(|(name, dtype)| Some((name, DType::named(dtype)?)));
            typed.map_or_else(|| (text.to_owned(), None), |(name, dtype)| (name.to_owned(), Some(dtype)))
        };
        TypedNames(texts.iter().map(typed).collect())
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|(name, _)| &**name)
    }
}

impl OptionType for TypedNames {
    const KIND: OptionKind = OptionKind::Texts;

    fn of(value: &OptionValue) -> Option<TypedNames> {
        Vec::<String>::of(value).map(|names| TypedNames::of_texts(&names))
    }
}

options! {
    /// Options of lines. Text has no columns to choose; only CSV has a delimiter and a header.
    pub struct LineOptions {
        /// Folder for the indexes of files whose own folder is not writable.
        index_cache: Option<PathBuf>,
        /// Write the index of each file that was scanned, FILE.uidx, beside it.
        write_index: bool = true,
        /// Read the whole samples of files that are cut short or broken, instead of failing.
        keep_damaged: bool,
        /// Columns to read, in this order; all by default. Columns of jsonl and csv may name a type: "id:i64", with i8
        /// to u64, f32, f64, bool, or u8 for text.
        columns: TypedNames,
        /// The delimiter between fields: a comma, "tab", ";" or "|". By default a tab in .tsv files, else a comma.
        delimiter: Option<Delimiter>,
        /// Whether the first row has the names of the columns. If not, it is a sample, and columns are called 0, 1, ...
        header: bool = true,
    }
}

/// The entry of one of these formats.
macro_rules! entry {
    ($format:expr, $options:literal, $help:literal) => {
        Format {
            name: $format.name(),
            help: $help,
            options: specs($options),
            has_sidecars: true,
            shows: Shows::Names { called: |name| names::is_called(name, $format), begins: |_| true },
            open: |paths, options| Ok(Arc::new(Lines::open($format, paths, &options.typed()?)?)),
        }
    };
}

pub(crate) const JSONL: Format = entry!(LineFormat::Jsonl, 4, "Lines of JSON, each a sample.");
pub(crate) const CSV: Format = entry!(LineFormat::Csv, 6, "Rows of comma separated values, each a sample.");
pub(crate) const TEXT: Format = entry!(LineFormat::Text, 3, "Lines of text, each a sample.");

/// The first `count` options: text takes three, jsonl another, csv all.
const fn specs(count: usize) -> &'static [OptionSpec] {
    LineOptions::SPECS.split_at(count).0
}

/// Files of lines, each line a sample. A compressed file is a unit.
#[derive(Debug)]
pub struct Lines {
    /// Every file is a shard.
    index: Index,
    indexes: Vec<Sidecar>,
    /// The compressed files, in their order.
    packed: Vec<PackedFile>,
    content: Content,
    fingerprint: u64,
    /// Locked for a sample at a time; only the reactor's thread parses.
    scratch: Mutex<(Scratch, Rows)>,
}

/// What is made of a line.
#[derive(Debug)]
enum Content {
    /// The only value.
    Whole,
    Fields(Vec<Column>, json::Names),
    Row(Table),
}

impl Lines {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(format: LineFormat, mut paths: Paths, options: &LineOptions) -> Result<Lines> {
        check(&options.columns.0)?;
        let common = &options.common;
        let threads = thread_count(common.threads);
        let index = names::only_lines(paths.files(common.threads)?, format)?;
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None if format == LineFormat::Csv => names::delimiter_of(&index.files)?,
            None => Delimiter::Comma,
        };
        let FoundFiles { files, skips, .. } = index.only_part(common.part)?;
        let places = Places::new(options.index_cache.clone())?;
        let LineOptions { keep_damaged, write_index, .. } = *options;
        let wanted = Wanted { common, places, keep_damaged, write_index, threads };
        let indexed = index_all(&files, &wanted, &Looking::of(format, delimiter))?;
        let notes = Notes::of(&files, &indexed, skips);
        let packed = packed_files(&indexed);
        let indexes: Vec<Sidecar> = indexed.into_iter().map(|indexed| indexed.sidecar).collect();
        let delimiter = delimiter as u8;
        let source = Indexes { files: &files, indexes: &indexes, threads };
        if format == LineFormat::Jsonl {
            source.refuse_documents()?;
        }
        let content = match format {
            LineFormat::Csv => Content::Row(source.table(options, delimiter)?),
            LineFormat::Jsonl if !options.columns.0.is_empty() => {
                let names = json::Names::new(options.columns.names());
                Content::Fields(source.fields(options, &names)?, names)
            }
            _ => Content::Whole,
        };
        let (ends, bytes) = (ends(&files, source.samples(&content))?, source.bytes(&content));
        let samples = ends.last().copied().unwrap_or(0);
        if samples == 0 {
            return Err(notes.nothing(&files, "no file has a line that is a sample"));
        }
        let schema = content.schema(format);
        let fingerprint = fingerprint(format, &schema, &content, &files, &indexes);
        let mut index = Index::new(format.name(), files, schema, samples);
        index.bytes = bytes;
        index.shards = ends;
        index.parse_reads_bytes = !matches!(content, Content::Whole);
        // Numbers are in chunks that samples of several batches share.
        index.owns_values = false;
        index.plain_field = (!index.parse_reads_bytes && packed.is_empty()).then_some(0);
        index.encodings = vec![Encoding::text("text"); index.schema.fields.len()];
        notes.tell(&mut index);
        let scratch = Mutex::new((Scratch::default(), Rows::new(delimiter)));
        Ok(Lines { index, indexes, packed, content, fingerprint, scratch })
    }

    /// The unit that a file is, if it is compressed.
    fn unit(&self, file: FileId) -> Option<UnitId> {
        // Fits: there are no more units than files.
        self.packed.binary_search_by_key(&file, |packed| packed.file).ok().map(|unit| UnitId(unit as u32))
    }

    /// The place of a line, in its file or in the decoded file; `None` if the index is damaged.
    fn span(&self, id: SampleId) -> Option<Span> {
        let (file, number) = self.index.locate(id);
        let (offset, len) = line(&self.indexes[file.0 as usize], number + self.content.header_rows())?;
        Some(Span { file, offset, len })
    }

    fn wrong(&self, span: Span, wrong: Wrong) -> Error {
        let Wrong { what, at, remedy } = wrong;
        let offset = span.offset.saturating_add(at as u64);
        let what = if self.unit(span.file).is_some() { decoded(what) } else { what.into() };
        let error = Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(span.file));
        error.with_offset(offset).with_remedy(remedy)
    }
}

/// The files that are compressed.
fn packed_files(indexed: &[Indexed]) -> Vec<PackedFile> {
    let packed = |(number, indexed): (usize, &Indexed)| {
        let (compression, decoded_bytes) = indexed.sidecar.packed()?;
        // Fits: a table has fewer than 2^32 files.
        let file = FileId(number as u32);
        Some(PackedFile { file, compression, decoded_bytes, is_cut: indexed.damage.is_some() })
    };
    indexed.iter().enumerate().filter_map(packed).collect()
}

/// Offset and length of line `number` of a file.
fn line(index: &Sidecar, number: u64) -> Option<(u64, u64)> {
    let mut found = None;
    let is_whole = index.sample(number, |_, offset, len| found = found.or(Some((offset, len))));
    found.filter(|_| is_whole)
}

/// Refuses columns that contradict each other.
fn check(columns: &[(String, Option<DType>)]) -> Result<()> {
    let refuse = |what: String, remedy| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
    let mut seen = HashSet::with_capacity(columns.len());
    for (name, dtype) in columns {
        if !seen.insert(name) {
            return refuse(format!("column {name:?} is named twice"), "name it once");
        }
        if let Some(dtype) = dtype
            && !NUMBERS.contains(dtype)
            && !matches!(dtype, DType::U8 | DType::Bool)
        {
            let what = format!("column {name:?} cannot be read as {dtype}");
            return refuse(what, "use an integer, f32, f64, bool or u8");
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
            Content::Fields(columns, _) | Content::Row(Table { columns, .. }) => {
                columns.iter().map(Column::field).collect()
            }
        };
        Schema { fields }
    }
}

/// How files are scanned, and the name of the rule in their indexes: with another delimiter, other rows may be found.
struct Looking {
    rule: Rule,
    kind: &'static str,
}

impl Looking {
    fn of(format: LineFormat, delimiter: Delimiter) -> Looking {
        let (rule, kind) = match (format, delimiter) {
            (LineFormat::Text, _) => (Rule::Text, "text"),
            (LineFormat::Jsonl, _) => (Rule::JsonFile, "jsonl"),
            (LineFormat::Csv, delimiter) => {
                let kind = match delimiter {
                    Delimiter::Comma => "csv",
                    Delimiter::Tab => "tsv",
                    Delimiter::Semicolon => "csv;",
                    Delimiter::Bar => "csv|",
                };
                (Rule::Csv { delimiter: delimiter as u8 }, kind)
            }
        };
        Looking { rule, kind }
    }
}

impl Indexing for Looking {
    fn name(&self) -> &'static str {
        self.kind
    }

    /// Refuses an index that is wrong about the file's compression. If the name says that there is none, this reads no
    /// byte of the file.
    fn refuses(&self, pass: &Pass<'_>, index: &Sidecar) -> Result<Option<String>> {
        let told = index.decoded().map(|(coding, _)| coding);
        if told.is_none() && names::is_plain(pass.path) {
            return Ok(None);
        }
        let found = packed::detect(pass.plain())?.map(Coding::Packed);
        Ok((found != told).then(|| "it is the index of a file that is compressed otherwise".to_owned()))
    }

    fn look(&self, pass: &Pass<'_>) -> Result<Found> {
        let mut collector = Collector::new();
        // Lines of a .jsonl may be arrays themselves.
        let rule = if self.rule == Rule::JsonFile && !names::is_json(pass.path) { Rule::Json } else { self.rule };
        let (decoded, damage) = match packed::detect(pass.plain())? {
            Some(compression) => {
                let (bytes, damage) = scan_decoded(pass, compression, rule, &mut collector);
                (Some((compression, bytes)), damage)
            }
            None => (None, scan(pass, rule, &mut collector).err()),
        };
        if let Some(error) = damage.as_ref().filter(|error| error.kind() == ErrorKind::Io) {
            return Err(error.clone());
        }
        let mut builder = collector.finish();
        if let Some((compression, bytes)) = decoded {
            builder.decoded(compression, bytes);
        }
        Ok(Found { builder, bytes_read: pass.size, damage })
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
    fn index(&self) -> &Index {
        &self.index
    }

    /// None of a line of a compressed file. Else one, which is empty if its place in the index is damaged: `parse`
    /// reports it.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let file = self.index.locate(id).0;
        if self.unit(file).is_none() {
            out.push(self.span(id).unwrap_or(Span { file, offset: 0, len: 0 }));
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let file = self.index.locate(id).0;
        let line = self.span(id).zip(raw.first()).and_then(|(span, bytes)| match self.unit(file) {
            None => Some((span, bytes.clone())),
            // Fits, because it is in memory.
            Some(_) if span.offset.checked_add(span.len)? > bytes.len() as u64 => None,
            Some(_) => Some((span, bytes.slice(span.offset as usize..(span.offset + span.len) as usize))),
        });
        let Some((span, bytes)) = &line else {
            return Err(self.indexes[file.0 as usize].damage(&self.files().path(file)));
        };
        if let Content::Whole = self.content {
            out.values.push(Value::Bytes(bytes.clone()));
            return Ok(());
        }
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let (scratch, rows) = &mut *scratch;
        let parsed = match &self.content {
            Content::Row(table) => csv::values(bytes, table, rows, &mut scratch.room, &mut out.values),
            Content::Fields(columns, names) => json::values(bytes, columns, names, scratch, &mut out.values),
            Content::Whole => Ok(()),
        };
        parsed.map_err(|wrong| self.wrong(*span, wrong))
    }

    fn units(&self) -> Option<&dyn Units> {
        (!self.packed.is_empty()).then_some(self)
    }

    /// Of each plain file the longest line, the 2nd, 4th, 8th and so on are known, and those between are taken to be as
    /// long as the next longer of these.
    fn largest(&self, count: u64) -> u64 {
        let plain = self.indexes.iter().filter(|index| index.decoded().is_none());
        let columns = plain.flat_map(|index| index.columns().iter().zip(std::iter::repeat(index.len())));
        sum_of_runs(columns.flat_map(|(column, lines)| column.runs(lines)).collect(), count).min(self.bytes())
    }

    /// FNV-1a over the format, the columns, names and sizes of all files, and the hash of each one's lines.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        match (&self.schema().fields[field].shape, &self.content) {
            (Shape::Fixed(shape), _) => Some(shape.iter().product()),
            (Shape::Ragged, Content::Whole) => Some(self.span(id).map_or(0, |span| span.len)),
            (Shape::Ragged, _) => None,
        }
    }

    /// A digit may become a whole element.
    fn widening(&self, field: usize) -> u64 {
        if matches!(self.content, Content::Whole) { 1 } else { self.schema().fields[field].dtype.size() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_own_options() {
        let names = |format: &Format| format.options.iter().map(|spec| spec.name).collect::<Vec<_>>();
        let all = ["index_cache", "write_index", "keep_damaged", "columns", "delimiter", "header"];
        assert_eq!((names(&TEXT), names(&JSONL), names(&CSV)), (all[..3].into(), all[..4].into(), all.into()));
    }

    #[test]
    fn columns_and_delimiters_have_several_spellings() {
        let columns = TypedNames::of_texts(&["id:i64", "a:b", "a:b:f32", "text"]).0;
        let wanted = [("id", Some(DType::I64)), ("a:b", None), ("a:b", Some(DType::F32)), ("text", None)];
        assert_eq!(columns, wanted.map(|(name, dtype)| (name.to_owned(), dtype)));
        let of = |text: &str| Delimiter::of(&text.into());
        assert_eq!(
            (of("tab"), of("\t"), of(";")),
            (Some(Delimiter::Tab), Some(Delimiter::Tab), Some(Delimiter::Semicolon))
        );
        assert_eq!((of(", "), of("\"")), (None, None));
    }
}
