//! Class folders: the first component of a file's path is its class, as in torchvision's `ImageFolder`.

use crate::dataset::{FileId, FileTable};
use crate::parallel::in_parallel;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// The classes of a dataset, and which file belongs to which.
#[derive(Debug)]
pub(super) struct Classes {
    /// Sorted by bytes; the index is the label.
    names: Vec<OsString>,
    /// First file and label of each run of files with the same label. Files are sorted by path, so there are about as
    /// many runs as classes, and labels cost no memory per file.
    runs: Vec<(u32, u32)>,
}

impl Classes {
    /// The classes of all roots together, merged by name; or the first file that is not in a subfolder of its root.
    pub(super) fn find(files: &FileTable, threads: usize) -> Result<Classes, FileId> {
        let named = in_parallel(&files.ranges(), threads, |range| named(files, range.clone()));
        let mut named = named.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        named.dedup_by_key(|(_, class)| *class);
        let names: BTreeSet<&[u8]> = named.iter().map(|&(_, class)| class).collect();
        let names: Vec<&[u8]> = names.into_iter().collect();
        let label = |class: &[u8]| names.binary_search(&class).expect("all names were collected above") as u32;
        let runs = named.iter().map(|&(first, class)| (first, label(class))).collect();
        let names = names.into_iter().map(|name| OsStr::from_bytes(name).to_os_string()).collect();
        Ok(Classes { names, runs })
    }

    pub(super) fn names(&self) -> &[OsString] {
        &self.names
    }

    /// Index of the file's class in `names`.
    pub(super) fn label(&self, file: FileId) -> u32 {
        self.runs[self.runs.partition_point(|&(first, _)| first <= file.0) - 1].1
    }
}

/// The first file of each run with the same class, and that class.
fn named(files: &FileTable, range: Range<u32>) -> Result<Vec<(u32, &[u8])>, FileId> {
    let mut named: Vec<(u32, &[u8])> = Vec::new();
    for file in range.map(FileId) {
        let name = files.name(file);
        // Most files are in the folder of the one before.
        let is_beside = |class: &[u8]| name.get(class.len()) == Some(&b'/') && name.starts_with(class);
        if named.last().is_none_or(|&(_, class)| !is_beside(class)) {
            named.push((file.0, class_name(name).ok_or(file)?));
        }
    }
    Ok(named)
}

/// The first component of a path that has more than one.
fn class_name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().position(|&byte| byte == b'/')?;
    // A list may name "/a/b", "./b" or "../b", whose first component is not a folder below the root.
    Some(&path[..end]).filter(|name| !matches!(*name, b"" | b"." | b".."))
}
