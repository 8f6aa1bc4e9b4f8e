//! The engine where io_uring is not to be had: threads that call `pread(2)`. Also the faster one for files in the page
//! cache, where a read is a copy and a second processor copies too.

use super::files::Files;
use super::{Done, Engine, Read};
use crate::dataset::FileId;
use crate::stats::{Clock, Doing, Role, Stats};
use crossbeam_queue::ArrayQueue;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A dataset of at most this many files has each opened once and kept open.
const FILES_KEPT_OPEN: usize = 256;

/// How long dropping the engine waits for a thread that is inside a read. Past that the thread is left to itself; it
/// owns what it reads into and ends when its read does.
const JOIN_BOUND: Duration = Duration::from_secs(5);

/// The reactor is woken once this many reads are done, or half of what is in flight: a wake-up costs as much as a read
/// of 64 KiB from the page cache.
const READS_A_TURN: usize = 32;

/// `pread` threads as an engine.
pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether the reactor reads too while it would wait, so that no processor is kept for waiting alone.
    helps: bool,
    /// The reactor's own last file.
    last: Option<(FileId, File)>,
    depth: usize,
    started: usize,
}

/// Reads go to the threads and back through two lock-free queues; the locks are only for those who sleep.
struct Shared {
    files: Arc<Files>,
    /// The dataset's files, where they are few; empty where each thread opens what it reads.
    kept: Vec<OnceLock<File>>,
    jobs: ArrayQueue<(Read, Instant)>,
    /// Threads that sleep for a job, or are about to.
    sleeping: AtomicUsize,
    closed: AtomicBool,
    jobs_gate: Mutex<()>,
    job_is_there: Condvar,
    done: ArrayQueue<Done>,
    /// How many results the reactor sleeps for; `AWAKE` while it does not.
    wanted: AtomicUsize,
    results_gate: Mutex<Woken>,
    result_is_there: Condvar,
}

/// Whether somebody used the waker since the last turn.
#[derive(Default)]
struct Woken(bool);

/// More results than there can be.
const AWAKE: usize = usize::MAX;

impl Threads {
    /// Starts `threads` threads that take up to `depth` reads. `helps`: the thread that turns the engine reads as well,
    /// which only suits reads that do not wait.
    ///
    /// # Errors
    /// `EAGAIN` where the system allows no more threads.
    pub(super) fn new(
        files: Arc<Files>,
        threads: usize,
        helps: bool,
        depth: usize,
        stats: &Arc<Stats>,
    ) -> io::Result<Threads> {
        let kept = if files.len() <= FILES_KEPT_OPEN.min(Files::open_at_once()) { files.len() } else { 0 };
        let shared = Arc::new(Shared {
            files,
            kept: (0..kept).map(|_| OnceLock::new()).collect(),
            jobs: ArrayQueue::new(depth),
            sleeping: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            jobs_gate: Mutex::default(),
            job_is_there: Condvar::new(),
            done: ArrayQueue::new(depth),
            wanted: AtomicUsize::new(AWAKE),
            results_gate: Mutex::default(),
            result_is_there: Condvar::new(),
        });
        let mut engine = Threads { shared, workers: Vec::new(), helps, last: None, depth, started: 0 };
        for _ in 0..threads.max(usize::from(!helps)) {
            let shared = Arc::clone(&engine.shared);
            let stats = Arc::clone(stats);
            let worker = std::thread::Builder::new().name("uringload-read".into());
            engine.workers.push(worker.spawn(move || shared.work(&stats))?);
        }
        Ok(engine)
    }
}

impl Threads {
    /// Reads on the calling thread until enough is done or nothing is left to start.
    fn help(&mut self, wanted: usize) {
        while self.shared.done.len() < wanted {
            let Some((mut read, start)) = self.shared.jobs.pop() else { return };
            let result = self.shared.read(&mut read, &mut self.last);
            self.shared.finish(read, start, result);
        }
    }
}

impl Engine for Threads {
    fn room(&self) -> usize {
        self.depth - self.started
    }

    fn in_flight(&self) -> usize {
        self.started
    }

