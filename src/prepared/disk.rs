//! Stores prepared samples in files that processes and later runs share ([`Segments`]). What a crash, a full disk or a
//! flipped bit has damaged is never used: the checksum of a sample is compared whenever it is read.

use super::{Entry, PreparedValue};
use crate::dataset::SampleId;
use crate::segments::{IMAGES, Key, PAGE_BYTES, Place, RECORD_BYTES, Segments};
use crate::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use uringload_images::Image;

/// The first bytes of a sample. The last one is the version.
const MAGIC: [u8; 8] = *b"ULimage\x02";

/// Bytes before the fields: magic, origin, sample, number of fields.
const HEAD_BYTES: usize = 32;

/// Bytes that describe a field: its kind, and two numbers.
const FIELD_BYTES: usize = 24;

/// Time after which a process that keeps samples looks for what others have kept.
const NEWS_AFTER: Duration = Duration::from_secs(1);

/// Whose samples take less than this part of the room do not matter to the others: a 64th.
const OTHERS_PART: u64 = 64;

const IMAGE: u64 = 1;
const BYTES: u64 = 2;
const NUMBER: u64 = 3;

/// Identifies what prepared samples are made from, and how. Samples of another origin are different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// A hash of where the dataset is, and of the operations. One root has one origin at a time.
    pub(crate) root: u64,
    /// A hash of everything that the pixels follow from.
    pub(crate) stamp: u64,
    /// The root, for people.
    pub(crate) shown: String,
}

/// A folder of prepared samples.
#[derive(Debug)]
pub(super) struct Folder {
    segments: Arc<Segments>,
    origin: Origin,
    known: RwLock<Known>,
    /// When others' samples were looked for.
    looked: Mutex<Instant>,
}

/// The samples that are there.
#[derive(Debug, Default)]
struct Known {
    places: HashMap<u64, Place>,
    /// More places of the same samples, which processes made at the same time, or because one is damaged.
    more: HashMap<u64, Vec<Place>>,
    /// Bytes that the samples of this origin take, each once.
    own: u64,
    /// Bytes that all else takes.
    others: u64,
}

/// The end of an attempt to keep a sample.
pub(super) enum Kept {
    /// It is there, by whatever process.
    There,
    /// It is longer than any sample that can be kept.
    TooLong,
    NoRoom,
}

/// A sample that could not be used, and is no longer known.
pub(super) struct Lost {
    pub(super) error: Error,
}

impl Folder {
    /// Opens the samples of `origin` below `folder`, which is created if necessary and may take `bytes` bytes. Later
    /// calls on it take `patience` at most, where its file system asks a server.
    ///
    /// # Errors
    /// Those of [`Segments::open`]; the system's error if what is there cannot be read.
    pub(super) fn open((folder, patience): (&Path, Duration), origin: Origin, bytes: u64) -> Result<Folder> {
        let segments = Arc::new(Segments::open(folder, IMAGES, bytes)?.asked_within(patience));
        segments.name_root(origin.root, &origin.shown).map_err(|error| {
            let error = Error::io("cannot write to the folder for decoded images", error);
            error.with_path(segments.folder()).with_remedy("name a folder that this user may write to")
        })?;
        let folder = Folder { segments, origin, known: RwLock::default(), looked: Mutex::new(Instant::now()) };
        folder.look()?;
        Ok(folder)
    }

    /// Whether a sample is available.
    pub(super) fn has(&self, id: SampleId) -> bool {
        self.known().places.contains_key(&id.0)
    }

    /// Bytes that the samples take.
    pub(super) fn taken(&self) -> u64 {
        self.known().own
    }

    /// Whether samples of other datasets or chains take room that these were to have.
    pub(super) fn is_shared(&self) -> bool {
        let known = self.known();
        known.others > (known.own + known.others) / OTHERS_PART
    }

    /// Where the samples are.
    pub(super) fn path(&self) -> &Path {
        self.segments.folder()
    }

    /// Whether the file system cannot reserve room.
    pub(super) fn is_sparse(&self) -> bool {
        self.segments.is_sparse()
    }

    /// Reads a sample of `fields` fields. Forgets it if it cannot be used.
    pub(super) fn read(&self, id: SampleId, fields: usize) -> std::result::Result<Entry, Lost> {
        let mut place = self.known().places.get(&id.0).copied();
        let mut error = Error::new(ErrorKind::NotFound, "no decoded image is there").with_path(self.path());
        while let Some(tried) = place {
            match self.read_at(tried, (id, fields)) {
                Ok(entry) => return Ok(entry),
                Err(of_place) => error = of_place,
            }
            place = self.known_mut().forget(id, tried);
        }
        Err(Lost { error })
    }

