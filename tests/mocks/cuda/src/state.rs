//! The driver's whole state, behind one lock: devices, handles, memory, counters.

use crate::abi::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED};
use crate::capture::Capture;
use crate::kernels::Kernel;
use crate::memory::{Host, Memory};
use crate::order::Clock;
use crate::settings::{Blow, Settings};
use crate::streams::{Mark, Stream};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::thread::ThreadId;

/// The handle of device 0's primary context; the others follow.
const CONTEXT: usize = 0xc0de_0000;

/// Violations to keep as text.
const VIOLATIONS_MAX: usize = 64;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::default()));
static MOVED: Condvar = Condvar::new();
/// The process that called `cuInit`. A forked child has no threads for streams, so it is refused before it waits for a
/// lock that no thread will release.
static STARTED_BY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The contexts that are current on this thread; the last one is on top.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Exclusive access to the state.
pub type Held = MutexGuard<'static, State>;

#[derive(Default)]
pub struct State {
    pub settings: Settings,
    devices: BTreeMap<usize, Device>,
    pub streams: BTreeMap<usize, Stream>,
    /// Default streams: the legacy one of a device, and those of threads.
    pub defaults: HashMap<(usize, Option<ThreadId>), usize>,
    pub events: BTreeMap<usize, Event>,
    /// The captured streams.
    pub captures: BTreeMap<usize, Capture>,
    pub modules: BTreeMap<usize, Module>,
    pub functions: BTreeMap<usize, (usize, Kernel)>,
    pub memory: Memory,
    pub host: Host,
    /// The work that the host knows to be done.
    pub known: Clock,
    pub counts: Counts,
    /// The results of reads, until someone fetches them.
    pub answers: BTreeMap<usize, Vec<u8>>,
    violations: Vec<String>,
    handles: usize,
    random: u64,
}

/// A device and its primary context.
#[derive(Default)]
pub struct Device {
    pub retained: u64,
    /// The error that every call on this device returns, for good.
    pub poison: Option<Code>,
    /// The device is lost after this many more works.
    pub lost: Option<(u64, Code)>,
}

pub struct Event {
    pub device: usize,
    pub has_timing: bool,
    pub mark: Option<Arc<Mark>>,
    /// The stream in whose capture it was last recorded.
    pub captured_in: Option<usize>,
}

pub struct Module {
    pub device: usize,
    pub text: String,
}

/// Counters that only grow.
#[derive(Default)]
pub struct Counts {
    pub calls: u64,
    pub copies: u64,
    pub copied_bytes: u64,
    pub pageable_copies: u64,
    pub kernels: u64,
    pub words: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub allocations_made: u64,
    pub illegal: u64,
    pub violations: u64,
    pub works: u64,
    /// Calls that copy several pieces.
    pub lists: u64,
    /// Those of them that prefer to overlap with kernels.
    pub overlapping: u64,
    pub events_made: u64,
    /// Copies and kernels that were put into the legacy default stream, but for the trainer's.
    pub on_default: u64,
    pub cubins: u64,
    /// Calls that only ask whether something is done.
    pub looks: u64,
    /// Calls that a capture forbids.
    pub refused: u64,
    /// Work that became part of a graph.
    pub captured: u64,
}

