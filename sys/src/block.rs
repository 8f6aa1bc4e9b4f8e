//! The block device behind a file, and the limits of its request queue, from sysfs.

use crate::file::Identity;
use crate::throttle::ReadLimits;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Devices are stacked at most this deep. A file system on LVM on RAID on partitions of disks is three.
const DEPTH_MAX: usize = 8;

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Name in `/sys/block`, such as "nvme0n1". A partition has the name of its disk.
    pub name: String,
    /// What kind of device it is.
    pub kind: BlockKind,
    /// Limits of its own queue.
    pub queue: QueueLimits,
    /// The devices below it, for device mapper and RAID.
    pub members: Vec<BlockDevice>,
}

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockKind {
    /// A device with a driver of its own: NVMe, SCSI, virtio.
    Disk,
    /// Device mapper: LVM, dm-crypt, multipath.
    Mapper,
    /// Software RAID.
    Raid,
    /// A file that serves as a device.
    Loop,
    /// Compressed or plain memory: zram, brd.
    Memory,
}

impl BlockKind {
    /// The kind in words.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Disk => "disk",
            BlockKind::Mapper => "device mapper",
            BlockKind::Raid => "RAID",
            BlockKind::Loop => "loop device",
            BlockKind::Memory => "memory device",
        }
    }
}

/// Limits of a device's request queue. Numbers that the kernel does not report are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests that each hardware queue holds (`nr_requests`). A submission sleeps while none is free.
    pub requests: u32,
    /// Number of hardware queues.
    pub hardware_queues: u32,
    /// The longest request that the kernel makes, in bytes (`max_sectors_kb`). A longer read takes several.
    pub request_bytes: u64,
    /// The longest request that the device takes, in bytes (`max_hw_sectors_kb`).
    pub hardware_request_bytes: u64,
    /// The most pieces of memory in a request (`max_segments`).
    pub segments: u32,
    /// Size of a logical block in bytes, which `O_DIRECT` must be aligned to at least.
    pub logical_block: u32,
    /// Size of a physical block in bytes. A smaller read may cost as much as one of this size.
    pub physical_block: u32,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Whether the driver has queues for polling (`io_poll`).
    pub polling: bool,
    /// The scheduler in use, such as "none" or "mq-deadline".
    pub scheduler: String,
}

impl BlockDevice {
    /// The device that the file is on. `None` for a file on no device: tmpfs, overlays, FUSE, network file systems.
    pub fn of(file: BorrowedFd<'_>) -> Option<BlockDevice> {
        let device = Identity::of(file).ok()?.device;
        // With major number 0 the file system made the number up. Btrfs does so even though it is on a device.
        let (major, minor) = if device.0 == 0 { mount_source(file)? } else { device };
        BlockDevice::at(Path::new(&format!("/sys/dev/block/{major}:{minor}")), DEPTH_MAX)
    }

    /// The fewest requests that a hardware queue of any disk below holds, which bounds the reads in flight. 0 if
    /// unknown.
    ///
    /// Mappers and RAIDs report a number too, but pass requests on without holding them.
    pub fn requests(&self) -> u32 {
        self.least(|queue| u64::from(queue.requests)) as u32
    }

    /// The smallest request limit on the path down to the disks, in bytes. 0 if unknown.
    pub fn request_bytes(&self) -> u64 {
        let below = self.least(|queue| queue.request_bytes);
        [self.queue.request_bytes, below].into_iter().filter(|&bytes| bytes > 0).min().unwrap_or(0)
    }

    /// The disks at the bottom.
    pub fn disks(&self) -> Vec<&BlockDevice> {
        if self.members.is_empty() { vec![self] } else { self.members.iter().flat_map(BlockDevice::disks).collect() }
    }

    /// What the control groups of this process allow to be read from the device, and from those below it.
    pub fn read_limits(&self) -> ReadLimits {
        let text = fs::read_to_string(Path::new("/sys/block").join(&self.name).join("dev")).unwrap_or_default();
        let number =
            text.trim().split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let own = number.map(ReadLimits::of).unwrap_or_default();
        self.members.iter().fold(own, |limits, member| limits.lower(member.read_limits()))
    }

