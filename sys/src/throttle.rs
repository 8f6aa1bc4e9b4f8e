//! What the control groups of this process allow it to read from a device, each second: `io.max` of version 2, and
//! `blkio.throttle` of version 1.

use crate::cgroup;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A limit, and where it was set. `Display` names the line and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// So many each second.
    pub most: u64,
    /// What of the line sets it, such as "254:0 riops=150".
    pub line: String,
    /// The control group's file.
    pub file: PathBuf,
}

/// Limits of reading from one device. `None`: there is no such limit, or none that can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Reads a second.
    pub operations: Option<ReadLimit>,
    /// Bytes a second.
    pub bytes: Option<ReadLimit>,
}

impl fmt::Display for ReadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {}", self.line, self.file.display())
    }
}

impl ReadLimits {
    /// The limits for the device of this number. Those of partitions are those of their disk: ask for it.
    pub fn of(device: (u32, u32)) -> ReadLimits {
        ReadLimits::found(Path::new("/"), device)
    }

    /// The lower of both.
    #[must_use]
    pub fn lower(self, other: ReadLimits) -> ReadLimits {
        let lower = |a: Option<ReadLimit>, b| [a, b].into_iter().flatten().min_by_key(|limit| limit.most);
        ReadLimits { operations: lower(self.operations, other.operations), bytes: lower(self.bytes, other.bytes) }
    }

    fn found(root: &Path, (major, minor): (u32, u32)) -> ReadLimits {
        let device = format!("{major}:{minor}");
        // All levels of version 2 count; version 1 throttles by the process's own group alone.
        let unified = cgroup::folders(root, "").into_iter().map(|folder| folder.join("io.max"));
        let limits = unified.fold(ReadLimits::default(), |limits, file| limits.lower(of_io_max(&file, &device)));
        let Some(own) = cgroup::folders(root, "blkio").into_iter().next() else { return limits };
        limits.lower(ReadLimits {
            operations: of_list(own.join("blkio.throttle.read_iops_device"), &device),
            bytes: of_list(own.join("blkio.throttle.read_bps_device"), &device),
        })
    }
}

/// The device's line of `io.max`: "8:16 rbps=2097152 wbps=max riops=max wiops=120".
fn of_io_max(file: &Path, device: &str) -> ReadLimits {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = line_of(&text, device).unwrap_or_default();
    let limit = |name: &str| {
        let most = line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok())?;
        Some(ReadLimit { most, line: format!("{device} {name}{most}"), file: file.to_path_buf() })
    };
    ReadLimits { operations: limit("riops="), bytes: limit("rbps=") }
}

/// The device's line of a list such as "254:0 150".
fn of_list(file: PathBuf, device: &str) -> Option<ReadLimit> {
    let text = fs::read_to_string(&file).ok()?;
    let most = line_of(&text, device)?.trim().parse().ok()?;
    Some(ReadLimit { most, line: format!("{device} {most}"), file })
}

/// What stands after the device in its line.
fn line_of<'a>(text: &'a str, device: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with these groups, and version 2 and `blkio` mounted below it.
    fn tree(groups: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        write(&root, "proc/self/cgroup", groups);
        let mounts = "30 23 0:26 / /new rw - cgroup2 cgroup2 rw\n31 23 0:27 / /old rw - cgroup cgroup rw,blkio\n";
        write(&root, "proc/self/mountinfo", mounts);
        root
    }

    fn write(root: &tempfile::TempDir, path: &str, text: &str) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_lowest_limit_of_all_levels_counts_in_version_2() {
        let root = tree("0::/a/b\n");
        write(&root, "new/a/io.max", "8:16 rbps=2097152 wbps=max riops=500 wiops=120\n8:1 riops=7\n");
        write(&root, "new/a/b/io.max", "8:16 rbps=max wbps=max riops=900 wiops=max\n");
        let of = |device| ReadLimits::found(root.path(), device);
        let most =
            |limits: &ReadLimits| [&limits.operations, &limits.bytes].map(|one| one.as_ref().map(|one| one.most));
        assert_eq!(most(&of((8, 16))), [Some(500), Some(2_097_152)]);
        let named = of((8, 16)).operations.unwrap().to_string();
        assert_eq!(named, format!("`8:16 riops=500` in {}", root.path().join("new/a/io.max").display()));
        assert_eq!(most(&of((8, 1))), [Some(7), None]);
        assert_eq!(of((8, 6)), ReadLimits::default());
        assert_eq!(ReadLimits::found(tree("0::/\n").path(), (8, 16)), ReadLimits::default());
    }

    #[test]
    fn the_own_group_counts_in_version_1() {
        let root = tree("7:cpu:/a\n6:blkio:/a\n");
        write(&root, "old/blkio.throttle.read_iops_device", "254:0 10\n");
        write(&root, "old/a/blkio.throttle.read_iops_device", "8:0 3\n254:0 150\n");
        write(&root, "old/a/blkio.throttle.read_bps_device", "254:0 120000000\n");
        let limits = ReadLimits::found(root.path(), (254, 0));
        assert_eq!((limits.operations.unwrap().line.as_str(), limits.bytes.unwrap().most), ("254:0 150", 120_000_000));
        assert_eq!(ReadLimits::found(root.path(), (254, 1)), ReadLimits::default());
    }
}
