//! Shards that an index lists and that start with tables of offsets. Finds the index, opens all shards in parallel,
//! checks their tables, and locates samples. Takes 4 bytes of memory a sample, and a few hundred a shard.

mod dataset;
mod file;
mod units;
mod zipped;

use crate::dataset::{FileId, FileTable, Fingerprint, Index, SampleId, Schema, Span, too_many_files};
use crate::find::objects::absent;
use crate::find::paths::thread_count;
use crate::find::patterns::{Argument, expand};
use crate::index::headers;
use crate::parallel::in_parallel;
use crate::place::Place;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use uringload_core::{Error, ErrorKind, Result};

pub(crate) use dataset::{Layout, Sharded, Wrong, checks_of, encoding_of};
pub(crate) use file::{OFFSETS_AT, OpenFile};
pub(crate) use zipped::{Frame, Frames, Whole, Zipped};

/// A shard as an index lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Path relative to the folder of the index.
    pub(crate) name: String,
    /// Size of the file.
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    /// Number of samples according to its header; differs from `samples` if samples are cut differently.
    pub(crate) items: u64,
    /// Hashes of the file: algorithm and hexadecimal digits.
    pub(crate) hashes: Vec<(String, String)>,
    /// How its file is compressed, if it is compressed as a whole.
    pub(crate) zipped: Option<Zipped>,
    /// Why it cannot be read, if the index already shows that.
    pub(crate) refused: Option<Error>,
}

impl Listed {
    /// Its names: that of what it decodes to, if it is compressed, and its own.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.zipped.iter().map(|zipped| &zipped.raw_name).chain([&self.name]).map(String::as_str)
    }
}

/// The content of one index.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The folder of the index.
    pub(crate) root: Place,
    pub(crate) shards: Vec<Listed>,
}

/// The places of one shard's samples.
#[derive(Debug)]
pub(crate) enum Table {
    /// Where each begins, and where the last one ends: ascending, and inside the file.
    Offsets(Box<[u32]>),
    /// `count` samples of `bytes` each, starting at `start`.
    Blocks { start: u64, bytes: u64, count: u64 },
    /// In the decoded content of the file.
    Whole(Whole),
    /// In the decoded content of parts of the file.
    Frames(Frames),
    /// Nowhere, and why.
    Bad(Error),
}

/// The shards of a dataset. A shard has the number of its file.
#[derive(Debug)]
struct Shards {
    /// Without columns and what depends on them.
    index: Index,
    tables: Vec<Table>,
    /// Total units up to and including each shard; empty if there are none.
    unit_ends: Vec<u32>,
    /// Name and size of the decoded content, for files that are decoded as a whole.
    raw: BTreeMap<FileId, (String, u64)>,
    /// Whether the length of every sample is known before anything is decoded, except in bad shards.
    lengths_known: bool,
}

