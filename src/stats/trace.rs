//! Writes what every thread did when to a file in Chrome's JSON, while it happens. A thread puts events into a ring of
//! its own, and one thread writes them.

mod chrome;

use super::clock::{Doing, Role};
use crate::{Error, Result};
use chrome::Chrome;
use crossbeam_queue::ArrayQueue;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uringload_sys::schedule;
use uringload_sys::system;

/// Events that a thread may record until they are written: 20 ms of a million a second. Further events are lost, and
/// counted.
const EVENTS: usize = 1 << 15;

/// How often they are written. Events of a killed process since then are lost.
const PERIOD: Duration = Duration::from_millis(20);

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Something that happened on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Nanoseconds since the start of the trace.
    at: u64,
    what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The thread does this from now on.
    Doing(Doing),
    /// The activity is over.
    Ended,
    /// A device computes for the loader from now on.
    Kernels,
    /// Number of reads in flight.
    InFlight(u32),
    /// Number of batches that are ready.
    Ready(u32),
    /// The consumer got the batch of this number.
    Batch(u32),
}

/// The name of [`What::Kernels`].
const KERNELS: &str = "kernels";

/// A sequence of events: those of a thread, or of a device. Any thread may record them.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u32,
    name: String,
    /// `None` if it belongs to no thread.
    thread: Option<u32>,
    start: Instant,
    events: ArrayQueue<Event>,
    lost: AtomicU64,
}

impl Lane {
    /// Records an event: some 20 ns, no lock.
    fn leave(&self, now: Instant, what: What) {
        let event = Event { at: now.saturating_duration_since(self.start).as_nanos() as u64, what };
        if self.events.push(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn doing(&self, doing: Doing, now: Instant) {
        self.leave(now, What::Doing(doing));
    }

    pub(super) fn ended(&self, now: Instant) {
        self.leave(now, What::Ended);
    }

    pub(super) fn in_flight(&self, reads: usize, now: Instant) {
        self.leave(now, What::InFlight(u32::try_from(reads).unwrap_or(u32::MAX)));
    }

    pub(crate) fn batch(&self, number: u64, now: Instant) {
        self.leave(now, What::Batch(number as u32));
    }

    pub(super) fn ready(&self, batches: usize, now: Instant) {
        self.leave(now, What::Ready(u32::try_from(batches).unwrap_or(u32::MAX)));
    }

    /// A device's: it copied, or computed, in this interval.
    pub(crate) fn worked(&self, is_copy: bool, (begin, end): (Instant, Instant)) {
        self.leave(begin, if is_copy { What::Doing(Doing::Copy) } else { What::Kernels });
        self.leave(end, What::Ended);
    }
}

/// A trace that is being written. Dropping it writes the rest.
#[derive(Debug)]
pub(crate) struct Tracer {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
    path: PathBuf,
    /// The process that the writer runs in.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    lanes: Mutex<Vec<Arc<Lane>>>,
    is_over: AtomicBool,
}

impl Tracer {
    /// Begins a trace. It replaces an old file of that name.
    ///
    /// # Errors
    /// That the file or the thread that writes it cannot be made.
    pub(crate) fn begin(path: &Path) -> Result<Tracer> {
        let failed = |source| Error::io("cannot write the trace", source).with_path(path);
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path).map_err(failed)?);
        let start = Instant::now();
        // The clock of Perfetto, which goes on while the machine sleeps.
        let form = Chrome::new(system::time_since_boot().as_nanos() as u64);
        let shared = Arc::new(Shared { start, lanes: Mutex::default(), is_over: AtomicBool::new(false) });
        let writing = Writing { shared: Arc::clone(&shared), form, file, told: 0, bytes: Vec::new() };
        let writer =
            std::thread::Builder::new().name("uringload-trace".into()).spawn(|| writing.run()).map_err(failed)?;
        let writer = Mutex::new(Some(writer));
        Ok(Tracer { shared, writer, path: path.to_path_buf(), process: std::process::id() })
    }

    /// A lane for a thread of this role: the calling thread.
    pub(crate) fn lane(&self, role: Role) -> Arc<Lane> {
        self.add(role.name().to_owned(), Some(schedule::thread_id()))
    }

    /// A lane for events that belong to no thread.
    pub(crate) fn beside(&self, name: String) -> Arc<Lane> {
        self.add(name, None)
    }

    /// Writes the rest and ends the trace. A second call does nothing.
    ///
    /// # Errors
    /// Why the file is incomplete.
    pub(crate) fn end(&self) -> Result<()> {
        self.shared.is_over.store(true, Ordering::Release);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A forked child does not have this thread.
        let Some(writer) = writer.filter(|_| self.process == std::process::id()) else { return Ok(()) };
        writer.thread().unpark();
        let written = writer.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        written.map_err(|source| {
            Error::io("the trace ends before the loader did", source)
                .with_path(&self.path)
                .with_remedy("make room on its disk, or trace to another")
        })
    }

