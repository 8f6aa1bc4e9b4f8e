//! Processes that are started while a loader reads: they inherit nothing, and take nothing from their parent.

use crate::common::check::{WAYS, checked};
use crate::common::content::write_file;
use crate::common::{skip, within};
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, Options};
use uringload::{ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 200;

fn folder() -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for number in 0..FILES {
        write_file(&root.path().join(format!("{number:03}")), 50_000 + number * 101).expect("a file");
    }
    let dataset = dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder");
    (root, dataset)
}

/// Loaders over every way to read that is to be had here, each taken to its end, with `between` called at every batch.
fn at_each_batch(between: fn(&mut Loader)) {
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
fn a_forked_child_is_refused_and_drops_its_copy_at_once() {
    const WELL: i32 = 7;
    at_each_batch(|loader| {
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
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
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
