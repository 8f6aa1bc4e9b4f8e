//! Where a file is on its device.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most extents to collect: a file in more pieces is an error.
pub const EXTENTS_MAX: usize = 1 << 20;

/// Extents requested per call.
const EXTENTS_A_CALL: usize = 256;

/// A contiguous run of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Offset of its first byte in the file.
    pub logical: u64,
    /// Offset of its first byte on the device. `None` if it has no fixed place: not yet written, compressed, inline.
    pub physical: Option<u64>,
    /// Length in bytes. The last extent may reach beyond the file's end.
    pub len: u64,
}

/// The extents of a file in ascending order (`FIEMAP`), without holes.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` if the file system reports none (tmpfs, FUSE, network); `FileTooLarge` beyond
/// [`EXTENTS_MAX`].
pub fn extents(file: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut request = Box::new(Request::default());
    loop {
        request.start = extents.last().map_or(0, |last: &Extent| last.logical.saturating_add(last.len));
        request.length = u64::MAX - request.start;
        request.mapped = 0;
        call(file, &mut request)?;
        let found = &request.extents[..(request.mapped as usize).min(EXTENTS_A_CALL)];
        extents.extend(found.iter().map(RawExtent::decode));
        match found.last() {
            None => return Ok(extents),
            Some(last) if last.flags & FIEMAP_EXTENT_LAST != 0 || last.length == 0 => return Ok(extents),
            Some(_) if extents.len() >= EXTENTS_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
            Some(_) => {}
        }
    }
}

fn call(file: BorrowedFd<'_>, request: &mut Request) -> io::Result<()> {
    let code = rustix::ioctl::opcode::read_write::<[u64; 4]>(b'f', 11);
    // SAFETY: `FS_IOC_FIEMAP` reads and writes a `struct fiemap` (32 bytes, which its number encodes), followed by as
    // many `struct fiemap_extent` as `count` says. `Request` has this layout, and `count` is the length of its array.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), code as libc::Ioctl, std::ptr::from_mut(request)) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct fiemap` of `linux/fiemap.h` with room for its extents.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_A_CALL],
}

impl Default for Request {
    fn default() -> Request {
        let extents = [RawExtent::default(); EXTENTS_A_CALL];
        Request { start: 0, length: 0, flags: 0, mapped: 0, count: EXTENTS_A_CALL as u32, reserved: 0, extents }
    }
}

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const FIEMAP_EXTENT_LAST: u32 = 0x1;
/// `UNKNOWN`, `DELALLOC`, `ENCODED`, `DATA_ENCRYPTED`, `NOT_ALIGNED`, `DATA_INLINE`, `DATA_TAIL`.
const FIEMAP_EXTENT_NOWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

impl RawExtent {
    fn decode(&self) -> Extent {
        let fixed = self.flags & FIEMAP_EXTENT_NOWHERE == 0;
        Extent { logical: self.logical, physical: fixed.then_some(self.physical), len: self.length }
    }
}

// The sizes that the kernel expects.
const _: () = assert!(size_of::<RawExtent>() == 56 && std::mem::offset_of!(Request, extents) == 32);
