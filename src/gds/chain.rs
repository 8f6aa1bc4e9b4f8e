//! Everything that GPUDirect Storage needs, link by link: its state, what that means, and the command that repairs it.

use super::{Facts, GdsMode, GpuBar, Iommu, Mount, NvidiaDriver, drives_p2pdma, has_nvidia_fs};
use std::borrow::Cow;
use uringload_sys::block::{BlockDevice, BlockKind};

/// One thing that GPUDirect Storage needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name, in a word or two.
    pub what: &'static str,
    /// Its state.
    pub state: LinkState,
    /// What was found.
    pub found: Cow<'static, str>,
    /// What the state means.
    pub means: &'static str,
    /// The command that repairs it, if it is missing.
    pub remedy: Option<&'static str>,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// As required.
    Good,
    /// Not as required: GPUDirect Storage is unavailable, or slow.
    Missing,
    /// The path on this system does not need it.
    Unneeded,
    /// Unknown on this system.
    Unknown,
}

/// The storage below a dataset, where known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The mount there.
    pub mount: Option<Mount>,
    /// The device below.
    pub device: Option<BlockDevice>,
}

/// Network file systems that nvidia-fs supports, by the names of their mounts.
const NETWORK: [&str; 7] = ["lustre", "wekafs", "gpfs", "beegfs", "nfs", "nfs4", "panfs"];

/// The chain of a system, and of the place of a dataset. A function of the two only.
///
/// If nvidia-fs is loaded, this is its chain; otherwise that of PCI P2PDMA, which needs no module and so works even if
/// nothing can be installed.
pub fn chain(facts: &Facts, place: Option<&Place>) -> Vec<Link> {
    let way = if has_nvidia_fs(facts) { GdsMode::NvidiaFs } else { GdsMode::P2pdma };
    let mut links = vec![
        system(facts),
        driver(facts, way),
        driver_settings(facts, way),
        window(facts, way),
        nvidia_fs(facts, way),
        kernel(facts, way),
        iommu(facts),
        multipath(facts, way),
        modules(facts),
        udev(facts),
    ];
    if let Some(place) = place {
        links.push(file_system(place, way));
        links.push(disks(place, way));
    }
    links
}

fn good(what: &'static str, found: impl Into<Cow<'static, str>>, means: &'static str) -> Link {
    Link { what, state: LinkState::Good, found: found.into(), means, remedy: None }
}

impl Link {
    fn missing(self, remedy: &'static str) -> Link {
        Link { state: LinkState::Missing, remedy: Some(remedy), ..self }
    }

    fn unneeded(self) -> Link {
        Link { state: LinkState::Unneeded, remedy: None, ..self }
    }

    fn unknown(self) -> Link {
        Link { state: LinkState::Unknown, remedy: None, ..self }
    }
}

fn system(facts: &Facts) -> Link {
    const WHAT: &str = "system";
    if facts.wsl {
        return good(WHAT, "Windows Subsystem for Linux", "cuFile does not work under it").missing("boot Linux itself");
    }
    let release = if facts.kernel_release.is_empty() { "of unknown release" } else { &facts.kernel_release };
    good(WHAT, format!("Linux {release}"), "cuFile works under Linux")
}

fn driver(facts: &Facts, way: GdsMode) -> Link {
    const WHAT: &str = "driver";
    let Some(driver) = &facts.driver else {
        let link = good(WHAT, "not loaded", "without NVIDIA's driver there is no GPU to read into");
        return link.missing("install NVIDIA's driver, such as nvidia-open of its own repository, and modprobe nvidia");
    };
    let kind = if driver.open { "open" } else { "closed" };
    let found = format!("NVIDIA {} with {kind} kernel modules", driver.version);
    if way == GdsMode::NvidiaFs {
        return good(WHAT, found, "nvidia-fs works with it");
    }
    if drives_p2pdma(facts, driver) {
        return good(WHAT, found, "its memory can be reached by PCI P2PDMA");
    }
    let means = "P2PDMA needs the open kernel modules, 565.47 or later, on Linux 6.15 and later 595.71, and nvidia-fs \
                 is not loaded";
    let first = NvidiaDriver { version: "565.47".into(), open: true, ..NvidiaDriver::default() };
    good(WHAT, found, means).missing(if !driver.open {
        "install the open kernel modules: apt install nvidia-open, or dnf install nvidia-open"
    } else if drives_p2pdma(facts, &first) {
        "install a newer driver, 565.47 or later: apt install nvidia-open, or dnf install nvidia-open"
    } else {
        "install a newer driver, 595.71 or later on this kernel: apt install nvidia-open, or dnf install nvidia-open"
    })
}

