//! What an open driver reports about itself, and which path data takes.

use super::abi::{self, property};
use super::error::CufileError;
use super::table::Table;
use std::ffi::{c_int, c_void};
use std::fmt;

/// The version of libcufile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number, such as 1.
    pub major: u32,
    /// Minor number, such as 20.
    pub minor: u32,
}

impl Version {
    pub(super) fn of(table: &Table) -> Option<Version> {
        let get = table.get_version?;
        let mut number: c_int = 0;
        // SAFETY: the type matches the header, and the function writes one int to the address of a local one.
        let status = unsafe { get(&raw mut number) };
        CufileError::check(status).ok()?;
        Version::from_number(number)
    }

    /// Parses 1000 times the major number plus 10 times the minor one: 1200 is 1.20.
    fn from_number(number: c_int) -> Option<Version> {
        let number = u32::try_from(number).ok().filter(|&number| number > 0)?;
        Some(Version { major: number / 1000, minor: number % 1000 / 10 })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The path that data takes from the disk into the GPU's memory. Only the first two are GPUDirect Storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsMode {
    /// Directly, through the kernel module nvidia-fs.
    NvidiaFs,
    /// Directly, by the kernel's own PCI peer-to-peer DMA.
    P2pdma,
    /// Copied by cuFile through the host's memory: slower than copying it ourselves, and never called GDS.
    Compat,
}

impl fmt::Display for GdsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GdsMode::NvidiaFs => "nvidia-fs",
            GdsMode::P2pdma => "P2PDMA",
            GdsMode::Compat => "compat",
        })
    }
}

/// What we use of `CUfileDrvProps_t`. Numbers are 0 if an older library does not have them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Version of nvidia-fs; zeros if it is not in use.
    pub nvidia_fs: (u32, u32),
    /// The longest single read in KiB. The library splits longer ones.
    pub max_direct_io_kib: u64,
    /// The kinds of storage that it supports, as the bits of `CUfileDriverStatusFlags`.
    pub status_flags: u32,
    /// Whether it may copy through the host if the direct path is unavailable.
    pub compat_allowed: bool,
    /// Whether it uses PCI peer-to-peer DMA.
    pub p2pdma: bool,
    /// Memory that the library may take for itself on each GPU, in KiB.
    pub max_device_cache_kib: u32,
    /// Memory that may be registered on each GPU, in KiB. A number close to the largest one means no limit.
    pub max_pinned_kib: u32,
}

impl Properties {
    pub(super) fn of(table: &Table) -> Result<Properties, CufileError> {
        // In units of 8 bytes, because the struct is aligned to that.
        let mut words = [0u64; abi::PROPERTIES_BYTES / 8];
        let address: *mut c_void = words.as_mut_ptr().cast();
        // SAFETY: the type matches the header, and the function fills the struct at the address. The buffer has the
        // alignment of the struct and more than four times its size in 1.20.
        let status = unsafe { (table.get_properties)(address) };
        CufileError::check(status)?;
        let mut bytes = [0u8; abi::PROPERTIES_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(Properties::from_bytes(&bytes))
    }

    fn from_bytes(bytes: &[u8; abi::PROPERTIES_BYTES]) -> Properties {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let short = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Properties {
            nvidia_fs: (short(property::MAJOR), short(property::MINOR)),
            max_direct_io_kib: long(property::MAX_DIRECT_IO_KIB),
            status_flags: short(property::STATUS_FLAGS),
            compat_allowed: short(property::CONTROL_FLAGS) & abi::CONTROL_COMPAT != 0,
            p2pdma: short(property::FEATURE_FLAGS) & abi::FEATURE_P2P != 0,
            max_device_cache_kib: short(property::MAX_DEVICE_CACHE_KIB),
            max_pinned_kib: short(property::MAX_PINNED_KIB),
        }
    }

    /// Which path data takes. If another path exists and copying through the host is allowed as well, cuFile silently
    /// chooses for each file, so that does not count as direct either.
    pub fn mode(&self) -> GdsMode {
        if self.compat_allowed {
            GdsMode::Compat
        } else if self.nvidia_fs != (0, 0) {
            GdsMode::NvidiaFs
        } else if self.p2pdma {
            GdsMode::P2pdma
        } else {
            GdsMode::Compat
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_thousands_and_tens() {
        let versions = [1200, 1130, 2010, 1000].map(|number| Version::from_number(number).unwrap().to_string());
        assert_eq!(versions, ["1.20", "1.13", "2.1", "1.0"]);
        assert_eq!((Version::from_number(0), Version::from_number(-5)), (None, None));
    }

    /// What libcufile 1.20.0.107 reports before its driver is open, without a configuration.
    #[test]
    fn the_defaults_of_a_real_library_are_read() {
        let mut bytes = [0; abi::PROPERTIES_BYTES];
        let real: [u32; 13] = [0, 0, 4, 0, 0x4000, 0, 0, 2, 0, 0x20000, 0, 0xffff_fffc, 128];
        for (at, word) in real.into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let read = Properties::from_bytes(&bytes);
        assert_eq!((read.nvidia_fs, read.max_direct_io_kib, read.max_device_cache_kib), ((0, 0), 16384, 131_072));
        assert_eq!((read.compat_allowed, read.p2pdma, read.max_pinned_kib), (true, false, 0xffff_fffc));
        assert_eq!(read.mode(), GdsMode::Compat);
    }

    #[test]
    fn compat_is_never_called_direct() {
        let of = |nvidia_fs, p2pdma, compat_allowed| {
            let bytes = [0; abi::PROPERTIES_BYTES];
            Properties { nvidia_fs, p2pdma, compat_allowed, ..Properties::from_bytes(&bytes) }.mode()
        };
        assert_eq!(of((2, 30), false, false), GdsMode::NvidiaFs);
        assert_eq!(of((0, 0), true, false), GdsMode::P2pdma);
        assert_eq!(of((0, 0), false, false), GdsMode::Compat);
        assert_eq!(of((2, 30), true, true), GdsMode::Compat);
    }
}
