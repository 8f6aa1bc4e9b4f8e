//! Where sidecars lie: beside their shard, or in a folder for those whose shard's folder takes none.

use super::{Shard, Sidecar};
use crate::fingerprint::Fingerprint;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is added to a shard's name.
pub(crate) const EXTENSION: &str = "uidx";

/// Where the sidecars of a dataset are looked for and put.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Where those go whose shard's folder takes none.
    pub(crate) cache: Option<PathBuf>,
}

/// Where a new sidecar went.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Beside the shard.
    Beside(PathBuf),
    /// Into the cache, because the shard's folder takes none.
    InCache(PathBuf, io::Error),
    /// Nowhere; the last error.
    Nowhere(io::Error),
}

impl Places {
    /// The current index of the shard at `path`, if there is one; otherwise why each file that might be it is not.
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

    /// Puts the index `image` of the shard at `path` to disk.
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

    /// In the cache, names carry a hash of the shard's whole path: shards of many datasets have the same names.
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

/// Writes a file of another name, has the disk take it, and gives it the name: whoever opens `path` sees all of the old
/// file or all of the new one, also after a power failure.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // Two processes differ in number or, in containers, in the time; O_EXCL says so where they do not.
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
        // The error that matters is the first one; the name begins with a dot, so that nobody takes it for data.
        let _ = fs::remove_file(&temporary);
    }
    written
}
