//! Manages the folder of shards: the manifest, which job writes there, and leftovers of earlier runs.

use super::archive::{failed, sync_folder, temporary_of};
use super::far::{Far, clear};
use super::{Pack, PackImages, TAR_ENDING, dense, shard_name};
use crate::config::Part;
use crate::dataset::inspect::{MANIFEST_NAME, open_regular, url_scheme};
use crate::patience::Patience;
use crate::state::content_hashes;
use crate::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Version of the layout and of the plan: shards of different versions are not mixed.
const VERSION: u32 = 1;

/// The temporary name of a manifest.
const MANIFEST_TEMPORARY: &str = ".pack.json.";

/// A manifest has some hundred bytes; a longer file is not one.
const BYTES_MAX: u64 = 64 << 10;

/// Behind the hash of the times, if some files are objects: of those it has the versions.
const OF_OBJECTS: &str = " with objects";

/// What shards are made of: equal for two packs if one can continue the other.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u32,
    format: String,
    fingerprint: String,
    /// A hash of some blocks of each of the source's files, and their times: other files may have the same names and
    /// sizes. Zeros mean a file that cannot be read.
    #[serde(default)]
    content: Vec<String>,
    #[serde(default)]
    modified: String,
    source_samples: u64,
    prefix: String,
    align: u64,
    shard_bytes: u64,
    shard_samples: Option<u64>,
    keys: String,
    /// The format of shards, if not archives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    /// How images were converted, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    images: Option<String>,
    samples: u64,
    shards: u64,
}

impl Manifest {
    fn of(pack: &Pack) -> Manifest {
        let (options, files) = (&pack.options, pack.dataset.files());
        let blocks = content_hashes(&pack.dataset, &Patience::of_timeout(None).whole());
        Manifest {
            version: VERSION,
            format: pack.dataset.format().into(),
            fingerprint: format!("{:016x}", pack.dataset.fingerprint()),
            content: blocks.into_iter().map(|block| format!("{:016x}", block.unwrap_or(0))).collect(),
            modified: format!("{:016x}{}", files.modified(), if files.has_objects() { OF_OBJECTS } else { "" }),
            source_samples: pack.dataset.len(),
            prefix: options.prefix.clone(),
            align: options.align,
            shard_bytes: options.shard_bytes,
            shard_samples: options.shard_samples,
            keys: pack.names.keys().name().into(),
            layout: pack.dense.is_some().then(|| "mds".into()),
            images: options.images.as_ref().map(PackImages::identity),
            samples: pack.samples(),
            shards: pack.shards().len() as u64,
        }
    }

    /// The manifest of a store's folder; `None` if there is none.
    fn read_far(pack: &Pack, far: &Far) -> Result<Option<Manifest>> {
        let text = far.read(MANIFEST_NAME, BYTES_MAX as usize)?;
        text.map(|(text, _)| Manifest::parse(&text, &pack.folder.join(MANIFEST_NAME))).transpose()
    }

