//! Stream captures (CUDA graphs): the calls that a capture forbids to a thread, and the effect on work in a stream
//! that is being captured. A forbidden call is refused and ends the capture, as with a driver.
//!
//! Stricter than a driver: every call that does more than put work into a stream counts as potentially unsafe.

use crate::abi::{
    CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED,
    CAPTURE_WRONG_THREAD, CAPTURED_EVENT, Code, INVALID_VALUE,
};
use crate::state::State;
use crate::work::Work;
use std::cell::Cell;
use std::ffi::c_int;
use std::thread::ThreadId;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which every thread has at first.
const GLOBAL: c_int = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// What a capture forbids.
const UNSAFE: [&str; 19] = [
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoH_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuEventCreate",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
];

thread_local! {
    /// How far the thread lets captures forbid it calls.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

/// The capture of a stream.
pub struct Capture {
    mode: c_int,
    thread: ThreadId,
    is_invalid: bool,
}

/// Sets the calling thread's mode; returns the one before.
pub fn exchange(mode: c_int) -> Result<c_int, Code> {
    if !(GLOBAL..=RELAXED).contains(&mode) {
        return Err(INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

impl State {
    /// Whether a capture lets this thread call the function.
    pub fn may_call(&mut self, function: &str) -> Result<(), Code> {
        if self.captures.is_empty() || !UNSAFE.contains(&function) {
            return Ok(());
        }
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let forbids = |capture: &Capture| match mode {
            RELAXED => false,
            _ if capture.thread == thread => capture.mode != RELAXED,
            GLOBAL => capture.mode == GLOBAL,
            _ => false,
        };
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|capture| forbids(capture)) {
            capture.is_invalid = true;
            refused = true;
        }
        if refused { self.refuse(function, CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Notes a call that a capture forbids.
    fn refuse(&mut self, what: &str, code: Code) -> Result<(), Code> {
        self.counts.refused += 1;
        eprintln!("mock-cuda: {what} is refused by a capture ({code})");
        Err(code)
    }

    pub fn begin_capture(&mut self, stream: usize, mode: c_int) -> Result<(), Code> {
        if !(GLOBAL..=RELAXED).contains(&mode) || self.captures.contains_key(&stream) {
            return Err(INVALID_VALUE);
        }
        let thread = std::thread::current().id();
        self.captures.insert(stream, Capture { mode, thread, is_invalid: false });
        Ok(())
    }

    pub fn end_capture(&mut self, stream: usize) -> Result<(), Code> {
        let capture = self.captures.get(&stream).ok_or(CAPTURE_UNMATCHED)?;
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let is_invalid = capture.is_invalid;
        self.captures.remove(&stream);
        if is_invalid { Err(CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    /// `CUstreamCaptureStatus`: none, active or invalidated.
    pub fn capture_status(&self, stream: usize) -> c_int {
        self.captures.get(&stream).map_or(0, |capture| 1 + c_int::from(capture.is_invalid))
    }

    /// Whether work in the legacy default stream would depend on a capture: blocking streams wait for it.
    pub fn is_implicit(&self, device: usize) -> bool {
        let blocks = |id: &usize| self.streams.get(id).is_some_and(|found| found.device == device && found.is_blocking);
        self.captures.keys().any(blocks)
    }

    /// Refuses work in the legacy default stream that would depend on captures, and ends these.
    pub fn check_implicit(&mut self, device: usize) -> Result<(), Code> {
        if !self.is_implicit(device) {
            return Ok(());
        }
        let State { captures, streams, .. } = self;
        let blocks = |id: &usize| streams.get(id).is_some_and(|found| found.device == device && found.is_blocking);
        captures.iter_mut().filter(|(id, _)| blocks(id)).for_each(|(_, capture)| capture.is_invalid = true);
        self.refuse("the legacy default stream", CAPTURE_IMPLICIT)
    }

    /// Refuses to wait for a whole device while a stream of it is being captured, whatever the thread's mode.
    pub fn check_none_captured(&mut self, device: usize) -> Result<(), Code> {
        let State { captures, streams, .. } = self;
        let is_of = |id: &usize| streams.get(id).is_some_and(|found| found.device == device);
        let mut captured = captures.iter_mut().filter(|(id, _)| is_of(id)).peekable();
        if captured.peek().is_none() {
            return Ok(());
        }
        captured.for_each(|(_, capture)| capture.is_invalid = true);
        self.refuse("a wait for the device", CAPTURE_UNSUPPORTED)
    }

    /// Refuses to look at a stream that is being captured, whatever the thread's mode.
    pub fn check_not_captured(&mut self, stream: usize) -> Result<(), Code> {
        let Some(capture) = self.captures.get_mut(&stream) else { return Ok(()) };
        capture.is_invalid = true;
        self.refuse("a look at a captured stream", CAPTURE_UNSUPPORTED)
    }

    /// Refuses to look at an event that was last recorded in a capture.
    pub fn check_event(&mut self, event: usize) -> Result<(), Code> {
        let Some(stream) = self.events.get(&event).and_then(|event| event.captured_in) else { return Ok(()) };
        // After the end of its capture the answer is the same, and harmless.
        let Some(capture) = self.captures.get_mut(&stream) else { return Err(CAPTURED_EVENT) };
        capture.is_invalid = true;
        self.refuse("a look at a captured event", CAPTURED_EVENT)
    }

    /// Takes work in a stream that is being captured: it becomes part of a graph, and does not run. Returns whether it
    /// did.
    pub fn capture(&mut self, stream: usize, work: &Work) -> Result<bool, Code> {
        let Some(capture) = self.captures.get_mut(&stream) else { return Ok(false) };
        if capture.is_invalid {
            return self.refuse("work in a capture that has failed", CAPTURE_INVALIDATED).map(|()| true);
        }
        if matches!(work, Work::Wait(_)) {
            // A graph cannot depend on what happened outside it.
            capture.is_invalid = true;
            return self.refuse("a captured wait for work outside", CAPTURE_ISOLATION).map(|()| true);
        }
        self.counts.captured += 1;
        Ok(true)
    }
}
