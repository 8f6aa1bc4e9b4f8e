//! Where batches end up: in the host's memory, or on a GPU.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where the batches of a loader end up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    kind: DeviceKind,
    library: Option<PathBuf>,
    memory_limit: Option<u64>,
}

/// Which device. One asked for by name is had or the build fails; only `Auto` steps down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The first GPU where there is one, the host otherwise.
    Auto,
    /// The host.
    Host,
    /// The GPU of this number, as CUDA counts those that `CUDA_VISIBLE_DEVICES` leaves, from 0.
    Cuda(u32),
}

impl Device {
    /// The first GPU where there is one, the host otherwise: then the route says why.
    pub fn auto() -> Device {
        Device::of(DeviceKind::Auto)
    }

    /// The host: no driver is looked for.
    pub fn host() -> Device {
        Device::of(DeviceKind::Host)
    }

    /// GPU `index`, from 0.
    pub fn cuda(index: u32) -> Device {
        Device::of(DeviceKind::Cuda(index))
    }

    fn of(kind: DeviceKind) -> Device {
        Device { kind, library: None, memory_limit: None }
    }

    /// Loads the CUDA driver from this file instead of `libcuda.so.1` from where the system finds it.
    #[must_use]
    pub fn library(mut self, path: impl Into<PathBuf>) -> Device {
        self.library = Some(path.into());
        self
    }

    /// Bytes of the GPU's memory for samples at most; without it enough for some batches of the largest size.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Device {
        self.memory_limit = Some(bytes);
        self
    }

    /// Which device.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// The driver to load, where it was named.
    pub fn library_path(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    /// Bytes of the GPU's memory at most, where that was said.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_limit
    }
}

/// "auto", "host" ("cpu"), "cuda" (the first one) or "cuda:N".
impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        match text {
            "auto" => Ok(Device::auto()),
            "host" | "cpu" => Ok(Device::host()),
            "cuda" => Ok(Device::cuda(0)),
            _ => match text.strip_prefix("cuda:").and_then(|index| index.parse().ok()) {
                Some(index) => Ok(Device::cuda(index)),
                None => Err(format!("{text:?} is no device: give auto, host, cuda or cuda:N")),
            },
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Auto => f.write_str("auto"),
            DeviceKind::Host => f.write_str("host"),
            DeviceKind::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// What is known of the GPU that batches go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRoute {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Where it is on the PCI bus, as sysfs writes it.
    pub pci: String,
    /// The node of memory that it is next to; `None` where the machine has one.
    pub numa_node: Option<u32>,
    /// Whether the memory that samples are read into is pinned, so that the copy engine reads it itself.
    pub pinned: bool,
    /// Whether the GPU itself writes down which copies are done, so that no driver is asked.
    pub flags: bool,
    /// Bytes of its memory that hold batches.
    pub memory_bytes: u64,
}

impl fmt::Display for DeviceRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = if self.pinned { "pinned" } else { "pageable" };
        write!(f, "cuda:{} ({}, {})", self.index, self.name, self.pci)?;
        if let Some(node) = self.numa_node {
            write!(f, " on node {node}")?;
        }
        write!(f, ", {memory} memory, {} MiB there", self.memory_bytes >> 20)?;
        f.write_str(if self.flags { ", copies told by flags" } else { ", copies told by events" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_written_as_frameworks_write_them() {
        for (text, kind) in [
            ("auto", DeviceKind::Auto),
            ("host", DeviceKind::Host),
            ("cuda:0", DeviceKind::Cuda(0)),
            ("cuda:17", DeviceKind::Cuda(17)),
        ] {
            let device: Device = text.parse().unwrap();
            assert_eq!((device.kind(), device.to_string().as_str()), (kind, text));
        }
        assert_eq!("cpu".parse::<Device>().unwrap(), Device::host());
        for text in ["cuda:", "cuda:-1", "gpu", "cuda:0 "] {
            assert!(text.parse::<Device>().unwrap_err().contains("cuda:N"), "{text}");
        }
    }
}
