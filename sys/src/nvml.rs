//! NVML, NVIDIA's management library: the driver's own counters of a GPU. It is loaded at run time.
//!
//! [`Nvml::open`] finds it, [`Nvml::device`] a GPU by its address, and a [`Device`] answers questions. The types and
//! numbers are those of NVIDIA's `nvml.h`, which have been the same since CUDA 7. NVML may be called from any thread,
//! and counts how often it was opened: code that opens it twice has it until both are dropped.

use crate::table::said;
use libloading::Library;
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CString, c_char, c_uint, c_void};
use std::fmt;

/// The name under which the driver installs it.
const NAME: &str = "libnvidia-ml.so.1";

/// NVML, in use until it is dropped. The library itself is never unloaded.
pub struct Nvml {
    table: Table,
}

/// A GPU. Its handle is good until NVML is shut down, which the reference puts off.
pub struct Device<'a> {
    nvml: &'a Nvml,
    handle: Handle,
}

/// A PCIe link as it is now (an idle GPU slows its own down), and the maximum that GPU and slot support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Generation.
    pub generation: u32,
    /// Lanes.
    pub width: u32,
    /// The highest generation.
    pub generation_max: u32,
    /// The most lanes.
    pub width_max: u32,
}

impl Nvml {
    /// Loads the library by the name that the driver gives it, and lets it find the driver.
    ///
    /// # Errors
    /// [`NvmlError::Absent`] or `Incomplete` where there is none that can be used, and what it says where there is no
    /// driver.
    pub fn open() -> Result<Nvml, NvmlError> {
        Nvml::at(NAME)
    }

    fn at(path: &str) -> Result<Nvml, NvmlError> {
        Nvml::of(Table::load(load(path)?).map_err(NvmlError::Incomplete)?)
    }

    fn of(table: Table) -> Result<Nvml, NvmlError> {
        // SAFETY: it takes nothing, and may be called at any time and more than once.
        let status = unsafe { (table.nvmlInit_v2)() };
        check("nvmlInit_v2", status)?;
        Ok(Nvml { table })
    }

    /// The GPU at this address of the PCI bus, such as "0000:3b:00.0".
    ///
    /// # Errors
    /// What NVML says: `NVML_ERROR_INVALID_ARGUMENT` or `NVML_ERROR_NOT_FOUND` where there is no such GPU.
    pub fn device(&self, pci: &str) -> Result<Device<'_>, NvmlError> {
        const CALL: &str = "nvmlDeviceGetHandleByPciBusId_v2";
        let address = CString::new(pci).map_err(|_| NvmlError::Status { code: INVALID_ARGUMENT, call: CALL })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: NVML is initialised as long as `self` is. The address is a string with its NUL, and the handle a
        // variable: both outlive the call, which keeps neither.
        let status = unsafe { (self.table.nvmlDeviceGetHandleByPciBusId_v2)(address.as_ptr(), &raw mut handle) };
        check(CALL, status)?;
        Ok(Device { nvml: self, handle })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: `of` has initialised it once, and this is the one shutdown for that. Every handle borrows `self`, so
        // none is left.
        let _ = unsafe { (self.table.nvmlShutdown)() };
    }
}

impl Device<'_> {
    /// Percent of the time in which a kernel ran, over the last period of the GPU's: up to a second.
    ///
    /// # Errors
    /// What NVML says.
    pub fn busy_percent(&self) -> Result<u32, NvmlError> {
        let mut rates = Utilization::default();
        // SAFETY: the handle is of this NVML, which is initialised while `self` borrows it, and the rates are a struct
        // of the header's layout that outlives the call.
        let status = unsafe { (self.nvml.table.nvmlDeviceGetUtilizationRates)(self.handle, &raw mut rates) };
        check("nvmlDeviceGetUtilizationRates", status)?;
        Ok(rates.gpu)
    }

    /// Thousands of bytes per second that it received over PCIe in the last 20 ms.
    ///
    /// # Errors
    /// What NVML says: `NVML_ERROR_NOT_SUPPORTED` where the GPU does not count them.
    pub fn received_kilobytes(&self) -> Result<u32, NvmlError> {
        let mut rate = 0;
        // SAFETY: as in `busy_percent`; the counter is one of the header's, and the rate is a variable that outlives
        // the call.
        let status = unsafe { (self.nvml.table.nvmlDeviceGetPcieThroughput)(self.handle, RX_BYTES, &raw mut rate) };
        check("nvmlDeviceGetPcieThroughput", status)?;
        Ok(rate)
    }

    /// Its link to the bus.
    ///
    /// # Errors
    /// What NVML says: `NVML_ERROR_NOT_SUPPORTED` where there is none.
    pub fn link(&self) -> Result<Link, NvmlError> {
        let table = &self.nvml.table;
        Ok(Link {
            generation: self
                .number("nvmlDeviceGetCurrPcieLinkGeneration", table.nvmlDeviceGetCurrPcieLinkGeneration)?,
            width: self.number("nvmlDeviceGetCurrPcieLinkWidth", table.nvmlDeviceGetCurrPcieLinkWidth)?,
            generation_max: self
                .number("nvmlDeviceGetMaxPcieLinkGeneration", table.nvmlDeviceGetMaxPcieLinkGeneration)?,
            width_max: self.number("nvmlDeviceGetMaxPcieLinkWidth", table.nvmlDeviceGetMaxPcieLinkWidth)?,
        })
    }

    /// What a function says that fills in one number. Only for those of the table.
    fn number(&self, call: &'static str, function: NumberOf) -> Result<u32, NvmlError> {
        let mut number = 0;
        // SAFETY: `link`, the only caller, passes functions of the table, which take a handle and write one number. The
        // handle is good as in `busy_percent`, and the number is a variable that outlives the call.
        let status = unsafe { function(self.handle, &raw mut number) };
        check(call, status)?;
        Ok(number)
    }
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nvml")
    }
}

