//! Files under a temporary name, which replace the real files when they are complete, and the ones that killed
//! processes leave.
//!
//! The writer of such a file holds a lock on it (flock(2)), which ends with the process. So an unlocked file was left
//! by a process that ended. Where files cannot be locked, nothing is deleted.

use super::open_regular;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Number of names to try for a temporary file.
const ATTEMPTS: u32 = 100;

/// A file that is written beside another one and takes its place when it is whole. Until then the other is what it was;
/// dropped before, this leaves nothing.
#[derive(Debug)]
struct Replacement {
    file: File,
    /// Where it is written, and where it goes. `None` for what is no regular file (a pipe, `/dev/stdout`): nothing can
    /// take its place, and it is written to as it is.
    names: Option<(PathBuf, PathBuf)>,
}

impl Replacement {
    /// Begins one for `path`, or for what it links to. Deletes what killed processes have left of earlier ones.
    ///
    /// # Errors
    /// What `open(2)` reports of a new file in the folder.
    fn of(path: &Path) -> io::Result<Replacement> {
        // Of this process's own descriptors, too: a shell may have opened the file for others.
        let is_descriptor = ["/dev", "/proc"].iter().any(|place| path.starts_with(place));
        let (to, rights) = match fs::metadata(path) {
            Ok(old) if !old.is_file() || is_descriptor => {
                return Ok(Replacement { file: File::options().append(true).open(path)?, names: None });
            }
            Ok(old) => (fs::canonicalize(path)?, Some(old.permissions())),
            Err(_) => (path.to_path_buf(), None),
        };
        delete_abandoned(folder_of(&to), |name| is_beside(&to, name));
        let (file, beside) = create_beside(&to)?;
        let replacement = Replacement { file, names: Some((beside, to)) };
        rights.map_or(Ok(()), |rights| replacement.file.set_permissions(rights))?;
        Ok(replacement)
    }

    /// What to write to.
    fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Syncs the file, and puts it in the other's place. That is durable when this returns.
    ///
    /// # Errors
    /// What `fsync(2)` or `rename(2)` reports; the other file is then what it was.
    fn finish(mut self) -> io::Result<()> {
        let Some((beside, to)) = self.names.take() else { return Ok(()) };
        if let Err(error) = self.file.sync_all().and_then(|()| fs::rename(&beside, &to)) {
            // It is of no use now, and the first error is the one that matters.
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        // Until the folder is synced, a power failure takes the new file back.
        match File::open(folder_of(&to)).and_then(|folder| folder.sync_all()) {
            // Some filesystems have nothing to sync of a folder.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some((beside, _)) = self.names.take() {
            // The next writer of the same file tries again.
            let _ = fs::remove_file(beside);
        }
    }
}

/// Writes a file so that `path` has either its old content or all of the new, even if the disk is full or the machine
/// stops. It keeps rights and links; what is no regular file is written to as it is.
///
/// # Errors
/// Those of `write`; what `open(2)`, `fsync(2)` or `rename(2)` report. The old file is then what it was.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut replacement = Replacement::of(path)?;
    write(replacement.file())?;
    replacement.finish()
}

/// Whether [`replace`] could write this file now. Leaves nothing.
///
/// # Errors
/// What `open(2)` reports of a new file in the folder.
pub fn may_replace(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Replacement::of(path).map(drop)
}

