//! Opening files and asking the kernel about them.

use rustix::fs::OFlags;

/// How a file is opened for reading. Every open is read-only, and no open makes a terminal the controlling one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// `O_DIRECT`: past the page cache. Offset, length and memory of reads must then be aligned.
    pub direct: bool,
    /// `O_NOATIME`: do not write the access time. Only the owner of a file, or `CAP_FOWNER`, may ask for it: `EPERM`.
    pub noatime: bool,
    /// `O_NONBLOCK`: do not wait for a writer where the path turns out to be a FIFO.
    ///
    /// Through a ring this has a price where the file system cannot tell that a read would block (network file systems,
    /// FUSE, overlays): the flag makes io_uring believe that it can, and the read then blocks the submitting thread.
    pub nonblock: bool,
}

impl OpenFlags {
    /// For the ring's file table, in which `O_CLOEXEC` is `EINVAL`: a slot of it is no descriptor of the process.
    pub(crate) fn for_slot(self) -> OFlags {
        let mut flags = OFlags::RDONLY | OFlags::NOCTTY;
        flags.set(OFlags::DIRECT, self.direct);
        flags.set(OFlags::NOATIME, self.noatime);
        flags.set(OFlags::NONBLOCK, self.nonblock);
        flags
    }
}
