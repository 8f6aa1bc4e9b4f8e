//! The control groups of this process, of version 1 and 2, and what they leave it: memory and processors. Every level
//! of a group's path bounds it, so the tightest one counts.

use rustix::thread::sched_getaffinity;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The control group that leaves this process the least memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryGroup {
    /// The file that says the limit.
    pub path: PathBuf,
    /// The limit in bytes: `memory.max` or `memory.high`, or `memory.limit_in_bytes` of version 1.
    pub limit: u64,
    /// Bytes that count towards it, without file pages that were not used lately.
    pub used: u64,
    /// Of these, file pages that were used lately: the kernel drops them when it must.
    pub reclaimable: u64,
}

impl MemoryGroup {
    /// A group with these figures: see the fields.
    pub fn new(path: impl Into<PathBuf>, limit: u64, used: u64, reclaimable: u64) -> MemoryGroup {
        MemoryGroup { path: path.into(), limit, used, reclaimable: reclaimable.min(used) }
    }

    /// Bytes that the group may still take without harm to anything in it.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Bytes that the group may still take before the kernel kills: file pages in use go first.
    pub fn most(&self) -> u64 {
        self.limit.saturating_sub(self.used - self.reclaimable)
    }
}

/// The control group that gives this process the least processor time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProcessorGroup {
    /// The file that says the quota.
    pub path: PathBuf,
    /// The quota in processors, such as 1.5.
    pub processors: f64,
}

/// What the control groups do to the processor time of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Processor time that the group may use in a second, the least of all that bind; `None`: as much as there is.
    pub per_second: Option<Duration>,
    /// Time that the group was kept from running, over its life. It sums over processors, so it may pass faster than
    /// time does. Of several groups with a quota, the longest.
    pub throttled: Duration,
}

/// The quotas of the control groups that this process is in, and what they took; `None` where they cannot be read.
pub fn quota() -> Option<Quota> {
    Groups::read(Path::new("/")).quota()
}

/// The control group that leaves the least memory; `None` where none has a limit.
pub fn memory() -> Option<MemoryGroup> {
    Groups::read(Path::new("/")).memory()
}

/// The control group with the lowest quota of processor time; `None` where none has one.
pub fn processor_quota() -> Option<ProcessorGroup> {
    Groups::read(Path::new("/")).processors()
}

