//! The functions of libcufile, loaded at run time as typed pointers.

use super::abi;
use super::error::OpenError;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::{CStr, OsStr};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// Names to ask the loader for. The first one also finds a library that is already loaded.
const NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

/// The functions of libcufile that we call.
///
/// The library is never unloaded: it starts threads of its own, registers code that runs at process exit, and may hang
/// in a call. So a pointer stays valid as long as the process lives.
pub(super) struct Table {
    pub(super) driver_open: abi::DriverOpen,
    pub(super) driver_close: abi::DriverClose,
    pub(super) get_properties: abi::GetProperties,
    pub(super) handle_register: abi::HandleRegister,
    pub(super) handle_deregister: abi::HandleDeregister,
    pub(super) buf_register: abi::BufRegister,
    pub(super) buf_deregister: abi::BufDeregister,
    pub(super) read: abi::Read,
    /// Since CUDA 12.
    pub(super) get_version: Option<abi::GetVersion>,
    pub(super) use_count: Option<abi::UseCount>,
}

impl Table {
    /// Loads `library` if it is given. Otherwise loads the first that exists: under its names as the loader finds them,
    /// then at `places`, each a library or a folder that holds one.
    ///
    /// # Errors
    /// `Absent`, with what the loader said about the last one; `Incomplete` for a library that lacks a function.
    pub(super) fn load(library: Option<&Path>, places: &[PathBuf]) -> Result<Table, OpenError> {
        let places = if library.is_some() { &[] } else { places };
        let named = NAMES.iter().map(PathBuf::from);
        let named: Vec<PathBuf> = library.map_or_else(|| named.collect(), |library| vec![library.to_path_buf()]);
        let placed = places.iter().flat_map(|place| {
            if place.is_dir() { NAMES.iter().map(|name| place.join(name)).collect() } else { vec![place.clone()] }
        });
        let mut said = String::new();
        for path in named.into_iter().chain(placed) {
            match open(path.as_os_str()) {
                Ok(library) => return Table::of(&library, &path.to_string_lossy()),
                // The source of the crate's own error, which only names the function, is the loader's message.
                Err(error) => said = error.source().map_or_else(|| error.to_string(), ToString::to_string),
            }
        }
        Err(OpenError::Absent(said))
    }

    fn of(library: &Library, name: &str) -> Result<Table, OpenError> {
        let lacks = |function| OpenError::Incomplete { library: name.to_owned(), function };
        macro_rules! function {
            ($type:ty, $name:literal) => {{
                // SAFETY: this is the type that the header gives the function of this name, unchanged since cuFile 1.0.
                unsafe { symbol::<$type>(library, $name) }
            }};
        }
        macro_rules! required {
            ($type:ty, $name:literal) => {
                function!($type, $name).ok_or_else(|| lacks($name.to_str().unwrap_or("a function")))?
            };
        }
        // The header maps cuFileDriverClose to the second version, which takes part in use counting.
        let close = function!(abi::DriverClose, c"cuFileDriverClose_v2");
        Ok(Table {
            driver_open: required!(abi::DriverOpen, c"cuFileDriverOpen"),
            driver_close: match close {
                Some(close) => close,
                None => required!(abi::DriverClose, c"cuFileDriverClose"),
            },
            get_properties: required!(abi::GetProperties, c"cuFileDriverGetProperties"),
            handle_register: required!(abi::HandleRegister, c"cuFileHandleRegister"),
            handle_deregister: required!(abi::HandleDeregister, c"cuFileHandleDeregister"),
            buf_register: required!(abi::BufRegister, c"cuFileBufRegister"),
            buf_deregister: required!(abi::BufDeregister, c"cuFileBufDeregister"),
            read: required!(abi::Read, c"cuFileRead"),
            get_version: function!(abi::GetVersion, c"cuFileGetVersion"),
            use_count: function!(abi::UseCount, c"cuFileUseCount"),
        })
    }
}

/// Loads a library permanently.
fn open(path: &OsStr) -> Result<ManuallyDrop<Library>, libloading::Error> {
    // SAFETY: loading runs the library's initialisers, which can do anything. That the file of this name is NVIDIA's
    // library and does no harm is the word of the system or the caller, as it is for every linked library.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
    Ok(ManuallyDrop::new(library))
}

/// The function with this name, if there is one.
///
/// # Safety
/// `T` is the type of a pointer to the function of this name.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Option<T> {
    // SAFETY: the caller guarantees the type.
    let found = unsafe { library.get::<T>(name) };
    found.ok().map(|symbol| *symbol)
}
