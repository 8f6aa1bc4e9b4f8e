//! States in files: written entirely or not at all.

use super::State;
use crate::dataset::inspect::open_regular;
use crate::{Error, ErrorKind, Result};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

/// Maximum file size to read: a thousand times a state, so that a wrong file does not fill the memory.
pub(super) const STATE_BYTES_MAX: u64 = 1 << 20;

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
        let text = self.to_json() + "\n";
        uringload_sys::file::replace(path, |file| file.write_all(text.as_bytes())).map_err(failed)
    }
}
