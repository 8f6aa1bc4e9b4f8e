//! Less than a process usually may: io_uring denied, little locked memory, few descriptors, and a fork in the middle.
//! Every sample comes all the same, byte-exact, and the route says what was denied and what to do.

mod common;

use common::check::{checked, conforms, drain};
use common::content::write_file;
use common::sandbox::{fork_idle, wait_for, without_io_uring};
use common::{fixture, skip, within};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::config::{EngineChoice, EngineKind, IoChoice};
use uringload::dataset::{Dataset, Folder};
use uringload::loader::Loader;
use uringload::sampler::Shuffled;

const BOUND: Duration = Duration::from_secs(60);
const EPERM: i32 = libc::EPERM;
const ENOSYS: i32 = libc::ENOSYS;

fn folder() -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    fixture::write_folder(root.path());
    let dataset = Arc::new(Folder::open(&[root.path()]).expect("a folder"));
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
        let root = TempDir::new().expect("a folder");
        for number in 0..200 {
            write_file(&root.path().join(format!("{number:03}")), 70_000 + number * 101).expect("a file");
        }
        let dataset: Arc<dyn Dataset> = Arc::new(Folder::open(&[root.path()]).expect("a folder"));
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

/// Children of the command line, confined by prlimit(1) and setpriv(1).
#[cfg(feature = "cli")]
mod children {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeMap;
    use std::fmt::Write;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    const UNCONFINED: [&str; 0] = [];
    /// Root may lock without limit through this capability; 64 KiB is below what the smallest arena needs.
    const LITTLE_MEMLOCK: [&str; 5] =
        ["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
    const FEW_DESCRIPTORS: [&str; 2] = ["prlimit", "--nofile=64:64"];

    fn uringload(confined_by: &[&str], arguments: &[&str], root: &Path) -> Output {
        let binary = env!("CARGO_BIN_EXE_uringload");
        let mut words = confined_by.iter().copied().chain([binary]);
        let mut command = Command::new(words.next().expect("the binary is the last"));
        command.args(words).args(arguments).arg(root).stdin(Stdio::null());
        let output = command.output().expect("the child starts");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Whether the tools that confine children are here and may do so.
    fn can(confined_by: &[&str]) -> bool {
        let mut words = confined_by.iter().copied().chain(["true"]);
        let mut command = Command::new(words.next().expect("at least true"));
        let done = command.args(words).stdin(Stdio::null()).output();
        let can = done.as_ref().is_ok_and(|output| output.status.success());
        if !can {
            skip(format!("cannot confine a child with {confined_by:?}: {done:?}"));
        }
        can
    }

    /// `list` in this confinement gives every sample with the digest of its file.
    fn lists_all(confined_by: &[&str]) {
        let (root, dataset) = folder();
        let output = uringload(confined_by, &["list", "--digest", "sha256"], root.path());
        let lines = String::from_utf8(output.stdout).expect("JSON is UTF-8");
        let mut digests = BTreeMap::new();
        for line in lines.lines() {
            let sample: serde_json::Value = serde_json::from_str(line).expect("a JSON line a sample");
            let digest = sample["columns"]["data"]["sha256"].as_str().or(sample["columns"][0]["sha256"].as_str());
            digests.insert(sample["index"].as_u64().expect("an index"), digest.expect("a digest").to_owned());
        }
        assert_eq!(digests.len() as u64, dataset.len());
        for (index, digest) in digests {
            let path = dataset.files().path(uringload::dataset::FileId(index as u32));
            let wanted = Sha256::digest(std::fs::read(&path).expect("a file"));
            let wanted = wanted.iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("a string takes all");
                hex
            });
            assert_eq!(digest, wanted, "{path:?}");
        }
    }

    /// The fallbacks that `bench --json` names in this confinement.
    fn fallbacks(confined_by: &[&str]) -> Vec<serde_json::Value> {
        let (root, _dataset) = folder();
        let json = root.path().join(".result.json");
        let path = json.to_str().expect("UTF-8");
        uringload(confined_by, &["bench", "--io", "direct", "--epochs", "1", "--json", path], root.path());
        let result = std::fs::read(&json).expect("bench writes its JSON");
        let result: serde_json::Value = serde_json::from_slice(&result).expect("JSON");
        result["route"]["fallbacks"].as_array().expect("a list").clone()
    }

    #[test]
    fn unconfined_children_list_all() {
        within(BOUND, || lists_all(&UNCONFINED));
    }

    #[test]
    fn a_child_that_may_lock_little_memory() {
        within(BOUND, || {
            if can(&LITTLE_MEMLOCK) {
                lists_all(&LITTLE_MEMLOCK);
                let steps = fallbacks(&LITTLE_MEMLOCK);
                let about_memlock =
                    steps.iter().any(|step| step["remedy"].as_str().unwrap_or("").contains("ulimit -l"));
                assert!(about_memlock, "{steps:?}");
            }
        });
    }

    #[test]
    fn a_child_with_few_descriptors() {
        within(BOUND, || {
            if can(&FEW_DESCRIPTORS) {
                lists_all(&FEW_DESCRIPTORS);
            }
        });
    }

    #[test]
    fn children_without_io_uring() {
        within(BOUND, || {
            for errno in [EPERM, ENOSYS] {
                without_io_uring(errno, || lists_all(&UNCONFINED));
                let steps = without_io_uring(errno, || fallbacks(&UNCONFINED));
                assert!(steps.iter().any(|step| step["errno"] == errno), "{steps:?}");
            }
        });
    }
}
