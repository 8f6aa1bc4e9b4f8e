//! What every thread did when, written to a file while it happens: Perfetto's protobuf, or Chrome's JSON. A thread
//! leaves events in a ring of its own, and one thread writes them. A file that ends in the middle still opens, because
//! every packet of the protobuf and every line of the JSON stands for itself.

mod chrome;
mod perfetto;

use super::clock::{Doing, Role};
use crate::{Error, Result};
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

/// Events that a thread may leave until they are written: 20 ms of a million a second. Beyond them events are lost, and
/// counted.
const EVENTS: usize = 1 << 15;

/// How often they are written. What a killed process had left since then is lost.
const PERIOD: Duration = Duration::from_millis(20);

/// Bytes that are written at once.
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
    /// It is over.
    Ended,
    /// A device computes what the loader gave it, from now on.
    Kernels,
    /// So many reads are in flight.
    InFlight(u32),
    /// So many batches lie ready.
    Ready(u32),
    /// The consumer got the batch of this number.
    Batch(u32),
}

/// The name of [`What::Kernels`].
const KERNELS: &str = "kernels";

/// What happens one after the other: the events of a thread, or of a device. Any thread may leave them.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u32,
    name: String,
    /// `None`: it is no thread's.
    thread: Option<u32>,
    start: Instant,
    events: ArrayQueue<Event>,
    lost: AtomicU64,
}

impl Lane {
    /// Some 20 ns, no lock.
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

    /// A device's: it copied, or computed, from then to then.
    pub(crate) fn worked(&self, is_copy: bool, (begin, end): (Instant, Instant)) {
        self.leave(begin, if is_copy { What::Doing(Doing::Copy) } else { What::Kernels });
        self.leave(end, What::Ended);
    }
}

/// A form of the file.
trait Form: Send {
    /// A thread that is new.
    fn lane(&mut self, lane: &Lane, out: &mut Vec<u8>);
    /// An event.
    fn event(&mut self, lane: &Lane, event: Event, out: &mut Vec<u8>);
    /// Events that were lost.
    fn lost(&mut self, lane: &Lane, count: u64, out: &mut Vec<u8>);
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
    /// Begins a trace: JSON if the path ends in ".json", else protobuf. An old file of that name is replaced.
    ///
    /// # Errors
    /// That the file or the thread that writes it cannot be made.
    pub(crate) fn begin(path: &Path) -> Result<Tracer> {
        let failed = |source| Error::io("cannot write the trace", source).with_path(path);
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path).map_err(failed)?);
        let start = Instant::now();
        // The clock of Perfetto, which goes on while the machine sleeps.
        let boot = system::time_since_boot().as_nanos() as u64;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let form: Box<dyn Form> =
            if is_json { Box::new(chrome::Chrome::new(boot)) } else { Box::new(perfetto::Perfetto::new(boot)) };
        let shared = Arc::new(Shared { start, lanes: Mutex::default(), is_over: AtomicBool::new(false) });
        let writing = Writing { shared: Arc::clone(&shared), form, file, told: 0, bytes: Vec::new() };
        let writer =
            std::thread::Builder::new().name("uringload-trace".into()).spawn(|| writing.run()).map_err(failed)?;
        let writer = Mutex::new(Some(writer));
        Ok(Tracer { shared, writer, path: path.to_path_buf(), process: std::process::id() })
    }

    /// A lane for a thread of this role, the one that calls.
    pub(crate) fn lane(&self, role: Role) -> Arc<Lane> {
        self.add(role.name().to_owned(), Some(schedule::thread_id()))
    }

    /// A lane for what no thread does.
    pub(crate) fn beside(&self, name: String) -> Arc<Lane> {
        self.add(name, None)
    }

    /// Writes the rest and ends the trace; again, this does nothing.
    ///
    /// # Errors
    /// Why the file has not all of it.
    pub(crate) fn end(&self) -> Result<()> {
        self.shared.is_over.store(true, Ordering::Release);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A forked child has no such thread.
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
        // Who wants to know has ended it.
        let _ = self.end();
    }
}

struct Writing {
    shared: Arc<Shared>,
    form: Box<dyn Form>,
    file: BufWriter<File>,
    /// Lanes that the file knows.
    told: usize,
    bytes: Vec<u8>,
}

