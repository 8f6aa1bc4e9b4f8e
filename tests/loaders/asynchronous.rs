//! The ways to wait for a batch: the examples as they stand, on plain threads, tokio, tokio-uring and a poll loop, with
//! every byte compared; and what those who write their own may do to a loader: give up waiting, move it, mix the ways.

#[path = "../../examples/poll_fd.rs"]
#[allow(dead_code)]
mod poll_fd;
#[path = "../../examples/threads.rs"]
#[allow(dead_code)]
mod threads;
#[path = "../../examples/tokio.rs"]
#[allow(dead_code)]
mod tokio_example;
#[path = "../../examples/tokio_uring.rs"]
#[allow(dead_code)]
mod tokio_uring_example;

use crate::common::check::{checked, order};
use crate::common::fixture::files;
use crate::common::{skip, within};
use futures_util::{FutureExt, Stream, StreamExt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime;
use uringload::Builder;
use uringload::batch::Batch;
use uringload::dataset::{Dataset, SampleId};
use uringload::inspect::Shuffled;
use uringload::sampler::Cursor;
use uringload::stats::{Doing, Role};
use uringload::{ErrorKind, Loader, Result};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 150;
const EPOCHS: u64 = 3;
const SEED: u64 = 5;
const BATCH: u64 = 4;

/// A folder, and what came out of it.
struct Work {
    dataset: Arc<dyn Dataset>,
    _root: TempDir,
    came: Mutex<Vec<SampleId>>,
}

impl Work {
    fn new() -> Work {
        let (root, dataset) = files((0..FILES).map(|number| (format!("{number:03}"), 20_000 + number * 41)));
        Work { dataset, _root: root, came: Mutex::default() }
    }

    fn builder(&self) -> Builder {
        Loader::builder(Arc::clone(&self.dataset)).batch_size(BATCH).shuffle(true).seed(SEED).epochs(EPOCHS)
    }

    fn loader(&self) -> Loader {
        self.builder().build().expect("a loader")
    }

    /// A loader whose memory holds one batch: as long as it is kept, no other can come.
    fn narrow_loader(&self, starved_after: Duration) -> Loader {
        let loader = self.builder().memory_limit(1_100_000).batch_size(32).starved_after(starved_after);
        loader.build().expect("a loader")
    }

    fn take(&self, batch: Batch) {
        self.came.lock().unwrap().extend(checked(&*self.dataset, &batch));
    }

    /// Whether all of all epochs came since the last call; in order, unless threads took turns.
    fn assert_complete(&self, in_order: bool) {
        let mut came = std::mem::take(&mut *self.came.lock().unwrap());
        let mut wanted = order(&Shuffled::new(FILES, SEED), EPOCHS);
        if !in_order {
            came.sort_unstable();
            wanted.sort_unstable();
        }
        assert!(came == wanted, "{} samples came, {} were expected", came.len(), wanted.len());
    }
}

#[test]
fn the_example_of_plain_threads() {
    within(BOUND, || {
        let work = Work::new();
        for workers in [1, 4] {
            threads::consume(work.loader(), workers, |batch| work.take(batch)).expect("no error");
            work.assert_complete(workers == 1);
        }
    });
}

#[test]
fn the_example_of_tokio() {
    within(BOUND, || {
        let work = Arc::new(Work::new());
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(tokio_example::consume(work.loader(), |batch| work.take(batch))).expect("no error");
        work.assert_complete(true);

        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let (task, loader) = (Arc::clone(&work), work.loader());
        let task = runtime.spawn(async move { tokio_example::consume(loader, |batch| task.take(batch)).await });
        runtime.block_on(task).expect("no panic").expect("no error");
        work.assert_complete(true);
    });
}

#[test]
fn the_example_of_tokio_uring() {
    within(BOUND, || {
        let work = Work::new();
        let checkpoint = work._root.path().join(".checkpoint");
        match tokio_uring_example::start(tokio_uring_example::consume(work.loader(), &checkpoint, |batch| {
            work.take(batch);
        })) {
            Ok(done) => done.expect("no error"),
            Err(error) => return skip(format!("tokio-uring: {error}")),
        }
        work.assert_complete(true);
        let place = std::fs::read_to_string(checkpoint).expect("a checkpoint");
        let numbers: Vec<u64> = place.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert_eq!(numbers, [EPOCHS, 0], "after the last batch");
    });
}

#[test]
fn the_example_of_a_poll_loop() {
    within(BOUND, || {
        let work = Work::new();
        poll_fd::consume(work.loader(), |batch| work.take(batch), || {}).expect("no error");
        work.assert_complete(true);
    });
}

/// However batches are waited for, the waits are counted, and nothing else is.
#[test]
fn waits_are_counted_by_batch() {
    fn count(work: &Work, consume: impl FnOnce(Loader)) {
        let loader = work.loader();
        let batches = loader.remaining().expect("an end");
        let stats = loader.stats();
        consume(loader);
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.batch_wait.count(), batches);
        assert_eq!(snapshot.count.batches, batches);
        assert!(snapshot.count.batches_ready <= batches);
        assert!(snapshot.first_batch.is_some());
        let waited = snapshot.share(Role::Consumer, Doing::WaitBatch).expect("a consumer");
        assert!(waited > 0.0 || snapshot.count.batches_ready == batches, "a batch that was not ready is waited for");
    }
    within(BOUND, || {
        let work = Work::new();
        count(&work, |loader| threads::consume(loader, 1, |batch| work.take(batch)).expect("no error"));
        count(&work, |loader| poll_fd::consume(loader, |batch| work.take(batch), || {}).expect("no error"));
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let consume = |loader| tokio_example::consume(loader, |batch| work.take(batch));
        count(&work, |loader| runtime.block_on(consume(loader)).expect("no error"));
    });
}

