//! The functions of libturbojpeg, as typed pointers.

use super::OpenError;
use super::abi;
#[cfg(not(feature = "turbojpeg-vendored"))]
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::path::PathBuf;

/// The functions that we call. The library is never unloaded, so that a pointer stays valid as long as the process
/// lives.
pub(super) struct Table {
    pub(super) init: abi::Init,
    pub(super) destroy: abi::Destroy,
    pub(super) error_str: abi::GetErrorStr,
    pub(super) error_code: abi::GetErrorCode,
    pub(super) set: abi::Set,
    pub(super) get: abi::Get,
    pub(super) decompress_header: abi::DecompressHeader,
    pub(super) set_scaling_factor: abi::SetScalingFactor,
    pub(super) set_cropping_region: abi::SetCroppingRegion,
    pub(super) decompress: abi::Decompress8,
    pub(super) jpeg_buf_size: abi::JpegBufSize,
    pub(super) compress: abi::Compress8,
    pub(super) version: String,
    pub(super) path: Option<PathBuf>,
}

#[cfg(feature = "turbojpeg-vendored")]
impl Table {
    /// The one that is linked. `places` are of no use.
    #[expect(clippy::unnecessary_wraps, reason = "as the other one")]
    pub(super) fn load(_places: &[PathBuf]) -> Result<Table, OpenError> {
        Ok(Table {
            init: linked::tj3Init,
            destroy: linked::tj3Destroy,
            error_str: linked::tj3GetErrorStr,
            error_code: linked::tj3GetErrorCode,
            set: linked::tj3Set,
            get: linked::tj3Get,
            decompress_header: linked::tj3DecompressHeader,
            set_scaling_factor: linked::tj3SetScalingFactor,
            set_cropping_region: linked::tj3SetCroppingRegion,
            decompress: linked::tj3Decompress8,
            jpeg_buf_size: linked::tj3JPEGBufSize,
            compress: linked::tj3Compress8,
            version: "3.1.0".into(),
            path: None,
        })
    }
}

/// The functions that `turbojpeg-sys` links, by our types: its bindings have C's `unsigned long` for sizes.
#[cfg(feature = "turbojpeg-vendored")]
mod linked {
    use super::abi::{Handle, Region, ScalingFactor};
    use std::ffi::{c_char, c_int, c_uchar};
    use turbojpeg_sys as _;

    unsafe extern "C" {
        pub fn tj3Init(kind: c_int) -> Handle;
        pub fn tj3Destroy(handle: Handle);
        pub fn tj3GetErrorStr(handle: Handle) -> *mut c_char;
        pub fn tj3GetErrorCode(handle: Handle) -> c_int;
        pub fn tj3Set(handle: Handle, parameter: c_int, value: c_int) -> c_int;
        pub fn tj3Get(handle: Handle, parameter: c_int) -> c_int;
        pub fn tj3DecompressHeader(handle: Handle, jpeg: *const c_uchar, bytes: usize) -> c_int;
        pub fn tj3SetScalingFactor(handle: Handle, factor: ScalingFactor) -> c_int;
        pub fn tj3SetCroppingRegion(handle: Handle, region: Region) -> c_int;
        pub fn tj3Decompress8(
            handle: Handle,
            jpeg: *const c_uchar,
            bytes: usize,
            out: *mut c_uchar,
            pitch: c_int,
            pixels: c_int,
        ) -> c_int;
        pub fn tj3JPEGBufSize(width: c_int, height: c_int, subsampling: c_int) -> usize;
        pub fn tj3Compress8(
            handle: Handle,
            from: *const c_uchar,
            width: c_int,
            pitch: c_int,
            height: c_int,
            pixels: c_int,
            jpeg: *mut *mut c_uchar,
            bytes: *mut usize,
        ) -> c_int;
    }
}

/// Names to ask the loader for. The first one also finds a library that is already loaded.
#[cfg(not(feature = "turbojpeg-vendored"))]
const NAMES: [&str; 2] = ["libturbojpeg.so.0", "libturbojpeg.so"];

/// Comes before the version in the file, in the message of libjpeg that has it.
#[cfg(not(feature = "turbojpeg-vendored"))]
const VERSION_PREFIX: &[u8] = b"libjpeg-turbo version ";

