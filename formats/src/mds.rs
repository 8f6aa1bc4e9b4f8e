//! MosaicML's MDS: shards of samples, each with a table of offsets, listed in an `index.json`.
//!
//! Source: mosaicml-streaming 0.13, `streaming/base/format/mds/{writer,reader,encodings}.py`.

mod columns;
mod index;

use crate::checks;
use crate::options::{FormatOptions, options};
use crate::registry::{Format, Shows};
use crate::shards::{Layout, Listed, OfShards, OpenFile, Sharded, Table, Whole, checks_of, find_indexes, has_index};
use crate::{FileId, Span};
use columns::Columns;
pub use columns::array_shape;
use std::path::PathBuf;
use std::sync::Arc;
use uringload_core::Result;

options! {
    /// How [`Mds`] is opened.
    pub struct MdsOptions {
        /// Open the dataset although shards are missing or broken: their samples fail when they are read.
        allow_bad_shards: bool,
        /// Check the hashes that the index lists, which reads all shards. A hash of an unknown algorithm is an error of
        /// its shard; a shard without hashes is taken as it is.
        verify_hashes: bool,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: Columns::FORMAT,
    help: "Shards of mosaicml-streaming (MDS), listed in an index.json.",
    options: MdsOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Path(|path, _| has_index::<index::Probe>(path)),
    open: |paths, options| Ok(Arc::new(Mds::open(paths, &options.typed()?)?)),
};

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
/// The first sample of the dataset tells how many dimensions an array without a shape has, and of which type one
/// without a type is; a later sample that differs is an error. An array of two or more dimensions has a column
/// `NAME.shape` with the lengths as the format stores them: [`array_shape`] reads it.
///
/// # Compressed shards
/// `zstd`, `gz`, `br`, `bz2` and `snappy`, each with any level. A shard is a unit (see [`Units`](crate::Units)): it is
/// read and decoded as a whole. It must decode to exactly as many bytes as the index says, and these are checked as a
/// raw shard is when it is opened. Where the raw file lies beside the compressed one, or instead of it, it is read
/// sample by sample; a dataset may have shards of both kinds.
///
/// A state fits the same shards with compression and without.
///
/// # What cannot be read
/// Shards in JSON, CSV or TSV.
///
/// # Hashes
/// `verify_hashes` checks them when the dataset is opened; `uringload::verify` always does. The hash of a compressed
/// shard is that of the compressed file.
#[derive(Debug)]
pub struct Mds(Sharded<Columns>);

impl Mds {
    /// Opens datasets.
    ///
    /// # Errors
    /// `NotFound` for an index or a shard that is not there; `Truncated` or `Corrupt` for a shard whose size or head is
    /// not what the index says; `Corrupt` for an index that breaks the format; `Unavailable` for encodings, shards and
    /// versions that cannot be read, with what to do; `Empty` if there is no sample. With `allow_bad_shards`, missing
    /// and broken shards are errors of their samples instead.
    fn open(paths: &[PathBuf], options: &MdsOptions) -> Result<Mds> {
        let (mut listings, mut columns) = (Vec::new(), None);
        for path in find_indexes(paths)? {
            listings.push(index::read(&path, &mut columns)?);
        }
        let read = |columns: &Columns, file: &OpenFile<'_>, listed: &Listed, _| {
            if let Some(source) = file.source().filter(|_| options.verify_hashes) {
                let span = Span { file: FileId(0), offset: 0, len: file.size };
                checks::require(source, &checks_of(&listed.hashes, span))?;
            }
            match &listed.zipped {
                Some(zipped) => Whole::zipped(file, zipped, listed.items).map(Table::Whole),
                None => columns.read_table(file, listed.items, listed.samples),
            }
        };
        Sharded::open(listings, columns, options.common.threads, options.allow_bad_shards, read).map(Mds)
    }
}

impl OfShards for Mds {
    type Layout = Columns;

    fn sharded(&self) -> &Sharded<Columns> {
        &self.0
    }
}
