//! Writes shards of tiny samples: MDS, version 2, as mosaicml-streaming's `MDSWriter` writes it. A table of offsets and
//! the columns come first, and from the next multiple of 4096 on the samples, side by side.
//!
//! Source: mosaicml-streaming 0.13, `streaming/base/format/mds/{writer,encodings}.py`.

use super::archive::Archive;
use super::manifest::replace_text;
use super::names::{Filling, Keys, Names};
use super::plan::Plan;
use super::shard::{Written, for_each, lost, value};
use super::{Job, Pack, PackOptions, UNIT_BYTES};
use crate::batch::Batch;
use crate::dataset::{self, DType, Dataset, Field, SampleId, Shape, View};
use crate::loader::Loader;
use crate::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ending of the names of shards.
pub(super) const ENDING: &str = ".mds";

/// Name of the file that lists the shards.
pub(super) const INDEX_NAME: &str = "index.json";

/// The column of the source's names.
const KEY: &str = "__key__";

/// Offsets have 32 bits.
const SHARD_BYTES_MAX: u64 = u32::MAX as u64;

/// Bytes of an offset in the table, and of a length before a sample.
const NUMBER_BYTES: u64 = 4;

/// How samples are stored.
pub(super) struct Dense {
    /// In the order of the format, that of their names.
    columns: Vec<Column>,
    /// Bytes before the values of a sample: the lengths of values that have one.
    lengths_bytes: u64,
    shard_bytes: u64,
}

struct Column {
    name: String,
    encoding: String,
    /// Bytes of a value, if all have the same.
    size: Option<u64>,
    /// The column of the source; `None`: the name of the sample.
    source: Option<usize>,
    /// Bytes of an element, for values with a length before them.
    counted: Option<u64>,
}

impl Dense {
    /// # Errors
    /// `InvalidArgument` for values that MDS cannot hold, and for options that require archives.
    pub(super) fn new(dataset: &dyn Dataset, names: &Names, options: &PackOptions) -> Result<Dense> {
        let refused = |what: String| {
            Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("pack into archives (layout tar)"))
        };
        if options.images.is_some() {
            return refused("images that are made anew go to archives".into());
        }
        if names.keys() == Keys::Source && (1..dataset.len()).any(|id| !names.begins(id)) {
            return refused("files whose names differ in their endings alone are one sample only in archives".into());
        }
        let mut columns = Vec::new();
        for (number, field) in dataset.schema().fields.iter().enumerate() {
            match Column::new(field, number) {
                Some(column) => columns.push(column),
                None => return refused(format!("MDS cannot hold the column {:?} of {}", field.name, field.dtype)),
            }
        }
        if names.keys() == Keys::Source {
            let (name, encoding) = (KEY.to_owned(), "str".to_owned());
            columns.push(Column { name, encoding, size: None, source: None, counted: None });
        }
        columns.sort_by(|a, b| a.name.cmp(&b.name));
        if columns.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return refused(format!("two columns would be called {KEY:?}"));
        }
        let lengths_bytes = NUMBER_BYTES * columns.iter().filter(|column| column.size.is_none()).count() as u64;
        Ok(Dense { columns, lengths_bytes, shard_bytes: options.shard_bytes.min(SHARD_BYTES_MAX) })
    }

    /// The description of the columns for the index.
    fn described(&self) -> Value {
        json!({
            "column_encodings": self.columns.iter().map(|column| &column.encoding).collect::<Vec<_>>(),
            "column_names": self.columns.iter().map(|column| &column.name).collect::<Vec<_>>(),
            "column_sizes": self.columns.iter().map(|column| column.size).collect::<Vec<_>>(),
            "compression": null,
            "format": "mds",
            "hashes": [],
            "size_limit": self.shard_bytes,
            "version": 2,
        })
    }

    /// Bytes before the samples of a shard with at most this many.
    fn head_bytes(&self, samples: u64) -> u64 {
        let table = NUMBER_BYTES * (samples + 2);
        (table + self.described().to_string().len() as u64).next_multiple_of(UNIT_BYTES)
    }

    /// The head of a shard: the number of samples, where each begins, where the last ends, the columns.
    fn head(&self, offsets: &[u32], bytes: u64) -> Vec<u8> {
        let mut head = Vec::with_capacity(bytes as usize);
        head.extend((offsets.len() as u32 - 1).to_le_bytes());
        head.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        head.extend(self.described().to_string().bytes());
        head.resize(bytes as usize, 0);
        head
    }
}

