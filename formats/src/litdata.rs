//! LitData chunks: files of items, each with a table of offsets, listed in an `index.json`.
//!
//! Source: litdata 0.2.76, `streaming/{writer,item_loader,serializers}.py`, `constants.py`.

mod index;
mod inside;
mod leaves;

use crate::fingerprint::Fingerprint;
use crate::shards::{self, BadShards, Listed, OpenFile, Shards, Table, Whole, find_indexes};
use crate::skipped::{SkipReason, Skips};
use crate::{Dataset, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, UnitId, Units, Value};
use bytes::Bytes;
use index::{Inside, Level};
use leaves::Leaves;
use std::path::Path;
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

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
/// # Compressed chunks
/// Of `zstd`, with any level of it. What is compressed at a time (`compression_level`) is a unit (see [`Units`]), read
/// and decoded as a whole, but for samples:
///
/// | level | unit | its decoded size |
/// |---|---|---|
/// | `chunk`, or none | a chunk | exactly `chunk_bytes` of the index |
/// | `batch` | a frame of some hundred items | exactly what the chunk's directory says |
/// | `sample` | a chunk | at most `chunk_bytes` of the index's config, and the last item |
///
/// No index and no head tells how long an item is that was compressed by itself. The bound is one that litdata keeps
/// when it writes; a chunk that does not is an error of its samples that says what to change. Where a chunk was full by
/// its number of items, opening the dataset reads 18 bytes of every item.
///
/// Where the raw file of a `chunk` lies beside the compressed one, or instead of it, it is read item by item; a dataset
/// may have chunks of all kinds. A state is good for the same chunks of level `chunk` with compression and without.
///
/// # What cannot be read
/// Encrypted chunks, and chunks whose rows are stored as Arrow only.
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
        let (listings, insides): (Vec<_>, Vec<_>) = indexes.into_iter().unzip();
        let place = listings.first().map_or(Path::new("."), |listing| &listing.root);
        let Some(mut leaves) = leaves else {
            return Err(Error::new(ErrorKind::Empty, "the index lists no chunk, in").with_file(place));
        };
        let read = |file: &OpenFile<'_>, listed: &Listed, listing: usize| {
            read_chunk(file, listed, insides[listing], &leaves, options.block_size)
        };
        let shards = Shards::open(&listings, options.threads, options.bad_shards, read)?;
        if leaves.has_open_arrays() {
            shards.learn(options.bad_shards, |file, place| leaves.learn(file, &place))?;
        }
        let schema = leaves.schema(options.block_size);
        let block_size = options.block_size.unwrap_or(0);
        Ok(LitData { shards, leaves, schema, block_size, skipped: skips.into_vec(), fingerprint: OnceLock::new() })
    }

    /// Whether `path` is a folder with an index of this format, such an index, or a pattern of them.
    pub fn detect(path: impl AsRef<Path>) -> bool {
        shards::has_index::<index::Probe>(path.as_ref())
    }

    /// How each column of the schema is stored, in the words of the format, and how chunks are compressed:
    /// "int", "int; zstd shards, decoded as a whole".
    pub fn encodings(&self) -> Vec<String> {
        self.shards.with_packing(self.leaves.encodings())
    }

    /// What was left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

/// What chunks end with that have rows as Arrow: the length of those, and this.
const ARROW_MAGIC: &[u8; 8] = b"LDARW01\0";

/// Reads what has to be known of a chunk before its samples are read; of one that is compressed as a whole, nothing.
fn read_chunk(
    file: &OpenFile<'_>,
    listed: &Listed,
    inside: Option<Inside>,
    leaves: &Leaves,
    block_size: Option<u64>,
) -> Result<Table> {
    let Listed { items, samples, .. } = *listed;
    if let Some(zipped) = &listed.zipped {
        let whole = Whole::zipped(file, zipped, items)?;
        let Some(block_size) = block_size else { return Ok(Table::Whole(whole)) };
        let bytes = leaves.token_bytes().saturating_mul(block_size);
        check_blocks(file, samples, block_size, (zipped.raw_bytes - whole.head_bytes()) / bytes, 0)?;
        return Ok(Table::Whole(whole.in_blocks(bytes)));
    }
    match inside {
        Some(_) if inside::is_framed(file)? => {
            let frames = inside::read_frames(file, items)?;
            check_items(file, &frames.offsets, leaves)?;
            Ok(Table::Frames(frames))
        }
        Some(Inside { level: Level::Sample, full_bytes }) => {
            let whole = inside::read_samples(file, items, full_bytes)?;
            let (first, last) = (u64::from(file.number(4)?), u64::from(file.number(whole.head_bytes() - 4)?));
            if last != file.size {
                check_arrow(file, items > 0 && last == first, last)?;
            }
            Ok(Table::Whole(whole))
        }
        Some(Inside { level: Level::Batch, .. }) if ends_with_arrow(file, 0)? => Err(arrow(file)),
        Some(Inside { level: Level::Batch, .. }) => Err(file.corrupt("there is no directory of frames in", 0)),
        Some(Inside { level: Level::Chunk, .. }) | None => read_table(file, items, samples, leaves, block_size),
    }
}

