//! The driver's errors.

use super::table::Code;
use std::fmt;

/// A driver call that failed (`CUresult` in `cuda.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaError {
    /// The driver's error number.
    pub code: i32,
    /// The function that failed.
    pub call: &'static str,
}

pub(crate) const NOT_READY: Code = 600;
const CAPTURE_UNSUPPORTED: Code = 900;
pub(crate) const CAPTURE_IMPLICIT: Code = 906;
const CAPTURED_EVENT: Code = 907;
pub(crate) const STUB_LIBRARY: Code = 34;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const SYSTEM_NOT_READY: Code = 802;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const DEINITIALIZED: Code = 4;
const DEVICE_UNAVAILABLE: Code = 46;
const INVALID_CONTEXT: Code = 201;
const ECC_UNCORRECTABLE: Code = 214;
const NVLINK_UNCORRECTABLE: Code = 220;
const CONTAINED: Code = 226;
const INVALID_HANDLE: Code = 400;
const CONTEXT_IS_DESTROYED: Code = 709;
const MPS_CLIENT_TERMINATED: Code = 810;
const UNKNOWN: Code = 999;

impl CudaError {
    /// Whether the device is out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// Whether nothing can succeed in this process any more: the device is gone, its context is destroyed, or work that
    /// ran there failed. The driver keeps such an error and returns it from every later call (`cuda.h`: "leaves the
    /// process in an inconsistent state"). Between them are codes of single calls, such as 701 (a kernel took too much)
    /// and 712 (memory was pinned already).
    pub fn is_fatal(&self) -> bool {
        matches!(
            self.code,
            DEINITIALIZED
                | DEVICE_UNAVAILABLE
                | INVALID_CONTEXT
                | ECC_UNCORRECTABLE
                | NVLINK_UNCORRECTABLE
                | CONTAINED
                | 700
                | 702
                | CONTEXT_IS_DESTROYED
                | 710
                | 714..=719 | 721 | MPS_CLIENT_TERMINATED | UNKNOWN
        )
    }

    /// Whether a call was refused because a CUDA graph is being captured.
    pub fn is_capture(&self) -> bool {
        (900..=908).contains(&self.code)
    }

    /// Whether the device or the driver does not have what was asked for.
    pub(crate) fn is_unsupported(&self) -> bool {
        self.code == NOT_SUPPORTED
    }

    /// Whether the context was destroyed, by `cuDevicePrimaryCtxReset` or by the end of the process.
    pub fn is_destroyed_context(&self) -> bool {
        matches!(self.code, CONTEXT_IS_DESTROYED | INVALID_CONTEXT | DEINITIALIZED)
    }

    /// Whether an event was last recorded in a stream's capture, where it can become part of a graph only.
    pub fn is_captured_event(&self) -> bool {
        self.code == CAPTURED_EVENT
    }

    /// A call that was not made, because the stream is being captured.
    pub(crate) fn captured(call: &'static str) -> CudaError {
        CudaError { code: CAPTURE_UNSUPPORTED, call }
    }

    /// A call that was not made, because its arguments cannot be right.
    pub(crate) fn invalid(call: &'static str) -> CudaError {
        CudaError { code: INVALID_VALUE, call }
    }

    /// A call that was not made, because a handle belongs to another driver library.
    pub(crate) fn foreign_handle(call: &'static str) -> CudaError {
        CudaError { code: INVALID_HANDLE, call }
    }

    /// The name in `cuda.h`, for the codes that a loader can meet.
    pub fn name(&self) -> &'static str {
        match self.code {
            INVALID_VALUE => "CUDA_ERROR_INVALID_VALUE",
            OUT_OF_MEMORY => "CUDA_ERROR_OUT_OF_MEMORY",
            3 => "CUDA_ERROR_NOT_INITIALIZED",
            DEINITIALIZED => "CUDA_ERROR_DEINITIALIZED",
            STUB_LIBRARY => "CUDA_ERROR_STUB_LIBRARY",
            DEVICE_UNAVAILABLE => "CUDA_ERROR_DEVICE_UNAVAILABLE",
            NO_DEVICE => "CUDA_ERROR_NO_DEVICE",
            101 => "CUDA_ERROR_INVALID_DEVICE",
            200 => "CUDA_ERROR_INVALID_IMAGE",
            INVALID_CONTEXT => "CUDA_ERROR_INVALID_CONTEXT",
            209 => "CUDA_ERROR_NO_BINARY_FOR_GPU",
            ECC_UNCORRECTABLE => "CUDA_ERROR_ECC_UNCORRECTABLE",
            218 => "CUDA_ERROR_INVALID_PTX",
            NVLINK_UNCORRECTABLE => "CUDA_ERROR_NVLINK_UNCORRECTABLE",
            222 => "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            CONTAINED => "CUDA_ERROR_CONTAINED",
            304 => "CUDA_ERROR_OPERATING_SYSTEM",
            INVALID_HANDLE => "CUDA_ERROR_INVALID_HANDLE",
            500 => "CUDA_ERROR_NOT_FOUND",
            NOT_READY => "CUDA_ERROR_NOT_READY",
            700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
            701 => "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            702 => "CUDA_ERROR_LAUNCH_TIMEOUT",
            CONTEXT_IS_DESTROYED => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
            710 => "CUDA_ERROR_ASSERT",
            712 => "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
            713 => "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
            714 => "CUDA_ERROR_HARDWARE_STACK_ERROR",
            715 => "CUDA_ERROR_ILLEGAL_INSTRUCTION",
            716 => "CUDA_ERROR_MISALIGNED_ADDRESS",
            719 => "CUDA_ERROR_LAUNCH_FAILED",
            NOT_SUPPORTED => "CUDA_ERROR_NOT_SUPPORTED",
            SYSTEM_NOT_READY => "CUDA_ERROR_SYSTEM_NOT_READY",
            803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            804 => "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            MPS_CLIENT_TERMINATED => "CUDA_ERROR_MPS_CLIENT_TERMINATED",
            CAPTURE_UNSUPPORTED => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            901 => "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
            902 => "CUDA_ERROR_STREAM_CAPTURE_MERGE",
            903 => "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
            904 => "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
            905 => "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
            CAPTURE_IMPLICIT => "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
            CAPTURED_EVENT => "CUDA_ERROR_CAPTURED_EVENT",
            908 => "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
            909 => "CUDA_ERROR_TIMEOUT",
            UNKNOWN => "CUDA_ERROR_UNKNOWN",
            _ => "CUDA error",
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.name(), self.code)
    }
}

impl std::error::Error for CudaError {}

/// The result of `call`.
pub(crate) fn check(call: &'static str, code: Code) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError { code, call }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_call_did_wrong_is_not_the_end_of_the_device() {
        let is_fatal = |code: Code| CudaError { code, call: "a call" }.is_fatal();
        let of_calls =
            [1, 2, 100, 200, 209, 400, 500, 600, 701, 703, 704, 705, 708, 711, 712, 713, 720, 801, 802, 900, 908];
        assert_eq!(of_calls.into_iter().filter(|&code| is_fatal(code)).collect::<Vec<_>>(), []);
        let of_devices = [4, 46, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999];
        assert!(of_devices.into_iter().all(is_fatal));
    }
}
