//! Empties the page cache before a measurement.

use crate::Caller;
use std::os::fd::AsFd;
use uringload::dataset::{Dataset, FileId};
use uringload::{Error, Result};
use uringload_sys as sys;

/// Evicts the dataset's files from the page cache, and nothing else: names and inodes stay, which a loader has looked
/// up before it reads.
pub fn evict(dataset: &dyn Dataset, caller: &Caller) -> Result<()> {
    let files = dataset.files();
    for path in (0..files.len() as u32).map(|index| files.path(FileId(index))) {
        if caller.is_set() {
            break;
        }
        let Ok(file) = uringload_sys::file::open_regular(&path) else { continue };
        // Pages not yet written to disk would stay in the cache. On some filesystems only the owner may sync through a
        // descriptor opened for reading; clean pages are evicted all the same.
        let _ = file.sync_data();
        sys::file::evict(file.as_fd())
            .map_err(|source| Error::io("cannot evict the file from the page cache", source).with_path(&path))?;
    }
    Ok(())
}
