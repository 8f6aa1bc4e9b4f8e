//! The same work on many things, by several threads of the caller's: opening shards, reading headers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uringload_core::Result;

/// Does `work` on every item, on up to `threads` threads; results come in the order of the items.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    until(&AtomicBool::new(false), items, threads, work)
}

/// The same with work that can fail: once an item has, no other is begun.
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
    // Items are taken in order, and one that was taken is finished: the first error that comes back is that of the
    // first item that has one.
    until(&failed, items, threads, work).into_iter().collect()
}

/// Does `work` on the items, in order, until all are taken or `stop` is set.
fn until<T: Sync, R: Send>(stop: &AtomicBool, items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
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
        let handles: Vec<_> = (1..threads.min(items.len())).map(|_| scope.spawn(worker)).collect();
        let mut done = worker();
        for handle in handles {
            // A panic of a worker is a bug; it goes on in the caller's thread.
            done.extend(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringload_core::{Error, ErrorKind};

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
}