impl Shards {
    /// Opens all shards, in parallel. `read` creates the table of each; it also gets the number of the listing.
    ///
    /// # Errors
    /// That of the first missing or broken shard, unless `allow_bad`; `Corrupt` for a name that occurs twice in an
    /// index or points outside its folder; `Empty` if there are no samples.
    fn open(
        format: &'static str,
        listings: &[Listing],
        threads: usize,
        allow_bad: bool,
        read: impl Fn(&OpenFile<'_>, &Listed, usize) -> Result<Table> + Sync,
    ) -> Result<Shards> {
        let mut files = FileTable::new();
        let mut all = Vec::new();
        for (number, listing) in listings.iter().enumerate() {
            check_names(&listing.root, listing.shards.iter().flat_map(Listed::names))?;
            files.push_root_at(&listing.root);
            for listed in &listing.shards {
                check_count(listing, listed)?;
                let file = files.push(listed.name.as_bytes(), listed.bytes);
                all.push((number, listed, file.ok_or_else(|| too_many_files(listing.root.path()))?));
            }
        }
        files.shrink_to_fit();
        let tables = in_parallel(&all, thread_count(threads), |&(number, listed, file)| {
            if let Some(error) = &listed.refused {
                return Err(error.clone());
            }
            let open = OpenFile::open(&files.at(file))?;
            open.check_size(listed.bytes)?;
            // The listing is an index: only now is the file itself looked at.
            Ok((read(&open, listed, number)?, open.stamp()))
        });
        let failed = tables.iter().filter(|table| table.is_err()).count();
        let stamped = tables.into_iter().zip(&all).map(|(table, &(_, _, file))| {
            let (table, stamp) = table?;
            files.set_stamp(file, stamp);
            Ok(table)
        });
        let tables: Vec<Result<Table>> = stamped.collect();
        let mut shards = Shards {
            index: Index::new(format, files, Schema { fields: Vec::new() }, 0),
            tables: Vec::with_capacity(all.len()),
            unit_ends: Vec::new(),
            raw: BTreeMap::new(),
            lengths_known: true,
        };
        let mut end = 0_u64;
        for (table, &(_, listed, file)) in tables.into_iter().zip(&all) {
            let table = match table {
                Err(error) if !allow_bad => return Err(of_many(error, failed, all.len())),
                table => table.unwrap_or_else(Table::Bad),
            };
            let count = match &table {
                Table::Blocks { count, .. } => *count,
                Table::Offsets(_) | Table::Whole(_) | Table::Frames(_) | Table::Bad(_) => listed.samples,
            };
            end = end.checked_add(count).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "the shards have more than 2^64 samples")
                    .with_path(shards.index.files.path(file))
            })?;
            shards.push_units(&table, file)?;
            // A bad shard is still identified by its decoded content.
            if let Some(zipped) = &listed.zipped {
                shards.raw.insert(file, (zipped.raw_name.clone(), zipped.raw_bytes));
            }
            shards.lengths_known &= listed.zipped.is_none() && !matches!(table, Table::Whole(_));
            shards.index.bytes = shards.index.bytes.saturating_add(table.bytes());
            shards.index.shards.push(end);
            shards.tables.push(table);
        }
        shards.index.samples = end;
        if shards.unit_ends.last() == Some(&0) {
            shards.unit_ends = Vec::new();
        }
        if end == 0 {
            let root = listings.first().map_or(Path::new("."), |listing| listing.root.path());
            return Err(Error::new(ErrorKind::Empty, "the shards have no sample").with_path(root));
        }
        Ok(shards)
    }

    /// Counts the units of the next shard.
    fn push_units(&mut self, table: &Table, file: FileId) -> Result<()> {
        let count = table.units();
        let before = self.unit_ends.last().copied().unwrap_or(0);
        let end = u32::try_from(count).ok().and_then(|count| before.checked_add(count));
        self.unit_ends.push(end.ok_or_else(|| {
            let error = Error::new(ErrorKind::Corrupt, "the shards have more than 2^32 units");
            error.with_path(self.index.files.path(file))
        })?);
        Ok(())
    }

    /// The shard of a sample, and its number in that shard.
    fn locate(&self, id: SampleId) -> (usize, u64) {
        crate::dataset::locate(&self.index.shards, id.0)
    }

    /// The place of a sample; `None` if its shard is bad.
    fn span(&self, id: SampleId) -> Option<Span> {
        let (shard, number) = self.locate(id);
        // A table has at most 2^32 files.
        let file = FileId(shard as u32);
        match &self.tables[shard] {
            Table::Offsets(offsets) => {
                let (start, end) = (offsets[number as usize], offsets[number as usize + 1]);
                Some(Span { file, offset: start.into(), len: (end - start).into() })
            }
            Table::Blocks { start, bytes, .. } => Some(Span { file, offset: start + number * bytes, len: *bytes }),
            Table::Whole(_) | Table::Frames(_) | Table::Bad(_) => None,
        }
    }

    /// Why a sample has no span.
    fn bad(&self, id: SampleId) -> Error {
        match &self.tables[self.locate(id).0] {
            Table::Bad(error) => error.clone(),
            Table::Offsets(_) | Table::Blocks { .. } | Table::Whole(_) | Table::Frames(_) => {
                Error::new(ErrorKind::Internal, format!("sample {} was parsed without its bytes", id.0))
            }
        }
    }

    /// The bytes of a sample, taken from the spans and units that were read.
    fn cut<'a>(&self, id: SampleId, raw: &'a [Bytes]) -> Result<Cow<'a, Bytes>> {
        let Some(bytes) = raw.first() else { return Err(self.bad(id)) };
        if self.unit_ends.is_empty() || self.is_read_by_span(id) {
            return Ok(Cow::Borrowed(bytes));
        }
        let place = |(_, range): (u64, Range<usize>)| bytes.get(range.clone()).map(|_| bytes.slice(range));
        match self.place(id, bytes).and_then(place) {
            Some(sample) => Ok(Cow::Owned(sample)),
            None => {
                let what = format!("sample {} is not in its unit", id.0);
                Err(Error::new(ErrorKind::Internal, what).with_path(self.path_of(id)))
            }
        }
    }

    /// For a sample that is cut from a unit: its offset in the decoded content of the file, and its range in the unit.
    fn place(&self, id: SampleId, unit: &[u8]) -> Option<(u64, Range<usize>)> {
        let (shard, number) = self.locate(id);
        let (range, base) = match &self.tables[shard] {
            Table::Whole(whole) => (whole.range(number, unit)?, 0),
            Table::Frames(frames) => (frames.range(number), frames.decoded(frames.frame(number)).start),
            Table::Offsets(_) | Table::Blocks { .. } | Table::Bad(_) => return None,
        };
        let of = |at: u64| usize::try_from(at.checked_sub(base)?).ok();
        Some((range.start, of(range.start)?..of(range.end)?))
    }

    fn is_read_by_span(&self, id: SampleId) -> bool {
        matches!(self.tables[self.locate(id).0], Table::Offsets(_) | Table::Blocks { .. })
    }

    fn path_of(&self, id: SampleId) -> PathBuf {
        self.index.files.path(FileId(self.locate(id).0 as u32))
    }

    /// The error for a sample, `at` bytes after its start; `raw` is what it was made from.
    fn corrupt(&self, id: SampleId, raw: &[Bytes], what: String, at: u64) -> Error {
        let cut = raw.first().and_then(|unit| self.place(id, unit));
        let (what, start) = match (self.span(id), cut) {
            (Some(span), _) => (what.into(), Some(span.offset)),
            (None, Some((start, _))) => (headers::decoded(what), Some(start)),
            (None, None) => (what.into(), None),
        };
        let error = Error::new(ErrorKind::Corrupt, what).with_path(self.path_of(id));
        match start {
            Some(start) => error.with_offset(start + at),
            None => error,
        }
    }

    /// Calls `learn` with the first sample, for properties that only a sample reveals. If its shard is bad and
    /// `allow_bad` is set, tries the first sample of the next shard.
    fn learn(&self, allow_bad: bool, mut learn: impl FnMut(&OpenFile<'_>, Range<u64>) -> Result<()>) -> Result<()> {
        let mut first_error = None;
        let starts = [0].into_iter().chain(self.index.shards.iter().copied());
        for (shard, (start, &end)) in starts.zip(&self.index.shards).enumerate() {
            if start == end || matches!(self.tables[shard], Table::Bad(_)) {
                continue;
            }
            match self.first_of(shard).and_then(|(file, range)| learn(&file, range)) {
                Ok(()) => return Ok(()),
                Err(error) if !allow_bad => return Err(error),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The source of a shard's first sample, and the sample's place in it.
    fn first_of(&self, shard: usize) -> Result<(OpenFile<'static>, Range<u64>)> {
        // A table has at most 2^32 files.
        let file = OpenFile::open(&self.index.files.at(FileId(shard as u32)))?;
        match &self.tables[shard] {
            Table::Offsets(offsets) => Ok((file, offsets[0].into()..offsets[1].into())),
            Table::Blocks { start, bytes, .. } => Ok((file, *start..start + bytes)),
            Table::Whole(whole) => whole.first(file),
            Table::Frames(frames) => frames.first(file),
            Table::Bad(error) => Err(error.clone()),
        }
    }

    /// Name, size and number of samples of each shard. Compressed shards count with name and size of their decoded
    /// content, so that a state remains valid for the same shards without compression.
    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        let files = &self.index.files;
        fingerprint.number(files.len() as u64);
        for (number, &size) in files.sizes().iter().enumerate() {
            let file = FileId(number as u32);
            let (name, bytes) = match self.raw.get(&file) {
                Some((name, bytes)) => (name.as_bytes(), *bytes),
                None => (files.name(file), size),
            };
            fingerprint.bytes(name);
            fingerprint.number(bytes);
        }
        self.index.shards.iter().for_each(|&end| fingerprint.number(end));
    }
}

impl Table {
    /// Bytes of all samples, by the index.
    fn bytes(&self) -> u64 {
        match self {
            Table::Offsets(offsets) => u64::from(offsets[offsets.len() - 1] - offsets[0]),
            Table::Blocks { bytes, count, .. } => bytes * count,
            Table::Whole(whole) => whole.bytes(),
            Table::Frames(frames) => frames.offsets[frames.offsets.len() - 1].into(),
            Table::Bad(_) => 0,
        }
    }
}

/// Longest index, in bytes: some million shards. A longer file is not an index.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Name of the file that lists shards, in MDS and in LitData.
const INDEX_NAME: &str = "index.json";

/// The index of each place: for a folder its `index.json`, for anything else the place itself. Patterns are
/// replaced by their matches.
pub(crate) fn find_indexes(named: &[Place]) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for place in named {
        expand(place, &mut places)?;
    }
    let mut indexes = Vec::new();
    for place in places {
        match place {
            Argument::Named(place) => indexes.push(index_of(place)?),
            Argument::Matched { root, names } => {
                for name in names {
                    indexes.push(index_of(root.join(name))?);
                }
            }
        }
    }
    if indexes.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, "no path was given"));
    }
    Ok(indexes)
}

