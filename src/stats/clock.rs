//! Where a thread's time goes: a clock that always charges exactly one activity.

use super::trace::Lane;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};
use uringload_sys::schedule::{self, Scheduled};

/// What a thread does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Doing {
    /// Reactor: computes which reads make the next batch.
    Plan,
    /// Reactor: hands reads to the engine and takes what is done.
    Submit,
    /// Reactor: waits for the storage, with as many reads in flight as allowed or available.
    WaitStorage,
    /// Reactor: takes memory from the system, once for each byte that is ever used.
    TakeMemory,
    /// Reactor: waits for memory that batches still hold.
    WaitMemory,
    /// Reactor: waits for room in the queue, because the consumer has not taken what is ready.
    WaitConsumer,
    /// Reactor: waits for units to be decoded.
    WaitStage,
    /// Device: waits for copies in progress.
    WaitDevice,
    /// Reactor: makes batches of what was read.
    Assemble,
    /// An I/O thread: in a blocking read.
    Read,
    /// Any thread: copies bytes from place to place.
    Copy,
    /// A stage thread, or else the consumer or the reactor: decodes or transforms samples.
    Decode,
    /// A stage or transform thread: waits for something to do.
    WaitInput,
    /// Any thread: has nothing to do and waits for nothing in particular.
    Idle,
    /// Consumer: waits for a batch.
    WaitBatch,
    /// Consumer: its own work, from getting a batch to asking for the next.
    Step,
    /// A transform thread: in the user's transform of samples or batches.
    Transform,
    /// A transform thread: makes a batch of transformed samples.
    Collate,
}

impl Doing {
    /// Every activity, in the order of `as usize`.
    pub const ALL: [Doing; 18] = [
        Doing::Plan,
        Doing::Submit,
        Doing::WaitStorage,
        Doing::TakeMemory,
        Doing::WaitMemory,
        Doing::WaitConsumer,
        Doing::WaitStage,
        Doing::WaitDevice,
        Doing::Assemble,
        Doing::Read,
        Doing::Copy,
        Doing::Decode,
        Doing::WaitInput,
        Doing::Idle,
        Doing::WaitBatch,
        Doing::Step,
        Doing::Transform,
        Doing::Collate,
    ];

