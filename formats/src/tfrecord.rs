//! TFRecord: files of records with checksums, plain or compressed as a whole, of `tf.train.Example` or anything else.
//!
//! Source: tensorflow `core/lib/io/record_writer.h`, `core/example/{example,feature}.proto`.

mod dali;
mod example;
mod frame;
mod index;
mod names;
mod protobuf;
mod units;

use crate::compression::Compression;
use crate::fingerprint::Fingerprint;
use crate::indexes::{Indexed, Notes, SCAN_THREADS, Wanted, index_all, is_index};
use crate::paths::{Index, index, thread_count};
use crate::sidecar::{Places, Sidecar};
use crate::sizes::sum_of_runs;
use crate::skipped::Skips;
use crate::tar::{Damaged, Missing};
use crate::units::{UnitId, Units};
use crate::{DType, Dataset, Field, FileId, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, Value};
use bytes::Bytes;
use example::{Columns, Learned};
use frame::{FOOTER_BYTES, Stream, masked};
use index::Frames;
use protobuf::Fault;
use std::io::Write;
use std::path::{Path, PathBuf};
use units::Unit;
use uringload_core::{Error, ErrorKind, Fallback, Part, Result};

pub use crate::indexes::{IndexProgress as TfRecordProgress, IndexReport as TfRecordReport};

/// What records are taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TfRecordContent {
    /// `tf.train.Example` where the first records are such, with features of the same kinds; else bytes.
    #[default]
    Auto,
    /// `tf.train.Example`: a column for each feature.
    Examples,
    /// Bytes, as they are: one column, "record".
    Bytes,
}

/// How a [`TfRecord`] is opened.
#[derive(Clone, Debug)]
pub struct TfRecordOptions {
    /// What records are taken for.
    pub content: TfRecordContent,
    /// Of examples, the features that are wanted, in this order; `None`: all that the first records have, by name.
    pub fields: Option<Vec<String>>,
    /// Of examples, features of numbers whose values all have one shape. An integer of shape `[]` is a scalar, which
    /// takes no memory of its own.
    pub fixed: Vec<(String, Vec<u64>)>,
    /// What becomes of an example that lacks a feature. One with a shape cannot be empty.
    pub missing: Missing,
    /// Whether the checksum of each record is compared when it is read. That of its length always is, when the index is
    /// made.
    pub verify_crc: bool,
    /// What becomes of a file that is cut short or broken: with [`Damaged::Keep`] the records in front of the damage
    /// are there.
    pub damaged: Damaged,
    /// A folder for the indexes of files whose own folder takes none.
    pub cache: Option<PathBuf>,
    /// Whether indexes stay in memory instead of being written as `FILE.uidx`; those that lie there are used.
    pub no_sidecars: bool,
    /// Whether files are looked through even where an index lies there.
    pub rebuild: bool,
    /// Threads that look through files; 0 chooses by the machine.
    pub threads: usize,
    /// Which of the files, in their order: for jobs that make indexes together. The dataset has no others.
    pub part: Part,
}

impl Default for TfRecordOptions {
    fn default() -> TfRecordOptions {
        TfRecordOptions {
            content: TfRecordContent::Auto,
            fields: None,
            fixed: Vec::new(),
            missing: Missing::Error,
            verify_crc: true,
            damaged: Damaged::Error,
            cache: None,
            no_sidecars: false,
            rebuild: false,
            threads: 0,
            part: Part::WHOLE,
        }
    }
}

