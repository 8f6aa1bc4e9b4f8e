//! `index.json`: which chunks there are, and of which leaves an item is made.

use super::leaves::Leaves;
use super::{SkipReason, Skips};
use crate::dataset::shards::{Listed, Listing, folder_of, read_json};
use crate::error::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use std::path::Path;

/// What an index of this format has.
#[derive(Deserialize)]
pub(super) struct Probe {
    #[serde(rename = "chunks")]
    _chunks: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Index {
    chunks: Vec<Chunk>,
    config: Config,
}

#[derive(Deserialize)]
struct Chunk {
    chunk_bytes: u64,
    /// Items.
    chunk_size: u64,
    /// Tokens of all items.
    dim: Option<u64>,
    filename: String,
}

#[derive(Deserialize)]
struct Config {
    compression: Option<String>,
    data_format: Option<Vec<String>>,
    data_spec: Option<String>,
    encryption: Option<IgnoredAny>,
    item_loader: Option<String>,
}

/// Reads the index `path`; returns what it lists, and the number of items of each chunk by name. `leaves` are those of
/// the index before, and become those of the first one.
pub(super) fn read(
    path: &Path,
    block_size: Option<u64>,
    leaves: &mut Option<Leaves>,
    skips: &mut Skips,
) -> Result<(Listing, HashMap<String, u64>)> {
    let Index { chunks, config } = read_json(path)?;
    let root = folder_of(path);
    let tokens = check(&config, path)?;
    let own = Leaves::new(&config.data_format.unwrap_or_default(), config.data_spec.as_deref(), tokens)
        .map_err(|error| error.with_file(path))?;
    match leaves {
        None => *leaves = Some(own),
        Some(first) if *first == own => {}
        Some(_) => {
            let error = Error::new(ErrorKind::Corrupt, "the leaves are not those of the first index:");
            return Err(error.with_file(path).with_remedy("read datasets of different leaves one by one"));
        }
    }
    if block_size.is_some() && !tokens {
        let error = Error::new(ErrorKind::InvalidArgument, "a block size is for tokens, and there are none in");
        return Err(error.with_file(path).with_remedy("leave the block size away"));
    }
    let mut items = HashMap::with_capacity(chunks.len());
    let mut shards = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let samples = match (block_size, chunk.dim) {
            (None, _) => chunk.chunk_size,
            (Some(block_size), Some(tokens)) => {
                if !tokens.is_multiple_of(block_size) {
                    skips.add(SkipReason::IncompleteRecord, &root.join(&chunk.filename));
                }
                tokens / block_size
            }
            (Some(_), None) => {
                let doing = format!("the number of tokens (dim) of {:?} is missing in", chunk.filename);
                return Err(Error::new(ErrorKind::Corrupt, doing).with_file(path));
            }
        };
        items.insert(chunk.filename.clone(), chunk.chunk_size);
        shards.push(Listed {
            name: chunk.filename,
            bytes: chunk.chunk_bytes,
            samples,
            hashes: Vec::new(),
            refused: None,
        });
    }
    Ok((Listing { root, shards }, items))
}

/// Whether the items are tokens; an error where they cannot be read.
fn check(config: &Config, path: &Path) -> Result<bool> {
    let cannot = |what: String, remedy: &'static str| {
        Error::new(ErrorKind::Unavailable, what).with_file(path).with_remedy(remedy)
    };
    if config.encryption.is_some() {
        return Err(cannot("encrypted chunks cannot be read, in".into(), "decrypt the dataset with litdata"));
    }
    if let Some(compression) = &config.compression {
        let what = format!("chunks compressed by {compression:?} cannot be read, in");
        return Err(cannot(what, "write the dataset again without compression"));
    }
    match config.item_loader.as_deref() {
        None | Some("PyTreeLoader") => Ok(false),
        Some("TokensLoader") => Ok(true),
        Some(other) => {
            let what = format!("items of {other} cannot be read, in");
            Err(cannot(what, "write the dataset again with PyTreeLoader or TokensLoader"))
        }
    }
}
