//! TFRecord: files of records with checksums, plain or compressed as a whole, of `tf.train.Example` or anything else.
//!
//! Source: tensorflow `core/lib/io/record_writer.h`, `core/example/{example,feature}.proto`.

mod example;
mod frame;
mod index;
mod names;
mod protobuf;
mod units;

use crate::compression::Compression;
use crate::dataset::sizes::sum_of_runs;
use crate::dataset::{
    DType, Dataset, Encoding, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, Skips,
    Span, UnitId, Units, Value,
};
use crate::find::paths::FoundFiles;
use crate::format::{Format, Paths, Shows};
use crate::index::headers::decoded;
use crate::index::indexes::{Indexed, Notes, Wanted, ends, index_all, is_index, scan_threads};
use crate::index::packed::PackedFile;
use crate::index::sidecar::{Places, Sidecar};
use crate::options::{FormatOptions, Missing, OptionKind, OptionType, OptionValue, options};
use crate::place::Place;
use bytes::Bytes;
use example::{Columns, Learned};
use frame::{FOOTER_BYTES, Stream, masked};
use index::Frames;
use protobuf::Fault;
use std::path::PathBuf;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of tfrecord.
    pub struct TfRecordOptions {
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
        /// Deliver records as bytes, even if they are tf.train.Example.
        whole_records: bool,
        /// Require records to be tf.train.Example, instead of delivering others as bytes.
        examples: bool,
        /// Features of numbers whose values all have one shape: "label:" for scalars, "box:2x2" for matrices.
        fixed: Shapes,
        /// Compare the checksum of each record when it is read.
        verify_crc: bool = true,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "tfrecord",
    help: "Files of TensorFlow's records, compressed or not.",
    options: TfRecordOptions::SPECS,
    has_sidecars: true,
    shows: Shows::Names { called: names::is_shard, begins: names::begins_with_a_record },
    open: |paths, options| Ok(Arc::new(TfRecord::open(paths, &options.typed()?)?)),
};

/// Shapes of features, by name. An integer of shape `[]` is a scalar, which takes no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes(pub Vec<(String, Vec<u64>)>);

impl OptionType for Shapes {
    const KIND: OptionKind = OptionKind::Texts;

    fn of(value: &OptionValue) -> Option<Shapes> {
        let shape = |text: &str| match text {
            "" => Some(Vec::new()),
            text => text.split('x').map(|length| length.parse().ok()).collect(),
        };
        let named = |text: &String| text.rsplit_once(':').and_then(|(name, text)| Some((name.into(), shape(text)?)));
        Vec::<String>::of(value)?.iter().map(named).collect::<Option<_>>().map(Shapes)
    }
}

/// Files of records, as TensorFlow writes them. A compressed file is a unit.
///
/// A file that is cut between two records looks like a shorter file; one that is cut within a record is `Truncated`. A
/// wrong checksum of a length is `Corrupt` in the same way, because nothing after it can be found; a wrong checksum of
/// a record is an error of that sample alone.
#[derive(Debug)]
pub struct TfRecord {
    /// Every file is a shard.
    index: Index,
    shards: Vec<Shard>,
    units: Vec<PackedFile>,
    /// Of examples.
    columns: Option<Columns>,
    verify_crc: bool,
    fingerprint: u64,
}

#[derive(Debug)]
struct Shard {
    sidecar: Sidecar,
    /// The unit that a compressed file is.
    unit: Option<UnitId>,
}

/// A place: file, offset and length of a record's payload, in the file or in what it decodes to.
type Payload = (FileId, u64, u64);