/// Files of records, as TensorFlow writes them.
///
/// # What may be given
/// Folders, files and patterns. Of folders and patterns those files are taken whose names end in `.tfrecord`,
/// `.tfrecords` or `.tfrec`, in front of `-00000-of-00010`, `.gz` or `.zlib` too, and those that end in
/// `-00000-of-00010`; a file that is named by itself is one whatever its name. How it is compressed, its first bytes
/// tell. Every file counts for a shuffle of shards.
///
/// # Columns
/// Of examples, one for each feature that the first records (16, or those of 1 MiB) of the first file with any have:
///
/// | feature | column |
/// |---|---|
/// | `bytes_list` of one value | bytes; no copy |
/// | `float_list` | `F32`, of any number or of a shape; no copy, unless a writer left it in several pieces |
/// | `int64_list` | `I64`, of any number or of a shape; decoded to 8 bytes each, in memory of the sample's own |
///
/// A list of several byte strings is refused by its name, since a column holds one value a sample: choose the other
/// features by [`fields`](TfRecordOptions::fields), or take the records as bytes. So is a `SequenceExample`. A later
/// record with a feature of another kind is an error of its sample. A feature that a record does not have, or has as an
/// empty `bytes_list`, is what [`missing`](TfRecordOptions::missing) decides about; other empty lists are values.
/// Features that the first records lack are left out. Of a feature that is there twice the last counts, as everywhere
/// in protobuf.
///
/// # The index
/// Opening looks through the headers of each file once, in parallel, and puts what it finds into `FILE.uidx` beside it:
/// 12 bytes of each record are read where records are long, and everything where they are short. It is used as long as
/// name, size and time of the file's change are the same. DALI's index, `FILE.idx`, is taken over where it fits. What
/// could not be done so is told by [`fallbacks`](TfRecord::fallbacks).
///
/// # Compressed files
/// Of a file that is compressed with GZIP or ZLIB no part can be read by itself: it is a unit, decoded as a whole, and
/// takes memory for all that it decodes to. It is decoded once for its index too. Offsets in errors are those of what
/// it decodes to, which they say.
///
/// # Damage
/// A cut file ends at a border of records, which nobody can tell from a shorter one, or within a record: then it is
/// `Truncated`, as [`damaged`](TfRecordOptions::damaged) says of the file. A wrong checksum of a length is `Corrupt` in
/// the same way, for nothing behind it can be found; a wrong one of a record is an error of that sample alone.
#[derive(Debug)]
pub struct TfRecord {
    files: FileTable,
    shards: Vec<Shard>,
    /// Samples in the files up to and with each.
    ends: Vec<u64>,
    units: Vec<Unit>,
    /// Of examples.
    columns: Option<Columns>,
    schema: Schema,
    verify_crc: bool,
    bytes: u64,
    fingerprint: u64,
    skipped: Vec<Skipped>,
    report: TfRecordReport,
    fallbacks: Vec<Fallback>,
    damaged: Vec<Error>,
}

#[derive(Debug)]
struct Shard {
    sidecar: Sidecar,
    /// The unit that a compressed file is.
    unit: Option<UnitId>,
}

/// A place: file, offset and length of a record's payload, in the file or in what it decodes to.
type Place = (FileId, u64, u64);

