//! Files of one stem as one sample: `a.jpg` and `a.json`, or `images/a.jpg` and `masks/a.png`.

use crate::dataset::{
    DType, Dataset, Encoding, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape,
    SkipReason, Span, Value,
};
use crate::detect::is_beside_data;
use crate::find::names::{has_extension, split_name};
use crate::find::paths::FoundFiles;
use crate::format::Format;
use crate::options::{Missing, words};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

/// What makes files of one stem different columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Their extensions: all that follows a dot and begins with a letter, as with the members of a tar.
    Extension,
    /// The folder below the root that contains them.
    Folder,
}

words!(Pairing { "extension" => Extension, "folder" => Folder, });

/// Samples of one file for each column, ordered by their stems.
#[derive(Debug)]
pub struct Pairs {
    index: Index,
    /// The file of each sample's column, samples one after the other; [`NONE`] where it has none.
    files: Vec<u32>,
    stems: Vec<Box<[u8]>>,
    missing: Missing,
    fingerprint: OnceLock<u64>,
}

/// A table has fewer files than this.
const NONE: u32 = u32::MAX;

/// Extensions of compressed files, after their own.
const COMPRESSIONS: [&str; 6] = ["gz", "zst", "bz2", "xz", "lz4", "br"];

/// Columns at most: as many as a person gives names to.
const COLUMNS_MAX: usize = 64;