fn index_of(place: Place) -> Result<Place> {
    let stat = place.stat().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if place.as_far().is_some() => absent(&place),
        _ => Error::io("cannot find", source).with_path(&place),
    })?;
    if !stat.is_folder {
        return Ok(place);
    }
    let index = place.join(INDEX_NAME);
    if index.is_there() {
        return Ok(index);
    }
    let error = Error::new(ErrorKind::NotFound, "there is no index.json").with_path(&place);
    let names = place.list().into_iter().flatten().flatten().map(|entry| entry.name());
    let mut parts: Vec<String> = names
        .filter(|name| place.join(name).join(INDEX_NAME).is_there())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    parts.sort_unstable();
    parts.truncate(PARTS_NAMED);
    Err(if parts.is_empty() {
        error.with_remedy("name the folder that has it")
    } else {
        error.with_remedy(format!("name the folders that have one: {}", parts.join(", ")))
    })
}

/// Most folders that a message names.
const PARTS_NAMED: usize = 5;

/// Reads an index: JSON of the shape `T`.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(place: &Place) -> Result<T> {
    let stat = place.stat().map_err(|source| Error::io("cannot find", source).with_path(place))?;
    if !stat.is_file {
        return Err(Error::new(ErrorKind::WrongFileType, "the index is not a regular file").with_path(place));
    }
    if stat.bytes > INDEX_BYTES_MAX {
        let what = format!("the index has {} bytes; the limit is {INDEX_BYTES_MAX}", stat.bytes);
        return Err(Error::new(ErrorKind::Corrupt, what).with_path(place));
    }
    let mut text = Vec::new();
    let read = place.reader()?.take(INDEX_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|source| Error::io("cannot read", source).with_path(place))?;
    serde_json::from_slice(&text).map_err(|source| {
        Error::new(ErrorKind::Corrupt, "this is no index of the format").with_path(place).with_source(source)
    })
}

