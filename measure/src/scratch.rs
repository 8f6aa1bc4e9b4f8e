//! Folders that are deleted when they are dropped.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use uringload_sys::file::{create_temporary_folder, delete_abandoned_folders};

/// How many names are tried. They are random, so a taken name means that another process guesses.
const NAMES_TRIED: usize = 16;

/// A folder of this process, which no other user may enter. Deleted on drop; if it cannot be deleted, or the process is
/// killed, it stays until the next process comes.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Holds its lock.
    _folder: File,
}

impl Scratch {
    /// Creates one in this place, with a name that begins so.
    pub fn new_in(place: &Path, prefix: &str) -> io::Result<Scratch> {
        delete_abandoned_folders(place, |name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        let mut taken = io::ErrorKind::AlreadyExists.into();
        for _ in 0..NAMES_TRIED {
            // Each of these hashes differently, by the system's random numbers.
            let name = format!("{prefix}{:016x}", RandomState::new().hash_one(std::process::id()));
            let path = std::path::absolute(place.join(name))?;
            match create_temporary_folder(&path) {
                Ok(folder) => return Ok(Scratch { path, _folder: folder }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_goes_with_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| Scratch::new_in(place.path(), ".some-").unwrap());
        assert_ne!(one.path(), other.path());
        assert!(one.path().file_name().unwrap().to_str().unwrap().starts_with(".some-"));
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o077, 0);
        fs::create_dir_all(one.path().join("a/b")).unwrap();
        fs::write(one.path().join("a/b/c"), "d").unwrap();
        drop((one, other));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let nowhere = Scratch::new_in(&place.path().join("none"), "").unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
    }
}
