//! Empties the page cache before a measurement.

use std::os::fd::AsFd;
use uringload::dataset::{Dataset, FileId};
use uringload::{Error, Result};
use uringload_sys as sys;

/// How the page cache was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// All of it, which needs administrator rights.
    Whole,
    /// Only the dataset's files, by advice to the kernel.
    Files,
}

impl Emptied {
    /// For the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Emptied::Whole => "drop_caches",
            Emptied::Files => "fadvise",
        }
    }

    /// For the table.
    pub fn words(self) -> &'static str {
        match self {
            Emptied::Whole => "page cache dropped before each measurement",
            Emptied::Files => {
                "the files evicted from the page cache before each measurement (dropping all of it is not permitted)"
            }
        }
    }
}

/// Empties the page cache: all of it if permitted, otherwise only of the dataset's files.
///
/// Names and inodes are looked up again afterwards: a loader walks its folder before it reads, so in real life they are
/// warm while contents are not.
pub fn empty(dataset: &dyn Dataset) -> Result<Emptied> {
    let files = dataset.files();
    let all = || (0..files.len() as u32).map(|index| files.path(FileId(index)));
    if sys::file::drop_caches().is_ok() {
        // A file that has vanished will be reported with its samples; here it does not matter.
        all().for_each(|path| drop(std::fs::metadata(path)));
        return Ok(Emptied::Whole);
    }
    evict(dataset)?;
    Ok(Emptied::Files)
}

/// Evicts the dataset's files from the page cache, and nothing else.
pub fn evict(dataset: &dyn Dataset) -> Result<()> {
    let files = dataset.files();
    for path in (0..files.len() as u32).map(|index| files.path(FileId(index))) {
        let Ok(file) = uringload_sys::file::open_regular(&path) else { continue };
        // Pages not yet written to disk would stay in the cache. On some filesystems only the owner may sync through a
        // descriptor opened for reading; clean pages are evicted all the same.
        let _ = file.sync_data();
        sys::file::evict(file.as_fd())
            .map_err(|source| Error::io("cannot evict the file from the page cache", source).with_path(&path))?;
    }
    Ok(())
}
