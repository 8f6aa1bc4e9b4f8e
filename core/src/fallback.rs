//! A step down from the best way to do something: what was wanted, what is used instead, why, and what to do about it.

mod gds;

use crate::error::Error;
use std::borrow::Cow;
use std::fmt;
use std::io;

pub use gds::GdsCause;

/// A step down that was taken, and how to avoid it. `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The cause, for programs.
    pub cause: Cause,
    /// What was wanted, such as "io_uring".
    pub wanted: Cow<'static, str>,
    /// What is used instead, such as "pread threads".
    pub got: Cow<'static, str>,
    /// Why, in words.
    pub reason: Cow<'static, str>,
    /// The system's error number, if there is one.
    pub errno: Option<i32>,
    /// What the user can do about it.
    pub remedy: Cow<'static, str>,
}

impl Fallback {
    /// A step down whose words follow from the cause and the error.
    pub fn new(cause: Cause, got: impl Into<Cow<'static, str>>, error: Option<&io::Error>) -> Fallback {
        let errno = error.and_then(io::Error::raw_os_error);
        let (reason, remedy) = cause.words(errno);
        Fallback {
            cause,
            wanted: cause.wanted().into(),
            got: got.into(),
            reason: reason.into(),
            errno,
            remedy: remedy.into(),
        }
    }

    /// Whether something is worse than it could be. To read files from the page cache is a choice, not a defect, and so
    /// is a quota. Few machines have GPUDirect Storage, so its absence is no defect; but wrong bytes are one.
    pub fn is_degraded(&self) -> bool {
        matches!(self.cause, Cause::Gds(GdsCause::Proof))
            || !matches!(self.cause, Cause::PageCache | Cause::ProcessorQuota | Cause::Gds(_))
    }

    /// The same step down with a remedy that says more than the cause does.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Fallback {
        self.remedy = remedy.into();
        self
    }

    /// The same step down with the reason and the remedy of an error.
    #[must_use]
    pub fn with_error(mut self, error: &Error) -> Fallback {
        self.reason = error.headline().to_string().into();
        match error.remedy() {
            Some(remedy) => self.with_remedy(remedy.to_owned()),
            None => self,
        }
    }

    /// The same step down with a reason that says more than the errno does (a file, a size).
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<Cow<'static, str>>) -> Fallback {
        self.reason = reason.into();
        self
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instead of {}: {}", self.got, self.wanted, self.reason)?;
        if let Some(errno) = self.errno {
            write!(f, " [{}]", io::Error::from_raw_os_error(errno))?;
        }
        write!(f, "; {}", self.remedy)
    }
}

