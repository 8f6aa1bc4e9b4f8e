//! Files under a temporary name, and what killed processes leave of them.
//!
//! Whoever writes such a file holds a lock on it (flock(2)), which ends with the process. So what nobody has locked is
//! what a process has left behind. Where files cannot be locked, nothing is deleted.

use super::open_regular;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Creates a file that does not exist yet, and locks it until it is closed.
///
/// # Errors
/// What `open(2)` reports. `AlreadyExists` also where another process took it for an old one just now: try another
/// name.
pub fn create_temporary(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    let is_taken = flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK);
    if is_taken || file.metadata()?.nlink() == 0 {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(file)
}

/// Deletes the files of a folder that have a temporary name and that nobody writes. Returns how many. What cannot be
/// looked at or deleted stays.
pub fn delete_abandoned(folder: &Path, is_temporary: impl Fn(&OsStr) -> bool) -> usize {
    let Ok(entries) = folder.read_dir() else { return 0 };
    let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| is_temporary(name));
    let is_deleted = |path: &Path| {
        let Ok(file) = open_regular(path) else { return false };
        // The lock is held while the name is deleted: whoever created it meanwhile sees one or the other.
        flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() && fs::remove_file(path).is_ok()
    };
    names.filter(|name| is_deleted(&folder.join(name))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
