//! System calls that a filter denies, as in a container: with every answer and under every policy a loader gives the
//! right bytes or one error, in bounded time, and a good sample is never listed as bad.

use super::same::{Made, SAMPLES, every, payload, payload_of};
use crate::common::sandbox::without;
use crate::common::within;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::{EngineChoice, IoChoice, OnError, Shuffle};
use uringload::{Error, Loader};

const BOUND: Duration = Duration::from_secs(900);
/// How long storage, and a machine without room, are waited for.
const OUTAGE: Duration = Duration::from_millis(200);
/// Longest time for a case: some waits follow one another, and all run at once.
const CASE_BOUND: Duration = Duration::from_secs(30);
/// The same where every sample is a bad one: each is looked at twice, 250 ms apart, and so is the last of the 16 that
/// would replace it, one after the other, until the breaker ends it. If all 16 were, it would be 38 s.
const BLAMED_BOUND: Duration = Duration::from_secs(30);
/// Only a hang takes as long.
const HANG: Duration = Duration::from_secs(120);
/// Cases that run at once. Most of their time they wait.
const AT_ONCE: usize = 16;

const CALLS: [(&str, i64); 9] = [
    ("io_uring_setup", 425),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
    ("openat", libc::SYS_openat),
    ("statx", libc::SYS_statx),
    ("pread64", libc::SYS_pread64),
    ("madvise", libc::SYS_madvise),
    ("fadvise64", libc::SYS_fadvise64),
    ("eventfd2", libc::SYS_eventfd2),
];
const ERRNOS: [(&str, i32); 4] =
    [("EPERM", libc::EPERM), ("ENOSYS", libc::ENOSYS), ("EAGAIN", libc::EAGAIN), ("ENOMEM", libc::ENOMEM)];
const POLICIES: [OnError; 4] = [OnError::Raise, OnError::Warn, OnError::Skip, OnError::Replace];
const ENGINES: [EngineChoice; 3] = [EngineChoice::Auto, EngineChoice::Uring, EngineChoice::Threads];

/// A call, what it answers, a policy, an engine, and which format is read.
struct Case<'a> {
    call: (&'static str, i64),
    errno: (&'static str, i32),
    policy: OnError,
    engine: EngineChoice,
    made: &'a Made,
    list: PathBuf,
}

impl Case<'_> {
    fn told(&self) -> String {
        let Case { call, errno, policy, engine, made, .. } = self;
        format!("{} answers {}, {policy:?}, {engine:?}, {}", call.0, errno.0, made.0)
    }

    /// Whether the answer is one that a file gives too: `EPERM` of a read or of a look at a name.
    fn blames_the_file(&self) -> bool {
        self.errno.1 == libc::EPERM && ["pread64", "statx"].contains(&self.call.0)
    }

    /// Reads all of the dataset within the filter; returns how many samples came, and the errors.
    fn read(&self) -> (u64, Vec<Error>) {
        let (_, dataset, column) = self.made;
        let builder = Loader::builder(Arc::clone(dataset)).batch_size(7).shuffle(Shuffle::Auto).num_threads(2);
        // Past the page cache, where it can be: a filter is no reason to take the shorter way.
        let builder = builder.on_error(self.policy).engine(self.engine).io(IoChoice::Auto);
        without(&[self.call.1], self.errno.1, || {
            let (mut came, mut errors) = (0, Vec::new());
            match builder.quarantine(&self.list).outage_timeout(OUTAGE).build() {
                Err(error) => errors.push(error),
                Ok(loader) => {
                    for item in loader {
                        match item {
                            Err(error) => errors.push(error),
                            Ok(batch) => {
                                let index = batch.columns.iter().position(|found| found.name == *column).unwrap_or(0);
                                for (row, id) in batch.ids.iter().enumerate() {
                                    let bytes = batch.columns[index].bytes_of(row).expect("bytes");
                                    let is_right = payload_of(&bytes) == payload(id.0);
                                    assert!(is_right, "{}: sample {}", self.told(), id.0);
                                }
                                came += batch.ids.len() as u64;
                                errors.extend(batch.failed.into_iter().map(|failed| failed.error));
                            }
                        }
                    }
                }
            }
            (came, errors)
        })
    }

    /// Returns whether everything came.
    fn check(&self) -> bool {
        let (told, begun) = (self.told(), Instant::now());
        let (came, errors) = self.read();
        let took = begun.elapsed();
        let bound = if self.blames_the_file() { BLAMED_BOUND } else { CASE_BOUND };
        assert!(took < bound, "{told}: {took:?}");
        if self.blames_the_file() {
            assert!(came + errors.len() as u64 <= SAMPLES + 1, "{told}: {came} and {errors:?}");
            return false;
        }
        assert_eq!(fs::read(&self.list).unwrap_or_default(), b"", "{told}: good samples are listed: {errors:?}");
        assert!(errors.len() <= 1, "{told}: one error is enough: {errors:?}");
        match errors.first() {
            None => assert_eq!(came, SAMPLES, "{told}: samples are lost without an error"),
            Some(error) => assert!(error.remedy().is_some() || error.cause().is_some(), "{told}: {error}"),
        }
        errors.is_empty()
    }
}

