//! Fixed-size records in one or many files.

use crate::fingerprint::Fingerprint;
use crate::paths::{Index, index, index_list, thread_count};
use crate::skipped::{SkipReason, Skips};
use crate::{DType, Dataset, Field, FileId, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, Value};
use bytes::Bytes;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

/// What becomes of bytes at the end of a file that do not make a whole record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// They are an error: the record size, the header size or the file is wrong.
    #[default]
    Error,
    /// They are left out, and the file is counted in [`Records::skipped`].
    Drop,
}

/// How [`Records`] are opened.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// Size of a record in bytes, at least 1.
    pub record_bytes: u64,
    /// Bytes before the first record of each file.
    pub header_bytes: u64,
    /// What becomes of an incomplete last record.
    pub tail: Tail,
    /// Type of the elements that a record consists of.
    pub dtype: DType,
    /// Shape of a record, in elements, row-major; empty: one dimension of as many as a record has.
    pub shape: Vec<u64>,
    /// Threads that look for files and take their sizes; 0 chooses by the machine.
    pub threads: usize,
}

/// Files of records of one size, one behind the other; every record is a sample.
///
/// Files come in the order in which [`Folder`](super::Folder) has them: the same paths, patterns and rules of what is
/// left out. A file may have no record. Which file a record lies in is a binary search over the files.
#[derive(Debug)]
pub struct Records {
    files: FileTable,
    /// Records in the files up to and with each.
    ends: Vec<u64>,
    record_bytes: u64,
    header_bytes: u64,
    dtype: DType,
    shape: Vec<u64>,
    schema: Schema,
    skipped: Vec<Skipped>,
    fingerprint: OnceLock<u64>,
}

impl Records {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open); `InvalidArgument` for records of 0 bytes, and for a shape and type
    /// that do not make a record; `Truncated` for a file that is shorter than its header, or whose last record is
    /// incomplete, unless the tail is to be dropped.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &RecordOptions) -> Result<Records> {
        shape_of(options)?;
        Records::from_index(index(paths, thread_count(options.threads))?, options)
    }

    /// Opens the files `names`, which are relative to `root`, in their order.
    ///
    /// # Errors
    /// As [`Records::open`], and for the first name that is not there or no regular file.
    pub fn from_list<P: AsRef<Path> + Sync>(
        root: impl AsRef<Path>,
        names: &[P],
        options: &RecordOptions,
    ) -> Result<Records> {
        shape_of(options)?;
        Records::from_index(index_list(root.as_ref(), names, thread_count(options.threads))?, options)
    }

    /// Of files that are already known: for tests and for callers with an index of their own.
    ///
    /// # Errors
    /// As [`Records::open`].
    pub fn from_files(files: FileTable, options: &RecordOptions) -> Result<Records> {
        Records::from_index(Index { files, ..Index::default() }, options)
    }

    fn from_index(index: Index, options: &RecordOptions) -> Result<Records> {
        let shape = shape_of(options)?;
        let Index { files, mut skips, .. } = index;
        let mut ends = Vec::with_capacity(files.len());
        let mut end = 0;
        for file in (0..files.len() as u32).map(FileId) {
            let count = record_count(&files, file, options, &mut skips)?;
            end = u64::checked_add(end, count).ok_or_else(|| {
                Error::new(ErrorKind::InvalidArgument, "more than 2^64 records up to").with_file(files.path(file))
            })?;
            ends.push(end);
        }
        if end == 0 {
            let doing = format!("no file holds a record of {} bytes in", options.record_bytes);
            let place = files.roots().first().map_or(Path::new("."), |root| &root.path);
            return Err(Error::new(ErrorKind::Empty, doing).with_file(place));
        }
        let field = Field { name: "data".into(), dtype: options.dtype, shape: Shape::Fixed(shape.clone()) };
        Ok(Records {
            files,
            ends,
            record_bytes: options.record_bytes,
            header_bytes: options.header_bytes,
            dtype: options.dtype,
            shape,
            schema: Schema { fields: vec![field] },
            skipped: skips.into_vec(),
            fingerprint: OnceLock::new(),
        })
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The file that a record lies in, and its number there, from 0.
    pub fn locate(&self, id: SampleId) -> (FileId, u64) {
        let (file, number) = super::locate(&self.ends, id.0);
        (FileId(file as u32), number)
    }
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
        let doing = format!("a record of {record_bytes} bytes is no whole number of {dtype} elements of {size} bytes");
        let error = Error::new(ErrorKind::InvalidArgument, doing);
        return Err(error.with_remedy("check the record size and the element type"));
    }
    let shape = if shape.is_empty() { vec![record_bytes / size] } else { shape.clone() };
    let bytes = shape.iter().try_fold(size, |bytes, &dimension| bytes.checked_mul(dimension));
    if bytes != Some(record_bytes) {
        let has = bytes.map_or("more than 2^64".into(), |bytes| bytes.to_string());
        let doing = format!("{dtype} elements of shape {shape:?} have {has} bytes, and a record has {record_bytes}");
        let error = Error::new(ErrorKind::InvalidArgument, doing);
        return Err(error.with_remedy("give the record size in bytes and the shape in elements, without the header"));
    }
    Ok(shape)
}

