//! Performs reads on threads, each of which blocks in one read at a time. How a thread reads is a type parameter.

use super::{Done, Engine, Read};
use crate::config::{Cause, Fallback};
use crate::dataset::FileId;
use crate::guard;
use crate::stats::{Clock, Doing, Role, Stats};
use crate::{Error, ErrorKind};
use crossbeam_queue::ArrayQueue;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long dropping the engine waits at most for a thread that is inside a read. After that, it leaves the thread
/// alone: the thread owns the memory that it reads into, and ends with its read.
const JOIN_BOUND: Duration = Duration::from_secs(5);

/// The reactor is woken once this many reads are done, or half of those in flight. A wake-up costs as much as a 64 KiB
/// read from the page cache.
const READS_A_TURN: usize = 32;

/// Minimum number of started reads, so that a thread that finishes finds its next read waiting, and that the reactor is
/// woken once for many reads.
const STARTED_LEAST: usize = 64;

/// Least number of reads that wait for threads, beside those that are performed: the results of a few turns of the
/// reactor, or half of what is performed. A thread that finds none sleeps; to wake it costs more than a request does.
const WAITING: usize = 4 * READS_A_TURN;

/// How many times the reads that are performed may be started.
pub(super) const STARTED_TIMES: usize = 3;

/// Number of reads to start if `reads` are performed at a time.
pub(super) fn started(reads: usize) -> usize {
    let waiting = WAITING.min((STARTED_TIMES - 1) * reads).max(reads / 2);
    STARTED_LEAST.max(reads + waiting)
}

/// How a thread reads.
pub(super) trait Reader: Send + Sync + 'static {
    /// State that a thread keeps from one read to the next, but drops when it sleeps in between.
    type Own: Default;

    /// Reads into the read's memory, from its start, and returns the number of bytes. It may return fewer than the
    /// memory's length at the end of the file, or at any other point. Sets `opening` while it opens a file.
    ///
    /// # Errors
    /// As in [`Done::result`].
    fn read(&self, read: &mut Read, own: &mut Self::Own, opening: &AtomicBool) -> io::Result<usize>;

    /// Whether it reads several pieces at once.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// As in [`Engine::said`].
    fn said(&self) -> Option<Fallback> {
        None
    }

    /// Ends the read with this tag soon, if a thread is inside it and it is one that can be ended.
    fn interrupt(&self, _tag: u64) {}

    /// As in [`Engine::lost`].
    fn lost(&self, file: FileId) -> Option<String>;

    /// As in [`Engine::renew`].
    fn renew(&self, file: FileId);
}

/// Threads that read with `R`.
pub(super) struct Threads<R: Reader> {
    shared: Arc<Shared<R>>,
    workers: Vec<Worker>,
    /// How many threads there may be, besides those that are stuck in abandoned reads.
    threads: usize,
    /// Whether the reactor also reads while it would otherwise wait, so that no processor only waits.
    helps: bool,
    /// The reactor's own state when it acts as a reading thread.
    own: R::Own,
    depth: usize,
    /// Number of reads that may be abandoned before they use up the depth.
    spare: usize,
    started: usize,
    /// Reads that threads still hold but no caller waits for.
    abandoned: Vec<u64>,
    /// Set if the system started fewer threads than wanted. Reported once.
    fewer: Option<Fallback>,
    has_told: bool,
    stats: Arc<Stats>,
    join_bound: Duration,
}

/// One reading thread and its current read.
struct Worker {
    thread: JoinHandle<()>,
    reading: Arc<Reading>,
}

/// What a thread is currently doing.
struct Reading {
    /// Tag of the current read, or [`NOTHING`] between reads.
    tag: AtomicU64,
    /// Whether it is still opening the file.
    opening: AtomicBool,
}

/// Not the tag of any read: the reactor numbers them from 0.
const NOTHING: u64 = u64::MAX;

