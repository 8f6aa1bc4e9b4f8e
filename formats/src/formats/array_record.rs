//! ArrayRecord, the format of Grain and TensorFlow Datasets: chunks of records, and an index of them at the end.
//!
//! Source: google/array_record, `cpp/array_record_writer.cc` and `cpp/layout.proto`; a file is a Riegeli file.

mod riegeli;

use crate::dataset::{
    DType, Dataset, Encoding, Field, FileId, Fingerprint, Index, Sample, SampleId, Schema, Shape, Span, UnitId, Units,
    Value,
};
use crate::find::names::ends_like;
use crate::find::paths::{FoundFiles, header_thread_count};
use crate::format::{Format, Paths, Shows};
use crate::index::headers::{Source, decoded, head, map_files};
use crate::options::Options;
use crate::place::Place;
use bytes::Bytes;
use riegeli::{BLOCK_BYTES, CHUNK_HEADER_BYTES, ChunkHeader, MAGIC, content, records, stored_bytes, varint};
use std::sync::Arc;
use uringload_core::not_built_in;
use uringload_core::{Error, ErrorKind, Result};

pub(crate) const FORMAT: Format = Format {
    name: "array_record",
    help: "Records of ArrayRecord files, as Grain reads them.",
    options: &[],
    has_sidecars: false,
    shows: Shows::Names { called: is_shard, begins: begins_so },
    open: |paths, options| Ok(Arc::new(ArrayRecord::open(paths, options)?)),
};

/// Records of ArrayRecord files. A chunk is a unit: it decodes to its records, end to end, followed by the end of each.
///
/// Opening reads the index at the end of each file. Hashes are compared when a chunk is read. Memory: 48 bytes a chunk.
#[derive(Debug)]
struct ArrayRecord {
    /// The shards are chunks, or files where no chunk has more than a record.
    index: Index,
    chunks: Vec<Chunk>,
    /// Samples up to and including each chunk.
    ends: Vec<u64>,
    largest_decoded: u64,
    largest_stored: u64,
    fingerprint: u64,
}

/// A chunk of records.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    file: u32,
    offset: u64,
    /// Bytes in the file, with the headers of blocks.
    stored: u64,
    records: u64,
    /// Bytes of its records.
    bytes: u64,
}

/// Bytes of the place where a record ends.
const END_BYTES: u64 = 8;

impl Chunk {
    /// Bytes of its unit. Saturates: no machine has that much memory.
    fn decoded(&self) -> u64 {
        self.records.saturating_mul(END_BYTES).saturating_add(self.bytes).max(1)
    }
}

impl ArrayRecord {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &Options) -> Result<ArrayRecord> {
        if !cfg!(feature = "array-record") {
            return Err(paths.at_first(not_built_in("ArrayRecord", "array-record")));
        }
        let common = options.common();
        let found = paths.files(common.threads)?;
        let nothing = "no file has a name as ArrayRecord files have (.array_record) in";
        let found = found.only_shards(&paths, is_shard, |_| false, nothing)?.only_part(common.part)?;
        let FoundFiles { files, skips, .. } = found;
        let threads = header_thread_count(common.threads);
        let opened = map_files(0..files.len() as u32, threads, |file| chunks_of(&Source::open(&files, file)?, file.0))?;
        let (mut ends, mut shards, mut end, mut bytes) = (Vec::new(), Vec::new(), 0_u64, 0_u64);
        let is_single = opened.iter().flatten().all(|chunk| chunk.records <= 1);
        for (chunks, file) in opened.iter().zip(0..) {
            for chunk in chunks {
                end = end.checked_add(chunk.records).ok_or_else(|| {
                    let error = Error::new(ErrorKind::InvalidArgument, "the files have more than 2^64 samples");
                    error.with_path(files.path(FileId(file)))
                })?;
                bytes = bytes.saturating_add(chunk.bytes);
                ends.push(end);
            }
            if is_single {
                shards.push(end);
            }
        }
        let chunks = opened.concat();
        if end == 0 {
            return Err(Error::new(ErrorKind::Empty, "no file has a record").with_path(files.place()));
        }
        if u32::try_from(chunks.len()).is_err() {
            let what = "the files have more than 2^32 chunks";
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_path(files.place()));
        }
        let mut fingerprint = Fingerprint::new(FORMAT.name);
        fingerprint.files(&files);
        ends.iter().for_each(|&end| fingerprint.number(end));
        let fields = vec![Field { name: "record".into(), dtype: DType::U8, shape: Shape::Ragged }];
        let mut index = Index::new(FORMAT.name, files, Schema { fields }, end);
        index.bytes = bytes;
        index.shards = if is_single { shards } else { ends.clone() };
        index.left_out = skips.into_vec();
        index.encodings = vec![Encoding::raw("as it is; chunks, decoded as a whole")];
        let largest = |of: fn(&Chunk) -> u64| chunks.iter().map(of).max().unwrap_or(1);
        let (largest_decoded, largest_stored) = (largest(Chunk::decoded), largest(|chunk| chunk.stored));
        Ok(ArrayRecord { index, ends, largest_decoded, largest_stored, fingerprint: fingerprint.finish(), chunks })
    }

    /// The chunk of a sample, and its number there.
    fn locate(&self, id: SampleId) -> (usize, u64) {
        crate::dataset::locate(&self.ends, id.0)
    }
}

