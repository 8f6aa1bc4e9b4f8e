//! Fixed-size records in one or many files.

mod fields;

use crate::dataset::{
    DType, Dataset, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, SkipReason, Skips,
    Span, Value,
};
use crate::detect::refuse_headers;
use crate::find::paths::FoundFiles;
use crate::format::{Format, Paths, Shows};
use crate::options::{FormatOptions, options};
use bytes::Bytes;
use fields::{FieldPlace, PADDING};
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of records.
    pub struct RecordOptions {
        /// Bytes of a record, at least 1.
        record_bytes: u64,
        /// Bytes before the first record, or raw token, of each file.
        header_bytes: u64,
        /// Leave out bytes at a file's end that do not make a whole record, instead of failing.
        drop_tail: bool,
        /// Type of the elements, such as u16, f32 or bf16.
        dtype: DType,
        /// Shape of a record, in elements, row-major; not given: one dimension of as many as a record has.
        shape: Vec<u64>,
        /// Columns of a record, instead of record_bytes, dtype and shape: label:u8, image:u8[3,32,32].
        record_fields: String,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "records",
    help: "Files of records of one size; needs record_bytes or record_fields.",
    options: RecordOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Any,
    open: |paths, options| {
        let named = options.is_set("record_fields");
        if named && ["dtype", "shape"].iter().any(|name| options.is_set(name)) {
            let what = "record_fields has the types and shapes, and dtype and shape are those of records of one field";
            let error = Error::new(ErrorKind::InvalidArgument, what);
            return Err(error.with_remedy("leave out dtype and shape"));
        }
        if !named && !options.is_set("record_bytes") {
            let error = Error::new(ErrorKind::InvalidArgument, "records need the size of a record");
            return Err(error.with_remedy("give record_bytes, or record_fields"));
        }
        Ok(Arc::new(Records::open(paths, &options.typed()?)?))
    },
};

/// Files of records of one size, end to end. A binary search over the files finds a record's file.
#[derive(Debug)]
pub struct Records {
    /// Every file is a shard.
    index: Index,
    record_bytes: u64,
    header_bytes: u64,
    dtype: DType,
    shape: Vec<u64>,
    /// The fields of a record; empty if all of it is one.
    places: Vec<FieldPlace>,
    fingerprint: OnceLock<u64>,
}

impl Records {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &RecordOptions) -> Result<Records> {
        with_fields(options)?;
        let found = paths.files(options.common.threads)?;
        if options.header_bytes == 0 {
            refuse_headers(&found.files, "records", paths.formats())?;
        }
        Records::from_index(found, options)
    }

    pub(crate) fn from_index(index: FoundFiles, options: &RecordOptions) -> Result<Records> {
        let (options, shape, places) = with_fields(options)?;
        let options = &options;
        let FoundFiles { files, mut skips, .. } = index;
        let mut ends = Vec::with_capacity(files.len());
        let mut end = 0;
        for file in (0..files.len() as u32).map(FileId) {
            let count = record_count(&files, file, options, &mut skips)?;
            end = u64::checked_add(end, count).ok_or_else(|| {
                Error::new(ErrorKind::InvalidArgument, "the files have more than 2^64 records")
                    .with_path(files.path(file))
            })?;
            ends.push(end);
        }
        if end == 0 {
            let what = format!("no file has a record of {} bytes", options.record_bytes);
            let place = files.place();
            return Err(Error::new(ErrorKind::Empty, what).with_path(place));
        }
        let named = places.iter().map(|place| &place.field).filter(|field| field.name != PADDING);
        let mut fields: Vec<Field> = named.cloned().collect();
        if fields.is_empty() {
            fields.push(Field { name: "data".into(), dtype: options.dtype, shape: Shape::Fixed(shape.clone()) });
        }
        let mut index = Index::new("records", files, Schema { fields }, end);
        index.bytes = end.saturating_mul(options.record_bytes);
        index.shards = ends;
        index.plain_field = places.is_empty().then_some(0);
        index.parse_reads_bytes = false;
        index.left_out = skips.into_vec();
        Ok(Records {
            index,
            record_bytes: options.record_bytes,
            header_bytes: options.header_bytes,
            dtype: options.dtype,
            shape,
            places,
            fingerprint: OnceLock::new(),
        })
    }
}