impl Column {
    /// `None` if the format has no such values.
    fn new(field: &Field, number: usize) -> Option<Column> {
        let name = field.name.clone();
        let type_name = type_name(field.dtype);
        let (encoding, size, counted) = match &field.shape {
            Shape::Ragged if field.dtype == DType::U8 => ("bytes".to_owned(), None, None),
            Shape::Ragged => (format!("ndarray:{}", type_name?), None, Some(field.dtype.size())),
            Shape::Fixed(shape) => {
                let bytes = shape.iter().try_fold(field.dtype.size(), |bytes, &len| bytes.checked_mul(len))?;
                let encoding = if shape.is_empty() {
                    type_name?.to_owned()
                } else {
                    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
                    format!("ndarray:{}:{}", type_name?, lengths.join(","))
                };
                (encoding, Some(bytes).filter(|&bytes| bytes > 0)?.into(), None)
            }
        };
        Some(Column { name, encoding, size, source: Some(number), counted })
    }

    /// Appends a value, with its head if it has one.
    fn put(&self, value: &[u8], out: &mut Vec<u8>) {
        if let Some(size) = self.counted {
            // One dimension, with its length in as few bytes as possible.
            let count = value.len() as u64 / size;
            let width = (0..4).find(|width| count < 1_u64.checked_shl(8 << width).unwrap_or(u64::MAX)).unwrap_or(3);
            out.push(1 << 2 | width as u8);
            out.extend(&count.to_le_bytes()[..1 << width]);
        }
        out.extend(value);
    }
}

/// The name of the type in the format's encodings.
fn type_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::U16 => "uint16",
        DType::I16 => "int16",
        DType::F16 => "float16",
        DType::U32 => "uint32",
        DType::I32 => "int32",
        DType::F32 => "float32",
        DType::U64 => "uint64",
        DType::I64 => "int64",
        DType::F64 => "float64",
        _ => return None,
    })
}

/// Which samples go to which shard: as many as fit, by the lengths in the index.
pub(super) fn plan(dense: Dense, dataset: &dyn Dataset, options: &PackOptions) -> (Option<Dense>, Plan) {
    let mut shards: Vec<Range<u64>> = Vec::new();
    let (mut key, mut spans) = (Vec::new(), Vec::new());
    let (mut start, mut bytes) = (0, 0_u64);
    for id in 0..dataset.len() {
        spans.clear();
        key.clear();
        let values = match dataset.units() {
            Some(_) => dataset.bytes() / dataset.len(),
            None => {
                dataset.spans(SampleId(id), &mut spans);
                spans.iter().fold(0, |sum: u64, span| sum.saturating_add(span.len))
            }
        };
        if dense.columns.iter().any(|column| column.source.is_none()) {
            dataset.key(SampleId(id), &mut key);
        }
        let own = values.saturating_add(key.len() as u64 + NUMBER_BYTES + dense.lengths_bytes);
        let is_full = options.shard_samples.is_some_and(|most| id - start >= most);
        if id > start && (is_full || dense.head_bytes(0) + bytes.saturating_add(own) > dense.shard_bytes) {
            shards.push(start..id);
            (start, bytes) = (id, 0);
        }
        bytes = bytes.saturating_add(own);
    }
    shards.push(start..dataset.len());
    (Some(dense), Plan::of(shards))
}

/// Writes the shard of the samples `range` to `path`. `None` if the pack was stopped.
///
/// # Errors
/// Why a sample cannot be read, unless samples may be left out; why the shard cannot be written.
pub(super) fn write(
    pack: &Pack,
    dense: &Dense,
    job: &Job<'_>,
    range: Range<u64>,
    path: PathBuf,
) -> Result<Option<Written>> {
    let head_bytes = dense.head_bytes(range.end - range.start);
    let mut archive = Archive::create(path.clone())?;
    archive.leave_head(head_bytes)?;
    let dataset = Arc::new(View::range(Arc::clone(&pack.dataset), range.clone())?);
    let mut loader = Loader::builder(dataset).config(pack.config.clone()).build()?;
    let mut offsets = vec![head_bytes as u32];
    let (mut written, mut sample, mut key) = (Written::default(), Vec::new(), Vec::new());
    for batch in &mut loader {
        let batch = batch?;
        for_each(&batch, |id, row, error| {
            let source = SampleId(range.start + id.0);
            key.clear();
            pack.dataset.key(source, &mut key);
            job.add_sample();
            let Some(row) = row else {
                return job.add_failed(&key, source, error.unwrap_or_else(|| lost(source)));
            };
            let payload = encode(dense, &batch, row, &key, &mut sample).ok_or_else(|| lost(source))?;
            let end = archive.position() + sample.len() as u64;
            offsets.push(u32::try_from(end).map_err(|_| too_long(&path))?);
            archive.put(&sample)?;
            written.samples += 1;
            written.members += dense.columns.len() as u64;
            written.payload_bytes += payload;
            job.add_bytes(payload);
            Ok(())
        })?;
        if job.tell().is_break() {
            return Ok(None);
        }
    }
    written.bytes = archive.finish_with_head(&dense.head(&offsets, head_bytes))?;
    written.padding_bytes = head_bytes - (NUMBER_BYTES * (offsets.len() as u64 + 1)).min(head_bytes);
    Ok(Some(written))
}

