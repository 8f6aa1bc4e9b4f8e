//! MosaicML's MDS: shards of samples, each with a table of offsets, listed in an `index.json`.
//!
//! Source: mosaicml-streaming 0.13, `streaming/base/format/mds/{writer,reader,encodings}.py`.

mod columns;
mod index;

use crate::checks::{self, Check};
use crate::fingerprint::Fingerprint;
use crate::shards::{self, BadShards, Listed, OpenFile, Shards, Table, Whole, find_indexes};
use crate::{Dataset, FileId, FileTable, Sample, SampleId, Schema, Shape, Span, UnitId, Units, Value};
use bytes::Bytes;
use columns::Columns;
use std::path::Path;
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

/// How [`Mds`] is opened.
#[derive(Clone, Debug, Default)]
pub struct MdsOptions {
    /// What becomes of shards that cannot be had.
    pub bad_shards: BadShards,
    /// Whether opening reads all shards, to check the hashes that the index lists of them. A hash that cannot be
    /// computed (see [`Check`]) is an error of its shard then; a shard of which none is listed is taken as it is.
    pub verify_hashes: bool,
    /// Threads that open shards; 0 chooses by the machine.
    pub threads: usize,
}

/// A dataset that mosaicml-streaming's `MDSWriter` wrote.
///
/// # What may be given
/// Folders with an `index.json` (version 2), such files themselves, and patterns of both. Several are read one behind
/// the other and have the same columns. A merged index names shards in sub-folders; a folder whose sub-folders have
/// indexes of their own is not merged by this library, since they may be its splits.
///
/// Shards come in the order of the index, samples in that of their shard; every shard counts for a shuffle of shards.
///
/// # Columns
/// Those of the dataset, in its order:
///
/// | encoding | column |
/// |---|---|
/// | `int` | an `I64` |
/// | `uint8` ... `uint64`, `int8` ... `int64`, `float16` ... `float64` | a scalar of that type |
/// | `ndarray:DTYPE:D0,D1,...` | a tensor of that type and shape |
/// | `ndarray:DTYPE`, `ndarray` | elements in row-major order, of any number; see below for their shape |
/// | `bytes`, `str`, `json`, `jpeg`, `png` | bytes of any number: text is UTF-8, images are encoded |
/// | `str_int`, `str_float`, `str_decimal` | the number as ASCII text |
/// | `pil` | bytes: `u32` width, height and length of the mode, the mode ("RGB"), the pixels |
/// | `jpegarray`, `jpeg_array` | bytes: `u32` n, n times `u32` size, the files |
/// | `list[pil]`, `list[jpeg]`, `list[png]` | bytes: `u32` 0, `u32` n, n times `u32` size, the elements |
///
/// `pkl` is refused: to read a pickle is to run a program.
///
/// How many dimensions an array without a shape has, and of which type one without a type is, the first sample of the
/// dataset tells; a later one that differs in that is an error of its sample. Where there are two or more, a column
/// `NAME.shape` has the lengths as the format stores them: [`array_shape`](Mds::array_shape) reads it.
///
/// # Compressed shards
/// Of `zstd`, `gz`, `br`, `bz2` and `snappy`, each with any level. A shard is a unit (see [`Units`]): it is read and
/// decoded as a whole, to exactly the bytes that the index says, which are then held against the format as those of a
/// raw shard are when it is opened. Where the raw file lies beside the compressed one, or instead of it, it is read
/// sample by sample; a dataset may have shards of both kinds.
///
/// A state is good for the same shards with compression and without.
///
/// # What cannot be read
/// Shards in JSON, CSV or TSV. Hashes are checked where that [is asked for](MdsOptions::verify_hashes), and by
/// `uringload::verify`; of a compressed shard those of the file as it is stored.
#[derive(Debug)]
pub struct Mds {
    shards: Shards,
    /// Of each shard's file, in the order of shards: algorithm and hexadecimal digits.
    hashes: Vec<Vec<(String, String)>>,
    columns: Columns,
    schema: Schema,
    fingerprint: OnceLock<u64>,
}

