//! MosaicML's MDS: shards of samples, each with a table of offsets, listed in an `index.json`.
//!
//! Source: mosaicml-streaming 0.13, `streaming/base/format/mds/{writer,reader,encodings}.py`.

mod columns;
mod index;

use crate::dataset::{FileId, Span};
use crate::format::{Format, Shows};
use crate::formats::shards::{Layout, Listed, OpenFile, Sharded, Table, Whole, checks_of, find_indexes, has_index};
use crate::index::checks;
use crate::options::{FormatOptions, options};
use crate::place::Place;
use columns::Columns;
pub use columns::array_shape;
use std::sync::Arc;
use uringload_core::Result;

options! {
    /// Options of mds.
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
    shows: Shows::Path(|place, _| has_index::<index::Probe>(place)),
    open: |paths, options| Ok(Arc::new(open(&paths, &options.typed()?)?)),
};

/// A dataset that mosaicml-streaming's `MDSWriter` wrote.
///
/// The first sample shows how many dimensions an array without a shape has, and the type of one without a type.
fn open(named: &[Place], options: &MdsOptions) -> Result<Sharded<Columns>> {
    let (mut listings, mut columns) = (Vec::new(), None);
    for place in find_indexes(named)? {
        listings.push(index::read(&place, &mut columns)?);
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
    Sharded::open(listings, columns, options.common.threads, options.allow_bad_shards, read)
}
