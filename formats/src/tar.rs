//! WebDataset: tar archives whose neighbouring members of one name are a sample.

mod dali;
mod faults;
mod header;
mod index;
mod keys;
mod packed;
mod scan;
mod units;

use crate::fingerprint::Fingerprint;
use crate::indexes::{Indexed, Notes, SCAN_THREADS, Wanted, index_all, is_index};
use crate::paths::{Index, index, thread_count};
use crate::sidecar::{Places, Sidecar};
use crate::sizes::sum_of_runs;
use crate::skipped::Skips;
use crate::{
    DType, Dataset, Field, FileId, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, UnitId, Units, Value,
};
use bytes::Bytes;
use index::Archives;
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use units::Packed;
use uringload_core::{Error, ErrorKind, Fallback, Part, Result};

pub use crate::indexes::{IndexProgress as TarProgress, IndexReport as TarReport};
pub use keys::split as split_name;

/// What becomes of a sample that lacks a field which others have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It cannot be had: its error says which field it lacks, and the loader's `on_error` decides.
    #[default]
    Error,
    /// The field is empty there.
    Empty,
}

/// What becomes of a shard that is cut short or broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damaged {
    /// The dataset cannot be opened.
    #[default]
    Error,
    /// The samples that lie whole in front of the damage are there; the shard is counted in [`Tar::skipped`] and its
    /// error is in [`Tar::damaged`].
    Keep,
}

/// How a [`Tar`] is opened.
#[derive(Clone, Debug, Default)]
pub struct TarOptions {
    /// The fields that are wanted, in this order; `None`: all that a sample has, in the order in which they first come.
    pub fields: Option<Vec<String>>,
    /// What becomes of a sample that lacks one of them.
    pub missing: Missing,
    /// What becomes of a shard that is cut short or broken.
    pub damaged: Damaged,
    /// A folder for the indexes of shards whose own folder takes none.
    pub cache: Option<PathBuf>,
    /// Whether indexes stay in memory instead of being written as `SHARD.uidx`; those that lie there are used.
    pub no_sidecars: bool,
    /// Whether shards are looked through even where an index lies there.
    pub rebuild: bool,
    /// Threads that look through shards; 0 chooses by the machine.
    pub threads: usize,
    /// Which of the shards, in their order: for jobs that make indexes together. The dataset has no others.
    pub part: Part,
}

/// Shards of samples in tar archives, as webdataset has them.
///
/// # What is a sample
/// Neighbouring regular members whose names are alike up to the first dot of their last component: that is the key, and
/// what stands behind the dot, in lower case, is the field. `n01/0001.jpg` and `n01/0001.cls` are the sample `n01/0001`
/// with the fields `jpg` and `cls`. A field that comes twice in a sample is an error. The same key elsewhere is another
/// sample. Each field is a column of bytes.
///
/// Left out, and counted in [`skipped`](Tar::skipped): members that are no regular files, names without a dot or with
/// one in front, and `__anything__` at the beginning of a name, as webdataset does. (It takes `a/.b.jpg` for a sample
/// `a/`; here it is left out, as in DALI.)
///
/// # Which archives
/// POSIX ustar and PAX, GNU and old ones; sizes from 8 GiB on; several archives one behind the other in a file, of
/// which webdataset reads the first only; archives without their end, which are counted. Members with holes are
/// `Unavailable`.
///
/// # Compressed archives
/// Those of gzip (several members are one), zstd (several frames are one; windows up to 128 MiB) and bzip2, told by
/// their first bytes and not by their names; others are `Unavailable`. Plain and compressed ones may lie side by side.
/// No sample of a compressed archive can be read by itself: the archive is a unit (see [`Units`](super::Units)), read
/// and decoded as a whole, so that each that is in use takes memory for all it decodes to, 1 GB where the archive in it
/// has 1 GB. Orders that stay within shards for a while read it once for many samples; any other order reads it again
/// and again. What is to be read in any order is better off as plain archives, as `uringload pack` writes them.
///
/// Looking through one for its index decodes all of it. Where that fails, no sample of it can be had, also with
/// [`Damaged::Keep`]. Offsets in errors are those of what it decodes to.
///
/// # The index
/// Opening looks through the headers of each shard once, in parallel, and puts what it finds into `SHARD.uidx` beside
/// it. It is used as long as name, size and time of the shard's change are the same. DALI's `SHARD.idx` is taken over
/// where it fits its archive. What could not be done so is told by [`fallbacks`](Tar::fallbacks).
#[derive(Debug)]
pub struct Tar {
    files: FileTable,
    shards: Vec<Shard>,
    /// Samples in the shards up to and with each.
    ends: Vec<u64>,
    schema: Schema,
    missing: Missing,
    bytes: u64,
    /// Of the samples that are read by their spans.
    span_samples: u64,
    span_bytes: u64,
    packed: Packed,
    fingerprint: u64,
    skipped: Vec<Skipped>,
    report: TarReport,
    fallbacks: Vec<Fallback>,
    damaged: Vec<Error>,
    cache: Option<PathBuf>,
}

