//! LitData chunks: files of items, each with a table of offsets, listed in an `index.json`.
//!
//! Source: litdata 0.2.76, `streaming/{writer,item_loader,serializers}.py`, `constants.py`.

mod index;
mod leaves;

use super::fingerprint::Fingerprint;
use super::headers::Source;
use super::shards::{self, BadShards, Listed, Shards, Table, find_indexes, open_shard, read_offsets};
use super::skipped::{SkipReason, Skips};
use super::{Dataset, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, Value};
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use leaves::Leaves;
use std::path::Path;
use std::sync::OnceLock;

/// How [`LitData`] is opened.
#[derive(Clone, Debug, Default)]
pub struct LitDataOptions {
    /// Tokens of a sample, for datasets of tokens; `None`: every document is a sample.
    pub block_size: Option<u64>,
    /// What becomes of chunks that cannot be had.
    pub bad_shards: BadShards,
    /// Threads that open chunks; 0 chooses by the machine.
    pub threads: usize,
}

/// A dataset that litdata's `optimize` wrote.
///
/// # What may be given
/// Folders with an `index.json`, such files themselves, and patterns of both. Several are read one behind the other and
/// have the same leaves. Chunks come in the order of the index; every chunk counts for a shuffle of shards.
///
/// # Columns
/// One for each leaf of an item. Its name is the way to it, joined by dots: keys of dictionaries, and numbers in lists
/// and tuples; an item that is a leaf itself is called "data".
///
/// | leaf | column |
/// |---|---|
/// | `int`, `float`, `bool` | an `I64`, an `F64`, a `Bool` |
/// | `no_header_tensor:K`, `no_header_numpy:K` | a vector of any length of that type |
/// | `tensor`, `numpy` | elements in row-major order, of any number |
/// | `json` | bytes as litdata packs nested values |
/// | `jpeg_array` | bytes: `u32` n, n times `u32` size, the files |
/// | `pil` | bytes: `u32` width, height and length of the mode, the mode ("RGB"), the pixels |
/// | `str`, `text`, `bytes`, `file`, `image`, `jpeg`, `video`, `audio`, ... | bytes: UTF-8, or the file |
///
/// Type and number of dimensions of `tensor` and `numpy` are those of the first item; one that differs is an error of
/// its sample. Where there are two dimensions or more, a column `NAME.shape` has the lengths as the format stores them:
/// of `numpy` as `U32`, of `tensor` as 4 bytes each, the highest first.
///
/// `pickle` and `graph`, which may hold a pickle, are refused: to read a pickle is to run a program.
///
/// # Tokens
/// A dataset that was written with `TokensLoader` has one column, "tokens". With a block size, a sample is so many
/// tokens, across the borders of documents but not of chunks, as litdata cuts them; tokens at the end of a chunk that
/// fill no block are left out, and the chunk is counted in [`skipped`](LitData::skipped).
///
/// # What cannot be read
/// Compressed and encrypted chunks, and chunks whose rows are stored as Arrow only.
#[derive(Debug)]
pub struct LitData {
    shards: Shards,
    leaves: Leaves,
    schema: Schema,
    block_size: u64,
    skipped: Vec<Skipped>,
    fingerprint: OnceLock<u64>,
}

