//! What formats of shards share whose heads are tables of offsets: finding their index, opening all shards at once,
//! checking the tables, and telling where a sample lies. 4 bytes of memory a sample, and some hundred a shard.

use super::fingerprint::Fingerprint;
use super::headers::Source;
use super::parallel::in_parallel;
use super::paths::thread_count;
use super::patterns::{Place, expand};
use super::sizes::Largest;
use super::{FileId, FileTable, SampleId, Span, too_many_files};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

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
    /// Hashes of the file: algorithm and hexadecimal digits.
    pub(super) hashes: Vec<(String, String)>,
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
        read: impl Fn(&Source, &Listed, usize) -> Result<Table> + Sync,
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
            let open = open_shard(files.path(file))?;
            check_size(&open, listed.bytes)?;
            read(&open, listed, number)
        });
        let failed = tables.iter().filter(|table| table.is_err()).count();
        let mut shards = Shards { tables: Vec::with_capacity(all.len()), ends: Vec::with_capacity(all.len()), files };
        let mut end = 0_u64;
        for (table, &(_, listed, file)) in tables.into_iter().zip(&all) {
            let table = match table {
                Err(error) if bad == BadShards::Refuse => return Err(of_many(error, failed, all.len())),
                table => table.unwrap_or_else(Table::Bad),
            };
            let count = match &table {
                Table::Blocks { count, .. } => *count,
                Table::Offsets(_) | Table::Bad(_) => listed.samples,
            };
            end = end.checked_add(count).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "more than 2^64 samples up to the shard")
                    .with_file(shards.files.path(file))
            })?;
            shards.tables.push(table);
            shards.ends.push(end);
        }
        if end == 0 {
            let root = listings.first().map_or(Path::new("."), |listing| &listing.root);
            return Err(Error::new(ErrorKind::Empty, "there is no sample in the shards of").with_file(root));
        }
        Ok(shards)
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
        // Shards without a sample end where they begin, so that the search passes over them.
        let shard = self.ends.partition_point(|&end| end <= id.0);
        let start = if shard == 0 { 0 } else { self.ends[shard - 1] };
        (shard, id.0 - start)
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
            Table::Bad(_) => None,
        }
    }

    /// Why a sample without a span has none.
    pub(super) fn bad(&self, id: SampleId) -> Error {
        match &self.tables[self.locate(id).0] {
            Table::Bad(error) => error.clone(),
            Table::Offsets(_) | Table::Blocks { .. } => {
                Error::new(ErrorKind::Internal, format!("sample {} was parsed without its bytes", id.0))
            }
        }
    }

    /// What is wrong with a sample, `at` bytes behind its beginning.
    pub(super) fn corrupt(&self, id: SampleId, doing: String, at: u64) -> Error {
        let error = Error::new(ErrorKind::Corrupt, doing);
        match self.span(id) {
            Some(span) => error.with_file(self.files.path(span.file)).with_offset(span.offset + at),
            None => error,
        }
    }

    /// The first sample whose shard is good and whose bytes are some, for what only a sample tells of all.
    pub(super) fn first(&self) -> Option<Span> {
        let of = |shard: usize| {
            let start = if shard == 0 { 0 } else { self.ends[shard - 1] };
            (start < self.ends[shard]).then(|| self.span(SampleId(start)))?
        };
        (0..self.tables.len()).find_map(of)
    }

    /// Whether the shard of that file can be had.
    pub(super) fn is_good(&self, file: FileId) -> bool {
        !matches!(self.tables[file.0 as usize], Table::Bad(_))
    }

    /// Why shards cannot be had, one for each of those.
    pub(super) fn faults(&self) -> Vec<Error> {
        let why = |table: &Table| match table {
            Table::Bad(error) => Some(error.clone()),
            Table::Offsets(_) | Table::Blocks { .. } => None,
        };
        self.tables.iter().filter_map(why).collect()
    }

    pub(super) fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (shard, number) = self.locate(id);
        out.extend_from_slice(self.files.name(FileId(shard as u32)));
        write!(out, "#{number}").expect("a Vec takes everything");
    }

    /// Bytes of all samples.
    pub(super) fn bytes(&self) -> u64 {
        let of = |table: &Table| match table {
            Table::Offsets(offsets) => u64::from(offsets[offsets.len() - 1] - offsets[0]),
            Table::Blocks { bytes, count, .. } => bytes * count,
            Table::Bad(_) => 0,
        };
        self.tables.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Bytes of the `count` largest samples.
    pub(super) fn largest(&self, count: u64) -> u64 {
        if count >= self.len() {
            return self.bytes();
        }
        let mut largest = Largest::new(count);
        for table in &self.tables {
            match table {
                Table::Offsets(offsets) => {
                    offsets.windows(2).for_each(|pair| largest.add(u64::from(pair[1] - pair[0]), 1));
                }
                Table::Blocks { bytes, count, .. } => largest.add(*bytes, *count),
                Table::Bad(_) => {}
            }
        }
        largest.sum()
    }

    /// Names, sizes and numbers of samples of all shards.
    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.files(&self.files);
        self.ends.iter().for_each(|&end| fingerprint.number(end));
    }
}

