//! The words of each step down from GPUDirect Storage.

use super::Cause;

/// Reason and remedy. Sources: NVIDIA's GPUDirect Storage installation guide (nvidia-fs) and its page on NVMe without
/// it (P2PDMA), KvikIO's `compat_mode_manager.cpp` (WSL, `/run/udev`), and libcufile 1.20 as seen (`/proc/modules`).
pub(super) fn words(cause: Cause) -> Option<(&'static str, &'static str)> {
    Some(match cause {
        Cause::GdsWsl => ("cuFile does not work under WSL", "use Linux without Windows below it"),
        Cause::GdsModules => (
            "/proc/modules cannot be read, without which cuFile never comes back from opening its driver",
            "use a kernel with CONFIG_MODULES, and a container engine that shows /proc/modules (not gVisor)",
        ),
        Cause::GdsPath => (
            "the kernel has no way from NVMe to the GPU: neither nvidia-fs nor PCI P2PDMA with NVIDIA's open modules",
            "modprobe nvidia-fs; or Linux 6.2 with CONFIG_PCI_P2PDMA and NVIDIA's open modules 565.47 or later",
        ),
        Cause::GdsUdev => (
            "udev's data (/run/udev) are missing, without which cuFile knows no file",
            "in a container mount them: docker run -v /run/udev:/run/udev:ro",
        ),
        Cause::GdsStandardInput => (
            "descriptor 0 is closed, which cuFile could take or close as its own",
            "harmless; to avoid it start the process with </dev/null",
        ),
        Cause::GdsConfiguration => (
            "cuFile's configuration could not be put in place",
            "name a folder for temporary files that this user may write to; it takes a few KiB",
        ),
        Cause::GdsLibrary => (
            "there is no libcufile.so.0",
            "install libcufile of the CUDA toolkit, or pip install nvidia-cufile; or name its folder",
        ),
        Cause::GdsContext => ("no CUDA context could be made current", "see that nvidia-smi shows the GPU"),
        Cause::GdsDriver => ("cuFile's driver could not be opened", "run `uringload doctor` for the chain"),
        Cause::GdsTimeout => (
            "cuFile's driver did not open in time; its thread is left to itself",
            "start anew without GPUDirect Storage (gds off); run `uringload doctor` for the chain",
        ),
        Cause::GdsCompat => (
            "cuFile would copy through the host (compatibility mode), which the pinned path does better",
            "run `uringload doctor` for the chain; in a cufile.json of your own set allow_compat_mode to false",
        ),
        Cause::GdsWork => ("the work cannot do with bytes that only the GPU has", "harmless; the pinned path does it"),
        Cause::GdsFiles => (
            "the files cannot be read past the page cache, or lie in it",
            "put the data on ext4 or xfs on NVMe; what lies in the page cache is read faster from there",
        ),
        Cause::GdsMemory => (
            "the GPU has not the memory, or cuFile cannot register it",
            "lower memory_limit or batch_size; nvidia-smi -q -d MEMORY shows BAR1, which bounds what is registered",
        ),
        Cause::GdsProof => (
            "what cuFile has read is not what the file holds",
            "report it with the versions of cuFile, the driver and the kernel; do not use GDS here",
        ),
        Cause::GdsSlower => ("the pinned path was no worse", "harmless; gds on takes it all the same"),
        Cause::GdsFile => ("cuFile does not take a file", "run `uringload doctor` for the chain of that file"),
        Cause::GdsRead => ("cuFile failed to read", "run `uringload doctor`; look into dmesg"),
        _ => return None,
    })
}