impl TfRecord {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &TfRecordOptions) -> Result<TfRecord> {
        let common = &options.common;
        let index = paths.files(common.threads)?;
        let nothing = "no file has a name as TFRecord files have (.tfrecord, -00000-of-00010) in";
        let FoundFiles { files, skips, .. } =
            index.only_shards(&paths, names::is_shard, is_index, nothing)?.only_part(common.part)?;
        let places = Places::new(options.index_cache.clone())?;
        let (keep_damaged, threads) = (options.keep_damaged, scan_threads(common));
        let write_index = options.write_index;
        let indexed = index_all(&files, &Wanted { common, places, keep_damaged, write_index, threads }, &Frames)?;
        TfRecord::new(files, skips, indexed, options)
    }

    fn new(files: FileTable, skips: Skips, indexed: Vec<Indexed>, options: &TfRecordOptions) -> Result<TfRecord> {
        let notes = Notes::of(&files, &indexed, skips);
        let ends = ends(&files, indexed.iter().map(|indexed| indexed.sidecar.len()))?;
        let (mut shards, mut units, mut bytes, mut first) = (Vec::new(), Vec::new(), 0_u64, None);
        for (number, Indexed { sidecar, damage, .. }) in indexed.into_iter().enumerate() {
            // Fits: a table has fewer than 2^32 files.
            let file = FileId(number as u32);
            let decoded = sidecar.packed();
            let unit = decoded.map(|(compression, decoded_bytes)| {
                units.push(PackedFile { file, compression, decoded_bytes, is_cut: damage.is_some() });
                UnitId(units.len() as u32 - 1)
            });
            if sidecar.len() > 0 {
                first = first.or(Some((file, decoded.map(|(compression, _)| compression))));
            }
            bytes = sidecar.columns().iter().fold(bytes, |bytes, column| bytes.saturating_add(column.bytes));
            shards.push(Shard { sidecar, unit });
        }
        let Some((file, compression)) = first else {
            return Err(notes.nothing(&files, "no file has a record"));
        };
        let place = files.at(file);
        let columns = columns(&place, compression, options).map_err(|error| error.with_path(&place))?;
        let mut fingerprint = Fingerprint::new("tfrecord");
        columns.iter().for_each(|columns| columns.fingerprint(&mut fingerprint));
        fingerprint.files(&files);
        shards.iter().for_each(|shard| fingerprint.number(shard.sidecar.content()));
        let record = || Field { name: "record".to_owned(), dtype: DType::U8, shape: Shape::Ragged };
        let schema = columns.as_ref().map_or_else(|| Schema { fields: vec![record()] }, Columns::schema);
        let mut index = Index::new("tfrecord", files, schema, ends.last().copied().unwrap_or(0));
        // Numbers are in chunks that samples of several batches share.
        index.owns_values = false;
        index.bytes = bytes;
        index.shards = ends;
        // Records as they are, if nothing follows them in their spans.
        index.plain_field = (columns.is_none() && !options.verify_crc && units.is_empty()).then_some(0);
        index.encodings = columns.as_ref().map_or_else(|| vec![Encoding::raw("as it is")], Columns::encodings);
        notes.tell(&mut index);
        let (verify_crc, fingerprint) = (options.verify_crc, fingerprint.finish());
        Ok(TfRecord { index, shards, units, columns, verify_crc, fingerprint })
    }

    fn shard(&self, file: FileId) -> &Shard {
        &self.shards[file.0 as usize]
    }

    /// The place of a record; `None` if the index is damaged.
    fn place(&self, id: SampleId) -> Option<Payload> {
        let (file, number) = self.index.locate(id);
        let sidecar = &self.shard(file).sidecar;
        let mut place = None;
        let is_whole = sidecar.sample(number, |_, offset, len| place = Some((file, offset, len)));
        // The checksum after it is in the file as well.
        let extent = sidecar.decoded().map_or(self.files().size(file), |(_, bytes)| bytes);
        let ends_within =
            |offset: u64, len: u64| offset.checked_add(len)?.checked_add(FOOTER_BYTES).filter(|&end| end <= extent);
        place.filter(|&(_, offset, len)| is_whole && ends_within(offset, len).is_some())
    }

    /// Bytes of a span beside the payload.
    fn footer_bytes(&self) -> u64 {
        if self.verify_crc { FOOTER_BYTES } else { 0 }
    }

    /// The error of a record, at a byte of its payload.
    fn corrupt(&self, id: SampleId, (file, offset, _): Payload, what: impl std::fmt::Display, at: u64) -> Error {
        let (place, number) = (offset + at, self.index.locate(id).1);
        let what = format!("record {number}: {what}");
        let what = if self.shard(file).unit.is_some() { decoded(what) } else { what.into() };
        Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(file)).with_offset(place)
    }
}

impl Dataset for TfRecord {
    fn index(&self) -> &Index {
        &self.index
    }

    /// The payload with its checksum, or without where that is not compared. A record whose place in the index is
    /// damaged has an empty span: `parse` reports it.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let file = self.index.locate(id).0;
        if self.shard(file).unit.is_none() {
            let (offset, len) = self.place(id).map_or((0, 0), |(_, offset, len)| (offset, len + self.footer_bytes()));
            out.push(Span { file, offset, len });
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let place = self.place(id);
        let Some((place, raw)) = place.zip(raw.first()) else {
            let file = self.index.locate(id).0;
            return Err(self.shard(file).sidecar.damage(&self.files().path(file)));
        };
        let (file, offset, len) = place;
        let wanted = len + self.footer_bytes();
        let framed = match self.shard(file).unit {
            None => raw.clone(),
            Some(_) if offset + wanted > raw.len() as u64 => {
                let what = format!("it is outside of the {} bytes that were decoded", raw.len());
                return Err(self.corrupt(id, place, what, 0));
            }
            // Fits: it is in memory.
            Some(_) => raw.slice(offset as usize..(offset + wanted) as usize),
        };
        let record = if self.verify_crc {
            checked(&framed).map_err(|what| self.corrupt(id, place, what, len))?
        } else {
            // Of a record of bytes alone a part may have been read.
            framed
        };
        match &self.columns {
            None => out.values.push(Value::Bytes(record)),
            Some(columns) => columns.split(&record, out).map_err(|Fault { what, at }| {
                let error = self.corrupt(id, place, what, at as u64);
                error.with_remedy("leave the feature out, or take the records as bytes (whole_records)")
            })?,
        }
        Ok(())
    }

    fn units(&self) -> Option<&dyn Units> {
        (!self.units.is_empty()).then_some(self)
    }

