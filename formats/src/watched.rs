//! Ends the opening of a dataset whose storage does not answer. Threads that are never joined do the work, because a
//! call into a dead mount cannot be ended. A thread that waits makes no calls and uses next to no processor time: if
//! none of them does for as long as one call may take, the work is given up.

use std::cell::RefCell;
use std::ffi::OsString;
use std::mem::take;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::system::ThreadClock;

/// How long one call may take where the user sets no timeout: a mount that is being made, a disk that begins to turn.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// What to do about storage that does not answer.
pub const REMEDY: &str =
    "see the kernel's log for the disk, or the server behind the mount; a longer timeout waits longer";

/// Processor time that a thread uses at most while it waits. The client of an NFS server that is down wakes every three
/// seconds to try again, some 20 times in a minute.
const IDLE: Duration = Duration::from_millis(2);

/// How often threads are looked at while one call may last.
const LOOKS: u32 = 16;

thread_local! {
    /// This thread, if it is watched.
    static SELF: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// Runs `work`, and gives up when the storage answers none of its calls for `limit`. For one without an end, the work
/// is done here.
///
/// # Errors
/// `Timeout` with the path that is asked for, if that is known; those of `work`.
pub(super) fn watched<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if limit == Duration::MAX || Watch::current().is_some() {
        return work();
    }
    let watch = Watch::default();
    let (tell, told) = channel();
    // Taken back if there is no thread for it.
    let work = Arc::new(Mutex::new(Some(work)));
    let started = Builder::new().name("uringload-open".into()).spawn({
        let (watch, work) = (watch.clone(), Arc::clone(&work));
        move || {
            let _watched = watch.enter();
            let work = lock(&work).take();
            // The receiver is gone if the work was given up.
            let _ = work.map(|work| tell.send(work()));
        }
    });
    let Ok(thread) = started else {
        let work = lock(&work).take();
        return work.expect("no thread has taken it")();
    };
    let (mut before, mut since) = (None, Instant::now());
    loop {
        match told.recv_timeout(limit / LOOKS) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => {
                let now = watch.done();
                if has_gone_on(before.as_deref(), now.as_deref()) {
                    (before, since) = (now, Instant::now());
                } else if since.elapsed() >= limit {
                    watch.0.given_up.store(true, Ordering::Relaxed);
                    return Err(watch.over(limit));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                // Its panic is a bug; it continues in the caller's thread.
                let panic = thread.join().expect_err("without a panic, a result was sent");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Whether any thread has made a call, or has worked, since `before` was asked for.
fn has_gone_on(before: Option<&[(u64, Duration)]>, now: Option<&[(u64, Duration)]>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return true };
    before.len() != now.len()
        || before.iter().zip(now).any(|(before, now)| before.0 != now.0 || before.1.abs_diff(now.1) > IDLE)
}

/// Whether the work of this thread was given up.
pub(super) fn is_given_up() -> bool {
    SELF.with_borrow(|thread| thread.as_ref().is_some_and(|thread| thread.watch.0.given_up.load(Ordering::Relaxed)))
}

/// Notes that this thread now asks storage about `path`, until the guard is dropped. Then what it asked about before
/// counts again.
pub(super) fn asking(path: &Path) -> Asking {
    let thread = SELF.with_borrow(Clone::clone);
    let before = thread.as_ref().map(|thread| take(&mut *lock(&thread.asks))).unwrap_or_default();
    let asking = Asking { thread, before };
    asking.next(path, b"", b"");
    asking
}

/// A thread asks storage for something.
pub(super) struct Asking {
    thread: Option<Thread>,
    before: Vec<u8>,
}

impl Asking {
    /// From now on it asks about `name` in `folder`, a path that is empty or ends in a slash, below `root`.
    pub(super) fn next(&self, root: &Path, folder: &[u8], name: &[u8]) {
        let Some(thread) = &self.thread else { return };
        let mut path = lock(&thread.asks);
        path.clear();
        path.extend_from_slice(root.as_os_str().as_bytes());
        let is_below = !folder.is_empty() || !name.is_empty();
        let slash: &[u8] = if is_below && !path.ends_with(b"/") { b"/" } else { b"" };
        path.extend([slash, folder, name].into_iter().flatten());
        drop(path);
        self.again();
    }

    /// It makes another call about the same.
    pub(super) fn again(&self) {
        if let Some(thread) = &self.thread {
            thread.calls.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(thread) = &self.thread {
            *lock(&thread.asks) = take(&mut self.before);
        }
    }
}

/// The threads that do one work.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<Work>);

#[derive(Default)]
struct Work {
    threads: Mutex<Vec<Thread>>,
    given_up: AtomicBool,
}

impl Watch {
    /// That of this thread.
    pub(super) fn current() -> Option<Watch> {
        SELF.with_borrow(|thread| thread.as_ref().map(|thread| thread.watch.clone()))
    }

    /// From now on this thread is one of them, until the guard is dropped.
    pub(super) fn enter(&self) -> Entered {
        let (clock, asks, calls) = (ThreadClock::of_this(), Arc::default(), Arc::default());
        let thread = Thread { watch: self.clone(), clock, asks, calls };
        lock(&self.0.threads).push(thread.clone());
        SELF.set(Some(thread));
        Entered
    }

    /// The calls and the processor time of each; `None` if the time of one is not known.
    fn done(&self) -> Option<Vec<(u64, Duration)>> {
        let of = |thread: &Thread| Some((thread.calls.load(Ordering::Relaxed), thread.clock?.now()?));
        lock(&self.0.threads).iter().map(of).collect()
    }

    fn over(&self, limit: Duration) -> Error {
        let threads = lock(&self.0.threads);
        let asks = threads.iter().map(|thread| lock(&thread.asks).clone()).find(|path| !path.is_empty());
        let error = |what: &str| {
            let error = Error::new(ErrorKind::Timeout, format!("{what} did not answer within {limit:?}"));
            error.with_remedy(REMEDY)
        };
        match asks {
            Some(path) => error("it").with_path(PathBuf::from(OsString::from_vec(path))),
            None => error("the storage"),
        }
    }
}

/// A thread is watched while this lives.
pub(super) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(thread) = SELF.take() {
            lock(&thread.watch.0.threads).retain(|other| !Arc::ptr_eq(&other.asks, &thread.asks));
        }
    }
}

#[derive(Clone)]
struct Thread {
    watch: Watch,
    clock: Option<ThreadClock>,
    /// The path that it asks about; empty if it asks about none.
    asks: Arc<Mutex<Vec<u8>>>,
    /// How often it has asked.
    calls: Arc<AtomicU64>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    #[test]
    fn without_a_note_nothing_is_named() {
        let (end, theirs) = channel::<()>();
        let error = watched(LIMIT, move || Ok(theirs.recv().is_ok())).unwrap_err();
        assert_eq!((error.path(), error.what()), (None, "the storage did not answer within 200ms"));
        drop(end);
    }

    /// As the client of a server that is down does.
    #[test]
    fn who_wakes_to_try_again_has_not_gone_on() {
        let error = watched(LIMIT, move || {
            let _asking = asking(Path::new("/data"));
            while !is_given_up() {
                std::thread::sleep(LIMIT / 5);
            }
            Ok(())
        });
        assert_eq!(error.unwrap_err().path(), Some(Path::new("/data")));
    }

    #[test]
    fn slow_answers_and_long_work_are_waited_for() {
        let answers = watched(LIMIT, || {
            for _ in 0..30 {
                let _asking = asking(Path::new("/data"));
                std::thread::sleep(LIMIT / 10);
            }
            Ok(7)
        });
        assert_eq!(answers.unwrap(), 7);
        let start = Instant::now();
        let works = watched(LIMIT, move || Ok((0_u64..).take_while(|_| start.elapsed() < 3 * LIMIT).count()));
        assert!(works.unwrap() > 0);
    }

    #[test]
    fn a_panic_goes_on_where_the_result_was_wanted() {
        let panic = std::panic::catch_unwind(|| watched::<()>(LIMIT, || panic!("here"))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"here"));
    }
}
