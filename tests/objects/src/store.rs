//! Objects: files below a folder, those that were put and that no file can stand for, and those that are computed.

use crate::listing::{Entry, Listing, SYNTHETIC};
use crate::text::hex;
use crate::time;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest name of a file, in bytes.
const NAME_BYTES: usize = 255;

/// An object, with what its head says.
#[derive(Clone)]
pub struct Object {
    pub size: u64,
    pub etag: String,
    pub modified: u64,
    pub source: Source,
}

/// Where the bytes are.
#[derive(Clone)]
pub enum Source {
    File(Arc<File>),
    Memory(Arc<[u8]>),
    /// The content of `uringload_content` under this key.
    Computed(u64),
}

impl Source {
    /// `length` bytes from `first` on.
    pub fn read(&self, first: u64, length: usize) -> io::Result<Vec<u8>> {
        match self {
            Source::Memory(bytes) => Ok(bytes[first as usize..first as usize + length].to_vec()),
            Source::Computed(key) => Ok(uringload_content::content(*key, first, length)),
            Source::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, first)?;
                Ok(bytes)
            }
        }
    }
}

/// Parts of an upload that is not complete, by number, each with its ETag.
pub type Parts = BTreeMap<u32, (String, Vec<u8>)>;

/// All buckets.
pub struct Store {
    root: Option<PathBuf>,
    synthetic: Option<(u64, u64)>,
    started: u64,
    /// Counts what is made, so that each has a name of its own.
    made: AtomicU64,
    /// By bucket and key.
    memory: Mutex<BTreeMap<(String, String), Object>>,
    /// By bucket, key and name.
    uploads: Mutex<HashMap<(String, String, String), Parts>>,
    /// The last listing of each bucket, by which it is continued.
    listed: Mutex<HashMap<(String, String), Listing>>,
    /// Held by who puts an object under a condition.
    turn: Mutex<()>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub fn new(root: Option<PathBuf>, synthetic: Option<(u64, u64)>) -> io::Result<Store> {
        if let Some(root) = &root {
            fs::read_dir(root).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", root.display())))?;
        }
        Ok(Store {
            root,
            synthetic,
            started: time::now(),
            made: AtomicU64::new(0),
            memory: Mutex::default(),
            uploads: Mutex::default(),
            listed: Mutex::default(),
            turn: Mutex::default(),
        })
    }

    pub fn buckets(&self) -> Vec<String> {
        let entries = self.root.iter().filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut found: Vec<String> = names.filter(|name| self.folder(name).is_some_and(|path| path.is_dir())).collect();
        found.extend(self.synthetic.map(|_| SYNTHETIC.to_owned()));
        found.sort();
        found
    }

    /// Whether there is the bucket.
    pub fn has(&self, bucket: &str) -> bool {
        self.is_synthetic(bucket) || self.folder(bucket).is_some_and(|path| path.is_dir())
    }

    pub fn create(&self, bucket: &str) -> io::Result<()> {
        fs::create_dir(self.folder(bucket).ok_or(ErrorKind::InvalidInput)?)
    }

    /// The object, if there is one.
    ///
    /// # Errors
    /// The file cannot be opened for another reason, such as too many open files.
    pub fn find(&self, bucket: &str, key: &str) -> io::Result<Option<Object>> {
        if let (true, Some((count, size))) = (self.is_synthetic(bucket), self.synthetic) {
            let listing = Listing::Synthetic { count, size, modified: self.started };
            let source = Source::Computed(uringload_content::key_of(key.as_bytes()));
            let object = |entry: Entry| Object { size, etag: entry.etag, modified: entry.modified, source };
            return Ok(listing.get(key).map(object));
        }
        if let Some(object) = lock(&self.memory).get(&(bucket.to_owned(), key.to_owned())) {
            return Ok(Some(object.clone()));
        }
        let Some(path) = self.path(bucket, key) else { return Ok(None) };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let (size, etag, modified) = stamp(&metadata);
        let object = Object { size, etag, modified, source: Source::File(Arc::new(file)) };
        Ok(metadata.is_file().then_some(object))
    }

