//! Runs the same work on many items, on the caller's and other threads: opening shards, reading headers.

use crate::watched::Watch;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use uringload_core::Result;

/// Applies `work` to every item, on up to `threads` threads. Results are in item order.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    until(&AtomicBool::new(false), items, threads, work)
}

/// The same for work that can fail: after the first failure, no further item is started.
///
/// # Errors
/// That of the first item, in order, for which `work` fails.
pub fn try_in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let failed = AtomicBool::new(false);
    let work = |item: &T| work(item).inspect_err(|_| failed.store(true, Ordering::Relaxed));
    // Items are taken in order, and every item taken is finished, so the first error returned is that of the first item
    // with an error.
    until(&failed, items, threads, work).into_iter().collect()
}

/// Applies `work` to the items, in order, until all are taken or `stop` is set.
fn until<T: Sync, R: Send>(stop: &AtomicBool, items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = &|| {
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            match items.get(number) {
                Some(item) => done.push((number, work(item))),
                None => break,
            }
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let (handles, _) = some_threads(scope, threads.min(items.len()).saturating_sub(1), worker);
        let mut done = worker();
        for handle in handles {
            // A worker's panic is a bug; it continues in the caller's thread.
            done.extend(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Starts up to `count` threads that do the same. If the system refuses one (a limit of processes, no memory), the work
/// goes on with those that run, and with the caller's: all take from one stock, so nothing is left undone. Also returns
/// why there are no more.
pub(super) fn some_threads<'scope, 'env, R: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    count: usize,
    work: impl Fn() -> R + Copy + Send + 'scope,
) -> (Vec<ScopedJoinHandle<'scope, R>>, Option<io::Error>) {
    let mut handles = Vec::with_capacity(count);
    let watch = Watch::current();
    for _ in 0..count {
        let watch = watch.clone();
        let watched = move || {
            let _watched = watch.map(|watch| watch.enter());
            work()
        };
        match Builder::new().spawn_scoped(scope, watched) {
            Ok(handle) => handles.push(handle),
            Err(error) => return (handles, Some(error)),
        }
    }
    (handles, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watched::{asking, is_given_up, watched};
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};
    use std::time::{Duration, Instant};
    use uringload_core::{Error, ErrorKind};

    const LIMIT: Duration = Duration::from_millis(200);

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [1, 2, 7] {
            assert_eq!(in_parallel(&items, threads, |item| item * 2), (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        }
        assert!(in_parallel(&[0; 0], 3, |item: &usize| *item).is_empty());
    }

    #[test]
    fn results_come_in_the_order_of_the_items_and_the_first_error_wins() {
        let items: Vec<u32> = (0..1000).collect();
        for threads in [1, 2, 7] {
            let numbers = try_in_parallel(&items[3..], threads, |&item| Ok(item)).unwrap();
            assert!(numbers.into_iter().eq(3..1000), "{threads} threads");
            let failing = |&item: &u32| match item {
                500 | 501 | 900 => Err(Error::new(ErrorKind::Corrupt, format!("file {item}"))),
                _ => Ok(()),
            };
            let error = try_in_parallel(&items, threads, failing).unwrap_err();
            assert_eq!(error.to_string(), "file 500", "{threads} threads");
        }
        assert!(try_in_parallel(&[0; 0], 4, |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_answered_is_named_and_left_behind() {
        for threads in [1, 4] {
            let end = Arc::new(Barrier::new(2));
            let theirs = Arc::clone(&end);
            let (tell, told) = channel();
            let start = Instant::now();
            let error = watched(LIMIT, move || {
                let files: Vec<u32> = (0..40).collect();
                let done = try_in_parallel(&files, threads, |file| {
                    let asks = asking(Path::new("/data/"));
                    asks.next(Path::new("/data/"), b"", file.to_string().as_bytes());
                    drop(asking(Path::new("/other")));
                    if *file == 20 {
                        theirs.wait();
                    }
                    Ok(())
                });
                let _ = tell.send(is_given_up());
                done
            })
            .unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Timeout, Some(Path::new("/data/20"))), "{error}");
            assert!(start.elapsed() >= LIMIT);
            end.wait();
            assert!(told.recv().unwrap());
        }
    }
}
