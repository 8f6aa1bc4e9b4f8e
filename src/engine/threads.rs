//! The engine where io_uring is not to be had: threads that call `pread(2)`. Also the faster one for files in the page
//! cache, where a read is a copy and a second processor copies too.

use super::files::Files;
use super::{Done, Engine, Read};
use crate::dataset::FileId;
use crate::stats::{Doing, Role, Stats};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A dataset of at most this many files has each opened once and kept open.
const FILES_KEPT_OPEN: usize = 256;

/// How long dropping the engine waits for a thread that is inside a read. Past that the thread is left to itself; it
/// owns what it reads into and ends when its read does.
const JOIN_BOUND: Duration = Duration::from_secs(5);

/// The reactor is woken once this many reads are done, or a quarter of what is in flight.
const READS_A_TURN: usize = 16;

/// `pread` threads as an engine.
pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    depth: usize,
    started: usize,
}

struct Shared {
    files: Arc<Files>,
    /// The dataset's files, where they are few; empty where each thread opens what it reads.
    kept: Vec<OnceLock<File>>,
    jobs: Mutex<Jobs>,
    job_is_there: Condvar,
    results: Mutex<Results>,
    result_is_there: Condvar,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<(Read, Instant)>,
    sleeping: usize,
    closed: bool,
}

#[derive(Default)]
struct Results {
    done: Vec<Done>,
    /// How many the reactor sleeps for; 0 while it is awake.
    wanted: usize,
    woken: bool,
}

impl Threads {
    /// Starts `threads` threads that take up to `depth` reads.
    ///
    /// # Errors
    /// `EAGAIN` where the system allows no more threads.
    pub(super) fn new(files: Arc<Files>, threads: usize, depth: usize, stats: &Arc<Stats>) -> io::Result<Threads> {
        let kept = if files.len() <= FILES_KEPT_OPEN.min(Files::open_at_once()) { files.len() } else { 0 };
        let shared = Arc::new(Shared {
            files,
            kept: (0..kept).map(|_| OnceLock::new()).collect(),
            jobs: Mutex::default(),
            job_is_there: Condvar::new(),
            results: Mutex::default(),
            result_is_there: Condvar::new(),
        });
        let mut engine = Threads { shared, workers: Vec::new(), depth, started: 0 };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&engine.shared);
            let stats = Arc::clone(stats);
            let worker = std::thread::Builder::new().name("uringload-read".into());
            engine.workers.push(worker.spawn(move || shared.work(&stats))?);
        }
        Ok(engine)
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
        let mut jobs = lock(&self.shared.jobs);
        jobs.queue.push_back((read, Instant::now()));
        if jobs.sleeping > 0 {
            self.shared.job_is_there.notify_one();
        }
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        let wanted = (self.started / 4).clamp(1, READS_A_TURN);
        let mut results = lock(&self.shared.results);
        if let Some(wait) = wait
            && !results.woken
            && results.done.len() < wanted
        {
            results.wanted = wanted;
            let enough = |results: &mut Results| !results.woken && results.done.len() < results.wanted;
            let waited = self.shared.result_is_there.wait_timeout_while(results, wait, enough);
            results = waited.unwrap_or_else(PoisonError::into_inner).0;
            results.wanted = 0;
        }
        results.woken = false;
        done.append(&mut results.done);
        self.started -= done.len() - before;
        Ok(())
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.shared).into()
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        lock(&self.results).woken = true;
        self.result_is_there.notify_all();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        {
            let mut jobs = lock(&self.shared.jobs);
            jobs.closed = true;
            jobs.queue.clear();
        }
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
        while let Some((mut read, start)) = self.next_job() {
            clock.switch(Doing::Read);
            let result = self.read(&mut read, &mut last);
            let done = Done { tag: read.tag, part: read.part, result, latency: start.elapsed() };
            clock.switch(Doing::Idle);
            let mut results = lock(&self.results);
            results.done.push(done);
            let enough = results.wanted > 0 && results.done.len() >= results.wanted;
            drop(results);
            if enough {
                self.result_is_there.notify_one();
            }
        }
    }

    fn next_job(&self) -> Option<(Read, Instant)> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.closed {
                return None;
            }
            if let Some(job) = jobs.queue.pop_front() {
                return Some(job);
            }
            jobs.sleeping += 1;
            jobs = self.job_is_there.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.sleeping -= 1;
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
