//! How much of a file is in the page cache, and how to evict it.

use rustix::fs::Advice;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Pages in a range of a file, as `cachestat(2)` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct CacheStat {
    /// Pages in the cache.
    pub cached: u64,
    /// Of these, changed and not yet written back.
    pub dirty: u64,
    /// Of these, being written back.
    pub writeback: u64,
    /// Pages that were in the cache before.
    pub evicted: u64,
    /// Of these, evicted so recently that they would be active again at once.
    pub recently_evicted: u64,
}

/// Counts the pages of `len` bytes at `offset` that are in the page cache. With `len` 0 the range ends with the file.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` if the kernel answers only owners and writers, `EOPNOTSUPP` for hugetlbfs, and
/// for overlayfs, where the kernel counts none: the pages are those of the file below.
pub fn cachestat(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<CacheStat> {
    /// The same on all architectures except alpha, where this crate's ring does not run either.
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    let range = Range { offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: the kernel reads a `struct cachestat_range` and writes a `struct cachestat`: two and five `u64`, as
    // declared here with C layout. Both live until the call returns, and the kernel keeps neither.
    let status = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0_u32) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // Asked only where nothing was counted: a network file system asks its server.
    if stat == CacheStat::default() && super::file_system(file).is_ok_and(|name| name == "overlay") {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(stat)
}

/// Asks the kernel to drop the file's clean pages from the page cache. Changed pages stay, so sync first.
///
/// # Errors
/// What `posix_fadvise(2)` reports.
pub fn evict(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Turns readahead off for buffered reads through this descriptor.
///
/// # Errors
/// What `posix_fadvise(2)` reports.
pub fn advise_random(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::Random)?)
}