    fn read_at(&self, place: Place, (id, fields): (SampleId, usize)) -> Result<Entry> {
        let mut stored = Vec::new();
        let read = stored.try_reserve_exact(place.bytes as usize).map_err(io::Error::from).and_then(|()| {
            stored.resize(place.bytes as usize, 0);
            self.segments.read(place, 0, &mut stored)
        });
        let read = read.map_err(|error| Error::io("cannot read a decoded image", error)).and_then(|()| {
            if !place.is_of(&stored) {
                let what = "the decoded image is not the one that was written: its checksum differs";
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            parse(&stored, (self.origin.stamp, id, fields))
        });
        let path = || self.path().join(Segments::file_name(place.segment));
        read.map_err(|error| error.with_path(path()).with_offset(u64::from(place.page) * PAGE_BYTES))
    }

    /// Keeps a sample, unless another process has done it meanwhile.
    ///
    /// # Errors
    /// The system's error. Then nothing of the sample is left.
    pub(super) fn write(self: &Arc<Folder>, id: SampleId, entry: &Entry) -> Result<Kept> {
        self.look_again()?;
        if self.has(id) {
            return Ok(Kept::There);
        }
        let head = head(entry, (self.origin.stamp, id));
        let pieces: Vec<&[u8]> = [&head[..]].into_iter().chain(entry.iter().map(PreparedValue::bytes)).collect();
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if bytes > self.segments.entry_bytes_max() {
            return Ok(Kept::TooLong);
        }
        let put = if self.segments.may_hang() {
            let (segments, key, whole) = (Arc::clone(&self.segments), self.key(id), pieces.concat());
            self.segments.ask(move || segments.put(key, &[&whole])).unwrap_or_else(Err)
        } else {
            self.segments.put(self.key(id), &pieces)
        };
        let place = put.map_err(|error| Error::io("cannot write a decoded image", error).with_path(self.path()))?;
        let Some(place) = place else { return Ok(Kept::NoRoom) };
        self.known_mut().add(id.0, place);
        Ok(Kept::There)
    }

    /// Learns of samples that other processes have kept, if that is some time ago and no other thread does it.
    fn look_again(self: &Arc<Folder>) -> Result<()> {
        let Ok(mut looked) = self.looked.try_lock() else { return Ok(()) };
        if looked.elapsed() >= NEWS_AFTER {
            let folder = Arc::clone(self);
            self.segments.ask(move || folder.look()).map_err(|error| {
                Error::io("cannot look for decoded images of others", error).with_path(self.path())
            })??;
            *looked = Instant::now();
        }
        Ok(())
    }

    fn look(&self) -> Result<()> {
        self.segments.news(&mut |key, place| {
            let mut known = self.known_mut();
            if key == self.key(SampleId(key.name)) {
                known.add(key.name, place);
            } else {
                known.others += taken_by(place.bytes.into());
            }
        })
    }

    fn key(&self, id: SampleId) -> Key {
        Key { root: self.origin.root, name: id.0, stamp: self.origin.stamp, piece: 0 }
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Adds a place of a sample, unless it is known.
    fn add(&mut self, id: u64, place: Place) {
        match self.places.get(&id) {
            Some(known) if *known == place => {}
            Some(_) => {
                let more = self.more.entry(id).or_default();
                if !more.contains(&place) {
                    more.push(place);
                }
            }
            None => {
                self.places.insert(id, place);
                self.own += taken_by(place.bytes.into());
            }
        }
    }

    /// Forgets a place of a sample. Returns another one.
    fn forget(&mut self, id: SampleId, place: Place) -> Option<Place> {
        if self.places.get(&id.0) != Some(&place) {
            // Another thread was faster.
            return self.places.get(&id.0).copied();
        }
        let next = self.more.get_mut(&id.0).and_then(Vec::pop);
        match next {
            Some(next) => _ = self.places.insert(id.0, next),
            None => {
                self.places.remove(&id.0);
                self.own -= taken_by(place.bytes.into()).min(self.own);
            }
        }
        next
    }
}

/// Bytes that a sample with values of these lengths takes on the disk.
pub(crate) fn bytes_on_disk(values: impl ExactSizeIterator<Item = u64>) -> u64 {
    let head = (HEAD_BYTES + FIELD_BYTES * values.len()) as u64;
    taken_by(values.fold(head, u64::saturating_add))
}

/// Bytes that an entry of `bytes` bytes takes, with its record.
fn taken_by(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES).saturating_add(RECORD_BYTES)
}

/// The bytes before the values.
fn head(entry: &Entry, (origin, id): (u64, SampleId)) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES + FIELD_BYTES * entry.len());
    head.extend_from_slice(&MAGIC);
    for number in [origin, id.0, entry.len() as u64] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    for kept in entry {
        let told = match kept {
            PreparedValue::Image(image) => {
                let sides = u64::from(image.height()) << 32 | u64::from(image.width());
                [IMAGE | u64::from(image.channels()) << 8, sides, image.pixels().len() as u64]
            }
            PreparedValue::Bytes(bytes) => [BYTES, 0, bytes.len() as u64],
            PreparedValue::Number(number) => [NUMBER, number.cast_unsigned(), 0],
        };
        told.iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
    }
    head
}

/// The values of a sample, if these are the bytes of one, and of this one.
fn parse(stored: &[u8], (origin, id, fields): (u64, SampleId, usize)) -> Result<Entry> {
    let wrong = |what: &'static str| Error::new(ErrorKind::Corrupt, what);
    let ends = || wrong("the decoded image ends early");
    let number = |at: usize| -> Result<u64> {
        let bytes = stored.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).ok_or_else(ends)?;
        Ok(u64::from_le_bytes(*bytes))
    };
    if stored.get(..8) != Some(&MAGIC[..]) {
        return Err(wrong("the entry holds no decoded image"));
    }
    if (number(8)?, number(16)?, number(24)?) != (origin, id.0, fields as u64) {
        return Err(wrong("the entry holds a decoded image of another sample"));
    }
    let mut at = HEAD_BYTES + FIELD_BYTES * fields;
    let mut entry = Entry::with_capacity(fields);
    for field in 0..fields {
        let told = HEAD_BYTES + FIELD_BYTES * field;
        let (kind, value, len) = (number(told)?, number(told + 8)?, number(told + 16)?);
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or_else(ends)?;
        let bytes = stored.get(at..end).ok_or_else(ends)?.to_vec();
        entry.push(match kind & 0xff {
            IMAGE => PreparedValue::Image(Image::new((value >> 32) as u32, value as u32, (kind >> 8) as u32, bytes)?),
            BYTES => PreparedValue::Bytes(bytes),
            NUMBER => PreparedValue::Number(value.cast_signed()),
            _ => return Err(wrong("the entry holds a value of no known kind")),
        });
        at = end;
    }
    Ok(entry)
}
