//! What a command does, on stderr while it does it. On a terminal a line shows it, changes ten times a second, is no
//! wider than the terminal, and disappears when it is dropped. Elsewhere what lasts is said in lines.

use crate::output::eprintln_quietly;
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use uringload::dataset::IndexProgress;
use uringload::stats::{Snapshot, Stats};
use uringload_measure::text::{self, one_line};

/// How often the line changes.
const PERIOD: Duration = Duration::from_millis(100);
/// How long something lasts before it is said where there is no terminal.
const TOLD: Duration = Duration::from_secs(2);
/// The width of a terminal that does not report it.
const COLUMNS: usize = 80;
/// Characters of a bar.
const CELLS: u64 = 30;
/// To the first column, and clear what follows (ECMA-48: erase in line).
const CLEAR: &str = "\r\u{1b}[K";

/// See the module documentation. Threads may share it.
pub struct Line(Option<Mutex<Shown>>);

struct Shown {
    out: Box<dyn Write + Send>,
    columns: fn() -> usize,
    /// When it may change.
    next: Instant,
    is_shown: bool,
}

impl Line {
    /// Nothing is shown yet.
    pub fn new() -> Line {
        let can_clear = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        Line((can_clear && io::stderr().is_terminal()).then(|| Mutex::new(Shown::on(Box::new(io::stderr()), columns))))
    }

    /// Shows what `text` returns, if it is time for that.
    pub fn show(&self, text: impl FnOnce() -> String) {
        let Some(shown) = &self.0 else { return };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now >= shown.next {
            shown.next = now + PERIOD;
            shown.draw(&text());
        }
    }

    /// Writes something else to the terminal, while the line is away.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut shown = self.0.as_ref().map(|shown| shown.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(shown) = &mut shown {
            shown.clear();
        }
        write()
    }
}

impl Shown {
    fn on(out: Box<dyn Write + Send>, columns: fn() -> usize) -> Shown {
        Shown { out, columns, next: Instant::now(), is_shown: false }
    }

    /// An unwritable terminal is no reason to stop.
    fn draw(&mut self, text: &str) {
        // The last column stays free: some terminals move to the next line after it.
        let fitting: String = text.chars().take((self.columns)().saturating_sub(1)).collect();
        let _ = self.out.write_all(format!("{CLEAR}{fitting}").as_bytes());
        self.is_shown = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = self.out.write_all(CLEAR.as_bytes());
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.clear();
    }
}

fn columns() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(COLUMNS, |(columns, _)| columns.0.into())
}

/// "███████████████░░░░░░░░░░░░░░░  50 %": of nothing, everything is done.
pub fn bar(done: u64, total: u64) -> String {
    let of = |parts: u64| u64::try_from(u128::from(done) * u128::from(parts) / u128::from(total.max(1)));
    let of = |parts: u64| if total == 0 { parts } else { of(parts).unwrap_or(parts).min(parts) };
    let full = of(CELLS) as usize;
    format!("{}{} {:>3} %", "█".repeat(full), "░".repeat(CELLS as usize - full), of(100))
}

/// What is done until this is dropped, and until when it ends, if that is known. On a terminal it is shown from the
/// start, elsewhere it is said when it has lasted for a while, and again each time it has lasted twice as long.
pub struct Doing {
    shared: Arc<Shared>,
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    line: Line,
    what: String,
    start: Instant,
    until: Option<Instant>,
    /// Whether the line shows something else by now.
    is_covered: AtomicBool,
}

impl Doing {
    /// Begins to show it.
    pub fn new(what: &str, until: Option<Instant>) -> Doing {
        Doing::on(Line::new(), what, until)
    }

    /// A dataset is opened.
    pub fn opening(paths: &[PathBuf]) -> Doing {
        let more = if paths.len() > 1 { format!(" and {} more", paths.len() - 1) } else { String::new() };
        let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        Doing::new(&format!("opening {first}{more}"), None)
    }

    fn on(line: Line, what: &str, until: Option<Instant>) -> Doing {
        let (what, start, is_covered) = (what.to_owned(), Instant::now(), AtomicBool::new(false));
        let shared = Arc::new(Shared { line, what, start, until, is_covered });
        let (ends, end) = mpsc::channel();
        let shown = Arc::clone(&shared);
        let thread = thread::Builder::new().name("uringload-shows".into()).spawn(move || shown.show_until(&end));
        // Without a thread nothing is shown.
        Doing { shared, ends: Some(ends), thread: thread.ok() }
    }

    /// Shows how far a scan of files is, in place of what is done.
    pub fn index(&self) -> impl Fn(IndexProgress) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |done| {
            shared.is_covered.store(true, Ordering::Relaxed);
            shared.line.show(|| {
                let rate = text::bytes(done.bytes as f64 / shared.start.elapsed().as_secs_f64().max(1e-9));
                let bar = bar(done.bytes, done.bytes_total);
                format!("index {bar}  {rate}/s  {} of {} files", done.shards, done.shards_total)
            });
        }
    }
}

