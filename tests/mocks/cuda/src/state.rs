//! Everything that the driver knows, behind one lock: devices, handles, memory, counters.

use crate::abi::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED};
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

/// Violations that are kept as text.
const VIOLATIONS_MAX: usize = 64;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::default()));
static MOVED: Condvar = Condvar::new();
/// The process that called `cuInit`: a child that was forked off has no threads for streams, and is refused before it
/// waits for a lock that nobody will open.
static STARTED_BY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The contexts that are current on this thread, the last one on top.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// What happens to all of it while it is held.
pub type Held = MutexGuard<'static, State>;

#[derive(Default)]
pub struct State {
    pub settings: Settings,
    devices: BTreeMap<usize, Device>,
    pub streams: BTreeMap<usize, Stream>,
    /// Default streams: the legacy one of a device, and those of threads.
    pub defaults: HashMap<(usize, Option<ThreadId>), usize>,
    pub events: BTreeMap<usize, Event>,
    pub modules: BTreeMap<usize, Module>,
    pub functions: BTreeMap<usize, (usize, Kernel)>,
    pub memory: Memory,
    pub host: Host,
    /// What the host knows to be done.
    pub known: Clock,
    pub counts: Counts,
    /// What was read for those who wait for it.
    pub answers: BTreeMap<usize, Vec<u8>>,
    violations: Vec<String>,
    handles: usize,
    random: u64,
}

/// A device and its primary context.
#[derive(Default)]
pub struct Device {
    pub retained: u64,
    /// What every call that concerns it answers, for good.
    pub poison: Option<Code>,
    /// It is gone after so many more works.
    pub lost: Option<(u64, Code)>,
}

pub struct Event {
    pub device: usize,
    pub has_timing: bool,
    pub mark: Option<Arc<Mark>>,
}

pub struct Module {
    pub device: usize,
    pub text: String,
}

/// What only grows.
#[derive(Default)]
pub struct Counts {
    pub calls: u64,
    pub copies: u64,
    pub copied_bytes: u64,
    pub pageable_copies: u64,
    pub kernels: u64,
    pub words: u64,
    pub reads: u64,
    pub illegal: u64,
    pub violations: u64,
    pub works: u64,
}

/// Takes the lock.
pub fn hold() -> Held {
    STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits until something has moved.
pub fn wait(held: Held) -> Held {
    MOVED.wait(held).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Something has moved.
pub fn moved() {
    MOVED.notify_all();
}

/// Every exported function begins here: whether the process may call it, and whether this call is to fail.
pub fn called(function: &'static str) -> Result<(), Code> {
    let started_by = STARTED_BY.load(Ordering::Acquire);
    let is_first = function == "cuInit" || function == "cuDriverGetVersion";
    if (started_by == 0 && !is_first) || (started_by != 0 && started_by != std::process::id()) {
        return Err(NOT_INITIALIZED);
    }
    let mut held = hold();
    held.counts.calls += 1;
    held.settings.failure(function).map_or(Ok(()), Err)
}

/// `cuInit` has succeeded.
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

    /// A device by what `cuDeviceGet` gave.
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

    /// The device of a context that is retained.
    pub fn device_of(&mut self, context: usize) -> Result<usize, Code> {
        let device = context.checked_sub(CONTEXT).map(|offset| offset / 16).ok_or(INVALID_CONTEXT)?;
        let is_live = self.context_of(device) == context && self.device(device).retained > 0;
        if is_live { Ok(device) } else { Err(INVALID_CONTEXT) }
    }

    /// The device whose context is current on this thread, if work can be given to it.
    pub fn current(&mut self) -> Result<usize, Code> {
        let top = CURRENT.with_borrow(|stack| stack.last().copied()).ok_or(INVALID_CONTEXT)?;
        let device = self.device_of(top)?;
        self.check(device)?;
        Ok(device)
    }

    /// The error that a device answers everything with, if it has one.
    pub fn check(&mut self, device: usize) -> Result<(), Code> {
        self.device(device).poison.map_or(Ok(()), Err)
    }

    /// From now on the device answers everything with `code`.
    pub fn poison(&mut self, device: usize, code: Code) {
        self.device(device).poison.get_or_insert(code);
        moved();
    }

    pub fn event(&mut self, event: usize) -> Result<&mut Event, Code> {
        let unknown = self.unknown();
        self.events.get_mut(&event).ok_or(unknown)
    }

    /// What the driver says of a handle that it does not know: one of a context that was destroyed, or none.
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

    /// Notes that the driver was used in a way that no driver can be used.
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

    /// Takes over settings; `None` where the text is not understood.
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
        Some(())
    }

    /// `cuDevicePrimaryCtxReset`, by somebody: all that was in the context is gone.
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

    /// As it was in the beginning, but for what is alive. Only between tests, when no stream has work.
    pub fn reset(&mut self) {
        self.settings = Settings::default();
        self.counts = Counts::default();
        self.violations.clear();
        self.answers.clear();
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

    /// A counter by its name.
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
            "works" => counts.works,
            "illegal" => counts.illegal,
            "violations" => counts.violations,
            _ => return None,
        })
    }
}
