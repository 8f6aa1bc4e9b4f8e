//! Empties the page cache before a measurement.

use crate::Caller;
use crate::text;
use std::os::fd::AsFd;
use std::time::Instant;
use uringload::dataset::{Dataset, FileId};
use uringload::{Error, ErrorKind, Result};
use uringload_sys::file::{self, CacheStat, cachestat};

/// Evicts the dataset's files from the page cache, and nothing else: names and inodes stay, which a loader has looked
/// up before it reads.
///
/// # Errors
/// `Timeout` if that takes longer than `until`; what evicting a file reports.
pub fn evict(dataset: &dyn Dataset, caller: &Caller, until: Option<Instant>) -> Result<()> {
    let files = dataset.files();
    let count = text::count(files.len() as u64);
    let _doing = caller.doing(&format!("emptying the page cache of {count} files"), until);
    for path in (0..files.len() as u32).map(|index| files.path(FileId(index))) {
        if caller.is_set() {
            break;
        }
        if until.is_some_and(|until| Instant::now() > until) {
            let what = format!("there is no time to empty the page cache of {count} files");
            return Err(Error::new(ErrorKind::Timeout, what).with_remedy("give a longer time, or measure without that"));
        }
        let Ok(opened) = file::open_regular(&path) else { continue };
        // Pages not yet written to disk would stay in the cache. A disk takes a millisecond for each file that it is
        // asked to sync, so only those are that may have some. On some filesystems only the owner may sync through a
        // descriptor opened for reading; clean pages are evicted all the same.
        let is_clean = |pages: CacheStat| pages.dirty + pages.writeback == 0;
        if !cachestat(opened.as_fd(), 0, 0).is_ok_and(is_clean) {
            let _ = opened.sync_data();
        }
        file::evict(opened.as_fd())
            .map_err(|source| Error::io("cannot evict the file from the page cache", source).with_path(&path))?;
    }
    Ok(())
}