/// The product of calls, answers and policies; engines and formats take turns.
#[test]
#[ignore = "slow: half a minute"]
fn calls_that_a_filter_denies_give_everything_or_one_error() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let made = every(&root);
        let mut cases = Vec::new();
        for call in CALLS {
            for errno in ERRNOS {
                for policy in POLICIES {
                    let turn = cases.len();
                    let fits = |made: &&Made| policy != OnError::Replace || made.1.units().is_none();
                    let made = made.iter().filter(fits).cycle().nth(turn * 7).expect("a format");
                    let (engine, list) = (ENGINES[turn % 3], root.path().join(format!("bad-{turn}.jsonl")));
                    cases.push(Case { call, errno, policy, engine, made, list });
                }
            }
        }
        let mut all = 0;
        for some in cases.chunks(AT_ONCE) {
            all += std::thread::scope(|scope| {
                let threads: Vec<_> = some.iter().map(|case| scope.spawn(|| case.check())).collect();
                threads.into_iter().map(|thread| thread.join().expect("the case holds")).filter(|&all| all).count()
            });
        }
        println!("{all} of {} cases gave everything", cases.len());
        assert!(all > cases.len() / 4, "a filter against one call seldom keeps a loader from reading: {all}");
    });
}

/// A kernel that takes no read is told and waited for as long as `outage_timeout` says, and no longer; dropping the
/// loader does not wait for it either.
#[test]
fn a_kernel_that_takes_no_read_is_one_error_in_bounded_time() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let made = every(&root);
        let (_, dataset, _) = &made[0];
        for errno in [libc::EAGAIN, libc::ENOMEM, libc::EBUSY] {
            without(&[426], errno, || {
                let wait = Duration::from_millis(1500);
                let builder = Loader::builder(Arc::clone(dataset)).engine(EngineChoice::Uring).outage_timeout(wait);
                let begun = Instant::now();
                let mut loader = match builder.build() {
                    Ok(loader) => loader,
                    Err(error) => return eprintln!("skipped: io_uring is not available here: {error}"),
                };
                let stats = loader.stats();
                let told = std::thread::spawn(move || {
                    while begun.elapsed() < HANG {
                        if let Some(outage) = stats.outage() {
                            return Some(outage.to_string());
                        }
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    None
                });
                let error = loader.next().expect("an item").expect_err("nothing can be read");
                let took = begun.elapsed();
                assert!(took >= wait && took < HANG, "{took:?}");
                assert!(error.to_string().contains("has taken no read for "), "{error}");
                assert!(error.remedy().is_some_and(|words| words.contains("io_uring_enter")), "{error}");
                assert!(loader.next().is_none(), "one error");
                drop(loader);
                assert!(begun.elapsed() < HANG, "dropping it is bounded: {:?}", begun.elapsed());
                let told = told.join().expect("the thread ends").expect("it is told meanwhile");
                assert!(told.contains("io_uring_enter"), "{told}");
            });
        }
    });
}
