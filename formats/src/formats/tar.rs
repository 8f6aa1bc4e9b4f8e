//! WebDataset: tar archives whose neighbouring members of one name are a sample.

mod classes;
mod faults;
mod header;
mod holes;
mod index;
mod keys;
mod packed;
mod scan;
mod units;

use crate::dataset::sizes::sum_of_runs;
use crate::dataset::{
    DType, Dataset, Encoding, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, Skips,
    Span, UnitId, Units, Value,
};
use crate::find::names::{MANIFEST_NAME, ends_like};
use crate::find::paths::FoundFiles;
use crate::format::{Format, Paths, Shows};
use crate::index::indexes::{Indexed, Notes, Wanted, ends, index_all, is_index, scan_threads};
use crate::index::sidecar::{Places, Sidecar};
use crate::options::{FormatOptions, Missing, options};
use bytes::Bytes;
use header::{BLOCK_BYTES, Block, Header};
use index::Archives;
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of tar.
    pub struct TarOptions {
        /// Fields of a sample to read, in this order; all by default.
        fields: Vec<String>,
        /// What happens to a sample that lacks a field: "error" or "empty".
        missing: Missing,
        /// Folder for the indexes of files whose own folder is not writable.
        index_cache: Option<PathBuf>,
        /// Write the index of each file that was scanned, FILE.uidx, beside it.
        write_index: bool = true,
        /// Read the whole samples of files that are cut short or broken, instead of failing.
        keep_damaged: bool,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "tar",
    help: "Tar archives as webdataset has them, compressed or not: neighbours of one name are a sample.",
    options: TarOptions::SPECS,
    has_sidecars: true,
    // The scan says what is wrong with an archive, and where.
    shows: Shows::Names { called: is_shard, begins: |_| true },
    open: |paths, options| classes::labelled(Tar::open(paths, &options.typed()?)?),
};

/// Shards of samples in tar archives, as webdataset has them. A compressed archive is a unit.
#[derive(Debug)]
pub struct Tar {
    /// Every archive is a shard.
    index: Index,
    shards: Vec<Shard>,
    missing: Missing,
    /// Of the samples that are read by their spans.
    span_samples: u64,
    span_bytes: u64,
    /// The file of each unit.
    packed: Vec<FileId>,
    fingerprint: u64,
    places: Places,
}

#[derive(Debug)]
struct Shard {
    sidecar: Sidecar,
    /// The field that each column of the sidecar is, if any.
    fields: Vec<Option<usize>>,
    /// Of a shard that is compressed and has samples.
    unit: Option<UnitId>,
}

