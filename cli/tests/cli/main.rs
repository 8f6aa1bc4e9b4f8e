//! The binary from the outside: what it prints, how it ends, what it leaves behind.

// What the library's own tests make and measure with.
#[path = "../../../tests/common/mod.rs"]
mod common;

mod arrays;
mod asked;
mod bench;
#[cfg(feature = "remote")]
mod buckets;
mod cache;
mod columnar;
mod confined;
mod container;
mod decisions;
mod device;
mod ends;
mod hdf5;
mod images;
mod lines;
mod list;
mod looks;
#[cfg(feature = "remote")]
mod objects;
mod outage;
mod pack;
mod pages;
mod ranks;
mod signals;
mod state;
#[cfg(feature = "remote")]
mod stores;
mod verify;
mod verify_order;
mod tar;
mod top;
mod variables;
mod tune;
mod tfrecord;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What launchers set, and the tests may themselves be run by one.
fn rank_variables() -> impl Iterator<Item = &'static str> {
    uringload_cli::RANK_VARIABLES.into_iter().flat_map(|(rank, size)| [Some(rank), size]).flatten()
}

/// The binary with these arguments, separated by blanks, and no variable for its rank.
fn uringload(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringload"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    for name in rank_variables() {
        command.env_remove(name);
    }
    command
}

/// The binary as a user who is not root; `None`, said aloud, where that is not available.
fn as_nobody(arguments: &str, test: &str) -> Option<Command> {
    const NOBODY: u32 = 65534;
    let mut command = uringload(arguments);
    if !is_root() {
        return Some(command);
    }
    command.uid(NOBODY).gid(NOBODY);
    let mut probe = uringload("--version");
    probe.uid(NOBODY).gid(NOBODY).stdout(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => Some(command),
        _ => {
            eprintln!("skipped: {test}: the binary is not to be run by another user");
            None
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn run(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is UTF-8")
}

/// Runs and expects this exit code; returns stdout and stderr.
fn expect(command: &mut Command, code: i32) -> (String, String) {
    let output = run(command);
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{command:?}\nstdout:\n{out}\nstderr:\n{err}");
    (out, err)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// A folder that everybody may read, with these files of the bytes that `content` gives for their names.
fn folder(files: &[(&str, usize)]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, len) in files {
        write(&folder.path().join(name), &content(name, *len));
    }
    folder
}

/// Some files, and their folder as an argument.
fn files(count: usize) -> (tempfile::TempDir, String) {
    let names: Vec<String> = (0..count).map(|n| format!("{n:03}")).collect();
    let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 10 + name.len())).collect();
    let folder = folder(&files);
    fs::create_dir(folder.path().join(".states")).unwrap();
    let dir = folder.path().display().to_string();
    (folder, dir)
}

/// Waits until a loader that shares its statistics in this folder says that so many batches came.
fn wait_for_batches(pages: &Path, wanted: u64) {
    let batches = || {
        let pages = fs::read_dir(pages).ok()?.filter_map(|page| Some(page.ok()?.path()));
        let texts = pages.filter_map(|page| fs::read_to_string(page).ok());
        texts.filter_map(|text| serde_json::from_str::<serde_json::Value>(&text).ok()?["batches"].as_u64()).max()
    };
    let begun = std::time::Instant::now();
    while batches().unwrap_or(0) < wanted {
        assert!(begun.elapsed() < common::HANG, "no batch comes");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Sends a signal as a terminal does.
fn signal(child: &std::process::Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

fn indices(out: &str) -> Vec<u64> {
    out.lines().map(|line| json(line)["index"].as_u64().unwrap()).collect()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Bytes that differ from file to file and from place to place.
fn content(name: &str, len: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes()[3]).collect()
}
