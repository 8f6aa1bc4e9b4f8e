//! Shards in a store. They are made in a folder, as others are, and sent from there in parts that appear together: a
//! shard is there whole or not at all.

use super::PackOptions;
use crate::dataset::Options;
use crate::dataset::inspect::store_at;
use crate::store::{Class, Failure, Interrupt, ListOptions, Store, Uploads, again};
use crate::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a part, if no longer ones are needed: the least that is sent in no more requests than it is worth.
const PART_BYTES: u64 = 8 << 20;
/// Most parts of an object, as stores have it.
const PARTS_MAX: u64 = 10_000;
/// How long a request is tried again that a store throttles, and one that does not come through.
const THROTTLED_FOR: Duration = Duration::from_secs(120);
const UNREACHED_FOR: Duration = Duration::from_secs(30);
/// How long a process that ends tries to give up what it has begun.
const GIVE_UP_FOR: Duration = Duration::from_secs(5);

/// A folder of a store that shards go to.
pub(super) struct Far {
    store: Arc<dyn Store>,
    /// What its keys begin with.
    inside: Vec<u8>,
    /// How its URLs are opened.
    options: Options,
    /// Where shards are made.
    staging: Option<PathBuf>,
    /// Uploads that have begun and are not complete.
    open: Mutex<HashSet<(Vec<u8>, String)>>,
}