/// Takes the lock.
pub fn hold() -> Held {
    STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits until the state changes.
pub fn wait(held: Held) -> Held {
    MOVED.wait(held).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Announces that the state has changed.
pub fn moved() {
    MOVED.notify_all();
}

/// Starts every exported function: checks whether the process may call it, and whether this call is to fail.
pub fn called(function: &'static str) -> Result<(), Code> {
    let started_by = STARTED_BY.load(Ordering::Acquire);
    let is_first = function == "cuInit" || function == "cuDriverGetVersion";
    if (started_by == 0 && !is_first) || (started_by != 0 && started_by != std::process::id()) {
        return Err(NOT_INITIALIZED);
    }
    let mut held = hold();
    held.counts.calls += 1;
    held.counts.looks += u64::from(matches!(function, "cuEventQuery" | "cuStreamQuery"));
    held.settings.failure(function).map_or(Ok(()), Err)?;
    held.may_call(function)
}

/// Notes that `cuInit` has succeeded.
pub fn started() {
    STARTED_BY.store(std::process::id(), Ordering::Release);
}

pub fn push_current(context: usize) {
    CURRENT.with_borrow_mut(|stack| stack.push(context));
}

pub fn pop_current() -> Result<usize, Code> {
    CURRENT.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)
}

impl State {
    pub fn device(&mut self, device: usize) -> &mut Device {
        self.devices.entry(device).or_default()
    }

    /// The device of a number from `cuDeviceGet`.
    pub fn checked_device(&mut self, device: i32) -> Result<usize, Code> {
        let device = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        if device >= self.settings.devices {
            return Err(INVALID_DEVICE);
        }
        Ok(device)
    }

    pub fn context_of(&self, device: usize) -> usize {
        CONTEXT + device * 16
    }

    /// The device of a retained context.
    pub fn device_of(&mut self, context: usize) -> Result<usize, Code> {
        let device = context.checked_sub(CONTEXT).map(|offset| offset / 16).ok_or(INVALID_CONTEXT)?;
        let is_live = self.context_of(device) == context && self.device(device).retained > 0;
        if is_live { Ok(device) } else { Err(INVALID_CONTEXT) }
    }

    /// The device whose context is current on this thread, if it can take work.
    pub fn current(&mut self) -> Result<usize, Code> {
        let top = CURRENT.with_borrow(|stack| stack.last().copied()).ok_or(INVALID_CONTEXT)?;
        let device = self.device_of(top)?;
        self.check(device)?;
        Ok(device)
    }

    /// The error that every call on a device returns, if it has one.
    pub fn check(&mut self, device: usize) -> Result<(), Code> {
        self.device(device).poison.map_or(Ok(()), Err)
    }

    /// Makes every call on the device return `code` from now on.
    pub fn poison(&mut self, device: usize, code: Code) {
        self.device(device).poison.get_or_insert(code);
        moved();
    }

    pub fn event(&mut self, event: usize) -> Result<&mut Event, Code> {
        let unknown = self.unknown();
        self.events.get_mut(&event).ok_or(unknown)
    }

    /// The driver's error for an unknown handle: of a destroyed context, or of nothing.
    pub fn unknown(&self) -> Code {
        let is_destroyed = |device: &Device| device.poison == Some(CONTEXT_IS_DESTROYED);
        if self.devices.values().any(is_destroyed) { CONTEXT_IS_DESTROYED } else { INVALID_HANDLE }
    }

    pub fn next_handle(&mut self) -> usize {
        self.handles += 1;
        0x1000 + self.handles * 16
    }

    /// A number below `end`, or 0.
    pub fn random(&mut self, end: u64) -> u64 {
        let mut word = if self.random == 0 { self.settings.seed.max(1) } else { self.random };
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.random = word;
        word.checked_rem(end).unwrap_or_default()
    }

    /// Records a misuse of the driver that a real one need not detect.
    pub fn violated(&mut self, text: String) {
        self.counts.violations += 1;
        let _ = writeln!(std::io::stderr(), "mock-cuda: violation: {text}");
        if let Some(path) = &self.settings.report {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| writeln!(file, "{text}"));
        }
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(text);
        }
    }

    pub fn violation(&self, index: usize) -> Option<&str> {
        self.violations.get(index).map(String::as_str)
    }

    /// Applies settings; `None` if the text is not understood.
    pub fn configure(&mut self, text: &str) -> Option<()> {
        let blows = match self.settings.apply(text) {
            Ok(blows) => blows,
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "mock-cuda: {why}");
                return None;
            }
        };
        self.random = 0;
        for blow in blows {
            match blow {
                Blow::Lose { device, after: 0, code } => self.poison(device, code),
                Blow::Lose { device, after, code } => self.device(device).lost = Some((after, code)),
                Blow::Destroy { device } => self.destroy(device),
            }
        }
        // What was held may go on.
        moved();
        Some(())
    }

    /// `cuDevicePrimaryCtxReset` by other code: everything in the context is gone.
    fn destroy(&mut self, device: usize) {
        self.poison(device, CONTEXT_IS_DESTROYED);
        self.streams
            .values_mut()
            .filter(|stream| stream.device == device)
            .for_each(|stream| stream.is_destroyed = true);
        self.events.retain(|_, event| event.device != device);
        self.modules.retain(|_, module| module.device != device);
        self.memory.free_all(device);
        self.host.unregister_all(device);
    }

    /// Returns to the initial state, except for live objects. Only between tests, when no stream has work.
    pub fn reset(&mut self) {
        self.settings = Settings::default();
        self.counts = Counts::default();
        self.violations.clear();
        self.answers.clear();
        self.captures.clear();
        self.random = 0;
        for device in self.devices.values_mut() {
            device.poison = None;
            device.lost = None;
        }
        if self.streams.values().all(Stream::is_idle) {
            self.known = Clock::default();
            self.memory.forget_accesses();
            self.streams.values_mut().for_each(|stream| stream.clock = Clock::default());
        }
    }

    /// A counter, by name.
    pub fn count(&self, name: &str) -> Option<u64> {
        let counts = &self.counts;
        Some(match name {
            "contexts" => self.devices.values().map(|device| device.retained).sum(),
            "streams" => self.streams.values().filter(|stream| stream.is_alive()).count() as u64,
            "events" => self.events.len() as u64,
            "modules" => self.modules.len() as u64,
            "allocations" => self.memory.count().0,
            "allocated_bytes" => self.memory.count().1,
            "registrations" => self.host.count().0,
            "registered_bytes" => self.host.count().1,
            "calls" => counts.calls,
            "copies" => counts.copies,
            "copied_bytes" => counts.copied_bytes,
            "pageable_copies" => counts.pageable_copies,
            "kernels" => counts.kernels,
            "words" => counts.words,
            "reads" => counts.reads,
            "read_bytes" => counts.read_bytes,
            "allocations_made" => counts.allocations_made,
            "works" => counts.works,
            "illegal" => counts.illegal,
            "lists" => counts.lists,
            "overlapping" => counts.overlapping,
            "events_made" => counts.events_made,
            "on_default" => counts.on_default,
            "cubins" => counts.cubins,
            "looks" => counts.looks,
            "refused" => counts.refused,
            "captured" => counts.captured,
            "violations" => counts.violations,
            _ => return None,
        })
    }
}
