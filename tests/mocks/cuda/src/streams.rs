//! Streams: queues, each with a thread that works through it.

use crate::abi::{Code, INVALID_HANDLE};
use crate::order::{Actor, Clock};
use crate::state::{Held, State, hold, moved, wait};
use crate::work::Work;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

pub struct Stream {
    pub device: usize,
    queue: VecDeque<Queued>,
    pub is_busy: bool,
    /// Whatever is put into the stream next comes after this.
    pub clock: Clock,
    /// The stream finishes its work, and then its thread ends.
    pub is_destroyed: bool,
    is_default: bool,
    /// It and the legacy default stream wait for each other.
    pub is_blocking: bool,
}

struct Queued {
    number: u64,
    clock: Clock,
    work: Work,
}

/// A place in a stream, recorded in an event.
pub struct Mark {
    /// The work that comes before it.
    pub clock: Clock,
    pub done: OnceLock<Instant>,
}

impl Stream {
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_busy
    }

    /// Whether a caller has made the stream and not destroyed it.
    pub fn is_alive(&self) -> bool {
        !self.is_destroyed && !self.is_default
    }
}

impl State {
    /// Starts a stream, with its thread.
    pub fn start_stream(&mut self, device: usize, is_default: bool) -> usize {
        let id = self.next_handle();
        let clock = Clock::default();
        let (queue, is_busy, is_destroyed, is_blocking) = (VecDeque::new(), false, false, false);
        self.streams.insert(id, Stream { device, queue, is_busy, clock, is_destroyed, is_default, is_blocking });
        std::thread::spawn(move || work_off(id));
        id
    }

    /// The stream that a handle refers to.
    pub fn stream(&mut self, handle: usize) -> Result<usize, Code> {
        if handle > PER_THREAD {
            let found = self.streams.get(&handle).filter(|stream| stream.is_alive());
            return found.map(|_| handle).ok_or(self.unknown());
        }
        let device = self.current()?;
        let thread = (handle == PER_THREAD).then(|| std::thread::current().id());
        debug_assert!(thread.is_some() || handle <= LEGACY);
        if let Some(&id) = self.defaults.get(&(device, thread)) {
            return Ok(id);
        }
        let id = self.start_stream(device, true);
        self.defaults.insert((device, thread), id);
        Ok(id)
    }

    /// Like `stream`, but only of the device whose context is current: another device's streams take no work.
    pub fn own_stream(&mut self, handle: usize) -> Result<(usize, usize), Code> {
        let device = self.current()?;
        let stream = self.stream(handle)?;
        if handle <= LEGACY {
            self.check_implicit(device)?;
        }
        if self.streams[&stream].device == device { Ok((stream, device)) } else { Err(INVALID_HANDLE) }
    }

    /// Like `own_stream`, for a copy or a kernel: into the default stream the loader puts none, for there the trainer
    /// works.
    pub fn working_stream(&mut self, handle: usize) -> Result<(usize, usize), Code> {
        self.counts.on_default += u64::from(handle <= LEGACY);
        self.own_stream(handle)
    }