/// Whoever gives up waiting, as `select!` and `timeout` do, loses no batch.
#[test]
fn a_wait_that_is_given_up_loses_nothing() {
    within(BOUND, || {
        let work = Work::new();
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut loader = work.narrow_loader(BOUND);
            while let Some(batch) = StreamExt::next(&mut loader.stream()).await {
                let batch = batch.expect("no error");
                if !loader.is_empty() {
                    let polled =
                        poll_fn(|context| Poll::Ready(StreamExt::next(&mut loader.stream()).poll_unpin(context))).await;
                    assert!(polled.is_pending(), "the memory for it is kept");
                }
                work.take(batch);
            }
        });
        work.assert_complete(true);
    });
}

/// Ten tasks, each with a loader of its own, on one thread: a loader that blocked it would stop the others.
#[test]
fn many_loaders_on_one_thread() {
    within(BOUND, || {
        let work = Arc::new(Work::new());
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let task = |work: Arc<Work>| async move {
            // Polled only, so that it proves itself that it is woken.
            let mut loader = work.builder().epochs(1).memory_limit(2 << 20).build().expect("a loader");
            let mut samples = 0;
            while let Some(batch) = poll_fn(|context| Pin::new(&mut loader.stream()).poll_next(context)).await {
                samples += checked(&*work.dataset, &batch.expect("no error")).len() as u64;
            }
            samples
        };
        let tasks: Vec<_> = (0..10).map(|_| runtime.spawn(task(Arc::clone(&work)))).collect();
        for task in tasks {
            assert_eq!(runtime.block_on(task).expect("no panic"), FILES);
        }
    });
}

/// Wakes a thread, and remembers that it did.
struct Flag(Thread, AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::Release);
        self.0.unpark();
    }
}

/// The batch is announced to the waker of the last poll, not to one of an earlier task.
#[test]
fn the_last_waker_counts() {
    within(BOUND, || {
        let work = Work::new();
        let mut loader = work.narrow_loader(BOUND);
        let kept = Iterator::next(&mut loader).expect("a batch").expect("no error");
        let flag = || Arc::new(Flag(std::thread::current(), AtomicBool::new(false)));
        let (first, second) = (flag(), flag());
        for flag in [&first, &second] {
            let waker = Arc::clone(flag).into();
            assert!(
                Pin::new(&mut loader.stream()).poll_next(&mut Context::from_waker(&waker)).is_pending(),
                "memory is kept"
            );
        }
        drop(kept);
        while !second.1.load(Ordering::Acquire) {
            std::thread::park();
        }
        assert!(!first.1.load(Ordering::Acquire), "a task that does not wait any more");
        let waker = second.into();
        let batch = Pin::new(&mut loader.stream()).poll_next(&mut Context::from_waker(&waker));
        assert!(matches!(batch, Poll::Ready(Some(Ok(_)))));
    });
}