/// Opens a shard that an index lists.
pub(super) fn open_shard(path: PathBuf) -> Result<Source> {
    Source::open_path(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => error.with_remedy("bring the shard back, or make the index anew"),
        _ => error,
    })
}

/// Whether a shard is as long as its index says.
fn check_size(file: &Source, listed: u64) -> Result<()> {
    let size = file.size();
    if size == listed {
        return Ok(());
    }
    let kind = if size < listed { ErrorKind::Truncated } else { ErrorKind::Corrupt };
    let doing = format!("the index says {listed} bytes, and there are {size} in");
    let remedy = "copy the shard again, or make the index anew";
    Err(Error::new(kind, doing).with_file(file.path()).with_offset(size.min(listed)).with_remedy(remedy))
}

/// Reads `u32 N; u32 offsets[N + 1]`, little endian, from the file's beginning. The offsets ascend, begin behind the
/// table and end inside the file; N is `samples`.
pub(super) fn read_offsets(file: &Source, samples: u64) -> Result<Box<[u32]>> {
    let mut head = [0; 4];
    file.read(0, &mut head, "the number of samples")?;
    let count = u64::from(u32::from_le_bytes(head));
    if count != samples {
        return Err(file.corrupt(0, format!("the index says {samples} samples, and the head {count}, of")));
    }
    let table_end = OFFSETS_AT + 4 * (count + 1);
    if table_end > file.size() {
        let doing = format!("a table of {count} samples does not fit into the {} bytes of", file.size());
        return Err(Error::new(ErrorKind::Truncated, doing).with_file(file.path()).with_offset(file.size()));
    }
    // Not more than the file, which has the table.
    let mut offsets = Vec::with_capacity((count + 1) as usize);
    let mut piece = vec![0; PIECE_BYTES.min((table_end - OFFSETS_AT) as usize)];
    let mut at = OFFSETS_AT;
    let mut least = table_end;
    while at < table_end {
        let len = piece.len().min((table_end - at) as usize);
        file.read(at, &mut piece[..len], "the table of offsets")?;
        for bytes in piece[..len].chunks_exact(4) {
            let offset = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let place = OFFSETS_AT + 4 * offsets.len() as u64;
            if u64::from(offset) < least {
                let doing = format!("sample {} begins at {offset}, before {least}, in", offsets.len());
                return Err(file.corrupt(place, doing));
            }
            if u64::from(offset) > file.size() {
                let doing = format!("offset {offset} lies behind the end ({} bytes) of", file.size());
                return Err(file.corrupt(place, doing));
            }
            least = offset.into();
            offsets.push(offset);
        }
        at += len as u64;
    }
    Ok(offsets.into_boxed_slice())
}

/// Where the table of offsets begins.
const OFFSETS_AT: u64 = 4;

/// Bytes of a table that are read at once: a multiple of 4.
const PIECE_BYTES: usize = 256 << 10;

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
    for Listed { name, .. } in &listing.shards {
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
