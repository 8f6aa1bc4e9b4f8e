//! What is kept from epoch to epoch.

use super::value::{Kind, Settable, Value, text, wrong};
use crate::Result;
use crate::dataset::FileTable;
use crate::dataset::inspect::url_scheme;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use uringload_core::parse_bytes;

/// What is kept in memory from epoch to epoch.
///
/// Whatever is kept, samples come in the same order, with the same bytes, states and digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cache {
    /// Nothing: every epoch reads all samples.
    #[default]
    Off,
    /// The dataset's files, within the memory limit, beside what batches need. Files are read in long
    /// stretches, each once, when the first of its samples is wanted; later samples are copied from memory. Where not
    /// all of the dataset fits, the route says how much does. Which stretches are kept is chosen by a hash of their
    /// place: the same on every rank, in every run, and wherever an order resumes.
    ///
    /// When an epoch begins, files are looked at (up to 1024, others each time): one that has changed is dropped, and
    /// its samples are read again, which reports the change as it would without a cache.
    ///
    /// Not for samples that are cut from units (compressed shards, Parquet), which are kept decoded in any case, and
    /// not with GPUDirect Storage, which passes the host's memory by: the route says so.
    Memory,
}

/// Where decoded images are kept from epoch to epoch, and how many bytes of them: see
/// [`Builder::cache_images`](crate::Builder::cache_images).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageCache {
    pub(crate) bytes: u64,
    /// `None`: in memory.
    pub(crate) folder: Option<PathBuf>,
}

impl ImageCache {
    /// Keeps up to `bytes` bytes in memory, beside the memory limit, for as long as the loader lives.
    #[must_use]
    pub fn memory(bytes: u64) -> ImageCache {
        ImageCache { bytes, folder: None }
    }

    /// Keeps decoded images in files below `folder`, which take up to `bytes` bytes. Ranks, other loaders and later
    /// runs find them again, and share these bytes, whatever their datasets and chains are. What is damaged is decoded
    /// anew. Files are readable by this user alone; a folder that others may write to is refused.
    ///
    /// Nothing is removed by itself: `uringload cache stat` says what the folder holds, and `cache clear` removes it.
    pub fn disk(folder: impl Into<PathBuf>, bytes: u64) -> ImageCache {
        ImageCache { bytes, folder: Some(folder.into()) }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        if self.folder.is_none() { self.bytes } else { 0 }
    }
}

/// A folder of a local disk that keeps what is read of objects, and how many bytes of it: see
/// [`Builder::cache_disk`](crate::Builder::cache_disk). As text: `FOLDER:BYTES`, such as `/nvme/cache:100GiB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCache {
    pub(crate) folder: PathBuf,
    pub(crate) bytes: u64,
}

impl DiskCache {
    /// Keeps up to `bytes` bytes in files below `folder`, which is made if it is not there. All datasets, ranks and
    /// runs that name the folder share them. They are readable by this user alone.
    pub fn new(folder: impl Into<PathBuf>, bytes: u64) -> DiskCache {
        DiskCache { folder: folder.into(), bytes }
    }

    /// Whether there is room for all of these files.
    pub(crate) fn holds(&self, files: &FileTable) -> bool {
        files.has_objects() && self.bytes >= files.total_bytes()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Settable for DiskCache {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<DiskCache> {
        let given = match value {
            Value::Path(path) => path.to_str().ok_or_else(|| wrong(name, value, kind.wanted()))?,
            _ => text(name, kind, value)?,
        };
        let parts = given.rsplit_once(':').filter(|(folder, _)| !folder.is_empty());
        // Of a URL, a folder such as `s3:` would be made.
        let parts = parts.filter(|(folder, _)| url_scheme(Path::new(folder)).is_none());
        let (folder, bytes) = parts.ok_or_else(|| wrong(name, value, kind.wanted()))?;
        let bytes = parse_bytes(bytes).map_err(|why| wrong(name, value, &format!("{}: {why}", kind.wanted())))?;
        Ok(DiskCache::new(folder, bytes))
    }

    fn value(&self) -> Value {
        let mut told = OsString::from(&self.folder);
        told.push(format!(":{}", self.bytes));
        Value::Path(told.into())
    }
}