impl Shared {
    fn show_until(&self, end: &Receiver<()>) {
        let mut tell_from = TOLD;
        while end.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            if !self.is_covered.load(Ordering::Relaxed) {
                self.line.show(|| self.told());
            }
            if self.line.0.is_none() && self.start.elapsed() >= tell_from {
                tell_from *= 2;
                eprintln_quietly(&format!("uringload: {}", self.told()));
            }
        }
    }

    /// "opening /data, 3 s", "measuring a raw read, 2 s, 5 s left at most".
    fn told(&self) -> String {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64().ceil());
        let left = left.map_or_else(String::new, |left| format!(", {left:.0} s left at most"));
        format!("{}, {} s{left}", one_line(&self.what), self.start.elapsed().as_secs())
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        drop(self.ends.take());
        // It ends with its period at most.
        let _ = self.thread.take().map(JoinHandle::join);
        // Options that are still there may hold on to the line.
        self.shared.line.suspend(|| ());
    }
}

/// Shows what is done before and after runs.
pub fn of_phase(what: &str, until: Option<Instant>) -> Box<dyn Send> {
    Box::new(Doing::new(what, until))
}

/// Shows how far a run is, of so many batches and until then, if it has an end.
pub fn of_run(name: &str, total: Option<u64>, until: Option<Instant>) -> Box<dyn FnMut(&Stats)> {
    let (line, name, start) = (Line::new(), name.to_owned(), Instant::now());
    // Where there is no terminal.
    let said = line.0.is_none().then(|| Doing::on(Line(None), &name, until));
    let mut before = Snapshot::default();
    // Only a change of the line costs a snapshot, some 20 µs.
    Box::new(move |stats| {
        let _said = &said;
        line.show(|| {
            let snapshot = stats.snapshot();
            let live = snapshot.since(&before);
            let done = match total {
                Some(total) => bar(snapshot.count.batches, total),
                None => text::time(start.elapsed()),
            };
            let rate = text::bytes(live.bytes_per_second());
            let samples = text::count(live.samples_per_second() as u64);
            let limit = live.verdict(None).bottleneck;
            before = snapshot;
            format!("{name} {done}  {rate}/s  {samples} samples/s  limit: {limit}")
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Terminal(Arc<Mutex<Vec<u8>>>);

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Terminal {
        fn line(&self) -> Line {
            Line(Some(Mutex::new(Shown::on(Box::new(self.clone()), || 10))))
        }

        /// What was written since the last time.
        fn said(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
        }
    }

    #[test]
    fn a_line_is_cut_and_cleared() {
        let terminal = Terminal::default();
        let line = terminal.line();
        line.show(|| "12345678 0".into());
        assert_eq!(terminal.said(), "\r\u{1b}[K12345678 ", "nine of ten columns");
        line.show(|| unreachable!("too early"));
        let seen = terminal.clone();
        assert_eq!(line.suspend(|| seen.said()), "\r\u{1b}[K", "it is away before anything else is written");
        line.suspend(|| ());
        assert_eq!(terminal.said(), "", "once");
        std::thread::sleep(PERIOD);
        line.show(|| "█░".into());
        drop(line);
        assert_eq!(terminal.said(), "\r\u{1b}[K█░\r\u{1b}[K");
    }

    #[test]
    fn what_is_done_is_shown_with_the_time_left_until_something_else_is() {
        let terminal = Terminal::default();
        let wide = Shown::on(Box::new(terminal.clone()), || 80);
        let until = Some(Instant::now() + Duration::from_secs(7));
        let doing = Doing::on(Line(Some(Mutex::new(wide))), "opening /a\nb", until);
        let begun = Instant::now();
        let mut said = String::new();
        while !said.contains("opening") {
            assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
            thread::sleep(PERIOD);
            said += &terminal.said();
        }
        assert!(said.starts_with("\r\u{1b}[Kopening /a\\u000ab, 0 s, 7 s left at most"), "{said:?}");
        drop(doing);
        assert!(terminal.said().ends_with("\r\u{1b}[K"), "it is gone");
    }

    #[test]
    fn a_line_that_was_never_shown_writes_nothing() {
        let terminal = Terminal::default();
        drop(terminal.line());
        assert_eq!(terminal.said(), "");
        // The tests' own stderr may be a terminal.
        assert!(io::stderr().is_terminal() || Line::new().0.is_none());
    }

    #[test]
    fn bars_end_at_their_ends() {
        let (none, all) = ("░".repeat(30), "█".repeat(30));
        assert_eq!(bar(0, 7), format!("{none}   0 %"));
        assert_eq!(bar(7, 7), format!("{all} 100 %"));
        assert_eq!(bar(9, 7), bar(7, 7));
        assert_eq!(bar(0, 0), bar(7, 7));
        assert_eq!(bar(u64::MAX / 2, u64::MAX), format!("{}{}  49 %", "█".repeat(14), "░".repeat(16)));
    }
}
