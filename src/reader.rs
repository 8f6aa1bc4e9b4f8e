//! Reads bytes in the caller's order: for loaders, services and caches that decide themselves what is read when.

mod into;
mod thread;

use crate::config::{Config, EngineChoice, IoChoice, Route, Value};
use crate::dataset::{Dataset, FileTable, Index, Sample, SampleId, Schema, Span};
use crate::loader::limits::{ALIGNMENT_MAX, MEMORY_LIMIT, block_roundings};
use crate::loader::{join, room::Room};
use crate::queue::{Bell, NoItem, Receiver, bounded};
use crate::reactor::{self, Answer, Inbox, Request, thread_ended};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use into::{FileRange, read_into, read_into_unless};

use crate::here::{Here, memory_of};

/// Number of answers that wait to be taken. Beyond it, the bytes stay where they were read.
const ANSWERS: usize = 1024;

/// How a [`Reader`] reads. Every setting has the default that a [`Builder`](crate::Builder) has.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to Reader::new"]
pub struct ReaderOptions {
    config: Config,
}

impl ReaderOptions {
    /// The names of the settings that [`set`](ReaderOptions::set) knows.
    pub const SETTINGS: &'static [&'static str] =
        &["engine", "io", "queue_depth", "io_threads", "memory_limit", "timeout", "outage_timeout", "starved_after"];

    /// Sets a setting by its name, as [`Builder::set`](crate::Builder::set) does.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none of [`SETTINGS`](ReaderOptions::SETTINGS), or a value that it cannot
    /// have.
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Result<ReaderOptions> {
        if ReaderOptions::SETTINGS.contains(&name) && self.config.set(name, &value.into())? {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::InvalidArgument, format!("a reader has no setting {name:?}"))
            .with_remedy(format!("its settings are {}", ReaderOptions::SETTINGS.join(", "))))
    }

    /// What reads the bytes. Default: io_uring if the system allows it, threads otherwise.
    pub fn engine(mut self, engine: EngineChoice) -> ReaderOptions {
        self.config.engine = engine;
        self
    }

    /// Whether reads bypass the page cache. Default: only if the files are not in it already, when the reader is made.
    pub fn io(mut self, io: IoChoice) -> ReaderOptions {
        self.config.io = io;
        self
    }

    /// Maximum reads in flight. Default: chosen by the device and by measurement.
    pub fn queue_depth(mut self, reads: impl Into<Option<usize>>) -> ReaderOptions {
        self.config.queue_depth = reads.into();
        self
    }

    /// Threads of the `threads` engine. Default: one for each processor, or many if reads wait for a device.
    pub fn io_threads(mut self, threads: impl Into<Option<usize>>) -> ReaderOptions {
        self.config.io_threads = threads.into();
        self
    }

    /// The most memory for bytes that are being read and for answers that were not dropped, in bytes. A request waits
    /// until there is room for it. Default: 256 MiB, within half of the machine's available memory and a quarter of
    /// what the container's control groups leave.
    pub fn memory_limit(mut self, bytes: u64) -> ReaderOptions {
        self.config.memory_limit = Some(bytes);
        self
    }

    /// How long a read may take before its request fails with `Timeout`. Default: no limit.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> ReaderOptions {
        self.config.timeout = timeout.into();
        self
    }

    /// How long a folder may return nothing before requests to it fail. Default: 300 s.
    pub fn outage_timeout(mut self, timeout: impl Into<Option<Duration>>) -> ReaderOptions {
        self.config.outage_timeout = timeout.into();
        self
    }

    /// How long a request waits for memory that answers hold, while a caller waits for it and nothing else is in
    /// flight, before it fails with `Starved`. Default: 10 s.
    pub fn starved_after(mut self, after: Duration) -> ReaderOptions {
        self.config.starved_after = after;
        self
    }
}

