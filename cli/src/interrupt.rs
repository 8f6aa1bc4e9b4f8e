//! Ctrl-C, SIGTERM and SIGHUP: the first asks the command to stop, the second ends the process.

use super::failure::INTERRUPTED;
use super::output::printable;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

/// Whether the user asked to stop. Belongs to the thread that installed it, which the signal wakes up.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    /// What to delete if the second signal leaves no time for an orderly end.
    folder: Arc<Mutex<Option<PathBuf>>>,
}

impl Interrupt {
    /// Handles the signals from now on. If that fails, they keep their previous effect.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt { asked: Arc::default(), folder: Arc::default() };
        let (handler, sleeper) = (interrupt.clone(), thread::current());
        if let Err(error) = ctrlc::set_handler(move || handler.signal(&sleeper)) {
            eprintln_quietly(&format!("uringload: warning: Ctrl-C will not be handled: {error}"));
        }
        interrupt
    }

    /// Whether the user asked to stop.
    pub fn is_set(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Names the temporary folder to delete, or none.
    pub fn set_folder(&self, folder: Option<PathBuf>) {
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder;
    }

    /// Sleeps until `deadline`, or until the user asks to stop.
    pub fn sleep_until(&self, deadline: Instant) {
        while !self.is_set() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    fn signal(&self, sleeper: &Thread) {
        if self.asked.swap(true, Ordering::Relaxed) {
            let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take();
            // The process ends either way; what cannot be deleted now stays.
            let _ = folder.map(std::fs::remove_dir_all);
            std::process::exit(INTERRUPTED.into());
        }
        sleeper.unpark();
    }
}

/// Writes a line to stderr, if anybody listens.
pub fn eprintln_quietly(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}
