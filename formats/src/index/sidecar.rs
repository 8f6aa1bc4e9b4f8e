//! The index of a shard in a file beside it, `SHARD.uidx`: a shard is scanned once instead of at each start.
//!
//! # What it contains
//! An offset and a length in the shard for each sample and column, the samples' keys, and what a scan left out. If the
//! shard is compressed as a whole, also how, and its decoded length; offsets then refer to decoded bytes. All records
//! of a sidecar have one length, just enough for its numbers, so that a look-up is arithmetic: images of 100 KB with
//! their labels take some 8 bytes a sample. Keys are stored separately and share prefixes.
//!
//! # What is trusted
//! A sidecar is ignored, and its shard scanned again, if it is of another version, if it is torn anywhere, or if its
//! shard has another name, size or modification time. If those are the same, but device, inode or time of change are
//! not, the shard is a copy (a dataset may move), or was written to and its time put back; and if it was written to
//! within [`RACY_SECONDS`] before it was indexed, no time shows it. Then content decides: the sidecar has the checksums
//! of some pieces of the shard (see [`Proof`]). In a cache folder, which others may use too, a file is trusted only if
//! this user or root wrote it and no other user may write it.
//!
//! The header and the table of checksums each carry a CRC-32C, which is verified on opening. Each 4 KiB of the rest
//! have a CRC-32C in that table, which is verified when they are read. So no number is used unverified. Even so,
//! numbers are checked against the shard's size: wrong content with a correct checksum (a bug, malice) causes an error,
//! not an access outside the file.
//!
//! # Memory
//! Small sidecars (up to [`RESIDENT_BYTES`] in total for a dataset) are read into memory and verified as a whole.
//! Larger ones stay on disk, so that they take page cache and not the process's memory: see `pieces`.

mod build;
mod layout;
mod pieces;
mod place;
mod proof;
mod shard;

use crate::compression::{Coding, Compression};
use crate::index::opened::Content;
use crate::place::Place;
use crate::watched::asking;
use layout::{Head, KEYS_PER_GROUP};
use pieces::{CHECKED_BYTES, OnDisk};
use std::path::{Path, PathBuf};
use uringload_core::{Error, ErrorKind, Result};

pub(crate) use build::{Builder, Member};
pub(crate) use layout::Column;
pub use layout::{COLUMNS_MAX, KEY_BYTES_MAX};
pub(crate) use pieces::Memory;
pub(crate) use place::{EXTENSION, Places, Written, write_whole};
pub(crate) use proof::Proof;
pub(crate) use shard::Shard;

/// Sidecars are read into memory up to this many bytes for all shards of a dataset together: two million samples.
pub(crate) const RESIDENT_BYTES: u64 = 32 << 20;

/// Whether a file begins as an index does. One that cannot be read is none.
pub(crate) fn is_sidecar(place: &Place) -> bool {
    let (mut begin, _asking) = ([0; layout::MAGIC.len()], asking(place.path()));
    Content::open(place).is_ok_and(|file| file.read_exact_at(&mut begin, 0).is_ok() && begin == layout::MAGIC)
}

/// A shard that was written to this many seconds before it was indexed, or less, may have been written to again without
/// another time: clocks of file systems tick as slowly as every two seconds (FAT). Git calls such files racy.
const RACY_SECONDS: i64 = 2;

/// An open index.
#[derive(Debug)]
pub(crate) struct Sidecar {
    head: Head,
    store: Store,
    /// Its location, for messages; `None` if it was never written.
    path: Option<PathBuf>,
}

/// Where the bytes of an index are.
#[derive(Debug)]
enum Store {
    /// In memory, verified.
    Resident(Vec<u8>),
    /// In its file; pieces are read and verified when they are looked at.
    OnDisk(OnDisk),
}

impl Sidecar {
    /// Opens the index at `place`, if it is the complete and current index of `shard`, which is open as `content`.
    /// Small ones are read into `memory`, if there is any.
    ///
    /// # Errors
    /// Why it is not: one line, without the path.
    pub(crate) fn open(
        place: &Place,
        (shard, content): (&Shard, &Content),
        memory: &Memory,
    ) -> Result<Sidecar, String> {
        let _asking = asking(place.path());
        let file = Content::open(place).map_err(|error| error.to_string())?;
        Sidecar::of_file(file, place, (shard, content), memory)
    }

    /// As `open`, with the file at `place` opened.
    fn of_file(
        file: Content,
        place: &Place,
        (shard, content): (&Shard, &Content),
        memory: &Memory,
    ) -> Result<Sidecar, String> {
        let written = file.identity().modified.0;
        // Samples are located by the thread that reads, which cannot wait for a store of objects.
        let store = if file.file().is_none() || memory.take(file.size()) {
            // Fits: at most RESIDENT_BYTES.
            let mut bytes = vec![0; file.size() as usize];
            file.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
            Store::Resident(bytes)
        } else {
            Store::OnDisk(OnDisk::new(file, memory.pieces()))
        };
        let sidecar = Sidecar::new(store, shard, Some(place.path().to_path_buf()))?;
        sidecar.prove(shard, content, written).map(|()| sidecar)
    }

