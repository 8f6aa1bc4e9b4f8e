//! The preferred engine: io_uring with a table of open files, reads into registered memory, and chained open and read
//! requests for files that are read once.
//!
//! A file stays in a slot of the ring's table from its first read until another file needs the slot. No request is
//! spent on closing files, because opening the next file into a slot closes the previous one. So a dataset of a few
//! large files opens each once, and a folder of many small files costs one chain per file.

use super::files::{Files, has_no_descriptor};
use super::{Done, Engine, Read};
use crate::dataset::FileId;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use uringload_sys::ring::{Completion, DRAIN_BOUND, Open, Operation, PIECE_BYTES_MAX, Ring, Target};
use uringload_sys::{Arena, OpenFlags};

/// A turn collects until a quarter of the reads in flight are done, but not beyond this many completions. By then the
/// cost of a wake-up and a system call is spread thin enough (batches of 16 to 32 reach 5/6 of the best rate).
const COMPLETIONS_A_TURN: usize = 16;

/// If a dataset has at most this many files, each is opened once and stays open.
const SLOTS_KEPT_OPEN: usize = 1024;

/// How long dropping the engine waits for reads if some of them are known not to end.
const STUCK_DRAIN_BOUND: Duration = Duration::from_millis(250);

/// io_uring as an engine.
pub(super) struct Uring {
    ring: Ring,
    files: Arc<Files>,
    depth: usize,
    /// Number of reads that may be abandoned before they use up the depth.
    spare: usize,
    slots: Vec<Slot>,
    slot_of: HashMap<FileId, u32>,
    /// Slots without reads, longest idle first. A slot that has come back into use is skipped when it is reached.
    idle: VecDeque<u32>,
    /// The reads behind the ring's tags.
    reads: Vec<InFlight>,
    /// Completed reads, by the ring's tag, while the kernel checks whether their file is still the same.
    held: HashMap<u64, Completion>,
    free_reads: Vec<u32>,
    /// Reads whose file is being opened, or that found no idle slot.
    waiting: VecDeque<Read>,
    /// Reads cancelled before they reached the ring.
    cancelled: Vec<Done>,
    started: usize,
    /// Number of reads that the ring holds but no caller waits for.
    abandoned: usize,
    completions: Vec<Completion>,
    /// Cleared when the kernel first refuses a registration. Memory after that stays unregistered.
    registering: bool,
}

/// A read as the caller knows it.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    tag: u64,
    file: FileId,
    offset: u64,
    slot: u32,
    state: Waited,
}

/// Whether a read is in flight, and whether a caller waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Free,
    InFlight,
    Abandoned,
}

#[derive(Default)]
struct Slot {
    file: Option<FileId>,
    state: State,
    /// Flags it was opened with.
    flags: OpenFlags,
    users: u32,
    /// Whether it is listed in `idle`.
    listed: bool,
    /// The file itself, if the ring has no file table.
    fd: Option<Arc<OwnedFd>>,
    /// When it was last found to be the file that was indexed.
    checked: Option<Instant>,
    error: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    Opening,
    Open,
}

impl Uring {
    /// Size of the file table for `depth` reads in flight of a dataset with `files` files.
    pub(super) fn slots_wanted(depth: usize, files: usize) -> u32 {
        (2 * depth).max(files.min(SLOTS_KEPT_OPEN)) as u32
    }

    pub(super) fn new(ring: Ring, files: Arc<Files>, depth: usize, spare: usize) -> Uring {
        let slots = match ring.files() {
            0 => Files::open_at_once(),
            table => table as usize,
        };
        let empty = InFlight { tag: 0, file: FileId(0), offset: 0, slot: 0, state: Waited::Free };
        Uring {
            ring,
            files,
            depth,
            spare,
            slots: (0..slots).map(|_| Slot { listed: true, ..Slot::default() }).collect(),
            slot_of: HashMap::with_capacity(slots * 2),
            idle: (0..slots as u32).collect(),
            reads: vec![empty; depth + spare],
            held: HashMap::new(),
            free_reads: (0..(depth + spare) as u32).rev().collect(),
            waiting: VecDeque::with_capacity(depth),
            cancelled: Vec::new(),
            started: 0,
            abandoned: 0,
            completions: Vec::with_capacity(2 * depth),
            registering: true,
        }
    }