/// Whether a place is a folder with an `index.json`, or such a file, that parses as JSON of the shape `T`; or a pattern
/// of these.
pub(crate) fn has_index<T: serde::de::DeserializeOwned>(place: &Place) -> bool {
    stands_for(place, |place| {
        let index = if place.is_folder() { place.join(INDEX_NAME) } else { place.clone() };
        index.has_extension("json") && read_json::<T>(&index).is_ok()
    })
}

/// Whether every match of a place or a pattern satisfies `is_one`.
pub(crate) fn stands_for(place: &Place, is_one: impl Fn(&Place) -> bool) -> bool {
    let mut places = Vec::new();
    expand(place, &mut places).is_ok()
        && places.iter().all(|place| match place {
            Argument::Named(place) => is_one(place),
            Argument::Matched { root, names } => names.iter().all(|name| is_one(&root.join(name))),
        })
}

/// Names must stay in their folder and occur only once in an index; otherwise a sample would appear twice.
pub(crate) fn check_names<'a>(root: &Place, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        let path = Path::new(name);
        let stays = path.components().all(|component| matches!(component, Component::Normal(_)));
        if name.is_empty() || name.contains('\0') || !stays {
            let what = format!("the index names the shard {name:?}, which is not below the folder");
            return Err(Error::new(ErrorKind::Corrupt, what).with_path(root));
        }
        if !seen.insert(path) {
            let what = format!("the index names the shard {name:?} twice");
            return Err(Error::new(ErrorKind::Corrupt, what).with_path(root));
        }
    }
    Ok(())
}

/// 32-bit offsets bound the samples of a shard, whatever an index says. Otherwise a missing shard could have samples
/// for years.
fn check_count(listing: &Listing, listed: &Listed) -> Result<()> {
    if listed.samples > u64::from(u32::MAX) {
        let what = format!("the index says {} samples, more than a shard can have", listed.samples);
        return Err(Error::new(ErrorKind::Corrupt, what).with_path(listing.root.join(&listed.name)));
    }
    Ok(())
}

/// Adds to an error that others failed, too.
fn of_many(error: Error, failed: usize, all: usize) -> Error {
    if failed == 1 {
        return error;
    }
    let remedy = error.remedy().unwrap_or("restore the shards").to_owned();
    error.with_remedy(format!("{remedy}; {failed} of {all} shards cannot be read, this is the first"))
}
