//! LitData chunks: files of items, each with a table of offsets, listed in an `index.json`.
//!
//! Source: litdata 0.2.76, `streaming/{writer,item_loader,serializers}.py`, `constants.py`.

mod ends;
mod index;
mod inside;
mod leaves;
#[cfg(feature = "parquet")]
mod rows;

use crate::dataset::{Dataset, Skips};
use crate::format::{Format, Shows};
use crate::formats::shards::{Layout, Listed, OpenFile, Sharded, Table, Whole, find_indexes, has_index, read_json};
use crate::options::{FormatOptions, OptionSpec, Options, options};
use crate::place::Place;
use ends::{arrow, check_arrow, check_blocks, ends_with_arrow};
use index::{Inside, Level};
use leaves::Leaves;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of litdata.
    pub struct LitDataOptions {
        /// Tokens of a sample, for datasets of tokens; not given: every document is a sample.
        block_size: Option<u64>,
        /// Open the dataset although shards are missing or broken: their samples fail when they are read.
        allow_bad_shards: bool,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: Leaves::FORMAT,
    help: "Chunks of LitData, listed in an index.json.",
    options: OPTIONS,
    has_sidecars: false,
    shows: Shows::Path(|place, _| has_index::<index::Probe>(place)),
    open: |paths, options| open(&paths, options),
};

#[cfg(feature = "parquet")]
const OPTIONS: &[OptionSpec] = {
    use crate::formats::columnar::ColumnarOptions as Rows;
    &[LitDataOptions::SPECS[0], LitDataOptions::SPECS[1], Rows::SPECS[0], Rows::SPECS[1]]
};
#[cfg(not(feature = "parquet"))]
const OPTIONS: &[OptionSpec] = LitDataOptions::SPECS;

/// A dataset that litdata's `optimize` wrote.
///
/// The first item shows type and number of dimensions of `tensor` and `numpy`. Neither the index nor a chunk's head has
/// the length of an item that was compressed by itself; litdata keeps to at most `chunk_bytes` of the index's config
/// and the last item when it writes. If chunks were filled by number of items, opening reads 18 bytes of every item.
fn open(named: &[Place], given: &Options) -> Result<Arc<dyn Dataset>> {
    let options: &LitDataOptions = &given.typed()?;
    if options.block_size == Some(0) {
        let error = Error::new(ErrorKind::InvalidArgument, "a block must have at least one token");
        return Err(error.with_remedy("give block_size the number of tokens of a sample, or leave it out"));
    }
    let indexes = find_indexes(named)?.into_iter().map(|place| Ok((read_json(&place)?, place)));
    let indexes: Vec<(index::Index, Place)> = indexes.collect::<Result<_>>()?;
    #[cfg(feature = "parquet")]
    if rows::has_rows(&indexes) {
        return Ok(Arc::new(rows::open(&indexes, options, given)?));
    }
    let (mut listings, mut insides, mut leaves, mut skips) = (Vec::new(), Vec::new(), None, Skips::default());
    for (index, place) in indexes {
        let (listing, inside) = index::read(&place, index, options.block_size, &mut leaves, &mut skips)?;
        listings.push(listing);
        insides.push(inside);
    }
    let read = |leaves: &Leaves, file: &OpenFile<'_>, listed: &Listed, listing: usize| {
        read_chunk(file, listed, insides[listing], leaves)
    };
    let mut sharded = Sharded::open(listings, leaves, options.common.threads, options.allow_bad_shards, read)?;
    sharded.index_mut().left_out = skips.into_vec();
    // Last: a chunk of rows that is broken may pass for one of items, and has its own error.
    if let Some(name) = ["columns", "nulls"].into_iter().find(|name| given.is_set(name)) {
        let what = format!("{name} is for rows as Arrow, and these chunks have items");
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(sharded.index_mut().files.place());
        return Err(error.with_remedy("leave it out"));
    }
    Ok(Arc::new(sharded))
}

/// Reads what has to be known of a chunk before its samples are read; of one that is compressed as a whole, nothing.
fn read_chunk(file: &OpenFile<'_>, listed: &Listed, inside: Option<Inside>, leaves: &Leaves) -> Result<Table> {
    let Listed { items, samples, .. } = *listed;
    if let Some(zipped) = &listed.zipped {
        let whole = Whole::zipped(file, zipped, items)?;
        let Some((block_size, bytes)) = leaves.block() else { return Ok(Table::Whole(whole)) };
        check_blocks(file, samples, block_size, (zipped.raw_bytes - whole.head_bytes()) / bytes, 0)?;
        return Ok(Table::Whole(whole.in_blocks(bytes)));
    }
    match inside {
        Some(_) if inside::is_framed(file)? => {
            let frames = inside::read_frames(file, items)?;
            leaves.check_items(file, &frames.offsets)?;
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
        Some(Inside { level: Level::Batch, .. }) => Err(file.corrupt("there is no directory of frames", 0)),
        Some(Inside { level: Level::Chunk, .. }) | None => leaves.read_table(file, items, samples),
    }
}