impl Far {
    /// The folder, if `url` is in a store.
    ///
    /// # Errors
    /// `InvalidArgument` for a store that takes no objects, and for options that stores cannot have.
    pub(super) fn new(url: &Path, asked: &PackOptions) -> Result<Option<Far>> {
        let options = asked.stores.clone();
        let Some((store, key)) = store_at(url, &options)? else { return Ok(None) };
        let refused = |what: &'static str, remedy: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, what).with_path(store.shown(&key)).with_remedy(remedy))
        };
        if store.uploads().is_none() {
            return refused("shards are not written to this store", "name a folder, and copy the shards from there");
        }
        if asked.overwrite {
            return refused("shards of another pack are not replaced in a store", "name another folder of the store");
        }
        let inside = if key.is_empty() { key } else { [&key[..], b"/"].concat() };
        let mut hash = DefaultHasher::new();
        (store.shown(&inside), asked.part.to_string()).hash(&mut hash);
        let name = format!(".uringload-pack-{:016x}", hash.finish());
        let staging = asked.staging.as_ref().map(|folder| folder.join(name));
        Ok(Some(Far { store, inside, options, staging, open: Mutex::default() }))
    }

    /// How URLs of the store are opened, as `options` for a format.
    pub(super) fn options(&self, format: &str) -> Options {
        self.options.clone().format(format)
    }

    /// Where shards are made: a folder of this job alone.
    ///
    /// # Errors
    /// `InvalidArgument` if none was named.
    pub(super) fn staging(&self) -> Result<&Path> {
        self.staging.as_deref().ok_or_else(|| {
            let error =
                Error::new(ErrorKind::InvalidArgument, "shards for a store are made in a folder, and sent from it");
            error.with_path(self.shown("")).with_remedy("name one on a disk with room for them: staging (--staging)")
        })
    }

    /// The names that are there.
    pub(super) fn names(&self) -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        let options = ListOptions { folders: true, ..ListOptions::default() };
        let listed = self.store.list(&self.inside, &options, &Interrupt::new(), &mut |page| {
            let keys = page.objects.into_iter().map(|object| object.key).chain(page.folders);
            names.extend(keys.map(|key| String::from_utf8_lossy(&key[self.inside.len()..]).into_owned()));
            ControlFlow::Continue(())
        });
        listed.map_err(|failure| self.failed(failure, ""))?;
        Ok(names)
    }

    /// The first bytes of an object, at most so many, and how many it has; nothing if it is not there.
    pub(super) fn read(&self, name: &str, most: usize) -> Result<Option<(Vec<u8>, u64)>> {
        let key = self.key(name);
        let mut bytes = vec![0; most];
        let mut have = 0;
        loop {
            let read = self
                .again(&|| false, || self.store.read(&key, have as u64, &mut bytes[have..], None, &Interrupt::new()));
            match read {
                Ok(read) => {
                    have += read.bytes;
                    let total = read.total.unwrap_or(have as u64);
                    if read.bytes == 0 || have == most || have as u64 >= total {
                        bytes.truncate(have);
                        return Ok(Some((bytes, total)));
                    }
                }
                Err(failure) if failure.class() == Class::Missing => return Ok(None),
                Err(failure) => return Err(self.failed(failure, name)),
            }
        }
    }

    /// Puts a small object. Whether it was put: not if it `is_first` and there is one.
    pub(super) fn put(&self, name: &str, bytes: &[u8], is_first: bool) -> Result<bool> {
        let put = self.again(&|| false, || self.uploads()?.put(&self.key(name), bytes, is_first, &Interrupt::new()));
        match put {
            Ok(()) => Ok(true),
            Err(failure) if is_first && failure.class() == Class::Changed => Ok(false),
            Err(failure) => Err(self.failed(failure, name)),
        }
    }

    /// Sends a shard, and before it the index beside its file, if there is one; then removes both. Whether they were
    /// sent.
    pub(super) fn send_with_index(&self, name: &str, path: &Path, is_ended: &dyn Fn() -> bool) -> Result<bool> {
        let (index_name, mut index) = (format!("{name}.uidx"), path.as_os_str().to_owned());
        index.push(".uidx");
        let index = PathBuf::from(index);
        let is_sent =
            (!index.exists() || self.send(&index_name, &index, is_ended)?) && self.send(name, path, is_ended)?;
        for path in [&index, path] {
            // What stays goes with the folder.
            let _ = fs::remove_file(path);
        }
        Ok(is_sent)
    }

    /// Sends a file, which appears when all of it is there. Whether it was sent: not if it `is_ended` before.
    pub(super) fn send(&self, name: &str, path: &Path, is_ended: &dyn Fn() -> bool) -> Result<bool> {
        let unread = |error: io::Error| Error::io("cannot read", error).with_path(path);
        let mut file = File::open(path).map_err(unread)?;
        let bytes = file.metadata().map_err(unread)?.len();
        let part_bytes = PART_BYTES.max(bytes.div_ceil(PARTS_MAX).next_multiple_of(1 << 20));
        // Fits: a part.
        let mut part = vec![0; bytes.min(part_bytes) as usize];
        if bytes <= part_bytes {
            file.read_exact(&mut part).map_err(unread)?;
            let put = self.again(is_ended, || self.uploads()?.put(&self.key(name), &part, false, &Interrupt::new()));
            return self.sent(put, name);
        }
        let key = self.key(name);
        let begun = self.again(is_ended, || self.uploads()?.begin(&key, &Interrupt::new()));
        let upload = match begun {
            Ok(upload) => upload,
            Err(failure) => return self.sent(Err(failure), name),
        };
        self.open().insert((key.clone(), upload.clone()));
        let mut send = || -> Result<std::result::Result<(), Failure>> {
            let mut tags = Vec::new();
            let mut left = bytes;
            for number in 1.. {
                if left == 0 {
                    break;
                }
                let part = &mut part[..left.min(part_bytes) as usize];
                file.read_exact(part).map_err(unread)?;
                left -= part.len() as u64;
                let sent =
                    self.again(is_ended, || self.uploads()?.part(&key, &upload, number, part, &Interrupt::new()));
                match sent {
                    Ok(tag) => tags.push(tag),
                    Err(failure) => return Ok(Err(failure)),
                }
            }
            Ok(self.complete(&key, &upload, &tags, bytes, is_ended))
        };
        let sent = send();
        let is_sent = matches!(sent, Ok(Ok(())));
        let given_up = if is_sent { Ok(()) } else { self.give_up(&key, &upload) };
        self.open().remove(&(key, upload));
        let sent = self.sent(sent?, name);
        // What stays costs room until someone removes it.
        match (sent, given_up) {
            (Err(error), Err(failure)) => {
                let remedy = error.remedy().unwrap_or_default().to_owned();
                let more =
                    format!("; parts of it stay in the store ({failure}): let it remove uploads that do not end");
                Err(error.with_remedy(remedy + &more))
            }
            (sent, _) => sent,
        }
    }

    /// Gives up what has begun, for a process that ends.
    pub(super) fn give_up_all(&self) {
        let open: Vec<_> = self.open().drain().collect();
        let until = Instant::now() + GIVE_UP_FOR;
        for (key, upload) in open {
            if Instant::now() < until {
                // If it fails, the store has the parts until someone removes them.
                let _ = self.give_up(&key, &upload);
            }
        }
    }

    fn give_up(&self, key: &[u8], upload: &str) -> std::result::Result<(), Failure> {
        let start = Instant::now();
        let is_late = || start.elapsed() > GIVE_UP_FOR;
        self.again(&is_late, || self.uploads()?.abort(key, upload, &Interrupt::new()))
    }

    fn complete(
        &self,
        key: &[u8],
        upload: &str,
        tags: &[String],
        bytes: u64,
        is_ended: &dyn Fn() -> bool,
    ) -> std::result::Result<(), Failure> {
        let mut attempts = 0;
        self.again(is_ended, || {
            attempts += 1;
            match self.uploads()?.complete(key, upload, tags, &Interrupt::new()) {
                // The answer to an attempt before may have been lost, and nothing else puts an object of this name.
                Err(failure) if failure.class() == Class::Missing && attempts > 1 => {
                    let found = self.store.read(key, 0, &mut [0], None, &Interrupt::new())?;
                    if found.total == Some(bytes) { Ok(()) } else { Err(failure) }
                }
                completed => completed,
            }
        })
    }

    fn sent(&self, sent: std::result::Result<(), Failure>, name: &str) -> Result<bool> {
        match sent {
            Ok(()) => Ok(true),
            Err(failure) if failure.class() == Class::Interrupted => Ok(false),
            Err(failure) => Err(self.failed(failure, name)),
        }
    }

    /// Asks until there is an answer, or none in time.
    fn again<T>(
        &self,
        is_ended: &dyn Fn() -> bool,
        ask: impl FnMut() -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let limit = |class| match class {
            Class::Throttled => Some(THROTTLED_FOR),
            Class::Storage | Class::Foreign => Some(UNREACHED_FOR),
            _ => None,
        };
        let stopped = || Failure::new(Class::Interrupted, "the pack was stopped");
        again(limit, || if is_ended() { Err(stopped()) } else { Ok(()) }, ask)
    }

    fn uploads(&self) -> std::result::Result<&dyn Uploads, Failure> {
        self.store.uploads().ok_or_else(|| Failure::new(Class::Unavailable, "the store takes no objects"))
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [&self.inside[..], name.as_bytes()].concat()
    }

    fn shown(&self, name: &str) -> PathBuf {
        self.store.shown(&self.key(name))
    }

    fn failed(&self, failure: Failure, name: &str) -> Error {
        let error = failure.into_error(&self.shown(name));
        let remedy = error.remedy().unwrap_or("mend that").to_owned();
        error.with_remedy(format!("{remedy}; then run it again: shards that are whole are kept"))
    }

    fn open(&self) -> MutexGuard<'_, HashSet<(Vec<u8>, String)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Far({})", self.shown("").display())
    }
}

/// Requests that send an object of this size.
pub(super) fn requests_of(bytes: u64) -> u64 {
    if bytes <= PART_BYTES { 1 } else { bytes.div_ceil(PART_BYTES.max(bytes.div_ceil(PARTS_MAX))) + 2 }
}

/// Removes the folder that shards were made in.
pub(super) fn clear(staging: &Path) {
    // What stays is removed by the next run of this job.
    let _ = fs::remove_dir_all(staging);
}