impl Pairs {
    /// Pairs the files that were found. Of `fields`, if any are given, these columns in this order.
    pub(crate) fn new(found: FoundFiles, by: Pairing, fields: &[String], missing: Missing) -> Result<Pairs> {
        let FoundFiles { files, skips, .. } = found;
        let ends = if are_extensions(fields, &files) { &[] } else { fields };
        let stem_of = if by == Pairing::Folder && !meet(&files, at_last_dot) { before_extension } else { at_last_dot };
        // Files of a field that belong to no sample that is known yet.
        let mut passed_over: Vec<(&[u8], FileId)> = Vec::new();
        let mut columns: Vec<String> = fields.to_vec();
        let mut stems: BTreeMap<Box<[u8]>, Vec<u32>> = BTreeMap::new();
        let mut unpaired: Vec<FileId> = Vec::new();
        for file in (0..files.len() as u32).map(FileId) {
            let Some((stem, column)) = parts(files.name(file), (by, stem_of), ends) else {
                unpaired.push(file);
                continue;
            };
            let known = columns.iter().position(|known| *known == column);
            let number = match known {
                Some(number) => number,
                None if !fields.is_empty() => {
                    let name = files.name(file);
                    if by == Pairing::Extension && fields.iter().any(|field| has_extension(name, field)) {
                        passed_over.push((stem, file));
                    }
                    continue;
                }
                None => {
                    columns.push(column);
                    columns.len() - 1
                }
            };
            if number >= COLUMNS_MAX {
                let what = format!("the files make more than {COLUMNS_MAX} columns: the last is {:?}", columns[number]);
                let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.path(file));
                return Err(error.with_remedy("name the columns that are wanted (fields), or pair by the other rule"));
            }
            let row = stems.entry(stem.into()).or_default();
            row.resize(row.len().max(number + 1), NONE);
            if row[number] != NONE {
                let what = format!(
                    "two files are {:?} of the sample {:?}: the other is {}",
                    columns[number],
                    String::from_utf8_lossy(stem),
                    files.path(FileId(row[number])).display()
                );
                let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.path(file));
                return Err(error.with_remedy("rename one, or open their folders one by one"));
            }
            row[number] = file.0;
        }
        if let Some(&first) = unpaired.first() {
            let where_it_lies = match by {
                Pairing::Extension => "has no extension",
                Pairing::Folder => "is in no folder below the root, or has no extension",
            };
            let what = format!("{} files belong to no column: the first {where_it_lies}", unpaired.len());
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.path(first));
            return Err(error.with_remedy("name the folders that hold the samples, or move these files elsewhere"));
        }
        if let Some(&(_, file)) = passed_over.iter().find(|(stem, _)| !stems.contains_key(*stem)) {
            let what = "the name has several dots: it ends in a field, and is a file of no sample";
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.path(file));
            return Err(error.with_remedy("give all samples names of one form, or leave the file out (exclude)"));
        }
        check_columns(&columns, &stems, &files)?;
        if by == Pairing::Extension && fields.is_empty() {
            check_dots(&columns, &stems, &files)?;
        }
        let mut index = Index::new("folder", files, schema(&columns), stems.len() as u64);
        let mut pairs = Vec::with_capacity(stems.len() * columns.len());
        let mut lacking = vec![0; columns.len()];
        let mut names = Vec::with_capacity(stems.len());
        for (stem, mut row) in stems {
            row.resize(columns.len(), NONE);
            row.iter().zip(&mut lacking).for_each(|(&file, lacking)| *lacking += u64::from(file == NONE));
            pairs.extend(row);
            names.push(stem);
        }
        let bytes = pairs.iter().filter(|&&file| file != NONE).map(|&file| index.files.size(FileId(file)));
        index.bytes = crate::dataset::sizes::sum(bytes);
        index.encodings = encodings(&index, &columns, &pairs, by);
        index.plain_field = (columns.len() == 1).then_some(0);
        index.left_out = skips.into_vec();
        if lacking.iter().any(|&samples| samples > 0) {
            index.lacking = lacking;
        }
        Ok(Pairs { index, files: pairs, stems: names, missing, fingerprint: OnceLock::new() })
    }

    fn row(&self, id: SampleId) -> &[u32] {
        let columns = self.index.schema.fields.len();
        // Fits: the table is in memory.
        &self.files[id.0 as usize * columns..(id.0 as usize + 1) * columns]
    }

    /// The error of a sample that lacks a file.
    fn lack(&self, id: SampleId) -> Error {
        let row = self.row(id);
        let fields = self.index.schema.fields.iter().zip(row);
        let lacks: Vec<&str> = fields.filter(|&(_, &file)| file == NONE).map(|(field, _)| &*field.name).collect();
        let stem = String::from_utf8_lossy(&self.stems[id.0 as usize]).into_owned();
        let error = Error::new(ErrorKind::NotFound, format!("sample {stem:?} has no file for {:?}", lacks.join(", ")));
        let error =
            error.with_remedy("add the file, choose fields that all samples have, or take missing ones as empty");
        match row.iter().find(|&&file| file != NONE) {
            Some(&file) => error.with_path(self.index.files.path(FileId(file))),
            None => error,
        }
    }
}

/// Leaves out the files beside the folders that are not samples by their names.
pub(crate) fn without_companions(found: FoundFiles, formats: &[Format]) -> FoundFiles {
    found.keep_by(|name| name.contains(&b'/') || !is_beside_data(name, formats), SkipReason::Companion)
}

/// Whether each of `fields` is what an extension is by itself. Else they say where names with several dots end.
fn are_extensions(fields: &[String], files: &FileTable) -> bool {
    let is_one =
        |field: &String, file: u32| at_extension(files.name(FileId(file))).1.eq_ignore_ascii_case(field.as_bytes());
    // Fits: a table has fewer than 2^32 files.
    fields.iter().all(|field| (0..files.len() as u32).any(|file| is_one(field, file)))
}

/// What of a name is its stem.
type StemOf = fn(&[u8]) -> &[u8];