    /// Queues the read if its file is open or can be opened now; otherwise returns it.
    fn dispatch(&mut self, read: Read) -> Option<Read> {
        if let Some(&slot) = self.slot_of.get(&read.file) {
            if self.slots[slot as usize].state != State::Open {
                return Some(read);
            }
            self.queue_read(slot, read);
            return None;
        }
        let Some(slot) = self.take_idle() else { return Some(read) };
        if let Some(old) = self.slots[slot as usize].file.take() {
            self.slot_of.remove(&old);
        }
        self.slot_of.insert(read.file, slot);
        self.slots[slot as usize].file = Some(read.file);
        if self.ring.files() == 0 {
            self.open_here(slot, read)
        } else {
            self.queue_open_and_read(slot, read)
        }
        None
    }

    fn queue_read(&mut self, slot: u32, read: Read) {
        let target = match &self.slots[slot as usize].fd {
            Some(fd) => Target::File(Arc::clone(fd)),
            None => Target::Slot(slot),
        };
        let force_async = self.files.must_not_block();
        let index = self.book(slot, &read);
        self.ring.read(&target, read.offset, read.part, u64::from(index), force_async);
    }

    fn queue_open_and_read(&mut self, slot: u32, read: Read) {
        self.slots[slot as usize].state = State::Opening;
        let index = self.book(slot, &read);
        let files = Arc::clone(&self.files);
        let (folder, path) = files.place(read.file);
        let flags = files.flags();
        self.slots[slot as usize].flags = flags;
        let open = Open::new(slot, &folder, path, flags);
        let force_async = files.must_not_block();
        self.ring.open_and_read(open, read.offset, read.part, u64::from(index), force_async);
    }

    /// Opens the file on this thread, because the ring has no file table.
    fn open_here(&mut self, slot: u32, read: Read) {
        let mut opened = self.files.open(read.file);
        if opened.as_ref().is_err_and(has_no_descriptor) && self.close_idle() {
            opened = self.files.open(read.file);
        }
        match opened {
            Ok(fd) => {
                self.slots[slot as usize].fd = Some(Arc::new(fd.into()));
                self.slots[slot as usize].state = State::Open;
                self.queue_read(slot, read);
            }
            Err(error) => {
                self.forget(slot);
                self.slots[slot as usize].error = None;
                let tag = u64::from(self.book(slot, &read));
                let (kind, part) = (Operation::Read, Some(read.part));
                let (result, latency) = (Err(error), Duration::ZERO);
                self.completions.push(Completion { tag, kind, result, part, identity: None, latency });
            }
        }
    }

    /// Closes the files without reads, because the process has no descriptor left. Returns whether there were any.
    fn close_idle(&mut self) -> bool {
        let mut any = false;
        for slot in 0..self.slots.len() as u32 {
            let state = &mut self.slots[slot as usize];
            if state.users == 0 && state.fd.take().is_some() {
                any = true;
                self.forget(slot);
            }
        }
        any
    }

    /// Records a read and returns the ring's tag for it.
    fn book(&mut self, slot: u32, read: &Read) -> u32 {
        self.slots[slot as usize].users += 1;
        // `reads` has one entry for each read that `room` allows.
        let index = self.free_reads.pop().unwrap_or_default();
        let state = Waited::InFlight;
        self.reads[index as usize] = InFlight { tag: read.tag, file: read.file, offset: read.offset, slot, state };
        index
    }

