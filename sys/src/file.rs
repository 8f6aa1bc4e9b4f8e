//! Opening files for reading, and asking the kernel about them.

mod cache;
mod mapping;
mod once;
mod temporary;
mod trust;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use cache::{CacheStat, advise_random, cachestat, evict};
pub use mapping::Mapping;
pub use once::{read_once_at, write_once_at};
pub use temporary::{
    create_temporary, create_temporary_folder, delete_abandoned, delete_abandoned_folders, may_replace, replace,
};
pub use trust::distrust;

/// How to open a file for reading. Every open is read-only, and none makes a terminal the controlling one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFlags {
    /// `O_DIRECT`: bypass the page cache. Offset, length and memory of each read must then be aligned.
    pub direct: bool,
    /// `O_NOATIME`: do not update the access time. Only a file's owner and `CAP_FOWNER` may ask for it; others get
    /// `EPERM`.
    pub noatime: bool,
    /// `O_NONBLOCK`: do not wait for a writer if the path turns out to be a FIFO.
    ///
    /// Through a ring this has a price if the file system cannot tell that a read would block (network file systems,
    /// FUSE, overlays): the flag makes io_uring believe that it can, and the read then blocks the submitting thread.
    /// [`open`] needs no such choice: it never waits, and clears the flag.
    pub nonblock: bool,
}

impl OpenFlags {
    /// Sets or clears `O_DIRECT`.
    pub fn direct(self, direct: bool) -> OpenFlags {
        OpenFlags { direct, ..self }
    }

    /// Sets or clears `O_NOATIME`.
    pub fn noatime(self, noatime: bool) -> OpenFlags {
        OpenFlags { noatime, ..self }
    }

    /// Sets or clears `O_NONBLOCK`.
    pub fn nonblock(self, nonblock: bool) -> OpenFlags {
        OpenFlags { nonblock, ..self }
    }

    /// For the ring's file table, where `O_CLOEXEC` is `EINVAL`: a slot is not a descriptor of the process.
    pub(crate) fn for_slot(self) -> OFlags {
        let mut flags = OFlags::RDONLY | OFlags::NOCTTY;
        flags.set(OFlags::DIRECT, self.direct);
        flags.set(OFlags::NOATIME, self.noatime);
        flags.set(OFlags::NONBLOCK, self.nonblock);
        flags
    }
}

/// An open regular file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The descriptor, which is closed when a child runs another program.
    pub file: OwnedFd,
    /// How it was opened in the end: without `noatime` if that was not allowed.
    pub flags: OpenFlags,
    /// Which file it is, and its size.
    pub identity: Identity,
}

/// Opens the regular file at `path`, relative to the folder `at`. Drops `noatime` if that is not allowed.
///
/// # Errors
/// What `openat(2)` reports; `EINVAL` with `direct` means that the file system has no `O_DIRECT`. `EISDIR` for a
/// folder. `InvalidInput` for a FIFO, socket or device, without waiting for its other end.
pub fn open(at: BorrowedFd<'_>, path: &[u8], mut flags: OpenFlags) -> io::Result<Opened> {
    let open = |flags: OpenFlags| {
        let flags = flags.for_slot() | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(at, path, flags, Mode::empty())
    };
    let file = match open(flags) {
        Err(Errno::PERM) if flags.noatime => {
            flags.noatime = false;
            open(flags)?
        }
        other => other?,
    };
    let (identity, kind) = stat(file.as_fd())?;
    match kind {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR.into()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
    if !flags.nonblock {
        rustix::fs::fcntl_setfl(&file, flags.for_slot())?;
    }
    Ok(Opened { file, flags, identity })
}

/// Opens the regular file at `path` for reading: whatever a name that was found belongs to, this does not wait.
///
/// # Errors
/// Those of [`open`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    Ok(open(CWD, path.as_os_str().as_bytes(), OpenFlags::default())?.file.into())
}

/// Opens the file at `path` for appending, creating it if necessary.
///
/// # Errors
/// What `openat(2)` reports. `InvalidInput` for a FIFO or a socket, without waiting for its other end.
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    let is_waiting = || io::Error::new(io::ErrorKind::InvalidInput, "a FIFO or a socket, not a file");
    let file = match rustix::fs::openat(CWD, path, flags | OFlags::NONBLOCK, mode) {
        // What a FIFO without a reader, and a socket, answer.
        Err(Errno::NXIO) => return Err(is_waiting()),
        opened => opened?,
    };
    if matches!(stat(file.as_fd())?.1, FileType::Fifo | FileType::Socket) {
        return Err(is_waiting());
    }
    rustix::fs::fcntl_setfl(&file, flags)?;
    Ok(file.into())
}

/// Opens a folder, only to start relative paths from.
///
/// # Errors
/// What `open(2)` reports; `ENOTDIR` for anything but a folder.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Reads up to `into.len()` bytes at `offset`; fewer at the end of the file.
///
/// # Errors
/// What `pread(2)` reports, `EINTR` included; `EINVAL` for an offset that no file can have.
pub fn read_at(file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, into, offset)?)
}

