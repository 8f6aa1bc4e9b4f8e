//! The index of a shard in a file beside it, `SHARD.uidx`: a shard is scanned once instead of at each start.
//!
//! # What it contains
//! An offset and a length in the shard for each sample and column, the samples' keys, and what a scan left out. If the
//! shard is compressed as a whole, also how, and its decoded length; offsets then refer to decoded bytes. All records
//! of a sidecar have one length, just enough for its numbers, so that a look-up is arithmetic: images of 100 KB with
//! their labels take some 8 bytes a sample. Keys are stored separately and share prefixes.
//!
//! # What is trusted
//! A sidecar is ignored if its shard has another name, size or modification time, if it is of another version, or if it
//! is torn anywhere: the shard is then scanned again. The header and the table of checksums each carry a CRC-32C, which
//! is verified on opening. Each 4 KiB of the rest have a CRC-32C in that table, which is verified on first access. So
//! opening reads the header and a thousandth of the rest, and no number is used unverified. Even so, numbers are
//! checked against the shard's size: wrong content with a correct checksum (a bug, malice) causes an error, not an
//! access outside the file.
//!
//! # Mapping, and its risk
//! Small sidecars (up to [`RESIDENT_BYTES`] in total for a dataset) are read into memory and verified as a whole.
//! Larger ones are mapped, so that they take page cache and not the process's memory; a page that is not cached is read
//! from disk on first access. If a file is truncated in place while it is mapped, touching a page past its end kills
//! the process with SIGBUS, and so does a disk that fails then. This library never shortens a sidecar: it writes a file
//! of another name and renames it over the old one, which lives on for those that have it mapped. What remains is trust
//! that other programs leave `*.uidx` alone; whoever can truncate them can just as well change the shards.

mod build;
mod layout;
mod place;

use crate::compression::Compression;
use layout::{Head, KEYS_PER_GROUP};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::file::{Identity, Mapping};

pub(super) use build::{Builder, Member};
pub(super) use layout::Column;
pub use layout::{COLUMNS_MAX, KEY_BYTES_MAX};
pub(super) use place::{EXTENSION, Kept, Places};

/// Sidecars are read into memory up to this many bytes for all shards of a dataset together: two million samples.
pub(super) const RESIDENT_BYTES: u64 = 32 << 20;

/// Bytes that one checksum covers: a page, so that a look-up verifies only what it has read in anyway.
const CHECKED_BYTES: u64 = 4096;

/// The shard that an index belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    /// The format that the shard was read as.
    pub(super) format: &'static str,
    /// Its file name without folders, since a dataset may move.
    pub(super) name: Vec<u8>,
    /// Size in bytes.
    pub(super) size: u64,
    /// Modification time: seconds since 1970 and nanoseconds.
    pub(super) modified: (i64, u32),
}

impl Shard {
    /// Describes the file at `path` with this identity.
    pub(super) fn new(format: &'static str, path: &Path, identity: &Identity) -> Shard {
        use std::os::unix::ffi::OsStrExt;
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        Shard { format, name, size: identity.size, modified: identity.modified }
    }
}

/// An open index.
#[derive(Debug)]
pub(super) struct Sidecar {
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
    /// In a mapped file, verified piece by piece: one bit for each verified piece.
    Mapped(Mapping, Vec<AtomicU64>),
}

impl Sidecar {
    /// Opens the index at `path`, if it is the complete and current index of `shard`. `resident` counts down the bytes
    /// that may still be read into memory.
    ///
    /// # Errors
    /// Why it is not: one line, without the path.
    pub(super) fn open(path: &Path, shard: &Shard, resident: &AtomicU64) -> Result<Sidecar, String> {
        let file = uringload_sys::file::open_regular(path).map_err(|error| error.to_string())?;
        let len = file.metadata().map_err(|error| error.to_string())?.len();
        let within = |left: u64| left.checked_sub(len);
        let store = if resident.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok() {
            // Fits: at most RESIDENT_BYTES.
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
            Store::Resident(bytes)
        } else {
            let len = usize::try_from(len).map_err(|_| "it is larger than memory can be".to_owned())?;
            let mapping = Mapping::new(file.as_fd(), len).map_err(|error| error.to_string())?;
            Store::Mapped(mapping, Vec::new())
        };
        Sidecar::new(store, shard, Some(path.to_path_buf()))
    }