    /// Opens the index in `image`, as created by [`Builder::finish`].
    ///
    /// # Errors
    /// Those of [`Sidecar::open`].
    pub(crate) fn from_image(image: Vec<u8>, shard: &Shard) -> Result<Sidecar, String> {
        Sidecar::new(Store::Resident(image), shard, None)
    }

    fn new(mut store: Store, shard: &Shard, path: Option<PathBuf>) -> Result<Sidecar, String> {
        let (head, checks) = Head::read(|at, into| store.read(at, into), store.len(), shard)?;
        if let Store::OnDisk(file) = &mut store {
            file.verify(head.body_at, checks);
        }
        let sidecar = Sidecar { head, store, path };
        if let Store::Resident(_) = &sidecar.store {
            for piece in 0..sidecar.head.pieces() {
                if !sidecar.piece_is_whole(piece) {
                    return Err(format!("the checksum of its piece {piece} is wrong"));
                }
            }
        }
        Ok(sidecar)
    }

    /// Compares the shard's content with what the index says of it, unless it certainly is the file that was indexed.
    /// The index was `written` by the file system's clock: one of a machine that was ahead says too late when the shard
    /// was seen.
    fn prove(&self, shard: &Shard, file: &Content, written: i64) -> Result<(), String> {
        let Head { own, seen, proof, .. } = &self.head;
        let last_written = shard.modified.0.max(shard.own.changed.0);
        let is_racy = last_written.saturating_add(RACY_SECONDS) >= *seen.min(&written);
        if *own == shard.own && !is_racy {
            return Ok(());
        }
        if own.is_of_object() {
            return Err("the object was written anew since".into());
        }
        match proof.holds(file) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the file has other content, though its size and its time are the same".into()),
            Err(error) => Err(format!("the file cannot be compared with it: {error}")),
        }
    }

    /// Its location; `None` if it was never written.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> u64 {
        self.head.samples
    }

    /// The columns, in the shard's order.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.head.columns
    }

    /// What a scan left out: a code, a count, and the first of them.
    pub(crate) fn left_out(&self) -> &[(u8, u64, Vec<u8>)] {
        &self.head.left_out
    }

    /// A hash of all samples' keys, columns, offsets and lengths.
    pub(crate) fn content(&self) -> u64 {
        self.head.content
    }

    /// How the shard is coded, if it is, and its decoded length in bytes.
    pub(crate) fn decoded(&self) -> Option<(Coding, u64)> {
        self.head.decoded
    }

    /// How the shard is compressed, if it is nothing but that, and its decoded length in bytes.
    pub(crate) fn packed(&self) -> Option<(Compression, u64)> {
        match self.head.decoded? {
            (Coding::Packed(compression), bytes) => Some((compression, bytes)),
            (Coding::Expanded(_), _) => None,
        }
    }

    /// Whether it is left in its file.
    #[cfg(test)]
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.store, Store::OnDisk(_))
    }

    /// Calls `each` with column, offset and length of each value of sample `index`; false if the index is damaged
    /// there.
    pub(crate) fn sample(&self, index: u64, mut each: impl FnMut(usize, u64, u64)) -> bool {
        self.try_sample(index, &mut each).is_some()
    }

    fn try_sample(&self, index: u64, each: &mut impl FnMut(usize, u64, u64)) -> Option<()> {
        let head = &self.head;
        let mut at = head.records_at + index * head.record_bytes;
        let mut number = |width: u8| {
            let number = self.number(at, width);
            at += u64::from(width);
            number
        };
        // In units: the end of the previous value, where the next gap begins.
        let mut end = head.start_base.checked_add(number(head.start_width)?)?;
        let mut is_first = true;
        for (index, column) in head.columns.iter().enumerate() {
            let gap = number(column.gap_width)?;
            let mut len = number(column.len_width)?;
            if column.missing > 0 {
                // 0 means that the sample lacks the column.
                match len.checked_sub(1) {
                    None => continue,
                    Some(less) => len = less,
                }
            }
            let len = len.checked_add(column.len_base)?;
            if !std::mem::take(&mut is_first) {
                // A negative base alone may point before the file, until the gap is added.
                end = end.wrapping_add_signed(column.gap_base).wrapping_add(gap);
            }
            let offset = end.checked_mul(head.unit)?;
            let bytes_end = offset.checked_add(len).filter(|&end| end <= head.content_bytes())?;
            each(index, offset, len);
            end = bytes_end.div_ceil(head.unit);
        }
        Some(())
    }

    /// Appends the key of sample `index`; false, with nothing appended, if the index is damaged there.
    pub(crate) fn key(&self, index: u64, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let found = self.try_key(index, start, out).is_some();
        if !found {
            out.truncate(start);
        }
        found
    }

    fn try_key(&self, index: u64, start: usize, out: &mut Vec<u8>) -> Option<()> {
        let head = &self.head;
        let group = index / KEYS_PER_GROUP;
        let mut at = head.keys_at.checked_add(self.number(head.groups_at + group * 8, 8)?)?;
        for _ in 0..=index % KEYS_PER_GROUP {
            // A key consists of the prefix it shares with the previous key, and bytes of its own.
            let (shared, own) = (self.number(at, 2)? as usize, self.number(at + 2, 2)? as usize);
            at += 4;
            if shared > out.len() - start || at + own as u64 > head.checks_at {
                return None;
            }
            out.truncate(start + shared);
            let own_start = out.len();
            out.resize(own_start + own, 0);
            self.is_inside(at, own as u64).then_some(())?;
            self.store.copy(at, &mut out[own_start..]).then_some(())?;
            at += own as u64;
        }
        Some(())
    }

    /// How it differs from `other`, in words; compares every sample.
    pub(crate) fn difference(&self, other: &Sidecar) -> Option<String> {
        if self.len() != other.len() {
            return Some(format!("it has {} samples instead of {}", self.len(), other.len()));
        }
        let (mut ours, mut theirs, mut key, mut other_key) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let differs = |index: &u64| {
            let same_key =
                self.key_into(*index, &mut key) && other.key_into(*index, &mut other_key) && key == other_key;
            !same_key || !self.values(*index, &mut ours) || !other.values(*index, &mut theirs) || ours != theirs
        };
        (0..self.len()).find(differs).map(|index| format!("its sample {index} is another one"))
    }

    fn key_into(&self, index: u64, key: &mut Vec<u8>) -> bool {
        key.clear();
        self.key(index, key)
    }

    /// Column name, offset and length of each value of a sample, sorted by name.
    fn values<'a>(&'a self, index: u64, out: &mut Vec<(&'a str, u64, u64)>) -> bool {
        out.clear();
        let is_whole = self.sample(index, |column, offset, len| out.push((&self.columns()[column].name, offset, len)));
        out.sort_unstable();
        is_whole
    }

    /// The error for a sample whose entry in the index is damaged.
    pub(crate) fn damage(&self, shard: &Path) -> Error {
        Error::new(ErrorKind::Corrupt, "the index is damaged")
            .with_path(self.path().unwrap_or(shard))
            .with_remedy("delete it, or build it again with `uringload index --rebuild`")
    }

    /// The little-endian number of `width` bytes at `at`.
    fn number(&self, at: u64, width: u8) -> Option<u64> {
        if width == 0 {
            return Some(0);
        }
        // Eight bytes are available wherever a number begins: padding and the table of checksums follow.
        let mut bytes = [0; 8];
        if !self.is_inside(at, u64::from(width)) || !self.store.copy(at, &mut bytes) {
            return None;
        }
        Some(u64::from_le_bytes(bytes) & (u64::MAX >> (64 - 8 * u32::from(width))))
    }

    /// Whether all of `at..at + len` is between header and checksums.
    fn is_inside(&self, at: u64, len: u64) -> bool {
        at >= self.head.body_at && at.checked_add(len).is_some_and(|end| end <= self.head.checks_at)
    }

    fn piece_is_whole(&self, piece: u64) -> bool {
        let head = &self.head;
        let start = head.body_at + piece * CHECKED_BYTES;
        let mut bytes = [0; CHECKED_BYTES as usize];
        let bytes = &mut bytes[..CHECKED_BYTES.min(head.checks_at - start) as usize];
        let mut check = [0; 4];
        self.store.copy(start, bytes)
            && self.store.copy(head.checks_at + 4 * piece, &mut check)
            && u32::from_le_bytes(check) == crc32c::crc32c(bytes)
    }
}

impl Store {
    fn len(&self) -> u64 {
        match self {
            Store::Resident(bytes) => bytes.len() as u64,
            Store::OnDisk(file) => file.len(),
        }
    }

    /// Reads the bytes at `at`, verified or not; false if not all of them are there.
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        match self {
            Store::Resident(_) => self.copy(at, into),
            Store::OnDisk(file) => file.read(at, into).is_ok(),
        }
    }

    /// Copies the bytes at `at`, which were verified; false if not all of them are there.
    fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        match self {
            Store::Resident(bytes) => {
                let Ok(at) = usize::try_from(at) else { return false };
                let found = at.checked_add(into.len()).and_then(|end| bytes.get(at..end));
                found.map(|found| into.copy_from_slice(found)).is_some()
            }
            Store::OnDisk(file) => file.copy(at, into),
        }
    }
}

#[cfg(test)]
mod tests;