/// Why a step down was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// `io_uring_setup(2)` failed.
    RingSetup,
    /// The files are on FUSE, where io_uring can read wrong bytes.
    RingOnFuse,
    /// The kernel has io_uring, but not all the ring flags that we want.
    RingFlags,
    /// `IORING_REGISTER_BUFFERS` failed.
    BufferRegistration,
    /// The table of files could not be registered, or not at its full size.
    FileTable,
    /// `open(2)` with `O_DIRECT` failed.
    DirectOpen,
    /// The filesystem reports no alignment for `O_DIRECT` (statx `STATX_DIOALIGN` absent or 0).
    DirectAlignment,
    /// The limit of open files is below what the route needs.
    Descriptors,
    /// The system starts fewer threads than were wanted.
    Threads,
    /// The machine, or the control group (the container), has little memory left.
    MemoryRoom,
    /// The quota of processor time is below the processors that there are.
    ProcessorQuota,
    /// No huge pages back the arena.
    HugePages,
    /// Memory cannot be carried from one long sample to the next.
    Carrying,
    /// The page cache holds the files, and is faster than the disk.
    PageCache,
    /// What is read through the page cache stays there, although it is read once or kept elsewhere.
    ReadOnce,
    /// Not all of what should be kept in memory is in memory, or no longer.
    Cache,
    /// What is read of objects is not, or not all, kept on a local disk.
    DiskCache,
    /// Objects have neither ETag nor date, so it is not noticed if they change.
    Unversioned,
    /// Objects have weak ETags, which prove nothing.
    WeakEtag,
    /// The clock of this machine is not that of a store.
    Clock,
    /// A bucket is in another region than was said.
    Region,
    /// There is no memory to read neighbouring samples together.
    Locality,
    /// Indexes cannot be written to the folder of a dataset's shards.
    IndexPlace,
    /// Others may write the index of a shard.
    ForeignIndex,
    /// There is no usable GPU.
    Device,
    /// The memory that samples are read into could not be pinned for the GPU.
    Pinning,
    /// Memory could not be taken from the node that the GPU is next to.
    MemoryNode,
    /// The GPU does not have as much free memory as was wanted.
    DeviceMemory,
    /// The driver cannot signal finished copies by flags in memory.
    CopyFlags,
    /// The driver cannot copy several values by one call.
    CopyLists,
    /// Images cannot be decoded by the GPU.
    Nvjpeg,
    /// The GPU's multiprocessors decode JPEGs, not its engine for them.
    NvjpegEngine,
    /// GPUDirect Storage is not available, or not for everything. The inner value may change in any release:
    /// [`Fallback::reason`] says in words what prevents it.
    Gds(GdsCause),
}

// errno values of Linux on every architecture that Rust's std supports; named here because this layer makes no system
// calls.
const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EMFILE: i32 = 24;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

