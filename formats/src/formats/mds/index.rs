//! `index.json`, version 2: the shards and their columns.

use super::columns::Columns;
use crate::compression::Compression;
use crate::formats::shards::{Listed, Listing, Zipped, read_json};
use crate::place::Place;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use uringload_core::{Error, ErrorKind, Result};

/// What identifies an index of this format.
#[derive(Deserialize)]
pub(super) struct Probe {
    #[serde(rename = "shards")]
    _shards: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Index {
    version: u64,
    shards: Vec<Shard>,
}

/// Fields that other formats lack have defaults: for these, an error about the format's name says more.
#[derive(Deserialize)]
struct Shard {
    version: u64,
    format: String,
    #[serde(default)]
    column_names: Vec<String>,
    #[serde(default)]
    column_encodings: Vec<String>,
    #[serde(default)]
    column_sizes: Vec<Option<u64>>,
    #[serde(default)]
    compression: Option<String>,
    raw_data: FileInfo,
    zip_data: Option<FileInfo>,
    samples: u64,
}

#[derive(Deserialize)]
struct FileInfo {
    basename: String,
    bytes: u64,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

/// The only version that mosaicml-streaming has ever released.
const VERSION: u64 = 2;

/// Reads the index at `place`. `columns` are those of all previous shards; the first shard sets them.
pub(super) fn read(place: &Place, columns: &mut Option<Columns>) -> Result<Listing> {
    let index: Index = read_json(place)?;
    let root = place.folder();
    let unknown = |version: u64| {
        let what = format!("the format has version {version}, and only version {VERSION} can be read");
        Error::new(ErrorKind::Unavailable, what).with_path(place).with_remedy("write the dataset again")
    };
    if index.version != VERSION {
        return Err(unknown(index.version));
    }
    let mut shards = Vec::with_capacity(index.shards.len());
    for shard in index.shards {
        let name = shard.raw_data.basename.clone();
        if shard.version != VERSION {
            return Err(unknown(shard.version));
        }
        if shard.format != "mds" {
            let what = format!("a shard of the format {:?} cannot be read", shard.format);
            return Err(Error::new(ErrorKind::Unavailable, what)
                .with_path(root.join(&name))
                .with_remedy("write the dataset again with MDSWriter"));
        }
        let own = Columns::new(&shard.column_names, &shard.column_encodings, &shard.column_sizes)
            .map_err(|error| error.with_path(root.join(&name)))?;
        match columns {
            None => *columns = Some(own),
            Some(first) if *first == own => {}
            Some(_) => {
                let what = "the columns are not those of the first shard";
                return Err(Error::new(ErrorKind::Corrupt, what)
                    .with_path(root.join(&name))
                    .with_remedy("open datasets with different columns one by one"));
            }
        }
        // Readers of the format put the raw file next to the compressed one, or in its place.
        let zip = shard.zip_data.filter(|_| !root.join(&name).is_there());
        shards.push(listed(&root, shard.raw_data, shard.samples, zip, shard.compression.as_deref()));
    }
    Ok(Listing { root, shards })
}

fn listed(root: &Place, raw: FileInfo, samples: u64, zip: Option<FileInfo>, compression: Option<&str>) -> Listed {
    let FileInfo { basename: raw_name, bytes: raw_bytes, hashes } = raw;
    let Some(zip) = zip else {
        let hashes = hashes.into_iter().collect();
        return Listed {
            name: raw_name,
            bytes: raw_bytes,
            samples,
            items: samples,
            hashes,
            zipped: None,
            refused: None,
        };
    };
    let found = compression.and_then(named);
    let refused = match found {
        Some(found) => found.check().err().map(|error| error.with_path(root.join(&zip.basename))),
        None => {
            let given = compression.unwrap_or("an unknown algorithm");
            let what = format!("a shard compressed with {given} cannot be read");
            let error = Error::new(ErrorKind::Unavailable, what).with_path(root.join(&zip.basename));
            let remedy = format!("decompress it to {raw_name:?} in the same folder; the index may stay as it is");
            Some(error.with_remedy(remedy))
        }
    };
    let zipped = found.map(|compression| Zipped { compression, raw_name, raw_bytes });
    let hashes = zip.hashes.into_iter().collect();
    Listed { name: zip.basename, bytes: zip.bytes, samples, items: samples, hashes, zipped, refused }
}

/// Parses a compression name that a level may follow: "zstd:7".
fn named(compression: &str) -> Option<Compression> {
    Some(match compression.split_once(':').map_or(compression, |(name, _)| name) {
        "br" => Compression::Brotli,
        "bz2" => Compression::Bzip2,
        "gz" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "zstd" => Compression::Zstd,
        _ => return None,
    })
}