/// Reads go to the threads and back through two lock-free queues. The locks serve only sleepers.
struct Shared<R> {
    reader: Arc<R>,
    jobs: ArrayQueue<(Read, Instant)>,
    /// Number of threads that read, and the maximum.
    reading: AtomicUsize,
    width: AtomicUsize,
    /// Number of threads that sleep waiting for a job, or are about to.
    sleeping: AtomicUsize,
    closed: AtomicBool,
    jobs_gate: Mutex<()>,
    job_is_there: Condvar,
    done: ArrayQueue<Done>,
    /// How many results the sleeping reactor waits for, or `AWAKE` while it does not sleep.
    wanted: AtomicUsize,
    results_gate: Mutex<Woken>,
    result_is_there: Condvar,
    /// Wakes the reactor where it sleeps in another engine.
    bell: OnceLock<Waker>,
}

/// Whether the waker was used since the last turn.
#[derive(Default)]
struct Woken(bool);

/// More results than there can ever be.
const AWAKE: usize = usize::MAX;

impl<R: Reader> Threads<R> {
    /// Creates the engine with up to `threads` threads, started when there is work for them. It accepts up to `depth`
    /// reads, and carries on while up to `spare` of them are abandoned. With `helps`, the thread that calls `turn`
    /// reads as well, which suits only reads that do not wait.
    ///
    /// # Errors
    /// `EAGAIN` if the system allows no thread at all and this one does not read.
    pub(super) fn new(
        reader: Arc<R>,
        threads: usize,
        helps: bool,
        (depth, spare): (usize, usize),
        stats: &Arc<Stats>,
    ) -> io::Result<Threads<R>> {
        let shared = Arc::new(Shared {
            reader,
            jobs: ArrayQueue::new(depth),
            reading: AtomicUsize::new(0),
            width: AtomicUsize::new(threads.max(1)),
            sleeping: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            jobs_gate: Mutex::default(),
            job_is_there: Condvar::new(),
            done: ArrayQueue::new(depth + spare),
            wanted: AtomicUsize::new(AWAKE),
            results_gate: Mutex::default(),
            result_is_there: Condvar::new(),
            bell: OnceLock::new(),
        });
        let mut engine = Threads {
            shared,
            workers: Vec::new(),
            threads: threads.max(usize::from(!helps)),
            helps,
            own: R::Own::default(),
            depth,
            spare,
            started: 0,
            abandoned: Vec::new(),
            fewer: None,
            has_told: false,
            stats: Arc::clone(stats),
            join_bound: JOIN_BOUND,
        };
        // Without `helps`, at least one thread must start.
        if !helps {
            engine.add_worker()?;
        }
        Ok(engine)
    }

    /// Limits the wait of dropping the engine to the time that a read may take.
    pub(super) fn joined_within(mut self, timeout: Option<Duration>) -> Threads<R> {
        self.join_bound = timeout.map_or(JOIN_BOUND, |timeout| timeout.min(JOIN_BOUND));
        self
    }

    /// Rings `bell` when results are there for a reactor that [`sleeps elsewhere`](Threads::may_sleep_elsewhere).
    pub(super) fn ringing(self, bell: Waker) -> Threads<R> {
        let _ = self.shared.bell.set(bell);
        self
    }

    /// Announces that the reactor sleeps in another engine. Returns false if there are results enough to stay awake.
    pub(super) fn may_sleep_elsewhere(&self) -> bool {
        let wanted = self.results_wanted();
        self.shared.wanted.store(wanted, Ordering::Relaxed);
        // Either the thread that finishes sees `wanted`, or this second check sees its result: see `work`.
        fence(Ordering::SeqCst);
        self.shared.done.len() < wanted
    }

    /// How many results are worth a wake-up.
    fn results_wanted(&self) -> usize {
        (self.started / 2).clamp(1, READS_A_TURN)
    }

