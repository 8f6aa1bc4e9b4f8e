//! Where sidecars lie: beside their shard, or in a cache folder if the shard's folder is not writable.

use super::{Shard, Sidecar};
use crate::fingerprint::Fingerprint;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

/// Appended to a shard's name.
pub(crate) const EXTENSION: &str = "uidx";

/// Where the sidecars of a dataset are looked for and stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// For sidecars that cannot be written to their shard's folder.
    pub(crate) cache: Option<PathBuf>,
}

/// Where a new sidecar was stored.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Beside the shard.
    Beside(PathBuf),
    /// In the cache, because the shard's folder could not be written.
    InCache(PathBuf, io::Error),
    /// Nowhere; the last error.
    Nowhere(io::Error),
}

impl Places {
    /// The current index of the shard at `path`, if there is one; otherwise why each candidate file was rejected.
    pub(crate) fn find(
        &self,
        path: &Path,
        shard: &Shard,
        resident: &AtomicU64,
    ) -> Result<Sidecar, Vec<(PathBuf, String)>> {
        let mut refused = Vec::new();
        for place in [Some(beside(path)), self.cached(path)].into_iter().flatten() {
            match Sidecar::open(&place, shard, resident) {
                Ok(sidecar) => return Ok(sidecar),
                Err(_) if !place.exists() => {}
                Err(reason) => refused.push((place, reason)),
            }
        }
        Err(refused)
    }

    /// Writes the index `image` of the shard at `path` to disk.
    pub(crate) fn keep(&self, path: &Path, image: &[u8]) -> Kept {
        let place = beside(path);
        let error = match replace(&place, image) {
            Ok(()) => return Kept::Beside(place),
            Err(error) => error,
        };
        let Some(cached) = self.cached(path) else { return Kept::Nowhere(error) };
        let folder = cached.parent().unwrap_or(Path::new("."));
        match fs::create_dir_all(folder).and_then(|()| replace(&cached, image)) {
            Ok(()) => Kept::InCache(cached, error),
            Err(error) => Kept::Nowhere(error),
        }
    }

    /// Names in the cache carry a hash of the shard's whole path, because shards of many datasets have the same names.
    fn cached(&self, path: &Path) -> Option<PathBuf> {
        let cache = self.cache.as_ref()?;
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let mut hash = Fingerprint::new("path");
        hash.bytes(whole.as_os_str().as_bytes());
        let mut name = OsString::from(format!("{:016x}-", hash.finish()));
        name.push(path.file_name().unwrap_or_default());
        name.push(".");
        name.push(EXTENSION);
        Some(cache.join(name))
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(EXTENSION);
    PathBuf::from(name)
}

/// Writes a file of another name, syncs it, and renames it: whoever opens `path` sees all of the old file or all of the
/// new one, even after a power failure.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // Two processes differ in process ID or, in containers, in time; if they do not, O_EXCL reports it.
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    name.push(format!(".{}.{time}", std::process::id()));
    let temporary = folder.join(name);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        // The first error is the one that matters. The name begins with a dot, so nobody takes the file for data.
        let _ = fs::remove_file(&temporary);
    }
    written
}