/// Stem and column of a file's name, which may end in one of `ends`.
fn parts<'a>(name: &'a [u8], (by, stem_of): (Pairing, StemOf), ends: &[String]) -> Option<(&'a [u8], String)> {
    // A list may name "./a/b", whose first component is no folder below the root.
    split_name(name).ok().filter(|(_, extension)| !extension.is_empty())?;
    match by {
        Pairing::Extension => {
            let given = ends.iter().filter(|field| has_extension(name, field)).max_by_key(|field| field.len());
            if let Some(field) = given {
                return Some((&name[..name.len() - field.len() - 1], field.clone()));
            }
            let (stem, extension) = at_extension(name);
            Some((stem, String::from_utf8_lossy(extension).to_lowercase()))
        }
        Pairing::Folder => {
            let stem = stem_of(name);
            let slash = stem.iter().position(|&byte| byte == b'/')?;
            let folder = std::str::from_utf8(&stem[..slash]).ok();
            let folder = folder.filter(|folder| !matches!(*folder, "" | "." | ".."))?;
            Some((&stem[slash + 1..], folder.to_owned()))
        }
    }
}

/// A name before and after the dot of its extension. The extension begins with a letter: what follows other dots is a
/// number, a time or a sentence, and part of the stem. `a.seg.png` has the extension `seg.png`, `frame.0001.png` has
/// `png`.
fn at_extension(name: &[u8]) -> (&[u8], &[u8]) {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let is_part = |part: &[u8]| {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        part.first().is_some_and(u8::is_ascii_alphabetic) && part.iter().all(is_letter)
    };
    let mut dot = None;
    // The first dot of a name is none of an extension: `.hidden`.
    for at in (base + 1..name.len()).rev().filter(|&at| name[at] == b'.') {
        if dot.is_some() && !is_part(&name[at + 1..dot.unwrap_or(name.len())]) {
            break;
        }
        dot = Some(at);
    }
    dot.map_or((name, &[]), |dot| (&name[..dot], &name[dot + 1..]))
}

/// A name before its extension.
fn before_extension(name: &[u8]) -> &[u8] {
    at_extension(name).0
}

/// Whether two files in different folders below the root have one stem.
fn meet(files: &FileTable, stem_of: StemOf) -> bool {
    let mut folders: HashMap<&[u8], &[u8]> = HashMap::new();
    // Fits: a table has fewer than 2^32 files.
    (0..files.len() as u32).any(|file| {
        let stem = stem_of(files.name(FileId(file)));
        let Some(slash) = stem.iter().position(|&byte| byte == b'/') else { return false };
        folders.insert(&stem[slash + 1..], &stem[..slash]).is_some_and(|other| other != &stem[..slash])
    })
}

/// A name before its last dot, and before that of a compressed file's own extension.
fn at_last_dot(name: &[u8]) -> &[u8] {
    let before = |name: &[u8]| {
        let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        name[base..].iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0).map_or(name.len(), |dot| base + dot)
    };
    let stem = &name[..before(name)];
    if COMPRESSIONS.iter().any(|extension| has_extension(name, extension)) { &stem[..before(stem)] } else { stem }
}

/// Refuses names with dots in which the end of the stem is ambiguous: cut at their last dots, most would be samples of
/// several files; cut as extensions are, not all samples have the same columns.
fn check_dots(columns: &[String], stems: &BTreeMap<Box<[u8]>, Vec<u32>>, files: &FileTable) -> Result<()> {
    let is_whole = |row: &Vec<u32>| row.len() == columns.len() && !row.contains(&NONE);
    if !columns.iter().any(|column| column.contains('.')) || stems.len() > 1 && stems.values().all(is_whole) {
        return Ok(());
    }
    let mut by_last_dot: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
    for &file in stems.values().flatten().filter(|&&file| file != NONE) {
        let name = files.name(FileId(file));
        let stem = at_last_dot(name);
        by_last_dot.entry(stem).or_default().insert(&name[stem.len()..]);
    }
    let several = by_last_dot.values().filter(|kinds| kinds.len() > 1).count();
    if several < 2 || several * 2 < by_last_dot.len() {
        return Ok(());
    }
    let ends: BTreeSet<&[u8]> = by_last_dot.into_values().flatten().collect();
    let dotted = |column: &&String| column.contains('.');
    let column = columns.iter().find(dotted).map_or("", |column| column.as_str());
    let what = format!("names have several dots, so that a column would be called {column:?}");
    let ends: Vec<String> = ends.into_iter().map(lossy_end).collect();
    let remedy = format!("say where stems end: name the extensions (fields), such as {}", ends.join(", "));
    Err(Error::new(ErrorKind::InvalidArgument, what).with_path(files.place()).with_remedy(remedy))
}

