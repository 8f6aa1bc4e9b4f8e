//! The place of sidecars: beside their shard, or in a cache folder if the shard's folder is not writable.

use super::Sidecar;
use super::pieces::Memory;
use super::shard::Shard;
use crate::dataset::Fingerprint;
use crate::find::names::elsewhere;
use crate::index::headers::Source;
use crate::index::opened::Content;
use crate::place::Place;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::file::distrust;

/// Appended to a shard's name.
pub(crate) const EXTENSION: &str = "uidx";

/// Where the sidecars of a dataset are looked for and stored.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// For sidecars that cannot be written to their shard's folder.
    cache: Option<PathBuf>,
    /// Folders without files of writers that were killed.
    cleaned: Mutex<HashSet<PathBuf>>,
}

/// Where a new sidecar was stored.
#[derive(Debug)]
pub(crate) enum Written {
    /// Beside the shard.
    Beside(PathBuf),
    /// In the cache, because the shard's folder could not be written.
    InCache(PathBuf, io::Error),
    /// Nowhere; the last error.
    Nowhere(io::Error),
}

/// Why no index of a shard is used.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Existing files that are not its index, and why.
    pub(crate) unfit: Vec<(PathBuf, String)>,
    /// Files that may be its index, and why they are not trusted.
    pub(crate) untrusted: Vec<(PathBuf, String)>,
}

impl Places {
    /// With this folder for sidecars that cannot be written to their shard's folder.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL, which would become the name of a folder.
    pub(crate) fn new(cache: Option<PathBuf>) -> Result<Places> {
        match cache {
            Some(url) if elsewhere(&url).is_some() && !url.exists() => {
                let what = "indexes are not written to a store";
                let error = Error::new(ErrorKind::InvalidArgument, what).with_path(url);
                Err(error.with_remedy("name a folder by index_cache (--index-cache)"))
            }
            cache => Ok(Places { cache, cleaned: Mutex::default() }),
        }
    }

    /// The current index of a shard, if there is one; otherwise why each candidate file was rejected.
    pub(crate) fn find(&self, shard: &Shard, source: &Source, memory: &Memory) -> Result<Sidecar, Refused> {
        let (mut refused, content) = (Refused::default(), source.content());
        let beside = (source.place().and(&format!(".{EXTENSION}")), content.file());
        let cached = self.cached(source.place()).map(|path| (Place::new(path), None));
        for (place, owner) in [beside].into_iter().chain(cached) {
            let path = place.path().to_path_buf();
            // Who may write an index beside an object may write the object.
            let distrusted = |file: &Content| file.file().and_then(|own| distrust(own, owner));
            match Content::open(&place).map(|file| (distrusted(&file), file)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => refused.unfit.push((path, error.to_string())),
                Ok((Some(reason), _)) => refused.untrusted.push((path, reason)),
                Ok((None, file)) => match Sidecar::of_file(file, &place, (shard, content), memory) {
                    Ok(sidecar) => return Ok(sidecar),
                    Err(reason) => refused.unfit.push((path, reason)),
                },
            }
        }
        Err(refused)
    }

    /// Writes the index `image` of an open shard to disk.
    pub(crate) fn keep(&self, source: &Source, image: &[u8]) -> Written {
        let shard = source.content().file();
        let error = match shard {
            Some(_) => {
                let place = beside(source.path());
                match self.replace(&place, shard, image) {
                    Ok(()) => return Written::Beside(place),
                    Err(error) => error,
                }
            }
            None => io::Error::other("nothing is written to a store of objects"),
        };
        let Some(cached) = self.cached(source.place()) else { return Written::Nowhere(error) };
        match fs::create_dir_all(folder_of(&cached)).and_then(|()| self.replace(&cached, shard, image)) {
            Ok(()) => Written::InCache(cached, error),
            Err(error) => Written::Nowhere(error),
        }
    }

    /// Writes a file of another name, syncs it, and renames it: a reader of `path` sees all of the old file or all of
    /// the new one, even after a power failure. Only users who may read `shard` may read the file.
    fn replace(&self, path: &Path, shard: Option<BorrowedFd<'_>>, bytes: &[u8]) -> io::Result<()> {
        self.clean(folder_of(path));
        let rights = match shard {
            Some(shard) => rustix::fs::fstat(shard)?.st_mode & 0o644,
            None => 0o600,
        };
        put(path, rights, bytes)
    }

    /// Removes, before the first index is written to a folder, what processes that were killed have left there.
    fn clean(&self, folder: &Path) {
        let mut cleaned = self.cleaned.lock().unwrap_or_else(PoisonError::into_inner);
        if cleaned.insert(folder.to_path_buf()) {
            remove_abandoned(folder);
        }
    }

    /// Names in the cache carry a hash of the shard's whole path, because shards of many datasets have the same names.
    fn cached(&self, place: &Place) -> Option<PathBuf> {
        let cache = self.cache.as_ref()?;
        let whole = place.canonical().unwrap_or_else(|_| place.clone());
        let mut hash = Fingerprint::new("path");
        hash.bytes(whole.path().as_os_str().as_bytes());
        let mut name = OsString::from(format!("{:016x}-", hash.finish()));
        name.push(OsStr::from_bytes(place.name()));
        name.push(".");
        name.push(EXTENSION);
        Some(cache.join(name))
    }
}