/// Longest file that is searched for its version: ten times as long as the library is.
#[cfg(not(feature = "turbojpeg-vendored"))]
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(not(feature = "turbojpeg-vendored"))]
impl Table {
    /// Loads the first library that has all functions.
    ///
    /// # Errors
    /// That of the first library that was found and cannot be used, else what the loader said about the last one.
    pub(super) fn load(places: &[PathBuf]) -> Result<Table, OpenError> {
        use std::error::Error as _;
        let named = NAMES.iter().map(PathBuf::from);
        let placed = places.iter().flat_map(|place| {
            if place.is_dir() { NAMES.iter().map(|name| place.join(name)).collect() } else { vec![place.clone()] }
        });
        let (mut said, mut unusable) = (String::new(), None);
        for path in named.chain(placed) {
            match open(&path) {
                Ok(library) => match Table::of(&library, &path) {
                    Ok(table) => return Ok(table),
                    Err(error) => unusable = unusable.or(Some(error)),
                },
                // The source of the crate's own error, which only names the function, is the loader's message.
                Err(error) => said = error.source().map_or_else(|| error.to_string(), ToString::to_string),
            }
        }
        Err(unusable.unwrap_or(OpenError::Absent(said)))
    }

    fn of(library: &Library, asked: &std::path::Path) -> Result<Table, OpenError> {
        macro_rules! function {
            ($type:ty, $name:literal) => {{
                // SAFETY: this is the type that turbojpeg.h gives the function of this name, since version 3.0.
                unsafe { symbol::<$type>(library, $name) }
            }};
        }
        // SAFETY: only the address is looked at. The function is of every version since 1.0.
        let old = unsafe { symbol::<*const std::ffi::c_void>(library, c"tjDestroy") };
        let path = old.and_then(file_of).unwrap_or_else(|| asked.to_path_buf());
        let Some(init) = function!(abi::Init, c"tj3Init") else {
            let version = version_in(&path);
            return Err(OpenError::TooOld { path, version });
        };
        macro_rules! required {
            ($type:ty, $name:literal) => {
                function!($type, $name).ok_or_else(|| OpenError::Incomplete {
                    path: path.clone(),
                    function: $name.to_string_lossy().into_owned(),
                })?
            };
        }
        Ok(Table {
            init,
            destroy: required!(abi::Destroy, c"tj3Destroy"),
            error_str: required!(abi::GetErrorStr, c"tj3GetErrorStr"),
            error_code: required!(abi::GetErrorCode, c"tj3GetErrorCode"),
            set: required!(abi::Set, c"tj3Set"),
            get: required!(abi::Get, c"tj3Get"),
            decompress_header: required!(abi::DecompressHeader, c"tj3DecompressHeader"),
            set_scaling_factor: required!(abi::SetScalingFactor, c"tj3SetScalingFactor"),
            set_cropping_region: required!(abi::SetCroppingRegion, c"tj3SetCroppingRegion"),
            decompress: required!(abi::Decompress8, c"tj3Decompress8"),
            jpeg_buf_size: required!(abi::JpegBufSize, c"tj3JPEGBufSize"),
            compress: required!(abi::Compress8, c"tj3Compress8"),
            version: version_in(&path).unwrap_or_else(|| "3".into()),
            path: Some(path),
        })
    }
}

/// The file that a function's address is in.
#[cfg(not(feature = "turbojpeg-vendored"))]
fn file_of(function: *const std::ffi::c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about, and the second one is of a local of the right type, written to during
    // the call only.
    let status = unsafe { libc::dladdr(function, found.as_mut_ptr()) };
    // SAFETY: it was zeroed, and a Dl_info of null pointers is one.
    let found = unsafe { found.assume_init() };
    if status == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr found the object, so that this is its name, which ends with a zero and stays as long as the object
    // is loaded: it is never unloaded.
    let name = unsafe { std::ffi::CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// The version in the library's file; no function returns it.
#[cfg(not(feature = "turbojpeg-vendored"))]
fn version_in(path: &std::path::Path) -> Option<String> {
    if std::fs::metadata(path).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let at = bytes.windows(VERSION_PREFIX.len()).position(|window| window == VERSION_PREFIX)?;
    let digits = bytes[at + VERSION_PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
    let version: String = digits.take(20).map(|&byte| char::from(byte)).collect();
    (!version.is_empty()).then_some(version)
}

/// Loads a library permanently.
#[cfg(not(feature = "turbojpeg-vendored"))]
fn open(path: &std::path::Path) -> Result<std::mem::ManuallyDrop<Library>, libloading::Error> {
    // SAFETY: loading runs the library's initialisers, which can do anything. That the file of this name is
    // libjpeg-turbo and does no harm is the word of the system or the caller, as it is for every linked library.
    let library = unsafe { Library::open(Some(path.as_os_str()), RTLD_NOW | RTLD_LOCAL) }?;
    Ok(std::mem::ManuallyDrop::new(library))
}

/// The function with this name, if there is one.
///
/// # Safety
/// `T` is the type of a pointer to the function of this name.
#[cfg(not(feature = "turbojpeg-vendored"))]
unsafe fn symbol<T: Copy>(library: &Library, name: &std::ffi::CStr) -> Option<T> {
    // SAFETY: the caller guarantees the type.
    let found = unsafe { library.get::<T>(name) };
    found.ok().map(|symbol| *symbol)
}
