//! The functions of `libnvjpeg.so` that we call. `sys/kernels/headers.py` compares their types, and the numbers below,
//! with NVIDIA's header.

use std::ffi::{c_int, c_uint, c_void};

/// `nvjpegStatus_t`: 0 is success.
pub(super) type Status = c_int;
/// `nvjpegHandle_t`, `nvjpegJpegState_t`, `nvjpegJpegStream_t` and `cudaStream_t`, which is a `CUstream`: opaque.
pub(super) type Handle = *mut c_void;

/// `NVJPEG_MAX_COMPONENT`.
pub(super) const CHANNELS_MAX: usize = 4;

/// `nvjpegImage_t`: where pixels go on the device, and the bytes from row to row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) channel: [*mut u8; CHANNELS_MAX],
    pub(super) pitch: [usize; CHANNELS_MAX],
}

/// `nvjpegDevAllocatorV2_t` and `nvjpegPinnedAllocatorV2_t`: memory of the device and of the host, in the order of
/// streams. 0 is success.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocator {
    pub(super) malloc: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, Handle) -> c_int,
    pub(super) free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, Handle) -> c_int,
    pub(super) ctx: *mut c_void,
}

/// `libraryPropertyType`.
pub(super) const MAJOR_VERSION: c_int = 0;
pub(super) const MINOR_VERSION: c_int = 1;
pub(super) const PATCH_LEVEL: c_int = 2;

/// `nvjpegBackend_t`: the engine for JPEGs that data-centre GPUs have since A100.
pub(super) const NVJPEG_BACKEND_HARDWARE: c_int = 3;
/// Codes are read by multiprocessors where a batch is large, else by the processor; the rest by multiprocessors.
pub(super) const NVJPEG_BACKEND_GPU_HYBRID: c_int = 2;

/// `nvjpegOutputFormat_t`: red, green and blue of a pixel are adjacent.
pub(super) const NVJPEG_OUTPUT_RGBI: c_int = 5;

/// Chroma is interpolated, as libjpeg does. Older libraries refuse it.
pub(super) const NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION: c_uint = 32;

/// `nvjpegStatus_t`.
pub(super) const NVJPEG_STATUS_NOT_INITIALIZED: Status = 1;
pub(super) const NVJPEG_STATUS_INVALID_PARAMETER: Status = 2;
pub(super) const NVJPEG_STATUS_BAD_JPEG: Status = 3;
pub(super) const NVJPEG_STATUS_JPEG_NOT_SUPPORTED: Status = 4;
pub(super) const NVJPEG_STATUS_ALLOCATOR_FAILURE: Status = 5;
pub(super) const NVJPEG_STATUS_EXECUTION_FAILED: Status = 6;
pub(super) const NVJPEG_STATUS_ARCH_MISMATCH: Status = 7;
pub(super) const NVJPEG_STATUS_INTERNAL_ERROR: Status = 8;
pub(super) const NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED: Status = 9;
pub(super) const NVJPEG_STATUS_INCOMPLETE_BITSTREAM: Status = 10;

// The same in the versions 12 and 13.
table! {
    pub(super) Status:
    nvjpegGetProperty(c_int, *mut c_int);
    nvjpegCreateExV2(c_int, *mut Allocator, *mut Allocator, c_uint, *mut Handle);
    nvjpegDestroy(Handle);
    nvjpegJpegStateCreate(Handle, *mut Handle);
    nvjpegJpegStateDestroy(Handle);
    nvjpegJpegStreamCreate(Handle, *mut Handle);
    nvjpegJpegStreamDestroy(Handle);
    nvjpegJpegStreamParseHeader(Handle, *const u8, usize, Handle);
    nvjpegDecodeBatchedSupported(Handle, Handle, *mut c_int);
    nvjpegGetImageInfo(Handle, *const u8, usize, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
    nvjpegDecode(Handle, Handle, *const u8, usize, c_int, *mut Image, Handle);
    nvjpegDecodeBatchedInitialize(Handle, Handle, c_int, c_int, c_int);
    nvjpegDecodeBatched(Handle, Handle, *const *const u8, *const usize, *mut Image, Handle);
    ; optional
    // Of CUDA 11.4.
    nvjpegGetHardwareDecoderInfo(Handle, *mut c_uint, *mut c_uint);
}