    /// Reads the folder's manifest; `None` if there is none.
    fn read(path: &Path) -> Result<Option<Manifest>> {
        let failed = |source| Error::io("cannot read", source).with_path(path);
        let text = match fs::metadata(path) {
            Ok(_) => {
                let mut text = Vec::new();
                // A longer file is not a manifest, and its first part is not valid JSON either.
                open_regular(path, "cannot read")?.take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
                text
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        Manifest::parse(&text, path).map(Some)
    }

    fn parse(text: &[u8], path: &Path) -> Result<Manifest> {
        serde_json::from_slice(text).map_err(|source| {
            Error::new(ErrorKind::Corrupt, "this is no manifest of a pack")
                .with_path(path)
                .with_source(source)
                .with_remedy("name another folder, or empty this one")
        })
    }

    /// Writes it so that the folder always has the old one or this one, even if the machine stops.
    fn write(&self, path: &Path) -> Result<()> {
        self.write_by(path, &temporary_of(path), |from, to| fs::rename(from, to))
    }

    /// As `write`, if the folder has none; if another part has written one meanwhile, that one stays.
    fn write_first(&self, path: &Path, part: Part) -> Result<()> {
        let temporary = temporary_of_part(path, part);
        self.write_by(path, &temporary, |from, to| match fs::hard_link(from, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(from),
            Ok(()) => fs::remove_file(from),
            // A file system without links.
            Err(_) => fs::rename(from, to),
        })
    }

    fn write_by(&self, path: &Path, temporary: &Path, put: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<()> {
        put_text(&self.text(), path, temporary, put)
    }

    fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers are JSON") + "\n"
    }

    /// Whether the blocks that both have are the same.
    fn has_bytes_of(&self, other: &Manifest) -> bool {
        let is_unknown = |block: &str| block.bytes().all(|digit| digit == b'0');
        let is_same = |(one, other): (&String, &String)| one == other || is_unknown(one) || is_unknown(other);
        self.content.len() == other.content.len() && self.content.iter().zip(&other.content).all(is_same)
    }

    /// Whether the source has the same times. Files and objects have none in common, even if they are copies.
    fn has_times_of(&self, other: &Manifest) -> bool {
        let are_objects = |manifest: &Manifest| manifest.modified.ends_with(OF_OBJECTS);
        self.modified == other.modified || are_objects(self) != are_objects(other)
    }

    /// Whether the folder's shards are of this plan.
    fn check_is(&self, found: Option<&Manifest>, place: &Path) -> Result<()> {
        let differences = found.map_or(vec!["source"], |found| self.differences(found));
        if differences.is_empty() {
            return Ok(());
        }
        let what = format!("the shards in the folder were made with other settings: {}", differences.join(", "));
        let remedy = "name another folder, or replace them (overwrite, --overwrite)";
        Err(Error::new(ErrorKind::InvalidArgument, what).with_path(place).with_remedy(remedy))
    }

    /// The names of what differs.
    fn differences(&self, other: &Manifest) -> Vec<&'static str> {
        // If the source differs, its blocks add nothing.
        let is_other = self.fingerprint != other.fingerprint;
        let pairs = [
            ("version", self.version == other.version),
            ("format", self.format == other.format),
            ("source", self.fingerprint == other.fingerprint && self.source_samples == other.source_samples),
            ("bytes of the source", is_other || self.has_bytes_of(other)),
            ("times of the source", is_other || self.has_times_of(other)),
            ("prefix", self.prefix == other.prefix),
            ("align", self.align == other.align),
            ("shard size", self.shard_bytes == other.shard_bytes),
            ("shard samples", self.shard_samples == other.shard_samples),
            ("keys", self.keys == other.keys),
            ("layout", self.layout == other.layout),
            ("images", self.images == other.images),
            ("number of samples", self.samples == other.samples),
            ("number of shards", self.shards == other.shards),
        ];
        pairs.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

/// Writes a text to `path` through a file `temporary`, which is renamed when complete.
fn put_text(text: &str, path: &Path, temporary: &Path, put: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<()> {
    let written = File::create(temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| put(temporary, path))
        .and_then(|()| sync_folder(path));
    written.map_err(|source| {
        let _ = fs::remove_file(temporary);
        failed(path, source)
    })
}

/// Writes a text of a part into the folder, replacing an existing one.
pub(super) fn replace_text(text: &str, path: &Path, part: Part) -> Result<()> {
    put_text(text, path, &temporary_of_part(path, part), |from, to| fs::rename(from, to))
}

/// The folder, locked against other packs. In a store there is no lock: who puts the manifest first says what the
/// shards are, and two jobs that write the same shard write the same bytes.
pub(super) struct Destination {
    /// Holds the lock: of a store's folder, the one that shards are made in.
    folder: Option<File>,
    /// What was made for this run alone.
    staging: Option<PathBuf>,
}

/// A URL that no store has is no folder, and would become the name of one.
fn is_near(place: &Path) -> Result<()> {
    if url_scheme(place).is_none() || place.exists() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::InvalidArgument, "shards are not written to this store").with_path(place);
    Err(error.with_remedy("name a folder, and copy the shards from there"))
}

impl Drop for Destination {
    /// Closing is not enough: a process that is just being started shares the descriptor until it becomes another
    /// program, and would hold the lock until then.
    fn drop(&mut self) {
        if let Some(staging) = &self.staging {
            clear(staging);
        }
        if let Some(folder) = &self.folder {
            let _ = flock(folder, FlockOperation::Unlock);
        }
    }
}

impl Destination {
    /// Makes the folder ready for the shards of `pack`: those of the same plan stay.
    ///
    /// # Errors
    /// `InvalidArgument` for a folder with other files in it or that another pack is writing to; errors of the system
    /// and of the store.
    pub(super) fn prepare(pack: &Pack) -> Result<Destination> {
        let (place, part) = (&pack.folder, pack.options.part);
        if let Some(far) = &pack.far {
            return Destination::prepare_far(pack, far);
        }
        is_near(place)?;
        fs::create_dir_all(place).map_err(|source| failed(place, source))?;
        let destination = Destination::lock(place, part)?;
        let (path, wanted) = (place.join(MANIFEST_NAME), Manifest::of(pack));
        let found = if part.is_whole() {
            prepare_alone(pack, &wanted)?
        } else {
            // An unfinished manifest was written before any shard.
            remove(&temporary_of_part(&path, part))?;
            Manifest::read(&path)?
        };
        match &found {
            None if part.is_whole() => {
                pack.is_writing.store(true, Ordering::Relaxed);
                wanted.write(&path)?;
            }
            None => {
                // Files that another part has written since do not count.
                if has_others(place)? && Manifest::read(&path)?.is_none() {
                    return Err(occupied(place));
                }
                pack.is_writing.store(true, Ordering::Relaxed);
                wanted.write_first(&path, part)?;
            }
            Some(_) => {}
        }
        wanted.check_is(Manifest::read(&path)?.as_ref(), place)?;
        remove_temporaries(place, &pack.options.prefix, part)?;
        Ok(destination)
    }

    /// The same for a folder of a store, and a folder to make shards in.
    fn prepare_far(pack: &Pack, far: &Far) -> Result<Destination> {
        let staging = far.staging()?;
        fs::create_dir_all(staging).map_err(|source| failed(staging, source))?;
        let mut destination = Destination::lock(staging, Part::WHOLE)?;
        destination.staging = Some(staging.into());
        for name in names_in(staging)? {
            remove(&staging.join(name))?;
        }
        let wanted = Manifest::of(pack);
        let mut found = Manifest::read_far(pack, far)?;
        if found.is_none() {
            // What another part has written since does not count.
            let has_others = !far.names()?.is_empty();
            if has_others && Manifest::read_far(pack, far)?.is_none() {
                return Err(occupied(&pack.folder));
            }
            far.put(MANIFEST_NAME, wanted.text().as_bytes(), true)?;
            found = Manifest::read_far(pack, far)?;
        }
        let checked = wanted.check_is(found.as_ref(), &pack.folder);
        checked.map_err(|error| error.with_remedy("name another folder of the store"))?;
        Ok(destination)
    }

    /// The folder with the shards of `pack`, all of whose jobs have ended.
    ///
    /// # Errors
    /// `NotFound` if no pack has begun there; `InvalidArgument` if it was another, or if one is writing to the folder.
    pub(super) fn ended(pack: &Pack) -> Result<Destination> {
        let place = &pack.folder;
        let found = match &pack.far {
            Some(far) => Manifest::read_far(pack, far)?,
            None => Manifest::read(&place.join(MANIFEST_NAME))?,
        };
        let Some(found) = found else {
            let error = Error::new(ErrorKind::NotFound, "no pack has written to the folder").with_path(place);
            return Err(error.with_remedy("name the folder that the jobs packed to"));
        };
        if pack.far.is_some() {
            Manifest::of(pack).check_is(Some(&found), place)?;
            return Ok(Destination { folder: None, staging: None });
        }
        let destination = Destination::lock(place, Part::WHOLE)?;
        Manifest::of(pack).check_is(Some(&found), place)?;
        remove_temporaries(place, &pack.options.prefix, Part::WHOLE)?;
        Ok(destination)
    }

    /// Parts are written at once; a job that writes or proves all of it must be alone.
    fn lock(place: &Path, part: Part) -> Result<Destination> {
        let folder = File::open(place).map_err(|source| failed(place, source))?;
        let lock = if part.is_whole() {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        // If files cannot be locked at all, as on some network file systems, other jobs cannot be detected.
        if flock(&folder, lock) == Err(rustix::io::Errno::WOULDBLOCK) {
            return Err(busy(place));
        }
        Ok(Destination { folder: Some(folder), staging: None })
    }
}

/// The folder's manifest, with no other job at work. If shards are to be replaced, they are deleted, and this is the
/// new manifest.
fn prepare_alone(pack: &Pack, wanted: &Manifest) -> Result<Option<Manifest>> {
    let place = &pack.folder;
    // An unfinished manifest was written before any shard.
    for name in names_in(place)? {
        if is_manifest_temporary(&name) {
            remove(&place.join(name))?;
        }
    }
    let found = Manifest::read(&place.join(MANIFEST_NAME))?;
    match &found {
        None if has_others(place)? => Err(occupied(place)),
        Some(found) if pack.options.overwrite => {
            remove_shards(place, found)?;
            if found != wanted {
                wanted.write(&place.join(MANIFEST_NAME))?;
            }
            Ok(Manifest::read(&place.join(MANIFEST_NAME))?)
        }
        _ => Ok(found),
    }
}

fn busy(place: &Path) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, "another pack is writing to the folder").with_path(place);
    error.with_remedy("wait for it, or name another folder")
}

fn occupied(place: &Path) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, "the folder has files that no pack has made").with_path(place);
    error.with_remedy("name a folder that is empty or new")
}