fn lossy_end(end: &[u8]) -> String {
    String::from_utf8_lossy(end.strip_prefix(b".").unwrap_or(end)).to_lowercase()
}

/// Whether each column has a file, and some sample two.
fn check_columns(
    columns: &[String],
    stems: &BTreeMap<Box<[u8]>, Vec<u32>>,
    files: &crate::dataset::FileTable,
) -> Result<()> {
    let has = |column: usize| stems.values().any(|row| row.get(column).is_some_and(|&file| file != NONE));
    if let Some(column) = (0..columns.len()).find(|&column| !has(column)) {
        let error = Error::new(ErrorKind::InvalidArgument, format!("no sample has a file for {:?}", columns[column]));
        return Err(error.with_path(files.place()).with_remedy("name extensions, or folders, that are there"));
    }
    let is_pair = |row: &Vec<u32>| row.iter().filter(|&&file| file != NONE).count() > 1;
    if columns.len() > 1 && !stems.values().any(is_pair) {
        let what = format!("no two files have one stem, though there are columns {}", columns.join(", "));
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.place());
        return Err(error.with_remedy("pair by the other rule (extension or folder), or open the folder without pairs"));
    }
    Ok(())
}

fn schema(columns: &[String]) -> Schema {
    let field = |name: &String| Field { name: name.clone(), dtype: DType::U8, shape: Shape::Ragged };
    Schema { fields: columns.iter().map(field).collect() }
}

/// What each column holds, by its extension; by that of its first file where folders are columns.
fn encodings(index: &Index, columns: &[String], pairs: &[u32], by: Pairing) -> Vec<Encoding> {
    let of = |(number, column): (usize, &String)| match by {
        Pairing::Extension => Encoding::of_extension(column),
        Pairing::Folder => {
            let first = pairs.chunks(columns.len()).map(|row| row[number]).find(|&file| file != NONE);
            let name = first.map_or(&b""[..], |file| index.files.name(FileId(file)));
            let extension = split_name(name).map_or(&b""[..], |(_, extension)| extension);
            Encoding::of_extension(&String::from_utf8_lossy(extension).to_lowercase())
        }
    };
    columns.iter().enumerate().map(of).collect()
}

impl Dataset for Pairs {
    fn index(&self) -> &Index {
        &self.index
    }

    /// One span for each column; an empty one, in a file of the sample, where it has none.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let row = self.row(id);
        // Each sample was made of a file.
        let any = row.iter().copied().find(|&file| file != NONE).unwrap_or(0);
        out.extend(row.iter().map(|&file| match file {
            NONE => Span { file: FileId(any), offset: 0, len: 0 },
            file => Span { file: FileId(file), offset: 0, len: self.index.files.size(FileId(file)) },
        }));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        if self.missing == Missing::Error && self.row(id).contains(&NONE) {
            return Err(self.lack(id));
        }
        out.values.extend(raw.iter().cloned().map(Value::Bytes));
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stems[id.0 as usize]);
    }

    /// FNV-1a over "pairs", the columns, names and sizes of all files, and which files make each sample.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("pairs");
            self.index.schema.fields.iter().for_each(|field| fingerprint.bytes(field.name.as_bytes()));
            fingerprint.files(&self.index.files);
            self.files.iter().for_each(|&file| fingerprint.number(file.into()));
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let file = self.row(id)[field];
        Some(if file == NONE { 0 } else { self.index.files.size(FileId(file)) })
    }

    fn has_field(&self, id: SampleId, field: usize) -> bool {
        self.row(id)[field] != NONE
    }
}