/// Reads bytes in an order of your own, with the engine, the memory limit, the deadlines and the handling of faults of
/// a [`Loader`](crate::Loader).
///
/// [`submit`](Reader::submit) requests bytes under a number of yours, for any number of requests at a time, and never
/// waits. Answers come as soon as they are ready, in any order. A reader is an [`Iterator`] over them, has a
/// [`stream`](Reader::stream) to await, and a descriptor to poll.
///
/// ```
/// use uringload::dataset::{FileId, Span};
/// use uringload::{Reader, ReaderOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # std::fs::write(folder.path().join("a.bin"), vec![7; 100_000]).unwrap();
/// # let path = folder.path().join("a.bin");
/// let mut reader = Reader::open(&[path], &ReaderOptions::default())?;
/// for id in 0..10 {
///     reader.submit(id, &[Span { file: FileId(0), offset: 10_000 * id, len: 10_000 }])?;
/// }
/// reader.cancel(3);
/// for (id, bytes) in &mut reader {
///     println!("{id}: {} bytes", bytes?.len());
/// }
/// # Ok::<(), uringload::Error>(())
/// ```
///
/// Dropping it at any time ends the reads in flight and returns in bounded time. Answers outlive it. A forked child
/// cannot use it, nor its answers; only [`read`](Reader::read) works there.
pub struct Reader {
    here: Arc<Here>,
    inbox: Arc<Inbox>,
    /// `None` only while the reader is being dropped.
    answers: Option<Receiver<Answer>>,
    thread: Option<JoinHandle<()>>,
    route: Arc<Mutex<Route>>,
    /// Why the thread ended, if not because of a drop.
    ended_by: Arc<Mutex<Option<Error>>>,
    /// The number of each request that was not answered, by the user's number.
    asked: HashMap<u64, u64>,
    /// Numbers of requests so far.
    numbers: u64,
    /// Requests that were unanswered when the thread ended, and never will be answered.
    lost: VecDeque<u64>,
    memory_limit: u64,
    /// Whether data in the page cache may be read without the engine.
    may_read_here: bool,
    /// The process that the thread runs in.
    process: u32,
}

/// The answers of a reader as a [`futures_core::Stream`]: see [`Reader::stream`].
#[derive(Debug)]
pub struct Answers<'a>(&'a mut Reader);

/// The files of a reader, as a dataset without samples.
#[derive(Debug)]
struct Plain(Index);

impl Dataset for Plain {
    fn index(&self) -> &Index {
        &self.0
    }

    fn spans(&self, _: SampleId, _: &mut Vec<Span>) {}

    fn parse(&self, _: SampleId, _: &[Bytes], _: &mut Sample) -> Result<()> {
        Ok(())
    }
}

impl Reader {
    /// A reader of these files. If a file no longer has the size in the table, requests to it fail.
    ///
    /// # Errors
    /// `Unavailable` if the options name an engine or a mode that is not available, `MemoryLimit` if there is not
    /// enough memory, and errors of opening the folders of the files.
    pub fn new(files: FileTable, options: &ReaderOptions) -> Result<Reader> {
        let index = Index::new("files", files, Schema { fields: Vec::new() }, 0);
        Reader::of(Arc::new(Plain(index)), options)
    }

    /// A reader of these files, which get the numbers 0, 1, ... in this order. Their sizes are looked up once. Name the
    /// files of one folder together: each run of them keeps a descriptor of their folder open.
    ///
    /// # Errors
    /// Names a file that is missing or not a regular file; and the errors of [`new`](Reader::new).
    pub fn open(paths: &[impl AsRef<Path>], options: &ReaderOptions) -> Result<Reader> {
        Reader::new(table(paths)?, options)
    }

    /// A reader of a dataset's files, for spans from [`Dataset::spans`]. The format's checks of files (whether they are
    /// the ones that were indexed) apply here too. Samples that are cut from compressed
    /// [units](crate::dataset::Units) have no spans of their own: [`Samples`](crate::inspect::Samples) reads these.
    ///
    /// # Errors
    /// The errors of [`new`](Reader::new).
    pub fn of(dataset: Arc<dyn Dataset>, options: &ReaderOptions) -> Result<Reader> {
        let config = options.config.clone();
        let room = Room::now();
        room.check("memory_limit", config.memory_limit)?;
        let by_default = MEMORY_LIMIT.min(room.default_for(0));
        let memory_limit = config.memory_limit.unwrap_or(by_default);
        let less = if config.memory_limit.is_none() { room.told(MEMORY_LIMIT, by_default) } else { None };
        let here = Arc::new(Here::new(Arc::clone(&dataset))?);
        let bell = Arc::new(Bell::new());
        let inbox = Arc::new(Inbox::new(Arc::clone(&bell)));
        let (sender, answers) = bounded(ANSWERS, Arc::clone(&bell));
        let ended_by = Arc::new(Mutex::new(None));
        let job = thread::Job {
            dataset,
            config,
            pool_bytes: memory_of(memory_limit)?,
            inbox: Arc::clone(&inbox),
            answers: sender,
            bell,
            ended_by: Arc::clone(&ended_by),
        };
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(reactor::THREAD.into())
            .spawn(move || thread::run(job, &tell))
            .map_err(|source| Error::io("cannot start the reader's thread", source))?;
        let route = told.recv().unwrap_or_else(|_| Err(thread_ended(reactor::THREAD)))?;
        route.lock().unwrap_or_else(PoisonError::into_inner).fallbacks.extend(less);
        Ok(Reader {
            here,
            inbox,
            answers: Some(answers),
            thread: Some(thread),
            route,
            ended_by,
            asked: HashMap::new(),
            numbers: 0,
            lost: VecDeque::new(),
            memory_limit,
            may_read_here: options.leaves_it_open(),
            process: std::process::id(),
        })
    }

