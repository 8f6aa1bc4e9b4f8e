//! Indexes that stay on disk: pieces of them in memory, a bounded number for all indexes of a dataset.
//!
//! They are read and not mapped. A mapped file that is truncated, or whose disk fails, kills the process that touches
//! it; a read says so.

use crate::index::opened::Content;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that one checksum covers: a page, so that a look-up verifies only what it has read in anyway.
pub(super) const CHECKED_BYTES: u64 = 4096;
/// Pieces in memory at most: 4 MiB.
const PIECES_KEPT: usize = 1024;

/// What the indexes of a dataset may take of the process's memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes of indexes that may yet be read as a whole.
    left: AtomicU64,
    pieces: Arc<Pieces>,
}

impl Memory {
    /// Memory for whole indexes of up to `bytes` together.
    pub(crate) fn new(bytes: u64) -> Memory {
        let pieces = (0..PIECES_KEPT).map(|_| Mutex::default()).collect();
        Memory { left: AtomicU64::new(bytes), pieces: Arc::new(Pieces { all: pieces, files: AtomicU64::new(0) }) }
    }

    /// Takes the memory for a whole index of `bytes`, if there is enough.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let within = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    pub(super) fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }
}

/// The pieces that were read last. A piece has one place, which it shares with others.
#[derive(Debug)]
pub(super) struct Pieces {
    all: Vec<Mutex<Piece>>,
    /// Files that pieces were asked of so far.
    files: AtomicU64,
}

#[derive(Debug, Default)]
struct Piece {
    /// Number of the file from 1, and of the piece in it.
    of: (u64, u64),
    bytes: Vec<u8>,
}

/// A file that is read by pieces, each of which is verified when it is read.
#[derive(Debug)]
pub(super) struct OnDisk {
    file: Content,
    number: u64,
    pieces: Arc<Pieces>,
    /// Where the first piece begins, and the CRC-32C of each.
    verified: (u64, Vec<u8>),
}

impl OnDisk {
    pub(super) fn new(file: Content, pieces: &Arc<Pieces>) -> OnDisk {
        let number = pieces.files.fetch_add(1, Ordering::Relaxed) + 1;
        OnDisk { file, number, pieces: Arc::clone(pieces), verified: (0, Vec::new()) }
    }

    /// From now on `copy` takes bytes from verified pieces: the first begins at `start`, and `checks` has the CRC-32C
    /// of each.
    pub(super) fn verify(&mut self, start: u64, checks: Vec<u8>) {
        self.verified = (start, checks);
    }

    pub(super) fn len(&self) -> u64 {
        self.file.size()
    }

    /// Reads the bytes at `at`, which nothing verifies.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    /// Copies the bytes at `at` from verified pieces; false if they are not there or not whole.
    pub(super) fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        let (start, checks) = &self.verified;
        let end = start + CHECKED_BYTES * (checks.len() as u64 / 4);
        let Some(mut at) = at.checked_sub(*start).filter(|_| at < end) else { return false };
        let mut into = into;
        while !into.is_empty() {
            let (piece, within) = (at / CHECKED_BYTES, (at % CHECKED_BYTES) as usize);
            let copied = self.with(piece, |bytes| {
                let from = bytes.get(within..).unwrap_or_default();
                let len = from.len().min(into.len());
                into[..len].copy_from_slice(&from[..len]);
                len
            });
            let Some(copied @ 1..) = copied else { return false };
            into = &mut into[copied..];
            at += copied as u64;
        }
        true
    }

    /// Calls `use_it` with the bytes of a piece, read and verified unless they are in memory.
    fn with<T>(&self, piece: u64, use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let place = (self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ piece) as usize % self.pieces.all.len();
        let mut kept = self.pieces.all[place].lock().unwrap_or_else(PoisonError::into_inner);
        if kept.of != (self.number, piece) {
            let (start, checks) = &self.verified;
            let check = checks.get(4 * piece as usize..)?.first_chunk::<4>()?;
            let at = start + piece * CHECKED_BYTES;
            // Without an owner, if anything is wrong with it.
            kept.of = (0, 0);
            // Fits: it is at most CHECKED_BYTES.
            kept.bytes.resize(CHECKED_BYTES.min(self.end().checked_sub(at)?) as usize, 0);
            self.read(at, &mut kept.bytes).ok()?;
            if crc32c::crc32c(&kept.bytes) != u32::from_le_bytes(*check) {
                return None;
            }
            kept.of = (self.number, piece);
        }
        Some(use_it(&kept.bytes))
    }

    /// Where the pieces end: the table of their checksums is the last thing in the file.
    fn end(&self) -> u64 {
        self.len().saturating_sub(self.verified.1.len() as u64)
    }
}
