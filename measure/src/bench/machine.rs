//! The machine that a bench ran on, and what was run: what decides whether two results can be compared.

use crate::facts;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use uringload::dataset::Dataset;
use uringload_sys::system;

/// Largest file of Git's that is looked into.
const GIT_BYTES: u64 = 16 << 20;

/// The machine. What it does not tell is null.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    host: Option<String>,
    kernel: String,
    cpu: Option<String>,
    processors: usize,
    memory_bytes: Option<u64>,
    filesystem: Option<String>,
    device: Option<String>,
}

impl Machine {
    /// This machine, and where the dataset's first file lies.
    pub fn here(dataset: &dyn Dataset) -> Machine {
        let place = facts::place(dataset);
        let info = |path: &str, name: &str| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
            Some(line.trim().to_owned())
        };
        let kib = info("/proc/meminfo", "MemTotal").and_then(|total| total.strip_suffix(" kB")?.trim().parse().ok());
        Machine {
            host: fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()),
            kernel: system::kernel_release(),
            // Not every architecture names a model.
            cpu: info("/proc/cpuinfo", "model name").or_else(|| info("/proc/cpuinfo", "CPU part")),
            processors: uringload_sys::cgroup::processors_allowed(),
            memory_bytes: kib.map(|kib: u64| kib * 1024),
            filesystem: place.as_ref().map(|place| place.filesystem.clone()),
            device: place.and_then(|place| place.device.as_ref().map(facts::describe)),
        }
    }
}

/// What was run, when, and on which commit of the working folder.
#[derive(Clone, Debug, Serialize)]
pub struct Command {
    command: Vec<String>,
    time: String,
    commit: Option<String>,
}

impl Command {
    /// This one.
    pub fn now() -> Command {
        let folder = std::env::current_dir().unwrap_or_default();
        Command {
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            time: utc(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            commit: folder.ancestors().find_map(commit),
        }
    }
}

/// The commit that is checked out in a folder, without a Git program.
fn commit(folder: &Path) -> Option<String> {
    let mut git = folder.join(".git");
    if let Some(elsewhere) = small(&git) {
        // A worktree: "gitdir: PATH".
        git = folder.join(elsewhere.strip_prefix("gitdir:")?.trim());
    }
    let head = small(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return is_hash(head.trim()) };
    // References of a worktree lie in the repository.
    let common = small(&git.join("commondir")).map_or_else(|| git.clone(), |path| git.join(path.trim()));
    let loose = [&git, &common].into_iter().find_map(|root: &PathBuf| small(&root.join(name)));
    let packed =
        || small(&common.join("packed-refs"))?.lines().find_map(|line| Some(line.strip_suffix(name)?.to_owned()));
    is_hash(loose.or_else(packed)?.trim())
}

fn small(path: &Path) -> Option<String> {
    let is_small = fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= GIT_BYTES);
    if is_small { fs::read_to_string(path).ok() } else { None }
}

fn is_hash(text: &str) -> Option<String> {
    (text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_owned())
}

/// "2026-01-31T23:59:58Z" of the time since 1970, by the proleptic Gregorian calendar.
fn utc(since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the day of a leap year comes last, and eras of 400 years are alike.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, told) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), told);
        }
    }

    #[test]
    fn a_commit_is_found_wherever_git_keeps_it() {
        let root = tempfile::tempdir().unwrap();
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(commit(root.path()), None);
        write(".git/HEAD", "ref: refs/heads/main\n");
        assert_eq!(commit(root.path()), None);
        write(".git/packed-refs", &format!("# pack-refs\n{hash} refs/heads/main\n"));
        assert_eq!(commit(root.path()).as_deref(), Some(hash));
        let other = hash.replace('0', "f");
        write(".git/refs/heads/main", &format!("{other}\n"));
        assert_eq!(commit(root.path()), Some(other));
        write(".git/HEAD", &format!("{hash}\n"));
        assert_eq!(commit(root.path()).as_deref(), Some(hash), "detached");
        write("tree/.git", &format!("gitdir: {}\n", root.path().join(".git/worktrees/tree").display()));
        write(".git/worktrees/tree/HEAD", "ref: refs/heads/side\n");
        write(".git/worktrees/tree/commondir", "../..\n");
        write(".git/refs/heads/side", hash);
        assert_eq!(commit(&root.path().join("tree")).as_deref(), Some(hash));
        write(".git/HEAD", "ref: ../../../etc/passwd\n");
        assert_eq!(commit(root.path()), None, "that is no hash");
    }
}
