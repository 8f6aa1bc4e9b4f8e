//! Access to GPUs: which there are, how they are reached, and what would enable a better route.

use super::{Finding, POOL_BYTES, State};
use crate::text;
use crate::{cufile, facts};
use std::path::Path;
use uringload::config::{Cause, Fallback};
use uringload_sys::Arena;
use uringload_sys::block::BlockDevice;
use uringload_sys::cuda::{Context, Copies, CudaError, Driver, Kernel, Kernels, Notice, Pinned};
use uringload_sys::nvjpeg::{Hardware, Library};
use uringload_sys::pci::{self, Distance};
use uringload_sys::system;

/// Room for the pixels of a decoder that decodes nothing.
const DECODED_BYTES: usize = 1 << 20;

/// Checks the driver and each of its devices. `disk` is what the dataset lies on, if known.
pub fn look(library: Option<&Path>, disk: Option<&BlockDevice>) -> Vec<Finding> {
    let gpus = facts::gpus();
    let driver = match Driver::open(library) {
        Ok(driver) => driver,
        Err(error) => {
            // A machine without a GPU lacks nothing; one whose GPU cannot be used does.
            let state = if gpus > 0 { State::Degraded } else { State::Info };
            let found = match gpus {
                0 => format!("none: {error}"),
                devices => format!("{devices} that cannot be used: {error}"),
            };
            let finding = Finding::new("GPU", state, found, "batches end in the host's memory");
            return vec![finding.remedy(error.remedy())];
        }
    };
    let (version, devices) = (driver.version(), driver.devices());
    let plural = if devices == 1 { "" } else { "s" };
    let found = format!("{devices} device{plural}, a driver for CUDA {}.{}", version / 1000, version % 1000 / 10);
    let mut findings = vec![Finding::new("GPU", State::Good, found, "batches can be put into its memory (--device)")];
    for index in 0..devices {
        findings.extend(device(&driver, index, disk));
    }
    findings
}

/// One device: what it is, how far it is from the disk, and how data is copied to it.
fn device(driver: &Driver, index: u32, disk: Option<&BlockDevice>) -> Vec<Finding> {
    let what = || format!("cuda:{index}");
    let context = match Context::new(driver, index) {
        Ok(context) => context,
        Err(error) => {
            let finding = Finding::new(what(), State::Degraded, error.to_string(), "it cannot be used");
            return vec![finding.remedy(error.remedy())];
        }
    };
    let info = context.info();
    let node = system::numa_node_of_pci(&info.pci).map_or_else(String::new, |node| format!(", on node {node}"));
    let memory = text::binary(info.memory_bytes);
    let (major, minor) = info.compute;
    let found = format!("{}, compute {major}.{minor}, {memory}, at {}{node}", info.name, info.pci);
    let card = match nearest(&info.pci, disk) {
        None => Finding::new(what(), State::Info, found, "how far it is from the data is not known"),
        Some((disk, Distance::OtherNode)) => {
            let means = format!("{disk} is on another node of memory: what is read passes between processors");
            let remedy = "use a GPU and a disk of one node, where there is the choice";
            Finding::new(what(), State::Info, found, means).remedy(remedy)
        }
        Some((disk, distance)) => Finding::new(what(), State::Good, found, format!("it and {disk} are {distance}")),
    };
    vec![card, pinning(&context), notices(&context), kernels(&context), jpegs(&context)]
}

/// The nearest of the disks under `disk`.
fn nearest(pci: &str, disk: Option<&BlockDevice>) -> Option<(String, Distance)> {
    let disks = disk?.disks();
    let told = disks.iter().filter_map(|disk| Some((disk.name.clone(), pci::distance(pci, &disk.name)?)));
    told.min_by_key(|(_, distance)| *distance)
}

/// Whether the default pool can be pinned.
fn pinning(context: &Context) -> Finding {
    const WHAT: &str = "pinned memory";
    let pool = text::binary(POOL_BYTES);
    let arena = match Arena::reserve(POOL_BYTES as usize) {
        Ok((arena, _)) => arena,
        Err(error) => return Finding::new(WHAT, State::Degraded, error.to_string(), "there is no memory to pin"),
    };
    match Pinned::new(context, &arena) {
        Ok(_) => Finding::new(WHAT, State::Good, format!("{pool} can be pinned"), "the copy engine reads it by itself"),
        Err(error) => {
            let step = Fallback::new(Cause::Pinning, "copies through the driver's own memory", None);
            let means = "copies go through the driver's own memory, at a fraction of the rate";
            Finding::new(WHAT, State::Degraded, format!("{pool} cannot be pinned: {error}"), means).remedy(step.remedy)
        }
    }
}

/// How the host learns that a copy is done.
fn notices(context: &Context) -> Finding {
    const WHAT: &str = "copies";
    match Copies::new(context).map(|copies| copies.notice()) {
        Ok(Notice::Flag) => Finding::new(WHAT, State::Good, "told by flags", "no call of the driver for each"),
        Ok(_) => {
            let step = Fallback::new(Cause::CopyFlags, "events", None);
            let means = "the driver is asked for each, which costs some CPU";
            Finding::new(WHAT, State::Info, "told by events", means).remedy(step.remedy)
        }
        Err(error) => unusable(WHAT, error),
    }
}

/// Whether the driver accepts our kernels.
fn kernels(context: &Context) -> Finding {
    const WHAT: &str = "kernels";
    match Kernels::new(context).prepare(&[Kernel::Gather]) {
        Ok(()) => Finding::new(WHAT, State::Good, "accepted by the driver", "columns are made on the GPU"),
        Err(error) => unusable(WHAT, error),
    }
}

/// Whether it decodes JPEGs, and by what.
fn jpegs(context: &Context) -> Finding {
    const WHAT: &str = "JPEGs";
    const MEANS: &str = "the processor decodes them";
    let library = match Library::open(&cufile::nvjpeg_places()) {
        Ok(library) => library,
        Err(error) => {
            let step = Fallback::new(Cause::Nvjpeg, MEANS, None);
            return Finding::new(WHAT, State::Info, error.to_string(), MEANS).remedy(step.remedy);
        }
    };
    let found = |what: &dyn std::fmt::Display| format!("nvJPEG {}: {what}", library.version());
    let decoder = match library.decoder(context, DECODED_BYTES) {
        Ok(decoder) => decoder,
        Err(error) => return Finding::new(WHAT, State::Degraded, found(&error), MEANS).remedy(error.remedy()),
    };
    match decoder.hardware() {
        Ok(hardware) => {
            let told = match hardware {
                Hardware { engines: 0, .. } => "engines, whose number it does not tell".to_owned(),
                Hardware { engines, cores } => format!("{engines} engines of {cores} cores"),
            };
            Finding::new(WHAT, State::Good, found(&told), "its own engines decode them (--nvjpeg)")
        }
        Err(error) => {
            let means = "its multiprocessors decode them (--nvjpeg), and not an engine";
            Finding::new(WHAT, State::Info, found(error), means).remedy(error.hardware_remedy())
        }
    }
}

fn unusable(what: &'static str, error: CudaError) -> Finding {
    let finding = Finding::new(what, State::Degraded, error.to_string(), "batches cannot be put on this GPU");
    finding.remedy("see nvidia-smi and the kernel's log; install a driver for CUDA 12.0 or later")
}