#[derive(Debug)]
struct Shard {
    sidecar: Sidecar,
    /// The field that each column of the sidecar is, or none.
    fields: Vec<Option<u32>>,
    /// Of a shard that is compressed and has samples.
    unit: Option<UnitId>,
}

impl Tar {
    /// Opens folders, files and patterns. Of folders and patterns those files are shards whose names end in `.tar`,
    /// `.tar.gz`, `.tgz`, `.tar.zst`, `.tzst`, `.tar.bz2` or `.tbz2` (or as those of xz and lz4 do, which are refused);
    /// a file that is named by itself is one whatever its name.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open) for what cannot be found. `Corrupt` and `Truncated` for an archive that
    /// is broken, with file, offset and member; `Unavailable` for one that is compressed in a way that is not undone
    /// here, or has members with holes;
    /// `InvalidArgument` for fields that no sample has; `Empty` if there is no sample.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &TarOptions) -> Result<Tar> {
        Tar::open_with_progress(paths, options, &|_| {})
    }

    /// Opens folders, files and patterns, and tells `progress` how far it has come, from several threads.
    ///
    /// # Errors
    /// As [`Tar::open`].
    pub fn open_with_progress<P: AsRef<Path>>(
        paths: &[P],
        options: &TarOptions,
        progress: &(dyn Fn(TarProgress) + Sync),
    ) -> Result<Tar> {
        let index = index(paths, thread_count(options.threads))?;
        let nothing = "no file has a name that ends in .tar in";
        let Index { files, skips, .. } =
            index.only_shards(paths, is_shard, is_companion, nothing)?.only_part(options.part)?;
        let wanted = Wanted {
            places: Places { cache: options.cache.clone() },
            no_sidecars: options.no_sidecars,
            rebuild: options.rebuild,
            damaged: options.damaged,
            threads: if options.threads == 0 { SCAN_THREADS } else { options.threads },
        };
        let indexed = index_all(&files, &wanted, progress, &Archives)?;
        Tar::new(files, skips, indexed, options)
    }

    /// Whether a folder of these files is one of shards: all have names of archives, compressed or not, or of their
    /// indexes.
    pub fn is_made_of(files: &FileTable) -> bool {
        // Fits: a table has fewer than 2^32 files.
        let mut names = (0..files.len() as u32).map(|file| files.name(FileId(file)));
        names.clone().any(is_shard) && names.all(|name| is_shard(name) || is_companion(name))
    }

    fn new(files: FileTable, mut skips: Skips, indexed: Vec<Indexed>, options: &TarOptions) -> Result<Tar> {
        let notes = Notes::of(&files, &indexed, &mut skips);
        let names = match &options.fields {
            Some(fields) => wanted(fields, &indexed)?,
            None => all_fields(&indexed),
        };
        let mut fingerprint = Fingerprint::new("tar");
        fingerprint.number(names.len() as u64);
        names.iter().for_each(|name| fingerprint.bytes(name.as_bytes()));
        fingerprint.files(&files);
        let (mut shards, mut ends, mut end, mut bytes) = (Vec::new(), Vec::new(), 0_u64, 0_u64);
        let (mut span_samples, mut span_bytes, mut packed) = (0_u64, 0_u64, Packed::default());
        for (file, indexed) in indexed.into_iter().enumerate() {
            let sidecar = indexed.sidecar;
            fingerprint.number(sidecar.content());
            let field = |name: &str| names.iter().position(|wanted| wanted == name).map(|field| field as u32);
            let fields: Vec<Option<u32>> = sidecar.columns().iter().map(|column| field(&column.name)).collect();
            let wanted = sidecar.columns().iter().zip(&fields).filter(|(_, field)| field.is_some());
            let shard_bytes = wanted.fold(0, |sum, (column, _)| u64::saturating_add(sum, column.bytes));
            bytes = bytes.saturating_add(shard_bytes);
            // Fits: a table has fewer than 2^32 files.
            let file = FileId(file as u32);
            end = end.checked_add(sidecar.len()).ok_or_else(|| {
                let error = Error::new(ErrorKind::InvalidArgument, "more than 2^64 samples up to");
                error.with_file(files.path(file))
            })?;
            ends.push(end);
            let unit = packed.add(&sidecar, file, files.size(file));
            if unit.is_none() {
                span_samples += sidecar.len();
                span_bytes = span_bytes.saturating_add(shard_bytes);
            }
            shards.push(Shard { sidecar, fields, unit });
        }
        if end == 0 {
            return Err(notes.nothing(&files, &skips, "no archive has a sample in"));
        }
        let field = |name| Field { name, dtype: DType::U8, shape: Shape::Ragged };
        Ok(Tar {
            files,
            shards,
            ends,
            schema: Schema { fields: names.into_iter().map(field).collect() },
            missing: options.missing,
            bytes,
            span_samples,
            span_bytes,
            packed,
            fingerprint: fingerprint.finish(),
            skipped: skips.into_vec(),
            report: notes.report,
            fallbacks: notes.fallbacks,
            damaged: notes.damaged,
            cache: options.cache.clone(),
        })
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// How the indexes of the shards were come by.
    pub fn report(&self) -> &TarReport {
        &self.report
    }

    /// What went otherwise than wished: indexes that could not be written beside their shards, or not be believed.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Why shards cannot be read to their end, where [`Damaged::Keep`] was asked for.
    pub fn damaged(&self) -> &[Error] {
        &self.damaged
    }

    /// Number of samples that lack a field (an index into the schema).
    pub fn lacking(&self, field: usize) -> u64 {
        let lacking = |shard: &Shard| match shard.fields.iter().position(|&known| known == Some(field as u32)) {
            Some(column) => shard.sidecar.columns()[column].missing,
            None => shard.sidecar.len(),
        };
        self.shards.iter().map(lacking).sum()
    }

    /// The shard that a sample lies in, and its number there, from 0.
    pub fn locate(&self, id: SampleId) -> (FileId, u64) {
        let (file, number) = super::locate(&self.ends, id.0);
        (FileId(file as u32), number)
    }

    /// Calls `each` with field, offset and length of what the sample has of the wanted fields; false where the index is
    /// damaged.
    fn each_field(&self, id: SampleId, mut each: impl FnMut(usize, u64, u64)) -> bool {
        let (file, number) = self.locate(id);
        let shard = &self.shards[file.0 as usize];
        shard.sidecar.sample(number, |column, offset, len| {
            if let Some(field) = shard.fields[column] {
                each(field as usize, offset, len);
            }
        })
    }

    /// The error of a sample that lacks a field.
    fn lack(&self, id: SampleId) -> Error {
        let (mut has, mut place) = (vec![false; self.schema.fields.len()], None);
        self.each_field(id, |field, offset, _| {
            has[field] = true;
            place = place.or(Some(offset));
        });
        let lacks: Vec<&str> =
            self.schema.fields.iter().zip(has).filter(|(_, has)| !has).map(|(field, _)| &*field.name).collect();
        let mut key = Vec::new();
        self.key(id, &mut key);
        let doing = format!("the sample {:?} has no field {:?} in", String::from_utf8_lossy(&key), lacks.join(", "));
        let error = Error::new(ErrorKind::Corrupt, doing)
            .with_file(self.files.path(self.locate(id).0))
            .with_remedy("ask for fields that all samples have, or take what is missing as empty");
        place.map_or(error.clone(), |place| error.with_offset(place))
    }
}

