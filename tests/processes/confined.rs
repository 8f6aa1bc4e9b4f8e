//! Less than a process usually may: io_uring denied, little locked memory, few descriptors, and a fork in the middle.
//! Every sample still comes, byte-exact, and the route says what was denied and what to do.

use crate::common::check::{checked, conforms, drain};
use crate::common::sandbox::{fork_idle, wait_for, without_io_uring};
use crate::common::{fixture, within};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::Loader;
use uringload::config::{EngineChoice, EngineKind, IoChoice};
use uringload::dataset::{self, Dataset, Options};
use uringload::inspect::Shuffled;

const BOUND: Duration = Duration::from_secs(60);
const EPERM: i32 = libc::EPERM;
const ENOSYS: i32 = libc::ENOSYS;

fn folder() -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    fixture::write_folder(root.path());
    let dataset = dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder");
    (root, dataset)
}

/// What a seccomp filter that answers `errno` does to a loader.
fn steps_down(errno: i32, remedy: &'static str) {
    within(BOUND, move || {
        let (_root, dataset) = folder();
        without_io_uring(errno, || {
            let builder = Loader::builder(Arc::clone(&dataset)).io(IoChoice::Direct);
            let mut loader = builder.clone().build().expect("threads are left");
            let route = loader.route();
            assert_eq!(route.engine, EngineKind::Threads);
            let step = route.fallbacks.iter().find(|step| step.wanted == "io_uring").expect("said aloud");
            assert_eq!(step.errno, Some(errno));
            assert!(step.remedy.contains(remedy), "{step}");
            let (ids, errors) = drain(&*dataset, &mut loader);
            assert!(errors.is_empty(), "{errors:?}");
            assert_eq!(ids.len() as u64, dataset.len());

            let Err(error) = builder.engine(EngineChoice::Uring).build() else { panic!("uring was asked for by name") };
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.remedy().is_some_and(|words| words.contains(remedy)), "{error}");

            let sampler = Arc::new(Shuffled::new(dataset.len(), 4));
            assert!(conforms(Arc::clone(&dataset), sampler, (EngineChoice::Auto, IoChoice::Auto), |builder| builder));
        });
    });
}

#[test]
fn io_uring_denied_with_eperm() {
    steps_down(EPERM, "seccomp");
}

#[test]
fn io_uring_denied_with_enosys() {
    steps_down(ENOSYS, "Linux");
}

/// Forking while reads are in flight: the child has a copy of the process and must not get, or take, a single byte.
#[test]
fn a_fork_in_the_middle_changes_nothing() {
    within(BOUND, || {
        let (_root, dataset) = fixture::files((0..200).map(|number| (format!("{number:03}"), 70_000 + number * 101)));
        for engine in [EngineChoice::Auto, EngineChoice::Threads] {
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(4).epochs(4).shuffle(true).engine(engine);
            let mut loader = builder.io(IoChoice::Direct).build().expect("a loader");
            let (mut children, mut came) = (Vec::new(), 0);
            for (number, batch) in loader.by_ref().enumerate() {
                if number % 40 == 0 {
                    children.push(fork_idle(300).expect("a fork"));
                }
                came += checked(&*dataset, &batch.expect("no error")).len();
            }
            assert_eq!(came, 800);
            drop(loader);
            assert!(children.into_iter().all(wait_for), "children end well");
        }
    });
}