impl fmt::Debug for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:p})", self.handle)
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvmlError {
    /// The system's loader finds no library. What it said.
    Absent(String),
    /// The library lacks this function.
    Incomplete(&'static str),
    /// A call failed.
    Status {
        /// `nvmlReturn_t`.
        code: u32,
        /// The function.
        call: &'static str,
    },
}

impl NvmlError {
    /// The name in `nvml.h`, for the codes that these calls can return.
    fn name(code: Status) -> &'static str {
        match code {
            1 => "NVML_ERROR_UNINITIALIZED",
            INVALID_ARGUMENT => "NVML_ERROR_INVALID_ARGUMENT",
            3 => "NVML_ERROR_NOT_SUPPORTED",
            4 => "NVML_ERROR_NO_PERMISSION",
            6 => "NVML_ERROR_NOT_FOUND",
            8 => "NVML_ERROR_INSUFFICIENT_POWER",
            9 => "NVML_ERROR_DRIVER_NOT_LOADED",
            10 => "NVML_ERROR_TIMEOUT",
            11 => "NVML_ERROR_IRQ_ISSUE",
            12 => "NVML_ERROR_LIBRARY_NOT_FOUND",
            13 => "NVML_ERROR_FUNCTION_NOT_FOUND",
            15 => "NVML_ERROR_GPU_IS_LOST",
            16 => "NVML_ERROR_RESET_REQUIRED",
            17 => "NVML_ERROR_OPERATING_SYSTEM",
            18 => "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
            19 => "NVML_ERROR_IN_USE",
            20 => "NVML_ERROR_MEMORY",
            999 => "NVML_ERROR_UNKNOWN",
            _ => "NVML error",
        }
    }
}

impl fmt::Display for NvmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NvmlError::Absent(said) => {
                write!(f, "the loader finds no {NAME}, which comes with NVIDIA's driver: {said}")
            }
            NvmlError::Incomplete(function) => write!(f, "{NAME} has no {function}"),
            NvmlError::Status { code, call } => write!(f, "{call}: {} ({code})", NvmlError::name(*code)),
        }
    }
}

impl std::error::Error for NvmlError {}

fn check(call: &'static str, code: Status) -> Result<(), NvmlError> {
    if code == 0 { Ok(()) } else { Err(NvmlError::Status { code, call }) }
}

fn load(path: &str) -> Result<Library, NvmlError> {
    // SAFETY: loading runs the library's initialisers. It is the one that the system's loader knows by the driver's
    // name for it, which is trusted with the process, as every library is.
    let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    loaded.map(Library::from).map_err(|error| NvmlError::Absent(said(&error)))
}

/// `nvmlReturn_t`: 0 is success.
type Status = c_uint;
/// `nvmlDevice_t`: opaque.
type Handle = *mut c_void;
/// A function that writes one number about a device.
type NumberOf = unsafe extern "C" fn(Handle, *mut c_uint) -> Status;

/// `NVML_ERROR_INVALID_ARGUMENT`.
const INVALID_ARGUMENT: Status = 2;
/// `NVML_PCIE_UTIL_RX_BYTES` of `nvmlPcieUtilCounter_t`.
const RX_BYTES: c_uint = 1;

/// `nvmlUtilization_t`: percent.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

table! {
    Status:
    nvmlInit_v2();
    nvmlShutdown();
    nvmlDeviceGetHandleByPciBusId_v2(*const c_char, *mut Handle);
    nvmlDeviceGetUtilizationRates(Handle, *mut Utilization);
    nvmlDeviceGetPcieThroughput(Handle, c_uint, *mut c_uint);
    nvmlDeviceGetCurrPcieLinkGeneration(Handle, *mut c_uint);
    nvmlDeviceGetCurrPcieLinkWidth(Handle, *mut c_uint);
    nvmlDeviceGetMaxPcieLinkGeneration(Handle, *mut c_uint);
    nvmlDeviceGetMaxPcieLinkWidth(Handle, *mut c_uint);
}

#[cfg(test)]
mod tests;