fn begins_so(place: &Place) -> bool {
    head(place).starts_with(MAGIC)
}

/// Whether a file is named like an ArrayRecord file: `.array_record`, perhaps followed by `-00000-of-00010`.
fn is_shard(name: &[u8]) -> bool {
    let end = name.iter().rposition(|byte| !byte.is_ascii_digit() && !b"-ofOF".contains(byte)).map_or(0, |at| at + 1);
    [&b".array_record"[..], b".arrayrecord"].iter().any(|ending| {
        // The numbers end in letters of their own, which the name may end in, too.
        ends_like(name, ending) || ends_like(&name[..end], ending)
    })
}

/// Marks the record with the place of the index.
const POSTSCRIPT_MAGIC: u64 = 0x7193_0e70_4fda_e05e;

/// The chunks of a file, as its index lists them.
fn chunks_of(source: &Source, file: u32) -> Result<Vec<Chunk>> {
    if source.size() == 0 {
        return Ok(Vec::new());
    }
    let start = source.size().saturating_sub(BLOCK_BYTES);
    let no_index = |what: &str| {
        let what = format!("the file has no index of its records at its end ({what})");
        let error = source.corrupt(start, what);
        error.with_remedy("it was cut short, or is no ArrayRecord file: fetch or write it again")
    };
    if !source.size().is_multiple_of(BLOCK_BYTES) || source.size() == start {
        return Err(no_index("it is not made of whole blocks"));
    }
    let postscript = chunk_at(source, start)?;
    let postscript = postscript.first().map(|record| fields(record)).ok_or_else(|| no_index("no postscript"))?;
    let [footer, magic, _] = postscript.ok_or_else(|| no_index("another postscript"))?;
    if magic != POSTSCRIPT_MAGIC || footer >= start {
        return Err(no_index("another postscript"));
    }
    let listed = chunk_at(source, footer)?;
    let corrupt = |what: &str| source.corrupt(footer, format!("the index of the file {what}"));
    // The first record says how the file was written.
    let mut chunks: Vec<Chunk> = Vec::new();
    for record in listed.iter().skip(1) {
        let [offset, bytes, records] = fields(record).ok_or_else(|| corrupt("cannot be understood"))?;
        let behind = chunks.last().map_or(0, |last| last.offset + 1);
        if offset < behind || offset >= footer {
            return Err(corrupt("has a chunk that does not follow the one before"));
        }
        if let Some(last) = chunks.last_mut() {
            last.stored = offset - last.offset;
        }
        chunks.push(Chunk { file, offset, stored: footer - offset, records, bytes });
    }
    chunks.retain(|chunk| chunk.records > 0);
    // A file is written in one way.
    if let Some(first) = chunks.first()
        && header_at(source, first.offset)?.is_transposed()
    {
        let error = source.unavailable(first.offset, "the records are transposed, which cannot be read");
        return Err(error.with_remedy("write the file again with transpose:false"));
    }
    Ok(chunks)
}

const WHAT: &str = "a chunk of the file";

/// The bytes of the file that hold `len` bytes of content.
fn stored_at(source: &Source, offset: u64, len: u64) -> Result<Vec<u8>> {
    let stored = stored_bytes(offset, len).and_then(|stored| usize::try_from(stored).ok());
    source.bytes(offset, stored.ok_or_else(|| source.truncated(WHAT))?, WHAT)
}

fn header_at(source: &Source, offset: u64) -> Result<ChunkHeader> {
    let stored = stored_at(source, offset, CHUNK_HEADER_BYTES as u64)?;
    ChunkHeader::parse(&content(&stored, offset)).map_err(|what| source.corrupt(offset, what))
}

/// The records of the chunk at `offset`. Memory grows with the file's bytes, or with what they
/// decompress to.
fn chunk_at(source: &Source, offset: u64) -> Result<Vec<Vec<u8>>> {
    let header = header_at(source, offset)?;
    let stored = stored_at(source, offset, header.data_bytes.saturating_add(CHUNK_HEADER_BYTES as u64))?;
    let mut values = Vec::new();
    let place = &mut values;
    let most = (stored.len() as u64).saturating_mul(INDEX_GROWTH_MAX).saturating_add(BLOCK_BYTES);
    let lens = records(&content(&stored, offset), move |header| {
        // An index is a few bytes for each chunk, which do not compress to less.
        if header.decoded_bytes > most {
            return Err("the index is longer than it can be".into());
        }
        // Fits: it is bounded by what was read.
        place.resize(header.decoded_bytes as usize, 0);
        Ok(&mut place[..])
    });
    let mut rest = &values[..];
    let lens = lens.map_err(|what| source.corrupt(offset, what))?;
    let records = lens.into_iter().map(|len| {
        // Fits: all of them together have as many bytes as there are.
        let (record, behind) = rest.split_at(len as usize);
        rest = behind;
        record.to_vec()
    });
    Ok(records.collect())
}