impl Cause {
    fn wanted(self) -> &'static str {
        match self {
            Cause::RingSetup | Cause::RingOnFuse => "io_uring",
            Cause::RingFlags => "io_uring with all ring flags",
            Cause::BufferRegistration => "registered buffers",
            Cause::FileTable => "a registered file table",
            Cause::DirectOpen | Cause::DirectAlignment | Cause::PageCache => "O_DIRECT",
            Cause::Descriptors => "more open files",
            Cause::Threads => "more threads",
            Cause::MemoryRoom => "enough memory to read ahead",
            Cause::ProcessorQuota => "a thread for each processor",
            Cause::HugePages => "huge pages",
            Cause::Carrying => "memory that is carried from sample to sample",
            Cause::ReadOnce => "reads that leave nothing in the page cache",
            Cause::Cache => "the dataset in memory",
            Cause::DiskCache => "objects kept on a local disk",
            Cause::Unversioned => "objects with versions",
            Cause::WeakEtag => "strong ETags",
            Cause::Clock => "this machine's clock",
            Cause::Region => "the region that was said",
            Cause::Locality => "long reads of what lies together",
            Cause::IndexPlace => "indexes beside the shards",
            Cause::ForeignIndex => "the indexes beside the shards",
            Cause::Device => "a GPU",
            Cause::Pinning => "pinned memory",
            Cause::MemoryNode => "memory next to the GPU",
            Cause::DeviceMemory => "more of the GPU's memory",
            Cause::CopyFlags => "copies signalled by flags",
            Cause::CopyLists => "large values copied by one call",
            Cause::Nvjpeg => "images decoded by the GPU",
            Cause::NvjpegEngine => "images decoded by the GPU's own engine",
            Cause::Gds(cause) => cause.wanted(),
        }
    }

    /// Reason and remedy. Sources: moby #46762 and containerd #9048 (seccomp), `io_uring_setup(2)`,
    /// `io_uring_register(2)`, `Documentation/admin-guide/sysctl/kernel.rst` (io_uring_disabled), `statx(2)`.
    fn words(self, errno: Option<i32>) -> (&'static str, &'static str) {
        match (self, errno) {
            (Cause::RingSetup, Some(EPERM | EACCES)) => (RING_DENIED, RING_DENIED_REMEDY),
            (Cause::RingSetup, Some(ENOSYS)) => (RING_ABSENT, RING_ABSENT_REMEDY),
            (Cause::RingSetup, Some(ENOMEM)) => ("no room for the ring under the locked-memory limit", MEMLOCK_REMEDY),
            (Cause::RingSetup, Some(EMFILE)) => ("no file descriptor left for the ring", NOFILE_REMEDY),
            (Cause::RingSetup, _) => ("the kernel refused a ring", RING_ABSENT_REMEDY),
            // Seen on Linux 6.18: FUSE files can be polled, so even a worker reads them as if without waiting, and what
            // a short read left over is read again (io_uring/rw.c) from a position that a file opened with
            // FOPEN_DIRECT_IO did not advance (fs/fuse/file.c): the first bytes come twice, and the length looks right.
            (Cause::RingOnFuse, _) => (
                "the files are on FUSE, where io_uring returns the wrong bytes after a short read",
                "harmless; to read through io_uring put the data on a local file system",
            ),
            (Cause::RingFlags, _) => (
                "this kernel (or gVisor) does not know every ring flag",
                "harmless; Linux 6.6 or later knows them all and spends less CPU a read",
            ),
            (Cause::BufferRegistration, Some(ENOMEM | EPERM)) => {
                ("pinning the loader's memory exceeds the locked-memory limit", MEMLOCK_REMEDY)
            }
            (Cause::BufferRegistration, Some(EOPNOTSUPP | EINVAL)) => (
                "this kernel cannot register this memory",
                "harmless; reads pin their pages one by one, which costs some CPU; Linux 5.13 or later registers it",
            ),
            (Cause::BufferRegistration, _) => ("the kernel refused to register the loader's memory", MEMLOCK_REMEDY),
            (Cause::FileTable | Cause::Descriptors, _) => ("the limit of open files is too low", NOFILE_REMEDY),
            (Cause::Threads, _) => (
                "the system starts no more threads",
                "raise the limit of processes (ulimit -u, or pids.max of the cgroup)",
            ),
            (Cause::MemoryRoom, _) => (
                "little memory is left",
                "raise the memory limit of the container, or set memory_limit if you know better",
            ),
            (Cause::ProcessorQuota, _) => (
                "the quota of processor time is below the processors that there are",
                "harmless; raise the quota of the container, or set the number of threads if you know better",
            ),
            (Cause::DirectOpen, _) => (
                "the filesystem refuses O_DIRECT",
                "put the data on ext4, xfs or another filesystem with O_DIRECT, or ask for io=buffered \
                 (--io buffered)",
            ),
            (Cause::DirectAlignment, _) => (
                NO_ALIGNMENT,
                "put the data on ext4 or xfs under Linux 6.1 or later, or ask for io=direct (--io direct) to insist",
            ),
            (Cause::HugePages, _) => (
                "the kernel gives no huge pages",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)",
            ),
            (Cause::Carrying, Some(ENOMEM)) => (
                "there is not enough address space",
                "raise the limit of address space (ulimit -v), or lower memory_limit",
            ),
            (Cause::Carrying, _) => {
                ("this kernel cannot move memory", "harmless, but long samples take more of it; use Linux 5.7 or later")
            }
            (Cause::PageCache, _) => (
                "the page cache holds the files, and is faster than the disk",
                "ask for io=direct (--io direct) to read from the disk all the same",
            ),
            (Cause::ReadOnce, _) => (
                "the kernel or the file system has no RWF_DONTCACHE",
                "harmless, but other files may leave the page cache; use Linux 6.15 or later with ext4, xfs or btrfs",
            ),
            (Cause::DiskCache, _) => ("the folder takes no more", "make room on its disk"),
            (Cause::Unversioned | Cause::WeakEtag | Cause::Clock | Cause::Region, _) => self.words_of_stores(),
            (Cause::Cache | Cause::Locality, _) => ("memory has no room for all of it", "raise memory_limit"),
            (Cause::IndexPlace, _) => ("a shard's folder takes no files", INDEX_PLACE_REMEDY),
            (Cause::Device, _) => ("the CUDA driver cannot be used", "see `uringload doctor`"),
            (Cause::MemoryNode, _) => (
                "memory cannot be bound to a node (a container's filter may refuse mbind)",
                "give the container CAP_SYS_NICE, or start with numactl --membind",
            ),
            (Cause::Pinning, _) => ("the driver cannot lock that much memory", MEMLOCK_REMEDY),
            (Cause::DeviceMemory, _) => {
                ("the GPU has no more memory free", "free memory there, or build the loader before the model")
            }
            (Cause::CopyFlags, _) => (
                "the driver has no cuStreamWriteValue32, or does not support it here",
                "harmless; a driver for CUDA 12.0 or later spends less CPU a copy",
            ),
            (Cause::CopyLists, _) => (
                "the driver has no cuMemcpyBatchAsync",
                "harmless; a driver for CUDA 12.8 or later spends less CPU on large values",
            ),
            (Cause::Nvjpeg, _) => (
                "nvJPEG cannot be used",
                "install it (pip install nvidia-nvjpeg-cu12, or nvidia-nvjpeg for CUDA 13), or leave nvjpeg out",
            ),
            (Cause::NvjpegEngine, _) => {
                ("nvJPEG reaches no engine", "let the loader find libnvcuvid.so.1, which is a part of the driver")
            }
            (Cause::ForeignIndex, _) => ("others may write an index", "delete it, and index again"),
            (Cause::Gds(cause), _) => cause.words(),
        }
    }

    fn words_of_stores(self) -> (&'static str, &'static str) {
        match self {
            Cause::Unversioned => (
                "they have neither ETag nor date, so it is not noticed if they change",
                "leave them as they are while they are read",
            ),
            Cause::WeakEtag => (
                "the objects have weak ETags, which prove nothing",
                "harmless as long as no object is replaced twice in a second",
            ),
            Cause::Clock => ("they differ by minutes", "set the clock of this machine (chronyd, systemd-timesyncd)"),
            _ => ("the bucket is there", "give region= (--region), which saves a request"),
        }
    }
}

