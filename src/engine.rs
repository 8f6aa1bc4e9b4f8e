//! What moves bytes: an engine takes reads and gives them back done, in any order. It does not retry, order or count:
//! the reactor decides.

mod files;
mod gds;
mod open;
mod pread;
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
pub(crate) use way::would_be_direct;

/// Reads that may be given up and not back, beyond which they use up the depth: enough that a dead disk among many
/// does not narrow the others, and a bound on what is kept for reads that never end.
pub(crate) const ABANDONED_MAX: usize = 64;

/// One read to be done. Offset, length and memory are aligned as the route's alignment says, except that a buffered
/// route takes any.
#[derive(Debug)]
pub struct Read {
    /// Comes back in [`Done::tag`].
    pub tag: u64,
    /// The file.
    pub file: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// Where the bytes go; its length is the number of bytes wanted. The engine owns it until the read is done.
    pub part: Part,
}

/// A read that is done, well or badly.
#[derive(Debug)]
pub struct Done {
    /// Of the [`Read`].
    pub tag: u64,
    /// The memory, back from the engine.
    pub part: Part,
    /// Bytes read, from the part's first on: fewer than wanted at the end of the file or in a short read; or the errno
    /// of the open or the read.
    pub result: io::Result<usize>,
    /// From the moment the read was started to the moment it was done.
    pub latency: Duration,
}

/// Moves bytes. Lives and dies on the thread that opened it.
pub trait Engine {
    /// How many more reads `start` takes now.
    fn room(&self) -> usize;

    /// Reads that were started and are neither done nor abandoned.
    fn in_flight(&self) -> usize;

    /// Takes a read. It need not reach the kernel before the next `turn`.
    ///
    /// # Panics
    /// If there is no room.
    fn start(&mut self, read: Read);

    /// Hands what was started to the kernel, waits up to `wait` for something to be done or for a wake-up (`None`: does
    /// not wait), and appends what is done.
    ///
    /// # Errors
    /// Only where the engine as a whole has failed; a read's failure is its `Done`.
    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()>;

    /// Ends a `turn` that waits, from any thread.
    fn waker(&self) -> Waker;

    /// Asks for the end of a read that was started: it is done soon, with `ECANCELED`, another error or its bytes, or
    /// whenever what it waits for lets go of it. Returns whether it had not begun, and only waited for others: then it
    /// is done with `ECANCELED` for certain.
    fn cancel(&mut self, _tag: u64) -> bool {
        false
    }

    /// Waits no longer for a read that was started: it is not in flight any more, and takes no room as far as there is
    /// any in reserve. It is still done whenever it ends, if it does, and its memory is the engine's until then.
    fn abandon(&mut self, _tag: u64) {}

    /// What becomes of a read that was started and is not done, as in "was ...".
    fn stage(&self, _tag: u64) -> &'static str {
        "being read"
    }

    /// The time by which deadlines are kept.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Tells that memory of the arena was populated that reads will go to. Ranges are adjacent and ascend. Returns
    /// whether reads into it are cheaper from now on.
    ///
    /// # Errors
    /// Why the kernel refused to register it, once; reads work all the same.
    fn register(&mut self, _arena: &Arena, _range: Range<usize>) -> io::Result<bool> {
        Ok(false)
    }

    /// A step down that was taken since, each kind once.
    fn said(&mut self) -> Option<Fallback> {
        None
    }
}
