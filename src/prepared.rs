//! Keeps samples prepared from epoch to epoch: images are decoded, and processed up to the first random operation of
//! their chain. In memory, or in files.
//!
//! Which samples are kept is a function of the sample and of the share that fits ([`Members`]). Nothing is ever
//! replaced: if each sample is used once an epoch, no other choice is used more often.

mod disk;
mod members;

use crate::config::{Cause, Fallback, Said};
use crate::dataset::{SampleId, Value};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use disk::{Folder, Kept};
pub(crate) use disk::{Origin, bytes_on_disk};
pub(crate) use members::{Members, Tally};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;
use uringload_images::Image;

/// Approximate overhead of an entry in memory.
const ENTRY_BYTES: u64 = 256;

/// The kept form of one value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PreparedValue {
    /// The image before the first random operation.
    Image(Image),
    /// The value as stored in the dataset.
    Bytes(Vec<u8>),
    Number(i64),
}

/// The kept form of a sample, one value for each field.
pub(crate) type Entry = Vec<PreparedValue>;

/// The samples that are kept. Threads share it.
#[derive(Debug)]
pub(crate) struct Prepared {
    members: Members,
    /// Nothing more is kept: there is no room, or the disk refuses it.
    is_full: AtomicBool,
    place: Store,
    /// Number of fields of a sample.
    fields: usize,
    said: Said,
}

#[derive(Debug)]
enum Store {
    Memory(Memory),
    Disk(Arc<Folder>),
}

#[derive(Debug)]
struct Memory {
    entries: RwLock<HashMap<u64, Arc<Entry>>>,
    /// Bytes that all entries may take.
    room: u64,
    taken: AtomicU64,
}

impl Prepared {
    /// Keeps `members` in memory, in `room` bytes: samples of `fields` fields.
    pub(crate) fn in_memory(members: Members, room: u64, fields: usize) -> Prepared {
        let memory = Memory { entries: RwLock::default(), room, taken: AtomicU64::new(0) };
        Prepared::at(Store::Memory(memory), members, fields)
    }

    /// Keeps `members` in files below `folder`, which may take `bytes` bytes, whatever is there and whichever processes
    /// use it. A folder that asks a server is waited for as long as `patience`.
    ///
    /// # Errors
    /// The system's error if a folder cannot be created, read or written to.
    pub(crate) fn on_disk(
        (folder, origin, patience): (&Path, Origin, Duration),
        members: Members,
        bytes: u64,
        fields: usize,
    ) -> Result<Prepared> {
        Ok(Prepared::at(Store::Disk(Arc::new(Folder::open((folder, patience), origin, bytes)?)), members, fields))
    }

    fn at(place: Store, members: Members, fields: usize) -> Prepared {
        Prepared { members, is_full: AtomicBool::new(false), place, fields, said: Said::default() }
    }

    /// Whether a sample is available. It stays so, unless its file is damaged.
    pub(crate) fn has(&self, id: SampleId) -> bool {
        match &self.place {
            Store::Memory(memory) => memory.entries().contains_key(&id.0),
            Store::Disk(folder) => folder.has(id),
        }
    }

    /// Gathers the values of a sample that should be kept; `None` if it should not. `stored` is the number of bytes
    /// read for it. `values` has those that are kept as they are, and `None` for those that threads make.
    pub(crate) fn fill(
        &self,
        id: SampleId,
        stored: u64,
        values: impl Iterator<Item = Option<PreparedValue>>,
    ) -> Option<Filling> {
        let is_wanted = !self.is_full.load(Ordering::Relaxed) && self.members.has(id, stored) && !self.has(id);
        is_wanted.then(|| Filling { id, values: Mutex::new(values.collect()) })
    }

    /// A kept sample. `None` if it is gone or damaged: then it is made again.
    pub(crate) fn get(&self, id: SampleId) -> Option<Arc<Entry>> {
        match &self.place {
            Store::Memory(memory) => memory.entries().get(&id.0).cloned(),
            Store::Disk(folder) => match folder.read(id, self.fields) {
                Ok(entry) => Some(Arc::new(entry)),
                Err(lost) => {
                    self.say("these images decoded again", &lost.error, "harmless, unless it goes on: check the disk");
                    None
                }
            },
        }
    }

