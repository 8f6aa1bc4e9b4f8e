//! The bytes of an object of a store, read while a dataset is opened: headers, directories and indexes.

use crate::place::{Far, Tree, again};
use crate::watched::asking;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use uringload_core::store::{Class, Failure, Interrupt, Version};
use uringload_sys::file::Identity;

/// Bytes that are read where fewer are wanted: what stands near a header is looked at next, and a request takes as long
/// as this many bytes at some 10 MB/s, which a single one gives.
const PIECE_BYTES: u64 = 256 << 10;

/// The device of an object: no file has it.
pub(super) const OBJECT_DEVICE: (u32, u32) = (u32::MAX, u32::MAX);
/// The times of an object, which counts by its version.
pub(super) const NO_TIME: (i64, u32) = (i64::MIN, 0);

/// An object, which is what it was when it was opened, or reading it fails.
#[derive(Debug)]
pub(super) struct Object {
    tree: Arc<Tree>,
    key: Vec<u8>,
    size: u64,
    version: Option<Version>,
    /// What was read last: where it begins, and the bytes.
    piece: Mutex<(u64, Vec<u8>)>,
}

impl Object {
    /// Finds it.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for a folder; what the store says.
    pub(super) fn open(far: &Far) -> io::Result<Object> {
        let (stat, version) = far.tree.stat(&far.key)?;
        if !stat.is_file {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (tree, key) = (Arc::clone(&far.tree), far.key.clone());
        Ok(Object { tree, key, size: stat.bytes, version, piece: Mutex::default() })
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.version
    }

    /// Its version as if it were a file.
    pub(super) fn identity(&self) -> Identity {
        let inode = self.version.map_or(0, Version::to_bits);
        Identity { device: OBJECT_DEVICE, inode, size: self.size, modified: NO_TIME, changed: NO_TIME }
    }

    /// Reads up to `into.len()` bytes at `offset`; fewer at the end.
    ///
    /// # Errors
    /// What the store says, with the name of the object.
    pub(super) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.size.saturating_sub(offset);
        let len = left.min(into.len() as u64) as usize;
        let into = &mut into[..len];
        if len as u64 >= PIECE_BYTES {
            return self.fill(into, offset).map(|()| len);
        }
        let mut piece = self.piece.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            |(start, bytes): &(u64, Vec<u8>)| offset >= *start && offset + len as u64 <= start + bytes.len() as u64;
        if !is_there(&piece) {
            let mut bytes = std::mem::take(&mut piece.1);
            // Fits: at most PIECE_BYTES.
            bytes.resize(PIECE_BYTES.min(left) as usize, 0);
            self.fill(&mut bytes, offset)?;
            *piece = (offset, bytes);
        }
        let start = (offset - piece.0) as usize;
        into.copy_from_slice(&piece.1[start..start + len]);
        Ok(len)
    }

    /// Reads all of `into`, and asks again for what did not come.
    fn fill(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let read = again(|| self.read_some(&mut into[done..], offset + done as u64));
            done += read.map_err(|failure| io::Error::other(failure.into_error(&self.tree.shown(&self.key))))?;
        }
        Ok(())
    }

    /// Reads at least a byte.
    fn read_some(&self, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let _asking = asking(&self.tree.shown(&self.key));
        let read = self.tree.store().read(&self.key, offset, into, self.version, &Interrupt::new())?;
        if read.total.is_some_and(|total| total != self.size) {
            let failure = Failure::new(Class::Changed, "the object has another size than when it was listed");
            return Err(failure.with_remedy("open the dataset again"));
        }
        if read.bytes == 0 {
            return Err(Failure::new(Class::Storage, "no byte of the object comes"));
        }
        Ok(read.bytes)
    }
}