/// What a byte of a compressed index makes at most.
const INDEX_GROWTH_MAX: u64 = 1024;

/// The numbers of the fields 1 to 3 of a message; 0 for those that are not there. `None` if it has others, or is none.
fn fields(mut message: &[u8]) -> Option<[u64; 3]> {
    let mut fields = [0; 3];
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let number = usize::try_from(key >> 3).ok()?.checked_sub(1)?;
        // Numbers have the type 0.
        if key & 7 != 0 {
            return None;
        }
        *fields.get_mut(number)? = varint(&mut message)?;
    }
    Some(fields)
}

impl Dataset for ArrayRecord {
    fn index(&self) -> &Index {
        &self.index
    }

    /// None: every record is cut from a unit.
    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (number, record) = self.locate(id);
        let chunk = &self.chunks[number];
        let value = raw.first().and_then(|unit| {
            // Fits, because it is in the unit.
            let end_at = |record: u64| {
                let at = usize::try_from(chunk.bytes + record * END_BYTES).ok()?;
                unit.get(at..at + END_BYTES as usize).map(|bytes| crate::index::headers::u64_at(bytes, 0) as usize)
            };
            let start = if record == 0 { 0 } else { end_at(record - 1)? };
            let end = end_at(record).filter(|&end| start <= end && end <= unit.len())?;
            Some(unit.slice(start..end))
        });
        let value = value.ok_or_else(|| {
            let path = self.files().path(FileId(chunk.file));
            let what = decoded(format_args!("record {record} is outside of its chunk"));
            Error::new(ErrorKind::Corrupt, what).with_path(path).with_offset(chunk.offset)
        })?;
        out.values.push(Value::Bytes(value));
        Ok(())
    }

    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }

    fn largest(&self, _count: u64) -> u64 {
        0
    }

    /// Known where every chunk has one record.
    fn length(&self, id: SampleId, _field: usize) -> Option<u64> {
        let is_single = self.chunks.len() as u64 == self.len();
        is_single.then(|| self.chunks[self.locate(id).0].bytes)
    }

    /// FNV-1a over "array_record", the names and sizes of all files, and where each chunk ends, in records.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Units for ArrayRecord {
    fn count(&self) -> u32 {
        // Fits: `open` has checked it.
        self.chunks.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        // Fits: there are fewer than 2^32 chunks.
        out.push(UnitId(self.locate(id).0 as u32));
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let Chunk { file, offset, stored, .. } = self.chunks[unit.0 as usize];
        out.push(Span { file: FileId(file), offset, len: stored });
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.chunks[unit.0 as usize].decoded()
    }

    fn largest_decoded(&self) -> u64 {
        self.largest_decoded
    }

    fn largest_stored(&self) -> u64 {
        self.largest_stored
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let chunk = &self.chunks[unit.0 as usize];
        let stored = stored.first().map_or(&[][..], |stored| &stored[..]);
        // Fits: the caller has allocated this much.
        let (values, ends) = out.split_at_mut((chunk.bytes as usize).min(out.len()));
        let lens = records(&content(stored, chunk.offset), move |header| {
            if (header.records, header.decoded_bytes) != (chunk.records, chunk.bytes) {
                return Err("a chunk has other records than the index says".into());
            }
            Ok(values)
        });
        let lens = lens.map_err(|what| {
            let error = Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(FileId(chunk.file)));
            error.with_offset(chunk.offset).with_remedy("fetch or write the file again")
        })?;
        let mut end = 0;
        for (place, len) in ends.chunks_exact_mut(END_BYTES as usize).zip(lens) {
            end += len;
            place.copy_from_slice(&end.to_le_bytes());
        }
        Ok(out.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards() {
        for name in ["a.array_record", "train.ArrayRecord", "x-train.array_record-00000-of-00010", "b/a-1.array_record"]
        {
            assert!(is_shard(name.as_bytes()), "{name}");
        }
        for name in ["a.array_records", "array_record", "a.tfrecord-00000-of-00010", "", "a.array_record.uidx", "-of-1"]
        {
            assert!(!is_shard(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn messages_of_numbers() {
        assert_eq!(fields(&[8, 0x6b, 16, 3, 24, 1]), Some([0x6b, 3, 1]));
        assert_eq!(
            (fields(&[]), fields(&[10, 1, 8]), fields(&[32, 1]), fields(&[8])),
            (Some([0; 3]), None, None, None)
        );
    }
}
