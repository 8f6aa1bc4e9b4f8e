//! The binary in control groups with little memory and little processor time: it runs, or refuses with the arithmetic,
//! and the kernel never kills it.

use super::common::child::disk_of;
use super::common::{is_root, skip, within};
use super::uringload;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const BOUND: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// A control group below the root of its hierarchy; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Makes a group with what `set` writes into it, in version 2 or 1; `None`, said aloud, where it is not available.
    fn new(test: &str, controller: &str, of_2: &[(&str, String)], of_1: &[(&str, String)]) -> Option<Group> {
        if !is_root() {
            skip(format!("{test}: only root makes control groups"));
            return None;
        }
        let name = format!("uringload-{test}-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        for (folder, values) in [(root.join(controller), of_1), (root.to_path_buf(), of_2)] {
            let group = Group(folder.join(&name));
            // In version 1 the folder's name says which controller it is; in version 2 the group has its files.
            let has_controller = folder.join("cgroup.procs").exists() && fs::create_dir(&group.0).is_ok();
            let set = |(file, value): &(&str, String)| fs::write(group.0.join(file), value).is_ok();
            if has_controller && values.iter().all(set) {
                return Some(group);
            }
        }
        skip(format!("{test}: no control group with {controller} can be made below {}", root.display()));
        None
    }

    fn with_memory(test: &str, bytes: u64) -> Option<Group> {
        let bytes = bytes.to_string();
        Group::new(test, "memory", &[("memory.max", bytes.clone())], &[("memory.limit_in_bytes", bytes)])
    }

    /// Runs the binary in the group.
    fn run(&self, arguments: &str) -> Output {
        const JOIN: &str = "echo 0 > \"$0\" && exec \"$@\"";
        let binary = uringload(arguments);
        let mut command = Command::new("sh");
        command.args(["-c", JOIN]).arg(self.0.join("cgroup.procs")).arg(binary.get_program()).args(binary.get_args());
        command.stdin(Stdio::null()).output().expect("the child starts")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment to forget the group's last process.
        let gone = || fs::remove_dir(&self.0).is_ok() || !self.0.exists();
        let _ = (0..100).any(|_| gone() || (std::thread::sleep(Duration::from_millis(20)), false).1);
    }
}

/// Files of 4 MiB that take no room on the disk.
fn folder(files: u64) -> TempDir {
    let root = TempDir::new().expect("a folder");
    for index in 0..files {
        let file = File::create(root.path().join(format!("{index:04}.bin"))).expect("a file");
        file.set_len(4 * MIB).expect("a length");
    }
    root
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn little_memory_is_enough_or_refused_and_never_deadly() {
    within(BOUND, || {
        let data = folder(200);
        for mib in [100, 256, 512] {
            let Some(group) = Group::with_memory(&format!("memory-{mib}"), mib * MIB) else { return };
            for (io, batch, fits) in [("direct", 1, true), ("buffered", 8, true), ("direct", 32, mib > 256)] {
                let json = data.path().join(".result.json");
                let arguments = format!(
                    "bench --format folder --epochs 1 --no-raw --io {io} --batch-size {batch} --json {} {}",
                    json.display(),
                    data.path().display()
                );
                let output = group.run(&arguments);
                let said = text(&output);
                assert_eq!(output.status.signal(), None, "{mib} MiB, {arguments}: {said}");
                assert_eq!(output.status.success(), fits, "{mib} MiB, {arguments}: {said}");
                if !fits {
                    assert!(said.contains("a batch does not fit") && said.contains("are in use"), "{said}");
                    continue;
                }
                let result: serde_json::Value = serde_json::from_slice(&fs::read(&json).expect("JSON")).expect("JSON");
                let pool = result["pool_bytes"].as_u64().expect("the pool's size");
                assert!(pool <= mib * MIB / 2, "{pool} of {mib} MiB");
                let steps = result["route"]["fallbacks"].as_array().expect("a list").clone();
                let told = |step: &serde_json::Value| step["reason"].as_str().is_some_and(|it| it.contains("allows"));
                assert!(steps.iter().any(told), "{steps:?}");
            }
            let output = group.run(&format!("bench --format folder --memory-limit 1GiB {}", data.path().display()));
            assert!(!output.status.success() && text(&output).contains("is not available"), "{}", text(&output));
        }
    });
}

#[test]
fn doctor_names_the_limits() {
    within(BOUND, || {
        let Some(group) = Group::with_memory("doctor", 512 * MIB) else { return };
        let said = text(&group.run("doctor"));
        assert!(said.contains("!! memory") && said.contains("allows 512 MiB"), "{said}");
        drop(group);
        let quota = [("cpu.cfs_quota_us", "50000".to_owned())];
        let Some(group) = Group::new("quota", "cpu", &[("cpu.max", "50000 100000".into())], &quota) else { return };
        let said = text(&group.run("doctor"));
        assert!(said.contains("the time of 0.50") && said.contains("made for 1"), "{said}");
    });
}

/// A slow disk behind a limit gets the limit and its line, and no bill for a faster disk.
#[test]
fn a_limit_of_the_disk_is_named_by_bench_and_doctor() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let data = root.path().join("all.bin");
        fs::write(&data, vec![7; 2 << 20]).expect("a file");
        File::open(&data).and_then(|file| file.sync_all()).expect("written");
        let disk = match disk_of(root.path()) {
            Ok(disk) => disk,
            Err(why) => return skip(why),
        };
        let of_1 = [("blkio.throttle.read_iops_device", format!("{disk} 150"))];
        let Some(group) = Group::new("limit", "blkio", &[("io.max", format!("{disk} riops=150"))], &of_1) else {
            return;
        };
        let line =
            |said: &str| said.contains(&format!("`{disk} 150`")) || said.contains(&format!("`{disk} riops=150`"));
        let records = format!("{} --format records --record-bytes 4096", data.display());
        let read = "--shuffle=full --coalesce-gap 0 --io direct --batch-size 16 --duration 3s --no-raw";
        let said = text(&group.run(&format!("bench {records} {read}")));
        assert!(line(&said) && said.contains("its control group allows"), "{said}");
        // Where the machine is short of memory as well, that comes before what costs money, too.
        let raise = said.find("raise the limit").unwrap_or(said.len());
        assert!(
            said.find("cache = memory").is_some_and(|free| free < raise) && !said.contains("faster or more"),
            "{said}"
        );
        let said = text(&group.run(&format!("doctor {}", root.path().display())));
        assert!(line(&said) && said.contains("!! read limit"), "{said}");
    });
}
