//! The folder that shards go to: what is noted there of their making, who writes there, and what others left behind.

use super::archive::{failed, sync_folder, temporary_of};
use super::{Pack, shard_name};
use crate::dataset::MANIFEST_NAME;
use crate::error::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The number of the layout and of the plan: shards of another one do not stand beside those of this one.
const VERSION: u32 = 1;

/// A manifest is some hundred bytes; a longer file is none.
const BYTES_MAX: u64 = 64 << 10;

/// What shards are made of: equal for two packs of which one can go on with the other's.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u32,
    format: String,
    fingerprint: String,
    source_samples: u64,
    prefix: String,
    align: u64,
    shard_bytes: u64,
    shard_samples: Option<u64>,
    keys: String,
    samples: u64,
    shards: u64,
}

impl Manifest {
    fn of(pack: &Pack) -> Manifest {
        let options = &pack.options;
        Manifest {
            version: VERSION,
            format: pack.dataset.format().into(),
            fingerprint: format!("{:016x}", pack.dataset.fingerprint()),
            source_samples: pack.dataset.len(),
            prefix: options.prefix.clone(),
            align: options.align,
            shard_bytes: options.shard_bytes,
            shard_samples: options.shard_samples,
            keys: pack.names.keys().name().into(),
            samples: pack.samples(),
            shards: pack.shards().len() as u64,
        }
    }

    /// What the folder's manifest says; `None` where there is none.
    fn read(path: &Path) -> Result<Option<Manifest>> {
        let failed = |source| Error::io("cannot read", source).with_file(path);
        let text = match fs::metadata(path) {
            Ok(metadata) if metadata.len() <= BYTES_MAX => fs::read(path).map_err(failed)?,
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|source| {
            Error::new(ErrorKind::Corrupt, "no manifest of a pack that is known here:")
                .with_file(path)
                .with_source(source)
                .with_remedy("name another folder, or empty this one")
        })
    }

    /// Writes it so that the folder has the old one or this one, whenever the machine stops.
    fn write(&self, path: &Path) -> Result<()> {
        let temporary = temporary_of(path);
        let text = serde_json::to_string_pretty(self).expect("strings and numbers are JSON") + "\n";
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, path))
            .and_then(|()| sync_folder(path));
        written.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            failed(path, source)
        })
    }

    /// The names of what differs.
    fn differences(&self, other: &Manifest) -> Vec<&'static str> {
        let pairs = [
            ("version", self.version == other.version),
            ("format", self.format == other.format),
            ("source", self.fingerprint == other.fingerprint && self.source_samples == other.source_samples),
            ("prefix", self.prefix == other.prefix),
            ("align", self.align == other.align),
            ("shard size", self.shard_bytes == other.shard_bytes),
            ("shard samples", self.shard_samples == other.shard_samples),
            ("keys", self.keys == other.keys),
            ("number of samples", self.samples == other.samples),
            ("number of shards", self.shards == other.shards),
        ];
        pairs.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

/// The folder, while nobody else packs into it.
pub(super) struct Destination {
    /// Holds the lock.
    _folder: File,
}

impl Destination {
    /// Makes the folder ready for the shards of `pack`: those of the same plan stay.
    ///
    /// # Errors
    /// `InvalidArgument` for a folder that has something else in it or that another pack is writing to; what the system
    /// says.
    pub(super) fn prepare(pack: &Pack) -> Result<Destination> {
        let place = &pack.folder;
        let refused = |doing: String, remedy: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, doing).with_file(place).with_remedy(remedy))
        };
        fs::create_dir_all(place).map_err(|source| failed(place, source))?;
        let folder = File::open(place).map_err(|source| failed(place, source))?;
        // Where files cannot be locked at all, as on some network filesystems, nothing is known of others.
        if flock(&folder, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
            return refused("another pack is writing to".into(), "wait for it, or name another folder");
        }
        let path = place.join(MANIFEST_NAME);
        let wanted = Manifest::of(pack);
        // What is half written of a manifest was written before any shard.
        remove(&temporary_of(&path))?;
        let found = Manifest::read(&path)?;
        match &found {
            None if names_in(place)?.next().is_some() => {
                return refused(
                    "there are files that no pack has made, in".into(),
                    "name a folder that is empty or new",
                );
            }
            None => {}
            Some(found) if pack.options.overwrite => remove_shards(place, found)?,
            Some(found) if *found != wanted => {
                let doing = format!("another {} than that of the shards in", wanted.differences(found).join(", "));
                let remedy = "name another folder, or replace them (overwrite, --overwrite)";
                return refused(doing, remedy);
            }
            Some(_) => {}
        }
        if found.as_ref() != Some(&wanted) {
            wanted.write(&path)?;
        }
        remove_temporaries(place, &pack.options.prefix)?;
        Ok(Destination { _folder: folder })
    }
}

/// The shards that a manifest tells of, with their indexes, and nothing else.
fn remove_shards(place: &Path, manifest: &Manifest) -> Result<()> {
    remove_temporaries(place, &manifest.prefix)?;
    for name in names_in(place)? {
        let Some(name) = name.to_str() else { continue };
        let number = name
            .strip_suffix(".uidx")
            .unwrap_or(name)
            .strip_suffix(".tar")
            .and_then(|name| number(name, &manifest.prefix));
        if number.is_some_and(|number| number < manifest.shards) {
            remove(&place.join(name))?;
        }
    }
    Ok(())
}

/// What a run that was ended left of shards, and of their indexes.
fn remove_temporaries(place: &Path, prefix: &str) -> Result<()> {
    for name in names_in(place)? {
        let of_shard = name.to_str().and_then(|name| name.strip_prefix('.')?.split_once(".tar."));
        if of_shard.is_some_and(|(shard, _)| number(shard, prefix).is_some()) {
            remove(&place.join(name))?;
        }
    }
    Ok(())
}

/// The number of the shard whose name without its ending is `name`.
fn number(name: &str, prefix: &str) -> Option<u64> {
    let number = name.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()?;
    (shard_name(prefix, number).strip_suffix(".tar") == Some(name)).then_some(number)
}

fn names_in(place: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let failed = |source| Error::io("cannot list", source).with_file(place);
    let entries: io::Result<Vec<PathBuf>> =
        fs::read_dir(place).map_err(failed)?.map(|entry| Ok(entry?.file_name().into())).collect();
    Ok(entries.map_err(failed)?.into_iter())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("cannot delete", error).with_file(path)),
        _ => Ok(()),
    }
}