impl Tar {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &TarOptions) -> Result<Tar> {
        let common = &options.common;
        let index = paths.files(common.threads)?;
        let nothing = "no file has a name that ends in .tar";
        let FoundFiles { files, skips, .. } =
            index.only_shards(&paths, is_shard, is_companion, nothing)?.only_part(common.part)?;
        let places = Places::new(options.index_cache.clone())?;
        let (keep_damaged, threads) = (options.keep_damaged, scan_threads(common));
        let write_index = options.write_index;
        let wanted = Wanted { common, places, keep_damaged, write_index, threads };
        let indexed = index_all(&files, &wanted, &Archives)?;
        Tar::new(files, skips, indexed, wanted.places, options)
    }

    fn new(files: FileTable, skips: Skips, indexed: Vec<Indexed>, places: Places, options: &TarOptions) -> Result<Tar> {
        let notes = Notes::of(&files, &indexed, skips);
        let names = wanted(&options.fields, &indexed)?;
        let ends = ends(&files, indexed.iter().map(|indexed| indexed.sidecar.len()))?;
        let samples = ends.last().copied().unwrap_or(0);
        if samples == 0 {
            return Err(notes.nothing(&files, "no archive has a sample"));
        }
        let mut fingerprint = Fingerprint::new("tar");
        fingerprint.number(names.len() as u64);
        names.iter().for_each(|name| fingerprint.bytes(name.as_bytes()));
        fingerprint.files(&files);
        let (mut shards, mut bytes, mut lacking) = (Vec::new(), 0_u64, vec![0; names.len()]);
        let (mut span_samples, mut span_bytes, mut packed) = (0_u64, 0_u64, Vec::new());
        for (file, Indexed { sidecar, .. }) in indexed.into_iter().enumerate() {
            fingerprint.number(sidecar.content());
            let place = |name: &str| names.iter().position(|wanted| wanted == name);
            let fields: Vec<Option<usize>> = sidecar.columns().iter().map(|column| place(&column.name)).collect();
            let (mut shard_bytes, mut lacks) = (0, vec![sidecar.len(); names.len()]);
            for (column, field) in sidecar.columns().iter().zip(&fields) {
                let Some(field) = *field else { continue };
                shard_bytes = u64::saturating_add(shard_bytes, column.bytes);
                lacks[field] = column.missing;
            }
            lacking.iter_mut().zip(lacks).for_each(|(sum, lacks)| *sum += lacks);
            bytes = bytes.saturating_add(shard_bytes);
            // Fits: a table has fewer than 2^32 files.
            let file = FileId(file as u32);
            // Fits: there are no more units than files.
            let unit = sidecar.decoded().filter(|_| sidecar.len() > 0).map(|_| UnitId(packed.len() as u32));
            if unit.is_some() {
                packed.push(file);
            } else {
                span_samples += sidecar.len();
                span_bytes = span_bytes.saturating_add(shard_bytes);
            }
            shards.push(Shard { sidecar, fields, unit });
        }
        let encodings = names.iter().map(|name| Encoding::of_extension(name)).collect();
        let field = |name| Field { name, dtype: DType::U8, shape: Shape::Ragged };
        let schema = Schema { fields: names.into_iter().map(field).collect() };
        let mut index = Index::new("tar", files, schema, samples);
        index.bytes = bytes;
        index.shards = ends;
        index.plain_field = (index.schema.fields.len() == 1 && packed.is_empty()).then_some(0);
        index.encodings = encodings;
        if lacking.iter().any(|&samples| samples > 0) {
            index.lacking = lacking;
        }
        notes.tell(&mut index);
        let (missing, fingerprint) = (options.missing, fingerprint.finish());
        Ok(Tar { index, shards, missing, span_samples, span_bytes, packed, fingerprint, places })
    }

    /// Calls `each` with field, offset and length of what the sample has of the wanted fields; false where the index is
    /// damaged.
    fn each_field(&self, id: SampleId, mut each: impl FnMut(usize, u64, u64)) -> bool {
        let (file, number) = self.index.locate(id);
        let shard = &self.shards[file.0 as usize];
        shard.sidecar.sample(number, |column, offset, len| {
            if let Some(field) = shard.fields[column] {
                each(field, offset, len);
            }
        })
    }

    /// The error of a sample that lacks a field.
    fn lack(&self, id: SampleId) -> Error {
        let (mut has, mut place) = (vec![false; self.schema().fields.len()], None);
        self.each_field(id, |field, offset, _| {
            has[field] = true;
            place = place.or(Some(offset));
        });
        let lacks: Vec<&str> =
            self.schema().fields.iter().zip(has).filter(|(_, has)| !has).map(|(field, _)| &*field.name).collect();
        let mut key = Vec::new();
        self.key(id, &mut key);
        let what = format!("sample {:?} has no field {:?}", String::from_utf8_lossy(&key), lacks.join(", "));
        let error = Error::new(ErrorKind::Corrupt, what)
            .with_path(self.files().path(self.index.locate(id).0))
            .with_remedy("choose fields that all samples have, or take missing fields as empty");
        place.map_or(error.clone(), |place| error.with_offset(place))
    }
}

impl Dataset for Tar {
    fn index(&self) -> &Index {
        &self.index
    }

