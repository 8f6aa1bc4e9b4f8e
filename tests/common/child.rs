//! The test binary once more, as a child of its own test: what is measured or limited belongs to a whole process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells a child what to do; nothing else sets it.
const TASK: &str = "URINGLOAD_TEST_CHILD";

/// What this process is asked to do, if it is a child.
pub fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// Runs the ignored test `name` of this binary, alone and on its main thread, with a task. Returns what it printed.
///
/// # Panics
/// If the child fails, or is killed.
pub fn run(name: &str, task: &str) -> String {
    let output = command(name, task).output().expect("the child starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{task}: code {:?}, signal {:?}\n{out}{err}",
        output.status.code(),
        output.status.signal()
    );
    assert!(out.contains("1 passed"), "{task}: there is no test {name}:\n{out}{err}");
    err.lines().filter(|line| line.starts_with("skipped:")).for_each(|line| eprintln!("{line}"));
    out
}

/// Runs a child as [`run`] does, for which control groups, pressure and the scheduler's counts of threads do not exist.
///
/// # Errors
/// The reason, in words, why this machine cannot hide them.
///
/// # Panics
/// If the child fails.
pub fn run_blind(name: &str, task: &str) -> Result<String, String> {
    const HIDE: &str = "mount -t tmpfs none /sys/fs/cgroup && { [ ! -d /proc/pressure ] || mount -t tmpfs none \
                        /proc/pressure; } && mount -t tmpfs none /proc/$$/task && exec \"$@\"";
    if !super::is_root() {
        return Err("hiding files of /proc: only root can mount".into());
    }
    let may = |line: &[&str]| Command::new("unshare").args(["-m", "sh", "-c"]).args(line).stdin(Stdio::null()).output();
    let probe = may(&[HIDE, "sh", "true"]).map_err(|error| format!("unshare: {error}"))?;
    if !probe.status.success() {
        return Err(format!("hiding files of /proc: {}", String::from_utf8_lossy(&probe.stderr).trim()));
    }
    let inner = command(name, task);
    let mut outer = Command::new("unshare");
    outer.args(["-m", "sh", "-c", HIDE, "sh"]).arg(inner.get_program()).args(inner.get_args()).env(TASK, task);
    let output = outer.stdin(Stdio::null()).output().map_err(|error| format!("unshare: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{task}: {:?}\n{out}{err}", output.status);
    Ok(out)
}

/// Starts the ignored test `name` of this binary as [`run`] does, for who kills it or looks at it meanwhile.
///
/// # Panics
/// If it cannot be started.
pub fn start(name: &str, task: &str) -> Child {
    command(name, task).stdout(Stdio::null()).spawn().expect("the child starts")
}

fn command(name: &str, task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).env(TASK, task);
    command.stdin(Stdio::null());
    command
}

/// A control group of version 1 that processes enter by themselves. Drop removes it; it must be empty then.
pub struct Group(PathBuf);

impl Group {
    /// A group of this controller with these limits, by file.
    ///
    /// # Errors
    /// The reason, in words, why this machine cannot.
    pub fn new(controller: &str, limits: &[(&str, impl ToString)]) -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        let name = limits[0].1.to_string().replace(|letter: char| !letter.is_ascii_digit(), "-");
        let group = Group(root.join(format!("uringload-{}-{name}", std::process::id())));
        let told = |what: &str, error: std::io::Error| format!("control group {controller}: {what}: {error}");
        if !root.join("cgroup.procs").exists() {
            return Err(format!("control group {controller}: none of version 1 at {}", root.display()));
        }
        fs::create_dir(&group.0).map_err(|error| told("cannot create", error))?;
        for (file, limit) in limits {
            fs::write(group.0.join(file), limit.to_string()).map_err(|error| told(file, error))?;
        }
        Ok(group)
    }

    /// Where a process enters it.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A number that it counts.
    pub fn count(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.0.join(file)).expect("a count");
        text.trim().parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            super::skip(format!("removing {:?}: {error}", self.0));
        }
    }
}

/// The disk that a folder is on, as limits of `blkio` name it.
///
/// # Errors
/// The reason, in words, why there is none: an overlay, btrfs or tmpfs have numbers that belong to no disk.
pub fn disk_of(folder: &Path) -> Result<String, String> {
    let number = fs::metadata(folder).map_err(|error| error.to_string())?.dev();
    let name = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    if Path::new("/sys/dev/block").join(&name).exists() {
        Ok(name)
    } else {
        Err(format!("control group blkio: {} is on {name}, which is no disk", folder.display()))
    }
}

/// Puts this process into a group.
///
/// # Panics
/// If it cannot.
pub fn enter(group: &Path) {
    fs::write(group.join("cgroup.procs"), "0").expect("the group takes this process");
}

/// The most memory that this process ever had resident, in bytes.
pub fn most_resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
}