    /// Its name, for people and reports.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Plan => "plan",
            Doing::Submit => "submit",
            Doing::WaitStorage => "wait for storage",
            Doing::TakeMemory => "take memory",
            Doing::WaitMemory => "wait for memory",
            Doing::WaitConsumer => "wait for consumer",
            Doing::WaitStage => "wait for stage",
            Doing::WaitDevice => "wait for device",
            Doing::Assemble => "assemble",
            Doing::Read => "read",
            Doing::Copy => "copy",
            Doing::Decode => "decode",
            Doing::WaitInput => "wait for input",
            Doing::Idle => "idle",
            Doing::WaitBatch => "wait for batch",
            Doing::Step => "step",
            Doing::Transform => "transform",
            Doing::Collate => "collate",
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Asks for batches: the user's own thread.
    Consumer,
    /// Decodes or transforms samples.
    Stage,
    /// Decides about reads.
    Reactor,
    /// Feeds the devices.
    Device,
    /// Reads, in the `threads` engine.
    Io,
    /// Runs the user's own code on samples, behind the loader.
    Transform,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 6] = [Role::Consumer, Role::Stage, Role::Reactor, Role::Device, Role::Io, Role::Transform];

    /// Its name, for people and reports.
    pub fn name(self) -> &'static str {
        match self {
            Role::Consumer => "consumer",
            Role::Stage => "stage",
            Role::Reactor => "reactor",
            Role::Device => "device",
            Role::Io => "io",
            Role::Transform => "transform",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One thread's clock. It belongs to the thread (or to the one consumer, on any thread); any thread can read its
/// charges at any time.
///
/// A switch reads the monotonic clock and stores two or three words that no other thread writes: about 40 ns, no lock.
#[derive(Debug)]
pub struct Clock {
    times: Arc<ThreadTimes>,
    doing: Doing,
    since: Instant,
    /// Where each switch is recorded, if there is a trace.
    lane: Option<Arc<Lane>>,
}

impl Clock {
    pub(super) fn start(times: Arc<ThreadTimes>, doing: Doing, lane: Option<Arc<Lane>>) -> Clock {
        let since = Instant::now();
        times.charge(None, doing, nanos(since - times.epoch));
        if let Some(lane) = &lane {
            lane.doing(doing, since);
        }
        Clock { times, doing, since, lane }
    }

    /// Charges the time since the last switch to the previous activity, and from now on to `doing`. Returns the time,
    /// so that callers need not read it again.
    pub fn switch(&mut self, doing: Doing) -> Instant {
        let now = Instant::now();
        let spent = nanos(now.saturating_duration_since(self.since));
        let now_nanos = nanos(now.saturating_duration_since(self.times.epoch));
        self.times.charge(Some((self.doing, spent)), doing, now_nanos);
        if let Some(lane) = self.lane.as_ref().filter(|_| self.doing != doing) {
            lane.doing(doing, now);
        }
        self.doing = doing;
        self.since = now;
        now
    }

    /// Records in the trace that the consumer got the batch of this number.
    pub(crate) fn batch(&self, number: u64) {
        if let Some(lane) = &self.lane {
            lane.batch(number, self.since);
        }
    }

    /// Records in the trace how many batches are ready for the consumer.
    pub(crate) fn ready(&self, batches: usize) {
        if let Some(lane) = &self.lane {
            lane.ready(batches, self.since);
        }
    }

    /// What is charged now.
    pub fn doing(&self) -> Doing {
        self.doing
    }

    /// When the last switch was.
    pub fn since(&self) -> Instant {
        self.since
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let now = self.switch(Doing::Idle);
        if let Some(lane) = &self.lane {
            lane.ended(now);
        }
        // The thread certainly exists only if it is this one; another thread may drop a clock.
        if schedule::thread_id() == self.times.thread {
            self.times.keep_schedule();
        }
        self.times.ended.store(true, Ordering::Release);
    }
}

/// What one clock has charged. One thread writes, under a sequence number (a seqlock of atomics: no torn reads, and no
/// undefined ones), so a reader never stops the writer.
#[derive(Debug)]
pub(super) struct ThreadTimes {
    role: Role,
    epoch: Instant,
    /// Odd while the words below change.
    sequence: AtomicU32,
    doing: AtomicU8,
    /// Nanoseconds from `epoch` to the last switch.
    since: AtomicU64,
    spent: [AtomicU64; Doing::ALL.len()],
    /// The thread that the clock was started on.
    thread: u32,
    /// The thread's counts at the start: the consumer's thread may be as old as the process.
    before: Option<Scheduled>,
    /// Nanoseconds that an ended thread ran and was queued; `UNKNOWN` if they were not counted.
    used: AtomicU64,
    queued: AtomicU64,
    ended: AtomicBool,
}

/// In place of nanoseconds.
const UNKNOWN: u64 = u64::MAX;

/// After this many tries that each met a writer, a reader takes what it has, which is wrong by one switch at most.
const READ_TRIES: usize = 64;

impl ThreadTimes {
    pub(super) fn new(role: Role, epoch: Instant) -> ThreadTimes {
        let thread = schedule::thread_id();
        ThreadTimes {
            role,
            epoch,
            sequence: AtomicU32::new(0),
            doing: AtomicU8::new(Doing::Idle as u8),
            since: AtomicU64::new(0),
            spent: [const { AtomicU64::new(0) }; Doing::ALL.len()],
            thread,
            before: schedule::thread(thread),
            used: AtomicU64::new(UNKNOWN),
            queued: AtomicU64::new(UNKNOWN),
            ended: AtomicBool::new(false),
        }
    }

    fn charge(&self, spent: Option<(Doing, u64)>, doing: Doing, now: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        if let Some((before, nanos)) = spent {
            // One writer: a load and a store need no read-modify-write.
            let word = &self.spent[before as usize];
            word.store(word.load(Ordering::Relaxed) + nanos, Ordering::Relaxed);
        }
        self.doing.store(doing as u8, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    pub(super) fn snapshot(&self) -> ThreadSnapshot {
        let ended = self.ended.load(Ordering::Acquire);
        let (role, spent) = self.spent_now();
        ThreadSnapshot { role, spent, scheduled: self.scheduled(ended) }
    }

    /// What it has spent its time on until now.
    pub(super) fn spent_now(&self) -> (Role, [Duration; Doing::ALL.len()]) {
        let ended = self.ended.load(Ordering::Acquire);
        let mut spent = [Duration::ZERO; Doing::ALL.len()];
        for _ in 0..READ_TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            for (nanos, word) in spent.iter_mut().zip(&self.spent) {
                *nanos = Duration::from_nanos(word.load(Ordering::Relaxed));
            }
            let doing = usize::from(self.doing.load(Ordering::Relaxed));
            let since = self.since.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if !ended {
                // The current activity counts up to now.
                let open = nanos(self.epoch.elapsed()).saturating_sub(since);
                spent[doing] += Duration::from_nanos(open);
            }
            if before.is_multiple_of(2) && before == self.sequence.load(Ordering::Relaxed) {
                break;
            }
            std::hint::spin_loop();
        }
        (self.role, spent)
    }

    /// Reads a file of `/proc`, some 5 us, unless the thread has ended.
    fn scheduled(&self, ended: bool) -> Option<Scheduled> {
        if !ended {
            return schedule::thread(self.thread).map(|now| since(now, self.before));
        }
        let known = |word: &AtomicU64| Some(word.load(Ordering::Relaxed)).filter(|&nanos| nanos != UNKNOWN);
        let queued = known(&self.queued).map(Duration::from_nanos);
        Some(Scheduled { used: Duration::from_nanos(known(&self.used)?), queued })
    }

    /// Keeps the thread's counts, because its file goes away with it.
    fn keep_schedule(&self) {
        let now = schedule::thread(self.thread).map(|now| since(now, self.before));
        if let Some(Scheduled { used, queued, .. }) = now {
            self.used.store(nanos(used), Ordering::Relaxed);
            self.queued.store(queued.map_or(UNKNOWN, nanos), Ordering::Relaxed);
        }
    }
}

/// What one thread has spent its time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSnapshot {
    /// What the thread is for.
    pub role: Role,
    /// Time by activity, in the order of [`Doing::ALL`].
    pub spent: [Duration; Doing::ALL.len()],
    /// Processor time that the thread got; `None` if it is not available.
    pub scheduled: Option<Scheduled>,
}

impl ThreadSnapshot {
    /// Time spent on one activity.
    pub fn on(&self, doing: Doing) -> Duration {
        self.spent[doing as usize]
    }

    /// Time that the thread has lived.
    pub fn total(&self) -> Duration {
        self.spent.iter().sum()
    }

    pub(super) fn since(&self, earlier: Option<&ThreadSnapshot>) -> ThreadSnapshot {
        let mut spent = self.spent;
        for (time, before) in spent.iter_mut().zip(earlier.map_or(&[][..], |e| &e.spent)) {
            *time = time.saturating_sub(*before);
        }
        let scheduled = self.scheduled.map(|now| since(now, earlier.and_then(|earlier| earlier.scheduled)));
        ThreadSnapshot { role: self.role, spent, scheduled }
    }
}

/// What a thread got since `before`. A thread that has just begun has no count of its queueing yet.
fn since(now: Scheduled, before: Option<Scheduled>) -> Scheduled {
    let before = before.unwrap_or_default();
    Scheduled {
        used: now.used.saturating_sub(before.used),
        queued: now.queued.map(|queued| queued.saturating_sub(before.queued.unwrap_or_default())),
    }
}

fn nanos(duration: Duration) -> u64 {
    // 2^64 ns are 584 years.
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> (Arc<ThreadTimes>, Clock) {
        let times = Arc::new(ThreadTimes::new(Role::Reactor, Instant::now()));
        (Arc::clone(&times), Clock::start(times, Doing::Plan, None))
    }

    #[test]
    fn what_a_thread_did_before_its_clock_does_not_count() {
        std::thread::spawn(|| {
            let now = || schedule::thread(schedule::thread_id());
            let mut sum = 0_u64;
            while now().is_some_and(|now| now.used < Duration::from_millis(50)) {
                sum = std::hint::black_box(sum + 1);
            }
            let Some(before) = now() else { return };
            let seen = ThreadTimes::new(Role::Consumer, Instant::now()).snapshot().scheduled.expect("reported");
            // What came between the two measurements, however busy the machine was, and nothing before.
            let between = since(now().expect("as before"), Some(before));
            assert!(seen.used <= between.used, "{seen:?} of {between:?} behind {before:?}");
            assert!(seen.queued <= between.queued, "{seen:?} of {between:?} behind {before:?}");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn activities_are_numbered_in_the_order_of_all() {
        for (index, doing) in Doing::ALL.into_iter().enumerate() {
            assert_eq!(doing as usize, index);
        }
    }

    #[test]
    fn every_moment_is_charged_once() {
        let (times, mut clock) = clock();
        let start = clock.since();
        std::thread::sleep(Duration::from_millis(5));
        clock.switch(Doing::WaitStorage);
        std::thread::sleep(Duration::from_millis(5));
        let open = times.snapshot();
        assert!(open.on(Doing::WaitStorage) >= Duration::from_millis(5), "what is under way counts");
        let end = clock.switch(Doing::Plan);
        let seen = times.snapshot();
        assert_eq!(seen.on(Doing::WaitStorage) + seen.on(Doing::Plan), seen.total());
        assert!(seen.total() >= end - start && seen.on(Doing::Plan) >= Duration::from_millis(5));
    }

    /// Clocks of virtual machines have gone back. Then a moment lasted no time, and nothing overflows.
    #[test]
    fn a_clock_that_goes_back_charges_nothing() {
        let (times, mut clock) = clock();
        clock.since += Duration::from_secs(3600);
        clock.switch(Doing::Read);
        assert_eq!(times.snapshot().on(Doing::Plan), Duration::ZERO);
        let ahead = Arc::new(ThreadTimes::new(Role::Io, Instant::now() + Duration::from_secs(3600)));
        let mut clock = Clock::start(Arc::clone(&ahead), Doing::Plan, None);
        clock.switch(Doing::Read);
        assert!(ahead.snapshot().total() < Duration::from_secs(60), "{:?}", ahead.snapshot());
    }

    #[test]
    fn an_ended_thread_costs_no_more_time() {
        let (times, clock) = clock();
        drop(clock);
        let first = times.snapshot();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(times.snapshot(), first);
    }

    /// Two snapshots by one reader never go back, and a difference never exceeds the time between them.
    #[test]
    fn snapshots_are_whole_while_the_writer_runs() {
        let start = Instant::now();
        let (times, mut clock) = clock();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            // From before a switch to behind the next one, which takes longest where the thread loses its processor.
            let (mut longest, mut last) = (Duration::ZERO, [Instant::now(); 2]);
            while !stopped.load(Ordering::Relaxed) {
                for doing in Doing::ALL {
                    last = [last[1], Instant::now()];
                    clock.switch(doing);
                    longest = longest.max(last[0].elapsed());
                }
            }
            longest
        });
        // A snapshot, and how long it took: the current activity is charged up to a moment after the words were read.
        let look = || {
            let asked = Instant::now();
            let seen = times.snapshot();
            (seen, asked.elapsed())
        };
        let ((mut before, mut moment), mut back) = (look(), Duration::ZERO);
        for _ in 0..20_000 {
            let (now, took) = look();
            for doing in Doing::ALL {
                back = back.max(before.on(doing).saturating_sub(now.on(doing) + moment));
            }
            (before, moment) = (now, took);
        }
        stop.store(true, Ordering::Relaxed);
        let switch = writer.join().unwrap();
        assert!(back <= switch, "it goes back by {back:?}, which is more than one switch: {switch:?}");
        assert!(times.snapshot().total() <= start.elapsed());
    }
}
