//! Who asked for a measurement: may stop it, and hears what happens meanwhile.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;
use uringload::stats::Stats;

/// How often to try to delete a folder.
const DELETIONS: usize = 5;

/// What to do before the process ends in the middle of a measurement.
pub type Cleaner = Box<dyn FnOnce() + Send>;

/// Takes a line for people.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Shows how far a run is: called after each batch.
pub type Progress = Box<dyn FnMut(&Stats)>;

/// Shows what is done until it is dropped.
pub type Doing = Box<dyn Send>;

/// Who asked for a measurement. Belongs to the thread that measures; clones may stop it from others.
#[derive(Clone)]
pub struct Caller {
    is_stopped: Arc<AtomicBool>,
    measures: Thread,
    cleaner: Arc<Mutex<Option<Cleaner>>>,
    say: Say,
    progress: fn(&str, Option<u64>, Option<Instant>) -> Progress,
    doing: fn(&str, Option<Instant>) -> Doing,
}

impl Caller {
    /// A caller on this thread, which measures. `say` takes lines for people; `progress` begins to show a run of this
    /// name, of so many batches and until then, if it has an end; `doing` begins to show what comes before and after.
    pub fn new(
        say: Say,
        progress: fn(&str, Option<u64>, Option<Instant>) -> Progress,
        doing: fn(&str, Option<Instant>) -> Doing,
    ) -> Caller {
        let (is_stopped, cleaner) = (Arc::default(), Arc::default());
        Caller { is_stopped, measures: thread::current(), cleaner, say, progress, doing }
    }

    /// A caller who only hears lines.
    pub fn hearing(say: impl Fn(&str) + Send + Sync + 'static) -> Caller {
        Caller::new(Arc::new(say), |_, _, _| Box::new(|_| {}), |_, _| Box::new(()))
    }

    /// A caller who hears nothing.
    pub fn silent() -> Caller {
        Caller::hearing(|_| {})
    }

    /// Ends the measurement soon. Returns whether it was asked to end before.
    pub fn stop(&self) -> bool {
        let was = self.is_stopped.swap(true, Ordering::Relaxed);
        self.measures.unpark();
        was
    }

    /// Whether the measurement shall end.
    pub fn is_set(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Says something to people: one line.
    pub fn say(&self, line: &str) {
        (self.say)(line);
    }

    /// What says something to people, for closures that live longer.
    pub fn sayer(&self) -> Say {
        Arc::clone(&self.say)
    }

    /// Shows a run.
    pub fn progress(&self, name: &str, batches: Option<u64>, until: Option<Instant>) -> Progress {
        (self.progress)(name, batches, until)
    }

    /// Shows what is done from now on, which ends by then.
    #[must_use = "it is shown until this is dropped"]
    pub fn doing(&self, what: &str, until: Option<Instant>) -> Doing {
        (self.doing)(what, until)
    }

    /// Sleeps until `deadline`, or until the measurement shall end.
    pub fn sleep_until(&self, deadline: Instant) {
        while !self.is_set() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    /// Sets what to do before the process ends in the middle, or nothing.
    pub fn set_cleaner(&self, cleaner: Option<Cleaner>) {
        *self.cleaner.lock().unwrap_or_else(PoisonError::into_inner) = cleaner;
    }

    /// Has a temporary folder deleted before the process ends in the middle.
    pub fn set_folder(&self, folder: PathBuf) {
        // Another thread may be deleting or writing in it. What cannot be deleted now stays.
        self.set_cleaner(Some(Box::new(move || {
            let _ = (0..DELETIONS).any(|_| std::fs::remove_dir_all(&folder).is_ok() || !folder.exists());
        })));
    }

    /// Cleans up, once. Whoever comes second waits for the first.
    pub fn clean(&self) {
        let mut cleaner = self.cleaner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clean) = cleaner.take() {
            clean();
        }
    }
}