    /// Starts another thread if there is work for one and none sleeps. If the system refuses, the existing ones carry
    /// on.
    fn grow(&mut self) {
        let wanted = self.threads.min(self.width()) + self.abandoned.len();
        let waiting = self.shared.jobs.len() > self.shared.sleeping.load(Ordering::Relaxed);
        if !waiting || self.workers.len() >= wanted {
            return;
        }
        if let Err(error) = self.add_worker() {
            let got = self.workers.len().saturating_sub(self.abandoned.len());
            let step =
                Fallback::new(Cause::Threads, format!("{got} of {} threads to read with", self.threads), Some(&error));
            // Trying again for each read would only cost time.
            self.threads = got;
            if !std::mem::replace(&mut self.has_told, true) {
                self.fewer = Some(step);
            }
        }
    }

    /// Lets this many threads read, besides those that are stuck in abandoned reads.
    fn set_width(&self, reads: usize) {
        self.shared.width.store(reads.max(1) + self.abandoned.len(), Ordering::SeqCst);
        drop(lock(&self.shared.jobs_gate));
        self.shared.job_is_there.notify_all();
    }

    fn width(&self) -> usize {
        self.shared.width.load(Ordering::Relaxed).saturating_sub(self.abandoned.len())
    }

    fn add_worker(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let stats = Arc::clone(&self.stats);
        let reading = Arc::new(Reading { tag: AtomicU64::new(NOTHING), opening: AtomicBool::new(false) });
        let told = Arc::clone(&reading);
        let thread = std::thread::Builder::new().name("uringload-read".into());
        let thread = thread.spawn(move || shared.work(&stats, &told))?;
        self.workers.push(Worker { thread, reading });
        Ok(())
    }

    /// Reads on the calling thread until enough results are ready or no read is left to start.
    fn help(&mut self, wanted: usize) {
        let opening = AtomicBool::new(false);
        while self.shared.done.len() < wanted {
            let Some((mut read, start)) = self.shared.jobs.pop() else { return };
            let result = self.shared.read(&mut read, &mut self.own, &opening);
            self.shared.finish(read, start, result);
        }
    }
}

impl<R: Reader> Engine for Threads<R> {
    fn room(&self) -> usize {
        (self.depth - self.started).min((self.depth + self.spare).saturating_sub(self.started + self.abandoned.len()))
    }

    fn in_flight(&self) -> usize {
        self.started
    }

    /// Only where reads are copies. A read that waits would delay those behind it in the bundle, and each read with a
    /// deadline needs to be separate.
    fn bundles(&self) -> bool {
        self.helps && self.shared.reader.takes_pieces()
    }

    fn start(&mut self, read: Read) {
        assert!(self.room() > 0, "start without room");
        self.started += 1;
        // Never full: it has the capacity that `room` allows.
        let _ = self.shared.jobs.push((read, Instant::now()));
        // Either this load sees the thread that is about to sleep, or that thread's second check sees the job: see
        // `next_job`.
        fence(Ordering::SeqCst);
        // Where as many read as may, one of these takes the job: a thread that is woken now would sleep again.
        if self.shared.sleeping.load(Ordering::Relaxed) > 0 && self.shared.may_read() {
            drop(lock(&self.shared.jobs_gate));
            self.shared.job_is_there.notify_one();
        }
        // Woken threads may not have taken a read yet, so the number of waiting reads decides.
        self.grow();
    }

    fn widen(&mut self, reads: usize) -> usize {
        self.set_width(reads);
        (0..self.shared.jobs.len()).for_each(|_| self.grow());
        started(reads).min(self.depth)
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let wanted = self.results_wanted();
        if self.helps && wait.is_some() {
            self.help(wanted);
        }
        let shared = &*self.shared;
        shared.wanted.store(AWAKE, Ordering::Relaxed);
        let mut woken = lock(&shared.results_gate);
        if let Some(wait) = wait
            && !woken.0
        {
            shared.wanted.store(wanted, Ordering::Relaxed);
            // Either the thread that finishes sees `wanted`, or this second check sees its result: see `work`.
            fence(Ordering::SeqCst);
            let sleeps = |woken: &mut Woken| !woken.0 && shared.done.len() < wanted;
            let waited = shared.result_is_there.wait_timeout_while(woken, wait, sleeps);
            woken = waited.unwrap_or_else(PoisonError::into_inner).0;
            shared.wanted.store(AWAKE, Ordering::Relaxed);
        }
        woken.0 = false;
        drop(woken);
        while let Some(result) = shared.done.pop() {
            match self.abandoned.iter().position(|&tag| tag == result.tag) {
                Some(late) => {
                    let width = self.width();
                    self.abandoned.swap_remove(late);
                    self.set_width(width);
                }
                None => self.started -= 1,
            }
            done.push(result);
        }
        Ok(())
    }