/// Number of whole records in a file.
fn record_count(files: &FileTable, file: FileId, options: &RecordOptions, skips: &mut Skips) -> Result<u64> {
    let size = files.size(file);
    let Some(payload) = size.checked_sub(options.header_bytes) else {
        let doing = format!("a header of {} bytes does not fit into the {size} bytes of", options.header_bytes);
        return Err(Error::new(ErrorKind::Truncated, doing)
            .with_file(files.path(file))
            .with_remedy("check the header size, or leave this file out"));
    };
    let incomplete = payload % options.record_bytes;
    if incomplete != 0 {
        if options.tail == Tail::Error {
            let doing = format!("the last record has {incomplete} of {} bytes in", options.record_bytes);
            return Err(Error::new(ErrorKind::Truncated, doing)
                .with_file(files.path(file))
                .with_offset(size - incomplete)
                .with_remedy("check the record size and the header size, or drop incomplete records"));
        }
        skips.add(SkipReason::IncompleteRecord, &files.path(file));
    }
    Ok(payload / options.record_bytes)
}

impl Dataset for Records {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn format(&self) -> &'static str {
        "records"
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, record) = self.locate(id);
        // Fits: the record ends at or before the file's end.
        let offset = self.header_bytes + record * self.record_bytes;
        out.push(Span { file, offset, len: self.record_bytes });
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, record) = self.locate(id);
        out.extend_from_slice(self.files.name(file));
        write!(out, "#{record}").expect("a Vec takes everything");
    }

    fn bytes(&self) -> u64 {
        self.len().saturating_mul(self.record_bytes)
    }

    fn largest(&self, count: u64) -> u64 {
        count.min(self.len()).saturating_mul(self.record_bytes)
    }

    /// FNV-1a over "records", record and header size, and the names and sizes of all files in order; then the type and
    /// the shape, unless records are plain bytes.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("records");
            fingerprint.number(self.record_bytes);
            fingerprint.number(self.header_bytes);
            fingerprint.files(&self.files);
            if self.dtype != DType::U8 || self.shape.len() > 1 {
                fingerprint.bytes(self.dtype.name().as_bytes());
                self.shape.iter().for_each(|&dimension| fingerprint.number(dimension));
            }
            fingerprint.finish()
        })
    }

    fn plain_field(&self) -> Option<usize> {
        Some(0)
    }

    fn parse_reads_bytes(&self) -> bool {
        false
    }

    /// Every file is a shard.
    fn shards(&self) -> &[u64] {
        &self.ends
    }
}