    /// Whether the data are on disks with heads, so that a read at another place waits for them. Virtual disks always
    /// claim to be `rotational`, so they do not count.
    pub fn has_heads(&self) -> bool {
        let has_heads = |disk: &&BlockDevice| {
            let text = |name: &str| {
                let path = Path::new("/sys/block").join(&disk.name).join("device").join(name);
                fs::read_to_string(path).unwrap_or_default()
            };
            disk.queue.rotational && disk.name.starts_with("sd") && is_of_metal(&text("vendor"), &text("model"))
        };
        self.disks().iter().all(has_heads)
    }

    fn least(&self, number: impl Fn(&QueueLimits) -> u64) -> u64 {
        self.disks().iter().map(|disk| number(&disk.queue)).filter(|&number| number > 0).min().unwrap_or(0)
    }

    fn at(path: &Path, depth: usize) -> Option<BlockDevice> {
        let mut path = fs::canonicalize(path).ok()?;
        if path.join("partition").exists() {
            path.pop();
        }
        let name = path.file_name()?.to_string_lossy().into_owned();
        let kind = if path.join("dm").exists() {
            BlockKind::Mapper
        } else if path.join("md").exists() {
            BlockKind::Raid
        } else if name.starts_with("loop") {
            BlockKind::Loop
        } else if name.starts_with("zram") || name.starts_with("ram") {
            BlockKind::Memory
        } else {
            BlockKind::Disk
        };
        let members = if depth == 0 { Vec::new() } else { entries(&path.join("slaves")) };
        let members = members.iter().filter_map(|member| BlockDevice::at(member, depth - 1)).collect();
        Some(BlockDevice { name, kind, queue: QueueLimits::at(&path), members })
    }
}

impl QueueLimits {
    fn at(device: &Path) -> QueueLimits {
        let text = |name: &str| fs::read_to_string(device.join("queue").join(name)).unwrap_or_default();
        let number = |name: &str| text(name).trim().parse::<u64>().unwrap_or(0);
        let small = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
        QueueLimits {
            requests: small("nr_requests"),
            hardware_queues: entries(&device.join("mq")).len() as u32,
            request_bytes: number("max_sectors_kb").saturating_mul(1024),
            hardware_request_bytes: number("max_hw_sectors_kb").saturating_mul(1024),
            segments: small("max_segments"),
            logical_block: small("logical_block_size"),
            physical_block: small("physical_block_size"),
            rotational: number("rotational") == 1,
            polling: number("io_poll") == 1,
            scheduler: chosen(&text("scheduler")).to_owned(),
        }
    }
}

