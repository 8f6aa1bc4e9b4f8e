//! What the control groups of this process allow it to read from a device, each second: `io.max` of version 2, and
//! `blkio.throttle` of version 1.

use crate::cgroup;
use std::fs;
use std::path::Path;

/// Limits of reading from one device. `None`: there is no such limit, or none that can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Reads a second.
    pub operations: Option<u64>,
    /// Bytes a second.
    pub bytes: Option<u64>,
}

impl ReadLimits {
    /// The limits for the device of this number. Those of partitions are those of their disk: ask for it.
    pub fn of(device: (u32, u32)) -> ReadLimits {
        ReadLimits::found(Path::new("/"), device)
    }

    /// The lower of both.
    #[must_use]
    pub fn lower(self, other: ReadLimits) -> ReadLimits {
        let lower = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        ReadLimits { operations: lower(self.operations, other.operations), bytes: lower(self.bytes, other.bytes) }
    }

    fn found(root: &Path, (major, minor): (u32, u32)) -> ReadLimits {
        let device = format!("{major}:{minor}");
        // All levels of version 2 count; version 1 throttles by the process's own group alone.
        let unified = cgroup::folders(root, "");
        let texts = unified.iter().filter_map(|folder| fs::read_to_string(folder.join("io.max")).ok());
        let limits = texts.fold(ReadLimits::default(), |limits, text| limits.lower(of_io_max(&text, &device)));
        let Some(own) = cgroup::folders(root, "blkio").into_iter().next() else { return limits };
        let number = |name: &str| of_list(&fs::read_to_string(own.join(name)).ok()?, &device);
        limits.lower(ReadLimits {
            operations: number("blkio.throttle.read_iops_device"),
            bytes: number("blkio.throttle.read_bps_device"),
        })
    }
}

/// The device's line of `io.max`: "8:16 rbps=2097152 wbps=max riops=max wiops=120".
fn of_io_max(text: &str, device: &str) -> ReadLimits {
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' ')).unwrap_or_default();
    let number = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok());
    ReadLimits { operations: number("riops="), bytes: number("rbps=") }
}

/// The device's line of a list such as "254:0 150".
fn of_list(text: &str, device: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' ')?.trim().parse().ok())
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
        assert_eq!(of((8, 16)), ReadLimits { operations: Some(500), bytes: Some(2_097_152) });
        assert_eq!(of((8, 1)).operations, Some(7));
        assert_eq!(of((8, 6)), ReadLimits::default());
        assert_eq!(ReadLimits::found(tree("0::/\n").path(), (8, 16)), ReadLimits::default());
    }

    #[test]
    fn the_own_group_counts_in_version_1() {
        let root = tree("7:cpu:/a\n6:blkio:/a\n");
        write(&root, "old/blkio.throttle.read_iops_device", "254:0 10\n");
        write(&root, "old/a/blkio.throttle.read_iops_device", "8:0 3\n254:0 150\n");
        write(&root, "old/a/blkio.throttle.read_bps_device", "254:0 120000000\n");
        let limits = ReadLimits { operations: Some(150), bytes: Some(120_000_000) };
        assert_eq!(ReadLimits::found(root.path(), (254, 0)), limits);
        assert_eq!(ReadLimits::found(root.path(), (254, 1)), ReadLimits::default());
    }
}