impl Writing {
    /// A full disk ends the trace and not the training; the file is what it is until then.
    fn run(mut self) -> io::Result<()> {
        loop {
            let is_over = self.shared.is_over.load(Ordering::Acquire);
            self.write()?;
            if is_over {
                return Ok(());
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

    /// The whole fields of a message, which may be cut off: number, value or length, and bytes.
    fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
        let varint = |message: &mut &[u8]| {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let (first, rest) = message.split_first()?;
                *message = rest;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    return Some(value);
                }
            }
            None
        };
        let mut next = || {
            let tag = varint(&mut message)?;
            let value = varint(&mut message)?;
            let bytes: &[u8] = if tag & 7 == 2 { message.split_off(..usize::try_from(value).ok()?)? } else { &[] };
            Some((tag >> 3, value, bytes))
        };
        std::iter::from_fn(&mut next).collect()
    }

    fn field<'a>(of: &[(u64, u64, &'a [u8])], number: u64) -> Option<(u64, &'a [u8])> {
        of.iter().find(|one| one.0 == number).map(|one| (one.1, one.2))
    }

    fn written(name: &str, events: u64) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
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
        std::fs::read(path).unwrap()
    }

    #[test]
    fn every_packet_of_the_protobuf_says_what_happened() {
        const EVENTS: u64 = 300;
        let file = written("run.pftrace", EVENTS);
        let packets = fields(&file);
        assert!(packets.iter().all(|packet| packet.0 == 1));
        let (mut open, mut kinds, mut last, mut names, mut longest) = ([0_i64; 8], [0_u64; 5], [0; 8], 0, 0);
        let (mut counted, mut beside) = ([0_u64; 8], false);
        for (_, _, packet) in &packets {
            let packet_fields = fields(packet);
            assert_eq!(field(&packet_fields, 10).unwrap().0, 1, "one sequence");
            if let Some((_, interned)) = field(&packet_fields, 12) {
                names = fields(interned).len();
            }
            if let Some((_, track)) = field(&packet_fields, 60) {
                // A track of its own, below the process, and no thread.
                let track = fields(track);
                beside |= field(&track, 2).is_some_and(|(_, name)| name == b"cuda:0 copies")
                    && field(&track, 4).is_none()
                    && field(&track, 5).is_some();
            }
            let Some((_, event)) = field(&packet_fields, 11) else { continue };
            longest = longest.max(packet.len() + 2);
            let event = fields(event);
            let (kind, track) = (field(&event, 9).unwrap().0, field(&event, 11).unwrap().0 as usize);
            let at = field(&packet_fields, 8).unwrap().0;
            assert!(at >= last[track], "the time of a track goes on");
            last[track] = at;
            kinds[kind as usize] += 1;
            counted[track] += u64::from(kind == 4);
            open[track] += i64::from(kind == 1) - i64::from(kind == 2);
            assert!((0..=1).contains(&open[track]), "slices do not overlap");
        }
        assert!(open == [0; 8] && beside);
        assert_eq!((kinds, names), ([0, 2 * EVENTS, 2 * EVENTS, EVENTS, 2 * EVENTS], Doing::ALL.len() + 1));
        assert_eq!(counted[2..4], [EVENTS, EVENTS], "reads in flight, and batches that lie ready");
        assert!(longest <= 40, "{longest} bytes for an event");
        // Cut off anywhere, all packets but the last one are there.
        assert_eq!(fields(&file[..file.len() - 7]).len(), packets.len() - 1);
    }

    #[test]
    fn the_json_opens_without_its_end() {
        let file = String::from_utf8(written("run.json", 50)).unwrap();
        let whole: Vec<serde_json::Value> = serde_json::from_str(&(file.clone() + "]")).unwrap();
        let of = |phase: &str| whole.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!([of("B"), of("E"), of("C"), of("i"), of("M")], [100, 100, 100, 50, 4]);
        assert_eq!(whole.iter().filter(|event| event["name"] == KERNELS).count(), 25);
        assert!(whole.iter().all(|event| event["ph"] == "M" || event["ts"].as_f64().unwrap() > 0.0));
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
        // Faster than anybody writes.
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
