//! Keeps samples prepared from epoch to epoch: images are decoded, and processed up to the first random operation of
//! their chain. In memory, or in files.
//!
//! Which samples are kept is a function of the sample and of the share that fits ([`Members`]). Nothing is ever
//! replaced: if each sample is used once an epoch, no other choice is used more often.

mod disk;
mod members;

use crate::Result;
use crate::config::{Cause, Fallback};
use crate::dataset::{SampleId, Value};
use bytes::Bytes;
use disk::Folder;
pub(crate) use disk::Origin;
pub(crate) use members::{Members, Tally};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
    /// Bytes that all entries may take.
    room: u64,
    taken: AtomicU64,
    /// Nothing more is kept: there is no room, or the disk refuses it.
    is_full: AtomicBool,
    place: Store,
    /// Number of fields of a sample.
    fields: usize,
    /// Fallbacks to report, and the kinds already reported.
    said: Mutex<(Vec<Fallback>, Vec<&'static str>)>,
    has_said: AtomicBool,
}

#[derive(Debug)]
enum Store {
    Memory(RwLock<HashMap<u64, Arc<Entry>>>),
    Disk(Folder),
}

impl Prepared {
    /// Keeps `members` in memory, in `room` bytes: samples of `fields` fields.
    pub(crate) fn in_memory(members: Members, room: u64, fields: usize) -> Prepared {
        Prepared::at(Store::Memory(RwLock::default()), 0, members, room, fields)
    }

    /// Keeps `members` in files below `folder`, in `room` bytes, including those that `origin` already has there.
    ///
    /// # Errors
    /// The system's error if a folder cannot be created, listed or written to.
    pub(crate) fn on_disk(
        (folder, origin): (&Path, Origin),
        members: Members,
        room: u64,
        fields: usize,
    ) -> Result<Prepared> {
        let (folder, taken) = Folder::open(folder, origin)?;
        Ok(Prepared::at(Store::Disk(folder), taken, members, room, fields))
    }

    fn at(place: Store, taken: u64, members: Members, room: u64, fields: usize) -> Prepared {
        Prepared {
            members,
            room,
            taken: AtomicU64::new(taken),
            is_full: AtomicBool::new(false),
            place,
            fields,
            said: Mutex::default(),
            has_said: AtomicBool::new(false),
        }
    }

    /// Whether a sample is available. It stays so, unless its file is damaged.
    pub(crate) fn has(&self, id: SampleId) -> bool {
        match &self.place {
            Store::Memory(entries) => entries.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id.0),
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
            Store::Memory(entries) => entries.read().unwrap_or_else(PoisonError::into_inner).get(&id.0).cloned(),
            Store::Disk(folder) => match folder.read(id, self.fields) {
                Ok(entry) => Some(Arc::new(entry)),
                Err(lost) => {
                    // Its room is free again, so that it can be rewritten.
                    self.taken.fetch_sub(lost.bytes.min(self.taken()), Ordering::Relaxed);
                    self.say("these images decoded again", &lost.error, "harmless, unless it goes on: check the disk");
                    None
                }
            },
        }
    }

    /// Keeps a sample, if there is room.
    pub(crate) fn keep(&self, id: SampleId, entry: Entry) {
        let bytes = match &self.place {
            Store::Memory(_) => bytes_of(entry.iter().map(|kept| kept.bytes().len() as u64)),
            Store::Disk(_) => disk::file_bytes(&entry),
        };
        if self.taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.room {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            self.is_full.store(true, Ordering::Relaxed);
            return;
        }
        match &self.place {
            Store::Memory(entries) => {
                let mut entries = entries.write().unwrap_or_else(PoisonError::into_inner);
                if entries.insert(id.0, Arc::new(entry)).is_some() {
                    self.taken.fetch_sub(bytes, Ordering::Relaxed);
                }
            }
            Store::Disk(folder) => {
                if let Err(error) = folder.write(id, &entry) {
                    self.taken.fetch_sub(bytes, Ordering::Relaxed);
                    self.is_full.store(true, Ordering::Relaxed);
                    self.say("no more images kept", &error, "make room there, or name another folder or fewer bytes");
                }
            }
        }
    }

    /// Bytes that are kept.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Fallbacks since the last call.
    pub(crate) fn said(&self) -> Vec<Fallback> {
        if !self.has_said.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.has_said.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    fn say(&self, got: &'static str, error: &crate::Error, remedy: &'static str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        // One of a kind is enough: a damaged disk causes many.
        if !said.1.contains(&got) {
            said.1.push(got);
            let step = Fallback::new(Cause::Cache, got, None).with_reason(error.to_string().replace('\n', "; "));
            said.0.push(Fallback { wanted: "decoded images kept on disk".into(), ..step }.with_remedy(remedy));
        }
        self.has_said.store(true, Ordering::Relaxed);
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