impl TfRecord {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open) for what cannot be found. `Corrupt` and `Truncated` for a file that is
    /// broken, with file, offset and record; `Corrupt` for records that are no examples where those are asked for;
    /// `Unavailable` for features that cannot be columns; `InvalidArgument` for features that are asked for and not
    /// there; `Empty` if there is no record.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &TfRecordOptions) -> Result<TfRecord> {
        TfRecord::open_with_progress(paths, options, &|_| {})
    }

    /// Opens folders, files and patterns, and tells `progress` how far it has come, from several threads.
    ///
    /// # Errors
    /// As [`TfRecord::open`].
    pub fn open_with_progress<P: AsRef<Path>>(
        paths: &[P],
        options: &TfRecordOptions,
        progress: &(dyn Fn(TfRecordProgress) + Sync),
    ) -> Result<TfRecord> {
        let index = index(paths, thread_count(options.threads))?;
        let nothing = "no file has a name as TFRecord files have (.tfrecord, -00000-of-00010) in";
        let Index { files, skips, .. } =
            index.only_shards(paths, names::is_shard, is_index, nothing)?.only_part(options.part)?;
        let wanted = Wanted {
            places: Places { cache: options.cache.clone() },
            no_sidecars: options.no_sidecars,
            rebuild: options.rebuild,
            damaged: options.damaged,
            threads: if options.threads == 0 { SCAN_THREADS } else { options.threads },
        };
        let indexed = index_all(&files, &wanted, progress, &Frames)?;
        TfRecord::new(files, skips, indexed, options)
    }

    /// Whether a folder of these files is one of TFRecord: all are named as such, or as their indexes and as what
    /// TensorFlow Datasets puts beside them, and the first of them begins with a record.
    pub fn is_made_of(files: &FileTable) -> bool {
        names::are_shards(files)
    }

    fn new(files: FileTable, mut skips: Skips, indexed: Vec<Indexed>, options: &TfRecordOptions) -> Result<TfRecord> {
        let notes = Notes::of(&files, &indexed, &mut skips);
        let (mut shards, mut ends, mut units) = (Vec::new(), Vec::new(), Vec::new());
        let (mut end, mut bytes, mut first) = (0_u64, 0_u64, None);
        for (number, indexed) in indexed.into_iter().enumerate() {
            // Fits: a table has fewer than 2^32 files.
            let file = FileId(number as u32);
            let is_cut = indexed.damage.is_some();
            let sidecar = indexed.sidecar;
            let decoded = sidecar.decoded();
            let unit = decoded.map(|(compression, decoded_bytes)| {
                units.push(Unit { file, compression, decoded_bytes, is_cut });
                UnitId(units.len() as u32 - 1)
            });
            if sidecar.len() > 0 {
                first = first.or(Some((file, decoded.map(|(compression, _)| compression))));
            }
            end = end.checked_add(sidecar.len()).ok_or_else(|| {
                let error = Error::new(ErrorKind::InvalidArgument, "more than 2^64 samples up to");
                error.with_file(files.path(file))
            })?;
            bytes = sidecar.columns().iter().fold(bytes, |bytes, column| bytes.saturating_add(column.bytes));
            ends.push(end);
            shards.push(Shard { sidecar, unit });
        }
        let Some((file, compression)) = first else {
            return Err(notes.nothing(&files, &skips, "no file has a record in"));
        };
        let path = files.path(file);
        let columns = columns(&path, compression, options).map_err(|error| error.with_file(&path))?;
        let record = || Field { name: "record".to_owned(), dtype: DType::U8, shape: Shape::Ragged };
        let mut fingerprint = Fingerprint::new("tfrecord");
        columns.iter().for_each(|columns| columns.fingerprint(&mut fingerprint));
        fingerprint.files(&files);
        shards.iter().for_each(|shard| fingerprint.number(shard.sidecar.content()));
        Ok(TfRecord {
            files,
            shards,
            ends,
            units,
            schema: columns.as_ref().map_or_else(|| Schema { fields: vec![record()] }, Columns::schema),
            columns,
            verify_crc: options.verify_crc,
            bytes,
            fingerprint: fingerprint.finish(),
            skipped: skips.into_vec(),
            report: notes.report,
            fallbacks: notes.fallbacks,
            damaged: notes.damaged,
        })
    }

    /// How each column of the schema is stored, in the words of the format.
    pub fn encodings(&self) -> Vec<String> {
        self.columns.as_ref().map_or_else(|| vec!["as it is".to_owned()], Columns::encodings)
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// How the indexes of the files were come by.
    pub fn report(&self) -> &TfRecordReport {
        &self.report
    }

    /// What went otherwise than wished: indexes that could not be written beside their files, or not be believed.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Why files cannot be read to their end, where [`Damaged::Keep`] was asked for.
    pub fn damaged(&self) -> &[Error] {
        &self.damaged
    }

    /// The file that a sample lies in, and its number there, from 0.
    pub fn locate(&self, id: SampleId) -> (FileId, u64) {
        let (file, number) = super::locate(&self.ends, id.0);
        (FileId(file as u32), number)
    }

    fn shard(&self, file: FileId) -> &Shard {
        &self.shards[file.0 as usize]
    }

    /// Where a record lies; `None` where the index is damaged.
    fn place(&self, id: SampleId) -> Option<Place> {
        let (file, number) = self.locate(id);
        let sidecar = &self.shard(file).sidecar;
        let mut place = None;
        let is_whole = sidecar.sample(number, |_, offset, len| place = Some((file, offset, len)));
        // The checksum behind it lies in the file as well.
        let extent = sidecar.decoded().map_or(self.files.size(file), |(_, bytes)| bytes);
        let ends_within =
            |offset: u64, len: u64| offset.checked_add(len)?.checked_add(FOOTER_BYTES).filter(|&end| end <= extent);
        place.filter(|&(_, offset, len)| is_whole && ends_within(offset, len).is_some())
    }

    /// Bytes of a span beside the payload.
    fn footer_bytes(&self) -> u64 {
        if self.verify_crc { FOOTER_BYTES } else { 0 }
    }

    /// The error of a record, at a byte of its payload.
    fn corrupt(&self, id: SampleId, (file, offset, _): Place, doing: impl std::fmt::Display, at: u64) -> Error {
        let (place, number) = (offset + at, self.locate(id).1);
        let error = match self.shard(file).unit {
            None => Error::new(ErrorKind::Corrupt, format!("record {number}: {doing}, in")).with_offset(place),
            Some(_) => {
                let doing = format!("record {number}, at byte {place} of what the file decodes to: {doing}, in");
                Error::new(ErrorKind::Corrupt, doing)
            }
        };
        error.with_file(self.files.path(file))
    }
}

