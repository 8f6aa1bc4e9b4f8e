//! Whether a dataset's files are still those that were indexed: a run that indexes anew asks this.

use crate::dataset::{FileId, FileTable, Fingerprint};
use crate::find::names::has_extension;
use crate::find::paths::{index, thread_count};
use crate::index::opened::Content;
use crate::index::sidecar;
use crate::named;
use crate::options::Options;
use crate::parallel::in_parallel;
use crate::watched::{LIMIT, watched};
use std::path::Path;
use uringload_core::{Error, Result};

/// Files that a thread asks about at a time.
const TASK_FILES: u32 = 1024;

impl FileTable {
    /// What has changed since the files were indexed: how many files are others or gone, and the error of the first.
    /// `None` if all are what they were.
    ///
    /// This asks the system for the identity of every file, and reads none: some microseconds a file where inodes are
    /// in memory. A file that was [pushed](FileTable::push) without an inspection counts as unchanged while it is
    /// there. Files that were added are not in the table, so they are not noticed.
    ///
    /// ```
    /// use uringload_formats::{Dataset, Options, open};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("a.txt");
    /// std::fs::write(&path, "one\ntwo\n")?;
    /// let dataset = open(&[folder.path()], &Options::new().format("text"))?;
    /// assert!(dataset.files().changed().is_none());
    ///
    /// std::fs::write(&path, "one\ntwo\nthree\n")?;
    /// let (files, first) = dataset.files().changed().expect("it is longer");
    /// assert_eq!((files, first.path()), (1, Some(&*path)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn changed(&self) -> Option<(u64, Error)> {
        if let Err(error) = self.list_anew() {
            return Some((1, error));
        }
        // Fits: a table has fewer than 2^32 files.
        let files = self.len() as u32;
        let tasks: Vec<u32> = (0..files).step_by(TASK_FILES as usize).collect();
        let of_task = |&start: &u32| {
            let mut changed = (start..files.min(start.saturating_add(TASK_FILES)))
                .filter_map(|file| self.change_of(FileId(file)).map(|error| (1, error)));
            let first = changed.next()?;
            Some((first.0 + changed.count() as u64, first.1))
        };
        let found = in_parallel(&tasks, thread_count(0), of_task).into_iter().flatten();
        found.reduce(|(sum, first), (count, _)| (sum + count, first))
    }

    fn change_of(&self, file: FileId) -> Option<Error> {
        let place = self.at(file);
        if let Some(far) = place.as_far() {
            let found = far.tree.stat(&far.key).map_err(|error| Error::io("cannot find", error).with_path(&place));
            return found.and_then(|(stat, version)| self.is_object(file, version, stat.bytes)).err();
        }
        let identity = match place.identity() {
            Ok(identity) => identity,
            Err(error) => return Some(Error::io("cannot find", error).with_path(place)),
        };
        // Only an open file shows whether its file system keeps inodes. One that cannot be opened is another.
        let vary = || Content::open(&place).is_ok_and(|file| file.inodes_vary());
        self.is_still(file, &identity, vary).err()
    }
}

/// A hash of the names of all files that the paths match, apart from indexes: it differs if files were added.
///
/// # Errors
/// As [`open`](crate::open) for paths that cannot be listed.
pub fn names<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<u64> {
    let (named, _) = named::places(paths, options)?;
    watched(LIMIT, move || names_of(&index(&named, thread_count(0))?.files))
}

fn names_of(files: &FileTable) -> Result<u64> {
    let all = (0..files.len() as u32).map(|file| (files.root_of(FileId(file)), files.name(FileId(file))));
    let mut names: Vec<_> = all.filter(|(_, name)| !has_extension(name, sidecar::EXTENSION)).collect();
    // A folder is walked by several threads, and in another order each time.
    names.sort_unstable();
    let mut hash = Fingerprint::new("names");
    for (root, name) in names {
        hash.number(root as u64);
        hash.bytes(name);
    }
    Ok(hash.finish())
}
