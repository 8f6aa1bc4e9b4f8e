//! Emptying the page cache before a measurement.

use std::fs::File;
use std::os::fd::AsFd;
use uringload::dataset::{Dataset, FileId};
use uringload::{Error, Result};
use uringload_sys as sys;

/// How the page cache was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// All of it, by the administrator's means.
    Whole,
    /// The dataset's files only, by advice to the kernel.
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

/// Empties the page cache: all of it where that is permitted, else of the dataset's files.
///
/// Names and inodes are looked up again afterwards: a loader has walked its folder before it reads, so they are warm in
/// real life, while contents are not.
pub fn empty(dataset: &dyn Dataset) -> Result<Emptied> {
    let files = dataset.files();
    let all = || (0..files.len() as u32).map(|index| files.path(FileId(index)));
    if sys::file::drop_caches().is_ok() {
        // A file that has vanished will be an error of its samples; here it is nothing to complain about.
        all().for_each(|path| drop(std::fs::metadata(path)));
        return Ok(Emptied::Whole);
    }
    for path in all() {
        let Ok(file) = File::open(&path) else { continue };
        // What is not on the disk yet would stay. Only the owner may sync through a descriptor opened for reading on
        // some filesystems; then clean pages leave all the same.
        let _ = file.sync_data();
        sys::file::evict(file.as_fd())
            .map_err(|source| Error::io("cannot evict the file from the page cache", source).with_path(&path))?;
    }
    Ok(Emptied::Files)
}
