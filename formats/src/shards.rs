//! What formats of shards share whose heads are tables of offsets: finding their index, opening all shards at once,
//! checking the tables, and telling where a sample lies. 4 bytes of memory a sample, and some hundred a shard.

mod file;
mod units;
mod zipped;

use crate::fingerprint::Fingerprint;
use crate::parallel::in_parallel;
use crate::paths::thread_count;
use crate::patterns::{Place, expand};
use crate::sizes::Largest;
use crate::{FileId, FileTable, SampleId, Span, too_many_files};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use uringload_core::{Error, ErrorKind, Result};

pub(super) use file::{OFFSETS_AT, OpenFile};
pub(super) use zipped::{Frame, Frames, Whole, Zipped};

/// What becomes of a shard that is not there, or whose head breaks its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadShards {
    /// The dataset is not opened; the error names the shard.
    #[default]
    Refuse,
    /// Every sample that the index promises of it fails with the shard's error when it is wanted: the `on_error` of a
    /// loader decides, and good shards beside it are read.
    FailSamples,
}

/// A shard as an index lists it.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// Path relative to the folder of the index.
    pub(super) name: String,
    /// Size of the file.
    pub(super) bytes: u64,
    pub(super) samples: u64,
    /// Samples that its head tells of: others than `samples`, where those are cut differently.
    pub(super) items: u64,
    /// Hashes of the file: algorithm and hexadecimal digits.
    pub(super) hashes: Vec<(String, String)>,
    /// How its file is compressed, where it is as a whole.
    pub(super) zipped: Option<Zipped>,
    /// Why it cannot be read, where the index tells already.
    pub(super) refused: Option<Error>,
}

/// What one index lists.
#[derive(Debug)]
pub(super) struct Listing {
    /// The folder of the index.
    pub(super) root: PathBuf,
    pub(super) shards: Vec<Listed>,
}

/// Where the samples of one shard lie.
#[derive(Debug)]
pub(super) enum Table {
    /// Where each begins, and where the last one ends: ascending, and inside the file.
    Offsets(Box<[u32]>),
    /// `count` samples of `bytes` each, from `start` on.
    Blocks { start: u64, bytes: u64, count: u64 },
    /// In what the file decodes to.
    Whole(Whole),
    /// In what parts of the file decode to.
    Frames(Frames),
    /// Nowhere, and why.
    Bad(Error),
}

/// The shards of a dataset; a shard's number is that of its file.
#[derive(Debug)]
pub(super) struct Shards {
    pub(super) files: FileTable,
    tables: Vec<Table>,
    /// Samples in the shards up to and with each.
    ends: Vec<u64>,
    /// Units in the shards up to and with each; empty where there is none.
    unit_ends: Vec<u32>,
    /// Bytes that the largest unit has when it is stored, and when it is decoded.
    largest_unit: (u64, u64),
    /// Name and size of what files decode to as a whole.
    raw: BTreeMap<FileId, (String, u64)>,
    /// Whether the length of every sample is known before anything is decoded, of shards that can be had.
    lengths_known: bool,
}

