//! The types and numbers of turbojpeg.h, as of version 3.0; later versions only add to them.

use std::ffi::{c_char, c_int, c_uchar, c_void};

/// `tjhandle`.
pub type Handle = *mut c_void;

/// `tjscalingfactor`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ScalingFactor {
    pub num: c_int,
    pub denom: c_int,
}

/// `tjregion`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Region {
    pub x: c_int,
    pub y: c_int,
    pub w: c_int,
    pub h: c_int,
}

/// `TJINIT`.
pub const INIT_COMPRESS: c_int = 0;
pub const INIT_DECOMPRESS: c_int = 1;

/// `TJPF`.
pub const PIXELS_RGB: c_int = 0;
pub const PIXELS_GRAY: c_int = 6;
pub const PIXELS_CMYK: c_int = 11;

/// `TJCS`.
pub const COLORS_GRAY: c_int = 2;
pub const COLORS_CMYK: c_int = 3;
pub const COLORS_YCCK: c_int = 4;

/// `TJERR_WARNING`: pixels are there, and something was wrong with the file.
pub const WARNING: c_int = 0;

/// `TJPARAM`.
pub const NO_REALLOC: c_int = 2;
pub const QUALITY: c_int = 3;
pub const SUBSAMPLING: c_int = 4;
pub const WIDTH: c_int = 5;
pub const HEIGHT: c_int = 6;
pub const PRECISION: c_int = 7;
pub const COLORS: c_int = 8;
pub const FAST_UPSAMPLING: c_int = 9;
pub const FAST_DCT: c_int = 10;
pub const SCAN_LIMIT: c_int = 13;
pub const LOSSLESS: c_int = 15;
pub const MAX_PIXELS: c_int = 24;

pub type Init = unsafe extern "C" fn(c_int) -> Handle;
pub type Destroy = unsafe extern "C" fn(Handle);
pub type GetErrorStr = unsafe extern "C" fn(Handle) -> *mut c_char;
pub type GetErrorCode = unsafe extern "C" fn(Handle) -> c_int;
pub type Set = unsafe extern "C" fn(Handle, c_int, c_int) -> c_int;
pub type Get = unsafe extern "C" fn(Handle, c_int) -> c_int;
pub type DecompressHeader = unsafe extern "C" fn(Handle, *const c_uchar, usize) -> c_int;
pub type SetScalingFactor = unsafe extern "C" fn(Handle, ScalingFactor) -> c_int;
pub type SetCroppingRegion = unsafe extern "C" fn(Handle, Region) -> c_int;
pub type Decompress8 = unsafe extern "C" fn(Handle, *const c_uchar, usize, *mut c_uchar, c_int, c_int) -> c_int;
pub type JpegBufSize = unsafe extern "C" fn(c_int, c_int, c_int) -> usize;
pub type Compress8 =
    unsafe extern "C" fn(Handle, *const c_uchar, c_int, c_int, c_int, c_int, *mut *mut c_uchar, *mut usize) -> c_int;