    /// Keeps a sample, if there is room.
    pub(crate) fn keep(&self, id: SampleId, entry: Entry) {
        let has_room = match &self.place {
            Store::Memory(memory) => memory.keep(id, entry),
            Store::Disk(folder) => self.keep_on_disk(folder, id, &entry),
        };
        if !has_room {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether there may be room for more.
    fn keep_on_disk(&self, folder: &Arc<Folder>, id: SampleId, entry: &Entry) -> bool {
        let ended = "no more images kept";
        match folder.write(id, entry) {
            Ok(Kept::There | Kept::TooLong) => {
                if folder.is_sparse() {
                    let what = "its file system cannot reserve room (fallocate)";
                    let error = Error::new(ErrorKind::Unavailable, what).with_path(folder.path());
                    self.say("files without reserved room", &error, "leave enough room on the disk, or name another");
                }
                true
            }
            Ok(Kept::NoRoom) => {
                // Without others, it ends about where the route says.
                if folder.is_shared() {
                    let what = "the folder's bytes are used up, in part by other datasets or transforms";
                    let error = Error::new(ErrorKind::Unavailable, what).with_path(folder.path());
                    self.say(ended, &error, "see `uringload cache stat` and `clear`, or give more bytes");
                }
                false
            }
            Err(error) => {
                self.say(ended, &error, "make room there, or name another folder or fewer bytes");
                false
            }
        }
    }

    /// Bytes that are kept.
    pub(crate) fn taken(&self) -> u64 {
        match &self.place {
            Store::Memory(memory) => memory.taken.load(Ordering::Relaxed),
            Store::Disk(folder) => folder.taken(),
        }
    }

    /// Fallbacks since the last call.
    pub(crate) fn said(&self) -> impl Iterator<Item = Fallback> {
        std::iter::from_fn(|| self.said.next())
    }

    fn say(&self, got: &'static str, error: &Error, remedy: &'static str) {
        self.said.say(got, || {
            let step = Fallback::new(Cause::Cache, got, None).with_reason(error.to_string().replace('\n', "; "));
            Fallback { wanted: "decoded images kept on disk".into(), ..step }.with_remedy(remedy)
        });
    }
}

impl Memory {
    fn entries(&self) -> RwLockReadGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a sample, and returns whether there was room.
    fn keep(&self, id: SampleId, entry: Entry) -> bool {
        let bytes = bytes_of(entry.iter().map(|kept| kept.bytes().len() as u64));
        if self.taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.room {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.insert(id.0, Arc::new(entry)).is_some() {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        true
    }
}

/// The values of one sample, until all are there.
#[derive(Debug)]
pub(crate) struct Filling {
    id: SampleId,
    values: Mutex<Vec<Option<PreparedValue>>>,
}

impl Filling {
    /// Puts the value of a field. Returns the sample once it is whole.
    pub(crate) fn put(&self, field: usize, kept: PreparedValue) -> Option<(SampleId, Entry)> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        *values.get_mut(field)? = Some(kept);
        if values.iter().any(Option::is_none) {
            return None;
        }
        Some((self.id, values.drain(..).flatten().collect()))
    }
}

impl PreparedValue {
    /// The kept form of a value that is kept as it is.
    pub(crate) fn of(value: &Value) -> PreparedValue {
        match value {
            Value::Bytes(bytes) => PreparedValue::Bytes(bytes.to_vec()),
            Value::I64(number) => PreparedValue::Number(*number),
        }
    }

    /// The value, with bytes of its own. The caller supplies the image.
    pub(crate) fn value(&self) -> Value {
        match self {
            PreparedValue::Image(_) => Value::Bytes(Bytes::new()),
            PreparedValue::Bytes(bytes) => Value::Bytes(Bytes::copy_from_slice(bytes)),
            PreparedValue::Number(number) => Value::I64(*number),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            PreparedValue::Image(image) => image.pixels(),
            PreparedValue::Bytes(bytes) => bytes,
            PreparedValue::Number(_) => &[],
        }
    }
}

/// The size in memory of a sample with values of these lengths.
pub(crate) fn bytes_of(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(ENTRY_BYTES, u64::saturating_add)
}

#[cfg(test)]
mod tests;