    /// A read that no thread has taken yet completes at once. A thread inside `pread(2)` cannot be interrupted.
    fn cancel(&mut self, tag: u64) -> bool {
        let mut found = false;
        for _ in 0..self.shared.jobs.len() {
            let Some((read, start)) = self.shared.jobs.pop() else { break };
            if read.tag == tag {
                found = true;
                self.shared.finish(read, start, Err(io::Error::from_raw_os_error(ECANCELED)));
            } else {
                // The others keep their order. Popping this one has left room for it.
                let _ = self.shared.jobs.push((read, start));
            }
        }
        if !found {
            self.shared.reader.interrupt(tag);
        }
        found
    }

    fn abandon(&mut self, tag: u64) {
        let width = self.width();
        self.started -= 1;
        self.abandoned.push(tag);
        self.set_width(width);
        // When it was cancelled, its thread may have been about to begin.
        self.shared.reader.interrupt(tag);
        // Replace the thread that is stuck in the read. If the system refuses a thread, the others carry on. If there
        // are no others, reads fail while they wait for one.
        let _ = self.add_worker();
    }

    fn stage(&self, tag: u64) -> &'static str {
        let reads = |worker: &&Worker| worker.reading.tag.load(Ordering::Relaxed) == tag;
        match self.workers.iter().find(reads) {
            Some(worker) if worker.reading.opening.load(Ordering::Relaxed) => "being opened",
            Some(_) => "being read",
            None => "waiting for a thread",
        }
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.shared).into()
    }

    fn said(&mut self) -> Option<Fallback> {
        self.fewer.take().or_else(|| self.shared.reader.said())
    }

    fn lost(&self, file: FileId) -> Option<String> {
        self.shared.reader.lost(file)
    }

    fn renew(&mut self, file: FileId) {
        self.shared.reader.renew(file);
    }
}

impl<R: Reader> Wake for Shared<R> {
    fn wake(self: Arc<Self>) {
        lock(&self.results_gate).0 = true;
        self.result_is_there.notify_one();
    }
}

impl<R: Reader> Drop for Threads<R> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.jobs_gate));
        self.shared.job_is_there.notify_all();
        let start = Instant::now();
        let interrupt = |reading: &Reading| self.shared.reader.interrupt(reading.tag.load(Ordering::Relaxed));
        self.workers.iter().for_each(|worker| interrupt(&worker.reading));
        for Worker { thread, reading } in self.workers.drain(..) {
            // Do not wait for a thread that is known to be stuck.
            let is_lost = || self.abandoned.contains(&reading.tag.load(Ordering::Relaxed));
            while !thread.is_finished() && !is_lost() && start.elapsed() < self.join_bound {
                std::thread::sleep(Duration::from_micros(200));
                // It may have been about to begin.
                interrupt(&reading);
            }
            if thread.is_finished() {
                // Its reads cannot have panicked, so there is nothing left to clean up.
                let _ = thread.join();
            }
        }
    }
}