    fn take_idle(&mut self) -> Option<u32> {
        while let Some(index) = self.idle.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.listed = false;
            if slot.users == 0 && slot.state != State::Opening {
                slot.fd = None;
                slot.checked = None;
                slot.error = None;
                slot.state = State::Empty;
                return Some(index);
            }
        }
        None
    }

    /// Lists the slot as idle, if it is.
    fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.users == 0 && slot.state != State::Opening && !slot.listed {
            slot.listed = true;
            self.idle.push_back(index);
        }
    }

    /// Forgets the slot's file, which is not open after all.
    fn forget(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Empty;
        if let Some(file) = slot.file.take() {
            self.slot_of.remove(&file);
        }
    }

    /// Takes a read that came back, and checks that its slot's file is the one that was indexed: always after the read
    /// that opened it, and then at most every [`Files::check_every`]. It checks by path, because the kernel reports
    /// nothing about a file that is open only in a ring. If a path may block, a kernel worker checks it.
    fn returned(&mut self, mut completion: Completion, now: Instant, done: &mut Vec<Done>) {
        let InFlight { file, slot, state, .. } = self.reads[completion.tag as usize];
        let checked = self.slots[slot as usize].checked;
        let is_fresh = checked.is_some_and(|checked| now.saturating_duration_since(checked) < self.files.check_every());
        if completion.result.is_ok() && !is_fresh && state == Waited::InFlight {
            if self.files.must_not_block() {
                let (folder, path) = self.files.place(file);
                self.ring.stat(&folder, path, completion.tag);
                self.held.insert(completion.tag, completion);
                return;
            }
            let is_still = self.files.check_path(file, checked.is_some());
            self.judge(&mut completion, is_still, now);
        }
        self.finish(completion, done);
    }

    /// Finishes the read that waited for this answer.
    fn answered(&mut self, answer: &Completion, now: Instant, done: &mut Vec<Done>) {
        let Some(mut completion) = self.held.remove(&answer.tag) else { return };
        let InFlight { file, slot, .. } = self.reads[answer.tag as usize];
        let was_open = self.slots[slot as usize].checked.is_some();
        let is_still = match (&answer.identity, &answer.result) {
            (Some(found), _) => self.files.check(file, found),
            (None, Err(error)) if !(was_open && error.kind() == io::ErrorKind::NotFound) => {
                Err(error.raw_os_error().map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error))
            }
            (None, _) => Ok(()),
        };
        self.judge(&mut completion, is_still, now);
        self.finish(completion, done);
    }

    /// Makes the read fail if its file has been replaced or changed.
    fn judge(&mut self, completion: &mut Completion, is_still: io::Result<()>, now: Instant) {
        let slot = self.reads[completion.tag as usize].slot;
        match is_still {
            Ok(()) => self.slots[slot as usize].checked = Some(now),
            Err(error) => {
                self.forget(slot);
                completion.result = Err(error);
            }
        }
    }

    fn opened(&mut self, index: u32, result: io::Result<u32>) {
        match result {
            Ok(_) => self.slots[index as usize].state = State::Open,
            Err(error) => {
                self.forget(index);
                self.slots[index as usize].error = Some(error);
            }
        }
    }

    /// Handles a read that is done: returns it, or starts it again if its file must be opened with other flags.
    fn finish(&mut self, completion: Completion, done: &mut Vec<Done>) {
        let Completion { tag: index, result, part, latency, .. } = completion;
        let InFlight { tag, file, offset, slot, state: waited } = self.reads[index as usize];
        self.reads[index as usize].state = Waited::Free;
        self.free_reads.push(index as u32);
        let state = &mut self.slots[slot as usize];
        state.users = state.users.saturating_sub(1);
        let open_error = if result.is_err() { state.error.take() } else { None };
        let flags = state.flags;
        self.release(slot);
        let Some(part) = part else { return };
        if let Some(error) = &open_error
            && waited == Waited::InFlight
            && self.files.learn(flags, error)
        {
            self.waiting.push_back(Read { tag, file, offset, part, pieces: Vec::new() });
            return;
        }
        if waited == Waited::Abandoned {
            self.abandoned -= 1;
            if self.abandoned == 0 {
                self.ring.bound_drain(DRAIN_BOUND);
            }
        } else {
            self.started -= 1;
        }
        let result = open_error.map_or(result, Err).map(|bytes| bytes as usize);
        done.push(Done { tag, part, result, latency, pieces: Vec::new() });
    }
}

impl Uring {
    /// Index in `reads` of the read with this tag that a caller waits for.
    fn in_flight_as(&self, tag: u64) -> Option<usize> {
        self.reads.iter().position(|read| read.tag == tag && read.state == Waited::InFlight)
    }
}

impl Engine for Uring {
    fn room(&self) -> usize {
        (self.depth - self.started).min((self.depth + self.spare).saturating_sub(self.started + self.abandoned))
    }

