//! Stores prepared samples in files: one for each, written under a temporary name and renamed, with a checksum over all
//! of it. Processes may share a folder. Files that a crash, a full disk or a flipped bit has damaged are never used.

use super::{Entry, PreparedValue};
use crate::dataset::SampleId;
use crate::sampler::hash;
use crate::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::fs::{self, DirBuilder, DirEntry, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use uringload_images::Image;
use uringload_sys::file;

/// The first bytes of a file. The last one is the version.
const MAGIC: [u8; 8] = *b"ULimage\x01";

/// Bytes before the fields: magic, origin, sample, checksum, number of fields.
const HEAD_BYTES: usize = 40;

/// Bytes that describe a field: its kind, and two numbers.
const FIELD_BYTES: usize = 24;

/// Number of folders that files are spread over.
const FOLDERS: u64 = 256;

/// A temporary file that is older was left behind by a process that ended.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

const IMAGE: u64 = 1;
const BYTES: u64 = 2;
const NUMBER: u64 = 3;

/// Identifies what prepared samples are made from, and how. Samples of another origin are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(pub(crate) u64);

/// A folder of prepared samples.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    origin: Origin,
    /// Bytes of each sample's file, for the files that are known.
    known: RwLock<HashMap<u64, u64>>,
    /// Makes the temporary names of this process unique.
    written: AtomicU64,
}

/// A file that could not be used and was removed.
pub(super) struct Lost {
    /// Bytes that it took.
    pub(super) bytes: u64,
    pub(super) error: Error,
}

impl Folder {
    /// Opens the samples of `origin` below `folder`, which is created if necessary. Returns the bytes that they take.
    ///
    /// # Errors
    /// The system's error if a folder cannot be created, listed or written to.
    pub(super) fn open(folder: &Path, origin: Origin) -> Result<(Folder, u64)> {
        let path = folder.join(format!("images-{:016x}", origin.0));
        let failed = |what: &'static str, path: &Path, error| {
            Error::io(what, error).with_path(path).with_remedy("name a folder that this user may write to")
        };
        // No other user should be able to change training data.
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(&path).map_err(|error| failed("cannot make the folder for decoded images", &path, error))?;
        trusted(&path)?;
        let mut known = HashMap::new();
        for number in 0..FOLDERS {
            let path = path.join(format!("{number:02x}"));
            make(&path).map_err(|error| failed("cannot make the folder for decoded images", &path, error))?;
            trusted(&path)?;
            let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>);
            for entry in entries.map_err(|error| failed("cannot list decoded images", &path, error))? {
                match parse_name(&entry.file_name().to_string_lossy()) {
                    Some((id, bytes)) => _ = known.insert(id, bytes),
                    None => remove_if_left(&entry),
                }
            }
        }
        let probe = path.join(format!(".{}", process::id()));
        File::create(&probe)
            .and_then(|_| fs::remove_file(&probe))
            .map_err(|error| failed("cannot write decoded images", &path, error))?;
        let taken = known.values().sum();
        let folder = Folder { path, origin, known: RwLock::new(known), written: AtomicU64::new(0) };
        Ok((folder, taken))
    }

    /// Whether a sample is available.
    pub(super) fn has(&self, id: SampleId) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id.0)
    }

    /// Reads a sample of `fields` fields. Removes it if it cannot be used.
    pub(super) fn read(&self, id: SampleId, fields: usize) -> std::result::Result<Entry, Lost> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&id.0).copied();
        let bytes = known.unwrap_or(0);
        let path = self.path_of(id, bytes);
        let read = read_all(&path, bytes).map_err(|error| Error::io("cannot read a decoded image", error));
        read.and_then(|stored| parse(stored, (self.origin, id, fields))).map_err(|error| {
            self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&id.0);
            // Even if it cannot be removed, it is no longer known.
            let _ = fs::remove_file(&path);
            Lost { bytes, error: error.with_path(path) }
        })
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// The system's error. Then nothing of the sample is left.
    pub(super) fn write(&self, id: SampleId, entry: &Entry) -> Result<()> {
        let (head, bytes) = (head(entry, (self.origin, id)), file_bytes(entry));
        let path = self.path_of(id, bytes);
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{:x}-{}-{number}", id.0, process::id()));
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(&head)?;
            entry.iter().try_for_each(|kept| file.write_all(kept.bytes()))
        });
        written.and_then(|()| fs::rename(&temporary, &path)).map_err(|error| {
            let _ = fs::remove_file(&temporary);
            Error::io("cannot write a decoded image", error).with_path(&path)
        })?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(id.0, bytes);
        Ok(())
    }

    fn path_of(&self, id: SampleId, bytes: u64) -> PathBuf {
        self.path.join(format!("{:02x}/{:x}-{bytes:x}", hash(id.0) % FOLDERS, id.0))
    }
}