impl<R: Reader> Shared<R> {
    fn work(&self, stats: &Arc<Stats>, reading: &Reading) {
        let mut clock = stats.clock(Role::Io, Doing::Idle);
        let (mut own, mut is_counted) = (R::Own::default(), false);
        while let Some((mut read, start)) = self.next_job(is_counted, &mut clock, &mut own) {
            is_counted = true;
            reading.tag.store(read.tag, Ordering::Relaxed);
            let result = self.read(&mut read, &mut own, &reading.opening);
            reading.tag.store(NOTHING, Ordering::Relaxed);
            self.finish(read, start, result);
            fence(Ordering::SeqCst);
            if self.done.len() >= self.wanted.load(Ordering::Relaxed) {
                self.ring();
            }
        }
    }

    /// Wakes the reactor, once where it sleeps in another engine.
    fn ring(&self) {
        match self.bell.get() {
            Some(bell) if self.wanted.swap(AWAKE, Ordering::Relaxed) != AWAKE => bell.wake_by_ref(),
            Some(_) => {}
            None => {
                drop(lock(&self.results_gate));
                self.result_is_there.notify_one();
            }
        }
    }

    /// Reads, and survives a panic of the reader: if the thread ended with its read, the reactor would wait for it
    /// forever.
    fn read(&self, read: &mut Read, own: &mut R::Own, opening: &AtomicBool) -> io::Result<usize> {
        // Unwind safe: the thread's state is dropped, and no code reads memory that no read reported.
        let result = catch_unwind(AssertUnwindSafe(|| self.reader.read(read, own, opening)));
        result.unwrap_or_else(|panic| {
            *own = R::Own::default();
            opening.store(false, Ordering::Relaxed);
            Err(io::Error::other(panicked(&*panic)))
        })
    }

    /// Hands a result to the reactor.
    fn finish(&self, read: Read, start: Instant, result: io::Result<usize>) {
        let (latency, Read { tag, part, pieces, .. }) = (start.elapsed(), read);
        let done = Done { tag, part, result, latency, pieces };
        // Never full: it has room for every started read.
        let _ = self.done.push(done);
    }

    /// Whether fewer threads read than may. A thread that is counted looks for a read once more when it is not any
    /// more.
    fn may_read(&self) -> bool {
        self.reading.load(Ordering::SeqCst) < self.width.load(Ordering::SeqCst)
    }

    /// The next read, if this thread may read now: one that `is_counted` among those that read, or another. A thread
    /// that ends a read calls this again, so a read that is left here finds a thread.
    fn take_job(&self, is_counted: bool) -> Option<(Read, Instant)> {
        let others = if is_counted {
            self.reading.load(Ordering::SeqCst) - 1
        } else {
            self.reading.fetch_add(1, Ordering::SeqCst)
        };
        if others < self.width.load(Ordering::SeqCst)
            && let Some(job) = self.jobs.pop()
        {
            return Some(job);
        }
        self.reading.fetch_sub(1, Ordering::SeqCst);
        None
    }

    /// The next read, sleeping until there is one. `None` means that the engine is being dropped. A thread that sleeps
    /// keeps nothing open: there may be hundreds, and few descriptors. One that `is_counted` among those that read has
    /// just ended a read.
    fn next_job(&self, mut is_counted: bool, clock: &mut Clock, own: &mut R::Own) -> Option<(Read, Instant)> {
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(job) = self.take_job(std::mem::take(&mut is_counted)) {
                if clock.doing() != Doing::Read {
                    clock.switch(Doing::Read);
                }
                return Some(job);
            }
            clock.switch(Doing::Idle);
            *own = R::Own::default();
            self.sleeping.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let gate = lock(&self.jobs_gate);
            let sleeps =
                |_: &mut ()| (self.jobs.is_empty() || !self.may_read()) && !self.closed.load(Ordering::Relaxed);
            drop(self.job_is_there.wait_while(gate, sleeps));
            self.sleeping.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

const ECANCELED: i32 = 125;

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::new(ErrorKind::Internal, format!("reading panicked: {}", guard::text(panic)))
        .with_remedy("this is a bug of uringload: please report it with the message that the thread printed")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringload_sys::Arena;

    /// Only a hang takes as long.
    const HANG: Duration = Duration::from_secs(120);

    /// Panics at the first read of every thread and then reads zeros.
    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Reader for Panics {
        type Own = ();

        fn read(&self, read: &mut Read, (): &mut (), _: &AtomicBool) -> io::Result<usize> {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) >= 2, "made up");
            Ok(read.part.len())
        }

