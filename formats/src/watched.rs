//! Ends the opening of a dataset whose storage does not answer. Threads that nobody joins do the work, because what
//! waits for a call into a dead mount cannot be ended. A thread that waits uses no processor time: if none of them uses
//! any for as long as one call may take, that call is given up, and with it the work.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
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
    "see the kernel's log for the disk, or the server behind the mount; with a longer timeout it is waited for longer";

/// How often threads are looked at while one call may last.
const LOOKS: u32 = 16;

thread_local! {
    /// This thread, if it is watched.
    static SELF: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// Runs `work`, and gives up when the storage answers none of its calls for `limit`. `place` is named if it is not
/// known which call that is.
///
/// # Errors
/// `Timeout` with the path that is asked for; those of `work`.
pub(super) fn watched<T: Send + 'static>(
    limit: Duration,
    place: &Path,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if Watch::current().is_some() {
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
            // Nobody listens any more if the work was given up.
            let _ = work.map(|work| tell.send(work()));
        }
    });
    let Ok(thread) = started else {
        let work = lock(&work).take();
        return work.expect("no thread has taken it")();
    };
    let (mut used, mut since) = (Vec::new(), Instant::now());
    loop {
        match told.recv_timeout(limit / LOOKS) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => {
                let now = watch.used();
                if now.is_empty() || now != used {
                    (used, since) = (now, Instant::now());
                } else if since.elapsed() >= limit {
                    let path = watch.asked().unwrap_or_else(|| place.to_path_buf());
                    return Err(Error::new(ErrorKind::Timeout, format!("it did not answer within {limit:?}"))
                        .with_path(path)
                        .with_remedy(REMEDY));
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

/// Notes that this thread now asks storage about `path`, until the guard is dropped. One thread asks one thing at a
/// time.
pub(super) fn asking(path: &Path) -> Asking {
    let asking = Asking(SELF.with_borrow(Clone::clone));
    asking.next(path, b"", b"");
    asking
}

/// A thread asks storage for something.
pub(super) struct Asking(Option<Thread>);

impl Asking {
    /// From now on it asks about `name` in `folder`, a path that is empty or ends in a slash, below `root`.
    pub(super) fn next(&self, root: &Path, folder: &[u8], name: &[u8]) {
        if let Some(thread) = &self.0 {
            let mut path = lock(&thread.asks);
            path.clear();
            path.extend_from_slice(root.as_os_str().as_bytes());
            if !folder.is_empty() || !name.is_empty() {
                path.extend([b"/", folder, name].into_iter().flatten());
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(thread) = &self.0 {
            lock(&thread.asks).clear();
        }
    }
}

/// The threads that do one work.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Vec<Thread>>>);

impl Watch {
    /// That of this thread.
    pub(super) fn current() -> Option<Watch> {
        SELF.with_borrow(|thread| thread.as_ref().map(|thread| thread.watch.clone()))
    }

    /// From now on this thread is one of them, until the guard is dropped.
    pub(super) fn enter(&self) -> Entered {
        let thread = Thread { watch: self.clone(), clock: ThreadClock::of_this(), asks: Arc::default() };
        lock(&self.0).push(thread.clone());
        SELF.set(Some(thread));
        Entered
    }

    /// The processor time of each; empty if that of one is not known.
    fn used(&self) -> Vec<Duration> {
        let used = lock(&self.0).iter().map(|thread| thread.clock?.now()).collect::<Option<_>>();
        used.unwrap_or_default()
    }

    /// The path that one of them asks about.
    fn asked(&self) -> Option<PathBuf> {
        let asks = lock(&self.0).iter().map(|thread| lock(&thread.asks).clone()).find(|path| !path.is_empty())?;
        Some(OsString::from_vec(asks).into())
    }
}

/// A thread is watched while this lives.
pub(super) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(thread) = SELF.take() {
            lock(&thread.watch.0).retain(|other| !Arc::ptr_eq(&other.asks, &thread.asks));
        }
    }
}

#[derive(Clone)]
struct Thread {
    watch: Watch,
    clock: Option<ThreadClock>,
    /// The path that it asks about; empty if it asks about none.
    asks: Arc<Mutex<Vec<u8>>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::try_in_parallel;
    use std::sync::Barrier;

    const LIMIT: Duration = Duration::from_millis(200);

    #[test]
    fn what_is_not_answered_is_named_and_left_behind() {
        for threads in [1, 4] {
            let end = Arc::new(Barrier::new(2));
            let theirs = Arc::clone(&end);
            let start = Instant::now();
            let error = watched(LIMIT, Path::new("/"), move || {
                let files: Vec<u32> = (0..40).collect();
                try_in_parallel(&files, threads, |file| {
                    let asking = asking(Path::new("/data"));
                    asking.next(Path::new("/data"), b"", file.to_string().as_bytes());
                    if *file == 20 {
                        theirs.wait();
                    }
                    Ok(())
                })
            })
            .unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Timeout, Some(Path::new("/data/20"))), "{error}");
            assert!(start.elapsed() >= LIMIT);
            end.wait();
        }
    }

    #[test]
    fn without_a_note_the_place_is_named() {
        let (end, theirs) = channel::<()>();
        let error = watched(LIMIT, Path::new("/data"), move || Ok(theirs.recv().is_ok())).unwrap_err();
        assert_eq!(error.path(), Some(Path::new("/data")));
        drop(end);
    }

    #[test]
    fn slow_answers_and_long_work_are_waited_for() {
        let answers = watched(LIMIT, Path::new("/data"), || {
            (0..30).for_each(|_| std::thread::sleep(LIMIT / 10));
            Ok(7)
        });
        assert_eq!(answers.unwrap(), 7);
        let start = Instant::now();
        let works = watched(LIMIT, Path::new("/data"), move || {
            Ok((0_u64..).take_while(|_| start.elapsed() < 3 * LIMIT).count())
        });
        assert!(works.unwrap() > 0);
    }

    #[test]
    fn a_panic_goes_on_where_the_result_was_wanted() {
        let panic = std::panic::catch_unwind(|| watched::<()>(LIMIT, Path::new("/"), || panic!("here"))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"here"));
    }
}
