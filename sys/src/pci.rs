//! The distance between two devices on the PCI bus, as sysfs describes it.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// What a copy from one device to another passes through, from the nearest to the farthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Distance {
    /// Both are below one port of the processor, joined by a switch.
    SamePort,
    /// Both are below one host bridge of the processor.
    SameBridge,
    /// Both are next to one memory node.
    SameNode,
    /// They are next to different memory nodes, so everything passes between processors.
    OtherNode,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Distance::SamePort => "behind the same port of the processor",
            Distance::SameBridge => "behind the same host bridge",
            Distance::SameNode => "on the same memory node",
            Distance::OtherNode => "on different memory nodes",
        })
    }
}

/// The distance from a PCI device ("0000:3b:00.0") to a disk ("nvme0n1"). `None` if sysfs does not know one of them, if
/// the disk is not on a PCI bus, or if they are below different bridges and the machine does not report the node of
/// both.
pub fn distance(pci: &str, disk: &str) -> Option<Distance> {
    let device = Path::new("/sys/bus/pci/devices").join(pci);
    let device = device.canonicalize().ok()?;
    let disk = Path::new("/sys/class/block").join(disk).canonicalize().ok()?;
    between(&functions(&device), &functions(&disk), &node_of)
}

/// The PCI functions on the way to a device, host bridge first: "pci0000:00", "0000:00:1d.0", "0000:3c:00.0".
fn functions(path: &Path) -> Vec<PathBuf> {
    let is_of_bus = |name: &str| name.starts_with("pci") || (name.len() >= 12 && name.as_bytes()[4] == b':');
    let mut at = PathBuf::new();
    let mut found = Vec::new();
    for component in path.components() {
        at.push(component);
        if let Component::Normal(name) = component
            && name.to_str().is_some_and(is_of_bus)
        {
            found.push(at.clone());
        }
    }
    found
}

fn between(a: &[PathBuf], b: &[PathBuf], node: &dyn Fn(&Path) -> Option<u32>) -> Option<Distance> {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    match common {
        0 => match (node(a.last()?)?, node(b.last()?)?) {
            (a, b) if a == b => Some(Distance::SameNode),
            _ => Some(Distance::OtherNode),
        },
        1 => Some(Distance::SameBridge),
        _ => Some(Distance::SamePort),
    }
}

fn node_of(function: &Path) -> Option<u32> {
    std::fs::read_to_string(function.join("numa_node")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance of two paths below /sys/devices, where the number of a bus is its node.
    fn distance_of(a: &str, b: &str) -> Option<Distance> {
        let node = |path: &Path| path.to_str()?.strip_prefix("/sys/devices/pci0000:")?[..2].parse().ok();
        let functions = |path: &str| functions(&Path::new("/sys/devices").join(path));
        between(&functions(a), &functions(b), &node)
    }

    #[test]
    fn distances_follow_from_paths() {
        const GPU: &str = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0";
        let disk = "pci0000:00/0000:00:01.0/0000:01:04.0/0000:03:00.0/nvme/nvme0/nvme0n1";
        assert_eq!(distance_of(GPU, disk), Some(Distance::SamePort));
        let disk = "pci0000:00/0000:00:1d.0/0000:05:00.0/nvme/nvme0/nvme0n1";
        assert_eq!(distance_of(GPU, disk), Some(Distance::SameBridge));
        assert_eq!(distance_of(GPU, "pci0000:10/0000:10:01.0/0000:11:00.0/nvme/n/m"), Some(Distance::OtherNode));
        assert_eq!(distance_of(GPU, "pci0000:00x/0000:10:01.0"), Some(Distance::SameNode));
        assert_eq!(distance_of(GPU, "pci0000:ff/0000:ff:01.0"), None, "no node");
        assert_eq!(distance_of(GPU, "virtual/block/dm-0"), None);
        assert!(Distance::SamePort < Distance::OtherNode);
    }

    #[test]
    fn absent_devices_have_no_distance() {
        assert_eq!(distance("ffff:ff:1f.7", "nvme0n1"), None);
    }
}
