//! The work that can be put into a stream, and the checks while it runs.

use crate::abi::{Code, HostPointer, ILLEGAL_ADDRESS, LAUNCH_FAILED};
use crate::kernels::Launch;
use crate::memory::Pinned;
use crate::order::Actor;
use crate::state::{Held, State, hold, moved};
use crate::streams::{Mark, sleep};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_content::first_difference;

pub enum Work {
    /// Host memory to device memory.
    Upload { from: Source, to: u64 },
    /// Device memory to device memory.
    Within { from: u64, to: u64, len: u64 },
    /// Device memory to registered host memory.
    Download { from: u64, len: u64, to: HostPointer },
    /// Device memory to whoever asks for the answer: `cuMemcpyDtoH`, or a trainer's kernel, which takes `time`.
    Read { from: u64, len: u64, answer: usize, time: Duration },
    /// A word to host or device memory.
    Word { address: u64, value: u32 },
    /// An event is recorded.
    Mark(Arc<Mark>),
    /// The stream waits for an event.
    Wait(Arc<Mark>),
    /// A kernel.
    Launch(Launch),
}

/// The source of an upload.
pub enum Source {
    /// Unregistered memory, which the driver copies before the call returns.
    Staged(Vec<u8>),
    /// Registered memory, which is read later, and its content at the time of the call.
    Pinned { pointer: HostPointer, held: Vec<u8> },
}

/// A failure: the error code that the device has from then on, and a message.
type Fault = (Code, String);

impl Work {
    /// A name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Upload { .. } => "an upload",
            Work::Within { .. } => "a copy within the device",
            Work::Download { .. } => "a copy to the host",
            Work::Read { .. } => "a reader",
            Work::Word { .. } => "a word's write",
            Work::Mark(_) => "an event",
            Work::Wait(_) => "a wait",
            Work::Launch(launch) => launch.name(),
        }
    }

    /// Releases whoever waits for this work, which will not run.
    pub fn give_up(&self) {
        if let Work::Mark(mark) = self {
            let _ = mark.done.set(Instant::now());
        }
    }

    /// Runs the work, unless the device has failed.
    pub fn carry_out(self, device: usize, actor: &Actor) {
        let mut held = hold();
        if held.check(device).is_err() || held.strikes(device, &self) {
            return self.give_up();
        }
        let (held, done) = match self {
            Work::Launch(launch) => launch_kernel(held, device, &launch, actor),
            Work::Read { from, len, answer, time } => read(held, device, (from, len), (answer, time), actor),
            other => {
                let done = held.carry_out(device, other, actor);
                (held, done)
            }
        };
        finish(held, device, done, actor);
    }
}

/// Reports violations, and poisons the device after a fault.
fn finish(mut held: Held, device: usize, done: Result<(), Fault>, actor: &Actor) {
    for conflict in std::mem::take(&mut held.memory.conflicts) {
        held.violated(conflict);
    }
    if let Err((code, what)) = done {
        held.counts.illegal += u64::from(code == ILLEGAL_ADDRESS);
        held.violated(format!("{} in stream {:#x}: {what} ({code})", actor.what, actor.stream));
        held.poison(device, code);
    }
    // Who has learned that it is done does not find the stream busy with it.
    if let Some(stream) = held.streams.get_mut(&actor.stream) {
        stream.is_busy = false;
    }
    moved();
}

impl State {
    /// How long the work takes.
    pub fn time_of(&mut self, work: &Work) -> Duration {
        let copy = |len: u64| self.settings.copy_us + ((self.settings.mib_us * len) >> 20);
        let micros = match work {
            Work::Upload { from, .. } => copy(from.len() as u64),
            Work::Within { len, .. } | Work::Download { len, .. } | Work::Read { len, .. } => copy(*len),
            Work::Launch(_) => self.settings.kernel_us,
            Work::Word { .. } | Work::Mark(_) => 0,
            Work::Wait(_) => return Duration::ZERO,
        };
        let jitter = if self.settings.jitter_us > 0 { self.random(self.settings.jitter_us + 1) } else { 0 };
        Duration::from_micros(micros + jitter)
    }

