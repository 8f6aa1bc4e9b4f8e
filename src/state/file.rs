//! States in files: written entirely or not at all.

use super::State;
use crate::dataset::internal::open_regular;
use crate::{Error, ErrorKind, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind as IoKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uringload_sys::file::{create_temporary, delete_abandoned};

/// Maximum file size to read: a thousand times a state, so that a wrong file does not fill the memory.
pub(super) const STATE_BYTES_MAX: u64 = 1 << 20;

/// Number of names to try for the temporary file.
const ATTEMPTS: u32 = 100;

impl State {
    /// Reads a state written by [`write`](State::write).
    ///
    /// # Errors
    /// The system's error, or those of [`from_json`](State::from_json), with the file.
    pub fn read(path: impl AsRef<Path>) -> Result<State> {
        let path = path.as_ref();
        let failed = |source| Error::io("cannot read the state", source).with_path(path);
        let mut bytes = Vec::new();
        // One more byte than allowed distinguishes a file that is too long from one that just fits.
        open_regular(path, "cannot read the state")?
            .take(STATE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        State::from_bytes(&bytes).map_err(|error| error.with_path(path))
    }

    /// Writes the state so that `path` has either its old content or all of the new, even if the machine stops at any
    /// moment. It writes to a file next to `path`, which it syncs and then renames. Takes as long as the disk needs for
    /// that.
    ///
    /// # Errors
    /// The system's error; `WrongFileType` if `path` exists and is not a regular file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Error::new(ErrorKind::WrongFileType, "a state can replace only a regular file").with_path(path));
        }
        let failed = |source| Error::io("cannot write the state", source).with_path(path);
        delete_abandoned(folder_of(path), |name| is_beside(path, name));
        let (mut file, beside) = create_beside(path).map_err(failed)?;
        let text = self.to_json() + "\n";
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(source) = written.and_then(|()| fs::rename(&beside, path)) {
            // It is of no use now, and the first error is the one that matters.
            let _ = fs::remove_file(&beside);
            return Err(failed(source));
        }
        // The rename is durable once the folder is synced. Until then a power failure takes the state back.
        match File::open(folder_of(path)).and_then(|folder| folder.sync_all()) {
            // Some filesystems have nothing to sync of a folder.
            Err(error) if error.kind() == IoKind::InvalidInput => Ok(()),
            synced => synced.map_err(failed),
        }
    }
}

/// Creates a new file in the folder of `path`.
fn create_beside(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let Some(name) = path.file_name() else { return Err(IoKind::IsADirectory.into()) };
    let mut last = IoKind::AlreadyExists.into();
    for attempt in 0..ATTEMPTS {
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}-{attempt}.part", std::process::id()));
        let beside = folder_of(path).join(beside);
        match create_temporary(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == IoKind::AlreadyExists => last = error,
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
