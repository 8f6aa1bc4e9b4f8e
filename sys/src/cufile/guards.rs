//! What GPUDirect Storage needs from a system, read from `/proc`, `/sys`, `/run`, `/dev` and `/boot`. This module
//! judges nothing.
//!
//! Everything is read below a root folder, so that a test can make up a system.

use std::fs;
use std::path::{Path, PathBuf};

/// The longest symbol list to read. The list of Linux 6.18 with all modules has about 20 MB.
const SYMBOLS_BYTES_MAX: u64 = 64 << 20;

/// Facts about a system. `None` means that the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The kernel's release, such as "6.8.0-45-generic".
    pub kernel_release: String,
    /// Whether this is the Windows Subsystem for Linux.
    pub wsl: bool,
    /// Names of the loaded kernel modules; `None` if `/proc/modules` cannot be read.
    pub modules: Option<Vec<String>>,
    /// Whether nvidia-fs is loaded: its folder in `/proc/driver` exists.
    pub nvidia_fs: bool,
    /// Whether this process sees the devices of nvidia-fs (`/dev/nvidia-fs*`), which a container must be given.
    pub nvidia_fs_devices: bool,
    /// Whether the kernel has PCI peer-to-peer DMA (`CONFIG_PCI_P2PDMA`).
    pub p2pdma: Option<bool>,
    /// NVIDIA's driver, if it is loaded.
    pub driver: Option<NvidiaDriver>,
    /// NVIDIA's GPUs on the PCI bus, by address.
    pub gpus: Vec<GpuBar>,
    /// What the IOMMU does.
    pub iommu: Iommu,
    /// Whether the NVMe driver hides devices behind multipath nodes (`nvme_core.multipath`).
    pub nvme_multipath: Option<bool>,
    /// Whether udev's data are visible (`/run/udev`).
    pub udev: bool,
    /// Whether this is a container, if its engine shows that.
    pub container: bool,
}

/// NVIDIA's kernel driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvidiaDriver {
    /// Version, such as "565.57.01".
    pub version: String,
    /// Whether its kernel modules are the open ones.
    pub open: bool,
    /// `NVreg_RegistryDwords`: the settings that it was loaded with.
    pub registry: String,
}

impl NvidiaDriver {
    /// The version as numbers, with 0 for what is not a number.
    pub fn numbers(&self) -> (u32, u32) {
        let mut numbers = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

/// How much of a GPU's memory other devices can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuBar {
    /// PCI address, such as "0000:3b:00.0".
    pub address: String,
    /// Bytes of BAR1, the window to the GPU's memory.
    pub bar1: Option<u64>,
    /// Bytes of it that the driver offers for PCI P2PDMA (`p2pmem/size`); `None` if it offers none.
    pub p2pmem: Option<u64>,
}

/// What the IOMMU does with the addresses of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Iommu {
    /// There is none, or it is off.
    #[default]
    Off,
    /// It passes them through.
    Passthrough,
    /// It translates them, so data that one device writes to another goes through the root complex.
    Translating,
}

/// The file system that a file is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Its type, such as "ext4".
    pub file_system: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
    /// Its source, such as "/dev/nvme0n1p1".
    pub source: String,
}

impl Facts {
    /// Reads a system's facts below `root`, which is "/" outside of tests. It never fails: what cannot be read is left
    /// out.
    pub fn read(root: &Path) -> Facts {
        let text = |path: &str| read(&root.join(path));
        let there = |path: &str| root.join(path).exists();
        let kernel_release = text("proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let names =
            |modules: String| modules.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
        let modules = text("proc/modules").map(names);
        Facts {
            wsl: kernel_release.to_ascii_lowercase().contains("microsoft")
                || there("proc/sys/fs/binfmt_misc/WSLInterop"),
            modules,
            nvidia_fs: there("proc/driver/nvidia-fs/devcount") || there("proc/driver/nvidia-fs/stats"),
            nvidia_fs_devices: entries(&root.join("dev")).iter().any(|name| name.starts_with("nvidia-fs")),
            p2pdma: p2pdma(root, &kernel_release),
            driver: driver(root),
            gpus: gpus(root),
            iommu: iommu(root),
            nvme_multipath: text("sys/module/nvme_core/parameters/multipath").map(|value| value.trim() == "Y"),
            udev: there("run/udev/data"),
            container: there(".dockerenv") || there("run/.containerenv"),
            kernel_release,
        }
    }
}

impl Mount {
    /// What is mounted at the location of `file`, an absolute path without symbolic links; `None` if
    /// `/proc/self/mountinfo` below `root` does not say.
    pub fn of(root: &Path, file: &Path) -> Option<Mount> {
        let mounts = read(&root.join("proc/self/mountinfo"))?;
        // If two mounts have the same location, the later one hides the earlier one.
        mounts.lines().filter_map(|line| mount(line, file)).max_by_key(|(depth, _)| *depth).map(|(_, mount)| mount)
    }