    /// Requests the bytes of these spans, end to end, under the number `id`. Never waits. `id` may be used again once
    /// it was answered or cancelled.
    ///
    /// Bytes of one span are delivered where they were read. Those of several spans are moved together.
    ///
    /// # Errors
    /// `InvalidArgument` for a span that is in no file or beyond its end, for no span of a dataset whose samples are
    /// cut from units, and for an `id` that is in flight; `MemoryLimit` for more bytes than the reader may take; and
    /// why the reader has ended, if it has. Nothing is requested then.
    pub fn submit(&mut self, id: u64, spans: &[Span]) -> Result<()> {
        self.here.check(spans)?;
        if let Some(error) = self.forked().or_else(|| self.ended()) {
            return Err(error);
        }
        let around = |span: &Span| span.len.saturating_add(2 * ALIGNMENT_MAX);
        let bytes = spans.iter().map(around).fold(0, u64::saturating_add);
        let needed = bytes.saturating_add(block_roundings(bytes));
        if needed > self.memory_limit {
            let what = format!(
                "request {id} does not fit: with alignment it takes up to {needed} bytes; the memory limit is {}",
                self.memory_limit
            );
            return Err(Error::new(ErrorKind::MemoryLimit, what)
                .with_remedy(format!("raise memory_limit to {needed} or more, or ask for it in pieces")));
        }
        if self.asked.contains_key(&id) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("request {id} is in flight already"))
                .with_remedy("give each request a number of its own until it is answered"));
        }
        self.numbers += 1;
        self.asked.insert(id, self.numbers);
        self.inbox.read(Request { id, number: self.numbers, spans: spans.to_vec() });
        Ok(())
    }

    /// Cancels a request: it gets no answer, and the rest of it is not read. Returns whether it was in flight. Reads
    /// that the kernel has already begun end by themselves, and keep their memory until then.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some(number) = self.asked.remove(&id) else { return false };
        if self.forked().is_none() {
            self.inbox.cancel(number);
        }
        self.lost.retain(|lost| *lost != id);
        true
    }

    /// Reads the bytes of these spans, end to end, on the calling thread and through the page cache: for occasional
    /// requests, where a thread would cost more than the read. Takes memory from the heap, has no deadline, and works
    /// in a forked child.
    ///
    /// # Errors
    /// `InvalidArgument` as of [`submit`](Reader::submit); otherwise the errors of reading.
    pub fn read(&self, spans: &[Span]) -> Result<Bytes> {
        self.here.check(spans)?;
        self.here.read(spans)
    }

    /// The part that performs [`read`](Reader::read), for sharing with other threads.
    #[doc(hidden)]
    pub fn here(&self) -> Arc<Here> {
        Arc::clone(&self.here)
    }

    /// Number of requests that were not answered or cancelled.
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// How bytes are read, and every fallback from the best way, with its reason.
    pub fn route(&self) -> Route {
        self.route.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Maximum number of bytes of memory for requests and answers.
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// The files that spans refer to.
    pub fn files(&self) -> &FileTable {
        self.here.files()
    }

    /// An answer, if one is ready; never waits. `None` if none is ready yet, or nothing is in flight.
    pub fn try_next(&mut self) -> Option<(u64, Result<Bytes>)> {
        loop {
            if let Some(lost) = self.next_lost() {
                return Some(lost);
            }
            let received = match self.answers.as_mut()?.try_recv() {
                Ok(answer) => Some(answer),
                Err(NoItem::Closed) => None,
                Err(NoItem::Empty) => return None,
            };
            if let Some(answer) = self.account(received) {
                return Some(answer);
            }
            if self.asked.is_empty() {
                return None;
            }
        }
    }

    /// The next answer, waiting at most `wait` for it. `None` if none came in that time, or nothing is in flight.
    pub fn next_timeout(&mut self, wait: Duration) -> Option<(u64, Result<Bytes>)> {
        let end = Instant::now() + wait;
        loop {
            if let Some(lost) = self.next_lost() {
                return Some(lost);
            }
            if self.asked.is_empty() {
                return None;
            }
            let left = end.saturating_duration_since(Instant::now());
            let received = match self.answers.as_mut()?.recv_timeout(left) {
                Ok(answer) => Some(answer),
                Err(NoItem::Closed) => None,
                Err(NoItem::Empty) => return None,
            };
            if let Some(answer) = self.account(received) {
                return Some(answer);
            }
        }
    }

    /// The next answer, or arranges for the task to be woken when there is one. `Ready(None)` if nothing is in flight.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(u64, Result<Bytes>)>> {
        loop {
            if let Some(lost) = self.next_lost() {
                return Poll::Ready(Some(lost));
            }
            if self.asked.is_empty() {
                return Poll::Ready(None);
            }
            let Some(answers) = &mut self.answers else { return Poll::Ready(None) };
            let Poll::Ready(received) = answers.poll_recv(context) else { return Poll::Pending };
            if let Some(answer) = self.account(received) {
                return Poll::Ready(Some(answer));
            }
        }
    }

    /// The answers as a stream, to be awaited by any runtime. It ends when nothing is in flight; then a new one can be
    /// made. Giving up a wait, as `select!` does, loses no answer.
    pub fn stream(&mut self) -> Answers<'_> {
        Answers(self)
    }

    /// A file descriptor that is readable whenever [`try_next`](Reader::try_next) would return an answer: for
    /// `poll(2)`, `epoll(7)` and event loops built on them. It may be readable once too often: call `try_next` until it
    /// returns `None`.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` if no descriptor is left.
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        let Some(answers) = &self.answers else { return Err(thread_ended(reactor::THREAD)) };
        answers.ready_fd().map_err(|source| {
            Error::io("cannot make a descriptor to poll", source)
                .with_remedy("raise the limit of open files (ulimit -n)")
        })
    }

    /// Returns what arrived, unless its request was cancelled. `None`: the thread has ended.
    fn account(&mut self, received: Option<Answer>) -> Option<(u64, Result<Bytes>)> {
        let Some(Answer { id, number, bytes }) = received else {
            let mut lost: Vec<(u64, u64)> = self.asked.iter().map(|(&id, &number)| (number, id)).collect();
            lost.sort_unstable();
            self.lost = lost.into_iter().map(|(_, id)| id).collect();
            return self.next_lost();
        };
        if self.asked.get(&id) != Some(&number) {
            return None;
        }
        self.asked.remove(&id);
        Some((id, bytes))
    }

    /// The next request that will not be answered, and why.
    fn next_lost(&mut self) -> Option<(u64, Result<Bytes>)> {
        if let Some(error) = self.forked() {
            let id = *self.asked.keys().min()?;
            self.asked.remove(&id);
            return Some((id, Err(error)));
        }
        let id = self.lost.pop_front()?;
        self.asked.remove(&id);
        Some((id, Err(self.ended().unwrap_or_else(|| thread_ended(reactor::THREAD)))))
    }

    fn ended(&self) -> Option<Error> {
        self.ended_by.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forked(&self) -> Option<Error> {
        (self.process != std::process::id()).then(|| {
            let what = format!("a reader of process {} was used in a child that was forked from it", self.process);
            Error::new(ErrorKind::InvalidArgument, what).with_remedy("make a reader in the child")
        })
    }
}

