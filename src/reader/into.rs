//! Reads bytes of files into the caller's memory: checkpoints, tensors that exist already.
//!
//! If reads wait for a disk, they go into the reader's own memory first, and threads copy them. That costs a copy, but
//! allows deadlines: a read that never ends keeps memory of ours, not of the caller's. It also allows `O_DIRECT` for
//! any offset and any address. If the files are in the page cache, no read waits, and threads read straight into the
//! caller's memory.

use super::{Plain, Reader, ReaderOptions};
use crate::config::{Cause, EngineChoice, Fallback, IoChoice};
use crate::dataset::{FileId, Index, Schema, Span};
use crate::here::Here;
use crate::loader::limits::{ALIGNMENT_MAX, block_roundings};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// Length of a piece: one request, and one copy. Pieces begin at multiples of it, so that no two read the same sector.
const PIECE_BYTES: u64 = 4 << 20;

/// Bytes requested at a time: enough for the queue of a fast disk.
const WINDOW_BYTES: u64 = 64 << 20;

/// Pieces requested at a time.
const WINDOW_PIECES: usize = 1024;

/// Below this many bytes in all, a thread and a ring cost more than they save.
const HERE_BYTES: u64 = 1 << 20;

/// A shorter piece is copied by the thread that receives it.
const HANDED_BYTES: usize = 256 << 10;

/// Threads that copy, or read from the page cache. Four are as fast as the memory of most machines.
const THREADS_MAX: usize = 4;

/// How often a wait checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A range of a file, and the memory to read it into.
pub struct FileRange<'a> {
    /// The file.
    pub path: &'a Path,
    /// The offset in the file.
    pub offset: u64,
    /// The memory, all of which is filled.
    pub memory: &'a mut [u8],
}

/// A part of a range that is read as one.
struct Piece<'a> {
    span: Span,
    memory: &'a mut [u8],
}

/// Bytes, and their destination.
type Copy<'a> = (Bytes, &'a mut [u8]);

/// Reads ranges of files into your memory, each completely or with an error: [`Reader::read_into`] without a reader.
///
/// Ranges of one file or of many, of any length and at any offset. Long ones are read in pieces, many at a time, past
/// the page cache unless the files are in it.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.bin");
/// # std::fs::write(&path, vec![7; 100_000]).unwrap();
/// use uringload::{FileRange, ReaderOptions, read_into};
///
/// let (mut weights, mut bias) = (vec![0; 90_000], vec![0; 400]);
/// let ranges = [
///     FileRange { path: &path, offset: 8, memory: &mut weights },
///     FileRange { path: &path, offset: 90_008, memory: &mut bias },
/// ];
/// read_into(ranges, &ReaderOptions::default())?;
/// assert!(weights.iter().chain(&bias).all(|&byte| byte == 7));
/// # Ok::<(), uringload::Error>(())
/// ```
///
/// # Errors
/// Those of [`Reader::open`] and of [`Reader::read_into`]. After an error, the content of the memory is undefined.
pub fn read_into<'a>(ranges: impl IntoIterator<Item = FileRange<'a>>, options: &ReaderOptions) -> Result<()> {
    read_into_unless(ranges.into_iter().collect(), options, &AtomicBool::new(false)).map(drop)
}

/// As [`read_into`], until `stop` is set, which is an error. Returns the fallbacks from the best way.
#[doc(hidden)]
pub fn read_into_unless(
    ranges: Vec<FileRange<'_>>,
    options: &ReaderOptions,
    stop: &AtomicBool,
) -> Result<Vec<Fallback>> {
    let mut paths: Vec<&Path> = ranges.iter().map(|range| range.path).collect();
    // Files of one folder together: a folder is a descriptor.
    paths.sort_unstable();
    paths.dedup();
    let files = super::table(&paths)?;
    let numbers: HashMap<&Path, u32> = paths.iter().copied().zip(0..).collect();
    let bytes: u64 = ranges.iter().map(|range| range.memory.len() as u64).sum();
    let spans = ranges.into_iter().map(|FileRange { path, offset, memory }| {
        let file = FileId(numbers.get(path).copied().unwrap_or(u32::MAX));
        (Span { file, offset, len: memory.len() as u64 }, memory)
    });
    let mut spans: Vec<(Span, &mut [u8])> = spans.collect();
    if bytes < HERE_BYTES && options.leaves_it_open() && options.config.io == IoChoice::Auto {
        let index = Index::new("files", files, Schema { fields: Vec::new() }, 0);
        let here = Here::new(Arc::new(Plain(index)))?;
        check(&here, &spans)?;
        return read_here(&here, pieces(&mut spans, PIECE_BYTES), stop).map(|()| Vec::new());
    }
    let mut reader = Reader::new(files, options)?;
    reader.read_into_unless(&mut spans, stop)?;
    Ok(reader.route().fallbacks)
}

