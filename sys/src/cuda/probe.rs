//! Detects whether there is a driver, without panicking and without calling anything that may not exist.

use super::error::{self, CudaError, check};
use super::table::{RawDevice, Table};
use crate::table::said;
use libloading::Library;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The name under which the system's loader finds an installed driver. The plain `libcuda.so` may be the toolkit's
/// stub, which exists to link against, so it is not tried.
const LIBRARY: &str = "libcuda.so.1";

/// Where containers and NixOS have an installed driver, without telling the system's loader: what the container toolkit
/// mounts on Kubernetes (GKE and others), and NixOS's own place. Tried in this order, after what the loader finds.
const FOLDERS: [&str; 2] = ["/usr/local/nvidia/lib64", "/run/opengl-driver/lib"];

/// The oldest driver that accepts our PTX: CUDA 12.0, as 1000 * major + 10 * minor.
pub const OLDEST_VERSION: i32 = 12000;

/// Why CUDA cannot be used. `Display` says what was found, and [`remedy`](ProbeError::remedy) what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeError {
    /// No such library, with the message of the system's loader.
    NoLibrary(String),
    /// The library is the toolkit's stub.
    Stub,
    /// The library lacks a function.
    MissingSymbol(&'static str),
    /// The driver is older than CUDA 12.0; has its version.
    TooOld(i32),
    /// The driver does not start.
    Init(CudaError),
    /// The driver has no device.
    NoDevice,
    /// There is no device with this number. Has the number, and how many devices there are.
    NoSuchDevice(u32, u32),
}

impl ProbeError {
    /// What the user can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            ProbeError::NoLibrary(_) => "install the NVIDIA driver, or start the container with --gpus all",
            ProbeError::Stub => "take the toolkit's stubs folder out of LD_LIBRARY_PATH",
            ProbeError::MissingSymbol(_) | ProbeError::TooOld(_) => {
                "install a driver for CUDA 12.0 or later (525.60.13)"
            }
            ProbeError::Init(error) if error.code == error::SYSTEM_NOT_READY => {
                "start the fabric manager (systemctl start nvidia-fabricmanager) and wait until nvidia-smi -q shows \
                 the fabric as completed"
            }
            ProbeError::Init(error) if error.code == 803 => "restart the machine: the driver was updated under it",
            ProbeError::Init(_) => "see nvidia-smi and the kernel's log: the driver does not start",
            ProbeError::NoDevice => "see CUDA_VISIBLE_DEVICES and nvidia-smi: the driver shows no device",
            ProbeError::NoSuchDevice(..) => "name one of the devices that doctor lists, from 0",
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |v: i32| (v / 1000, v % 1000 / 10);
        match self {
            ProbeError::NoLibrary(said) => write!(f, "no CUDA driver ({said})"),
            ProbeError::Stub => f.write_str("the CUDA driver that was found is the toolkit's stub"),
            ProbeError::MissingSymbol(name) => write!(f, "the CUDA driver has no {name}"),
            ProbeError::TooOld(v) => write!(f, "the driver is for CUDA {}.{}", version(*v).0, version(*v).1),
            ProbeError::Init(error) => write!(f, "the CUDA driver does not start ({error})"),
            ProbeError::NoDevice => f.write_str("the CUDA driver has no device"),
            ProbeError::NoSuchDevice(index, count) => {
                write!(f, "there is no device cuda:{index}: the driver has {count}")
            }
        }
    }
}

impl std::error::Error for ProbeError {}

/// A driver that starts, is new enough, and has a device.
#[derive(Clone)]
pub struct Driver {
    pub(super) table: Arc<Table>,
    version: i32,
    devices: u32,
}

/// What the driver reports about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Number of the device, from 0.
    pub index: u32,
    /// Name, such as "NVIDIA H100".
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Compute capability, such as (9, 0).
    pub compute: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Address on the PCI bus as sysfs writes it, such as "0000:3b:00.0".
    pub pci: String,
}

impl Driver {
    /// Loads `library`, or the `libcuda.so.1` that the system's loader finds, or, where it finds none, that of
    /// `/usr/local/nvidia/lib64` or `/run/opengl-driver/lib`; and starts it.
    ///
    /// A library runs code of its own when it is loaded, and is called as `cuda.h` declares: name no file that you
    /// would not link.
    ///
    /// # Errors
    /// The step that failed.
    pub fn open(library: Option<&Path>) -> Result<Driver, ProbeError> {
        let library = match library {
            Some(library) => load(library)?,
            None => first_of(LIBRARY, &FOLDERS.map(Path::new))?,
        };
        let table = Table::load(library).map_err(ProbeError::MissingSymbol)?;
        // SAFETY: `cuInit` takes flags, which must be 0.
        let started = check("cuInit", unsafe { (table.cuInit)(0) });
        started.map_err(|error| match error.code {
            error::STUB_LIBRARY => ProbeError::Stub,
            error::NO_DEVICE => ProbeError::NoDevice,
            _ => ProbeError::Init(error),
        })?;
        let mut version = 0;
        // SAFETY: the pointer is to an int that lives until the call returns.
        let asked = unsafe { (table.cuDriverGetVersion)(&raw mut version) };
        check("cuDriverGetVersion", asked).map_err(ProbeError::Init)?;
        if version < OLDEST_VERSION {
            return Err(ProbeError::TooOld(version));
        }
        let mut devices = 0;
        // SAFETY: as above.
        let asked = unsafe { (table.cuDeviceGetCount)(&raw mut devices) };
        check("cuDeviceGetCount", asked).map_err(ProbeError::Init)?;
        match u32::try_from(devices) {
            Ok(devices) if devices > 0 => Ok(Driver { table: Arc::new(table), version, devices }),
            _ => Err(ProbeError::NoDevice),
        }
    }