const RING_DENIED: &str = "io_uring is denied to this process (a seccomp profile, as Docker's and Kubernetes' default, \
                           or the sysctl kernel.io_uring_disabled)";
const RING_DENIED_REMEDY: &str = "in a container allow io_uring_setup, io_uring_enter and io_uring_register: docker \
                                  run --security-opt seccomp=PROFILE.json (the default profile plus these three; \
                                  to try it: seccomp=unconfined); on the host: sysctl -w kernel.io_uring_disabled=0";
const RING_ABSENT: &str = "there is no io_uring here (a seccomp profile that hides it, as Podman's default, gVisor, \
                           Linux before 5.1, or a kernel without CONFIG_IO_URING)";
const RING_ABSENT_REMEDY: &str = "in a container allow io_uring_setup, io_uring_enter and io_uring_register: podman \
                                  run --security-opt seccomp=PROFILE.json (the default profile plus these three); \
                                  under gVisor start runsc with --iouring, or use runc; else Linux 5.19 or later with \
                                  CONFIG_IO_URING";
const MEMLOCK_REMEDY: &str = "raise the locked-memory limit: ulimit -l unlimited, LimitMEMLOCK=infinity (systemd), \
                              docker run --ulimit memlock=-1, or give CAP_IPC_LOCK; or lower memory_limit \
                              (--memory-limit)";
const NOFILE_REMEDY: &str = "raise the limit of open files: ulimit -n 65536, LimitNOFILE=65536 (systemd), docker run \
                             --ulimit nofile=65536";
const NO_ALIGNMENT: &str = "the filesystem names no O_DIRECT alignment (FUSE, tmpfs, btrfs, ext4 with data=journal, or \
                            Linux before 6.1)";