    /// Whether the configured fault strikes the device at this work.
    fn strikes(&mut self, device: usize, work: &Work) -> bool {
        if matches!(work, Work::Mark(_) | Work::Wait(_) | Work::Word { .. }) {
            return false;
        }
        self.counts.works += 1;
        match &mut self.settings.fault {
            Some((0, code)) => {
                let code = *code;
                self.settings.fault = None;
                self.poison(device, code);
                true
            }
            Some((left, _)) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn carry_out(&mut self, device: usize, work: Work, actor: &Actor) -> Result<(), Fault> {
        let outside = |what: &str, address: u64, len: u64| {
            let text = format!("{what} {address:#x}, {len} bytes, is no memory of cuda:{device}");
            move |code: Code| (code, text)
        };
        match work {
            Work::Upload { from, to } => {
                let bytes = self.bytes_of(from)?;
                self.counts.copies += 1;
                self.counts.copied_bytes += bytes.len() as u64;
                let fault = outside("the target", to, bytes.len() as u64);
                self.memory.write(device, to, &bytes, actor).map_err(fault)
            }
            Work::Within { from, to, len } => {
                let bytes = self.memory.read(device, from, len, actor).map_err(outside("the source", from, len))?;
                self.memory.write(device, to, &bytes, actor).map_err(outside("the target", to, len))
            }
            Work::Download { from, len, to } => {
                self.counts.reads += 1;
                self.counts.read_bytes += len;
                if self.host.look(to.address(), len as usize) != Pinned::All {
                    let what = format!("host memory {:#x}, {len} bytes, is registered no longer", to.address());
                    return Err((ILLEGAL_ADDRESS, what));
                }
                let bytes = self.memory.read(device, from, len, actor).map_err(outside("the source", from, len))?;
                to.write(&bytes);
                Ok(())
            }
            Work::Word { address, value } => {
                // From here on the host may see the word.
                self.known.join(&actor.clock);
                self.counts.words += 1;
                if self.host.look(address as usize, 4) == Pinned::All && address.is_multiple_of(4) {
                    HostPointer::store(address, value);
                    return Ok(());
                }
                let fault = outside("the word", address, 4);
                self.memory.write(device, address, &value.to_le_bytes(), actor).map_err(fault)
            }
            Work::Mark(mark) => {
                let _ = mark.done.set(Instant::now());
                Ok(())
            }
            Work::Wait(_) | Work::Read { .. } | Work::Launch(_) => Ok(()),
        }
    }

    /// The bytes of an upload at the time when it runs.
    fn bytes_of(&mut self, from: Source) -> Result<Vec<u8>, Fault> {
        let (pointer, held) = match from {
            Source::Staged(bytes) => return Ok(bytes),
            Source::Pinned { pointer, held } => (pointer, held),
        };
        let address = pointer.address();
        if self.host.look(address, held.len()) != Pinned::All {
            let what = format!("host memory {address:#x}, {} bytes, is registered no longer", held.len());
            return Err((ILLEGAL_ADDRESS, what));
        }
        let bytes = pointer.read(held.len());
        if let Some(at) = first_difference(&held, &bytes) {
            let len = held.len();
            self.violated(format!("host memory {address:#x}, {len} bytes, changed at byte {at} before it was copied"));
        }
        Ok(bytes)
    }
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Source::Staged(bytes) | Source::Pinned { held: bytes, .. } => bytes.len(),
        }
    }
}

/// Reads for as long as a reader takes. The memory must not change meanwhile.
fn read(
    mut held: Held,
    device: usize,
    (from, len): (u64, u64),
    (answer, time): (usize, Duration),
    actor: &Actor,
) -> (Held, Result<(), Fault>) {
    let fault = |code| (code, format!("{from:#x}, {len} bytes, is no memory of cuda:{device}"));
    held.counts.reads += 1;
    let before = match held.memory.read(device, from, len, actor) {
        Ok(bytes) => bytes,
        Err(code) => return (held, Err(fault(code))),
    };
    if time.is_zero() {
        held.answers.insert(answer, before);
        return (held, Ok(()));
    }
    drop(held);
    sleep(time);
    let mut held = hold();
    if held.check(device).is_err() {
        return (held, Ok(()));
    }
    let after = match held.memory.read(device, from, len, actor) {
        Ok(bytes) => bytes,
        Err(code) => return (held, Err(fault(code))),
    };
    if before != after {
        held.violated(format!("device memory {from:#x}, {len} bytes, changed while a reader was at it"));
    }
    held.answers.insert(answer, after);
    (held, Ok(()))
}

/// Runs a kernel; releases the lock while it computes.
fn launch_kernel(mut held: Held, device: usize, launch: &Launch, actor: &Actor) -> (Held, Result<(), Fault>) {
    held.counts.kernels += 1;
    let compute = match launch.prepare(&mut held.memory, device, actor) {
        Ok(compute) => compute,
        Err(code) => return (held, Err((code, "it reads what it must not".to_owned()))),
    };
    drop(held);
    let computed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(compute));
    let mut held = hold();
    if held.check(device).is_err() {
        return (held, Ok(()));
    }
    let Ok(writes) = computed else {
        return (held, Err((LAUNCH_FAILED, "its twin has panicked".to_owned())));
    };
    for (address, bytes) in writes {
        if let Err(code) = held.memory.write(device, address, &bytes, actor) {
            let what = format!("it writes {} bytes to {address:#x}, no memory of cuda:{device}", bytes.len());
            return (held, Err((code, what)));
        }
    }
    (held, Ok(()))
}