impl Dataset for TfRecord {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn format(&self) -> &'static str {
        "tfrecord"
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

    /// The payload with its checksum, or without where that is not compared. A record whose place in the index is
    /// damaged has an empty span: `parse` says so.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let file = self.locate(id).0;
        if self.shard(file).unit.is_none() {
            let (offset, len) = self.place(id).map_or((0, 0), |(_, offset, len)| (offset, len + self.footer_bytes()));
            out.push(Span { file, offset, len });
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let place = self.place(id);
        let Some((place, raw)) = place.zip(raw.first()) else {
            let file = self.locate(id).0;
            return Err(self.shard(file).sidecar.damage(&self.files.path(file)));
        };
        let (file, offset, len) = place;
        let wanted = len + self.footer_bytes();
        let framed = match self.shard(file).unit {
            None => raw.clone(),
            Some(_) if offset + wanted > raw.len() as u64 => {
                let doing = format!("it lies outside of the {} bytes that were decoded", raw.len());
                return Err(self.corrupt(id, place, doing, 0));
            }
            // Fits: it lies in memory.
            Some(_) => raw.slice(offset as usize..(offset + wanted) as usize),
        };
        let record = match self.verify_crc {
            // Of a record of bytes alone a part may have been read.
            false => framed,
            true => checked(&framed).map_err(|doing| self.corrupt(id, place, doing, len))?,
        };
        match &self.columns {
            None => out.values.push(Value::Bytes(record)),
            Some(columns) => columns.split(&record, out).map_err(|Fault { doing, at }| {
                let error = self.corrupt(id, place, doing, at as u64);
                error.with_remedy("leave the feature out, or take the records as they are")
            })?,
        }
        Ok(())
    }

    fn units(&self) -> Option<&dyn Units> {
        (!self.units.is_empty()).then_some(self)
    }

    /// The name of the file and the number of the record in it: "train-00000-of-00010#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, number) = self.locate(id);
        out.extend_from_slice(self.files.name(file));
        write!(out, "#{number}").expect("a Vec takes everything");
    }

    /// Of all payloads.
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn largest(&self, count: u64) -> u64 {
        let plain = || self.shards.iter().filter(|shard| shard.unit.is_none()).map(|shard| &shard.sidecar);
        let runs = plain().flat_map(|sidecar| sidecar.columns().iter().flat_map(|column| column.runs(sidecar.len())));
        let samples = plain().fold(0, |sum: u64, sidecar| sum.saturating_add(sidecar.len()));
        let payloads = sum_of_runs(runs.collect(), count).min(self.bytes);
        payloads.saturating_add(count.min(samples).saturating_mul(self.footer_bytes()))
    }

    /// FNV-1a over "tfrecord", the columns of examples with their kinds and shapes, the names and sizes of all files,
    /// and the hash of each one's records.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// An integer of a feature may be stored in one byte (a varint).
    fn widening(&self, field: usize) -> u64 {
        if self.columns.is_some() { self.schema.fields[field].dtype.size() } else { 1 }
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        match (&self.columns, &self.schema.fields[field].shape) {
            (_, Shape::Fixed(shape)) => Some(shape.iter().product()),
            (None, Shape::Ragged) => self.place(id).map(|(_, _, len)| len),
            (Some(_), Shape::Ragged) => None,
        }
    }

    /// Records as they are, where nothing stands behind them in their spans.
    fn plain_field(&self) -> Option<usize> {
        (self.columns.is_none() && !self.verify_crc && self.units.is_empty()).then_some(0)
    }

    /// Every file is a shard.
    fn shards(&self) -> &[u64] {
        &self.ends
    }
}

