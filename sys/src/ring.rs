//! An io_uring that owns every [`Part`] in flight by value.
//!
//! A part moves into the ring with its read and comes back with the [`Completion`]. So no code can look at bytes that
//! the kernel is writing, and dropping the ring waits for the kernel before it releases the memory. The ring does not
//! retry, reorder or count bytes: that is up to the caller.

mod bell;
mod cancels;
mod queues;
mod records;
mod setup;
mod tables;
#[cfg(test)]
mod tests;

use crate::arena::{Arena, Part};
use crate::file::{Identity, OpenFlags};
use bell::Bell;
use cancels::Cancels;
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use queues::Queues;
use records::{Answer, Records};
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use tables::{Buffers, Slot};

pub use setup::{Feature, Step, probe};

/// The kernel transfers at most this many bytes in one read (`MAX_RW_COUNT`). A longer part gets a short read.
pub const READ_BYTES_MAX: usize = 0x7fff_f000;

/// The longest range that can be one registered buffer, in bytes.
pub const PIECE_BYTES_MAX: usize = 1 << 30;

/// The most buffers that one ring can register (`IORING_MAX_REG_BUFFERS`).
pub const PIECES_MAX: usize = 1 << 14;

/// How long dropping a ring waits for reads that the kernel does not return. After that, memory that it may still write
/// to is leaked.
pub const DRAIN_BOUND: Duration = Duration::from_secs(5);

/// How long a turn waits for a completion to free memory, if the kernel had none for a submission.
const RETRY_WAIT: Duration = Duration::from_millis(1);

/// How long a turn waits at most while the kernel takes nothing: the caller decides how often to try.
const DENIED_WAIT: Duration = Duration::from_millis(10);

/// How long a drain tries to reach a kernel that takes nothing.
const DENIED_DRAIN: Duration = Duration::from_millis(250);

/// How long a drain waits before it cancels again what is still in flight.
const DRAIN_WAIT: Duration = Duration::from_millis(100);

/// What a ring should be set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingOptions {
    /// The most operations in flight, at least 1; an open with its read counts as two. The kernel's limit is 32768
    /// minus a few.
    pub entries: u32,
    /// Slots in the file table; 0 for none.
    pub files: u32,
    /// Bounds on kernel worker threads for work that blocks: on regular files, and on anything else. 0 keeps the
    /// kernel's.
    pub max_workers: [u32; 2],
    /// How long a turn that waits for more than one completion goes on collecting before it accepts any number. This
    /// also bounds how late such a turn sees a wake-up. Before Linux 6.12 a turn always returns at the first
    /// completion.
    pub batch_wait: Duration,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions { entries: 256, files: 256, max_workers: [4, 4], batch_wait: Duration::from_micros(200) }
    }
}

impl RingOptions {
    /// Sets how many operations can be in flight.
    pub fn entries(self, entries: u32) -> RingOptions {
        RingOptions { entries, ..self }
    }

    /// Sets how many slots the file table has.
    pub fn files(self, files: u32) -> RingOptions {
        RingOptions { files, ..self }
    }

    /// Sets the bounds on kernel worker threads.
    pub fn max_workers(self, max_workers: [u32; 2]) -> RingOptions {
        RingOptions { max_workers, ..self }
    }

    /// Sets how long a turn goes on collecting.
    pub fn batch_wait(self, batch_wait: Duration) -> RingOptions {
        RingOptions { batch_wait, ..self }
    }
}

/// What to read from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Target {
    /// A slot of the ring's file table, filled by an open.
    Slot(u32),
    /// A descriptor, which the ring keeps open while the read is in flight.
    File(Arc<OwnedFd>),
}

/// What to open, and into which slot.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Open<'a> {
    /// Slot of the file table, below [`Ring::files`]. The file that is in it is closed.
    pub slot: u32,
    /// The folder that `path` is relative to. The ring keeps it open while the open is in flight.
    pub folder: &'a Arc<OwnedFd>,
    /// The path, without NUL bytes.
    pub path: &'a [u8],
    /// How to open it.
    pub flags: OpenFlags,
}