impl Dataset for Tar {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn format(&self) -> &'static str {
        "tar"
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// None of a sample of a compressed shard. Else one span for all fields that lie close together, as those of a
    /// sample do: headers between them are read along. A sample without a byte has an empty span, and so has one whose
    /// place in the index is damaged: `parse` says so.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let start = out.len();
        let file = self.locate(id).0;
        if self.shards[file.0 as usize].unit.is_some() {
            return;
        }
        let mut run = Run::default();
        let is_whole = self.each_field(id, |_, offset, len| match run.add(offset, len) {
            Some(0) => out.push(Span { file, offset, len }),
            Some(_) => {
                if let Some(last) = out.last_mut() {
                    last.len = run.end - run.start;
                }
            }
            None => {}
        });
        if !is_whole || out.len() == start {
            out.truncate(start);
            out.push(Span { file, offset: 0, len: 0 });
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let fields = self.schema.fields.len();
        out.values.resize(fields, Value::Bytes(Bytes::new()));
        let file = self.locate(id).0;
        let is_packed = self.shards[file.0 as usize].unit.is_some();
        let (mut run, mut spans, mut found, mut short) = (Run::default(), 0, 0, false);
        let is_whole = self.each_field(id, |field, offset, len| {
            found += 1;
            let (read, at) = match is_packed {
                // All of the unit is there.
                true => (raw.first(), offset),
                false => {
                    let Some(at) = run.add(offset, len) else { return };
                    spans += usize::from(at == 0);
                    (raw.get(spans - 1), at)
                }
            };
            let value = match read {
                // Of a single field a part may have been read: the value is what was read.
                Some(bytes) if fields == 1 && !is_packed => Some(bytes.clone()),
                // Fits: it lies within what was read.
                Some(bytes) if at + len <= bytes.len() as u64 => Some(bytes.slice(at as usize..(at + len) as usize)),
                _ => None,
            };
            short |= value.is_none();
            out.values[field] = Value::Bytes(value.unwrap_or_default());
        });
        if !is_whole || short {
            return Err(self.shards[file.0 as usize].sidecar.damage(&self.files.path(file)));
        }
        if found < fields && self.missing == Missing::Error {
            return Err(self.lack(id));
        }
        Ok(())
    }