    /// Opens the index in `image`, as created by [`Builder::finish`].
    ///
    /// # Errors
    /// Those of [`Sidecar::open`].
    pub(super) fn from_image(image: Vec<u8>, shard: &Shard) -> Result<Sidecar, String> {
        Sidecar::new(Store::Resident(image), shard, None)
    }

    fn new(mut store: Store, shard: &Shard, path: Option<PathBuf>) -> Result<Sidecar, String> {
        let head = Head::read(|at, into| store.copy(at, into), store.len(), shard)?;
        if let Store::Mapped(_, verified) = &mut store {
            // One bit for each 4 KiB of a file that really has this length: bounded by its size.
            verified.resize_with(head.pieces().div_ceil(64) as usize, AtomicU64::default);
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

    /// Its location; `None` if it was never written.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u64 {
        self.head.samples
    }

    /// The columns, in the shard's order.
    pub(super) fn columns(&self) -> &[Column] {
        &self.head.columns
    }

    /// What a scan left out: a code, a count, and the first of them.
    pub(super) fn left_out(&self) -> &[(u8, u64, Vec<u8>)] {
        &self.head.left_out
    }

    /// A hash of all samples' keys, columns, offsets and lengths.
    pub(super) fn content(&self) -> u64 {
        self.head.content
    }

    /// How the shard is compressed, if it is, and its decoded length in bytes.
    pub(super) fn decoded(&self) -> Option<(Compression, u64)> {
        self.head.decoded
    }

    /// Whether it takes none of the process's memory.
    #[cfg(test)]
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.store, Store::Mapped(..))
    }

    /// Calls `each` with column, offset and length of each value of sample `index`; false if the index is damaged
    /// there.
    pub(super) fn sample(&self, index: u64, mut each: impl FnMut(usize, u64, u64)) -> bool {
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
    pub(super) fn key(&self, index: u64, out: &mut Vec<u8>) -> bool {
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
            self.verified(at, own as u64).then_some(())?;
            self.store.copy(at, &mut out[own_start..]).then_some(())?;
            at += own as u64;
        }
        Some(())
    }

    /// How it differs from `other`, in words; compares every sample.
    pub(super) fn difference(&self, other: &Sidecar) -> Option<String> {
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
    pub(super) fn damage(&self, shard: &Path) -> Error {
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
        if !self.verified(at, u64::from(width)) || !self.store.copy(at, &mut bytes) {
            return None;
        }
        Some(u64::from_le_bytes(bytes) & (u64::MAX >> (64 - 8 * u32::from(width))))
    }

    /// Whether all of `at..at + len` lies between header and checksums, and its checksums are correct.
    fn verified(&self, at: u64, len: u64) -> bool {
        let head = &self.head;
        let Some(end) = at.checked_add(len).filter(|&end| at >= head.body_at && end <= head.checks_at) else {
            return false;
        };
        let Store::Mapped(_, verified) = &self.store else { return true };
        if len == 0 {
            return true;
        }
        let pieces = (at - head.body_at) / CHECKED_BYTES..=(end - 1 - head.body_at) / CHECKED_BYTES;
        pieces.into_iter().all(|piece| {
            // Relaxed: the bit only says that bytes that never change were correct; two threads may both verify them.
            let (word, bit) = (&verified[(piece / 64) as usize], 1 << (piece % 64));
            word.load(Ordering::Relaxed) & bit != 0
                || self.piece_is_whole(piece) && word.fetch_or(bit, Ordering::Relaxed) | bit != 0
        })
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
            Store::Mapped(mapping, _) => mapping.len() as u64,
        }
    }

    /// Copies the bytes at `at`; false if not all of them exist.
    fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        let Ok(at) = usize::try_from(at) else { return false };
        match self {
            Store::Resident(bytes) => match at.checked_add(into.len()).and_then(|end| bytes.get(at..end)) {
                Some(found) => {
                    into.copy_from_slice(found);
                    true
                }
                None => false,
            },
            Store::Mapped(mapping, _) => mapping.copy(at, into) == into.len(),
        }
    }
}

#[cfg(test)]
mod tests;