    /// Puts work into a stream.
    pub fn submit(&mut self, id: usize, work: Work) -> Result<(), Code> {
        let stream = self.streams.get_mut(&id).ok_or(INVALID_HANDLE)?;
        let device = stream.device;
        if self.capture(id, &work)? {
            return Ok(());
        }
        self.wait_for_default(id, device);
        if let Some((left, code)) = self.device(device).lost {
            if left == 0 {
                self.poison(device, code);
                return Err(code);
            }
            self.device(device).lost = Some((left - 1, code));
        }
        let number = self.step(id, &work);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.queue.push_back(Queued { number, clock: stream.clock.clone(), work });
        }
        moved();
        Ok(())
    }

    /// The legacy default stream waits for all blocking streams of the device, and they for it.
    fn wait_for_default(&mut self, id: usize, device: usize) {
        let Some(&default) = self.defaults.get(&(device, None)) else { return };
        let is_blocking = |stream: &Stream| stream.device == device && stream.is_blocking;
        let others: Vec<usize> = match self.streams.get(&id) {
            Some(_) if id == default => {
                self.streams.iter().filter(|(_, stream)| is_blocking(stream)).map(|(&other, _)| other).collect()
            }
            Some(stream) if is_blocking(stream) => vec![default],
            _ => return,
        };
        for other in others {
            let Some(stream) = self.streams.get_mut(&other).filter(|stream| !stream.is_idle()) else { continue };
            let mark = Arc::new(Mark { clock: stream.clock.clone(), done: OnceLock::new() });
            stream.queue.push_back(Queued {
                number: 0,
                clock: mark.clock.clone(),
                work: Work::Mark(Arc::clone(&mark)),
            });
            let work = Work::Wait(mark);
            let number = self.step(id, &work);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.queue.push_back(Queued { number, clock: stream.clock.clone(), work });
            }
        }
    }

    /// Numbers work in its stream. The work comes after everything that the host knows to be done by then.
    fn step(&mut self, id: usize, work: &Work) -> u64 {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        stream.clock.join(&self.known);
        if let Work::Wait(mark) = work {
            stream.clock.join(&mark.clock);
        }
        stream.clock.step(id)
    }

    /// Puts a mark into a stream, after everything in it.
    pub fn mark(&mut self, id: usize) -> Result<Arc<Mark>, Code> {
        let clock = self.streams.get(&id).ok_or(INVALID_HANDLE)?.clock.clone();
        let mark = Arc::new(Mark { clock, done: OnceLock::new() });
        self.submit(id, Work::Mark(Arc::clone(&mark)))?;
        Ok(mark)
    }

    /// Notes that the host has learned that everything in a stream is done.
    pub fn know_stream(&mut self, id: usize) {
        if let Some(stream) = self.streams.get(&id) {
            self.known.join(&stream.clock);
        }
    }
}

/// Waits until the device's streams, or only the given one, are idle. Fails if the device is lost.
pub fn wait_until_idle(mut held: Held, device: usize, only: Option<usize>) -> Result<Held, Code> {
    loop {
        held.check(device)?;
        let of_it = |(&id, stream): (&usize, &Stream)| {
            stream.device != device || only.is_some_and(|only| only != id) || stream.is_idle()
        };
        if held.streams.iter().all(of_it) {
            return Ok(held);
        }
        held = wait(held);
    }
}

/// The thread of a stream.
fn work_off(id: usize) {
    let mut held = hold();
    loop {
        let is_held = held.settings.is_held;
        let Some(stream) = held.streams.get_mut(&id) else { return };
        let device = stream.device;
        let is_ready = match stream.queue.front() {
            None if stream.is_destroyed => {
                held.streams.remove(&id);
                moved();
                return;
            }
            None => false,
            Some(Queued { work: Work::Wait(mark), .. }) => mark.done.get().is_some(),
            Some(_) => !is_held,
        };
        let is_gone = held.check(device).is_err();
        let Some(stream) = held.streams.get_mut(&id) else { return };
        if is_gone && !stream.queue.is_empty() {
            // Nothing runs any more, so release whoever waits for it.
            let rest = std::mem::take(&mut stream.queue);
            rest.iter().for_each(|queued| queued.work.give_up());
            moved();
            continue;
        }
        let next = if is_ready { stream.queue.pop_front() } else { None };
        let Some(Queued { number, clock, work }) = next else {
            held = wait(held);
            continue;
        };
        stream.is_busy = true;
        let time = held.time_of(&work);
        drop(held);
        sleep(time);
        let actor = Actor { stream: id, number, clock, what: work.name() };
        work.carry_out(device, &actor);
        held = hold();
        if let Some(stream) = held.streams.get_mut(&id) {
            stream.is_busy = false;
        }
        moved();
    }
}

/// Sleeps, unless the time is zero.
pub fn sleep(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}