/// Processors that the calling thread may run on, whatever the quota is.
pub fn processors_allowed() -> usize {
    let allowed = sched_getaffinity(None).map(|set| set.count() as usize);
    allowed.unwrap_or_else(|_| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Processors that this process can keep busy: those that it may run on, up to its quota, which is rounded up. At least
/// 1.
pub fn processors() -> usize {
    processors_within(processors_allowed(), processor_quota().as_ref())
}

fn processors_within(allowed: usize, quota: Option<&ProcessorGroup>) -> usize {
    // A quota of 1.5 keeps two threads busy for three quarters of the time, and one thread leaves a third of it unused.
    quota.map_or(allowed, |quota| allowed.min(quota.processors.ceil() as usize)).max(1)
}

/// Where the groups of this process are: for each controller, the folders of its group and of all above it.
struct Groups {
    /// Version 2, which has every controller.
    unified: Vec<PathBuf>,
    memory: Vec<PathBuf>,
    processors: Vec<PathBuf>,
}

impl Groups {
    /// Reads `proc/self/cgroup` and `proc/self/mountinfo` below `root`.
    fn read(root: &Path) -> Groups {
        let of = |controller| folders(root, controller);
        Groups { unified: of(""), memory: of("memory"), processors: of("cpu") }
    }

    fn memory(&self) -> Option<MemoryGroup> {
        // Version 1 counts a group's own pages separately from all pages below it.
        let group = |folder: &PathBuf, name: &str, usage: &str, prefix: &str| {
            let path = folder.join(name);
            let limit = number(&path).filter(|&limit| limit < UNLIMITED)?;
            let pages = |kind| statistic(&folder.join("memory.stat"), &format!("{prefix}{kind}_file")).unwrap_or(0);
            // What the usage file lacks cannot be counted.
            let used = number(&folder.join(usage)).unwrap_or(0).saturating_sub(pages("inactive"));
            Some(MemoryGroup::new(path, limit, used, pages("active")))
        };
        let unified = ["memory.max", "memory.high"]
            .into_iter()
            .flat_map(|name| self.unified.iter().map(move |folder| group(folder, name, "memory.current", "")));
        let old = self.memory.iter().map(|it| group(it, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"));
        unified.chain(old).flatten().min_by_key(MemoryGroup::room)
    }

    fn processors(&self) -> Option<ProcessorGroup> {
        let group = |path: PathBuf, quota: Option<f64>, period: Option<f64>| {
            let (quota, period) = (quota.filter(|&quota| quota > 0.0)?, period.filter(|&period| period > 0.0)?);
            Some(ProcessorGroup { path, processors: quota / period })
        };
        let unified = self.unified.iter().map(|folder| {
            let path = folder.join("cpu.max");
            let text = fs::read_to_string(&path).ok()?;
            let mut fields = text.split_whitespace().map(|field| field.parse().ok());
            group(path, fields.next().flatten(), fields.next().flatten())
        });
        let old = self.processors.iter().map(|folder| {
            let path = folder.join("cpu.cfs_quota_us");
            // -1 means no quota.
            let quota = fs::read_to_string(&path).ok()?.trim().parse().ok();
            group(path, quota, number(&folder.join("cpu.cfs_period_us")).map(|period| period as f64))
        });
        unified.chain(old).flatten().min_by(|a, b| a.processors.total_cmp(&b.processors))
    }

    fn quota(&self) -> Option<Quota> {
        let throttled = self.unified.iter().chain(&self.processors).filter_map(|folder| {
            let stat = folder.join("cpu.stat");
            // The root of version 2 has the file and not the line.
            stat.exists().then(|| {
                let new = statistic(&stat, "throttled_usec").map(Duration::from_micros);
                new.or_else(|| statistic(&stat, "throttled_time").map(Duration::from_nanos)).unwrap_or_default()
            })
        });
        let throttled = throttled.max()?;
        let per_second = self.processors().and_then(|group| Duration::try_from_secs_f64(group.processors).ok());
        Some(Quota { per_second, throttled })
    }
}

/// The folders of this process's group with `controller` ("" for version 2), and of those above it, below `root`.
pub(crate) fn folders(root: &Path, controller: &str) -> Vec<PathBuf> {
    let read = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
    levels(root, &read("proc/self/cgroup"), &read("proc/self/mountinfo"), controller)
}

/// Version 1 writes "no limit" as the largest number of pages.
const UNLIMITED: u64 = 1 << 62;

/// The folders of the group with `controller` ("" for version 2), and of those above it up to the mount.
fn levels(root: &Path, groups: &str, mounts: &str, controller: &str) -> Vec<PathBuf> {
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|one| one == controller).then_some(group)
    });
    let (Some(group), Some((top, mount))) = (group, mount_of(mounts, controller)) else { return Vec::new() };
    let mount = root.join(mount.trim_start_matches('/'));
    // A container may show its own group as the mount's root, while the path is the host's: then the mount itself is
    // the group, and what is above it cannot be seen.
    let below = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
    let below = below.strip_prefix("/").unwrap_or(below);
    below.ancestors().map(|ancestor| mount.join(ancestor)).collect()
}

/// Which group the root of the mount with `controller` is, and where it is mounted.
fn mount_of<'a>(mounts: &'a str, controller: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split_whitespace();
        let is_it = match kind.next()? {
            "cgroup2" => controller.is_empty(),
            // Source, then the options of the super block, which name the controllers.
            "cgroup" => kind.nth(1)?.split(',').any(|option| option == controller),
            _ => false,
        };
        let mut place = place.split_whitespace().skip(3);
        is_it.then(|| Some((place.next()?, place.next()?))).flatten()
    })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value in a line "name value".