    /// webdataset's `__key__`.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, number) = self.locate(id);
        if !self.shards[file.0 as usize].sidecar.key(number, out) {
            out.extend_from_slice(self.files.name(file));
            write!(out, "#{number}").expect("a Vec takes everything");
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sum over the fields of their longest values, and of what is read between them. Of each shard's column the
    /// longest value, the 2nd, 4th, 8th and so on are known, and those between are taken to be as long as the next
    /// longer of these.
    fn largest(&self, count: u64) -> u64 {
        let mut sum = 0_u64;
        for field in 0..self.schema.fields.len() as u32 {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for shard in self.shards.iter().filter(|shard| shard.unit.is_none()) {
                let Some(column) = shard.fields.iter().position(|&known| known == Some(field)) else { continue };
                runs.extend(shard.sidecar.columns()[column].runs(shard.sidecar.len()));
            }
            sum = sum.saturating_add(sum_of_runs(runs, count));
        }
        let between = (self.schema.fields.len() as u64 - 1).saturating_mul(BETWEEN_BYTES);
        sum.min(self.span_bytes).saturating_add(count.min(self.span_samples).saturating_mul(between))
    }

    /// FNV-1a over "tar", the fields, the names and sizes of all shards, and the hash of each one's samples.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let mut found = 0;
        self.each_field(id, |known, _, len| {
            if known == field {
                found = len
            }
        })
        .then_some(found)
    }