/// Refuses a folder that another user has created, or may write to.
fn trusted(path: &Path) -> Result<()> {
    let folder = file::open_folder(path).map_err(|error| Error::io("cannot open the folder", error).with_path(path))?;
    file::distrust(folder.as_fd(), None).map_or(Ok(()), |reason| {
        let what = format!("the decoded images in the folder are not trusted: {reason}");
        let error = Error::new(ErrorKind::PermissionDenied, what).with_path(path);
        Err(error.with_remedy("delete the folder, or keep decoded images where no other user may write"))
    })
}

/// The sample and the length from a file's name.
fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (id, bytes) = name.split_once('-')?;
    Some((u64::from_str_radix(id, 16).ok()?, u64::from_str_radix(bytes, 16).ok()?))
}

fn remove_if_left(entry: &DirEntry) {
    let written = entry.metadata().and_then(|data| data.modified());
    let is_left = |time: SystemTime| time.elapsed().is_ok_and(|age| age > LEFT_AFTER);
    if entry.file_name().as_encoded_bytes().starts_with(b".") && written.is_ok_and(is_left) {
        // Another process may have been faster.
        let _ = fs::remove_file(entry.path());
    }
}

fn read_all(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    // The name counts only if the file matches it.
    if file.metadata()?.len() != bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file has not the length in its name"));
    }
    let mut stored = Vec::new();
    stored.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    file.read_to_end(&mut stored)?;
    Ok(stored)
}

/// Bytes of a sample's file.
pub(super) fn file_bytes(entry: &Entry) -> u64 {
    let head = HEAD_BYTES + FIELD_BYTES * entry.len();
    entry.iter().fold(head as u64, |sum, kept| sum + kept.bytes().len() as u64)
}

/// The bytes before the values.
fn head(entry: &Entry, (origin, id): (Origin, SampleId)) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES + FIELD_BYTES * entry.len());
    head.extend_from_slice(&MAGIC);
    for number in [origin.0, id.0, 0, entry.len() as u64] {
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
    let sum = entry.iter().fold(crc32c::crc32c(&head), |sum, kept| crc32c::crc32c_append(sum, kept.bytes()));
    head[24..32].copy_from_slice(&u64::from(sum).to_le_bytes());
    head
}

/// The values of a file, if it is complete and belongs to this sample.
fn parse(mut stored: Vec<u8>, (origin, id, fields): (Origin, SampleId, usize)) -> Result<Entry> {
    let wrong = |what: &'static str| Error::new(ErrorKind::Corrupt, what);
    let ends = || wrong("the decoded image ends early");
    let number = |stored: &[u8], at: usize| -> Result<u64> {
        let bytes = stored.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).ok_or_else(ends)?;
        Ok(u64::from_le_bytes(*bytes))
    };
    if stored.get(..8) != Some(&MAGIC[..]) {
        return Err(wrong("the file holds no decoded image"));
    }
    let sum = number(&stored, 24)?;
    stored[24..32].fill(0);
    if u64::from(crc32c::crc32c(&stored)) != sum {
        return Err(wrong("the decoded image is not the one that was written: its checksum differs"));
    }
    if (number(&stored, 8)?, number(&stored, 16)?, number(&stored, 32)?) != (origin.0, id.0, fields as u64) {
        return Err(wrong("the file holds a decoded image of another sample"));
    }
    let mut at = HEAD_BYTES + FIELD_BYTES * fields;
    let mut entry = Entry::with_capacity(fields);
    for field in 0..fields {
        let told = HEAD_BYTES + FIELD_BYTES * field;
        let (kind, value, len) = (number(&stored, told)?, number(&stored, told + 8)?, number(&stored, told + 16)?);
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or_else(ends)?;
        let bytes = stored.get(at..end).ok_or_else(ends)?.to_vec();
        entry.push(match kind & 0xff {
            IMAGE => PreparedValue::Image(Image::new((value >> 32) as u32, value as u32, (kind >> 8) as u32, bytes)?),
            BYTES => PreparedValue::Bytes(bytes),
            NUMBER => PreparedValue::Number(value.cast_signed()),
            _ => return Err(wrong("the file holds a value of no known kind")),
        });
        at = end;
    }
    Ok(entry)
}