impl ReaderOptions {
    /// Whether no engine and no deadline was requested, so that the calling thread may read.
    pub(super) fn leaves_it_open(&self) -> bool {
        self.config.engine == EngineChoice::Auto && self.config.timeout.is_none()
    }
}

impl Reader {
    /// Reads each span into its memory, which has the same length, and returns when all of them are complete. Long
    /// spans are read in pieces, many at a time, in the order of the files. No other request may be in flight
    /// meanwhile.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("model.bin");
    /// # std::fs::write(&path, vec![7; 100_000]).unwrap();
    /// use uringload::dataset::{FileId, Span};
    /// use uringload::{Reader, ReaderOptions};
    ///
    /// let mut reader = Reader::open(&[path], &ReaderOptions::default())?;
    /// let mut weights = vec![0; 90_000];
    /// let span = Span { file: FileId(0), offset: 8, len: 90_000 };
    /// reader.read_into(&mut [(span, &mut weights)])?;
    /// assert!(weights.iter().all(|&byte| byte == 7));
    /// # Ok::<(), uringload::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a span that is in no file, beyond its end or of another length than its memory, and if
    /// requests are in flight; nothing is read then. Otherwise the first error of reading: the rest is cancelled, and
    /// the content of the memory is undefined.
    pub fn read_into(&mut self, into: &mut [(Span, &mut [u8])]) -> Result<()> {
        self.read_into_unless(into, &AtomicBool::new(false))
    }

