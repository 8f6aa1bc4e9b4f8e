//! Children of the command line, confined by prlimit(1) and setpriv(1).

use super::common::sandbox::without_io_uring;
use super::common::{fixture, skip, within};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, Options};

const BOUND: Duration = Duration::from_secs(60);
const EPERM: i32 = libc::EPERM;
const ENOSYS: i32 = libc::ENOSYS;

const UNCONFINED: [&str; 0] = [];
/// Root may lock without limit through this capability; 64 KiB is below what the smallest arena needs.
const LITTLE_MEMLOCK: [&str; 5] =
    ["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
const FEW_DESCRIPTORS: [&str; 2] = ["prlimit", "--nofile=64:64"];
/// A root that cannot be written to, and no variable that names a home or a temporary folder.
const READ_ONLY: [&str; 6] =
    ["unshare", "--mount", "sh", "-c", "mount -o remount,bind,ro / && exec env -i PATH=\"$PATH\" \"$@\"", "sh"];

fn folder() -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    fixture::write_folder(root.path());
    let dataset = dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder");
    (root, dataset)
}

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
            let about_memlock = steps.iter().any(|step| step["remedy"].as_str().unwrap_or("").contains("ulimit -l"));
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

/// Too few descriptors for anything: said so, and never taken for a filesystem without O_DIRECT.
#[test]
fn a_child_with_next_to_no_descriptors() {
    within(BOUND, || {
        let (root, _dataset) = folder();
        for most in 4..16 {
            let limit = format!("--nofile={most}:{most}");
            if !can(&["prlimit", &limit]) {
                return;
            }
            let mut command = Command::new("prlimit");
            command.args([
                &limit,
                env!("CARGO_BIN_EXE_uringload"),
                "bench",
                "--no-raw",
                "--io",
                "direct",
                "--outage-timeout",
                "1",
            ]);
            let output = command.arg(root.path()).stdin(Stdio::null()).output().expect("the child starts");
            let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert!(!told.contains("O_DIRECT was asked for"), "{most}: {told}");
            assert!(output.status.success() || told.contains("open files") || told.contains("descriptor"), "{told}");
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

#[test]
fn a_child_that_can_write_nowhere() {
    within(BOUND, || {
        if !can(&READ_ONLY) {
            return;
        }
        lists_all(&READ_ONLY);
        let (root, _dataset) = folder();
        let said = |arguments: &[&str]| {
            let mut command = Command::new(READ_ONLY[0]);
            command.args(&READ_ONLY[1..]).arg(env!("CARGO_BIN_EXE_uringload")).args(arguments).current_dir(root.path());
            let output = command.stdin(Stdio::null()).output().expect("the child starts");
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (succeeded, told) = said(&["bench", ".", "--epochs", "1"]);
        assert!(succeeded, "{told}");
        for (arguments, remedy) in [
            (&["bench"][..], "TMPDIR"),
            (&["tune", "."], "--out"),
            (&["pack", ".", "../packed-by-a-test"], "run it again"),
            (&["bench", ".", "--epochs", "1", "--html", "page.html"], "page.html"),
        ] {
            let (succeeded, told) = said(arguments);
            assert!(!succeeded && told.contains("Read-only file system") && told.contains("help: "), "{told}");
            assert!(told.contains(remedy), "{told}");
        }
    });
}
