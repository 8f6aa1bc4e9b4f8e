//! Processes that are started while a loader reads: they inherit nothing, and take nothing from their parent.

use crate::common::check::{WAYS, checked};
use crate::common::fixture::files;
use crate::common::{skip, within};
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::dataset::{Dataset, FileId, Span};
use uringload::{Error, ErrorKind, Loader, Reader, ReaderOptions};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 200;

fn folder() -> (TempDir, Arc<dyn Dataset>) {
    files((0..FILES).map(|number| (format!("{number:03}"), 50_000 + number * 101)))
}

/// Loaders over every way to read that works here, each taken to its end, with `between` called at every batch.
fn at_each_batch(between: impl Fn(&mut Loader) + Send + 'static) {
    within(BOUND, move || {
        let (_root, dataset) = folder();
        for (engine, io) in WAYS {
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(20).shuffle(true).memory_limit(4 << 20);
            let mut loader = match builder.engine(engine).io(io).build() {
                Ok(loader) => loader,
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    skip(format!("{engine:?} {io:?}: {error}"));
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let mut came = 0;
            while let Some(batch) = loader.next() {
                let batch = batch.expect("no error");
                between(&mut loader);
                came += checked(&*dataset, &batch).len() as u64;
            }
            assert_eq!(came, FILES, "{engine:?} {io:?}");
        }
    });
}

/// Runs `work` in a child, which ends with what it returns; returns how the child ended.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `work` and leaves by `_exit`; glibc keeps its allocator usable after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = work();
        // SAFETY: ends the child at once, without the parent's destructors and buffers.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "{}", io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is a valid place for one int, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    libc::WEXITSTATUS(status)
}

/// As a library that forks workers does: the child has a copy of the loader, asks it, and drops it.
#[test]
fn a_forked_child_is_refused_and_drops_its_copy() {
    refused_and_dropped(BOUND);
}

/// It waits for no thread that is not there, not even for as long as a loader waits for reads that do not end.
#[test]
#[ignore = "slow: measures time"]
fn a_forked_child_is_refused_and_drops_its_copy_at_once() {
    refused_and_dropped(Duration::from_secs(5));
}

fn refused_and_dropped(bound: Duration) {
    const WELL: i32 = 7;
    at_each_batch(move |loader| {
        let start = Instant::now();
        let ended = in_child(|| {
            let refused = matches!(loader.next(), Some(Err(error)) if error.kind() == ErrorKind::InvalidArgument);
            let ends = loader.next().is_none() && loader.is_empty() && matches!(loader.try_next(), Ok(None));
            // SAFETY: the child does not use the loader again: it leaves by `_exit`, which drops nothing. The parent
            // has its own copy of all memory.
            drop(unsafe { std::ptr::read(loader) });
            if refused && ends { WELL } else { 1 }
        });
        assert_eq!(ended, WELL);
        assert!(start.elapsed() < bound, "{:?}", start.elapsed());
    });
}

/// A reader's copy refuses what a thread would have to do that is not there, and still reads by itself.
#[test]
fn a_forked_child_is_refused_by_a_reader_and_reads_by_itself() {
    const WELL: i32 = 7;
    within(BOUND, || {
        let (_root, dataset) = folder();
        let mut reader = Reader::of(dataset, &ReaderOptions::default()).expect("a reader");
        let span = [Span { file: FileId(3), offset: 100, len: 5000 }];
        (0..50).for_each(|id| reader.submit(id, &span).expect("a request"));
        let wanted = reader.read(&span).expect("bytes");
        let ended = in_child(|| {
            let is_refused = |error: Error| error.kind() == ErrorKind::InvalidArgument && error.remedy().is_some();
            let submitted = reader.submit(99, &span).is_err_and(is_refused);
            let cancelled = reader.cancel(7) && !reader.cancel(7);
            let answers = reader.by_ref().map(|(_, answer)| answer.is_err_and(is_refused));
            let all = answers.take_while(|refused| *refused).count();
            let none = reader.try_next().is_none() && reader.next_timeout(BOUND).is_none() && reader.in_flight() == 0;
            let reads = reader.read(&span).is_ok_and(|bytes| bytes == wanted);
            // SAFETY: as in the test above.
            drop(unsafe { std::ptr::read(&raw const reader) });
            if submitted && cancelled && all == 49 && none && reads { WELL } else { 1 }
        });
        assert_eq!(ended, WELL);
        // The parent's answers come all the same.
        assert_eq!(reader.filter(|(_, answer)| answer.as_ref().is_ok_and(|bytes| *bytes == wanted)).count(), 50);
    });
}

/// A program that is started meanwhile has none of the loader's descriptors: no ring, no file, no folder.
#[test]
fn programs_inherit_no_descriptor() {
    at_each_batch(|loader| {
        // One more that must not be passed on.
        loader.ready_fd().expect("a descriptor");
        let output = Command::new("ls").args(["-l", "/proc/self/fd"]).output().expect("ls");
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && listed.contains("/proc/"), "{listed}");
        let inherited = ["io_uring", "eventfd", env!("CARGO_TARGET_TMPDIR")];
        assert!(inherited.iter().all(|what| !listed.contains(what)), "{listed}");
    });
}