impl<'a> Open<'a> {
    /// Opens `path` in `folder` into `slot`.
    pub fn new(slot: u32, folder: &'a Arc<OwnedFd>, path: &'a [u8], flags: OpenFlags) -> Open<'a> {
        Open { slot, folder, path, flags }
    }
}

/// The kind of an operation. A caller must handle each of them, so this enum is exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file was opened into a slot.
    Open,
    /// Bytes were read.
    Read,
    /// The kernel was asked which file is at a path.
    Stat,
}

/// A completed operation, successful or not.
#[derive(Debug)]
pub struct Completion {
    /// The tag that the caller gave it.
    pub tag: u64,
    /// What was done.
    pub kind: Operation,
    /// Bytes read (0 for an open and for a question), or the errno. `ECANCELED` for a read whose open failed.
    pub result: io::Result<u32>,
    /// The memory of a read, returned by the kernel.
    pub part: Option<Part>,
    /// The answer to a question.
    pub identity: Option<Identity>,
    /// Time from the call that queued it until it was reaped. A read linked to an open includes the open.
    pub latency: Duration,
}

/// An io_uring. It lives and dies on the thread that opened it, because the kernel lets only that thread use it.
///
/// ```compile_fail,E0277
/// fn another_thread<T: Send>() {}
/// another_thread::<uringload_sys::Ring>();
/// ```
pub struct Ring {
    queues: ManuallyDrop<Queues>,
    records: Records,
    slots: Vec<Slot>,
    buffers: Buffers,
    bell: Arc<Bell>,
    bell_armed: bool,
    /// Whether a cancellation is in progress: there is only one entry for it.
    cancelling: bool,
    /// The operations to cancel, one per turn.
    cancels: Cancels,
    /// Operations that were refused before they reached the kernel, for the next turn to report.
    refused: Vec<Completion>,
    batch_wait: Duration,
    drain_bound: Duration,
    /// Since when the kernel has taken nothing and returned nothing, and its last answer.
    denied: Option<(Instant, i32)>,
    /// The process that opened the ring. A forked child inherits this value, but not the ring's memory.
    process: u32,
    /// Makes it neither `Send` nor `Sync`, whatever the fields are.
    thread_bound: PhantomData<*const ()>,
}

impl Ring {
    /// Opens a ring for this thread, with the best setup that the kernel accepts. Also returns the steps that it
    /// refused.
    ///
    /// # Errors
    /// What `io_uring_setup(2)` reports: `EPERM` if a seccomp filter or `kernel.io_uring_disabled` forbids it, `ENOSYS`
    /// if the kernel has no io_uring or lacks operations that reads need, `ENOMEM` beyond `RLIMIT_MEMLOCK`.
    pub fn open(options: &RingOptions) -> io::Result<(Ring, Vec<Step>)> {
        let setup::Made { queues, entries, files, steps } = setup::make(options)?;
        let ring = Ring {
            queues: ManuallyDrop::new(queues),
            records: Records::new(entries),
            slots: vec![Slot::default(); files as usize],
            buffers: Buffers::default(),
            bell: Arc::new(Bell::new()?),
            bell_armed: false,
            cancelling: false,
            cancels: Cancels::default(),
            refused: Vec::with_capacity(entries),
            batch_wait: options.batch_wait,
            drain_bound: DRAIN_BOUND,
            denied: None,
            process: std::process::id(),
            thread_bound: PhantomData,
        };
        Ok((ring, steps))
    }