    /// The value of an option "name=value".
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}

/// Checks the kernel's symbols, as cuFile does, or its configuration if they are hidden.
fn p2pdma(root: &Path, release: &str) -> Option<bool> {
    use std::io::{BufRead, BufReader, Read};
    if let Ok(symbols) = fs::File::open(root.join("proc/kallsyms")) {
        let mut symbols = BufReader::with_capacity(1 << 20, symbols.take(SYMBOLS_BYTES_MAX));
        let mut line = Vec::new();
        let mut any = false;
        while symbols.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            any = true;
            // An address, a letter, the name, and sometimes a module.
            if line.split(|byte| byte.is_ascii_whitespace()).nth(2) == Some(b"p2pdma_pgmap_ops") {
                return Some(true);
            }
            line.clear();
        }
        if any {
            return Some(false);
        }
    }
    let configuration = read(&root.join(format!("boot/config-{release}")))?;
    Some(configuration.lines().any(|line| line == "CONFIG_PCI_P2PDMA=y"))
}

/// Parses "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build ...". The closed module
/// calls itself "NVIDIA UNIX x86_64 Kernel Module".
fn driver(root: &Path) -> Option<NvidiaDriver> {
    let text = read(&root.join("proc/driver/nvidia/version"))?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    let parameters = read(&root.join("proc/driver/nvidia/params")).unwrap_or_default();
    let registry = parameters.lines().find_map(|line| line.strip_prefix("RegistryDwords:"));
    Some(NvidiaDriver {
        version: line.split_whitespace().find(is_version).unwrap_or_default().to_owned(),
        open: line.contains("Open Kernel Module"),
        registry: registry.unwrap_or_default().trim().trim_matches('"').to_owned(),
    })
}

/// NVIDIA's display and 3D controllers.
fn gpus(root: &Path) -> Vec<GpuBar> {
    let devices = root.join("sys/bus/pci/devices");
    let mut addresses = entries(&devices);
    addresses.sort_unstable();
    let gpu = |address: String| {
        let text = |name: &str| read(&devices.join(&address).join(name));
        let is_gpu = text("vendor")?.trim() == "0x10de" && text("class")?.starts_with("0x03");
        let p2pmem = text("p2pmem/size").and_then(|size| size.trim().parse().ok());
        is_gpu.then(|| GpuBar { bar1: text("resource").and_then(|text| bar1(&text)), p2pmem, address: address.clone() })
    };
    addresses.into_iter().filter_map(gpu).collect()
}

/// Each line of `resource` is a region: first and last address, and flags, in hexadecimal digits. BAR1 is the second;
/// one of 64 bits, as the first of an H100 is, has the next line too.
fn bar1(resource: &str) -> Option<u64> {
    /// `IORESOURCE_MEM_64` (include/linux/ioport.h).
    const MEM_64: u64 = 0x0010_0000;
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let region = |line: usize| {
        let mut words = resource.lines().nth(line)?.split_whitespace().map(number);
        Some((words.next()??, words.next()??, words.next()??))
    };
    let is_wide = region(0).is_some_and(|(.., flags)| flags & MEM_64 != 0);
    let (first, last, _) = region(if is_wide { 2 } else { 1 })?;
    // A region that the firmware found no room for is 0 to 0.
    last.checked_sub(first).filter(|&bytes| bytes > 0)?.checked_add(1)
}