    fn in_flight(&self) -> usize {
        self.started
    }

    fn start(&mut self, read: Read) {
        assert!(self.room() > 0, "start without room");
        self.started += 1;
        if let Some(read) = self.dispatch(read) {
            self.waiting.push_back(read);
        }
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let want = (self.started / 4).clamp(1, COMPLETIONS_A_TURN);
        let wait = wait.filter(|_| self.completions.is_empty() && self.cancelled.is_empty());
        self.started -= self.cancelled.len();
        done.append(&mut self.cancelled);
        let mut completions = std::mem::take(&mut self.completions);
        let turned = self.ring.turn(wait, want, &mut completions);
        let now = Instant::now();
        for completion in completions.drain(..) {
            match completion.kind {
                Operation::Open => {
                    let slot = self.reads[completion.tag as usize].slot;
                    self.opened(slot, completion.result);
                }
                Operation::Read => self.returned(completion, now, done),
                Operation::Stat => self.answered(&completion, now, done),
            }
        }
        self.completions = completions;
        for _ in 0..self.waiting.len() {
            let Some(read) = self.waiting.pop_front() else { break };
            if let Some(read) = self.dispatch(read) {
                self.waiting.push_back(read);
            }
        }
        turned
    }

    fn waker(&self) -> Waker {
        self.ring.waker()
    }

    fn cancel(&mut self, tag: u64) -> bool {
        if let Some(index) = self.waiting.iter().position(|read| read.tag == tag) {
            let result = Err(io::Error::from_raw_os_error(ECANCELED));
            let done = |read: Read| Done { tag, part: read.part, result, latency: Duration::ZERO, pieces: read.pieces };
            self.cancelled.extend(self.waiting.remove(index).map(done));
            return true;
        }
        if let Some(index) = self.in_flight_as(tag) {
            self.ring.cancel(index as u64);
        }
        false
    }

    fn abandon(&mut self, tag: u64) {
        let Some(index) = self.in_flight_as(tag) else {
            self.cancel(tag);
            return;
        };
        self.reads[index].state = Waited::Abandoned;
        self.started -= 1;
        self.abandoned += 1;
        self.ring.bound_drain(STUCK_DRAIN_BOUND);
    }

    fn stage(&self, tag: u64) -> &'static str {
        let is_opening = |slot: u32| self.slots[slot as usize].state == State::Opening;
        if let Some(index) = self.in_flight_as(tag) {
            return if is_opening(self.reads[index].slot) { "being opened" } else { "being read" };
        }
        // Either another read is opening its file, or every slot of the table is in use.
        let read = self.waiting.iter().find(|read| read.tag == tag);
        let slot = read.and_then(|read| self.slot_of.get(&read.file));
        if slot.is_some() { "being opened" } else { "waiting for a free place to open it in" }
    }

    fn lost(&self, file: FileId) -> Option<String> {
        self.files.lost(file)
    }

    fn denied(&self) -> Option<(Duration, io::Error)> {
        self.ring.denied()
    }

    /// The slot of the file is reused once its reads in flight have ended.
    fn renew(&mut self, file: FileId) {
        if let Some(&slot) = self.slot_of.get(&file)
            && self.slots[slot as usize].state == State::Open
        {
            self.forget(slot);
        }
        self.files.reopen_root(file);
    }

    fn register(&mut self, arena: &Arena, range: Range<usize>) -> io::Result<bool> {
        let mut start = range.start;
        let piece = arena.page_bytes().unwrap_or(PIECE_BYTES_MAX);
        while self.registering && start < range.end {
            let end = range.end.min(start + piece);
            if let Err(error) = self.ring.register(arena, start..end) {
                self.registering = false;
                return Err(error);
            }
            start = end;
        }
        Ok(self.registering)
    }
}

