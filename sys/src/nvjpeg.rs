//! nvJPEG: JPEGs decoded by a GPU, by its own engine for them where it has one. The library is loaded at run time.
//!
//! [`Library::open`] finds it. A [`Decoder`] makes pixels of several JPEGs at a time, cuts and resizes them if asked,
//! and copies the result to the host.
//!
//! nvJPEG uses the CUDA runtime, and so the primary context of the device, which a [`Context`] is too: streams and
//! addresses are the same. Each call is over on the device before [`Decoder::decode`] returns.

mod decoder;
mod memory;
mod resampler;
mod table;

pub use decoder::{Decoder, Hardware, Pixels, Request};
pub use resampler::Resampling;

use crate::cuda::{Context, CudaError};
use crate::table::said;
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{Status, Table};

/// Names to ask the loader for, the newest first: the major version is that of CUDA.
const NAMES: [&str; 3] = ["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"];

/// The oldest version with all functions in the form that we call.
const OLDEST_MAJOR: c_int = 12;

const MEMORY_REMEDY: &str = "leave more of the GPU's memory free, or ask for fewer threads with nvJPEG";

/// nvJPEG. Clones share it. It is never unloaded.
#[derive(Clone)]
pub struct Library {
    table: Arc<Table>,
    version: [c_int; 3],
    path: PathBuf,
}

impl Library {
    /// Loads the first library that there is: under the names that the system's loader knows, then at `places`, each a
    /// library or a folder that holds one (such as `nvidia/nvjpeg/lib` of PyPI's `nvidia-nvjpeg-cu12`). As for a
    /// driver, name no library that you would not link.
    ///
    /// # Errors
    /// `Absent` where there is none, `Incomplete` or `TooOld` where there is only one that cannot be used.
    pub fn open(places: &[PathBuf]) -> Result<Library, OpenError> {
        Library::first_of(&NAMES.map(PathBuf::from), places)
    }

    /// Loads this library and no other.
    ///
    /// # Errors
    /// As [`open`](Library::open).
    pub fn at(path: &Path) -> Result<Library, OpenError> {
        Library::first_of(&[], &[path.to_path_buf()])
    }

    fn first_of(named: &[PathBuf], places: &[PathBuf]) -> Result<Library, OpenError> {
        let placed = places.iter().flat_map(|place| {
            if place.is_dir() { NAMES.iter().map(|name| place.join(name)).collect() } else { vec![place.clone()] }
        });
        let (mut said, mut unusable) = (String::from("no name to look for"), None);
        for path in named.iter().cloned().chain(placed) {
            match load(&path) {
                Ok(loaded) => match Library::of(loaded, path) {
                    Ok(library) => return Ok(library),
                    Err(error) => unusable = unusable.or(Some(error)),
                },
                Err(error) => said = error,
            }
        }
        Err(unusable.unwrap_or(OpenError::Absent(said)))
    }

    fn of(loaded: Loaded, path: PathBuf) -> Result<Library, OpenError> {
        let table = match Table::load(loaded.into()) {
            Ok(table) => table,
            Err(function) => return Err(OpenError::Incomplete { path, function }),
        };
        let mut version = [0; 3];
        for (number, which) in version.iter_mut().zip([table::MAJOR_VERSION, table::MINOR_VERSION, table::PATCH_LEVEL])
        {
            // SAFETY: the number is one of a property, and the pointer is to an int that lives until the call returns.
            let _ = unsafe { (table.nvjpegGetProperty)(which, number) };
        }
        if version[0] < OLDEST_MAJOR {
            return Err(OpenError::TooOld { path, version });
        }
        Ok(Library { table: Arc::new(table), version, path })
    }

    /// Its version, such as "12.4.0".
    #[must_use]
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// The file, by the name it was found under.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A decoder of its own on the device. Its pixels take up to `bytes` bytes there at a time.
    ///
    /// # Errors
    /// Whatever the library or the driver reports: out of memory, or a device that it does not know.
    pub fn decoder(&self, context: &Context, bytes: usize) -> Result<Decoder, NvjpegError> {
        Decoder::new(self, context, bytes)
    }
}

fn load(path: &Path) -> Result<Loaded, String> {
    // SAFETY: loading runs the library's initialisers. It is the system's nvJPEG, or the library that the caller of
    // `open` names, as its documentation asks. Either is trusted with the process, as every library is.
    let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    loaded.map_err(|error| said(&error))
}

fn dotted([major, minor, patch]: [c_int; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("version", &self.version()).field("path", &self.path).finish()
    }
}

/// Why there is no library.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The loader finds none. What it said last.
    Absent(String),
    /// One was found that lacks a function.
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// One was found that is older than CUDA 12's.
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: [i32; 3],
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Absent(said) => write!(f, "the loader finds no nvJPEG: {said}"),
            OpenError::Incomplete { path, function } => write!(f, "{} has no {function}", path.display()),
            OpenError::TooOld { path, version } => {
                write!(
                    f,
                    "{} is nvJPEG {}, and {OLDEST_MAJOR} is the first with what is needed",
                    path.display(),
                    dotted(*version)
                )
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// What nvJPEG, or the driver below it, says about an image or a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvjpegError {
    /// A call of nvJPEG failed.
    Status {
        /// `nvjpegStatus_t`.
        code: i32,
        /// The function.
        call: &'static str,
    },
    /// A call of the driver failed.
    Cuda(CudaError),
    /// There is no memory of the host for what comes back; in the system's words.
    Host(String),
    /// The header says another size than the caller, or a size that does not fit into the decoder's memory.
    Size {
        /// Rows and columns.
        size: (u32, u32),
    },
}

impl NvjpegError {
    fn new(call: &'static str, code: Status) -> NvjpegError {
        NvjpegError::Status { code, call }
    }