/// The table of these files, with their sizes.
fn table(paths: &[impl AsRef<Path>]) -> Result<FileTable> {
    let (mut files, mut folder) = (FileTable::new(), None);
    for path in paths {
        let path = path.as_ref();
        let failed = |source| {
            let error = Error::io("cannot look at the file", source).with_path(path);
            error.with_remedy("check the path, and that this user may look into its folder")
        };
        let whole = std::path::absolute(path).map_err(failed)?;
        let metadata = whole.metadata().map_err(failed)?;
        let (Some(parent), Some(name)) = (whole.parent().filter(|_| metadata.is_file()), whole.file_name()) else {
            let error = Error::new(ErrorKind::WrongFileType, "this is no file").with_path(path);
            return Err(error.with_remedy("name files; a dataset of a folder is opened with dataset::open"));
        };
        if folder.as_deref() != Some(parent) {
            files.push_root(parent);
            folder = Some(parent.to_owned());
        }
        if files.push(name.as_encoded_bytes(), metadata.len()).is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, "these are more than 2^32 files")
                .with_remedy("make several readers"));
        }
    }
    Ok(files)
}

impl Iterator for Reader {
    type Item = (u64, Result<Bytes>);

    /// The next answer, waiting for it. `None` if nothing is in flight; more can be submitted then.
    fn next(&mut self) -> Option<(u64, Result<Bytes>)> {
        loop {
            if let Some(lost) = self.next_lost() {
                return Some(lost);
            }
            if self.asked.is_empty() {
                return None;
            }
            let received = self.answers.as_mut()?.recv();
            if let Some(answer) = self.account(received) {
                return Some(answer);
            }
        }
    }
}

impl futures_core::Stream for Answers<'_> {
    type Item = (u64, Result<Bytes>);

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_next(context)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("files", &self.files().len())
            .field("in_flight", &self.in_flight())
            .field("memory_limit", &self.memory_limit)
            .finish_non_exhaustive()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.forked().is_some() {
            // Locks that another thread held at the fork stay locked here forever.
            std::mem::forget((self.answers.take(), self.thread.take()));
            return;
        }
        // The thread notices that the receiver is gone, and ends.
        self.answers = None;
        join(self.thread.take().into_iter());
    }
}