/// Reads the head of a chunk of `items` items that make `samples` samples.
fn read_table(
    file: &OpenFile<'_>,
    items: u64,
    samples: u64,
    leaves: &Leaves,
    block_size: Option<u64>,
) -> Result<Table> {
    let offsets = file.read_offsets(items)?;
    let (first, last) = (u64::from(offsets[0]), u64::from(offsets[offsets.len() - 1]));
    if first != 4 * (offsets.len() as u64 + 1) {
        return Err(file.corrupt(format!("the first item begins at {first}, not right behind the table, in"), 4));
    }
    if last != file.size {
        check_arrow(file, items > 0 && last == first, last)?;
    }
    if let Some(block_size) = block_size {
        let bytes = leaves.token_bytes().saturating_mul(block_size);
        let count = (last - first) / bytes;
        check_blocks(file, samples, block_size, count, first)?;
        return Ok(Table::Blocks { start: first, bytes, count });
    }
    check_items(file, &offsets, leaves)?;
    Ok(Table::Offsets(offsets))
}

fn check_blocks(file: &OpenFile<'_>, samples: u64, block_size: u64, count: u64, offset: u64) -> Result<()> {
    if count == samples {
        return Ok(());
    }
    let doing = format!("the index says {samples} blocks of {block_size} tokens, and there are {count} in");
    Err(file.corrupt(doing, offset))
}

/// Whether items may have the lengths that `offsets` give them.
fn check_items(file: &OpenFile<'_>, offsets: &[u32], leaves: &Leaves) -> Result<()> {
    for (number, pair) in offsets.windows(2).enumerate() {
        let len = u64::from(pair[1] - pair[0]);
        if !leaves.may_have(len) {
            let doing = format!("item {number} has {len} bytes, which its leaves cannot have, in");
            return Err(file.corrupt(doing, pair[0].into()));
        }
    }
    Ok(())
}

/// Rows as Arrow may stand behind the items, which are read; but not in their stead.
fn check_arrow(file: &OpenFile<'_>, is_instead: bool, end: u64) -> Result<()> {
    match (ends_with_arrow(file, end)?, is_instead) {
        (false, _) => Err(file.corrupt(format!("items end at {end}, and the file at {}:", file.size), end)),
        (true, false) => Ok(()),
        (true, true) => Err(arrow(file)),
    }
}

/// Whether a file ends with rows as Arrow, behind `end`.
fn ends_with_arrow(file: &OpenFile<'_>, end: u64) -> Result<bool> {
    let mut magic = [0; 8];
    let at = file.size.saturating_sub(8).max(end);
    if at + 8 > file.size {
        return Ok(false);
    }
    file.read(&mut magic, at)?;
    Ok(&magic == ARROW_MAGIC)
}

fn arrow(file: &OpenFile<'_>) -> Error {
    Error::new(ErrorKind::Unavailable, "rows that are stored as Arrow cannot be read:")
        .with_file(&file.path)
        .with_remedy("write the dataset again without nested rows, or without pyarrow installed")
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
        let bytes = self.shards.cut(id, raw)?;
        if self.leaves.is_tokens() {
            out.values.push(Value::Bytes(bytes.into_owned()));
            return Ok(());
        }
        self.leaves.split(&bytes, &mut out.values).map_err(|(doing, at)| self.shards.corrupt(id, raw, doing, at))
    }

    fn units(&self) -> Option<&dyn Units> {
        self.shards.has_units().then_some(self)
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
            Shape::Ragged => self.leaves.length(field, self.shards.sample_bytes(id)?),
        }
    }

    fn plain_field(&self) -> Option<usize> {
        (self.leaves.is_tokens() && !self.shards.has_units()).then_some(0)
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

impl Units for LitData {
    fn count(&self) -> u32 {
        self.shards.units()
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.shards.unit(id));
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        out.push(self.shards.unit_stored(unit));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.shards.unit_decoded(unit)
    }

    fn largest_decoded(&self) -> u64 {
        self.shards.largest_unit().1
    }

    fn largest_stored(&self) -> u64 {
        self.shards.largest_unit().0
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let block_size = (self.block_size > 0).then_some(self.block_size);
        self.shards.decode(unit, stored, out, |chunk, items, samples| {
            read_table(chunk, items, samples, &self.leaves, block_size)
        })
    }
}
