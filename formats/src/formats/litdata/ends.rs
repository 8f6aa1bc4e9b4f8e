//! Whether a chunk ends as it must: after its items, its blocks, or its rows as Arrow.

use crate::formats::shards::OpenFile;
use uringload_core::not_built_in;
use uringload_core::{Error, ErrorKind, Result};

/// What chunks end with that have rows as Arrow: the length of those, and this.
const ARROW_MAGIC: &[u8; 8] = b"LDARW01\0";

/// Refuses another number of blocks than the index lists.
pub(super) fn check_blocks(file: &OpenFile<'_>, samples: u64, block_size: u64, count: u64, offset: u64) -> Result<()> {
    if count == samples {
        return Ok(());
    }
    let what = format!("there are {count} blocks of {block_size} tokens, and the index says {samples}");
    Err(file.corrupt(what, offset))
}

/// Rows as Arrow may follow the items, which are read; but they may not replace them.
pub(super) fn check_arrow(file: &OpenFile<'_>, is_instead: bool, end: u64) -> Result<()> {
    match (ends_with_arrow(file, end)?, is_instead) {
        (false, _) => Err(file.corrupt(format!("the items end at {end}, and the file at {}", file.size), end)),
        (true, false) => Ok(()),
        (true, true) => Err(arrow(file)),
    }
}

/// Whether a file ends with rows as Arrow, after `end`.
pub(super) fn ends_with_arrow(file: &OpenFile<'_>, end: u64) -> Result<bool> {
    let mut magic = [0; 8];
    let at = file.size.saturating_sub(8).max(end);
    if at + 8 > file.size {
        return Ok(false);
    }
    file.read(&mut magic, at)?;
    Ok(&magic == ARROW_MAGIC)
}

pub(super) fn arrow(file: &OpenFile<'_>) -> Error {
    if !cfg!(feature = "parquet") {
        return not_built_in("Arrow, as which the chunk has its rows", "parquet").with_path(&file.path);
    }
    let error = Error::new(ErrorKind::Unavailable, "the chunk has rows as Arrow, where items are read");
    error.with_path(&file.path).with_remedy("write the dataset again, all of it with the same version of litdata")
}