    fn add(&self, name: String, thread: Option<u32>) -> Arc<Lane> {
        let mut lanes = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = Arc::new(Lane {
            number: lanes.len() as u32 + 1,
            name,
            thread,
            start: self.shared.start,
            events: ArrayQueue::new(EVENTS),
            lost: AtomicU64::new(0),
        });
        lanes.push(Arc::clone(&lane));
        lane
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // A caller that wants the error has called `end` itself.
        let _ = self.end();
    }
}

struct Writing {
    shared: Arc<Shared>,
    form: Chrome,
    file: BufWriter<File>,
    /// Lanes that the file already describes.
    told: usize,
    bytes: Vec<u8>,
}

impl Writing {
    /// A full disk ends the trace but not the training; the file keeps what was written.
    fn run(mut self) -> io::Result<()> {
        loop {
            let is_over = self.shared.is_over.load(Ordering::Acquire);
            self.write()?;
            if is_over {
                self.file.write_all(self.form.end_of_array().as_bytes())?;
                return self.file.flush();
            }
            std::thread::park_timeout(PERIOD);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let lanes = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for lane in &lanes[self.told..] {
            self.form.lane(lane, &mut self.bytes);
        }
        self.told = lanes.len();
        for lane in &lanes {
            // No more than there were: a thread that is faster than this one must not keep it here.
            for _ in 0..lane.events.len() {
                let Some(event) = lane.events.pop() else { break };
                self.form.event(lane, event, &mut self.bytes);
            }
            let lost = lane.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.form.lost(lane, lost, &mut self.bytes);
            }
        }
        self.file.write_all(&self.bytes)?;
        self.bytes.clear();
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let tracer = Tracer::begin(&path).unwrap();
        let (reactor, consumer) = (tracer.lane(Role::Reactor), tracer.lane(Role::Consumer));
        let device = tracer.beside("cuda:0 copies".into());
        for number in 0..events {
            let doing = [Doing::Plan, Doing::Submit, Doing::WaitStorage][number as usize % 3];
            reactor.doing(doing, Instant::now());
            reactor.in_flight(number as usize, Instant::now());
            consumer.batch(number, Instant::now());
            consumer.ready(number as usize % 5, Instant::now());
            let begin = Instant::now();
            device.worked(number % 2 == 0, (begin, begin + Duration::from_nanos(10)));
        }
        reactor.ended(Instant::now());
        drop(tracer);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn every_line_says_what_happened_and_the_file_opens_without_its_end() {
        let file = written(50);
        let whole: Vec<serde_json::Value> = serde_json::from_str(&file).unwrap();
        let of = |phase: &str| whole.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!([of("B"), of("E"), of("C"), of("i"), of("M")], [100, 100, 100, 50, 4]);
        assert_eq!(whole.iter().filter(|event| event["name"] == KERNELS).count(), 25);
        assert!(whole.iter().all(|event| event["ph"] == "M" || event["ts"].as_f64().unwrap() > 0.0));
        let longest = file.lines().map(str::len).max();
        assert!(longest.is_some_and(|bytes| bytes <= 120), "{longest:?} bytes for an event");
        let (mut open, mut last) = ([0_i64; 8], [0.0; 8]);
        for event in whole.iter().filter(|event| event["tid"].is_u64() && event["ph"] != "M") {
            let (lane, at) = (event["tid"].as_u64().unwrap() as usize, event["ts"].as_f64().unwrap());
            assert!(at >= last[lane], "the time of a lane goes on");
            last[lane] = at;
            open[lane] += i64::from(event["ph"] == "B") - i64::from(event["ph"] == "E");
            assert!((0..=1).contains(&open[lane]), "slices do not overlap");
        }
        assert_eq!(open, [0; 8]);
        let end = file[..file.len() - 9].rfind(",\n").unwrap();
        assert!(serde_json::from_str::<Vec<serde_json::Value>>(&(file[..end].to_owned() + "]")).is_ok());
    }

    #[test]
    fn events_beyond_the_ring_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let tracer = Tracer::begin(&path).unwrap();
        let lane = tracer.lane(Role::Reactor);
        let now = Instant::now();
        // Faster than they can be written.
        (0..8 * EVENTS).for_each(|_| lane.in_flight(1, now));
        drop(tracer);
        let text = std::fs::read_to_string(&path).unwrap();
        let counted = text.lines().filter(|line| line.contains("reads in flight")).count() as u64;
        let lost: u64 = text
            .lines()
            .filter_map(|line| line.split_once(" events were lost"))
            .filter_map(|(before, _)| before.rsplit('"').next()?.parse::<u64>().ok())
            .sum();
        assert_eq!(counted + lost, 8 * EVENTS as u64);
        assert!(Tracer::begin(&folder.path().join("none/run.json")).is_err());
    }
}