/// Without them the driver does not map all of the GPU's memory for other devices, or does so in a way that forbids it.
fn driver_settings(facts: &Facts, way: GdsMode) -> Link {
    const WHAT: &str = "driver settings";
    const WANTED: [&str; 2] = ["RMForceStaticBar1=1", "RmForceDisableIomapWC=1"];
    let registry = facts.driver.as_ref().map_or("", |driver| driver.registry.as_str());
    let found = if registry.is_empty() { "none".to_owned() } else { registry.to_owned() };
    let link = good(WHAT, found, "what maps the GPU's memory for P2PDMA");
    if way == GdsMode::NvidiaFs {
        return link.unneeded();
    }
    if WANTED.iter().all(|wanted| registry.split(';').any(|setting| setting.trim() == *wanted)) {
        return link;
    }
    link.missing(
        "echo 'options nvidia NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1;\"' > \
         /etc/modprobe.d/nvidia-p2pdma.conf, update-initramfs -u and reboot",
    )
}

/// How much of each GPU's memory a disk can write to, as the driver has reported it to the kernel.
fn window(facts: &Facts, way: GdsMode) -> Link {
    const WHAT: &str = "GPU's window";
    let Some(worst) = facts.gpus.iter().min_by_key(|gpu| (gpu.p2pmem, gpu.bar1)) else {
        let means = "the PCI bus shows no GPU of NVIDIA here, so it is unknown what a disk could reach of it";
        return good(WHAT, "no GPU on the PCI bus", means).unknown();
    };
    let size =
        |bytes: u64| if bytes >= 1 << 30 { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) };
    let bar1 = worst.bar1.map_or_else(|| "a BAR1 of unknown size".into(), |bytes| format!("a BAR1 of {}", size(bytes)));
    let GpuBar { address, p2pmem, .. } = worst;
    let link = match (*p2pmem, worst.bar1) {
        (None | Some(0), _) => {
            let link =
                good(WHAT, format!("{address} has {bar1} and offers none of it"), "no disk can write to the GPU");
            link.missing(
                "turn on Resizable BAR (above 4G decoding) in the firmware, load the driver with the settings above, \
                 and use a kernel with P2PDMA",
            )
        }
        // A BAR is a power of two that holds the GPU's memory: that is more than half of it.
        (Some(offered), Some(all)) if offered <= all / 2 => {
            let found = format!("{address} has {bar1} and offers {} of it", size(offered));
            let means = "only that much can be registered: reads beyond it go through the host";
            let link = good(WHAT, found, means);
            link.missing("end what else maps BAR1 (nvidia-smi -q -d MEMORY), or set memory_limit to what is offered")
        }
        (Some(offered), _) => {
            let found = format!("{address} has {bar1} and offers {}", size(offered));
            good(WHAT, found, "disks can write to all that other devices see of the GPU's memory")
        }
    };
    // nvidia-fs pins memory by itself.
    if way == GdsMode::NvidiaFs { link.unneeded() } else { link }
}

fn nvidia_fs(facts: &Facts, way: GdsMode) -> Link {
    const WHAT: &str = "nvidia-fs";
    if way != GdsMode::NvidiaFs {
        let means = "not needed with P2PDMA; it would allow RAID and network file systems: modprobe nvidia-fs";
        return good(WHAT, "not loaded", means).unneeded();
    }
    if facts.nvidia_fs_devices {
        return good(WHAT, "loaded", "reads from NVMe can go straight to the GPU");
    }
    let link = good(WHAT, "loaded, but no /dev/nvidia-fs* here", "this process cannot reach it");
    link.missing(
        "give the container its devices: for d in /dev/nvidia-fs*, docker run --device $d; else udevadm trigger",
    )
}

fn kernel(facts: &Facts, way: GdsMode) -> Link {
    const WHAT: &str = "kernel P2PDMA";
    let link = |found| good(WHAT, found, "lets one PCI device write to another");
    match facts.p2pdma {
        _ if way == GdsMode::NvidiaFs => {
            let found = if facts.p2pdma == Some(true) { "there" } else { "not seen" };
            link(found).unneeded()
        }
        Some(true) => link("there"),
        None => link("unknown: neither /proc/kallsyms nor /boot/config-* can be read").unknown(),
        Some(false) => {
            link("absent").missing("use a kernel of 6.2 or later with CONFIG_PCI_P2PDMA=y (Ubuntu 24.04 has it)")
        }
    }
}

