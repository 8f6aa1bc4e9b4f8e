//! Facts about this machine, this process and the location of a dataset. This module judges nothing.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use uringload::dataset::{Dataset, FileId};
use uringload::inspect::gds;
use uringload_sys::block::BlockDevice;
use uringload_sys::file::{DirectAlignment, direct_alignment, file_system};

/// The filesystem and device of a file.
pub struct Location {
    /// For example "ext4".
    pub filesystem: String,
    /// Alignment of `O_DIRECT` reads, if the filesystem reports it.
    pub alignment: Option<DirectAlignment>,
    /// The block device, if there is one.
    pub device: Option<BlockDevice>,
}

/// The location of a dataset's first file; `None` if it cannot be opened, or is an object of a store.
pub fn place(dataset: &dyn Dataset) -> Option<Location> {
    if dataset.files().has_objects() {
        return None;
    }
    let file = uringload_sys::file::open_regular(&dataset.files().path(FileId(0))).ok()?;
    let filesystem = file_system(file.as_fd()).ok()?.into_owned();
    Some(Location { filesystem, alignment: direct_alignment(file.as_fd()), device: BlockDevice::of(file.as_fd()) })
}

/// The same location as GPUDirect Storage's chain of checks sees it.
pub fn chain_place(dataset: &dyn Dataset) -> gds::Place {
    let path = dataset.files().path(FileId(0));
    let mount = std::fs::canonicalize(&path).ok().and_then(|path| gds::Mount::of(Path::new("/"), &path));
    let device = File::open(&path).ok().and_then(|file| BlockDevice::of(file.as_fd()));
    gds::Place { mount, device }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.filesystem)?;
        match self.alignment {
            Some(alignment) => write!(f, ", O_DIRECT aligned to {}", alignment.offset)?,
            None => f.write_str(", names no O_DIRECT alignment")?,
        }
        self.device.as_ref().map_or(Ok(()), |device| write!(f, ", on {}", describe(device)))
    }
}

/// Describes a device in one line: its name, its components, and its queue.
pub fn describe(device: &BlockDevice) -> String {
    let queue = &device.queue;
    let kind = device.kind.name();
    let mut line = format!("{} ({kind}", device.name);
    if device.members.is_empty() {
        let (queues, requests, kib) = (queue.hardware_queues, queue.requests, queue.request_bytes >> 10);
        let plural = if queues == 1 { "" } else { "s" };
        line += &format!(", {queues} queue{plural} of {requests} requests of <= {kib} KiB");
    } else {
        let names: Vec<&str> = device.members.iter().map(|member| member.name.as_str()).collect();
        line += &format!(" of {}", names.join(", "));
    }
    line + ")"
}

/// Number of NVIDIA GPUs that the kernel knows. Loads nothing.
pub fn gpus() -> usize {
    std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count)
}
