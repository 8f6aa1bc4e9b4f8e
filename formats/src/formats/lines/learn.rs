//! Learns the columns: from the header of a table, or from the first valid line of JSON.

use super::csv::{Rows, Table};
use super::names::is_packed_json;
use super::values::{Column, Kind, Wrong};
use super::{Content, LineOptions, json, line};
use crate::compression::Compression;
use crate::dataset::{DType, FileId, FileTable};
use crate::index::headers::{Source, map_files};
use crate::index::packed::{in_decoded, undecodable};
use crate::index::sidecar::Sidecar;
use serde::de::IgnoredAny;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use uringload_core::{Error, ErrorKind, Result};

/// Most lines from which columns are learned.
const LEARNED_MAX: u64 = 64;
/// Longer lines are not used: to learn the columns must not take the memory that was meant for reading them.
const LEARNED_BYTES_MAX: u64 = 64 << 20;

/// The `len` bytes at `offset` of what a file decodes to; `len` is that of a line.
fn decoded_line(source: Source, compression: Compression, offset: u64, len: u64) -> Result<Vec<u8>> {
    let path = source.path().to_path_buf();
    let mut line = Vec::new();
    let read = compression.reader(BufReader::new(source.into_reader())).and_then(|mut reader| {
        io::copy(&mut (&mut reader).take(offset), &mut io::sink())?;
        (&mut reader).take(len).read_to_end(&mut line)
    });
    let failed = |error| in_decoded(undecodable("file", compression, error).with_path(&path).with_offset(offset));
    match read {
        Ok(bytes) if bytes as u64 == len => Ok(line),
        Ok(_) => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(failed(error)),
    }
}

/// Files whose lines are known but whose columns are not.
pub(super) struct Indexes<'a> {
    pub(super) files: &'a FileTable,
    pub(super) indexes: &'a [Sidecar],
    pub(super) threads: usize,
}

