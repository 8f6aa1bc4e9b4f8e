//! Writes entries: finds a segment with room that no other writes to, or makes one within the budget.

use super::log::{Log, lock};
use super::record::{Record, header};
use super::{Key, PAGE_BYTES, Place, SEGMENT_BYTES, SEGMENT_OVERHEAD, Segment, Segments, numbers_in, open_or_make};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock};
use rustix::io::{Errno, ReadWriteFlags, pwritev, pwritev2};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uringload_sys::file;

/// The file that is locked while a segment is made, and the name of that segment until it is whole.
const GROW: &str = "grow";
const NEW: &str = "new";

/// Longest wait for a segment that others write to: they hold it for one entry.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait for another process that makes a segment.
const GROW_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two looks at segments that others write to.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes before an entry that are dropped from the page cache with it: by then they are on the disk.
const DROPPED_BEFORE: u64 = 16 << 20;

/// Writes through the page cache that leave nothing in it (Linux 6.14).
const RWF_DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Most pieces of a write.
const PIECES_MAX: usize = 1024;

/// What an attempt to write came to.
enum Attempt {
    Written(Place),
    /// Another process writes to the segment.
    Busy,
    /// Another process has filled the segment.
    Full,
}

impl Segments {
    /// Writes an entry whose bytes are `pieces` end to end. `None`: there is no room, or the entry is longer than
    /// [`entry_bytes_max`](Segments::entry_bytes_max).
    ///
    /// # Errors
    /// The system's error: nothing is left of the entry. `TimedOut` if other processes hold their locks for seconds.
    pub(crate) fn put(&self, key: Key, pieces: &[&[u8]]) -> io::Result<Option<Place>> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let Ok(len) = u32::try_from(bytes) else { return Ok(None) };
        if bytes > self.entry_bytes_max() {
            return Ok(None);
        }
        let crc = pieces.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece));
        let written = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let record = Record { key, page: 0, bytes: len, crc, boot: self.boot, written };
        let room = Record::pages_of(bytes) * PAGE_BYTES;
        let until = Instant::now() + WRITE_PATIENCE;
        loop {
            let mut busy = Vec::new();
            while let Some(number) = self.claim(room, &busy) {
                let attempt = self.write_in(number, record, pieces);
                self.release(number);
                match attempt? {
                    Attempt::Written(place) => return Ok(Some(place)),
                    Attempt::Busy => busy.push(number),
                    Attempt::Full => {}
                }
            }
            if self.grow(room)? {
                continue;
            }
            let state = self.state();
            if !state.segments.values().any(|segment| segment.log.room(segment.size) >= room) {
                return Ok(None);
            }
            if Instant::now() >= until {
                let what = "other processes hold each segment of the cache that has room";
                return Err(io::Error::new(ErrorKind::TimedOut, what));
            }
            drop(self.freed.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// A segment with room that no thread of this process writes to: the one written last, or else the first.
    fn claim(&self, room: u64, busy: &[u32]) -> Option<u32> {
        let mut state = self.state();
        let fits = |number: &u32, segment: &Segment| {
            !segment.is_busy && segment.log.room(segment.size) >= room && !busy.contains(number)
        };
        let last = state.segments.get_key_value(&state.last).filter(|(number, segment)| fits(number, segment));
        let first = || state.segments.iter().find(|(number, segment)| fits(number, segment));
        let number = *last.or_else(first)?.0;
        state.last = number;
        state.segments.get_mut(&number)?.is_busy = true;
        Some(number)
    }

    fn release(&self, number: u32) {
        if let Some(segment) = self.state().segments.get_mut(&number) {
            segment.is_busy = false;
        }
        self.freed.notify_all();
    }

    /// Writes an entry to a segment, and then its record.
    fn write_in(&self, number: u32, mut record: Record, pieces: &[&[u8]]) -> io::Result<Attempt> {
        // Opened anew, so that it fails once the folder is gone, and that the lock is this thread's alone.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(nonblock).open(self.path_of(number))?;
        if !lock(&file, FlockOperation::NonBlockingLockExclusive, Duration::ZERO)? {
            return Ok(Attempt::Busy);
        }
        let written = self.write_locked(&file, number, &mut record, pieces);
        // Closing it would do, but for a child that was forked meanwhile.
        flock(&file, FlockOperation::Unlock)?;
        Ok(if written? { Attempt::Written(self.place(number, &record)) } else { Attempt::Full })
    }

    fn write_locked(&self, file: &File, number: u32, record: &mut Record, pieces: &[&[u8]]) -> io::Result<bool> {
        let known = self.state().segments.get(&number).map(|segment| (segment.size, segment.log));
        let Some((size, mut log)) = known else { return Ok(false) };
        let learnt = log.read_locked(file, size, &mut |_| ());
        let room = Record::pages_of(record.bytes.into()) * PAGE_BYTES;
        let written = match learnt {
            Ok(()) if log.room(size) < room => Ok(false),
            Ok(()) => self.write_at(file, size, &mut log, record, pieces).map(|()| true),
            Err(error) => Err(error),
        };
        if let Some(segment) = self.state().segments.get_mut(&number) {
            segment.log.join(&log);
        }
        written
    }

    fn write_at(&self, file: &File, size: u64, log: &mut Log, record: &mut Record, pieces: &[&[u8]]) -> io::Result<()> {
        record.page = u32::try_from(log.pages).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
        let at = log.pages * PAGE_BYTES;
        self.write_pages(file, pieces, at)?;
        file.write_all_at(&record.encode(), log.next_at(size))?;
        log.slots += 1;
        log.pages = record.end();
        if !self.is_direct || self.leaves_cache.load(Ordering::Relaxed) {
            return Ok(());
        }
        let from = at.saturating_sub(DROPPED_BEFORE);
        // This begins to write what is new, and drops what is written. It is advice: there is nothing to do without.
        let _ = fadvise(file, from, NonZeroU64::new(log.pages * PAGE_BYTES - from), Advice::DontNeed);
        Ok(())
    }

    /// Writes `pieces` end to end, and zeros up to the end of the last page.
    fn write_pages(&self, file: &File, pieces: &[&[u8]], mut at: u64) -> io::Result<()> {
        let zeros = [0; PAGE_BYTES as usize];
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let pad = &zeros[..bytes.next_multiple_of(zeros.len()) - bytes];
        let all = pieces.iter().copied().chain([pad]).filter(|piece| !piece.is_empty());
        let mut all: Vec<IoSlice<'_>> = all.map(IoSlice::new).collect();
        let mut left = &mut all[..];
        while !left.is_empty() {
            let most = left.len().min(PIECES_MAX);
            match self.write_some(file, &left[..most], at) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write_some(&self, file: &File, pieces: &[IoSlice<'_>], at: u64) -> rustix::io::Result<usize> {
        if self.leaves_cache.load(Ordering::Relaxed) {
            match pwritev2(file, pieces, at, RWF_DONTCACHE) {
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    self.leaves_cache.store(false, Ordering::Relaxed);
                }
                written => return written,
            }
        }
        pwritev(file, pieces, at)
    }

    /// Makes a segment with room for an entry, within the budget, or learns of one that another process has made.
    /// Returns whether there is one.
    fn grow(&self, room: u64) -> io::Result<bool> {
        let grow = open_or_make(&self.folder.join(GROW))?;
        if !lock(&grow, FlockOperation::NonBlockingLockExclusive, GROW_PATIENCE)? {
            return Err(io::Error::new(ErrorKind::TimedOut, "another process makes a segment of the cache"));
        }
        if self.list()? > 0 {
            return Ok(true);
        }
        let numbers = numbers_in(&self.folder)?;
        let taken: u64 = self.state().segments.values().map(|segment| segment.size + SEGMENT_OVERHEAD).sum();
        let left = self.budget.saturating_sub(taken).saturating_sub(SEGMENT_OVERHEAD);
        let size = SEGMENT_BYTES.min(left) / PAGE_BYTES * PAGE_BYTES;
        if Log::NEW.room(size) < room {
            return Ok(false);
        }
        let number =
            (0..).zip(&numbers).find(|(free, taken)| free != *taken).map_or(numbers.len() as u32, |(free, _)| free);
        let new = self.folder.join(NEW);
        let made = self.allocate(&new, size).and_then(|()| fs::rename(&new, self.path_of(number)));
        if let Err(error) = made {
            // What is left of it would be taken up by the next one.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        let file = Some(Arc::new(file::open_regular(&self.path_of(number))?));
        self.state().add(number, Segment { size, log: Log::NEW, told: Log::NEW, is_busy: false, file });
        Ok(true)
    }

    /// Makes the file of a segment, with all the room that it will ever take.
    fn allocate(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, size) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.is_sparse.store(true, Ordering::Relaxed);
                file.set_len(size)?;
            }
            allocated => allocated?,
        }
        file.write_all_at(&header(size), 0)
    }
}