const INDEX_PLACE_REMEDY: &str = "run `uringload index` once where they may be written, or name a folder for \
                                  indexes by index_cache (--index-cache)";

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSES: &[Cause] = &[
        Cause::MemoryRoom,
        Cause::ProcessorQuota,
        Cause::Device,
        Cause::Pinning,
        Cause::MemoryNode,
        Cause::DeviceMemory,
        Cause::CopyFlags,
        Cause::CopyLists,
        Cause::Nvjpeg,
        Cause::NvjpegEngine,
        Cause::RingSetup,
        Cause::RingOnFuse,
        Cause::RingFlags,
        Cause::BufferRegistration,
        Cause::FileTable,
        Cause::DirectOpen,
        Cause::DirectAlignment,
        Cause::Descriptors,
        Cause::HugePages,
        Cause::Carrying,
        Cause::PageCache,
        Cause::ReadOnce,
        Cause::Cache,
        Cause::DiskCache,
        Cause::Unversioned,
        Cause::WeakEtag,
        Cause::Clock,
        Cause::Region,
        Cause::Locality,
        Cause::IndexPlace,
        Cause::ForeignIndex,
        Cause::Gds(GdsCause::Wsl),
        Cause::Gds(GdsCause::Modules),
        Cause::Gds(GdsCause::Path),
        Cause::Gds(GdsCause::Udev),
        Cause::Gds(GdsCause::StandardInput),
        Cause::Gds(GdsCause::Configuration),
        Cause::Gds(GdsCause::Library),
        Cause::Gds(GdsCause::Context),
        Cause::Gds(GdsCause::Driver),
        Cause::Gds(GdsCause::Timeout),
        Cause::Gds(GdsCause::Compat),
        Cause::Gds(GdsCause::Work),
        Cause::Gds(GdsCause::Files),
        Cause::Gds(GdsCause::Memory),
        Cause::Gds(GdsCause::Proof),
        Cause::Gds(GdsCause::Slower),
        Cause::Gds(GdsCause::File),
        Cause::Gds(GdsCause::Read),
    ];

    #[test]
    fn every_cause_and_errno_gives_one_line_with_a_remedy() {
        for &cause in CAUSES {
            for errno in [None, Some(1), Some(12), Some(13), Some(22), Some(24), Some(38), Some(95), Some(5)] {
                let error = errno.map(io::Error::from_raw_os_error);
                let step = Fallback::new(cause, "less", error.as_ref());
                assert_eq!(step.errno, errno);
                let line = step.to_string();
                assert!(!line.contains('\n') && !line.contains("  ") && !step.remedy.is_empty(), "{line:?}");
                assert!(!step.reason.is_empty(), "{line:?}");
                assert!(line.starts_with("less instead of "), "{line:?}");
            }
        }
    }

    #[test]
    fn denied_ring_names_the_seccomp_option_and_the_sysctl() {
        // Docker's default profile answers EPERM, and Podman's ENOSYS.
        for (errno, more) in [(EPERM, "kernel.io_uring_disabled=0"), (ENOSYS, "runsc with --iouring")] {
            let error = io::Error::from_raw_os_error(errno);
            let line = Fallback::new(Cause::RingSetup, "pread threads", Some(&error)).to_string();
            let error = format!("os error {errno}");
            for part in ["--security-opt seccomp=", "io_uring_register", "a seccomp profile", more, &error] {
                assert!(line.contains(part), "{line}");
            }
        }
    }

    #[test]
    fn memlock_names_every_way_to_raise_it() {
        let error = io::Error::from_raw_os_error(12);
        let line = Fallback::new(Cause::BufferRegistration, "plain reads", Some(&error)).to_string();
        for part in ["ulimit -l", "LimitMEMLOCK", "--ulimit memlock=-1", "CAP_IPC_LOCK"] {
            assert!(line.contains(part), "{line}");
        }
    }
}