    /// Slots in the file table; 0 if none were requested or the kernel refused them.
    pub fn files(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Number of ranges registered so far.
    pub fn pieces(&self) -> usize {
        self.buffers.count()
    }

    /// The most operations that can be in flight.
    pub fn capacity(&self) -> usize {
        self.records.free() + self.records.used()
    }

    /// How many more operations can be queued now.
    pub fn room(&self) -> usize {
        self.records.free().saturating_sub(self.refused.len())
    }

    /// Operations that are queued and not yet reported.
    pub fn in_flight(&self) -> usize {
        self.records.used() + self.refused.len()
    }

    /// Registers `range` of `arena`. A read into a part that is entirely in one registered range skips the pinning of
    /// pages. The first range of a ring can start anywhere, and each further one starts where the last one ended.
    /// Populate it first. In an [arena of pages](Arena::reserve_pages), a range is one page, and pages are registered
    /// in the order of their numbers; a page that is carried elsewhere stays registered.
    ///
    /// # Errors
    /// `InvalidInput` for another arena, or a range out of order, empty, outside the arena or longer than
    /// [`PIECE_BYTES_MAX`]. Otherwise what the kernel reports: `ENOMEM` beyond `RLIMIT_MEMLOCK`, `EOPNOTSUPP` or
    /// `EFAULT` if the memory cannot be pinned. The ring keeps working without this range.
    pub fn register(&mut self, arena: &Arena, range: Range<usize>) -> io::Result<()> {
        if !self.buffers.may_add(arena, &range) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "buffer ranges must be adjacent and at most 1 GiB",
            ));
        }
        if self.buffers.arena.is_none() {
            let slots = (arena.len() / crate::arena::HUGE_PAGE_BYTES).clamp(1, PIECES_MAX);
            self.queues.submitter.register_buffers_sparse(slots as u32)?;
            self.buffers.arena = Some(arena.handle());
        }
        let index = self.buffers.count() as u32;
        let piece =
            libc::iovec { iov_base: arena.base().wrapping_add(range.start).cast(), iov_len: range.end - range.start };
        // SAFETY: `may_add` checked that the range is inside the arena. `self.buffers.arena`, set above, keeps the
        // arena mapped until `close` has unregistered the buffers, or `leak` has leaked that handle.
        unsafe { self.queues.submitter.register_buffers_update(index, &[piece], None)? };
        self.buffers.add(range);
        Ok(())
    }

    /// Queues opening a file into a slot. `force_async` hands it to a kernel worker from the start.
    ///
    /// A slot that is being opened or read is refused with `EBUSY`: a worker that starts a read late would find the new
    /// file in it. A slot whose open failed is empty.
    ///
    /// # Panics
    /// If there is no [`room`](Ring::room).
    pub fn open_file(&mut self, open: Open<'_>, tag: u64, force_async: bool) {
        assert!(self.room() >= 1, "no room in the ring");
        if let Err(errno) = self.may_open(&open) {
            return self.refuse(tag, Operation::Open, None, errno);
        }
        let entry = self.open_entry(open, tag);
        self.queue(if force_async { entry.flags(Flags::ASYNC) } else { entry });
    }

    /// Queues a read of `part.len()` bytes at `offset` into `part`. A slot that is not open is refused with `EBADF`,
    /// and an offset that no file can have with `EINVAL`.
    ///
    /// # Panics
    /// If there is no [`room`](Ring::room).
    pub fn read(&mut self, target: &Target, offset: u64, part: Part, tag: u64, force_async: bool) {
        assert!(self.room() >= 1, "no room in the ring");
        if let Target::Slot(slot) = *target
            && !self.slots.get(slot as usize).is_some_and(Slot::is_open)
        {
            return self.refuse(tag, Operation::Read, Some(part), libc::EBADF);
        }
        if i64::try_from(offset).is_err() {
            return self.refuse(tag, Operation::Read, Some(part), libc::EINVAL);
        }
        let entry = self.read_entry(target, offset, part, tag, false);
        self.queue(if force_async { entry.flags(Flags::ASYNC) } else { entry });
    }

    /// Queues opening a file into a slot and a read from it that starts once the open has succeeded. These are two
    /// operations and two completions with the same tag, `Open` first. They are refused under the same conditions as
    /// `open_file` and `read`.
    ///
    /// # Panics
    /// If there is no [`room`](Ring::room) for two.
    pub fn open_and_read(&mut self, open: Open<'_>, offset: u64, part: Part, tag: u64, force_async: bool) {
        assert!(self.room() >= 2, "no room in the ring for two");
        let offset_fits = i64::try_from(offset).map_err(|_| libc::EINVAL);
        if let Err(errno) = self.may_open(&open).and(offset_fits) {
            self.refuse(tag, Operation::Open, None, errno);
            return self.refuse(tag, Operation::Read, Some(part), libc::ECANCELED);
        }
        let target = Target::Slot(open.slot);
        // A soft link, so that a failed open cancels the read. A hard link would let it read the slot's previous file.
        let first = self.open_entry(open, tag).flags(Flags::IO_LINK);
        let second = self.read_entry(&target, offset, part, tag, true);
        let flags = if force_async { Flags::ASYNC } else { Flags::empty() };
        self.queue(first.flags(flags));
        self.queue(second.flags(flags));
    }

    /// Queues the question which file is at `path`, relative to `folder`. A kernel worker finds out, however long it
    /// takes there. A path with a NUL byte is refused with `EINVAL`.
    ///
    /// # Panics
    /// If there is no [`room`](Ring::room).
    pub fn stat(&mut self, folder: &Arc<OwnedFd>, path: &[u8], tag: u64) {
        assert!(self.room() >= 1, "no room in the ring");
        if path.contains(&0) {
            return self.refuse(tag, Operation::Stat, None, libc::EINVAL);
        }
        let (index, record) = self.records.take(Operation::Stat, tag);
        record.file = Some(Arc::clone(folder));
        record.path.extend_from_slice(path);
        record.path.push(0);
        let answer: *mut Answer = &mut **record.answer.get_or_insert_default();
        let entry = opcode::Statx::new(types::Fd(folder.as_raw_fd()), record.path.as_ptr().cast(), answer.cast())
            .mask(libc::STATX_BASIC_STATS)
            .build();
        self.queue(entry.user_data(index));
    }

    /// Submits what is queued, waits until about `want` operations are done, and appends all completed ones to `done`.
    /// The wait ends after `wait` (`None` does not wait), when a [`waker`](Ring::waker) is used, and sometimes early.
    ///
    /// # Errors
    /// Only if the ring as a whole has failed.
    pub fn turn(&mut self, wait: Option<Duration>, want: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        let wait = wait.filter(|_| self.refused.is_empty());
        done.append(&mut self.refused);
        if !self.cancelling
            && let Some(index) = self.cancels.next()
        {
            self.cancelling = true;
            self.queue(opcode::AsyncCancel::new(index).build().user_data(records::CANCEL));
        }
        if !self.bell_armed {
            self.bell_armed = true;
            self.queue(self.bell.entry().user_data(records::BELL));
        }
        let entered = self.enter(self.cancels.shorten(wait), want);
        self.reap(done);
        entered
    }

    /// How long the kernel has refused every call because it lacks room (`EAGAIN`, `EBUSY`, `ENOMEM`) and returned
    /// nothing meanwhile, and what it last answered. A filter may answer so too, for ever. `None`: the last call got
    /// through.
    pub fn denied(&self) -> Option<(Duration, io::Error)> {
        self.denied.map(|(since, errno)| (since.elapsed(), io::Error::from_raw_os_error(errno)))
    }

    /// A waker that ends a waiting `turn`, or the next one, from any thread.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.bell))
    }

    /// Asks the kernel, in the next turns, to cancel what is in flight with this tag. An open and the read linked to it
    /// are cancelled one after another. Each still gets its completion: `ECANCELED`, `EINTR`, or its result if the
    /// cancellation came too late; the kernel is asked again for two seconds where it did not. A read that a disk or a
    /// file system is working on is not interrupted, and completes when that ends.
    pub fn cancel(&mut self, tag: u64) {
        self.cancels.add(self.records.with_tag(tag));
    }

    /// Sets how long dropping the ring waits for reads that the kernel does not return: less than [`DRAIN_BOUND`] if
    /// some are known never to end.
    pub fn bound_drain(&mut self, bound: Duration) {
        self.drain_bound = bound;
    }

    /// Asks the kernel, in the next `turn`, to cancel everything in flight. Each operation still gets its completion:
    /// `ECANCELED`, or its result if the cancellation came too late. A read that a disk is working on is not
    /// interrupted.
    pub fn cancel_all(&mut self) {
        if !self.cancelling {
            self.cancelling = true;
            let any = types::CancelBuilder::any();
            self.queue(opcode::AsyncCancel2::new(any).build().user_data(records::CANCEL));
        }
    }

    fn may_open(&self, open: &Open<'_>) -> Result<(), i32> {
        let slot = self.slots.get(open.slot as usize).ok_or(libc::EBADF)?;
        if slot.is_busy() {
            return Err(libc::EBUSY);
        }
        if open.path.contains(&0) { Err(libc::EINVAL) } else { Ok(()) }
    }

    fn refuse(&mut self, tag: u64, kind: Operation, part: Option<Part>, errno: i32) {
        let result = Err(io::Error::from_raw_os_error(errno));
        self.refused.push(Completion { tag, kind, result, part, identity: None, latency: Duration::ZERO });
    }

    fn open_entry(&mut self, open: Open<'_>, tag: u64) -> Entry {
        self.slots[open.slot as usize].start_open();
        let (index, record) = self.records.take(Operation::Open, tag);
        record.slot = Some(open.slot);
        record.file = Some(Arc::clone(open.folder));
        record.path.extend_from_slice(open.path);
        record.path.push(0);
        let destination = types::DestinationSlot::try_from_slot_target(open.slot).ok();
        opcode::OpenAt::new(types::Fd(open.folder.as_raw_fd()), record.path.as_ptr().cast())
            .file_index(destination)
            .flags(open.flags.for_slot().bits() as i32)
            .build()
            .user_data(index)
    }

    fn read_entry(&mut self, target: &Target, offset: u64, part: Part, tag: u64, linked: bool) -> Entry {
        let len = part.len().min(READ_BYTES_MAX) as u32;
        let buffer = self.buffers.place_of(&part);
        let address = buffer.map_or_else(|| part.as_ptr(), |(_, address)| address);
        let (index, record) = self.records.take(Operation::Read, tag);
        record.linked = linked;
        record.part = Some(part);
        let entry = match target {
            Target::Slot(slot) => {
                record.slot = Some(*slot);
                self.slots[*slot as usize].start_read();
                let slot = types::Fixed(*slot);
                match buffer {
                    Some((buffer, _)) => opcode::ReadFixed::new(slot, address, len, buffer).offset(offset).build(),
                    None => opcode::Read::new(slot, address, len).offset(offset).build(),
                }
            }
            Target::File(file) => {
                record.file = Some(Arc::clone(file));
                let file = types::Fd(file.as_raw_fd());
                match buffer {
                    Some((buffer, _)) => opcode::ReadFixed::new(file, address, len, buffer).offset(offset).build(),
                    None => opcode::Read::new(file, address, len).offset(offset).build(),
                }
            }
        };
        entry.user_data(index)
    }

    /// Puts an entry into the submission queue, which has room for every record and for the ring's own two entries.
    fn queue(&mut self, entry: Entry) {
        let index = entry.get_user_data();
        // SAFETY: what an entry points to, a part, a path or an answer in its box, is owned by the record that its user
        // data names. A wake-up points to nothing, and neither does a cancellation, which names one record's operation
        // by number, or all of them. The address of a read into a registered buffer is not followed: it says which
        // bytes of the buffer, whose memory is the part's, wherever its page was carried from. Only `reap` empties a
        // record, once the kernel has returned the operation, and `drop` leaks those that it does not return. A
        // record's box is made before its first question and then stays. Descriptors are kept open by the same record,
        // or by `self.bell`.
        let pushed = unsafe { self.queues.sq.push(&entry) };
        assert!(pushed.is_ok(), "the submission queue has an entry for every record");
        self.records.queued.push_back(index);
    }

    fn enter(&mut self, wait: Option<Duration>, want: usize) -> io::Result<()> {
        let want = want.clamp(1, self.records.used().max(1));
        let entered = self.queues.enter(wait, want, self.batch_wait);
        self.records.submitted(self.queues.sq.len());
        match entered.map_err(|error| error.raw_os_error()) {
            Err(Some(errno @ (libc::EAGAIN | libc::EBUSY | libc::ENOMEM))) => {
                // The kernel has no memory for a request, or wants its completions taken first. Wait a little for what
                // is in flight to make room; the next turn submits the rest.
                let since = self.denied.map_or_else(Instant::now, |(since, _)| since);
                self.denied = Some((since, errno));
                let waited = self.queues.wait(RETRY_WAIT).map_err(|error| error.raw_os_error());
                if let (Some(wait), Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM))) = (wait, waited) {
                    // It does not even wait: without a pause, this thread would be busy with asking.
                    self.bell.listen(wait.min(DENIED_WAIT));
                }
                Ok(())
            }
            Ok(()) | Err(Some(libc::ETIME | libc::EINTR)) => {
                self.denied = None;
                Ok(())
            }
            Err(errno) => Err(errno.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error)),
        }
    }

    /// Takes everything out of the completion queue.
    fn reap(&mut self, done: &mut Vec<Completion>) {
        let now = Instant::now();
        self.queues.cq.sync();
        for entry in &mut self.queues.cq {
            match entry.user_data() {
                records::BELL => {
                    self.bell_armed = false;
                    self.bell.silence();
                }
                records::CANCEL => self.cancelling = false,
                index => {
                    self.cancels.forget(index);
                    let (slot, completion) = self.records.finish(index, entry.result(), now);
                    if let Some(slot) = slot {
                        self.slots[slot as usize].finish(&completion);
                    }
                    done.push(completion);
                    self.denied = None;
                }
            }
        }
        self.queues.cq.sync();
    }

    /// Cancels what is in flight and waits up to `bound` for all of it. Returns whether nothing is left.
    fn drain(&mut self, bound: Duration) -> bool {
        let end = Instant::now() + bound;
        let mut done = Vec::with_capacity(self.records.used());
        // Do not arm the wake-up again: the cancellation ends it too, and it owns no memory.
        self.bell_armed = true;
        while self.records.used() > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.denied.is_some_and(|(since, _)| since.elapsed() >= DENIED_DRAIN) {
                return false;
            }
            // Again after each wait: the rest of a cancelled link and what was submitted late are new to the kernel.
            self.cancel_all();
            if self.turn(Some(left.min(DRAIN_WAIT)), usize::MAX, &mut done).is_err() {
                return false;
            }
            done.clear();
        }
        true
    }

    /// Ends the ring. This is its destructor, with a bound that tests choose: nothing of the ring may be used
    /// afterwards.
    fn close(&mut self, bound: Duration) {
        if !self.drain(bound) {
            self.leak();
        } else if self.buffers.arena.is_some() {
            // Closing a ring frees its buffers some time later. This returns the budget of locked memory now.
            let _ = self.queues.submitter.unregister_buffers();
        }
        // SAFETY: `close` runs once, at the end of `drop` or of a test that does not drop the ring. Nothing uses
        // `queues` after it.
        unsafe { ManuallyDrop::drop(&mut self.queues) };
    }

    /// Keeps what the kernel may still write to mapped and unused for good: the parts in flight, each of which keeps
    /// the whole mapping, and the registered arena.
    fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.records));
        std::mem::forget(self.buffers.arena.take());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.close(self.drain_bound);
        } else {
            // In a forked child the ring's memory is not mapped, and what is in flight belongs to the parent: touch
            // nothing.
            self.leak();
        }
    }
}