fn iommu(facts: &Facts) -> Link {
    const WHAT: &str = "IOMMU";
    match facts.iommu {
        Iommu::Off => good(WHAT, "off", "devices reach each other directly"),
        Iommu::Passthrough => good(WHAT, "passes through", "devices reach each other directly"),
        _ => {
            let means = "what the disk writes to the GPU goes through the root complex, slowly or not at all";
            let link = good(WHAT, "translates", means);
            link.missing("add iommu=pt (or intel_iommu=off, amd_iommu=off) to the kernel's command line and reboot")
        }
    }
}

fn multipath(facts: &Facts, way: GdsMode) -> Link {
    const WHAT: &str = "NVMe multipath";
    let on = facts.nvme_multipath == Some(true);
    let link = good(WHAT, if on { "on" } else { "off" }, "P2PDMA cannot go through a multipath node");
    match (on, way) {
        (true, GdsMode::NvidiaFs) => link.unneeded(),
        (true, _) => link.missing("add nvme_core.multipath=N to the kernel's command line and reboot"),
        (false, _) => link,
    }
}

fn modules(facts: &Facts) -> Link {
    const WHAT: &str = "module list";
    if facts.modules.is_some() {
        return good(WHAT, "/proc/modules can be read", "cuFile's driver can be opened");
    }
    let link = good(WHAT, "/proc/modules cannot be read", "cuFile would never return from opening its driver");
    link.missing("show the container /proc/modules (gVisor has none: use runc), or use a kernel with CONFIG_MODULES")
}

fn udev(facts: &Facts) -> Link {
    const WHAT: &str = "udev data";
    if facts.udev {
        return good(WHAT, "/run/udev is there", "cuFile can find the device of a file");
    }
    let link = good(WHAT, "no /run/udev", "cuFile refuses every file (5027)");
    link.missing(if facts.container {
        "docker run -v /run/udev:/run/udev:ro"
    } else {
        "systemctl start systemd-udevd && udevadm trigger; in a container docker run -v /run/udev:/run/udev:ro"
    })
}

fn file_system(place: &Place, way: GdsMode) -> Link {
    const WHAT: &str = "file system";
    let Some(mount) = &place.mount else {
        return good(WHAT, "unknown", "GPUDirect needs ext4 (data=ordered) or XFS").unknown();
    };
    let network = NETWORK.contains(&mount.file_system.as_str());
    match (mount.file_system.as_str(), mount.option("data")) {
        ("xfs", _) | ("ext4", None | Some("ordered")) => {
            good(WHAT, mount.file_system.clone(), "its blocks can be read straight into the GPU")
        }
        ("ext4", Some(mode)) => {
            let found = format!("ext4 with data={mode}");
            let link = good(WHAT, found, "with this journal mode the blocks cannot be read straight");
            link.missing("umount it, and mount it with -o data=ordered")
        }
        _ if network && way == GdsMode::NvidiaFs => {
            good(WHAT, mount.file_system.clone(), "nvidia-fs has support for it, over RDMA")
        }
        _ => {
            let link = good(WHAT, mount.file_system.clone(), "it has no way straight into the GPU");
            link.missing("put the data on XFS or ext4 (data=ordered) on local NVMe")
        }
    }
}

fn disks(place: &Place, way: GdsMode) -> Link {
    const WHAT: &str = "data's disks";
    const REMEDY: &str = "put the data on a local NVMe disk";
    let network = place.mount.as_ref().is_some_and(|mount| NETWORK.contains(&mount.file_system.as_str()));
    let Some(device) = &place.device else {
        let link = good(WHAT, "none here", "only a local NVMe disk, or a network file system of nvidia-fs, can do it");
        return if network && way == GdsMode::NvidiaFs { link.unneeded() } else { link.missing(REMEDY) };
    };
    let disks = device.disks();
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let found = if device.members.is_empty() {
        device.name.clone()
    } else {
        format!("{} of {}", device.name, names.join(", "))
    };
    if !names.iter().all(|name| name.starts_with("nvme")) {
        return good(WHAT, found, "only NVMe disks can write to a GPU's memory").missing(REMEDY);
    }
    if device.kind != BlockKind::Disk && way == GdsMode::P2pdma {
        let link = good(WHAT, found, "P2PDMA does not go through software RAID or device mapper");
        return link.missing("modprobe nvidia-fs, or put the data on a disk without RAID");
    }
    good(WHAT, found, "NVMe, which can write to a GPU's memory")
}
