//! The files of a dataset in compact memory: names end to end in one buffer, 20 bytes a file beside them.

use super::FileId;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One of the places a dataset lies in: paths of its files are relative to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The folder. Files below it are opened relative to it.
    pub path: PathBuf,
}

/// The files of a dataset.
#[derive(Clone, Debug, Default)]
pub struct FileTable {
    roots: Vec<Root>,
    /// First file of each root.
    root_starts: Vec<u32>,
    /// Relative paths, end to end.
    names: Vec<u8>,
    /// Where each file's name ends in `names`.
    name_ends: Vec<u64>,
    sizes: Vec<u64>,
}

impl FileTable {
    /// An empty table.
    pub fn new() -> FileTable {
        FileTable::default()
    }

    /// Starts a new root: files pushed from now on lie below `path`.
    pub fn push_root(&mut self, path: impl Into<PathBuf>) {
        self.roots.push(Root { path: path.into() });
        self.root_starts.push(self.sizes.len() as u32);
    }

    /// Adds a file of `size` bytes at `name` below the last root; returns its number, or `None` when the table is full
    /// (2^32 - 1 files).
    ///
    /// # Panics
    /// If no root was pushed.
    pub fn push(&mut self, name: &[u8], size: u64) -> Option<FileId> {
        assert!(!self.roots.is_empty(), "push_root comes first");
        let id = u32::try_from(self.sizes.len()).ok().filter(|&id| id != u32::MAX)?;
        self.names.extend_from_slice(name);
        self.name_ends.push(self.names.len() as u64);
        self.sizes.push(size);
        Some(FileId(id))
    }

    /// Makes room for `files` more files whose names have `name_bytes` bytes together, and not for more.
    pub fn reserve_exact(&mut self, files: usize, name_bytes: usize) {
        self.names.reserve_exact(name_bytes);
        self.name_ends.reserve_exact(files);
        self.sizes.reserve_exact(files);
    }

    /// Gives back what was reserved and is not needed.
    pub fn shrink_to_fit(&mut self) {
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.sizes.shrink_to_fit();
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The roots.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Which root the file lies below (an index into `roots`).
    pub fn root_of(&self, file: FileId) -> usize {
        self.root_starts.partition_point(|&start| start <= file.0) - 1
    }

    /// The files below a root (an index into `roots`), by number.
    pub fn files_of(&self, root: usize) -> std::ops::Range<u32> {
        let end = self.root_starts.get(root + 1).copied().unwrap_or(self.sizes.len() as u32);
        self.root_starts[root]..end
    }

    /// Path relative to its root.
    pub fn name(&self, file: FileId) -> &[u8] {
        let index = file.0 as usize;
        let start = if index == 0 { 0 } else { self.name_ends[index - 1] as usize };
        &self.names[start..self.name_ends[index] as usize]
    }

    /// Size in bytes when the index was made.
    pub fn size(&self, file: FileId) -> u64 {
        self.sizes[file.0 as usize]
    }

    /// All sizes, by file number.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The whole path, for messages.
    pub fn path(&self, file: FileId) -> PathBuf {
        let name = Path::new(std::ffi::OsStr::from_bytes(self.name(file)));
        self.roots[self.root_of(file)].path.join(name)
    }

    /// Heap bytes that the table takes, names included.
    pub fn heap_bytes(&self) -> usize {
        self.names.capacity()
            + (self.name_ends.capacity() + self.sizes.capacity()) * 8
            + self.root_starts.capacity() * 4
    }
}