    /// As [`read_into`](Reader::read_into), until `stop` is set, which is an error.
    #[doc(hidden)]
    pub fn read_into_unless(&mut self, into: &mut [(Span, &mut [u8])], stop: &AtomicBool) -> Result<()> {
        check(&self.here, into)?;
        if let Some(error) = self.forked().or_else(|| self.ended()) {
            return Err(error);
        }
        if !self.asked.is_empty() {
            let what = format!("{} requests of this reader are in flight", self.asked.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("take their answers or cancel them first, or use another reader"));
        }
        let in_memory = || self.route().fallbacks.iter().any(|step| step.cause == Cause::PageCache);
        if self.may_read_here && in_memory() {
            return read_here(&self.here, pieces(into, PIECE_BYTES), stop);
        }
        // A quarter of the memory, so that some are read while others are copied.
        let most = (self.memory_limit / 4).saturating_sub(2 * ALIGNMENT_MAX + block_roundings(PIECE_BYTES));
        let pieces = pieces(into, PIECE_BYTES.min(most / ALIGNMENT_MAX * ALIGNMENT_MAX).max(ALIGNMENT_MAX));
        let bytes: u64 = pieces.iter().map(|piece| piece.span.len).sum();
        let copiers = if bytes < HERE_BYTES { 0 } else { threads(pieces.len()) };
        let (give, take) = mpsc::sync_channel(2 * copiers.max(1));
        let take = Mutex::new(take);
        let next = || take.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        let copy = || std::iter::from_fn(next).for_each(|(bytes, memory): Copy<'_>| memory.copy_from_slice(&bytes));
        let read = std::thread::scope(|scope| {
            // Without threads, this one copies.
            let give = (spawn(scope, copiers, &copy) > 0).then_some(give);
            self.read_pieces(pieces, give.as_ref(), stop)
        });
        if read.is_err() {
            let left: Vec<u64> = self.asked.keys().copied().collect();
            for id in left {
                self.cancel(id);
            }
        }
        read
    }

    /// Requests the pieces, as many as the window holds, and passes each on as it comes.
    fn read_pieces<'a>(
        &mut self,
        pieces: Vec<Piece<'a>>,
        give: Option<&SyncSender<Copy<'a>>>,
        stop: &AtomicBool,
    ) -> Result<()> {
        let window = WINDOW_BYTES.min(self.memory_limit / 2);
        let (mut pieces, mut waiting) = (pieces.into_iter().zip(0..).peekable(), HashMap::new());
        let mut asked = 0;
        loop {
            while waiting.len() < WINDOW_PIECES
                && let Some((piece, id)) = pieces.next_if(|(piece, _)| asked == 0 || asked + piece.span.len <= window)
            {
                self.submit(id, &[piece.span])?;
                asked += piece.span.len;
                waiting.insert(id, piece);
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let Some((id, bytes)) = self.next_timeout(LOOK) else { continue };
            let Some(Piece { span, memory }) = waiting.remove(&id) else { continue };
            let bytes = bytes?;
            asked -= span.len;
            if bytes.len() != memory.len() {
                let what = format!("{} bytes came where {} were asked for", bytes.len(), memory.len());
                return Err(Error::new(ErrorKind::Internal, what)
                    .with_path(self.files().path(span.file))
                    .with_offset(span.offset)
                    .with_remedy("please report it: this is a bug"));
            }
            match give.filter(|_| bytes.len() >= HANDED_BYTES) {
                // The copiers only end when this thread does.
                Some(give) => give.send((bytes, memory)).map_err(|_| super::thread_ended("uringload-copy"))?,
                None => memory.copy_from_slice(&bytes),
            }
        }
    }
}

/// Refuses spans that are in no file, beyond its end, or of another length than their memory.
fn check(here: &Here, into: &[(Span, &mut [u8])]) -> Result<()> {
    for (span, memory) in into {
        here.check(&[*span])?;
        if span.len != memory.len() as u64 {
            let what = format!("a span has {} bytes, and its memory {}", span.len, memory.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_path(here.files().path(span.file))
                .with_offset(span.offset)
                .with_remedy("give each span memory of its length"));
        }
    }
    Ok(())
}

/// The spans in pieces of at most `most` bytes, in the order of the files.
fn pieces<'a>(into: &'a mut [(Span, &mut [u8])], most: u64) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    for (span, memory) in into {
        let (mut span, mut memory) = (*span, &mut **memory);
        while !memory.is_empty() {
            let len = span.len.min(most - span.offset % most);
            let (first, rest) = memory.split_at_mut(len as usize);
            pieces.push(Piece { span: Span { len, ..span }, memory: first });
            (span.offset, span.len, memory) = (span.offset + len, span.len - len, rest);
        }
    }
    pieces.sort_by_key(|piece| (piece.span.file.0, piece.span.offset));
    pieces
}

/// Reads straight into the memory, through the page cache, with several threads if there are many bytes.
fn read_here(here: &Here, pieces: Vec<Piece<'_>>, stop: &AtomicBool) -> Result<()> {
    let bytes: u64 = pieces.iter().map(|piece| piece.span.len).sum();
    let threads = if bytes < HERE_BYTES { 0 } else { threads(pieces.len()) - 1 };
    let (left, failed) = (Mutex::new(pieces.into_iter()), Mutex::new(None));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let fail = |error| {
        // Skips the rest, so that no thread begins another piece.
        while next().is_some() {}
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let read = || {
        while let Some(Piece { span, memory }) = next() {
            let read = if stop.load(Ordering::Relaxed) { Err(stopped()) } else { here.read_into(&span, memory) };
            if let Err(error) = read {
                fail(error);
            }
        }
    };
    std::thread::scope(|scope| {
        spawn(scope, threads, &read);
        read();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Number of threads for this many pieces.
fn threads(pieces: usize) -> usize {
    uringload_sys::cgroup::processors().min(THREADS_MAX).min(pieces).max(1)
}

/// Starts this many threads, or as many as the system allows, and returns their number.
fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, threads: usize, work: &'scope (impl Fn() + Sync)) -> usize {
    let start = |_: &usize| Builder::new().name("uringload-copy".into()).spawn_scoped(scope, work).is_ok();
    (0..threads).take_while(start).count()
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "reading was stopped").with_remedy("read again: the memory is filled in part")
}

impl fmt::Debug for FileRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileRange { path, offset, memory } = self;
        write!(f, "FileRange({} bytes at {offset} of {})", memory.len(), path.display())
    }
}