fn statistic(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(groups: &str, mounts: &str) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            tree.write("proc/self/cgroup", groups);
            tree.write("proc/self/mountinfo", mounts);
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn memory(&self) -> Option<(u64, u64)> {
            Groups::read(self.0.path()).memory().map(|group| (group.limit, group.room()))
        }

        fn quota(&self) -> Option<Quota> {
            Groups::read(self.0.path()).quota()
        }

        fn processors(&self) -> Option<f64> {
            Groups::read(self.0.path()).processors().map(|group| group.processors)
        }
    }

    fn quota(per_second_ms: u64, throttled_us: u64) -> Option<Quota> {
        let per_second = Some(Duration::from_millis(per_second_ms));
        Some(Quota { per_second, throttled: Duration::from_micros(throttled_us) })
    }

    const UNIFIED: &str = "30 23 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const OLD: &str = "34 25 0:30 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                       35 25 0:31 / /cg/memory rw - cgroup cgroup rw,memory\n\
                       41 25 0:37 / /cg/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_tightest_level_of_version_2_counts() {
        let tree = Tree::new("0::/a/b\n", UNIFIED);
        assert_eq!((tree.memory(), tree.processors()), (None, None));
        tree.write("cg/a/b/memory.max", "max\n");
        tree.write("cg/a/b/cpu.max", "max 100000\n");
        assert_eq!((tree.memory(), tree.processors()), (None, None));
        tree.write("cg/a/memory.max", "5000\n");
        assert_eq!(tree.memory(), Some((5000, 5000)));
        // The higher limit leaves less room, because siblings use it.
        tree.write("cg/a/memory.current", "4900\n");
        tree.write("cg/a/memory.stat", "anon 1\ninactive_file 300\nactive_file 400\n");
        tree.write("cg/a/b/memory.max", "1000\n");
        tree.write("cg/a/b/memory.current", "100\n");
        assert_eq!(tree.memory(), Some((5000, 400)));
        assert_eq!(Groups::read(tree.0.path()).memory().map(|group| group.most()), Some(800));
        tree.write("cg/a/b/memory.high", "350\n");
        assert_eq!(tree.memory(), Some((350, 250)), "the kernel throttles above it");
        tree.write("cg/a/b/cpu.max", "150000 100000\n");
        tree.write("cg/a/cpu.max", "400000 100000\n");
        assert_eq!(tree.processors(), Some(1.5));
        assert_eq!(tree.quota(), None, "no file has what the quota took");
        tree.write("cg/a/b/cpu.stat", "usage_usec 5\nnr_throttled 0\nthrottled_usec 30\n");
        tree.write("cg/a/cpu.stat", "usage_usec 5\nthrottled_usec 700\n");
        assert_eq!(tree.quota(), quota(1500, 700));
    }

    #[test]
    fn version_1_and_both_at_once() {
        let tree = Tree::new("4:memory:/x/y\n2:cpu,cpuacct:/x\n0::/\nnonsense\n", OLD);
        tree.write("cg/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
        tree.write("cg/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
        tree.write("cg/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
        assert_eq!((tree.memory(), tree.processors()), (None, None));
        tree.write("cg/memory/x/memory.limit_in_bytes", "9000\n");
        tree.write("cg/memory/x/memory.usage_in_bytes", "8000\n");
        tree.write("cg/memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 7000\n");
        assert_eq!(tree.memory(), Some((9000, 8000)));
        tree.write("cg/unified/memory.max", "7000\n");
        assert_eq!(tree.memory(), Some((7000, 7000)));
        tree.write("cg/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
        tree.write("cg/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        assert_eq!(tree.processors(), Some(0.5));
        tree.write("cg/cpu,cpuacct/cpu.stat", "nr_periods 3\nthrottled_time 5000000\n");
        assert_eq!(tree.quota(), quota(500, 5000));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_mount() {
        // The path is the host's, and the mount's root is that very group, or is not said at all.
        let mounts = "30 23 0:26 /docker/1 /cg rw - cgroup2 cgroup2 rw\n";
        for groups in ["0::/docker/1\n", "0::/elsewhere\n", "0::/\n"] {
            let tree = Tree::new(groups, mounts);
            tree.write("cg/memory.max", "100\n");
            assert_eq!(tree.memory(), Some((100, 100)), "{groups}");
        }
        let tree = Tree::new("0::/docker/1/job\n", mounts);
        tree.write("cg/job/memory.max", "50\n");
        assert_eq!(tree.memory(), Some((50, 50)));
    }

    #[test]
    fn a_quota_is_rounded_up_and_affinity_bounds_it() {
        let of = |processors| ProcessorGroup { path: PathBuf::new(), processors };
        let within = |allowed, quota: Option<f64>| processors_within(allowed, quota.map(of).as_ref());
        assert_eq!([within(4, None), within(4, Some(0.1)), within(4, Some(1.5)), within(4, Some(64.0))], [4, 1, 2, 4]);
        assert!((1..=processors_allowed()).contains(&processors()));
    }

    #[test]
    fn nothing_is_there_to_read() {
        let tree = Tree(tempfile::tempdir().unwrap());
        assert_eq!((tree.memory(), tree.processors()), (None, None));
        let tree = Tree::new(":::\n\n0:", "x - \n - cgroup2\n1 - cgroup\n");
        assert_eq!((tree.memory(), tree.processors()), (None, None));
    }
}