impl LitData {
    /// Opens datasets.
    ///
    /// # Errors
    /// `NotFound` for an index or a chunk that is not there; `Truncated` or `Corrupt` for a chunk whose size or head is
    /// not what the index says; `Corrupt` for an index that breaks the format; `Unavailable` for leaves and chunks that
    /// cannot be read, with what to do; `InvalidArgument` for a block size where there are no tokens; `Empty` if there
    /// is no sample. With [`BadShards::FailSamples`], chunks that cannot be had are errors of their samples instead.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &LitDataOptions) -> Result<LitData> {
        if options.block_size == Some(0) {
            return Err(Error::new(ErrorKind::InvalidArgument, "a block must have at least one token"));
        }
        let mut indexes = Vec::new();
        let mut leaves: Option<Leaves> = None;
        let mut skips = Skips::default();
        for path in find_indexes(paths)? {
            indexes.push(index::read(&path, options.block_size, &mut leaves, &mut skips)?);
        }
        let (listings, heads): (Vec<_>, Vec<_>) = indexes.into_iter().unzip();
        let place = listings.first().map_or(Path::new("."), |listing| &listing.root);
        let Some(mut leaves) = leaves else {
            return Err(Error::new(ErrorKind::Empty, "the index lists no chunk, in").with_file(place));
        };
        let read = |file: &Source, listed: &Listed, listing: usize| {
            let items = heads[listing].get(&listed.name).copied().unwrap_or(listed.samples);
            read_table(file, items, listed.samples, &leaves, options.block_size)
        };
        let shards = Shards::open(&listings, options.threads, options.bad_shards, read)?;
        if leaves.has_open_arrays()
            && let Some(span) = shards.first()
        {
            let file = open_shard(shards.files.path(span.file))?;
            leaves.learn(&file, span)?;
        }
        let schema = leaves.schema(options.block_size);
        let block_size = options.block_size.unwrap_or(0);
        Ok(LitData { shards, leaves, schema, block_size, skipped: skips.into_vec(), fingerprint: OnceLock::new() })
    }

    /// Whether `path` is a folder with an index of this format, such an index, or a pattern of them.
    pub fn detect(path: impl AsRef<Path>) -> bool {
        shards::has_index::<index::Probe>(path.as_ref())
    }

    /// How each column of the schema is stored, in the words of the format.
    pub fn encodings(&self) -> Vec<String> {
        self.leaves.encodings()
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

/// What chunks end with that have rows as Arrow: the length of those, and this.
const ARROW_MAGIC: &[u8; 8] = b"LDARW01\0";

/// Reads the head of a chunk of `items` items that make `samples` samples.
fn read_table(file: &Source, items: u64, samples: u64, leaves: &Leaves, block_size: Option<u64>) -> Result<Table> {
    let offsets = read_offsets(file, items)?;
    let (first, last) = (u64::from(offsets[0]), u64::from(offsets[offsets.len() - 1]));
    if first != 4 * (offsets.len() as u64 + 1) {
        return Err(file.corrupt(4, format!("the first item begins at {first}, not right behind the table, in")));
    }
    if last != file.size() {
        check_arrow(file, items > 0 && last == first, last)?;
    }
    if let Some(block_size) = block_size {
        let bytes = leaves.token_bytes().saturating_mul(block_size);
        let count = (last - first) / bytes;
        if count != samples {
            let doing = format!("the index says {samples} blocks of {block_size} tokens, and there are {count} in");
            return Err(file.corrupt(first, doing));
        }
        return Ok(Table::Blocks { start: first, bytes, count });
    }
    for (number, pair) in offsets.windows(2).enumerate() {
        let len = u64::from(pair[1] - pair[0]);
        if !leaves.may_have(len) {
            let doing = format!("item {number} has {len} bytes, which its leaves cannot have, in");
            return Err(file.corrupt(pair[0].into(), doing));
        }
    }
    Ok(Table::Offsets(offsets))
}

/// Rows as Arrow may stand behind the items, which are read; but not in their stead.
fn check_arrow(file: &Source, is_instead: bool, end: u64) -> Result<()> {
    let mut magic = [0; 8];
    file.read(file.size().saturating_sub(8).max(end), &mut magic, "what follows the items")
        .map_err(|_| file.corrupt(end, format!("items end at {end}, and the file at {}:", file.size())))?;
    match (&magic == ARROW_MAGIC, is_instead) {
        (false, _) => Err(file.corrupt(end, format!("items end at {end}, and the file at {}:", file.size()))),
        (true, false) => Ok(()),
        (true, true) => Err(file
            .unavailable(end, "rows that are stored as Arrow cannot be read:")
            .with_remedy("write the dataset again without nested rows, or without pyarrow installed")),
    }
}

impl Dataset for LitData {
    fn files(&self) -> &FileTable {
        &self.shards.files
    }

    fn format(&self) -> &'static str {
        "litdata"
    }

    fn len(&self) -> u64 {
        self.shards.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        out.extend(self.shards.span(id));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let Some(bytes) = raw.first() else { return Err(self.shards.bad(id)) };
        if self.leaves.is_tokens() {
            out.values.push(Value::Bytes(bytes.clone()));
            return Ok(());
        }
        self.leaves.split(bytes, &mut out.values).map_err(|(doing, at)| self.shards.corrupt(id, doing, at))
    }

    /// The name of the chunk and the number of the sample in it: "chunk-0-0.bin#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.shards.key(id, out);
    }

    fn bytes(&self) -> u64 {
        self.shards.bytes()
    }

    fn largest(&self, count: u64) -> u64 {
        self.shards.largest(count)
    }

    /// FNV-1a over "litdata", the leaves with their names, the block size (0 where there is none), and names, sizes and
    /// numbers of samples of all chunks.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("litdata");
            self.leaves.fingerprint(&mut fingerprint);
            fingerprint.number(self.block_size);
            self.shards.fingerprint(&mut fingerprint);
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        match &self.schema.fields[field].shape {
            Shape::Fixed(shape) => Some(shape.iter().product()),
            Shape::Ragged => self.leaves.length(field, self.shards.span(id)?.len),
        }
    }

    fn plain_field(&self) -> Option<usize> {
        self.leaves.is_tokens().then_some(0)
    }

    /// Chunks that cannot be had.
    fn faults(&self) -> Vec<Error> {
        self.shards.faults()
    }

    /// Every chunk is a shard.
    fn shards(&self) -> &[u64] {
        self.shards.ends()
    }
}