#[test]
fn ways_may_be_mixed_and_a_loader_may_move() {
    within(BOUND, || {
        let work = Arc::new(Work::new());
        let mut loader = work.loader();
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut ended = false;
        for turn in 0_u64.. {
            let batch: Option<Result<Batch>> = match turn % 4 {
                0 => Iterator::next(&mut loader),
                1 => runtime.block_on(StreamExt::next(&mut loader.stream())),
                2 => loader.try_next().transpose(),
                _ => {
                    // On another thread, from which it comes back.
                    let moved = std::thread::spawn(move || {
                        let batch = Iterator::next(&mut loader);
                        (loader, batch)
                    });
                    let batch;
                    (loader, batch) = moved.join().expect("no panic");
                    batch
                }
            };
            match batch {
                Some(batch) => {
                    assert!(!ended, "a batch after the end");
                    work.take(batch.expect("no error"));
                }
                None if turn % 4 == 2 => {}
                None if ended => break,
                None => ended = true,
            }
        }
        work.assert_complete(true);
        assert!(loader.is_empty());
    });
}

fn is_readable(loader: &Loader, wait: Duration) -> bool {
    let fd = loader.ready_fd().expect("a descriptor");
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&wait)).expect("poll") == 1
}

#[test]
fn the_descriptor_is_readable_exactly_while_there_is_something() {
    within(BOUND, || {
        let work = Work::new();
        let mut loader = work.narrow_loader(BOUND);
        assert!(is_readable(&loader, BOUND));
        let kept = loader.try_next().expect("no error").expect("it was readable");
        while loader.try_next().expect("no error").is_some() {}
        assert!(!is_readable(&loader, Duration::ZERO), "no memory, no batch");
        drop(kept);
        assert!(is_readable(&loader, BOUND), "memory came back");
        while Iterator::next(&mut loader).is_some() {}
        assert!(is_readable(&loader, Duration::ZERO), "the end is something to say");
        assert!(loader.is_empty());
    });
}

/// However it waits, a consumer that keeps batches is told instead of left waiting, and goes on once it lets them go.
#[test]
fn a_consumer_that_keeps_batches_is_told_however_it_waits() {
    const WAIT: Duration = Duration::from_millis(100);
    type Way = fn(&mut Loader) -> Option<Result<Batch>>;
    let ways: [(&str, Way); 4] = [
        ("next", Iterator::next),
        ("await", |loader| {
            let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(StreamExt::next(&mut loader.stream()))
        }),
        ("poll", |loader| {
            // As the example does: look, and sleep on the descriptor.
            loop {
                match loader.try_next().transpose() {
                    None if !loader.is_empty() => assert!(is_readable(loader, BOUND), "never woken"),
                    batch => return batch,
                }
            }
        }),
        ("spin", |loader| {
            loop {
                match loader.try_next().transpose() {
                    None if !loader.is_empty() => std::thread::sleep(Duration::from_millis(1)),
                    batch => return batch,
                }
            }
        }),
    ];
    within(BOUND, move || {
        let work = Work::new();
        for (name, next) in ways {
            let mut loader = work.narrow_loader(WAIT);
            let kept = next(&mut loader).expect("a batch").expect("no error");
            let (cursor, left) = (loader.cursor(), loader.remaining());
            for _ in 0..2 {
                let error = next(&mut loader).expect("an error").expect_err(name);
                assert_eq!(error.kind(), ErrorKind::Starved, "{name}: {error}");
            }
            assert_eq!((loader.cursor(), loader.remaining()), (cursor, left), "{name}: no batch was lost");
            drop(kept);
            let batch = next(&mut loader).expect("a batch").expect("memory came back");
            assert_eq!(batch.cursor, cursor, "{name}: the very next one");
            assert_eq!(batch.cursor, Cursor::new(0, 32));
        }
    });
}