const ECANCELED: i32 = 125;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{self, FileTable, Options};
    use crate::patience::Patience;
    use std::fs::File;

    use uringload_sys::ring::RingOptions;

    /// Only a hang takes as long.
    const HANG: Duration = Duration::from_secs(60);

    /// An engine over a FIFO, which stands in for a file system whose opens and reads do not end.
    fn over_a_fifo(folder: &std::path::Path) -> Option<Uring> {
        let options = RingOptions::default().entries(16).files(4);
        let ring = match Ring::open(&options) {
            Ok((ring, _)) => ring,
            Err(error) => {
                eprintln!("skipped: io_uring is not available here: {error}");
                return None;
            }
        };
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut files = FileTable::new();
        files.push_root(folder);
        files.push(b"fifo", 4096).unwrap();
        let dataset = dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap();
        let files = Files::new(dataset, false, true, &Patience::new(Duration::from_secs(60))).unwrap();
        Some(Uring::new(ring, Arc::new(files), 2, 2))
    }

    /// Turns until a read is at this stage.
    fn until_at(engine: &mut Uring, tag: u64, stage: &str) {
        let end = Instant::now() + HANG;
        while engine.stage(tag) != stage {
            assert!(Instant::now() < end, "{tag}: {}", engine.stage(tag));
            engine.turn(Some(Duration::from_millis(1)), &mut Vec::new()).unwrap();
        }
    }

    fn until_done(engine: &mut Uring, count: usize) -> Vec<Done> {
        let (mut done, end) = (Vec::new(), Instant::now() + HANG);
        while done.len() < count {
            assert!(Instant::now() < end, "they do not end: {done:?}");
            engine.turn(Some(Duration::from_millis(100)), &mut done).unwrap();
        }
        done
    }

    #[test]
    fn reads_and_opens_that_do_not_end_are_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut engine) = over_a_fifo(folder.path()) else { return };
        let (_arena, mut memory) = Arena::reserve(1 << 20).unwrap();
        let mut read = |tag| Read { tag, file: FileId(0), offset: 0, part: memory.split_to(4096), pieces: Vec::new() };
        for has_writer in [false, true] {
            // Without a writer the open blocks; with a silent writer the read does.
            let path = folder.path().join("fifo");
            let writer = has_writer.then(|| File::options().read(true).write(true).open(path).unwrap());
            engine.start(read(1));
            engine.start(read(2));
            until_at(&mut engine, 1, if has_writer { "being read" } else { "being opened" });
            let never_begun = [1, 2].map(|tag| engine.cancel(tag));
            // The second read waits for the first one's open.
            assert_eq!(never_begun, [false, !has_writer]);
            for done in until_done(&mut engine, 2) {
                assert!(done.result.is_err(), "{done:?}");
                assert_eq!(done.part.len(), 4096);
            }
            assert_eq!((engine.in_flight(), engine.room()), (0, 2));
            drop(writer);
        }
    }

    #[test]
    fn what_is_abandoned_takes_no_room_and_still_comes_home() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut engine) = over_a_fifo(folder.path()) else { return };
        let (_arena, mut memory) = Arena::reserve(1 << 20).unwrap();
        let mut read = |tag| Read { tag, file: FileId(0), offset: 0, part: memory.split_to(4096), pieces: Vec::new() };
        let path = folder.path().join("fifo");
        let writer = File::options().read(true).write(true).open(path).unwrap();
        engine.start(read(1));
        engine.start(read(2));
        let mut nothing = Vec::new();
        [1, 2].into_iter().for_each(|tag| until_at(&mut engine, tag, "being read"));
        assert_eq!((engine.room(), engine.in_flight()), (0, 2));
        engine.abandon(1);
        engine.abandon(2);
        assert_eq!((engine.room(), engine.in_flight(), nothing.len()), (2, 0, 0));
        engine.start(read(3));
        engine.start(read(4));
        engine.turn(Some(Duration::from_millis(20)), &mut nothing).unwrap();
        engine.abandon(3);
        engine.abandon(4);
        assert_eq!(engine.room(), 0, "what may be kept back is bounded");
        std::io::Write::write_all(&mut &writer, &[7; 2 * 4096]).unwrap();
        until_done(&mut engine, 2);
        assert_eq!((engine.room(), engine.in_flight()), (2, 0));
        let dropped = Instant::now();
        drop(engine);
        // Reads that are known to be stuck are not waited for.
        assert!(dropped.elapsed() < HANG, "{:?}", dropped.elapsed());
    }
}