impl Indexes<'_> {
    /// Offset and bytes of line `number` of a file; `None` if it has fewer lines.
    fn read(&self, file: FileId, number: u64) -> Result<Option<(u64, Vec<u8>)>> {
        let index = &self.indexes[file.0 as usize];
        if number >= index.len() {
            return Ok(None);
        }
        let source = Source::open(self.files, file)?;
        let (offset, len) = line(index, number).ok_or_else(|| index.damage(source.path()))?;
        if len > LEARNED_BYTES_MAX {
            let what = format!("a line of {len} bytes is too long to learn columns from");
            let error = Error::new(ErrorKind::Unavailable, what).with_path(source.path()).with_offset(offset);
            return Err(error.with_remedy("put a line of less than 64 MiB first, or choose no columns"));
        }
        if let Some((compression, _)) = index.packed() {
            return decoded_line(source, compression, offset, len).map(|line| Some((offset, line)));
        }
        // Fits: a line has at most LINE_BYTES_MAX bytes and is in the file.
        Ok(Some((offset, source.bytes(offset, usize::try_from(len).unwrap_or(usize::MAX), "a line")?)))
    }

    /// Refuses files of JSON that are one document, whose lines are no samples: a first line that does not end what it
    /// begins, and a list of objects that is the only line. One that is called `.json` begins with an object.
    pub(super) fn refuse_documents(&self) -> Result<()> {
        let has_lines = |file: &FileId| self.indexes[file.0 as usize].len() > 0;
        let length = |file: &FileId| line(&self.indexes[file.0 as usize], 0).map_or(0, |line| line.1);
        let first = self.all().find(has_lines).filter(|file| length(file) <= LEARNED_BYTES_MAX);
        let called = self.all().find(|file| is_packed_json(self.files.name(*file)) && has_lines(file));
        for file in first.into_iter().chain(called) {
            let Some((offset, line)) = self.read(file, 0)? else { continue };
            let line = line.trim_ascii();
            let is_alone = self.indexes[file.0 as usize].len() == 1;
            let is_document = match line {
                b"{" => true,
                [b'[', inside @ ..] => {
                    is_alone && inside.trim_ascii_start().starts_with(b"{")
                        || serde_json::from_slice::<IgnoredAny>(line).is_err()
                }
                _ => false,
            };
            let is_object = line.starts_with(b"{") && line.ends_with(b"}");
            if !is_document && (is_object || !is_packed_json(self.files.name(file))) {
                continue;
            }
            let what = "the first line is no JSON of its own: this is one document, and no file of lines";
            let error = Error::new(ErrorKind::InvalidArgument, what);
            let error = error.with_path(self.files.path(file)).with_offset(offset);
            return Err(error.with_remedy("write each sample as a line (jq -c '.[]'), and call the file .jsonl"));
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = FileId> + use<> {
        // Fits: a table has fewer than 2^32 files.
        (0..self.indexes.len() as u32).map(FileId)
    }

    /// The columns of the wanted fields, from the first valid line.
    pub(super) fn fields(&self, options: &LineOptions, names: &json::Names) -> Result<Vec<Column>> {
        let mut places = Vec::new();
        let mut fault = None;
        let lines = self.all().flat_map(|file| (0..self.indexes[file.0 as usize].len()).map(move |line| (file, line)));
        for (file, number) in lines.take(LEARNED_MAX as usize) {
            let Some((offset, line)) = self.read(file, number)? else { continue };
            let corrupt = |wrong: Wrong| {
                let error = Error::new(ErrorKind::Corrupt, wrong.what).with_path(self.files.path(file));
                error.with_offset(offset + wrong.at as u64).with_remedy(wrong.remedy)
            };
            if let Err(wrong) = json::find(&line, names, &mut places) {
                fault.get_or_insert_with(|| corrupt(wrong));
                continue;
            }
            let column = |((name, asked), place): (&(String, Option<DType>), &Option<Range<usize>>)| {
                let asked = *asked;
                let raw = place.clone().and_then(|place| std::str::from_utf8(&line[place]).ok());
                if raw.is_none() && asked.is_none() {
                    let what = format!("the first line has no field {name:?}, which would show its type");
                    let error = Error::new(ErrorKind::InvalidArgument, what).with_path(self.files.path(file));
                    return Err(error.with_offset(offset).with_remedy("give a type with the name"));
                }
                Ok(Column { name: name.clone(), kind: json::kind_of(raw.unwrap_or_default(), asked) })
            };
            return options.columns.0.iter().zip(&places).map(column).collect();
        }
        // Without lines there is nothing to learn, and nothing to open either.
        fault.map_or(Ok(Vec::new()), Err)
    }

    /// The columns of tables.
    pub(super) fn table(&self, options: &LineOptions, delimiter: u8) -> Result<Table> {
        let has_header = options.header;
        let Some(first) = self.all().find(|file| self.indexes[file.0 as usize].len() > 0) else {
            return Ok(Table { columns: Vec::new(), wanted: Vec::new(), has_header });
        };
        let names = self.names(first, delimiter)?;
        if has_header {
            let all = 0..self.indexes.len() as u32;
            map_files(all, self.threads, |file| match self.names(file, delimiter)? {
                others if others.is_empty() || others == names => Ok(()),
                _ => Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "the header has other columns than that of the first file",
                )
                .with_path(self.files.path(file))
                .with_remedy(
                    "open tables with different columns as different datasets; if the files have no header, say so",
                )),
            })?;
        }
        let names = if has_header {
            self.text(first, names)?
        } else {
            (0..names.len()).map(|number| number.to_string()).collect()
        };
        let asked = match &options.columns.0 {
            none if none.is_empty() => names.iter().map(|name| (name.clone(), None)).collect(),
            asked => asked.clone(),
        };
        // A table may have hundreds of thousands of columns: no name is held against all others.
        let there: HashSet<&str> = names.iter().map(String::as_str).collect();
        if let Some((absent, _)) = asked.iter().find(|(name, _)| !there.contains(&**name)) {
            let what = format!("the file has no column {absent:?}");
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(self.files.path(first));
            return Err(error.with_remedy(format!("choose from the columns {}", names.join(", "))));
        }
        let places: HashMap<&str, usize> = asked.iter().map(|(name, _)| &**name).zip(0..).collect();
        let wanted = names.iter().map(|name| places.get(&**name).copied()).collect();
        let column = |(name, dtype): (String, Option<DType>)| {
            let kind = match dtype {
                None | Some(DType::U8) => Kind::Text,
                Some(DType::Bool) => Kind::Bool,
                Some(dtype) => Kind::Number(dtype),
            };
            Column { name, kind }
        };
        Ok(Table { columns: asked.into_iter().map(column).collect(), wanted, has_header })
    }

    /// The fields of the first row of a file; none if it has no rows.
    fn names(&self, file: FileId, delimiter: u8) -> Result<Vec<Vec<u8>>> {
        let Some((offset, row)) = self.read(file, 0)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        let read = Rows::new(delimiter).fields(&row, |_, field| {
            names.push(field.text.to_vec());
            Ok(())
        });
        read.map_err(|wrong| {
            let error = Error::new(ErrorKind::Corrupt, wrong.what).with_path(self.files.path(file));
            error.with_offset(offset).with_remedy(wrong.remedy)
        })?;
        Ok(names)
    }

    /// Column names as text; they must be distinct.
    fn text(&self, file: FileId, names: Vec<Vec<u8>>) -> Result<Vec<String>> {
        let refuse = |what: String| {
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(self.files.path(file));
            Err(error.with_remedy("write another header; if the first row is no header, say so"))
        };
        let mut text: Vec<String> = Vec::with_capacity(names.len());
        let mut seen = HashSet::with_capacity(names.len());
        for name in names {
            match String::from_utf8(name) {
                Ok(name) if seen.insert(name.clone()) => text.push(name),
                Ok(name) => return refuse(format!("two columns are called {name:?} in the header")),
                Err(name) => {
                    let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
                    return refuse(format!("the name of column {name:?} in the header is not UTF-8"));
                }
            }
        }
        Ok(text)
    }

    /// Number of lines in each file that are samples.
    pub(super) fn samples(&self, content: &Content) -> impl Iterator<Item = u64> {
        let header_rows = content.header_rows();
        self.indexes.iter().map(move |index| index.len().saturating_sub(header_rows))
    }

    /// Bytes of all samples.
    pub(super) fn bytes(&self, content: &Content) -> u64 {
        let of_file = |index: &Sidecar| {
            let all = index.columns().iter().fold(0, |sum, column| u64::saturating_add(sum, column.bytes));
            let header_rows = content.header_rows().min(index.len());
            all.saturating_sub((0..header_rows).filter_map(|row| line(index, row)).map(|(_, len)| len).sum())
        };
        self.indexes.iter().fold(0, |sum, index| sum.saturating_add(of_file(index)))
    }
}
