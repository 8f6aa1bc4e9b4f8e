//! Ctrl-C, SIGTERM and SIGHUP: the first asks the command to stop, and gives it a while to do so in order; the second
//! ends the process.

use crate::failure::INTERRUPTED;
use crate::output::eprintln_quietly;
use crate::progress;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uringload_measure::Caller;

/// How long a command may take to stop in order, however slow a disk is.
const BOUND: Duration = Duration::from_millis(800);

/// How long cleaning up may take then.
const CLEANING: Duration = Duration::from_millis(700);

/// What the user may stop. Belongs to the thread that installed it, which the signal wakes up.
#[derive(Clone)]
pub struct Interrupt(Caller);

impl Deref for Interrupt {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl Interrupt {
    /// Handles the signals from now on. If that fails, they keep their previous effect.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt(Caller::new(Arc::new(say), progress::of_run, progress::of_phase));
        let handler = interrupt.clone();
        if let Err(error) = ctrlc::set_handler(move || handler.signal()) {
            eprintln_quietly(&format!("uringload: warning: Ctrl-C will not be handled: {error}"));
        }
        interrupt
    }

    /// Handles the signals from now on for a command that cannot stop in order: the first ends the process.
    pub fn end_at_once() {
        let interrupt = Interrupt::install();
        interrupt.stop();
    }

    fn signal(&self) {
        if self.stop() {
            self.end(None);
        }
        let waiting = self.clone();
        // Without a thread, a second signal ends the process.
        let _ = thread::Builder::new().name("uringload-end".into()).spawn(move || {
            thread::sleep(BOUND);
            waiting.end(Some(&format!("uringload: stopped, without the end of what was under way for {BOUND:?}")));
        });
    }

    /// Ends the process in any case: after another while, if stderr is not read or a disk does not answer.
    fn end(&self, word: Option<&str>) {
        let exit = || std::process::exit(INTERRUPTED.into());
        let _ = thread::Builder::new().spawn(move || {
            thread::sleep(CLEANING);
            exit();
        });
        word.into_iter().for_each(eprintln_quietly);
        self.clean();
        exit();
    }
}

fn say(line: &str) {
    eprintln_quietly(&format!("uringload: {line}"));
}