/// Whether a SCSI disk's vendor and model are those of a disk, and not of a virtual machine's.
fn is_of_metal(vendor: &str, model: &str) -> bool {
    const VIRTUAL: [&str; 6] = ["QEMU", "VBOX", "VMWARE", "VIRTUAL", "MSFT", "GOOGLE"];
    let words = format!("{vendor} {model}").to_uppercase();
    !words.trim().is_empty() && !VIRTUAL.iter().any(|name| words.contains(name))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The word in brackets, or the only one, in text such as "none [mq-deadline] kyber".
pub(crate) fn chosen(choices: &str) -> &str {
    let bracketed = choices.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(choices.trim(), |(word, _)| word)
}

/// Number of the device mounted at the file's location, if what is mounted there is a device.
fn mount_source(file: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return None;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let source = source_of(&mounts, stat.stx_mnt_id)?;
    let node = rustix::fs::stat(source).ok()?;
    let is_device = FileType::from_raw_mode(node.st_mode) == FileType::BlockDevice;
    is_device.then(|| (rustix::fs::major(node.st_rdev), rustix::fs::minor(node.st_rdev)))
}

/// The source in the line of `mountinfo` (see proc(5)) that starts with the mount's number. A hyphen ends the optional
/// fields; type and source follow it.
fn source_of(mounts: &str, mount: u64) -> Option<&str> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount.to_string()))?;
    line.split_once(" - ")?.1.split(' ').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_device_of_this_crate_is_found() {
        let file = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let device = Identity::of(file.as_fd()).unwrap().device;
        let Some(found) = BlockDevice::of(file.as_fd()) else {
            assert!(device.0 == 0 || !Path::new("/sys/dev/block").exists(), "device {device:?} is not in sysfs");
            return eprintln!("skipped: the source is on no block device");
        };
        assert!(!found.name.is_empty() && found.queue.logical_block >= 512, "{found:?}");
        assert!(found.requests() > 0 && found.request_bytes() >= 4096, "{found:?}");
        assert!(found.queue.hardware_request_bytes >= found.queue.request_bytes, "{found:?}");
        assert!(!found.queue.scheduler.contains('['), "{found:?}");
    }

    #[test]
    fn virtual_disks_have_no_heads() {
        assert!(is_of_metal("ATA     \n", "ST4000NM0035-1V4\n") && is_of_metal("SEAGATE", "ST10000NM0096"));
        for (vendor, model) in [("ATA", "QEMU HARDDISK"), ("Msft", "Virtual Disk"), ("VMware", "x"), ("", "")] {
            assert!(!is_of_metal(vendor, model), "{vendor} {model}");
        }
    }

    #[test]
    fn proc_lies_on_no_device() {
        let file = fs::File::open("/proc/self/status").unwrap();
        assert_eq!(BlockDevice::of(file.as_fd()), None);
    }

    /// A small sysfs: a partition of a mapper of two disks.
    #[test]
    fn stacked_devices_are_as_narrow_as_their_narrowest_disk() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (disk, requests, kib) in [("sda", "64\n", "1280\n"), ("sdb", "256\n", "128\n"), ("dm-0", "9\n", "512\n")] {
            write(&format!("{disk}/queue/nr_requests"), requests);
            write(&format!("{disk}/queue/max_sectors_kb"), kib);
            write(&format!("{disk}/queue/scheduler"), "none [mq-deadline] kyber\n");
        }
        write("dm-0/dm/name", "volume\n");
        write("sda/sda1/partition", "1\n");
        write("sdb/mq/0/cpu_list", "0\n");
        write("sdb/mq/1/cpu_list", "1\n");
        fs::create_dir(root.path().join("dm-0/slaves")).unwrap();
        for (name, target) in [("sda1", "sda/sda1"), ("sdb", "sdb")] {
            std::os::unix::fs::symlink(root.path().join(target), root.path().join("dm-0/slaves").join(name)).unwrap();
        }
        let device = BlockDevice::at(&root.path().join("dm-0"), DEPTH_MAX).unwrap();
        assert_eq!((device.name.as_str(), device.kind), ("dm-0", BlockKind::Mapper));
        assert_eq!((device.requests(), device.request_bytes()), (64, 128 * 1024));
        let mut disks: Vec<_> = device.disks().iter().map(|disk| (disk.name.clone(), disk.queue.clone())).collect();
        disks.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!((disks[0].0.as_str(), disks[1].0.as_str()), ("sda", "sdb"));
        assert_eq!((disks[1].1.hardware_queues, disks[1].1.scheduler.as_str()), (2, "mq-deadline"));
        assert_eq!(BlockDevice::at(&root.path().join("gone"), DEPTH_MAX), None);
    }

    #[test]
    fn mount_sources_are_found_by_number() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      270 27 0:50 /a /mnt/b\\040c rw shared:2 - btrfs /dev/vdb1 rw,space_cache\n";
        assert_eq!(source_of(mounts, 270), Some("/dev/vdb1"));
        assert_eq!(source_of(mounts, 27), Some("/dev/vda"));
        assert_eq!(source_of(mounts, 2), None);
        assert_eq!((chosen("[none] kyber\n"), chosen("none\n"), chosen("")), ("none", "none", ""));
    }
}
