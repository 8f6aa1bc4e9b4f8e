//! Ctrl-C, SIGTERM and SIGHUP: the first asks the command to stop, and gives it a while to do so in order; the second
//! ends the process.

use crate::failure::INTERRUPTED;
use crate::output::printable;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a command may take to stop in order. A disk that is slow, or does not answer, keeps it no longer.
const BOUND: Duration = Duration::from_millis(800);

/// How long cleaning up may take then.
const CLEANING: Duration = Duration::from_millis(700);

/// How often to try to delete a folder.
const DELETIONS: usize = 5;

/// What a command does before it is ended out of order.
pub type Cleaner = Box<dyn FnOnce() + Send>;

/// Whether the user asked to stop. Belongs to the thread that installed it, which the signal wakes up.
#[derive(Clone)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    /// What to do if there is no time for an orderly end.
    cleaner: Arc<Mutex<Option<Cleaner>>>,
}

impl Interrupt {
    /// Handles the signals from now on. If that fails, they keep their previous effect.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt { asked: Arc::default(), cleaner: Arc::default() };
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

    /// Sets what is done before the process is ended out of order, or nothing.
    pub fn set_cleaner(&self, cleaner: Option<Cleaner>) {
        *self.cleaner.lock().unwrap_or_else(PoisonError::into_inner) = cleaner;
    }

    /// Deletes a temporary folder before the process is ended out of order.
    pub fn set_folder(&self, folder: PathBuf) {
        // Another thread may be deleting or writing in it. What cannot be deleted now stays.
        self.set_cleaner(Some(Box::new(move || {
            let _ = (0..DELETIONS).any(|_| std::fs::remove_dir_all(&folder).is_ok() || !folder.exists());
        })));
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
            self.end(None);
        }
        sleeper.unpark();
        let waiting = self.clone();
        // Without a thread, a second signal ends the process.
        let _ = thread::Builder::new().name("uringload-end".into()).spawn(move || {
            thread::sleep(BOUND);
            waiting.end(Some(&format!("uringload: stopped, without the end of what was under way for {BOUND:?}")));
        });
    }

    /// Ends the process, whatever it does: within another while, should nobody read stderr, or a disk not answer.
    fn end(&self, word: Option<&str>) {
        let exit = || std::process::exit(INTERRUPTED.into());
        let _ = thread::Builder::new().spawn(move || {
            thread::sleep(CLEANING);
            exit();
        });
        word.into_iter().for_each(eprintln_quietly);
        // A second signal waits for what the first one cleans up.
        let mut cleaner = self.cleaner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clean) = cleaner.take() {
            clean();
        }
        exit();
    }
}

/// Writes a line to stderr, if anybody listens.
pub fn eprintln_quietly(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}
