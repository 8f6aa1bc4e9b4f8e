//! States in files: written whole or not at all.

use super::State;
use crate::{Error, ErrorKind, Result};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind as IoKind, Read, Write};
use std::path::{Path, PathBuf};

/// The longest file that is looked at: a thousand times a state, so that a wrong file does not fill the memory.
pub(super) const STATE_BYTES_MAX: u64 = 1 << 20;

/// Names that are tried for a file that becomes the state once it is whole.
const ATTEMPTS: u32 = 100;

impl State {
    /// Reads a state that [`write`](State::write) has written.
    ///
    /// # Errors
    /// That of the system; and as [`from_json`](State::from_json), with the file.
    pub fn read(path: impl AsRef<Path>) -> Result<State> {
        let path = path.as_ref();
        let failed = |source| Error::io("cannot read the state", source).with_path(path);
        let mut bytes = Vec::new();
        // One byte more than is allowed tells a file that is too long from one that is just not.
        File::open(path).map_err(failed)?.take(STATE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        State::from_bytes(&bytes).map_err(|error| error.with_path(path))
    }

    /// Writes the state so that `path` has either what it had or all of this, whenever the machine stops: into a file
    /// beside it, which is synced and then renamed. Takes as long as the disk takes for that.
    ///
    /// # Errors
    /// That of the system; `WrongFileType` where `path` is there and is no regular file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Error::new(ErrorKind::WrongFileType, "a state can replace only a regular file").with_path(path));
        }
        let failed = |source| Error::io("cannot write the state", source).with_path(path);
        let (mut file, beside) = create_beside(path).map_err(failed)?;
        let text = self.to_json() + "\n";
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(source) = written.and_then(|()| fs::rename(&beside, path)) {
            // It is of no use, and the error that matters is the first one.
            let _ = fs::remove_file(&beside);
            return Err(failed(source));
        }
        // The rename lasts once the folder is synced. Some filesystems refuse that, and all keep the file's content.
        let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// A new file in the folder of `path`.
fn create_beside(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let Some(name) = path.file_name() else { return Err(IoKind::IsADirectory.into()) };
    let mut last = IoKind::AlreadyExists.into();
    for attempt in 0..ATTEMPTS {
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}-{attempt}.part", std::process::id()));
        let beside = folder_of(path).join(beside);
        match File::create_new(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == IoKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}