    fn largest(&self, count: u64) -> u64 {
        let plain = || self.shards.iter().filter(|shard| shard.unit.is_none()).map(|shard| &shard.sidecar);
        let runs = plain().flat_map(|sidecar| sidecar.columns().iter().flat_map(|column| column.runs(sidecar.len())));
        let samples = plain().fold(0, |sum: u64, sidecar| sum.saturating_add(sidecar.len()));
        let payloads = sum_of_runs(runs.collect(), count).min(self.bytes());
        payloads.saturating_add(count.min(samples).saturating_mul(self.footer_bytes()))
    }

    /// FNV-1a over "tfrecord", the columns of examples with their kinds and shapes, the names and sizes of all files,
    /// and the hash of each one's records.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// An integer of a feature may be stored in one byte (a varint).
    fn widening(&self, field: usize) -> u64 {
        if self.columns.is_some() { self.schema().fields[field].dtype.size() } else { 1 }
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        match (&self.columns, &self.schema().fields[field].shape) {
            (_, Shape::Fixed(shape)) => Some(shape.iter().product()),
            (None, Shape::Ragged) => self.place(id).map(|(_, _, len)| len),
            (Some(_), Shape::Ragged) => None,
        }
    }
}

/// A record without the checksum that follows it, which is right.
///
/// # Errors
/// What is wrong, in words.
fn checked(framed: &Bytes) -> Result<Bytes, String> {
    let Some((record, &stored)) = framed.split_last_chunk::<{ FOOTER_BYTES as usize }>() else {
        return Err("its checksum was not read".to_owned());
    };
    let (stored, computed) = (u32::from_le_bytes(stored), masked(record));
    if stored != computed {
        return Err(format!("its checksum is {computed:08x}, and should be {stored:08x}"));
    }
    Ok(framed.slice(..record.len()))
}

/// Records that are read to learn the columns, at most.
const FIRST_RECORDS: usize = 16;
/// And their bytes; the first record may have more.
const FIRST_BYTES: u64 = 1 << 20;
/// Longer records are not used: to learn the columns must not take the memory that was meant for reading them.
const LEARNED_BYTES_MAX: u64 = 64 << 20;

/// The columns of examples, as the first records of the file at `place` show them; `None` where records are bytes.
fn columns(place: &Place, compression: Option<Compression>, options: &TfRecordOptions) -> Result<Option<Columns>> {
    let is_asked = options.examples || !options.fields.is_empty() || !options.fixed.0.is_empty();
    if options.whole_records {
        let error = Error::new(ErrorKind::InvalidArgument, "features are named, and the records are taken as bytes");
        return if is_asked { Err(error.with_remedy("name no fields, or leave out whole_records")) } else { Ok(None) };
    }
    let mut stream = Stream::open(place, compression)?;
    let (mut learned, mut wrong, mut read) = (Learned::default(), None, 0);
    while read < FIRST_RECORDS && stream.offset() < FIRST_BYTES {
        // The maker of the index has found any damage after the first records.
        let Ok(Some(mut record)) = stream.record(LEARNED_BYTES_MAX) else { break };
        let number = read;
        read += 1;
        // A record that was read has at least its checksum.
        if record.is_empty() {
            let what = format!("record {number} has more than {} MiB", LEARNED_BYTES_MAX >> 20);
            wrong = wrong.or(Some(Fault::new(what, 0)));
            break;
        }
        let record = if options.verify_crc {
            match checked(&Bytes::from(record)) {
                Ok(record) => record,
                Err(what) => {
                    wrong = wrong.or(Some(Fault::new(format!("record {number}: {what}"), 0)));
                    continue;
                }
            }
        } else {
            record.truncate(record.len().saturating_sub(FOOTER_BYTES as usize));
            Bytes::from(record)
        };
        if let Err(fault) = learned.add(&record) {
            if fault.what == example::SEQUENCE && (is_asked || example::is_sequence(&record)) {
                let error = Error::new(ErrorKind::Unavailable, format!("record {number}: {}", fault.what));
                return Err(error.with_remedy("take the records as bytes (whole_records), and parse them yourself"));
            }
            if !is_asked {
                return Ok(None);
            }
            return Err(no_example(&format!("record {number}: {}", fault.what)));
        }
    }
    match (learned.is_empty(), wrong) {
        (true, Some(fault)) => Err(no_example(&fault.what)),
        (true, None) if is_asked => Err(no_example("the first records have no feature")),
        (true, None) => Ok(None),
        (false, _) => learned
            .columns(&options.fields, &options.fixed.0, options.missing)
            .map(Some)
            .map_err(|refused| Error::new(refused.kind, refused.what).with_remedy(refused.remedy)),
    }
}

/// The first records are not what was asked for.
fn no_example(what: &str) -> Error {
    let error = Error::new(ErrorKind::Corrupt, format!("cannot tell the columns of tf.train.Example: {what}"));
    error.with_remedy("take the records as bytes (whole_records)")
}

#[cfg(test)]
mod tests;
