//! Tests of the calls with functions of our own in the table, and of libraries that cannot be used.

use super::*;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often NVML was initialised without being shut down. One test counts it.
static OPEN: AtomicU32 = AtomicU32::new(0);

const HANDLE: Handle = 0x1234usize as Handle;
const FIND: &str = "nvmlDeviceGetHandleByPciBusId_v2";

extern "C" fn init() -> Status {
    OPEN.fetch_add(1, Ordering::Relaxed);
    0
}

extern "C" fn no_driver() -> Status {
    9
}

extern "C" fn shutdown() -> Status {
    OPEN.fetch_sub(1, Ordering::Relaxed);
    0
}

extern "C" fn find(address: *const c_char, handle: *mut Handle) -> Status {
    // SAFETY: `Nvml::device` passes a string with its NUL.
    let address = unsafe { CStr::from_ptr(address) };
    if address != c"0000:3b:00.0" {
        return 6;
    }
    // SAFETY: `Nvml::device` passes a pointer to its variable.
    unsafe { handle.write(HANDLE) };
    0
}

extern "C" fn rates(device: Handle, rates: *mut Utilization) -> Status {
    assert_eq!(device, HANDLE);
    // SAFETY: `busy_percent` passes a pointer to its variable.
    unsafe { rates.write(Utilization { gpu: 87, memory: 12 }) };
    0
}

extern "C" fn throughput(device: Handle, counter: c_uint, _rate: *mut c_uint) -> Status {
    assert_eq!((device, counter), (HANDLE, 1));
    3
}

extern "C" fn number<const N: u32>(device: Handle, number: *mut c_uint) -> Status {
    assert_eq!(device, HANDLE);
    // SAFETY: `Device::number` passes a pointer to its variable.
    unsafe { number.write(N) };
    0
}

fn table() -> Table {
    Table {
        nvmlInit_v2: init,
        nvmlShutdown: shutdown,
        nvmlDeviceGetHandleByPciBusId_v2: find,
        nvmlDeviceGetUtilizationRates: rates,
        nvmlDeviceGetPcieThroughput: throughput,
        nvmlDeviceGetCurrPcieLinkGeneration: number::<3>,
        nvmlDeviceGetCurrPcieLinkWidth: number::<8>,
        nvmlDeviceGetMaxPcieLinkGeneration: number::<5>,
        nvmlDeviceGetMaxPcieLinkWidth: number::<16>,
        _library: std::mem::ManuallyDrop::new(Loaded::this().into()),
    }
}

#[test]
fn a_device_answers_until_nvml_is_dropped() {
    let nvml = Nvml::of(table()).unwrap();
    let device = nvml.device("0000:3b:00.0").unwrap();
    assert_eq!(device.busy_percent(), Ok(87));
    assert_eq!(device.link(), Ok(Link { generation: 3, width: 8, generation_max: 5, width_max: 16 }));
    let uncounted = device.received_kilobytes().unwrap_err();
    assert_eq!(uncounted.to_string(), "nvmlDeviceGetPcieThroughput: NVML_ERROR_NOT_SUPPORTED (3)");
    let absent = nvml.device("0000:00:00.0").unwrap_err();
    assert_eq!(absent.to_string(), "nvmlDeviceGetHandleByPciBusId_v2: NVML_ERROR_NOT_FOUND (6)");
    assert_eq!(nvml.device("0000\0").unwrap_err(), NvmlError::Status { code: 2, call: FIND });
    assert_eq!(OPEN.load(Ordering::Relaxed), 1);
    drop(nvml);
    assert_eq!(OPEN.load(Ordering::Relaxed), 0, "shut down as often as initialised");
}

#[test]
fn without_a_driver_nothing_is_shut_down() {
    // A shutdown would make the counter of the other test wrap.
    let error = Nvml::of(Table { nvmlInit_v2: no_driver, ..table() }).unwrap_err();
    assert_eq!(error.to_string(), "nvmlInit_v2: NVML_ERROR_DRIVER_NOT_LOADED (9)");
}

#[test]
fn what_is_no_library_is_told() {
    let absent = Nvml::at("libnvidia-ml.so.none").unwrap_err();
    assert!(matches!(&absent, NvmlError::Absent(said) if said.contains("libnvidia-ml.so.none")), "{absent}");
    // A library that exists and is another.
    let other = Nvml::at("libc.so.6").unwrap_err();
    assert_eq!(other, NvmlError::Incomplete("nvmlInit_v2"));
    assert_eq!(other.to_string(), "libnvidia-ml.so.1 has no nvmlInit_v2");
}

#[test]
fn codes_have_their_names() {
    let named = (0..1000).filter(|&code| NvmlError::name(code) != "NVML error").collect::<Vec<_>>();
    assert_eq!(named, [1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 999]);
}
