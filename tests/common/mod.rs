//! Shared code of the integration tests.
// Each test is a crate of its own and uses only a part of this module.
#![allow(dead_code, unreachable_pub)]

pub mod allocator;
pub mod archive;
pub mod bucket;
pub mod check;
pub mod child;
pub mod device;
pub mod direct;
pub mod faulty;
pub mod fixture;
pub mod frames;
pub mod mounts;
pub mod objects;
pub mod passes;
pub mod random;
pub mod sandbox;
pub mod writable;

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;
pub use uringload_content as content;

/// What takes milliseconds takes as long only if it hangs, however busy the machine is.
pub const HANG: Duration = Duration::from_secs(120);

/// Says that something could not be tested here, and why. It bypasses the test harness's capture, which would hide the
/// line in a passing test, so that `.ci/run` can count it.
pub fn skip(reason: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// Whether this process may mount and open /dev/fuse, judging by its user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `work` on its own thread and fails if it takes four times as long as `bound`, which is enough for a machine
/// that is not busy: a hang is a failure, not a long wait.
///
/// # Panics
/// If `work` panics, or when the time is over.
pub fn within<T: Send + 'static>(bound: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = work();
        let _ = sender.send(result);
    });
    // Ten builds beside it make a test that takes 10 s take a minute.
    let bound = 4 * bound;
    match receiver.recv_timeout(bound) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done after {bound:?}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that ends well has sent its result"),
        },
    }
}