    /// None for a sample of a compressed shard. Else one span for all fields that are close together, as a sample's
    /// usually are: headers between them are read too. A sample without a byte has an empty span, and so has one whose
    /// place in the index is damaged: `parse` reports it.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let start = out.len();
        let file = self.index.locate(id).0;
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
        let fields = self.schema().fields.len();
        out.values.resize(fields, Value::Bytes(Bytes::new()));
        let file = self.index.locate(id).0;
        let is_packed = self.shards[file.0 as usize].unit.is_some();
        let (mut run, mut spans, mut found, mut short, mut moved) = (Run::default(), 0, 0, false, None);
        let is_whole = self.each_field(id, |field, offset, len| {
            found += 1;
            let (read, at) = if is_packed {
                // All of the unit is there.
                (raw.first(), offset)
            } else {
                let Some(at) = run.add(offset, len) else { return };
                spans += usize::from(at == 0);
                (raw.get(spans - 1), at)
            };
            // Headers between fields were read along.
            let header = read.filter(|_| !is_packed && at > 0).and_then(|bytes| header_before(bytes, at));
            if header.is_some_and(|block| !matches!(Header::parse(block), Ok(Some(_)))) {
                moved = Some(offset);
            }
            let value = match read {
                // Of a single field a part may have been read: the value is what was read.
                Some(bytes) if fields == 1 && !is_packed => Some(bytes.clone()),
                // Fits: it is within what was read.
                Some(bytes) if at + len <= bytes.len() as u64 => Some(bytes.slice(at as usize..(at + len) as usize)),
                _ => None,
            };
            short |= value.is_none();
            out.values[field] = Value::Bytes(value.unwrap_or_default());
        });
        if !is_whole || short {
            return Err(self.shards[file.0 as usize].sidecar.damage(&self.files().path(file)));
        }
        if let Some(offset) = moved {
            let error = Error::new(ErrorKind::Changed, "the archive is not what was indexed: a header is missing here");
            let error = error.with_path(self.files().path(file)).with_offset(offset - BLOCK_BYTES);
            return Err(error.with_remedy("restore the file, or open the dataset again"));
        }
        if found < fields && self.missing == Missing::Error {
            return Err(self.lack(id));
        }
        Ok(())
    }

    /// webdataset's `__key__`.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, number) = self.index.locate(id);
        if !self.shards[file.0 as usize].sidecar.key(number, out) {
            out.extend_from_slice(self.files().name(file));
            write!(out, "#{number}").expect("a Vec takes everything");
        }
    }

    /// The sum over the fields of their longest values, and of what is read between them. Of each shard's column the
    /// longest value, the 2nd, 4th, 8th and so on are known, and those between are taken to be as long as the next
    /// longer of these.
    fn largest(&self, count: u64) -> u64 {
        let mut sum = 0_u64;
        for field in 0..self.schema().fields.len() {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for shard in self.shards.iter().filter(|shard| shard.unit.is_none()) {
                let Some(column) = shard.fields.iter().position(|&known| known == Some(field)) else { continue };
                runs.extend(shard.sidecar.columns()[column].runs(shard.sidecar.len()));
            }
            sum = sum.saturating_add(sum_of_runs(runs, count));
        }
        let between = (self.schema().fields.len() as u64 - 1).saturating_mul(BETWEEN_BYTES);
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
        // If the index is damaged it is unknown, and `parse` says so.
        has || !is_whole
    }

    fn units(&self) -> Option<&dyn Units> {
        (!self.packed.is_empty()).then_some(self)
    }

    /// Damaged archives, archives without a proper end, and indexes that do not match their archives: all archives are
    /// scanned again, whatever their indexes say.
    fn faults(&self) -> Vec<Error> {
        faults::faults(self.files(), self.shards.iter().map(|shard| &shard.sidecar), &self.places)
    }
}

/// Two values of a sample that are no further apart are read as one: the header and the padding between them take less
/// than another read would. PAX headers as webdataset's writer makes them are 1536 bytes.
const NEAR_BYTES: u64 = 4096;

/// Most memory of a sample for the bytes between two of its values: what is read along, or what alignment adds to two
/// reads.
const BETWEEN_BYTES: u64 = 2 * NEAR_BYTES;

/// The header before the value that begins at `at`, if those bytes are there.
fn header_before(bytes: &[u8], at: u64) -> Option<&Block> {
    // Fits: a run is within what was read.
    bytes.get(..at as usize)?.last_chunk()
}

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

/// Endings of archives. Those of xz and lz4 are there to be refused by what they are.
const ENDINGS: [&str; 10] =
    [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.lz4"];

fn is_shard(name: &[u8]) -> bool {
    ENDINGS.iter().any(|ending| ends_like(name, ending.as_bytes()))
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

/// The requested fields, if some sample has each; else all.
fn wanted(fields: &[String], indexed: &[Indexed]) -> Result<Vec<String>> {
    let there = all_fields(indexed);
    if fields.is_empty() {
        return Ok(there);
    }
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for field in fields {
        // Fields are lower case in samples.
        let name = field.to_lowercase();
        if !there.contains(&name) {
            let error = Error::new(ErrorKind::InvalidArgument, format!("no sample has a field {field:?}"));
            return Err(error.with_remedy(format!("choose from the fields {}", there.join(", "))));
        }
        if names.contains(&name) {
            let error = Error::new(ErrorKind::InvalidArgument, format!("field {field:?} is named twice"));
            return Err(error.with_remedy("name it once"));
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
