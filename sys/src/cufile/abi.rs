//! What we use of `cufile.h` 1.20: types by their layout, functions by their C types.

use std::ffi::{c_char, c_int, c_long, c_void};

/// `CUfileError_t`, which is returned by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Status {
    /// `CUfileOpError`: 0, or 5001 and above.
    pub(super) code: c_int,
    /// `CUresult`, which is meaningful only if `code` is 5011.
    pub(super) cuda: c_int,
}

/// `CUfileDescr_t`.
#[repr(C)]
pub(super) struct Descriptor {
    /// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`, the only kind that we use.
    pub(super) kind: c_int,
    pub(super) handle: DescriptorHandle,
    /// Null, so that the library determines the file system by itself.
    pub(super) operations: *const c_void,
}

/// The union in `CUfileDescr_t`, with size and alignment of a pointer.
#[repr(C)]
pub(super) union DescriptorHandle {
    pub(super) fd: c_int,
    pub(super) pointer: *mut c_void,
}

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
pub(super) const HANDLE_IS_FD: c_int = 1;

/// `CUfileHandle_t`, which only the library looks into.
pub(super) type Handle = *mut c_void;

pub(super) type DriverOpen = unsafe extern "C" fn() -> Status;
pub(super) type DriverClose = unsafe extern "C" fn() -> Status;
pub(super) type GetProperties = unsafe extern "C" fn(*mut c_void) -> Status;
pub(super) type HandleRegister = unsafe extern "C" fn(*mut Handle, *mut Descriptor) -> Status;
pub(super) type HandleDeregister = unsafe extern "C" fn(Handle);
pub(super) type BufRegister = unsafe extern "C" fn(*const c_void, usize, c_int) -> Status;
pub(super) type BufDeregister = unsafe extern "C" fn(*const c_void) -> Status;
pub(super) type Read = unsafe extern "C" fn(Handle, *mut c_void, usize, libc::off_t, libc::off_t) -> isize;
pub(super) type GetVersion = unsafe extern "C" fn(*mut c_int) -> Status;
pub(super) type UseCount = unsafe extern "C" fn() -> c_long;

/// Bytes given to `cuFileDriverGetProperties`. `CUfileDrvProps_t` has 56 bytes in 1.20 and has grown before: additions
/// by later libraries must fit.
pub(super) const PROPERTIES_BYTES: usize = 256;

/// Offsets of the fields of `CUfileDrvProps_t`.
pub(super) mod property {
    pub(in super::super) const MAJOR: usize = 0;
    pub(in super::super) const MINOR: usize = 4;
    pub(in super::super) const MAX_DIRECT_IO_KIB: usize = 16;
    pub(in super::super) const STATUS_FLAGS: usize = 24;
    pub(in super::super) const CONTROL_FLAGS: usize = 28;
    pub(in super::super) const FEATURE_FLAGS: usize = 32;
    pub(in super::super) const MAX_DEVICE_CACHE_KIB: usize = 36;
    pub(in super::super) const MAX_PINNED_KIB: usize = 44;
}

/// `CU_FILE_ALLOW_COMPAT_MODE`, a bit of the control flags.
pub(super) const CONTROL_COMPAT: u32 = 1 << 1;

/// `CU_FILE_P2P_SUPPORTED`, a bit of the feature flags.
pub(super) const FEATURE_P2P: u32 = 1 << 4;

unsafe extern "C" {
    /// `environ(7)`: a list of pointers to "NAME=value" that ends with a null pointer. Declared as the atomic of the
    /// same layout, because C reads and writes it without Rust's knowledge.
    pub(super) static environ: std::sync::atomic::AtomicPtr<*mut c_char>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    /// The numbers come from a C compiler and cufile.h, for x86-64 and 64-bit Arm, which lay structs out alike.
    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!((size_of::<Status>(), align_of::<Status>(), offset_of!(Status, cuda)), (8, 4, 4));
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (24, 8));
        assert_eq!((offset_of!(Descriptor, handle), offset_of!(Descriptor, operations)), (8, 16));
        assert_eq!(size_of::<DescriptorHandle>(), size_of::<*mut c_void>());
        assert_eq!((size_of::<libc::off_t>(), size_of::<isize>()), (8, 8));
    }
}