/// Distinguishes a file from another one under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Major and minor number of the device. The major number is 0 if the file system has no device of its own.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// When the content last changed: seconds since 1970, and nanoseconds. Programs can set it (`utimensat(2)`).
    pub modified: (i64, u32),
    /// When anything about the file last changed, its content, name or rights, in the same units. Programs cannot set
    /// it: it also moves when they set `modified`.
    pub changed: (i64, u32),
}

impl Identity {
    /// The identity of an open file.
    ///
    /// # Errors
    /// What `statx(2)` reports.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Identity> {
        Ok(stat(file)?.0)
    }

    /// The identity of the file now at `path`, relative to the folder `at`. Does not query the server of a mount again.
    ///
    /// # Errors
    /// What `statx(2)` reports.
    pub fn at(at: BorrowedFd<'_>, path: &[u8]) -> io::Result<Identity> {
        Ok(stat_at(at, path, AtFlags::STATX_DONT_SYNC)?.0)
    }

    /// The identity of an open file as this machine knows it: does not query a server again.
    ///
    /// # Errors
    /// What `statx(2)` reports.
    pub fn known_of(file: BorrowedFd<'_>) -> io::Result<Identity> {
        Ok(stat_at(file, b"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC)?.0)
    }

    /// The identity of what is now at `path`.
    ///
    /// # Errors
    /// What `statx(2)` reports.
    pub fn of_path(path: &Path) -> io::Result<Identity> {
        Ok(stat_at(CWD, path.as_os_str().as_bytes(), AtFlags::empty())?.0)
    }

    /// Whether both belong to one file, whatever has changed in it.
    pub fn is_same_file(&self, other: &Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

fn stat(file: BorrowedFd<'_>) -> io::Result<(Identity, FileType)> {
    stat_at(file, b"", AtFlags::EMPTY_PATH)
}

fn stat_at(at: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> io::Result<(Identity, FileType)> {
    let stat = rustix::fs::statx(at, path, flags, StatxFlags::BASIC_STATS)?;
    Ok((Identity::from(&stat), FileType::from_raw_mode(stat.stx_mode.into())))
}

impl From<&Statx> for Identity {
    fn from(stat: &Statx) -> Identity {
        Identity {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }
}

/// What `O_DIRECT` reads of a file must be aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectAlignment {
    /// Alignment of the memory's address, in bytes.
    pub memory: u32,
    /// Alignment of offset and length, in bytes.
    pub offset: u32,
}

/// What `O_DIRECT` reads of the file must be aligned to, as `statx(2)` reports it since Linux 6.1.
///
/// `None` if it reports nothing or zeros. An `O_DIRECT` open may still succeed there, but its reads go through the page
/// cache (ext4 with journalled data, btrfs) or block their submission (FUSE).
pub fn direct_alignment(file: BorrowedFd<'_>) -> Option<DirectAlignment> {
    // Since Linux 6.14 reads may be aligned less strictly than writes.
    const STATX_DIO_READ_ALIGN: u32 = 0x20000;
    let read_align = StatxFlags::from_bits_retain(STATX_DIO_READ_ALIGN);
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN | read_align).ok()?;
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 || stat.stx_dio_mem_align == 0 || stat.stx_dio_offset_align == 0
    {
        return None;
    }
    let for_reads = stat.stx_mask & STATX_DIO_READ_ALIGN != 0 && stat.stx_dio_read_offset_align != 0;
    let offset = if for_reads { stat.stx_dio_read_offset_align } else { stat.stx_dio_offset_align };
    Some(DirectAlignment { memory: stat.stx_dio_mem_align, offset })
}

/// Name of the file system that the file is on, such as "ext4"; its magic number in hexadecimal if this crate does not
/// know it. If the call is not implemented (`ENOSYS`), it is "fuse": only there does that depend on a server.
///
/// # Errors
/// What `fstatfs(2)` reports.
pub fn file_system(file: BorrowedFd<'_>) -> io::Result<Cow<'static, str>> {
    let magic = match rustix::fs::fstatfs(file) {
        Err(Errno::NOSYS) => return Ok("fuse".into()),
        answer => answer?.f_type as u32,
    };
    let known = FILE_SYSTEMS.iter().find(|(known, _)| *known == magic);
    Ok(known.map_or_else(|| Cow::Owned(format!("{magic:#x}")), |(_, name)| Cow::Borrowed(*name)))
}

/// Whether the file system that the file is on may give a file another inode number whenever it has forgotten it.
pub fn inodes_vary(file: BorrowedFd<'_>) -> bool {
    file_system(file).is_ok_and(|name| matches!(&*name, "fuse" | "cifs" | "smb2" | "9p" | "vfat" | "exfat"))
}

/// Whether the file system that the file is on asks no server, so that the kernel ends each call, even where a disk is
/// broken.
pub fn is_local(file: BorrowedFd<'_>) -> bool {
    file_system(file).is_ok_and(|name| LOCAL.contains(&&*name))
}

const LOCAL: [&str; 11] =
    ["ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "ramfs", "overlay", "vfat", "exfat"];

/// Magic numbers, from `linux/magic.h` and the file systems' own sources.
const FILE_SYSTEMS: [(u32, &str); 22] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0x794c_7630, "overlay"),
    (0x6573_5546, "fuse"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x0102_1997, "9p"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x9fa0, "proc"),
];

#[cfg(test)]
mod tests;