/// A record without its checksum, which stands behind it and is right.
///
/// # Errors
/// What is wrong, in words.
fn checked(framed: &Bytes) -> Result<Bytes, String> {
    let Some((record, &stored)) = framed.split_last_chunk::<{ FOOTER_BYTES as usize }>() else {
        return Err("its checksum was not read".to_owned());
    };
    let (stored, computed) = (u32::from_le_bytes(stored), masked(record));
    if stored != computed {
        return Err(format!("its checksum is {computed:08x}, and {stored:08x} is stored with it"));
    }
    Ok(framed.slice(..record.len()))
}

/// Records that are looked at to know the columns, at most.
const FIRST_RECORDS: usize = 16;
/// And their bytes; the first one may have more.
const FIRST_BYTES: u64 = 1 << 20;

/// The columns of examples, as the first records of the file at `path` show them; `None` where records are bytes.
fn columns(path: &Path, compression: Option<Compression>, options: &TfRecordOptions) -> Result<Option<Columns>> {
    let is_chosen = options.fields.is_some() || !options.fixed.is_empty();
    let is_asked = options.content == TfRecordContent::Examples || is_chosen;
    if options.content == TfRecordContent::Bytes {
        let error = Error::new(ErrorKind::InvalidArgument, "records that are taken as they are have no features");
        return if is_chosen { Err(error.with_remedy("name none, or have the records parsed")) } else { Ok(None) };
    }
    let mut stream = Stream::open(path, compression).map_err(|error| Error::io("cannot open", error))?;
    let (mut learned, mut wrong, mut read) = (Learned::default(), None, 0);
    while read < FIRST_RECORDS && stream.offset() < FIRST_BYTES {
        // Damage behind the first records has been found by whoever made the index.
        let Ok(Some(mut record)) = stream.record() else { break };
        let number = read;
        read += 1;
        let record = if options.verify_crc {
            match checked(&Bytes::from(record)) {
                Ok(record) => record,
                Err(doing) => {
                    wrong = wrong.or(Some(Fault::new(format!("record {number}: {doing}"), 0)));
                    continue;
                }
            }
        } else {
            record.truncate(record.len().saturating_sub(FOOTER_BYTES as usize));
            Bytes::from(record)
        };
        if let Err(fault) = learned.add(&record) {
            if fault.doing == example::SEQUENCE && (is_asked || example::is_sequence(&record)) {
                let error = Error::new(ErrorKind::Unavailable, format!("record {number}: {}, in", fault.doing));
                return Err(error.with_remedy("take the records as they are, and parse them yourself"));
            }
            if !is_asked {
                return Ok(None);
            }
            return Err(no_example(&format!("record {number}: {}", fault.doing)));
        }
    }
    match (learned.is_empty(), wrong) {
        (true, Some(fault)) => Err(no_example(&fault.doing)),
        (true, None) if is_asked => Err(no_example("the first records have no feature")),
        (true, None) => Ok(None),
        (false, _) => learned
            .columns(options.fields.as_deref(), &options.fixed, options.missing)
            .map(Some)
            .map_err(|refused| Error::new(refused.kind, format!("{}, in", refused.doing)).with_remedy(refused.remedy)),
    }
}

/// The first records are not what was asked for.
fn no_example(doing: &str) -> Error {
    let error = Error::new(ErrorKind::Corrupt, format!("cannot tell the columns of tf.train.Example: {doing}, in"));
    error.with_remedy("take the records as they are")
}

#[cfg(test)]
mod tests;