fn iommu(root: &Path) -> Iommu {
    if entries(&root.join("sys/class/iommu")).is_empty() {
        return Iommu::Off;
    }
    let groups = root.join("sys/kernel/iommu_groups");
    let types: Vec<String> =
        entries(&groups).iter().filter_map(|group| read(&groups.join(group).join("type"))).collect();
    if !types.is_empty() {
        let passes = types.iter().all(|kind| kind.trim() == "identity");
        return if passes { Iommu::Passthrough } else { Iommu::Translating };
    }
    let line = read(&root.join("proc/cmdline")).unwrap_or_default();
    let asked = |wanted: &[&str]| line.split_whitespace().any(|word| wanted.contains(&word));
    if asked(&["iommu=off", "intel_iommu=off", "amd_iommu=off"]) {
        Iommu::Off
    } else if asked(&["iommu=pt", "iommu.passthrough=1"]) {
        Iommu::Passthrough
    } else {
        Iommu::Translating
    }
}

/// Parses a line of `mountinfo` (see proc(5)): the mount and the depth of its location, if `file` is below that
/// location.
fn mount(line: &str, file: &Path) -> Option<(usize, Mount)> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(4);
    let place = PathBuf::from(unescape(front.next()?));
    if !file.starts_with(&place) {
        return None;
    }
    let mut options: Vec<String> = front.next()?.split(',').map(str::to_owned).collect();
    let mut back = back.split(' ');
    let file_system = back.next()?.to_owned();
    let source = unescape(back.next()?);
    options.extend(back.next().unwrap_or_default().split(',').map(str::to_owned));
    Some((place.components().count(), Mount { file_system, options, source }))
}

