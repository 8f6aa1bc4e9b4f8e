//! Reads and writes through the page cache that leave nothing in it (`RWF_DONTCACHE`, Linux 6.14).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `linux/fs.h`. The kernel drops the pages that such a read brings in once it has copied them, and starts to write
/// back, and then drops, those that such a write changes. Pages that were there before stay.
const RWF_DONTCACHE: libc::c_int = 0x80;

/// Like [`read_at`](super::read_at), but leaves nothing in the page cache that was not there.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.14 and where the file system cannot; else as `read_at`.
pub fn read_once_at(file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let offset = offset_of(offset)?;
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`, which is borrowed for that, and reads one
    // `iovec`, which lives until the call returns. `preadv2` takes the offset whole on every architecture through libc.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, offset, RWF_DONTCACHE) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Writes some of `bytes` at `offset`, and leaves nothing of it in the page cache once it is on the disk.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.14 and where the file system cannot; else what `pwritev2(2)` reports.
pub fn write_once_at(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let offset = offset_of(offset)?;
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes` and one `iovec`, and writes to neither. Both live
    // until the call returns.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const piece, 1, offset, RWF_DONTCACHE) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// `preadv2` takes -1 for the file's own position, so a number that is no offset must not get there.
fn offset_of(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::super::cachestat;
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Whether the file system of `folder` can, and its file of 1 MiB, written to the disk and out of the page cache.
    fn file(folder: &std::path::Path) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let path = folder.join("a");
        std::fs::write(&path, &content).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.sync_all().unwrap();
        super::super::evict(file.as_fd()).unwrap();
        (file, content)
    }

    #[test]
    fn what_is_read_once_does_not_stay() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (file, content) = file(folder.path());
        let mut bytes = vec![0; 300_000];
        match read_once_at(file.as_fd(), &mut bytes, 1000) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return eprintln!("skipped: this kernel or file system has no RWF_DONTCACHE: {error}");
            }
            read => assert_eq!(read.unwrap(), 300_000),
        }
        assert!(bytes == content[1000..301_000]);
        if let Ok(stat) = cachestat(file.as_fd(), 0, 300_000) {
            // 74 pages. One that is in a larger folio of the page cache may stay with what was read ahead.
            assert!(stat.cached < 20, "{stat:?}");
        }
        assert_eq!(read_once_at(file.as_fd(), &mut bytes, 1 << 20).unwrap(), 0, "the end");
        let error = read_once_at(file.as_fd(), &mut bytes, u64::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(write_once_at(file.as_fd(), b"abc", 5).unwrap(), 3);
        assert_eq!(read_once_at(file.as_fd(), &mut bytes, 4).unwrap(), 300_000);
        assert_eq!(bytes[..5], [content[4], b'a', b'b', b'c', content[8]]);
    }

    #[test]
    fn a_file_system_in_memory_refuses() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("skipped: no /dev/shm") };
        let (file, _) = file(folder.path());
        let refused = |result: io::Result<usize>| result.unwrap_err().raw_os_error();
        assert_eq!(refused(read_once_at(file.as_fd(), &mut [0; 10], 0)), Some(libc::EOPNOTSUPP));
        assert_eq!(refused(write_once_at(file.as_fd(), b"a", 0)), Some(libc::EOPNOTSUPP));
    }
}