        fn lost(&self, _: FileId) -> Option<String> {
            None
        }

        fn renew(&self, _: FileId) {}
    }

    #[test]
    fn a_panic_is_an_error_of_its_read_and_the_thread_goes_on() {
        let stats = Arc::new(Stats::new());
        let (_arena, mut whole) = Arena::reserve(1 << 20).unwrap();
        for helps in [false, true] {
            let mut engine =
                Threads::new(Arc::new(Panics::default()), usize::from(!helps), helps, (8, 0), &stats).unwrap();
            for tag in 0..4 {
                engine.start(Read { tag, file: FileId(0), offset: 0, part: whole.split_to(4096), pieces: Vec::new() });
            }
            let (mut done, start) = (Vec::new(), Instant::now());
            while done.len() < 4 {
                assert!(start.elapsed() < HANG, "it hangs with {} of 4", done.len());
                engine.turn(Some(Duration::from_millis(100)), &mut done).unwrap();
            }
            let errors: Vec<String> =
                done.iter().filter_map(|done| Some(done.result.as_ref().err()?.to_string())).collect();
            assert_eq!(errors.len(), 2, "{errors:?}");
            assert!(errors[0].contains("reading panicked: made up"), "{errors:?}");
        }
    }

    /// Ends no read before `seen` reads are in progress, and keeps something open from one to the next.
    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
        wanted: AtomicUsize,
        open: Arc<AtomicUsize>,
    }

    struct Open(Arc<AtomicUsize>);

    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Reader for Slow {
        type Own = Option<Open>;

        fn read(&self, read: &mut Read, own: &mut Option<Open>, _: &AtomicBool) -> io::Result<usize> {
            own.get_or_insert_with(|| {
                self.open.fetch_add(1, Ordering::SeqCst);
                Open(Arc::clone(&self.open))
            });
            self.most.fetch_max(1 + self.now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            while self.most.load(Ordering::SeqCst) < self.wanted.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // One read too many would be detected here.
            std::thread::sleep(Duration::from_millis(1));
            self.now.fetch_sub(1, Ordering::SeqCst);
            Ok(read.part.len())
        }

        fn lost(&self, _: FileId) -> Option<String> {
            None
        }

        fn renew(&self, _: FileId) {}
    }

    #[test]
    fn threads_come_as_they_are_needed_and_keep_nothing_open_while_they_sleep() {
        let (_arena, mut whole) = Arena::reserve(1 << 20).unwrap();
        let slow = Arc::new(Slow::default());
        let mut engine = Threads::new(Arc::clone(&slow), 32, false, (64, 0), &Arc::new(Stats::new())).unwrap();
        assert_eq!(engine.workers.len(), 1);
        // Up and down again: threads that were started stay, but do not read.
        for width in [4, 32, 2] {
            assert_eq!(engine.widen(width), 64);
            slow.most.store(0, Ordering::SeqCst);
            slow.wanted.store(width, Ordering::SeqCst);
            for tag in 0..64 {
                engine.start(Read { tag, file: FileId(0), offset: 0, part: whole.split_to(512), pieces: Vec::new() });
            }
            let (mut done, start) = (Vec::new(), Instant::now());
            while done.len() < 64 {
                assert!(start.elapsed() < HANG, "it hangs with {} of 64", done.len());
                engine.turn(Some(Duration::from_millis(100)), &mut done).unwrap();
            }
            let seen = slow.most.load(Ordering::SeqCst);
            assert_eq!(seen, width, "at a time");
        }
        assert!(engine.workers.len() <= 32, "{}", engine.workers.len());
        let start = Instant::now();
        while slow.open.load(Ordering::SeqCst) > 0 {
            assert!(start.elapsed() < HANG, "{} kept open", slow.open.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