    fn has_field(&self, id: SampleId, field: usize) -> bool {
        let mut has = false;
        let is_whole = self.each_field(id, |known, _, _| has |= known == field);
        // Where the index is damaged nobody knows, and `parse` says so.
        has || !is_whole
    }

    fn plain_field(&self) -> Option<usize> {
        (self.schema.fields.len() == 1 && self.units().is_none()).then_some(0)
    }

    fn units(&self) -> Option<&dyn Units> {
        (!self.packed.is_empty()).then_some(self)
    }

    /// What is damaged of archives, those that do not end as archives do, and indexes that are not those of their
    /// archives: all archives are looked through again, whatever their indexes say.
    fn faults(&self) -> Vec<Error> {
        faults::faults(&self.files, self.shards.iter().map(|shard| &shard.sidecar), self.cache.as_ref())
    }

    /// Every archive is a shard.
    fn shards(&self) -> &[u64] {
        &self.ends
    }
}

/// Two values of a sample that lie no further apart are read as one: the header and the padding between them take less
/// than another read would. PAX headers as webdataset's writer makes them are 1536 bytes.
const NEAR_BYTES: u64 = 4096;

/// Memory that a sample takes at most for what lies between two of its values: what is read along, or what alignment
/// adds to two reads.
const BETWEEN_BYTES: u64 = 2 * NEAR_BYTES;

/// Values that are read as one.
#[derive(Debug, Default)]
struct Run {
    start: u64,
    end: u64,
}

impl Run {
    /// Adds a value; returns where it begins in its run, 0 being a new one. An empty value needs no place.
    fn add(&mut self, offset: u64, len: u64) -> Option<u64> {
        if len == 0 {
            return None;
        }
        let is_near = self.end > 0 && offset >= self.end && offset - self.end <= NEAR_BYTES;
        if !is_near {
            self.start = offset;
        }
        self.end = offset + len;
        Some(offset - self.start)
    }
}

/// The file in which a packer notes what the shards beside it are made of.
pub const MANIFEST_NAME: &str = "pack.json";

/// Endings of archives. Those of xz and lz4 are there to be refused by what they are.
const ENDINGS: [&str; 10] =
    [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.lz4"];

fn is_shard(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

/// Whether nothing in the name says that the archive is compressed.
fn is_plain(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("tar"))
}

/// Whether a name is that of an index, or of what a packer notes beside its shards.
fn is_companion(name: &[u8]) -> bool {
    is_index(name) || name.rsplit(|&byte| byte == b'/').next() == Some(MANIFEST_NAME.as_bytes())
}

/// The fields of all shards, in the order in which they first come.
fn all_fields(indexed: &[Indexed]) -> Vec<String> {
    let mut seen = HashSet::new();
    let columns = indexed.iter().flat_map(|indexed| indexed.sidecar.columns());
    columns.filter(|column| seen.insert(&*column.name)).map(|column| column.name.clone()).collect()
}

/// The fields that were asked for, each of which some sample has.
fn wanted(fields: &[String], indexed: &[Indexed]) -> Result<Vec<String>> {
    let there = all_fields(indexed);
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for field in fields {
        // Fields are lower case in samples.
        let name = field.to_lowercase();
        if !there.contains(&name) {
            let doing = format!("no sample has a field {field:?}");
            return Err(
                Error::new(ErrorKind::InvalidArgument, doing).with_remedy(format!("there are: {}", there.join(", ")))
            );
        }
        if names.contains(&name) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the field {field:?} is asked for twice")));
        }
        names.push(name);
    }
    if names.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, "a sample without a field is asked for")
            .with_remedy(format!("there are: {}", there.join(", "))));
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