    fn start(&mut self, read: Read) {
        assert!(self.room() > 0, "start without room");
        self.started += 1;
        // Never full: it holds as many as `room` allows.
        let _ = self.shared.jobs.push((read, Instant::now()));
        // Either this sees who is about to sleep, or the sleeper's second look sees the job: see `next_job`.
        fence(Ordering::SeqCst);
        if self.shared.sleeping.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.shared.jobs_gate));
            self.shared.job_is_there.notify_one();
        }
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let wanted = (self.started / 2).clamp(1, READS_A_TURN);
        if self.helps && wait.is_some() {
            self.help(wanted);
        }
        let shared = &*self.shared;
        let mut woken = lock(&shared.results_gate);
        if let Some(wait) = wait
            && !woken.0
        {
            shared.wanted.store(wanted, Ordering::Relaxed);
            // Either the thread that finishes sees `wanted`, or this second look sees its result: see `work`.
            fence(Ordering::SeqCst);
            let sleeps = |woken: &mut Woken| !woken.0 && shared.done.len() < wanted;
            let waited = shared.result_is_there.wait_timeout_while(woken, wait, sleeps);
            woken = waited.unwrap_or_else(PoisonError::into_inner).0;
            shared.wanted.store(AWAKE, Ordering::Relaxed);
        }
        woken.0 = false;
        drop(woken);
        while let Some(result) = shared.done.pop() {
            done.push(result);
            self.started -= 1;
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.shared).into()
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        lock(&self.results_gate).0 = true;
        self.result_is_there.notify_one();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.jobs_gate));
        self.shared.job_is_there.notify_all();
        let start = Instant::now();
        for worker in self.workers.drain(..) {
            while !worker.is_finished() && start.elapsed() < JOIN_BOUND {
                std::thread::sleep(Duration::from_micros(200));
            }
            if worker.is_finished() {
                // A worker that panicked has nothing left to clean up: its read was lost with it, and so was its batch.
                let _ = worker.join();
            }
        }
    }
}

impl Shared {
    fn work(&self, stats: &Arc<Stats>) {
        let mut clock = stats.clock(Role::Io, Doing::Idle);
        let mut last: Option<(FileId, File)> = None;
        while let Some((mut read, start)) = self.next_job(&mut clock) {
            let result = self.read(&mut read, &mut last);
            self.finish(read, start, result);
            fence(Ordering::SeqCst);
            if self.done.len() >= self.wanted.load(Ordering::Relaxed) {
                drop(lock(&self.results_gate));
                self.result_is_there.notify_one();
            }
        }
    }

    /// Hands a result over.
    fn finish(&self, read: Read, start: Instant, result: io::Result<usize>) {
        let done = Done { tag: read.tag, part: read.part, result, latency: start.elapsed() };
        // Never full: it holds as many as were started.
        let _ = self.done.push(done);
    }

    /// The next read; sleeps until there is one. `None`: the engine is being dropped.
    fn next_job(&self, clock: &mut Clock) -> Option<(Read, Instant)> {
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(job) = self.jobs.pop() {
                if clock.doing() != Doing::Read {
                    clock.switch(Doing::Read);
                }
                return Some(job);
            }
            clock.switch(Doing::Idle);
            self.sleeping.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let gate = lock(&self.jobs_gate);
            let sleeps = |_: &mut ()| self.jobs.is_empty() && !self.closed.load(Ordering::Relaxed);
            drop(self.job_is_there.wait_while(gate, sleeps));
            self.sleeping.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn read(&self, read: &mut Read, last: &mut Option<(FileId, File)>) -> io::Result<usize> {
        if let Some(kept) = self.kept.get(read.file.0 as usize) {
            let file = match kept.get() {
                Some(file) => file,
                None => {
                    let file = File::from(self.files.open(read.file)?);
                    kept.get_or_init(|| file)
                }
            };
            return file.read_at(read.part.as_mut(), read.offset);
        }
        if last.as_ref().is_none_or(|(file, _)| *file != read.file) {
            // Closed before the next is opened: a thread holds one descriptor.
            *last = None;
            *last = Some((read.file, File::from(self.files.open(read.file)?)));
        }
        match last {
            Some((_, file)) => file.read_at(read.part.as_mut(), read.offset),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