    /// Puts an object and returns its ETag. It is there as a whole or not at all.
    pub fn put(&self, bucket: &str, key: &str, bytes: &[u8]) -> io::Result<String> {
        if self.is_synthetic(bucket) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "objects of this bucket are computed"));
        }
        if let Some(path) = self.path(bucket, key)
            && let Some(etag) = self.write(&path, bytes)?
        {
            lock(&self.memory).remove(&(bucket.to_owned(), key.to_owned()));
            return Ok(etag);
        }
        let etag = format!("{:x}-{:x}-memory", self.made.fetch_add(1, Ordering::Relaxed), bytes.len());
        let (size, source) = (bytes.len() as u64, Source::Memory(bytes.into()));
        let object = Object { size, etag: etag.clone(), modified: time::now(), source };
        lock(&self.memory).insert((bucket.to_owned(), key.to_owned()), object);
        Ok(etag)
    }

    pub fn remove(&self, bucket: &str, key: &str) {
        if lock(&self.memory).remove(&(bucket.to_owned(), key.to_owned())).is_none()
            && let Some(path) = self.path(bucket, key)
        {
            let _ = fs::remove_file(path);
        }
    }

    /// All objects whose keys may begin with `prefix`; as they were for the page before where it is `continued`.
    pub fn listing(&self, bucket: &str, prefix: &str, continued: bool) -> Listing {
        if let (true, Some((count, size))) = (self.is_synthetic(bucket), self.synthetic) {
            return Listing::Synthetic { count, size, modified: self.started };
        }
        let name = (bucket.to_owned(), prefix.to_owned());
        if let Some(known) = lock(&self.listed).get(&name).filter(|_| continued) {
            return known.clone();
        }
        let mut found = BTreeMap::new();
        // Only what lies below the last folder of the prefix can begin with it.
        let below = prefix.rfind('/').map_or("", |at| &prefix[..at]);
        let start = if below.is_empty() { self.folder(bucket) } else { self.path(bucket, below) };
        if let Some(start) = start {
            walk(&start, if below.is_empty() { String::new() } else { format!("{below}/") }, &mut found);
        }
        for ((_, key), object) in lock(&self.memory).iter().filter(|((of, _), _)| of == bucket) {
            let (size, etag, modified) = (object.size, object.etag.clone(), object.modified);
            found.insert(key.clone(), Entry { key: key.clone(), size, etag, modified });
        }
        let listing = Listing::Sorted(found.into_values().collect());
        lock(&self.listed).insert(name, listing.clone());
        listing
    }

    /// The turn to look at an object and to put it.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Begins an upload and returns its name.
    pub fn begin(&self, bucket: &str, key: &str) -> String {
        let name = format!("upload-{}", self.made.fetch_add(1, Ordering::Relaxed));
        lock(&self.uploads).insert((bucket.to_owned(), key.to_owned(), name.clone()), Parts::new());
        name
    }

    /// Keeps a part of an upload and returns its ETag; `None` where there is no such upload.
    pub fn part(&self, upload: (&str, &str, &str), number: u32, bytes: &[u8]) -> Option<String> {
        let etag = hex(&ring::digest::digest(&ring::digest::SHA256, bytes).as_ref()[..12]);
        let mut uploads = lock(&self.uploads);
        let parts = uploads.get_mut(&(upload.0.to_owned(), upload.1.to_owned(), upload.2.to_owned()))?;
        parts.insert(number, (etag.clone(), bytes.to_vec()));
        Some(etag)
    }

    /// Takes an upload out, with all of its parts.
    pub fn take(&self, upload: (&str, &str, &str)) -> Option<Parts> {
        lock(&self.uploads).remove(&(upload.0.to_owned(), upload.1.to_owned(), upload.2.to_owned()))
    }

    /// Puts an upload back that could not be completed.
    pub fn put_back(&self, upload: (&str, &str, &str), parts: Parts) {
        lock(&self.uploads).insert((upload.0.to_owned(), upload.1.to_owned(), upload.2.to_owned()), parts);
    }

    fn is_synthetic(&self, bucket: &str) -> bool {
        bucket == SYNTHETIC && self.synthetic.is_some()
    }

    /// The folder of a bucket, which need not be there.
    fn folder(&self, bucket: &str) -> Option<PathBuf> {
        let is_name = !bucket.is_empty() && !bucket.starts_with('.') && !bucket.contains('/');
        self.root.as_ref().filter(|_| is_name).map(|root| root.join(bucket))
    }

    /// The file of a key, where one can have its name exactly.
    fn path(&self, bucket: &str, key: &str) -> Option<PathBuf> {
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES && !name.contains('\0');
        let folder = self.folder(bucket)?;
        key.split('/').all(is_name).then(|| folder.join(key))
    }

    /// Replaces a file at once and returns its ETag; `None` where folders and other objects leave no place for it.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<Option<String>> {
        let root = self.root.as_ref().ok_or(ErrorKind::NotFound)?;
        let unfinished = root.join(format!(".unfinished-{}", self.made.fetch_add(1, Ordering::Relaxed)));
        fs::write(&unfinished, bytes)?;
        let (_, etag, _) = stamp(&fs::metadata(&unfinished)?);
        let moved = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::rename(&unfinished, path));
        match moved.map_err(|error| error.kind()) {
            Ok(()) => return Ok(Some(etag)),
            Err(ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::IsADirectory) => {}
            Err(kind) => return Err(kind.into()),
        }
        fs::remove_file(unfinished)?;
        Ok(None)
    }
}

/// Size, ETag and time of a file. The ETag of a file that was replaced is another one, even within a tick of the clock.
fn stamp(metadata: &Metadata) -> (u64, String, u64) {
    let nanoseconds = metadata.mtime() as u64 * 1_000_000_000 + metadata.mtime_nsec() as u64;
    let etag = format!("{:x}-{nanoseconds:x}-{:x}", metadata.ino(), metadata.len());
    (metadata.len(), etag, metadata.mtime() as u64)
}

/// Every file below `folder`, by its key. Links are followed; what is not UTF-8 is no key.
fn walk(folder: &Path, prefix: String, found: &mut BTreeMap<String, Entry>) {
    let mut folders = vec![(folder.to_owned(), prefix)];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, Ok(name)) = (entry.path(), entry.file_name().into_string()) else { continue };
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let key = format!("{prefix}{name}");
            if metadata.is_dir() {
                folders.push((path, key + "/"));
            } else if metadata.is_file() {
                let (size, etag, modified) = stamp(&metadata);
                found.insert(key.clone(), Entry { key, size, etag, modified });
            }
        }
    }
}
