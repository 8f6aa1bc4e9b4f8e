//! The functions of `libcuda.so.1` that we call, under their names in the library. `cuda.h` of CUDA 12.0 maps the plain
//! names to these.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUresult`: 0 is success.
pub(crate) type Code = c_int;
/// `CUdevice`.
pub(crate) type RawDevice = c_int;
/// `CUdeviceptr`.
pub(crate) type Address = u64;
/// `CUcontext`, `CUstream`, `CUevent`, `CUmodule`, `CUfunction`: opaque.
pub(crate) type Handle = *mut c_void;

/// `CUmemcpyAttributes`: how a copy of several may read its source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyAttributes {
    /// `CUmemcpySrcAccessOrder`.
    pub(crate) order: c_int,
    /// `CUmemLocation` of source and target (type and number), which matter for managed memory only.
    pub(crate) hints: [c_int; 4],
    pub(crate) flags: c_uint,
}

impl Table {
    /// Whether both belong to one library. No library is unloaded, so no address ever belongs to two functions.
    pub(crate) fn is_same(&self, other: &Table) -> bool {
        std::ptr::fn_addr_eq(self.cuInit, other.cuInit)
    }

    /// A number that no other library has, for the same reason.
    pub(crate) fn identity(&self) -> usize {
        self.cuInit as usize
    }
}

table! {
    pub(crate) Code:
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut RawDevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, RawDevice);
    cuDeviceGetAttribute(*mut c_int, c_int, RawDevice);
    cuDeviceTotalMem_v2(*mut usize, RawDevice);
    cuDeviceGetPCIBusId(*mut c_char, c_int, RawDevice);
    cuDevicePrimaryCtxRetain(*mut Handle, RawDevice);
    cuDevicePrimaryCtxRelease_v2(RawDevice);
    cuCtxPushCurrent_v2(Handle);
    cuCtxPopCurrent_v2(*mut Handle);
    cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut Address, usize);
    cuMemFree_v2(Address);
    cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    cuMemHostUnregister(*mut c_void);
    cuMemHostGetDevicePointer_v2(*mut Address, *mut c_void, c_uint);
    cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Handle);
    cuMemcpyDtoDAsync_v2(Address, Address, usize, Handle);
    cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Handle);
    cuStreamCreateWithPriority(*mut Handle, c_uint, c_int);
    cuStreamDestroy_v2(Handle);
    cuStreamQuery(Handle);
    cuStreamWaitEvent(Handle, Handle, c_uint);
    cuStreamGetCtx(Handle, *mut Handle);
    cuEventCreate(*mut Handle, c_uint);
    cuEventRecord(Handle, Handle);
    cuEventQuery(Handle);
    cuEventSynchronize(Handle);
    cuEventElapsedTime(*mut f32, Handle, Handle);
    cuEventDestroy_v2(Handle);
    cuModuleLoadData(*mut Handle, *const c_void);
    cuModuleUnload(Handle);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    ; optional
    cuStreamWriteValue32_v2(Handle, Address, u32, c_uint);
    cuFuncLoad(Handle);
    cuStreamIsCapturing(Handle, *mut c_int);
    // Of CUDA 12.8, and of 13.0, where it lost the number of the copy that failed.
    cuMemcpyBatchAsync(
        *mut Address, *mut Address, *mut usize, usize, *mut CopyAttributes, *mut usize, usize, *mut usize, Handle
    );
    cuMemcpyBatchAsync_v2(
        *const Address, *const Address, *const usize, usize, *const CopyAttributes, *const usize, usize, Handle
    );
    cuThreadExchangeStreamCaptureMode(*mut c_int);
}
