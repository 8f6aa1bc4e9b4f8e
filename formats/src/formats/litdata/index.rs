//! `index.json`: the chunks, and the leaves that make up an item.

use super::leaves::Leaves;
use crate::compression::Compression;
use crate::dataset::{SkipReason, Skips};
use crate::formats::shards::{Listed, Listing, Zipped};
use crate::place::Place;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// What identifies an index of this format.
#[derive(Deserialize)]
pub(super) struct Probe {
    #[serde(rename = "chunks")]
    _chunks: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Index {
    pub(super) chunks: Vec<Chunk>,
    pub(super) config: Config,
}

#[derive(Deserialize)]
pub(super) struct Chunk {
    pub(super) chunk_bytes: u64,
    /// Number of items.
    pub(super) chunk_size: u64,
    /// Tokens of all items.
    dim: Option<u64>,
    pub(super) filename: String,
}

#[derive(Deserialize)]
pub(super) struct Config {
    compression: Option<String>,
    compression_level: Option<String>,
    /// Bytes of items that fill a chunk, before compression.
    #[serde(default)]
    chunk_bytes: serde_json::Value,
    data_format: Option<Vec<String>>,
    data_spec: Option<String>,
    pub(super) encryption: Option<IgnoredAny>,
    item_loader: Option<String>,
}

/// How items inside chunks are compressed, if chunks are not compressed as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) level: Level,
    /// Bytes of items that fill a chunk, before compression, if the index says so.
    pub(super) full_bytes: Option<u64>,
}

/// What is compressed as one piece (`compression_level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// A whole file. Other files beside it may be raw or, if datasets were merged, framed.
    Chunk,
    /// Several items at a time; the file begins with a directory of frames.
    Batch,
    /// Each item.
    Sample,
}

/// What the index at `place` lists, and how items are compressed. `leaves` are those of the previous index; the first
/// index sets them.
pub(super) fn read(
    place: &Place,
    Index { chunks, config }: Index,
    block_size: Option<u64>,
    leaves: &mut Option<Leaves>,
    skips: &mut Skips,
) -> Result<(Listing, Option<Inside>)> {
    let (root, path) = (place.folder(), place.path());
    let (tokens, level) = check(&config, path)?;
    let own = Leaves::new(&config.data_format.unwrap_or_default(), config.data_spec.as_deref(), tokens, block_size)
        .map_err(|error| error.with_path(path))?;
    match leaves {
        None => *leaves = Some(own),
        Some(first) if *first == own => {}
        Some(_) => {
            let error = Error::new(ErrorKind::Corrupt, "the leaves are not those of the first index");
            return Err(error.with_path(path).with_remedy("open datasets with different leaves one by one"));
        }
    }
    if block_size.is_some() && !tokens {
        let error = Error::new(ErrorKind::InvalidArgument, "a block size is given, and the dataset has no tokens");
        return Err(error.with_path(path).with_remedy("leave out block_size"));
    }
    let inside = level.map(|level| Inside { level, full_bytes: config.chunk_bytes.as_u64() });
    let mut shards = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let samples = match (block_size, chunk.dim) {
            (None, _) => chunk.chunk_size,
            (Some(block_size), Some(tokens)) => {
                if !tokens.is_multiple_of(block_size) {
                    skips.add(SkipReason::IncompleteRecord, root.join(&chunk.filename).path());
                }
                tokens / block_size
            }
            (Some(_), None) => {
                let what = format!("the number of tokens (dim) of {:?} is missing", chunk.filename);
                return Err(Error::new(ErrorKind::Corrupt, what).with_path(path));
            }
        };
        let compression = config.compression.as_deref().filter(|_| level == Some(Level::Chunk));
        shards.push(listed(&root, chunk, samples, compression));
    }
    Ok((Listing { root, shards }, inside))
}

/// Lists one chunk. `compression` applies to whole files: those with its name in theirs, unless a reader of the format
/// has already replaced them with the raw chunk. In both cases the index states the size of the raw chunk.
fn listed(root: &Place, chunk: Chunk, samples: u64, compression: Option<&str>) -> Listed {
    let Chunk { chunk_bytes: raw_bytes, chunk_size: items, filename: name, .. } = chunk;
    let raw_name = compression.map(|compression| name.replace(&format!(".{compression}"), ""));
    match raw_name.filter(|raw_name| *raw_name != name) {
        None => Listed { name, bytes: raw_bytes, samples, items, hashes: Vec::new(), zipped: None, refused: None },
        Some(raw_name) if root.join(&raw_name).is_there() => {
            Listed { name: raw_name, bytes: raw_bytes, samples, items, hashes: Vec::new(), zipped: None, refused: None }
        }
        Some(raw_name) => {
            // If the file is missing, opening it reports why.
            let bytes = root.join(&name).stat().map_or(0, |stat| stat.bytes);
            let zipped = Some(Zipped { compression: Compression::Zstd, raw_name, raw_bytes });
            Listed { name, bytes, samples, items, hashes: Vec::new(), zipped, refused: None }
        }
    }
}

/// Whether the items are tokens, and what is compressed as one piece, if anything; an error if they are not supported.
fn check(config: &Config, path: &Path) -> Result<(bool, Option<Level>)> {
    let cannot = |what: String, remedy: &'static str| {
        Error::new(ErrorKind::Unavailable, what).with_path(path).with_remedy(remedy)
    };
    if config.encryption.is_some() {
        return Err(cannot("encrypted chunks cannot be read".into(), "decrypt the dataset with litdata"));
    }
    let tokens = match config.item_loader.as_deref() {
        None | Some("PyTreeLoader") => false,
        Some("TokensLoader") => true,
        Some(other) => {
            let what = format!("items of {other} cannot be read");
            return Err(cannot(what, "write the dataset again with PyTreeLoader or TokensLoader"));
        }
    };
    let Some(compression) = &config.compression else { return Ok((tokens, None)) };
    if compression.split(':').next() != Some("zstd") {
        let what = format!("chunks compressed with {compression:?} cannot be read");
        return Err(cannot(what, "write the dataset again with zstd or without compression"));
    }
    Compression::Zstd.check().map_err(|error| error.with_path(path))?;
    let level = config.compression_level.as_deref().unwrap_or_default();
    match (level.trim().to_ascii_lowercase().as_str(), tokens) {
        ("" | "chunk", _) => Ok((tokens, Some(Level::Chunk))),
        ("batch", false) => Ok((tokens, Some(Level::Batch))),
        ("sample", false) => Ok((tokens, Some(Level::Sample))),
        (_, true) => Err(cannot(
            format!("tokens compressed by {level:?} cannot be read"),
            "write the dataset again with the compression_level \"chunk\"",
        )),
        (_, false) => Err(cannot(
            format!("chunks with the compression_level {level:?} cannot be read"),
            "write the dataset again with the compression_level \"chunk\", \"batch\" or \"sample\"",
        )),
    }
}