impl Shards {
    /// Opens all shards, in parallel, and has `read` make their tables; `read` gets the number of the listing as well.
    ///
    /// # Errors
    /// The first of the shards that cannot be had, unless `bad` says otherwise; `Corrupt` for a name that stands in an
    /// index twice or leads out of its folder; `Empty` where there is no sample.
    pub(super) fn open(
        listings: &[Listing],
        threads: usize,
        bad: BadShards,
        read: impl Fn(&OpenFile, &Listed, usize) -> Result<Table> + Sync,
    ) -> Result<Shards> {
        let mut files = FileTable::new();
        let mut all = Vec::new();
        for (number, listing) in listings.iter().enumerate() {
            check_names(listing)?;
            files.push_root(&listing.root);
            for listed in &listing.shards {
                check_count(listing, listed)?;
                let file = files.push(listed.name.as_bytes(), listed.bytes);
                all.push((number, listed, file.ok_or_else(|| too_many_files(&listing.root))?));
            }
        }
        files.shrink_to_fit();
        let tables = in_parallel(&all, thread_count(threads), |&(number, listed, file)| {
            if let Some(error) = &listed.refused {
                return Err(error.clone());
            }
            let open = OpenFile::open(files.path(file))?;
            open.check_size(listed.bytes)?;
            read(&open, listed, number)
        });
        let failed = tables.iter().filter(|table| table.is_err()).count();
        let mut shards = Shards::without_tables(files, all.len());
        let mut end = 0_u64;
        for (table, &(_, listed, file)) in tables.into_iter().zip(&all) {
            let table = match table {
                Err(error) if bad == BadShards::Refuse => return Err(of_many(error, failed, all.len())),
                table => table.unwrap_or_else(Table::Bad),
            };
            let count = match &table {
                Table::Blocks { count, .. } => *count,
                Table::Offsets(_) | Table::Whole(_) | Table::Frames(_) | Table::Bad(_) => listed.samples,
            };
            end = end.checked_add(count).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "more than 2^64 samples up to the shard")
                    .with_file(shards.files.path(file))
            })?;
            shards.push_units(&table, file)?;
            // A shard that cannot be had is still known by what its file decodes to.
            if let Some(zipped) = &listed.zipped {
                shards.raw.insert(file, (zipped.raw_name.clone(), zipped.raw_bytes));
            }
            shards.lengths_known &= listed.zipped.is_none() && !matches!(table, Table::Whole(_));
            shards.tables.push(table);
            shards.ends.push(end);
        }
        if shards.unit_ends.last() == Some(&0) {
            shards.unit_ends = Vec::new();
        }
        if end == 0 {
            let root = listings.first().map_or(Path::new("."), |listing| &listing.root);
            return Err(Error::new(ErrorKind::Empty, "there is no sample in the shards of").with_file(root));
        }
        Ok(shards)
    }

    fn without_tables(files: FileTable, count: usize) -> Shards {
        Shards {
            files,
            tables: Vec::with_capacity(count),
            ends: Vec::with_capacity(count),
            unit_ends: Vec::new(),
            largest_unit: (0, 0),
            raw: BTreeMap::new(),
            lengths_known: true,
        }
    }

    /// Counts the units of the next shard.
    fn push_units(&mut self, table: &Table, file: FileId) -> Result<()> {
        let count = table.units();
        for unit in 0..count {
            let (stored, decoded) = (self.stored_of(table, file, unit).len, table.decoded(unit));
            self.largest_unit = (self.largest_unit.0.max(stored), self.largest_unit.1.max(decoded));
        }
        let before = self.unit_ends.last().copied().unwrap_or(0);
        let end = u32::try_from(count).ok().and_then(|count| before.checked_add(count));
        self.unit_ends.push(end.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "more than 2^32 units up to the shard").with_file(self.files.path(file))
        })?);
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Where each shard ends, in samples.
    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// The shard of a sample, and the sample's number there.
    fn locate(&self, id: SampleId) -> (usize, u64) {
        super::locate(&self.ends, id.0)
    }

    /// Where a sample lies; `None` if its shard is bad.
    pub(super) fn span(&self, id: SampleId) -> Option<Span> {
        let (shard, number) = self.locate(id);
        // A table has 2^32 files at most.
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

    /// Why a sample without a span has none.
    pub(super) fn bad(&self, id: SampleId) -> Error {
        match &self.tables[self.locate(id).0] {
            Table::Bad(error) => error.clone(),
            Table::Offsets(_) | Table::Blocks { .. } | Table::Whole(_) | Table::Frames(_) => {
                Error::new(ErrorKind::Internal, format!("sample {} was parsed without its bytes", id.0))
            }
        }
    }

    /// The bytes of a sample, from what was read of its spans and units.
    pub(super) fn cut<'a>(&self, id: SampleId, raw: &'a [Bytes]) -> Result<Cow<'a, Bytes>> {
        let Some(bytes) = raw.first() else { return Err(self.bad(id)) };
        if self.unit_ends.is_empty() || self.is_read_by_span(id) {
            return Ok(Cow::Borrowed(bytes));
        }
        let place = |(_, range): (u64, Range<usize>)| bytes.get(range.clone()).map(|_| bytes.slice(range));
        match self.place(id, bytes).and_then(place) {
            Some(sample) => Ok(Cow::Owned(sample)),
            None => {
                let doing = format!("sample {} is not in the unit that it is cut from, of", id.0);
                Err(Error::new(ErrorKind::Internal, doing).with_file(self.path_of(id)))
            }
        }
    }

    /// Where a sample that is cut from a unit begins in what is decoded of its file, and where it lies in the unit.
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
        self.files.path(FileId(self.locate(id).0 as u32))
    }

    /// What is wrong with a sample, `at` bytes behind its beginning; `raw` is what it was made of.
    pub(super) fn corrupt(&self, id: SampleId, raw: &[Bytes], doing: String, at: u64) -> Error {
        let cut = raw.first().and_then(|unit| self.place(id, unit));
        let (doing, start) = match (self.span(id), cut) {
            (Some(span), _) => (doing.into(), Some(span.offset)),
            (None, Some((start, _))) => (file::decoded(doing.into()), Some(start)),
            (None, None) => (doing.into(), None),
        };
        let error = Error::new(ErrorKind::Corrupt, doing).with_file(self.path_of(id));
        match start {
            Some(start) => error.with_offset(start + at),
            None => error,
        }
    }

    /// Has `learn` look at the first sample, for what only a sample tells of all; where that cannot be had and `bad`
    /// allows it, at the first sample of the next shard.
    pub(super) fn learn(
        &self,
        bad: BadShards,
        mut learn: impl FnMut(&OpenFile<'_>, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut first_error = None;
        for shard in 0..self.tables.len() {
            let start = if shard == 0 { 0 } else { self.ends[shard - 1] };
            if start == self.ends[shard] || matches!(self.tables[shard], Table::Bad(_)) {
                continue;
            }
            match self.first_of(shard).and_then(|(file, range)| learn(&file, range)) {
                Ok(()) => return Ok(()),
                Err(error) if bad == BadShards::Refuse => return Err(error),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// What the first sample of a shard is read from, and where it lies in that.
    fn first_of(&self, shard: usize) -> Result<(OpenFile<'static>, Range<u64>)> {
        // A table has 2^32 files at most.
        let file = OpenFile::open(self.files.path(FileId(shard as u32)))?;
        match &self.tables[shard] {
            Table::Offsets(offsets) => Ok((file, offsets[0].into()..offsets[1].into())),
            Table::Blocks { start, bytes, .. } => Ok((file, *start..start + bytes)),
            Table::Whole(whole) => whole.first(file),
            Table::Frames(frames) => frames.first(file),
            Table::Bad(error) => Err(error.clone()),
        }
    }

    /// Whether some samples are cut from units.
    pub(super) fn has_units(&self) -> bool {
        !self.unit_ends.is_empty()
    }

    /// Bytes of a sample, where the index tells of all; of one whose shard cannot be had it does not.
    pub(super) fn sample_bytes(&self, id: SampleId) -> Option<u64> {
        if !self.lengths_known {
            return None;
        }
        let (shard, number) = self.locate(id);
        match &self.tables[shard] {
            Table::Frames(frames) => Some(frames.range(number)).map(|range| range.end - range.start),
            _ => self.span(id).map(|span| span.len),
        }
    }

    /// Whether the shard of that file can be had, as far as opening it told.
    pub(super) fn is_good(&self, file: FileId) -> bool {
        !matches!(self.tables[file.0 as usize], Table::Bad(_))
    }

    /// Why shards cannot be had, one for each of those.
    pub(super) fn faults(&self) -> Vec<Error> {
        let why = |table: &Table| match table {
            Table::Bad(error) => Some(error.clone()),
            _ => None,
        };
        self.tables.iter().filter_map(why).collect()
    }

    pub(super) fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (shard, number) = self.locate(id);
        let file = FileId(shard as u32);
        out.extend_from_slice(self.raw.get(&file).map_or(self.files.name(file), |(name, _)| name.as_bytes()));
        write!(out, "#{number}").expect("a Vec takes everything");
    }

    /// Bytes of all samples.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.iter().map(Table::bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of the `count` largest samples that are read by spans.
    pub(super) fn largest(&self, count: u64) -> u64 {
        if count >= self.len() && !self.has_units() {
            return self.bytes();
        }
        let mut largest = Largest::new(count);
        for table in &self.tables {
            match table {
                Table::Offsets(offsets) => {
                    offsets.windows(2).for_each(|pair| largest.add(u64::from(pair[1] - pair[0]), 1));
                }
                Table::Blocks { bytes, count, .. } => largest.add(*bytes, *count),
                Table::Whole(_) | Table::Frames(_) | Table::Bad(_) => {}
            }
        }
        largest.sum()
    }

    /// Names, sizes and numbers of samples of all shards; names and sizes of what they decode to, so that a state is
    /// good for the same shards without compression.
    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.number(self.files.len() as u64);
        for (index, &size) in self.files.sizes().iter().enumerate() {
            let file = FileId(index as u32);
            let (name, bytes) = match self.raw.get(&file) {
                Some((name, bytes)) => (name.as_bytes(), *bytes),
                None => (self.files.name(file), size),
            };
            fingerprint.bytes(name);
            fingerprint.number(bytes);
        }
        self.ends.iter().for_each(|&end| fingerprint.number(end));
    }
}

impl Table {
    /// Bytes of all samples, as far as the index tells.
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

/// Longest index, in bytes: some million shards. What is longer is no index.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Name of the file that lists shards, of MDS and of LitData.
const INDEX_NAME: &str = "index.json";

/// The index of each of `paths`: of a folder its `index.json`, of anything else the path itself. Patterns stand for
/// what they match.
pub(super) fn find_indexes<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>> {
    let mut places = Vec::new();
    for path in paths {
        expand(path.as_ref(), &mut places)?;
    }
    let mut indexes = Vec::new();
    for place in places {
        match place {
            Place::Named(path) => indexes.push(index_of(path)?),
            Place::Matched { root, names } => {
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

fn index_of(path: PathBuf) -> Result<PathBuf> {
    let metadata = std::fs::metadata(&path).map_err(|source| Error::io("cannot find", source).with_file(&path))?;
    if !metadata.is_dir() {
        return Ok(path);
    }
    let index = path.join(INDEX_NAME);
    if index.exists() {
        return Ok(index);
    }
    let error = Error::new(ErrorKind::NotFound, "there is no index.json in").with_file(&path);
    let mut parts: Vec<String> = std::fs::read_dir(&path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join(INDEX_NAME).exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    parts.sort_unstable();
    parts.truncate(PARTS_NAMED);
    Err(match parts.is_empty() {
        true => error.with_remedy("name the folder that has it"),
        false => error.with_remedy(format!("name the folders that have one: {}", parts.join(", "))),
    })
}

/// Folders that a message names.
const PARTS_NAMED: usize = 5;

/// Reads an index: JSON of the shape `T`.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let metadata = std::fs::metadata(path).map_err(|source| Error::io("cannot find", source).with_file(path))?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::WrongFileType, "an index is no regular file:").with_file(path));
    }
    if metadata.len() > INDEX_BYTES_MAX {
        let doing = format!("an index of {} bytes, of which {INDEX_BYTES_MAX} are allowed:", metadata.len());
        return Err(Error::new(ErrorKind::Corrupt, doing).with_file(path));
    }
    let text = std::fs::read(path).map_err(|source| Error::io("cannot read", source).with_file(path))?;
    serde_json::from_slice(&text).map_err(|source| {
        Error::new(ErrorKind::Corrupt, "no index of this format:").with_file(path).with_source(source)
    })
}

/// Whether a path is a folder with an `index.json`, or such a file, that is JSON of the shape `T`, or a pattern of
/// them.
pub(super) fn has_index<T: serde::de::DeserializeOwned>(path: &Path) -> bool {
    stands_for(path, |path| {
        let index = if path.is_dir() { path.join(INDEX_NAME) } else { path.to_path_buf() };
        index.extension().is_some_and(|extension| extension == "json") && read_json::<T>(&index).is_ok()
    })
}

/// Whether everything that a path or a pattern stands for is of a kind.
pub(super) fn stands_for(path: &Path, is_one: impl Fn(&Path) -> bool) -> bool {
    let mut places = Vec::new();
    expand(path, &mut places).is_ok()
        && places.iter().all(|place| match place {
            Place::Named(path) => is_one(path),
            Place::Matched { root, names } => names.iter().all(|name| is_one(&root.join(name))),
        })
}

/// The folder that an index lies in.
pub(super) fn folder_of(index: &Path) -> PathBuf {
    match index.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Names must stay in their folder, and each may stand in an index once: else a sample would come twice.
fn check_names(listing: &Listing) -> Result<()> {
    let mut seen = HashSet::with_capacity(listing.shards.len());
    for listed in &listing.shards {
        let raw = listed.zipped.as_ref().map(|zipped| &zipped.raw_name);
        for name in raw.into_iter().chain([&listed.name]) {
            let path = Path::new(name);
            let stays = path.components().all(|component| matches!(component, Component::Normal(_)));
            if name.is_empty() || name.contains('\0') || !stays {
                let doing = format!("the index names a shard {name:?} that is not below the folder");
                return Err(Error::new(ErrorKind::Corrupt, doing).with_file(&listing.root));
            }
            if !seen.insert(path) {
                let doing = format!("the index names the shard {name:?} twice, in the folder");
                return Err(Error::new(ErrorKind::Corrupt, doing).with_file(&listing.root));
            }
        }
    }
    Ok(())
}

/// Offsets of 32 bits bound a shard, whatever an index says of it. Else one that is not there could have samples for
/// years.
fn check_count(listing: &Listing, listed: &Listed) -> Result<()> {
    if listed.samples > u64::from(u32::MAX) {
        let doing = format!("the index says {} samples, more than a shard can have, of", listed.samples);
        return Err(Error::new(ErrorKind::Corrupt, doing).with_file(listing.root.join(&listed.name)));
    }
    Ok(())
}

/// An error that is not the only one says so.
fn of_many(error: Error, failed: usize, all: usize) -> Error {
    if failed == 1 {
        return error;
    }
    let remedy = error.remedy().unwrap_or("restore the shards").to_owned();
    error.with_remedy(format!("{remedy}; {failed} of {all} shards cannot be had, this is the first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_many() {
        let sizes = [3_u64, 9, 1, 9, 4, 7];
        for count in 0..8 {
            let mut largest = Largest::new(count);
            sizes.iter().for_each(|&size| largest.add(size, 1));
            largest.add(5, u64::MAX);
            let mut all: Vec<u64> = sizes.iter().copied().chain(std::iter::repeat_n(5, 8)).collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(largest.sum(), all.iter().take(count as usize).sum::<u64>(), "{count}");
        }
    }
}
