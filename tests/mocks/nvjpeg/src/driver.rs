//! The functions of the CUDA driver that this library calls.

use libloading::Library;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

/// The driver's functions that the library calls, of the types of `cuda.h`.
#[derive(Clone, Copy)]
pub struct Driver {
    pub pinned: unsafe extern "C" fn(*mut u64, *mut c_void, c_uint) -> c_int,
    pub copy: unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int,
    pub make_stream: unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int,
    pub end_stream: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub make_event: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int,
    pub record: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    pub wait: unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint) -> c_int,
    pub end_event: unsafe extern "C" fn(*mut c_void) -> c_int,
}

pub static DRIVER: OnceLock<Driver> = OnceLock::new();

pub fn at(path: &std::path::Path) -> Option<Driver> {
    // SAFETY: the mock runs nothing when it is loaded.
    let library = ManuallyDrop::new(unsafe { Library::new(path) }.ok()?);
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type of each member is that of `cuda.h`.
            *unsafe { library.get($name) }.ok()?
        };
    }
    Some(Driver {
        pinned: function!(b"cuMemHostGetDevicePointer_v2"),
        copy: function!(b"cuMemcpyHtoDAsync_v2"),
        make_stream: function!(b"cuStreamCreateWithPriority"),
        end_stream: function!(b"cuStreamDestroy_v2"),
        make_event: function!(b"cuEventCreate"),
        record: function!(b"cuEventRecord"),
        wait: function!(b"cuStreamWaitEvent"),
        end_event: function!(b"cuEventDestroy_v2"),
    })
}

/// The named driver, or else the one that this process finds: programs that know nothing of mocks name none.
pub fn named() -> Option<Driver> {
    let found = || at(std::path::Path::new("libcuda.so.1")).map(|driver| *DRIVER.get_or_init(|| driver));
    DRIVER.get().copied().or_else(found)
}