/// The temporary name of the manifest `path`, for one of several jobs.
fn temporary_of_part(path: &Path, part: Part) -> PathBuf {
    path.with_file_name(format!("{MANIFEST_TEMPORARY}{}.tmp", part.to_string().replace('/', "-of-")))
}

/// Whether the folder has more than an unfinished manifest.
fn has_others(place: &Path) -> Result<bool> {
    Ok(names_in(place)?.any(|name| !is_manifest_temporary(&name)))
}

fn is_manifest_temporary(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(MANIFEST_TEMPORARY) && name.ends_with("tmp"))
}

/// Removes the shards of a manifest, with their indexes, and nothing else.
fn remove_shards(place: &Path, manifest: &Manifest) -> Result<()> {
    remove_temporaries(place, &manifest.prefix, Part::WHOLE)?;
    for name in names_in(place)? {
        let Some(name) = name.to_str() else { continue };
        let number = name
            .strip_suffix(".uidx")
            .unwrap_or(name)
            .strip_suffix(if manifest.layout.is_some() { dense::ENDING } else { TAR_ENDING })
            .and_then(|name| number(name, &manifest.prefix));
        let is_index = manifest.layout.is_some() && name == dense::INDEX_NAME;
        if is_index || number.is_some_and(|number| number < manifest.shards) {
            remove(&place.join(name))?;
        }
    }
    Ok(())
}