/// Creates a new file in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let Some(name) = path.file_name() else { return Err(ErrorKind::IsADirectory.into()) };
    let mut last = ErrorKind::AlreadyExists.into();
    for attempt in 0..ATTEMPTS {
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}-{attempt}.part", std::process::id()));
        let beside = folder_of(path).join(beside);
        match create_temporary(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Whether a name is one that [`create_beside`] gives.
fn is_beside(path: &Path, name: &OsStr) -> bool {
    let rest = path.file_name().and_then(|own| {
        let name = name.as_bytes().strip_prefix(b".")?.strip_prefix(own.as_bytes())?;
        name.strip_prefix(b".")?.strip_suffix(b".part")
    });
    rest.is_some_and(|rest| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Creates a file that does not exist yet, and locks it until it is closed.
///
/// # Errors
/// What `open(2)` reports. `AlreadyExists` also where another process took it for an old one just now: try another
/// name.
pub fn create_temporary(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    let is_gone = |file: &File| Ok(file.metadata()?.nlink() == 0);
    held(file, is_gone)
}

/// The new file, locked. Where nothing can be locked, nothing is taken for abandoned.
fn held(created: File, is_gone: impl Fn(&File) -> io::Result<bool>) -> io::Result<File> {
    let is_taken = flock(&created, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK);
    if is_taken || is_gone(&created)? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(created)
}

/// Deletes the files of a folder that have a temporary name and no writer. Returns how many. Files that cannot be
/// inspected or deleted stay.
pub fn delete_abandoned(folder: &Path, is_temporary: impl Fn(&OsStr) -> bool) -> usize {
    let Ok(entries) = folder.read_dir() else { return 0 };
    let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| is_temporary(name));
    let is_deleted = |path: &Path| {
        let Ok(file) = open_regular(path) else { return false };
        // The lock is held while the name is deleted: a process that created it meanwhile sees one or the other.
        flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() && fs::remove_file(path).is_ok()
    };
    names.filter(|name| is_deleted(&folder.join(name))).count()
}

/// Creates a folder that does not exist yet, which no other user may enter, and locks it until it is closed.
///
/// # Errors
/// As [`create_temporary`].
pub fn create_temporary_folder(path: &Path) -> io::Result<File> {
    DirBuilder::new().mode(0o700).create(path)?;
    held(File::open(path)?, |_| Ok(!path.exists()))
}

/// Deletes, with all that is in them, the folders in a place that have a temporary name and that no process holds. What
/// another user has left stays, as does what cannot be looked at or deleted.
pub fn delete_abandoned_folders(place: &Path, is_temporary: impl Fn(&OsStr) -> bool) {
    let Ok(entries) = place.read_dir() else { return };
    let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| is_temporary(name));
    for path in names.map(|name| place.join(name)) {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(folder) = open(&path, flags, Mode::empty()) else { continue };
        if super::distrust(folder.as_fd(), None).is_none()
            && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        use std::io::Write as _;
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.json"), folder.path().join("link"));
        let names = || {
            let mut names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        replace(&path, |file| file.write_all(b"first")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("a.json", &link).unwrap();
        let full = |file: &mut File| file.write_all(b"half").and_then(|()| Err(ErrorKind::StorageFull.into()));
        assert_eq!(replace(&link, full).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        // What a killed process has left of it.
        fs::write(folder.path().join(".a.json.1-0.part"), "left").unwrap();
        replace(&link, |file| file.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(), ["a.json", "link"]);
        replace(Path::new("/dev/null"), |file| file.write_all(b"a device")).unwrap();
        let opened = File::options().append(true).open(&path).unwrap();
        let descriptor = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened)));
        replace(&descriptor, |file| file.write_all(b", third")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second, third");
        assert_eq!(replace(folder.path(), |_| Ok(())).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(replace(&path.join("b"), |_| Ok(())).unwrap_err().kind(), ErrorKind::NotADirectory);
    }

    #[test]
    fn what_is_being_written_stays_and_what_was_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let written = create_temporary(&at("a.part")).unwrap();
        for name in ["b.part", "c"] {
            fs::write(at(name), "left").unwrap();
        }
        fs::create_dir(at("d.part")).unwrap();
        let is_temporary = |name: &OsStr| name.to_string_lossy().ends_with(".part");
        assert_eq!(delete_abandoned(folder.path(), is_temporary), 1);
        assert!(at("a.part").exists() && !at("b.part").exists() && at("c").exists() && at("d.part").exists());
        assert_eq!(create_temporary(&at("a.part")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(written);
        assert_eq!(delete_abandoned(folder.path(), is_temporary), 1);
        assert_eq!(delete_abandoned(&at("none"), is_temporary), 0);
    }

    #[test]
    fn folders_that_a_process_has_left_go_with_what_is_in_them() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let held = create_temporary_folder(&at("x-held")).unwrap();
        for name in ["x-left/deep", "other", "x-link-target"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("x-left/deep/file"), "left").unwrap();
        fs::rename(at("x-link-target"), at("target")).unwrap();
        std::os::unix::fs::symlink(at("target"), at("x-link")).unwrap();
        let is_temporary = |name: &OsStr| name.to_string_lossy().starts_with("x-");
        delete_abandoned_folders(place.path(), is_temporary);
        assert!(at("x-held").exists() && !at("x-left").exists() && at("other").exists() && at("target").exists());
        drop(held);
        delete_abandoned_folders(place.path(), is_temporary);
        assert!(!at("x-held").exists());
    }
}