/// The options with the size that the fields say, the shape of a record, and its fields.
fn with_fields(options: &RecordOptions) -> Result<(RecordOptions, Vec<u64>, Vec<FieldPlace>)> {
    let mut options = options.clone();
    if options.record_fields.is_empty() {
        let shape = shape_of(&options)?;
        return Ok((options, shape, Vec::new()));
    }
    let places = fields::parse(&options.record_fields)?;
    let bytes = places.last().map_or(0, |place| place.end as u64);
    if options.record_bytes != 0 && options.record_bytes != bytes {
        let what = format!("the fields of a record have {bytes} bytes, and record_bytes is {}", options.record_bytes);
        let error = Error::new(ErrorKind::InvalidArgument, what);
        return Err(error.with_remedy("leave out record_bytes, or name padding as a field: _:u8[N]"));
    }
    options.record_bytes = bytes;
    Ok((options, vec![bytes], places))
}

/// The shape of a record, which has as many bytes as were named.
fn shape_of(options: &RecordOptions) -> Result<Vec<u64>> {
    let RecordOptions { record_bytes, dtype, ref shape, .. } = *options;
    let size = dtype.size();
    if record_bytes == 0 {
        let error = Error::new(ErrorKind::InvalidArgument, "a record must have at least one byte");
        return Err(error.with_remedy("give the record size in bytes"));
    }
    if shape.is_empty() && record_bytes % size != 0 {
        let what =
            format!("a record has {record_bytes} bytes, not a multiple of the {size} bytes of an element ({dtype})");
        let error = Error::new(ErrorKind::InvalidArgument, what);
        return Err(error.with_remedy("check the record size and the element type"));
    }
    let shape = if shape.is_empty() { vec![record_bytes / size] } else { shape.clone() };
    let bytes = shape.iter().try_fold(size, |bytes, &dimension| bytes.checked_mul(dimension));
    if bytes != Some(record_bytes) {
        let has = bytes.map_or("more than 2^64".into(), |bytes| bytes.to_string());
        let what = format!("{dtype} elements of shape {shape:?} have {has} bytes, and a record has {record_bytes}");
        let error = Error::new(ErrorKind::InvalidArgument, what);
        return Err(error.with_remedy("give the record size in bytes and the shape in elements, without the header"));
    }
    Ok(shape)
}

/// Number of whole records in a file.
fn record_count(files: &FileTable, file: FileId, options: &RecordOptions, skips: &mut Skips) -> Result<u64> {
    let size = files.size(file);
    let Some(payload) = size.checked_sub(options.header_bytes) else {
        let what = format!("a header of {} bytes does not fit into the {size} bytes of the file", options.header_bytes);
        return Err(Error::new(ErrorKind::Truncated, what)
            .with_path(files.path(file))
            .with_remedy("check the header size, or leave this file out"));
    };
    let incomplete = payload % options.record_bytes;
    if incomplete != 0 {
        if !options.drop_tail {
            let what = format!("the last record has {incomplete} of {} bytes", options.record_bytes);
            return Err(Error::new(ErrorKind::Truncated, what)
                .with_path(files.path(file))
                .with_offset(size - incomplete)
                .with_remedy("check the record size and the header size, or drop incomplete records"));
        }
        skips.add(SkipReason::IncompleteRecord, &files.path(file));
    }
    Ok(payload / options.record_bytes)
}

impl Dataset for Records {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, record) = self.index.locate(id);
        // Fits: the record ends at or before the file's end.
        let offset = self.header_bytes + record * self.record_bytes;
        out.push(Span { file, offset, len: self.record_bytes });
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        if self.places.is_empty() {
            out.values.push(Value::Bytes(raw[0].clone()));
            return Ok(());
        }
        let named = self.places.iter().filter(|place| place.field.name != PADDING);
        out.values.extend(named.map(|place| Value::Bytes(raw[0].slice(place.start..place.end))));
        Ok(())
    }

    fn is_plain(&self) -> bool {
        self.places.is_empty()
    }

    fn largest(&self, count: u64) -> u64 {
        count.min(self.len()).saturating_mul(self.record_bytes)
    }

    /// FNV-1a over "records", record and header size, and the names and sizes of all files in order; then the type and
    /// the shape, unless records are plain bytes; then each field's name, type and shape, if there are fields.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("records");
            fingerprint.number(self.record_bytes);
            fingerprint.number(self.header_bytes);
            fingerprint.files(self.files());
            if self.dtype != DType::U8 || self.shape.len() > 1 {
                fingerprint.bytes(self.dtype.name().as_bytes());
                self.shape.iter().for_each(|&dimension| fingerprint.number(dimension));
            }
            for FieldPlace { field, start, end } in &self.places {
                fingerprint.bytes(field.name.as_bytes());
                fingerprint.bytes(field.dtype.name().as_bytes());
                fingerprint.number((end - start) as u64);
                if let Shape::Fixed(shape) = &field.shape {
                    shape.iter().for_each(|&length| fingerprint.number(length));
                }
            }
            fingerprint.finish()
        })
    }
}