/// Removes unfinished shards and indexes that an earlier run of a part left.
///
/// # Errors
/// `InvalidArgument` if another job is writing one of them.
fn remove_temporaries(place: &Path, prefix: &str, part: Part) -> Result<()> {
    for path in temporaries(place, prefix, part)? {
        let is_held =
            |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK);
        if open_regular(&path, "cannot open").is_ok_and(|file| is_held(&file)) {
            return Err(busy(place));
        }
        remove(&path)?;
    }
    Ok(())
}

/// Removes unfinished files, if this pack was writing in its folder.
pub(super) fn cleaner(pack: &Pack) -> impl FnOnce() + Send + use<> {
    let (folder, prefix, part) = (pack.folder.clone(), pack.options.prefix.clone(), pack.options.part);
    let (is_writing, far) = (Arc::clone(&pack.is_writing), pack.far.clone());
    move || {
        if let Some(far) = far {
            far.give_up_all();
            far.staging().iter().for_each(|staging| clear(staging));
            return;
        }
        let is_own = is_writing.load(Ordering::Relaxed);
        let unfinished = if is_own { unfinished(&folder, &prefix, part) } else { Vec::new() };
        // Files that cannot be removed now are removed by the next run.
        unfinished.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// Unfinished files of a running part: its manifest, its shards and their indexes.
fn unfinished(place: &Path, prefix: &str, part: Part) -> Vec<PathBuf> {
    let manifest = place.join(MANIFEST_NAME);
    let manifest = if part.is_whole() { temporary_of(&manifest) } else { temporary_of_part(&manifest, part) };
    let shards = temporaries(place, prefix, part).unwrap_or_default();
    [manifest].into_iter().chain(shards).collect()
}

/// The unfinished shards of a part, and their indexes.
fn temporaries(place: &Path, prefix: &str, part: Part) -> Result<Vec<PathBuf>> {
    let is_temporary = |name: &PathBuf| {
        let of_shard = name.to_str().and_then(|name| {
            let name = name.strip_prefix('.')?;
            name.split_once(".tar.").or_else(|| name.split_once(".mds."))
        });
        of_shard.and_then(|(shard, _)| number(shard, prefix)).is_some_and(|number| part.has(number))
    };
    Ok(names_in(place)?.filter(is_temporary).map(|name| place.join(name)).collect())
}

/// The number of the shard whose name without its ending is `name`.
pub(super) fn number(name: &str, prefix: &str) -> Option<u64> {
    let number = name.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()?;
    (shard_name(prefix, number).strip_suffix(TAR_ENDING) == Some(name)).then_some(number)
}

fn names_in(place: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let failed = |source| Error::io("cannot list the folder", source).with_path(place);
    let entries: io::Result<Vec<PathBuf>> =
        fs::read_dir(place).map_err(failed)?.map(|entry| Ok(entry?.file_name().into())).collect();
    Ok(entries.map_err(failed)?.into_iter())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("cannot delete", error).with_path(path)),
        _ => Ok(()),
    }
}