/// `mountinfo` writes spaces, tabs, newlines and backslashes as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn an_empty_system_tells_nothing() {
        let facts = Facts::read(system(&[]).path());
        assert_eq!(facts, Facts::default());
        assert_eq!((facts.modules, facts.p2pdma, facts.driver), (None, None, None));
    }

    #[test]
    fn a_whole_system_is_read() {
        let root = system(&[
            ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
            ("proc/modules", "nvidia_fs 311296 0 - Live 0x0 (OE)\nnvidia 9711616 4 nvidia_uvm, Live 0x0 (OE)\n"),
            ("proc/driver/nvidia-fs/devcount", "1\n"),
            ("proc/kallsyms", "0 T start_kernel\n0000 d p2pdma_pgmap_ops\t[x]\n0 T end\n"),
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build  (dvs-builder)\n\
                 GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            ),
            ("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nRegistryDwords: \"RMForceStaticBar1=1;\"\n"),
            ("sys/class/iommu/dmar0/x", ""),
            ("sys/kernel/iommu_groups/0/type", "identity\n"),
            ("sys/module/nvme_core/parameters/multipath", "N\n"),
            ("run/udev/data/b259:0", "E:ID_FS_USAGE=filesystem\n"),
            ("dev/nvidia-fs0", ""),
            (".dockerenv", ""),
        ]);
        let facts = Facts::read(root.path());
        let driver = facts.driver.clone().unwrap();
        assert_eq!((driver.numbers(), driver.open, &*driver.registry), ((565, 57), true, "RMForceStaticBar1=1;"));
        assert_eq!(facts.modules.as_deref(), Some(&["nvidia_fs".to_owned(), "nvidia".to_owned()][..]));
        assert!(facts.nvidia_fs && facts.nvidia_fs_devices && facts.udev && facts.container && !facts.wsl);
        let found = (facts.p2pdma, facts.iommu, facts.nvme_multipath);
        assert_eq!(found, (Some(true), Iommu::Passthrough, Some(false)));
    }

    #[test]
    fn gpus_are_read_from_the_bus() {
        let of = |first: u64, last: u64| {
            format!(
                "0x00000000c4000000 0x00000000c4ffffff 0x0000000000040200\n\
                 0x{first:016x} 0x{last:016x} 0x000000000014220c\n\
                 0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
            )
        };
        let (large, small) = (of(0x20_0000_0000, 0x3f_ffff_ffff), of(0xd000_0000, 0xdfff_ffff));
        let root = system(&[
            ("sys/bus/pci/devices/0000:af:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:af:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:af:00.0/resource", &small),
            ("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/resource", &large),
            ("sys/bus/pci/devices/0000:3b:00.0/p2pmem/size", "137438953472\n"),
            // A switch of theirs, a disk, and what is no device.
            ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x068000\n"),
            ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x144d\n"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x010802\n"),
            ("sys/bus/pci/devices/x/y", ""),
        ]);
        let gpu = |address: &str, bar1, p2pmem| GpuBar { address: address.into(), bar1, p2pmem };
        let wanted =
            [gpu("0000:3b:00.0", Some(128 << 30), Some(128 << 30)), gpu("0000:af:00.0", Some(256 << 20), None)];
        assert_eq!(Facts::read(root.path()).gpus, wanted);
        let h100 = "0x0000102002000000 0x0000102002ffffff 0x000000000014220c\n0x0 0x0 0x0\n\
                    0x0000100000000000 0x0000101fffffffff 0x000000000014220c\n0x0 0x0 0x0\n";
        assert_eq!(bar1(h100), Some(128 << 30));
        for text in
            ["", "0x0 0x0 0x0\n", "\n0x0 0x0 0x0\n", "\n0x5 0x1 0x0\n", "\nx y\n", "\n0x0 0xffffffffffffffff 0\n"]
        {
            assert_eq!(bar1(text), None, "{text:?}");
        }
    }

    #[test]
    fn other_systems_are_told_apart() {
        let old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n";
        let root = system(&[
            ("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n"),
            ("proc/driver/nvidia/version", old),
            ("boot/config-5.15.153.1-microsoft-standard-WSL2", "CONFIG_A=y\n# CONFIG_PCI_P2PDMA is not set\n"),
            ("sys/class/iommu/dmar0/x", ""),
            ("proc/cmdline", "quiet intel_iommu=on\n"),
        ]);
        let facts = Facts::read(root.path());
        let driver = facts.driver.unwrap();
        assert_eq!((driver.numbers(), driver.open, &*driver.registry), ((535, 104), false, ""));
        assert!(facts.wsl && !facts.udev);
        assert_eq!((facts.p2pdma, facts.iommu), (Some(false), Iommu::Translating));
        fs::write(root.path().join("proc/cmdline"), "iommu=pt intel_iommu=on").unwrap();
        assert_eq!(Facts::read(root.path()).iommu, Iommu::Passthrough);
        fs::create_dir_all(root.path().join("sys/kernel/iommu_groups/3")).unwrap();
        fs::write(root.path().join("sys/kernel/iommu_groups/3/type"), "DMA-FQ\n").unwrap();
        assert_eq!(Facts::read(root.path()).iommu, Iommu::Translating);
        let root = system(&[("proc/kallsyms", "0 T a_p2pdma_pgmap_ops\n"), ("boot/config-", "CONFIG_PCI_P2PDMA=y\n")]);
        assert_eq!(Facts::read(root.path()).p2pdma, Some(false), "symbols come first");
        fs::write(root.path().join("proc/kallsyms"), "").unwrap();
        assert_eq!(Facts::read(root.path()).p2pdma, Some(true));
    }

    #[test]
    fn hostile_files_are_read_without_a_panic() {
        let root = system(&[
            ("proc/driver/nvidia/version", "NVRM version:\n"),
            ("proc/driver/nvidia/params", "RegistryDwords:"),
            ("proc/self/mountinfo", "\n - \n1 2 3 4\n1 2 3 4 / - \n1 2 3 4 / rw - ext4\n1 2 3 4 / rw - x y"),
            ("proc/modules", "\n \n"),
        ]);
        assert_eq!(Facts::read(root.path()).driver, Some(NvidiaDriver::default()));
        assert_eq!(Mount::of(root.path(), Path::new("/a")).unwrap().file_system, "x");
    }

    #[test]
    fn the_innermost_mount_counts() {
        let root = system(&[(
            "proc/self/mountinfo",
            "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
             28 27 259:1 / /data\\040sets rw,noatime shared:2 - xfs /dev/nvme0n1p1 rw,attr2\n\
             29 28 259:2 / /data\\040sets/journal rw - ext4 /dev/nvme1n1 rw,data=journal\n\
             30 27 0:50 / /data rw - tmpfs none rw\n",
        )]);
        let of = |path: &str| Mount::of(root.path(), Path::new(path)).unwrap();
        assert_eq!(of("/data sets/a/b").file_system, "xfs");
        assert_eq!(of("/data sets/a/b").source, "/dev/nvme0n1p1");
        assert_eq!(of("/data sets/journal/a").option("data"), Some("journal"));
        assert_eq!((of("/datax").file_system.as_str(), of("/data/x").file_system.as_str()), ("ext4", "tmpfs"));
        assert_eq!(of("/datax").option("data"), None);
        assert_eq!(Mount::of(Path::new("/no such root"), Path::new("/")), None);
    }
}
