//! Reads the log of a segment, from where it was read last time.

use super::PAGE_BYTES;
use super::record::{RECORD_BYTES, Record, Slot};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use uringload_sys::file::open_regular;

/// Records of the first read of a log, and of the largest.
const SLOTS_READ: (u64, u64) = (64, 4096);

/// Time between two attempts to get a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What is known of a segment's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Log {
    /// Slots that have been read: none of them is empty.
    pub(super) slots: u64,
    /// The first page behind all entries.
    pub(super) pages: u64,
    /// One of them is wrong. It may have been the record of an entry that other processes know and use, so nothing may
    /// be written to the segment any more.
    pub(super) is_closed: bool,
}

/// Where a log, or the part of it that was read, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Empty,
    /// At a wrong record; or one that is being written.
    Wrong,
}

impl Log {
    /// Of a segment of which nothing has been read.
    pub(super) const NEW: Log = Log { slots: 0, pages: 1, is_closed: false };

    /// Reads on up to the next empty or wrong slot.
    pub(super) fn read(&mut self, file: &File, size: u64, take: &mut dyn FnMut(&Record)) -> io::Result<End> {
        let (mut count, mut bytes) = (SLOTS_READ.0, Vec::new());
        loop {
            // The log never reaches into the page of the header.
            let count_left = size.saturating_sub(PAGE_BYTES) / RECORD_BYTES - self.slots;
            let slots = count.min(count_left);
            if slots == 0 {
                return Ok(End::Empty);
            }
            bytes.resize((slots * RECORD_BYTES) as usize, 0);
            file.read_exact_at(&mut bytes, size - (self.slots + slots) * RECORD_BYTES)?;
            for slot in bytes.rchunks_exact(RECORD_BYTES as usize) {
                match Slot::of(slot, size) {
                    Slot::Empty => return Ok(End::Empty),
                    Slot::Wrong => return Ok(End::Wrong),
                    Slot::Entry(record) => {
                        self.slots += 1;
                        self.pages = self.pages.max(record.end());
                        take(&record);
                    }
                }
            }
            count = (4 * count).min(SLOTS_READ.1);
        }
    }

    /// Reads on to the end of a log that no other writes to. Wrong records are passed over, up to a page of them: then
    /// this is no log any more.
    pub(super) fn read_locked(&mut self, file: &File, size: u64, take: &mut dyn FnMut(&Record)) -> io::Result<()> {
        let mut wrong = 0;
        loop {
            let before = self.slots;
            if self.read(file, size, take)? == End::Empty {
                return Ok(());
            }
            wrong = if self.slots == before { wrong + 1 } else { 1 };
            self.is_closed = true;
            if wrong == SLOTS_READ.0 {
                return Ok(());
            }
            self.slots += 1;
        }
    }

    /// Takes in what another look at the same log has found.
    pub(super) fn join(&mut self, other: &Log) {
        self.slots = self.slots.max(other.slots);
        self.pages = self.pages.max(other.pages);
        self.is_closed |= other.is_closed;
    }

    /// Bytes that an entry may take beside its record, in whole pages. An empty slot stays behind the last record.
    pub(super) fn room(&self, size: u64) -> u64 {
        let free = size.saturating_sub((self.slots + 2) * RECORD_BYTES + self.pages * PAGE_BYTES);
        if self.is_closed { 0 } else { free / PAGE_BYTES * PAGE_BYTES }
    }

    /// Where the next record stands.
    pub(super) fn next_at(&self, size: u64) -> u64 {
        size - (self.slots + 1) * RECORD_BYTES
    }
}

/// Reads on to the end of the log of the segment at `path`, or to a record that is being written.
pub(super) fn read_settled(
    path: &Path,
    file: &File,
    size: u64,
    log: &mut Log,
    take: &mut dyn FnMut(&Record),
) -> io::Result<()> {
    if log.read(file, size, take)? == End::Wrong {
        // With a lock, which no descriptor shares, nothing is being written.
        let locked = open_regular(path)?;
        if lock(&locked, FlockOperation::NonBlockingLockShared, Duration::ZERO)? {
            log.read_locked(&locked, size, take)?;
        }
    }
    Ok(())
}

/// Takes a lock on a file, which ends when the file is closed. Returns whether it could: others may hold it for longer
/// than `patience`.
pub(super) fn lock(file: &File, operation: FlockOperation, patience: Duration) -> io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Ok(false),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}