    /// The CUDA version that the driver supports, as 1000 * major + 10 * minor.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Number of devices.
    pub fn devices(&self) -> u32 {
        self.devices
    }

    /// What the driver reports about device `index`.
    ///
    /// # Errors
    /// `NoSuchDevice`; `Init` for whatever the driver reports.
    pub fn info(&self, index: u32) -> Result<DeviceInfo, ProbeError> {
        let device = self.device(index)?;
        self.read_info(index, device).map_err(ProbeError::Init)
    }

    pub(super) fn device(&self, index: u32) -> Result<RawDevice, ProbeError> {
        if index >= self.devices {
            return Err(ProbeError::NoSuchDevice(index, self.devices));
        }
        let mut device = 0;
        // SAFETY: the pointer is to an int that lives until the call returns, and the index belongs to a device.
        let found = unsafe { (self.table.cuDeviceGet)(&raw mut device, index as c_int) };
        check("cuDeviceGet", found).map_err(ProbeError::Init)?;
        Ok(device)
    }

    pub(super) fn attribute(&self, device: RawDevice, attribute: c_int) -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to an int that lives until the call returns, and `device` came from `cuDeviceGet`.
        let asked = unsafe { (self.table.cuDeviceGetAttribute)(&raw mut value, attribute, device) };
        check("cuDeviceGetAttribute", asked)?;
        Ok(value)
    }

    fn read_info(&self, index: u32, device: RawDevice) -> Result<DeviceInfo, CudaError> {
        const MULTIPROCESSORS: c_int = 16;
        const MAJOR: c_int = 75;
        const MINOR: c_int = 76;
        let mut bytes = 0;
        // SAFETY: the pointer is to a `size_t` that lives until the call returns, and `device` came from `cuDeviceGet`.
        let asked = unsafe { (self.table.cuDeviceTotalMem_v2)(&raw mut bytes, device) };
        check("cuDeviceTotalMem", asked)?;
        let mut name = [0; 128];
        // SAFETY: the buffer has the length that the call is given, and the driver writes a string that ends inside it.
        let asked = unsafe { (self.table.cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, device) };
        check("cuDeviceGetName", asked)?;
        let mut bus = [0; 32];
        // SAFETY: as above.
        let asked = unsafe { (self.table.cuDeviceGetPCIBusId)(bus.as_mut_ptr(), bus.len() as c_int, device) };
        check("cuDeviceGetPCIBusId", asked)?;
        Ok(DeviceInfo {
            index,
            name: text(&mut name),
            memory_bytes: bytes as u64,
            compute: (self.attribute(device, MAJOR)? as u32, self.attribute(device, MINOR)? as u32),
            multiprocessors: self.attribute(device, MULTIPROCESSORS)? as u32,
            pci: text(&mut bus).to_lowercase(),
        })
    }
}

/// The library that the system's loader finds under `name`, else the first one in `folders`.
fn first_of(name: &str, folders: &[&Path]) -> Result<Library, ProbeError> {
    let found = load(Path::new(name));
    // Without a slash in its name, a file is only looked for where the system's loader looks.
    let others = folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_absolute() && path.exists());
    found.or_else(|error| others.map(|path| load(&path)).find_map(Result::ok).ok_or(error))
}

fn load(name: &Path) -> Result<Library, ProbeError> {
    // SAFETY: loading runs the library's initialisers. It is the system's driver, or the library that the caller of
    // `Driver::open` names, as its documentation asks. Either is trusted with the process, as every driver is.
    unsafe { Library::new(name) }.map_err(|error| ProbeError::NoLibrary(said(&error)))
}

/// The string that a C function wrote to a buffer.
fn text(buffer: &mut [std::ffi::c_char]) -> String {
    if let Some(last) = buffer.last_mut() {
        *last = 0;
    }
    // SAFETY: the buffer ends with a zero, written above, so the string ends inside it.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("version", &self.version).field("devices", &self.devices).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_looked_for_in_folders_where_the_system_has_none() {
        // The library that the process has loaded acts as the driver: the loader does not find it under another name.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let name = "liburingload-nowhere.so.1";
        let places = [Path::new("relative"), Path::new("/nonexistent"), folder.path()];
        assert!(matches!(first_of(name, &places), Err(ProbeError::NoLibrary(said)) if said.contains(name)));
        std::os::unix::fs::symlink(libc, folder.path().join(name)).unwrap();
        assert!(first_of(name, &places).is_ok());
        assert!(first_of("libc.so.6", &[]).is_ok(), "the system's own comes first");
    }

    #[test]
    fn a_missing_driver_is_an_error_with_a_remedy() {
        let absent = Driver::open(Some(Path::new("/nonexistent/libcuda.so.1"))).unwrap_err();
        assert!(matches!(&absent, ProbeError::NoLibrary(said) if said.contains("nonexistent")), "{absent}");
        // A library that exists and is not a driver.
        let other = Driver::open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert_eq!(other, ProbeError::MissingSymbol("cuInit"));
        assert!(other.remedy().contains("12.0"));
        assert_eq!(ProbeError::TooOld(11040).to_string(), "the driver is for CUDA 11.4");
    }
}