/// Writes a file as [`Places::replace`] does, which anybody may read whom the process lets.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, 0o644, bytes)
}

fn put(path: &Path, rights: u32, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    // Two processes differ in process ID or, in containers, in time; if they do not, O_EXCL reports it.
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{time}", std::process::id()));
    let temporary = folder.join(name);
    if write_unnamed(folder, rights, bytes, &temporary).is_err() {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(rights).open(&temporary)?;
        // So that it is not taken for abandoned. Where files cannot be locked, none is.
        let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    }
    let written = fs::rename(&temporary, path).and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        // The first error is the one that matters. The name begins with a dot, so the file is not taken for data.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Writes and syncs a file that has its name only then, so that a process that is killed leaves nothing. Not every
/// filesystem can.
fn write_unnamed(folder: &Path, rights: u32, bytes: &[u8], name: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(rights))?);
    file.write_all(bytes)?;
    file.sync_all()?;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, own, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(EXTENSION);
    PathBuf::from(name)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file without a byte is being created, or was abandoned before it was locked. After this long it was abandoned.
const BEGUN_WITHIN: Duration = Duration::from_secs(3600);

/// Whatever fails here, the file stays: it is in no one's way.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !is_temporary(entry.file_name().as_bytes()) {
            continue;
        }
        let Ok(file) = Content::open(&Place::new(entry.path())) else { continue };
        let written = UNIX_EPOCH + Duration::from_secs(file.identity().changed.0.try_into().unwrap_or(0));
        let is_begun = file.size() > 0 || written.elapsed().is_ok_and(|since| since > BEGUN_WITHIN);
        // A process at work holds the lock.
        let lock = |file| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_begun && file.file().is_some_and(lock) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is one that indexes have while they are written: `.SHARD.uidx.PROCESS.TIME`.
fn is_temporary(name: &[u8]) -> bool {
    let mut parts = name.rsplit(|&byte| byte == b'.');
    let mut is_number = || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    name.starts_with(b".") && is_number() && is_number() && parts.next() == Some(EXTENSION.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(path: &Path) -> Source {
        File::create(path).unwrap();
        Place::new(path).open().unwrap()
    }

    /// What was left by a process that is gone goes; what one at work holds stays, and so does everything else.
    #[test]
    fn what_killed_writers_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".a.tar.uidx.17.99", ".b.tar.uidx.18.7", ".a.tar.uidx.x.99", "a.tar.uidx.17.99", ".uidx.1"] {
            fs::write(at(name), "half").unwrap();
        }
        fs::write(at(".c.tar.uidx.19.1"), "").unwrap();
        let at_work = File::open(at(".b.tar.uidx.18.7")).unwrap();
        rustix::fs::flock(&at_work, FlockOperation::NonBlockingLockExclusive).unwrap();
        let places = Places::default();
        assert!(matches!(places.keep(&created(&at("a.tar")), b"index"), Written::Beside(_)));
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let stays = [
            ".a.tar.uidx.x.99",
            ".b.tar.uidx.18.7",
            ".c.tar.uidx.19.1",
            ".uidx.1",
            "a.tar",
            "a.tar.uidx",
            "a.tar.uidx.17.99",
        ];
        assert_eq!(names, stays);
    }

    /// Whoever ends the process while an index is written leaves nothing.
    #[test]
    fn an_index_has_no_name_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let shard = created(&path);
        if let Err(why) = rustix::fs::open(folder.path(), OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR) {
            eprintln!("skipped: no file without a name here: {why}");
            return;
        }
        let image = vec![7; 64 << 20];
        let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let begun = std::sync::Barrier::new(2);
        let seen = std::thread::scope(|scope| {
            let write = scope.spawn(|| {
                begun.wait();
                assert!(matches!(Places::default().keep(&shard, &image), Written::Beside(_)));
            });
            begun.wait();
            // Writing takes many looks; between the name and its change there is hardly one.
            let (mut looks, mut seen) = (0, 0);
            while !write.is_finished() {
                looks += 1;
                seen += usize::from(names().any(|name| is_temporary(name.as_bytes())));
            }
            seen as f64 / f64::from(looks.max(1))
        });
        assert!(seen < 0.2, "it had a name for {seen:.2} of the time");
        assert_eq!(fs::metadata(beside(&path)).unwrap().len(), 64 << 20);
    }

    #[test]
    fn an_index_has_the_rights_of_its_shard() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for (name, rights, least) in [("a.tar", 0o600, 0o600), ("b.tar", 0o666, 0o600), ("c.tar", 0o640, 0o600)] {
            let path = folder.path().join(name);
            let shard = created(&path);
            fs::set_permissions(&path, fs::Permissions::from_mode(rights)).unwrap();
            let Written::Beside(place) = Places::default().keep(&shard, b"index") else { panic!("{name}") };
            let mode = fs::metadata(place).unwrap().permissions().mode() & 0o777;
            assert!(mode & !(rights & 0o644) == 0 && mode & least == least, "{name}: {mode:o}");
        }
    }
}