    /// Whether it is about one image and not about the device: the next image may well be decoded.
    pub fn is_of_image(&self) -> bool {
        match self {
            NvjpegError::Status { code, .. } => matches!(
                *code,
                table::NVJPEG_STATUS_INVALID_PARAMETER
                    | table::NVJPEG_STATUS_BAD_JPEG
                    | table::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
                    | table::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED
                    | table::NVJPEG_STATUS_INCOMPLETE_BITSTREAM
            ),
            NvjpegError::Size { .. } => true,
            NvjpegError::Cuda(_) | NvjpegError::Host(_) => false,
        }
    }

    /// What helps if no decoder can be made because of it.
    pub fn remedy(&self) -> &'static str {
        match self {
            NvjpegError::Status { code: table::NVJPEG_STATUS_ALLOCATOR_FAILURE, .. } => MEMORY_REMEDY,
            NvjpegError::Cuda(error) if error.is_out_of_memory() => MEMORY_REMEDY,
            NvjpegError::Host(_) => "leave more of the host's memory free, or raise the limit of locked memory",
            NvjpegError::Status { code: table::NVJPEG_STATUS_INVALID_PARAMETER, .. } => {
                "please report it with the message and nvJPEG's version"
            }
            NvjpegError::Status { code: table::NVJPEG_STATUS_ARCH_MISMATCH, .. } => {
                "this nvJPEG does not know the GPU: install one of the driver's CUDA version"
            }
            NvjpegError::Status { .. } | NvjpegError::Size { .. } => {
                "install the nvJPEG of the driver's CUDA version (see nvidia-smi), or a newer driver"
            }
            NvjpegError::Cuda(_) => "see `uringload doctor`",
        }
    }

    /// What helps if the engines for JPEGs cannot be used because of it.
    pub fn hardware_remedy(&self) -> &'static str {
        match self {
            NvjpegError::Status { code: table::NVJPEG_STATUS_ARCH_MISMATCH, .. } => {
                "harmless where the GPU has none (A100, H100 and their like do); else as for any other reason: let the \
                 loader find libnvcuvid.so.1, which is a part of the driver, in containers by the capability \"video\""
            }
            _ => {
                "let the loader find libnvcuvid.so.1, which is a part of the driver: in a container \
                 NVIDIA_DRIVER_CAPABILITIES must name \"video\", or \"all\""
            }
        }
    }

    /// The name in `nvjpeg.h`.
    fn name(code: Status) -> &'static str {
        match code {
            table::NVJPEG_STATUS_NOT_INITIALIZED => "NVJPEG_STATUS_NOT_INITIALIZED",
            table::NVJPEG_STATUS_INVALID_PARAMETER => "NVJPEG_STATUS_INVALID_PARAMETER",
            table::NVJPEG_STATUS_BAD_JPEG => "NVJPEG_STATUS_BAD_JPEG",
            table::NVJPEG_STATUS_JPEG_NOT_SUPPORTED => "NVJPEG_STATUS_JPEG_NOT_SUPPORTED",
            table::NVJPEG_STATUS_ALLOCATOR_FAILURE => "NVJPEG_STATUS_ALLOCATOR_FAILURE",
            table::NVJPEG_STATUS_EXECUTION_FAILED => "NVJPEG_STATUS_EXECUTION_FAILED",
            table::NVJPEG_STATUS_ARCH_MISMATCH => "NVJPEG_STATUS_ARCH_MISMATCH",
            table::NVJPEG_STATUS_INTERNAL_ERROR => "NVJPEG_STATUS_INTERNAL_ERROR",
            table::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
            table::NVJPEG_STATUS_INCOMPLETE_BITSTREAM => "NVJPEG_STATUS_INCOMPLETE_BITSTREAM",
            _ => "nvJPEG error",
        }
    }
}

impl From<CudaError> for NvjpegError {
    fn from(error: CudaError) -> NvjpegError {
        NvjpegError::Cuda(error)
    }
}

impl fmt::Display for NvjpegError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NvjpegError::Status { code, call } => write!(f, "{call}: {} ({code})", NvjpegError::name(*code)),
            NvjpegError::Cuda(error) => error.fmt(f),
            NvjpegError::Host(told) => write!(f, "no memory of the host for pixels that come back: {told}"),
            NvjpegError::Size { size: (height, width) } => {
                write!(f, "{height} rows of {width} pixels are another size than wanted, or too many")
            }
        }
    }
}

impl std::error::Error for NvjpegError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let absent = Library::first_of(&[], &[folder.path().to_path_buf()]).unwrap_err();
        assert!(matches!(&absent, OpenError::Absent(said) if said.contains("libnvjpeg.so")), "{absent}");
        // A library that exists and is another.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
        let other = Library::at(Path::new(libc)).unwrap_err();
        assert!(matches!(&other, OpenError::Incomplete { function: "nvjpegGetProperty", .. }), "{other}");
        // Found in a folder, under any of the names.
        std::os::unix::fs::symlink(libc, folder.path().join("libnvjpeg.so.12")).unwrap();
        let found = Library::first_of(&[], &[folder.path().to_path_buf()]).unwrap_err();
        assert!(matches!(found, OpenError::Incomplete { .. }), "{found}");
    }

    #[test]
    fn errors_are_of_an_image_or_of_the_device() {
        let of_image = |code| NvjpegError::new("nvjpegDecode", code).is_of_image();
        assert_eq!((0..12).filter(|&code| of_image(code)).collect::<Vec<_>>(), [2, 3, 4, 9, 10]);
        let text = NvjpegError::new("nvjpegDecode", 3).to_string();
        assert_eq!(text, "nvjpegDecode: NVJPEG_STATUS_BAD_JPEG (3)");
    }
}
