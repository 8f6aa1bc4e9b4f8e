//! Moves bytes: an engine takes reads and returns them when done, in any order. It does not retry, order or count; the
//! reactor decides all that.

mod beside;
mod cached;
pub(crate) mod files;
mod gds;
mod open;
mod pread;
mod price;
mod remote;
mod roots;
pub mod sim;
mod threads;
mod uring;
mod way;

use crate::config::Fallback;
use crate::dataset::FileId;
use std::io;
use std::ops::Range;
use std::task::Waker;
use std::time::{Duration, Instant};
use uringload_sys::{Arena, Part};

pub(crate) use gds::{PINNED, STRAIGHT_BYTES, STRAIGHT_READ_BYTES, Straight, suits, timeout};
pub(crate) use open::{Opened, open};
pub(crate) use price::{Price, read_limits};
pub(crate) use remote::{has_only_objects, put_off, read_error, read_object};
pub(crate) use way::would_be_direct;

/// Number of abandoned reads an engine carries before they use up its depth. High enough that one dead disk among many
/// does not slow the others; it bounds the state of reads that never end.
pub(crate) const ABANDONED_MAX: usize = 64;

/// One read to perform. Offset, length and memory have the route's alignment; a buffered route takes any.
#[derive(Debug)]
pub struct Read {
    /// Comes back in [`Done::tag`].
    pub tag: u64,
    /// The file.
    pub file: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// Where the bytes go. Its length is the number of bytes wanted. The engine owns it until the read is done.
    pub part: Part,
    /// The ranges to read, if there are several: they follow each other in `part`, and the first one is that of `file`
    /// and `offset`. Only for engines that take [`bundles`](Engine::bundles).
    pub pieces: Vec<Piece>,
}

/// One range of a read that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub file: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes to request; also the length of its memory.
    pub len: usize,
    /// Bytes that must arrive for it to be complete.
    pub need: usize,
}

/// A completed read, successful or not.
#[derive(Debug)]
pub struct Done {
    /// Tag of the [`Read`].
    pub tag: u64,
    /// The memory, returned by the engine.
    pub part: Part,
    /// Number of bytes read, from the start of the part, or the errno of the open or the read. Fewer bytes than wanted
    /// mean the end of the file or a short read. An error without an errno may hold an [`Error`](crate::Error), which
    /// says more than "cannot read". With several pieces, the memory of those before the first incomplete one counts.
    pub result: io::Result<usize>,
    /// Time from the start of the read to its completion.
    pub latency: Duration,
    /// The list of the [`Read`], for reuse.
    pub pieces: Vec<Piece>,
}

/// How many reads an engine performs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// At first.
    pub start: usize,
    /// At most.
    pub most: usize,
    /// Whether it always is `most`, because the user set it or because adapting it would not help.
    pub fixed: bool,
}

/// Moves bytes. Must be used and dropped on the thread that opened it.
pub trait Engine {
    /// How many more reads `start` accepts now.
    fn room(&self) -> usize;

    /// Reads that were started and are neither done nor abandoned.
    fn in_flight(&self) -> usize;

    /// Whether the engine takes reads of several pieces, and they cost less than single reads.
    fn bundles(&self) -> bool {
        false
    }

    /// Starts a read. It may reach the kernel only at the next `turn`.
    ///
    /// # Panics
    /// If there is no room.
    fn start(&mut self, read: Read);

    /// Submits the started reads to the kernel, waits up to `wait` for a completion or a wake-up (`None` does not
    /// wait), and appends the completed reads to `done`.
    ///
    /// # Errors
    /// Only if the engine as a whole has failed. A read's failure is in its `Done`.
    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()>;

    /// A waker that ends a waiting `turn`, from any thread.
    fn waker(&self) -> Waker;

    /// Requests the end of a started read. It completes soon, with `ECANCELED`, another error or its bytes, or only
    /// when whatever it waits for releases it. Returns true if the read had not begun and only waited for others: then
    /// it will certainly complete with `ECANCELED`.
    fn cancel(&mut self, _tag: u64) -> bool {
        false
    }

    /// Stops waiting for a started read. It no longer counts as in flight and, while the reserve lasts, takes no room.
    /// If it ever ends it is still returned as done, and the engine owns its memory until then.
    fn abandon(&mut self, _tag: u64) {}

    /// Performs up to `reads` reads at a time from now on. Returns how many should be started so that no thread waits
    /// for its next read.
    fn widen(&mut self, reads: usize) -> usize {
        reads
    }

    /// What a started read is currently doing, to complete the phrase "was ...".
    fn stage(&self, _tag: u64) -> &'static str {
        "being read"
    }

    /// The clock that deadlines use.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Announces that arena memory which reads will use was populated. Ranges are adjacent and ascending. Returns
    /// whether reads into it are cheaper from now on.
    ///
    /// # Errors
    /// Returns once why the kernel refused to register the memory. Reads work anyway.
    fn register(&mut self, _arena: &Arena, _range: Range<usize>) -> io::Result<bool> {
        Ok(false)
    }

    /// Why no file of the root of `file` can be found now, called after this one could not be opened by its name.
    /// `None` if others can be.
    fn lost(&self, _file: FileId) -> Option<String> {
        None
    }

    /// Drops the open file and its root folder: both may be gone, and their paths may lead to something else. Does not
    /// wait.
    fn renew(&mut self, _file: FileId) {}

    /// How long the kernel has taken no read at all and returned none, and its last answer. `None` if it takes reads.
    fn denied(&self) -> Option<(Duration, io::Error)> {
        None
    }

    /// A fallback taken since the last call. Each kind is reported once.
    fn said(&mut self) -> Option<Fallback> {
        None
    }
}