impl Mds {
    /// Opens datasets.
    ///
    /// # Errors
    /// `NotFound` for an index or a shard that is not there; `Truncated` or `Corrupt` for a shard whose size or head is
    /// not what the index says; `Corrupt` for an index that breaks the format; `Unavailable` for encodings, shards and
    /// versions that cannot be read, with what to do; `Empty` if there is no sample. With
    /// [`BadShards::FailSamples`], shards that cannot be had are errors of their samples instead.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &MdsOptions) -> Result<Mds> {
        let mut listings = Vec::new();
        let mut columns: Option<Columns> = None;
        for path in find_indexes(paths)? {
            listings.push(index::read(&path, &mut columns)?);
        }
        let place = listings.first().map_or(Path::new("."), |listing| &listing.root);
        let Some(mut columns) = columns else {
            return Err(Error::new(ErrorKind::Empty, "the index lists no shard, in").with_file(place));
        };
        let read = |file: &OpenFile<'_>, listed: &Listed, _| {
            if let Some(source) = file.source().filter(|_| options.verify_hashes) {
                let span = Span { file: FileId(0), offset: 0, len: file.size };
                checks::require(source, &checks_of(&listed.hashes, span))?;
            }
            match &listed.zipped {
                Some(zipped) => Whole::zipped(file, zipped, listed.items).map(Table::Whole),
                None => read_table(file, listed.items, &columns),
            }
        };
        let shards = Shards::open(&listings, options.threads, options.bad_shards, read)?;
        if columns.has_open_arrays() {
            shards.learn(options.bad_shards, |file, place| columns.learn(file, &place))?;
        }
        let hashes = listings.into_iter().flat_map(|listing| listing.shards).map(|listed| listed.hashes).collect();
        Ok(Mds { schema: columns.schema(), shards, hashes, columns, fingerprint: OnceLock::new() })
    }

    /// Whether `path` is a folder with an index of this format, such an index, or a pattern of them.
    pub fn detect(path: impl AsRef<Path>) -> bool {
        shards::has_index::<index::Probe>(path.as_ref())
    }

    /// How each column of the schema is encoded, in the words of the format, and how shards are compressed:
    /// "int", "int; zstd shards, decoded as a whole".
    pub fn encodings(&self) -> Vec<String> {
        self.shards.with_packing(self.columns.encodings())
    }

    /// The shape that a value of a `NAME.shape` column tells; `None` where it is none.
    pub fn array_shape(header: &[u8]) -> Option<Vec<u64>> {
        columns::array_shape(header)
    }
}

/// The checks that hashes of a whole shard are.
fn checks_of(hashes: &[(String, String)], span: Span) -> Vec<Check> {
    let check = |(algorithm, expected): &(String, String)| {
        let (algorithm, expected) = (algorithm.clone().into(), expected.clone());
        Check { span, what: "the shard".into(), algorithm, expected }
    };
    hashes.iter().map(check).collect()
}

fn read_table(file: &OpenFile<'_>, samples: u64, columns: &Columns) -> Result<Table> {
    let offsets = file.read_offsets(samples)?;
    let last = offsets[offsets.len() - 1];
    if u64::from(last) != file.size {
        let place = 4 * offsets.len() as u64;
        return Err(file.corrupt(format!("the last sample ends at {last}, and the file at {}:", file.size), place));
    }
    for (number, pair) in offsets.windows(2).enumerate() {
        let len = u64::from(pair[1] - pair[0]);
        if !columns.may_have(len) {
            return Err(
                file.corrupt(format!("sample {number} has {len} bytes, too few or too many, in"), pair[0].into())
            );
        }
    }
    Ok(Table::Offsets(offsets))
}

impl Dataset for Mds {
    fn files(&self) -> &FileTable {
        &self.shards.files
    }

    fn format(&self) -> &'static str {
        "mds"
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
        if self.columns.is_plain() {
            out.values.push(Value::Bytes(bytes.into_owned()));
            return Ok(());
        }
        self.columns.split(&bytes, &mut out.values).map_err(|(doing, at)| self.shards.corrupt(id, raw, doing, at))
    }

    fn units(&self) -> Option<&dyn Units> {
        self.shards.has_units().then_some(self)
    }

    /// The name of the shard and the number of the sample in it: "shard.00000.mds#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.shards.key(id, out);
    }

    fn bytes(&self) -> u64 {
        self.shards.bytes()
    }

    fn largest(&self, count: u64) -> u64 {
        self.shards.largest(count)
    }

    /// FNV-1a over "mds", the columns with their encodings, and names, sizes and numbers of samples of all shards.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("mds");
            self.columns.fingerprint(&mut fingerprint);
            self.shards.fingerprint(&mut fingerprint);
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        match &self.schema.fields[field].shape {
            Shape::Fixed(shape) => Some(shape.iter().product()),
            Shape::Ragged => self.columns.length(field, self.shards.sample_bytes(id)?),
        }
    }

    fn plain_field(&self) -> Option<usize> {
        (self.columns.is_plain() && !self.shards.has_units()).then_some(0)
    }

    /// The hashes that the index lists.
    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        let span = Span { file, offset: 0, len: self.shards.files.size(file) };
        // A shard that cannot be had is one of the faults.
        if self.shards.is_good(file) {
            out.extend(checks_of(&self.hashes[file.0 as usize], span));
        }
        Ok(())
    }

    /// Shards that cannot be had.
    fn faults(&self) -> Vec<Error> {
        self.shards.faults()
    }

    /// Every file is a shard.
    fn shards(&self) -> &[u64] {
        self.shards.ends()
    }
}

impl Units for Mds {
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
        self.shards.decode(unit, stored, out, |shard, items, _| read_table(shard, items, &self.columns))
    }
}
