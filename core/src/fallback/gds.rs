//! The words of each step down from GPUDirect Storage.

/// What prevents GPUDirect Storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsCause {
    /// This is the Windows Subsystem for Linux.
    Wsl,
    /// `/proc/modules` cannot be read.
    Modules,
    /// Neither nvidia-fs nor PCI P2PDMA is in place.
    Path,
    /// Udev's data are missing.
    Udev,
    /// Standard input was closed, and `/dev/null` takes its place.
    StandardInput,
    /// Its configuration could not be put in place.
    Configuration,
    /// No usable libcufile.
    Library,
    /// No CUDA context could be made current.
    Context,
    /// cuFile's driver could not be opened.
    Driver,
    /// cuFile's driver did not open in time.
    Timeout,
    /// cuFile would copy through the host.
    Compat,
    /// The work needs the bytes on the host, or another way to read.
    Work,
    /// The page cache holds the files, or they have no `O_DIRECT`.
    Files,
    /// The GPU has too little memory, or not all of it can be registered.
    Memory,
    /// A trial read gave other bytes than the file has.
    Proof,
    /// A trial showed the pinned path to be no worse.
    Slower,
    /// cuFile does not take a file.
    File,
    /// cuFile failed to read.
    Read,
}

impl GdsCause {
    /// What was wanted.
    pub(super) fn wanted(self) -> &'static str {
        match self {
            GdsCause::StandardInput => "an open standard input",
            GdsCause::Memory => "all of the GPU's memory for GPUDirect Storage",
            GdsCause::File => "GPUDirect Storage for every file",
            GdsCause::Read => "GPUDirect Storage for every read",
            _ => "GPUDirect Storage",
        }
    }

    /// Reason and remedy. Sources: NVIDIA's GPUDirect Storage installation guide (nvidia-fs) and its page on NVMe
    /// without it (P2PDMA), KvikIO's `compat_mode_manager.cpp` (WSL, `/run/udev`), and libcufile 1.20 as seen
    /// (`/proc/modules`).
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            GdsCause::Wsl => ("cuFile does not work under WSL", "use Linux without Windows below it"),
            GdsCause::Modules => (
                "/proc/modules cannot be read; without it cuFile never returns from opening its driver",
                "use a kernel with CONFIG_MODULES, and a container engine that shows /proc/modules (not gVisor)",
            ),
            GdsCause::Path => (
                "the kernel has no way from NVMe to the GPU: neither nvidia-fs nor PCI P2PDMA with NVIDIA's open \
                 modules",
                "modprobe nvidia-fs; or Linux 6.2 with CONFIG_PCI_P2PDMA and NVIDIA's open modules 565.47 or later, on \
                 Linux 6.15 and later 595.71",
            ),
            GdsCause::Udev => (
                "udev's data (/run/udev) are missing; without them cuFile knows no file",
                "in a container mount them: docker run -v /run/udev:/run/udev:ro",
            ),
            GdsCause::StandardInput => (
                "descriptor 0 is closed, which cuFile could take or close as its own",
                "harmless; to avoid it start the process with </dev/null",
            ),
            GdsCause::Configuration => (
                "cuFile's configuration could not be put in place",
                "name a folder for temporary files that this user may write to; it takes a few KiB",
            ),
            GdsCause::Library => (
                "there is no libcufile.so.0",
                "install libcufile of the CUDA toolkit, or pip install nvidia-cufile; or name its folder",
            ),
            GdsCause::Context => ("no CUDA context could be made current", "see that nvidia-smi shows the GPU"),
            GdsCause::Driver => ("cuFile's driver could not be opened", "run `uringload doctor` for the chain"),
            GdsCause::Timeout => (
                "cuFile's driver did not open in time; its thread is left alone",
                "start anew without GPUDirect Storage (gds off); run `uringload doctor` for the chain",
            ),
            GdsCause::Compat => (
                "cuFile would copy through the host (compatibility mode), which the pinned path does better",
                "run `uringload doctor` for the chain; in a cufile.json of your own set allow_compat_mode to false",
            ),
            GdsCause::Work => ("the work needs the bytes on the host too", "harmless; the pinned path does it"),
            GdsCause::Files => (
                "the files cannot be read past the page cache, or are in it",
                "put the data on ext4 or xfs on NVMe; what the page cache holds is read faster from there",
            ),
            GdsCause::Memory => (
                "the GPU lacks the memory, or cuFile cannot register it",
                "lower memory_limit or batch_size; nvidia-smi -q -d MEMORY shows BAR1, which bounds what is registered",
            ),
            GdsCause::Proof => (
                "cuFile read other bytes than the file holds",
                "report it with the versions of cuFile, the driver and the kernel; do not use GDS here",
            ),
            GdsCause::Slower => ("the pinned path was no worse", "harmless; gds on takes it all the same"),
            GdsCause::File => ("cuFile does not take a file", "run `uringload doctor` for the chain of that file"),
            GdsCause::Read => ("cuFile failed to read", "run `uringload doctor`; look into dmesg"),
        }
    }
}
