//! Where sidecars lie: beside their shard, or in a cache folder if the shard's folder is not writable.

use super::{Shard, Sidecar};
use crate::fingerprint::Fingerprint;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use uringload_sys::file::{create_temporary, delete_abandoned};

/// Appended to a shard's name.
pub(crate) const EXTENSION: &str = "uidx";

/// Where the sidecars of a dataset are looked for and stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// For sidecars that cannot be written to their shard's folder.
    pub(crate) cache: Option<PathBuf>,
    /// Folders in which what was left behind has been deleted: there may be an index for each of thousands of shards in
    /// one.
    cleaned: Arc<Mutex<BTreeSet<PathBuf>>>,
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
    pub(crate) fn new(cache: Option<PathBuf>) -> Places {
        Places { cache, cleaned: Arc::default() }
    }

    /// Deletes what processes that were killed have left where `path` is about to be written.
    fn clean(&self, path: &Path) {
        let Some(folder) = path.parent() else { return };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if self.cleaned.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_path_buf()) {
            delete_abandoned(folder, is_temporary);
        }
    }

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
        self.clean(&place);
        let error = match replace(&place, image) {
            Ok(()) => return Kept::Beside(place),
            Err(error) => error,
        };
        let Some(cached) = self.cached(path) else { return Kept::Nowhere(error) };
        let folder = cached.parent().unwrap_or(Path::new("."));
        self.clean(&cached);
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

/// Whether a name is one that [`replace`] writes to: `.NAME.uidx.PROCESS.TIME`.
fn is_temporary(name: &OsStr) -> bool {
    let mut parts = name.as_bytes().rsplitn(3, |&byte| byte == b'.');
    let mut is_number = || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    let is_numbered = is_number() && is_number();
    is_numbered && parts.next().is_some_and(|rest| rest.starts_with(b".") && rest.ends_with(b".uidx"))
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
    let mut file = create_temporary(&temporary)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_deleted_at_the_next_write() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".a.tar.uidx.17.4711", ".a.tar.uidx.x.1", ".a.tar.17.4711", "b.uidx.17.4711"] {
            fs::write(folder.path().join(name), "half").unwrap();
        }
        let held = create_temporary(&folder.path().join(".b.tar.uidx.18.1")).unwrap();
        let kept = Places::default().keep(&folder.path().join("a.tar"), b"an index");
        assert!(matches!(kept, Kept::Beside(_)), "{kept:?}");
        let mut names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let left = [".a.tar.17.4711", ".a.tar.uidx.x.1", ".b.tar.uidx.18.1", "a.tar.uidx", "b.uidx.17.4711"];
        assert_eq!(names, left);
        drop(held);
    }
}