/// The bytes of a sample: the lengths of its values of varying length, then the values. Returns the bytes of the
/// values.
fn encode(dense: &Dense, batch: &Batch, row: usize, key: &[u8], out: &mut Vec<u8>) -> Option<u64> {
    out.clear();
    out.resize(dense.lengths_bytes as usize, 0);
    let (mut payload, mut place) = (0, 0);
    for column in &dense.columns {
        let before = out.len();
        match column.source {
            None => out.extend(key),
            Some(source) => {
                match value(batch, source, row)? {
                    Filling::Number(number) => column.put(&number.to_le_bytes(), out),
                    Filling::Bytes(bytes) => column.put(&bytes, out),
                }
                payload += (out.len() - before) as u64;
            }
        }
        let len = out.len() - before;
        match column.size {
            Some(size) if size != len as u64 => return None,
            Some(_) => {}
            None => {
                out[place..place + 4].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
                place += 4;
            }
        }
    }
    Some(payload)
}

/// Writes the list of shards once all exist, from any run. Returns the samples of this part's shards.
///
/// # Errors
/// For shards that were changed since, and for errors of the system.
pub(super) fn finish(pack: &Pack, dense: &Dense) -> Result<u64> {
    let mut samples = 0;
    for shard in pack.own_shards() {
        samples += pack.head_of(shard)?.0;
    }
    if !pack.has_all()? {
        return Ok(samples);
    }
    let mut listed = Vec::new();
    let mut total = 0;
    for shard in 0..pack.shards().len() as u64 {
        let (count, bytes) = pack.head_of(shard)?;
        // A shard whose samples were all left out has nothing to list.
        if count == 0 {
            continue;
        }
        total += count;
        let mut described = dense.described();
        described["samples"] = count.into();
        described["raw_data"] = json!({ "basename": pack.name(shard), "bytes": bytes, "hashes": {} });
        described["zip_data"] = Value::Null;
        listed.push(described);
    }
    let text = json!({ "shards": listed, "version": 2 }).to_string();
    match &pack.far {
        Some(far) => drop(far.put(INDEX_NAME, text.as_bytes(), false)?),
        None => replace_text(&text, &pack.folder.join(INDEX_NAME), pack.options.part)?,
    }
    if total > 0 {
        let found = dataset::open(&[&pack.folder], &pack.opening("mds"))
            .map_err(|error| {
                error.with_remedy("the shards were whole when they were written: delete them and pack again")
            })?
            .len();
        if found != total {
            let what = format!("{total} samples were written, and {found} are read: this is a bug of uringload");
            return Err(Error::new(ErrorKind::Internal, what).with_path(&pack.folder));
        }
    }
    Ok(samples)
}

impl Pack {
    /// Samples and bytes of a shard.
    pub(super) fn head_of(&self, shard: u64) -> Result<(u64, u64)> {
        let Some(far) = &self.far else { return head_of(&self.path(shard)) };
        match far.read(&self.name(shard), NUMBER_BYTES as usize)? {
            Some((count, bytes)) if count.len() as u64 == NUMBER_BYTES => {
                Ok((count.try_into().map_or(0, |count| u32::from_le_bytes(count).into()), bytes))
            }
            _ => Err(Error::new(ErrorKind::Truncated, "the shard has no head").with_path(self.path(shard))),
        }
    }

    /// Whether all shards are there, of all parts.
    fn has_all(&self) -> Result<bool> {
        let mut all = 0..self.shards().len() as u64;
        Ok(match &self.far {
            Some(far) => {
                let names = far.names()?;
                all.all(|shard| names.contains(&self.name(shard)))
            }
            None => all.all(|shard| self.path(shard).exists()),
        })
    }
}

fn head_of(path: &Path) -> Result<(u64, u64)> {
    let read = || -> io::Result<(u64, u64)> {
        let mut file = File::open(path)?;
        let mut count = [0; 4];
        file.read_exact(&mut count)?;
        Ok((u64::from(u32::from_le_bytes(count)), file.metadata()?.len()))
    };
    read().map_err(|source| Error::io("cannot read the head of a shard", source).with_path(path))
}

fn too_long(path: &Path) -> Error {
    Error::new(ErrorKind::InvalidArgument, "a shard would be longer than 4 GiB, which MDS has no offsets for")
        .with_path(path)
        .with_remedy("give a smaller shard_size (--shard-size), or fewer shard_samples (--shard-samples)")
}
